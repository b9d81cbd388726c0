"""judge: the verdict on one observation. Which tier is asked when, and what is left undecided, stands here.

    reference refuses the model        INVALID
    reference crashes, hangs, ...      ABSTAINS
    all tensors of all feeds too large each feed by itself
    a stage failed                     structure: FAILS, CRASHES, HANGS or REJECTS
    outputs, shapes, dtypes            structure
    what was to be quantized           judged as what is not quantized is, where the target executed that too
    weights, or what a converter makes of them beforehand, too large to be read
                                       structure (NaN); parts of the model have to tell
    nothing quantized                  exact where no operation rounds, else running error, else sampling
    weights quantized, losslessly      the same
    nothing quantized before an output the same
    weights that can be read           each within half a step, then the same of the model with these weights
    otherwise quantized                structure (NaN), then lossless and artifact (or its simulation), else budget
    what no tier decides               ABSTAINS
    a failure that rests on what the standard leaves open (underspecified)   ABSTAINS

Bits equal to the reference's agree without further questions; where an output has no elements, structure agrees, and
nothing vouches for values. What is not exact where it should be, but within the bound of rounding, agrees too,
by the rule "inexact-kernel". Every feed and output is judged; the worst divergence speaks for all, then any abstention.
Whether a later feed would be right on its own, the caller finds out.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from driftnet.model.arrays import distance, identical
from driftnet.model.artifact import UNTOLD
from driftnet.model.case import Case
from driftnet.model.graph import Graph, Node, Values, read
from driftnet.model.operators import Trait, parameters, traits_of
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.oracle.artifact import reach
from driftnet.oracle.artifact.simulated import tier as simulation
from driftnet.oracle.artifact.simulated.weights import dequantized, misquantized, with_and_without_wrong
from driftnet.oracle.artifact.verified import tier as artifact
from driftnet.oracle.ball_arithmetic import ball
from driftnet.oracle.ball_arithmetic.quantized import along
from driftnet.oracle.exemptions import documented, underspecified
from driftnet.oracle.question.answers import Decide, abstains, agrees
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme import formulas
from driftnet.oracle.scheme.precomputed import TooMuchError, fits_halves, halved, precomputed
from driftnet.oracle.second_opinion import Blame, blame
from driftnet.oracle.tiers import budget, exact, lossless, running_error, sampling, structure
from driftnet.oracle.tolerances.table import CODE_ERROR, LOOSE, LOOSE_ROUNDINGS, ONE_STEP
from driftnet.run.reference import Reference, ReferenceError, TooLargeError
from driftnet.targets.interface import Options, Target
from driftnet.util import spent


@spent.part("oracle")
def judge(case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference) -> Verdict:
    """What the oracle says of `observation`, made by running `target` on `case` under `options` (those in effect)."""
    verdict = _judged(case, observation, target, options, reference)
    if verdict.failed or not observation.uninspected:
        return verdict
    return dataclasses.replace(verdict, message="; ".join(filter(None, (verdict.message, observation.uninspected))))


def _judged(case: Case, observation: Observation, target: Target, options: Options, reference: Reference) -> Verdict:
    expected = reference.run(case)
    if expected.error:
        return Verdict(Word.INVALID, message=f"the reference refuses the model: {expected.error}")
    if expected.broken:
        return Verdict(Word.ABSTAINS, message=expected.broken)
    failed = structure.failed_stage(observation, target)
    try:
        question = _question(case, observation, target, options, reference)
        if failed:
            return _unless_underspecified(question, failed, f"{observation.last.message}\n{observation.last.log}")
        misshapen = structure.misshapen(question)
        if misshapen and misshapen.word is not Word.ABSTAINS:
            return _unless_underspecified(question, misshapen)
        halves = (scheme := target.scheme(options)) is not None and scheme.halves
        return _wrong_before(question, observation) or misshapen or _of_values(question, halves=halves)
    except ReferenceError as e:
        if failed:
            return failed
        if isinstance(e, TooLargeError) and len(case.feeds) > 1:
            return _one_by_one(case, observation, target, options, reference)
        operators = tuple(sorted({node.op for node in read(case.proto, case.file).nodes}))
        return Verdict(Word.ABSTAINS, message=f"the reference cannot be asked further: {e}", abstained=operators)


def _one_by_one(
    case: Case, observation: Observation, target: Target, options: Options, reference: Reference
) -> Verdict:
    """What `_judged` says of one feed after the other, where all tensors of all feeds are too large: up to the first of
    which it says nothing, for then the windows have to tell, or by which it accuses the artifact, which is that of all.
    """
    verdicts: list[Verdict] = []
    for k in range(len(case.feeds)):
        verdict = _judged(*_with_one_feed(case, observation, k), target, options, reference)
        verdicts.append(dataclasses.replace(verdict, feed=k))
        if verdict.word is Word.ABSTAINS or (verdict.failed and verdict.stage == "quantize"):
            break
    return _overall(verdicts)


def _with_one_feed(case: Case, observation: Observation, feed: int) -> tuple[Case, Observation]:
    """What was made of the feed with that index. What a quantizer calibrates on stays the same."""
    one = slice(feed, feed + 1)
    seen = dataclasses.replace(observation, outputs=observation.outputs[one], plain=observation.plain[one])
    return dataclasses.replace(case, feeds=case.feeds[one], calibration=case.calibration or case.feeds), seen


def who_is_wrong(
    verdict: Verdict, case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference
) -> Blame:
    """Whether the target or the reference is, where `judge` said `verdict`, a failure, of the same observation."""
    if verdict.word is not Word.DIVERGES or verdict.kind not in (Kind.WRONG_VALUES, Kind.NAN, Kind.OFF_BY_ONE_STEP):
        return Blame.TARGET
    if not observation.outputs or verdict.output not in observation.outputs[verdict.feed]:
        return Blame.TARGET  # a weight is wrong, whatever the outputs are
    question = _question(case, observation, target, options, reference)
    if verdict.before:
        question = dataclasses.replace(question, observed=observation.plain)
    return blame(question, (verdict.feed, verdict.output))


def of_wrong_weights(
    case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference
) -> tuple[Sequence[Values], Sequence[Values]] | None:
    """What `case` gives in the reference with the weights that the artifact has where it should have others, and with
    what it should have; None where no weight is wrong. What else quantizing does is in neither."""
    pair = with_and_without_wrong(_question(case, observation, target, options, reference))
    if pair is None:
        return None
    held, right = (reference.run(dataclasses.replace(case, model=model, calibration=())).outputs for model in pair)
    return (held, right) if held and right else None


def cut_tensors(
    case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference
) -> set[str]:
    """The tensors that the artifact cuts to codes, which its target declares, instead of rounding them."""
    return set(simulation.cut(_question(case, observation, target, options, reference)))


def of_nearest_codes(
    case: Case, observation: Observation, *, target: Target, options: Options, reference: Reference
) -> Sequence[Values] | None:
    """What `case` gives where the artifact, executed as it is, takes the nearest code everywhere; None where that is
    not known."""
    return simulation.rounded_only(_question(case, observation, target, options, reference))


def _question(case: Case, observation: Observation, target: Target, options: Options, reference: Reference) -> Question:
    scheme = target.scheme(options)
    return Question(
        case,
        tuple(observation.outputs),
        reference.run(case).outputs,
        reference,
        None if scheme and scheme.halves else scheme,
        frozenset(rule.name for rule in target.exceptions if rule.holds(options)),
        observation.artifact,
        approximations=target.approximations,
    )


def _wrong_before(question: Question, observation: Observation) -> Verdict | None:
    """The failure of what was to be quantized, if it was executed and fails. No noise of quantization hides that."""
    if not observation.plain:
        return None
    plain = dataclasses.replace(question, observed=observation.plain, scheme=None, artifact=UNTOLD)
    misshapen = structure.misshapen(plain)
    verdict = _unless_underspecified(plain, misshapen) if misshapen else _of_values(plain)
    if not verdict.failed:
        return None
    return dataclasses.replace(verdict, before=True, message=f"before it is quantized, {verdict.message}")


def _of_values(question: Question, *, halves: bool = False) -> Verdict:
    """The verdict on outputs that have the right shapes and dtypes; `halves` says whether weights are in float16."""
    unread = ""
    if halves:
        try:
            question = halved(question)
        except TooMuchError as e:
            unread = str(e)
    verdicts = [_unless_underspecified(question, verdict) for verdict in _verdicts(question, unread)]
    return _overall([dataclasses.replace(v, loose=True) if _is_loose(question, v) else v for v in verdicts])


def _is_loose(question: Question, verdict: Verdict) -> bool:
    """Whether an output agrees within a bound of rounding that would hide a wrong node, where it came nearest to its
    bound. One of noise is another matter: that is as wide as the steps are."""
    if verdict.word is not Word.AGREES or verdict.tier not in (Tier.RUNNING_ERROR, Tier.SAMPLING):
        return False
    _, x = question.pair((verdict.feed, verdict.output))
    if not x.size or x.dtype.kind != "f":
        return False
    most = max(LOOSE, LOOSE_ROUNDINGS * float(np.finfo(x.dtype).eps))
    return verdict.bound > most * float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def _unless_underspecified(question: Question, verdict: Verdict, words: str = "") -> Verdict:
    """`verdict`, unless it blames the target for what the standard leaves open. Crashes and hangs are never right.

    words   what the target said of a stage that failed: an error is about the nodes that it names
    """
    if verdict.word not in (Word.DIVERGES, Word.FAILS):
        return verdict
    bounded = verdict.tier not in (Tier.RUNNING_ERROR, Tier.ARTIFACT, Tier.STRUCTURE)
    blamed = {verdict.output} if verdict.output else underspecified.named(question.graph, words)
    found = underspecified.find(question.graph, question.records, blamed, bounded=bounded)
    if found is None:
        return verdict
    rule, node = found
    return Verdict(Word.ABSTAINS, message=f"{node.op}: {rule.name}", rule=rule.name, abstained=(node.op,))


def _verdicts(question: Question, unread: str) -> list[Verdict]:
    """One verdict for each feed and output: first of what is equal, then of what no tier of numbers can be asked of,
    then of what is not quantized, and of what is.

    unread   why the weights, which are rounded to float16, cannot be read; "" where they can or are not
    """
    disputed = [p for p in question.places if not identical(*question.pair(p))]
    equal = [p for p in question.places if p not in disputed]
    verdicts = [agrees(Tier.EXACT if question.pair(p)[1].size else Tier.STRUCTURE, p) for p in equal]
    hidden = [p for p in disputed if any(_hides_rounding(question, node) for node in question.graph.ancestors(p[1]))]
    verdicts += [abstains(Tier.RUNNING_ERROR, p, "constants of a subgraph are rounded", []) for p in hidden]
    disputed = [p for p in disputed if p not in hidden]
    if not disputed:
        return verdicts
    if unread and not fits_halves(question):
        return [
            *verdicts,
            *(abstains(Tier.STRUCTURE, p, unread, [n.op for n in question.graph.nodes]) for p in disputed),
        ]
    if unread:
        return [*verdicts, *structure.of_large(question, disputed, unread)]
    if question.case.file is not None:
        return [*verdicts, *structure.of_large(question, disputed)]
    if question.scheme is not None and question.written is None:
        try:
            question = precomputed(question)
        except TooMuchError as e:
            return [*verdicts, *structure.of_large(question, disputed, str(e))]
    floats = _not_quantized(question, disputed)
    if floats:
        verdicts += _named(question, _float(_to_rounding(question), floats)).values()
        disputed = [p for p in disputed if p not in floats]
    random = [p for p in disputed if running_error.depends_on_chance(question, p)]
    verdicts += [agrees(Tier.RUNNING_ERROR, p, rule=running_error.RANDOM) for p in random]
    disputed = [p for p in disputed if p not in random]
    if not disputed:
        return verdicts
    if found := structure.nonsense(question) or misquantized(question):  # whatever is computed by it
        return [*_named(question, {(found.feed, found.output): found}).values()]
    return [*verdicts, *_of_codes(question, disputed).values()]


def _not_quantized(question: Question, places: Sequence[Place]) -> list[Place]:
    """Those of the places to which no rounding of a quantizer comes."""
    untouched = reach.untouched(question)
    return [p for p in places if question.scheme is None or p[1] in untouched or lossless.keeps_weights(question, p)]


def _of_codes(question: Question, places: Sequence[Place]) -> dict[Place, Verdict]:
    """The verdicts on what is quantized: on what codes stand for, where floats alone are computed with."""
    if (floating := dequantized(question)) is not None:
        return _float(dataclasses.replace(floating, inexact=_to_rounding(question).inexact), places)
    return _quantized(question, places)


def _hides_rounding(question: Question, node: Node) -> bool:
    """Whether constants inside of `node` may be held more coarsely than float32 holds them."""
    return Trait.HAS_BODY in traits_of(node.op) and not question.coarse.isdisjoint(node.outputs)


def _named(question: Question, verdicts: dict[Place, Verdict]) -> dict[Place, Verdict]:
    """`verdicts`; where they accuse, those of the artifact instead that name a node."""
    wrong = [place for place, verdict in verdicts.items() if verdict.word is Word.DIVERGES]
    told = artifact.decide(question, wrong) if wrong and question.written is not None else {}
    return verdicts | {place: verdict for place, verdict in told.items() if verdict.culprits}


def _to_rounding(question: Question) -> Question:
    """The question with weights that are inexact, where they are codes times a scale that is no power of two.

    What MNN makes of the codes of -4, 0 and 0 are -4 and twice 2.4e-7, and then no product with a weight is exact.
    """
    if question.scheme is None or question.scheme.activation_codes is not None:
        return question
    weights = formulas.inexact_weights(question.graph, question.scheme)
    held = {name: question.inexact.get(name, 0.0) + CODE_ERROR * size for name, size in weights}
    return dataclasses.replace(question, inexact={**question.inexact, **held})


def _quantized(question: Question, places: Sequence[Place]) -> dict[Place, Verdict]:
    """Lossless and artifact ask different questions, and either may accuse. Where neither can tell, budget is asked;
    and at last the artifact again, of what the reference makes of it too."""
    verdicts = dict(lossless.decide(question, places))
    for tier in (artifact.decide, simulation.decide):
        for place, second in tier(question, places).items():
            tells = second.word is not Word.ABSTAINS or second.rule  # what is documented is no noise for budget
            heard = tells and verdicts[place].word is not Word.DIVERGES
            if heard or second.culprits:  # where both accuse, the one that names a node is believed
                verdicts[place] = second
    unknown = [place for place in places if verdicts[place].word is Word.ABSTAINS and not verdicts[place].rule]
    verdicts |= budget.decide(question, unknown) if unknown else {}
    unknown = [place for place in unknown if verdicts[place].word is Word.ABSTAINS and not verdicts[place].rule]
    same = artifact.as_reference_runs(question, unknown) if unknown else []
    last = artifact.decide(question, same, as_run=True) if same else {}
    return verdicts | {place: verdict for place, verdict in last.items() if verdict.word is Word.AGREES}


def _asked(tiers: Sequence[Decide], question: Question, places: Sequence[Place]) -> dict[Place, Verdict]:
    """The verdicts of the first tier that can tell, for each place."""
    verdicts: dict[Place, Verdict] = {}
    for tier in tiers:
        open_places = [p for p in places if p not in verdicts or verdicts[p].word is Word.ABSTAINS]
        if open_places:
            verdicts |= tier(question, open_places)
    return verdicts


def _float(question: Question, places: Sequence[Place]) -> dict[Place, Verdict]:
    """Exact has the word where it has one. Bounds have it elsewhere, and may excuse an inexact kernel. What may be
    computed in half precision is in float32 neither exact nor as samples are."""
    if question.in_halves:
        return {p: _excused(question, p, v) for p, v in running_error.decide(question, places).items()}
    verdicts = dict(exact.decide(question, places))
    doubtful = [p for p in places if verdicts[p].word is Word.ABSTAINS or verdicts[p].rule]
    for place, second in _asked((running_error.decide, sampling.decide), question, doubtful).items():
        if verdicts[place].word is Word.ABSTAINS:
            verdicts[place] = second
        elif second.word is Word.AGREES:
            verdicts[place] = dataclasses.replace(second, rule=exact.INEXACT_KERNEL)
        else:
            verdicts[place] = dataclasses.replace(verdicts[place], rule="")
    return {place: _excused(question, place, _one_step(question, place, v)) for place, v in verdicts.items()}


def _excused(question: Question, place: Place, verdict: Verdict) -> Verdict:
    """`verdict`, unless the target documents to round what the model as written does not."""
    if verdict.word is not Word.DIVERGES:
        return verdict
    return documented.excuse(question, question.graph, place, verdict.tier) or verdict


def _one_step(question: Question, place: Place, verdict: Verdict) -> Verdict:
    """A divergence by at most one step of the Q/DQ pair that made the output is of a kind of its own."""
    if verdict.kind != Kind.WRONG_VALUES:
        return verdict
    graph, name = question.graph, place[1]
    while (node := graph.producers.get(name)) and Trait.MOVES in traits_of(node.op):
        name = next((name for k, name in enumerate(node.inputs) if k not in parameters(node.op)), "")
    step, error = np.ones(()), distance(*question.pair(place))
    if node and node.op == "DequantizeLinear":
        step = _steps(node, graph, error.shape if name == place[1] else None)
        node = graph.producers.get(node.inputs[0])
    if node is None or node.op != "QuantizeLinear" or (error > ONE_STEP * step).any():
        return verdict
    return dataclasses.replace(verdict, kind=Kind.OFF_BY_ONE_STEP)


def _steps(node: Node, graph: Graph, shape: tuple[int, ...] | None) -> np.ndarray:
    """The step of each element that a DequantizeLinear makes, of `shape`; the smallest where that is not known."""
    scale = np.abs(graph.constants.get(node.inputs[1], np.zeros(1)).astype(np.float64))
    if shape is None:
        return np.asarray(scale.min())
    axis, block = int(node.attributes.get("axis", 1)), int(node.attributes.get("block_size", 0))
    return along(ball.exact(scale), shape, axis, block).midpoint


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Which verdict speaks for all: the worst divergence, else an abstention, else the agreement nearest its bound."""
    for word in (Word.DIVERGES, Word.ABSTAINS):
        if found := [v for v in verdicts if v.word is word]:
            operators = tuple(sorted({op for v in found for op in v.abstained}))
            return dataclasses.replace(max(found, key=_excess), abstained=operators)

    def nearness(verdict: Verdict) -> tuple[bool, float, bool]:
        return bool(verdict.rule), _excess(verdict), verdict.tier != Tier.STRUCTURE

    nearest = max(verdicts, key=nearness, default=Verdict(Word.AGREES))
    return dataclasses.replace(nearest, loose=True) if any(verdict.loose for verdict in verdicts) else nearest


def _excess(verdict: Verdict) -> float:
    return verdict.error / verdict.bound if verdict.bound else math.inf if verdict.error else 0.0
