"""`reproduction.html`: every claim with its verdict, numbers, figure and command, on one page that needs no network."""

import base64
import shlex
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from topicscope.errors import InputError
from topicscope.records import dump_json, write_bytes, write_text
from topicscope.report import tables
from topicscope.report.claims_figures import claim_figure, figure_text
from topicscope.report.forest import note_figure
from topicscope.report.page import downloads, render_page
from topicscope.report.reproduction_record import SCHEMA_VERSION, ReproductionRecord, Row, load_reproduction
from topicscope.report.style import rendered, to_png
from topicscope.report.tables import MISSING, Table

_DPI = 160
_COLUMNS = ["claim", "criterion", "quantity", "paper", "theory", "measured", "error", "seeds", "holds"]
_BEGIN = {"confirmed": "Yes", "partly": "In part", "not_confirmed": "Not confirmed", "not_run": "Not measured"}


def write_reproduction(folder: Path, drawn: str | None = None) -> None:
    """Draw the figures that are not there yet, and write the page.

    folder: of `topicscope reproduce`, finished or not. drawn: a claim whose figure is drawn in any case.
    """
    record = load_reproduction(folder)
    for claim in record.claims:
        png, pdf = (folder / "figures" / f"{claim}.{kind}" for kind in ("png", "pdf"))
        if claim == drawn or not (png.is_file() and pdf.is_file()):
            try:
                figure = claim_figure(record, claim)
            except InputError as error:  # a damaged run must not cost the page
                figure = note_figure(record.about(claim).get("title", claim), str(error))
            write_bytes(png, to_png(figure, _DPI))
            write_bytes(pdf, rendered(figure, "pdf"))
    write_text(folder / "reproduction.html", render_reproduction(record))


def render_reproduction(record: ReproductionRecord) -> str:
    """The page. All text in it is escaped: names of models and words are from outside."""
    manifest = record.manifest
    options, chosen = manifest["options"], list(manifest["sources"])
    rows = [{"claim": c, **row} for c, claim in record.claims.items() for row in claim["rows"]]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    document = {"schema_version": SCHEMA_VERSION, "kind": "reproduction", "claims": list(record.claims.values())}
    return render_page(
        "reproduction.html.j2",
        created=manifest["created"],
        command=manifest.get("command"),
        quick=options["quick"],
        seeds=options["seeds"],
        headline=headline(record),
        unfinished=[claim for claim in chosen if claim not in record.claims],
        claims=[_claim(record, claim) for claim in record.claims],
        downloads=downloads({"claims.json": dump_json(document, indent=2), "rows.csv": table.to_csv(index=False)}),
        manifest=[
            tables.details("Options", options),
            tables.details("Environment", manifest["environment"]),
        ],
    )


def headline(record: ReproductionRecord) -> str:
    """How many claims came out how, in one sentence."""
    verdicts = [claim["verdict"] for claim in record.claims.values()]
    words = [f"{verdicts.count(name)} {name.replace('_', ' ')}" for name in _BEGIN if name in verdicts]
    return f"Of {len(verdicts)} claims: {', '.join(words)}." if verdicts else "No claim is finished yet."


def answer(claim: Mapping[str, Any], title: str) -> str:
    """One sentence: yes, in part, not confirmed or not measured; what the claim is; and how many comparisons hold."""
    judged = [row["holds"] for row in claim["rows"] if row.get("holds") is not None]
    failed, said = judged.count(False), f"{_BEGIN[claim['verdict']]}: {title[:1].lower()}{title[1:]}"
    if claim["verdict"] == "not_run":
        return f"{said}."
    if claim["verdict"] == "confirmed":
        return f"{said}; {'the one comparison holds' if len(judged) == 1 else f'all {len(judged)} comparisons hold'}."
    decisive = "none of them decisive" if claim["verdict"] == "partly" else "a decisive one among them"
    return f"{said}; {failed} of {len(judged)} comparisons {'does' if failed == 1 else 'do'} not hold, {decisive}."


def _claim(record: ReproductionRecord, name: str) -> dict[str, Any]:
    claim, about, finished = record.claims[name], record.about(name), record.finished(name)
    title = about.get("title", name)
    made = []
    if about.get("recipes"):
        made.append(f"Recipes: {', '.join(about['recipes'])}.")
    if about.get("theory"):
        made.append(f"Theory: {', '.join('topicscope.theory.' + item for item in about['theory'])}.")
    if finished.get("seconds") is not None:
        made.append(f"Time: {finished['seconds']:.0f} s.")
    options = record.manifest["options"]
    command = ["topicscope", "reproduce", name, *(["--quick"] if options["quick"] else [])]
    command += ["--seeds", str(options["seeds"])]
    command += [word for model in options.get("models") or () for word in ("--models", str(model))]
    return {
        "id": name,
        "anchor": f"claim-{name}",
        "title": title,
        "where": about.get("where", ""),
        "assertion": about.get("assertion", ""),
        "verdict": claim["verdict"].replace("_", " "),
        "answer": answer(claim, title),
        "statistic": claim["statistic"],
        "rule": about.get("verdict_rule", ""),
        "made": " ".join(made),
        "command": shlex.join([*command, "--out", f"reproduction-{name}"]),
        "table": rows_table(claim["rows"], f"Rows of {name}"),
        "figure": _figure(record, name, title),
    }


def rows_table(rows: list[Row], caption: str) -> Table:
    """Quantity, paper, theory, measured ± error, runs, and whether its criterion holds."""
    cells = [
        [
            str(row["quantity"]),
            _number(row.get("paper")),
            _number(row.get("theory")),
            str(row.get("reason") or "not run") if row.get("measured") is None else _measured(row),
            str(row["seeds"]) if row.get("seeds") else MISSING,
            {True: "yes", False: "no", None: "not judged"}[row.get("holds")],
        ]
        for row in rows
    ]
    columns = ["quantity", "paper", "theory", "measured ± error", "runs", "holds"]
    return Table(caption, columns, cells, "“not judged”: shown for comparison; the verdict does not rest on it.")


def _number(value: Any) -> str:
    """Four significant digits; a dash for nothing."""
    return MISSING if pd.isna(value) else f"{float(value):.4g}"


def _measured(row: Row) -> str:
    """Measured ± the half-width of its interval; "exact" numbers stand alone."""
    error = row.get("error")
    return _number(row["measured"]) + (f"\u00a0±\u00a0{error:.2g}" if error else "")


def _figure(record: ReproductionRecord, name: str, title: str) -> dict[str, Any] | None:
    path = record.folder / "figures" / f"{name}.png"
    if not path.is_file():
        return None
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of the PNG header
    return {
        "source": "data:image/png;base64," + base64.b64encode(data).decode(),
        "width": round(width * 96 / _DPI),
        "height": round(height * 96 / _DPI),
        "caption": title,
        "alt": figure_text(name),
    }
