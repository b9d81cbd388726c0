"""The table of kernels, read from the installed onnxruntime. `python -m tests.support.kernel_table` writes it anew."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx
from driftnet.generators.building import kernels
from driftnet.generators.building.kernels import OPSETS

FILE = Path(kernels.__file__).with_name("kernels.json")

SHRINK_ORDER = (
    *("float", "int64", "int32", "bool", "float16", "double", "uint8", "int8", "uint16", "int16", "uint32", "uint64"),
    *("bfloat16", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "int4", "uint4", "string"),
)

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


def read() -> dict[str, Any]:
    """The table for the installed onnxruntime: what both a kernel and the specification take.

    float16 counts wherever float32 has a kernel and the specification allows both: onnxruntime casts around those.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state

    registered = defaultdict(list)
    for kernel in onnxruntime_pybind11_state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "":
            registered[kernel.op_name].append((kernel.version_range, kernel.type_constraints))
    operators: dict[str, dict[str, dict[str, str]]] = {}
    for name in sorted(registered.keys() | _FUNCTIONS.keys()):
        for opset in OPSETS:
            for parameter, taken in sorted(_taken(name, opset, registered.get(name, [])).items()):
                versions = operators.setdefault(name, {}).setdefault(parameter, {})
                text = " ".join(dtype for dtype in SHRINK_ORDER if dtype in taken)
                if text and text != next(reversed(versions.values()), None):
                    versions[str(opset)] = text
    return {"onnxruntime": onnxruntime.__version__, "operators": {k: v for k, v in operators.items() if v}}


def _taken(name: str, opset: int, registered: list[Any]) -> dict[str, set[str]]:
    """Type parameter -> dtypes, for one operator in one opset."""
    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return {}
    taken: dict[str, set[str]] = {p: set(names.split()) for p, names in _FUNCTIONS.get(name, {}).items()}
    for (first, last), constraints in registered:
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
    FILE.write_text(json.dumps(read(), indent=0) + "\n")
