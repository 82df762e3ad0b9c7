"""Experiments: recipes with their closed forms, named pretrained models, and sweeps of recipes."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.experiments.closed_forms import add_theory, finite_value_matrix, infinite_value_matrix, resolve
    from topicscope.experiments.models import (
        PAPER,
        SMALL_BERT,
        Kind,
        ModelUnavailableError,
        Source,
        demo_versions,
        packaged,
        paper_models,
        sources_of,
    )
    from topicscope.experiments.small_bert import (
        CLS,
        FINISHED,
        MASK,
        PAD,
        SEP,
        SPECIALS,
        SmallBert,
        small_bert,
        token_windows,
    )
    from topicscope.experiments.sweep import RUNS, Keep, sweep
    from topicscope.experiments.sweep_result import RECORD, SweepResult, plain
    from topicscope.experiments.sweep_spec import OnError, Plan, changed, load_spec, make_plan, make_spec

__all__ = [
    "CLS",
    "FINISHED",
    "MASK",
    "PAD",
    "PAPER",
    "RECORD",
    "RUNS",
    "SEP",
    "SMALL_BERT",
    "SPECIALS",
    "Keep",
    "Kind",
    "ModelUnavailableError",
    "OnError",
    "Plan",
    "SmallBert",
    "Source",
    "SweepResult",
    "add_theory",
    "changed",
    "demo_versions",
    "finite_value_matrix",
    "infinite_value_matrix",
    "load_spec",
    "make_plan",
    "make_spec",
    "packaged",
    "paper_models",
    "plain",
    "resolve",
    "small_bert",
    "sources_of",
    "sweep",
    "token_windows",
]

load_on_use(__name__)
