"""Topics on disk: number for number, no pickle, and every wrong file refused with its place."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.topics import (
    TopicModel,
    Topics,
    Vocabulary,
    WordList,
    fit,
    from_word_list,
    load_any,
    load_phi,
    load_topics,
    save_topics,
)
from topicscope.topics.files import SCHEMA_VERSION, import_matrix, load_word_list


@pytest.fixture
def topics() -> Topics:
    draw = np.random.default_rng(0)
    weights = draw.gamma(0.1, size=(7, 50)) + 1e-9
    words = Vocabulary(tuple(f"wörd{i}" for i in range(50)))
    model = TopicModel(weights / weights.sum(axis=1, keepdims=True), draw.uniform(0.01, 1, 7), words)
    return Topics(model, {"engine": "made", "sweeps": 3, "corpus": None, "nested": {"ö": [1.5, True]}})


def save_changed(path: Path, topics: Topics, **changes: Any) -> Path:
    """The topics file with some arrays replaced, or left out where the change is None."""
    save_topics(path, topics)
    arrays = {**np.load(path, allow_pickle=False), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_topics_come_back_bit_for_bit(tmp_path: Path, topics: Topics) -> None:
    path = tmp_path / "new folder" / "topics.npz"
    for labels in (None, tuple("abcdefg")):
        save_topics(path, Topics(topics.model, topics.provenance, labels))
        back = load_topics(path)
        np.testing.assert_array_equal(back.model.phi, topics.model.phi)
        np.testing.assert_array_equal(back.model.alpha, topics.model.alpha)
        assert back.model.vocabulary == topics.model.vocabulary
        assert back.provenance == topics.provenance
        assert back.labels == labels
        assert isinstance(load_any(path), Topics)


def test_fitted_topics_come_back_bit_for_bit(tmp_path: Path) -> None:
    fitted = fit(["cat dog bird", "fish cow", "cat bird dog", "cow fish fish"] * 5, 2, sweeps=20, min_count=1)
    save_topics(tmp_path / "t.npz", fitted)
    back = load_topics(tmp_path / "t.npz")
    np.testing.assert_array_equal(back.model.phi, fitted.model.phi)
    assert back.provenance == fitted.provenance


def test_symptom_25_the_file_holds_plain_arrays_and_a_schema_version(tmp_path: Path, topics: Topics) -> None:
    save_topics(tmp_path / "t.npz", topics)
    with np.load(tmp_path / "t.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert {name: array.dtype.kind for name, array in arrays.items()} == {
        "schema_version": "i",
        "phi": "f",
        "alpha": "f",
        "words": "U",
        "provenance": "U",
    }
    assert arrays["phi"].dtype == np.float64
    assert int(arrays["schema_version"]) == SCHEMA_VERSION == 1
    assert json.loads(str(arrays["provenance"])) == topics.provenance


def test_symptom_25_pickled_content_is_never_read(tmp_path: Path, topics: Topics) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "exploded"), "w"))

    path = save_changed(tmp_path / "t.npz", topics, words=np.array([Bomb()] * 50, dtype=object))
    for load in (load_topics, load_any, import_matrix):
        with pytest.raises(InputError, match="pickled"):
            load(path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": np.array(2)}, "another schema"),
        ({"schema_version": np.array("1")}, "another schema"),
        ({"schema_version": np.array([1, 1])}, "another schema"),
        ({"schema_version": None}, "another schema"),
        ({"alpha": None}, "lacks a part"),
        ({"alpha": np.zeros(7)}, "alpha"),
        ({"alpha": np.ones(6)}, "alpha"),
        ({"phi": np.full((7, 50), np.nan)}, "NaN"),
        ({"phi": np.ones((7, 50))}, "do not sum to 1"),
        ({"phi": np.full((7, 50), 0.02)}, "identical"),
        ({"phi": np.full((7, 50), "x")}, "phi holds no numbers"),
        ({"phi": np.ones(50) / 50}, "wrong shape"),
        ({"words": np.array(["a"] * 50)}, "twice"),
        ({"words": np.arange(50)}, "not a list of text"),
        ({"words": np.array(["a", "b"])}, "wrong shape"),
        ({"provenance": np.array("{")}, "not JSON"),
        ({"provenance": np.array("[1]")}, "not a JSON object"),
        ({"labels": np.array(["a"])}, "label"),
    ],
)
def test_a_wrong_topics_file_is_refused_with_its_name(
    tmp_path: Path, topics: Topics, changes: dict[str, Any], message: str
) -> None:
    path = save_changed(tmp_path / "t.npz", topics, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_topics(path)
    assert "t.npz" in str(caught.value.where)


def test_what_is_no_topics_file_is_refused(tmp_path: Path) -> None:
    for load in (load_topics, load_any, import_matrix, load_word_list):
        with pytest.raises(InputError):
            load(tmp_path / "missing")
        with pytest.raises(InputError):
            load(tmp_path)
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and then nothing")
    np.save(tmp_path / "matrix.npy", np.ones(3))
    for load, name in ((load_topics, "cut.npz"), (load_any, "cut.npz"), (load_topics, "matrix.npy")):
        with pytest.raises(InputError, match="not an npz file"):
            load(tmp_path / name)


MATRIX = np.array([[1.0, 3.0, 0.0], [2.0, 2.0, 4.0]])
ROWS = MATRIX / MATRIX.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("matrix_name", ["phi", "matrix"])
@pytest.mark.parametrize("words_name", ["vocabulary", "words"])
def test_import_of_an_npz(tmp_path: Path, matrix_name: str, words_name: str) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, **{matrix_name: MATRIX.astype(np.float32), words_name: np.array(["x", "y", "z"])})
    for topics in (import_matrix(path), load_any(path)):
        assert isinstance(topics, Topics)
        np.testing.assert_allclose(topics.model.phi, ROWS, rtol=1e-15)
        assert topics.model.vocabulary.words == ("x", "y", "z")
        assert topics.provenance["rows_normalised"].endswith("the sums were 4 to 8")
        assert topics.labels is None


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("x,y,z\n1,3,0\n2,2,4\n", None),
        ("\ufefftopic,x,y,z\r\nsport,1,3,0\r\n\r\nmoney,2,2,4\r\n", ("sport", "money")),
        (',x,y,"z"\n0,1,3,0\n1,2,2,4e0', ("0", "1")),
    ],
)
def test_import_of_a_csv(tmp_path: Path, text: str, labels: tuple[str, ...] | None) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text, encoding="utf-8", newline="")
    for topics in (import_matrix(path), load_any(path)):
        assert isinstance(topics, Topics)
        np.testing.assert_array_equal(topics.model.phi, ROWS)
        assert topics.model.vocabulary.words == ("x", "y", "z")
        assert topics.labels == labels


def test_a_matrix_without_words_is_no_topics(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", MATRIX)
    with pytest.raises(InputError, match="no array vocabulary or words"):
        load_any(tmp_path / "m.npy")


def test_words_that_are_equal_once_normalised_are_added_up_and_counted(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("Apple,pear,apple\n1,2,1\n0,1,0\n")
    topics = import_matrix(tmp_path / "m.csv")
    assert topics.model.vocabulary.words == ("apple", "pear")
    np.testing.assert_array_equal(topics.model.phi, [[0.5, 0.5], [0, 1]])
    assert topics.provenance["words_added_up"] == 1


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "without topics", None),
        ("x,y\n", "without topics", None),
        ("x,y\n1,2,3\n", "another length", 2),
        ("x,y\n1,2\n1,two\n", "not a number", 3),
        ("x,y\n1,nan\n", "NaN, infinite or negative", None),
        ("x,y\n-1,-2\n", "NaN, infinite or negative", None),
        ("x,y\n0,0\n", "no weight", None),
        ("x,y\n1,2\n2,4\n", "identical", None),
        ('x,"y\n1,2\n', "not a CSV file", None),
        ("x,\n1,2\n", "empty word", None),
    ],
)
def test_a_wrong_matrix_is_refused_with_its_place(tmp_path: Path, text: str, message: str, line: int | None) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        import_matrix(path)
    assert str(caught.value.where) == (f"{path}:{line}" if line else str(path))


def test_other_wrong_matrices(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, phi=MATRIX.T, words=np.array(["x", "y", "z"]))
    with pytest.raises(InputError, match="transpose"):
        import_matrix(path)
    np.savez(path, weights=MATRIX, words=np.array(["x", "y", "z"]))
    with pytest.raises(InputError, match="no array phi or matrix"):
        import_matrix(path)
    (tmp_path / "latin.csv").write_bytes("w\xf6rd,y\n1,2\n".encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"):
        import_matrix(tmp_path / "latin.csv")


def test_a_word_list(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("Word, Topic\nGoal,sport\nbank,money\n\nbank,sport\nloan,money\ngoal,sport\n")
    for words in (load_word_list(path), load_any(path)):
        assert isinstance(words, WordList)
        assert words.words == ("goal", "bank", "loan")
        assert words.topics == (frozenset({0}), frozenset({0, 1}), frozenset({1}))
        assert words.labels == ("sport", "money")
        assert words.provenance["repeated_rows"] == 1
        assert len(words.provenance["sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("word,topic\n", "empty", ""),
        ("word,topic\ncat,pet\ndog\n", "not a word and its topic", ":3"),
        ("word,topic\ncat,\n", "not a word and its topic", ":2"),
        ("cat,pet\n", "not a word list", ""),
    ],
)
def test_a_wrong_word_list(tmp_path: Path, text: str, message: str, place: str) -> None:
    path = tmp_path / "words.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_word_list(path)
    assert str(caught.value.where) == f"{path}{place}"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), bits=st.integers(1, 255), cut=st.booleans(), packed=st.booleans())
def test_a_damaged_file_is_an_input_error_or_still_topics(
    tmp_path: Path, place: int, bits: int, cut: bool, packed: bool
) -> None:
    path = tmp_path / "t.npz"
    model = TopicModel.disjoint(2, 2)
    if packed:
        save_topics(path, Topics(model, {}))
    else:
        save_changed(path, Topics(model, {}))
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place] ^= bits
    path.write_bytes(data[:place] if cut else data)
    for load in (load_topics, load_any):
        with suppress(InputError):
            assert isinstance(load(path), Topics)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet='wordtpic,;"\n\r 01.e-\0é', max_size=80).map(str.encode),
        st.text(alphabet="abé,\n\r", max_size=80).map(lambda text: b"word,topic\n" + text.encode()),
    )
)
def test_any_bytes_are_an_input_error_or_topics(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    with suppress(InputError):
        assert isinstance(load_any(path), (Topics, WordList))


def test_phi_for_the_laboratory_has_the_words_of_its_file(tmp_path: Path) -> None:
    rows = "1,0\n0.5,0.5\n"
    for text, words in ((f"topic,cat\n{rows}", ("topic", "cat")), (f"a, b\n{rows}", ("a", "b")), (rows, ("w1", "w2"))):
        (tmp_path / "phi.csv").write_text(text)
        model = load_phi(tmp_path / "phi.csv")
        assert model.vocabulary.words == words
        np.testing.assert_array_equal(model.phi, [[1, 0], [0.5, 0.5]])
    for names, words in (("words", ("a", "b")), ("vocabulary", ("a", "b")), ("other", ("w1", "w2"))):
        np.savez(tmp_path / "phi.npz", **{"phi": model.phi, names: np.array(["a", "b"])})
        assert load_phi(tmp_path / "phi.npz").vocabulary.words == words
    np.savez(tmp_path / "phi.npz", phi=model.phi, words=np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match="do not fit"):
        load_phi(tmp_path / "phi.npz")


def test_a_word_list_of_many_words_makes_no_set_for_each(tmp_path: Path) -> None:
    """A million sets are a million objects for the garbage collector, which took two thirds of the time."""
    path = tmp_path / "words.csv"
    path.write_text("word,topic\n" + "".join(f"w{i},t{i % 3}\n" for i in range(300)))
    word_list = load_word_list(path)
    assert len({id(topics) for topics in word_list.topics}) == 3
    assigned = from_word_list(word_list, stop_words=[])
    assert len({id(topics) for topics in assigned.topics}) == 3
