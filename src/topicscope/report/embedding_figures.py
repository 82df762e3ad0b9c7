"""Word embeddings by topic: the block matrix of cosines, and how the cosines of the two kinds of pairs spread."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.report.heatmaps import Bracket, block_map, brackets
from topicscope.report.style import LINES, Columns, Drawn, paper_figure, tidy

KINDS = (("same", "same topic"), ("different", "different topics"))


def topic_brackets(similarities: Mapping[str, np.ndarray]) -> list[Bracket]:
    """Where each topic lies along the sides of the block matrix; similarities: the arrays of embedding_map.npz."""
    _require(similarities)
    size = np.diff(np.append(similarities["starts"], len(similarities["words"])))
    return brackets(np.repeat(similarities["topics"], size), similarities["edges"])


def block_matrix(similarities: Mapping[str, np.ndarray], columns: Columns | None = None) -> Drawn:
    """Mean cosine of the input embeddings [bin, bin], words in the order of their topics, which brackets show.

    Raises:
        InputError: the result holds no similarities.
    """
    topics = topic_brackets(similarities)
    cosine = similarities["cosine"].astype(np.float64)
    with paper_figure(columns or "single", 3.1 if columns != "double" else 6.0) as figure:
        axes = figure.add_subplot()
        block_map(axes, cosine, topics)
        axes.set_title("cosine of word embeddings, by topic", pad=18)
    return {"cosine": cosine, **{name: similarities[name] for name in ("words", "topics", "starts", "edges")}}, figure


def shares(similarities: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Columns low, high (bounds of the cosine), same, different: percent of the pairs of each kind; NaN without any."""
    _require(similarities)
    bounds = similarities["bounds"]
    table = pd.DataFrame({"low": bounds[:-1], "high": bounds[1:]})
    for name, _ in KINDS:
        counts = similarities[name].astype(np.float64)
        table[name] = 100 * counts / counts.sum() if counts.sum() else np.nan
    shown = np.flatnonzero(similarities["same"] + similarities["different"])
    return table.iloc[shown[0] : shown[-1] + 1].reset_index(drop=True)


def similarity_histogram(similarities: Mapping[str, np.ndarray], columns: Columns | None = None) -> Drawn:
    """How the cosines of same-topic and of different-topic pairs spread, each kind as a share of its own pairs.

    Raises:
        InputError: the result holds no similarities.
    """
    table = shares(similarities)
    with paper_figure(columns, 2.4) as figure:
        axes = figure.add_subplot()
        for (name, label), (color, style, _) in zip(KINDS, LINES, strict=False):
            axes.stairs(
                table[name], [*table["low"], table["high"].iloc[-1]], color=color, linestyle=style, label=label, lw=1.4
            )
        axes.set(xlabel="cosine of two words", ylabel="% of the pairs of a kind")
        axes.legend()
        tidy(axes)
    return table, figure


def _require(similarities: Mapping[str, np.ndarray]) -> None:
    if not similarities:
        raise InputError(
            "the result holds no similarities of embeddings",
            expected="embedding_map.npz",
            advice="probe again: older results lack them, and so do those without two words that are one token",
        )
