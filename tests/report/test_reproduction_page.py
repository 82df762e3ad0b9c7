"""docs/reproduction.md is what its maker makes of the full run that is committed beside it."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from report.reproduction_folders import make, row
from scripts import load_script
from topicscope.claims import CLAIMS

DOCS = Path(__file__).resolve().parents[2] / "docs"


maker = load_script("docs/reproduction_page.py")
taken = pytest.mark.skipif(not (maker.KEPT / "claims.json").is_file(), reason="no full run has been taken yet")


@pytest.fixture
def documents():
    return [json.loads((maker.KEPT / f"{name}.json").read_text(encoding="utf-8")) for name in ("claims", "manifest")]


@taken
def test_the_page_is_what_the_maker_makes(documents) -> None:
    assert maker.PAGE.read_text(encoding="utf-8") == maker.render(*documents) == maker.made()
    assert not documents[1]["options"]["quick"]


@taken
def test_the_run_has_every_claim(documents) -> None:
    assert [claim["id"] for claim in documents[0]["claims"]] == [claim.id for claim in CLAIMS]


@taken
def test_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", maker.PAGE.read_text(encoding="utf-8"))
    assert len(pictures) == len(CLAIMS)
    assert all((DOCS / picture).stat().st_size < 400_000 for picture in pictures)


@taken
def test_numbers_come_from_the_rows(documents) -> None:
    """Another number in a row is another number on the page."""
    document, manifest = documents
    before = maker.render(document, manifest)
    claim = next(claim for claim in document["claims"] if claim["id"] == "attention-block")
    share = next(row for row in claim["rows"] if row["quantity"].startswith("share of attention"))
    share["measured"] = 0.123
    after = maker.render(document, manifest)
    assert after != before
    assert "account for 12 % of attention" in after


@taken
@pytest.mark.parametrize("claim", [claim.id for claim in CLAIMS])
def test_a_claim_without_its_rows_fails(documents, claim) -> None:
    document, manifest = documents
    next(entry for entry in document["claims"] if entry["id"] == claim)["rows"] = []
    with pytest.raises(maker.MissingRowError):
        maker.render(document, manifest)


@taken
def test_a_missing_claim_fails(documents) -> None:
    document, manifest = documents
    document["claims"].pop()
    with pytest.raises(maker.MissingRowError):
        maker.render(document, manifest)


def test_a_claim_that_the_prose_needs_must_be_there(tmp_path) -> None:
    folder = make(tmp_path, {"value-block": ("confirmed", [row("same", 1.0, "c")])})
    claims, manifest = (json.loads((folder / f"{name}.json").read_text()) for name in ("claims", "manifest"))
    with pytest.raises(maker.MissingRowError, match="theory-holds"):
        maker.render(claims, manifest)


def test_the_prose_speaks_of_every_claim() -> None:
    prose = (DOCS / "reproduction.md.j2").read_text(encoding="utf-8")
    assert {claim.id for claim in CLAIMS} <= set(re.findall(r'section\("([^"]+)"\)', prose))


def test_only_a_full_run_is_taken(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(maker, "KEPT", tmp_path / "kept")
    quick = make(tmp_path / "quick", {})
    with pytest.raises(SystemExit, match="quick run"):
        maker.take(quick)
    full = make(tmp_path / "full", {}, quick=False)
    (full / "figures").mkdir()
    Image.new("RGB", (50, 40), (255, 0, 0)).save(full / "figures" / "toy.png")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old.png").write_bytes(b"old")
    maker.take(full)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["claims.json", "manifest.json", "toy.png"]
    with Image.open(tmp_path / "kept" / "toy.png") as picture:
        assert picture.size == (50, 40)


def test_cells_cannot_break_the_table() -> None:
    assert maker.cell("a|b<c\nd") == "a\\|b&lt;c d"
    assert maker.measured({"measured": None, "reason": "why"}) == "not run: why"
    assert maker.measured({"measured": 1.23456, "error": 0.1234}) == "1.235 ± 0.12"
    assert maker.number(None) == maker.number(float("nan")) == "–"
