"""What was observed of a target, and what the oracle says of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from driftnet.model.artifact import UNTOLD, Artifact
from msgspec import Meta


class Outcome(StrEnum):
    """How one stage of a target ended."""

    OK = "ok"
    ERROR = "error"  # the system, or Python on its behalf, reported a failure
    CRASH = "crash"  # ended by a signal
    MEMORY = "memory"  # over its memory limit
    HANG = "hang"  # over its time limit
    CUT = "cut"  # ended because the budget of somebody was spent
    GARBAGE = "garbage"  # the worker answered with something that is no message


@dataclass(frozen=True)
class StageRun:
    """One stage as observed.

    message  the error's text, or "" when ok;   signal   name of the signal for CRASH, else ""
    log      stdout and stderr of native code;  seconds  wall time;  peak_mib  peak resident memory of the worker
    frames   where it failed, innermost first, where that is known (`Reply.frames`)
    mistake  "file:line" of the target's own file, or the function of it, where that is what is broken (`Reply.mistake`)
    """

    stage: str
    outcome: Outcome
    message: str = ""
    signal: str = ""
    log: str = ""
    seconds: float = 0.0
    peak_mib: float = 0.0
    frames: tuple[str, ...] = ()
    mistake: str = ""


@dataclass(frozen=True, eq=False)
class Observation:
    """What a target did with one case: its stages in order, up to the first that was not ok, and what came out.

    stages    "inspect", which is no stage, stands among them where it was not ok; the others went on
    outputs   one {name: array} a feed; empty when a stage failed
    artifact  of a recipe that quantizes: what the target's `inspect` says of the artifact, if it has such a function
    plain     the outputs of what was to be quantized, where the target executes that too; else empty
    """

    stages: tuple[StageRun, ...]
    outputs: tuple[Mapping[str, np.ndarray], ...] = ()
    artifact: Artifact = UNTOLD
    plain: tuple[Mapping[str, np.ndarray], ...] = ()

    @property
    def last(self) -> StageRun:
        return self.stages[-1]

    @property
    def digest(self) -> str:
        """Of how far it came and of every bit that came out: what answers alike has the same, 16 hexadecimal digits."""
        last = self.last
        said = last.message if last.outcome is Outcome.ERROR else ""
        digest = hashlib.sha256(repr((last.stage, last.outcome, last.signal, said)).encode())
        for outputs in (*self.outputs, *self.plain):
            for name, array in outputs.items():
                values = array.tobytes() if not array.dtype.hasobject else repr(array.tolist()).encode()
                digest.update(repr((name, str(array.dtype), array.shape)).encode() + values)
        return digest.hexdigest()[:16]

    @property
    def uninspected(self) -> str:
        """Why nothing is known of the artifact though the target has a function that tells; "" where that is not so."""
        runs = [run for run in self.stages if run.stage == "inspect"]
        return f"inspect ended with {runs[0].outcome}: {runs[0].message}" if runs else ""


class Word(StrEnum):
    """The verdicts."""

    AGREES = "agrees"
    DIVERGES = "diverges"
    FAILS = "fails"
    CRASHES = "crashes"
    HANGS = "hangs"
    REJECTS = "rejects"
    INVALID = "invalid"
    ABSTAINS = "abstains"


FAILURES = frozenset({Word.DIVERGES, Word.FAILS, Word.CRASHES, Word.HANGS})


class Tier(StrEnum):
    """The questions of the oracle. Which is asked when, and who answers it, stands in `driftnet.oracle.judge`."""

    STRUCTURE = "structure"
    EXACT = "exact"
    LOSSLESS = "lossless"
    RUNNING_ERROR = "running-error"
    SAMPLING = "sampling"
    ARTIFACT = "artifact"
    BUDGET = "budget"
    WINDOWS = "windows"  # all of them, of the parts of a model
    ERROR = "error"  # none of them: the oracle itself raised


WITHOUT_NOISE = (Tier.EXACT, Tier.RUNNING_ERROR, Tier.SAMPLING)
"""The tiers that accuse what no noise of quantizing is in."""


class Kind(StrEnum):
    """What sort of finding. A crash's kind is the name of its signal, or exit-<status> where a process ended itself;
    these are the fixed ones."""

    WRONG_VALUES = "wrong-values"
    WRONG_SHAPE = "wrong-shape"
    WRONG_DTYPE = "wrong-dtype"
    NAN = "nan"
    MEMORY = "memory"
    HANG = "hang"
    NO_OUTPUT = "no-output"
    ERROR = "error"
    OFF_BY_ONE_STEP = "off-by-one-step"
    NONDETERMINISTIC = "nondeterministic"
    STALE_STATE = "stale-state"


DEPENDS_ON_RUN = (Kind.NONDETERMINISTIC, Kind.STALE_STATE)
"""Kinds that take several runs to tell; one run shows them as something else."""

MADE_TWICE = "made twice"
"""What a verdict is `about` where a name of the artifact is that of what it stores and of what a node makes."""


@dataclass(frozen=True)
class Verdict:
    """What the oracle says of one observation.

    tier     the tier that decided
    stage    the stage blamed; "" when clean
    kind     a Kind, or a signal's name; "" when clean
    message  one sentence for a person: what, where, got, should be
    output   the graph output that was worst, and feed the index of its feed
    error, bound   the worst error and what was allowed there, in the unit that the tier states; error > bound fails
    rule     the documented Rule behind a rejection or a tolerated difference
    abstained  operator types because of which no tier could tell
    blame    who is wrong: "target", "reference" or "undecided"; "" where nobody asked
    culprits   (name, operator) of the nodes at fault, where the verdict by itself knows them
    at       index of the element that error and bound are those of; () is all of the output
    about    of a parameter of an artifact: the rule that it breaks, and the tensors that this is about
    loose    it agrees, and of some output within so wide a bound of rounding that a wrong node may hide in it
    before   it is wrong before it is quantized: nothing is said then of how it is quantized
    """

    word: Word
    tier: Tier = Tier.STRUCTURE
    stage: str = ""
    kind: str = ""
    message: str = ""
    output: str = ""
    feed: Annotated[int, Meta(ge=0)] = 0
    error: float = 0.0
    bound: float = 0.0
    rule: str = ""
    blame: str = ""
    abstained: tuple[str, ...] = ()
    culprits: tuple[tuple[str, str], ...] = ()
    at: tuple[int, ...] = ()
    about: tuple[str, ...] = ()
    loose: bool = False
    before: bool = False

    @property
    def failed(self) -> bool:
        return self.word in FAILURES

    @property
    def in_values(self) -> bool:
        """Whether every stage ran and gave outputs of the right form, with wrong values in them."""
        return self.word is Word.DIVERGES and self.kind not in (Kind.WRONG_SHAPE, Kind.WRONG_DTYPE)

    @property
    def surfaces_late(self) -> bool:
        """Whether what is at fault may stand before the node where it shows: no output, an error of a consumer, NaN."""
        return self.stage == "execute" and (self.word is not Word.DIVERGES or self.kind == Kind.NAN)

    def as_json(self) -> dict[str, Any]:
        """The verdict as a JSON value, fields at their default left out."""
        return {
            k: (str(v) if isinstance(v, StrEnum) else list(v) if isinstance(v, tuple) else v)
            for k, v in vars(self).items()
            if v not in ("", (), 0.0, False) or k == "word"
        }
