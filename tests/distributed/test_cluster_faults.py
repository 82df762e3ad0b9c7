"""What fails on clusters: a worker or a machine goes, a shard cannot be read, the driver is killed, the cluster itself
goes. Nothing is lost or doubled, on a cluster that this machine belongs to and by Ray's client."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
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
from distributed.conftest import QUIET, TOKEN, free_port, started
from distributed.processes import descendants
from probing.test_probe_resume import same
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.errors import RunError
from topicscope.progress import SilentProgress

# Ray leaves files of a machine's logs open, where a machine is a part of this process.
RAY_S_OWN = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.cluster, pytest.mark.long, *map(pytest.mark.filterwarnings, RAY_S_OWN)]
POISON = "letter"  # a word of the tokenizer that no text of these tests has by chance
DRIVER = """
import json, sys
import topicscope
from topicscope.distributed import Cluster
address, model, corpus, out, options = sys.argv[1:]
with Cluster(address, workers=2) as cluster:
    topicscope.probe(model, documents=corpus, out=out, cluster=cluster, resume=True, **json.loads(options))
"""


@pytest.fixture(params=["auto", "ray://"])
def machines(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """Three machines of one processor each, all of them processes of this one, and the address of their cluster."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Machines

    port = free_port()
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
    found = started(lambda: Machines(initialize_head=True, head_node_args=head))
    try:
        for _ in range(2):
            started(lambda: found.add_node(num_cpus=1))
        if request.param == "auto":
            ray.init(address=found.address, **{k: v for k, v in QUIET.items() if k != "include_dashboard"})
        yield found, "auto" if request.param == "auto" else f"ray://127.0.0.1:{port}"
    finally:
        ray.shutdown()
        found.shutdown()


class AtWork(SilentProgress):
    """Does something once, when a shard was read and all three workers are at work."""

    def __init__(self, act: Any) -> None:
        self.act, self.done = act, False

    def note(self, task: str, figures: dict[str, float]) -> None:
        # Each machine has room for one worker; until all three are at work the one removed might be idle.
        if not self.done and len(descendants("ray::call")) >= 2:
            self.done = True
            self.act()


def probed(address: str, model: Path, corpus: Path, out: Path, progress: SilentProgress) -> None:
    with Cluster(address, workers=3) as cluster:
        result = topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, cluster=cluster, progress=progress)
    assert result.complete


def test_a_machine_that_goes_is_done_without(
    machines: tuple[Any, str], model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    found, address = machines
    progress = AtWork(lambda: found.remove_node(found.list_all_nodes()[-1], allow_graceful=False))
    probed(address, model, corpus, tmp_path / "run", progress)
    assert progress.done
    same(whole, tmp_path / "run")


def test_a_worker_that_is_killed_is_replaced(
    machines: tuple[Any, str], model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    progress = AtWork(lambda: os.kill(descendants("ray::call")[-1], signal.SIGKILL))
    probed(machines[1], model, corpus, tmp_path / "run", progress)
    assert progress.done
    same(whole, tmp_path / "run")


def test_a_cluster_that_goes_ends_the_run_which_goes_on_without_it(
    machines: tuple[Any, str], model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    found, address = machines
    if address == "auto":
        pytest.skip("a driver is a part of such a cluster, and Ray ends it with the cluster: see the killed driver")
    with pytest.raises(RunError, match=r"(?s)cluster is gone.*--resume") as caught:
        probed(address, model, corpus, tmp_path / "run", AtWork(found.shutdown))
    assert caught.value.exit_code == 1
    assert list((tmp_path / "run.unfinished" / "model").glob("*.safetensors"))
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "run", resume=True)
    same(whole, tmp_path / "run")


@pytest.mark.parametrize("address", ["local", "ray://"])
def test_a_killed_driver_is_resumed(
    address: str, request: pytest.FixtureRequest, model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    """Its workers end with it; the next run, of two workers and then of one process, goes on to the same numbers."""
    left = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # what a killed driver cannot remove
    environment = os.environ | {"RAY_TMPDIR": left}
    out, titles = tmp_path / "run", ["ray::call"]
    if address == "local":
        titles += ["raylet/raylet", "gcs_server"]
    else:
        address = request.getfixturevalue("head")
        environment |= {"RAY_AUTH_TOKEN": TOKEN}
    arguments = [sys.executable, "-c", DRIVER, address, str(model), str(corpus), str(out), json.dumps(OPTIONS)]
    for task in ("model", "control-0"):
        driver = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        folder = tmp_path / "run.unfinished" / task
        while not list(folder.glob("*.safetensors")):
            assert driver.poll() is None
            time.sleep(0.005)
        # Ray's helpers look for their parent from time to time only, and end by themselves later.
        others = [process for title in titles for process in descendants(title)]
        assert len(others) >= len(titles)
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


def test_a_poisoned_shard_is_reported_and_the_rest_is_read(
    machines: tuple[Any, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    command += ["--cluster", machines[1], "--workers", 2, "--out", tmp_path / "run", "--json"]
    for more in ((), ("--resume",)):  # the second time only that shard is tried
        assert cli([*map(str, [*command, *more])]) == 1
        result = json.loads(capsys.readouterr().out)
        [lost] = result["coverage"]["left_out"]
        assert "doc7" in lost["documents"]
        assert lost["task"] == "reading"
        assert "do not sum to 1" in lost["reason"]
        [warning] = [warning for warning in result["warnings"] if "left out" in warning]
        assert f"{len(lost['documents'])} of 40 documents" in warning
        with np.load(tmp_path / "run" / "moments.npz") as moments:
            assert int(moments["encoder/documents"]) == 40 - len(lost["documents"])
    assert (tmp_path / "run.unfinished").is_dir()
