"""Text: files, folders, dumps, data sets and URLs become documents, sentences and words. Knows neither topics nor
models."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.text.corpus import Corpus, corpus_from, open_corpus, sample_documents, wikipedia_sample
    from topicscope.text.source import MAX_DOCUMENT_BYTES, Document, OnError
    from topicscope.text.units import Unit, UnitCounts, UnitReader, passages
    from topicscope.text.words import Word, WordLengths, WordSplitter, load_stop_words, normalise_word, split_words

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Corpus",
    "Document",
    "OnError",
    "Unit",
    "UnitCounts",
    "UnitReader",
    "Word",
    "WordLengths",
    "WordSplitter",
    "corpus_from",
    "load_stop_words",
    "normalise_word",
    "open_corpus",
    "passages",
    "sample_documents",
    "split_words",
    "wikipedia_sample",
]

load_on_use(__name__)
