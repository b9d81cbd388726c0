"""Where the standard is open, nobody is blamed; where it is not, the same failure counts."""

import numpy as np
import pytest
from driftnet.model.verdict import Observation, Outcome, StageRun, Word
from driftnet.oracle.judge import judge
from driftnet.targets.interface import Target
from onnx import TensorProto, helper

from tests.support import models

TARGET = Target("toy", "numpy", lambda *a: "", lambda *a: "", lambda *a: [])
BEHIND = {"ceil_mode": 1, "kernel": 2, "strides": [3], "pads": [1, 1]}
"""a last window that begins in the padding"""
BEYOND = {"op": "AveragePool", "ceil_mode": 1, "kernel": 3, "strides": [2], "count_include_pad": 1}
"""a last window that begins in the input and ends behind the padding"""


def pool(op="MaxPool", opset=18, *, kernel=2, size=4, **attributes):
    """One pooling node on [1, 1, size], and what the reference gives."""
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[kernel], **attributes)
    return models.case([node], {"x": models.grid((1, 1, size))}, outputs=[("y", TensorProto.FLOAT, "ncw")], opset=opset)


def deformed(kernel):
    """One DeformConv of a 3 x 3 image."""
    constants = {"w": np.ones((1, 1, kernel, kernel), np.float32), "o": np.zeros((1, 2 * kernel**2, 1, 1), np.float32)}
    node = helper.make_node("DeformConv", ["x", "w", "o"], ["y"], strides=[2, 2])
    output = ("y", TensorProto.FLOAT, "nchw")
    return models.case([node], {"x": models.grid((1, 1, 3, 3))}, constants, outputs=[output], opset=19)


def largest_of_region(value):
    """One MaxRoiPool of a whole image that holds a value."""
    x = models.grid((1, 1, 2, 2))
    x[0, 0, 0, 1] = value
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[1, 1])
    regions = {"r": np.array([[0, 0, 0, 1, 1]], np.float32)}
    return models.case([node], {"x": x}, regions, outputs=[("y", TensorProto.FLOAT, (1, 1, 1, 1))])


def quantize(scale):
    """One QuantizeLinear."""
    constants = {"s": np.array(scale, np.float32), "z": np.array(0, np.uint8)}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    return models.case([node], {"x": models.grid((4,))}, constants, outputs=[("y", TensorProto.UINT8, (4,))])


def ranged(*x):
    """The scale of one DynamicQuantizeLinear."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "y", "z"])
    return models.case([node], {"x": np.float32(x)}, outputs=[("y", TensorProto.FLOAT, ())])


def rnn(*activations):
    """One forward RNN."""
    constants = {"w": np.ones((1, 1, 1), np.float32), "r": np.ones((1, 1, 1), np.float32)}
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=activations)
    feed, output = {"x": np.ones((1, 1, 1), np.float32)}, ("y", TensorProto.FLOAT, (1, 1, 1, 1))
    return models.case([node], feed, constants, outputs=[output], opset=14)


def sloped(size):
    """One PRelu with two slopes."""
    node = helper.make_node("PRelu", ["x", "w"], ["y"])
    constants = {"w": np.ones(2, np.float32)}
    return models.case([node], {"x": models.grid((size,))}, constants, outputs=[("y", TensorProto.FLOAT, "n")])


def one_hot(index):
    """One OneHot, which says of an index between two whole numbers what no other engine has to."""
    constants = {"d": np.float32(1), "v": np.float32([0, 1])}
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"])
    return models.case([node], {"x": np.float32([index])}, constants, outputs=[("y", TensorProto.FLOAT, (1, 1))])


def verdict_on(runner, case, damage):
    """The verdict on what `damage` makes of each output."""
    expected = runner.reference.run(case)
    assert not expected.error, expected.error
    outputs = tuple({name: damage(x) for name, x in out.items()} for out in expected.outputs)
    observation = Observation((StageRun("execute", Outcome.OK),), outputs)
    return judge(case, observation, target=TARGET, options={}, reference=runner.reference)


def verdict_on_wrong_values(runner, case):
    return verdict_on(runner, case, lambda x: x + 1)


@pytest.mark.parametrize(
    ("open_case", "settled"),
    [
        (pool(kernel=5, strides=[2]), pool(kernel=4, strides=[2])),
        (pool(kernel=5, strides=[2], auto_pad="NOTSET"), pool(kernel=4, strides=[2], auto_pad="NOTSET")),
        (pool(**BEHIND), pool(**BEHIND, opset=19)),
        (deformed(4), deformed(3)),
        (quantize(0.0), quantize(0.5)),
        (ranged(0, 0), ranged(0, 1)),
        (rnn("Tanh", "Tanh"), rnn("Tanh")),
        (one_hot(0.5), one_hot(1)),
        (sloped(1), sloped(2)),
    ],
    ids=["window", "window-auto_pad", "ceil_mode", "deformed", "scale", "range", "activations", "one_hot", "slope"],
)
def test_a_failure_that_rests_on_what_the_standard_leaves_open_is_not_reported(runner, open_case, settled):
    verdict = verdict_on_wrong_values(runner, open_case)
    assert verdict.word is Word.ABSTAINS
    assert verdict.rule
    assert verdict_on_wrong_values(runner, settled).word is Word.DIVERGES


def test_a_maximum_of_nan_is_open_in_a_region_too(runner):
    def damage(x):
        return np.full_like(x, 3)  # the largest of the numbers

    assert verdict_on(runner, largest_of_region(np.nan), damage).word is Word.ABSTAINS
    assert verdict_on(runner, largest_of_region(9), damage).word is Word.DIVERGES


@pytest.mark.parametrize("opset", [18, 19])
def test_a_last_window_beyond_the_padding_is_divided_by_either_count_until_opset_19(runner, opset):
    case = pool(**BEYOND, opset=opset)
    total = case.feeds[0]["x"][..., 2:].sum()

    def divided(count):
        return verdict_on(runner, case, lambda x: np.append(x[..., :1], total / count).reshape(x.shape))

    assert [divided(count).failed for count in (2, 3)] == [False, opset >= 19]


@pytest.mark.parametrize("element", [0, 1])
def test_the_windows_beside_an_open_one_and_what_it_may_not_be_are_judged(runner, element):
    def damage(x):
        return x + np.float32(10) * (np.arange(2, dtype=np.float32) == element)

    assert verdict_on(runner, pool(**BEYOND), damage).word is Word.DIVERGES


def test_where_only_the_divisor_is_open_the_shape_is_judged(runner):
    assert verdict_on(runner, pool(**BEYOND), lambda x: x[..., :-1]).kind == "wrong-shape"


def test_an_output_that_does_not_depend_on_what_is_open_is_judged(runner):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5], strides=[2]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    outputs = [("y", TensorProto.FLOAT, "ncw"), ("z", TensorProto.FLOAT, (1, 1, 4))]
    verdict = verdict_on_wrong_values(
        runner, models.case(nodes, {"x": models.grid((1, 1, 4))}, outputs=outputs, opset=18)
    )
    assert (verdict.word, verdict.output) == (Word.DIVERGES, "z")


def test_a_crash_is_never_excused(runner):
    observation = Observation((StageRun("convert", Outcome.CRASH, signal="SIGSEGV"),))
    case = pool(kernel=5, strides=[2])
    assert judge(case, observation, target=TARGET, options={}, reference=runner.reference).word is Word.CRASHES


@pytest.mark.parametrize(("named", "word"), [("Relu", Word.FAILS), ("MaxPool", Word.ABSTAINS), ("z", Word.ABSTAINS)])
def test_an_error_is_excused_only_where_what_it_names_is_open(runner, named, word):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5], strides=[2]),
        helper.make_node("Neg", ["y"], ["z"]),
        helper.make_node("Relu", ["x"], ["r"]),
    ]
    outputs = [("z", TensorProto.FLOAT, "ncw"), ("r", TensorProto.FLOAT, (1, 1, 4))]
    case = models.case(nodes, {"x": models.grid((1, 1, 4))}, outputs=outputs, opset=18)
    observation = Observation((StageRun("convert", Outcome.ERROR, message=f"internal error: cannot convert {named}"),))
    assert judge(case, observation, target=TARGET, options={}, reference=runner.reference).word is word
