"""Audit: is a quantized ONNX model a right quantization of a float one, and executed as it is written?

Any tool may have made it; what it did is read off the artifact. The artifact runs once without optimizations, and every
tensor is recorded. Each node is then judged by itself, on what stands before it: does onnxruntime compute it as written
(D1), is it the float model's node (D2), with its weights, biases and ranges (D3)? So nothing adds up over a deep model.
With all optimizations the artifact runs in windows, each fed from the record, if its outputs differ at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from driftnet.diagnosis.end_to_end import Loss, losses
from driftnet.diagnosis.usability import (
    Layer,
    by_tensor,
    nothing_quantized,
    vanishing,
    with_joins_in_float,
    worst_layers,
)
from driftnet.model import graph as graphs
from driftnet.model.arrays import identical
from driftnet.model.feeds import demand_numbers
from driftnet.model.graph import Graph, Values
from driftnet.model.inspect import Case, Feed, graph_inputs, input_dtype
from driftnet.model.operators import Trait, full_name, having
from driftnet.model.submodel import Recording, UnrecordedError, submodel
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.model.windows import Judged, survey
from driftnet.oracle.artifact.verified.calibration import CALIBRATED_ELSEWHERE, RANGE, Calibration, Range, ranges_of
from driftnet.oracle.artifact.verified.comparison import Problem, label
from driftnet.oracle.artifact.verified.execution import execution, nodes_as_written
from driftnet.oracle.artifact.verified.range_outliers import moved_from
from driftnet.oracle.artifact.verified.ranges import stated_ranges
from driftnet.oracle.artifact.verified.tier import compare, compare_form
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.exemptions.documented import documented
from driftnet.oracle.tolerances.table import LEAST_CHANGE, REWRITTEN
from driftnet.reduce.problem import shrink
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, onnx_engine
from driftnet.targets.recipe import Recipe, effective
from driftnet.util.errors import UserError
from onnx import numpy_helper

# Cast and Mul come with quantization too: they turn the sums of integer products into reals.
PLAIN_OPERATORS = having(Trait.QUANTIZES) | having(Trait.DEQUANTIZES) | {"Cast", "Mul"}
"""operators that are not named where a window holds others"""
MOST_TRIED = 8
"""Problems of which it is tried what they do to the outputs: of more than these some do something."""
ENOUGH = 0.95
"""Share of the float model's nodes that have to be compared before an audit agrees."""
UNOPTIMIZED = {"quantize": "none", "optimization": "off"}
"""How the artifact is recorded."""

_HINT = "driftnet audit FLOAT.onnx QUANTIZED.onnx takes a float model and what a quantizer made of it"


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    verdict   "diverges" where there is a problem, else "agrees"; "abstains" where less than ENOUGH was compared, or
              nothing is wrong but that it was calibrated on other data
    vouched   share of the float model's nodes that were found in the artifact and could be compared
    unmatched   (name, operator) of those that were not
    end_to_end  what the quantized model loses at each output, executed as it is written: right is not yet usable
    layers    how far off each tensor is up to there, as far as both models have it; the worst first
    in_float  the layers that lose most by themselves, and what is lost end to end where each is left in float
    notes     problems with constants that do nothing to the outputs
    vanishing   operands of a join of which nothing is left in its result, whose step is too large for them
    joins_in_float   what is lost end to end where the results of all these joins are left in float
    preprocessed   it is the float model after onnxruntime's pre-processing that could be compared
    tolerated how many nodes differ by one rounding step, as fused kernels may
    excused   by documented rule: how many nodes could not be compared, because what it allows is anything
    """

    verdict: Word
    problems: tuple[Problem, ...]
    vouched: float
    tolerated: int = 0
    excused: Mapping[str, int] = field(default_factory=dict)
    unmatched: tuple[tuple[str, str], ...] = ()
    end_to_end: tuple[Loss, ...] = ()
    layers: tuple[Loss, ...] = ()
    in_float: tuple[Layer, ...] = ()
    vanishing: tuple[str, ...] = ()
    joins_in_float: tuple[Loss, ...] = ()
    notes: tuple[Problem, ...] = ()
    preprocessed: bool = False


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
    found = _audited(model, quantized, feeds, runner, alike=alike, more=more)
    if found.vouched < ENOUGH and (other := _preprocessed(model, feeds, runner)):
        again = _audited(other, quantized, feeds, runner, alike=alike, more=more)
        if again.vouched > found.vouched:
            return replace(again, preprocessed=True)
    return found


def _preprocessed(model: onnx.ModelProto, feeds: Sequence[Feed], runner: Runner) -> onnx.ModelProto | None:
    """The float model as onnxruntime's pre-processing, which its quantizer recommends, rewrites it, folds of
    BatchNormalization and all; None where its outputs are not those of the model."""
    engine, case = onnx_engine(), Case(model.SerializeToString(), tuple(feeds))
    data = runner.converted(case, engine, engine.target.features["preprocessed"])
    if data is None:
        return None
    rewritten, written = (runner.reference.run(replace(case, model=form)).outputs for form in (data, case.model))
    rows = losses(rewritten, written)
    same = rows and all(row.relative_l2 <= REWRITTEN for row in rows)
    return onnx.ModelProto.FromString(data) if same else None


def _audited(
    model: onnx.ModelProto,
    quantized: onnx.ModelProto,
    feeds: Sequence[Feed],
    runner: Runner,
    *,
    alike: bool,
    more: Sequence[Feed],
) -> Audit:
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
        before, ended = _as_far_as_it_runs(artifact, runner)
        message = f"onnxruntime does not run the quantized model: {e}"
        problem = Problem("execution", ended[0], np.inf, 0.0, message, ended)
        calibration = Calibration(ranges_of(recorded), sampled=True, records=recorded, alike=alike)
        wrong: Sequence[Problem] = ()
        with suppress(KeyError):  # of a body that reads what nobody makes nothing can be computed
            wrong = compare(floating, graph, [evaluate(graph, record).balls for record in before], calibration).problems
        return Audit(Word.DIVERGES, _distinct([*compare_form(floating, graph), *wrong, problem]), 0.0)
    balls = [evaluate(graph, record).balls for record in records]
    calibration = Calibration(ranges_of(recorded), sampled=True, records=recorded, alike=alike)
    found = compare(floating, graph, balls, calibration)
    named = {problem.where for problem in found.problems}
    odd = [problem for problem in _not_finite(floating, graph) if problem.where not in named]
    problems = [*odd, *found.problems, *_misshapen(floating, recorded, records)]
    excused: dict[str, str] = {}
    for record in records:
        wrong, rules = nodes_as_written(graph, {**graph.constants, **record}, _exceptions(onnx_engine(), UNOPTIMIZED))
        problems, excused = [*problems, *wrong], {**excused, **rules}
    if not any(problem.question == "execution" for problem in problems):
        optimized, rules = _optimized(artifact, graph, Recording(tuple(records), ()), runner)
        problems, excused = [*problems, *optimized], {**excused, **rules}
    unknown = {found.counterparts[name]: rule for name, rule in excused.items() if name in found.counterparts}
    lost = found.doubtful.keys() | unknown
    vouched = 1 - len(lost) / max(1, found.nodes)
    serious = _distinct(problem for problem in problems if not problem.mild)
    notes = tuple(problem for problem in serious[:MOST_TRIED] if _does_nothing(problem, case, recorded, runner))
    serious = tuple(problem for problem in serious if problem not in notes)
    inputs = [problem.about[1] for problem in serious if problem.about[:1] == (CALIBRATED_ELSEWHERE,)]
    if inputs:
        unexplained = _unexplained(inputs, case, floating, graph, balls, recorded, runner)
        serious = _distinct([*(p for p in serious if not _is_explained(p, inputs, floating)), *unexplained])
    about = {problem.about[:1] for problem in serious}
    vanish = dict(vanishing(floating, graph, recorded))
    expected = _only(floating.outputs, recorded)
    accuses = not about <= {(CALIBRATED_ELSEWHERE,)}
    return Audit(
        Word.DIVERGES if accuses else Word.ABSTAINS if serious or vouched < ENOUGH else Word.AGREES,
        serious,
        round(vouched, 4),
        len({problem.where for problem in problems if problem.mild}),
        Counter(unknown.values()),
        tuple((label(node), node.op) for node in floating.nodes if not lost.isdisjoint(node.outputs)),
        tuple(losses(_only(floating.outputs, records), expected)),
        by_tensor(found.counterparts, records, recorded),
        worst_layers(case, artifact, found.counterparts, records, recorded, runner.reference.record),
        tuple(vanish),
        with_joins_in_float(artifact, set(vanish.values()), expected, runner.reference.outputs) if vanish else (),
        notes,
    )


def _is_explained(problem: Problem, inputs: Sequence[str], model: Graph) -> bool:
    """Whether it is the range of a tensor behind one of the `inputs`, which are calibrated on other data: what these
    would make of it is asked beside (`_unexplained`)."""
    if problem.about[:1] != (RANGE,):
        return False
    behind = {problem.about[1], *(name for node in model.ancestors(problem.about[1]) for name in node.inputs)}
    return not behind.isdisjoint(inputs)


def _unexplained(
    inputs: Sequence[str],
    case: Case,
    model: Graph,
    graph: Graph,
    balls: Sequence[Mapping[str, object]],
    recorded: Sequence[Values],
    runner: Runner,
) -> list[Problem]:
    """The ranges that are wrong by data such as the `inputs` seem to be calibrated on, too: what is given for each of
    these, mapped to the range that the artifact rounds it within. None where one of them cannot be mapped, or where
    such data give the ranges of other tensors no better than what is given: then an input's own range is wrong."""
    stated, seen = stated_ranges(graph), ranges_of(recorded)
    known = {moved_from(model, name): name for name in inputs}  # what moves an input reads it as it is given
    if not (known.keys() <= case.feeds[0].keys() and stated.keys() >= {*known.values()} <= seen.keys()):
        return []

    def elsewhere(name: str, x: np.ndarray) -> np.ndarray:
        (low, high), (least, most) = stated[name], seen[name]
        scale = (high - low) / (most - least) if most > least else 1.0
        return np.asarray((x - least) * scale + low, x.dtype)

    feeds = tuple({**feed, **{given: elsewhere(known[given], feed[given]) for given in known}} for feed in case.feeds)
    try:
        records = runner.reference.record(replace(case, feeds=feeds))
    except ReferenceError:
        return []
    there = ranges_of(records)
    others = [name for name in stated.keys() & seen.keys() & there.keys() if moved_from(model, name) not in known]
    nearer = [_apart(stated[name], seen[name]) - _apart(stated[name], there[name]) for name in others]
    if sum(nearer) <= 0:
        return []
    calibration = Calibration(there, sampled=True, records=records)
    found = compare(model, graph, balls, calibration).problems
    brought = f"with {' and '.join(map(repr, known))} brought to the range that is stated for it"
    return [replace(p, message=f"{p.message}, {brought}") for p in found if p.about[:1] == (RANGE,)]


def _apart(stated: Range, seen: Range) -> float:
    """How far the largest that a range holds is from the largest number seen, in octaves."""
    sizes = [max(np.abs(ends).max(), np.finfo(np.float32).tiny) for ends in (stated, seen)]
    return float(abs(np.log2(sizes[0] / sizes[1])))


def _does_nothing(problem: Problem, case: Case, recorded: Sequence[Values], runner: Runner) -> bool:
    """Whether the float model has the same outputs with the wrong constant of the artifact, as far as anybody minds."""
    if problem.stored is None or not np.isfinite(problem.stored).all():
        return False
    proto, feeds = onnx.ModelProto.FromString(case.model), case.feeds
    stated = [
        node.attribute[0].t for node in proto.graph.node if node.op_type == "Constant" and problem.where in node.output
    ]
    for tensor in [*(t for t in proto.graph.initializer if t.name == problem.where), *stated]:
        own = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(problem.stored.reshape(own.shape).astype(own.dtype), tensor.name))
        run = runner.reference.run(replace(case, model=proto.SerializeToString())).outputs
        rows = losses(run, _only([v.name for v in proto.graph.output], recorded[: len(feeds)]))
        return bool(rows) and all(row.relative_l2 < LEAST_CHANGE for row in rows)
    return False


def _as_far_as_it_runs(artifact: Case, runner: Runner) -> tuple[Sequence[Values], tuple[str, str]]:
    """Every tensor before the first node that onnxruntime does not run; and that node, by name and operator."""
    nodes, whole = artifact.proto.graph.node, artifact.proto
    runs: dict[int, Sequence[Values]] = {0: artifact.feeds}
    low, high = 0, len(nodes)
    while high - low > 1:
        middle, part = (low + high) // 2, onnx.ModelProto()
        part.CopyFrom(whole)
        del part.graph.node[middle:], part.graph.output[:]
        try:
            runs[middle] = runner.reference.record(replace(artifact, model=part.SerializeToString()))
            low = middle
        except ReferenceError:
            high = middle
    ended = nodes[low]
    return runs[low], (ended.name or next(filter(None, ended.output), ""), ended.op_type)


def _only(names: Iterable[str], runs: Sequence[Values]) -> list[Values]:
    return [{name: run[name] for name in names if name in run} for run in runs]


def _not_finite(model: Graph, graph: Graph) -> Iterator[Problem]:
    """Constants of the artifact, scales above all, that are no numbers where the float model has no such constant."""
    for node in graph.nodes:
        for name in node.inputs:
            x = graph.constants.get(name)
            if x is not None and x.dtype.kind == "f" and name not in model.constants and not np.isfinite(x).all():
                odd = x[~np.isfinite(x)].ravel()[0]
                yield Problem("parameter", name, np.inf, 0.0, f"{name!r} is {odd}, which {node.op} {label(node)} reads")


def _misshapen(model: Graph, recorded: Sequence[Values], records: Sequence[Values]) -> Iterator[Problem]:
    """Outputs of another shape than the float `model` gives, where rounding decides nothing of it."""
    for name in model.outputs:
        makers = model.ancestors(name)
        shapes = {(a[name].shape, b[name].shape) for a, b in zip(recorded, records) if name in a and name in b}
        other = next((pair for pair in sorted(shapes) if pair[0] != pair[1]), None)
        if other and having(Trait.SHAPE_FROM_NUMBERS).isdisjoint(node.op for node in makers):
            message = f"output {name!r} has shape {list(other[1])}, in the float model {list(other[0])}"
            culprit = (label(makers[-1]), makers[-1].op) if makers else ("", "")
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
    if reason := nothing_quantized(model, quantized):
        swapped = "" if nothing_quantized(model, model) else ", but the float model is: are they in the right order?"
        raise UserError(f"in the quantized model {reason}{swapped}", hint=_HINT, kind="model")


def _check_feeds(feeds: Sequence[Feed]) -> None:
    """Raise UserError for feeds of which nothing can be told."""
    demand_numbers(feeds, "inputs", finite=False)
    if not all(any(x.size for x in feed.values()) for feed in feeds):
        why = "all inputs are empty: nothing could be compared"
        raise UserError(why, hint="give inputs like those that the model is made for", kind="feed")


def _type(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    rank = f", rank {len(tensor.shape.dim)}" if tensor.HasField("shape") else ""
    return f"({input_dtype(value)}{rank})"


def _optimized(
    artifact: Case, graph: Graph, recorded: Recording, runner: Runner
) -> tuple[list[Problem], dict[str, str]]:
    """What differs from the artifact as written under all optimizations; and of what nobody can tell, each tensor with
    the rule by which it is excused."""
    engine = onnx_engine()
    seen = runner.observe(artifact, engine, engine.target.features["float"])
    if not seen.outputs:
        message = f"onnxruntime runs the artifact only without optimizations: {seen.last.message or seen.last.signal}"
        return [Problem("execution", "", np.inf, 0.0, message)], {}
    runs, names = list(zip(seen.outputs, recorded.feeds)), graph.outputs
    if all(
        identical(out[name], record[name]) for out, record in runs for name in names if name in out and name in record
    ):
        return [], {}

    def look(window: Case) -> Verdict:
        return _as_written(window, engine, runner)

    judged = list(survey(artifact, recorded, look, lambda verdict: verdict.failed))
    problems = [_told(window, artifact, recorded, look) for window in judged if window.verdict.failed]
    affirmed = {node for window in judged if window.verdict.word is Word.AGREES for node in window.nodes}
    nodes = artifact.proto.graph.node
    excused = {
        name: window.verdict.rule
        for window in judged
        if window.verdict.word is Word.ABSTAINS
        for node in set(window.nodes) - affirmed
        for name in nodes[node].output
    }
    return problems, excused


def _told(window: Judged, artifact: Case, recorded: Recording, look: Callable[[Case], Verdict]) -> Problem:
    """The problem of a window, told of as few of its nodes as have it."""

    def seen(nodes: Sequence[int]) -> Verdict:
        try:
            return look(submodel(artifact, nodes, recorded))
        except UnrecordedError:
            return Verdict(Word.AGREES)

    verdict = window.verdict
    kept = shrink(window.nodes, lambda nodes: seen(nodes).kind == verdict.kind, least=1)
    if len(kept) < len(window.nodes):
        verdict = seen(kept)
    nodes = [artifact.proto.graph.node[k] for k in kept]
    named = [node for node in nodes if full_name(node.op_type, node.domain) not in PLAIN_OPERATORS] or nodes
    where = ", ".join(node.name or next(filter(None, node.output)) for node in named)
    mild = verdict.kind == Kind.OFF_BY_ONE_STEP
    return Problem("execution", where, verdict.error, verdict.bound, verdict.message, mild=mild)


def _exceptions(engine: Installed, recipe: Recipe) -> set[str]:
    """The names of what the engine is documented to do otherwise than the model as written says, under a recipe."""
    options = effective(engine.target, recipe)
    return {rule.name for rule in engine.target.exceptions if rule.holds(options)}


def _as_written(window: Case, engine: Installed, runner: Runner) -> Verdict:
    """Whether a part of the artifact runs as written under all optimizations. Where it does not run at all, that is
    agreed to, because the whole artifact does."""
    graph = graphs.in_order(graphs.read(window.proto))
    recipe = engine.target.features["float"]
    seen = runner.observe(window, engine, effective(engine.target, recipe))
    # Where a window was cut from its neighbours, the runtime may round what the model as written does not. What a
    # processor cuts is asked for where nothing else explains it: of that less is known.
    exceptions = _exceptions(engine, recipe)
    ways = [exceptions - {saturation.RULE}, *([exceptions] if saturation.is_possible() else [])]
    verdict = Verdict(Word.AGREES)
    for feed, outputs in zip(window.feeds, seen.outputs or ()):
        strict = evaluate(graph, feed)
        problems = execution(graph, strict, feed, outputs).problems
        if not problems:
            continue
        mild = all(problem.mild for problem in problems.values())
        forms = (documented(graph, way) for way in ways[: 1 if mild else 2])
        tried = ((rules, evaluate(form, feed), form) for form, rules in forms if rules)
        right = ((rules, balls) for rules, balls, form in tried if not execution(form, balls, feed, outputs).problems)
        if told := next(right, None):
            rules, allowed = told
            if saturation.RULE in rules or any(is_ill(allowed.balls[name]) for name in problems):
                verdict = Verdict(Word.ABSTAINS, rule=" and ".join(sorted(rules)))
            continue
        worst = min(problems.values(), key=lambda problem: problem.mild)
        kind, message = Kind.OFF_BY_ONE_STEP, worst.message
        if not worst.mild:
            kind = Kind.WRONG_VALUES
            message = f"right without optimizations, wrong with all of them (a fusion or a fused kernel): {message}"
        return Verdict(Word.DIVERGES, kind=kind, message=message, error=worst.error, bound=worst.bound)
    return verdict


def _distinct(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """One problem for each question and place, the worst one; what is no number first, then parameters."""
    worst: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        key = (problem.question, problem.where)
        worst[key] = max(worst.get(key, problem), problem, key=lambda p: p.error)
    order = ("parameter", "topology", "execution")
    return tuple(sorted(worst.values(), key=lambda p: (not _is_of_no_number(p), order.index(p.question))))


def _is_of_no_number(problem: Problem) -> bool:
    """Whether it is an infinite or NaN parameter, which spoils whatever comes behind it."""
    return problem.question == "parameter" and not np.isfinite(problem.error)
