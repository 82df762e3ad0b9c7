"""Streamed pair sums against the pair-by-pair twin, on ragged padded batches of every family."""

import numpy as np
import pytest

import tiny
from probing.twin import pair_sums
from topicscope.probing.attention import (
    BINNED,
    DISTANCE_EDGES,
    Configuration,
    PartSums,
    TopicLookup,
    distance_bin,
    sum_attention,
)
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import AlignedUnit, align_units, make_batches
from topicscope.text import Unit
from topicscope.topics import PairClass, TopicAssignment

TEXTS = [
    ("a", "The river flows under the old bridge toward the sea."),
    ("a", "Ship and sea: the ship carries goods."),
    ("b", "Money and market and trade and the king of the city with a sword, a sword and a castle."),
    ("b", "music"),
    ("c", "The king, the king, the army; war is war. The battle of the castle and the film of the actor with camera."),
]
WATER, WAR, ART = 0, 1, 2
TOPICS = {
    "river": {WATER}, "sea": {WATER}, "ship": {WATER}, "bridge": {WATER}, "king": {WAR}, "sword": {WAR},
    "castle": {WAR}, "war": {WAR}, "army": {WAR}, "film": {ART}, "actor": {ART}, "camera": {ART},
}  # fmt: skip


def assignment(topics: dict[str, set[int]], overlap: str = "drop") -> TopicAssignment:
    """A hand-made assignment."""
    return TopicAssignment(
        num_topics=3,
        threshold=0.1,
        overlap=overlap,  # type: ignore[arg-type]
        words=tuple(topics),
        topics=tuple(frozenset(t) for t in topics.values()),
        labels=None,
        dropped_ambiguous=0,
        dropped_stop_words=0,
        warnings=(),
    )


def prepared(view: ModelView, overlap: str = "drop") -> tuple[list[AlignedUnit], TopicLookup]:
    """Units and two configurations: the full word list and one that knows only half of it."""
    units = [Unit(document, i, text) for i, (document, text) in enumerate(TEXTS)]
    aligned, _ = align_units(view.tokenizer, units, max_length=view.max_length)
    several = {**TOPICS, "king": {WATER, WAR}, "film": {WATER, WAR, ART}} if overlap == "keep" else TOPICS
    configurations = [
        Configuration(0.1, 0, assignment(several, overlap)),
        Configuration(0.2, 0, assignment(dict(list(several.items())[::2]), overlap)),
    ]
    return aligned, TopicLookup(configurations, [w for unit in aligned for w in unit.words if w is not None])


def summed(view: ModelView, units: list[AlignedUnit], lookup: TopicLookup, **batching: object) -> list[PartSums]:
    """Sums of all units as one chunk."""
    ids = sorted({unit.document_id for unit in units})
    document_of = np.array([ids.index(unit.document_id) for unit in units])
    return sum_attention(view, make_batches(units, **batching), units, document_of, lookup)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("overlap", ["drop", "keep"])
def test_sums_equal_the_pair_by_pair_twin(family: str, overlap: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view, overlap)
    parts = summed(view, units, lookup, batch_size=4)
    assert [part.part for part in parts] == list(view.parts)
    for c in range(len(lookup.configurations)):
        twin = pair_sums(view, units, lookup, c)
        assert {kind for *_, kind in twin} == set(PairClass), "the text has pairs of every class"
        for part in parts:
            for d, document in enumerate(("a", "b", "c")):
                for k in PairClass:
                    for layer, head in np.ndindex(part.part.num_layers, part.part.num_heads):
                        x, y, n = twin.get((document, part.part.name, layer, head, k), (0.0, 0.0, 0))
                        assert part.counts[d, c, k] == n
                        assert part.heads[d, c, layer, head, k] == pytest.approx(x, rel=1e-4, abs=1e-9)
                        if part.corrected is not None:
                            assert part.corrected[d, c, layer, head, k] == pytest.approx(y, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("family", ["bert", "bart", "gpt2"])
def test_sums_by_distance_add_up_to_the_class_sums(family: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    for part in summed(view, units, lookup):
        np.testing.assert_allclose(part.binned.sum(-1), part.heads.mean((2, 3))[..., list(BINNED)], rtol=1e-5)
        np.testing.assert_array_equal(part.binned_counts.sum(-1), part.counts[..., list(BINNED)])


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("batching", [{"batch_size": 8}, {"batch_size": 8, "pad_side": "left"}, {"max_tokens": 30}])
def test_batches_and_padding_do_not_matter(family: str, batching: dict) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    alone_parts, together_parts = summed(view, units, lookup, batch_size=1), summed(view, units, lookup, **batching)
    for alone, together in zip(alone_parts, together_parts, strict=True):
        np.testing.assert_allclose(together.heads, alone.heads, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(together.counts, alone.counts)
        np.testing.assert_allclose(together.binned, alone.binned, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(together.binned_counts, alone.binned_counts)


def test_distances_are_exact_up_to_32_and_every_distance_has_a_bin() -> None:
    distances = np.arange(1, 9000)
    bins = distance_bin(distances)
    assert (bins[:32] == np.arange(32)).all()
    assert (np.diff(bins) >= 0).all()
    assert bins.max() < len(DISTANCE_EDGES)
    assert len(np.unique(bins[:4000])) > 50


def test_words_without_any_topics_are_numbered_still() -> None:
    lookup = TopicLookup([], ["a", "b", "a"])
    assert lookup.codes(("b", "a")).tolist() == [1, 0, -1, -1]
    assert lookup.bands[lookup.codes(("b", "a"))].tolist() == [0, 0, 0, 0]
