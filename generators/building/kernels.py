"""Kernels: the dtypes that onnxruntime's CPU provider runs each operator with, by opset.

The table beside this module (kernels.json) is what `tests/support/kernel_table.py` read from the release it names:
operator -> type parameter of the specification -> first opset -> dtypes in shrink order. It is data, not a question to
the installed release, so that a case does not depend on which one that is.
"""

import json
from functools import lru_cache
from pathlib import Path

from driftnet.generators.building.values import codes
from onnx import TensorProto

OPSETS = range(11, 27)
"""The opsets that cases are generated in: up to the newest that onnxruntime 1.31.1 loads."""

_FILE = Path(__file__).with_name("kernels.json")


@lru_cache(maxsize=8192)
def dtypes(op_type: str, opset: int, parameter: str = "T") -> tuple[int, ...]:
    """What `parameter` of `op_type` may be in `opset`, in shrink order. Raises KeyError where the table has no such."""
    versions = _table()[op_type][parameter]
    return codes(versions[str(max(int(version) for version in versions if int(version) <= opset))])


def parameters(op_type: str, opset: int) -> tuple[str, ...]:
    """The type parameters of `op_type` that the table has up to `opset`."""
    found = _table().get(op_type, {})
    return tuple([name for name, versions in found.items() if any(int(version) <= opset for version in versions)])


def name_of(code: int) -> str:
    """The word for a dtype, as `codes` takes it."""
    return str(TensorProto.DataType.Name(code)).lower()


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, dict[str, str]]]:
    operators: dict[str, dict[str, dict[str, str]]] = json.loads(_FILE.read_text(encoding="utf-8"))["operators"]
    return operators
