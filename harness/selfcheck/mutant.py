"""Mutant: a bug put into a real target on purpose, to see whether the oracle notices.

A mutated target has the interface of the real one and differs in one stage, so whatever catches it would catch the same
bug in a toolchain.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
from driftnet.targets.interface import Answers, Feed, Target
from onnx import ModelProto

Wrapper = Callable[[Target, Any], Target]


@dataclass(frozen=True)
class Mutant:
    """One bug.

    name     what it is called, and a target that has it too;   doc  what goes wrong
    damage   the function that does it, on what `wrapper`, one of the functions below, gives it
    focus    what the generator is to make, so that the bug comes into play
    needs    features that a target must have (`Target.features`), and that the recipe is to give
    """

    name: str
    doc: str
    damage: Callable[..., Any]
    wrapper: Wrapper
    focus: tuple[str, ...]
    needs: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The stage that has the bug."""
        return STAGE_OF[self.wrapper]

    def options(self, target: Target) -> dict[str, Any]:
        """The options of `target` that give what the bug needs."""
        return {name: value for need in self.needs for name, value in target.features[need].items()}

    def put_into(self, target: Target) -> Target:
        """`target` with the bug. Damage is done by means of onnx, which an environment of another release may lack."""
        damaged = self.wrapper(target, self.damage)
        return replace(damaged, name=self.name, companions=(*target.companions, ("", "onnx")))


MUTANTS: dict[str, Mutant] = {}
"""those that targets may share, by name"""


def mutant(
    wrapper: Wrapper, *focus: str, needs: Sequence[str] = (), name: str = "", doc: str = ""
) -> Callable[[Callable[..., Any]], Mutant]:
    """Make the decorated damage a Mutant, with its name and docstring where none are given."""

    def made(damage: Callable[..., Any]) -> Mutant:
        called = (name or damage.__name__).replace("_", "-")
        assert called not in MUTANTS, f"two bugs are called {called}"
        MUTANTS[called] = Mutant(called, doc or _said(damage), damage, wrapper, focus, tuple(needs))
        return MUTANTS[called]

    return made


def own(damage: Callable[[str], None], focus: tuple[str, ...]) -> Mutant:
    """The Mutant of a function that a target declares."""
    return Mutant(damage.__name__.replace("_", "-"), _said(damage), damage, patching, focus)


def _said(damage: Callable[..., Any]) -> str:
    return " ".join((damage.__doc__ or "").split())


def converting(target: Target, damage: Callable[[ModelProto], None]) -> Target:
    """`target` whose converter sees the model after `damage`."""
    return _given(target, "convert", 0, lambda model, folder, options: _damaged(model, folder, damage))


def quantizing(target: Target, damage: Callable[[ModelProto, ModelProto], None]) -> Target:
    """`target`, which quantizes to ONNX, with `damage` done to (the quantized model, the model it was made of)."""

    def damaged(path: str, artifact: str, calibration: Sequence[Feed], folder: str, options: Any) -> str:
        return _damaged(path, folder, lambda quantized: damage(quantized, onnx.load(artifact)))

    return _gives(target, "quantize", damaged)


def patching(target: Target, damage: Callable[[str], None]) -> Target:
    """`target` with `damage` done in place to a copy of the file that quantizing makes."""

    def damaged(path: str, artifact: str, calibration: Sequence[Feed], folder: str, options: Any) -> str:
        patched = shutil.copy(path, os.path.join(folder, f"patched_{os.path.basename(path)}"))
        damage(patched)
        return patched

    return _gives(target, "quantize", damaged)


def calibrating(target: Target, damage: Callable[[Sequence[Feed]], Sequence[Feed]]) -> Target:
    """`target` which calibrates on what `damage` makes of the feeds."""
    return _given(target, "quantize", 1, lambda artifact, calibration, *_: damage(calibration))


def loading(target: Target, damage: Callable[[ModelProto], None]) -> Target:
    """`target`, which executes ONNX, with `damage` done to the model as its kernels are chosen."""
    return _given(target, "execute", 0, lambda artifact, *_: _damaged(artifact, os.path.dirname(artifact), damage))


def feeding(target: Target, damage: Callable[[Sequence[Feed]], Sequence[Feed]]) -> Target:
    """`target` which executes on what `damage` makes of the feeds."""
    return _given(target, "execute", 1, lambda artifact, feeds, *_: damage(feeds))


def executing(target: Target, damage: Callable[[Answers], Answers]) -> Target:
    """`target` with `damage` done to the results of all feeds."""
    return _gives(target, "execute", lambda results, *_: damage(results))


STAGE_OF: dict[Wrapper, str] = {
    converting: "convert",
    **dict.fromkeys((quantizing, patching, calibrating), "quantize"),
    **dict.fromkeys((loading, feeding, executing), "execute"),
}


def _given(target: Target, stage: str, position: int, changed: Callable[..., Any]) -> Target:
    """`target` with another argument for a stage, made of all that it is given."""
    real = getattr(target, stage)

    def function(*given: Any) -> Any:
        return real(*given[:position], changed(*given), *given[position + 1 :])

    return _with(target, stage, function)


def _gives(target: Target, stage: str, changed: Callable[..., Any]) -> Target:
    """`target` with another result of a stage, made of its own and of all that it is given."""
    real = getattr(target, stage)
    return _with(target, stage, lambda *given: changed(real(*given), *given))


def _with(target: Target, stage: str, function: Callable[..., Any]) -> Target:
    changed: dict[str, Any] = {stage: function}
    if stage == "execute":  # whose bug what is tapped would not show
        changed["tap"] = None
    return replace(target, **changed)


def _damaged(path: str, folder: str, damage: Callable[[ModelProto], None]) -> str:
    """The path of a copy of the model at `path` with `damage` done to it."""
    model = onnx.load(path)
    damage(model)
    damaged = os.path.join(folder, f"damaged_{os.path.basename(path)}")
    onnx.save(model, damaged)
    return damaged
