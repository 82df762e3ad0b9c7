"""The notebooks in examples/ run from top to bottom, and are committed without outputs."""

import json
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(document: dict, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == kind]


def execute(document: dict) -> dict:
    """Run every code cell; the names that are left."""
    names: dict = {"__name__": "__main__"}
    for number, source in enumerate(cells(document, "code")):
        exec(compile(source, f"cell {number}", "exec"), names)
    return names


def read(name: str) -> dict:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_there_are_three() -> None:
    assert NOTEBOOKS == ["probe_a_model.ipynb", "theory_and_training.ipynb", "two_stages.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_file_is_a_notebook_without_outputs(name: str) -> None:
    document = read(name)
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert len(cells(document, "markdown")) >= 5


@pytest.fixture(autouse=True)
def _without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    mpl.use("Agg")


@pytest.mark.docs
def test_a_model_is_probed() -> None:
    names = execute(read("probe_a_model.ipynb"))
    row = names["row"]
    assert row.attention_ratio > 1.1
    assert abs(row.control_attention_ratio - 1) < 0.05
    assert names["S"] > names["D"]
    assert isinstance(names["figure"], Figure)


@pytest.mark.docs
def test_theory_and_training_agree() -> None:
    names = execute(read("theory_and_training.ipynb"))
    exact, found = names["exact"], names["found"]
    assert found.W_V_same["mean"] == pytest.approx(exact.same, rel=0.01)
    assert found.W_V_different["mean"] == pytest.approx(exact.different, rel=0.01)
    assert names["best"].gamma > 1


@pytest.mark.docs
def test_two_stages_show_and_adam_has_none() -> None:
    names = execute(read("two_stages.ipynb"))
    assert names["stages"].separated
    assert names["measured"] == pytest.approx(names["predicted"], rel=0.5)  # a mean over two starts
    assert names["slope"] == pytest.approx(names["rates"].attention, rel=0.15)
    assert not names["find_stages"](names["adam"].history).separated


def test_a_broken_cell_is_noticed() -> None:
    document = read("two_stages.ipynb")
    code = next(cell for cell in document["cells"] if cell["cell_type"] == "code")
    code["source"] = ["undefined_name\n"]
    with pytest.raises(NameError):
        execute(document)
