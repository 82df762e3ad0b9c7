"""The table, the picture and the page of a sweep."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import topicscope
from experiments.small_sweeps import Stopped, write
from topicscope.errors import InputError
from topicscope.experiments import SweepResult, sweep
from topicscope.records import Manifest, RunRecord, describe_environment

RATE, ATTENTION = "training.learning_rate", "model.attention"


def result_of(
    grid: dict[str, list[Any]],
    value: Callable[[dict[str, Any]], float | None],
    *,
    metric: str = "loss",
    random: dict[str, Any] | None = None,
    **more: Any,
) -> SweepResult:
    """A sweep whose numbers are made up; None: the point diverged."""
    points = []
    for number, levels in enumerate(itertools.product(*grid.values())):
        values = dict(zip(grid, levels, strict=True))
        mean = value(values)
        measured = {"mean": mean, "sd": 0.1, "count": 3, "theory": None, "deviation": None}
        point = {"id": f"{number:012d}", "values": values, "reason": None if mean is not None else "training diverged"}
        point |= {"status": "diverged" if mean is None else "finished", "seconds": 1.5}
        points.append(point | {"measurements": {} if mean is None else {metric: measured}})
    counts = dict.fromkeys(("waiting", "failed", "impossible", "repeated", "kept", "left_over", "bytes"), 0)
    counts |= {s: sum(point["status"] == s for point in points) for s in ("finished", "diverged")}
    spec = {"recipe": "tiny", "seeds": 3, "set": {}, "grid": {} if random else grid, "random": random}
    manifest = Manifest(created="2026", environment=describe_environment(), options=dict(spec), sources={})
    fields: dict[str, Any] = {"name": "tiny", "description": "small", "spec": spec, "points": tuple(points)}
    fields |= {"impossible": (), "counts": counts, "manifest": manifest}
    return SweepResult(**fields | more)


def lines_of(figure: Any) -> list[tuple[list[float], list[float]]]:
    """Data of every line with error bars, panel by panel."""
    return [
        (list(bars.lines[0].get_xdata()), list(bars.lines[0].get_ydata()))
        for axes in figure.axes
        for bars in axes.containers
    ]


def test_one_number_is_a_line_on_the_axis_that_suits_it() -> None:
    result = result_of({RATE: [1.0, 0.01, 0.1]}, lambda v: v[RATE] if v[RATE] < 1 else None)
    figure = result.plot()
    assert figure.axes[0].get_xscale() == "log"
    assert lines_of(figure) == [([0.01, 0.1], [0.01, 0.1])]
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1.0]]
    assert result_of({RATE: [0.1, 0.2]}, lambda v: 1.0).plot().axes[0].get_xscale() == "linear"


def test_two_fields_are_lines_by_colour_and_three_are_panels() -> None:
    grid = {ATTENTION: ["uniform", "trained"], RATE: [0.1, 0.2, 0.3], "data.length": [50, 60]}
    two = result_of({name: grid[name] for name in (ATTENTION, RATE)}, lambda v: v[RATE])
    assert lines_of(two.plot()) == [([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])] * 2
    three = result_of(grid, lambda v: v[RATE] * v["data.length"]).plot()
    assert [axes.get_title(loc="left") for axes in three.axes] == [f"{ATTENTION} = {a}" for a in grid[ATTENTION]]
    assert lines_of(three) == [
        (pytest.approx([0.1, 0.2, 0.3]), pytest.approx([rate * length for rate in (0.1, 0.2, 0.3)]))
        for _ in grid[ATTENTION]
        for length in (50, 60)
    ]


def test_two_long_numeric_fields_are_a_map() -> None:
    grid = {RATE: [0.1, 0.2, 0.3, 0.4], "data.length": [50, 60, 70, 80, 90]}
    figure = result_of(grid, lambda v: v[RATE] * v["data.length"] if v[RATE] < 0.4 else None).plot()
    (drawn,) = figure.axes[0].collections
    cells = drawn.get_array().filled(math.nan)
    assert cells.shape == (4, 5)
    second = cells[-2]  # from below
    assert second.tolist() == pytest.approx([0.2 * length for length in grid["data.length"]])
    assert [text.get_text() for text in figure.axes[0].texts].count("×") == 5


@pytest.mark.parametrize("drawn", [True, False])
def test_draws_and_large_grids_are_a_panel_for_each_field(drawn: bool) -> None:
    grid = {
        RATE: [0.1, 0.2, 0.3, 0.4],
        ATTENTION: ["uniform", "trained"],
        "data.length": [50, 60, 70, 80],
        "training.seed": [1, 2, 3, 4],
    }
    random = {"fields": {name: {"log": name == RATE} for name in grid}} if drawn else None
    result = result_of(grid, lambda v: v[RATE], random=random)
    figure = result.plot()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_xlabel() for axes in shown] == list(grid)
    assert all(len(x) == 128 for x, _ in lines_of(figure))
    assert shown[0].get_xscale() == ("log" if drawn else "linear")


def test_a_single_point_and_words_that_would_be_mathematics() -> None:
    result_of({RATE: [0.1]}, lambda v: 1.0).plot(columns="single").savefig("/dev/null", format="svg")
    result_of({"name": ["a$b$c", "$"], RATE: [0.1, 0.2]}, lambda v: 1.0).plot().savefig("/dev/null", format="svg")


def test_the_metric_is_what_was_asked_for_or_what_makes_sense() -> None:
    assert result_of({RATE: [0.1, 0.2]}, lambda v: 1.0).metric == "loss"
    assert result_of({RATE: [0.1, 0.2]}, lambda v: 1.0, metric="deviation").metric == "deviation"
    assert result_of({RATE: [0.1, 0.2]}, lambda v: 1.0, wanted="W_V_same").metric == "loss"
    result = result_of({RATE: [0.1, 0.2]}, lambda v: v[RATE], metric="W_V_same", wanted="W_V_same")
    assert result.metric == "W_V_same"
    assert list(result.plot_data()["mean"]) == [0.1, 0.2]
    with pytest.raises(InputError, match="did you mean W_V_same"):
        result.plot("W_V_sam")
    with pytest.raises(InputError, match="no point"):
        result_of({RATE: [0.1]}, lambda v: None).plot()


def test_the_table_is_the_file(tmp_path: Path) -> None:
    result = sweep(write(tmp_path), out=tmp_path / "out")
    table = result.table()
    assert list(table.columns[:5]) == ["id", "status", RATE, ATTENTION, "seconds"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "table.csv"), table, check_dtype=False)
    loaded = SweepResult.load(tmp_path / "out")
    pd.testing.assert_frame_equal(loaded.table(), table)
    assert loaded.report() == tmp_path / "out" / "report.html"
    assert loaded.page() == result.page() == (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "sweep.png").stat().st_size > 5_000
    loaded.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "sweep.json").read_bytes() == (tmp_path / "out" / "sweep.json").read_bytes()
    assert isinstance(topicscope.load(tmp_path / "out"), SweepResult)
    assert isinstance(topicscope.load(tmp_path / "out" / "runs" / str(table["id"][0])), RunRecord)
    with pytest.raises(InputError, match="not stored"):
        sweep(write(tmp_path)).report()


def test_the_page_says_where_it_was_lowest_and_what_is_missing(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    result = result_of(
        {RATE: [0.1, 0.2, 1.0], "name": [hostile]},
        lambda v: v[RATE] if v[RATE] < 1 else None,
        impossible=({"values": {RATE: 2.0}, "reason": hostile},),
    )
    page = result.page()
    assert hostile not in page
    assert f"lowest at {RATE} = 0.1, name = &lt;script&gt;" in page
    assert f"{RATE} = 1, name = &lt;script&gt;alert(1)&lt;/script&gt;: diverged: training diverged" in page
    assert "left out, no recipe allows it: &lt;script&gt;" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    waiting = sweep(write(tmp_path), out=tmp_path / "out", cluster=Stopped(0))
    page = waiting.page()
    assert "None of 4 points has a number yet" in page
    assert "4 points were not trained yet" in page


def test_other_documents_are_no_sweeps(tmp_path: Path) -> None:
    for text in ('{"kind": "probe", "schema_version": 1}', '{"kind": "sweep", "schema_version": 9}', "[]"):
        (tmp_path / "sweep.json").write_text(text)
        with pytest.raises(InputError, match="not a result of topicscope sweep"):
            SweepResult.load(tmp_path)
