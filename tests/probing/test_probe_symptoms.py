"""What people ran into with neighbouring tools, looked for in the finished result and not only in its parts."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import regex

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from topicscope.errors import InputError
from topicscope.text import Word

WATER = ("河流", "海洋", "船只", "桥梁", "冰雪", "鱼类")
WAR = ("国王", "城堡", "战争", "军队", "宝剑", "王后")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "words.csv"
    path.write_text(WORDS_CSV)
    return path


def probe(words: Path, family: str = "bert", **changes: object) -> topicscope.ProbeResult:
    model, tokenizer = tiny.build(family)
    options = {"documents": texts(8), "topics": words, "controls": 0, **changes}
    return topicscope.probe(model, tokenizer, **options)


def chinese(number: int = 8) -> list[str]:
    """Sentences without spaces, of two-character words of two themes."""
    rng = np.random.default_rng(0)
    return ["".join("".join(rng.choice([*WATER, *WAR], 8)) + "。" for _ in range(3)) for _ in range(number)]


def by_two(text: str) -> list[Word]:
    """A segmenter of this toy Chinese."""
    return [Word(match.group(), match.start(), match.end()) for match in regex.finditer(r"\p{Han}{2}", text)]


def test_symptom_26_a_word_splitter_makes_chinese_measurable(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    rows = [f"{word},{topic}" for topic, theme in (("water", WATER), ("war", WAR)) for word in theme]
    path.write_text("word,topic\n" + "\n".join(rows) + "\n")
    model, tokenizer = tiny.build("roberta", words=(*WATER, *WAR))
    options = {"documents": chinese(), "topics": path, "controls": 0, "language": "zh", "unit": "passage"}
    result = topicscope.probe(model, tokenizer, splitter=by_two, **options)
    assert result.coverage["alignment"]["words"] == 8 * 3 * 8
    assert result.coverage["alignment"]["found"] > 100
    assert 0.5 < result.table()["attention_ratio"].iloc[0] < 2
    assert not any("word splitter" in warning for warning in result.warnings)
    # Without it every sentence is one "word" that no tokenizer knows, and the advice is to pass one.
    with pytest.raises(InputError, match="word splitter"):
        topicscope.probe(model, tokenizer, **options)


def test_symptom_26_the_result_warns_of_words_that_spaces_do_not_separate(words: Path) -> None:
    assert any("word splitter" in w for w in probe(words, documents=[*texts(4), *chinese(40)]).warnings)
    assert not any("word splitter" in w for w in probe(words).warnings)


def test_symptom_24_the_document_table_keeps_the_ids_of_what_was_read(words: Path) -> None:
    """Dropped documents leave no hole that would shift the others' numbers."""
    one, two, three = texts(3)
    documents = [("a", one), ("empty", " "), ("b", two), ("short", "Sea."), ("c", three)]
    table = probe(words, documents=documents).documents.set_index("document_id")
    assert list(table.index) == ["a", "b", "c"]
    alone = probe(words, documents=[("c", three)]).documents.set_index("document_id")
    numbers = [name for name in table if name.startswith(("sum_", "count_"))]
    pd.testing.assert_frame_equal(table.loc[["c"], numbers], alone[numbers], rtol=1e-5)


def test_symptom_12_albert_has_rows_for_every_call_of_its_one_layer_module(words: Path) -> None:
    heads = probe(words, "albert").heads()
    assert sorted(heads.groupby(["layer", "head"]).groups) == [(layer, head) for layer in range(3) for head in range(4)]


def test_symptom_4_a_result_names_kernel_precision_versions_and_weights(words: Path) -> None:
    result = probe(words)
    assert result.model["kernel"] in ("sdpa", "eager")
    assert result.model["dtype"] == "float32"
    assert len(result.model["weights_hash"]) == 64
    libraries = result.manifest.environment.libraries
    assert {"torch", "transformers", "tokenizers", "tomotopy"} <= set(libraries)
    model, tokenizer = tiny.build("bert", seed=1)
    other = topicscope.probe(model, tokenizer, texts(8), topics=words, controls=0)
    assert other.model["weights_hash"] != result.model["weights_hash"]


def test_symptom_1_the_kernel_a_model_was_loaded_with_changes_no_number(words: Path) -> None:
    ratios = []
    for kernel in ("eager", "sdpa"):
        model, tokenizer = tiny.build("bert")
        model.set_attn_implementation(kernel)
        result = topicscope.probe(model, tokenizer, texts(8), topics=words, controls=0)
        assert model.config._attn_implementation == kernel
        assert result.model["kernel"] == kernel
        ratios.append(result.table()["attention_ratio"].iloc[0])
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)


def test_symptom_25_the_saved_folder_has_no_pickle_and_says_its_schema(words: Path, tmp_path: Path) -> None:
    options = {"topics": 3, "sweeps": 5, "min_count": 1, "threshold": (0.2,)}
    folder = probe(words, **options).save(tmp_path / "run")
    record = json.loads((folder / "result.json").read_text())
    assert record["schema_version"] == 1
    archives = sorted(folder.glob("*.npz"))
    assert {path.name for path in archives} == {"embedding_map.npz", "moments.npz", "topics.npz"}
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                array = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                assert array.dtype.kind in "iufUb", (path.name, name)
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds == {".json", ".npz", ".csv", ".parquet"}
    (folder / "result.json").write_text(json.dumps(record | {"schema_version": 2}))
    with pytest.raises(InputError, match="this version can read"):
        topicscope.ProbeResult.load(folder)
