"""Word vectors (static, in context, from co-occurrence) and their similarity within and across topics."""

from topicscope.probing.embeddings.embedding_probe import EmbeddingProbe
from topicscope.probing.embeddings.embedding_table import KINDS, embedding_rows
from topicscope.probing.embeddings.similarity import embedding_similarity

__all__ = ["KINDS", "EmbeddingProbe", "embedding_rows", "embedding_similarity"]
