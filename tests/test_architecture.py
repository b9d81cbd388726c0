"""The import rules of docs/architecture.md hold, and no module enters a room through the window."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.rules import assert_each

MODULES = sorted(p for room in ("generators", "harness") for p in (ROOT / room).rglob("*.py"))
SYSTEM_FOLDERS = ("harness/targets/mnn/", "harness/targets/onnxruntime_quant/")
WORKER_SIDE = (
    *SYSTEM_FOLDERS,
    "harness/targets/interface.py",
    "harness/run/sandbox/inside.py",
    "harness/run/reference_worker.py",
    "harness/model/operators.py",
)
SYSTEMS = {"onnxruntime", "MNN", "_tools"}
NAMES_OF_TARGETS = ("mnn", "onnxruntime-quant", "onnxruntime_quant")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Names of the modules that `path` imports, `from a import b` as a.b."""
    tree = tree_of(path)
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)


def modules_in(*rooms: str) -> list[Path]:
    return [p for p in MODULES if named(p).startswith(rooms)]


def test_every_import_says_the_whole_name():
    def rule(path: Path) -> None:
        relative = [name for name in imported(path) if name.startswith(".")]
        assert not relative, f"imports {relative}, should be named from driftnet on"

    assert_each(MODULES, rule, named)


def test_generators_import_nothing_of_the_house_but_the_model():
    def rule(path: Path) -> None:
        ours = [name for name in imported(path) if name.startswith("driftnet.")]
        others = [name for name in ours if not name.startswith(("driftnet.generators", "driftnet.model"))]
        assert not others, f"imports {others}, should import nothing of driftnet but its generators and its model"

    assert_each(modules_in("generators/"), rule, named)


def test_the_worker_side_imports_nothing_an_older_interpreter_lacks():
    allowed = set(sys.stdlib_module_names) | {"numpy", "onnx"} | SYSTEMS
    ours = ("driftnet.targets.interface", "driftnet.targets.mnn", "driftnet.targets.onnxruntime_quant")
    ours += ("driftnet.model.operators",)

    def rule(path: Path) -> None:
        foreign = [n for n in imported(path) if n.split(".")[0] not in allowed and not n.startswith(ours)]
        assert not foreign, f"runs in a worker, but imports {foreign}, which an older interpreter may lack"

    assert_each(modules_in(*WORKER_SIDE), rule, named)


def test_a_declaration_can_be_read_without_the_system_it_declares():
    def rule(path: Path) -> None:
        systems = [n for n in imported(path, top_level_only=True) if n.split(".")[0] in SYSTEMS]
        assert not systems, f"imports {systems} when it is merely read, should do so inside functions"

    assert_each(modules_in("harness/targets/", "harness/run/reference_worker.py"), rule, named)


def test_systems_under_test_are_imported_by_targets_alone():
    def rule(path: Path) -> None:
        systems = [name for name in imported(path) if name.split(".")[0] in SYSTEMS]
        assert not systems, f"imports {systems}, should leave that to a target, which runs in a worker"

    assert_each([p for p in MODULES if not named(p).startswith(WORKER_SIDE)], rule, named)


def test_oracle_reduce_and_generators_know_no_target_by_name():
    folders = tuple(f"driftnet.targets.{system}" for system in ("mnn", "onnxruntime_quant"))

    def rule(path: Path) -> None:
        targets = [name for name in imported(path) if name.startswith(folders)]
        texts = {n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant)}
        targets += sorted(texts & set(NAMES_OF_TARGETS))
        assert not targets, f"names {targets}, should take what is particular to a target from its declaration"

    assert_each(modules_in("harness/oracle/", "harness/reduce/", "generators/"), rule, named)


def test_a_tier_is_imported_by_the_judge_alone():
    tiers = tuple(f"driftnet.oracle.tiers.{p.stem}" for p in modules_in("harness/oracle/tiers/"))

    def rule(path: Path) -> None:
        asked = [name for name in imported(path) if name.startswith(tiers)]
        assert not asked, f"imports {asked}, should name a tier: driftnet.model.verdict.Tier"

    assert_each([p for p in MODULES if named(p) != "harness/oracle/judge.py"], rule, named)


def test_package_init_files_are_empty():
    def rule(path: Path) -> None:
        assert path.read_text() == "", f"holds {path.stat().st_size} bytes, should be empty: it runs in workers too"

    assert_each([p for p in MODULES if p.name == "__init__.py"], rule, named)


def test_nobody_imports_the_command_line_or_the_plugin_and_only_they_import_report():
    faces = ("harness/cli/main.py", "harness/pytest_plugin.py")

    def rule(path: Path) -> None:
        closed = ("driftnet.cli.main", "driftnet.pytest_plugin")
        if named(path) not in faces and not named(path).startswith("harness/cli/report/"):
            closed += ("driftnet.cli.",)
        above = [name for name in imported(path) if name.startswith(closed)]
        assert not above, f"imports {above}, should be told what it needs of them"

    assert_each(MODULES, rule, named)


def test_nothing_is_unpickled_evaluated_or_taken_from_mnn_tools():
    def rule(path: Path) -> None:
        tree = tree_of(path)
        used = [n for n in imported(path) if n.startswith(("pickle", "marshal", "shelve", "MNN.tools"))]
        called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        used += sorted(called & {"eval", "exec", "__import__"})
        assert not used, f"uses {used}, which runs what a file or a worker says; MNN.tools runs pip when imported"

    assert_each(MODULES, rule, named)


def test_every_public_function_class_and_module_says_what_it_is():
    def rule(path: Path) -> None:
        tree = tree_of(path)
        public = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
        silent = [getattr(n, "name", "the module") for n in (tree, *public) if not ast.get_docstring(n)]
        assert not silent, f"has no docstring of {', '.join(silent)}"

    assert_each([p for p in MODULES if p.name != "__init__.py"], rule, named)
