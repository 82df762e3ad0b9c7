"""The page of a sweep: the answer, the picture, a table of all points, what failed, and how it was made."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from topicscope.records import dump_json
from topicscope.report import tables
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.sweep_figures import metric_words
from topicscope.report.tables import MISSING, Table, count, number

# What is good when it is small.
_LOWER = ("deviation", "loss")
_MOST_ROWS, _MOST_REASONS, _BEST = 1000, 6, 5


def render_sweep(record: Mapping[str, Any], table: pd.DataFrame, figure: Figure | None) -> str:
    """The page, from the document of sweep.json and its table; all text in it is escaped.

    figure: None where no point finished.
    """
    manifest, metric, points = record["manifest"], record["metric"], record["points"]
    finished = [point for point in points if metric in point["measurements"]]
    finished = [point for point in finished if point["measurements"][metric]["mean"] is not None]
    ranked = sorted(finished, key=lambda point: float(point["measurements"][metric]["mean"]))
    what, best = metric_words(metric), metric in _LOWER and len(ranked) > 2 * _BEST
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
        manifest=tables.manifest_tables(manifest, "Sweep"),
    )


def _headline(ranked: list[Mapping[str, Any]], metric: str, points: int) -> str:
    if not ranked:
        return f"None of {points} points has a number yet."
    low, high = ranked[0], ranked[-1]
    what = metric_words(metric)
    if len(ranked) == 1:
        return f"One point has a number: the {what} is {_value(low, metric)} at {_words(low)}."
    if metric in _LOWER:
        return (
            f"The {what} was lowest at {_words(low)}: {_value(low, metric)}. The highest of {len(ranked)} points was "
            f"{_value(high, metric)}, at {_words(high)}."
        )
    ends = [f"{_value(point, metric)} at {_words(point)}" for point in (low, high)]
    return f"{_sentence(what)} went from {ends[0]} to {ends[1]}."


def _value(point: Mapping[str, Any], metric: str) -> str:
    measured = point["measurements"][metric]
    if metric == "deviation":
        return f"{100 * measured['mean']:.3g} %"
    return _with_sd(measured)


def _with_sd(measured: Mapping[str, Any]) -> str:
    spread = "" if measured["sd"] is None else f"\u00a0±\u00a0{measured['sd']:.2g}"
    return number(measured["mean"], 4) + spread


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
        cells += [MISSING if one is None else _cell(one, name) for one, name in zip(found, shown, strict=True)]
        if theory:
            one = point["measurements"].get(metric) or {}
            away = one.get("deviation")
            cells += [number(one.get("theory"), 4), MISSING if away is None else f"{100 * away:+.2f} %"]
        rows.append([*cells, str(point["status"]), number(point["seconds"], 3), str(point["id"])])
    note = "± is the standard deviation over seeds. The record of a point, unless only rows were kept, is runs/ID."
    return Table(caption, [*columns, "status", "seconds", "ID"], rows, note, max(1, len(record["swept"])))


def _cell(measured: Mapping[str, Any], name: str) -> str:
    if measured["mean"] is None:
        return MISSING
    return f"{100 * measured['mean']:.3g} %" if name == "deviation" else _with_sd(measured)
