"""`reproduce`: run claims, keep what is finished, and write claims.json.

A folder holds

    claims.json         {schema_version, claims: [{id, verdict, statistic, rows}]}, written anew after every claim
    manifest.json       options, versions, machine, and of every claim its title, place in the paper and verdict rule
    finished/ID.json    one finished claim, the key it was made under (`resume` reads it while the key is the same),
                        what it left in runs/ and the seconds it took
    runs/               the training runs, which resume from their checkpoints, and arrays kept for figures
    figures/ID.png|pdf  one figure a claim, drawn from the files above
    reproduction.html   all of it on one page, written anew after every claim, so that an interrupted run has one
"""

import difflib
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from topicscope.claims import (
    ambiguous_words,
    attention_order,
    co_occurrence,
    embedding_block,
    joint_training,
    landscape,
    pretrained_table,
    theory_holds,
    topicwise_assumption,
    two_stage,
    value_block,
)
from topicscope.claims.claim import Claim, ClaimResult, Context
from topicscope.errors import InputError
from topicscope.experiments import sources_of
from topicscope.lab import recipe_path
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import (
    NUMBERS_VERSION,
    REPRODUCTION,
    Manifest,
    Result,
    describe_environment,
    growing_run,
    now,
    output_path,
    read_json,
    write_json,
    write_text,
)

SCHEMA_VERSION = 1  # of finished/ID.json
SEEDS, QUICK_SEEDS = 4, 3
RUNS = "runs"
# In the order in which they are run and shown.
CLAIMS: tuple[Claim, ...] = (
    theory_holds.CLAIM,
    value_block.CLAIM,
    embedding_block.CLAIM,
    two_stage.CLAIM,
    joint_training.CLAIM,
    attention_order.BLOCK,
    attention_order.DIAGONAL,
    landscape.CLAIM,
    pretrained_table.CLAIM,
    ambiguous_words.CLAIM,
    co_occurrence.CLAIM,
    topicwise_assumption.CLAIM,
)


@dataclass(frozen=True)
class Reproduction(Result):
    """What came out of the claims that were run, in order."""

    kind, layout = "reproduction", REPRODUCTION

    results: tuple[ClaimResult, ...]
    folder: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of claims.json."""
        return {**self._head(), "claims": [result.as_dict() for result in self.results]}

    def write(self, folder: Path) -> None:
        """claims.json."""
        write_json(folder / "claims.json", self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "Reproduction":
        """See `Result.read`."""
        return cls(tuple(ClaimResult(**claim) for claim in record["claims"]), folder)

    def plot(self, claim: str) -> Any:
        """A matplotlib figure of every row of one claim: measured with its 95 % interval, theory, the paper.

        Raises:
            InputError: no such claim was run.
        """
        from topicscope.report import forest_figure

        rows = {result.id: result.rows for result in self.results}
        if claim not in rows:
            raise InputError("no such claim in this result", received=claim, expected=", ".join(rows) or "a claim")
        return forest_figure(rows[claim], title=claim)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page of the whole folder, with its figures, to `path` or to reproduction.html there.

        Raises:
            InputError: the result was never stored in a folder.
        """
        from topicscope.report import load_reproduction, render_reproduction, write_reproduction

        if self.folder is None:
            raise InputError("the result is not stored in a folder", expected="reproduce(…, out=FOLDER)")
        if path is None:
            write_reproduction(self.folder)
            return self.folder / "reproduction.html"
        write_text(output_path(path), render_reproduction(load_reproduction(self.folder)))
        return Path(path)

    def table(self) -> pd.DataFrame:
        """Every row of every claim: claim, quantity, paper, theory, measured, error, seeds, verdict."""
        columns = ("quantity", "paper", "theory", "measured", "error", "seeds")
        return pd.DataFrame(
            [
                {"claim": result.id, **{name: row.get(name) for name in columns}, "verdict": result.verdict}
                for result in self.results
                for row in result.rows
            ],
            columns=["claim", *columns, "verdict"],
        )


def reproduce(
    claims: Sequence[str] = (),
    *,
    quick: bool = False,
    seeds: int | None = None,
    models: Sequence[str] = (),
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    command: str | None = None,
) -> Reproduction:
    """Hold the paper's claims against theory and training.

    claims: ids; none means all. quick: shorter runs and fewer settings. seeds: independent runs behind every measured
    number, 4 or with `quick` 3. models: pretrained models for the claim pretrained-table (minilm, mpnet, smollm2,
    small-bert, paper for the paper's five, hub names, folders); none means all but the paper's. out: folder for
    claims.json; nothing is written without one. resume: keep the claims finished there, as long as recipes, code and
    options are the same, and go on with the rest; kept ones are part of the result even if they are not named.
    overwrite: replace an earlier result once this one is whole.

    Raises:
        InputError: an unknown claim, fewer than two seeds (a spread needs two), a model folder that is not there, a
            folder with something else in it.
    """
    folder = None if out is None else output_path(out)
    known = [claim.id for claim in CLAIMS]
    for name in claims:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise InputError(
                "no such claim", received=name, expected=", ".join(known), advice=f"did you mean {near[0]}?"
            )
    chosen = [claim for claim in CLAIMS if not claims or claim.id in claims]
    sources_of(models)
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if seeds < 2:
        raise InputError("too few seeds", received=seeds, expected="at least 2: the error is the spread over seeds")
    if folder is None and resume:
        raise InputError("resume needs a folder", expected="out")
    context = Context(seeds, quick, None, progress or SilentProgress(), tuple(models))
    if folder is None:
        return _run(chosen, context, None)
    read = [path for path in map(Path, models) if path.exists()]
    with growing_run(folder, REPRODUCTION, resume=resume, overwrite=overwrite, inputs=read) as run:
        context = replace(context, folder=run.folder / RUNS)
        kept = {claim.id: result for claim in CLAIMS if (result := _kept(claim, context, run.folder)) is not None}
        # What is finished stays in claims.json and on the page, whether or not it is asked for again.
        chosen = [claim for claim in CLAIMS if claim in chosen or claim.id in kept]
        write_json(run.folder / "claims.json", Reproduction(tuple(kept.values())).to_dict())
        asked = {"claims": [claim.id for claim in chosen], "quick": quick, "seeds": seeds, "models": list(models)}
        told = ("title", "where", "assertion", "recipes", "theory", "verdict_rule")
        sources: dict[str, dict[str, Any]] = {
            claim.id: {name: getattr(claim, name) for name in told}
            | {"criteria": [{"id": c.id, "text": c.text, "decisive": c.decisive} for c in claim.criteria]}
            for claim in chosen
        }
        manifest = Manifest(
            created=now(), command=command, environment=describe_environment(), options=asked, sources=sources
        )
        write_json(run.folder / "manifest.json", manifest.model_dump())
        done = _run(chosen, context, run.folder)
    return replace(done, folder=run.folder)


def _run(claims: Sequence[Claim], context: Context, folder: Path | None) -> Reproduction:
    """One claim after the other; the folder is whole after each."""
    from topicscope.report import write_reproduction  # drawn from the folder alone

    results: tuple[ClaimResult, ...] = ()
    with tracked(context.progress, "claims", len(claims), "claims"):
        for claim in claims:
            result, fresh = _result(claim, context, folder)
            results = (*results, result)
            context.progress.update("claims", len(results))
            if folder is not None:
                write_json(folder / "claims.json", Reproduction(results).to_dict())
                write_reproduction(folder, drawn=claim.id if fresh else None)
    return Reproduction(results)


def _result(claim: Claim, context: Context, folder: Path | None) -> tuple[ClaimResult, bool]:
    """What came out, and whether it was measured now rather than kept."""
    if folder is None:
        return claim.run(context), True
    kept = _kept(claim, context, folder)
    if kept is not None:
        return kept, False
    own = replace(context, evidence=[])
    start = time.monotonic()
    result = claim.run(own)
    write_json(
        _finished(claim, folder),
        {
            "schema_version": SCHEMA_VERSION,
            "key": claim_key(claim, context),
            "claim": result.as_dict(),
            "evidence": own.evidence,
            "seconds": round(time.monotonic() - start, 1),
        },
    )
    return result, True


def _finished(claim: Claim, folder: Path) -> Path:
    return folder / "finished" / f"{claim.id}.json"


def _kept(claim: Claim, context: Context, folder: Path) -> ClaimResult | None:
    """What a folder holds of a claim, if it was made from the same inputs."""
    path = _finished(claim, folder)
    if not path.is_file():
        return None
    kept = read_json(path)
    same = isinstance(kept, dict) and kept.get("key") == claim_key(claim, context)
    return ClaimResult(**kept["claim"]) if same else None


def claim_key(claim: Claim, context: Context) -> str:
    """What a finished claim depends on, as one hash: options, recipes, the claim's own inputs, version and code."""
    recipes = [recipe_path(name).read_text(encoding="utf-8") for name in claim.recipes]
    inputs = "" if claim.inputs is None else claim.inputs(context)
    text = "\0".join([claim.id, str(context.quick), str(context.seeds), str(NUMBERS_VERSION), inputs, *recipes])
    return hashlib.sha256(text.encode()).hexdigest()
