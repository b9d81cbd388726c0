"""T3, sampling: Monte-Carlo arithmetic, the fallback for any operator and any data.

The reference is rerun with every tensor use perturbed, x (1 + u U(-2, 2)); `spread` is how far that moves an element.
An error is one that a right answer may have while it is at most

    10 spread max(1, sqrt(K) / 4) + 2u |y| + 1.7u max|y| + approximation

with u the unit roundoff of the output's dtype, that of float32 for a float64, which engines may compute in it. K is the
longest sum before the output: a running sum of K terms of random sign errs by sqrt(K)/4 of what perturbing its terms
shows. `approximation` is four times what noise as large as the allowances of APPROXIMATIONS was seen to move the
output; those of what is inside a subgraph, the largest of them, are for its results. Integers and truth values have to
be equal, but where a sample flips them, and then those of some sample. So with a float that rounding moves by more than
10 % of max|y|: as near has it to be to what some run gave, or nobody can tell. An output of which it moves many
elements so far has no answer that could be checked. Nothing inside a subgraph is perturbed: of what it computes only a
gross error can be told from rounding.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import onnx
from driftnet.model.arrays import distance
from driftnet.model.graph import Node, Values, nested
from driftnet.model.inspect import Case
from driftnet.model.operators import RECURRENT, Trait, traits_of
from driftnet.model.verdict import Tier, Verdict, Word
from driftnet.oracle.ball_arithmetic.ball import format_of
from driftnet.oracle.question.answers import abstains, agrees, diverges
from driftnet.oracle.question.question import TOO_LARGE, Place, Question
from driftnet.oracle.tolerances.approximations import APPROXIMATIONS, Approximation
from driftnet.oracle.tolerances.table import (
    APPROXIMATED_SPREADS,
    GROSS,
    ILL,
    ILL_SHARE,
    SAMPLING_OF_LARGEST,
    SAMPLING_RELATIVE,
    SPREADS,
)
from driftnet.util import spent
from onnx import helper

SAMPLES = (0, 6, 24)  # most outputs need none: they are within the floor. Before accusing, ask for many.
COARSE = "constants are held more coarsely than samples move them"
UNMOVED = "nothing inside its subgraphs was moved"


@spent.part("oracle sampling")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Asks for samples only where the floor alone does not settle it."""
    verdicts: dict[Place, Verdict] = {}
    for place in places:
        if any(not question.coarse.isdisjoint(node.inputs) for node in question.graph.ancestors(place[1])):
            verdicts[place] = abstains(Tier.SAMPLING, place, COARSE, _operators(question, place))
    disputed = [place for place in places if place not in verdicts]
    for count in SAMPLES:
        if count and question.is_too_large:
            verdicts |= {p: abstains(Tier.SAMPLING, p, TOO_LARGE, _operators(question, p)) for p in disputed}
            break
        samples = question.reference.sample(question.case, count=count) if count else ()
        moved = _approximated(question) if count else {}
        for place in disputed:
            feed, name = place
            runs = [sample[feed][name] for sample in samples]
            verdicts[place] = _judge(question, place, runs, moved.get(place, np.zeros(())))
        disputed = [p for p in disputed if verdicts[p].word is Word.DIVERGES]
        if not disputed or (count and all(verdicts[p].error > GROSS * verdicts[p].bound for p in disputed)):
            break
    for place, said in verdicts.items():
        if said.word is Word.DIVERGES and said.error <= GROSS * said.bound and _has_subgraph(question, place):
            verdicts[place] = abstains(Tier.SAMPLING, place, UNMOVED, _operators(question, place))
    return verdicts


def _judge(question: Question, place: Place, samples: Sequence[np.ndarray], moved: np.ndarray) -> Verdict:
    got, expected = question.pair(place)
    if any(sample.shape != expected.shape for sample in samples):
        return abstains(Tier.SAMPLING, place, "rounding changes the shape", _operators(question, place))
    spread = np.zeros(expected.shape)
    for sample in samples:
        spread = np.maximum(spread, distance(sample, expected))
    if expected.dtype.kind == "f":
        size = np.where(np.isfinite(expected), np.abs(expected), 0).astype(np.float64)
        bound, beside = _bound(question, place, size, spread) + moved, ILL * size.max(initial=0.0)
        ill = spread > beside
    else:
        ill, beside = spread + moved > 0, 0.0
        bound = np.where(ill, np.inf, 0.0)
    if ill.size and ill.mean() > ILL_SHARE:
        return abstains(Tier.SAMPLING, place, "rounding moves it too far", _operators(question, place))
    error = distance(got, expected)
    wrong = error > bound
    if wrong.any():
        return diverges(Tier.SAMPLING, question, place, wrong, bound)
    nearest = np.min([distance(run, got) for run in (*samples, expected)], axis=0)
    if (ill & (nearest > beside)).any():
        return abstains(Tier.SAMPLING, place, "some of it may be anything", _operators(question, place))
    worst = int(np.argmax(error)) if error.size else 0
    evidence = {"error": float(error.flat[worst]), "bound": float(bound.flat[worst])} if error.size else {}
    return agrees(Tier.SAMPLING, place, **evidence)


def _bound(question: Question, place: Place, size: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """What rounding may move elements as large as `size`."""
    own = format_of(question.pair(place)[1].dtype)
    factor = SPREADS * max(1.0, math.sqrt(_longest_sum(question, place)) / 4) if spread.any() else SPREADS
    return np.asarray(
        factor * spread
        + SAMPLING_RELATIVE * own.unit * size
        + SAMPLING_OF_LARGEST * own.unit * size.max(initial=0.0)
        + own.tiny
    )


def _has_subgraph(question: Question, place: Place) -> bool:
    """Whether `place` depends on what a subgraph computes."""
    return any(Trait.HAS_BODY in traits_of(node.op) for node in question.graph.ancestors(place[1]))


def _operators(question: Question, place: Place) -> list[str]:
    return [node.op for node in question.graph.ancestors(place[1])]


def _longest_sum(question: Question, place: Place) -> int:
    """The largest number of terms that any operator before `place` adds up."""
    feed, name = place
    values = {**question.records[feed], **question.graph.constants}
    sums = [node for node in question.graph.ancestors(name) if Trait.SUMS in traits_of(node.op)]
    return max((_terms(node, values) for node in sums), default=1)


def _terms(node: Node, values: Values) -> int:
    before, traits = values[node.inputs[0]], traits_of(node.op)
    if node.op == "ConvTranspose":
        weights = values[node.inputs[1]].shape
        return int(weights[0] // max(int(node.attributes.get("group", 1)), 1) * math.prod(weights[2:]))
    if Trait.WEIGHTED | Trait.SLIDES in traits:
        return int(math.prod(values[node.inputs[1]].shape[1:]))
    if node.op == "Gemm":
        return int(before.shape[0 if node.attributes.get("transA", 0) else 1])
    if Trait.SLIDES | Trait.POOLS in traits:
        return int(math.prod(node.attributes.get("kernel_shape", (1,))))
    if node.op in RECURRENT:
        return sum(values[name].shape[-1] for name in node.inputs[1:3])
    along_one_axis = node.op in {"MatMul", "Softmax", "LogSoftmax"}  # no trait says along how many
    return max(before.shape, default=1) if along_one_axis else before.size


def _approximated(question: Question, count: int = 6) -> dict[Place, np.ndarray]:
    """How far each place moves when the results of approximated operators do, by their allowance; {} without any.

    The noise comes in as graph inputs: independent on odd runs; one common shift on even runs, because the error of
    a polynomial has the same sign over whole intervals.
    """
    approximated = {
        name: allowed
        for node in question.graph.nodes
        if (allowed := _allowed(node, question.graph.opset))
        for name in node.outputs
        if isinstance(made := question.records[0].get(name), np.ndarray) and made.dtype.kind == "f"
    }
    if not approximated:
        return {}
    rng = np.random.default_rng(0)
    feeds = []
    for given, record in zip(question.case.feeds, question.records):
        for k in range(count):
            noise = {_noisy(name): _noise(rng, k, allowed, record[name]) for name, allowed in approximated.items()}
            feeds.append({**given, **noise})
    model = _with_noise(question.case.proto, {name: question.records[0][name] for name in approximated})
    runs = question.reference.run(Case(model.SerializeToString(), tuple(feeds))).outputs
    moved = {}
    for feed, name in question.places:
        expected = question.expected[feed][name]
        same = [run[name] for run in runs[feed * count : (feed + 1) * count] if run[name].shape == expected.shape]
        moved[feed, name] = APPROXIMATED_SPREADS * np.max([distance(x, expected) for x in same], axis=0, initial=0.0)
    return moved


def _allowed(node: Node, opset: int) -> Approximation | None:
    """The allowance of a node, the largest of what is inside its subgraphs; None where nothing is approximated."""
    found = [APPROXIMATIONS[one.op] for one in nested([node], opset) if one.op in APPROXIMATIONS]
    return Approximation(*map(max, zip(*found, strict=True))) if found else None


def _noise(rng: np.random.Generator, run: int, allowed: Approximation, value: np.ndarray) -> np.ndarray:
    absolute, relative, of_largest = allowed
    unit = rng.uniform(-1, 1, value.shape) if run % 2 else np.full(value.shape, (-1.0) ** (run // 2))
    size = np.where(np.isfinite(value), np.abs(value), 0)
    return np.asarray(unit * (absolute + relative * size + of_largest * size.max(initial=0)), value.dtype)


def _noisy(name: str) -> str:
    return f"{name}~noise"


def _with_noise(model: onnx.ModelProto, moved: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """`model` with a graph input added to each of the tensors `moved`."""
    noisy = deepcopy(model)
    del noisy.graph.node[:]
    for node in model.graph.node:
        copy = noisy.graph.node.add()
        copy.CopyFrom(node)
        for k, name in enumerate(node.output):
            if name in moved:
                copy.output[k] = f"{name}~exact"
                noisy.graph.node.append(helper.make_node("Add", [f"{name}~exact", _noisy(name)], [name]))
                dims = [f"{_noisy(name)}{axis}" for axis in range(moved[name].ndim)]
                dtype = helper.np_dtype_to_tensor_dtype(moved[name].dtype)
                noisy.graph.input.append(helper.make_tensor_value_info(_noisy(name), dtype, dims))
    return noisy
