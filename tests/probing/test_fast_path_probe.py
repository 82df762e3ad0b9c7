"""A whole probe by factors and by weights, and with the options that decide what is read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tiny
import topicscope
from probing.test_attention import TOPICS, assignment, summed
from probing.test_fast_path import BY_HOOKS, HONOURING
from probing.test_probe import themed_documents, word_list
from probing.twin import pair_sums, words_of
from topicscope.errors import InputError
from topicscope.probing.attention import Configuration, TopicLookup
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.results import ProbeResult
from topicscope.probing.tokens import LATER_PIECE, AlignedUnit, align_units
from topicscope.text import Unit
from topicscope.topics import PairClass

__all__ = ["word_list"]
PIECES = [
    ("a", "The swords and castles; a sword, the castles of kings and the king's castle."),
    ("a", "Ships on the seas: rivers, ships with swords, a river and the ocean liner's sails of kings."),
    ("b", "Cameras filmed the actors, the actor and zebras; zebras are not filmed in wars."),
]
TOPICS_OF_PIECES = {**TOPICS, "swords": {1}, "castles": {1}, "ships": {0}, "seas": {0}, "rivers": {0}, "actors": {2}}


def probed(view: ModelView, words: Path, **options: object) -> ProbeResult:
    chosen = {"topics": words, "controls": 1, "documents": themed_documents(8), **options}
    return topicscope.probe(view, **chosen)  # type: ignore[arg-type]


def assert_tables_agree(one: pd.DataFrame, other: pd.DataFrame) -> None:
    # Differences of nearly equal numbers, so the rounding of the attention is larger in them.
    differences = [name for name in one.columns if name in ("permutation_statistic", "permutation_z")]
    pd.testing.assert_frame_equal(one.drop(columns=differences), other.drop(columns=differences), rtol=1e-5, atol=1e-6)
    pd.testing.assert_frame_equal(one[differences], other[differences], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", HONOURING)
def test_the_result_is_that_of_hooks(family: str, word_list: Path) -> None:
    model, tokenizer = tiny.build(family)
    fast = probed(view_model(model, tokenizer), word_list)
    slow = probed(view_model(model, tokenizer, hooks_only=True), word_list)
    paths = [set(result.to_dict()["model"]["attention_path"].values()) for result in (fast, slow)]
    assert paths == [{"registry"}, {"hooks"}]
    assert_tables_agree(fast.table(), slow.table())
    assert_tables_agree(fast.heads(), slow.heads())


def test_the_result_names_hooks_where_a_family_needs_them(word_list: Path) -> None:
    assert {"mpnet", "deberta-v2"} <= BY_HOOKS
    result = probed(view_model(*tiny.build("mpnet")), word_list, controls=0)
    assert result.to_dict()["model"]["attention_path"] == {"encoder": "hooks"}


def test_chosen_layers_and_heads_are_named(word_list: Path) -> None:
    view = view_model(*tiny.build("qwen2"))
    whole, some = probed(view, word_list), probed(view, word_list, layers=(1,), heads=(1, 2))
    assert some.to_dict()["model"]["parts"][0]["only_layers"] == (1,)
    table = whole.heads()
    expected = table[(table["layer"] == 1) & table["head"].isin([1, 2])].reset_index(drop=True)
    assert_tables_agree(some.heads(), expected)
    assert some.heads()["key_value_head"].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"does not have these layers(.|\n)*0 to 1"):
        probed(view, word_list, layers=(2,))
    with pytest.raises(InputError, match="does not have these heads"):
        probed(view, word_list, heads=(-1,))


def merged(view: ModelView) -> tuple[list[AlignedUnit], TopicLookup]:
    units = [Unit(document, i, text) for i, (document, text) in enumerate(PIECES)]
    aligned, coverage = align_units(view.tokenizer, units, max_length=view.max_length, pieces="merge")
    assert coverage.lost["pieces"] == 0
    words = [w for unit in aligned for w in unit.words if w is not None]
    configurations = [Configuration(None, 0, assignment(TOPICS_OF_PIECES)), Configuration(None, 1, assignment(TOPICS))]
    return aligned, TopicLookup(configurations, words)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "albert", "qwen2", "mpnet"])
def test_merged_pieces_equal_the_twin(family: str) -> None:
    """Attention to a word of several tokens is summed over them, from it averaged."""
    view = view_model(*tiny.build(family))
    units, lookup = merged(view)
    assert max(len(places) for unit in units for _, places in words_of(unit)) > 1
    parts = summed(view, units, lookup, batch_size=4)
    for c in range(len(lookup.configurations)):
        twin = pair_sums(view, units, lookup, c)
        assert c or {kind for *_, kind in twin} == set(PairClass), "the text has pairs of every class"
        for part in parts:
            for d, document in enumerate(("a", "b")):
                for k in PairClass:
                    for layer, head in np.ndindex(part.part.num_layers, part.part.num_heads):
                        x, y, n = twin.get((document, part.part.name, layer, head, k), (0.0, 0.0, 0))
                        assert part.counts[d, c, k] == n
                        assert part.heads[d, c, layer, head, k] == pytest.approx(x, rel=1e-4, abs=1e-7)
                        if part.corrected is not None:
                            assert part.corrected[d, c, layer, head, k] == pytest.approx(y, rel=1e-4, abs=1e-7)
            np.testing.assert_allclose(
                part.binned.sum(-1), part.heads.mean((2, 3))[..., [0, 2, 3]], rtol=1e-4, atol=1e-7
            )
            np.testing.assert_array_equal(part.binned_counts.sum(-1), part.counts[..., [0, 2, 3]])


@pytest.mark.parametrize("style", ["wordpiece", "bytes", "unigram"])
def test_pieces_are_one_word_or_lost(style: str) -> None:
    tokenizer = {"wordpiece": tiny.wordpiece, "bytes": tiny.byte_bpe, "unigram": tiny.unigram}[style]()
    unit = Unit("d", 0, "the zebra saw the river.")

    def words(pieces: str) -> tuple[Sequence[str | None], int]:
        (found,), coverage = align_units(tokenizer, [unit], max_length=64, pieces=pieces)  # type: ignore[arg-type]
        assert coverage.words == coverage.found + sum(coverage.lost.values())
        return found.words, coverage.found

    skipped, kept = words("skip")
    joined, all_of_them = words("merge")
    assert "zebra" not in skipped
    assert LATER_PIECE not in skipped
    start = list(joined).index("zebra")
    assert joined[start + 1] == LATER_PIECE
    assert [w for w in joined if w and w not in skipped] == ["zebra", "saw"]
    assert all_of_them == kept + 2 == 5


def test_a_word_longer_than_the_window_is_not_merged() -> None:
    tokenizer = tiny.wordpiece()
    units, coverage = align_units(tokenizer, [Unit("d", 0, "the abcdefghijkl sea")], max_length=8, pieces="merge")
    assert LATER_PIECE not in [word for unit in units for word in unit.words]
    assert coverage.lost["pieces"] == 1
    assert coverage.found == 2


def test_merging_reads_more_words(word_list: Path) -> None:
    texts = [(f"d{i}", "rivers and kings and the sword of zebras; the ship and the battle of war") for i in range(4)]
    view = view_model(*tiny.build("bert"))
    skip, merge = (probed(view, word_list, documents=texts, controls=0, pieces=p) for p in ("skip", "merge"))
    found = [result.to_dict()["coverage"]["alignment"]["found"] for result in (skip, merge)]
    assert found[1] > found[0]
    pairs = [sum(result.to_dict()["coverage"]["pairs"][0][k.name] for k in PairClass) for result in (skip, merge)]
    assert pairs[1] > pairs[0]
