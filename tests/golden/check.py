"""`make test-golden`: the base commit and this one on the same machine, compared exactly.

The base is taken out of git into build/golden and recorded there once for each state of the recorder and of the
installed packages. Where git does not have it (a shallow clone), the committed values are compared within tolerances.
"""

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from golden import compare, expected, record, values

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "golden"
_NOT_RECORDING = {"check.py", "compare.py", "expected.py", "values.py", "schemas.py"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="the parts that take minutes as well")
    parser.add_argument("--part", action="append", choices=list(record.parts()))
    parser.add_argument("--committed", action="store_true", help="compare with the committed values in any case")
    parser.add_argument("--write", action="store_true", help="write the committed values, from the base commit")
    chosen = parser.parse_args()
    parts = chosen.part or [name for name in record.parts() if chosen.long or name not in record.LONG]
    base = base_commit()
    head, kept = BUILD / "head", BUILD / f"base-{(base or '')[:12]}-{digest()}"
    shutil.rmtree(head, ignore_errors=True)
    runs = [] if chosen.write else [start(ROOT, head, parts)]
    for old in BUILD.glob("base-*"):
        if old != kept:
            shutil.rmtree(old)
    missing = [name for name in parts if not (kept / f"{name}.json").is_file()]
    if base is not None and not chosen.committed and missing:
        runs.append(start(checked_out(base), kept, missing))
    codes = [run.wait() for run in runs]  # both, before one that failed is reported
    if any(codes):
        sys.stderr.write("the golden results could not be recorded\n")
        return 1
    if chosen.write:
        values.write(of_parts(compare.load(kept), [name for name in parts if name not in values.LEFT_OUT]))
        return 0
    wanted, now = expected.Expected.read(), compare.load(head)
    judged = None if set(parts) == set(record.parts()) else parts
    if base is not None and not chosen.committed:
        found = compare.compare(of_parts(compare.load(kept), parts), now, wanted, parts=judged)
    else:
        sys.stderr.write("compared with the committed values, within tolerances: the base commit is not used\n")
        shared = [name for name in parts if name not in values.LEFT_OUT]
        before, after = of_parts(values.read(), shared), values.reduced(of_parts(now, shared))
        found = compare.compare(
            before, after, wanted, tolerance=values.ACROSS_PROCESSORS, looser=values.LOOSER, parts=judged
        )
    sys.stderr.write(found.text() + "\n")
    if not found.fine:
        sys.stderr.write("If a difference is meant, say so with its reason in tests/golden/EXPECTED_CHANGES.md.\n")
    return int(not found.fine)


def of_parts(recorded: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """The values of these parts."""
    return {key: value for key, value in recorded.items() if key.partition("/")[0] in parts}


def base_commit() -> str | None:
    """The commit named in BASE, where git has it."""
    name = (HERE / "BASE").read_text(encoding="utf-8").strip()
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{name}^{{commit}}"]
    known = subprocess.run(asked, capture_output=True, check=False)
    return name if known.returncode == 0 else None


def checked_out(base: str) -> Path:
    """The files of the base commit that a recording needs, under build/golden."""
    tree = BUILD / f"tree-{base[:12]}"
    if not tree.exists():
        names = [name for name in ("src", "recipes", "schemas") if _has(base, name)]
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", base, *names], capture_output=True, check=True
        ).stdout
        fresh = tree.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(fresh, filter="data")
        fresh.rename(tree)
    return tree


def _has(base: str, name: str) -> bool:
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{base}:{name}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def digest() -> str:
    """Of the recorder, of the tiny models and of every installed package: what a recording of the base depends on."""
    files = [path for path in sorted(HERE.glob("*.py")) if path.name not in _NOT_RECORDING]
    files += sorted(ROOT.glob("tests/**/tiny.py"))
    installed = sorted(f"{found.name}=={found.version}" for found in metadata.distributions())
    parts = [*(path.read_bytes() for path in files), "\n".join(installed).encode(), sys.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def start(tree: Path, out: Path, parts: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Record a tree in another process."""
    paths = [str(tree / "src"), str(HERE.parent)]
    command = [sys.executable, "-m", "golden.record", str(out), "--source", str(tree)]
    command += [word for name in parts for word in ("--part", name)]
    return subprocess.Popen(command, env=os.environ | record.SETTLED | {"PYTHONPATH": os.pathsep.join(paths)})


if __name__ == "__main__":
    sys.exit(main())
