"""What a claim is: something the paper says, the measurements it is held against, and a verdict rule that was written
before any run; and what its run may use.

Rows of a claim: what was measured beside theory and the paper, with its error.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import stdtrit

from topicscope.experiments import resolve
from topicscope.lab import block_means, load_recipe, make_recipe, recipe_path, train
from topicscope.progress import Progress, SilentProgress
from topicscope.records import NUMBERS_VERSION, RunRecord, write_npz
from topicscope.synthetic import Setting
from topicscope.topics import TopicModel

Made = TypeVar("Made")


@dataclass
class Context:
    """The surroundings of a claim's run.

    | field | meaning |
    | --- | --- |
    | seeds | independent runs behind every measured number, at least 2: the error is their spread |
    | quick | shorter runs and fewer settings; each claim says which |
    | folder | where training runs are kept and resumed; None: nowhere |
    | progress | receives the state of long work |
    | models | pretrained models to probe, by name; none: those that the claim takes by default |
    | memory | what several claims read, such as a model's attention on a corpus; kept as long as the context lives |
    | evidence | what lies in `folder` for figures to draw: of every training run {path, recipe, overrides, seeds}, of
    arrays kept {path, title, …} |
    """

    seeds: int = 4
    quick: bool = False
    folder: Path | None = None
    progress: Progress = field(default_factory=SilentProgress)
    models: tuple[str, ...] = ()
    memory: dict[str, Any] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def train(self, name: str, *overrides: str, seeds: int | None = None) -> RunRecord:
        """Train a recipe of topicscope, changed by overrides; closed forms are handed in as the command line does.

        seeds: where a claim needs more runs than asked for, such as a mean over random starts.
        """
        recipe = load_recipe(recipe_path(name), overrides)
        seeds = self.seeds if seeds is None else seeds
        text = f"{NUMBERS_VERSION} {seeds} {recipe.model_dump_json()}"
        path = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        self.evidence.append({"path": path, "recipe": name, "overrides": list(overrides), "seeds": seeds})
        arrays, references = resolve(recipe)
        return train(
            recipe,
            seeds=seeds,
            out=None if self.folder is None else self.folder / path,
            resume=self.folder is not None,
            arrays=arrays,
            references=references,
            progress=self.progress,
        )

    def keep(self, name: str, title: str, arrays: Mapping[str, np.ndarray], **labels: Any) -> None:
        """Keep small arrays for a figure as `name`.npz; labels tell the figure what they are."""
        if self.folder is not None:
            write_npz(self.folder / f"{name}.npz", arrays)
        self.evidence.append({"path": f"{name}.npz", "title": title, **labels})

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` gives, made at the first call with this name only; claims of one run share it."""
        if name not in self.memory:
            self.memory[name] = make()
        made: Made = self.memory[name]
        return made


def measured_row(
    criterion: str | None,
    quantity: str,
    values: Iterable[float],
    *,
    theory: float | None = None,
    paper: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The mean over seeds, with the half-width t₀.₉₇₅ s/√n of Student's 95 % interval."""
    numbers = np.array(list(values), dtype=np.float64)
    n = len(numbers)
    error = float(stdtrit(n - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    found = {"measured": float(numbers.mean()), "error": error, "seeds": n}
    return _row(criterion, quantity, theory=theory, paper=paper, **found | more)


def exact_row(
    criterion: str | None,
    quantity: str,
    value: float,
    *,
    theory: float | None = None,
    paper: float | None = None,
    error: float = 0.0,
    **more: Any,
) -> dict[str, Any]:
    """A number without sampling error (computed, or counted over everything there is) unless its `error` is given."""
    return _row(criterion, quantity, theory=theory, paper=paper, measured=float(value), error=error, **more)


def not_run_row(
    quantity: str, reason: str, *, criterion: str | None = None, paper: float | None = None, **more: Any
) -> dict[str, Any]:
    """A number that could not be measured, with the reason; never a guess. criterion: what would have judged it."""
    return _row(criterion, quantity, paper=paper, reason=reason, **more)


def _row(criterion: str | None, quantity: str, **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("paper", "theory", "measured", "error", "seeds"))
    return {"criterion": criterion, "quantity": quantity} | empty | values


def setting_of(record: RunRecord) -> Setting:
    """The theory's setting of a run whose documents have one."""
    setting = make_recipe(record.config).setting()
    assert setting is not None
    return setting


def entry_means(record: RunRecord, name: str = "W_V") -> dict[str, list[float]]:
    """Means of the final weights' [MASK] column and of different-topic, same-topic and diagonal entries, by seed.

    name: "W_V", or "E" for the Gram matrix W_Eᵀ W_E. Taken from the weights, not from what the run says of itself.
    """
    W = record.weights
    matrices = W["W_E"].transpose(0, 2, 1).astype(np.float64) @ W["W_E"] if name == "E" else W[name]
    data = record.config["data"]
    topics = TopicModel.disjoint(data["num_topics"], data["words_per_topic"])
    rows = [block_means(matrix, topics) for matrix in matrices]
    return {part: [row[part] for row in rows] for part in rows[0]}


Verdict = Literal["confirmed", "partly", "not_confirmed", "not_run"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Criterion:
    """One question put to the rows that name it; all of them must say yes.

    | field | meaning |
    | --- | --- |
    | id | rows whose `criterion` is this are judged by it |
    | text | what is asked, in words |
    | met | the answer of one row, from its numbers alone |
    | decisive | without it the claim is not confirmed; a criterion that is not decisive costs a "partly" |
    """

    id: str
    text: str
    met: Callable[[Row], bool]
    decisive: bool = True


def near(name: str, text: str, relative: float, *, decisive: bool = True) -> Criterion:
    """The whole 95 % interval lies within `relative` of theory."""

    def met(row: Row) -> bool:
        theory = _number(row, "theory")
        return abs(_number(row, "measured") - theory) + _number(row, "error") <= relative * abs(theory)

    return Criterion(name, f"{text}: within {100 * relative:g} % of theory", met, decisive)


def above(name: str, text: str, bound: float, *, decisive: bool = True) -> Criterion:
    """The whole 95 % interval lies above `bound`."""
    return Criterion(
        name, f"{text}: > {bound:g}", lambda row: _number(row, "measured") - _number(row, "error") > bound, decisive
    )


def below(name: str, text: str, bound: float, *, decisive: bool = True) -> Criterion:
    """The whole 95 % interval lies below `bound`."""
    return Criterion(
        name, f"{text}: < {bound:g}", lambda row: _number(row, "measured") + _number(row, "error") < bound, decisive
    )


def _measured(row: Row) -> bool:
    return row.get("measured") is not None


def _number(row: Row, name: str) -> float:
    """NaN for what is missing, so that every comparison with it fails."""
    value = row.get(name)
    return math.nan if value is None else float(value)


@dataclass(frozen=True)
class ClaimResult:
    """What came out. rows: see `Claim.measure`; statistic: the numbers the verdict rests on, in one line."""

    id: str
    verdict: Verdict
    statistic: str
    rows: list[Row]

    def as_dict(self) -> dict[str, Any]:
        """The entry of claims.json."""
        return {"id": self.id, "verdict": self.verdict, "statistic": self.statistic, "rows": self.rows}


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    | field | meaning |
    | --- | --- |
    | id | short name, as typed on the command line |
    | title | one line |
    | where | theorem or table of the paper |
    | assertion | what the paper says, in plain text |
    | recipes | names of the training recipes it uses |
    | theory | names in `topicscope.theory` it is held against |
    | criteria | the verdict rule, in parts; the first is named first in the statistic |
    | measure | rows from a context; each has `criterion` (None: shown, not judged), `quantity`, `paper`, `theory`,
    `measured`, `error` (half-width of the 95 % interval over seeds, 0 where exact) and `seeds`; a row that could not
    be measured has `measured` None and a `reason`, and is counted instead of judged |
    | inputs | what else the rows depend on, as text, such as the models given and whether they are here |
    """

    id: str
    title: str
    where: str
    assertion: str
    recipes: tuple[str, ...]
    theory: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    measure: Callable[[Context], list[Row]]
    inputs: Callable[[Context], str] | None = None

    @property
    def verdict_rule(self) -> str:
        """The rule in words."""
        lines = [f"- {c.text}{'' if c.decisive else ' (not decisive)'}" for c in self.criteria]
        return "\n".join(
            [
                "confirmed: every line below holds in every row that it speaks of, with its whole 95 % interval;",
                "partly: only lines marked as not decisive fail or were not measured; not_confirmed: another fails;",
                "not_run: another line has no row; rows that could not be measured are counted, not judged.",
                *lines,
            ]
        )

    def run(self, context: Context) -> ClaimResult:
        """Measure, then judge; each row says under `holds` what its criterion answers (None: not judged)."""
        rows = self.measure(context)
        verdict, statistic = self.judge(rows)
        criteria = {criterion.id: criterion for criterion in self.criteria}
        judged = [
            row | {"holds": bool(criteria[row["criterion"]].met(row)) if row["criterion"] and _measured(row) else None}
            for row in rows
        ]
        return ClaimResult(self.id, verdict, statistic, judged)

    def judge(self, rows: Sequence[Row]) -> tuple[Verdict, str]:
        """The verdict rule: a pure function of the rows' numbers; with the line that says what it rests on."""
        ran = [row for row in rows if _measured(row)]
        answers = {c.id: [(row, c.met(row)) for row in ran if row["criterion"] == c.id] for c in self.criteria}
        assert {row["criterion"] for row in rows} <= {None, *answers}
        names = dict.fromkeys(row.get("model") or row["quantity"] for row in rows if not _measured(row))
        left_out = f"; {len(names)} not run: {', '.join(names)}" if names else ""
        silent = [c for c in self.criteria if not answers[c.id]]
        unmeasured = f"not measured: {'; '.join(c.text for c in silent)}"
        # Only a row that says why it is missing excuses a line, and only one that is not decisive.
        excused = {row["criterion"] for row in rows if not _measured(row)}
        if any(c.decisive or c.id not in excused for c in silent):
            return "not_run", unmeasured + left_out
        failed = [(c, row) for c in self.criteria for row, met in answers[c.id] if not met]
        first = self.criteria[0]
        shown = failed or [(first, answers[first.id][0][0])]
        facts = []
        for c, row in shown[:2]:
            error = f" ± {_number(row, 'error'):.2g}" if row.get("error") != 0 else ""
            facts.append(f"{row['quantity']} {_number(row, 'measured'):.4g}{error} ({c.text})")
        more = f" and {len(failed) - 2} more" if len(failed) > 2 else ""
        count = sum(map(len, answers.values()))
        statistic = f"{count - len(failed)} of {count} comparisons hold; {'not: ' if failed else ''}{'; '.join(facts)}"
        statistic += more + (f"; {unmeasured}" if silent else "") + left_out
        if any(c.decisive for c, _ in failed):
            return "not_confirmed", statistic
        return "partly" if failed or silent else "confirmed", statistic
