"""By what a node of the float model is known again in an artifact: names, attributes, small constants."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

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


def is_in_order(node: Node) -> bool:
    """Whether a node is a Transpose that leaves the axes where they are."""
    perm = list(node.attributes.get("perm", ()))
    return node.op == "Transpose" and bool(perm) and perm == sorted(perm)


def first_result(node: Node) -> str:
    """The name of the first result of a node that has one."""
    return next(name for name in node.outputs if name)


def named(artifact: Artifact, names: Container[str], tensor: str) -> str:
    """The real tensor that is called like `tensor` of the float model; "" when there is none."""
    return next((artifact.stands_for(other) for other in spellings(tensor) if other in names), "")


def same_attributes(a: Node, b: Node) -> bool:
    """Whether two nodes have equal attributes; those left out count as other than those given."""
    if a.attributes.keys() != b.attributes.keys():
        return False
    return all(equal(value, b.attributes[name]) for name, value in a.attributes.items())


def without_bodies(node: Node) -> Node:
    """`node` without the subgraphs among its attributes."""
    plain = {name: x for name, x in node.attributes.items() if not isinstance(x, onnx.GraphProto)}
    return replace(node, attributes=plain)


def equal(a: object, b: object) -> bool:
    """Whether two attributes are equal, and of one type."""
    if isinstance(a, onnx.GraphProto) and isinstance(b, onnx.GraphProto):
        return bool(a.SerializeToString() == b.SerializeToString())
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return type(a) is type(b) and a == b


def content(constant: np.ndarray | None, name: str) -> object:
    """A constant by what it holds, if that is little; anything else by its name."""
    small = constant is not None and constant.size <= SMALL and constant.dtype.kind in "biuf"
    return (constant.shape, constant.tobytes()) if constant is not None and small else name
