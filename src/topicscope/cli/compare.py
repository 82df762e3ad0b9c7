"""`topicscope compare`: differences between probe results, with errors."""

from topicscope.cli.options import ResultFolder
from topicscope.cli.output import Json, print_json, print_lines, print_table
from topicscope.probing.results import compare as compare_results
from topicscope.report import ratio_label


def compare(*results: ResultFolder, json: Json = False) -> None:
    """Compare the attention ratios of probe results, each with the first.

    Results of one corpus are paired over its documents, which makes small differences visible; others are not, and
    the output says so.

    Parameters
    ----------
    results
        Two or more folders that `topicscope probe --out` wrote.
    """
    found = compare_results(*results)
    if json:
        print_json(found.to_dict())
        return
    rows = found.rows.to_dict(orient="records")
    print_table(
        "Difference of attention ratios (same-topic / different-topic)",
        ["a", "b", "part", "θ", "ratio", "a", "b", "b - a", "95 % interval", "documents"],
        [
            [
                row["a"],
                row["b"],
                row["part"],
                row["threshold"],
                ratio_label(row["quantity"]),
                f"{row['ratio_a']:.3f}",
                f"{row['ratio_b']:.3f}",
                f"{row['difference']:+.4f} ±{row['se']:.4f}",
                f"{row['low']:+.4f} to {row['high']:+.4f}",
                row["documents"],
            ]
            for row in rows
        ],
        "± standard error, clustered by document"
        + (", paired over documents" if all(row["paired"] for row in rows) else ""),
    )
    print_lines([f"note: {note}" for note in found.notes])
