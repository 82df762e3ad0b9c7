"""Record golden results of whatever topicscope is imported: `python -m golden.record OUT [--part NAME ...] [--long]`.

Every part runs in an empty folder of its own with caches of its own, one thread and no network, and leaves PART.json
and PART.npz in OUT.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

SETTLED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "agg",
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "TZ": "UTC",
}


def parts() -> dict[str, tuple[str, str]]:
    """Name of a part: module and function; those of LONG are left to `make test-golden-long`."""
    return {
        "surface": ("suite_surface", "record_surface"),
        "theory": ("suite_theory", "record_theory"),
        "train": ("suite_train", "record_trainings"),
        "sweep": ("suite_train", "record_sweep"),
        "probe": ("suite_probe", "record_probes"),
        "watch": ("suite_watch", "record_watching"),
        "fitted": ("suite_probe", "record_fitted"),
        "minilm": ("suite_probe", "record_minilm"),
        "claims": ("suite_claims", "record_two_claims"),
        "reproduce": ("suite_claims", "record_claims"),
    }


LONG = ("reproduce",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", action="append", choices=list(parts()))
    parser.add_argument("--long", action="store_true", help="the parts that take minutes as well")
    parser.add_argument("--source", type=Path, help="the checkout that must be the one imported")
    chosen = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in SETTLED.items()):
        os.execve(sys.executable, [sys.executable, "-m", "golden.record", *sys.argv[1:]], os.environ | SETTLED)
    names = chosen.part or [name for name in parts() if chosen.long or name not in LONG]
    from golden.adapter import source_tree

    if chosen.source is not None and source_tree() != chosen.source.resolve():
        sys.exit(f"topicscope is imported from {source_tree()}, not from {chosen.source}")
    record(chosen.out.absolute(), names)


def record(out: Path, names: list[str]) -> None:
    """Record these parts, each in its own folder."""
    import importlib

    import torch

    from golden import adapter
    from golden.material import write_material
    from golden.recording import Recorder

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    here = Path.cwd()
    for name in names:
        module, function = parts()[name]
        run: Callable[[Recorder], None] = getattr(importlib.import_module(f"golden.{module}"), function)
        began, cpu = time.monotonic(), time.process_time()
        work = Path(tempfile.mkdtemp(prefix="golden-")).resolve()
        os.environ["TOPICSCOPE_CACHE"] = str(work / "cache")
        (work / "work").mkdir()
        os.chdir(work / "work")
        try:
            write_material(Path.cwd())
            recorder = Recorder(name)
            recorder.put("numbers-version", {"version": adapter.find("numbers version", None)})
            run(recorder)
            recorder.save(out)
        finally:
            os.chdir(here)
            shutil.rmtree(work, ignore_errors=True)
        values = sum(array.size for array in recorder.arrays.values())
        took = f"{time.monotonic() - began:.0f} s ({time.process_time() - cpu:.0f} s of CPU)"
        sys.stderr.write(f"golden {name}: {took}, {values} array values\n")


if __name__ == "__main__":
    main()
