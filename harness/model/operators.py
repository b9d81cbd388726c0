"""What is known of operators: one table. An analysis asks it for a trait, never for a list of names.

    Trait.MOVES in traits_of("Slice")            one operator
    having(Trait.MOVES | Trait.KEEPS_ORDER)      the operators that have all of these
    parameters("Pad")                            positions of the operands that say how, not what

An analysis that must treat a few operators otherwise names these beside its query, with the reason. A row is about
operators with the same traits. It says what holds at every opset, with the attributes at their defaults where they
matter (`ScatterElements` without a reduction). `tests/model/test_operators.py` tries by experiment what can be tried,
and demands a row for what is generated.

Operators of other domains than ONNX's own are written as in `graph.Node.op`: com.microsoft.QGemm.
"""

from collections.abc import Mapping
from enum import Flag, auto
from functools import cache


class Trait(Flag):
    """Data operands are all but `parameters`: what weights, indices, bounds and scales are is said there."""

    # How results depend on data operands
    ELEMENTWISE = auto()
    """An element of the result depends on the elements at its place in the operands, broadcast to one shape."""
    BROADCASTS = auto()
    """Elementwise, of several operands."""
    COMMUTES = auto()
    """Its first two operands may change places: the result is the same, bit by bit."""
    COPIES = auto()
    """Outside of training, an element of the result is the operand's at its place, but for the dtype."""
    MOVES = auto()
    """Every element of a result is an element of a data operand or a given number; the data have no say in which."""
    PERMUTES = auto()
    """Moves, and the results together hold each element of the data operands once."""
    KEEPS_ORDER = auto()
    """Permutes, and keeps the row-major order: nothing but the shape changes."""
    SELECTS = auto()
    """Every element of the first result is an element of a data operand or a given number; the data say which."""
    EXTREME = auto()
    """Selects the greatest or the least."""
    WITHIN = auto()
    """No element of the first result is beyond the data operands' elements, zero and given numbers."""
    MONOTONE = auto()
    """No element of the first result falls when elements of data operands rise."""
    HOMOGENEOUS = auto()
    """Data operands times c > 0 give c times the result."""
    LINEAR = auto()
    """Homogeneous, and sums of data operands give the sums of the results."""
    KEEPS_GRID = auto()
    """Data operands that are multiples of a step give multiples of a step: sums, products, quotients by counts."""

    # What is computed
    SUMS = auto()
    """Adds up terms, the more the larger an operand, a window or an attribute."""
    CONTRACTS = auto()
    """Sums products of the elements of two operands."""
    WEIGHTED = auto()
    """Contracts, linear in either operand; the second is quantized as weights where it is constant."""
    RECURRENT = auto()
    """Contracts step by step along a sequence, and carries a state."""
    AFFINE = auto()
    """With constants, an affine map of each channel: a converter may fold it into the weights before it."""
    NORMALIZES = auto()
    """Divides by the root of a mean square or variance plus `epsilon`, then multiplies by the operand `scale`."""
    REDUCES = auto()
    """Makes one element of all those along given axes."""
    POOLS = auto()
    """Makes one element of each window, or of all positions, of each channel by itself."""
    SLIDES = auto()
    """A window (kernel, strides, pads, dilations) slides over the spatial axes."""
    SPATIAL = auto()
    """The axes from the third on are those of space, and their number decides which kernel runs."""
    INTERPOLATES = auto()
    """Weighs the elements around computed positions."""
    ACTIVATION = auto()
    """Elementwise and not linear, of the kind that stands behind a layer and is fused into it."""

    # What an analysis has to beware of
    DECIDES = auto()
    """However small a change of a floating-point operand, it may change a result by a whole step, or flip it: compares,
    rounds, looks at bits."""
    HAS_POLES = auto()
    """Finite operands that moved a little may give NaN or infinity: divides, or leaves the domain of its function."""
    RANDOM = auto()
    """Draws what it gives."""
    SHAPE_FROM_NUMBERS = auto()
    """The shape of a result depends on the elements of an operand that is no shape, size or count."""
    READS_SHAPE = auto()
    """Reads of its operand nothing but the shape, the length or the presence."""
    HAS_BODY = auto()
    """Runs a subgraph."""

    # Quantization
    QUANTIZES = auto()
    """Makes integer codes of reals, and nothing else."""
    DEQUANTIZES = auto()
    """Makes reals of integer codes, and nothing else."""
    IN_CODES = auto()
    """Computes with integer codes as operands."""
    QUANTIZES_INSIDE = auto()
    """Quantizes what it computes with inside, or unpacks it."""


T = Trait

IMPLIES: Mapping[Trait, Trait] = {
    T.KEEPS_ORDER: T.PERMUTES,
    T.PERMUTES: T.MOVES | T.LINEAR,
    T.MOVES: T.WITHIN | T.MONOTONE | T.KEEPS_GRID,
    T.EXTREME: T.SELECTS | T.MONOTONE,
    T.SELECTS: T.WITHIN | T.KEEPS_GRID,
    T.LINEAR: T.HOMOGENEOUS,
    T.WEIGHTED: T.CONTRACTS | T.KEEPS_GRID,
    T.RECURRENT: T.CONTRACTS,
    T.CONTRACTS: T.SUMS,
    T.BROADCASTS: T.ELEMENTWISE,
    T.COPIES: T.ELEMENTWISE,
    T.ACTIVATION: T.ELEMENTWISE,
    T.POOLS: T.SPATIAL,
    T.SLIDES: T.SPATIAL,
}
"""Who has the first has the others; a row states the first alone."""

NOTHING = Trait(0)
MOVED = T.MOVES | T.LINEAR
MEAN = T.SUMS | T.LINEAR | T.MONOTONE | T.WITHIN | T.KEEPS_GRID
CONTRIB = "com.microsoft."

_ROWS: Mapping[str, Trait] = {
    # elementwise
    "Identity Optional OptionalGetElement": T.COPIES | T.KEEPS_ORDER,
    "Dropout": T.COPIES | T.KEEPS_ORDER,  # outside of training
    "Add": T.BROADCASTS | T.COMMUTES | T.AFFINE | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "Sub": T.BROADCASTS | T.AFFINE | T.LINEAR | T.KEEPS_GRID,
    "Mul": T.BROADCASTS | T.COMMUTES | T.AFFINE | T.KEEPS_GRID,
    "Div": T.BROADCASTS | T.AFFINE | T.HAS_POLES,
    "Pow": T.BROADCASTS | T.HAS_POLES,
    "Mod": T.BROADCASTS | T.HOMOGENEOUS | T.WITHIN | T.DECIDES | T.HAS_POLES,
    "Max Min": T.BROADCASTS | T.COMMUTES | T.EXTREME | T.HOMOGENEOUS,
    "Sum": T.BROADCASTS | T.COMMUTES | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "Mean": T.BROADCASTS | T.COMMUTES | T.LINEAR | T.MONOTONE | T.WITHIN | T.KEEPS_GRID,
    "Neg": T.ELEMENTWISE | T.LINEAR | T.KEEPS_GRID,
    "Abs": T.ELEMENTWISE | T.HOMOGENEOUS | T.KEEPS_GRID,
    "Ceil Floor Round Sign": T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "Cos Cosh": T.ELEMENTWISE,
    "Sin": T.ELEMENTWISE | T.WITHIN,
    "Erf Exp Sinh": T.ELEMENTWISE | T.MONOTONE,
    "Asinh Atan": T.ELEMENTWISE | T.MONOTONE | T.WITHIN,
    "Acosh Asin Atanh Log Sqrt": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Acos Reciprocal Tan": T.ELEMENTWISE | T.HAS_POLES,
    # activations
    "Relu": T.ACTIVATION | T.EXTREME | T.HOMOGENEOUS,
    "LeakyRelu": T.ACTIVATION | T.HOMOGENEOUS | T.KEEPS_GRID,
    "PRelu": T.ACTIVATION | T.BROADCASTS | T.HOMOGENEOUS | T.KEEPS_GRID,
    "Clip": T.ACTIVATION | T.EXTREME,
    "ThresholdedRelu": T.ACTIVATION | T.SELECTS | T.DECIDES,
    "Shrink": T.ACTIVATION | T.DECIDES,
    "Elu HardSigmoid": T.ACTIVATION,
    "Selu Sigmoid Softplus": T.ACTIVATION | T.MONOTONE,
    "Celu Softsign Tanh": T.ACTIVATION | T.MONOTONE | T.WITHIN,
    "Gelu HardSwish Mish Swish": T.ACTIVATION | T.WITHIN,
    "LogSoftmax Softmax": T.SUMS,
    "Hardmax": T.DECIDES,
    # linear, recurrent, attention
    "Gemm MatMul": T.WEIGHTED,
    "Conv ConvTranspose": T.WEIGHTED | T.SLIDES,
    "DeformConv": T.CONTRACTS | T.SLIDES | T.INTERPOLATES,
    "Einsum": T.CONTRACTS | T.KEEPS_GRID,
    "Det": T.SUMS | T.KEEPS_GRID,
    "GRU LSTM RNN": T.RECURRENT,
    "Attention": T.CONTRACTS,
    "RotaryEmbedding": T.LINEAR,
    # normalization
    "BatchNormalization": T.NORMALIZES | T.AFFINE,
    "GroupNormalization InstanceNormalization LayerNormalization RMSNormalization": T.NORMALIZES | T.SUMS,
    "LRN": T.SUMS,
    "LpNormalization MeanVarianceNormalization": T.SUMS | T.HAS_POLES,
    # pooling
    "MaxPool": T.POOLS | T.SLIDES | T.EXTREME | T.HOMOGENEOUS,
    "AveragePool": T.POOLS | T.SLIDES | MEAN,
    "LpPool": T.POOLS | T.SLIDES | T.SUMS | T.HOMOGENEOUS,
    "GlobalMaxPool": T.POOLS | T.EXTREME | T.HOMOGENEOUS,
    "GlobalAveragePool": T.POOLS | MEAN,
    "GlobalLpPool": T.POOLS | T.SUMS | T.HOMOGENEOUS,
    "MaxUnpool": MOVED | T.SLIDES,
    # reduction
    "ArgMax ArgMin": T.REDUCES | T.DECIDES,
    "ReduceMax ReduceMin": T.REDUCES | T.EXTREME | T.HOMOGENEOUS,
    "ReduceMean": T.REDUCES | MEAN,
    "ReduceSum": T.REDUCES | T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "ReduceL1": T.REDUCES | T.SUMS | T.HOMOGENEOUS | T.KEEPS_GRID,
    "ReduceL2": T.REDUCES | T.SUMS | T.HOMOGENEOUS,
    "ReduceSumSquare": T.REDUCES | T.SUMS | T.KEEPS_GRID,
    "ReduceProd": T.REDUCES | T.KEEPS_GRID,
    "ReduceLogSum": T.REDUCES | T.SUMS | T.MONOTONE | T.HAS_POLES,
    "ReduceLogSumExp": T.REDUCES | T.SUMS | T.MONOTONE,
    "CumSum": T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "CumProd": T.KEEPS_GRID,
    # shape, slicing, indexing
    "Flatten Reshape SequenceConstruct Squeeze Unsqueeze": T.KEEPS_ORDER,
    "Concat ConcatFromSequence ReverseSequence Split SplitToSequence Transpose": T.PERMUTES,
    "DepthToSpace SpaceToDepth": T.PERMUTES | T.SPATIAL,
    "CenterCropPad Expand Gather GatherElements GatherND OneHot Slice TensorScatter Tile Trilu": MOVED,
    "Scatter ScatterElements ScatterND": MOVED,  # without a reduction
    "SequenceAt SequenceErase SequenceInsert": MOVED,
    "Pad": T.MOVES,
    "Compress": MOVED | T.SHAPE_FROM_NUMBERS,
    "NonMaxSuppression NonZero": T.DECIDES | T.SHAPE_FROM_NUMBERS,
    "Unique": T.SELECTS | T.HOMOGENEOUS | T.DECIDES | T.SHAPE_FROM_NUMBERS,
    "TopK": T.SELECTS | T.HOMOGENEOUS | T.MONOTONE | T.DECIDES,
    "EyeLike OptionalHasElement SequenceLength Shape Size": T.READS_SHAPE,
    # casting, logic
    "Cast CastLike": T.COPIES | T.DECIDES,
    "BitCast": T.DECIDES,
    "IsInf IsNaN": T.ELEMENTWISE | T.DECIDES,
    "Equal": T.BROADCASTS | T.COMMUTES | T.DECIDES,
    "Greater GreaterOrEqual Less LessOrEqual": T.BROADCASTS | T.DECIDES,
    "And BitwiseAnd BitwiseOr BitwiseXor Or Xor": T.BROADCASTS | T.COMMUTES,
    "BitShift StringConcat": T.BROADCASTS,
    "BitwiseNot Not RegexFullMatch": T.ELEMENTWISE,
    "Where": T.BROADCASTS | MOVED,
    # quantization
    "QuantizeLinear": T.QUANTIZES | T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "DynamicQuantizeLinear": T.QUANTIZES | T.DECIDES,
    "DequantizeLinear": T.DEQUANTIZES | T.ELEMENTWISE,
    "MatMulInteger QLinearMatMul": T.CONTRACTS | T.IN_CODES,
    "ConvInteger QLinearConv": T.CONTRACTS | T.IN_CODES | T.SLIDES,
    # image
    "GridSample Resize Upsample": T.SPATIAL | T.INTERPOLATES | T.LINEAR,
    "RoiAlign": T.SPATIAL | T.INTERPOLATES | T.HOMOGENEOUS | T.MONOTONE | T.WITHIN,
    "MaxRoiPool": T.SPATIAL | T.EXTREME | T.HOMOGENEOUS,
    "AffineGrid": T.LINEAR,
    "Col2Im": T.SPATIAL | T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    # creation, control, signal, loss, text
    "BlackmanWindow Constant ConstantOfShape HammingWindow HannWindow MelWeightMatrix SequenceEmpty": NOTHING,
    "StringNormalizer StringSplit TfIdfVectorizer": NOTHING,
    "Range": T.DECIDES,
    "Bernoulli Multinomial RandomNormal RandomUniform": T.RANDOM,
    "RandomNormalLike RandomUniformLike": T.RANDOM | T.READS_SHAPE,
    "If Loop Scan SequenceMap": T.HAS_BODY,
    "DFT NegativeLogLikelihoodLoss": T.SUMS | T.LINEAR,
    "STFT SoftmaxCrossEntropyLoss": T.SUMS,
    "SimplifiedLayerNormalization": T.NORMALIZES | T.SUMS,  # onnxruntime's, in the default domain
}

_CONTRIB_ROWS: Mapping[str, Trait] = {
    "SkipLayerNormalization SkipSimplifiedLayerNormalization": T.NORMALIZES | T.SUMS,
    "Gelu QuickGelu": T.ACTIVATION,
    "BiasGelu FastGelu": T.ACTIVATION | T.BROADCASTS,
    "FusedGemm FusedMatMul": T.CONTRACTS,
    "FusedConv": T.CONTRACTS | T.SLIDES,
    "QuantizeLinear": T.QUANTIZES | T.DECIDES,
    "DequantizeLinear": T.DEQUANTIZES,
    "MatMulIntegerToFloat QGemm": T.CONTRACTS | T.IN_CODES,
    "QLinearAdd QLinearMul QLinearWhere": T.BROADCASTS | T.IN_CODES,
    "QLinearConcat": T.IN_CODES,
    "QLinearLeakyRelu QLinearSigmoid": T.ACTIVATION | T.IN_CODES,
    "QLinearSoftmax": T.SUMS | T.IN_CODES,
    "QLinearAveragePool": T.POOLS | T.SLIDES | T.SUMS | T.IN_CODES,
    "QLinearGlobalAveragePool": T.POOLS | T.SUMS | T.IN_CODES,
    "QLinearReduceMean": T.REDUCES | T.SUMS | T.IN_CODES,
    "DynamicQuantizeMatMul MatMulBnb4 MatMulNBits QAttention QMoE": T.CONTRACTS | T.QUANTIZES_INSIDE,
    "DynamicQuantizeLSTM": T.RECURRENT | T.QUANTIZES_INSIDE,
    "GatherBlockQuantized": T.QUANTIZES_INSIDE,
    "QEmbedLayerNormalization": T.NORMALIZES | T.SUMS | T.QUANTIZES_INSIDE,
}

_SETTINGS: Mapping[str, tuple[int, ...]] = {
    # sizes, shapes, axes
    "Col2Im DFT ConcatFromSequence TopK": (1, 2),
    "CenterCropPad CumProd CumSum Expand MaxUnpool Reshape Split SplitToSequence Squeeze Tile Trilu Unsqueeze": (1,),
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum": (1,),
    "AffineGrid ReduceSumSquare": (1,),
    "BlackmanWindow ConstantOfShape HammingWindow HannWindow": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "Range": (0, 1, 2),
    "Pad STFT": (1, 3),
    # places
    "Compress Gather GatherElements GatherND ReverseSequence": (1,),
    "Scatter ScatterElements ScatterND SequenceAt SequenceErase Upsample": (1,),
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss": (1,),
    "RoiAlign SequenceInsert TensorScatter": (2,),
    "RotaryEmbedding": (3,),
    "OneHot": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Where": (0,),
    # thresholds, scales
    "Dropout DequantizeLinear QuantizeLinear": (1, 2),
    "NonMaxSuppression": (2, 3, 4),
    "QLinearConv QLinearMatMul": (1, 2, 4, 5, 6, 7),
}

_GIVEN: Mapping[str, tuple[int, ...]] = {
    "OneHot": (0,),  # indices that are floats may lie between two
    "Clip GroupNormalization InstanceNormalization LayerNormalization": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "GridSample MaxRoiPool PRelu RMSNormalization RoiAlign": (1,),
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss": (2,),
    "DeformConv": (2, 4),
    "Pad": (2,),
    "RotaryEmbedding": (1, 2),
}


def _whole(stated: Trait) -> Trait:
    """With what follows from it."""
    found = stated
    for trait, others in IMPLIES.items():
        found |= others if trait in found else NOTHING
    return found if found == stated else _whole(found)


OPERATORS: Mapping[str, Trait] = {
    prefix + op: _whole(stated)
    for prefix, rows in (("", _ROWS), (CONTRIB, _CONTRIB_ROWS))
    for ops, stated in rows.items()
    for op in ops.split()
}
"""Each operator, and all its traits."""


def traits_of(op: str) -> Trait:
    """Those of an operator; none of one that has no row (another domain's, a function of the model's own)."""
    return OPERATORS.get(op, NOTHING)


@cache
def having(traits: Trait) -> frozenset[str]:
    """The operators that have all of `traits`. What has one of several is a union: having(A) | having(B)."""
    return frozenset(op for op, own in OPERATORS.items() if traits in own)


def settings(op: str) -> tuple[int, ...]:
    """Positions of the operands that set shapes, axes, places, thresholds, scales: with a rounding error in one it is
    another operator."""
    return _POSITIONS[0].get(op, ())


def parameters(op: str) -> tuple[int, ...]:
    """Positions of the operands that say how: the settings, and given numbers such as bounds, slopes, statistics. The
    others are its data."""
    return tuple(sorted(settings(op) + _POSITIONS[1].get(op, ())))


def full_name(op_type: str, domain: str) -> str:
    """An operator's name as it is written here."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}.{op_type}"


_POSITIONS = tuple(
    {op: positions for ops, positions in table.items() for op in ops.split()} for table in (_SETTINGS, _GIVEN)
)
WEIGHTED, AFFINE = having(T.WEIGHTED), having(T.AFFINE)
RECURRENT = having(T.RECURRENT) - having(T.QUANTIZES_INSIDE)
"""what many modules ask for"""

# No trait says that an operator is deprecated, too new or without a kernel; each has its own reason here.
NOT_GENERATED = {
    "CausalConvWithState": "opset 27: onnxruntime 1.31.1 loads none newer than 26",
    "Constant": "not an operator of its own here: any operand may come from one",
    "ImageDecoder": "onnxruntime's CPU provider has no kernel for it",
    "LinearAttention": "opset 27: onnxruntime 1.31.1 loads none newer than 26",
    "Scatter": "deprecated since opset 11, the oldest generated; ScatterElements took its place",
    "SwiGLU": "opset 28: onnxruntime 1.31.1 loads none newer than 26",
    "Upsample": "deprecated since opset 10; Resize took its place",
}
"""Operator of the default domain -> why no case is generated of it."""
