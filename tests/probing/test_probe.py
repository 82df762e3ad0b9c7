"""The probe from text to table, on tiny models: columns, determinism, controls, interruption and bad input."""

import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from topicscope.errors import InputError
from topicscope.probing.hf import view_model
from topicscope.probing.results import ProbeResult
from topicscope.progress import SilentProgress

THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film"],
}


def themed_documents(number: int = 24, seed: int = 0) -> list[tuple[str, str]]:
    """Documents of two themes each, a sentence a line."""
    rng = np.random.default_rng(seed)
    documents = []
    for d in range(number):
        pool = [word for theme in rng.choice(list(THEMES), 2, replace=False) for word in THEMES[theme]]
        lines = [" ".join(rng.choice(pool, rng.integers(6, 14))) + "." for _ in range(5)]
        documents.append((f"doc{d}", "\n".join(lines)))
    return documents


@pytest.fixture(scope="module")
def word_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "words.csv"
    rows = [f"{word},{theme}" for theme, words in THEMES.items() for word in words]
    path.write_text("word,topic\n" + "\n".join(rows) + "\n")
    return path


def small(word_list: Path, **changes: object) -> ProbeResult:
    """A probe of a tiny BERT by the labelled words."""
    model, tokenizer = tiny.build(str(changes.pop("family", "bert")))
    options = {"topics": word_list, "controls": 2, "documents": themed_documents(), **changes}
    return topicscope.probe(model, tokenizer, **options)


def test_table_has_the_documented_columns_and_the_papers_rows(word_list: Path) -> None:
    table = small(word_list).table()
    assert set(table["source"]) == {"measured", "paper"}
    measured, paper = table[table["source"] == "measured"], table[table["source"] == "paper"]
    assert len(measured) == 1
    assert len(paper) == 18
    row = measured.iloc[0]
    for name in ("attention_ratio", "attention_ratio_distinct", "attention_ratio_distance_matched"):
        assert 0.8 < row[name] < 1.2
        assert 0 < row[f"{name}_se"] < 0.1
    assert np.isnan(row["attention_ratio_position_corrected"])
    for place in ("raw", "layer"):
        for kind in ("cosine", "dot"):
            columns = [f"embedding_{kind}_{place}_{q}" for q in ("same", "different", "difference")]
            same, different, difference = row[columns]
            assert difference == pytest.approx(same - different)


def test_two_runs_with_one_seed_are_identical_and_another_seed_is_not() -> None:
    options = {"topics": 3, "sweeps": 20, "min_count": 1, "threshold": (0.2,), "max_units": 60, "word_list": ""}
    options.pop("word_list")

    def run(seed: int) -> dict:
        model, tokenizer = tiny.build("bert")
        result = topicscope.probe(model, tokenizer, themed_documents(), controls=1, seed=seed, **options)
        return result.to_dict()

    first, second, other = run(1), run(1), run(2)
    for record in (first, second, other):
        record["manifest"].pop("created")
        for fitted in record["manifest"]["sources"]["topics"]["fitted"]:
            fitted.pop("created")
    assert first == second
    assert first["table"] != other["table"]


def test_batch_size_and_padding_side_do_not_matter(word_list: Path) -> None:
    one = small(word_list, batch_size=1).table()
    for changes in ({"batch_size": 8}, {"batch_size": 8, "padding": "left"}):
        other = small(word_list, **changes).table()
        numbers = [c for c in one.columns if c.startswith(("attention", "pairs", "control", "embedding"))]
        for column in numbers:
            np.testing.assert_allclose(other[column], one[column], rtol=1e-5, atol=1e-7, err_msg=column)


def test_topic_seeds_show_the_spread_due_to_the_topic_model() -> None:
    model, tokenizer = tiny.build("bert")
    options = {"topics": 3, "sweeps": 5, "min_count": 1, "threshold": (0.1, 0.2), "controls": 0}
    result = topicscope.probe(model, tokenizer, themed_documents(), topic_seeds=3, **options)
    measured = result.table().query("source == 'measured'")
    assert list(measured["threshold"]) == [0.1, 0.2]
    assert (measured["attention_ratio_topic_sd"] > 0).all()
    assert len(result.topics) == 3
    assert set(result.documents["topic_seed"]) == {0, 1, 2}


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_random_weights_show_no_structure(family: str, word_list: Path) -> None:
    """Mean over 8 initialisations within its t-interval of 1, or within .01; position-corrected where causal."""
    model, tokenizer = tiny.build(family)
    result = topicscope.probe(
        model, tokenizer, themed_documents(12), topics=word_list, controls=8, batch_size=16, unit="passage"
    )
    measured = result.table().query("source == 'measured'")
    for (_, row), part in zip(measured.iterrows(), view_model(model, tokenizer).parts, strict=True):
        name = "control_attention_ratio" + ("_position_corrected" if part.causal else "")
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        assert low < high
        assert low <= 1 <= high or abs(row[name] - 1) < 0.01, (part.name, row[name])
        if part.causal:
            assert np.isfinite(row["control_attention_ratio"]), "both forms are named"


def test_planted_structure_is_found(word_list: Path) -> None:
    """Keys and queries of one-hot topic vectors: the ratio must rise with the strength that was planted."""
    ratios = []
    for strength in (0.0, 3.0):
        model, tokenizer = tiny.build("bert")
        table = model.get_input_embeddings().weight.data
        for number, words in enumerate(THEMES.values()):
            ids = [tokenizer.convert_tokens_to_ids(word) for word in words]
            table[ids] += strength * torch.eye(32)[number]
        result = topicscope.probe(model, tokenizer, themed_documents(), topics=word_list, controls=0)
        ratios.append(result.table().loc[0, "embedding_cosine_raw_difference"])
    assert abs(ratios[0]) < 0.1
    assert ratios[1] > 0.8


class StopsAfter(SilentProgress):
    """Presses Ctrl-C when a task has done so much."""

    def __init__(self, task: str, done: int) -> None:
        self.task, self.done = task, done

    def update(self, task: str, done: float) -> None:
        if task == self.task and done >= self.done:
            raise KeyboardInterrupt


def test_interrupted_reading_keeps_what_is_done(word_list: Path, tmp_path: Path) -> None:
    documents = themed_documents(120)
    result = small(word_list, documents=documents, progress=StopsAfter("reading", 400))
    assert result.interrupted
    assert any("documents were read" in warning for warning in result.warnings)
    assert 0 < result.headline["documents"] < 120
    assert result.controls.empty
    assert ProbeResult.load(result.save(tmp_path / "run")).interrupted


def test_interrupted_controls_keep_the_finished_ones(word_list: Path) -> None:
    result = small(word_list, controls=3, progress=StopsAfter("random weights 2 of 3", 1))
    assert result.interrupted
    assert list(result.controls["control_seed"]) == [0]


def test_interrupted_before_anything_was_read_raises(word_list: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        small(word_list, progress=StopsAfter("reading", 1))


def test_a_saved_result_reads_back(word_list: Path, tmp_path: Path) -> None:
    result = small(word_list)
    folder = result.save(tmp_path / "run")
    names = {"result.json", "heads.csv", "documents.parquet", "moments.npz"}
    assert names <= {path.name for path in folder.iterdir()}
    again = ProbeResult.load(folder)
    pd.testing.assert_frame_equal(again.table(), result.table(), check_dtype=False)
    pd.testing.assert_frame_equal(again.heads(), result.heads(), check_dtype=False)
    pd.testing.assert_frame_equal(again.documents, result.documents)
    assert again.manifest == result.manifest
    with pytest.raises(InputError, match="not empty"):
        result.save(folder)
    assert result.save(folder, overwrite=True) == folder
    assert list(tmp_path.iterdir()) == [folder], "no staging folder is left"


def test_document_table_adds_up_to_the_headline(word_list: Path) -> None:
    result = small(word_list)
    total = result.documents[[c for c in result.documents if c.startswith(("sum_", "count_"))]].sum()
    same = (total["sum_same_word"] + total["sum_same_topic"]) / (total["count_same_word"] + total["count_same_topic"])
    ratio = same / (total["sum_different_topic"] / total["count_different_topic"])
    assert ratio == pytest.approx(result.table().loc[0, "attention_ratio"], rel=1e-6)
    assert list(result.documents["document_id"]) == [f"doc{d}" for d in range(24)]


def test_nothing_is_dropped_silently(word_list: Path) -> None:
    documents = [*themed_documents(6), ("long", "river " * 200 + "zzyzx king."), ("empty", "  ")]
    coverage = small(word_list, documents=documents).coverage
    text, alignment = coverage["text"], coverage["alignment"]
    assert text["skipped"] == {"empty document": 1}
    assert alignment["split_units"] == 1
    assert alignment["lost"]["pieces"] == 1
    assert alignment["words"] == alignment["found"] + sum(alignment["lost"].values())
    assert text["units"] == text["units_kept"] + sum(text["dropped"].values())


def test_a_live_model_is_left_as_it_was(word_list: Path) -> None:
    model, tokenizer = tiny.build("bert")
    model.train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    topicscope.probe(model, tokenizer, themed_documents(4), topics=word_list, controls=1)
    assert model.training
    assert all((p == before[name]).all() and p.requires_grad for name, p in model.named_parameters())


def test_a_folder_never_touches_the_network(word_list: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = tiny.build("bert")
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    live = topicscope.probe(model, tokenizer, themed_documents(), topics=word_list, controls=0)

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(socket, "create_connection", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    loaded = topicscope.probe(str(tmp_path / "model"), documents=themed_documents(), topics=word_list, controls=0)
    assert loaded.model["weights_hash"] == live.model["weights_hash"]
    assert loaded.table()["attention_ratio"].iloc[0] == live.table()["attention_ratio"].iloc[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"documents": []}, "empty"),
        ({"threshold": (0.0,), "topics": 3}, "--threshold"),
        ({"threshold": (1.5,), "topics": 3}, "--threshold"),
        ({"threshold": (), "topics": 3}, "--threshold"),
        ({"threshold": (0.1, 0.1), "topics": 3}, "only once"),
        ({"topic_seeds": 2}, "word list"),
        ({"topics": 1000, "min_count": 1}, "more topics than"),
        ({"topics": 0}, "--topics"),
        ({"max_units": 0}, "--max-units"),
        ({"unit": "page"}, "--unit"),
        ({"documents": [("a", "река мост море"), ("b", "война меч король")]}, "known to the tokenizer"),
        ({"documents": [("a", "the old stone bridge"), ("b", "the old stone bridge")]}, "no same-topic"),
        ({"documents": (text for text in ["river sea"])}, "generator"),
        ({"topics": "no-such-file.npz"}, "no-such-file.npz"),
    ],
)
def test_bad_input_is_named(word_list: Path, changes: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        small(word_list, **changes)
    assert message in str(caught.value)


def test_one_threshold_without_pairs_is_missing_with_its_reason(word_list: Path) -> None:
    options = {"topics": 3, "sweeps": 20, "min_count": 1, "threshold": (0.001, 0.2), "controls": 0}
    # No word twice in a document, so that a topic of one word has no same-topic pair.
    sparse = [(i, " ".join(dict.fromkeys(text.replace(".", " ").split()))) for i, text in themed_documents(20)]
    result = small(word_list, documents=sparse, **options)
    first, second = result.table().query("source == 'measured'")["attention_ratio"]
    assert np.isnan(first)
    assert np.isfinite(second)
    assert any("threshold 0.001" in warning and "no same" in warning for warning in result.warnings)


def test_rows_of_one_id_are_one_cluster_wherever_they_stand(word_list: Path) -> None:
    """More units than one chunk holds, so that a document's rows would fall into several chunks."""
    rows = [(f"doc{i % 7}", text) for i, (_, text) in enumerate(themed_documents(120))]
    apart = small(word_list, documents=rows, controls=0)
    together = small(word_list, documents=sorted(rows, key=lambda row: row[0]), controls=0)
    assert apart.headline["documents"] == together.headline["documents"] == 7
    assert apart.documents["document_id"].is_unique
    assert apart.headline["attention_ratio_se"] == pytest.approx(together.headline["attention_ratio_se"], rel=1e-6)


def test_one_document_has_no_interval_and_says_so(word_list: Path) -> None:
    text = str(small(word_list, documents=themed_documents(1)))
    assert "nan" not in text
    assert "no interval, 1 document" in text


def test_the_headline_shows_the_digits_of_its_interval(word_list: Path) -> None:
    """A random model's ratio is 1.000…: two decimals would read "1.00 to 1.00"."""
    headline = small(word_list).headline
    low, high = str(headline["text"]).split("interval ")[1].split(",")[0].split(" to ")
    assert low != high
    assert float(low) == pytest.approx(headline["low"], abs=1e-5)


def test_a_word_list_without_pairs_is_told_of_words_not_of_thresholds(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("word,topic\nriver,a\nsea,a\n")
    with pytest.raises(InputError) as caught:
        small(tmp_path / "one.csv")
    assert "list more words" in str(caught.value)
    assert "choose" not in str(caught.value)


def test_a_result_saved_again_is_the_same_file(word_list: Path, tmp_path: Path) -> None:
    first = small(word_list).save(tmp_path / "first")
    second = ProbeResult.load(first).save(tmp_path / "second")
    assert (first / "result.json").read_bytes() == (second / "result.json").read_bytes()


def test_a_live_model_without_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match="tokenizer"):
        topicscope.probe(tiny.build("bert")[0], documents=["a b c"])
