"""Packages whose modules are loaded when one of their names is used, so that a command waits only for what it needs.

Such a package lists its names like any other, but under `if TYPE_CHECKING:`, and ends with `load_on_use(__name__)`.
Only packages that a light command shares with a heavy one do this: `topicscope theory` needs no pyarrow, `topicscope
train` no transformers.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package that finds its public names in `_homes`, name to module."""

    _homes: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Not kept: who replaces a function in its module, as tests do, replaces it here as well.
        return getattr(import_module(self._homes[name]), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a module also sets it in its package; a public name of the same spelling comes first.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._homes})


def load_on_use(package: str) -> None:
    """Let `package` load the names that its `if TYPE_CHECKING:` imports when they are first used."""
    module = sys.modules[package]
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    homes = {
        alias.name: str(node.module)
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module.__dict__["_homes"] = homes
    module.__class__ = _Package
