"""The table of single pairs against the pair-by-pair twin of the sums, and its rows, maps and gaps."""

import numpy as np
import pytest

import tiny
from probing.test_attention import prepared
from probing.twin import pair_sums
from topicscope.probing.attention import PairReader, PairTable, TopicLookup
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.hf.eager import Rows
from topicscope.probing.hf.view import OnAttention
from topicscope.probing.tokens import Batch
from topicscope.topics import PairClass

DOCUMENTS = ("a", "b", "c")


def read(view: ModelView, classes: tuple[PairClass, ...] = tuple(PairClass), **options: bool) -> dict[str, PairTable]:
    units, lookup = prepared(view)
    document_of = np.array([DOCUMENTS.index(unit.document_id) for unit in units])
    batches = list(PairReader(view, units, document_of, lookup, classes).read(view, **options))
    return {part.name: PairTable.joined([batch[part.name] for batch in batches]) for part in view.parts}


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_pair_table_sums_to_the_pair_by_pair_twin(family: str) -> None:
    view = view_model(*tiny.build(family))
    twin = pair_sums(view, *prepared(view), 0)
    for part in view.parts:
        pairs = read(view, heads=True)[part.name]
        for d, document in enumerate(DOCUMENTS):
            for kind in PairClass:
                chosen = pairs.only((pairs.document == d) & (pairs.pair_class == kind))
                plain = (chosen.attention * (chosen.length / 100)[:, None]).sum(axis=0)
                corrected = (chosen.attention * (chosen.rank / 100)[:, None]).sum(axis=0)
                for number, (layer, head) in enumerate(np.ndindex(part.num_layers, part.num_heads)):
                    x, y, n = twin.get((document, part.name, layer, head, kind), (0.0, 0.0, 0))
                    assert len(chosen.row) == n
                    assert plain[number] == pytest.approx(x, rel=1e-4, abs=1e-9)
                    if part.causal:
                        assert corrected[number] == pytest.approx(y, rel=1e-4, abs=1e-9)


def test_maps_of_layers_are_means_over_heads() -> None:
    view = view_model(*tiny.build("bert"))
    [layers], [heads] = read(view).values(), read(view, heads=True).values()
    by_head = heads.attention.reshape(
        len(heads.row), *(len(read) for read in (view.parts[0].layers, view.parts[0].heads))
    )
    np.testing.assert_allclose(layers.attention, by_head.mean(axis=2), rtol=1e-5)


def test_pairs_of_one_row_share_query_and_document_and_compete() -> None:
    view = view_model(*tiny.build("bert"))
    [pairs] = read(view, heads=True).values()
    for row in np.unique(pairs.row):
        one = pairs.only(pairs.row == row)
        assert len(np.unique(one.query)) == len(np.unique(one.document)) == len(np.unique(one.rank)) == 1
        assert (one.attention.sum(axis=0) <= 1 + 1e-6).all()


def test_classes_are_those_asked_for_and_words_need_no_topics() -> None:
    view = view_model(*tiny.build("bert"))
    units, lookup = prepared(view)
    [everything] = read(view).values()
    [chosen] = read(view, (PairClass.same_topic,)).values()
    same = everything.only(everything.pair_class == PairClass.same_topic)
    for column in ("document", "row", "query", "key", "distance", "attention"):
        np.testing.assert_array_equal(getattr(chosen, column), getattr(same, column))
    reader = PairReader(view, units, np.zeros(len(units), dtype=int), TopicLookup.without_topics(lookup.words))
    plain = PairTable.joined([batch["encoder"] for batch in reader.read(view)])
    assert set(plain.pair_class) == {PairClass.same_word_no_topic, PairClass.no_topic}
    np.testing.assert_array_equal(plain.query, everything.query)
    np.testing.assert_array_equal(plain.attention, everything.attention)


def test_rows_with_a_nan_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_model(*tiny.build("bert"))
    [before] = read(view).values()
    assert before.nan_rows == 0
    run = ModelView.run

    def run_with_gaps(self: ModelView, batch: Batch, on_attention: OnAttention) -> Rows:
        """As if half precision had spoiled the fourth query of every unit."""
        rows = run(self, batch, on_attention)
        rows.not_a_number["encoder"][:, 3] = batch.attention_mask[:, 3].bool()
        return rows

    monkeypatch.setattr(ModelView, "run", run_with_gaps)
    [broken] = read(view).values()
    left = before.only(before.rank != 4)
    assert broken.nan_rows == sum(len(unit.input_ids) > 3 for unit in prepared(view)[0])
    assert len(left.row) < len(before.row)
    np.testing.assert_array_equal(broken.row, left.row)
    np.testing.assert_array_equal(broken.attention, left.attention)
