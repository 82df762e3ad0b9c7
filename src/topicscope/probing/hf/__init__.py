"""Hugging Face models: families and their discovery, loading, `ModelView`, and how attention is read."""

from topicscope.probing.hf.eager import ROW_SUM_TOLERANCE, aligned, attention_modules, evaluating, output_of
from topicscope.probing.hf.external import LiveView, live_view
from topicscope.probing.hf.families import PartSpec
from topicscope.probing.hf.loading import load_model, model_files, pinned, quiet
from topicscope.probing.hf.sdpa import Factors, NotFactored
from topicscope.probing.hf.view import FIXED_POSITION, ModelView, view_model

__all__ = [
    "FIXED_POSITION",
    "ROW_SUM_TOLERANCE",
    "Factors",
    "LiveView",
    "ModelView",
    "NotFactored",
    "PartSpec",
    "aligned",
    "attention_modules",
    "evaluating",
    "live_view",
    "load_model",
    "model_files",
    "output_of",
    "pinned",
    "quiet",
    "view_model",
]
