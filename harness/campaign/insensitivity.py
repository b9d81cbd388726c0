"""Vacuity, the trust check: a case whose outputs stay the same whatever its numbers are could show no damage.

Dead Relus, a Clip that catches everything, outputs that depend on shapes alone: there a verdict "agrees" means nothing.
The reference is asked once more, with every float input and the weights moved by about a quarter; outputs that are all
the same then tell nothing of values. Such a case is worth drawing again with other numbers.

Asking costs 3 CPU ms, so it is done only where every output is an integer or has one value everywhere: 4 % of
generated models, of which half are insensitive.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
from driftnet.model.arrays import identical
from driftnet.model.case import Case
from driftnet.model.constants import stored_tensors
from driftnet.model.operators import RECURRENT, WEIGHTED
from driftnet.run.reference import Reference
from onnx import numpy_helper

RELATIVE, OF_LARGEST = 0.25, 0.1
DRAWS = 3


def insensitive(case: Case, reference: Reference) -> bool:
    """Whether no output changes with the float inputs and weights; False where the reference does not run them."""
    given = reference.run(case)
    if any(x.dtype.kind == "f" and not (x == x.flat[0]).all() for run in given.outputs for x in run.values() if x.size):
        return False
    moved = reference.run(_moved(case))
    if not given.outputs or not moved.outputs:
        return False
    return all(
        name in after and before[name].shape == after[name].shape and identical(before[name], after[name])
        for before, after in zip(given.outputs, moved.outputs)
        for name in before
    )


def revived(case: Case, reference: Reference, seed: int) -> Case | None:
    """`case` with other float inputs and weights, so that it is not insensitive; None where a few draws do not help."""
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        drawn = _changed(case, lambda x: np.asarray(rng.normal(size=x.shape), x.dtype))
        if reference.runs(drawn) and not insensitive(drawn, reference):
            return drawn
    return None


def _moved(case: Case) -> Case:
    rng = np.random.default_rng(0)

    def near(x: np.ndarray) -> np.ndarray:
        finite = np.where(np.isfinite(x), np.abs(x), 0)
        most = (RELATIVE * finite + OF_LARGEST * (finite.max(initial=0) or 1)).astype(x.dtype)
        return np.asarray(x + most * rng.uniform(-1, 1, x.shape).astype(x.dtype))

    return _changed(case, near)


def _changed(case: Case, change: Callable[[np.ndarray], np.ndarray]) -> Case:
    """`case` with each float input and weight changed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.proto)
    weights = {name for node in model.graph.node for name in node.input[1:3] if node.op_type in WEIGHTED | RECURRENT}
    for tensor in (tensor for name, tensor in stored_tensors(model.graph) if name in weights):
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind == "f":
            tensor.CopyFrom(numpy_helper.from_array(change(values), tensor.name))
    feeds = tuple({name: change(x) if x.dtype.kind == "f" else x for name, x in feed.items()} for feed in case.feeds)
    return dataclasses.replace(case, model=model.SerializeToString(), feeds=feeds, calibration=())
