"""Differences of attention ratios between results, paired over documents where the results read the same text.

With x_c, n_c [document] the sums and counts of the classes c = s (same topic), d (different topic), X, N their totals,

    R = (X_s/N_s) / (X_d/N_d),   e_d = R · (x_s/X_s - n_s/N_s - x_d/X_d + n_d/N_d)  [document]

is the ratio with the influence of each document on it (averaged over topic seeds). Two results of one corpus saw the
same documents, so the error of R_a - R_b is that of the differences of influences:

    se² = D*/(D*-1) Σ_d (e_a,d - e_b,d)²;   unpaired: se² = se_a² + se_b².

D* is the effective number of documents (`statistics.effective_documents`), the smaller one of two results. A document
that one result did not read has influence 0 there. Pairing takes out what the documents do to both.
"""

import html
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.probing.results.result import ProbeResult, frame_of
from topicscope.probing.statistics import DIFFERENT, UNMATCHED, Estimate
from topicscope.records import COMPARISON, Result, select, write_json
from topicscope.topics import PairClass


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Every result against the first.

    rows: one a pair of results, part, threshold and quantity: `a`, `b` (names), `ratio_a`, `ratio_b`, `difference`
    (b - a), `se`, `low`, `high` (95 %, Student's t with D* - 1 degrees of freedom), `paired`, `documents` (D).
    notes: what a reader must know, such as why two results are not paired.
    """

    kind, layout = "comparison", COMPARISON

    rows: pd.DataFrame
    notes: tuple[str, ...]
    folder: Path | None = None

    def table(self) -> pd.DataFrame:
        """A copy of the rows."""
        return self.rows.copy()

    def to_dict(self) -> dict[str, Any]:
        """What `topicscope compare --json` prints."""
        return {**self._head(), "rows": self.rows.to_dict(orient="records"), "notes": list(self.notes)}

    def plot(self, *, title: str = "Differences of attention ratios") -> Any:
        """A matplotlib figure: every difference with its 95 % interval, a panel for each quantity."""
        from topicscope.report import forest_figure

        rows = [
            {
                "quantity": f"{row['b']} - {row['a']}, {row['part']}, θ = {row['threshold']:g}",
                "criterion": row["quantity"],
                "measured": row["difference"],
                "error": (row["high"] - row["low"]) / 2,
            }
            for row in self.rows.to_dict(orient="records")
        ]
        return forest_figure(rows, title=title, references={ratio.name: 0.0 for ratio in UNMATCHED})

    def write(self, folder: Path) -> None:
        """comparison.json."""
        write_json(folder / "comparison.json", self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "Comparison":
        """See `Result.read`."""
        return cls(frame_of(record["rows"]), tuple(record["notes"]), folder)

    def __str__(self) -> str:
        lines = [
            f"{row['b']} - {row['a']} ({row['part']}, θ = {row['threshold']:g}, {row['quantity']}): "
            f"{row['difference']:+.4f} ± {row['se']:.4f} ({'paired' if row['paired'] else 'not paired'})"
            for row in self.rows.to_dict(orient="records")
        ]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return self.rows.to_html(index=False, float_format="{:.4f}".format) + notes


def compare(*results: ProbeResult | str | Path) -> Comparison:
    """Compare attention ratios of probe results (or the folders that hold them), each with the first.

    Compared are parts of one name (or the only part of either) at thresholds that both have.

    Raises:
        InputError: fewer than two results, a folder without one, or results without a part and threshold in common.
    """
    if len(results) < 2:
        raise InputError("nothing to compare", received=f"{len(results)} results", expected="two or more")
    loaded = [r if isinstance(r, ProbeResult) else ProbeResult.load(r) for r in results]
    names = _names(loaded, results)
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    first = loaded[0].documents
    texts = [result.manifest.sources["corpus"]["fingerprint"] for result in loaded]
    for name, other, text in zip(names[1:], loaded[1:], texts[1:], strict=True):
        same_text = text == texts[0]
        found = list(_compared(first, other.documents, paired=same_text))
        if not found:
            raise InputError(
                "the results have no part and threshold in common",
                received=[sorted({(r.headline["part"], r.headline["threshold"])}) for r in (loaded[0], other)],
                where=f"{names[0]} and {name}",
                advice="probe both with the same --threshold",
            )
        rows += [{"a": names[0], "b": name, **row} for row in found]
        notes |= dict.fromkeys(_notes(names[0], name, loaded[0], other, same_text=same_text))
    return Comparison(pd.DataFrame(rows), tuple(notes))


@dataclass(frozen=True)
class _Ratio:
    """A ratio, the influence [document] of every document on it, and D* (see `statistics.effective_documents`)."""

    value: float
    influence: pd.Series
    effective: float


def _variance(influence: np.ndarray, effective: float) -> float:
    return effective / (effective - 1) * float((influence**2).sum()) if effective - 1 > 1e-9 else math.nan


def _compared(first: pd.DataFrame, second: pd.DataFrame, *, paired: bool) -> Iterator[dict[str, Any]]:
    parts, others = (list(dict.fromkeys(frame["part"])) for frame in (first, second))
    pairs = [(part, part) for part in parts if part in others]
    if not pairs and len(parts) == len(others) == 1:
        pairs = [(parts[0], others[0])]
    # Thresholds that both have; NaN is that of a word list.
    thresholds = [float(t) for t in first["threshold"].unique() if len(select(second, t))]
    for (part, other_part), threshold in itertools.product(pairs, thresholds):
        a = select(first[first["part"] == part], threshold)
        b = select(second[second["part"] == other_part], threshold)
        for quantity in UNMATCHED:
            kind = "corrected" if quantity.corrected else "sum"
            ratio_a, ratio_b = _ratio(a, kind, quantity.same), _ratio(b, kind, quantity.same)
            if ratio_a is None or ratio_b is None:
                continue
            effective = min(ratio_a.effective, ratio_b.effective)  # the cautious choice
            if paired:
                one, two = ratio_a.influence.align(ratio_b.influence, join="outer", fill_value=0.0)
                documents, variance = len(one), _variance((two - one).to_numpy(), effective)
            else:
                documents = min(len(ratio_a.influence), len(ratio_b.influence))
                variance = sum(_variance(of.influence.to_numpy(), of.effective) for of in (ratio_a, ratio_b))
            difference = Estimate(ratio_b.value - ratio_a.value, math.sqrt(variance), documents, effective=effective)
            low, high = difference.interval()
            yield {
                "part": part if part == other_part else f"{part} / {other_part}",
                "threshold": threshold,
                "quantity": quantity.name,
                "ratio_a": ratio_a.value,
                "ratio_b": ratio_b.value,
                "difference": difference.value,
                "se": difference.se,
                "low": low,
                "high": high,
                "paired": paired,
                "documents": documents,
            }


def _ratio(frame: pd.DataFrame, kind: str, same: Sequence[PairClass]) -> _Ratio | None:
    """Averaged over topic seeds; None where one lacks pairs, or corrected sums as results of an older version do."""
    values, influences, effective = [], [], []
    for _, rows in frame.groupby("topic_seed"):
        per_document = rows.set_index("document_id")
        if f"{kind}_{PairClass.same_topic.name}" not in per_document:
            return None
        columns = [
            per_document[[f"{what}_{k.name}" for k in classes]].sum(axis=1, skipna=False)
            for classes in (same, DIFFERENT)
            for what in (kind, "count")
        ]
        totals = [float(column.sum(skipna=False)) for column in columns]
        if not all(total > 0 for total in totals):
            return None
        shares = [column / total for column, total in zip(columns, totals, strict=True)]
        x_same, n_same, x_different, n_different = shares
        values.append(totals[0] / totals[1] / (totals[2] / totals[3]))
        influences.append(values[-1] * (x_same - n_same - x_different + n_different))
        effective.append(min(float(1 / (share**2).sum()) for share in shares))
    influence = pd.concat(influences, axis=1).fillna(0.0).mean(axis=1)
    return _Ratio(float(np.mean(values)), influence, min(effective))


def _notes(a: str, b: str, first: ProbeResult, second: ProbeResult, *, same_text: bool) -> Iterator[str]:
    if not same_text:
        yield f"{a} and {b} are not paired: they read different texts, so their errors are added"
    if _topics_of(first) != _topics_of(second):
        yield f"{a} and {b} have different topics: a difference may come from these and not from the models"
    for option in ("unit", "max_units", "overlap", "pieces"):
        values = [result.manifest.options.get(option) for result in (first, second)]
        if values[0] != values[1]:
            yield f"{a} and {b} differ in --{option.replace('_', '-')}: {values[0]} and {values[1]}"
    for name, result in ((a, first), (b, second)):
        if result.interrupted:
            yield f"{name} was interrupted and holds only part of its text"


def _topics_of(result: ProbeResult) -> object:
    if result.topics:
        return [(t.model.vocabulary.words, t.model.phi.tobytes()) for t in result.topics]
    listed: Mapping[str, Any] = result.manifest.sources["topics"]
    return listed.get("word_list", {}).get("sha256")


def _names(loaded: Sequence[ProbeResult], given: Sequence[object]) -> list[str]:
    """Models' names; where two are equal, with the folder or the number of the result."""
    names = [str(result.model["name"]) for result in loaded]
    if len(set(names)) == len(names):
        return names
    tags = [Path(g).name if isinstance(g, (str, Path)) else str(i) for i, g in enumerate(given, start=1)]
    if len(set(tags)) < len(tags):
        tags = [str(i) for i in range(1, len(given) + 1)]
    return [f"{name} ({tag})" for name, tag in zip(names, tags, strict=True)]
