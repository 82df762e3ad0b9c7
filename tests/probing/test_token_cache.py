"""Tokens are made once, read back as they were made, and made anew when anything that decides them changes."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import tiny
from text.text_files import sample_units
from topicscope.errors import InputError, RunError
from topicscope.probing import ProbeConfig
from topicscope.probing.tokens import TokenCache, align_units, cache_key, tokens_of
from topicscope.probing.tokens import cache as token_cache
from topicscope.probing.tokens import cache as tokenise
from topicscope.probing.tokens.cache import prune
from topicscope.progress import SilentProgress
from topicscope.text import Corpus, Word, corpus_from, split_words

DOCUMENTS = [
    ("ä/1", "The river flows. The king of the castle and his army are here."),
    ("b\n2", "Music and song of the theatre. An unbelievable film with an actor."),
    ("empty", "   "),
    ("ä/1", "Another row of the first document with a river and a sea."),
    ("c", "ship " * 150),
]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(token_cache, "KEPT_TOKENS", 10)
    return tmp_path / "cache" / "tokens"


def corpus(documents: list[tuple[str, str]] = DOCUMENTS) -> Corpus:
    return corpus_from(documents, name="test")


def tokens(text: Corpus | None = None, family: str = "bert", **options: Any) -> TokenCache:
    splitter = options.pop("splitter", split_words)
    return tokens_of(
        tiny.tokenizer_for(family),
        corpus() if text is None else text,
        ProbeConfig(**options),
        max_length=tiny.MAX_LENGTH,
        splitter=splitter,
        progress=SilentProgress(),
    )


@pytest.mark.parametrize("block", [1, 2, 1024])
@pytest.mark.parametrize(
    "options", [{}, {"unit": "passage"}, {"max_units": 3}, {"pieces": "merge"}, {"max_units": 4, "seed": 5}]
)
def test_what_is_read_back_is_what_was_aligned(
    block: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the lists in memory, with the rows of one document together."""
    monkeypatch.setattr(tokenise, "UNITS_PER_BLOCK", block)
    chosen = ProbeConfig(**options)
    units, counts = sample_units(corpus(), chosen.unit, chosen.max_units, chosen.seed)
    aligned, coverage = align_units(tiny.tokenizer_for("bert"), units, max_length=tiny.MAX_LENGTH, pieces=chosen.pieces)
    ids = list(dict.fromkeys(unit.document_id for unit in aligned))
    expected = sorted(aligned, key=lambda unit: ids.index(unit.document_id))
    found = tokens(**options)
    assert list(found[:]) == expected
    assert [found[i] for i in range(len(found))] == expected
    assert found[-1] == expected[-1]
    assert list(found[1:3]) == expected[1:3]
    assert list(found[:][1:3]) == expected[1:3]
    sent = pickle.loads(pickle.dumps(found[2:4]))  # noqa: S301 - as Ray sends it
    assert list(sent) == expected[2:4]
    assert set(sent.vocabulary) == {word for unit in expected[2:4] for word in unit.words if word}
    assert found.coverage == coverage
    assert found.unit_counts == counts
    assert found.documents == len(ids)
    assert found.words == tuple(dict.fromkeys(w for unit in aligned for w in unit.words if w))
    with pytest.raises(IndexError):
        found[len(found)]


def test_a_second_reading_makes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tokens()
    monkeypatch.setattr(tokenise, "align_units", lambda *_, **__: pytest.fail("tokenised again"))
    second = tokens()
    assert list(second) == list(first)
    assert second.folder == first.folder == root / first.folder.name
    assert not any(path.suffix in (".pkl", ".pickle") for path in root.rglob("*"))


def test_whatever_decides_the_tokens_decides_the_name(root: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"text": corpus([*DOCUMENTS, ("d", "One more document about the war.")])},
        {"text": corpus([("x", text) for _, text in DOCUMENTS])},
        {"family": "albert"},
        {"unit": "passage"},
        {"max_units": 3},
        {"max_units": 3, "seed": 1},
        {"pieces": "merge"},
        {"language": "de"},
    ]
    for change in changes:
        tokens(**change)
    assert len(list(root.iterdir())) == len(changes)
    tokens(seed=7)  # decides nothing without a sample
    assert len(list(root.iterdir())) == len(changes)
    options = ProbeConfig()
    tokenizer = tiny.tokenizer_for("bert")
    assert cache_key(tokenizer, corpus(), options, 64) != cache_key(tokenizer, corpus(), options, 65)


def test_small_texts_and_own_splitters_leave_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def letters(text: str) -> list[Word]:
        return split_words(text)[:4]

    found = tokens(splitter=letters)
    assert found.unit_counts.words < tokens().unit_counts.words
    kept = {path.name for path in root.iterdir()}
    del found
    assert {path.name for path in root.iterdir()} == kept - {p for p in kept if p.startswith("topicscope-")}
    monkeypatch.setattr(token_cache, "KEPT_TOKENS", 10**9)
    before = len(list(root.iterdir()))
    small = tokens(unit="passage")
    folder = small.folder
    assert folder.is_dir()
    del small
    assert not folder.exists()
    assert len(list(root.iterdir())) == before


def test_lines_that_were_left_out_belong_to_the_file_and_not_to_the_cache(tmp_path: Path) -> None:
    from topicscope.text import open_corpus

    clean, dirty = tmp_path / "clean.jsonl", tmp_path / "dirty.jsonl"
    clean.write_text('{"text": "The river and the sea and the ship."}\n')
    dirty.write_text(clean.read_text() + "no json\n")
    assert tokens(open_corpus(clean)).unit_counts.skipped == {}
    assert tokens(open_corpus(dirty, on_error="skip")).unit_counts.skipped == {"not JSON": 1}


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    assert len(tokens()) > 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_broken_cache_is_made_anew(share: float, root: Path) -> None:
    """As a writer leaves it that is killed."""
    first = list(tokens())
    (folder,) = root.iterdir()
    assert [path.name for path in folder.iterdir()] == ["tokens.arrow"]
    data = (folder / "tokens.arrow").read_bytes()
    (folder / "tokens.arrow").write_bytes(data[: int(share * len(data))])
    assert list(tokens()) == first
    assert (folder / "tokens.arrow").read_bytes() == data


def test_a_cache_of_another_form_is_not_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tokens()
    monkeypatch.setattr(token_cache, "FORMAT", 1)
    assert tokens().folder != first.folder


def test_no_room_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_cache, "build_tokens", full)
    with pytest.raises(RunError, match=r"(?s)No space left.*TOPICSCOPE_CACHE"):
        tokens()


def test_text_without_units_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no sentence"):
        tokens(corpus([("a", "too short")]))


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    for name, age in (("old", 300_000), ("older", 400_000), ("new", 10), ("used", 200_000)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokens.arrow").write_bytes(bytes(1000))
        stamp = folder.stat().st_mtime - age
        os.utime(folder, (stamp, stamp))
    prune(tmp_path, 2500)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "used"]
    prune(tmp_path, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["new"], "what may be in use stays"


def test_what_is_no_cache_is_never_pruned(tmp_path: Path) -> None:
    """The folder of caches may be named by the user, who may keep other things there."""
    for name in ("cache/tokens.arrow", "thesis/chapter.txt", "thesis/tokens.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for folder in tmp_path.iterdir():
        os.utime(folder, (0, 0))
    prune(tmp_path, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]
    assert sorted(path.name for path in (tmp_path / "thesis").iterdir()) == ["chapter.txt", "tokens.arrow"]
