"""Catalogue: which operators of the default domain are not generated, and why."""

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
