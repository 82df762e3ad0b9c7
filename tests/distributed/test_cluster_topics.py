"""Streamed topics on a Ray cluster: the topics of one process, to the last bit, whatever the number of workers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topics.test_lda import planted_passages
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.topics import Rate, expectation, fit_stream, load_topics

pytestmark = pytest.mark.cluster

PASSAGES = planted_passages(6, 20, 600, 20, seed=1)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_topics_of_one_process(
    workers: int, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectation, "PART", 50)
    alone = fit_stream(PASSAGES, 6, rate=Rate(batch=300), min_count=1)
    with Cluster("auto", workers=workers) as cluster:
        shared = fit_stream(PASSAGES, 6, rate=Rate(batch=300), min_count=1, runner=cluster)
    np.testing.assert_array_equal(shared.model.phi, alone.model.phi)
    assert shared.provenance["coherence"] == alone.provenance["coherence"]


def test_the_command_line_fits_on_a_cluster(ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in PASSAGES))
    common = ["--engine", "gensim", "--stream", "--topics", "4", "--min-count", "1", "--progress", "none"]
    for name, more in (("a.npz", []), ("b.npz", ["--cluster", "auto", "--workers", "2"])):
        assert cli(["topics", "fit", str(corpus), *common, *more, "--output", str(tmp_path / name)]) == 0
    a, b = (load_topics(tmp_path / name) for name in ("a.npz", "b.npz"))
    np.testing.assert_array_equal(a.model.phi, b.model.phi)
    assert "coherence" in capsys.readouterr().out
