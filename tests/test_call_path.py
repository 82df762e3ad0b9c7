"""The smallest probe and a short training run through no more of our code than they did."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Lower them when a path gets shorter. A feature that raises one should be worth reading through each time.
CEILINGS = {"probe": {"modules": 58, "functions": 364}, "train": {"modules": 33, "functions": 183}}


@pytest.mark.process
def test_call_path_stays_below_its_ceilings() -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "call_path.py"
    done = subprocess.run([sys.executable, str(script), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    over = {
        f"{command} {what}": count
        for command, counts in found.items()
        for what, count in counts.items()
        if count > CEILINGS[command][what]
    }
    assert over == {}
    assert found["probe"]["functions"] > 100  # else the profile saw nothing
