"""judge: the verdict on one observation. Which tier is asked when, and what is left undecided, stands here.

    reference refuses the model        INVALID
    a stage failed                     structure: FAILS, CRASHES, HANGS or REJECTS
    outputs, shapes, dtypes            structure
    nothing quantised                  exact where no operation rounds, else sampling
    weights quantised, losslessly      the same
    otherwise quantised                structure (NaN), then lossless
    what no tier decides               ABSTAINS

Bits equal to the reference's agree without further questions. An output that is not exact where it should be, but
within sampling's bound, agrees too, by the rule "inexact-kernel". Every feed and output is judged; the worst divergence
speaks for all, then any abstention. That a later feed would be right on its own is for the caller to find out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from generators.case import Case
from harness.oracle import exact, lossless, sampling, structure
from harness.oracle.question import Place, Question, agrees, identical
from harness.reference import Reference
from harness.verdict import Observation, Verdict, Word
from harness.wire import Options, Target


def judge(case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference) -> Verdict:
    """What the oracle says of `observation`, made by running `target` on `case` under `options` (those in effect)."""
    expected = reference.run(case)
    if expected.error:
        return Verdict(Word.INVALID, message=f"the reference refuses the model: {expected.error}")
    if failed := structure.failed_stage(observation, target):
        return failed
    question = Question(
        case,
        tuple(observation.outputs),
        expected.outputs,
        reference,
        target.scheme(options),
        frozenset(rule.name for rule in target.exceptions),
    )
    if misshapen := structure.misshapen(question):
        return misshapen
    verdicts = {p: agrees(exact.TIER, p) for p in question.places if identical(*question.pair(p))}
    disputed = [p for p in question.places if p not in verdicts]
    if disputed and question.scheme is not None and not lossless.keeps_weights(question):
        if nonsense := structure.nonsense(question):
            return nonsense
        verdicts |= lossless.decide(question, disputed)
    elif disputed:
        verdicts |= _float(question, disputed)
    return _overall(verdicts.values())


def _float(question: Question, places: Sequence[Place]) -> dict[Place, Verdict]:
    """Exact has the word where it has one. Sampling has it elsewhere, and may excuse an inexact kernel."""
    verdicts = dict(exact.decide(question, places))
    doubtful = [p for p in places if verdicts[p].word is Word.ABSTAINS or verdicts[p].rule]
    for place, second in sampling.decide(question, doubtful).items() if doubtful else ():
        if verdicts[place].word is Word.ABSTAINS:
            verdicts[place] = second
        elif second.word is Word.AGREES:
            verdicts[place] = dataclasses.replace(second, rule=exact.INEXACT_KERNEL)
        else:
            verdicts[place] = dataclasses.replace(verdicts[place], rule="")
    return verdicts


def _overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Which verdict speaks for all: the worst divergence, else an abstention, else the agreement nearest its bound."""
    every = list(verdicts)
    for word in (Word.DIVERGES, Word.ABSTAINS):
        if found := [v for v in every if v.word is word]:
            operators = tuple(sorted({op for v in found for op in v.abstained}))
            return dataclasses.replace(max(found, key=_excess), abstained=operators)
    return max(every, key=lambda v: (bool(v.rule), _excess(v)), default=Verdict(Word.AGREES))


def _excess(verdict: Verdict) -> float:
    return verdict.error / verdict.bound if verdict.bound else math.inf if verdict.error else 0.0
