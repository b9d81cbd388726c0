"""Every number by which the oracle lets something pass: what it is in, why it is that large, and where that is from.

A tolerance is used as the number it is. Those that rest on what a system did when it was measured name the release:
`tests/oracle/tolerances/` measures the installed one, and fails where it does worse than that, or far better.
How far elementary functions may be off, operator by operator, stands in `approximations`.
"""

from collections.abc import Mapping
from typing import Self

DERIVED = "derived"
CHOSEN = "chosen"


class Tolerance(float):
    """A number with its unit ("of" names what it is multiplied by), the evidence for it, and its source.

    source   DERIVED: it follows from the arithmetic; CHOSEN: it parts what is worth telling from what is not; a
             document; or, where systems under test were measured, which
    seen     system -> (its release, the most that was seen of it, in the same unit)
    """

    unit: str
    evidence: str
    source: str
    seen: Mapping[str, tuple[str, float]]

    def __new__(
        cls, number: float, unit: str = "", evidence: str = "", source: str = "", **seen: tuple[str, float]
    ) -> Self:
        found = super().__new__(cls, number)
        found.unit, found.evidence, found.seen = unit, evidence, seen
        measured = [f"{most:g} seen of {system} {release}" for system, (release, most) in seen.items()]
        found.source = source or "measured: " + ", ".join(measured)
        return found


# Codes and steps of a quantizer
HALF_STEP = Tolerance(0.501, "steps", "half a step, and what float rounding moves a code of 255: 6e-5 steps", DERIVED)
ONE_STEP = Tolerance(1.001, "steps", "a kernel truncates, or rounds once more: a finding of a kind of its own", DERIVED)
ON_GRID_ERROR = Tolerance(0.02, "steps", "float rounding of a scale moves a code of 255 by 6e-5 steps", DERIVED)
TIE = Tolerance(1e-3, "steps from a tie", "either neighbour is right there: float rounding decides", DERIVED)
CODE_ERROR = Tolerance(2.0**-21, "of the largest element", "roundings of a scale and a division by it: 8u", DERIVED)
MOVED_DEQUANTIZATION = Tolerance(
    2.0**-14, "steps", "four roundings of a code of 255, of scales and zero points that were moved", DERIVED
)
LOSSLESS_FLOAT_ERROR = Tolerance(
    1e-6, "of the largest result or bias", "scales and results are float32; a bias may cancel", DERIVED
)
BY_OTHER_MEANS_ERROR = Tolerance(
    0.01,
    "of the largest result",
    "another way to compute one thing may approximate it; another thing is far off",
    CHOSEN,
)
HISTOGRAM_BIN = Tolerance(1 / 2048, "of a range", "the width of a bin of the histograms by which MNN clips", DERIVED)

# Exact kernels, second opinions
INEXACT_KERNEL = Tolerance(
    2.0**-14, "of the largest partial sum", "what a Winograd transform of large tiles loses", CHOSEN
)
SAME_OPINION = Tolerance(1e-3, "of the largest element", "rounding alone makes nobody wrong", CHOSEN)

# Running error
ILL = Tolerance(0.1, "of the largest element", "a ball as wide as that cannot vouch for what lies in it", CHOSEN)
ILL_SHARE = Tolerance(0.1, "of the elements", "so few may be ill before nothing is said of the tensor", CHOSEN)
ILL_ROUNDINGS = Tolerance(100, "u, of the operands", "x - x is 0 up to the rounding of x, which is no fault", CHOSEN)
OWN_ROUNDING = Tolerance(2.0**-52, "of the larger end", "a ball between two ends is made in float64", DERIVED)
OWN_SUM = Tolerance(2.0**-48, "of a sum", "float64's own roundings of the sums of a Softmax", DERIVED)
CURVED = Tolerance(2.0**-20, "of a radius", "the ends of an interval stand for all of it, rounding aside", DERIVED)
CANCELLED = Tolerance(2.0**-40, "of the operands", "what float64 leaves where the true result is 0", DERIVED)
NEGLIGIBLE = Tolerance(1e-30, "absolute", "what underflow, or a product of many small numbers, may leave", CHOSEN)
FOLDED_ROUNDINGS = Tolerance(
    6,
    "u, of a sum of products",
    "a bias, and a BatchNormalization folded into weights: epsilon added, root, quotient, product, bias",
    DERIVED,
)
WINOGRAD_ROUNDINGS = Tolerance(
    120, "u, of sum max|x| max|w|", "twice the most that was seen of windows of 3 x 3", mnn=("3.6.1", 59)
)
SOFTMAX_ROUNDINGS = Tolerance(8, "u", "shift, exponential and quotient beside the sum", DERIVED)
LOG_SUM_EXP_ROUNDINGS = Tolerance(12, "u", "those that the 6e-7 of an exponential are worth, and the shift", DERIVED)
LP_POOL_ROUNDINGS = Tolerance(16, "u", "the powers and the root, beside the sum", DERIVED)
FUNCTION_ROUNDINGS = Tolerance(4, "u", "a function of which nothing was measured: libraries state 1 to 4 ulp", CHOSEN)
NARROW_FUNCTION = Tolerance(
    0.25, "of the units in the last place", "in narrower formats a function is computed in float32", DERIVED
)
FOURIER_ROUNDINGS = Tolerance(8, "u (1 + angle)", "angles are computed in the tensor's own dtype, unreduced", DERIVED)
BLUESTEIN_ROUNDINGS = Tolerance(
    4, "u N", "of the sum of |x|, where N is no power of two; 2 to 1000 were tried", onnxruntime=("1.31.1", 1.8)
)
VARIANCE_EPSILON = Tolerance(
    1e-9, "absolute", "of MeanVarianceNormalization: engines add it here or there", "the operator's function"
)
POSITION_ROUNDINGS = Tolerance(8, "u", "of a coordinate of Resize: a division, and the shifts by half", DERIVED)
GRID_ROUNDINGS = Tolerance(4, "u", "of a coordinate of a grid: a sum and a product", DERIVED)
NORMAL_DEVIATIONS = Tolerance(8, "deviations", "a normal number further out turns up once in 10^15", DERIVED)
UNDECIDED_COUNT = Tolerance(1e-5, "of a quotient", "whether it is a whole number depends on float32 rounding", DERIVED)
UNDECIDED_LENGTH = Tolerance(1e-4, "of a quotient", "the same of a Range, whose bounds are rounded too", DERIVED)
CODE_ROUNDINGS = Tolerance(4, "u", "engines divide by a scale, or multiply by its reciprocal", DERIVED)
CODE_ROUNDINGS_FLOAT16 = Tolerance(2, "u", "there 4u of a large code is a quarter of a step", DERIVED)
RANGE_ROUNDINGS = Tolerance(3, "u", "of a scale by a range: its width, 1/255 where that is multiplied by", DERIVED)
REQUANTIZED_ROUNDINGS = Tolerance(6, "u", "a product and quotient of three scales, then as for a code", DERIVED)

# Sampling
SPREADS = Tolerance(
    10, "spreads of perturbed runs", "float64 arithmetic reaches .44 of the bound, in 1600 outputs", CHOSEN
)
SAMPLING_RELATIVE = Tolerance(2, "u, of the element", "its own rounding, and that of the reference", DERIVED)
SAMPLING_OF_LARGEST = Tolerance(1.7, "u, of the largest element", "1e-7 in float32: sums that cancel", CHOSEN)
APPROXIMATED_SPREADS = Tolerance(4, "spreads of approximated operators", "six samples do not meet the worst", CHOSEN)
GROSS = Tolerance(100, "bounds", "an error so large no further sample would explain", CHOSEN)

# Budget
SCORE = Tolerance(2, "score", "right quantizers reach .9 in 99 % of 1300 places", mnn=("3.6.1", 1.3))
SAMPLED_ERRORS = Tolerance(2, "of the largest sampled error", "a score of 1", CHOSEN)
SAMPLED_DEVIATIONS = Tolerance(8, "deviations of the sampled statistic", "a score of 1", CHOSEN)
DROWNED = Tolerance(2, "of the L2 norm of the result", "noise hides any error: 3 of 1000 generated places", CHOSEN)
BUDGET_FLOAT_ERROR = Tolerance(1e-5, "of the largest result", "what is no quantization noise, in float32", CHOSEN)

# Calibration
LARGEST_VANISHED = Tolerance(1e-4, "absolute", "what a quantizer takes for nothing, and some more", mnn=("3.6.1", 1e-5))
NARROWEST_RANGE = Tolerance(1 / 16.5, "of the data's range", "KL keeps 128 of 2048 bins, and half a bin", DERIVED)
WIDEST_RANGE = Tolerance(1.1, "of the data's range", "how wide KL, ADMM and EMA make one", mnn=("3.6.1", 1.0004))
DEEPEST_CLIP = Tolerance(1 / 16, "of the data's range", "KL keeps 128 of 2048 bins at least", DERIVED)
FOLDING_ERROR = Tolerance(1e-5, "of the largest element, or of 1", "what folding may make of a constant", CHOSEN)

# Artifacts
PARAMETER_HALF_STEP = Tolerance(
    0.5 * (1 + 2e-4), "steps", "a weight is rounded to the nearest code, its quotient computed in float32", DERIVED
)
PARAMETER_FLOAT_ERROR = Tolerance(2.0**-21, "of a value", "what a code, or folding, in float32 may cost", DERIVED)
CLIPPED = Tolerance(0.01, "of the width of data", "calibration by 128 bins and more may cut it off", DERIVED)
MOVED_BOUND = Tolerance(0.51, "steps", "the bound of an absorbed Relu or Clip moves to the nearest code", DERIVED)
COVERED = Tolerance(1.01, "steps", "a range covers what calibration saw, but for a step's rounding", DERIVED)
ABSURD_RANGE = Tolerance(4, "ranges", "no data like those of calibration span so much", CHOSEN)
ROOMY_RANGE = Tolerance(2, "ranges", "scales that are powers of two round up to so much", DERIVED)
PROMINENT = Tolerance(0.75, "log2 of a proportion", "an outlier is so far from the median of all", CHOSEN)
PROMINENT_CUT = Tolerance(1.25, "log2 of a proportion", "the same where a range cuts made-up data off", CHOSEN)
PROMINENT_DEVIATIONS = Tolerance(6, "robust deviations", "an outlier is so far from the median of all", CHOSEN)
ALIKE = Tolerance(0.35, "log2 of a proportion", "at an input whose data are like those of calibration", CHOSEN)
GIVEN_UP = Tolerance(0.01, "of the elements", "calibrations that clip leave out outliers only", CHOSEN)
CUT_OFF = Tolerance(0.1, "of the elements", "of an input that calibration did not see", CHOSEN)
FOREIGN = Tolerance(16, "ranges", "of inputs that use no more of them than four of eight bits", CHOSEN)
SHIFTED = Tolerance(0.1, "of a range's width", "how far one of the right width is off", CHOSEN)
CODES_USED = Tolerance(0.98, "of the codes", "rounding may leave out the last of few", CHOSEN)
LEAST_RANGE = Tolerance(
    1.0001e-4, "absolute", "what the smallest constants get on demand", "onnxruntime: MinimumRealRange"
)
LEAST_SCALE = Tolerance(
    0.010001, "of the largest scale", "what a channel gets at least", "NNCF: fix_zero_filters_symmetric"
)
SEVEN_BITS = Tolerance(127 / 255, "of the codes", "pairs of products shall not leave 16 bits", DERIVED)
UNUSUAL_USE = Tolerance(0.55, "of the usual share of codes", "a scale is twice too big", CHOSEN)
CORRECTED_BIASES = Tolerance(0.5, "of the biases", "a quantizer that corrects biases moves so many", CHOSEN)
LAYER_SCALE_ERROR = Tolerance(2e-5, "of the largest weight", "100 right ones, folded ones too", mnn=("3.6.1", 1e-7))
LAYER_FLOAT_ERROR = Tolerance(1e-6, "of the largest weight", "scales and folded factors are float32", DERIVED)
FITTED_EPSILON = Tolerance(1e-9, "of a code", "what a fit adds to a scale before it divides by it", DERIVED)
HALF_ROUNDING = Tolerance(2.0**-11, "relative", "to nearest in float16", DERIVED)
HALF_SUBNORMAL = Tolerance(2.0**-25, "absolute", "half of the smallest float16", DERIVED)
FAR_APART = Tolerance(1e-6, "of a bound", "a bound is itself computed, and may be missed by its rounding", DERIVED)
UNDERFLOW = Tolerance(1e-37, "absolute", "what float32 no longer holds in all of its digits", DERIVED)
SAME_FACTOR = Tolerance(0.01, "of a factor", "the codes of eight bits leave so much unsaid", DERIVED)
SCALE_ERROR = Tolerance(1e-6, "of a scale", "it is computed in float32", DERIVED)

# Whole models
REWRITTEN = Tolerance(1e-4, "of the L2 norm of an output", "pre-processing that only sums in another order", CHOSEN)
LOST = Tolerance(
    0.5, "of the L2 norm of an output", "what is off by more is of no use, by whatever rule it is right", CHOSEN
)
LOOSE = Tolerance(
    2.0**-13,
    "of the largest element",
    "a bound of rounding that allows more (a Gelu by tanh is off by as much) says nothing of several nodes. In windows "
    "of a transformer of width 128 it is 1e-5, of LSTMs and Convs up to 1e-4",
    CHOSEN,
)
LOOSE_ROUNDINGS = Tolerance(
    8,
    "spacings of its type at 1, of the largest element",
    "is allowed in any case: in half precision one rounding is more than LOOSE, and all windows would be halved",
    CHOSEN,
)
LEAST_SHARE = Tolerance(0.01, "of the error of the outputs", "a fault that explains less is a note", CHOSEN)
LEAST_CHANGE = Tolerance(2.0**-20, "of the L2 norm of an output", "16 roundings: what moves less is a note", CHOSEN)

# Scripts for maintainers
SAME_MEASURE = Tolerance(0.01, "of an error", "further apart, the script measures something else than we did", CHOSEN)

# Mutants
NO_EFFECT = Tolerance(3, "of the largest of 24 samples", "six deviations, where rounding alone does not come", DERIVED)

# Reduction
CLEAR_OF_BOUND = Tolerance(3, "bounds", "rounding: so clear a failure does not come and go while shrinking", CHOSEN)
CLEAR_OF_STEP = Tolerance(1.5, "bounds", "the same of steps and noise, whose bounds are sharper", CHOSEN)

TOLERANCES: Mapping[str, Tolerance] = {name: x for name, x in globals().items() if isinstance(x, Tolerance)}
"""Each by its name, in the order of this page."""
