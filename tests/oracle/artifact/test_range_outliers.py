"""Ranges of an artifact whose calibration nobody knows: what stands out from the others, and what cannot be."""

import numpy as np
import pytest
from driftnet.diagnosis.synthetic_inputs import made_to_fit
from driftnet.model import graph as graphs
from driftnet.model.graph import Node
from driftnet.oracle.artifact.verified.calibration import Calibration
from driftnet.oracle.artifact.verified.format import Format, Rounding
from driftnet.oracle.artifact.verified.range_outliers import Proportion, outliers
from driftnet.run.runner import Runner
from onnx import TensorProto

from tests.oracle.artifact.test_verified import B, W, X, model, problems

CHAIN = graphs.read(model([("Sin", [a], [b], {}) for a, b in zip("xabcd", "abcdy")]))
MULTIPLES = graphs.read(model([("Mul", [a, "two"], [b], {}) for a, b in zip("xabcd", "abcdy")], two=np.float32(2)))
DATA = {name: np.linspace(-1, 1, 100, dtype=np.float32) for name in "xabcdy"}


def standing_out(alike=False, graph=MULTIPLES, exact="", elements=100, names="xabcdy", **log2):
    """The tensors of a chain of operators that stand out, whose ranges hold 2 to the power of that times the data; of
    those in `exact` calibration saw the same. Of `names` the ranges are known."""
    proportions = []
    for name in names:
        size = 2.0 ** log2.get(name, 0.0)
        rounding = Rounding(name, Format("s"), Node("QuantizeLinear", (name,), ("q",), {}), "q")
        off = log2.get(name, 0.0)
        proportions.append(Proportion(rounding, name, off, (-size, size), (-1.0, 1.0), name in exact, off))
    records = [{name: x[:: len(x) // elements] for name, x in DATA.items()}]
    return [p.name for p, *_ in outliers(graph, proportions, records, alike)]


def test_a_range_that_cuts_made_up_data_off_stands_out_sooner_than_a_wide_one():
    assert standing_out(b=-1.5) == ["b"]
    assert standing_out(b=1.5) == []
    assert standing_out(b=2.5) == ["b"]


def test_a_range_stands_out_from_those_beside_it_too():
    assert standing_out(b=-1.5, c=-1.4) == [], "the data of the layers from b to c are of another size"
    assert standing_out(b=-1.5, d=-1.4) == ["b", "d"]


def test_the_size_of_made_up_inputs_says_nothing_and_that_of_others_must_be_right():
    assert standing_out(x=-3, b=-1.5) == ["b"]
    assert standing_out(alike=True, x=3, b=-1.5) == [], "these are not the data of calibration"
    assert standing_out(alike=True, x=-3, b=-1.5) == ["x"], "nor are these, but most of the input is cut off"
    assert standing_out(alike=True, b=0.8) == ["b"]


@pytest.mark.parametrize(("log2", "wrong"), [(-0.5, True), (1.5, False), (2.5, True)])
def test_where_all_others_are_as_calibration_saw_them_the_range_of_an_input_is_judged(log2, wrong):
    """One of another proportion says nothing of calibration then; but many a quantizer takes [0, 1] for any image."""
    assert standing_out(alike=True, x=log2, exact="abcdy") == ["x"] * wrong


@pytest.mark.parametrize(("log2", "wrong"), [(3.0, False), (8.0, True)])
def test_what_all_ranges_are_wider_by_is_told_of_the_input(log2, wrong):
    assert standing_out(alike=True, **dict.fromkeys("xabcdy", log2)) == ["x"] * wrong
    assert standing_out(alike=True, **dict.fromkeys("abcdy", log2)) == [], "the input's own range is right"


@pytest.mark.parametrize(
    ("log2", "elements", "wrong"), [(3.0, 100, False), (4.5, 100, True), (8.0, 100, True), (8.0, 10, False)]
)
def test_an_input_of_many_elements_is_told_that_its_range_is_far_wider_whatever_the_others_are(log2, elements, wrong):
    """One number, as the time of a diffusion, may be anything that calibration saw."""
    got = standing_out(alike=True, elements=elements, x=log2)
    assert got == ["x"] * wrong, f"x is 2 ** {log2} times too wide, of {elements} elements: told of {got}"


MAPPED = [("Transpose", ["x"], ["a"], {}), ("Mul", ["a", "two"], ["b"], {})]
SINES = [("Sin", [a], [b], {}) for a, b in zip("bcd", "cdy")]


@pytest.mark.parametrize(
    ("first", "wide", "accused"), [("a", "ab", "a"), ("b", "b", "b"), ("c", "c", ""), ("a", "b", "")]
)
def test_what_only_moves_or_maps_an_input_is_told_as_it_is(first, wide, accused):
    """The sines behind, which are as large whatever was calibrated on, do not hide it; c is the first of them."""
    graph = graphs.read(model([*MAPPED, *SINES], two=np.float32(2)))
    log2 = {name: 8.0 if name in wide else 1.5 * k for k, name in enumerate("abcdy")}
    got = standing_out(alike=True, graph=graph, names="abcdy"["abcdy".index(first) :], **log2)
    assert got == list(accused), f"the ranges of {wide} are 256 times too wide: told of {got}, not of {accused}"


@pytest.mark.parametrize("log2", [1.0, 0.5, -0.5])
def test_where_all_others_are_as_calibration_saw_them_a_small_range_is_wrong_that_is_not(log2):
    few = {"alike": True, "elements": 10}
    assert standing_out(b=log2, exact="xacdy", **few) == ["b"]
    assert standing_out(b=log2, exact="xad", **few) == [], "calibration may have seen other data"
    assert standing_out(b=log2, d=0.8 * log2, exact="xacy", **few) == [], "two are off: these may be other data"


def test_what_is_bounded_by_definition_need_not_have_the_proportion_of_the_others():
    others = {"a": 3, "c": 3, "d": 3, "y": 3}
    assert standing_out(b=-1, **others) == ["b"]
    assert standing_out(graph=CHAIN, b=-1, **others) == [], "a sine is as large, whatever it is of"


@pytest.mark.parametrize(("most", "wrong"), [(1.0, []), (1.9, []), (20.0, ["ss"])])
def test_no_range_holds_much_that_an_operator_cannot_give(most, wrong):
    floating = model([("Softmax", ["x"], ["s"], {}), ("Transpose", ["s"], ["t"], {}), ("Neg", ["t"], ["y"], {})])
    nodes = [
        ("Softmax", ["x"], ["s"], {}),
        ("Transpose", ["s"], ["t"], {}),
        ("QuantizeLinear", ["t", "ss", "zero"], ["q"], {}),
        ("DequantizeLinear", ["q", "ss", "zero"], ["d"], {}),
        ("Neg", ["d"], ["y"], {}),
    ]
    seen = Calibration({"s": (0.0, 0.3), "t": (0.0, 0.3)}, sampled=True)
    found = problems(nodes, floating, seen, ss=np.float32(most / 255), zero=np.uint8(0))
    assert [where for _, where in found] == wrong


def test_what_an_operator_bounds_on_one_side_only_has_no_proportion_to_that():
    floating = model(
        [("Clip", ["x", "least", "most"], ["c"], {}), ("Neg", ["c"], ["y"], {})],
        least=np.float32(0),
        most=np.float32(np.inf),
    )
    nodes = [
        ("Clip", ["x", "least", "most"], ["c"], {}),
        ("QuantizeLinear", ["c", "cs", "zero"], ["q"], {}),
        ("DequantizeLinear", ["q", "cs", "zero"], ["d"], {}),
        ("Neg", ["d"], ["y"], {}),
    ]
    constants = {"least": np.float32(0), "most": np.float32(np.inf), "cs": np.float32(1 / 255), "zero": np.uint8(0)}
    assert problems(nodes, floating, Calibration({"c": (0.0, 1.0)}, sampled=True), **constants) == []


@pytest.mark.parametrize("share", [1.0, 0.125])
def test_made_up_data_are_as_large_as_the_ranges_of_an_artifact(share):
    floating = model([("Transpose", ["x"], ["t"], {}), ("Gemm", ["t", "w", "b"], ["y"], {"transA": 1})], w=W, b=B * 0)
    sizes = {"t": 50.0, "y": 50.0 * share * float(np.abs(W).sum(0).max())}
    rounded = [
        [
            (op, [reads, f"{name}s", "zero"], [makes], {})
            for op, reads, makes in zip(("QuantizeLinear", "DequantizeLinear"), *names)
        ]
        for name, names in {"t": (("t", "q"), ("q", "d")), "y": (("p", "r"), ("r", "y"))}.items()
    ]
    nodes = [("Transpose", ["x"], ["t"], {}), *rounded[0], ("Gemm", ["d", "w", "b"], ["p"], {"transA": 1}), *rounded[1]]
    scales = {f"{name}s": np.float32(size / 127) for name, size in sizes.items()}
    artifact = model(nodes, w=W, b=B * 0, zero=np.int8(0), **scales)
    with Runner(small_models=True) as runner:
        (feed,) = made_to_fit([{"x": X / np.abs(X).max()}], floating, artifact, runner)
    assert 0.8 * 50 * share < np.abs(feed["x"]).max() <= 1.01 * 50 * share, (
        "outliers make a range larger than most data"
    )


def test_made_up_data_are_numbers_of_their_dtype():
    rounded = [("QuantizeLinear", ["x", "s", "zero"], ["q"], {}), ("DequantizeLinear", ["q", "s", "zero"], ["y"], {})]
    protos = []
    for nodes in ([("Neg", ["x"], ["y"], {})], rounded):
        protos.append(model(nodes, s=np.float16(1), zero=np.uint16(0)))
        protos[-1].opset_import[0].version = 21
        for value in (*protos[-1].graph.input, *protos[-1].graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    with Runner(small_models=True) as runner:
        (feed,) = made_to_fit([{"x": X.astype(np.float16)}], *protos, runner)
    assert np.isfinite(feed["x"]).all(), "a range of 16 bits goes beyond float16"
