"""Memory does not depend on how much text there is, and tokens are made once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.probe_files import WORDS_CSV, save_model

# A corpus that is never in memory, read through the whole of `topicscope.probe`, with topics from a word list.
DRIVER = """
import json, random, resource, sys
import topicscope
from topicscope.probing.execution import forward_pass as passes
model, words, out, number = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
pool = [line.split(",")[0] for line in open(words).read().splitlines()[1:]]

class Texts:
    def __iter__(self):
        for i in range(number):
            draw = random.Random(i)
            yield f"document {i} of a synthetic corpus", " ".join(draw.choices(pool, k=6)) + "."

passes.SECONDS_PER_SHARD = 1.0
result = topicscope.probe(model, documents=Texts(), topics=words, controls=0, out=out)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"documents": result.headline["documents"], "peak_mib": peak / 1024}))
"""


def peak_mib(number: int, folder: Path) -> float:
    words = folder / "words.csv"
    words.write_text(WORDS_CSV)
    model = save_model(folder / "tiny-bert")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(model), str(words), str(folder / f"run-{number}"), str(number)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOPICSCOPE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["documents"] == number
    return float(found["peak_mib"])


@pytest.mark.long
def test_memory_is_flat_from_a_thousand_to_a_hundred_thousand_documents(tmp_path: Path) -> None:
    few, many = peak_mib(1_000, tmp_path), peak_mib(100_000, tmp_path)
    assert many < 1.1 * few, f"{few:.0f} MiB with 1,000 documents, {many:.0f} MiB with 100,000"
