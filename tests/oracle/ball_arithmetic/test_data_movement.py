"""Data movement in ball arithmetic: a radius travels with its element, and where elements go is never approximate."""

import locale

import numpy as np
import pytest
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact

from tests.support.balls import apply, around, assert_all_answered, assert_holds, holds, noise

MOVEMENT = """
    Reshape Transpose Flatten Squeeze Unsqueeze Concat Split Slice Pad Expand Tile DepthToSpace SpaceToDepth
    CenterCropPad Trilu ReverseSequence Gather GatherElements GatherND Compress ScatterElements ScatterND TensorScatter
    OneHot NonZero Unique TopK Shape Size ConstantOfShape Range EyeLike SequenceConstruct SequenceAt SequenceInsert
    SequenceErase SequenceLength ConcatFromSequence SplitToSequence SequenceMap Optional OptionalHasElement
    OptionalGetElement StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer
""".split()  # noqa: SIM905  (a list of that many strings is unreadable)


def test_the_reference_stays_in_the_balls_of_every_generated_form(runner):
    assert_all_answered(runner, MOVEMENT, cases=2)


def numbered(*shape):
    """A ball whose radii are 1000 more than its midpoints, so that a pair that is torn apart shows."""
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape).astype(np.float32)
    return around(x, 1000 + x)


def indices(*numbers):
    return np.array(numbers, np.int64)


MOVES = {
    "Reshape": lambda x: apply("Reshape", x, indices(4, -1)),
    "Transpose": lambda x: apply("Transpose", x, perm=[2, 0, 1]),
    "Flatten": lambda x: apply("Flatten", x, axis=2),
    "Squeeze": lambda x: apply("Squeeze", apply("Unsqueeze", x, indices(0, -1))[0], indices(0, 4)),
    "Concat": lambda x: apply("Concat", x, x, axis=1),
    "Split": lambda x: apply("Split", x, indices(1, 1), axis=0, outputs=2),
    "Slice": lambda x: apply("Slice", x, indices(-1, 0), indices(-(2**31), 9), indices(2, 1), indices(-2, 2)),
    "Expand": lambda x: apply("Expand", x, indices(3, 1, 1, 1)),
    "Tile": lambda x: apply("Tile", x, indices(1, 2, 1)),
    "Pad, edge": lambda x: apply("Pad", x, indices(1, 0, 1, 0, 2, 0), mode="edge"),
    "Pad, reflect": lambda x: apply("Pad", x, indices(1, 0, 1, 0, 2, 2), mode="reflect"),
    "Pad, wrap": lambda x: apply("Pad", x, indices(1, 0, 1, 0, 2, 0), mode="wrap"),
    "Gather": lambda x: apply("Gather", x, indices(-1, 0, 1), axis=2),
    "GatherElements": lambda x: apply("GatherElements", x, np.full((2, 3, 2), -1), axis=2),
    "GatherND": lambda x: apply("GatherND", x, np.array([[[0], [2]], [[1], [-1]]]), batch_dims=1),
    "Compress": lambda x: apply("Compress", x, np.array([False, True]), axis=0),
    "ReverseSequence": lambda x: apply("ReverseSequence", x, indices(1, 3, 2), time_axis=2, batch_axis=1),
    "ScatterElements": lambda x: apply("ScatterElements", x, np.zeros((1, 3, 4), np.int64), numbered(1, 3, 4)),
    "ScatterND": lambda x: apply("ScatterND", x, np.array([[1, 2]]), numbered(1, 4)),
    "TensorScatter": lambda x: apply("TensorScatter", x, numbered(2, 2, 4), indices(2, 0), mode="circular"),
    "sequences": lambda x: apply("ConcatFromSequence", apply("SplitToSequence", x, None, axis=1)[0], axis=1),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_radius_travels_with_its_element(name):
    for result in MOVES[name](numbered(2, 3, 4)):
        assert np.array_equal(result.radius, 1000 + result.midpoint)


def test_what_is_filled_in_is_exact():
    (padded,) = apply("Pad", numbered(2, 2), indices(0, 1, 0, 0), np.array(7.0, np.float32))
    assert padded.midpoint[0].tolist() == [7, 1, 2]
    assert padded.radius[0].tolist() == [0, 1001, 1002]


def test_what_is_filled_in_may_be_known_to_a_radius():
    for x, own in ((noise((2,)), 0.0), (around(noise((2,)), 0.25), 0.25)):
        (padded,) = apply("Pad", x, indices(1, 0), around(np.asarray(7, np.float32), 0.5))
        assert padded.midpoint[0] == 7
        assert padded.radius.tolist() == [0.5, own, own]


def test_negative_pads_take_elements_away():
    (cropped,) = apply("Pad", noise((4, 4)), indices(-1, 1, 0, -2))
    assert cropped.shape == (3, 3)
    assert set(cropped.midpoint[:, 0]) == {0}


def test_reshape_copies_a_dim_for_zero_unless_zero_is_allowed():
    x = noise((0, 3))
    assert apply("Reshape", x, indices(3, 0), allowzero=1)[0].shape == (3, 0)
    assert apply("Reshape", x, indices(0, 3))[0].shape == (0, 3)


def test_strings_move():
    words = np.array([["a", "b"], ["c", "d"]], object)
    assert apply("Transpose", words)[0].midpoint.tolist() == [["a", "c"], ["b", "d"]]


def test_a_locale_in_a_model_is_not_that_of_this_process():
    before = locale.setlocale(locale.LC_ALL)
    apply("StringNormalizer", np.array(["a", "b"], object), locale="C", case_change_action="UPPER", stopwords=["b"])
    assert locale.setlocale(locale.LC_ALL) == before, "files would be read in another encoding from now on"


def test_where_indices_depend_on_rounding_there_is_no_answer():
    with pytest.raises(Undecided, match="depends on rounding"):
        apply("Gather", noise((4,)), Ball(np.array([1.5]), np.array([0.5]), np.dtype(np.int64)))


def test_the_largest_elements_keep_their_bounds_where_their_order_is_open():
    x = Ball(np.array([5.0, 4.9, 1.0]), np.array([0.1, 0.2, 0.1]), np.dtype(np.float32))
    found, where = apply("TopK", x, indices(2), outputs=2)
    assert np.allclose(found.low, [4.9, 4.7])
    assert np.allclose(found.high, [5.1, 5.1])
    assert where.low.tolist() == [0, 0], "either of the first two may be the largest"
    assert where.high.tolist() == [1, 1], "the third is neither"


def test_two_updates_of_one_element_may_come_in_either_order():
    (placed,) = apply("ScatterND", noise((3,)), np.array([[1], [1], [2]]), noise((3,), 1))
    assert placed.undecided.tolist() == [False, True, False]


@pytest.mark.parametrize(("reduction", "right"), [("add", 13.0), ("mul", 60.0), ("max", 5.0), ("min", 3.0)])
def test_updates_are_combined(reduction, right):
    x, updates = np.array([0, 4], np.float32), np.array([3, 5], np.float32)
    right = 12.0 if reduction == "add" else right
    (ball,) = apply("ScatterElements", x, indices(1, 1), updates, reduction=reduction)
    assert_holds(ball, np.array([0, right], np.float32))
    assert ball.error.reshape(-1)[0] == 0, "an element that nothing is added to is not rounded"


def test_where_an_index_is_open_either_value_may_stand():
    index = Ball(np.array([0.5, 2.0]), np.array([0.5, 0.0]), np.dtype(np.int64))
    (ball,) = apply("OneHot", index, np.array(3), np.array([0, 5], np.float32))
    assert np.allclose(ball.low, [[0, 0, 0], [0, 0, 5]])
    assert np.allclose(ball.high, [[5, 5, 0], [0, 0, 5]])


def test_whether_something_is_zero_may_depend_on_rounding():
    with pytest.raises(Undecided):
        apply("NonZero", around(np.array([0.0, 2.0], np.float32), 0.1))


@pytest.mark.parametrize("held", [exact(np.zeros(2)), None])
def test_an_optional_knows_whether_it_holds_something(held):
    (optional,) = apply("Optional", *([] if held is None else [held]))
    assert apply("OptionalHasElement", optional)[0].midpoint.item() is (held is not None)


def test_a_range_that_may_have_one_more_element_has_no_answer():
    with pytest.raises(Undecided):
        apply("Range", *[np.array(x, np.float32) for x in (0, 1, 0.1)])


def test_the_indices_of_equal_elements_may_stand_in_any_order():
    x, k = np.array([3, 1, 3, 2], np.float32), indices(3)
    _, ball = apply("TopK", x, k, outputs=2)
    assert_holds(ball, indices(0, 2, 3))
    assert holds(ball, indices(2, 0, 3)), "the other order of the two threes is right too"
    assert not holds(ball, indices(0, 2, 1)), "2 is larger than 1"
