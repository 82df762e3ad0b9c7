"""What fails on clusters: a machine goes, a shard cannot be read, the driver is killed. Nothing is lost or doubled."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS as OPTIONS
from cli.probe_files import WORDS_CSV, jsonl, texts
from distributed import job_work
from distributed.conftest import QUIET, started
from distributed.processes import descendants
from probing.test_probe_resume import same
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.progress import SilentProgress
from topicscope.runner import Finished, Job

pytestmark = [pytest.mark.cluster, pytest.mark.long]
POISON = "letter"  # a word of the tokenizer that no text of these tests has by chance
DRIVER = """
import json, sys
import topicscope
from topicscope.distributed import Cluster
model, corpus, out, options = sys.argv[1:]
with Cluster("local", workers=2) as cluster:
    topicscope.probe(model, documents=corpus, out=out, cluster=cluster, resume=True, **json.loads(options))
"""


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Three machines of one processor each, all of them processes of this one."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Machines

    machines = started(
        lambda: Machines(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    )
    try:
        for _ in range(2):
            started(lambda: machines.add_node(num_cpus=1))
        ray.init(address=machines.address, **{k: v for k, v in QUIET.items() if k != "include_dashboard"})
        yield machines
    finally:
        ray.shutdown()
        machines.shutdown()


@pytest.fixture(scope="module")
def whole(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out)
    return out


class Removes(SilentProgress):
    """Takes a machine away, with the worker on it, once the first shard was read."""

    def __init__(self, machines: Any) -> None:
        self.machines, self.removed = machines, False

    def note(self, task: str, figures: dict[str, float]) -> None:
        # Each machine has room for one worker; until all three are at work the one removed might be idle.
        if not self.removed and len(descendants("ray::Worker")) == 3:
            self.removed = True
            self.machines.remove_node(self.machines.list_all_nodes()[-1], allow_graceful=False)


def test_a_machine_that_goes_is_done_without(
    nodes: Any, model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    removes = Removes(nodes)
    with Cluster("auto", workers=3) as cluster:
        result = topicscope.probe(
            str(model), documents=corpus, **OPTIONS, out=tmp_path / "run", cluster=cluster, progress=removes
        )
    assert removes.removed
    assert result.complete
    same(whole, tmp_path / "run")


def test_the_job_of_a_machine_that_goes_is_done_by_another(nodes: Any, tmp_path: Path) -> None:
    def remove() -> None:
        while len(list(tmp_path.glob("began-*"))) < 3:
            time.sleep(0.05)
        workers = [Path("/proc") / path.name.rpartition("-")[2] for path in tmp_path.glob("began-*")]
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        while all(worker.exists() for worker in workers):
            time.sleep(0.05)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=remove)
    thread.start()
    with Cluster("auto", workers=3) as cluster:
        done = list(cluster.run(job_work.waits, [Job(str(number), (number, tmp_path)) for number in range(3)]))
    thread.join()
    assert {one.value for one in done if isinstance(one, Finished)} == {0, 1, 2}
    assert len(list(tmp_path.glob("began-*"))) == 4, "one of them twice"


def test_a_killed_driver_is_resumed(model: Path, corpus: Path, whole: Path, tmp_path: Path) -> None:
    """Its workers end with it; the next run, of two workers and then of one process, goes on to the same numbers."""
    left = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # what a killed driver cannot remove
    environment = os.environ | {"RAY_TMPDIR": left}
    out = tmp_path / "run"
    arguments = [sys.executable, "-c", DRIVER, str(model), str(corpus), str(out), json.dumps(OPTIONS)]
    for task in ("model", "control-0"):
        driver = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        folder = tmp_path / "run.unfinished" / task
        while not list(folder.glob("shard-*/state.safetensors")) + list(folder.glob("state.safetensors")):
            assert driver.poll() is None
            time.sleep(0.005)
        # Ray's helpers look for their parent from time to time only, and end by themselves later.
        others = [process for title in ("ray::Worker", "raylet/raylet", "gcs_server") for process in descendants(title)]
        assert len(others) >= 3
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        until = time.monotonic() + 60
        while any(Path(f"/proc/{process}").exists() for process in others) and time.monotonic() < until:
            time.sleep(0.1)
        assert not [process for process in others if Path(f"/proc/{process}").exists()]
    assert not out.exists()
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, resume=True)
    same(whole, out)
    shutil.rmtree(left, ignore_errors=True)


def test_a_poisoned_shard_is_reported_and_the_rest_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A word whose embedding is not a number makes every unit that holds it impossible to read."""
    network, tokenizer = tiny.build("bert")
    with torch.no_grad():
        network.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(POISON)] = float("nan")
    network.save_pretrained(tmp_path / "poisoned")
    tokenizer.save_pretrained(tmp_path / "poisoned")
    documents = texts(40)
    documents[7] = f"The {POISON} is on the bridge. " + documents[7]
    corpus, words = jsonl(tmp_path / "corpus.jsonl", documents), tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    command = ["probe", tmp_path / "poisoned", "--corpus", corpus, "--topics", words, "--controls", 1]
    command += ["--permutations", 0, "--profile", 0, "--shard-units", 32, "--id-column", "id", "--progress", "none"]
    command += ["--cluster", "local", "--workers", 2, "--out", tmp_path / "run", "--json"]
    for more in ((), ("--resume",)):  # the second time only that shard is tried
        assert cli([*map(str, [*command, *more])]) == 1
        result = json.loads(capsys.readouterr().out)
        [lost] = result["coverage"]["left_out"]
        assert "doc7" in lost["documents"]
        assert lost["task"] == "reading"
        assert "do not sum to 1" in lost["reason"]
        assert "tried 4 times" in lost["reason"]
        [warning] = [warning for warning in result["warnings"] if "left out" in warning]
        assert f"{len(lost['documents'])} of 40 documents" in warning
        with np.load(tmp_path / "run" / "moments.npz") as moments:
            assert int(moments["encoder/documents"]) == 40 - len(lost["documents"])
    assert (tmp_path / "run.unfinished").is_dir()
