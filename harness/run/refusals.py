"""What onnx's checker and onnxruntime say when they refuse a model, in words for the person who made it."""

import re

_SAID = (
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "the model has IR version {0}, and onnxruntime reads versions up to {1}: export it for an older ONNX",
    ),
    (
        r"Opset (\d+) is under development.* for domain (\S+) is till opset (\d+)",
        "the model is of opset {0}, and onnxruntime reads those of {1} up to {2}: export it for an older opset",
    ),
    (
        r"Could not find an implementation for (\w+)\((\d+)\) node with name '(.*?)'",
        "onnxruntime has no implementation of {0}-{1} for the types that node {2!r} gives it",
    ),
    (
        r"running (\w+) node\. Name:'(.*?)' Status Message: (?:\S+\.(?:cc|h):\d+ )?(?:.* was false\. )?(.*)",
        "onnxruntime cannot run node {1!r} ({0}) on these inputs: {2}",
    ),
    (r"\[ONNXRuntimeError\] : \d+ : \w+ : (?:\S+\.(?:cc|h):\d+ )?(.*)", "onnxruntime cannot load the model: {0}"),
)


def explained(error: str) -> str:
    """One sentence: a model that onnxruntime cannot read, load or run, or one that is not valid ONNX."""
    text = " ".join(error.split())
    for pattern, sentence in _SAID:
        if found := re.search(pattern, text):
            return sentence.format(*found.groups())
    return f"the model is not valid ONNX: {text.split('==> Context: ')[0]}"
