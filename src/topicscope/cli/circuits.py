"""`topicscope circuits`: the theorems' matrices in a pretrained model, without any text."""

import math
from collections.abc import Hashable, Mapping
from typing import Annotated, Any

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import OutFolder, RunOptions
from topicscope.cli.output import print_json, print_lines, print_table
from topicscope.options import MODEL, OUTPUT, TOPICS
from topicscope.probing import ProbeConfig, paths_of
from topicscope.probing.circuits import circuits as find_circuits
from topicscope.probing.circuits import stand_out
from topicscope.records import CIRCUITS, add_file, check_output_folder, select

_FIELDS = ("threshold", "overlap", "language", "device", "dtype", "revision", "trust_remote_code")


def circuits(
    model: Annotated[str, MODEL],
    /,
    *,
    topics: Annotated[str, TOPICS],
    config: Annotated[ProbeConfig, Parameter(parse=f"^(config|{'|'.join(_FIELDS)})$")] = ProbeConfig(),
    out: Annotated[OutFolder | None, OUTPUT] = None,
    run: Annotated[RunOptions, Parameter(parse="^(run|overwrite|json)$")] = RunOptions(),
) -> None:
    """Compare same-topic and different-topic words in the OV and QK circuit of every head; no text is read.

    Parameters
    ----------
    model
        Hugging Face name or folder of a model; "minilm" is the demo's embedded model.
    topics
        topics.npz of `topicscope topics fit`, a matrix, or a word list with the header word,topic.
    out
        Folder for circuits.json, circuits.csv and a map of each circuit.
    """
    if out is not None:
        check_output_folder(out, replaces=CIRCUITS if run.overwrite else None, inputs=paths_of(topics, model))
    found = find_circuits(model, topics=topics, **{name: getattr(config, name) for name in _FIELDS})
    if out is not None:
        found.save(out, overwrite=run.overwrite)
        for name, picture in found.pictures().items():
            add_file(CIRCUITS, out, name, picture)
    if run.json:
        print_json(found.to_dict())
        return
    print_lines([str(found), ""])
    table, heads = found.table(), found.heads()
    keys = ["part", "threshold", "topic_seed", "place"]
    for _, rows in table.groupby(keys, sort=False, dropna=False):
        part, theta, seed, place = (rows[key].iloc[0] for key in keys)
        of = select(heads, theta)
        of = of[(of["part"] == part) & (of["place"] == place) & (of["topic_seed"] == seed)]
        for circuit, name in (("OV", "sum over heads"), ("QK", "mean over heads")):  # side by side they are too wide
            print_table(
                f"{part}, θ = {_number(theta, 'g')}, {place}: {circuit}, same-topic minus different-topic words",
                ["layer", "S - D", "z", "bands", "turned", "heads"],
                [
                    _cells(row, of[of["circuit"] == circuit])
                    for row in rows[rows["circuit"] == circuit].to_dict("records")
                ],
                f"S - D: {name}",
            )
    print_lines(
        [
            "z: topics shuffled among all words; bands: among words about as frequent; turned: the head's halves",
            "turned against each other at random.",
            "heads: how many have both bands (or z) and turned above 4, and below -4.",
        ]
    )
    print_lines([f"note: {note}" for note in found.notes])
    print_lines([f"warning: {warning}" for warning in found.warnings])
    if out is not None:
        print_lines([f"result: {out}/circuits.json"])


def _cells(row: Mapping[Hashable, Any], heads: pd.DataFrame) -> list[str]:
    more, less = stand_out(heads[heads["layer"] == row["layer"]])
    numbers = [_number(row[z], ".1f") for z in ("z", "z_banded", "z_turned")]
    return [str(row["layer"]), _number(row["difference"], ".2g"), *numbers, f"+{more} -{less}"]


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"
