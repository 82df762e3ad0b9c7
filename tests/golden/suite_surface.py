"""Golden surface: the help of every command, public names, schemas, and what is said of bad input."""

import importlib
import inspect
import json
import shutil
from pathlib import Path

from golden import adapter
from golden.errors import CASES, prepare
from golden.recording import Recorder, command_line

COMMANDS = (
    "", "probe", "compare", "circuits", "topics", "topics fit", "topics show", "theory", "theory value-matrix",
    "theory embedding", "theory attention", "theory landscape", "theory dynamics", "theory bayes", "train", "sweep",
    "reproduce", "report", "demo",
)  # fmt: skip
PACKAGES = ("topicscope", "topicscope.theory", "topicscope.lab", "topicscope.plot")  # some of them are to come


def record_surface(recorder: Recorder) -> None:
    """All of it."""
    for command in COMMANDS:
        code, out, err = command_line(*command.split(), "--help")
        recorder.put(f"help/{command or 'topicscope'}", {"code": code, "lines": (out + err).splitlines()})
    for package in PACKAGES:
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        recorder.put(f"api/{package}/__all__", sorted(module.__all__))
        for name in sorted(set(module.__all__) - {"__version__"}):
            found = getattr(module, name)
            if inspect.isfunction(found):
                recorder.put(f"api/{package}/{name}", list(inspect.signature(found).parameters))
    for schema in sorted((adapter.source_tree() / "schemas").glob("*.json")):
        recorder.put(f"schemas/{schema.stem}", json.loads(schema.read_text(encoding="utf-8")))
    _record_errors(recorder)


def _record_errors(recorder: Recorder) -> None:
    prepare(Path.cwd())
    before = {path for path in Path.cwd().rglob("*") if path.is_file()}
    for name, arguments in CASES.items():
        code, out, err = command_line(*arguments)
        recorder.put(f"errors/{name}", {"code": code, "lines": err.splitlines()[:3], "printed": bool(out)})
        left = sorted(str(path.relative_to(Path.cwd())) for path in Path.cwd().rglob("*") if path.is_file())
        new = [path for path in left if Path.cwd() / path not in before]
        recorder.put(f"errors/{name}/left behind", new)
        for path in new:
            (Path.cwd() / path).unlink()
        shutil.rmtree("out", ignore_errors=True)
