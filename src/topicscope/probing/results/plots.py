"""`ProbeResult.plot`: which figure shows which part of a result."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from topicscope.errors import InputError
from topicscope.probing.attention import top_heads
from topicscope.probing.circuits import ALL_HEADS
from topicscope.records import select

if TYPE_CHECKING:
    from topicscope.probing.results.result import ProbeResult

KINDS: Mapping[str, str] = {
    "heads": "layer × head map of the attention ratio",
    "ratios": "ratios by threshold, with random weights and the paper",
    "controls": "every ratio beside every random initialisation",
    "embeddings": "matrix of word similarities, words in the order of topics",
    "similarities": "histogram of word similarities",
    "distances": "mean attention by distance between words",
    "coverage": "from documents to pairs",
    "profile": "what one head attends to, beside all heads",
    "circuits": "layer × head map of the OV or QK circuit",
}
Place = dict[str, Any]


def draw_probe(result: "ProbeResult", kind: str, columns: Any = None, **more: Any) -> tuple[Any, Any]:
    """The numbers and the figure of one kind.

    Raises:
        InputError: no such kind, or the result lacks what it would show.
    """
    if kind not in KINDS:
        raise InputError("unknown kind of plot", received=kind, expected="one of " + ", ".join(KINDS))
    return _DRAWINGS[kind](result, columns, **more)


def _place(result: "ProbeResult", part: str | None, threshold: float | None) -> Place:
    return {
        "part": result.headline["part"] if part is None else part,
        "threshold": result.headline["threshold"] if threshold is None else threshold,
    }


def _heads(
    result: "ProbeResult", columns: Any, *, part: str | None = None, threshold: float | None = None
) -> tuple[Any, Any]:
    from topicscope.report import head_map

    place = _place(result, part, threshold)
    title = f"{result.model['name']}: same-topic / different-topic attention"
    figure = head_map(result.head_table, **place, title=title, columns=columns)
    rows = result.head_table[result.head_table["part"] == place["part"]]
    return select(rows, place["threshold"]).reset_index(drop=True), figure


def _ratios(result: "ProbeResult", columns: Any) -> tuple[Any, Any]:
    from topicscope.report import ratio_figure

    return result.table(), ratio_figure(result.rows, columns=columns)


def _controls(
    result: "ProbeResult", columns: Any, *, part: str | None = None, threshold: float | None = None
) -> tuple[Any, Any]:
    from topicscope.report import controls

    return controls(result.rows, result.controls, **_place(result, part, threshold), columns=columns)


def _embeddings(result: "ProbeResult", columns: Any) -> tuple[Any, Any]:
    from topicscope.report import block_matrix

    return block_matrix(result.embedding_map, columns)


def _similarities(result: "ProbeResult", columns: Any) -> tuple[Any, Any]:
    from topicscope.report import similarity_histogram

    return similarity_histogram(result.embedding_map, columns)


def _distances(
    result: "ProbeResult", columns: Any, *, part: str | None = None, threshold: float | None = None
) -> tuple[Any, Any]:
    from topicscope.report import distances

    return distances(result.distances(part=part, threshold=threshold), columns)


def _coverage(
    result: "ProbeResult", columns: Any, *, part: str | None = None, threshold: float | None = None
) -> tuple[Any, Any]:
    from topicscope.report import coverage

    return coverage(result.coverage, **_place(result, part, threshold), columns=columns)


def _profile(
    result: "ProbeResult",
    columns: Any,
    *,
    layer: int | None = None,
    head: int | None = None,
    part: str | None = None,
    threshold: float | None = None,
) -> tuple[Any, Any]:
    """The head with the largest ratio of distinct words unless both layer and head are given."""
    from topicscope.report import profile

    place = _place(result, part, threshold)
    if layer is None or head is None:
        best = top_heads(result.head_table, 1, **place)
        if best.empty:
            raise InputError("no head to choose", received=tuple(place.values()), expected="layer and head")
        layer, head = int(best["layer"].iloc[0]), int(best["head"].iloc[0])
    return profile(result.head_table, **place, layer=layer, head=head, columns=columns)


def _circuits(
    result: "ProbeResult",
    columns: Any,
    *,
    circuit: str = "OV",
    part: str | None = None,
    threshold: float | None = None,
) -> tuple[Any, Any]:
    from topicscope.report import circuit_map

    if result.circuits.empty:
        raise InputError("the result has no circuits to draw", expected="a model whose matrices are known")
    heads = result.circuits[result.circuits["head"] != ALL_HEADS]
    place = _place(result, part, threshold) | {"circuit": circuit, "place": heads["place"].iloc[-1]}
    figure = circuit_map(heads, **place, name=result.model["name"], columns=columns)
    names = [name for name in ("circuit", "place", "part") if name in heads]
    chosen = heads[(heads[names] == [place[name] for name in names]).all(axis=1)]
    return select(chosen, place["threshold"]), figure


_DRAWINGS: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "heads": _heads,
    "ratios": _ratios,
    "controls": _controls,
    "embeddings": _embeddings,
    "similarities": _similarities,
    "distances": _distances,
    "coverage": _coverage,
    "profile": _profile,
    "circuits": _circuits,
}
