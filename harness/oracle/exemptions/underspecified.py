"""What the ONNX standard leaves open, or where its own implementations differ: no failure there is anybody's bug.

An output that depends on such a place is not judged where it fails, unless by ball arithmetic that takes in what may be
chosen. Each rule is a predicate on one node, with the recorded tensors of a feed, and says where the disagreement can
be seen.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from driftnet.model.graph import Graph, Node, Values
from driftnet.model.operators import Trait, having, traits_of
from driftnet.oracle.ball_arithmetic.ball import Ball, is_float
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation, applied
from driftnet.oracle.ball_arithmetic.sliding import CEIL_MODE_SETTLED, window_attributes

POOLS = having(Trait.POOLS | Trait.SLIDES) - having(Trait.IN_CODES)
WINDOWED = having(Trait.SLIDES) - {"ConvTranspose", "MaxUnpool"}  # whose windows slide over the result
EXTREMES = having(Trait.EXTREME) | {"DynamicQuantizeLinear"}  # which takes the range of its operand
CASTS = having(Trait.COPIES | Trait.DECIDES)
SCATTERS = frozenset({"ScatterElements", "ScatterND"})  # what else moves to places is told each place once
OPEN = frozenset(  # rules say so by raising Open
    {"Cast", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceSumSquare", "Resize"}
    | {"RoiAlign", "TopK", "Upsample"}
)
"""what a rule of ball arithmetic raises Open of"""
MASK_SETTLED = 12
"""the opset from which on Dropout says when it is in training"""


@dataclass(frozen=True)
class Contested:
    """A rule: its name, where the disagreement can be seen, and whether a node falls under it.

    applies(node, tensors of one feed with constants, opset)
    bounded   the node's ball holds every answer that is right, and its shape is agreed upon
    """

    name: str
    source: str
    applies: Callable[[Node, Values, int], bool]
    bounded: bool = False


def find(
    graph: Graph, records: tuple[Values, ...], outputs: Iterable[str], *, bounded: bool = True
) -> tuple[Contested, Node] | None:
    """The first rule that applies to a node before tensors `outputs` of `graph`, under the tensors of any feed, and
    that node.

    bounded  the rules that are bounded too: of no use to who went by ball arithmetic, or asks for a shape
    """
    nodes = graph.ancestors(*outputs)
    for run in records:
        tensors: Mapping[str, np.ndarray] = {**graph.constants, **run}
        for node in nodes:
            for rule in RULES:
                if (bounded or not rule.bounded) and rule.applies(node, tensors, graph.opset):
                    return rule, node
    return None


def named(graph: Graph, words: str) -> set[str]:
    """The results of the nodes of `graph` that a system names in these words, by name, result or operator."""

    def is_named(node: Node) -> bool:
        return any(re.search(rf"\b{re.escape(name)}\b", words) for name in (node.op, node.name, *node.outputs) if name)

    return {name for node in graph.nodes if is_named(node) for name in node.outputs if name}


def is_open(node: Node, tensors: Values, opset: int) -> bool:
    """Whether any rule applies to `node`."""
    return any(rule.applies(node, tensors, opset) for rule in RULES)


def _window_beyond_input(node: Node, tensors: Values, opset: int) -> bool:
    x, kernel = tensors.get(node.input(0)), _kernel(node, tensors)
    padded_automatically = node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if node.op not in WINDOWED or x is None or len(kernel) != x.ndim - 2 or padded_automatically:
        return False
    pads = node.attributes.get("pads") or [0] * 2 * len(kernel)
    dilations = node.attributes.get("dilations") or [1] * len(kernel)
    return any(
        (k - 1) * d + 1 > size + begin + end
        for k, d, size, begin, end in zip(kernel, dilations, x.shape[2:], pads, pads[len(kernel) :])
    )


def _kernel(node: Node, tensors: Values) -> list[int]:
    weights = tensors.get(node.input(3 if Trait.IN_CODES in traits_of(node.op) and len(node.inputs) > 4 else 1))
    if weights is not None and Trait.CONTRACTS in traits_of(node.op):
        return list(weights.shape[2:])
    return list(node.attributes.get("kernel_shape", ()))


def _window_in_padding(node: Node, tensors: Values, opset: int) -> bool:
    return any(start >= inside for start, _, inside, _ in _last_windows(node, tensors, opset))


def _open_divisor(node: Node, tensors: Values, opset: int) -> bool:
    counted = node.op == "AveragePool" and node.attributes.get("count_include_pad", 0)
    return bool(counted) and any(end > padded for _, end, _, padded in _last_windows(node, tensors, opset))


def _last_windows(node: Node, tensors: Values, opset: int) -> Iterator[tuple[int, int, int, int]]:
    """(begin and end of the last window of ceil_mode, those of the padding behind) for each axis, where it is open."""
    x = tensors.get(node.input(0))
    if node.op not in POOLS or not node.attributes.get("ceil_mode") or opset >= CEIL_MODE_SETTLED or x is None:
        return
    kernel = node.attributes["kernel_shape"]
    strides, dilations, pads = window_attributes(node, len(kernel))
    for axis, (n, k, s, d) in enumerate(zip(x.shape[2:], kernel, strides, dilations)):
        inside, reach = n + pads[axis], (k - 1) * d + 1
        padded = inside + pads[axis + len(kernel)]
        start = -(-(padded - reach) // s) * s
        yield start, start + reach, inside, padded


def _zero_scale(node: Node, tensors: Values, opset: int) -> bool:
    scale = tensors.get(node.input(1))
    return node.op == "QuantizeLinear" and scale is not None and not (np.asarray(scale, np.float64) > 0).all()


def _no_range(node: Node, tensors: Values, opset: int) -> bool:
    x = tensors.get(node.input(0))
    return node.op == "DynamicQuantizeLinear" and x is not None and not np.asarray(x).any()


def _surplus_activations(node: Node, tensors: Values, opset: int) -> bool:
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    return node.op == "RNN" and len(node.attributes.get("activations", ())) > directions


def _slope_beyond_operand(node: Node, tensors: Values, opset: int) -> bool:
    x, y = tensors.get(node.input(0)), tensors.get(node.outputs[0])
    return node.op == "PRelu" and x is not None and y is not None and x.shape != y.shape


def _mask_outside_training(node: Node, tensors: Values, opset: int) -> bool:
    return node.op == "Dropout" and any(node.outputs[1:]) and opset < MASK_SETTLED


def _maximum_of_nan(node: Node, tensors: Values, opset: int) -> bool:
    operands = [tensors[name] for name in node.inputs if name in tensors]
    extreme = node.op in EXTREMES or node.attributes.get("reduction") in ("max", "min")
    return extreme and any(x.dtype.kind == "f" and np.isnan(x).any() for x in operands)


def _index_between(node: Node, tensors: Values, opset: int) -> bool:
    indices = tensors.get(node.inputs[0]) if node.op == "OneHot" else None
    return indices is not None and is_float(indices.dtype) and bool((indices != np.floor(indices)).any())


def _told(operators: frozenset[str], node: Node, tensors: Values, opset: int) -> Evaluation | None:
    """What ball arithmetic makes of a node of one of `operators` when it is told the operands."""
    if node.op not in operators or any(name and name not in tensors for name in node.inputs):
        return None
    return applied(node, {name: tensors[name] for name in node.inputs if name}, opset)


def _no_answer(operators: frozenset[str], node: Node, tensors: Values, opset: int) -> bool:
    """Whether ball arithmetic says that nobody has one."""
    evaluation = _told(operators, node, tensors, opset)
    return evaluation is not None and bool(evaluation.open)


def _several_answers(operators: frozenset[str], node: Node, tensors: Values, opset: int) -> bool:
    """Whether ball arithmetic allows results that differ by more than rounding."""
    evaluation = _told(operators, node, tensors, opset)
    balls = evaluation.balls if evaluation else {}
    found = [balls[name] for name in node.outputs if isinstance(balls.get(name), Ball)]
    return any((np.isinf(ball.error) if is_float(ball.dtype) else ball.error > 0).any() for ball in found)


RULES = (
    Contested(
        "window larger than its padded input",
        "the size formula gives less than one window; onnxruntime rounds it towards zero, onnx.reference down",
        _window_beyond_input,
    ),
    Contested(
        "window of ceil_mode in the padding, before opset 19",
        "https://github.com/onnx/onnx/pull/5741: opset 19 settled that it may not start there",
        _window_in_padding,
    ),
    Contested(
        "window of ceil_mode beyond the padding, before opset 19",
        "https://github.com/onnx/onnx/pull/5741: by how many elements AveragePool divides there; it may be either",
        _open_divisor,
        bounded=True,
    ),
    Contested(
        "scale that is not positive",
        "QuantizeLinear divides by it; the standard says nothing of the result",
        _zero_scale,
    ),
    Contested(
        "range of nothing but zeros",
        "DynamicQuantizeLinear: its scale is 0 by the standard, which divides by it; onnxruntime gives 1, "
        "onnx.reference 1/255",
        _no_range,
    ),
    Contested(
        "more activations than directions need",
        "onnxruntime ignores the surplus, onnx.reference refuses it",
        _surplus_activations,
    ),
    Contested(
        "float beyond the range of an integer",
        "Cast: undefined if out of range, says the standard; engines wrap, saturate, or do what the processor does",
        partial(_several_answers, CASTS),
        bounded=True,
    ),
    Contested(
        "index that occurs twice",
        "ScatterElements, ScatterND: should not have duplicates, says the standard; either update may win",
        partial(_several_answers, SCATTERS),
        bounded=True,
    ),
    Contested(
        "index between two whole numbers",
        "OneHot: cast to the one nearer to zero, says the standard; onnxruntime and onnx.reference find none there",
        _index_between,
        bounded=True,
    ),
    Contested(
        "slope that is larger than what it is of",
        "PRelu: broadcast to its operand, says the standard; onnxruntime and onnx.reference broadcast that, too",
        _slope_beyond_operand,
    ),
    Contested(
        "mask outside of training, before opset 12",
        "Dropout: onnxruntime gives false, onnx.reference true",
        _mask_outside_training,
        bounded=True,
    ),
    Contested(
        "maximum of numbers and NaN",
        "onnxruntime skips a NaN in ReduceMax, onnx.reference gives it",
        _maximum_of_nan,
        bounded=True,
    ),
    Contested(
        "result of which the standard says too little",
        "how integers are interpolated or averaged, how a float is written, the order of what is not sorted, and what "
        "else raises Open in harness/oracle/ball_arithmetic: onnxruntime and onnx.reference differ, or editions of "
        "the standard",
        partial(_no_answer, OPEN),
        bounded=True,
    ),
)
