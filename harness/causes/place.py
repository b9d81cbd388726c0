"""Where in the system a failure happens: what a maintainer looks at first, and what two findings of one bug share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftnet.model.signature import normalized
from driftnet.model.verdict import Kind, Observation, Verdict, Word
from driftnet.run.sandbox import held
from driftnet.targets.interface import Target

HEAP = re.compile(
    r"libc(_malloc_debug)? "
    r"(_?_?(libc_)?(free|malloc|calloc|realloc|memalign)|_int_\w+|malloc_\w+|unlink_chunk\S*|tcache_\w+)"
)
"""Frames in which the C library minds its heap: what fails there was damaged before, somewhere else."""

ENTRIES = re.compile(r"\w+/(capi|nn|expr)/")
"""Python modules that hand over to native code: of what goes wrong there they say nothing."""

WRONG: Mapping[str, str] = {
    r"not executed as written": "executed otherwise than written",
    r"and made by a node too": "name stored and made",
    r"is the range of what": "range of another tensor",
    r"is rounded within": "no range",
    r"holds an infinite|scale .*\binf\b|is inf\b": "infinite scale",
    r"\bis gone, and no range does\b": "operator removed",
    r"bias\b.*saturat|bias\b.*does not fit": "bias saturates",
    r"\bbias\b": "bias",
    r"zero point": "zero point",
    r"scale .*\b0\b|scale is 0": "scale of zero",
    r"uses .* of its codes": "codes unused",
    r"\brange\b|\bscale\b": "scale",
    r"is not the float model's": "operator changed",
    r"on the same operands makes": "operator computes something else",
    r"of shape": "shape",
    r"holds -?0 at .*e\+\d+ steps off": "small numbers lost",
    r"e\+(0[5-9]|1\d) steps off": "constant saturates",  # eight bits cannot be that far off, 32 seldom
    r"steps off": "weights",
    r"the float model": "constant changed",
}
"""What the artifact tier says is wrong, by what its messages say."""

TELLING = ("constant saturates", "infinite scale", "no range", "operator removed", "small numbers lost")
"""Classes in which all that was read came from one function of the quantizer."""


SINGULAR = (*TELLING, "codes unused")
"""Classes that a bug of another class does not show as, whatever its operators are."""


CHECKS = ("RuntimeError",)
"""Exceptions that are raised where a result is checked: what went wrong was done somewhere else."""


@dataclass(frozen=True)
class Where:
    """The place of a failure.

    sort      "crash", "heap" (damaged before: the stack says nothing), "error" (a function of the package), "message"
              (native code's own words), "artifact" (a class of what is wrong), "" where nothing is known
    keys      what is compared, the most telling first: frames, or words
    optimizers  parts of the system without which it does not happen
    damage    of "heap", the frames in which it is damaged, where that was looked for (`driftnet.handover.damage`)
    """

    sort: str = ""
    keys: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def artifact(self) -> str:
        """The class of what is wrong in an artifact; "" where that is right."""
        return self.keys[0] if self.sort == "artifact" else ""

    @property
    def class_tells(self) -> bool:
        """Whether two artifacts of this class are likely to show one bug."""
        return self.sort == "artifact" and self.keys[0] in TELLING

    @property
    def tells(self) -> bool:
        """Whether two failures at this place are likely to be one bug."""
        return self.sort in ("crash", "error")

    @property
    def is_a_check(self) -> bool:
        """Whether a result was checked there: that two failures ended so does not make them one."""
        return self.sort == "error" and self.keys[-1] in CHECKS

    @property
    def function(self) -> str:
        """Where it crashed, in whichever module: two of a system may hold the same function. "" where none is known."""
        module, _, symbol = self.keys[0].partition(" ") if self.keys else ("", "", "")
        return symbol if "::" in symbol else f"{module} {symbol}".strip()

    def is_one_with(self, other: Where) -> bool:
        """Whether both crashed in one function, in whichever copy of it, or one function raised both."""
        if self.sort == other.sort == "crash":
            return bool(self.function) and self.function == other.function
        return self.tells and (self.sort, self.keys) == (other.sort, other.keys)

    def near(self, other: Where) -> bool:
        """Whether both are in one function, whoever called it, as far as is known. What called it says nothing: it may
        call any number of others, each with bugs of its own."""
        if not self.tells or not other.tells:
            return True
        return (self.sort, self.keys[:1]) == (other.sort, other.keys[:1])

    def as_json(self) -> dict[str, Any]:
        """The place as a JSON value."""
        told = {"sort": self.sort, "keys": list(self.keys), "optimizers": list(self.optimizers)}
        return {**told, "damage": list(self.damage)} if self.damage else told

    def __str__(self) -> str:  # the words of a message tell findings apart, but no place
        heap = f"a heap damaged in {' ← '.join(self.damage)}" if self.damage else "a damaged heap"
        named = {"crash": " ← ".join(self.keys), "heap": heap, "message": ""}.get(self.sort, ": ".join(self.keys))
        without = f"not without {', '.join(self.optimizers)}" if self.optimizers else ""
        return "; ".join(filter(None, (named, without)))


def place_of(target: Target, verdict: Verdict, observation: Observation | None) -> Where:
    """Where `verdict`, a failure of `target`, happened, as far as one observation tells."""
    frames = observation.last.frames if observation else ()
    if verdict.word is Word.CRASHES:
        own = held.telling(frames)
        first = next((i for i, frame in enumerate(frames) if own and frame == own[0]), len(frames))
        if any(HEAP.match(frame) for frame in frames[:first]):
            return Where("heap", own)
        return Where("crash", own) if own else Where()
    if verdict.kind == Kind.ERROR:
        function = next((f for f in frames if _is_of(target, f) and not ENTRIES.match(f)), "")
        said = re.match(r"(\w*(Error|Exception|Iteration|Exit))\b", observation.last.message) if observation else None
        if function:
            return Where("error", (function, said[1] if said else ""))
        return Where("message", (normalized(verdict.message),))
    return Where("artifact", (found,)) if (found := class_of(verdict)) else Where()


def class_of(verdict: Verdict) -> str:
    """Of which class is what is wrong in an artifact; "" of anything else."""
    told = verdict.message if verdict.tier == "artifact" else ""
    return next((name for pattern, name in WRONG.items() if told and re.search(pattern, told)), "")


def _is_of(target: Target, frame: str) -> bool:
    """Whether a Python frame is of the package of the target."""
    return frame.lower().startswith(f"{target.distribution.lower()}/")
