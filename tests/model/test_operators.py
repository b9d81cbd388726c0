"""Every operator has a row of traits, and what the traits say is seen in onnxruntime on nodes that are generated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from driftnet.generators.ops.table import CODES
from driftnet.model.operators import OPERATORS, Trait, having, parameters, traits_of
from onnx import defs

from tests.support.probes import Probe, tried

RNG = np.random.default_rng(0)
FRESH = RNG.bit_generator.state
SCHEMAS = {schema.name: schema for schema in defs.get_all_schemas() if schema.domain == ""}
STANDARD = {op for op in OPERATORS if "." not in op}


def test_what_is_generated_has_a_row():
    missing = CODES.keys() - OPERATORS.keys()
    assert not missing, f"decide on the traits of {sorted(missing)}: a row each in harness/model/operators.py"


def test_a_row_is_an_operator_that_exists():
    known = {schema.name for schema in defs.get_all_schemas_with_history()} | {"SimplifiedLayerNormalization"}
    assert known >= STANDARD, f"no such operators: {sorted(STANDARD - known)}"


def test_what_follows_from_a_trait_is_there():
    assert having(Trait.KEEPS_ORDER) < having(Trait.PERMUTES) < having(Trait.MOVES) < having(Trait.WITHIN)
    assert Trait.MONOTONE | Trait.HOMOGENEOUS in traits_of("Flatten")
    assert having(Trait.MOVES | Trait.SHAPE_FROM_NUMBERS) == {"Compress"}
    assert (parameters("Pad"), parameters("Add"), traits_of("nobody.Knows")) == ((1, 2, 3), (), Trait(0))


@pytest.mark.parametrize(
    ("trait", "attributes", "otherwise"),
    [
        (Trait.SLIDES, {"kernel_shape", "strides"}, set()),
        (Trait.REDUCES, {"keepdims"}, {"SplitToSequence"}),  # its keepdims is about the pieces of a sequence
        (Trait.NORMALIZES, {"epsilon"}, set()),
    ],
)
def test_what_the_standard_says_in_its_attributes(trait, attributes, otherwise):
    said = {op for op, schema in SCHEMAS.items() if attributes <= schema.attributes.keys()} - otherwise
    assert having(trait) & SCHEMAS.keys() == said


def test_operators_with_a_body_are_those_with_a_graph_for_an_attribute():
    graph = defs.OpSchema.AttrType.GRAPH
    with_graph = {op for op, s in SCHEMAS.items() if any(a.type == graph for a in s.attributes.values())}
    assert having(Trait.HAS_BODY) == with_graph


# Experiments: each says of a probe whether it behaves as the trait has it


def _anything(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.uniform(-3, 3, shape)


def _labelled(probe: Probe) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """(data without two equal elements, of both signs, these in order)"""
    sizes = np.cumsum([0, *(x.size for x in probe.floats.values())])
    labels = 1000.25 * (-1.0) ** np.arange(sizes[-1]) + np.arange(sizes[-1])
    data = {k: labels[n : n + x.size].reshape(x.shape) for n, (k, x) in zip(sizes, probe.floats.items())}
    return data, labels


def _floats(results: list[np.ndarray]) -> list[np.ndarray]:
    return [x for x in results if x.dtype.kind == "f"]


def _row(results: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(x.ravel() for x in results)])


def moves(probe: Probe) -> bool:
    """The same places hold the same operands' elements when all elements change, and the rest stays as it is."""
    if not _floats(probe({})[:1]):
        return False
    data, labels = _labelled(probe)
    other = {k: -x * 2 for k, x in data.items()}
    before, after = (_row(probe(x)) for x in (data, other))
    moved = np.isin(before, labels)
    return (
        before.shape == after.shape
        and np.array_equal(after[moved], -2 * before[moved])
        and np.array_equal(after[~moved], before[~moved])
        and set(before[~moved]) <= set(probe.numbers)
    )


def permutes(probe: Probe) -> bool:
    data, labels = _labelled(probe)
    return np.array_equal(np.sort(_row(probe(data))), np.sort(labels))


def keeps_order(probe: Probe) -> bool:
    data, labels = _labelled(probe)
    return np.array_equal(_row(probe(data)), labels)


def copies(probe: Probe) -> bool:
    data = probe.filled(lambda shape: np.round(np.abs(_anything(shape))))
    result = probe(data)[0]
    given = data.get(0, probe.operands[0])
    return given is not None and np.array_equal(result, given.astype(result.dtype))


def selects(probe: Probe) -> bool:
    data = probe.filled(_anything)
    result = probe(data)[0]
    return set(result.ravel()) <= {*_row([*data.values()]), *probe.numbers.astype(result.dtype)}


def within(probe: Probe) -> bool:
    data = probe.filled(_anything)
    result, there = probe(data)[0], np.concatenate([_row([*data.values()]), probe.numbers])
    return bool((result >= there.min() - 1e-5).all() and (result <= there.max() + 1e-5).all())


def monotone(probe: Probe) -> bool:
    low = probe.filled(_anything)
    high = {k: x + RNG.choice([0, 0.01, 1, 3], x.shape) for k, x in low.items()}
    before, after = probe(low)[0].astype(np.float64), probe(high)[0].astype(np.float64)
    return not (after < before - 1e-5 * np.maximum(1, np.abs(before))).any()


def _equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    size = max(np.abs(1.0 * wanted).max(initial=0.0), 1e-3)
    alike = found.shape == wanted.shape and found.dtype.kind == wanted.dtype.kind == "f"
    return alike and bool((np.abs(found - wanted) <= 1e-4 * size).all())


def homogeneous(probe: Probe) -> bool:
    data = probe.filled(_anything)
    return _equal(probe({k: 4 * x for k, x in data.items()})[0], 4 * probe(data)[0])


def linear(probe: Probe) -> bool:
    a, b = probe.filled(_anything), probe.filled(_anything)
    return homogeneous(probe) and _equal(probe({k: a[k] + b[k] for k in a})[0], probe(a)[0] + probe(b)[0])


def affine(probe: Probe) -> bool:
    """Of its first operand, whatever the others are."""
    first, others = min(probe.floats), probe.filled(_anything)
    a, b = _anything(others[first].shape), _anything(others[first].shape)
    middle = probe({**others, first: (a + b) / 2})[0]
    return _equal(middle, (probe({**others, first: a})[0] + probe({**others, first: b})[0]) / 2)


def keeps_grid(probe: Probe) -> bool:
    """Whole numbers give fractions of small denominators."""
    if not np.array_equal(64 * probe.numbers, np.round(64 * probe.numbers)):
        return True  # a slope of .01, say: the step is another
    data = probe.filled(lambda shape: np.round(_anything(shape)))
    multiple = probe(data)[0].astype(np.float64) * 64 * 9 * 5 * 7 * 11
    return bool((np.abs(multiple - np.round(multiple)) <= 1e-6 * np.abs(multiple) + 1e-2).all())


def elementwise(probe: Probe) -> bool:
    """Of the shape that the operands broadcast to; and where an element stays, the result does."""
    shape = np.broadcast_shapes(*(x.shape for x in probe.data.values()))
    data = probe.filled(_anything)
    k, changes = min(data), RNG.random(data[min(data)].shape) < 0.5
    before, after = (probe(x)[0] for x in (data, {**data, k: data[k] + changes}))
    same = ~np.broadcast_to(changes, shape)
    return before.shape == shape and np.array_equal(before[same], after[same], equal_nan=True)


def commutes(probe: Probe) -> bool:
    a, b = (probe.operands[k] for k in (0, 1))
    return all(np.array_equal(*both) for both in zip(probe({}), probe({0: b, 1: a})))


def reads_shape(probe: Probe) -> bool:
    """Other data, of all kinds, change nothing."""
    first, *others = [probe(data) for data in _at_turns(probe)]
    return all(np.array_equal(*both) for other in others for both in zip(first, other))


def _at_turns(probe: Probe) -> list[dict[int, np.ndarray]]:
    """Data that lie where functions turn: whole numbers, halves, zeros, what is equal; and anything."""
    whole = probe.filled(lambda shape: np.round(_anything(shape)))
    equal = [probe.filled(lambda shape, x=x: np.full(shape, x)) for x in (0, 1, -1, 2, -2, 0.5, np.pi / 2)]
    return [probe.filled(_anything), whole, {k: x + 0.5 for k, x in whole.items()}, *equal]


def decides(probe: Probe) -> bool:
    """Data that move by 1e-6 move a finite element of a result by more than a twentieth."""
    for data in _at_turns(probe):
        moved = {k: x + 1e-6 * RNG.uniform(-1, 1, x.shape) for k, x in data.items()}
        for before, after in zip(probe(data), probe(moved)):
            a, b = before.astype(np.float64), after.astype(np.float64)
            if a.shape != b.shape or (np.abs(a - b) > 0.05 * np.maximum(1, np.abs(a)))[np.isfinite(a * b)].any():
                return True
    return False


def has_poles(probe: Probe) -> bool:
    """Small data give something huge, or no number."""
    return any(not (np.abs(x) < 1e6).all() for data in _at_turns(probe) for x in _floats(probe(data)))


def shape_from_numbers(probe: Probe) -> bool:
    return len({tuple([x.shape for x in probe(data)]) for data in _at_turns(probe)}) > 1


Behaves = Callable[[Probe], bool]
ALWAYS: dict[Trait, Behaves] = {
    Trait.MOVES: moves,
    Trait.PERMUTES: permutes,
    Trait.KEEPS_ORDER: keeps_order,
    Trait.COPIES: copies,
    Trait.SELECTS: selects,
    Trait.WITHIN: within,
    Trait.MONOTONE: monotone,
    Trait.HOMOGENEOUS: homogeneous,
    Trait.LINEAR: linear,
    Trait.AFFINE: affine,
    Trait.WEIGHTED: affine,
    Trait.KEEPS_GRID: keeps_grid,
    Trait.ELEMENTWISE: elementwise,
    Trait.COMMUTES: commutes,
    Trait.READS_SHAPE: reads_shape,
}
SOMETIMES: dict[Trait, Behaves] = {
    Trait.DECIDES: decides,
    Trait.HAS_POLES: has_poles,
    Trait.SHAPE_FROM_NUMBERS: shape_from_numbers,
}


def _as_stated(op: str, probe: Probe) -> bool:
    """Whether its attributes are among those that the rows are about."""
    training = op == "Dropout" and bool(probe.node.input[2:])
    return not training and all(a.name != "reduction" or a.s == b"none" for a in probe.node.attribute)


BOTH_WAYS = {Trait.MOVES, Trait.HOMOGENEOUS, Trait.LINEAR, Trait.READS_SHAPE, *SOMETIMES}
"""Traits of which a row that lacks them is seen too: who behaves so on every probe has them, or is excused."""
EXCUSED = {
    (Trait.MOVES, "Resize"): "nearest, to the same size",
    (Trait.MOVES, "Det"): "of matrices of one element",
    (Trait.HOMOGENEOUS, "Det"): "of matrices of one element",
    (Trait.LINEAR, "Det"): "of matrices of one element",
    (Trait.HOMOGENEOUS, "Pad"): "with zeros",
    (Trait.LINEAR, "Pad"): "with zeros",
    (Trait.LINEAR, "RoiAlign"): "its maxima are not",
    (Trait.READS_SHAPE, "IsInf"): "no data are infinite here",
    (Trait.READS_SHAPE, "IsNaN"): "all data are numbers here",
    (Trait.DECIDES, "IsInf"): "flips where a pole before it gives no number",
    (Trait.DECIDES, "IsNaN"): "flips where a pole before it gives no number",
    (Trait.DECIDES, "LpNormalization"): "jumps at its pole alone",
    (Trait.DECIDES, "Tan"): "jumps at its poles alone",
    (Trait.HAS_POLES, "CumProd"): "huge, of many factors",
    (Trait.HAS_POLES, "ReduceProd"): "huge, of many factors",
    (Trait.HAS_POLES, "LpNormalization"): "0 / 0, of which onnxruntime makes 0",
    (Trait.SHAPE_FROM_NUMBERS, "Compress"): "of its mask, a parameter",
}


@pytest.mark.parametrize("trait", [*ALWAYS, *SOMETIMES], ids=lambda trait: trait.name)
def test_operators_behave_as_their_rows_say(trait):
    RNG.bit_generator.state = FRESH  # the same whichever tests ran before
    behaves, expected = (ALWAYS | SOMETIMES)[trait], having(trait)
    seen: dict[str, list[bool]] = {}
    for op, probe in tried():
        if (op in expected or trait in BOTH_WAYS) and (trait, op) not in EXCUSED and _as_stated(op, probe):
            with np.errstate(all="ignore"):
                seen.setdefault(op, []).append(behaves(probe))
    found = {op for op, each in seen.items() if (any if trait in SOMETIMES else all)(each)}
    assert found, "nothing was tried"
    assert not (wrong := seen.keys() & expected - found), f"{trait} is in the rows of {sorted(wrong)}, but not seen"
    assert not (more := found - expected), f"{trait} is seen of {sorted(more)}, but not in their rows"


def test_most_operators_are_tried():
    operators = {op for op, _ in tried()}
    assert len(operators) > 150, f"only {sorted(operators)}"
