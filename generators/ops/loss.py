"""Losses."""

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.operands import WEIGHT, data, tame, weight, whole
from driftnet.generators.building.values import FLOAT, Shape
from driftnet.generators.ops.registry import operators


@operators(
    {
        "NegativeLogLikelihoodLoss": "-weight[label] x[label] of each sample, then their (weighted) mean or sum",
        "SoftmaxCrossEntropyLoss": "the negative log likelihood of log(softmax(x))",
    },
    weight=0.2,
)
def loss(b: Builder) -> None:
    """A loss of labels, weighted or not"""
    x = data(b, dtypes=(FLOAT,), ranks=(2, 3, 4), fixed=(1,), domain=tame(50.0, WEIGHT))
    classes = x.shape[1]
    samples: tuple[Shape, ...] = x.resized(1)
    labels = whole(b, "labels", samples, 0, classes - 1)
    weights = weight(b, "weights", (classes,), fill="positive") if b.flag("weighted") else None
    reduction, ignored = b.choose("reduction", ("mean", "sum", "none")), b.choose("ignore_index", (None, None, 5))
    if reduction == "mean":
        ignored = None  # the mean of nothing is NaN
    with_log = b.flag("log_prob") and b.op_type == "SoftmaxCrossEntropyLoss"
    outputs = [(FLOAT, samples if reduction == "none" else ()), (FLOAT, x) if with_log else None]
    b.emit_all((x, labels, weights), outputs, {"reduction": reduction, "ignore_index": ignored}, bounds=1e6)
