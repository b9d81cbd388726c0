"""Catalogue: which operators of the default domain are generated, and why the others are not.

`make docs` writes docs/operators.md.
"""

from driftnet.generators.building import kernels
from driftnet.generators.ops.registry import Operator
from driftnet.generators.ops.table import OPERATORS, families

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
"""Operator -> why it is not generated."""


def page() -> str:
    """The table of all operators as Markdown."""
    lines = [
        "# Operators",
        "",
        f"{len(OPERATORS)} operators of the default ONNX domain are generated, each in the form right for its opset.",
        "Dtypes are those of the operator's first type parameter in the newest opset it is generated in, as far as a",
        "kernel of onnxruntime's CPU provider and the specification agree. Weight: how often an operator is drawn.",
        "",
    ]
    for family, names in families().items():
        members = [operator for operator in OPERATORS if operator.name in names]
        lines += [f"## {family}", "", "| operator | opsets | weight | dtypes | rule |", "|---|---|---:|---|---|"]
        lines += [_row(operator) for operator in members]
        lines.append("")
    lines += ["## Not generated", "", "| operator | why |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in NOT_GENERATED.items()]
    return "\n".join(lines) + "\n"


def _row(operator: Operator) -> str:
    opsets = f"{operator.since}-{operator.until}"
    rule = " ".join(operator.rule.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| {operator.name} | {opsets} | {operator.weight:g} | {_dtypes(operator)} | {rule} |"


def _dtypes(operator: Operator) -> str:
    for parameter in kernels.parameters(operator.name, operator.until):
        codes = kernels.dtypes(operator.name, operator.until, parameter)
        return " ".join(map(kernels.name_of, codes))
    return ""
