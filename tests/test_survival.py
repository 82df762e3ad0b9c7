"""docs/what-survives.md: its tables are those of its maker, whose rules are right, and its words follow from them."""

import copy
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts import load_script

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what-survives.md"
THRESHOLDS = (0.0005, 0.001, 0.002)


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return load_script("docs/survival.py")


def model(maker: ModuleType) -> dict[str, Any]:
    """Kept figures of a model in which everything survives."""
    rows, controls, embeddings = [], [], []
    for threshold in THRESHOLDS:
        row: dict[str, Any] = {"threshold": threshold, "permutation_p": 0.002, "permutation_z": 5.0, "verdict": "v"}
        for name in maker.RATIOS:
            row |= {name: 1.5, f"{name}_low": 1.4, f"{name}_high": 1.6}
        rows.append(row)
        measured = [name for name in maker.RATIOS if "sinks" not in name]
        controls += [dict.fromkeys(measured, value) | {"threshold": threshold} for value in (1.0, 1.01, 0.99)]
        for place in maker.PLACES:
            found = {"threshold": threshold, "place": place, "same": 0.3, "different": 0.1, "difference": 0.2}
            found |= {"difference_se": 0.01, "num_words": 400, "anisotropy": 0.1, "z_banded": 9.0}
            found |= {"p_value_banded": 0.0, "verdict": "same-topic similarity higher"}
            found |= {"control_difference": 0.001, "control_difference_low": -0.001, "control_difference_high": 0.002}
            if place == "cooccurrence":
                none = dict.fromkeys([name for name in found if name.startswith("control")])
                found |= none | {"difference": 0.1, "verdict": "baseline"}
            embeddings.append(found)
    return {"label": "M", "rows": rows, "controls": controls, "embeddings": embeddings}


def lines(table: str) -> dict[tuple[str, str], list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {(row[0], row[1]): row[2:] for row in cells}


def test_all_survives_where_all_is_right(maker: ModuleType) -> None:
    assert {cell for row in lines(maker.survival_table([model(maker)])).values() for cell in row} == {"yes"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        # An interval that touches 1, or random weights; shuffles that do as well, or point the other way.
        ({"attention_ratio_distinct_low": 1.0}, ("1 attention", "different words")),
        ({"attention_ratio_distinct_low": 1.02}, ("1 attention", "different words")),
        ({"attention_ratio_sinks_excluded_low": 0.99}, ("1 attention", "sinks excluded")),
        ({"permutation_p": 0.06}, ("1 attention", "topics shuffled within bands of frequency")),
        ({"permutation_z": -5.0}, ("1 attention", "topics shuffled within bands of frequency")),
        # Random weights at 1 are a twentieth or more of hardly any effect.
        ({"attention_ratio": 1.0}, ("3 random weights show none of it", "attention, all pairs, as in the paper")),
    ],
)
def test_one_threshold_is_lost_and_only_in_its_line(maker: ModuleType, change: dict, line: tuple[str, str]) -> None:
    changed = model(maker)
    changed["rows"][1] |= change
    found = lines(maker.survival_table([changed]))
    assert found.pop(line) == ["2 of 3"]
    assert {cell for row in found.values() for cell in row} == {"yes"}


@pytest.mark.parametrize(
    ("place", "change", "control"),
    [
        ("raw", {"control_difference_high": 0.3}, "random weights"),
        ("raw", {"p_value_banded": 0.05}, "topics shuffled within bands of frequency"),
        ("layer", {"z_banded": -9.0}, "topics shuffled within bands of frequency"),
        ("cooccurrence", {"difference": 0.3}, "more than co-occurrence"),
    ],
)
def test_embeddings_are_asked_alike(maker: ModuleType, place: str, change: dict, control: str) -> None:
    changed = model(maker)
    for row in changed["embeddings"]:
        row.update(change if row["place"] == place else {})
    found = lines(maker.survival_table([changed]))
    lost = {key for key, cells in found.items() if cells == ["no"]}
    places = ("raw", "layer") if place == "cooccurrence" else (place,)
    assert lost == {(f"2 embeddings, {maker.PLACES[p]}", control) for p in places}


def test_random_weights_with_structure_of_their_own_are_seen(maker: ModuleType) -> None:
    changed = model(maker)
    for row in changed["controls"]:
        row["attention_ratio"] += 0.2
    for row in changed["embeddings"]:
        row["control_difference"] = -0.05
    found = lines(maker.survival_table([changed]))
    three = {control: cells for (claim, control), cells in found.items() if claim.startswith("3")}
    assert [control for control, cells in three.items() if cells == ["no"]] == [
        "attention, all pairs, as in the paper",
        "embeddings, embedding matrix",
        "embeddings, embedding layer's output",
    ]


def test_what_does_not_exist_is_a_dash(maker: ModuleType) -> None:
    changed = copy.deepcopy(model(maker))
    for row in changed["rows"]:
        row["attention_ratio_position_corrected"] = None
    found = lines(maker.survival_table([changed]))
    assert found["1 attention", "corrected by row position"] == ["–"]
    assert "| corrected by row position | – |" in maker.attention_table([changed])


def test_the_page_is_the_one_its_figures_make(maker: ModuleType) -> None:
    assert [kept["label"] for kept in maker.read()] == ["MiniLM", "MPNet", "SmolLM2"]
    text = PAGE.read_text(encoding="utf-8")
    assert maker.page(text) == text


def test_the_words_of_the_page_are_true(maker: ModuleType) -> None:
    """If a new measurement fails here, the section "In plain words" is to be written anew."""
    minilm, mpnet, smollm2 = models = maker.read()
    table = lines(maker.survival_table(models))
    shuffled, excluded = "topics shuffled within bands of frequency", ", sinks excluded"
    attention = {control: cells for (claim, control), cells in table.items() if claim.startswith("1")}
    of_encoders = {control: cells[:2] for control, cells in attention.items() if control != "corrected by row position"}
    assert {cells[0] for cells in of_encoders.values()} == {"yes"}
    assert {cells[1] for control, cells in of_encoders.items() if control != shuffled} == {"yes"}
    assert attention[shuffled] == ["yes", "1 of 3", "no"]
    assert all(0.03 < row["permutation_p"] < 0.11 for row in mpnet["rows"])
    for model in (minilm, mpnet):
        for row in model["rows"]:
            assert row["attention_ratio_distinct_distance_matched"] - 1 < (row["attention_ratio"] - 1) / 2
    assert [control for control, cells in attention.items() if cells[2] == "yes"] == [
        "sinks excluded",
        "different words, matched distances" + excluded,
    ]
    for row in smollm2["rows"]:
        assert row["attention_ratio_high"] - row["attention_ratio_low"] > 2
        assert row["verdict"] == "no topic structure found"
        # Of random weights: clearly above 1 before the correction, not after.
        found = {name: maker.random_interval(smollm2, row["threshold"], name) for name in maker.RATIOS}
        assert found["attention_ratio"][1] > 1.1
        assert found["attention_ratio_distinct_distance_matched"][1] > 1.02
        assert abs(found["attention_ratio_position_corrected"][0] - 1) < 0.003
    embeddings = {key: cells for key, cells in table.items() if key[0].startswith("2")}
    for (_, control), cells in embeddings.items():
        assert cells == ["yes"] * 3 or (control == "more than co-occurrence" and "yes" not in cells)
    none = {control: cells for (claim, control), cells in table.items() if claim.startswith("3")}
    assert [control for control, cells in none.items() if cells[:2] != ["yes", "yes"]] == [
        "attention, corrected by row position"
    ]
    assert [control for control, cells in none.items() if cells[2] != "yes"] == [
        "attention, all pairs, as in the paper",
        "attention, different words, matched distances",
    ]
    assert [model["options"]["topic_seeds"] for model in models] == [1, 1, 1]


def test_no_kept_file_is_large_or_names_a_machine(maker: ModuleType) -> None:
    for path in maker.KEPT.glob("*.json"):
        assert path.stat().st_size < 200_000
        assert "/" not in path.read_text(encoding="utf-8")
        json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
