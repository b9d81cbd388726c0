"""Which operators the questions to an artifact treat alike: the one place where rules by operator stand.

What an operator is, its traits say (`driftnet.model.operators`). Beside them stand the exceptions that quantizers and
optimizers make, each with its reason.
"""

from driftnet.model.graph import Graph, Node
from driftnet.model.operators import WEIGHTED, Trait, having
from onnx import TensorProto

QUANTIZED = having(Trait.QUANTIZES) | having(Trait.DEQUANTIZES) | having(Trait.IN_CODES)
"""A float model has them only where it is quantized already."""
QUANTIZE = having(Trait.QUANTIZES) - {"DynamicQuantizeLinear"}  # which makes its scale too
DEQUANTIZE = having(Trait.DEQUANTIZES)
INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})  # they leave it to other nodes to scale what they make
OPAQUE = having(Trait.QUANTIZES_INSIDE)
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})

# reading and matching
SEVERAL = having(Trait.BROADCASTS) | {"Concat", "ConcatFromSequence", "OneHot", "TensorScatter"}
SEVERAL |= {"Scatter", "ScatterElements", "ScatterND"}  # the operands whose elements these move may have scales each
MOVEMENT = having(Trait.MOVES) - SEVERAL | {"MaxPool", "Resize"}  # the kernels of these two act on integers too
"""They act on integers as on the reals they stand for, and keep scale and zero point."""
COMMUTATIVE = having(Trait.COMMUTES)
CLIPPING = having(Trait.ACTIVATION | Trait.EXTREME)
"""What they do, a quantized range may do."""
COPYING = having(Trait.COPIES)
RESHAPING = having(Trait.KEEPS_ORDER) | {"Transpose"}
"""Of several in a row an optimizer may make one."""
MEASURING = having(Trait.READS_SHAPE)
REDEFINED = frozenset({"Hardmax", "LogSoftmax", "Softmax"})  # since opset 13 their `axis` is the only one they reduce

# constants and ranges
BROADCASTING = having(Trait.BROADCASTS)
SHARING = MOVEMENT | CLIPPING | {"AveragePool", "TopK"}  # onnxruntime's quantizer writes one scale for both ends

# linear operators and what is folded into them
SLIDING = having(Trait.WEIGHTED | Trait.SLIDES)
MATRIX_PRODUCTS = WEIGHTED - SLIDING
ARITHMETIC = having(Trait.AFFINE | Trait.BROADCASTS)
MAPPING = WEIGHTED | having(Trait.AFFINE) | having(Trait.LINEAR)
"""Of one operand and constants they make an affine map of it."""

# equalization: what becomes of a factor for each channel of the operand
NORMS = having(Trait.NORMALIZES) - {"GroupNormalization"}  # which had a scale a group before opset 21
POOLING = having(Trait.POOLS | Trait.HOMOGENEOUS) | having(Trait.INTERPOLATES | Trait.HOMOGENEOUS)
PASSING = having(Trait.ACTIVATION | Trait.HOMOGENEOUS) | COPYING
CARRYING = (MOVEMENT | {"Concat"}) - POOLING - {"CenterCropPad", "MaxUnpool", "Pad", "Trilu"}  # these put in numbers


def is_only_measured(model: Graph, node: Node) -> bool:
    """Whether of the result of a node nothing is read but its shape: an optimizer that knows that needs it no more."""
    name = node.outputs[0]
    return name not in model.outputs and all(other.op in MEASURING for other in model.readers(name))
