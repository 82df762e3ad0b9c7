"""What a probe returns: `ProbeResult`, its tables, summary and figures, and comparisons of several."""

from topicscope.probing.results.compare import Comparison, compare
from topicscope.probing.results.document_table import (
    STATE,
    DocumentShards,
    DocumentTable,
    load_state,
    pack_state,
    packed_rows,
    temporary_shards,
)
from topicscope.probing.results.result import DOCUMENTS, ProbeResult
from topicscope.probing.results.tables import (
    PAPER_ROWS,
    attention_rows,
    control_table,
    document_rows,
    head_rows,
    result_table,
    with_sinks_excluded,
)

__all__ = [
    "DOCUMENTS",
    "PAPER_ROWS",
    "STATE",
    "Comparison",
    "DocumentShards",
    "DocumentTable",
    "ProbeResult",
    "attention_rows",
    "compare",
    "control_table",
    "document_rows",
    "head_rows",
    "load_state",
    "pack_state",
    "packed_rows",
    "result_table",
    "temporary_shards",
    "with_sinks_excluded",
]
