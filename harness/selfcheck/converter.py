"""Bugs of converters in layers with weights: what is quantized or run is not quite the graph that was given."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from driftnet.model.operators import RECURRENT, Trait, having
from driftnet.selfcheck.mutant import converting, mutant
from driftnet.selfcheck.site import Damage, Site, alter, each, put, sites
from onnx import ModelProto, TensorProto, numpy_helper

CONVOLUTIONS = tuple(sorted(having(Trait.WEIGHTED | Trait.SLIDES)))
CELLS = tuple(sorted(RECURRENT))
# Of each family, those that have what the bug is about.
BIASED, POOLS = (*CONVOLUTIONS, "Gemm"), ("AveragePool", "MaxPool")


def bug(
    name: str, op_types: Sequence[str], damage: Damage, doc: str, focus: Sequence[str] = (), needs: Sequence[str] = ()
) -> None:
    """Let there be a bug of converters, which damages every node of these types."""
    mutant(converting, *(focus or op_types), needs=needs, name=name, doc=doc)(each(op_types, damage))


def on(*op_types: str, focus: Sequence[str] = (), needs: Sequence[str] = ()) -> Callable[[Damage], Damage]:
    """Make the decorated damage to a node a bug."""

    def made(damage: Damage) -> Damage:
        bug(damage.__name__, op_types, damage, damage.__doc__ or "", focus, needs)
        return damage

    return made


# Convolutions, pools and matrix products

bug("doubled-bias", BIASED, alter(2, lambda b: 2 * b), "The bias is added by the operator and what it was fused from.")
bug("swapped-strides", ["Conv", *POOLS], put(strides=lambda s: s and s[::-1]), "Strides are taken as (width, height).")
bug("lost-output-padding", ["ConvTranspose"], put(output_padding=None), "output_padding is ignored.")
bug("ignored-alpha", ["Gemm"], put(alpha=None), "The factor alpha is ignored.")
bug("ignored-beta", ["Gemm"], put(beta=None), "The factor beta is ignored.")


@on(*BIASED)
def lost_bias(at: Site) -> None:
    """The bias is lost."""
    del at.node.input[2:]


@on(*CONVOLUTIONS, *POOLS, focus=("Conv", "ConvTranspose", "MaxPool", "padded-pool"))
def swapped_pads(at: Site) -> None:
    """What is to be padded at the beginning is padded at the end."""
    if pads := at.get("pads"):
        half = len(pads) // 2
        at.put(pads=[*pads[half:], *pads[:half]])


@on("Conv", *POOLS)
def same_lower_for_same_upper(at: Site) -> None:
    """The odd pad of SAME_UPPER and SAME_LOWER goes to the wrong side."""
    other = {"SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER"}
    if (mode := at.get("auto_pad")) in other:
        at.put(auto_pad=other[mode])


@on("Conv", "MaxPool")
def ignored_dilations(at: Site) -> None:
    """Dilations are ignored, by code that pads until the shape is right."""
    dilations, kernel = at.get("dilations", []), at.get("kernel_shape")
    weights = at.constant(1)
    kernel = kernel or (list(weights.shape[2:]) if weights is not None else [])
    if not kernel or len(dilations) != len(kernel) or at.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return
    pads = at.get("pads", [0] * 2 * len(kernel))
    less = [(d - 1) * (k - 1) for d, k in zip(dilations, kernel)]
    if at.node.op_type == "MaxPool" and any(e + n >= k for e, n, k in zip(pads[len(kernel) :], less, kernel)):
        return  # pads must be smaller than the kernel
    ends = [end + n for end, n in zip(pads[len(kernel) :], less)]
    at.put(dilations=None, auto_pad=None, pads=[*pads[: len(kernel)], *ends])


@on("Conv", focus=("Conv", "separable-block"))
def mixed_up_groups(at: Site) -> None:
    """Output channels are numbered with the group running fastest."""
    groups, weights = at.get("group", 1), at.constant(1)
    if weights is not None and weights.ndim > 2:
        split = weights.reshape(groups, -1, *weights.shape[1:])
        at.feed(1, np.ascontiguousarray(split.swapaxes(0, 1)).reshape(weights.shape))


@on(*CONVOLUTIONS)
def transposed_kernel(at: Site) -> None:
    """A square kernel has height and width exchanged."""
    weights = at.constant(1)
    if weights is not None and weights.ndim > 3 and weights.shape[-1] == weights.shape[-2]:
        at.feed(1, weights.swapaxes(-1, -2))


@on(*CONVOLUTIONS)
def flipped_kernel(at: Site) -> None:
    """The kernel is turned round: correlation for convolution."""
    weights = at.constant(1)
    if weights is not None and weights.ndim > 2:
        at.feed(1, np.flip(weights, tuple(range(2, weights.ndim))))


@on(*CONVOLUTIONS)
def swapped_channel_axes(at: Site) -> None:
    """Weights as (outputs, inputs) are read as (inputs, outputs), where both are as many."""
    weights = at.constant(1)
    if weights is not None and weights.ndim > 2 and weights.shape[0] == weights.shape[1] and at.get("group", 1) == 1:
        at.feed(1, weights.swapaxes(0, 1))


@on("ConvTranspose")
def dropped_last_tap(at: Site) -> None:
    """The last element of every kernel is never read."""
    weights = at.constant(1)
    if weights is not None and weights.ndim > 2 and np.prod(weights.shape[2:]) > 1:
        cut = weights.copy().reshape(*weights.shape[:2], -1)
        cut[..., -1] = 0
        at.feed(1, cut.reshape(weights.shape))


@on("Gemm")
def toggled_trans_b(at: Site) -> None:
    """A square second matrix is transposed when it should not be, and the other way round."""
    shape = at.shape(1)
    if shape and shape[0] is not None and shape[0] == shape[1]:
        at.put(transB=1 - at.get("transB", 0))


# Normalization and folding

bug("lost-mean", ["BatchNormalization"], alter(3, np.zeros_like), "The mean is not subtracted.")
bug("variance-for-deviation", ["BatchNormalization"], alter(4, np.square), "The variance is divided by, not its root.")
NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization")  # those that are folded or fused
bug(
    "wrong-epsilon",
    NORMS,
    put(epsilon=lambda e: 100 * (1e-5 if e is None else e)),
    "epsilon is a hundred times too large.",
)


@mutant(converting, "grouped-conv-transpose-batch-norm")
def folded_norm_ignoring_groups(model: ModelProto) -> None:
    """BatchNormalization is folded into the ConvTranspose before it, right for one group only."""
    for norm in sites(model, "BatchNormalization"):
        before, factors = norm.producer(0), [norm.constant(k) for k in range(1, 5)]
        if before is None or before.node.op_type != "ConvTranspose" or before.consumers() > 1:
            continue
        weights, given = before.constant(1), before.constant(2)
        if weights is None or any(x is None for x in factors) or (before.has(2) and given is None):
            continue
        scale, bias, mean, var = (np.asarray(x) for x in factors)
        factor = (scale / np.sqrt(var + norm.get("epsilon", 1e-5))).astype(weights.dtype)
        before.feed(1, weights * factor[: weights.shape[1]].reshape(1, -1, *[1] * (weights.ndim - 2)))
        before.feed(2, ((0 if given is None else given) - mean) * factor + bias)
        before.node.output[0] = norm.node.output[0]
        model.graph.node.remove(norm.node)


@mutant(converting, "BatchNormalization", "InstanceNormalization", "GRU", "scaled-conv", "layer-norm-by-hand")
def stale_constant(model: ModelProto) -> None:
    """A constant keeps the value that another one of its shape has: a cache without the name in its key."""
    seen: dict[tuple[Any, ...], TensorProto] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.dims:
            first = seen.setdefault(tuple(tensor.dims), tensor)
            if first is not tensor:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(first), tensor.name))


@mutant(converting, *BIASED, "BatchNormalization", needs=("float",))  # eight bits could not tell
def constants_in_half_precision(model: ModelProto) -> None:
    """Constants go through float16."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and np.abs(values).max(initial=0) < np.finfo(np.float16).max:
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16).astype(np.float32), tensor.name))


# Recurrent operators

bug("lost-peepholes", ["LSTM"], lambda at: at.drop(7), "The peephole weights of LSTM are ignored.")
FROM_ZERO = "A recurrent layer starts from zero whatever it is given."
bug("lost-initial-state", CELLS, lambda at: at.drop(5), FROM_ZERO, focus=(*CELLS, "multi-input-gru"))


@on(*CELLS)
def other_direction(at: Site) -> None:
    """A recurrent layer runs through its sequence the other way."""
    if (direction := at.get("direction", "forward")) != "bidirectional":
        at.put(direction="reverse" if direction == "forward" else "forward")


@on("LSTM")
def swapped_gates(at: Site) -> None:
    """The output and the forget gate of LSTM are exchanged: iofc read as ifoc."""
    for position in (1, 2):
        if (weights := at.constant(position)) is not None:
            i, o, f, c = np.split(weights, 4, axis=1)
            at.feed(position, np.concatenate([i, f, o, c], axis=1))


@on(*CELLS)
def lost_recurrent_bias(at: Site) -> None:
    """Only the first half of the bias, that of the input, is added."""
    if (bias := at.constant(3)) is not None:
        kept = bias.copy()
        kept[:, bias.shape[1] // 2 :] = 0
        at.feed(3, kept)
