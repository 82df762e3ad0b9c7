"""What is measured of a live model is what a probe measures, and z is what shuffles say."""

import itertools
import math

import numpy as np
import pytest
import torch

import tiny
import topicscope
from monitoring.small_runs import THEMES, documents
from topicscope.errors import InputError
from topicscope.monitoring.measurement import (
    AttentionReader,
    TopicStructureMeter,
    flat_metrics,
    save_start,
    weight_rows,
)
from topicscope.monitoring.probe_set import ProbeSet, prepare, read_given
from topicscope.probing.circuits import attention_weights, circuit_factors
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.statistics import WordPairs
from topicscope.text import corpus_from


def prepared(family: str = "bert", texts=None, **options) -> tuple[ModelView, ProbeSet]:
    view = view_model(*tiny.build(family))
    texts = documents() if texts is None else texts
    chosen = {"max_length": view.max_length, "threshold": None, "language": "en", "seed": 0} | options
    return view, prepare(view.tokenizer, corpus_from(texts), read_given(THEMES), **chosen)


def sharpened(view: ModelView) -> None:
    """Larger weights, so that a random model's attention differs from pair to pair."""
    with torch.no_grad():
        for parameter in view._model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(12)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_attention_of_a_layer_is_what_a_probe_of_that_layer_measures(family, tmp_path):
    words = tmp_path / "words.csv"
    words.write_text("word,topic\n" + "".join(f"{w},{t}\n" for t, ws in THEMES.items() for w in ws))
    texts = documents(12)
    view, found = prepared(family, texts)
    sharpened(view)
    rows = list(AttentionReader(view, found.units, found.document_of, found.lookup).read(view))
    assert {row["part"] for row in rows} == {part.name for part in view.parts}
    for layer in (0, 1):
        options = {"controls": 0, "permutations": 0, "profile": 0, "unit": "passage", "layers": (layer,)}
        table = topicscope.probe(view, documents=texts, topics=words, **options).table()
        for row in (row for row in rows if row["layer"] == layer):
            probed = table[(table["source"] == "measured") & (table["part"] == row["part"])].iloc[0]
            assert row["pairs_same"] == probed["pairs_same"]
            for name in ("attention_ratio", "attention_ratio_distinct", "attention_ratio_position_corrected"):
                ours = row.get(name.removeprefix("attention_"), math.nan)
                if name.endswith("corrected"):
                    ours = row.get("ratio_position_corrected", math.nan)
                assert ours == pytest.approx(probed[name], rel=1e-5, nan_ok=True)
                if name != "attention_ratio_position_corrected":
                    ours = row[f"{name.removeprefix('attention_')}_se"]
                    assert ours == pytest.approx(probed[f"{name}_se"], rel=1e-4)
    assert max(abs(row["ratio"] - 1) for row in rows) > 0.005


def test_z_of_given_entries_over_all_permutations():
    """Every one of the 7! orders of seven words."""
    rng = np.random.default_rng(3)
    n, member = 7, np.eye(3, dtype=bool)[[0, 0, 1, 1, 2, 2, 2]]
    first, second = np.triu_indices(n, 1)
    kept = rng.random(len(first)) < 0.6
    first, second = first[kept], second[kept]
    values = rng.normal(size=(2, len(first)))
    z, _ = WordPairs(member, None).shuffled(first, second, values)
    for head in range(2):
        form = np.zeros((n, n))
        form[first, second] = form[second, first] = values[head]
        sums = []
        for order in itertools.permutations(range(n)):
            shared = (member[list(order)] @ member[list(order)].T) & ~np.eye(n, dtype=bool)
            sums.append(float(form[shared].sum()))
        assert z[head] == pytest.approx((sums[0] - np.mean(sums)) / np.std(sums), rel=1e-9)


def test_z_within_bands_over_all_permutations_of_each():
    rng = np.random.default_rng(4)
    member, bands = np.eye(2, dtype=bool)[[0, 0, 1, 1, 0, 1, 1, 0]], np.array([0, 0, 0, 0, 1, 1, 1, 1])
    first, second = np.triu_indices(8, 1)
    values = rng.normal(size=(1, len(first)))
    _, banded = WordPairs(member, bands).shuffled(first, second, values)
    form = np.zeros((8, 8))
    form[first, second] = form[second, first] = values[0]
    sums = []
    for low, high in itertools.product(itertools.permutations(range(4)), itertools.permutations(range(4, 8))):
        moved = member[[*low, *high]]
        sums.append(float(form[(moved @ moved.T) & ~np.eye(8, dtype=bool)].sum()))
    assert banded[0] == pytest.approx((sums[0] - np.mean(sums)) / np.std(sums), rel=1e-9)


def planted(view: ModelView, topics: list[list[str]], seed: int = 0) -> None:
    """Embeddings = a direction of their topic and noise; queries and keys read them off, so attention follows them."""
    rng = torch.Generator().manual_seed(seed)
    bert = view._model
    with torch.no_grad():
        weight = bert.embeddings.word_embeddings.weight
        for number, words in enumerate(topics):
            for word in words:
                (token,) = view.tokenizer(word, add_special_tokens=False)["input_ids"]
                weight[token] = torch.randn(32, generator=rng) * 0.4
                weight[token, number * 4] += 3.0
        bert.embeddings.position_embeddings.weight.zero_()
        for layer in bert.encoder.layer:
            attention = layer.attention.self
            attention.query.weight.copy_(torch.eye(32))
            attention.key.weight.copy_(torch.eye(32))
            attention.value.weight.copy_(torch.eye(32))
            layer.attention.output.dense.weight.copy_(torch.eye(32))


def test_planted_topics_are_found_and_topics_of_other_words_are_not():
    view, found = prepared()
    planted(view, list(THEMES.values()))
    row = TopicStructureMeter(view, found).measure(None, None)
    embeddings = {e["kind"]: e for e in row["embeddings"]}
    assert embeddings["cosine"]["z"] > 8
    assert embeddings["cosine"]["difference"] > 0.5
    layer = row["layers"][0]
    assert layer["attention_z"] > 4
    assert layer["attention_ratio"] - 3 * layer["attention_ratio_se"] > 1
    assert layer["attention_difference"] > 3 * layer["attention_difference_se"] > 0
    assert layer["ov_z"] > 8

    words = [word for theme in THEMES.values() for word in theme]
    view, found = prepared()
    planted(view, [words[i::3] for i in range(3)])  # topics that cut across those of the text
    row = TopicStructureMeter(view, found).measure(None, None)
    assert abs(row["embeddings"][0]["z"]) < 4
    assert abs(row["layers"][0]["attention_z"]) < 4
    assert abs(row["layers"][0]["ov_z"]) < 4


def test_z_has_a_standard_deviation_of_one_where_there_is_nothing():
    found_z = []
    view, found = prepared(texts=documents(10))
    for seed in range(30):
        model, _ = tiny.build("bert", seed=seed)
        again = view_model(model, view.tokenizer)
        sharpened(again)
        reader = AttentionReader(again, found.units, found.document_of, found.lookup)
        found_z += [row["z"] for row in reader.read(again)]
    assert abs(np.mean(found_z)) < 0.4
    assert 0.7 < np.std(found_z) < 1.3


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_neox", "bart", "t5", "gemma2", "albert"])
def test_values_alone_are_the_values_of_all_circuits(family):
    view = view_model(*tiny.build(family))
    ids = torch.arange(10, 24)
    whole = [f for f in circuit_factors(view, ids) if (f.circuit, f.place) == ("OV", "raw")]
    alone = list(circuit_factors(view, ids, direct_values_only=True))
    assert len(alone) == len(whole) > 0
    for a, b in zip(alone, whole, strict=True):
        assert (a.part, a.layer) == (b.part, b.layer)
        assert np.array_equal(a.left, b.left)
        assert np.array_equal(a.right, b.right)


def test_weights_are_the_modules_and_their_way_is_measured(tmp_path):
    view, _ = prepared()
    start = tmp_path / "start.safetensors"
    assert save_start(view, start)
    assert all(row["W_Q_change"] == 0 for row in weight_rows(view, start))
    attention = view._model.encoder.layer[1].attention
    found = {(part, layer): m for part, layer, m in attention_weights(view)}["encoder", 1]
    for name, linear in {"W_Q": attention.self.query, "W_O": attention.output.dense}.items():
        assert torch.equal(found[name].float(), linear.weight)
    with torch.no_grad():
        attention.self.query.weight[2, 3] += 3.0
        attention.self.query.weight[5, 3] -= 4.0
    first, second = weight_rows(view, start)
    assert first["W_Q_change"] == 0
    assert second["W_Q_change"] == pytest.approx(5.0, rel=1e-6)
    assert second["W_Q_norm"] == pytest.approx(float(attention.self.query.weight.detach().norm()), rel=1e-6)
    assert "W_Q_change" not in next(weight_rows(view, None))


def test_rows_that_are_no_numbers_are_left_out_and_counted():
    view, found = prepared(texts=documents(6))
    reader = AttentionReader(view, found.units, found.document_of, found.lookup)
    before = next(iter(reader.read(view)))
    view._model.to(torch.bfloat16)
    half = next(iter(AttentionReader(view, found.units, found.document_of, found.lookup).read(view)))
    assert half["ratio"] == pytest.approx(before["ratio"], abs=0.01)
    with torch.no_grad():
        view._model.embeddings.position_embeddings.weight[7] = math.nan
    broken = next(iter(reader.read(view)))
    assert broken["rows_not_a_number"] > 0
    assert math.isnan(broken["ratio"]) or broken["pairs_same"] < before["pairs_same"]


def test_metrics_are_named_numbers():
    view, found = prepared("gpt2", documents(6))
    metrics = flat_metrics(TopicStructureMeter(view, found).measure(None, None))
    assert metrics["topics/layer_01/attention_ratio"] > 0
    assert "topics/layer_00/attention_ratio_position_corrected" in metrics
    assert "topics/embeddings/cosine_z" in metrics
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    view, found = prepared("bart", documents(6))
    metrics = flat_metrics(TopicStructureMeter(view, found).measure(None, None))
    assert {"topics/encoder/layer_00/attention_ratio", "topics/cross/layer_02/attention_z"} <= set(metrics)


def test_topics_are_fitted_where_a_number_is_given_and_have_words_enough():
    view = view_model(*tiny.build("bert"))
    corpus, options = corpus_from(documents(30)), {"threshold": None, "language": "en", "seed": 0}
    found = prepare(view.tokenizer, corpus, read_given(3), max_length=view.max_length, **options)
    assert found.topics["topics"] == 3
    assert len(found.assignment.words) >= 6


@pytest.mark.parametrize(
    "topics", [{"one": ["river", "sea"]}, {"one": "river", "two": "war"}, {"one": ["xyzzy"], "two": ["plugh"]}]
)
def test_topics_that_cannot_be_used_are_refused(topics):
    view = view_model(*tiny.build("bert"))
    with pytest.raises(InputError):
        prepare(
            view.tokenizer,
            corpus_from(documents(4)),
            read_given(topics),
            max_length=view.max_length,
            threshold=None,
            language="en",
            seed=0,
        )
