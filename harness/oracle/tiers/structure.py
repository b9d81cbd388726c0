"""T0, structure: did every stage run, and are outputs, shapes, dtypes and the finite mask those of the model?

Needs no tolerance, so it judges quantized targets as it judges float ones. Two things are left open here: a shape that
depends on data which rounding may change (NonZero, say, or how often a Loop runs), and a NaN behind an operator that
has a pole where quantization may put it (a divisor that became 0).
"""

import re
from collections.abc import Iterable, Sequence, Set

import numpy as np
from driftnet.model import external_data
from driftnet.model.graph import Graph, Node, captured, nested, read_graph
from driftnet.model.operators import Trait, settings, traits_of
from driftnet.model.signature import said
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier, Verdict, Word
from driftnet.oracle.artifact import reach
from driftnet.oracle.question.answers import abstains, diverges
from driftnet.oracle.question.poles import poles
from driftnet.oracle.question.question import Place, Question
from driftnet.targets.interface import Target
from driftnet.util.errors import shortened

SENTENCE = 240
"""Characters of a refusal that are told."""

MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '(\w+)")
"""What no system is to blame for, where another package than its own is meant."""


def failed_stage(observation: Observation, target: Target) -> Verdict | None:
    """The verdict on a stage that did not end well; None when all did."""
    run = observation.last
    words = _said(run, target.complaint)
    match run.outcome:
        case Outcome.OK:
            return None
        case Outcome.CRASH:
            return _blame(
                run, Word.CRASHES, run.signal, f"{target.name} was ended by {run.signal} in {run.stage}{words}"
            )
        case Outcome.MEMORY:
            message = f"{target.name} went over its memory limit in {run.stage}, at {run.peak_mib:.0f} MiB"
            return _blame(run, Word.CRASHES, Kind.MEMORY, message)
        case Outcome.HANG:
            message = f"{target.name} did not come back from {run.stage} within {run.seconds:.1f} seconds"
            return _blame(run, Word.HANGS, Kind.HANG, message)
        case Outcome.GARBAGE:
            message = f"{target.name} gave nothing that can be read in {run.stage}{words}"
            return _blame(run, Word.FAILS, Kind.ERROR, message)
    own = {native.partition(".")[0] for native in target.natives}
    if (lacks := MISSING.match(run.message)) and lacks[1] not in own:
        message = f"{target.name} needs the package {lacks[1]}, which is not installed beside it"
        return Verdict(Word.REJECTS, Tier.STRUCTURE, run.stage, message=message, rule="missing-package")
    for rule in target.refusals:
        if rule.stage == run.stage and (found := rule.matches(f"{run.message}\n{run.log}")):
            message = f"{target.name} does not support this: {_sentence(found)}"
            return Verdict(Word.REJECTS, Tier.STRUCTURE, run.stage, message=message, rule=rule.name)
    return _blame(run, Word.FAILS, Kind.ERROR, f"{target.name} failed in {run.stage}{words}")


def _sentence(found: re.Match[str]) -> str:
    """What is matched, with the rest of what is said there."""
    before, after = found.string[: found.start()], found.string[found.start() :].lstrip()
    begun = re.split(r"\n|(?<=[:.]) ", before)[-1]
    return shortened(f"{begun}{after.partition(chr(10))[0]}".strip(), SENTENCE)


def misshapen(question: Question) -> Verdict | None:
    """The first output that is missing, or has a wrong dtype or shape; None when there is none."""
    for feed, name in question.places:
        what = question.describe((feed, name))
        if feed >= len(question.observed) or name not in question.observed[feed]:
            return _divergence(Word.FAILS, Kind.NO_OUTPUT, f"{what} is missing", (feed, name))
        got, expected = question.pair((feed, name))
        if got.shape != expected.shape:
            if undecided := _data_dependent_shape(question, (feed, name)):
                return abstains(Tier.STRUCTURE, (feed, name), f"the shape of {what} depends on rounding", undecided)
            message = f"{what} has shape {list(got.shape)}, should be {list(expected.shape)}"
            return _divergence(Word.DIVERGES, Kind.WRONG_SHAPE, message, (feed, name))
        if got.dtype != expected.dtype:
            message = f"{what} has dtype {got.dtype}, should be {expected.dtype}"
            return _divergence(Word.DIVERGES, Kind.WRONG_DTYPE, message, (feed, name))
    return None


def nonsense(question: Question) -> Verdict | None:
    """The first output of a quantized run with a NaN or infinity where the reference is finite; None without one."""
    for place in question.places:
        got, expected = question.pair(place)
        if got.dtype.kind != "f" or np.isfinite(got).all():
            continue
        wrong = np.isfinite(expected) & ~np.isfinite(got)
        if wrong.any() and not poles(question, place):
            return diverges(Tier.STRUCTURE, question, place, wrong, np.zeros(()))
    return None


def of_large(question: Question, places: Sequence[Place], why: str = "") -> list[Verdict]:
    """Verdicts on a model whose weights, or `why`, are too large to be read here: its windows have to tell more."""
    if found := nonsense(question):
        return [found]
    why = why or f"no tier reads weights of {external_data.outside(question.case.proto) / 2**30:.1f} GiB"
    operators = [node.op for node in question.graph.nodes]
    return [abstains(Tier.STRUCTURE, place, why, operators) for place in places]


def _data_dependent_shape(question: Question, place: Place) -> list[str]:
    """The operators that make the shape there depend on values which may legitimately differ."""
    feed, name = place
    before = question.graph.ancestors(name)
    ancestors, summed = [node.op for node in before], _summed(question.graph, ())
    operators = [
        node.op
        for node in before
        if Trait.SHAPE_FROM_NUMBERS in traits_of(node.op) or _hangs_on_sums(node, summed, question.graph.opset)
    ]
    if question.in_halves or (question.scheme is not None and name not in reach.untouched(question)):
        return operators
    shape = question.expected[feed][name].shape
    samples = question.reference.sample(question.case)
    return operators or ancestors if any(sample[feed][name].shape != shape for sample in samples) else []


def _summed(graph: Graph, given: Iterable[str]) -> set[str]:
    """The tensors of `graph` that are sums of products or made of such, with those `given`; their shapes are not."""
    found = set(given)
    for node in graph.nodes:
        reads = () if Trait.READS_SHAPE in traits_of(node.op) else (*node.inputs, *captured(node))
        sums = any(Trait.CONTRACTS in traits_of(inner.op) for inner in nested([node], graph.opset))
        if sums or not found.isdisjoint(reads):
            found.update(name for name in node.outputs if name)
    return found


def _hangs_on_sums(node: Node, summed: Set[str], opset: int) -> bool:
    """Whether a shape, size or count that `node` is told, which way an If goes or how often a Loop runs hangs on what
    is `summed`: with other roundings another one may be right."""
    if node.op == "If":
        return node.inputs[0] in summed
    if node.op != "Loop":
        return any(name in summed for k, name in enumerate(node.inputs) if k in settings(node.op))
    body, within = read_graph(node.attributes["body"], opset), set(summed)
    carried = dict(zip(body.outputs, body.inputs[1:]))  # from one turn to the next, the condition first
    within.update(inner for inner, name in zip(body.inputs[1:], node.inputs[1:]) if name in summed)
    for _ in range(1 + len(carried)):
        within = _summed(body, within)
        within.update(carried[name] for name in body.outputs if name in within and name in carried)
    return not summed.isdisjoint(node.inputs[:2]) or body.outputs[0] in within


def _said(run: StageRun, complaint: str) -> str:
    """What the system itself says of the failure, behind a colon."""
    words = said(run.log, run.message, complaint)
    return f": {words}" if words and words != f"ended by {run.signal}" else ""  # that is said already


def _blame(run: StageRun, word: Word, kind: str, message: str) -> Verdict:
    return Verdict(word, Tier.STRUCTURE, run.stage, kind, message)


def _divergence(word: Word, kind: Kind, message: str, place: Place) -> Verdict:
    return Verdict(word, Tier.STRUCTURE, "execute", kind, message, feed=place[0], output=place[1])
