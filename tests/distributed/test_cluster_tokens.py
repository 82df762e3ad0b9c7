"""Text tokenized on workers: the windows of one process, in the order of the text."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from distributed import cluster_work
from topicscope.demo import minilm_folder
from topicscope.distributed import Cluster, worker
from topicscope.errors import InputError, RunError
from topicscope.probing.tokens import AlignedUnit, Coverage, align_units
from topicscope.text import Unit, UnitReader, open_corpus

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(minilm_folder())


@pytest.fixture(scope="module")
def blocks() -> list[list[Unit]]:
    """Blocks of unequal sizes, so that later ones are often done earlier."""
    documents = [document for document, _ in zip(open_corpus("wikipedia-sample"), range(8), strict=False)]
    return [
        list(UnitReader([document], "sentence").units())[: 1 + 97 * (i % 3)] for i, document in enumerate(documents)
    ]


def aligned(workers: int, *arguments: Any) -> list[tuple[list[AlignedUnit], Coverage]]:
    tokenizer, blocks = arguments
    with Cluster("auto", workers=workers) as cluster:
        return list(cluster.align(tokenizer, iter(blocks), max_length=64, pieces="merge"))


@pytest.mark.parametrize("workers", [1, 4])
def test_blocks_come_back_in_order_as_one_process_aligns_them(
    workers: int, ray: Any, tokenizer: PreTrainedTokenizerBase, blocks: list[list[Unit]]
) -> None:
    expected = [align_units(tokenizer, block, max_length=64, pieces="merge") for block in blocks]
    assert aligned(workers, tokenizer, blocks) == expected


def test_a_block_whose_worker_dies_is_done_again(
    ray: Any,
    tokenizer: PreTrainedTokenizerBase,
    blocks: list[list[Unit]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marked = [blocks[0], [Unit(str(tmp_path), 0, "Rivers cross the plain."), *blocks[1]], blocks[2]]
    expected = [align_units(tokenizer, block, max_length=64, pieces="merge") for block in marked]
    monkeypatch.setattr(worker, "align", cluster_work.align_dying_once)
    assert aligned(2, tokenizer, marked) == expected
    assert (tmp_path / "died").exists()


def test_a_block_that_always_fails_ends_the_run(
    ray: Any, tokenizer: PreTrainedTokenizerBase, blocks: list[list[Unit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "align", cluster_work.refuses)
    with pytest.raises(RunError, match=r"(?s)could not be tokenised.*ValueError: not these"):
        aligned(2, tokenizer, blocks[:1])


def test_bad_input_is_said_as_in_one_process(
    ray: Any, tokenizer: PreTrainedTokenizerBase, blocks: list[list[Unit]]
) -> None:
    with pytest.raises(InputError) as here:
        align_units(tokenizer, blocks[0], max_length=2)
    with Cluster("auto", workers=1) as cluster, pytest.raises(InputError) as there:
        list(cluster.align(tokenizer, iter(blocks[:1]), max_length=2, pieces="skip"))
    assert str(there.value) == str(here.value)
