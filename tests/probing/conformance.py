"""What every family must show, measured for one family at a time; the tests judge it, docs/models.md prints it.

All text is drawn from a topic model (`topic_text`), so that places in it say nothing about topics.
"""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import tiny
import topicscope
from probing import planted, topic_text, trained
from probing.trained import Training
from probing.twin import pair_sums
from topicscope.probing.attention import Configuration, PartSums, TopicLookup, sum_attention
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import AlignedUnit, align_units, make_batches
from topicscope.text import Unit
from topicscope.topics import PairClass, TopicAssignment

FAMILIES = tiny.FAMILIES + tiny.MORE_FAMILIES
TRAININGS = (
    Training("bert", "masked", 400),
    Training("roberta", "masked", 500),
    Training("albert", "masked", 600),
    Training("electra", "masked", 500),
    Training("bart", "masked", 600),
    Training("gpt2", "masked", 300),
    Training("gpt2", "causal", 600),
    Training("bart", "sequence", 300),
)
TOPICS = topic_text.words_of(4, 5)
TOPIC_OF = {word: topic for topic, words in enumerate(TOPICS) for word in words}
SHORT = (3, 7, 12, 16)
LONG = (*range(6, 40, 3), *range(40, 60, 2))


@dataclass(frozen=True)
class Conformance:
    """Figures of one family; ratios of causal parts are position-corrected, `random` and `trained` alike.

    path: how its attention was read. twin: largest error of a sum against the pair-by-pair twin, relative to the
    largest sum of its class. padding: the same between padding on the left, on the right and none. random: ratio of
    each part at random weights. planted: (known, found) ratio of each part; planted_heads: largest relative error
    over the heads.
    """

    family: str
    parts: tuple[str, ...]
    path: str
    twin: float
    padding: float
    random: tuple[float, ...]
    planted: tuple[tuple[float, float], ...]
    planted_heads: float


@dataclass(frozen=True)
class Learned:
    """What the probe finds in a trained model, by part; difference: same - different cosine of the embeddings."""

    name: str
    parts: tuple[str, ...]
    ratios: tuple[float, ...]
    directions: tuple[str, ...]
    difference: float
    text: str


@cache
def measure(family: str) -> Conformance:
    """All but training."""
    view = _random(family)
    units, lookup = _prepared(view, SHORT)
    sums = _sums(view, units, lookup, batch_size=3)
    path = view.path
    sides = [_sums(view, units, lookup, batch_size=3, pad_side="left"), _sums(view, units, lookup, batch_size=1)]
    parts = tuple(part.name for part in view.parts)
    # Many words and texts: a short window sees few pairs, and a few random embeddings are alike by chance.
    many = [text for seed in range(100, 105) for text in _texts(LONG, trained.TOPICS, seed)]
    fresh = _random(family, trained.TOPICS)
    random = topicscope.probe(fresh, None, many, topics=_word_list(trained.TOPICS), unit="passage", controls=0)
    changed = _random(family)
    planted.plant(changed, _token_classes(changed))
    found = topicscope.probe(changed, None, _texts(LONG), topics=_word_list(), unit="passage", controls=0)
    read = _aligned(changed, LONG)
    ratios, heads = _by_part(found, "attention_ratio"), planted.expected_ratios(changed, read, TOPIC_OF)
    known = planted.expected_ratio(changed, read, TOPIC_OF)
    return Conformance(
        family=family,
        parts=parts,
        path=path,
        twin=_twin_error(view, units, lookup, sums),
        padding=max(_difference(sums, other) for other in sides),
        random=tuple(_by_part(random, "leading")[part] for part in parts),
        planted=tuple((known[part], ratios[part]) for part in parts),
        planted_heads=max(_head_error(found, part, heads[part]) for part in parts),
    )


def learned(training: Training) -> Learned:
    """A trained model and what the whole probe finds in it."""
    model, tokenizer = trained.model_and_tokenizer(training)
    drawn = topic_text.documents(30, trained.LENGTH, topics=trained.TOPICS, per_document=trained.PER_DOCUMENT, seed=1)
    texts = [" ".join(words) + "." for words in drawn]
    topics = _word_list(trained.TOPICS)
    result = topicscope.probe(model, tokenizer, texts, topics=topics, unit="passage", controls=2)
    ratios = _by_part(result, "leading")
    return Learned(
        name=training.name,
        parts=tuple(ratios),
        ratios=tuple(ratios.values()),
        directions=tuple(result.headline["directions"].values()),
        difference=float(result.table()["embedding_cosine_layer_difference"].iloc[0]),
        text=result.headline["text"],
    )


def _random(family: str, topics: list[list[str]] = TOPICS) -> ModelView:
    tokenizer = topic_text.tokenizer(family, topics, tiny.MAX_LENGTH)
    return view_model(tiny.model_for(family, len(tokenizer), tokenizer), tokenizer)


def _texts(lengths: tuple[int, ...], topics: list[list[str]] = TOPICS, seed: int = 0) -> list[str]:
    drawn = [topic_text.documents(1, n, topics=topics, per_document=3, seed=1000 * seed + n)[0] for n in lengths]
    return [" ".join(words) + "." for words in drawn]


def _aligned(view: ModelView, lengths: tuple[int, ...]) -> list[AlignedUnit]:
    units = [Unit(str(i), i, text) for i, text in enumerate(_texts(lengths))]
    return align_units(view.tokenizer, units, max_length=view.max_length)[0]


def _word_list(topics: list[list[str]] = TOPICS) -> Path:
    return topic_text.word_list(topics, Path(tempfile.mkdtemp()) / "words.csv")


def _token_classes(view: ModelView) -> list[list[int]]:
    """Token ids of each topic's words, with and without a space in front."""
    encode = view.tokenizer.encode
    forms = [[encode(form, add_special_tokens=False) for w in words for form in (w, f" {w}")] for words in TOPICS]
    return [sorted({ids[0] for ids in found if len(ids) == 1}) for found in forms]


def _prepared(view: ModelView, lengths: tuple[int, ...]) -> tuple[list[AlignedUnit], TopicLookup]:
    """Units, and topics that leave the last word of each topic without one."""
    units = _aligned(view, lengths)
    known = {word: topic for word, topic in TOPIC_OF.items() if word != TOPICS[topic][-1]}
    assignment = TopicAssignment(
        num_topics=len(TOPICS),
        threshold=0.1,
        overlap="drop",
        words=tuple(known),
        topics=tuple(frozenset({topic}) for topic in known.values()),
        labels=None,
        dropped_ambiguous=0,
        dropped_stop_words=0,
        warnings=(),
    )
    words = [word for unit in units for word in unit.words if word is not None]
    return units, TopicLookup([Configuration(0.1, 0, assignment)], words)


def _sums(view: ModelView, units: list[AlignedUnit], lookup: TopicLookup, **batching: object) -> list[PartSums]:
    batches = make_batches(units, **batching)  # type: ignore[arg-type]
    return sum_attention(view, batches, units, np.arange(len(units)), lookup)


def _twin_error(view: ModelView, units: list[AlignedUnit], lookup: TopicLookup, sums: list[PartSums]) -> float:
    twin, worst = pair_sums(view, units, lookup, 0), 0.0
    for part in sums:
        expected = np.zeros((2, *part.heads[:, 0].shape))
        counts = np.zeros_like(part.counts[:, 0])
        for d, k in np.ndindex(len(units), len(PairClass)):
            for layer, head in np.ndindex(part.part.num_layers, part.part.num_heads):
                key = (units[d].document_id, part.part.name, layer, head, PairClass(k))
                *expected[:, d, layer, head, k], counts[d, k] = twin.get(key, (0.0, 0.0, 0))
        assert np.array_equal(part.counts[:, 0], counts), f"{view.model_type}: other pairs than the twin"
        assert (counts.sum(0) > 0).all(), "the text has pairs of every class"
        found = [part.heads, part.heads if part.corrected is None else part.corrected]
        for which in range(1 + (part.corrected is not None)):
            scale = np.abs(expected[which]).max((0, 1, 2))
            worst = max(worst, float((np.abs(found[which][:, 0] - expected[which]) / scale).max()))
    return worst


def _difference(one: list[PartSums], other: list[PartSums]) -> float:
    pairs = zip(one, other, strict=True)
    return max(float((np.abs(a.heads - b.heads) / np.abs(a.heads).max((0, 1, 2, 3))).max()) for a, b in pairs)


def _by_part(result: topicscope.ProbeResult, column: str) -> dict[str, float]:
    """A column of the table by part; "leading" is the position-corrected ratio where there is one."""
    rows = result.table().query("source == 'measured'").set_index("part")
    if column == "leading":
        return rows["attention_ratio_position_corrected"].fillna(rows["attention_ratio"]).to_dict()
    return rows[column].to_dict()


def _head_error(result: topicscope.ProbeResult, part: str, expected: np.ndarray) -> float:
    heads = result.heads().query("part == @part").sort_values(["layer", "head"])
    return float(np.abs(heads["attention_ratio"].to_numpy().reshape(expected.shape) / expected - 1).max())
