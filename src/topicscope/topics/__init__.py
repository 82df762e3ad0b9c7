"""Topic models: fitting, importing, judging and saving them, and which words belong to which topic."""

from typing import TYPE_CHECKING

from topicscope.lazy import load_on_use

if TYPE_CHECKING:
    from topicscope.topics.assignment import Overlap, TopicAssignment, assign_words, from_word_list
    from topicscope.topics.coherence import TOP_WORDS, coherence
    from topicscope.topics.files import WordList, is_topics_file, load_any, load_phi, load_topics, save_topics
    from topicscope.topics.gensim_lda import MAX_WORDS, Engine, Rate, fit_stream, fit_with
    from topicscope.topics.lda import MIN_COUNT, CorpusPassages, Topics, fit
    from topicscope.topics.pairs import NO_PAIR, NO_TOPIC, NOT_A_WORD, PairClass, Positions, classify_pairs
    from topicscope.topics.topic_model import TopicModel, Vocabulary

__all__ = [
    "MAX_WORDS",
    "MIN_COUNT",
    "NOT_A_WORD",
    "NO_PAIR",
    "NO_TOPIC",
    "TOP_WORDS",
    "CorpusPassages",
    "Engine",
    "Overlap",
    "PairClass",
    "Positions",
    "Rate",
    "TopicAssignment",
    "TopicModel",
    "Topics",
    "Vocabulary",
    "WordList",
    "assign_words",
    "classify_pairs",
    "coherence",
    "fit",
    "fit_stream",
    "fit_with",
    "from_word_list",
    "is_topics_file",
    "load_any",
    "load_phi",
    "load_topics",
    "save_topics",
]

load_on_use(__name__)
