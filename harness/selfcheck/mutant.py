"""Mutant: a bug put into a real target on purpose, to see whether the oracle notices.

A planted target has the interface of the real one and differs in one stage, so whatever catches it would catch the same
bug in a toolchain. "driftnet.selfcheck.converter:lost_bias.mnn" is a target word like "mnn".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from driftnet.targets.interface import Feed, Options, Target
from driftnet.targets.mnn import artifact as mnn_artifact
from driftnet.targets.mnn import target as mnn
from driftnet.targets.mnn.target import MNN
from driftnet.targets.onnxruntime_quant import target as onnxruntime_quant
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from onnx import ModelProto

Outputs = list[dict[str, np.ndarray]]
BOTH = ("mnn", "onnxruntime_quant")
ORT = ("onnxruntime_quant",)
MNN_ONLY = ("mnn",)


@dataclass(frozen=True)
class Mutant:
    """One bug.

    name     what the bug is called, and its targets too;  stage  the one that has it;  doc  what goes wrong
    spec     "module:attribute" of this plant, for the sandbox
    damage   the function that does it, on what `wrapper`, one of the functions below, gives it
    focus    what the generator is to make, so that the bug comes into play
    targets  which of the attributes `mnn` and `onnxruntime_quant` make sense
    options  recipe options without which the bug has no place
    """

    name: str
    stage: str
    doc: str
    spec: str
    damage: Callable[..., Any]
    wrapper: Callable[[Target, Callable[..., Any]], Target]
    focus: tuple[str, ...]
    targets: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def mnn(self) -> Target:
        """MNN with the bug."""
        return replace(self.wrapper(MNN, self.damage), name=self.name)

    @property
    def onnxruntime_quant(self) -> Target:
        """onnxruntime's quantizer, or its execution, with the bug."""
        return replace(self.wrapper(ONNXRUNTIME_QUANT, self.damage), name=self.name)


def preload() -> None:
    """Import both real targets, so that forked workers have them."""
    mnn.preload()
    onnxruntime_quant.preload()


def converting(target: Target, damage: Callable[[ModelProto], None]) -> Target:
    """`target` whose converter sees the model after `damage`."""

    def convert(model: str, folder: str, options: Options) -> str:
        return target.convert(_damaged(model, folder, damage), folder, options)

    return replace(target, convert=convert)


def quantizing(target: Target, damage: Callable[[ModelProto, ModelProto], None]) -> Target:
    """`target`, which quantizes to ONNX, with `damage` done to (the quantized model, the model it was made of)."""

    def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
        path = target.quantize(artifact, calibration, folder, options)
        original = onnx.load(artifact)
        return _damaged(path, folder, lambda quantized: damage(quantized, original))

    return replace(target, quantize=quantize)


def patching(target: Target, damage: Callable[[bytearray, Mapping[str, Any]], None]) -> Target:
    """`target`, which quantizes to an MNN file, with `damage` done to (its bytes, what mnn_artifact reads in them)."""

    def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
        path = target.quantize(artifact, calibration, folder, options)
        with open(path, "rb") as file:
            content = bytearray(file.read())
        damage(content, mnn_artifact.read(path))
        patched = os.path.join(folder, "patched.mnn")
        with open(patched, "wb") as file:
            file.write(content)
        return patched

    return replace(target, quantize=quantize)


def calibrating(target: Target, damage: Callable[[Sequence[Feed]], Sequence[Feed]]) -> Target:
    """`target` which calibrates on what `damage` makes of the feeds."""

    def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
        return target.quantize(artifact, damage(calibration), folder, options)

    return replace(target, quantize=quantize)


def loading(target: Target, damage: Callable[[ModelProto], None]) -> Target:
    """`target`, which executes ONNX, with `damage` done to the model as its kernels are chosen."""

    def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Outputs:
        return target.execute(_damaged(artifact, os.path.dirname(artifact), damage), feeds, outputs, options)

    return replace(target, execute=execute)


def executing(target: Target, damage: Callable[[Outputs], Outputs]) -> Target:
    """`target` with `damage` done to the results of all feeds."""

    def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Outputs:
        return damage(target.execute(artifact, feeds, outputs, options))

    return replace(target, execute=execute)


def feeding(target: Target, damage: Callable[[Sequence[Feed]], Sequence[Feed]]) -> Target:
    """`target` which executes on what `damage` makes of the feeds."""

    def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Outputs:
        return target.execute(artifact, damage(feeds), outputs, options)

    return replace(target, execute=execute)


STAGES = {
    converting: "convert",
    quantizing: "quantize",
    patching: "quantize",
    calibrating: "quantize",
    loading: "execute",
    executing: "execute",
    feeding: "execute",
}


def plant(
    wrapper: Callable[[Target, Any], Target], *focus: str, targets: tuple[str, ...] = BOTH, **options: Any
) -> Callable[[Callable[..., Any]], Mutant]:
    """Make the decorated damage a Mutant. wrapper: one of the functions above; options: those the recipe needs."""

    def made(damage: Callable[..., Any]) -> Mutant:
        return Mutant(
            damage.__name__.strip("_").replace("_", "-"),
            STAGES[wrapper],
            " ".join((damage.__doc__ or "").split()),
            f"{damage.__module__}:{damage.__name__}",
            damage,
            wrapper,
            focus,
            targets,
            options,
        )

    return made


def _damaged(path: str, folder: str, damage: Callable[[ModelProto], None]) -> str:
    """The path of a copy of the model at `path` with `damage` done to it."""
    model = onnx.load(path)
    damage(model)
    damaged = os.path.join(folder, f"damaged_{os.path.basename(path)}")
    onnx.save(model, damaged)
    return damaged
