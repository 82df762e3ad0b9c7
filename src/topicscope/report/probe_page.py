"""A probe's page, `report.html`: one file that needs no network, made from the folder of a result alone."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.records import dump_json, read_json, read_npz, write_text
from topicscope.report import tables
from topicscope.report.answer import cards, cautions, distinct_low, strictest, verdict
from topicscope.report.head_panel import head_charts, head_choices, head_data
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.probe_charts import coverage_chart, embedding_charts, ratio_chart
from topicscope.report.tables import circuit_table, control_table

PAGE = "report.html"


@dataclass(frozen=True, eq=False)
class ProbeRecord:
    """What a page is made from. record: result.json; heads: heads.csv; similarities: embedding_map.npz, or empty."""

    record: Mapping[str, Any]
    heads: pd.DataFrame
    similarities: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> "ProbeRecord":
        """Read a folder that `topicscope probe` wrote; no model is loaded.

        Raises:
            InputError: no result of a probe there.
        """
        folder = Path(folder)
        record = read_json(folder / "result.json")
        if not isinstance(record, dict) or record.get("kind") != "probe" or record.get("schema_version") != 1:
            raise InputError(
                "not a probe result this version can read",
                received=str(folder / "result.json"),
                expected={"kind": "probe", "schema_version": 1},
            )
        if not (folder / "heads.csv").is_file():
            raise InputError("file not found", received=str(folder / "heads.csv"), expected="the head table of a probe")
        heads = pd.read_csv(folder / "heads.csv")
        similarities = folder / "embedding_map.npz"
        return cls(record, heads, read_npz(similarities) if similarities.is_file() else {})

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.record["model"]["name"])


def write_probe(folder: Path | str, *, out: Path | str | None = None) -> Path:
    """Write the page of one result into its folder, or to `out`.

    Raises:
        InputError: as `ProbeRecord.load`.
    """
    path = Path(folder) / PAGE if out is None else Path(out)
    write_text(path, render_probe(ProbeRecord.load(folder)))
    return path


def render_probe(probe: ProbeRecord) -> str:
    """The page of one probe. All text in it is from outside (words, names, warnings) and is escaped.

    Equal records give equal pages.
    """
    record, heads = probe.record, probe.heads
    headline, model, manifest, coverage = record["headline"], record["model"], record["manifest"], record["coverage"]
    rows = [row for row in record["table"] if row["source"] == "measured"]
    paper = [row for row in record["table"] if row["source"] == "paper"]
    maps = head_charts(heads, threshold=headline["threshold"], name=probe.name)
    return render_page(
        "template.html.j2",
        charts=_charts(probe, maps),
        data={"heads-data": head_data(record, heads)},
        maps=[chart.name.replace("-", "_") for chart in maps],
        choices=head_choices(record, heads),
        embedded=bool(probe.similarities),
        similarities=_similarity_words(probe.similarities),
        name=probe.name,
        headline=headline["text"],
        verdict=verdict(headline, distinct_low(headline, rows)),
        strictest=strictest(headline, rows),
        cards=cards(headline, paper, model["model_type"]),
        interrupted=record["interrupted"],
        warnings=cautions(record),
        attention=tables.attention_table(rows),
        control_table=control_table(rows, record["controls"]),
        paper=tables.paper_table(paper),
        controls=len({row.get("control_seed") for row in record["controls"]}),
        heads=tables.heads_table(heads, headline["part"], headline["threshold"]),
        embeddings=tables.embedding_table(record["embeddings"]) if record["embeddings"] else None,
        circuits=circuit_table(record.get("circuits", []), headline["threshold"]),
        topics=tables.topics_table(record["topics"]) if record["topics"] else None,
        coherence=any("npmi" in topic for topic in record["topics"]),
        funnel=tables.funnel_table(coverage),
        pairs=tables.pairs_table(coverage.get("pairs", [])),
        counts=tables.details("All counts", {k: v for k, v in coverage.items() if k != "pairs"}),
        causal=any(part.get("causal") for part in model["parts"]),
        created=manifest["created"],
        command=manifest.get("command"),
        downloads=downloads(_files(record, heads)),
        manifest=[
            tables.details("Model", model),
            tables.details("Options", manifest["options"]),
            tables.details("Sources", manifest["sources"]),
            tables.details("Environment", manifest["environment"]),
        ],
    )


def _charts(probe: ProbeRecord, maps: list[Chart]) -> list[Chart]:
    headline = probe.record["headline"]
    found = [ratio_chart(probe.record["table"], probe.name), *maps]
    coverage = coverage_chart(probe.record["coverage"], headline["part"], headline["threshold"])
    if probe.similarities:
        found += embedding_charts(probe.similarities)
    return found + ([coverage] if coverage else [])


def _similarity_words(similarities: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """How many words are in the block matrix, how many in the histogram, how many were left out."""
    if not similarities:
        return {}
    return {
        "words": len(similarities["words"]),
        "sampled": int(similarities["sampled_words"]),
        "left_out": int(similarities["left_out"]),
    }


def _files(record: Mapping[str, Any], heads: pd.DataFrame) -> dict[str, str]:
    table = io.StringIO()
    pd.DataFrame.from_records(record["table"]).to_csv(table, index=False)
    files = {"table.csv": table.getvalue(), "heads.csv": heads.to_csv(index=False)}
    return files | {"result.json": dump_json(record, indent=2) + "\n"}
