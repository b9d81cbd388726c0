"""A target as small as one can be: onnxruntime executes the model as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from driftnet.targets.interface import Feed, Options, Target


def convert(model: str, folder: str, options: Options) -> str:
    return model


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    return artifact


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact, providers=["CPUExecutionProvider"])
    return [dict(zip(outputs, session.run(list(outputs), dict(feed)))) for feed in feeds]


PLAIN = Target("plain", "onnxruntime", convert, quantize, execute, features={"float": {}})
MENDED = replace(PLAIN, name="mnn")
"""MNN without a bug, as far as cases of the default recipe can tell."""
