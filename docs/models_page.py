"""Write the tables of docs/models.md between their marks, from the measurements of the test suite.

    python docs/models_page.py               families, trained models, and the real models that are installed

The figures are thus always those of a run, never typed by hand. Trained models are kept in the temporary folder.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from probing import conformance, real_models  # noqa: E402 - only found from here on
from topicscope.experiments import ModelUnavailableError  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
FAMILIES = (
    "type", "attention read by", "largest error against the twin", "sides of the padding differ by",
    "random weights", "planted / found",
)  # fmt: skip
TRAINED = ("model and objective", "attention, same / different topic", "direction", "embeddings, S - D (cosine)")
REAL = (
    *("model", "kind", "attention read by", "error", "θ"),
    *("all pairs", "distinct words", "distance-matched", "random weights"),
)
MARKS = {
    name: (f"<!-- {name}: make models-page -->", f"<!-- end of {name} -->") for name in ("families", "trained", "real")
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def family_row(found: conformance.Conformance) -> list[str]:
    """One family; a sequence-to-sequence one has three figures in the order encoder, decoder, cross."""
    random = ", ".join(f"{ratio:.3f}" for ratio in found.random)
    planted = ", ".join(f"{known:.4f} / {ratio:.4f}" for known, ratio in found.planted)
    return [found.family, found.path, f"{found.twin:.0e}", f"{found.padding:.0e}", random, planted]


def trained_row(found: conformance.Learned) -> list[str]:
    """One trained model."""
    family, objective = found.name.rsplit("-", 1)
    parts = found.parts if objective == "sequence" else found.parts[:1]
    shown = list(zip(parts, found.ratios, found.directions, strict=False))
    ratios = ", ".join(f"{part} {ratio:.2f}" for part, ratio, _ in shown)
    return [f"{family}, {objective}", ratios, ", ".join(d for *_, d in shown), f"{found.difference:.2f}"]


def real_rows() -> list[list[str]]:
    """The real models that are installed, a row for each threshold."""
    rows = []
    for name in real_models.NAMES:
        try:
            found = real_models.measure(name)
        except ModelUnavailableError as missing:
            sys.stderr.write(f"{missing}\n")
            continue
        first = [found.label, found.kind, found.path, f"{found.library:.0e}"]
        for row in found.result.table().query("source == 'measured'").to_dict(orient="records"):
            form = "attention_ratio_position_corrected" if found.kind == "causal" else "attention_ratio"
            ratios = [row[form], row["attention_ratio_distinct"], row["attention_ratio_distance_matched"]]
            ratios.append(row[f"control_{form}"])
            rows.append([*first, f"{row['threshold']:g}", *(f"{ratio:.3f}" for ratio in ratios)])
    return rows


def insert(text: str, name: str, content: str) -> str:
    """The page with another table between the marks of `name`."""
    begin, end = MARKS[name]
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Measure and write."""
    text = PAGE.read_text(encoding="utf-8")
    text = insert(text, "families", table(FAMILIES, [family_row(conformance.measure(f)) for f in conformance.FAMILIES]))
    text = insert(text, "trained", table(TRAINED, [trained_row(conformance.learned(t)) for t in conformance.TRAININGS]))
    rows = real_rows()
    if len({row[0] for row in rows}) == len(real_models.NAMES):
        text = insert(text, "real", table(REAL, rows))
    else:
        sys.stderr.write("real models are missing (make test-models): their table is left as it is\n")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
