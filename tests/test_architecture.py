"""Imports go one way, so that no check can be circular and the room for a change can be found."""

import ast
from pathlib import Path

import topicscope

SOURCE = Path(topicscope.__file__).parent
ROOMS = {
    "records": set(),
    "topics": {"records"},
    "theory": {"records", "topics"},
    "models": {"records", "topics"},
    "training": {"records", "topics", "models"},
    "probing": {"records", "topics", "models"},
    # Above both: its numbers are a probe's, its rule on norms is that of training histories.
    "monitoring": {"records", "topics", "models", "training", "probing"},
    "report": {"records"},
    "claims": {"records", "topics", "theory", "models", "training", "probing"},
    # One training after another, each with its closed forms beside it: what `claims` does for single recipes.
    "sweeps": {"records", "models", "training", "claims"},
    "cluster": {"records", "topics", "models", "training", "probing"},
    "cli": {
        "records",
        "topics",
        "theory",
        "models",
        "training",
        "probing",
        "monitoring",
        "claims",
        "sweeps",
        "report",
        "cluster",
    },
}
# Leaves that every room may use.
LEAVES = {"errors", "jobs", "progress"}
# The one exception of design.md: results draw themselves by a lazy import of the report room, and `reproduce` its page.
MAY_DRAW = {"records", "probing", "training", "claims", "monitoring", "sweeps"}


def imports_of(path: Path) -> set[tuple[str, bool]]:
    """(room, inside a function) of every topicscope import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)}
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "topicscope" else [f"topicscope.{n.name}" for n in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "topicscope" and len(parts) > 1:
                found.add((parts[1], id(node) in lazy))
    return found


def violations(room: str, allowed: set[str]) -> list[str]:
    """Every import in `room` that design.md's direction forbids."""
    wrong = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        for target, lazy in imports_of(path):
            draws = target == "report" and lazy and room in MAY_DRAW
            if target in ROOMS and target != room and target not in allowed and not draws:
                wrong.append(f"{path.relative_to(SOURCE)} imports {target}")
    return wrong


def test_every_room_is_listed() -> None:
    assert {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"} <= set(ROOMS)


def test_imports_go_one_way() -> None:
    assert [line for room, allowed in ROOMS.items() for line in violations(room, allowed)] == []


def test_a_wrong_direction_is_noticed() -> None:
    assert violations("cli", set()) != []


def test_public_api_is_as_recorded() -> None:
    assert sorted(topicscope.__all__) == [
        "CheckpointSeries",
        "CircuitResult",
        "InputError",
        "PairClass",
        "ProbeResult",
        "RunError",
        "Setting",
        "SweepResult",
        "TopicModel",
        "TopicStructureCallback",
        "TopicStructureMonitor",
        "TopicscopeError",
        "UnsupportedModelError",
        "Vocabulary",
        "__version__",
        "circuits",
        "compare",
        "load_run",
        "probe",
        "probe_checkpoints",
        "reproduce",
        "sweep",
        "train",
    ]


def test_every_public_name_loads() -> None:
    assert all(getattr(topicscope, name) is not None for name in topicscope.__all__)
