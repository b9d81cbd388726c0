"""The artifact tier: questions to a quantized ONNX model itself, none of which carries quantization noise.

    D1 execution    are the outputs those of the artifact, evaluated as it is written?
    D2 topology     is its graph the float graph, but for roundings?
    D3 parameters   is each weight, bias and range within half a step of what the float model and its data say?

Where all three are answered with yes, the output is as near to the float model's as this quantization can bring it.
The model is read (reader.py), its nodes are matched with the float model's (match.py), and what is known then is one
Comparison, of which every question is asked. Where a message begins so, the rule behind it stands there:

    execution  ...  as written                                                    execution.py
    topology   ...  is not the float model's, is gone, could not be matched       topology.py, told by messages.py
    topology   ...  is stored in the artifact, and made by a node too             this module
    topology   ...  makes ... of shape, where the artifact's node is right         format.py, reader.py: how it is read
    parameter  ...  holds ..., the float model ...; has shape; of the bias        constants.py
    parameter  ...  uses ... of its codes                                         code_usage.py
    parameter  ...  is rounded within ..., but calibration saw, these inputs      ranges.py, range_outliers.py
    parameter  ...  integers are written with; not positive                       parameters.py

Which operators a rule is about is said in one place, operators.py: a false alarm at one operator is mended there, or in
the module of its message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from driftnet.model.arrays import identical
from driftnet.model.case import Case
from driftnet.model.graph import Graph, Node, Values
from driftnet.model.verdict import MADE_TWICE, Kind, Tier, Verdict, Word
from driftnet.oracle.artifact.verified.calibration import Calibration, calibration_of
from driftnet.oracle.artifact.verified.comparison import Problem, problem_of
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.equalization import inserted
from driftnet.oracle.artifact.verified.execution import Execution, execution
from driftnet.oracle.artifact.verified.format import Artifact
from driftnet.oracle.artifact.verified.match import match
from driftnet.oracle.artifact.verified.names import first_result, named, spellings
from driftnet.oracle.artifact.verified.operators import MOVEMENT, OPAQUE
from driftnet.oracle.artifact.verified.parameters import wrong_parameters
from driftnet.oracle.artifact.verified.reader import kept_by, read_artifact
from driftnet.oracle.artifact.verified.subgraphs import compare_bodies
from driftnet.oracle.artifact.verified.topology import differing_attributes, differing_nodes
from driftnet.oracle.ball_arithmetic.ball import exact
from driftnet.oracle.ball_arithmetic.evaluate import MOST_HELD, Evaluation, evaluate
from driftnet.oracle.exemptions import documented
from driftnet.oracle.question.answers import abstains, agrees
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme.precomputed import folded
from driftnet.run.reference import ReferenceError
from driftnet.util import spent

TIER = Tier.ARTIFACT


@dataclass(frozen=True)
class Answers:
    """What a comparison of an artifact with its float model found.

    problems   what is wrong with it
    doubtful   by first result: nodes of the float model that could not be compared
    nodes      how many were to be
    counterparts   tensor of the artifact -> first result of the node of the float model that makes the same
    """

    problems: tuple[Problem, ...]
    doubtful: Mapping[str, Node]
    nodes: int
    counterparts: Mapping[str, str]


@spent.part("oracle artifact")
def decide(question: Question, places: Sequence[Place], *, as_run: bool = False) -> Mapping[Place, Verdict]:
    """Judge places of a run whose artifact is a quantized ONNX model; abstain where there is none.

    as_run   these places are what the reference, which optimizes nothing, makes of the artifact, bit by bit: where
             nobody can evaluate it, that is as it is written
    """
    graph, scheme = question.written, question.scheme
    if graph is None:
        return {place: abstains(TIER, place, "the artifact cannot be read", []) for place in places}
    feeds = sorted({feed for feed, _ in places})
    most = MOST_HELD // len(feeds)  # the balls of all are held together
    evaluations = {feed: evaluate(graph, question.case.feeds[feed], most=most) for feed in feeds}
    balls = [evaluation.balls for evaluation in evaluations.values()]
    span = scheme.weight_codes[1] - scheme.weight_codes[0] if scheme and scheme.weight_codes else None
    found = compare(question.graph, graph, balls, calibration_of(question), span)
    if found.problems:
        worst = max(found.problems, key=lambda p: (p.question == "parameter", p.excess))
        message = f"{worst.question} {worst.where}: {worst.message}"
        return {place: _diverges(place, worst, "quantize", message, culprits=(worst.culprit,)) for place in places}
    return _executed(question, graph, evaluations, places, found.doubtful, as_run)


def as_reference_runs(question: Question, places: Sequence[Place]) -> list[Place]:
    """Those of the places that are, bit by bit, what the reference makes of the artifact."""
    if question.artifact.model is None:
        return []
    try:
        runs = question.reference.outputs(Case(question.artifact.model, question.case.feeds))
    except ReferenceError:
        return []
    same = [(feed, name) for feed, name in places if name in runs[feed]]
    return [p for p in same if identical(question.pair(p)[0], runs[p[0]][p[1]])]


def compare(
    model: Graph,
    graph: Graph,
    balls: Sequence[Mapping[str, object]],
    calibration: Calibration | None,
    span: int | None = None,
) -> Answers:
    """D2 and D3 of the artifact `graph` against the float `model`.

    balls   for each feed, every tensor of the artifact as far as it is known
    calibration, span   as in a Comparison
    """
    if clashes := made_twice(graph):  # of what that name means nobody can say anything
        return Answers(tuple(clashes), {first_result(node): node for node in model.nodes}, len(model.nodes), {})
    read = read_artifact(graph, kept_by(model))
    model = inserted(model, read) if span is None else model
    constants, artifact = unfolded(model, folded(model), read)
    matched = match(model, constants, Numbers(artifact, balls[0]))
    comparison = replace(matched, calibration=calibration, span=span)
    problems = wrong_parameters(comparison)
    doubtful: dict[str, Node] = {}
    for run in balls:
        found, unsure = differing_nodes(replace(comparison, numbers=Numbers(artifact, run)))
        problems += found
        doubtful |= {first_result(node): node for node in unsure}

    def compare_body(
        model: Graph, body: Graph, balls: Sequence[Mapping[str, object]]
    ) -> tuple[Sequence[Problem], bool]:
        inner = compare(model, body, balls, None, span)
        return inner.problems, not inner.doubtful

    for pair in comparison.pairs:
        inside, certain = compare_bodies(pair, comparison, compare_body)
        problems += inside
        doubtful |= {} if certain else {pair.first: pair.node}
    at = comparison.at
    firsts = {at[pair.first]: pair.first for pair in comparison.pairs if pair.first in at}
    tensors = [name for node in graph.nodes for name in node.outputs]
    counterparts = {name: firsts[real] for name in tensors if (real := artifact.stands_for(name)) in firsts}
    return Answers(tuple(problems), doubtful, len(comparison.pairs), counterparts)


def made_twice(graph: Graph) -> list[Problem]:
    """Names that a quantizer gave to what it stores, though a node of the float model makes what is called so: as it
    does to the scale of a model that was quantized before."""
    said = "{!r} is stored in the artifact, and made by a node too"
    return [
        replace(problem_of(node, "topology", np.inf, 0.0, said.format(name), where=name), about=(MADE_TWICE, name))
        for node in graph.nodes
        for name in node.outputs
        if name in graph.initializers
    ]


def compare_form(model: Graph, graph: Graph) -> tuple[Problem, ...]:
    """What can be said of an artifact that does not run: attributes that are not the float model's."""
    numbers = Numbers(read_artifact(graph, kept_by(model)), {name: exact(x) for name, x in graph.constants.items()})
    return tuple(differing_attributes(match(model, folded(model), numbers)))


def unfolded(model: Graph, constants: Values, artifact: Artifact) -> tuple[Values, Artifact]:
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
        # What reads it reads it rounded: of rows of a table in blocks nothing is rounded again.
        computes = piece.node.op not in MOVEMENT or piece.source.op in OPAQUE
        computes = computes or not results.isdisjoint({*model.outputs, *again})
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
    kept = {tensor for tensor in artifact.constant if artifact.stands_for(tensor) not in rounded}
    return {k: x for k, x in constants.items() if k not in names}, replace(artifact, constant=kept)


def _executed(
    question: Question,
    graph: Graph,
    evaluations: Mapping[int, Evaluation],
    places: Sequence[Place],
    doubtful: Mapping[str, Node],
    as_run: bool,
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
            excused = documented.excuse(question, graph, place, TIER)
            message = f"the artifact is not executed as written: {question.describe(place)}: {problem.message}"
            verdicts[place] = excused or _diverges(place, problem, "execute", message)
        elif unknown is not None and not as_run:
            verdicts[place] = abstains(TIER, place, "the artifact cannot be evaluated", [unknown] if unknown else [])
        elif unsure := [n.op for n in question.graph.ancestors(name) if first_result(n) in doubtful]:
            verdicts[place] = abstains(TIER, place, "these nodes could not be matched to the quantized graph", unsure)
        else:
            verdicts[place] = agrees(TIER, place)
    return verdicts


def _diverges(
    place: Place, problem: Problem, stage: str, message: str, culprits: tuple[tuple[str, str], ...] = ()
) -> Verdict:
    kind = Kind.OFF_BY_ONE_STEP if problem.mild else Kind.WRONG_VALUES
    found = Verdict(Word.DIVERGES, TIER, stage, kind, message, error=problem.error, bound=problem.bound)
    return replace(found, feed=place[0], output=place[1], culprits=culprits, at=problem.at, about=problem.about)
