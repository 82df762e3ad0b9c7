"""Word vectors (static, in context, from co-occurrence) and their similarity within and across topics."""

from topicscope.probing.embeddings.similarity import (
    KINDS,
    EmbeddingProbe,
    embedding_rows,
    embedding_similarity,
    with_controls,
)

__all__ = ["KINDS", "EmbeddingProbe", "embedding_rows", "embedding_similarity", "with_controls"]
