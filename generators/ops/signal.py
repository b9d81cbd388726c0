"""Windows, Fourier transforms and the mel scale."""

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Stated, Value
from driftnet.generators.building.operands import Domain, data, scalar, tame, weight
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import DOUBLE, FLOAT, INT32, INT64, Shape
from driftnet.generators.ops.registry import operator, operators

_MODERATE = tame(1e6)
_OF_N = ", N the size or, where not periodic, one less"


@operators(
    {
        "HannWindow": f"w_n = 1/2 - 1/2 cos(2 pi n / N){_OF_N}",
        "HammingWindow": f"w_n = 25/46 - 21/46 cos(2 pi n / N){_OF_N}",
        "BlackmanWindow": f"w_n = 0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N){_OF_N}",
    },
    weight=0.2,
)
def window(b: Builder) -> None:
    """A window function, on as many points as a scalar says"""
    n, of_size = b.choose("size", (4, 2, 8, 5)), b.choose("size_dtype", (INT64, INT32))
    attributes = b.attributes(output_datatype=(FLOAT, DOUBLE), periodic=(1, 0))
    size = scalar(b, "size_source", n, ("initializer", "constant", "input"), dtype=of_size)
    b.emit((size,), (n,), attributes, dtype=attributes["output_datatype"], bounds=(-0.1, 1.0))


@operator("DFT", weight=0.4)
def dft(b: Builder) -> None:
    """X_k = sum x_n exp(-2 pi i n k / N) along an axis (an input from opset 20), the last dim real or complex"""
    numbers = Domain(lambda v: v.shape[-1] in (1, 2) and _MODERATE.holds(v))
    x = data(b, dtypes=(FLOAT, DOUBLE), ranks=(3,), fixed=(-1,), sizes=Sizes(most=(64, 64, 2)), domain=numbers)
    inverse, onesided = b.flag("inverse"), b.flag("onesided")
    axis, given = b.choose("axis", (1, 1, -2)), b.choose("dft_length", (None, 4, None, 3))
    if x.shape[-1] == 2 or inverse:
        onesided = False
    if b.has("axis"):
        axis = 1  # the attribute takes no negative one
    k = axis % x.rank
    length = scalar(b, "length_source", given, dtype=INT64) if given else None

    def shape(s: Shape) -> Shape:
        n = given or s[k]
        return (*s[:k], n // 2 + 1 if onesided else n, *s[k + 1 : -1], 2)

    attributes = {"inverse": int(inverse), "onesided": int(onesided)}
    operands: tuple[Value | None, ...] = (x, length)
    if b.has("axis"):
        attributes["axis"] = axis
    else:
        operands = (x, length, scalar(b, "axis_source", axis, dtype=INT64) if axis != -2 else None)
    b.emit(operands, shape, attributes, bounds=1024.0 * x.magnitude)


@operator("STFT", weight=0.3)
def stft(b: Builder) -> None:
    """The DFT of each windowed frame of a real signal (batch, length, 1)"""
    real = Domain(lambda v: v.shape[-1] == 1 and v.least(1) >= 4 and _MODERATE.holds(v))
    sizes = Sizes(least=(1, 4, 1), most=(64, 64, 1))
    x = data(b, dtypes=(FLOAT, DOUBLE), ranks=(3,), fixed=(-1,), sizes=sizes, domain=real)
    step, frame = b.choose("frame_step", (1, 2, 3)), b.choose("frame_length", (4, 2, 3))
    onesided, with_window = b.choose("onesided", (1, 0)), b.flag("window")
    window = weight(b, "window_source", (frame,), dtype=x.dtype) if with_window else None
    operands = (
        x,
        scalar(b, "step_source", step, dtype=INT64),
        window,
        scalar(b, "length_source", frame, dtype=INT64) if window is None or b.explicit else None,
    )
    bins = frame // 2 + 1 if onesided else frame
    attributes = {"onesided": Stated(onesided)}
    b.emit(operands, lambda s: (s[0], (s[1] - frame) // step + 1, bins, 2), attributes, bounds=64.0 * x.magnitude)


@operator("MelWeightMatrix", weight=0.2)
def mel_weight_matrix(b: Builder) -> None:
    """The weights that sum the bins of a spectrum to bands of the mel scale"""
    bands, length, rate = b.choose("num_mel_bins", (4, 2, 8)), b.choose("dft_length", (16, 8)), 8192
    edges = b.choose("edges", ((0.0, 4096.0), (100.0, 4000.0)))
    attributes = b.attributes(output_datatype=(FLOAT, DOUBLE))
    operands = [
        *[scalar(b, f"n{k}", number, dtype=INT64) for k, number in enumerate((bands, length, rate))],
        *[scalar(b, f"edge{k}", number) for k, number in enumerate(edges)],
    ]
    dtype = attributes["output_datatype"]
    b.emit(operands, (length // 2 + 1, bands), attributes, dtype=dtype, bounds=(0.0, 1.0))
