"""Shards read by others, in any order and by several runs, give what one process reads, to the last bit."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from transformers import PreTrainedTokenizerBase

import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS as OPTIONS
from cli.probe_files import corpus_of_shards, save_model, undrawn
from probing.test_probe_resume import Stop, StopsAt, same
from topicscope.errors import InputError, RunError
from topicscope.probing.execution import (
    ModelSource,
    PassSpec,
    Shard,
    ShardExecutor,
    ShardLost,
    ShardRead,
    read_shard,
    shard_chunks,
)
from topicscope.probing.execution import forward_pass as passes
from topicscope.probing.execution.state import plan_shards
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.results import ProbeResult
from topicscope.probing.tokens import AlignedUnit, Coverage, TokenCache, align_units
from topicscope.text import Unit


class Shuffled:
    """Reads in this process, in an order of its own; loses shards of the first pass; may be stopped."""

    device = "cpu"

    def __init__(self, seed: int, lose: Sequence[int] = (), stop_after: int | None = None) -> None:
        self.order, self.lose, self.left = np.random.default_rng(seed), set(lose), stop_after
        self.read_shards: list[tuple[str, int]] = []
        self.blocks = 0

    def align(
        self,
        tokenizer: PreTrainedTokenizerBase,
        blocks: Iterator[Sequence[Unit]],
        *,
        max_length: int,
        pieces: Literal["skip", "merge"],
    ) -> Iterator[tuple[list[AlignedUnit], Coverage]]:
        for block in list(blocks):  # all of the text is read before the first block comes back
            self.blocks += 1
            yield align_units(tokenizer, block, max_length=max_length, pieces=pieces)

    def open(self, source: ModelSource, view: ModelView, tokens: TokenCache) -> None:
        self.view, self.tokens = load_model(source.name, dtype=source.dtype), tokens
        assert self.view.weights_hash() == source.weights_hash

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard]
    ) -> Iterator[ShardRead | ShardLost]:
        view = self.view if weights_seed is None else self.view.randomised(weights_seed)
        for place in self.order.permutation(len(shards)):
            shard = shards[place]
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Stop
            if spec.task == "reading" and shard.number in self.lose:
                yield ShardLost(shard, "it is poisoned")
                continue
            self.read_shards.append((spec.task, shard.number))
            yield ShardRead(shard, *read_shard(view, spec, shard_chunks(self.tokens, shard)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny-bert")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of_shards(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """States are saved after every chunk; nothing is drawn, which takes longer than all the rest."""
    with undrawn() as patch:
        patch.setattr(passes, "SECONDS_PER_SHARD", 0)
        yield


@pytest.fixture(scope="module")
def whole(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out)
    return out


def run(model: Path, corpus: Path, out: Path, **more: Any) -> Any:
    return topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, **more)


def test_shards_hold_whole_documents_once_and_in_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.integers(1, 30, rng.integers(1, 40))
        ends, least = np.cumsum(sizes), int(rng.integers(1, 60))
        plan = plan_shards(ends, least)
        assert [unit for shard in plan for unit in range(shard.start, shard.stop)] == list(range(ends[-1]))
        assert {shard.stop for shard in plan} <= set(ends.tolist())
        assert [shard.number for shard in plan] == list(range(len(plan)))
        assert all(shard.stop - shard.start >= least for shard in plan[:-1])
        # No shard goes on for longer than it must: without its last document it would be too small.
        last = {int(end): int(size) for end, size in zip(ends, sizes, strict=True)}
        assert all(shard.stop - shard.start - last[shard.stop] < least for shard in plan)


def test_where_a_text_is_cut_into_shards_moves_last_digits_only(model: Path, corpus: Path, whole: Path) -> None:
    uncut = topicscope.probe(str(model), documents=corpus, **OPTIONS | {"shard_units": None})
    cut = ProbeResult.load(whole)
    assert uncut.documents["units"].max() > 32
    pd.testing.assert_frame_equal(cut.rows, uncut.rows, rtol=1e-5)  # batches differ, so float32 rounds otherwise
    first, second = (result.documents.sort_values(["document_id", "threshold"]) for result in (cut, uncut))
    pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True), rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_any_order_gives_the_bits_of_one_process(
    seed: int, model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    readers = Shuffled(seed)
    assert isinstance(readers, ShardExecutor)
    run(model, corpus, tmp_path / "run", cluster=readers)
    same(whole, tmp_path / "run")
    assert readers.blocks > 0
    numbers = [number for task, number in readers.read_shards if task == "reading"]
    assert len(numbers) > 4
    assert numbers != sorted(numbers)
    assert sorted(readers.read_shards) == sorted(set(readers.read_shards)), "no shard is read twice"
    assert not (tmp_path / "run.unfinished").exists()


def test_a_lost_shard_is_reported_and_read_when_the_run_goes_on(
    model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run(model, corpus, out, cluster=Shuffled(0, lose=[1, 3]))
    left_out = result.coverage["left_out"]
    read = set(result.documents["document_id"])
    missing = {document for lost in left_out for document in lost["documents"]}
    assert len(left_out) == 2
    assert missing
    assert read | missing == {str(i) for i in range(1, 41)}
    assert not read & missing
    assert not result.complete
    assert not result.interrupted
    [first, second] = [warning for warning in result.warnings if "left out" in warning]
    assert left_out[0]["documents"][0] in first + second
    assert "poisoned" in first
    # The rest is counted as it would be without those documents.
    assert result.documents.groupby("document_id")["units"].first().sum() < 4 * 40 + 64
    again = Shuffled(1)
    assert run(model, corpus, out, cluster=again, resume=True).complete
    assert sorted(again.read_shards) == [("reading", 1), ("reading", 3)], "only what is missing is read"
    same(whole, out)
    assert not (tmp_path / "run.unfinished").exists()


@pytest.mark.parametrize("first", ["cluster", "machine"])
def test_a_run_begun_here_goes_on_there(first: str, model: Path, corpus: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped, others = {"cluster": Shuffled(2, stop_after=4)}, {"progress": StopsAt("reading", 90)}
    with pytest.raises(Stop):
        run(model, corpus, out, **(stopped if first == "cluster" else others))
    run(model, corpus, out, **({} if first == "cluster" else {"cluster": Shuffled(3)}), resume=True)
    same(whole, out)


def test_runs_stopped_at_every_shard_lose_and_double_nothing(
    model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    out, read = tmp_path / "run", []
    for seed in range(100):
        readers = Shuffled(seed, stop_after=3)
        try:
            run(model, corpus, out, cluster=readers, resume=True)
        except Stop:
            read += readers.read_shards
            continue
        read += readers.read_shards
        break
    assert len(read) > 9
    assert len(read) == len(set(read)), "a shard that was read once is not read again"
    same(whole, out)


def test_a_text_of_which_nothing_can_be_read_is_an_error(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)not one shard.*poisoned.*--resume"):
        run(model, corpus, tmp_path / "run", cluster=Shuffled(0, lose=range(99)))


def test_a_damaged_shard_is_named(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run(model, corpus, tmp_path / "run", cluster=Shuffled(0, lose=[0], stop_after=4))
    [shard, *_] = sorted((tmp_path / "run.unfinished" / "model").glob("shard-*"))
    shard.write_bytes(b"half")
    with pytest.raises(InputError, match=r"(?s)shard.*cannot be read") as caught:
        run(model, corpus, tmp_path / "run", cluster=Shuffled(1), resume=True)
    assert str(shard) in str(caught.value)


def test_what_a_cluster_cannot_do_is_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="out=FOLDER"):
        topicscope.probe(str(model), documents=corpus, **OPTIONS, cluster=Shuffled(0))
    with pytest.raises(InputError, match="name or folder"):
        topicscope.probe(load_model(str(model)), documents=corpus, **OPTIONS, cluster=Shuffled(0), out=tmp_path / "run")
