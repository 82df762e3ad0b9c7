"""Several results of probes on one page: their answers side by side, their maps in one scale of colours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from topicscope.records import select, write_text
from topicscope.report.labels import CONTROL_CI, PART, PERMUTATION_P, THETA, VERDICT, ratio_label
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.probe_page import ProbeRecord, cautions, head_charts, verdict
from topicscope.report.style import saturation
from topicscope.report.tables import (
    MISSING,
    Table,
    attention_table,
    control_table,
    count,
    interval,
    number,
    ratio_column,
    threshold_label,
    with_error,
)


def write_comparison(
    folders: Sequence[Path | str], out: Path | str, differences: pd.DataFrame | None = None, notes: Sequence[str] = ()
) -> Path:
    """Write one page for two or more results of probes, named by their folders.

    differences: the table of `topicscope.compare` (a, b, part, threshold, quantity, difference, se, low, high, …);
    notes: what a reader must know of them.

    Raises:
        InputError: as `ProbeRecord.load`.
    """
    probes = {name: ProbeRecord.load(folder) for name, folder in zip(names_of(folders), folders, strict=True)}
    write_text(Path(out), render_comparison(probes, differences, notes))
    return Path(out)


def names_of(folders: Sequence[Path | str]) -> list[str]:
    """The folders' last names, or as much of their paths as tells them apart."""
    paths = [Path(folder).absolute() for folder in folders]
    last = [path.name for path in paths]
    found = [path.name if last.count(path.name) == 1 else str(path) for path in paths]
    return [name if found.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(found)]


def render_comparison(
    probes: Mapping[str, ProbeRecord], differences: pd.DataFrame | None = None, notes: Sequence[str] = ()
) -> str:
    """The page: a table of answers, differences if known, each result's map and tables.

    probes: by the names that the page gives them. All text in them is escaped. Equal records give equal pages.
    """
    strongest: list[float] = []
    for probe in probes.values():
        chosen = select(probe.heads, probe.record["headline"]["threshold"])
        strongest.append(saturation(chosen[ratio_column(chosen)].to_numpy(dtype=float)))
    charts: list[Chart] = []
    results = []
    for place, (name, probe) in enumerate(probes.items()):
        record = probe.record
        rows = [row for row in record["table"] if row["source"] == "measured"]
        maps = head_charts(
            probe.heads,
            threshold=record["headline"]["threshold"],
            name=name,
            prefix=f"heads-{place}",
            limit=max(strongest),
            choosable=False,
        )
        charts += maps
        results.append(
            {
                "name": name,
                "headline": record["headline"]["text"],
                "verdict": verdict(record["headline"], rows),
                "warnings": cautions(record),
                "maps": maps,
                "attention": attention_table(rows),
                "controls": control_table(rows, record["controls"]),
                "command": record["manifest"].get("command"),
            }
        )
    answers = answers_table(probes)
    files, table = (
        {"comparison.csv": pd.DataFrame(answers.rows, columns=list(answers.columns)).to_csv(index=False)},
        None,
    )
    if differences is not None and len(differences):
        files["differences.csv"], table = differences.to_csv(index=False), differences_table(differences)
    return render_page(
        "comparison.html.j2",
        charts=charts,
        results=results,
        answers=answers,
        differences=table,
        notes=notes,
        downloads=downloads(files),
    )


def answers_table(probes: Mapping[str, ProbeRecord]) -> Table:
    """One row for each result: what its headline says, and what stands beside it."""
    cells = []
    for name, probe in probes.items():
        headline, heads = probe.record["headline"], probe.heads
        chosen = select(heads[heads["part"] == headline["part"]], headline["threshold"])
        values = chosen[ratio_column(chosen)].dropna()
        cells.append(
            {
                "result": name,
                "model": str(probe.record["model"]["name"]),
                PART: str(headline["part"]),
                THETA: threshold_label(headline["threshold"]),
                "ratio": with_error(headline, "attention_ratio"),
                "95% CI": interval(headline.get("low"), headline.get("high")),
                CONTROL_CI: interval(headline.get("control_low"), headline.get("control_high")),
                PERMUTATION_P: number(headline.get("permutation_p"), 2),
                VERDICT: str(headline.get("verdict") or MISSING),
                "heads above 1": f"{(values > 1).mean():.0%}" if len(values) else MISSING,
                "highest head": number(values.max()) if len(values) else MISSING,
                "documents": count(headline.get("documents")),
            }
        )
    note = "Results of other texts, topics or thresholds differ for those reasons too."
    return Table.of("Side by side: the headline of each result", cells, note, 1)


def differences_table(rows: pd.DataFrame) -> Table:
    """Each result against the first."""
    cells = [
        [
            f"{row['b']} − {row['a']}",
            str(row["part"]),
            threshold_label(row["threshold"]),
            ratio_label(str(row["quantity"])),
            f"{row['difference']:+.4f}\u00a0±\u00a0{row['se']:.4f}",
            f"{row['low']:+.4f}\u00a0to\u00a0{row['high']:+.4f}",
            "yes" if row["paired"] else "no",
        ]
        for row in rows.to_dict(orient="records")
    ]
    columns = ["results", PART, THETA, "ratio", "difference", "95% CI", "same documents"]
    note = "± is one standard error, clustered by document. Where both read the same text, documents are paired."
    return Table("Differences of attention ratios", columns, cells, note)
