"""Write the demo's result into README.md: the table between two marks, and the picture docs/images/heads.png.

    python docs/readme_table.py demo         a folder that `topicscope demo` wrote

The numbers in the README are thus always those of a run, never typed by hand.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topicscope.probing.results import ProbeResult
from topicscope.report import attention_table, head_map, to_png
from topicscope.report.labels import CONTROL_CI, DIFFERENT_PAIRS, RATIOS, SAME_PAIRS, THETA, TOPIC_SD

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- demo table: make readme -->", "<!-- end of demo table -->"
RATIO_COLUMNS = (
    "attention_ratio",
    "attention_ratio_distinct",
    "attention_ratio_distance_matched",
    "attention_ratio_distinct_distance_matched",
)
ATTENTION = (
    THETA,
    SAME_PAIRS,
    DIFFERENT_PAIRS,
    *(RATIOS[name].label for name in RATIO_COLUMNS),
    TOPIC_SD,
    CONTROL_CI,
)
EMBEDDINGS = ("θ", "raw S", "raw D", "raw S/D", "layer S", "layer D", "layer S/D")
MISSING = "-"
Row = Mapping[str, Any]


def render(record: Mapping[str, Any]) -> str:
    """Both Markdown tables of the measured rows of a `result.json`, with a line on what was measured."""
    rows = [row for row in record["table"] if row["source"] == "measured"]
    options, text = record["manifest"]["options"], record["coverage"]["text"]
    about = (
        f"{Path(record['model']['name']).name}: {text['units_kept']:,} {options['unit']}s of {text['documents_kept']} "
        f"articles, {options['topic_seeds']} topic models, {options['controls']} random initialisations of the same "
        f"architecture. ± is the standard error clustered by article."
    )
    return "\n".join(
        [
            "Attention: mean over same-topic pairs / mean over different-topic pairs (1 = no topic structure).",
            "",
            *attention_table(rows).only(*ATTENTION).markdown(),
            "",
            "Embeddings: mean cosine of same-topic (S) and of different-topic words (D), in the raw matrix and at the "
            "output of the embedding layer.",
            "",
            *_table(EMBEDDINGS, [_embeddings(row) for row in rows]),
            "",
            about,
        ]
    )


def replaced(page: str, block: str) -> str:
    """The page with the text between the marks replaced."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"the page has no block between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def _embeddings(row: Row) -> list[str]:
    names = [
        f"embedding_cosine_{place}_{what}" for place in ("raw", "layer") for what in ("same", "different", "ratio")
    ]
    return [_number(row["threshold"], "g"), *(_number(row[name], ".3f") for name in names)]


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def main(folder: Path) -> None:
    """Rewrite README.md and the picture from the folder of a demo."""
    result = ProbeResult.load(folder)
    page = ROOT / "README.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), render(result.to_dict())), encoding="utf-8")
    figure = head_map(
        result.heads(),
        part=result.headline["part"],
        threshold=result.headline["threshold"],
        title="MiniLM: same-topic / different-topic attention",
    )
    (ROOT / "docs" / "images" / "heads.png").write_bytes(to_png(figure))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
