"""docs/models.md speaks of every family and every trained model of the suite, and its tables are those of its maker."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from probing import conformance, real_models
from scripts import load_script
from topicscope.probing.hf.families import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return load_script("docs/models_page.py")


def rows(maker: ModuleType, name: str) -> list[list[str]]:
    begin, end = maker.MARKS[name]
    body = PAGE.split(begin)[1].split(end)[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def test_every_family_has_its_row(maker: ModuleType) -> None:
    header, _, *found = rows(maker, "families")
    assert tuple(header) == maker.FAMILIES
    assert [row[0] for row in found] == list(conformance.FAMILIES)
    assert set(FAMILIES) <= {row[0] for row in found}, "a type in the table of families is not in the suite"


def test_the_figures_are_within_what_the_suite_asks_for(maker: ModuleType) -> None:
    for family, way, twin, padding, random, planted in rows(maker, "families")[2:]:
        assert way in ("registry", "hooks", "registry, hooks"), family
        assert float(twin) < 1e-4
        assert float(padding) < 1e-4
        assert all(abs(float(ratio) - 1) < 0.05 for ratio in random.split(", "))
        pairs = [pair.split(" / ") for pair in planted.split(", ")]
        assert all(abs(float(known) / float(found) - 1) < 1e-3 for known, found in pairs)


def test_every_trained_model_has_its_row(maker: ModuleType) -> None:
    header, _, *found = rows(maker, "trained")
    assert tuple(header) == maker.TRAINED
    assert [row[0].replace(", ", "-") for row in found] == [training.name for training in conformance.TRAININGS]


def test_every_real_model_has_its_rows(maker: ModuleType) -> None:
    header, _, *found = rows(maker, "real")
    assert tuple(header) == maker.REAL
    labels = [real_models.source_of(name).label for name in real_models.NAMES]
    assert list(dict.fromkeys(row[0] for row in found)) == labels
    assert all(float(row[5]) > 1.2 and abs(float(row[8]) - 1) < 0.05 for row in found)


def test_the_maker_writes_the_row_of_a_family(maker: ModuleType) -> None:
    row = maker.family_row(conformance.measure("gpt2"))
    (written,) = (line for line in rows(maker, "families") if line[0] == "gpt2")
    assert [row[0], row[1], row[4], row[5]] == [written[0], written[1], written[4], written[5]]
    text = maker.insert(PAGE, "families", "TABLE")
    assert re.search(r"make models-page -->\nTABLE\n<!-- end of families", text)
