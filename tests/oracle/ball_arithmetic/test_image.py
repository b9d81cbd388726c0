"""Pools, images and signals in ball arithmetic: weights that sum to one, ties that stay open."""

import contextlib

import numpy as np
import pytest
from driftnet.oracle.ball_arithmetic.ball import Undecided

from tests.support.balls import apply, around, assert_all_answered, assert_holds, assert_outside, holds, noise, survey

OPERATORS = """
    MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool Resize GridSample AffineGrid
    MaxRoiPool DeformConv NonMaxSuppression HannWindow HammingWindow BlackmanWindow DFT STFT MelWeightMatrix
""".split()  # noqa: SIM905  (a list of that many strings is unreadable)


def test_the_reference_stays_in_the_balls_of_every_generated_form(runner):
    assert_all_answered(runner, OPERATORS, cases=3)


def test_regions_are_averaged_but_engines_differ_on_their_maximum(runner):
    seen = survey(runner, "RoiAlign", cases=8)
    assert not seen.wrong
    assert 0 < seen.unanswered < seen.total, "one of the two modes has an answer"


def inside(ball, f, x, draws=20):
    """Whether f of random members of the ball x lies in `ball`."""
    generator = np.random.default_rng(3)
    members = (x.midpoint + x.radius * generator.uniform(-1, 1, x.shape) for _ in range(draws))
    return all(holds(ball, f(member.astype(np.float32))) for member in members)


def test_the_mean_of_nothing_is_no_number_and_warns_nobody():
    (ball,) = apply("GlobalAveragePool", np.zeros((1, 2, 0, 3), np.float32))
    assert np.isnan(ball.numbers).all(), ball
    assert ball.shape == (1, 2, 1, 1)


WINDOW = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pool_of_any_member_of_a_ball_is_in_its_ball(op):
    x = around(noise((1, 2, 5, 6)), np.abs(noise((1, 2, 5, 6), 1)) / 4)
    ball = apply(op, x, **WINDOW)[0]
    within = inside(ball, lambda member: apply(op, member, **WINDOW)[0].midpoint.astype(np.float32), x)
    assert within, f"{op} of a member lies outside of the ball of all"


def test_padding_counts_or_not():
    x = np.ones((1, 1, 2, 2), np.float32)
    pads = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}
    (without,), (with_padding,) = apply("AveragePool", x, **pads), apply("AveragePool", x, count_include_pad=1, **pads)
    assert set(without.midpoint.ravel()) == {1}
    assert with_padding.midpoint[0, 0].tolist() == [[0.25, 0.5], [0.5, 1]]
    assert_outside(without, with_padding.midpoint.astype(np.float32))


def test_what_ceil_mode_sees_beyond_the_padding_does_not_count():
    x = np.ones((1, 1, 4), np.float32)
    (ball,) = apply("AveragePool", x, kernel_shape=[3], strides=[2], ceil_mode=1, count_include_pad=1)
    assert ball.midpoint.ravel().tolist() == [1, 1]


def test_a_maximum_whose_place_is_open_keeps_every_candidate():
    x = around(np.array([[[3.0, 1.0, 3.1]]], np.float32), 0.2)
    _, where = apply("MaxPool", x, outputs=2, kernel_shape=[3])
    assert (where.low.item(), where.high.item()) == (0, 2)


def test_where_a_maximum_may_have_stood_is_undecided():
    maxima, where = apply(
        "MaxPool", around(one := noise((1, 1, 6)), [0, 0, 9, 9, 0, 0]), outputs=2, kernel_shape=[2], strides=[2]
    )
    (back,) = apply("MaxUnpool", maxima, where, kernel_shape=[2], strides=[2])
    assert back.undecided.ravel().tolist() == [False, False, True, True, False, False]
    assert set(back.midpoint.ravel()) <= {0.0, *map(float, one.ravel())}


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def fractions(coordinates):
    return 1, 1, 1.75, 0.5 if coordinates == "align_corners" else 0.6  # 8 * 0.6 is no whole number


def resized(x, mode, coordinates, scales=None, **attributes):
    given = np.array(scales or fractions(coordinates), np.float32)
    return apply("Resize", x, None, given, mode=mode, coordinate_transformation_mode=coordinates, **attributes)[0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_constant_image_stays_constant(mode, coordinates):
    ball = resized(np.full((1, 2, 4, 8), 3, np.float32), mode, coordinates)
    assert ball.shape == (1, 2, 7, 4)
    assert_holds(ball, np.full(ball.shape, 3, np.float32))
    assert ball.error.max() < 1e-4


def test_a_tie_between_two_neighbours_is_exact_where_nothing_rounds_and_open_elsewhere():
    x = noise((1, 1, 9))
    assert resized(x, "nearest", "asymmetric", (1, 1, 2)).radius is None
    open_ = resized(x, "nearest", "asymmetric", (1, 1, 1.2), nearest_mode="floor")
    assert open_.radius[0, 0, 6] == pytest.approx(abs(x[0, 0, 5] - x[0, 0, 4]) / 2), "6 / 1.2 is 5, or just less"


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES[1:])
def test_another_coordinate_transformation_is_outside(mode, coordinates):
    x = noise((1, 1, 8, 8))
    right, wrong = (resized(x, mode, name, fractions(coordinates)) for name in ("half_pixel", coordinates))
    # That of pytorch differs for a result of one element only.
    assert holds(right, wrong.midpoint.astype(np.float32)) == (coordinates == "pytorch_half_pixel")


def test_where_the_corners_of_a_fraction_of_an_element_lie_is_open():
    resized(noise((1, 1, 3)), "linear", "align_corners", (1, 1, 4 / 3))
    with pytest.raises(Undecided):  # 4.5 elements: onnxruntime spreads 4, onnx.reference 4.5
        resized(noise((1, 1, 3)), "linear", "align_corners", (1, 1, 1.5))
    for n, scale in ((3, 0.5), (1, 1.5), (1, 2.5)):  # of one element, the first is all
        assert resized(noise((1, 1, n)), "linear", "align_corners", (1, 1, scale)).numbers.shape == (
            1,
            1,
            int(n * scale),
        )


def test_where_the_one_element_of_pytorch_half_pixel_lies_is_open_where_it_matters():
    x = noise((1, 1, 4))
    contested = [("cubic", 0.25, {}), ("linear", 0.25, {"antialias": 1}), ("linear", 0.3, {}), ("nearest", 0.3, {})]
    for mode, scale, attributes in contested:  # onnxruntime reads 0, onnx.reference and tract -0.5
        with pytest.raises(Undecided):
            resized(x, mode, "pytorch_half_pixel", (1, 1, scale), **attributes)
    for mode in ("linear", "nearest"):
        ball = resized(x, mode, "pytorch_half_pixel", (1, 1, 0.25))
        assert holds(ball, x[..., :1]), f"{mode}: {ball.midpoint} should be the first of {x}"
    for mode in ("cubic", "linear"):
        ball = resized(x[..., :1], mode, "pytorch_half_pixel", (1, 1, 1.5))
        assert holds(ball, x[..., :1]), f"{mode}: {ball.midpoint} should be the only one, {x[..., :1]}"


def test_an_antialiasing_filter_skips_no_element():
    x = noise((1, 1, 8))
    wide, narrow = (resized(x, "linear", "half_pixel", (1, 1, 0.5), antialias=flag) for flag in (1, 0))
    assert wide.midpoint[0, 0, 1] == pytest.approx(x[0, 0, 1:5].astype(np.float64) @ [1, 3, 3, 1] / 8)
    assert_outside(narrow, wide.midpoint.astype(np.float32))


def test_by_what_a_filter_is_widened_where_the_size_follows_from_another_axis_is_open():
    image = noise((1, 1, 3, 6))
    sizes = {"axes": [2, 3], "mode": "linear", "antialias": 1}
    apply("Resize", image, None, None, np.array([2, 3]), **sizes)
    with pytest.raises(Undecided):
        apply("Resize", image, None, None, np.array([1, 3]), keep_aspect_ratio_policy="not_smaller", **sizes)


def test_weights_that_are_divided_by_a_small_sum_are_known_less_well():
    left = {"exclude_outside": 1, "cubic_coeff_a": -0.75}
    ball = resized(noise((1, 1, 6)), "cubic", "asymmetric", (1, 1, 3), **left)
    whole = resized(noise((1, 1, 6)), "cubic", "asymmetric", (1, 1, 3))
    assert ball.error[0, 0, -1] > 1.2 * whole.error[0, 0, -1], "of four weights two are left"


def test_another_coefficient_of_the_cubic_is_outside():
    x = noise((1, 1, 8, 8))
    right, wrong = (resized(x, "cubic", "half_pixel", cubic_coeff_a=a) for a in (-0.75, -0.5))
    assert_outside(right, wrong.midpoint.astype(np.float32))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_a_grid_over_the_pixels_gives_the_image_back(padding, aligned):
    x, n = noise((1, 2, 4, 4)), 4
    line = np.linspace(-1, 1, n) if aligned else (2 * np.arange(n) + 1) / n - 1
    grid = np.stack(np.meshgrid(line, line), -1)[None].astype(np.float32)
    (ball,) = apply("GridSample", x, grid, padding_mode=padding, align_corners=aligned)
    assert_holds(ball, x)
    assert not holds(ball, x.swapaxes(2, 3).copy()), "a grid names the column first"


def test_offsets_of_zero_leave_an_ordinary_convolution():
    x, w = noise((2, 3, 5, 6)), noise((4, 3, 2, 2), 1)
    (ball,) = apply("DeformConv", x, w, np.zeros((2, 8, 4, 5), np.float32))
    assert_holds(ball, apply("Conv", x, w)[0].midpoint.astype(np.float32))


def test_a_transform_agrees_with_numpy_and_its_inverse_brings_the_signal_back():
    x = noise((2, 12, 2))
    (ball,) = apply("DFT", x, None, np.array(1))
    spectrum = np.fft.fft(x[..., 0] + 1j * x[..., 1].astype(np.float64))
    assert_holds(ball, np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32))
    (back,) = apply("DFT", ball, None, np.array(1), inverse=1)
    assert_holds(back, x)
    assert back.radius.max() < 1e-3


def test_a_window_without_its_last_step_is_outside_of_a_periodic_one():
    size = np.array(8)
    (periodic,), (symmetric,) = apply("HannWindow", size), apply("HannWindow", size, periodic=0)
    assert_outside(periodic, symmetric.midpoint.astype(np.float32))


def test_boxes_that_overlap_by_just_the_threshold_have_no_answer():
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.5]]], np.float32)
    scores = np.array([[[0.9, 0.8]]], np.float32)
    with pytest.raises(Undecided):
        apply("NonMaxSuppression", boxes, scores, np.array(2), np.array(0.5, np.float32))
    (left,) = apply("NonMaxSuppression", boxes, scores, np.array(2), np.array(0.4, np.float32))
    assert left.midpoint.tolist() == [[0, 0, 0]]


def test_what_stands_beyond_an_image_may_be_interpolated_along_another_axis():
    """tract does by a cubic, and roundings take 8e-7 of 1."""
    crop = {"mode": "cubic", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.0}
    image, roi = np.float32([[[[-2, -0.5], [-4, -3]]]]), np.float32([0, 0, 0.25, 0, 1, 1, 1.25, 1.25])
    (ball,) = apply("Resize", image, roi, None, np.int64([1, 1, 4, 4]), **crop)
    seen = ball.midpoint.astype(np.float32)
    assert seen[0, 0, 3].tolist() == [1, 1, 1, 1]
    for lost, is_right in ((8.34e-7, True), (1e-4, False)):
        seen[0, 0, 3, 2] = 1 - lost
        assert holds(ball, seen) == is_right, f"an element that is off by {lost} beyond the image"


@pytest.mark.parametrize(("mode", "is_open"), [("linear", True), ("cubic", True), ("nearest", False)])
def test_what_is_weighed_by_nothing_beside_an_infinity_is_open(mode, is_open):
    image = np.float32([[[[np.inf, 1], [2, 3]]]])
    with pytest.raises(Undecided) if is_open else contextlib.nullcontext():
        apply("Resize", image, None, np.float32([1, 1, 1, 2]), mode=mode)


@pytest.mark.parametrize("beyond", [1.0, 3e38, np.inf, np.nan])
@pytest.mark.parametrize("exclude", [0, 1])
def test_what_stands_beyond_an_image_is_decided_whatever_it_is(beyond, exclude):
    crop = {"mode": "cubic", "coordinate_transformation_mode": "tf_crop_and_resize", "exclude_outside": exclude}
    image, roi = np.float32([[[[-2, -0.5], [-4, -3]]]]), np.float32([0, 0, -1.5, 0, 1, 1, 4, 1.25])
    (ball,) = apply("Resize", image, roi, None, np.int64([1, 1, 6, 4]), **crop, extrapolation_value=beyond)
    assert not ball.undecided.any(), f"undecided at {np.argwhere(ball.undecided).tolist()}"
    seen = ball.midpoint.astype(np.float32)
    np.testing.assert_allclose(seen[0, 0, 0], np.float32(beyond), rtol=1e-6)
    assert holds(ball, seen), "the constant itself is not right"
    seen[0, 0, 0, 0] = -7
    assert not holds(ball, seen), "-7 beyond the image is right"
