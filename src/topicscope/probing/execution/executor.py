"""What a probe asks of others that read the shards of its passes, and what they answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from topicscope.probing.config import ProbeOptions
from topicscope.probing.execution.state import PassSpec, Shard
from topicscope.probing.tokens import Aligner, TokenCache


class ModelSource(NamedTuple):
    """Where a model comes from: the arguments of `load_model`, and the hash of the weights that must be found."""

    name: str
    dtype: str | None
    revision: str | None
    trust_remote_code: str | None
    weights_hash: str


class ShardRead(NamedTuple):
    """A shard that was read elsewhere, with its numbers of documents and tokens; sums and rows lie in `folder`."""

    shard: Shard
    folder: Path
    documents: int
    tokens: int


class ShardLost(NamedTuple):
    """A shard that could not be read, after several tries."""

    shard: Shard
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Documents that a pass could not read, and why."""

    task: str
    reason: str
    documents: tuple[str, ...]


@runtime_checkable
class Elsewhere(Aligner, Protocol):
    """Who reads shards in place of this process; `device`: where the model computes there."""

    device: str

    def check(self, folder: Path) -> None:
        """Before any work: make sure that whoever reads can be used, and sees `folder`, that of the run."""

    def open(self, source: ModelSource, tokens: TokenCache, options: ProbeOptions) -> None:
        """Get ready to read these tokens with this model."""

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard], folder: Path
    ) -> Iterator[ShardRead | ShardLost]:
        """Every shard once, in any order, each by `passes.read_shard` in a folder shard-N.TRY inside `folder`.

        weights_seed: the seed of the random initialisation that reads; None: the model itself.
        """


def left_out_warnings(left_out: Sequence[LeftOut], documents: int) -> list[str]:
    """One line for each shard that was lost, with the first of its document ids."""
    lines = []
    for lost in left_out:
        some = ", ".join(lost.documents[:5]) + (", …" if len(lost.documents) > 5 else "")
        lines.append(
            f"{lost.task}: {len(lost.documents)} of {documents} documents were left out ({some}): {lost.reason}; "
            "--resume tries them again"
        )
    return lines
