"""Who reads the shards of a probe in place of this process, and what they answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from topicscope.probing.execution.state import PassSpec, Shard
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import Aligner, TokenCache


class ModelSource(NamedTuple):
    """Where a model comes from: the arguments of `load_model`, and the hash of the weights that must be found."""

    name: str
    dtype: str | None
    revision: str | None
    trust_remote_code: str | None
    weights_hash: str


class ShardRead(NamedTuple):
    """A shard that was read, as `read_shard` gives it: its content, and the numbers of its documents and tokens."""

    shard: Shard
    data: bytes
    documents: int
    tokens: int


class ShardLost(NamedTuple):
    """A shard that could not be read."""

    shard: Shard
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Documents that a pass could not read, and why."""

    task: str
    reason: str
    documents: tuple[str, ...]


@runtime_checkable
class ShardExecutor(Aligner, Protocol):
    """Who tokenizes text and reads shards in place of this process; `device`: where the model computes there."""

    device: str

    def open(self, source: ModelSource, view: ModelView, tokens: TokenCache) -> None:
        """Get ready to read these tokens with this model, which `view` holds here."""

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard]
    ) -> Iterator[ShardRead | ShardLost]:
        """Every shard once, in any order.

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
