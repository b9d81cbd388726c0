"""The import rules of docs/architecture.md hold, and no module enters a room through the window."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MODULES = sorted(p for room in ("generators", "harness") for p in (ROOT / room).rglob("*.py"))
SYSTEM_FOLDERS = ("harness/targets/mnn/", "harness/targets/onnxruntime_quant/")
WORKER_SIDE = (
    *SYSTEM_FOLDERS,
    "harness/targets/interface.py",
    "harness/run/sandbox/inside.py",
    "harness/run/reference_worker.py",
)
SYSTEMS = {"onnxruntime", "MNN", "_tools"}
NAMES_OF_TARGETS = ("mnn", "onnxruntime-quant", "onnxruntime_quant")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Names of the modules that `path` imports, `from a import b` as a.b."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)} has a relative import; say the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_in(*rooms: str) -> list[Path]:
    return [p for p in MODULES if named(p).startswith(rooms)]


@pytest.mark.parametrize("path", modules_in("generators/"), ids=named)
def test_generators_import_nothing_of_the_house_but_the_model(path):
    assert not [
        name
        for name in imported(path)
        if name.startswith("driftnet.") and not name.startswith(("driftnet.generators", "driftnet.model"))
    ]


@pytest.mark.parametrize("path", modules_in(*WORKER_SIDE), ids=named)
def test_the_worker_side_imports_nothing_an_older_interpreter_lacks(path):
    allowed = set(sys.stdlib_module_names) | {"numpy", "onnx"} | SYSTEMS
    ours = ("driftnet.targets.interface", "driftnet.targets.mnn", "driftnet.targets.onnxruntime_quant")
    foreign = [n for n in imported(path) if n.split(".")[0] not in allowed and not n.startswith(ours)]
    assert not foreign, f"{named(path)} runs in a worker, but imports {foreign}"


@pytest.mark.parametrize("path", modules_in("harness/targets/", "harness/run/reference_worker.py"), ids=named)
def test_a_declaration_can_be_read_without_the_system_it_declares(path):
    systems = [n for n in imported(path, top_level_only=True) if n.split(".")[0] in SYSTEMS]
    assert not systems, f"{named(path)} imports {systems} when it is merely read"


@pytest.mark.parametrize("path", [p for p in MODULES if not named(p).startswith(WORKER_SIDE)], ids=named)
def test_systems_under_test_are_imported_by_targets_alone(path):
    assert not [name for name in imported(path) if name.split(".")[0] in SYSTEMS]


@pytest.mark.parametrize("path", modules_in("harness/oracle/", "harness/reduce/", "generators/"), ids=named)
def test_oracle_reduce_and_generators_know_no_target_by_name(path):
    assert not [
        name
        for name in imported(path)
        if name.startswith(tuple(f"driftnet.targets.{s}" for s in ("mnn", "onnxruntime_quant")))
    ]
    texts = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
    assert not texts & set(NAMES_OF_TARGETS), f"{named(path)} names a target"


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=named)
def test_package_init_files_are_empty(path):
    assert path.read_text() == ""


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_nobody_imports_the_command_line_or_the_plugin_and_only_they_import_report(path):
    names = list(imported(path))
    assert not [n for n in names if n.startswith(("driftnet.cli.main", "driftnet.pytest_plugin"))]
    if named(path) not in ("harness/cli/main.py", "harness/pytest_plugin.py") and "harness/cli/report/" not in named(
        path
    ):
        assert not [n for n in names if n.startswith("driftnet.cli.")]


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_nothing_is_unpickled_evaluated_or_taken_from_mnn_tools(path):
    names = list(imported(path))
    assert not [n for n in names if n.startswith(("pickle", "marshal", "shelve", "MNN.tools"))]
    called = {
        n.func.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and hasattr(n.func, "id")
    }
    assert not called & {"eval", "exec", "__import__"}


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_public_function_class_and_module_says_what_it_is(path):
    tree = ast.parse(path.read_text())
    if path.name == "__init__.py":
        return
    assert ast.get_docstring(tree), f"{named(path)} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{named(path)}: {node.name} has no docstring"
