"""Topics of text that does not fit in memory: online variational LDA (gensim), one reading of the text, one pass.

After batch t = 1, 2, … of B of D passages, whose E-step gives s (`topics.expectation`; Hoffman, Blei and Bach, 2010):

    λ = (1 - ρ_t) λ + ρ_t (η + D/B s),  ρ_t = (offset + t - 1)^-decay

Memory is bounded whatever the text: `words_held` words while they are counted, a few matrices [topic, word] of
`max_words` words, and one batch. The text itself lies on disk as bags of words (`topics.stored_text`).
"""

import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import describe_environment, now
from topicscope.runner import Here, Runner
from topicscope.text import WordSplitter, split_words
from topicscope.topics.bounded_counts import LIMIT
from topicscope.topics.coherence import TOP_WORDS, coherence_in
from topicscope.topics.engines import require_installed
from topicscope.topics.expectation import expected
from topicscope.topics.lda import ALPHA, ETA, MIN_COUNT, Topics, require_enough, require_options
from topicscope.topics.stored_text import STRIPS, StoredText, store_text
from topicscope.topics.topic_model import TopicModel, Vocabulary

MAX_WORDS = 100_000


@dataclass(frozen=True)
class Rate:
    """How fast topics are learnt: passes over the text; batch, B above, in passages; decay and offset of ρ.

    batch: None for a quarter of the passages, but at least 256 and at most 16,384. In one pass a few updates, each from
    many passages, teach more than many from few (docs/large-corpora.md), and they cost less.
    iterations: of the proportions of a passage, at most; strips: places of the text from which a batch is taken.
    """

    passes: int = 1
    batch: int | None = None
    decay: float = 0.7
    offset: float = 1.0
    iterations: int = 100
    strips: int = STRIPS

    def batch_of(self, documents: int) -> int:
        """B for a text of so many passages."""
        return max(256, min(16384, documents // 4)) if self.batch is None else self.batch


def fit_stream(
    passages: Iterable[str],
    num_topics: int,
    *,
    rate: Rate | None = None,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    max_words: int = MAX_WORDS,
    words_held: int = LIMIT,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
    runner: Runner | None = None,
) -> Topics:
    """Fit `num_topics` topics to passages that are read once; the same text and seed give the same topics.

    Args:
        passages: as for `lda.fit`.
        rate: of learning; tuned for one pass unless given.
        max_words: the most frequent words of at least `min_count` occurrences that the topics know; others are counted.
        words_held: distinct words counted at once; where there are more, the rarest are forgotten, and it is said.
        runner: does the E-steps, the same to the last bit whoever it is (default: this process).

    The other arguments are those of `lda.fit`. The provenance holds the coherence as well, as measured in the bags.

    Raises:
        InputError: as `engines.fit_with`.
        RunError: the folder of temporary files is full, or a part of an E-step could not be done.
    """
    rate = Rate() if rate is None else rate
    require_installed("gensim", "gensim")
    require_options(
        num_topics,
        seed,
        min_count,
        sweeps=rate.passes,
        batch=rate.batch_of(0),
        strips=rate.strips,
        max_words=max_words,
        words_held=words_held,
    )
    progress = SilentProgress() if progress is None else progress
    with tempfile.TemporaryDirectory(prefix="topicscope-bags-") as folder:
        text = store_text(
            passages,
            Path(folder),
            min_count=min_count,
            max_words=max_words,
            words_held=words_held,
            language=language,
            stop_words=stop_words,
            splitter=splitter,
            progress=progress,
            strips=rate.strips,
        )
        require_enough(num_topics, text.documents, text.passages, min_count)
        rate = replace(rate, batch=rate.batch_of(text.documents))
        weights = _learn(text, num_topics, rate, seed, Here() if runner is None else runner, progress)
        model = TopicModel.normalised(weights, Vocabulary.of(text.vocabulary), ALPHA)
        provenance = {
            "engine": "gensim.models.LdaModel, streamed",
            "engine_version": metadata.version("gensim"),
            "created": now(),
            "num_topics": num_topics,
            "sweeps": rate.passes,
            "seed": seed,
            "alpha": ALPHA,
            "eta": ETA,
            **{name: value for name, value in asdict(rate).items() if name != "passes"},
            "readings_of_the_text": 1,
            "batches": rate.passes * -(-text.documents // rate.batch_of(text.documents)),
            "e_steps_of_a_passage": rate.passes,
            **text.left_out,
            "documents": text.documents,
            "tokens": text.tokens,
            "vocabulary_size": len(text.vocabulary),
            "corpus": None if source is None else dict(source),
            "environment": describe_environment().model_dump(),
        }
        topics = Topics(model, provenance)
        return Topics(model, {**provenance, "coherence": _coherence(topics, text)})


def _learn(text: StoredText, num_topics: int, rate: Rate, seed: int, runner: Runner, progress: Progress) -> np.ndarray:
    """λ [topic, word]."""
    from gensim.models import LdaModel
    from gensim.models.ldamodel import LdaState

    alpha = np.full(num_topics, ALPHA)
    model = LdaModel(
        num_topics=num_topics,
        id2word={len(text.vocabulary) - 1: ""},  # as many words as the last one says
        alpha=alpha,
        eta=ETA,
        random_state=seed,
        dtype=np.float64,
    )
    model.state.numdocs = text.documents
    size = rate.batch_of(text.documents)
    batches = -(-text.documents // size)
    done = 0
    with tracked(progress, "fit topics", rate.passes * batches, "batches"):
        for sweep in range(rate.passes):
            seen = 0  # gensim's clock: a pass after the first counts as one batch
            for batch in text.batches(size):
                new = LdaState(model.eta, (0, 0), np.float64)
                new.sstats = expected(runner, batch, model.expElogbeta, alpha, rate.iterations, model.random_state)
                new.numdocs = len(batch)
                clock = (seen if sweep == 0 else text.documents) / min(size, text.documents)
                model.state.blend((rate.offset + sweep + clock) ** -rate.decay, new)
                model.sync_state()
                seen += len(batch)
                done += 1
                progress.update("fit topics", done)
    return np.asarray(model.state.get_lambda(), dtype=np.float64)


def _coherence(topics: Topics, text: StoredText) -> dict[str, Any]:
    """As `coherence` finds it in the text, from the bags: every likely word is in the vocabulary."""
    top = topics.top_words(TOP_WORDS)
    words, wanted = text.vocabulary, {word for row in top for word in row}
    likely = np.array([word in wanted for word in words])

    def passages() -> Any:
        for _ in range(text.passages - text.documents):
            yield ()
        for batch in text.batches(4096):
            place = np.repeat(np.arange(len(batch)), batch.lengths)[likely[batch.words]]
            kept = [words[i] for i in batch.words[likely[batch.words]]]
            ends = np.searchsorted(place, np.arange(len(batch)), side="right").tolist()
            yield from (kept[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True))

    return coherence_in(top, passages()).to_dict()
