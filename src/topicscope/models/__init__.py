"""The paper's transformers: at token level, readable, and the same on token counts, fast."""

from topicscope.models.config import ModelConfig, NotReducibleError, why_not_reduced
from topicscope.models.objective import Loss
from topicscope.models.parameters import Start, start
from topicscope.models.reduced import CountTensors, ReducedTransformer
from topicscope.models.topic_transformer import TopicTransformer

__all__ = [
    "CountTensors",
    "Loss",
    "ModelConfig",
    "NotReducibleError",
    "ReducedTransformer",
    "Start",
    "TopicTransformer",
    "start",
    "why_not_reduced",
]
