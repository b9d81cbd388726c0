"""Claims: what a script asserts of a failure, which is what was judged: a measure, and the bound it is held to.

What a tier counted in other units, or against what nobody has without driftnet, can be claimed in several ways. Those
are tried in order of exactness: the one that is made holds of the case, and not of a negative control.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
from driftnet.causes.record import Status
from driftnet.findings.corpus import SavedCase
from driftnet.handover import measures
from driftnet.handover.measures import Measured, OtherwiseError, Run
from driftnet.model.case import Case, Feed
from driftnet.model.signature import normalized, said
from driftnet.model.verdict import Kind, Observation, Outcome, Tier, Verdict, Word
from driftnet.oracle.tolerances.table import SAME_MEASURE
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.interface import Target

HALF = 0.5
"""Of the error that was seen: what stays below is taken for what quantizing costs, where no bound can be had."""

PARTS = {Kind.WRONG_SHAPE: "shape", Kind.WRONG_DTYPE: "dtype", Kind.NO_OUTPUT: "shape"}


@dataclass(frozen=True)
class Claim:
    """`measure` of a run, told `about`, is above `bound`.

    said   the same as a sentence
    """

    measure: Callable[[Run, Mapping[str, Any]], Measured]
    about: Mapping[str, Any]
    bound: float
    said: str

    @property
    def inspects(self) -> bool:
        """Whether the quantized model is looked at."""
        return self.measure not in (measures.ending, measures.form) and bool(self.about.get("as_written", True))

    @property
    def allowed(self) -> str:
        """The bound in words, where what is measured is more than a yes or no."""
        decided = (measures.ending, measures.form, measures.positive, measures.alike)
        return "" if self.measure in decided else f" (allowed: {self.bound:.4g})"

    def measured(self, run: Run) -> Measured | None:
        """What is measured of `run`; None where that fails in another way, or cannot be measured."""
        try:
            return self.measure(run, self.about)
        except (OtherwiseError, ReferenceError, LookupError, ValueError, AttributeError):
            return None

    def holds(self, run: Run) -> bool:
        """Whether the failure is there."""
        found = self.measured(run)
        return found is not None and found.error > self.bound


def run_of(case: Case, target: Target, seen: Observation, runner: Runner, alone: Sequence[Feed] = ()) -> Run:
    """What was observed of `case`, as the script will see it. alone: the answers to the feed that is claimed about."""

    def ask(model: onnx.ModelProto, feeds: Sequence[Feed], names: Sequence[str]) -> Sequence[Feed]:
        return runner.reference.record(Case(model.SerializeToString(), tuple(feeds)))

    last = seen.last
    ended = {Outcome.OK: "", Outcome.CRASH: last.signal, Outcome.GARBAGE: "error"}.get(last.outcome, last.outcome.value)
    words = said(last.log, last.message, target.complaint) if last.outcome is Outcome.ERROR else ""
    written = seen.artifact.model
    quantized = None if written is None else onnx.ModelProto.FromString(written)
    given = case.proto, case.feeds, case.calibration, seen.outputs, alone
    return Run(*given, quantized, "" if not ended else last.stage, ended, words, ask)


def claims(saved: SavedCase, verdict: Verdict, run: Run | None) -> Iterator[Claim]:
    """What may be claimed, the most exact first. verdict: that of `run`, which is None where the case was not run."""
    if verdict.kind in PARTS:
        part, about = PARTS[Kind(verdict.kind)], {"feed": verdict.feed, "output": verdict.output}
        yield Claim(
            measures.form, {**about, "part": part}, 0.0, f"output {verdict.output!r} is there, in another {part}"
        )
    elif verdict.word is not Word.DIVERGES:
        words = normalized(verdict.message) if verdict.kind == Kind.ERROR else ""
        about = {"stage": verdict.stage, "ended": str(verdict.kind), "words": words}
        yield Claim(
            measures.ending, about, 0.0, f"{verdict.stage} ends with {verdict.kind}{': ' if words else ''}{words}"
        )
    elif verdict.about:
        yield from (claim for claim in _of_parameters(verdict) if run is None or _is_close(claim, run, verdict))
        yield from _by_half(verdict, run)
    else:
        yield from _of_values(saved, verdict, run)
        yield from _by_half(verdict, run)


def _of_values(saved: SavedCase, verdict: Verdict, run: Run | None) -> Iterator[Claim]:
    known = run is not None and run.quantized is not None
    for written in (True, False) if known and verdict.tier is Tier.ARTIFACT else (False, True) if known else (False,):
        about = {"feed": verdict.feed, "output": verdict.output, "as_written": written}
        if verdict.kind == Kind.NAN:
            yield Claim(
                measures.finiteness,
                about,
                0.0,
                f"output {verdict.output!r} is finite where it should not be, or not where it should",
            )
            continue
        chance = saved.status == Status.FLAKY or saved.kind == Kind.NONDETERMINISTIC
        about |= {"norm": "size" if verdict.message.endswith("by its size") else "element"}
        about |= {
            "at": [] if chance or not verdict.bound else list(verdict.at),
            "alone": saved.kind == Kind.STALE_STATE,
        }
        claim = Claim(measures.values, about, verdict.bound, "")
        if verdict.tier is Tier.BUDGET:  # which counts in what sampled noise explains
            found = claim.measured(run) if run else None
            claim = replace(claim, bound=found.error * verdict.bound / verdict.error if found else 0.0)
        yield replace(claim, said=_off(claim))


def _by_half(verdict: Verdict, run: Run | None) -> Iterator[Claim]:
    """An output is farther off the float model's than half of what was seen."""
    for output in verdict.output and [verdict.output]:
        about = {"feed": verdict.feed, "output": output, "as_written": False}
        claim = Claim(measures.values, {**about, "norm": "element", "at": [], "alone": False}, 0.0, "")
        found = claim.measured(run) if run else None
        if found and 0 < found.error < math.inf:
            claim = replace(claim, bound=float(f"{HALF * found.error:.3g}"))
            yield replace(claim, said=f"{_off(claim)}, half of what was seen")


def _off(claim: Claim) -> str:
    about, at = claim.about, f" at {claim.about['at']}" if claim.about["at"] else ""
    right = "the quantized model, as it is written, makes" if about["as_written"] else "the model makes"
    alone = ", but not in a session of its own" if about["alone"] else ""
    return (
        f"output {about['output']!r} of feed {about['feed']}{at} is more than {claim.bound:.3g} off what {right}{alone}"
    )


def _of_parameters(verdict: Verdict) -> Iterator[Claim]:
    rule, *names = verdict.about
    match rule:
        case "stored":
            name, codes, zero, axis, *scales = names
            about = {
                "tensor": name,
                "codes": codes,
                "zero": zero,
                "axis": int(axis),
                "scales": [s for s in scales if s],
            }
            said = f"the quantized model holds parameter {name!r} more than {verdict.bound:.3g} off"
            yield Claim(measures.stored, {**about, "at": list(verdict.at)}, verdict.bound, said)
        case "scale":
            yield Claim(measures.positive, {"scale": names[0]}, 0.0, f"scale {names[0]!r} is not positive and finite")
        case "product":
            said = f"scale {names[0]!r} of a bias is not the product of {names[1]!r} and {names[2]!r}"
            yield Claim(measures.product, {"scales": names}, verdict.bound, said)
        case "reread":
            pairs = [names[:2], names[2:]]
            yield Claim(
                measures.alike,
                {"pairs": pairs},
                0.0,
                f"integers are written with {names[0]!r}, and read with {names[1]!r}",
            )
        case "range":
            about = dict(zip(("tensor", "scale", "zero"), names))
            yield Claim(
                measures.span,
                about,
                verdict.bound,
                f"the range of {names[0]!r} is more than {verdict.bound:.3g} steps off what calibration saw",
            )
        case "lost":
            said = f"the quantized model, as it is written, holds in {names[0]!r} what the node that makes it cuts off"
            yield Claim(measures.lost, {"tensor": names[0], "feed": verdict.feed}, verdict.bound, said)


def _is_close(claim: Claim, run: Run, verdict: Verdict) -> bool:
    """Whether a claim is about what the oracle measured."""
    found = claim.measured(run)
    if found is None or not claim.bound:
        return found is not None
    return abs(found.error - verdict.error) <= SAME_MEASURE * verdict.error
