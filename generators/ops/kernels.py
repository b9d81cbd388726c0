"""Kernels: the dtypes that onnxruntime's CPU provider runs each operator with, by opset.

The table beside this module (kernels.json) is what `read` found in the release it names: operator -> type parameter of
the specification -> first opset -> dtypes. It is data, not a question to the installed release, so that a case does not
depend on which one that is. Made anew by `python -m generators.ops.kernels`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

OPSETS = range(11, 27)
"""What onnxruntime 1.31.1 loads, from the oldest opset generated."""

SHRINK_ORDER = (
    *("float", "int64", "int32", "bool", "float16", "double", "uint8", "int8", "uint16", "int16", "uint32", "uint64"),
    *("bfloat16", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "int4", "uint4", "string"),
)
_FILE = Path(__file__).with_name("kernels.json")
_CODES = {name: int(getattr(TensorProto, name.upper())) for name in SHRINK_ORDER}

# Functions of the specification have no kernel: onnxruntime inlines them. These are the dtypes that it then runs.
_FUNCTIONS = {
    "Bernoulli": {"T1": "float double", "T2": "float double int32 int64 bool"},
    "CenterCropPad": {"T": "float int32 int64 double uint8 int8"},
    "GroupNormalization": {"T": "float float16"},
    "HardSwish": {"T": "float float16"},
    "Mish": {"T": "float float16"},
    "NegativeLogLikelihoodLoss": {"T": "float double", "Tind": "int64 int32"},
    "SoftmaxCrossEntropyLoss": {"T": "float double", "Tind": "int64 int32"},
    "Swish": {"T": "float"},
}

# Kernels that are registered and then refuse to run.
_REFUSED = {"GRU": {"double"}, "LSTM": {"double"}}


@lru_cache(maxsize=8192)
def dtypes(op_type: str, opset: int, parameter: str = "T") -> tuple[int, ...]:
    """What `parameter` of `op_type` may be in `opset`, in shrink order. Raises KeyError where the table has no such."""
    versions: dict[str, str] = _table()[op_type][parameter]
    since = max(int(version) for version in versions if int(version) <= opset)
    return tuple([_CODES[name] for name in versions[str(since)].split()])


def parameters(op_type: str, opset: int) -> tuple[str, ...]:
    """The type parameters of `op_type` that the table has up to `opset`."""
    found = _table().get(op_type, {})
    return tuple([name for name, versions in found.items() if any(int(version) <= opset for version in versions)])


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, dict[str, str]]]:
    operators: dict[str, dict[str, dict[str, str]]] = json.loads(_FILE.read_text())["operators"]
    return operators


def read() -> dict[str, Any]:
    """The table for the installed onnxruntime: what both a kernel and the specification take.

    float16 counts wherever float32 has a kernel and the specification allows both: onnxruntime casts around those.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state

    kernels = defaultdict(list)
    for kernel in onnxruntime_pybind11_state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "":
            kernels[kernel.op_name].append((kernel.version_range, kernel.type_constraints))
    operators: dict[str, dict[str, dict[str, str]]] = {}
    for name in sorted(kernels.keys() | _FUNCTIONS.keys()):
        for opset in OPSETS:
            for parameter, taken in sorted(_taken(name, opset, kernels.get(name, [])).items()):
                versions = operators.setdefault(name, {}).setdefault(parameter, {})
                text = " ".join(dtype for dtype in SHRINK_ORDER if dtype in taken)
                if text and text != next(reversed(versions.values()), None):
                    versions[str(opset)] = text
    return {"onnxruntime": onnxruntime.__version__, "operators": {k: v for k, v in operators.items() if v}}


def _taken(name: str, opset: int, kernels: list[Any]) -> dict[str, set[str]]:
    """Type parameter -> dtypes, for one operator in one opset."""
    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return {}
    taken: dict[str, set[str]] = {p: set(names.split()) for p, names in _FUNCTIONS.get(name, {}).items()}
    for (first, last), constraints in kernels:
        # One without an end counts for the version it was written for alone, as onnxruntime has it.
        if first == schema.since_version or first < schema.since_version <= last < 2**31 - 1:
            for parameter, types in constraints.items():
                taken.setdefault(parameter, set()).update(_bare(types))
    allowed = {p.type_param_str: set(_bare(p.allowed_type_strs)) for p in schema.type_constraints}
    for parameter, found in taken.items():
        if "float" in found:
            found.add("float16")
        found &= allowed.get(parameter, set()) - _REFUSED.get(name, set())
    return {parameter: found for parameter, found in taken.items() if parameter in allowed and not schema.deprecated}


def _bare(types: Any) -> list[str]:
    """tensor(float) -> float; other kinds of types are left out."""
    return [name[7:-1] for name in types if name.startswith("tensor(")]


if __name__ == "__main__":
    _FILE.write_text(json.dumps(read(), indent=0) + "\n")
