"""Nodes that may come between a tensor and all that read it: they keep its type and its shape."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from driftnet.generators.mutation.draft import Dice, Draft
from onnx import TensorProto, helper

# Drawn from, in this order: with one operator more every (seed, index) names another mutated model. So these are lists,
# and no queries, which grow with the table of traits.
SIBLINGS = (
    ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Abs"),
    ("Neg", "Ceil", "Floor", "Round", "Sign", "Identity", "Sin", "Cos", "Atan", "Erf"),
    ("Add", "Sub", "Mul", "Div", "PRelu"),
    ("Max", "Min", "Sum", "Mean"),
    ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
    ("MaxPool", "AveragePool", "LpPool"),
    ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("ArgMax", "ArgMin"),
    ("Less", "Greater", "Equal"),
    ("And", "Or", "Xor"),
)
"""Operators that take the place of each other; attributes that the new one has not are dropped."""

Insertion = Callable[[Draft, Dice, str, str], Iterator[onnx.NodeProto]]
"""(draft, dice, name of the tensor, name of the result) -> nodes"""


def _unary(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node(dice.pick(SIBLINGS[0] + SIBLINGS[1]), [x], [y])


def _with_constant(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    last = (draft.dims(x) or [1])[-1]
    size = last if last > 0 and dice.below(2) else 1
    dtype = helper.tensor_dtype_to_np_dtype(draft.element(x))
    operands = [x, draft.constant(np.asarray([0.5 * (1 + dice.below(5)) for _ in range(size)], dtype))]
    operator = dice.pick(("Add", "Mul", "Sub", "Div"))  # in the order of draws, as `SIBLINGS`
    yield helper.make_node(operator, operands[:: dice.pick((1, -1))], [y])


def _transposes(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    perm = list(range(len(draft.dims(x) or [])))
    for k in range(len(perm) - 1, 0, -1):
        j = dice.below(k + 1)
        perm[k], perm[j] = perm[j], perm[k]
    yield helper.make_node("Transpose", [x], [f"{y}_there"], perm=perm)
    yield helper.make_node("Transpose", [f"{y}_there"], [y], perm=[perm.index(k) for k in range(len(perm))])


def _flattened(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Shape", [x], [f"{y}_shape"])
    yield helper.make_node("Reshape", [x, draft.constant(np.array([-1]))], [f"{y}_flat"])
    yield helper.make_node("Reshape", [f"{y}_flat", f"{y}_shape"], [y])


def _doubled(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    axis = dice.below(len(draft.dims(x) or [1]))
    yield helper.make_node("Concat", [x, x], [f"{y}_twice"], axis=axis)
    yield helper.make_node("Shape", [x], [f"{y}_shape"])
    yield helper.make_node("Gather", [f"{y}_shape", draft.constant(np.array([axis]))], [f"{y}_size"])
    yield helper.make_node(
        "Slice", [f"{y}_twice", draft.constant(np.array([0])), f"{y}_size", draft.constant(np.array([axis]))], [y]
    )


def _pair(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    if draft.element(x) != TensorProto.FLOAT:
        yield helper.make_node("Identity", [x], [y])
        return
    scale = draft.constant(np.array(2.0 ** -(1 + dice.below(6)), np.float32))
    zero_point = draft.constant(np.array(0, dice.pick((np.int8, np.uint8))))
    yield helper.make_node("QuantizeLinear", [x, scale, zero_point], [f"{y}_codes"])
    yield helper.make_node("DequantizeLinear", [f"{y}_codes", scale, zero_point], [y])


def _norm(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    channels = (draft.dims(x) or [0, -1])[1]
    if channels <= 0 or draft.element(x) != TensorProto.FLOAT:
        yield helper.make_node("Identity", [x], [y])
        return
    values = [np.asarray([0.25 * (1 + dice.below(8)) for _ in range(channels)], np.float32) for _ in range(4)]
    names = [draft.constant(x) for x in values]
    yield helper.make_node("BatchNormalization", [x, *names], [y])


INSERTIONS: tuple[tuple[Insertion, int], ...] = (
    (_unary, 0),
    (_with_constant, 0),
    (_flattened, 0),
    (_pair, 0),
    (_doubled, 1),
    (_transposes, 2),
    (_norm, 2),
)
"""What may be inserted, and the least rank it needs."""
