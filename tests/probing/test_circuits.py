"""`topicscope.circuits` end to end: laboratory models against Theorem 2, pretrained ones against brute force."""

import json

import numpy as np
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import texts
from lab.laboratory import run
from topicscope.errors import InputError, UnsupportedModelError
from topicscope.lab import ModelConfig, Start, TopicTransformer, start
from topicscope.probing.statistics import frequency_bands
from topicscope.synthetic import Setting
from topicscope.theory import value_matrix_blocks
from topicscope.topics import TopicModel, Vocabulary, WordList

THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film"],
}
T, V_TOPIC = 4, 5


def word_list(themes=THEMES):
    words = [word for theme in themes.values() for word in theme]
    topics = [frozenset([t]) for t, theme in enumerate(themes.values()) for _ in theme]
    return WordList(tuple(words), tuple(topics), tuple(themes), {})


def disjoint_topics(num_topics=T, v=V_TOPIC):
    phi = np.kron(np.eye(num_topics), np.full((1, v), 1 / v))
    return TopicModel(phi, np.full(num_topics, 0.1), Vocabulary.numbered(num_topics * v))


def laboratory(W_V, W_K=None, W_Q=None):
    """A one-layer model with these matrices [out in] over [MASK] and the words."""
    size = len(W_V)
    arrays = {"W_V": W_V} | ({} if W_K is None else {"W_K": W_K, "W_Q": W_Q})
    config = ModelConfig(attention_width=None if W_K is None else len(W_K))
    return TopicTransformer(config, start(config, size, arrays=arrays, dtype=torch.float64))


def layer(result, circuit):
    rows = result.table()
    return rows[rows["circuit"] == circuit].iloc[0]


@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_laboratory_model_has_the_blocks_of_theorem_2(ridge):
    setting = Setting(T, V_TOPIC, 2, p_mask=0.15, p_correct=0.1, p_random=0.1)
    blocks = value_matrix_blocks(setting, ridge)
    found = layer(topicscope.circuits(laboratory(blocks.matrix(setting)), topics=disjoint_topics()), "OV")
    assert found["difference"] == pytest.approx(blocks.same - blocks.different, abs=1e-12)
    assert found["same"] == pytest.approx(blocks.same, abs=1e-12)
    assert found["different"] == pytest.approx(blocks.different, abs=1e-12)
    assert found["diagonal"] == pytest.approx(blocks.diagonal, abs=1e-12)
    assert found["z"] > 5


def entrywise(W):
    """Mean over same-topic pairs less that over different-topic pairs, entry by entry."""
    topic = np.arange(T * V_TOPIC) // V_TOPIC
    entries = [(W[i, j], topic[i] == topic[j]) for i in range(len(W)) for j in range(len(W)) if i != j]
    return np.mean([x for x, same in entries if same]) - np.mean([x for x, same in entries if not same])


def test_scores_of_a_laboratory_model_entry_by_entry():
    """A matrix that is not symmetric; the scores are those of W_Kᵀ W_Q / √d_a."""
    rng = np.random.default_rng(0)
    size = T * V_TOPIC + 1
    W_V, W_K, W_Q = rng.normal(size=(size, size)), rng.normal(size=(6, size)), rng.normal(size=(6, size))
    result = topicscope.circuits(laboratory(W_V, W_K, W_Q), topics=disjoint_topics())
    assert layer(result, "OV")["difference"] == pytest.approx(entrywise(W_V[1:, 1:]), abs=1e-12)
    assert layer(result, "QK")["difference"] == pytest.approx(entrywise((W_Q.T @ W_K)[1:, 1:] / 6**0.5), abs=1e-12)


def test_trained_laboratory_model_has_its_blocks():
    record = run("theorem-2", "training.steps=100", seeds=1)
    weights = {name: torch.from_numpy(value[0]).double() for name, value in record.weights.items()}
    config = ModelConfig.model_validate(record.config["model"])
    W_V = weights["W_V"].numpy()
    data = record.config["data"]
    model = TopicTransformer(config, Start(weights, frozenset()))
    found = layer(topicscope.circuits(model, topics=disjoint_topics(data["num_topics"], data["words_per_topic"])), "OV")
    topic = np.arange(len(W_V) - 1) // data["words_per_topic"]
    same = topic[:, None] == topic
    off = ~np.eye(len(same), dtype=bool)
    words = W_V[1:, 1:]
    assert found["difference"] == pytest.approx(words[same & off].mean() - words[~same].mean(), abs=1e-12)
    assert found["difference"] > 0


def planted(strength):
    """A tiny BERT whose words of one topic share a direction; head 2 of its last layer looks and writes along it."""
    model, tokenizer = tiny.build("bert")
    topics = word_list()
    generator = torch.Generator().manual_seed(1)
    directions = torch.linalg.qr(torch.randn(32, 8, generator=generator))[0].T[:3]
    with torch.no_grad():
        for word, topic in zip(topics.words, topics.topics, strict=True):
            model.embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids(word)] += (
                0.2 * directions[min(topic)]
            )
        attention = model.encoder.layer[1].attention
        for matrix in (attention.self.query, attention.self.key, attention.self.value):
            matrix.weight[16:19] += strength * directions
        attention.output.dense.weight[:, 16:19] += strength * directions.T
    return model, tokenizer


def test_a_planted_head_is_found_and_others_are_not():
    model, tokenizer = planted(1.0)
    heads = topicscope.circuits(model, tokenizer, topics=word_list()).heads()
    for circuit in ("OV", "QK"):
        for place in ("raw", "layer"):
            rows = heads[(heads["circuit"] == circuit) & (heads["place"] == place)].set_index(["layer", "head"])
            assert rows["z"].idxmax() == (1, 2)
            assert rows["z_turned"].loc[(1, 2)] > 3.5
            assert (rows["z_turned"].drop((1, 2)).abs() < 3.5).all()


def test_random_weights_have_no_structure():
    beyond = []
    for seed in range(5):
        model, tokenizer = tiny.build("gpt2", seed=seed)
        heads = topicscope.circuits(model, tokenizer, topics=word_list()).heads()
        beyond += (heads["z"].abs() > 4).tolist()
    assert len(beyond) == 5 * 2 * 4 * 4
    assert sum(beyond) <= 2


def test_a_live_head_gives_its_output_embeddings():
    import transformers

    model, tokenizer = tiny.build("gpt2")
    head = transformers.GPT2LMHeadModel(
        model.config.__class__(**(model.config.to_dict() | {"tie_word_embeddings": False}))
    )
    head.eval()
    head.transformer.load_state_dict(model.state_dict())
    without = topicscope.circuits(model, tokenizer, topics=word_list())
    with_head = topicscope.circuits(head, tokenizer, topics=word_list())
    assert "output embeddings of the model's head" in with_head.notes[0]
    assert "input embeddings" in without.notes[0]
    same = without.rows["circuit"] == "QK"
    assert np.allclose(without.rows["difference"][same], with_head.rows["difference"][same])
    assert not np.allclose(without.rows["difference"][~same], with_head.rows["difference"][~same])


def test_bands_are_even_and_ordered():
    counts = np.random.default_rng(0).integers(1, 1000, 105).astype(float)
    bands = frequency_bands(counts)
    assert np.bincount(bands).min() >= 20
    assert [counts[bands == b].max() <= counts[bands == b + 1].min() for b in range(4)] == [True] * 4
    assert frequency_bands(counts[:39]) is None


def test_frequencies_give_bands():
    model, tokenizer = tiny.build("bert")
    words = [word for word in tiny.WORDS if len(word) > 2]
    themes = {"a": words[::2], "b": words[1::2]}
    given = topicscope.circuits(
        model, tokenizer, topics=word_list(themes), frequencies={word: float(i) for i, word in enumerate(words)}
    )
    assert given.rows["bands"].iloc[0] >= 2
    assert given.rows["z_banded"].notna().all()
    assert topicscope.circuits(model, tokenizer, topics=word_list(themes)).rows["z_banded"].isna().all()


def test_result_as_tables_pictures_and_files(tmp_path):
    model, tokenizer = planted(1.0)
    result = topicscope.circuits(model, tokenizer, topics=word_list())
    assert len(result.table()) == 2 * 2 * 2
    assert len(result.heads()) == 2 * 2 * 2 * 4
    assert "QK" in str(result)
    assert "<table" in result._repr_html_()
    assert len(result.plot("QK", place="raw").axes) == 2
    with pytest.raises(InputError, match="no circuits to draw"):
        result.plot("QK", place="elsewhere")
    folder = result.save(tmp_path / "out")
    record = json.loads((folder / "circuits.json").read_text())
    assert len(record["rows"]) == len(result.rows)
    assert {path.name for path in folder.iterdir()} == {"circuits.json", "circuits.csv", "files.json"}
    assert set(result.pictures()) == {"ov-encoder.png", "qk-encoder.png"}


def test_a_probe_holds_the_circuits(tmp_path):
    model, tokenizer = tiny.build("bert")
    probed = topicscope.probe(model, tokenizer, texts(), topics=word_list(), controls=0)
    alone = topicscope.circuits(model, tokenizer, topics=word_list())
    assert probed.circuits.equals(alone.rows)
    loaded = topicscope.ProbeResult.load(probed.save(tmp_path / "out"))
    assert np.allclose(loaded.circuits["difference"], alone.rows["difference"], rtol=1e-14, atol=0)
    assert loaded.to_dict()["circuits"] == probed.to_dict()["circuits"]
    assert len(probed.to_dict()["circuits"]) == len(alone.table())
    assert ">Circuits</h2>" in loaded.page()


def test_topics_that_cannot_be_used():
    model, tokenizer = tiny.build("bert")
    with pytest.raises(InputError, match="topics that are there already"):
        topicscope.circuits(model, tokenizer, topics=100)
    with pytest.raises(InputError, match="at least two topics"):
        topicscope.circuits(model, tokenizer, topics=word_list({"water": THEMES["water"]}))
    with pytest.raises(InputError, match="at least two topics"):
        topicscope.circuits(model, tokenizer, topics=word_list({"a": ["river"], "b": ["king"]}))
    with pytest.raises(InputError, match="needs its tokenizer"):
        topicscope.circuits(model, topics=word_list())
    with pytest.raises(InputError, match="topic model of its documents"):
        topicscope.circuits(laboratory(np.eye(21)), topics=word_list())


def test_a_type_without_layout_is_refused():
    import transformers

    config = transformers.OPTConfig(
        vocab_size=600, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32,
        max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.OPTModel(config).eval()
    with pytest.raises(UnsupportedModelError, match="'opt'"):
        topicscope.circuits(model, tiny.tokenizer_for("gpt2"), topics=word_list())
