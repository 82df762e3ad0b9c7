"""Make docs/reproduction.md from a full run of `topicscope reproduce`; no number in the page is typed by hand.

    python docs/reproduction_page.py reproduction     take claims.json, manifest.json and figures of that folder
    python docs/reproduction_page.py                  make the page anew from what was taken before

What is taken lies in docs/reproduction/. The prose is docs/reproduction.md.j2; it asks for rows by the beginning of
their name, and a row that is not there, or not the only one, is an error.
"""

import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

DOCS = Path(__file__).resolve().parent
KEPT = DOCS / "reproduction"
PAGE = DOCS / "reproduction.md"
Row = Mapping[str, Any]


class MissingRowError(LookupError):
    """The prose speaks of a row that the run does not have."""


def render(document: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """The page, from the documents of claims.json and manifest.json.

    Raises:
        MissingRowError: a claim or row that the prose speaks of is not there.
    """
    claims = {claim["id"]: claim for claim in document["claims"]}

    def claim(name: str) -> Mapping[str, Any]:
        if name not in claims:
            raise MissingRowError(f"no claim {name} in this run")
        return claims[name]

    def rows(name: str, *parts: str) -> list[Row]:
        """Rows of a claim whose quantity begins with the first part and holds the others."""
        found = [
            row
            for row in claim(name)["rows"]
            if row["quantity"].startswith(parts[0]) and all(part in row["quantity"] for part in parts[1:])
        ]
        if not found:
            raise MissingRowError(f"{name} has no row {' … '.join(parts)}")
        return found

    def row(name: str, *parts: str) -> Row:
        found = rows(name, *parts)
        found = [row for row in found if row["quantity"] == parts[0]] or found
        if len(found) > 1:
            raise MissingRowError(f"{name} has {len(found)} rows {' … '.join(parts)}")
        return found[0]

    def judged(name: str, criterion: str) -> list[Row]:
        """Rows of a claim that a criterion judges."""
        found = [row for row in claim(name)["rows"] if row["criterion"] == criterion]
        if not found:
            raise MissingRowError(f"{name} has no row that {criterion} judges")
        return found

    environment = Environment(
        loader=FileSystemLoader(DOCS),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown of our own making; cells pass through `cell`
    )
    environment.filters |= {"number": number, "measured": measured, "cell": cell, "words": words, "sentence": sentence}
    page = environment.get_template("reproduction.md.j2")
    return page.render(
        claims=claims,
        sources=manifest["sources"],
        options=manifest["options"],
        environment=manifest["environment"],
        claim=claim,
        row=row,
        rows=rows,
        judged=judged,
        failing=failing,
        missing=missing,
        first=first,
        exp=math.exp,
    )


def missing(what: str) -> str:
    """Refuse to go on: the prose has nothing to speak of."""
    raise MissingRowError(what)


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits, or a dash for nothing."""
    return "–" if value is None or math.isnan(value) else f"{float(value):.{digits}g}"


def measured(row: Row) -> str:
    """Measured ± half-width of the 95 % interval; what was not run says why."""
    if row["measured"] is None:
        return f"not run: {row['reason']}" if row.get("reason") else "not run"
    return number(row["measured"]) + (f" ± {row['error']:.2g}" if row["error"] else "")


def cell(text: object) -> str:
    """Text for a table's cell, in which a bar would end the cell and a < might begin a tag."""
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def words(verdict: str) -> str:
    """A verdict as people read it."""
    return verdict.replace("_", " ")


def sentence(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def failing(claim: Mapping[str, Any], source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a claim that its criteria refuse, each with the criterion's words and weight."""
    criteria = {criterion["id"]: criterion for criterion in source["criteria"]}
    return [
        {"row": row, **{key: criteria[row["criterion"]][key] for key in ("text", "decisive")}}
        for row in claim["rows"]
        if row["holds"] is False
    ]


def first(claim: Mapping[str, Any], source: Mapping[str, Any]) -> Row | None:
    """The first row that the first criterion judges."""
    leading = source["criteria"][0]["id"]
    return next((row for row in claim["rows"] if row["criterion"] == leading and row["measured"] is not None), None)


def take(folder: Path) -> None:
    """Copy what the page is made from; quick runs are refused, since the page speaks of a full one."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if manifest["options"]["quick"]:
        raise SystemExit(f"{folder} is a quick run; the page is made from a full one")
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.glob("*.png"):
        old.unlink()
    shutil.copyfile(folder / "claims.json", KEPT / "claims.json")
    del manifest["command"]  # it names a folder of the machine; the page tells the command by its options
    (KEPT / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in sorted((folder / "figures").glob("*.png")):
        with Image.open(path) as picture:
            # A few colours are enough for a drawing, and keep the repository small.
            picture.convert("RGB").quantize(64).save(KEPT / path.name, optimize=True)


def made() -> str:
    """The page from what lies in docs/reproduction/."""
    document, manifest = (json.loads((KEPT / f"{name}.json").read_text("utf-8")) for name in ("claims", "manifest"))
    return render(document, manifest)


def main(folder: Path | None) -> None:
    """Take a folder, if one is given, and write the page."""
    if folder is not None:
        take(folder)
    PAGE.write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
