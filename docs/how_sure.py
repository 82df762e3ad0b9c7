"""Write the tables of docs/how-sure.md between their marks, from simulations that the test suite runs too.

    python docs/how_sure.py                                    all of them
    python docs/how_sure.py coverage false-positives power     some of them

TOPICSCOPE_POWER_SEEDS says how many models are trained for the power (100 unless given; 12 CPU seconds each, kept in
the temporary folder). Coverage takes 20 CPU seconds, false positives 3 CPU minutes.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "docs"))

from models_page import table  # noqa: E402 - only found from here on

from probing import coverage, verdict_rates  # noqa: E402

PAGE = ROOT / "docs" / "how-sure.md"
TABLES = ("coverage", "false-positives", "power")
COVERAGE = ("documents", "effective", "topicscope", "by documents, 1.96", "pairs as independent")
FALSE = ("where there are no topics", "probes", "verdict speaks of topics", "permutation p < .05")
POWER = ("models", "verdict: higher", "smallest ratio", "largest permutation p")


def coverage_tables() -> str:
    """Coverage for each kind of text."""
    blocks = []
    for name, spread in coverage.SPREADS.items():
        rows = []
        for documents in coverage.SIZES:
            found = coverage.measure(documents, spread)
            shares = (found.clustered, found.plain, found.independent)
            rows.append([str(documents), f"{found.effective:.0f}", *(f"{share:.1%}" for share in shares)])
        blocks.append(f"{name[0].upper()}{name[1:]}:\n\n{table(COVERAGE, rows)}")
    return "\n\n".join(blocks)


def false_table(rows: Sequence[tuple[str, Sequence[verdict_rates.Verdict]]]) -> str:
    """Wrong verdicts, a row for each kind of model without topics."""
    cells = [
        [name, str(len(found)), str(verdict_rates.wrong(found)), str(sum(each.p_value < 0.05 for each in found))]
        for name, found in rows
    ]
    return table(FALSE, cells)


def false_positives() -> str:
    """Random weights of two kinds, and trained models with topics that are none."""
    random = [verdict_rates.without_topics(seed) for seed in range(100)]
    dealt = [verdict_rates.wrong_topics(seed) for seed in range(100)]
    return false_table([*random_rows(random), ("trained, words dealt out to topics at random", dealt)])


def random_rows(found: Sequence[verdict_rates.Verdict]) -> list[tuple[str, Sequence[verdict_rates.Verdict]]]:
    """Seeds 0, 2, … are uneven, 1, 3, … fresh."""
    return [
        (f"random weights, standard deviation {verdict_rates.FRESH}", found[1::2]),
        (f"random weights, standard deviation {verdict_rates.UNEVEN}", found[::2]),
    ]


def power() -> str:
    """Trained models."""
    seeds = int(os.environ.get("TOPICSCOPE_POWER_SEEDS", "100"))
    return power_table([verdict_rates.with_topics(seed) for seed in range(seeds)])


def power_table(found: Sequence[verdict_rates.Verdict]) -> str:
    """Of all trained models in one row."""
    ratio, p_value = min(each.ratio for each in found), max(each.p_value for each in found)
    return table(POWER, [[str(len(found)), str(verdict_rates.right(found)), f"{ratio:.2f}", f"{p_value:.3f}"]])


def insert(text: str, name: str, content: str) -> str:
    """The page with another table between the marks of `name`."""
    begin, end = f"<!-- {name}: make how-sure -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main(names: Sequence[str]) -> None:
    """Measure and write."""
    makers = {"coverage": coverage_tables, "false-positives": false_positives, "power": power}
    for name in names or TABLES:
        made = makers[name]()
        PAGE.write_text(insert(PAGE.read_text(encoding="utf-8"), name, made), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
