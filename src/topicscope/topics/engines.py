"""Topics by other engines: gensim, for text that does not fit in memory, and scikit-learn; both fit LDA variationally.

The settings are tuned: with the libraries' own, gensim's topics are near incoherent (NPMI -.006 against .191 on 1,547
documents, T = 100; tomotopy's collapsed Gibbs sampling gives .275). Topics are E[φ] = λ_kw / Σ_w λ_kw in float64, with
λ the variational Dirichlet parameters, read from the model's matrix itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

import numpy as np
from scipy import sparse

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import describe_environment, now
from topicscope.text import WordSplitter, split_words
from topicscope.topics import lda
from topicscope.topics.lda import ALPHA, ETA, MIN_COUNT, CountedText, Topics, count_text
from topicscope.topics.topic_model import TopicModel, Vocabulary

Engine = Literal["tomotopy", "gensim", "sklearn"]
PASSES = 10
DECAY = 0.7
OFFSET = 10.0
BATCH = 256  # passages between two updates of the topics
ITERATIONS = 100  # of a passage's proportions, at most


def fit_with(
    engine: str,
    passages: Iterable[str],
    num_topics: int,
    *,
    sweeps: int | None = None,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
) -> Topics:
    """Fit `num_topics` topics by an engine; everything but the engine and `sweeps` is as in `lda.fit`.

    engine: "tomotopy" (`lda.fit`), "gensim" (the text is read again for every pass and never held in memory) or
        "sklearn" (word counts are held in memory).
    sweeps: over the text; None: 300 of tomotopy's, 10 passes of the others.

    gensim and scikit-learn keep α = 0.1 and η = 0.01 fixed. One process and one seed: the same text gives the same
    topics on the same machine.

    Raises:
        InputError: as `lda.fit`; an unknown engine, or one whose library is not installed.
    """
    options: dict[str, Any] = {"min_count": min_count, "language": language, "stop_words": stop_words}
    if engine == "tomotopy":
        sweeps = lda.SWEEPS if sweeps is None else sweeps
        return lda.fit(
            passages,
            num_topics,
            sweeps=sweeps,
            seed=seed,
            splitter=splitter,
            progress=progress,
            source=source,
            **options,
        )
    if engine not in _ENGINES:
        raise InputError("unknown engine", received=engine, expected="tomotopy, gensim or sklearn")
    name, package, lambdas = _ENGINES[engine]
    require_installed(engine, package)
    passes = PASSES if sweeps is None else sweeps
    lda.require_options(num_topics, seed, min_count, sweeps=passes)
    progress = SilentProgress() if progress is None else progress
    text = count_text(passages, splitter=splitter, progress=progress, **options)
    bags = _Bags(text, progress)
    documents, tokens = bags.size()
    text.require(num_topics, documents, tokens)
    with tracked(progress, "fit topics", passes, "passes"):
        weights = lambdas(bags, num_topics, passes, seed)
    provenance = {
        "engine": name,
        "engine_version": metadata.version(package),
        "created": now(),
        "num_topics": num_topics,
        "sweeps": passes,
        "seed": seed,
        "workers": 1,
        "alpha": ALPHA,
        "eta": ETA,
        "decay": DECAY,
        "offset": OFFSET,
        "batch": BATCH,
        "iterations": ITERATIONS,
        **text.provenance(documents),
        "corpus": None if source is None else dict(source),
        "environment": describe_environment().model_dump(),
    }
    return Topics(TopicModel.normalised(weights, Vocabulary.of(text.vocabulary), ALPHA), provenance)


@dataclass(eq=False)
class _Bags:
    """The passages as lists of (word index, count), read from the text on every iteration."""

    text: CountedText
    progress: Progress
    documents: int = 0
    reading: int = 0

    def size(self) -> tuple[int, int]:
        """Passages and words."""
        tokens = 0
        for bag in self.read():
            self.documents += 1
            tokens += sum(count for _, count in bag)
        return self.documents, tokens

    def __len__(self) -> int:
        return self.documents

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """One more pass: progress is told of it by the passage, so that Ctrl-C is seen inside it."""
        for number, bag in enumerate(self.read()):
            if number % 100 == 0:
                self.progress.update("fit topics", self.reading + number / self.documents)
            yield bag
        self.reading += 1
        self.progress.update("fit topics", self.reading)

    def read(self) -> Iterator[list[tuple[int, int]]]:
        """The passages, without telling anybody."""
        place = {word: i for i, word in enumerate(self.text.vocabulary)}
        for words in self.text:
            yield sorted(Counter(place[word] for word in words).items())


def _gensim(bags: _Bags, num_topics: int, passes: int, seed: int) -> np.ndarray:
    from gensim.models import LdaModel

    model = LdaModel(
        bags,
        num_topics=num_topics,
        id2word=dict(enumerate(bags.text.vocabulary)),
        chunksize=BATCH,
        passes=passes,
        alpha=np.full(num_topics, ALPHA),
        eta=ETA,
        decay=DECAY,
        offset=OFFSET,
        iterations=ITERATIONS,
        eval_every=None,
        random_state=seed,
        dtype=np.float64,
    )
    return np.asarray(model.state.get_lambda(), dtype=np.float64)


def _sklearn(bags: _Bags, num_topics: int, passes: int, seed: int) -> np.ndarray:
    from sklearn.decomposition import LatentDirichletAllocation

    rows = list(bags.read())
    lengths = np.cumsum([0, *(len(bag) for bag in rows)])
    words = np.array([word for bag in rows for word, _ in bag], dtype=np.int64)
    counts = np.array([count for bag in rows for _, count in bag], dtype=np.float64)
    matrix = sparse.csr_matrix((counts, words, lengths), shape=(len(rows), len(bags.text.vocabulary)))
    model = LatentDirichletAllocation(
        num_topics,
        doc_topic_prior=ALPHA,
        topic_word_prior=ETA,
        learning_method="online",
        learning_decay=DECAY,
        learning_offset=OFFSET,
        batch_size=BATCH,
        max_doc_update_iter=ITERATIONS,
        total_samples=len(rows),
        random_state=seed,
        n_jobs=1,
    )
    order = np.random.default_rng(seed)
    for done in range(passes):
        shuffled = matrix[order.permutation(len(rows))]
        for start in range(0, len(rows), BATCH):
            model.partial_fit(shuffled[start : start + BATCH])
            bags.progress.update("fit topics", done + min(1.0, (start + BATCH) / len(rows)))
    return np.asarray(model.components_, dtype=np.float64)


_ENGINES: dict[str, tuple[str, str, Callable[[_Bags, int, int, int], np.ndarray]]] = {
    "gensim": ("gensim.models.LdaModel", "gensim", _gensim),
    "sklearn": ("sklearn.decomposition.LatentDirichletAllocation", "scikit-learn", _sklearn),
}


def require_installed(engine: str, package: str) -> None:
    """Raise InputError where the library of an engine is not here."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            f"the engine {engine} is not installed",
            received=f"no package {package}",
            expected="an engine that is installed",
            advice=f'pip install "topicscope[{engine}]"',
        ) from error
