"""Claims as jobs: the document, files and page of one process, whoever runs which claim and whenever it ends."""

import json
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from claims.test_claims_frame import make, rows
from shuffled import Shuffled
from topicscope.claims import CLAIMS
from topicscope.claims.claim import exact_row
from topicscope.claims.context import Context
from topicscope.errors import InputError, RunError
from topicscope.runner import Here

frame = import_module("topicscope.claims.reproduce")

SMALL = ("training.steps=3", "history.documents=4", "training.batch_size=4")


@pytest.fixture
def toys(monkeypatch):
    """Three toy claims, of which the outer ones share what is read once; every call, and every reading."""
    calls, read = [], []

    def toy(name, shares=None):
        def measure(context):
            calls.append(name)
            context.train("value-matrix", *SMALL)
            if shares:
                context.once(shares, lambda: read.append(name))
            return [*rows(), exact_row(None, "float", 0.1 + len(name) / 3)]

        claim = make(measure, name)
        return claim if shares is None else type(claim)(**vars(claim) | {"shares": shares})

    monkeypatch.setattr(frame, "CLAIMS", (toy("first", "text"), toy("second"), toy("third", "text")))
    monkeypatch.setattr("topicscope.report.write_reproduction", lambda folder, drawn: None)
    return calls, read


def written(folder: Path) -> dict:
    """Every number of a reproduction: claims.json, and what is finished without times."""
    finished = {path.name: json.loads(path.read_text()) | {"seconds": 0} for path in (folder / "finished").iterdir()}
    runs = sorted(path.name for path in (folder / "runs").iterdir())
    return {"claims.json": json.loads((folder / "claims.json").read_text()), "runs": runs, **finished}


def test_the_files_are_those_of_one_process(toys, tmp_path) -> None:
    calls, read = toys
    expected = frame.reproduce(out=tmp_path / "here")
    assert read == ["first"]
    for number in range(3):
        runner, out = Shuffled(number), tmp_path / str(number)
        calls.clear()
        read.clear()
        done = frame.reproduce(out=out, cluster=runner)
        assert done.to_dict() == expected.to_dict()
        assert written(out) == written(tmp_path / "here")
        assert sorted(runner.done) == ["second", "text"], "claims that share are one job"
        assert read == ["first"]
        assert runner.checked == [out]
    # The page was written as the claims came, always in the catalogue's order: kept ones are not run again.
    calls.clear()
    assert frame.reproduce(["second"], out=out, cluster=runner, resume=True).to_dict() == expected.to_dict()
    assert calls == []


def test_each_end_is_written_in_the_order_of_the_catalogue(toys, tmp_path, monkeypatch) -> None:
    seen = []

    def page(folder, drawn):
        seen.append([entry["id"] for entry in json.loads((folder / "claims.json").read_text())["claims"]])

    monkeypatch.setattr("topicscope.report.write_reproduction", page)
    reverse = next(seed for seed in range(9) if Shuffled(seed).rng.permutation(2).tolist() == [1, 0])
    frame.reproduce(out=tmp_path / "run", cluster=Shuffled(reverse))
    assert seen == [["second"], ["first", "second"], ["first", "second", "third"]]


def test_what_failed_is_named_and_alone_is_run_again(toys, tmp_path) -> None:
    calls, _ = toys
    with pytest.raises(RunError, match=r"(?s)2 of 3 claims.*first: its worker died; third: its worker died.*--resume"):
        frame.reproduce(out=tmp_path / "run", cluster=Shuffled(failing=["text"]))
    assert [entry["id"] for entry in json.loads((tmp_path / "run" / "claims.json").read_text())["claims"]] == ["second"]
    frame.reproduce(out=tmp_path / "run", cluster=Here(), resume=True)
    assert calls == ["second", "first", "third"]


def test_a_cluster_needs_a_folder_that_it_sees(toys, tmp_path) -> None:
    class Refuses(Here):
        def check(self, folder):
            raise InputError("the workers cannot write to the output folder")

    with pytest.raises(InputError, match="cluster needs a folder"):
        frame.reproduce(cluster=Here())
    with pytest.raises(InputError, match="workers cannot write"):
        frame.reproduce(out=tmp_path / "run", cluster=Refuses())
    assert list(tmp_path.iterdir()) == []


def test_claims_that_read_the_same_text_say_so() -> None:
    modules = {claim.id: Path(sys.modules[claim.measure.__module__].__file__).read_text() for claim in CLAIMS}
    assert {claim.id for claim in CLAIMS if claim.shares} == {"ambiguous-words", "co-occurrence"}
    assert all((claim.shares is not None) == ("wikipedia(context)" in modules[claim.id]) for claim in CLAIMS)


TRAIN = """
import sys
from pathlib import Path
from topicscope.claims.context import Context
from topicscope.progress import SilentProgress

class Counts(SilentProgress):
    def start(self, task, total, unit):
        print("trained", flush=True)

Context(2, folder=Path(sys.argv[1]), shared=True, progress=Counts()).train("value-matrix", *sys.argv[2:])
"""


def test_two_processes_that_want_one_run_train_it_once(tmp_path) -> None:
    command = [sys.executable, "-c", TRAIN, str(tmp_path), "training.steps=300"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(said) == ["", "trained\n"]
    [run] = [path for path in tmp_path.iterdir() if path.name != "locks"]
    assert (run / "summary.json").is_file()


def test_a_run_that_another_holds_is_waited_for(tmp_path) -> None:
    first, second = (Context(2, folder=tmp_path, shared=True) for _ in range(2))
    done = []
    thread = threading.Thread(target=lambda: done.append(second.train("value-matrix", *SMALL)))
    path = "value-matrix-" + "0" * 10
    with first._alone(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicscope.claims.context.hashlib.sha256", lambda _: Digest())
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert done == []
    thread.join(60)
    assert len(done) == 1


class Digest:
    def hexdigest(self) -> str:
        return "0" * 64
