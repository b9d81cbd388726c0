"""Images: resizing, sampling, regions and columns."""

import math
from typing import Any

import numpy as np
from driftnet.generators.building.builder import Builder, hull
from driftnet.generators.building.graph import Stated, Value
from driftnet.generators.building.operands import constant, data, find, fresh, integers, shape_of, tame, weight, whole
from driftnet.generators.building.values import DOUBLE, FLOAT, NUMPY, Fill, Shape
from driftnet.generators.ops.registry import operator

SCALES = ((2.0, 2.0, 2.0), (1.0, 2.0, 1.0), (0.5, 0.5, 0.5), (1.5, 1.5, 1.0), (2.0, 3.0, 1.0), (1.0, 0.5, 2.0))
COORDINATES = (
    *("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"),
    *("half_pixel_symmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"),
)
ROI = (0.25, 0.0, 0.5)
"""Where tf_crop_and_resize starts on each spatial axis; it ends at 0.75 or, beyond the image, at 1.25."""


NEAREST = ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil")


@operator("Resize", weight=2.5)
def resize(b: Builder) -> None:
    """The spatial dims scaled, floor(n scale) or to given sizes, by nearest, linear or cubic interpolation"""
    mode = b.choose("mode", ("nearest", "linear", "cubic"))
    x = data(b, dtypes=b.types() if mode == "nearest" else b.floats(), ranks=(4,) if mode == "cubic" else (4, 3))
    factors = b.choose("scales", SCALES)[: x.rank - 2]
    factors = tuple([f if all(s[axis] * f >= 1 for s in x.shapes) else 1.0 for axis, f in enumerate(factors, 2)])
    coordinates = b.choose("coordinate_transformation_mode", COORDINATES)
    form = b.choose("sizes", ("scales", "scales", "sizes", "computed"))
    if form == "sizes" and not x.static:
        form = "computed"
    if form == "computed" not in b.profile.numbers:
        form = "sizes" if x.static else "scales"
    coordinates = _coordinates(b, coordinates, form)
    spatial = bool(b.choose("axes", (False, False, True))) and b.has("axes")
    policy = b.choose("keep_aspect_ratio_policy", (None, None, "not_larger", "not_smaller", "stretch"))
    sizes = tuple([math.floor(n * f) for n, f in zip(x.shape[2:], factors)])
    if form != "sizes" or not spatial or coordinates == "tf_crop_and_resize":
        policy = None
    kept = _kept(policy, x.shape[2:], sizes) if form != "scales" else ()
    outside = b.choose("roi_end", (0.75, 1.25))
    attributes = {
        "coordinate_transformation_mode": coordinates,
        "mode": mode,
        "nearest_mode": Stated(b.choose("nearest_mode", NEAREST)) if mode == "nearest" else None,
        **_details(b, mode),
        "extrapolation_value": b.choose("extrapolation_value", (None, 1.0)) if outside > 1 else None,
        "axes": tuple(range(2, x.rank)) if spatial else None,
        "keep_aspect_ratio_policy": None if policy is None else Stated(policy),
    }
    inputs = _resize_operands(b, x, form, factors, sizes, coordinates, outside, spatial)
    low, high = hull(x, 0.0, 1.0)
    bounds = (3 * low - 2 * high, 3 * high - 2 * low) if mode == "cubic" else (low, high)

    def shape(s: Shape) -> Shape:
        return (*s[:2], *(kept or [math.floor(n * f) for n, f in zip(s[2:], factors)]))

    b.emit(inputs, shape, attributes, bounds=bounds)


def _kept(policy: str | None, sizes: Shape, wanted: Shape) -> Shape:
    """The wanted sizes, or those of one ratio for all axes that are as near as the policy has it."""
    if policy in (None, "stretch"):
        return wanted
    ratios = [w / n for w, n in zip(wanted, sizes)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return tuple([math.floor(n * ratio + 0.5) for n in sizes])


def _coordinates(b: Builder, wanted: str, form: str) -> str:
    """The wanted mode if the opset has it. Cropping goes with sizes alone: engines part ways on scales of a crop."""
    legal = {
        "half_pixel_symmetric": b.opset >= 19,
        "tf_half_pixel_for_nn": b.opset < 13,
        "tf_crop_and_resize": form != "scales",
    }
    return wanted if legal.get(wanted, True) else "asymmetric"


def _details(b: Builder, mode: str) -> dict[str, Any]:
    """What only some modes have: the cubic coefficient, taps outside left out, smoothing (from opset 18)."""
    of_cubic = b.attributes(cubic_coeff_a=(None, -0.5), exclude_outside=(None, 1))
    smooth = b.choose("antialias", (None, None, 1)) if b.has("antialias") and mode != "nearest" else None
    return {"antialias": smooth, **(of_cubic if mode == "cubic" else {})}


def _resize_operands(
    b: Builder,
    x: Value,
    form: str,
    factors: tuple[float, ...],
    sizes: Shape,
    coordinates: str,
    outside: float,
    spatial: bool,
) -> tuple[Value | None, ...]:
    """X, roi, scales and sizes; spatial: of the spatial axes alone. Before opset 13 what does not count is empty."""
    kept, rank = 2 if spatial else 0, x.rank
    empty = b.flag("roi") or b.opset < 13
    roi: Value | None = None
    if coordinates == "tf_crop_and_resize":
        starts, ends = (0.0, 0.0, *ROI[: rank - 2]), (1.0, 1.0, *[outside] * (rank - 2))
        roi = constant(b, "roi_source", np.array((*starts[kept:], *ends[kept:]), np.float32))
    elif empty:
        roi = constant(b, "roi_source", np.zeros(0, np.float32))
    if form == "scales":
        return x, roi, constant(b, "scales_source", np.array((1.0, 1.0, *factors)[kept:], np.float32)), None
    scales = constant(b, "scales_source", np.zeros(0, np.float32)) if b.opset < 13 else None
    if form == "computed" and not spatial:
        return x, roi, scales, _computed_sizes(b, x, sizes)
    return x, roi, scales, integers(b, "sizes_source", sizes if spatial else (*x.shape[:2], *sizes))


def _computed_sizes(b: Builder, x: Value, spatial: Shape) -> Value:
    """Batch and channels read off x, as torch exports an interpolation to a size."""
    shape = shape_of(b, x)
    ends = [integers(b, name, (number,)) for name, number in (("start", 0), ("end", 2))]
    head = b.emit((shape, *ends), (2,), op_type="Slice")
    tail = integers(b, "sizes_source", spatial)
    return b.emit((head, tail), (x.rank,), {"axis": 0}, op_type="Concat", bounds=(1.0, 4096.0))


@operator("GridSample", weight=0.6)
def grid_sample(b: Builder) -> None:
    """X read at the positions of a grid in -1..1, interpolated, with one of three paddings; 3-D from opset 20"""
    x = data(b, ranks=(4, 5) if b.opset >= 20 else (4,), domain=tame(1e6))
    kinds = ("linear", "nearest", "cubic") if b.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = kinds[b.choose("mode", (0, 1, 2))]
    mode = mode if mode != "cubic" or x.rank == 4 else kinds[0]
    attributes = {"mode": mode, **b.attributes(padding_mode=("zeros", "border", "reflection"), align_corners=(0, 1))}
    size = b.choose("size", ((2, 2, 2), (1, 3, 2), (3, 1, 1), (4, 4, 1)))[: x.rank - 2]
    shapes = tuple([(s[0], *size, len(size)) for s in x.shapes])
    sources = ("input", "initializer", "constant")
    grid = weight(b, "grid", shapes, dtype=x.dtype, fill="unit", sources=sources)
    b.emit((x, grid), lambda s: (*s[:2], *size), attributes, bounds=4.0 * x.magnitude)


@operator("AffineGrid", weight=0.3)
def affine_grid(b: Builder) -> None:
    """For each sample, the grid of positions that an affine map takes the pixels of an image to"""
    spatial, batch = b.choose("spatial", (2, 3)), b.choose("batch", (1, 2))
    dtype = b.choose("dtype", (FLOAT, DOUBLE))
    size = (batch, 1, *b.choose("size", ((2, 2, 2), (3, 2, 2), (2, 4, 3)))[:spatial])
    theta = weight(b, "theta", (batch, spatial, spatial + 1), dtype=dtype)
    operands = (theta, integers(b, "size_source", size))
    attributes = b.attributes(align_corners=(0, 1))
    b.emit(operands, (batch, *size[2:], spatial), attributes, bounds=4.0 * theta.magnitude)


REGIONS = ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 2.0, 1.0), (1.0, 0.0, 3.0, 3.0))
POOLED = ((1, 1), (2, 2), (1, 2), (3, 1))


@operator("RoiAlign", until=21, heir="GridSample", weight=0.4)
def roi_align(b: Builder) -> None:
    """Regions of X pooled to one size by the mean or the maximum of interpolated samples"""
    x = data(b, ranks=(4,), domain=tame(1e6))
    count, (height, width) = b.choose("count", (1, 2, 3)), b.choose("pooled", POOLED)
    mode, ratio = b.choose("mode", ("avg", "max")), b.choose("sampling_ratio", (1, 2, 0))
    ratio = 1 if mode == "max" else ratio  # onnxruntime says that it gets others wrong
    scale, transform = b.choose("spatial_scale", (1.0, 0.5)), b.choose("transform", ("half_pixel", "output_half_pixel"))
    rois = constant(b, "rois", np.array(REGIONS[:count], NUMPY[x.dtype]))
    samples = whole(b, "batch_indices", (count,), 0, x.least(0) - 1)
    attributes = {
        "mode": mode,
        "output_height": height,
        "output_width": width,
        "sampling_ratio": ratio,
        "spatial_scale": scale,
        "coordinate_transformation_mode": transform if b.has("coordinate_transformation_mode") else None,
    }
    b.emit((x, rois, samples), lambda s: (count, s[1], height, width), attributes, bounds=hull(x, 0.0))


@operator("MaxRoiPool", until=21, heir="MaxPool", weight=0.2)
def max_roi_pool(b: Builder) -> None:
    """The maximum of each cell of each region (batch index, x1, y1, x2, y2)"""
    x = data(b, ranks=(4,))
    count, pooled = b.choose("count", (1, 2, 3)), b.choose("pooled", POOLED)
    rois = constant(b, "rois", np.array([(0.0, *region) for region in REGIONS[:count]], NUMPY[x.dtype]))
    attributes = {"pooled_shape": pooled, **b.attributes(spatial_scale=(1.0, 0.5))}
    b.emit((x, rois), lambda s: (count, s[1], *pooled), attributes, bounds=hull(x, 0.0))


COLUMNS: tuple[tuple[Shape, Shape, int, dict[str, Shape]], ...] = (
    # image, block, how many positions the block has in it, where they are
    ((2, 2), (1, 1), 4, {}),
    ((3, 3), (2, 2), 4, {}),
    ((2, 4), (2, 1), 4, {}),
    ((4, 3), (3, 3), 2, {}),
    ((5,), (2,), 4, {}),
    ((4, 4), (2, 2), 4, {"strides": (2, 2)}),
    ((2, 2), (2, 2), 9, {"pads": (1, 1, 1, 1)}),
    ((3, 4), (2, 2), 2, {"dilations": (2, 2)}),
)


@operator("Col2Im", weight=0.4)
def col2im(b: Builder) -> None:
    """Columns (N, C block, positions) added up where their blocks overlap in the image"""
    image, block, positions, placed = b.choose("image", COLUMNS)
    rows, dtypes, moderate = math.prod(block), b.types(), tame(1e6)

    def is_columns(v: Value) -> bool:
        fits = all(s[1] % rows == 0 and s[2] == positions for s in v.shapes) if v.rank == 3 else False
        return v.dtype in dtypes and fits and moderate.holds(v)

    x = find(b, is_columns)
    if x is None:
        shape = (b.header.batch, b.choose("channels", (1, 2)) * rows, positions)
        x = fresh(b, FLOAT, shape, Fill("data"))
    operands = (x, integers(b, "image_source", image), integers(b, "block_source", block))
    bounds = (9.0 * min(x.low, 0.0), 9.0 * max(x.high, 0.0))
    b.emit(operands, lambda s: (s[0], s[1] // rows, *image), placed, bounds=bounds)
