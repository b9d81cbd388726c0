"""The tests themselves: each asserts, always, and says what it found; they stand where the rooms stand."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.rules import assert_each

FILES = sorted((ROOT / "tests").rglob("*.py"))
SPELLED_OUT = {"array_equal", "allclose", "isclose", "startswith", "endswith", "isdisjoint", "exists", "is_relative_to"}
"""Calls of which pytest prints what was called with what, so that a failure is plain without a message."""
MOST_INSTANCES = 30
TESTED_ELSEWHERE = {"on_grid": "oracle/tiers/test_lossless.py"}
"""Rooms without tests of their own: what on_grid makes is judged as lossless."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def functions(path: Path) -> tuple[ast.FunctionDef, ...]:
    return tuple(
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    )


def called(node: ast.AST) -> Iterator[str]:
    """The names of what is called somewhere in `node`, without what they are looked up in, or passed on by name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            given = [part.func, *part.args]
            yield from (x.attr if isinstance(x, ast.Attribute) else getattr(x, "id", "") for x in given)


def by_itself(function: ast.FunctionDef) -> bool:
    """Whether it asserts, demands an exception or warning, or calls one of numpy's assertions."""
    words = {*called(function)}
    asserts = any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function))
    return asserts or bool(words & {"raises", "warns"}) or any(word.startswith("assert_") for word in words)


def under_a_condition(node: ast.AST, condition: bool = False) -> Iterator[int]:
    """Lines of assertions that stand in a branch of an `if`."""
    for child in ast.iter_child_nodes(node):
        if condition and isinstance(child, ast.Assert):
            yield child.lineno
        yield from under_a_condition(child, condition or isinstance(child, ast.If))


def silent(assertion: ast.Assert) -> bool:
    """Whether its failure would say `False` and no more: a call that tells neither what it got nor what it should."""
    test = assertion.test
    while isinstance(test, ast.UnaryOp):
        test = test.operand
    if assertion.msg is not None or not isinstance(test, ast.Call):
        return False
    return next(called(ast.Expr(test))) not in SPELLED_OUT


def test_no_assertion_hangs_on_a_condition():
    def rule(path: Path) -> None:
        lines = [line for function in functions(path) for line in under_a_condition(function)]
        assert lines == [], (
            f"asserts only inside an `if`, at {lines}; should assert the condition too, or loop over what meets it"
        )

    assert_each(FILES, rule, named)


def test_what_is_compared_in_pairs_is_as_many_on_both_sides():
    """Of a zip that ends with the shorter side, nothing is compared where one is empty."""

    def pairs(node: ast.AST) -> list[ast.Call]:
        found = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        return [call for call in found if getattr(call.func, "id", "") == "zip" and len(call.args) > 1]

    def rule(path: Path) -> None:
        nodes = [node for function in functions(path) for node in ast.walk(function)]
        loops = [
            n.iter for n in nodes if isinstance(n, ast.For) and any(isinstance(p, ast.Assert) for p in ast.walk(n))
        ]
        asked = [call for node in (*loops, *(n for n in nodes if isinstance(n, ast.Assert))) for call in pairs(node)]
        loose = [call.lineno for call in asked if not any(keyword.arg == "strict" for keyword in call.keywords)]
        assert loose == [], f"ends with the shorter side at lines {loose}, should say strict=True"

    assert_each(FILES, rule, named)


def test_every_test_asserts():
    asserting = {function.name for path in FILES for function in functions(path) if by_itself(function)}
    # Whoever calls a helper that asserts does so too, and so on.
    helpers = [f for path in FILES for f in functions(path) if not f.name.startswith("test_")]
    while more := {f.name for f in helpers if asserting & {*called(f)}} - asserting:
        asserting |= more

    def rule(path: Path) -> None:
        tests = [function for function in functions(path) if function.name.startswith("test_")]
        idle = [t.name for t in tests if t.name not in asserting and not asserting & {*called(t)}]
        assert idle == [], f"asserts nothing in {idle}"

    assert_each(FILES, rule, named)


def test_every_assertion_would_say_what_it_got():
    def rule(path: Path) -> None:
        assertions = [node for f in functions(path) for node in ast.walk(f) if isinstance(node, ast.Assert)]
        lines = sorted({node.lineno for node in assertions if silent(node)})
        assert lines == [], f"would say `False` and no more at {lines}, should have a message: what, got, should be"

    assert_each(FILES, rule, named)


def test_no_rule_is_asked_instance_by_instance(request: pytest.FixtureRequest):
    instances = Counter(item.nodeid.partition("[")[0] for item in request.session.items if "corpus" not in item.nodeid)
    many = {name: count for name, count in instances.items() if count > MOST_INSTANCES}
    assert many == {}, f"more than {MOST_INSTANCES} instances of one test, should be a loop: tests.support.rules"


def test_the_tests_stand_where_the_rooms_stand():
    rooms = {p.parent.relative_to(ROOT / "harness") for p in (ROOT / "harness").rglob("*.py")} - {Path()}
    # Beside the rooms: what helps tests, and trained models to try whole commands on.
    others = {Path(), Path("generators"), Path("support"), Path("zoo")}
    folders = {path.parent.relative_to(ROOT / "tests") for path in FILES}
    astray = sorted(str(folder) for folder in folders - rooms - others)
    assert astray == [], "folders of tests that are no room of harness"
    untested = {str(room) for room in rooms - folders if len(room.parts) == 1}
    assert untested == set(TESTED_ELSEWHERE), "rooms of harness without a folder of tests, and those said to have none"
    assert_each(TESTED_ELSEWHERE.values(), lambda file: ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")))
