"""Bugs of converters in operators without weights: elementwise ones, reductions, data movement."""

import numpy as np
from driftnet.selfcheck.converter import POOLS, bug, on
from driftnet.selfcheck.site import Site, put
from onnx import NodeProto, TensorProto

# Those that networks feed with one number a channel.
BROADCASTING = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Sub")
# Those that converters fuse into the layer before.
ACTIVATIONS = ("Clip", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Tanh")

# {attribute: (its default, operators that are generated with it, the focus where that is another)}
FLAGS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "ceil_mode": (0, (*POOLS, "LpPool"), ()),
    "count_include_pad": (0, ("AveragePool",), ("AveragePool", "padded-pool")),
    "exclusive": (0, ("CumSum",), ()),
    "keepdims": (1, ("ReduceMean", "ReduceSum", "ReduceMax", "ArgMax"), ()),
    "largest": (1, ("TopK",), ()),
    "linear_before_reset": (0, ("GRU",), ()),
    "select_last_index": (0, ("ArgMax", "ArgMin"), ()),
}
for _flag, (_default, _op_types, _focus) in FLAGS.items():
    _toggled = put(**{_flag: lambda value, default=_default: 1 - (default if value is None else value)})
    bug(f"toggled-{_flag}".replace("_", "-"), _op_types, _toggled, f"{_flag} is taken for its opposite.", _focus)


def backwards(at: Site) -> None:
    """The operands in the wrong order."""
    at.node.input[:] = at.node.input[::-1]


# Elementwise operators and activations

LOST_BOUND = "The upper bound of Clip is lost; where there is none, the lower one."
bug("lost-clip-bound", ["Clip"], lambda at: at.drop(2 if at.has(2) else 1), LOST_BOUND)
ORDERED = ("Sub", "Div", "Pow", "Mod", "Less", "Greater")  # of each kind, those that networks have
bug("swapped-operands", ORDERED, backwards, "The operands of an operator that is not commutative are exchanged.")


@on("Gelu")
def approximate_gelu(at: Site) -> None:
    """Gelu is computed by tanh where erf is asked for, and the other way round."""
    # By either way halves, rounded after each step, are further from the right result than the two are from each other.
    if at.is_float(0):
        at.put(approximate="none" if at.get("approximate") == "tanh" else "tanh")


@on(*BROADCASTING, focus=("scaled-conv", "group-norm", "PRelu", "Add", "Mul"))
def wrong_broadcast_axis(at: Site) -> None:
    """A constant that varies along one axis, like [C, 1, 1], is laid along another axis of as many elements."""
    for position in range(2):
        value, shape = at.constant(position), at.shape(1 - position)
        if value is None or shape is None or value.ndim > len(shape) or not _varies_along_one_axis(value):
            continue
        held = value.reshape(*[1] * (len(shape) - value.ndim), *value.shape)
        axis = held.shape.index(value.size)
        if others := [other for other, n in enumerate(shape) if n == value.size and other != axis]:
            at.feed(position, np.moveaxis(held, axis, others[-1]))


@on(*BROADCASTING, focus=("scaled-conv", "group-norm", "PRelu", "Add", "Mul"))
def lost_broadcast_stride(at: Site) -> None:
    """A constant that varies along one axis, like [C, 1, 1], has the stride 0 there: its first element serves all."""
    value = at.constant(1)
    if value is not None and _varies_along_one_axis(value):
        at.feed(1, np.full_like(value, value.flat[0]))


def _varies_along_one_axis(value: np.ndarray) -> bool:
    return value.size > 1 and value.size == max(value.shape)


@on(*ACTIVATIONS)
def dropped_activation(at: Site) -> None:
    """The activation is taken for one that was fused already."""
    del at.node.input[1:], at.node.attribute[:]
    at.node.op_type = "Identity"


@on("Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu", "Celu", "LRN")
def default_parameters(at: Site) -> None:
    """Parameters of an activation or of LRN are ignored in favour of the defaults."""
    at.put(alpha=None, beta=None, gamma=None, bias=None)


@on("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", focus=("residual-block", "unet-down"))
def activation_before_addition(at: Site) -> None:
    """The activation moves from behind an addition to its first operand."""
    addition = at.producer(0)
    # Of two operands or of several.
    if addition is None or addition.node.op_type not in ("Add", "Sum") or addition.consumers() > 1:
        return
    nodes, (first, *rest), inner = at.model.graph.node, list(addition.node.input), addition.node.output[0]
    operands, result = list(at.node.input)[1:], at.node.output[0]
    moved, activation = NodeProto(), NodeProto()
    moved.CopyFrom(addition.node)
    activation.CopyFrom(at.node)
    activation.input[:], activation.output[:] = [first, *operands], [inner]
    moved.input[:], moved.output[:] = [inner, *rest], [result]
    index = next(k for k, node in enumerate(nodes) if node.output[:1] == [result])
    nodes.remove(at.node)
    nodes.insert(index, moved)
    nodes.insert(index, activation)
    nodes.remove(addition.node)


@on("Where")
def swapped_branches(at: Site) -> None:
    """Where takes its third operand for its second."""
    at.node.input[1:] = at.node.input[:0:-1]


@on("Div", needs=("float",))  # eight bits could not tell
def division_by_reciprocal(at: Site) -> None:
    """Division by a constant becomes multiplication by the 12-bit estimate of its reciprocal that x86 offers."""
    value = at.constant(1)
    if value is not None and value.dtype == np.float32 and value.all():
        bits = (1 / value).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFF000)
        at.feed(1, bits.view(np.float32))
        at.node.op_type = "Mul"


@on("Cast")
def rounding_cast(at: Site) -> None:
    """Casting a fraction to an integer rounds where it should truncate."""
    whole_numbers = (TensorProto.INT32, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8)
    if at.get("to") in whole_numbers and at.is_float(0):
        at.before(0, "Round")


# Reductions


@on("Softmax", "LogSoftmax")
def softmax_over_another_axis(at: Site) -> None:
    """The axis of Softmax is taken to be the next one."""
    if shape := at.shape(0):
        axis = at.get("axis", -1 if at.opset >= 13 else 1)
        at.put(axis=(axis + 1) % len(shape))


@on("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2")
def reduction_over_another_axis(at: Site) -> None:
    """The axes of a reduction are taken to be the next ones."""
    shape, operand = at.shape(0), at.constant(1)
    if not shape:
        return
    if axes := at.get("axes"):
        at.put(axes=sorted({(axis + 1) % len(shape) for axis in axes}))
    elif operand is not None:
        at.feed(1, np.unique((operand + 1) % len(shape)))


@on("ReduceL2")
def lost_square_root(at: Site) -> None:
    """The root of ReduceL2 is forgotten."""
    at.node.op_type = "ReduceSumSquare"


@on("GlobalAveragePool")
def mean_of_one_more(at: Site) -> None:
    """A mean of n elements is divided by n + 1."""
    shape = at.shape(0)
    if shape and None not in shape and at.is_float(0):
        n = int(np.prod(np.array(shape[2:], np.int64)))
        at.after("Mul", np.asarray(n / (n + 1), np.float32))


# Data movement

bug("reversed-concat", ["Concat"], backwards, "Concat joins its operands in the wrong order.")
bug("other-triangle", ["Trilu"], put(upper=lambda upper: int(upper == 0)), "Trilu keeps the other triangle.")
DEPTH_FIRST = put(mode=lambda mode: "DCR" if mode == "CRD" else "CRD")
bug("toggled-depth-to-space-mode", ["DepthToSpace"], DEPTH_FIRST, "DepthToSpace takes columns first for depth first.")
SCATTERS = ("ScatterElements", "ScatterND")  # that combine what meets
bug("ignored-scatter-reduction", SCATTERS, put(reduction=None), "Scattering overwrites where it is to add or multiply.")
LINEAR = put(mode=lambda mode: "linear" if mode in (None, "nearest") else "nearest")
bug("linear-for-nearest", ["Resize"], LINEAR, "Resize takes nearest for linear, and the other way round.")


@on("Transpose", focus=("Transpose", "transposes"))
def inverted_perm(at: Site) -> None:
    """The permutation of Transpose is taken for its inverse."""
    if perm := at.get("perm"):
        at.put(perm=[int(k) for k in np.argsort(perm)])


@on("Split")
def reversed_split(at: Site) -> None:
    """The pieces of Split are handed out in the wrong order."""
    at.node.output[:] = at.node.output[::-1]


@on("Slice", focus=("Slice", "slices"))
def shifted_slice(at: Site) -> None:
    """Slice begins and ends one element beside its place, where it leaves out an end of the axis."""
    starts, ends, steps = at.constant(1), at.constant(2), at.constant(4)
    if starts is None or ends is None or (steps is not None and (steps < 0).any()):
        return
    endless = ends >= 2**31 - 1
    first = (starts == 0) & ~endless
    at.feed(1, np.where(first, 1, np.where(starts == 0, 0, starts - 1)))
    later, sooner = np.where(ends == -1, 2**31, ends + 1), np.where(endless, -1, ends - 1)
    at.feed(2, np.where(first, later, np.where(starts == 0, ends, sooner)))


@on("Pad", focus=("Pad", "padded-conv", "conv-padded"))
def swapped_pad_ends(at: Site) -> None:
    """Pad puts at the beginning what belongs at the end."""
    if (pads := at.constant(1)) is not None:
        at.feed(1, np.roll(pads, pads.size // 2))


@on("Pad")
def edge_for_reflection(at: Site) -> None:
    """Pad repeats the edge where it is to reflect, and zeros where it is given a value."""
    at.drop(2)
    if at.get("mode") == "reflect":
        at.put(mode="edge")


@on("Gather", "GatherElements", focus=("Gather", "GatherElements", "embedding"))
def clipped_negative_indices(at: Site) -> None:
    """A negative index is taken for the first."""
    if (indices := at.constant(1)) is not None:
        at.feed(1, np.maximum(indices, 0))


@on("Gather", "Concat", "Flatten")
def next_axis(at: Site) -> None:
    """The axis is taken to be the next one."""
    if shape := at.shape(0):
        at.put(axis=(at.get("axis", 0) + 1) % len(shape))


@on("Resize")
def asymmetric_resize(at: Site) -> None:
    """Resize takes its coordinates for asymmetric ones, and those for half-pixel ones."""
    mode = at.get("coordinate_transformation_mode", "half_pixel")
    if mode != "tf_crop_and_resize":
        at.put(coordinate_transformation_mode="half_pixel" if mode == "asymmetric" else "asymmetric")
