"""Imports go one way, so that no check can be circular and the package for a change can be found."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import topicscope

SOURCE = Path(topicscope.__file__).parent
# Modules at the top that every package may use; they import nothing but `errors`.
LEAVES = {"errors", "options", "progress", "runner", "lazy"}
# What each package may import besides, lowest first.
PACKAGES = {
    "demo": set(),
    "records": set(),
    "text": {"records"},
    "topics": {"records", "text"},
    "synthetic": {"records", "text", "topics"},
    # These two do not know each other: a check of one by the other cannot be circular.
    "theory": {"records", "synthetic"},
    "lab": {"records", "topics", "synthetic"},
    "probing": {"demo", "records", "text", "topics", "lab"},
    # Its numbers are a probe's, its rule on norms is that of training histories.
    "monitoring": {"records", "text", "topics", "synthetic", "lab", "probing"},
    "distributed": {"records", "text", "topics", "lab", "probing"},
    "experiments": {"demo", "records", "text", "topics", "synthetic", "theory", "lab", "probing"},
    "claims": {"demo", "records", "text", "topics", "synthetic", "theory", "lab", "probing", "experiments"},
    "report": {"records"},
    "cli": {
        "demo",
        "records",
        "text",
        "topics",
        "synthetic",
        "theory",
        "lab",
        "probing",
        "monitoring",
        "distributed",
        "experiments",
        "claims",
        "report",
    },
}
# The same inside probing: sub-packages, and the modules that stand beside them.
PROBING = {
    "config": set(),
    "tokens": {"config"},
    "hf": {"tokens"},
    "attention": {"config", "tokens", "hf"},
    "statistics": {"tokens", "attention"},
    "inputs": {"config", "hf", "attention"},
    "embeddings": {"config", "tokens", "hf", "attention", "statistics"},
    "circuits": {"config", "tokens", "hf", "attention", "statistics", "inputs"},
    "results": {"config", "tokens", "hf", "attention", "statistics", "circuits"},
    "execution": {"config", "tokens", "hf", "attention", "statistics", "results"},
    "probe": {
        "config",
        "tokens",
        "hf",
        "attention",
        "statistics",
        "inputs",
        "embeddings",
        "circuits",
        "results",
        "execution",
    },
}
# Results draw themselves: these import `report` in functions.
MAY_DRAW = {"records", "probing", "monitoring", "experiments", "claims"}
# Functions that may import anything of ours when they are called.
DRAWING = {"plot", "plot_data"}
# A command imports what needs an extra (Ray) when that is asked for.
EXTRAS = {("cli.options", "distributed")}


@dataclass(frozen=True)
class Import:
    """`source` and `target` are modules without "topicscope."; `inside`: the functions around it, outermost first."""

    source: str
    target: str
    inside: tuple[str, ...] = ()

    @property
    def drawing(self) -> bool:
        """Whether it is one of those that wait until a figure is wanted."""
        return bool(self.inside) and (_package(self.target) == "report" or bool(DRAWING & set(self.inside)))


def modules() -> dict[str, Path]:
    """Every module by its name without "topicscope."; a package by its own."""
    files = sorted(SOURCE.rglob("*.py"))
    names = (".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__") for path in files)
    return {name.removesuffix("."): path for name, path in zip(names, files, strict=True)}


def imports_of(source: str, text: str, known: set[str]) -> Iterator[Import]:
    """All imports of ours, those in functions and under TYPE_CHECKING included."""

    def visit(node: ast.AST, inside: tuple[str, ...]) -> Iterator[Import]:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "topicscope":
            module = str(node.module).removeprefix("topicscope").removeprefix(".")
            for alias in node.names:
                name = f"{module}.{alias.name}".removeprefix(".")
                yield Import(source, name if name in known and not _offers(module, alias.name) else module, inside)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "topicscope":
                    yield Import(source, alias.name.removeprefix("topicscope").removeprefix("."), inside)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = (*inside, node.name)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(text), ())


def _offers(package: str, name: str) -> bool:
    path = SOURCE / package.replace(".", "/") / "__init__.py"
    return bool(package) and path.is_file() and name in offered(path.read_text(encoding="utf-8"))


def offered(text: str) -> list[str]:
    """The `__all__` of a module."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [e.value for e in ast.walk(node.value) if isinstance(e, ast.Constant)]
    return []


def all_imports() -> list[Import]:
    known = modules()
    return [found for name, path in known.items() for found in imports_of(name, path.read_text("utf-8"), set(known))]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _home(module: str) -> str:
    """The package, sub-package or single module that others see: "text", "probing.hf", "probing.config"."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "probing" else parts[0]


def wrong_directions(imports: list[Import]) -> list[str]:
    """Imports that the two tables do not allow."""
    wrong = []
    for found in imports:
        a, b = _package(found.source), _package(found.target)
        if not found.source or not found.target:  # the package `topicscope` itself: its version and its folder
            continue
        if a == b == "probing":
            inner, other = (module.split(".")[1] if "." in module else "" for module in (found.source, found.target))
            if inner and inner != other and other not in PROBING[inner]:
                wrong.append(f"{found.source} imports {found.target}")
            continue
        allowed = {a} | LEAVES | PACKAGES.get(a, set())
        if a in LEAVES:
            allowed = {"errors"}
        if b not in allowed and not (b == "report" and found.inside and a in MAY_DRAW):
            wrong.append(f"{found.source} imports {found.target}")
    return wrong


def deep_imports(imports: list[Import]) -> list[str]:
    """Imports of a module of another package; only packages themselves, and modules without one, may be imported."""
    known = modules()
    wrong = []
    for found in imports:
        if _home(found.source) == _home(found.target) or not found.target:
            continue
        module = known.get(found.target)
        is_package = module is not None and module.name == "__init__.py"
        single = "." not in found.target or (
            found.source.startswith("probing.") and found.target.count(".") == 1 and found.target.startswith("probing.")
        )
        # A package's own `__init__` lists what is in it.
        if not is_package and not single and found.source != _package(found.target):
            wrong.append(f"{found.source} imports {found.target}")
    return wrong


def lazy_imports(imports: list[Import]) -> list[str]:
    """Imports of ours in functions, other than those for figures and extras."""
    return [
        f"{found.source} imports {found.target} in {found.inside[-1]}"
        for found in imports
        if found.inside and not found.drawing and (found.source, found.target) not in EXTRAS
    ]


def cycles(imports: list[Import]) -> list[set[str]]:
    """Groups of modules that import one another in a circle, lazy imports included unless they wait for a figure."""
    arrows: dict[str, set[str]] = {}
    for found in imports:
        if not found.drawing and found.source != found.target:
            arrows.setdefault(found.source, set()).add(found.target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(arrows.get(start, ()))
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo += arrows.get(module, ())
        return seen

    reach = {module: reached(module) for module in arrows}
    groups: list[set[str]] = []
    for module, seen in reach.items():
        if module in seen and not any(module in group for group in groups):
            groups.append({other for other in seen if module in reach.get(other, set())})
    return groups


def without_all(texts: dict[str, str]) -> list[str]:
    """Packages without a docstring or an `__all__`."""
    return [name for name, text in texts.items() if not offered(text) or ast.get_docstring(ast.parse(text)) is None]


def test_every_package_is_listed() -> None:
    assert {_package(name) for name in modules()} - {""} == set(PACKAGES) | LEAVES
    assert {name.split(".")[1] for name in modules() if name.startswith("probing.")} == set(PROBING)


def test_imports_go_one_way() -> None:
    assert wrong_directions(all_imports()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        Import("theory.bayes", "lab"),
        Import("lab.trainer", "theory"),
        Import("report.page", "probing"),
        Import("records.files", "text"),
        Import("probing.hf.view", "probing.attention"),
        Import("probing.config", "probing.tokens"),
        Import("records.run_record", "report"),  # at the top
        Import("errors", "records"),
    ],
)
def test_a_wrong_direction_is_noticed(wrong: Import) -> None:
    assert wrong_directions([wrong]) != []


def test_packages_are_imported_by_their_public_names() -> None:
    assert deep_imports(all_imports()) == []


@pytest.mark.parametrize(
    "wrong", [Import("cli.topics", "topics.lda"), Import("probing.circuits.factors", "probing.hf.view")]
)
def test_a_deep_import_is_noticed(wrong: Import) -> None:
    assert deep_imports([wrong]) != []
    assert deep_imports([Import(wrong.source, wrong.target.rpartition(".")[0])]) == []


def test_functions_import_nothing_of_ours() -> None:
    assert lazy_imports(all_imports()) == []


def test_an_import_in_a_function_is_noticed() -> None:
    source = (
        "def plot():\n    from topicscope.report import to_png\ndef fit():\n    from topicscope.text import Corpus\n"
    )
    assert lazy_imports(list(imports_of("topics.lda", source, set(modules())))) == ["topics.lda imports text in fit"]


def test_nothing_imports_itself_in_a_circle() -> None:
    assert cycles(all_imports()) == []


def test_a_circle_is_noticed() -> None:
    there = [Import("text.units", "text.words"), Import("text.words", "text.corpus")]
    assert cycles(there) == []
    assert cycles([*there, Import("text.corpus", "text.units", ("read",))]) == [
        {"text.units", "text.words", "text.corpus"}
    ]
    assert cycles([*there, Import("text.corpus", "text.units", ("plot",))]) == []


def test_every_package_lists_its_names() -> None:
    packages = {name: path.read_text("utf-8") for name, path in modules().items() if path.name == "__init__.py"}
    assert without_all(packages) == []
    assert without_all({"silent": '"""A package."""\n\nfrom topicscope.text import Corpus\n'}) == ["silent"]


def test_public_api_is_as_recorded() -> None:
    assert sorted(topicscope.__all__) == [
        "CheckpointSeries",
        "CircuitResult",
        "Comparison",
        "InputError",
        "MonitorHistory",
        "PairClass",
        "ProbeConfig",
        "ProbeResult",
        "Reproduction",
        "RunError",
        "RunRecord",
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
        "load",
        "probe",
        "probe_checkpoints",
        "reproduce",
        "sweep",
        "train",
    ]


def test_every_public_name_loads() -> None:
    assert all(getattr(topicscope, name) is not None for name in topicscope.__all__)
