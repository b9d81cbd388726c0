"""The import rules of docs/architecture.md hold, and no module enters a room through the window."""

import ast
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from driftnet.model.operators import CONTRIB, OPERATORS
from driftnet.targets.environments import declared
from driftnet.targets.registry import registered

from tests.support.paths import ROOT
from tests.support.rules import assert_each

Node = TypeVar("Node", Path, str)
MODULES = sorted(p for room in ("generators", "harness") for p in (ROOT / room).rglob("*.py"))
SYSTEM_FOLDERS = tuple(
    f"{p.parent.relative_to(ROOT).as_posix()}/" for p in (ROOT / "harness/targets").glob("*/target.py")
)
MODULES_OF_SYSTEMS = tuple(folder.replace("harness/", "driftnet/").replace("/", ".") for folder in SYSTEM_FOLDERS)
WORKER_SIDE = (
    *SYSTEM_FOLDERS,
    "harness/targets/interface.py",
    "harness/run/sandbox/inside.py",
    "harness/run/sandbox/outside.py",
    "harness/run/reference_worker.py",
    "harness/model/operators.py",
)
NAMES = {op.removeprefix(CONTRIB) for op in OPERATORS}
SYSTEMS = {native.partition(".")[0] for name in registered() for native in declared(name).natives} - {"onnx"}
"""what they wrap, but for the library that everybody reads models with"""
MOST_ENTRIES, MOST_FILES, MOST_PARAMETERS = 20, 30, 8
NAMES_OF_TARGETS = {*registered(), *(Path(folder).name for folder in SYSTEM_FOLDERS)}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Names of the modules that `path` imports, `from a import b` as a.b."""
    tree = tree_of(path)
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names)


def comments_of(path: Path) -> set[int]:
    """The lines that have a comment."""
    with open(path, "rb") as file:
        return {token.start[0] for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT}


def modules_in(*rooms: str) -> list[Path]:
    return [p for p in MODULES if named(p).startswith(rooms)]


def folder_of(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


def arrows() -> dict[Path, set[Path]]:
    """The files that each file imports."""
    places = {"driftnet": ROOT / "harness", "driftnet.generators": ROOT / "generators"}

    def module(dotted: str) -> Path | None:
        """The file of a module, or of the module that has something of this name."""
        top = "driftnet.generators" if dotted.startswith("driftnet.generators.") else "driftnet"
        parts = dotted.removeprefix(top).strip(".").split(".")
        found = (places[top].joinpath(*parts[:k]).with_suffix(".py") for k in range(len(parts), 0, -1))
        return next((path for path in found if path.exists()), None)

    return {
        path: {found for name in imported(path) if name.startswith("driftnet.") and (found := module(name))} - {path}
        for path in MODULES
    }


def circles(graph: Mapping[Node, Iterable[Node]]) -> list[Node]:
    """What is on a circle, or between two: what is left when whatever nobody imports, or imports nobody, is gone."""
    left = set(graph)
    while gone := {n for n in left if not left & set(graph[n]) or not any(n in graph[other] for other in left)}:
        left -= gone
    return sorted(left)


def test_neither_files_nor_folders_import_each_other_in_a_circle():
    files = arrows()
    assert circles(files) == [], "files on a circle of imports"
    folders: dict[str, set[str]] = {}
    for path, others in files.items():
        folders.setdefault(folder_of(path), set()).update(map(folder_of, others - {path}))
    assert circles({name: others - {name} for name, others in folders.items()}) == [], "folders on a circle of imports"


def test_no_folder_is_a_heap():
    folders = {path.parent for path in MODULES}
    files = {named(folder): len([*folder.glob("*.py")]) - 1 for folder in folders}  # but for the empty __init__.py
    assert {name: count for name, count in files.items() if count > MOST_FILES} == {}, f"more than {MOST_FILES} files"
    there = (path for path in (ROOT / "harness").iterdir() if path.is_file() or any(path.rglob("*.py")))
    entries = [path.name for path in there]  # a folder that was moved leaves its __pycache__ behind
    assert len(entries) <= MOST_ENTRIES, f"{sorted(entries)} stand directly in harness/"


def test_a_function_takes_few_parameters():
    def rule(path: Path) -> None:
        def count(a: ast.arguments) -> int:
            return len([*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))])

        functions = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef)]
        crowded = {n.name: count(n.args) for n in functions if count(n.args) > MOST_PARAMETERS}
        assert not crowded, f"has functions of {crowded} parameters, should be {MOST_PARAMETERS} at most: use a record"

    assert_each(MODULES, rule, named)


def test_pyproject_lists_every_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {named(path.parent) for path in MODULES}
    there = {re.sub("^(harness|generators)", r"driftnet.\1", name).replace("/", ".") for name in folders}
    there = {name.replace("driftnet.harness", "driftnet") for name in there} | {"driftnet.corpus"}
    assert sorted(listed) == sorted(there), "packages of [tool.setuptools], and the folders that there are"


def test_rooms_import_downwards_in_the_list_of_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^    (\w+) +\w", text[text.index("## The rooms") : text.index("Inside the oracle")], re.M)

    def room(path: Path) -> str:
        return (
            path.relative_to(ROOT / "harness").parts[0].removesuffix(".py") if "harness" in path.parts else "generators"
        )

    rooms = {room(path) for path in MODULES if path.name != "__init__.py"}
    assert sorted(rooms) == sorted(listed), "rooms, and those of the list in docs/architecture.md"

    def rule(path: Path) -> None:
        up = sorted({room(to) for to in arrows_of[path] if listed.index(room(to)) < listed.index(room(path))})
        assert up == [], f"imports from {up}, above its own room {room(path)} in the list of docs/architecture.md"

    arrows_of = arrows()
    assert_each([path for path in MODULES if path.name != "__init__.py"], rule, named)


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
    # Of Keras TensorFlow's converter asks too whether it is there.
    allowed = set(sys.stdlib_module_names) | {"numpy", "onnx", "keras"} | SYSTEMS
    ours = ("driftnet.targets.interface", *MODULES_OF_SYSTEMS)
    ours += ("driftnet.model.operators", "driftnet.run.sandbox.outside", "driftnet.targets.snippet")

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

    elsewhere = (*WORKER_SIDE, "harness/handover/script.py")  # its text runs where driftnet is not
    assert_each([p for p in MODULES if not named(p).startswith(elsewhere)], rule, named)


def test_nothing_but_the_targets_knows_a_system_by_name():
    def rule(path: Path) -> None:
        targets = [name for name in imported(path) if name.startswith(MODULES_OF_SYSTEMS)]
        texts = {n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant)}
        targets += sorted(texts & set(NAMES_OF_TARGETS))
        assert not targets, f"names {targets}, should take what is particular to a target from its declaration"

    assert_each([p for p in MODULES if not named(p).startswith("harness/targets/")], rule, named)


def test_what_is_installed_asks_nothing_of_the_tests():
    def rule(path: Path) -> None:
        words = [n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        asked = [name for name in (*imported(path), *words) if re.fullmatch(r"tests(\.\w+)+", name)]
        assert not asked, f"asks for {asked}, which is not installed with it"

    assert_each(MODULES, rule, named)


def test_a_tier_is_imported_by_the_judge_alone():
    tiers = tuple(f"driftnet.oracle.tiers.{p.stem}" for p in modules_in("harness/oracle/tiers/"))

    def rule(path: Path) -> None:
        asked = [name for name in imported(path) if name.startswith(tiers)]
        assert not asked, f"imports {asked}, should name a tier: driftnet.model.verdict.Tier"

    assert_each([p for p in MODULES if named(p) != "harness/oracle/judge.py"], rule, named)


def test_a_number_by_which_something_is_let_pass_stands_among_the_tolerances():
    """Elsewhere in these rooms a small one is the default of an operator's attribute, or a comment says what it is."""

    def is_small(node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=float(number)):
                return 0 < number < 0.02
            case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp()):
                return True
        return False

    def rule(path: Path) -> None:
        stated: list[ast.AST] = []
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.arguments(defaults=first, kw_defaults=others):
                    stated += [default for default in (*first, *others) if default]
                case ast.Call(func=ast.Attribute(attr="get") | ast.Name(id="attribute"), args=[_, *_, default]):
                    stated.append(default)
                case ast.Call(func=ast.Attribute(attr="attribute"), args=[_, default]):
                    stated.append(default)
        commented = comments_of(path)
        silent = [
            f"line {node.lineno}: {ast.unparse(node)}"
            for node in ast.walk(tree_of(path))
            if is_small(node) and node not in stated and commented.isdisjoint({node.lineno, node.lineno - 1})
        ]
        assert not silent, f"has tolerances of its own, should have records in harness/oracle/tolerances/: {silent}"

    judging = ("harness/oracle/", "harness/diagnosis/", "harness/findings/", "harness/handover/")
    elsewhere = [p for p in modules_in(*judging) if "tolerances" not in p.parts]
    assert_each(elsewhere, rule, named)


def test_package_init_files_are_empty_but_for_that_of_the_package_which_imports_nothing():
    lazy = set(imported(ROOT / "harness/__init__.py", top_level_only=True))
    assert lazy == {"__future__.annotations", "typing.TYPE_CHECKING"}, (
        f"harness/__init__.py imports {sorted(lazy)} at once: it runs in workers too, and in every run of pytest"
    )

    def rule(path: Path) -> None:
        assert path.read_text(encoding="utf-8") == "", (
            f"holds {path.stat().st_size} bytes, should be empty: it runs in workers too"
        )

    inits = [p for p in MODULES if p.name == "__init__.py" and p != ROOT / "harness/__init__.py"]
    assert_each(inits, rule, named)


def test_nobody_imports_the_command_line_or_the_plugin_and_only_they_import_report():
    faces = ("harness/cli/main.py", "harness/pytest_plugin.py")

    def rule(path: Path) -> None:
        # The console script is the one way in: it looks where it is before it imports anything.
        closed = ("driftnet.pytest_plugin", *([] if named(path) == "harness/cli/start.py" else ["driftnet.cli.main"]))
        if named(path) not in (*faces, "harness/cli/start.py") and not named(path).startswith("harness/cli/report/"):
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


def test_a_list_of_operators_stands_in_the_table_of_traits_or_says_why_not():
    """Outside of model/operators a literal that names two operators or more, and a statement whose comparisons or cases
    tell two or more apart, has a comment on its line or the one above, its own or its statement's. What registers a
    rule, in a decorator or by hand, needs none."""

    def rule(path: Path) -> None:
        comments = comments_of(path)
        silent = [
            f"line {line}: {', '.join(operators)}"
            for line, start, operators in _tables(tree_of(path), 0)
            if comments.isdisjoint({line, line - 1, start, start - 1})
        ]
        assert not silent, f"lists operators where traits should be asked, without a reason: {silent}"

    assert_each([p for p in MODULES if p != ROOT / "harness/model/operators.py"], rule, named)


def _tables(node: ast.AST, start: int) -> Iterator[tuple[int, int, list[str]]]:
    """(line, first line of the statement, operators) of each literal or statement that names two operators or more."""
    start = node.lineno if isinstance(node, ast.stmt) else start
    told_apart = sorted(set(_compared(node))) if isinstance(node, ast.stmt) else []
    for operators in ([word for word in _words(node) if word in NAMES], told_apart):
        if len(operators) > 1:
            yield getattr(node, "lineno", start), start, operators
    registering = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "operators":
        registering = node.args
    for child in ast.iter_child_nodes(node):
        if child not in registering:
            yield from _tables(child, start)


def _compared(statement: ast.stmt) -> Iterator[str]:
    """The operators that the cases of a statement, or the comparisons in its own expressions, tell apart; a part of a
    name stands for several."""
    own = [n for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr) for n in ast.walk(child)]
    for node in own:
        match node:
            case ast.Compare(left=ast.Constant(value=str(part)), comparators=[ast.Attribute(attr="op" | "op_type")]):
                yield from (f"{part}...", f"...{part}")
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="op" | "op_type"), attr="startswith" | "endswith"),
                args=[ast.Constant(value=str(part))],
            ):
                yield from (f"{part}...", f"...{part}")
    compared = [n for n in own if isinstance(n, ast.Compare)]
    cases = [case.pattern for case in getattr(statement, "cases", [])]
    for part in (*compared, *cases):
        yield from (n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and n.value in NAMES)


def _words(node: ast.AST) -> list[object]:
    """What a set, list, tuple, mapping (its keys), pattern or text of several words names."""
    match node:
        case ast.Set(elts=found) | ast.List(elts=found) | ast.Tuple(elts=found) | ast.Dict(keys=found):
            return [e.value for e in found if isinstance(e, ast.Constant)]
        case ast.MatchOr(patterns=found):
            return [p.value.value for p in found if isinstance(p, ast.MatchValue) and isinstance(p.value, ast.Constant)]
        case ast.Constant(value=str(text)) if NAMES.issuperset(text.split()):
            return [*text.split()]
    return []


def test_text_is_written_and_read_as_utf_8_whatever_the_locale_says():
    def rule(path: Path) -> None:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            binary = any(
                isinstance(a, ast.Constant) and isinstance(a.value, str) and "b" in a.value for a in node.args[1:]
            )
            stated = any(keyword.arg in ("encoding", "mode") for keyword in node.keywords)
            descriptor = ast.unparse(node.func) == "os.open"
            text = name in ("read_text", "write_text") or (name in ("open", "fdopen") and len(node.args) > 1)
            assert stated or binary or descriptor or not text, (
                f"line {node.lineno} leaves the encoding to the locale, should say utf-8"
            )

    # what the worker side writes goes to /proc, in ASCII
    ours = [path for path in MODULES if named(path) != "harness/run/sandbox/inside.py"]
    assert_each(ours, rule, named)
