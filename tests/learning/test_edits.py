"""An edit changes one thing, and what onnx does not accept is None."""

from __future__ import annotations

import numpy as np
from driftnet.learning import edits
from driftnet.model.case import Case

from tests.support.models import grid
from tests.support.triggers import one


def ranks(case: Case) -> tuple[int, int]:
    (y,) = case.proto.graph.output
    return case.feeds[0]["x0"].ndim, len(y.type.tensor_type.shape.dim)


def test_an_axis_more_and_an_axis_less() -> None:
    case = one("Relu", grid((1, 2, 3)))
    more = edits.with_axis(case)
    assert more is not None
    assert ranks(more) == (4, 4)
    less = edits.without_axis(case)
    assert less is not None
    assert ranks(less) == (2, 2)
    assert np.array_equal(less.feeds[0]["x0"], case.feeds[0]["x0"][0]), "the numbers stay"


def test_what_loses_its_last_axis_is_still_an_array() -> None:
    less = edits.without_axis(one("Identity", np.array(["a"], dtype=object)))
    assert less is not None
    assert ranks(less) == (0, 0)
    assert less.feeds[0]["x0"] == "a"


def test_an_axis_of_two_is_kept() -> None:
    assert edits.without_axis(one("Relu", grid((2, 3)))) is None
    assert edits.without_axis(one("Add", grid((1, 3)), constants=[grid((2, 3))])) is None


def test_an_axis_that_the_operator_needs_is_kept() -> None:
    assert edits.without_axis(one("MaxPool", grid((1, 1, 4)), kernel_shape=[2])) is None
