"""Two gloo processes under DDP: the first measures, the second waits for nothing, and both train as they would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import json, os, random, sys
from pathlib import Path
import torch
from monitoring.small_runs import THEMES, batches, documents, masked_bert, trained
from topicscope import TopicStructureCallback, TopicStructureMonitor

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
for kind in ("trainer", "loop"):  # the group that the Trainer opens serves the loop as well
    folder, losses = Path(sys.argv[1]) / kind, {}
    folder.mkdir(exist_ok=True)
    for watched in (False, True):
        random.seed(3)
        state = random.getstate()
        if kind == "trainer":
            callbacks = [TopicStructureCallback(THEMES, documents(), budget=None, on_error="raise")] if watched else []
            trainer = trained(folder / str(watched), callbacks)
            history = trainer.state.log_history
            losses[watched] = [row.get("loss") for row in history]
            weights = trainer.model.state_dict()
        else:
            model, tokenizer = masked_bert()
            parallel = torch.nn.parallel.DistributedDataParallel(model)
            if watched:
                options = {"topics": THEMES, "documents": documents(), "budget": None, "on_error": "raise"}
                monitor = TopicStructureMonitor(parallel, tokenizer, out=folder / "True", total_steps=6, **options)
            torch.manual_seed(rank)
            optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
            losses[watched] = []
            parallel.train()
            for batch in batches(tokenizer, 12)[rank::2]:
                loss = parallel(**batch).loss
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
                losses[watched].append(loss.item())
                if watched:
                    monitor.step()
            if watched:
                assert (monitor.finish() is None) == (rank == 1)
            weights = model.state_dict()
            assert random.getstate() == state
        total = float(sum(w.double().sum() for w in weights.values()))
        (folder / f"{rank}-{watched}.json").write_text(json.dumps([losses[watched], total]))
# The group is left open, and its threads may outlive the interpreter and abort a process that is done.
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The folders in which two processes, started once, have left what they did in each way of training."""
    folder = tmp_path_factory.mktemp("torchrun")
    script = folder / "run.py"
    script.write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", str(script)]
    done = subprocess.run(
        [*command, str(folder)],
        env=os.environ | {"PYTHONPATH": str(tests), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("kind", ["loop", "trainer"])
def test_symptom_28_rank_0_measures_and_nobody_waits(kind, left):
    folder = left / kind
    for rank in (0, 1):
        alone, watched = (json.loads((folder / f"{rank}-{w}.json").read_text()) for w in (False, True))
        assert watched == alone
    lines = [json.loads(line) for line in (folder / "True" / "topic_structure.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines].count("run") == 1
    steps = [line["step"] for line in lines if line["kind"] == "measurement"]
    assert steps == sorted(set(steps))
    assert len(steps) >= 6
