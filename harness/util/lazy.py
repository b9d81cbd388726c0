"""Names that a module imports when they are first asked for, listed once: as the imports that type checkers go by."""

import ast
import contextlib
import gc
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from driftnet.util.elsewhere import refusal


@cache
def homes(file: str) -> dict[str, str]:
    """What the source `file` imports by `from module import name as name`: name -> module."""
    return {
        name.asname: str(node.module)
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname
    }


def found(name: str, module: str, file: str) -> Any:
    """What the attribute `name` of `module` is, whose source is `file`. Raises AttributeError as Python does, and an
    ImportError that says why where driftnet does not run."""
    listed = homes(file)
    if name == "__all__":
        return [*listed]
    if name not in listed:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    try:
        with _uncollected():
            return getattr(import_module(listed[name]), name)
    except ModuleNotFoundError as e:  # what only Linux and its like have
        raise (ImportError(refusal()) if refusal() else e) from None


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is looked for while the block runs: all that importing makes stays, and looking took a fifth of it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
