"""What is known of operators: one table, one row an operator. An analysis asks for a trait, never for a list of names.

    Trait.MOVES in traits_of("Slice")            one operator
    having(Trait.MOVES | Trait.KEEPS_ORDER)      the operators that have all of these
    parameters("Pad")                            positions of the operands that say how, not what

An analysis that must treat a few operators otherwise names these beside its query, with the reason. A row says what
holds at every opset, with the attributes at their defaults where they matter (`ScatterElements` without a reduction).
`tests/model/test_operators.py` tries by experiment what can be tried, and demands a row for what is generated.

Operators of other domains than ONNX's own are written as in `graph.Node.op`: com.microsoft.QGemm.
"""

from __future__ import annotations

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
    "Identity": T.COPIES | T.KEEPS_ORDER,
    "Add": T.BROADCASTS | T.COMMUTES | T.AFFINE | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "Mul": T.BROADCASTS | T.COMMUTES | T.AFFINE | T.KEEPS_GRID,
    "Sub": T.BROADCASTS | T.AFFINE | T.LINEAR | T.KEEPS_GRID,
    "Div": T.BROADCASTS | T.AFFINE | T.HAS_POLES,
    "Pow": T.BROADCASTS | T.HAS_POLES,
    "Max": T.BROADCASTS | T.COMMUTES | T.EXTREME | T.HOMOGENEOUS,
    "Min": T.BROADCASTS | T.COMMUTES | T.EXTREME | T.HOMOGENEOUS,
    "Sum": T.BROADCASTS | T.COMMUTES | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "Mean": T.BROADCASTS | T.COMMUTES | T.LINEAR | T.MONOTONE | T.WITHIN | T.KEEPS_GRID,
    "Neg": T.ELEMENTWISE | T.LINEAR | T.KEEPS_GRID,
    "Abs": T.ELEMENTWISE | T.HOMOGENEOUS | T.KEEPS_GRID,
    "Floor": T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "Ceil": T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "Round": T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "Sign": T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "Sin": T.ELEMENTWISE | T.WITHIN,
    "Cos": T.ELEMENTWISE,
    "Tan": T.ELEMENTWISE | T.HAS_POLES,
    "Asin": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Acos": T.ELEMENTWISE | T.HAS_POLES,
    "Atan": T.ELEMENTWISE | T.MONOTONE | T.WITHIN,
    "Sinh": T.ELEMENTWISE | T.MONOTONE,
    "Cosh": T.ELEMENTWISE,
    "Asinh": T.ELEMENTWISE | T.MONOTONE | T.WITHIN,
    "Acosh": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Atanh": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Sqrt": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Log": T.ELEMENTWISE | T.MONOTONE | T.HAS_POLES,
    "Exp": T.ELEMENTWISE | T.MONOTONE,
    "Reciprocal": T.ELEMENTWISE | T.HAS_POLES,
    "Mod": T.BROADCASTS | T.HOMOGENEOUS | T.WITHIN | T.DECIDES | T.HAS_POLES,
    # activations
    "Relu": T.ACTIVATION | T.EXTREME | T.HOMOGENEOUS,
    "LeakyRelu": T.ACTIVATION | T.HOMOGENEOUS | T.KEEPS_GRID,
    "PRelu": T.ACTIVATION | T.BROADCASTS | T.HOMOGENEOUS | T.KEEPS_GRID,
    "ThresholdedRelu": T.ACTIVATION | T.SELECTS | T.DECIDES,
    "Clip": T.ACTIVATION | T.EXTREME,
    "Sigmoid": T.ACTIVATION | T.MONOTONE,
    "Tanh": T.ACTIVATION | T.MONOTONE | T.WITHIN,
    "Softplus": T.ACTIVATION | T.MONOTONE,
    "Softsign": T.ACTIVATION | T.MONOTONE | T.WITHIN,
    "HardSigmoid": T.ACTIVATION,
    "Elu": T.ACTIVATION,
    "Celu": T.ACTIVATION | T.MONOTONE | T.WITHIN,
    "Selu": T.ACTIVATION | T.MONOTONE,
    "HardSwish": T.ACTIVATION | T.WITHIN,
    "Swish": T.ACTIVATION | T.WITHIN,
    "Mish": T.ACTIVATION | T.WITHIN,
    "Gelu": T.ACTIVATION | T.WITHIN,
    "Shrink": T.ACTIVATION | T.DECIDES,
    "Erf": T.ELEMENTWISE | T.MONOTONE,
    "Softmax": T.SUMS,
    "LogSoftmax": T.SUMS,
    "Hardmax": T.DECIDES,
    # linear, convolution
    "Gemm": T.WEIGHTED,
    "MatMul": T.WEIGHTED,
    "Conv": T.WEIGHTED | T.SLIDES,
    "ConvTranspose": T.WEIGHTED | T.SLIDES,
    "DeformConv": T.CONTRACTS | T.SLIDES | T.INTERPOLATES,
    "Einsum": T.CONTRACTS | T.KEEPS_GRID,
    "Det": T.SUMS | T.KEEPS_GRID,
    # normalization
    "BatchNormalization": T.NORMALIZES | T.AFFINE,
    "InstanceNormalization": T.NORMALIZES | T.SUMS,
    "GroupNormalization": T.NORMALIZES | T.SUMS,
    "LayerNormalization": T.NORMALIZES | T.SUMS,
    "RMSNormalization": T.NORMALIZES | T.SUMS,
    "MeanVarianceNormalization": T.SUMS | T.HAS_POLES,
    "LpNormalization": T.SUMS | T.HAS_POLES,
    "LRN": T.SUMS,
    # pooling
    "MaxPool": T.POOLS | T.SLIDES | T.EXTREME | T.HOMOGENEOUS,
    "AveragePool": T.POOLS | T.SLIDES | MEAN,
    "LpPool": T.POOLS | T.SLIDES | T.SUMS | T.HOMOGENEOUS,
    "GlobalMaxPool": T.POOLS | T.EXTREME | T.HOMOGENEOUS,
    "GlobalAveragePool": T.POOLS | MEAN,
    "GlobalLpPool": T.POOLS | T.SUMS | T.HOMOGENEOUS,
    "MaxUnpool": MOVED | T.SLIDES,
    # reduction
    "ReduceMean": T.REDUCES | MEAN,
    "ReduceSum": T.REDUCES | T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "ReduceMax": T.REDUCES | T.EXTREME | T.HOMOGENEOUS,
    "ReduceMin": T.REDUCES | T.EXTREME | T.HOMOGENEOUS,
    "ReduceL1": T.REDUCES | T.SUMS | T.HOMOGENEOUS | T.KEEPS_GRID,
    "ReduceL2": T.REDUCES | T.SUMS | T.HOMOGENEOUS,
    "ReduceSumSquare": T.REDUCES | T.SUMS | T.KEEPS_GRID,
    "ReduceProd": T.REDUCES | T.KEEPS_GRID,
    "ReduceLogSumExp": T.REDUCES | T.SUMS | T.MONOTONE,
    "ReduceLogSum": T.REDUCES | T.SUMS | T.MONOTONE | T.HAS_POLES,
    "ArgMax": T.REDUCES | T.DECIDES,
    "ArgMin": T.REDUCES | T.DECIDES,
    "CumSum": T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    "CumProd": T.KEEPS_GRID,
    # shape, slicing
    "Reshape": T.KEEPS_ORDER,
    "Flatten": T.KEEPS_ORDER,
    "Squeeze": T.KEEPS_ORDER,
    "Unsqueeze": T.KEEPS_ORDER,
    "Transpose": T.PERMUTES,
    "DepthToSpace": T.PERMUTES | T.SPATIAL,
    "SpaceToDepth": T.PERMUTES | T.SPATIAL,
    "Expand": MOVED,
    "Tile": MOVED,
    "Shape": T.READS_SHAPE,
    "Concat": T.PERMUTES,
    "Split": T.PERMUTES,
    "Slice": MOVED,
    "Pad": T.MOVES,
    "Gather": MOVED,
    "CenterCropPad": MOVED,
    # casting, logic
    "Cast": T.COPIES | T.DECIDES,
    "CastLike": T.COPIES | T.DECIDES,
    "BitCast": T.DECIDES,
    "IsNaN": T.ELEMENTWISE | T.DECIDES,
    "IsInf": T.ELEMENTWISE | T.DECIDES,
    "Equal": T.BROADCASTS | T.COMMUTES | T.DECIDES,
    "Greater": T.BROADCASTS | T.DECIDES,
    "GreaterOrEqual": T.BROADCASTS | T.DECIDES,
    "Less": T.BROADCASTS | T.DECIDES,
    "LessOrEqual": T.BROADCASTS | T.DECIDES,
    "And": T.BROADCASTS | T.COMMUTES,
    "Or": T.BROADCASTS | T.COMMUTES,
    "Xor": T.BROADCASTS | T.COMMUTES,
    "Not": T.ELEMENTWISE,
    "Where": T.BROADCASTS | MOVED,
    "BitwiseAnd": T.BROADCASTS | T.COMMUTES,
    "BitwiseOr": T.BROADCASTS | T.COMMUTES,
    "BitwiseXor": T.BROADCASTS | T.COMMUTES,
    "BitwiseNot": T.ELEMENTWISE,
    "BitShift": T.BROADCASTS,
    # recurrent, attention
    "GRU": T.RECURRENT,
    "LSTM": T.RECURRENT,
    "RNN": T.RECURRENT,
    "Attention": T.CONTRACTS,
    "RotaryEmbedding": T.LINEAR,
    # quantization
    "QuantizeLinear": T.QUANTIZES | T.ELEMENTWISE | T.MONOTONE | T.DECIDES,
    "DynamicQuantizeLinear": T.QUANTIZES | T.DECIDES,
    "DequantizeLinear": T.DEQUANTIZES | T.ELEMENTWISE,
    "MatMulInteger": T.CONTRACTS | T.IN_CODES,
    "ConvInteger": T.CONTRACTS | T.IN_CODES | T.SLIDES,
    "QLinearMatMul": T.CONTRACTS | T.IN_CODES,
    "QLinearConv": T.CONTRACTS | T.IN_CODES | T.SLIDES,
    # image
    "Resize": T.SPATIAL | T.INTERPOLATES | T.LINEAR,
    "Upsample": T.SPATIAL | T.INTERPOLATES | T.LINEAR,
    "GridSample": T.SPATIAL | T.INTERPOLATES | T.LINEAR,
    "RoiAlign": T.SPATIAL | T.INTERPOLATES | T.HOMOGENEOUS | T.MONOTONE | T.WITHIN,
    "MaxRoiPool": T.SPATIAL | T.EXTREME | T.HOMOGENEOUS,
    "AffineGrid": T.LINEAR,
    "Col2Im": T.SPATIAL | T.SUMS | T.LINEAR | T.MONOTONE | T.KEEPS_GRID,
    # indexing
    "TopK": T.SELECTS | T.HOMOGENEOUS | T.MONOTONE | T.DECIDES,
    "GatherElements": MOVED,
    "GatherND": MOVED,
    "Scatter": MOVED,
    "ScatterElements": MOVED,
    "ScatterND": MOVED,
    "TensorScatter": MOVED,
    "OneHot": MOVED,
    "ReverseSequence": T.PERMUTES,
    "Trilu": MOVED,
    "Compress": MOVED | T.SHAPE_FROM_NUMBERS,
    "NonZero": T.DECIDES | T.SHAPE_FROM_NUMBERS,
    "Unique": T.SELECTS | T.HOMOGENEOUS | T.DECIDES | T.SHAPE_FROM_NUMBERS,
    "NonMaxSuppression": T.DECIDES | T.SHAPE_FROM_NUMBERS,
    # creation
    "Constant": NOTHING,
    "ConstantOfShape": NOTHING,
    "Range": T.DECIDES,
    "Size": T.READS_SHAPE,
    "EyeLike": T.READS_SHAPE,
    "RandomNormal": T.RANDOM,
    "RandomUniform": T.RANDOM,
    "RandomNormalLike": T.RANDOM | T.READS_SHAPE,
    "RandomUniformLike": T.RANDOM | T.READS_SHAPE,
    "Bernoulli": T.RANDOM,
    "Multinomial": T.RANDOM,
    "Dropout": T.COPIES | T.KEEPS_ORDER,
    # control, sequences
    "If": T.HAS_BODY,
    "Loop": T.HAS_BODY,
    "Scan": T.HAS_BODY,
    "SequenceMap": T.HAS_BODY,
    "SequenceConstruct": T.KEEPS_ORDER,
    "SequenceEmpty": NOTHING,
    "SequenceAt": MOVED,
    "SequenceInsert": MOVED,
    "SequenceErase": MOVED,
    "SequenceLength": T.READS_SHAPE,
    "ConcatFromSequence": T.PERMUTES,
    "SplitToSequence": T.PERMUTES,
    "Optional": T.COPIES | T.KEEPS_ORDER,
    "OptionalGetElement": T.COPIES | T.KEEPS_ORDER,
    "OptionalHasElement": T.READS_SHAPE,
    # signal, loss, text
    "HannWindow": NOTHING,
    "HammingWindow": NOTHING,
    "BlackmanWindow": NOTHING,
    "MelWeightMatrix": NOTHING,
    "DFT": T.SUMS | T.LINEAR,
    "STFT": T.SUMS,
    "NegativeLogLikelihoodLoss": T.SUMS | T.LINEAR,
    "SoftmaxCrossEntropyLoss": T.SUMS,
    "StringConcat": T.BROADCASTS,
    "StringNormalizer": NOTHING,
    "StringSplit": NOTHING,
    "RegexFullMatch": T.ELEMENTWISE,
    "TfIdfVectorizer": NOTHING,
    # onnxruntime's own, which its optimizers and quantizers write
    "SimplifiedLayerNormalization": T.NORMALIZES | T.SUMS,
    CONTRIB + "SkipLayerNormalization": T.NORMALIZES | T.SUMS,
    CONTRIB + "SkipSimplifiedLayerNormalization": T.NORMALIZES | T.SUMS,
    CONTRIB + "Gelu": T.ACTIVATION,
    CONTRIB + "BiasGelu": T.ACTIVATION | T.BROADCASTS,
    CONTRIB + "FastGelu": T.ACTIVATION | T.BROADCASTS,
    CONTRIB + "QuickGelu": T.ACTIVATION,
    CONTRIB + "FusedConv": T.CONTRACTS | T.SLIDES,
    CONTRIB + "FusedGemm": T.CONTRACTS,
    CONTRIB + "FusedMatMul": T.CONTRACTS,
    CONTRIB + "QuantizeLinear": T.QUANTIZES | T.DECIDES,
    CONTRIB + "DequantizeLinear": T.DEQUANTIZES,
    CONTRIB + "QGemm": T.CONTRACTS | T.IN_CODES,
    CONTRIB + "QLinearAdd": T.BROADCASTS | T.IN_CODES,
    CONTRIB + "QLinearMul": T.BROADCASTS | T.IN_CODES,
    CONTRIB + "QLinearWhere": T.BROADCASTS | T.IN_CODES,
    CONTRIB + "QLinearConcat": T.IN_CODES,
    CONTRIB + "QLinearLeakyRelu": T.ACTIVATION | T.IN_CODES,
    CONTRIB + "QLinearSigmoid": T.ACTIVATION | T.IN_CODES,
    CONTRIB + "QLinearSoftmax": T.SUMS | T.IN_CODES,
    CONTRIB + "QLinearAveragePool": T.POOLS | T.SLIDES | T.SUMS | T.IN_CODES,
    CONTRIB + "QLinearGlobalAveragePool": T.POOLS | T.SUMS | T.IN_CODES,
    CONTRIB + "QLinearReduceMean": T.REDUCES | T.SUMS | T.IN_CODES,
    CONTRIB + "MatMulIntegerToFloat": T.CONTRACTS | T.IN_CODES,
    CONTRIB + "DynamicQuantizeMatMul": T.CONTRACTS | T.QUANTIZES_INSIDE,
    CONTRIB + "DynamicQuantizeLSTM": T.RECURRENT | T.QUANTIZES_INSIDE,
    CONTRIB + "GatherBlockQuantized": T.QUANTIZES_INSIDE,
    CONTRIB + "MatMulBnb4": T.CONTRACTS | T.QUANTIZES_INSIDE,
    CONTRIB + "MatMulNBits": T.CONTRACTS | T.QUANTIZES_INSIDE,
    CONTRIB + "QAttention": T.CONTRACTS | T.QUANTIZES_INSIDE,
    CONTRIB + "QEmbedLayerNormalization": T.NORMALIZES | T.SUMS | T.QUANTIZES_INSIDE,
    CONTRIB + "QMoE": T.CONTRACTS | T.QUANTIZES_INSIDE,
}

_PARAMETERS: Mapping[str, tuple[int, ...]] = {
    # sizes and shapes
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Split", "SplitToSequence"), (1,)),
    **dict.fromkeys(("CenterCropPad", "AffineGrid", "MaxUnpool", "Trilu", "TopK", "ConcatFromSequence"), (1, 2)),
    **dict.fromkeys(("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow"), (0,)),
    **dict.fromkeys(("MelWeightMatrix",), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("Range",), (0, 1, 2)),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "STFT": (1, 3),
    # places
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Compress", "ReverseSequence", "SequenceAt"), (1,)),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), (1,)),
    "TensorScatter": (2,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "OneHot": (0, 1),
    "Where": (0,),
    "NonMaxSuppression": (2, 3, 4),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "GridSample": (1,),
    "RoiAlign": (1, 2),
    "MaxRoiPool": (1,),
    "DeformConv": (2, 4),
    "RotaryEmbedding": (1, 2, 3),
    **{f"Reduce{of}": (1,) for of in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")},
    "ReduceSumSquare": (1,),
    **dict.fromkeys(("CumSum", "CumProd"), (1,)),
    # given numbers, and scales
    "Clip": (1, 2),
    "Pad": (1, 2, 3),
    "PRelu": (1,),
    "Dropout": (1, 2),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (1, 2, 4, 5, 6, 7)),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "LayerNormalization"), (1, 2)),
    "RMSNormalization": (1,),
    "BatchNormalization": (1, 2, 3, 4),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), (1, 2)),
}


def _whole(stated: Trait) -> Trait:
    """With what follows from it."""
    found = stated
    for trait, others in IMPLIES.items():
        found |= others if trait in found else NOTHING
    return found if found == stated else _whole(found)


OPERATORS: Mapping[str, Trait] = {op: _whole(stated) for op, stated in _ROWS.items()}
"""Each operator, and all its traits."""


def traits_of(op: str) -> Trait:
    """Those of an operator; none of one that has no row (another domain's, a function of the model's own)."""
    return OPERATORS.get(op, NOTHING)


@cache
def having(traits: Trait) -> frozenset[str]:
    """The operators that have all of `traits`. What has one of several is a union: having(A) | having(B)."""
    return frozenset(op for op, own in OPERATORS.items() if traits in own)


def parameters(op: str) -> tuple[int, ...]:
    """Positions of the operands that say how: shapes, axes, places, bounds, scales. The others are its data."""
    return _PARAMETERS.get(op, ())


WEIGHTED, RECURRENT, AFFINE = having(T.WEIGHTED), having(T.RECURRENT), having(T.AFFINE)
"""what many modules ask for"""
