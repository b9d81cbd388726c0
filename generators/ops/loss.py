"""Losses."""

from __future__ import annotations

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.operands import data, weight, whole
from driftnet.generators.building.values import FLOAT, Fill
from driftnet.generators.ops.elementwise import tame
from driftnet.generators.ops.registry import operator


def _loss(name: str, since: int, rule: str) -> None:
    @operator(name, since=since, rule=rule, weight=0.2)
    def loss(b: Builder) -> None:
        x = data(b, dtypes=(FLOAT,), ranks=(2, 3, 4), fixed=(1,), fits=tame(50.0), fill=Fill("weight"))
        classes = x.shape[1]
        labels = whole(b, "labels", each(lambda s: (s[0], *s[2:]), x), 0, classes - 1)
        weights = weight(b, "weights", (classes,), fill="positive") if b.flag("weighted") else None
        reduction, ignored = b.choose("reduction", ("mean", "sum", "none")), b.choose("ignore_index", (None, None, 5))
        with_log = b.flag("log_prob") and name == "SoftmaxCrossEntropyLoss"
        shapes = each(lambda s: (s[0], *s[2:]) if reduction == "none" else (), x)
        outputs = [(FLOAT, shapes), (FLOAT, x.shapes) if with_log else None]
        if reduction == "mean":
            ignored = None  # the mean of nothing is NaN
        attributes = {"reduction": b.unless(reduction, "mean"), "ignore_index": ignored}
        b.emit_all(name, (x, labels, weights), outputs, attributes, bounds=(-1e6, 1e6))


_loss("NegativeLogLikelihoodLoss", 12, "-weight[label] x[label] of each sample, then their (weighted) mean or sum")
_loss("SoftmaxCrossEntropyLoss", 12, "the negative log likelihood of log(softmax(x))")
