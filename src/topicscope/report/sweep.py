"""A sweep: the picture of one measurement against the swept fields, and its page, both from sweep.json alone.

| swept fields with several values | picture |
| --- | --- |
| one | points with ± one standard deviation over seeds, joined where the field is a number |
| two | one line a value of the second; a map where both are numbers with four values or more |
| more, up to six combinations of the others | the same in a panel for each of them |
| random draws, or more combinations | a panel for each field, all points in each |

A cross at the lower edge (in a map: in the cell) stands for a point without a number. Axes of fields are logarithmic
where the field was drawn so, or where a grid's values are positive and span a factor of twenty.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter

from topicscope.records import dump_json
from topicscope.report.labels import ORANGE
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.style import (
    LINES,
    Cells,
    Columns,
    PaperFigure,
    draw_cells,
    paper_figure,
    plain,
    shared_legend,
    tidy,
    write_cells,
)
from topicscope.report.tables import MISSING, Table, count, manifest_tables, number, percent
from topicscope.report.training_figures import plain_log

# A field has a logarithmic axis if its largest value is so many times the smallest; a measurement, if it is more times.
_WIDE, _VERY_WIDE = 20.0, 30.0
_MOST_PANELS, _MOST_LINES, _MAP_FROM = 6, len(LINES), 4
# Measurements that are good when they are small.
_WORDS = {"deviation": "largest deviation from theory", "loss": "loss on held-out documents"}
_MOST_ROWS, _MOST_REASONS, _BEST = 1000, 6, 5


@dataclass(frozen=True)
class _Field:
    """A swept field with several values: `levels` in their order; `log`: of its axis."""

    name: str
    levels: tuple[Any, ...]
    numeric: bool
    log: bool

    def places(self, values: Sequence[Any]) -> np.ndarray:
        """Of every value: the number itself, or the place of a word among the levels."""
        return np.array([float(value) if self.numeric else self.levels.index(value) for value in values], dtype=float)

    def set_axis(self, axes: Axes) -> None:
        """Scale, ticks and name of the x axis."""
        if self.log:
            axes.set_xscale("log")
        axes.set_xlabel(self.name)
        if self.numeric and len(self.levels) > 8:
            return
        axes.minorticks_off()
        axes.set_xticks(self.places(self.levels), [_label(level) for level in self.levels])
        if not self.numeric:
            axes.set_xlim(-0.5, len(self.levels) - 0.5)


def draw_sweep(
    record: Mapping[str, Any], metric: str, columns: Columns | None = None
) -> tuple[pd.DataFrame, PaperFigure]:
    """The picture, and the numbers that it shows: see `sweep_data`."""
    data = sweep_data(record, metric)
    random = (record["spec"]["random"] or {}).get("fields", {})
    fields = [_field(name, data[name], random.get(name)) for name in record["swept"] if len(set(data[name])) > 1]
    if not random and len(fields) == 2 and all(f.numeric and len(f.levels) >= _MAP_FROM for f in fields):
        return data, _map(data, fields, metric, columns)
    order = sorted(fields, key=lambda field: (not field.numeric, -len(field.levels)))
    second = order[1:2] if order[1:] and len(order[1].levels) <= _MOST_LINES else []
    others = [field for field in order[1:] if field not in second]
    if not random and np.prod([len(field.levels) for field in others], initial=1) <= _MOST_PANELS:
        return data, _lines(data, order[:1], second, others, metric, columns)
    return data, _scatter(data, fields, metric, columns)


def sweep_data(record: Mapping[str, Any], metric: str) -> pd.DataFrame:
    """One row a point: the swept fields, status, and mean, sd (over seeds) and theory of the metric, NaN where there is
    none."""
    rows = []
    for point in record["points"]:
        values = {
            name: dump_json(value) if isinstance(value, (list, tuple, Mapping)) or value is None else value
            for name, value in point["values"].items()
        }
        measured = point["measurements"].get(metric) or {}
        numbers = {name: measured.get(name) for name in ("mean", "sd", "theory")}
        rows.append(values | {"status": point["status"]} | numbers)
    return pd.DataFrame(rows).astype({"mean": float, "sd": float, "theory": float})


def metric_words(metric: str) -> str:
    """What a measurement is called on an axis."""
    return _WORDS.get(metric, metric)


def _field(name: str, values: pd.Series, draw: Mapping[str, Any] | None) -> _Field:
    found = list(dict.fromkeys(values))
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in found)
    if not numeric:
        return _Field(name, tuple(found), False, False)
    log = min(found) > 0 and max(found) >= _WIDE * min(found) if draw is None else bool(draw["log"])
    return _Field(name, tuple(sorted(found)), True, log)


def _lines(
    data: pd.DataFrame,
    across: Sequence[_Field],
    second: Sequence[_Field],
    others: Sequence[_Field],
    metric: str,
    columns: Columns | None,
) -> PaperFigure:
    """across: the field of the x axis, none for a single point; second: that of the lines; others: those of panels."""
    panels = list(product(*(field.levels for field in others)))
    with _panels(panels, data, metric, columns, 2.4) as (figure, grid):
        for axes, levels in zip(grid, panels, strict=False):
            rows = data[_chosen(data, others, levels)]
            for number, level in enumerate(second[0].levels if second else (None,)):
                line = rows[_chosen(rows, second, (level,) if second else ())]
                _line(axes, line, across, number, None if level is None else _label(level))
            if levels:
                axes.set_title("\n".join(f"{f.name} = {_label(v)}" for f, v in zip(others, levels, strict=True)))
            if across:
                across[0].set_axis(axes)
            else:
                axes.set_xticks([])
        shared_legend(figure, 6, title=second[0].name if second else None)
    return figure


def _line(axes: Axes, rows: pd.DataFrame, across: Sequence[_Field], number: int, label: str | None) -> None:
    color, dash, marker = LINES[number]
    x = across[0].places(list(rows[across[0].name])) if across else np.zeros(len(rows))
    rows = rows.assign(x=x).sort_values("x")
    known = rows[rows["mean"].notna()]
    joined = dash if across and across[0].numeric else "none"
    axes.errorbar(
        known["x"], known["mean"], yerr=known["sd"].fillna(0), color=color, ls=joined, marker=marker, ms=4, lw=1.2,
        capsize=2.5, label=label,
    )  # fmt: skip
    axes.plot(
        known["x"], known["theory"], ls="none", marker="_", ms=11, mew=1.6, color=color, alpha=0.55, zorder=1,
        label="theory" if bool(known["theory"].notna().any()) else None,
    )  # fmt: skip
    _crosses(axes, rows[rows["mean"].isna()]["x"], color)


def _scatter(data: pd.DataFrame, fields: Sequence[_Field], metric: str, columns: Columns | None) -> PaperFigure:
    """Every point in a panel for each field; the one with the lowest loss or deviation has a ring."""
    known, none = data[data["mean"].notna()], data[data["mean"].isna()]
    with _panels(fields, data, metric, columns, 2.3) as (figure, grid):
        for axes, field in zip(grid, fields, strict=False):
            places = field.places(list(known[field.name]))
            if not field.numeric:  # points at one word side by side, always the same way
                places += (np.arange(len(known)) * 0.618 % 1 - 0.5) * 0.5
            axes.errorbar(
                places, known["mean"], yerr=known["sd"].fillna(0), fmt="o", ms=3, lw=0.7, color=LINES[0][0], alpha=0.6
            )
            if metric in _WORDS and len(known):
                best = int(known["mean"].to_numpy().argmin())
                axes.plot(places[best], known["mean"].iloc[best], "o", ms=8, mfc="none", mec=ORANGE, mew=1.5)
            _crosses(axes, field.places(list(none[field.name])), LINES[0][0])
            field.set_axis(axes)
    return figure


@contextmanager
def _panels(
    shown: Sequence[object], data: pd.DataFrame, metric: str, columns: Columns | None, height: float
) -> Iterator[tuple[PaperFigure, list[Axes]]]:
    """A figure with a panel for each of `shown`, `height` inches each, one axis of the measurement for all."""
    wide = 1 if columns == "single" else min(3, max(len(shown), 1))
    high = max(1, -(-len(shown) // wide))
    with paper_figure(columns, height * high + 0.2) as figure:
        grid = figure.subplots(high, wide, squeeze=False, sharey=True).flatten()
        yield figure, list(grid)
        for axes in grid[: len(shown)]:
            tidy(axes)
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        for axes in grid[::wide]:
            axes.set_ylabel(metric_words(metric))
        first, values = grid[0], data[["mean", "theory"]].to_numpy().ravel()
        values = values[np.isfinite(values)]
        if values.size and values.min() > 0 and values.max() > _VERY_WIDE * values.min():
            first.set_ylim(values.min() / 1.5, values.max() * 1.5)
            plain_log(first)
        if metric == "deviation":
            first.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
        elif first.get_yscale() == "linear":
            first.ticklabel_format(axis="y", useOffset=False)


def _map(data: pd.DataFrame, fields: Sequence[_Field], metric: str, columns: Columns | None) -> PaperFigure:
    across, up = sorted(fields, key=lambda field: -len(field.levels))
    levels = up.levels[::-1]  # the lowest at the bottom
    table = data.pivot_table(index=up.name, columns=across.name, values="mean", aggfunc="first")
    cells = table.reindex(index=levels, columns=across.levels).to_numpy(dtype=float)
    known = cells[np.isfinite(cells)]
    wide = known.size > 0 and known.min() > 0 and known.max() > _VERY_WIDE * known.min()
    norm = LogNorm() if wide else Normalize()
    with paper_figure(columns, min(1.2 + 0.32 * len(up.levels), 6.0)) as figure:
        axes = figure.subplots()
        drawn = draw_cells(axes, cells, norm, "viridis")
        names = [_label(level) for level in across.levels]
        axes.set_xticks(range(len(names)), names, rotation=45 * (cells.size > 64))
        axes.set_yticks(range(len(cells)), [_label(level) for level in levels])
        axes.set(xlabel=across.name, ylabel=up.name)
        texts = ["×" if np.isnan(v) else f"{v:.3g}" if cells.size <= 64 else "" for v in cells.ravel()]
        write_cells(axes, drawn, cells, texts, 6.5)
        figure.colorbar(drawn, label=metric_words(metric))
    text = f"{up.name} = {{row}}\n{across.name} = {{column}}\n{metric_words(metric)} {{value}}"
    rows = [_label(level) for level in levels]
    figure.cells = Cells({metric: cells}, metric, rows, names, text, norm, mpl.colormaps["viridis"])
    return figure


def _crosses(axes: Axes, places: Any, color: str) -> None:
    axes.plot(places, np.full(len(places), 0.03), "x", color=color, ms=5, transform=axes.get_xaxis_transform())


def _chosen(data: pd.DataFrame, fields: Sequence[_Field], levels: Sequence[Any]) -> pd.Series:
    chosen = pd.Series(True, index=data.index)
    for field, level in zip(fields, levels, strict=True):
        chosen &= data[field.name] == level
    return chosen


def _label(value: Any) -> str:
    """A value on an axis."""
    return plain(f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else value)


# ---- the page


def render_sweep(record: Mapping[str, Any], table: pd.DataFrame, figure: PaperFigure | None) -> str:
    """The page, from the document of sweep.json and its table; all text in it is escaped.

    figure: None where no point finished.
    """
    manifest, metric, points = record["manifest"], record["metric"], record["points"]
    finished = [point for point in points if metric in point["measurements"]]
    finished = [point for point in finished if point["measurements"][metric]["mean"] is not None]
    ranked = sorted(finished, key=lambda point: float(point["measurements"][metric]["mean"]))
    what, best = metric_words(metric), metric in _WORDS and len(ranked) > 2 * _BEST
    caption = _sentence(f"{what} over the sweep")
    return render_page(
        "sweep.html.j2",
        name=record["name"],
        description=record["description"],
        created=manifest["created"],
        headline=_headline(ranked, metric, len(points)),
        cards=_cards(record),
        missing=_missing(record),
        charts=[] if figure is None else [Chart.of(figure, "sweep", caption, _alt(record))],
        best=_table(record, ranked[:_BEST], f"The {_BEST} lowest: {what}") if best else None,
        points=_table(record, points[:_MOST_ROWS], "All points"),
        more=max(0, len(points) - _MOST_ROWS),
        command=manifest["command"],
        downloads=downloads(
            {"table.csv": table.to_csv(index=False), "sweep.json": dump_json(record, indent=2) + "\n"},
        ),
        manifest=manifest_tables(manifest),
    )


def _headline(ranked: list[Mapping[str, Any]], metric: str, points: int) -> str:
    if not ranked:
        return f"None of {points} points has a number yet."
    what, ends = metric_words(metric), (ranked[0], ranked[-1])
    (low, at_low), (high, at_high) = [(_value(end["measurements"][metric], metric), _words(end)) for end in ends]
    if len(ranked) == 1:
        return f"One point has a number: the {what} is {low} at {at_low}."
    if metric in _WORDS:
        return (
            f"The {what} was lowest at {at_low}: {low}. The highest of {len(ranked)} points was {high}, at {at_high}."
        )
    return f"{_sentence(what)} went from {low} at {at_low} to {high} at {at_high}."


def _value(measured: Mapping[str, Any] | None, metric: str) -> str:
    """A mean with its standard deviation over seeds; a deviation in percent."""
    if measured is None or measured["mean"] is None:
        return MISSING
    if metric == "deviation":
        return f"{100 * measured['mean']:.3g} %"
    return number(measured["mean"], 4) + ("" if measured["sd"] is None else f"\u00a0±\u00a0{measured['sd']:.2g}")


def _words(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in point["values"].items())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if isinstance(value, float) else dump_json(value)


def _cards(record: Mapping[str, Any]) -> list[dict[str, str]]:
    counts, spec = record["counts"], record["spec"]
    seconds = sum(point["seconds"] or 0 for point in record["points"])
    fields = len(record["swept"])
    return [
        {"name": "finished points", "value": count(counts["finished"]), "below": f"of {count(len(record['points']))}"},
        {"name": "seeds", "value": str(spec["seeds"]), "below": "trainings at every point"},
        {"name": "swept", "value": str(fields), "below": f"field{'s' * (fields > 1)}: {', '.join(record['swept'])}"},
        {"name": "training time", "value": f"{seconds:,.0f} s", "below": "all points together, on one core each"},
    ]


def _missing(record: Mapping[str, Any]) -> list[str]:
    """What a reader must know of points that are not in the picture."""
    counts, points = record["counts"], record["points"]
    said = [
        f"{_words(point)}: {point['status']}: {point['reason']}"
        for point in points
        if point["status"] in ("diverged", "failed")
    ]
    said += [f"{_words(one)}: left out, no recipe allows it: {one['reason']}" for one in record["impossible"]]
    if len(said) > _MOST_REASONS:
        said = [*said[:_MOST_REASONS], f"and {len(said) - _MOST_REASONS} more like these: see sweep.json."]
    if counts["waiting"]:
        said.append(f"{counts['waiting']} points were not trained yet; the same command with --resume goes on.")
    if counts["repeated"]:
        said.append(f"{counts['repeated']} settings gave a recipe that was there already; each recipe is one point.")
    if counts["left_over"]:
        said.append(f"{counts['left_over']} rows in the folder belong to points that the sweep no longer has.")
    if record["wanted"] not in (None, record["metric"]):
        said.append(f"No point has the measurement {record['wanted']}.")
    return said


def _alt(record: Mapping[str, Any]) -> str:
    seeds = record["spec"]["seeds"]
    error = f" ± one standard deviation over {seeds} seeds" if seeds > 1 and record["metric"] != "deviation" else ""
    without = " A cross is a point without a number." if record["counts"]["finished"] < len(record["points"]) else ""
    return _sentence(f"{metric_words(record['metric'])}{error}, against {', '.join(record['swept'])}.{without}")


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with the name of a measurement, which has underscores."""
    return text if "_" in text.split(maxsplit=1)[0] else text[:1].upper() + text[1:]


def _table(record: Mapping[str, Any], points: list[Mapping[str, Any]], caption: str) -> Table:
    metric = record["metric"]
    shown = [name for name in dict.fromkeys([metric, "loss"]) if any(name in p["measurements"] for p in points)]
    theory = any((p["measurements"].get(metric) or {}).get("theory") is not None for p in points)
    columns = [*record["swept"], *map(metric_words, shown), *(["theory", "deviation"] if theory else [])]
    rows = []
    for point in points:
        found = [point["measurements"].get(name) for name in shown]
        cells = [_text(value) for value in point["values"].values()]
        cells += [_value(one, name) for one, name in zip(found, shown, strict=True)]
        if theory:
            one = point["measurements"].get(metric) or {}
            cells += [number(one.get("theory"), 4), percent(one.get("deviation"))]
        rows.append([*cells, str(point["status"]), number(point["seconds"], 3), str(point["id"])])
    note = "± is the standard deviation over seeds. The record of a point, unless only rows were kept, is runs/ID."
    return Table(caption, [*columns, "status", "seconds", "ID"], rows, note, max(1, len(record["swept"])))
