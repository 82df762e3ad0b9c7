"""ProbeResult: what a probe found, as tables, on disk and in a notebook."""

import base64
import html
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.probing.attention import top_heads
from topicscope.probing.circuits import ALL_HEADS
from topicscope.probing.results.document_table import DocumentTable
from topicscope.probing.results.tables import distances
from topicscope.records import (
    PROBE,
    Manifest,
    Result,
    dump_json,
    plain,
    read_npz,
    select,
    threshold_of,
    undamaged,
    write_json,
    write_npz,
    write_text,
)
from topicscope.topics import Topics, load_topics, save_topics


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """The table again, with numbers as numbers and missing ones as NaN."""
    frame = pd.DataFrame.from_records(records)
    for column in frame.columns:
        if frame[column].map(lambda value: value is None or type(value) in (int, float)).all():
            # Counts and seeds stay whole numbers, so that a result saved again is the same file.
            whole = frame[column].map(lambda value: isinstance(value, int)).all()
            frame[column] = frame[column].astype(int if whole else float)
    return frame


RESULT, DOCUMENTS = "result.json", "documents.parquet"
CIRCUITS = "circuits.csv"
EMBEDDING_MAP = "embedding_map.npz"

# The kinds of plots, with the options of each besides `columns`.
KINDS: Mapping[str, tuple[str, ...]] = {
    "heads": ("part", "threshold"),  # layer × head map of the attention ratio
    "ratios": (),  # by threshold, with random weights and the paper
    "controls": ("part", "threshold"),  # every ratio beside every random initialisation
    "embeddings": (),  # matrix of word similarities, words in the order of topics
    "similarities": (),  # histogram of word similarities
    "distances": ("part", "threshold"),  # mean attention by distance between words
    "coverage": ("part", "threshold"),  # from documents to pairs
    "profile": ("part", "threshold", "layer", "head"),  # what one head attends to, beside all heads
    "circuits": ("part", "threshold", "circuit"),  # layer × head map of the OV or QK circuit
}


@dataclass(frozen=True, eq=False)
class ProbeResult(Result):
    """Topic structure measured in one model.

    costs: seconds that collecting word pairs and shuffling topics took; not saved, so that equal runs are equal files.

    headline: the one-sentence answer with its numbers; model: what was probed; coverage: every count of what was
    kept and dropped; warnings: what a reader must know; interrupted: the run was stopped and holds only what was done;
    moments: arrays by name, from which every attention figure follows; topics: one `Topics` per topic seed (empty
    for a labelled word list); circuits: OV and QK of every head for the first topic seed (see
    `circuits.circuit_rows`), empty where a type's matrices are not known; embedding_map: similarities of words in
    the order of their topics (see `embedding_map`), empty where there are none.
    """

    kind, layout = "probe", PROBE

    headline: Mapping[str, Any]
    model: Mapping[str, Any]
    rows: pd.DataFrame
    head_table: pd.DataFrame
    controls: pd.DataFrame
    embeddings: pd.DataFrame
    document_table: DocumentTable
    coverage: Mapping[str, Any]
    warnings: tuple[str, ...]
    interrupted: bool
    manifest: Manifest
    moments: Mapping[str, np.ndarray]
    topics: tuple[Topics, ...] = field(default=(), repr=False)
    head_examples: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    costs: Mapping[str, float] = field(default_factory=dict, repr=False)
    circuits: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    embedding_map: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    @property
    def complete(self) -> bool:
        """Whether everything was done: nobody stopped the run, and no document had to be left out."""
        return not self.interrupted and not self.coverage.get("left_out")

    def table(self) -> pd.DataFrame:
        """One row per threshold and part (source "measured"), then the paper's rows (source "paper").

        Attention columns are ratios of mean A_ij · L/100 of same-topic to different-topic pairs (Knowl 8); `_se` is
        clustered by source document. Missing values are NaN.
        """
        return self.rows.copy()

    def heads(self) -> pd.DataFrame:
        """One row per part, threshold, layer and head (both from 0), with the clustered error of each ratio.

        What else each head attends to stands in the columns of `head_profile`, read from `profile_units` units.
        """
        return self.head_table.copy()

    def top_heads(self, number: int = 10, *, part: str | None = None, threshold: float | None = None) -> pd.DataFrame:
        """The heads with the largest ratio of distinct words, those of the headline's part and threshold unless given.

        example: for the 200 best of the headline, the sampled text in which the head attends most to different words
        of one topic; pairs: its strongest pairs, "query → key share"; both None elsewhere. More of each, with the
        topics of all words, is in `head_examples`.
        """
        headline_threshold = threshold_of(self.headline["threshold"])
        part = self.headline["part"] if part is None else part
        threshold = headline_threshold if threshold is None else threshold_of(threshold)
        table = top_heads(self.head_table, number, part=part, threshold=threshold).reset_index(drop=True)
        examples = self.head_examples if threshold == headline_threshold else ()
        found = {(e["part"], e["layer"], e["head"]): e for e in examples}
        shown = [found.get(key) for key in zip(table["part"], table["layer"], table["head"], strict=True)]
        table["example"] = [None if e is None else e["text"] for e in shown]
        table["pairs"] = [
            None if e is None else ", ".join(f"{p['query']} → {p['key']} {p['attention']:.2f}" for p in e["pairs"])
            for e in shown
        ]
        return table

    @property
    def documents(self) -> pd.DataFrame:
        """One row per document, part, threshold and topic seed, read from disk on every access."""
        with undamaged(self.document_table.files[0].parent):
            return self.document_table.read()

    def plot(self, kind: str = "heads", *, columns: Literal["single", "double"] | None = None, **more: Any) -> Any:
        """A matplotlib figure; columns: as wide as one or two columns of a paper.

        kind: "heads", "ratios", "controls", "embeddings", "similarities", "distances", "coverage", "profile" or
        "circuits", each with its own options (see `KINDS`): part and threshold (those of the headline unless given),
        circuit ("OV", "QK"), layer and head (both; else the head with the largest ratio of distinct words).

        Raises:
            InputError: no such kind or option, or the result lacks what it would show.
        """
        return self._drawn(kind, columns, **more)[1]

    def plot_data(self, kind: str = "heads", **more: Any) -> Any:
        """The numbers that `plot` shows: a DataFrame, or arrays by name for a matrix."""
        return self._drawn(kind, None, **more)[0]

    def _drawn(self, kind: str, columns: Any, **more: Any) -> tuple[Any, Any]:
        """The numbers and the figure of one kind."""
        from topicscope import report

        if kind not in KINDS:
            raise InputError("unknown kind of plot", received=kind, expected="one of " + ", ".join(KINDS))
        if not set(more) <= set(KINDS[kind]):
            raise InputError(f"unknown option of the plot {kind!r}", received=[*more], expected=[*KINDS[kind]])
        given = {name: value for name, value in more.items() if value is not None}
        place = {name: given.get(name, self.headline[name]) for name in ("part", "threshold")}
        model = self.model["name"]
        match kind:
            case "heads":
                title = f"{model}: same-topic / different-topic attention"
                figure = report.head_map(self.head_table, **place, title=title, columns=columns)
                rows = self.head_table[self.head_table["part"] == place["part"]]
                return select(rows, place["threshold"]).reset_index(drop=True), figure
            case "ratios":
                return self.table(), report.ratio_figure(self.rows, columns=columns)
            case "controls":
                return report.controls(self.rows, self.controls, **place, columns=columns)
            case "embeddings":
                return report.block_matrix(self.embedding_map, columns)
            case "similarities":
                return report.similarity_histogram(self.embedding_map, columns)
            case "distances":
                return report.distances(self.distances(**place), columns)
            case "coverage":
                return report.coverage(self.coverage, **place, columns=columns)
            case "profile":
                layer, head = given.get("layer"), given.get("head")
                if layer is None or head is None:
                    best = top_heads(self.head_table, 1, **place)
                    if best.empty:
                        raise InputError("no head to choose", received=[*place.values()], expected="layer and head")
                    layer, head = int(best["layer"].iloc[0]), int(best["head"].iloc[0])
                return report.profile(self.head_table, **place, layer=layer, head=head, columns=columns)
        if self.circuits.empty:
            raise InputError("the result has no circuits to draw", expected="a model whose matrices are known")
        rows = self.circuits[self.circuits["head"] != ALL_HEADS]
        place |= {"circuit": given.get("circuit", "OV"), "place": rows["place"].iloc[-1]}
        figure = report.circuit_map(rows, **place, name=model, columns=columns)
        for name in ("circuit", "place", "part"):
            rows = rows[rows[name] == place[name]]
        return select(rows, place["threshold"]), figure

    def distances(self, *, part: str | None = None, threshold: float | None = None) -> pd.DataFrame:
        """Mean attention by distance and class of word pair, see `probing.results.distances`; over all topic seeds.

        Raises:
            InputError: no such part or threshold.
        """
        return distances(
            self.moments,
            self.coverage["pairs"],
            self.headline["part"] if part is None else part,
            self.headline["threshold"] if threshold is None else threshold,
        )

    def to_dict(self) -> dict[str, Any]:
        """The document that `result.json` holds and `--json` prints."""
        # Of circuits the rows of whole layers; those of heads are in circuits.csv.
        layers = self.circuits[self.circuits["head"] == ALL_HEADS] if len(self.circuits) else self.circuits
        words = self.topics[0].top_words(10) if self.topics else []
        topics: list[dict[str, Any]] = [{"topic": number, "words": of} for number, of in enumerate(words)]
        coherence = self.topics[0].provenance.get("coherence", {}).get("topics", []) if self.topics else []
        if coherence:
            topics = [row | {"npmi": found["npmi"]} for row, found in zip(topics, coherence, strict=True)]
        return {
            **self._head(),
            "headline": plain(self.headline),
            "model": dict(self.model),
            "table": plain(self.rows.to_dict(orient="records")),
            "controls": plain(self.controls.to_dict(orient="records")),
            "embeddings": plain(self.embeddings.to_dict(orient="records")),
            "circuits": plain(layers.to_dict(orient="records")),
            "head_examples": [dict(example) for example in self.head_examples],
            "topics": topics,
            "coverage": dict(self.coverage),
            "warnings": list(self.warnings),
            "interrupted": self.interrupted,
            "manifest": self.manifest.model_dump(),
        }

    def page(self) -> str:
        """One HTML file that needs no network: the answer, the ratios, the heads, and what they rest on."""
        from topicscope.report import ProbeRecord, render_probe

        # As they are read from disk, so that a page is the same before and after.
        record, heads = json.loads(dump_json(self.to_dict())), io.StringIO(self.head_table.to_csv(index=False))
        return render_probe(ProbeRecord(record, pd.read_csv(heads), self.embedding_map))

    def pictures(self) -> dict[str, bytes]:
        """The head map."""
        from topicscope.report import to_png

        return {"heads.png": to_png(self.plot("heads"))}

    def write(self, folder: Path) -> None:
        """result.json, heads.csv, documents.parquet, moments.npz and, where there are any, circuits, embedding map and
        topics."""
        write_text(folder / "heads.csv", self.head_table.to_csv(index=False))
        self.document_table.write(folder / DOCUMENTS)
        write_npz(folder / "moments.npz", self.moments)
        if self.embedding_map:
            write_npz(folder / EMBEDDING_MAP, self.embedding_map)
        if len(self.circuits):
            write_text(folder / CIRCUITS, self.circuits.to_csv(index=False))
        for index, topics in enumerate(self.topics):
            save_topics(folder / _topics_name(index), topics)
        write_json(folder / RESULT, self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "ProbeResult":
        """See `Result.read`."""
        topic_files = [folder / _topics_name(i) for i in range(len(list(folder.glob("topics*.npz"))))]
        return cls(
            headline=record["headline"],
            model=record["model"],
            rows=frame_of(record["table"]),
            head_table=pd.read_csv(folder / "heads.csv"),
            controls=frame_of(record["controls"]),
            embeddings=frame_of(record["embeddings"]),
            document_table=DocumentTable([folder / DOCUMENTS]),
            coverage=record["coverage"],
            warnings=tuple(record["warnings"]),
            interrupted=record["interrupted"],
            manifest=Manifest.model_validate(record["manifest"]),
            moments=read_npz(folder / "moments.npz"),
            topics=tuple(load_topics(path) for path in topic_files),
            head_examples=tuple(record.get("head_examples", ())),
            circuits=pd.read_csv(folder / CIRCUITS) if (folder / CIRCUITS).is_file() else pd.DataFrame(),
            embedding_map=read_npz(folder / EMBEDDING_MAP) if (folder / EMBEDDING_MAP).is_file() else {},
            folder=folder,
        )

    def __str__(self) -> str:
        return str(self.headline["text"])

    def _repr_html_(self) -> str:
        """For notebooks: the answer, the measured rows and the head map as a picture that needs no script."""
        from topicscope.report import to_png

        shown = ["part", "threshold", "verdict", "permutation_p"]
        shown += ["attention_ratio", "attention_ratio_se", "attention_ratio_distinct"]
        shown += ["control_attention_ratio_low", "control_attention_ratio_high", "embedding_cosine_layer_ratio"]
        measured = self.rows[self.rows["source"] == "measured"]
        table = measured[shown].to_html(index=False, float_format="{:.3f}".format)
        picture = base64.b64encode(to_png(self.plot("heads"))).decode("ascii")
        return (
            f"<p>{html.escape(str(self))}</p>{table}"
            f'<img alt="attention ratio of every layer and head" src="data:image/png;base64,{picture}">'
        )


def _topics_name(index: int) -> str:
    return "topics.npz" if index == 0 else f"topics-{index}.npz"
