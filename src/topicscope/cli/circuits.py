"""`topicscope circuits`: the theorems' matrices in a pretrained model, without any text."""

import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import OutFolder
from topicscope.cli.output import print_json, print_lines, print_table
from topicscope.cli.probe import resolve_model
from topicscope.probing import DEFAULT_THRESHOLDS
from topicscope.probing.circuits import circuits as find_circuits
from topicscope.probing.circuits import stand_out
from topicscope.records import CIRCUITS, add_file, check_output_folder, select

_THRESHOLDS = Parameter(consume_multiple=True, negative="", show_default=lambda values: " ".join(map(str, values)))


def circuits(
    model: str,
    /,
    *,
    topics: str,
    threshold: Annotated[tuple[float, ...], _THRESHOLDS] = DEFAULT_THRESHOLDS,
    overlap: Literal["drop", "keep"] = "drop",
    language: str = "en",
    out: OutFolder | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Compare same-topic and different-topic words in the OV and QK circuit of every head; no text is read.

    Parameters
    ----------
    model
        Hugging Face name or folder of a model; "minilm" is the demo's embedded model.
    topics
        topics.npz of `topicscope topics fit`, a matrix, or a word list with the header word,topic.
    threshold
        Share of the vocabulary kept for each topic; several may be given.
    overlap
        Words of several topics belong to none of them (drop, the paper) or to all (keep).
    language
        Language of the stop words that are left out.
    out
        Folder for circuits.json, circuits.csv and a map of each circuit.
    overwrite
        Replace an earlier result of circuits in --out; a folder with anything else in it is refused.
    device
        cpu, cuda, cuda:N or mps; auto takes the best that is there.
    dtype
        float32, float16 or bfloat16.
    revision
        Revision of the model on the hub; MODEL@REVISION says the same.
    trust_remote_code
        Run the code that comes with a model; the model's name must be repeated here.
    json
        Print circuits.json on stdout.
    """
    named = resolve_model(model)
    if out is not None:
        read = [path for path in (Path(str(topics)), Path(named)) if path.exists()]
        check_output_folder(out, replaces=CIRCUITS if overwrite else None, inputs=read)
    found = find_circuits(
        named,
        topics=topics,
        threshold=threshold,
        overlap=overlap,
        language=language,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if out is not None:
        found.save(out, overwrite=overwrite)
        for name, picture in found.pictures().items():
            add_file(CIRCUITS, out, name, picture)
    if json:
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
