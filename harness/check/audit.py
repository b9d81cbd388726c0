"""Audit: is a quantized ONNX model a right quantization of a float one, and executed as it is written?

Any tool may have made it; what it did is read off the artifact. The artifact runs once without optimizations, and every
tensor is recorded. Each node is then judged by itself, on what stands before it: does onnxruntime compute it as written
(D1), is it the float model's node (D2), with its weights, biases and ranges (D3)? So nothing adds up over a deep model.
With all optimizations the artifact runs in windows, each fed from the record, if its outputs differ at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from driftnet.model import graph as graphs
from driftnet.model.arrays import identical
from driftnet.model.graph import Graph, Values
from driftnet.model.inspect import Case, Feed, all_nodes, graph_inputs, input_dtype
from driftnet.model.operators import Trait, full_name, having
from driftnet.model.submodel import Recording, UnrecordedError, submodel
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.model.windows import survey
from driftnet.oracle.artifact.verified.calibration import Calibration, ranges_of
from driftnet.oracle.artifact.verified.comparison import Problem
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.execution import difference, nodes_as_written, saturates
from driftnet.oracle.artifact.verified.operators import OPAQUE, QUANTIZED
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.artifact.verified.tier import compare, compare_form
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.exemptions.documented import documented
from driftnet.oracle.question.poles import DATA_DEPENDENT
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.recipe import effective
from driftnet.util.errors import UserError

ENGINE = "onnxruntime-quant"
OPTIMIZED = {"quantize": "none", "optimization": "all"}
# Cast and Mul come with quantization too: they turn the sums of integer products into reals.
PLAIN_OPERATORS = having(Trait.QUANTIZES) | having(Trait.DEQUANTIZES) | {"Cast", "Mul"}
"""operators that are not named where a window holds others"""
_HINT = "driftnet audit FLOAT.onnx QUANTIZED.onnx takes a float model and what a quantizer made of it"


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    verdict   "agrees", or "diverges" where there is a problem
    vouched   share of the float model's nodes that were found in the artifact and could be compared
    tolerated how many nodes differ by one rounding step, as fused kernels may
    excused   by documented rule: how many nodes could not be compared, because what it allows is anything
    """

    verdict: Word
    problems: tuple[Problem, ...]
    vouched: float
    tolerated: int = 0
    excused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What is seen of a window: a problem, or the documented rule that moves an output too far to tell, or neither."""

    problem: Problem | None = None
    rule: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return Verdict(Word.DIVERGES, kind=Kind.WRONG_VALUES)
        return Verdict(Word.ABSTAINS if self.rule else Word.AGREES, rule=self.rule)


def audit(
    model: onnx.ModelProto,
    quantized: onnx.ModelProto,
    feeds: Sequence[Feed],
    runner: Runner,
    *,
    alike: bool = False,
    more: Sequence[Feed] = (),
) -> Audit:
    """Audit `quantized` against the float `model` on `feeds`.

    alike   the feeds are like the data of calibration, so that the ranges of activations can be judged by them closely
    more    other feeds of that kind, by which ranges are judged too

    Raises UserError (kind "model") for models whose inputs or outputs differ, for an artifact with nothing quantized,
    and for a float model that does not run; (kind "feed") for feeds that tell nothing.
    """
    check_pair(model, quantized)
    _check_feeds(feeds)
    case = Case(model.SerializeToString(), tuple(feeds))
    artifact = Case(quantized.SerializeToString(), tuple(feeds))
    try:
        recorded = runner.reference.record(replace(case, feeds=(*feeds, *more)))
    except ReferenceError as e:
        hint = "are the inputs such as the model is made for?" if alike else _HINT
        raise UserError(f"onnxruntime does not run the float model: {e}", hint=hint, kind="model") from e
    floating, graph = graphs.read(model), graphs.in_order(graphs.read(quantized))
    try:
        records = runner.reference.record(artifact)
    except ReferenceError as e:
        problem = Problem("execution", "", np.inf, 0.0, f"onnxruntime does not run the quantized model: {e}")
        return Audit(Word.DIVERGES, (*compare_form(floating, graph), problem), 0.0)
    balls = [evaluate(graph, record).balls for record in records]
    calibration = Calibration(ranges_of(recorded), sampled=True, records=recorded, alike=alike)
    found = compare(floating, graph, balls, calibration)
    problems = [*found.problems, *_misshapen(floating, recorded, records)]
    for record in records:
        problems += nodes_as_written(graph, {**graph.constants, **record})
    excused: dict[str, str] = {}
    if not any(problem.question == "execution" for problem in problems):
        optimized, excused = _optimized(artifact, graph, Recording(tuple(records), ()), runner)
        problems += optimized
    unknown = {found.counterparts[name]: rule for name, rule in excused.items() if name in found.counterparts}
    vouched = 1 - len(found.doubtful.keys() | unknown) / max(1, found.nodes)
    serious = _distinct(problem for problem in problems if not problem.mild)
    mild = len({problem.where for problem in problems if problem.mild})
    verdict = Word.DIVERGES if serious else Word.AGREES
    return Audit(verdict, serious, round(vouched, 4), mild, Counter(unknown.values()))


def _misshapen(model: Graph, recorded: Sequence[Values], records: Sequence[Values]) -> Iterator[Problem]:
    """Outputs of another shape than the float `model` gives, where rounding decides nothing of it."""
    for name in model.outputs:
        makers = model.ancestors(name)
        shapes = {(a[name].shape, b[name].shape) for a, b in zip(recorded, records) if name in a and name in b}
        other = next((pair for pair in sorted(shapes) if pair[0] != pair[1]), None)
        if other and DATA_DEPENDENT.isdisjoint(node.op for node in makers):
            message = f"output {name!r} has shape {list(other[1])}, in the float model {list(other[0])}"
            culprit = (makers[-1].name or name, makers[-1].op) if makers else ("", "")
            yield Problem("topology", name, np.inf, 0.0, message, culprit)


def check_pair(model: onnx.ModelProto, quantized: onnx.ModelProto) -> None:
    """Raise UserError unless `quantized` can be a quantization of `model`: same inputs, same outputs, integers."""
    for what, (ours, theirs) in {
        "inputs": [{v.name: _type(v) for v in graph_inputs(m)} for m in (model, quantized)],
        "outputs": [{v.name: "" for v in m.graph.output} for m in (model, quantized)],
    }.items():
        if ours != theirs:
            said = [", ".join(f"{name} {kind}".strip() for name, kind in side.items()) for side in (ours, theirs)]
            raise UserError(
                f"the models have different {what}: {said[0]} in the float model, {said[1]} in the quantized one",
                hint=_HINT,
                kind="model",
            )
    if not _quantized(quantized):
        swapped = ", but the float model is: are they in the right order?" if _quantized(model) else ""
        raise UserError(f"nothing is quantized in the quantized model{swapped}", hint=_HINT, kind="model")


def _check_feeds(feeds: Sequence[Feed]) -> None:
    """Raise UserError for feeds of which nothing can be told."""
    for feed in feeds:
        odd = next((name for name, x in feed.items() if x.dtype.kind == "f" and np.isnan(x).any()), None)
        if odd is not None or not any(x.size for x in feed.values()):
            why = "all inputs are empty" if odd is None else f"input {odd!r} holds NaN"
            hint = "give inputs like those that the model is made for"
            raise UserError(f"{why}: nothing could be compared", hint=hint, kind="feed")


def _type(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    rank = f", rank {len(tensor.shape.dim)}" if tensor.HasField("shape") else ""
    return f"({input_dtype(value)}{rank})"


def _quantized(model: onnx.ModelProto) -> bool:
    names = {full_name(node.op_type, node.domain) for node in all_nodes(model.graph)}
    return not names.isdisjoint(QUANTIZED | OPAQUE)


def _optimized(
    artifact: Case, graph: Graph, recorded: Recording, runner: Runner
) -> tuple[list[Problem], dict[str, str]]:
    """What differs from the artifact as written under all optimizations; and of what nobody can tell, each tensor with
    the rule by which it is excused."""
    engine = resolve(ENGINE)
    seen = runner.observe(artifact, engine, OPTIMIZED)
    if not seen.outputs:
        message = f"onnxruntime runs the artifact only without optimizations: {seen.last.message or seen.last.signal}"
        return [Problem("execution", "", np.inf, 0.0, message)], {}
    if all(
        identical(out[name], record[name])
        for out, record in zip(seen.outputs, recorded.feeds)
        for name in graph.outputs
        if name in out and name in record
    ):
        return [], {}

    judged = list(
        survey(
            artifact,
            recorded,
            lambda window: _window(window, engine, runner).verdict,
            lambda verdict: verdict.word is Word.DIVERGES,
        )
    )
    wrong = [window.nodes for window in judged if window.verdict.word is Word.DIVERGES]
    problems = [_narrowed(artifact, nodes, recorded, engine, runner) for nodes in wrong]
    affirmed = {node for window in judged if window.verdict.word is Word.AGREES for node in window.nodes}
    nodes = artifact.proto.graph.node
    excused = {
        name: window.verdict.rule
        for window in judged
        if window.verdict.word is Word.ABSTAINS
        for node in set(window.nodes) - affirmed
        for name in nodes[node].output
    }
    return [problem for problem in problems if problem], excused


def _narrowed(
    artifact: Case, nodes: Sequence[int], recorded: Recording, engine: Installed, runner: Runner
) -> Problem | None:
    """The problem of a window, told of as few of its nodes as have it."""
    kept, problem = list(nodes), _window(submodel(artifact, nodes, recorded), engine, runner).problem
    for node in nodes:
        fewer = [k for k in kept if k != node]
        try:
            found = _window(submodel(artifact, fewer, recorded), engine, runner).problem if fewer else None
        except UnrecordedError:
            continue
        if problem and found and found.mild == problem.mild:
            kept, problem = fewer, found
    return problem


def _window(window: Case, engine: Installed, runner: Runner) -> Look:
    """What is seen of a part of the artifact under all optimizations: nothing when it runs as written, or not at all,
    because the whole artifact does run."""
    graph = graphs.in_order(graphs.read(window.proto))
    seen = runner.observe(window, engine, OPTIMIZED)
    where = ", ".join(_operators(graph))
    # Where a window was cut from its neighbours, the runtime may round what the model as written does not.
    options = effective(engine.target, OPTIMIZED)
    rewritten, rules = documented(graph, {rule.name for rule in engine.target.exceptions if rule.holds(options)})
    excuse = ""
    for feed, outputs in zip(window.feeds, seen.outputs or ()):
        strict = evaluate(graph, feed).balls
        wrong = _differences(graph, strict, outputs)
        if not wrong:
            continue
        allowed = evaluate(rewritten, feed).balls if rules else {}
        if rules and not _differences(rewritten, allowed, outputs):
            if any(isinstance(ball := allowed.get(name), Ball) and is_ill(ball) for name in wrong):
                excuse = " and ".join(sorted(rules))
            continue
        if saturates(Numbers(read_artifact(graph), strict)):
            return Look(rule=saturation.RULE)
        lenient = _differences(graph, evaluate(graph, feed, lenient=True).balls, outputs)
        name, problem = next(((name, lenient[name]) for name in wrong if lenient.get(name)), (next(iter(wrong)), None))
        if problem is None:
            worst = wrong[name]
            return Look(Problem("execution", where, worst.error, worst.bound, worst.message, mild=True))
        message = f"right without optimizations, wrong with all of them (a fusion or a fused kernel): {problem.message}"
        return Look(Problem("execution", where, problem.error, problem.bound, message))
    return Look(rule=excuse)


def _differences(graph: Graph, balls: Mapping[str, object], outputs: Mapping[str, np.ndarray]) -> dict[str, Problem]:
    found = {}
    for name in graph.outputs:
        ball = balls.get(name)
        if isinstance(ball, Ball) and name in outputs and (problem := difference(ball, outputs[name], name)):
            found[name] = problem
    return found


def _operators(graph: Graph) -> list[str]:
    names = [node.name or node.outputs[0] for node in graph.nodes if node.op not in PLAIN_OPERATORS]
    return names or [node.name or node.outputs[0] for node in graph.nodes]


def _distinct(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """One problem for each question and place, the worst one, parameters first."""
    worst: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        key = (problem.question, problem.where)
        if key not in worst or problem.error > worst[key].error:
            worst[key] = problem
    order = ("parameter", "topology", "execution")
    return tuple(sorted(worst.values(), key=lambda problem: order.index(problem.question)))
