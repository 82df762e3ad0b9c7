"""The paper's synthetic setting: documents drawn from topics, masking, and token counts as training data."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.synthetic.documents import DocumentLaw, Documents
    from topicscope.synthetic.masking import MaskedBatch, Masking, Setting, Weighting
    from topicscope.synthetic.streams import (
        BatchStream,
        FixedDocuments,
        FreshDocuments,
        Population,
        SampledCounts,
        TokenCounts,
        count_tokens,
        sampled_counts,
    )

__all__ = [
    "BatchStream",
    "DocumentLaw",
    "Documents",
    "FixedDocuments",
    "FreshDocuments",
    "MaskedBatch",
    "Masking",
    "Population",
    "SampledCounts",
    "Setting",
    "TokenCounts",
    "Weighting",
    "count_tokens",
    "sampled_counts",
]

load_on_use(__name__)
