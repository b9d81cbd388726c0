"""The artifact tier: questions to a quantized ONNX model itself, none of which carries quantization noise.

    D1 execution    are the outputs those of the artifact, evaluated as it is written?
    D2 topology     is its graph the float graph, but for roundings?
    D3 parameters   is each weight, bias and range within half a step of what the float model and its data say?

Where all three are answered with yes, the output is as near to the float model's as this quantization can bring it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.artifact.verified import parameters, topology
from driftnet.oracle.artifact.verified.dequantized import COPY, PREFIXES, Numbers, Problem, spellings
from driftnet.oracle.artifact.verified.equalization import inserted
from driftnet.oracle.artifact.verified.execution import Execution, execution, saturates
from driftnet.oracle.artifact.verified.format import MOVEMENT, QUANTISED, Artifact
from driftnet.oracle.artifact.verified.match import match
from driftnet.oracle.artifact.verified.names import first_result, named
from driftnet.oracle.artifact.verified.ranges import Calibration, ranges_of
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.artifact.verified.subgraphs import compare_bodies
from driftnet.oracle.ball_arithmetic.ball import Ball, exact
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation, evaluate
from driftnet.oracle.ball_arithmetic.random import is_random
from driftnet.oracle.exemptions import documented, saturation
from driftnet.oracle.question.answers import abstains, agrees
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme.precomputed import folded

TIER = Tier.ARTIFACT


@dataclass(frozen=True)
class Comparison:
    """An artifact against its float model.

    problems   what is wrong with it
    doubtful   by first result: nodes of the float model that could not be compared
    nodes      how many were to be
    counterparts   tensor of the artifact -> first result of the node of the float model that makes the same
    """

    problems: tuple[Problem, ...]
    doubtful: Mapping[str, Node]
    nodes: int
    counterparts: Mapping[str, str]


def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Judge places of a run whose artifact is a quantized ONNX model; abstain where there is none."""
    graph = question.written
    if graph is None:
        return {place: abstains(TIER, place, "the artifact cannot be read", []) for place in places}
    feeds = sorted({feed for feed, _ in places})
    evaluations = {feed: evaluate(graph, question.case.feeds[feed]) for feed in feeds}
    balls = [evaluation.balls for evaluation in evaluations.values()]
    found = compare(question.graph, graph, balls, calibration_of(question), _span(question))
    if found.problems:
        worst = max(found.problems, key=lambda p: (p.question == "parameter", _excess(p)))
        return {place: _misquantized(place, worst) for place in places}
    return _executed(question, graph, evaluations, places, found.doubtful)


def compare(
    model: Graph,
    graph: Graph,
    balls: Sequence[Mapping[str, object]],
    calibration: Calibration | None,
    span: int | None = None,
) -> Comparison:
    """D2 and D3 of the artifact `graph` against the float `model`.

    balls   for each feed, every tensor of the artifact as far as it is known
    calibration, span   as for parameters.check
    """
    read = read_artifact(graph, kept_by(model))
    model = inserted(model, read) if span is None else model
    constants, artifact = unfolded(model, folded(model), read)
    runs = [Numbers(artifact, run) for run in balls]
    matching = match(model, constants, runs[0])
    problems = list(parameters.check(model, constants, matching, runs[0], calibration, span))
    doubtful: dict[str, Node] = {}
    for numbers in runs:
        found = topology.compare(model, constants, matching, numbers)
        problems += found.problems
        doubtful |= {first_result(node): node for node in found.doubtful}
    for pair in matching.pairs:
        inside, certain = compare_bodies(pair, model, matching, runs[0], partial(_body, span))
        problems += inside
        doubtful |= {} if certain else {pair.first: pair.node}
    firsts = {matching.at[pair.first]: pair.first for pair in matching.pairs if pair.first in matching.at}
    tensors = [name for node in graph.nodes for name in node.outputs]
    counterparts = {name: firsts[real] for name in tensors if (real := artifact.stands_for(name)) in firsts}
    return Comparison(tuple(problems), doubtful, len(matching.pairs), counterparts)


def _body(
    span: int | None, model: Graph, graph: Graph, balls: Sequence[Mapping[str, object]]
) -> tuple[tuple[Problem, ...], bool]:
    found = compare(model, graph, balls, None, span)
    return found.problems, not found.doubtful


def unfolded(
    model: Graph, constants: Mapping[str, np.ndarray], artifact: Artifact
) -> tuple[Mapping[str, np.ndarray], Artifact]:
    """Both without what the float model computes from constants, and the artifact from rounded ones.

    Where a quantizer did not fold a MatMul of two constants, its result is that of rounded ones, and rightly so.
    """
    made: set[str] = set()
    rounded: set[str] = set()
    moved: set[str] = set()
    again = {rounding.real for rounding in artifact.roundings}
    for piece in artifact.pieces:
        results = {use.real for use in piece.results if use and use.tensor in artifact.constant}
        made |= results
        computes = piece.node.op not in MOVEMENT or not results.isdisjoint({*model.outputs, *again})
        uses = [use for use in piece.uses if use]
        coarse = any(use.format or use.real in moved for use in uses)
        if any(use.real in rounded for use in uses) or (coarse and computes):
            rounded |= results
        elif coarse:
            moved |= results
    known = made | artifact.real.keys()
    names: set[str] = set()
    read: set[str] = set()
    for node in reversed(model.nodes):
        real = named(artifact, known, first_result(node))
        # What is nowhere in the artifact was fused into what reads it.
        stored = any(tensor in artifact.graph.constants for tensor in spellings(first_result(node)))
        fused = not real and not stored and not read.isdisjoint(node.outputs)
        if first_result(node) in constants and (fused or real in rounded):
            names.update(node.outputs)
            read.update(node.inputs)
    kept = frozenset(tensor for tensor in artifact.constant if artifact.stands_for(tensor) not in rounded)
    return {k: x for k, x in constants.items() if k not in names}, dataclasses.replace(artifact, constant=kept)


def compare_form(model: Graph, graph: Graph) -> tuple[Problem, ...]:
    """What can be said of an artifact that does not run: attributes that are not the float model's."""
    numbers = Numbers(read_artifact(graph, kept_by(model)), {name: exact(x) for name, x in graph.constants.items()})
    return tuple(topology.differing_attributes(match(model, folded(model), numbers)))


def kept_by(model: Graph) -> Callable[[Node], bool]:
    """Whether a node that quantizes, casts or acts on integers stood in the float model already."""
    own = QUANTISED | {"Cast"}
    makers: dict[str, str] = {}
    for node in model.nodes:
        # An optimizer that takes movement away, two Transposes say, gives its result's name to what that reads. What
        # a quantizer adds has the name of what it rounds too, where it dequantizes.
        passed = makers.get(node.input(0)) if node.op in MOVEMENT else None
        op = node.op if node.op in own else passed if passed != "DequantizeLinear" else None
        makers.update({name: op for name in node.outputs if name and op})
    kept = {(start + name, op) for name, op in makers.items() for start in PREFIXES}
    return lambda node: any((name.split(COPY)[0], node.op) in kept for name in node.outputs)


def calibration_of(question: Question) -> Calibration | None:
    """What calibration saw of the float model; None where the target's scheme is not known."""
    scheme, case = question.scheme, question.case
    if scheme is None or scheme.activation_codes is None:
        return None
    records = question.records
    if case.calibration:
        records = question.reference.record(dataclasses.replace(case, feeds=case.calibration, calibration=()))
    ranges = ranges_of(records)
    chance = {node.outputs[0] for node in question.graph.nodes if is_random(node, question.graph)}
    for node in question.graph.nodes:  # behind these, another run sees other data
        if not chance.isdisjoint(node.inputs) or not chance.isdisjoint(node.outputs):
            chance.update(node.outputs)
    known = {name: found for name, found in ranges.items() if name not in chance}
    has_halves = any(x.dtype == np.float16 for record in records for x in record.values())
    return Calibration(known, scheme.clips, _errors(question, known) if has_halves else {})


def _errors(question: Question, names: Iterable[str]) -> dict[str, float]:
    """How far each tensor may be off in calibration, which may compute what the model rounds to float16 in float32."""
    feeds = question.case.calibration or question.case.feeds
    runs = [evaluate(question.graph, feed).balls for feed in feeds]
    balls = {name: [run.get(name) for run in runs] for name in names}
    return {
        name: max(float(np.max(ball.error, initial=0.0)) if isinstance(ball, Ball) else np.inf for ball in found)
        for name, found in balls.items()
    }


def _span(question: Question) -> int | None:
    codes = question.scheme.weight_codes if question.scheme else None
    return codes[1] - codes[0] if codes else None


def _executed(
    question: Question,
    graph: Graph,
    evaluations: Mapping[int, Evaluation],
    places: Sequence[Place],
    doubtful: Mapping[str, Node],
) -> dict[Place, Verdict]:
    runs: dict[int, Execution] = {
        feed: execution(graph, evaluation, question.case.feeds[feed], question.observed[feed])
        for feed, evaluation in evaluations.items()
    }
    verdicts = {}
    for place in places:
        feed, name = place
        problem, unknown = runs[feed].problems.get(name), runs[feed].undecided.get(name)
        if name not in graph.outputs:
            verdicts[place] = abstains(TIER, place, "the artifact has no such output", [])
        elif problem:
            numbers = Numbers(read_artifact(graph), evaluations[feed].balls)
            if saturation.RULE in question.exceptions and saturates(numbers.artifact, numbers):
                verdicts[place] = agrees(TIER, place, rule=saturation.RULE)
            else:
                excused = documented.excuse(question, graph, place, TIER)
                verdicts[place] = excused or _misexecuted(question, place, problem)
        elif unknown is not None:
            verdicts[place] = abstains(TIER, place, "the artifact cannot be evaluated", [unknown] if unknown else [])
        elif unsure := [n.op for n in question.graph.ancestors(name) if first_result(n) in doubtful]:
            verdicts[place] = abstains(TIER, place, "nobody can tell what became of these nodes", unsure)
        else:
            verdicts[place] = agrees(TIER, place)
    return verdicts


def _misquantized(place: Place, problem: Problem) -> Verdict:
    return Verdict(
        Word.DIVERGES,
        TIER,
        stage="quantize",
        kind=Kind.WRONG_VALUES,
        message=f"{problem.question} {problem.where}: {problem.message}",
        feed=place[0],
        output=place[1],
        error=problem.error,
        bound=problem.bound,
        culprits=(problem.culprit,),
    )


def _misexecuted(question: Question, place: Place, problem: Problem) -> Verdict:
    return Verdict(
        Word.DIVERGES,
        TIER,
        stage="execute",
        kind=Kind.OFF_BY_ONE_STEP if problem.mild else Kind.WRONG_VALUES,
        message=f"the artifact is not executed as written: {question.describe(place)}: {problem.message}",
        feed=place[0],
        output=place[1],
        error=problem.error,
        bound=problem.bound,
    )


def _excess(problem: Problem) -> float:
    return problem.error / problem.bound if problem.bound else np.inf
