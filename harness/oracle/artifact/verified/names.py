"""By what a node of the float model is known again in an artifact: names, attributes, small constants."""

from collections.abc import Container, Iterator

import numpy as np
import onnx
from driftnet.model.graph import Node
from driftnet.oracle.artifact.verified.format import Artifact

COPY = "/duplicated"
PREFIXES = ("", "InsertedPrecisionFreeCast_")
SUFFIXES = ("", "_quantized", "_QuantizeLinear_Input", "_DequantizeLinear_Output", "_QuantizeLinear_Output", COPY)
"""what quantizers, and optimizers before them, add to the name of a tensor"""
SMALL = 16
"""elements of a constant that exporters write again for each use"""


def spellings(name: str) -> Iterator[str]:
    """What tensor `name` of a float model may be called in an artifact, the likeliest first."""
    return (start + name + end for start in PREFIXES for end in SUFFIXES)


def first_result(node: Node) -> str:
    """The name of the first result of a node that has one."""
    return next(name for name in node.outputs if name)


def named(artifact: Artifact, names: Container[str], tensor: str) -> str:
    """The real tensor that is called like `tensor` of the float model; "" when there is none."""
    return next((artifact.stands_for(other) for other in spellings(tensor) if other in names), "")


def attributes_of(node: Node, *, bodies: bool = True) -> dict[str, str]:
    """The attributes of a node, each as a text that is the same for equal ones of one type. bodies: subgraphs too."""
    return {
        name: f"{type(x).__name__} {x.tolist() if isinstance(x, np.ndarray) else x}"
        for name, x in node.attributes.items()
        if bodies or not isinstance(x, onnx.GraphProto)
    }


def content(constant: np.ndarray | None, name: str) -> object:
    """A constant by what it holds, if that is little; anything else by its name."""
    small = constant is not None and constant.size <= SMALL and constant.dtype.kind in "biuf"
    return (constant.shape, constant.tobytes()) if constant is not None and small else name
