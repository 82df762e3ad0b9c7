"""Topics fitted to text: latent Dirichlet allocation by collapsed Gibbs sampling (tomotopy).

φ_kw = (n_kw + η) / (n_k + V η), with n_kw the number of tokens of word w that the last sweep gave to topic k,
n_k = Σ_w n_kw, V the vocabulary size and η the topic-word prior. tomotopy hands out float32; the whole numbers n_kw
are recovered from it and φ is computed in float64, so that 100 topics and more neither underflow nor collapse.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tomotopy

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import describe_environment, now
from topicscope.text import WordSplitter, split_words
from topicscope.topics.counted_text import MIN_COUNT, count_text
from topicscope.topics.topic_model import TopicModel, Vocabulary

ALPHA = 0.1
ETA = 0.01
SWEEPS = 300
_MOST_TOPICS = 32767  # tomotopy's limit


@dataclass(frozen=True, eq=False)
class Topics:
    """A topic model and how it came about.

    | field | content |
    | --- | --- |
    | model | phi float64 [topic, word], alpha [topic], vocabulary (the most frequent word first when fitted here) |
    | provenance | JSON-ready: engine, options, counts of what was read and dropped, corpus, environment |
    | labels | one name a topic, or None |

    Raises:
        InputError: two topics with identical rows, or not one label a topic.
    """

    model: TopicModel
    provenance: dict[str, Any]
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _require_distinct(self.model.phi)
        if self.labels is not None and len(self.labels) != self.model.num_topics:
            raise InputError(
                "one label a topic is needed", received=len(self.labels), expected=f"{self.model.num_topics} labels"
            )

    def top_words(self, n: int = 10) -> list[list[str]]:
        """Per topic its `n` likeliest words, the likeliest first; ties in the order of the vocabulary."""
        order = np.argsort(-self.model.phi, axis=1, kind="stable")[:, :n]
        return [[self.model.vocabulary.words[i] for i in row] for row in order]


def fit(
    passages: Iterable[str],
    num_topics: int,
    *,
    sweeps: int = SWEEPS,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
) -> Topics:
    """Fit `num_topics` topics to passages: symmetric η = 0.01; α starts at 0.1 and is optimised, one value a topic.

    The passages are read twice: once to count words, once to sample. Words are compared as `normalise_word` gives
    them; stop words and words seen fewer than `min_count` times in all passages are left out and counted. One worker
    and one seed: the same text gives the same topics on the same kind of processor; across processors (their
    instruction sets are recorded) tomotopy does not promise it.

    Args:
        passages: any iterable of text that starts afresh each time, such as a list or `CorpusPassages`.
        num_topics: K, at most the number of passages that have a word of the vocabulary.
        sweeps: Gibbs sweeps over all tokens.
        seed: of the sampler.
        min_count: least number of occurrences of a word in the vocabulary.
        language: whose stop words are left out, unless `stop_words` says otherwise.
        stop_words: the words to leave out; an empty collection leaves none out.
        splitter: text to words.
        progress: told of every tenth sweep.
        source: what is known of the corpus (name, fingerprint), kept in the provenance.

    Raises:
        InputError: an iterator that can be read only once, no word left, more topics than passages, an option out of
            range, an unknown language, or topics that come out identical.
    """
    require_options(num_topics, seed, min_count, sweeps=sweeps)
    progress = SilentProgress() if progress is None else progress
    text = count_text(
        passages,
        min_count=min_count,
        language=language,
        stop_words=stop_words,
        splitter=splitter,
        progress=progress,
    )
    sampler = tomotopy.LDAModel(k=num_topics, alpha=ALPHA, eta=ETA, seed=seed)
    documents = tokens = 0
    for words in text:
        sampler.add_doc(words)
        documents += 1
        tokens += len(words)
    text.require(num_topics, documents, tokens)
    _sample(sampler, sweeps, progress)
    phi = _phi(sampler, list(text.vocabulary))
    provenance = {
        "engine": "tomotopy.LDAModel",
        "created": now(),
        "num_topics": num_topics,
        "sweeps": sweeps,
        "seed": seed,
        "workers": 1,
        "instruction_set": tomotopy.isa,
        "alpha_start": ALPHA,
        "eta": ETA,
        **text.provenance(documents, tokens),
        "log_likelihood_per_word": float(sampler.ll_per_word),
        "corpus": None if source is None else dict(source),
        "environment": describe_environment().model_dump(),
    }
    alpha = np.asarray(sampler.alpha, dtype=np.float64)
    return Topics(TopicModel(phi, alpha, Vocabulary.of(text.vocabulary)), provenance)


def require_options(num_topics: int, seed: int, min_count: int, **at_least_one: int) -> None:
    """Raise InputError for a number that is out of range."""
    if not 1 <= num_topics <= _MOST_TOPICS:
        raise InputError("impossible number of topics", received=num_topics, expected=f"1 to {_MOST_TOPICS}")
    least = {"seed": (seed, 0), "min_count": (min_count, 1)}
    for name, (value, smallest) in (least | {name: (value, 1) for name, value in at_least_one.items()}).items():
        if value < smallest:
            raise InputError(f"impossible option: {name}", received=value, expected=f"a whole number >= {smallest}")


def _sample(sampler: tomotopy.LDAModel, sweeps: int, progress: Progress) -> None:
    # tomotopy gives the same chain in one call or in many, and Ctrl-C is seen only between calls.
    with tracked(progress, "fit topics", sweeps, "sweeps"):
        for done in range(1, sweeps + 1):
            sampler.train(1, workers=1, parallel=tomotopy.ParallelScheme.NONE)
            if done % 10 == 0 or done == sweeps:
                progress.update("fit topics", done)


def _phi(sampler: tomotopy.LDAModel, vocabulary: list[str]) -> np.ndarray:
    """float64 [topic, word] in the order of `vocabulary`."""
    place = {word: i for i, word in enumerate(sampler.used_vocabs)}
    columns = [place[word] for word in vocabulary]
    rows = [sampler.get_topic_word_dist(k, normalize=False) for k in range(sampler.k)]
    counts = np.rint(np.array(rows, dtype=np.float64)[:, columns] - ETA)
    assert np.array_equal(counts.sum(axis=1), sampler.get_count_by_topics()), "token counts were not recovered"
    weights = counts + ETA
    phi: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return phi


def _require_distinct(phi: np.ndarray) -> None:
    """Identical rows are topics that the fit (or float32) failed to tell apart; every pair statistic would be wrong."""
    first: dict[bytes, int] = {}
    twins = [(first[key], k) for k, key in enumerate(row.tobytes() for row in phi) if first.setdefault(key, k) != k]
    if twins:
        raise InputError(
            "two topics are identical",
            received=f"{len(twins)} duplicates; first: topics {twins[0][0]} and {twins[0][1]}",
            expected="topics that differ",
            advice="ask for fewer topics, give more text, or fit in float64",
        )
