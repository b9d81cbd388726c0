"""Grown back: from the smallest model that fails to one that somebody has who exports a trained network.

    python -m driftnet.learning.growing CORPUS [--only IDS] [--causes N] [--seconds S]

A maintainer acts on damage. So the reduced case gets, one after the other, what reduction took away, each as long as it
goes on to fail in the same way: an input, usual sizes, weights that are constants and look trained, layers before and
a classifier behind. What it does then is measured over fresh inputs: the error end to end, and how often the largest of
the outputs is another one. The model stands in the folder of the cause as grown/.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.causes import record
from driftnet.causes.host import host_of
from driftnet.causes.impact import ranked
from driftnet.causes.record import CauseRecord
from driftnet.findings import corpus
from driftnet.findings.arrange import GROWN
from driftnet.findings.corpus import SavedCase
from driftnet.generators.mutation.draft import Draft
from driftnet.learning import edits
from driftnet.learning.experiment import Experiments
from driftnet.model.arrays import distance
from driftnet.model.case import Case, Feed
from driftnet.model.inspect import elements, graph_inputs, nodes
from driftnet.model.verdict import Kind
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve, where_seen
from onnx import helper

SECONDS = 20.0
"""CPU seconds of all processes for one cause."""
USUAL = (16, 8, 4)
"""Sizes that are tried for each dim, the largest that goes on to fail is taken."""
MOST_ELEMENTS = 2**14
"""Of inputs and constants; twice as many may be computed."""
CLASSES = 10
INPUTS = 8
"""Inputs over which the damage is measured."""
RANDOM, CLASSIFIER = "random inputs", "a classifier behind"


@dataclass(frozen=True, eq=False)
class Grown:
    """A model that fails as the saved case does.

    of       the id of the saved case
    added    what it has that the saved case had not, in words
    damage   {"inputs": how many it was measured on, "relative_l2": error of the first output over all of them,
             "other_class": where it ends in a classifier, the share of the inputs that get another class}; empty where
             no value is wrong
    """

    of: str
    case: Case
    added: tuple[str, ...]
    damage: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """What cause.json says of it."""
        size = {"nodes": nodes(self.case), "elements": elements(self.case)}
        return {"of": self.of, "added": list(self.added), **size, **self.damage}


Step = tuple[str, Callable[[Case], Case | None]]
"""What is added, in words, and how."""


def grow(saved: SavedCase, installed: Installed, runner: Runner, seconds: float = SECONDS) -> Grown | None:
    """The largest model that `saved` was grown back to within so many CPU seconds; None where nothing could be added,
    or where it does not fail."""
    lab = Experiments(saved, installed, runner, seconds).begun()
    if lab is None or not lab.steady:
        return None
    case, added = saved.case, dict[str, None]()
    for steps in (_input, _sizes, _weights, _numbers, _stem, _head):
        for said, make in steps(case, lab):
            if not lab.left:
                break
            grown = make(case)
            if grown is not None and _is_small(grown, lab) and lab.fails(grown, saved.recipe):
                case = grown
                added[said] = None
                if steps in (_stem, _head):  # one of them is enough
                    break
    return Grown(saved.id, case, tuple(added), _damage(case, added, saved, installed, runner)) if added else None


def _is_small(case: Case, lab: Experiments) -> bool:
    made = sum(np.size(x) for x in lab.tensors(case).values())
    return elements(case) <= MOST_ELEMENTS and made <= 2 * MOST_ELEMENTS


def _input(case: Case, lab: Experiments) -> Iterator[Step]:
    """What nobody feeds is folded: the first operand of floats is fed."""
    host = host_of(case)
    for name in dict.fromkeys(name for node in host.graph.nodes for name in node.inputs):
        x = host.graph.constants.get(name)
        if not graph_inputs(case.proto) and x is not None and x.dtype.kind == "f":
            yield "an input", partial(edits.as_input, name=name)


def _sizes(case: Case, lab: Experiments) -> Iterator[Step]:
    """Each dim at a usual size, the largest first."""
    for k in range(len(edits.resizable_groups(case, host_of(case, lab.tensors(case))))):
        for n in USUAL:
            yield "usual sizes", partial(_sized, lab, k, n)


def _sized(lab: Experiments, k: int, n: int, case: Case) -> Case | None:
    """The k-th of the sizes that can change at `n`, where it is smaller; a batch of one is usual."""
    host = host_of(case, lab.tensors(case))
    found, leaves = edits.resizable_groups(case, host), {v.name for v in graph_inputs(case.proto)}
    tensors = {**host.tensors, **host.graph.constants}
    own = [size for size in found[k] if size.what == "dim" and size.owner in tensors] if k < len(found) else []
    if not own or np.shape(tensors[own[0].owner])[own[0].at] >= n:
        return None
    if any(size.at == 0 and size.owner in leaves and np.ndim(tensors[size.owner]) > 1 for size in own):
        return None
    return edits.sized(case, found[k], own[0], n, tensors)


def _weights(case: Case, lab: Experiments) -> Iterator[Step]:
    """All that is fed but the first becomes constant, as exporters have it."""
    fed = [v.name for v in graph_inputs(case.proto) if case.feeds[0][v.name].dtype.kind == "f"]
    for name in fed[1:]:
        if all(np.array_equal(feed[name], case.feeds[0][name]) for feed in case.feeds):
            yield "constant weights", partial(edits.as_constant, name=name)


def _numbers(case: Case, lab: Experiments) -> Iterator[Step]:
    """Random inputs, and weights as large as those of trained layers."""
    host = host_of(case)
    for name in dict.fromkeys(name for node in host.graph.nodes for name in node.inputs):
        x = host.array(name)
        if x is not None and x.dtype.kind == "f" and name not in host.makers and x.size:
            fed = name in case.feeds[0]
            refill = _random if fed else _trained
            yield RANDOM if fed else "trained-like weights", partial(edits.refilled, name=name, refill=refill)


def _random(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.standard_normal(x.shape))


def _trained(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights scaled by their fan-in, as He et al. draw them; scales near 1, and biases near 0."""
    if x.ndim > 1:
        return np.asarray(rng.standard_normal(x.shape) * np.sqrt(2 / max(1, int(np.prod(x.shape[1:])))))
    near = 0.1 * rng.standard_normal(x.shape)
    return np.asarray(np.abs(1 + near) if (x > 0).all() else near)


def _stem(case: Case, lab: Experiments) -> Iterator[Step]:
    """A layer before the input: Conv or MatMul and Add, with Relu and without."""
    for value in graph_inputs(case.proto)[:1]:
        x = case.feeds[0][value.name]
        if x.dtype == np.float32 and x.ndim >= 2 and x.shape[1 if x.ndim == 4 else -1]:
            for relu in (True, False):
                said = "a convolution before" if x.ndim == 4 else "a dense layer before"
                yield (
                    said + (" and Relu" if relu else ""),
                    partial(edits.preceded, name=value.name, layer=partial(_layer, x, relu)),
                )


def _layer(x: np.ndarray, relu: bool, draft: Draft, name: str) -> list[onnx.NodeProto]:
    rng, made = np.random.default_rng(3), draft.new("layer")
    if x.ndim == 4:
        weights = _trained(np.empty((x.shape[1], x.shape[1], 3, 3)), rng).astype(np.float32)
        found = [helper.make_node("Conv", [name, draft.constant(weights)], [made], pads=[1, 1, 1, 1])]
    else:
        weights = _trained(np.empty((x.shape[-1], x.shape[-1])), rng).astype(np.float32)
        found = [helper.make_node("MatMul", [name, draft.constant(weights)], [made])]
    return [*found, helper.make_node("Relu", [made], [f"{made}_relu"])] if relu else found


def _head(case: Case, lab: Experiments) -> Iterator[Step]:
    """A classifier behind the only output: pooled where it is an image, then scores."""
    outputs = list(case.proto.graph.output)
    shape = np.shape(lab.tensors(case).get(outputs[0].name, ()))
    if len(outputs) == 1 and outputs[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT and len(shape) >= 2:
        for pooled in (True, False) if len(shape) == 4 else (False,):
            yield CLASSIFIER, partial(edits.followed, name=outputs[0].name, layer=partial(_classifier, shape, pooled))


def _classifier(shape: Sequence[int], pooled: bool, draft: Draft, name: str) -> list[onnx.NodeProto]:
    features = shape[1] if pooled else int(np.prod(shape[1:]))
    weights = np.random.default_rng(4).standard_normal((features, CLASSES)) / np.sqrt(max(1, features))
    flat, scores = draft.new("flat"), draft.new("scores")
    found = [helper.make_node("GlobalAveragePool", [name], [f"{flat}_pooled"])] if pooled else []
    found.append(helper.make_node("Flatten", [f"{flat}_pooled" if pooled else name], [flat], axis=1))
    bias = draft.constant(np.zeros(CLASSES, np.float32))
    return [*found, helper.make_node("Gemm", [flat, draft.constant(weights.astype(np.float32)), bias], [scores])]


def _damage(
    case: Case, added: Iterable[str], saved: SavedCase, installed: Installed, runner: Runner
) -> dict[str, float]:
    """The error end to end over fresh inputs: random ones where these fail, else the numbers of the case in another
    order."""
    if saved.kind not in (Kind.WRONG_VALUES, Kind.OFF_BY_ONE_STEP, Kind.NAN):
        return {}
    rng = np.random.default_rng(5)

    def fresh(x: np.ndarray) -> np.ndarray:
        free = x.dtype.kind == "f" and RANDOM in added
        return _random(x, rng) if free else rng.permutation(x.reshape(-1)).reshape(x.shape)

    feeds = [{name: fresh(x).astype(x.dtype) for name, x in case.feeds[0].items()} for _ in range(INPUTS)]
    many = replace(case, feeds=tuple(feeds))
    expected = runner.reference.run(many).outputs
    actual = runner.observe(many, installed, saved.recipe, fresh=True).outputs
    found = _compared(expected, actual, CLASSIFIER in added) if len(expected) == len(actual) == INPUTS else {}
    return {"inputs": INPUTS, **found} if found else {}


def _compared(expected: Sequence[Feed], actual: Sequence[Feed], classified: bool) -> dict[str, float]:
    """Of the first output, over all inputs."""
    name = next(iter(expected[0]))
    pairs = [(np.asarray(e[name]), np.asarray(a[name])) for e, a in zip(expected, actual) if name in a]
    if any(e.shape != a.shape or e.dtype.kind != "f" for e, a in pairs) or not pairs:
        return {}
    wrong = np.sqrt(sum(float((distance(e, a).astype(np.float64) ** 2).sum()) for e, a in pairs))
    size = np.sqrt(sum(float((e.astype(np.float64) ** 2).sum()) for e, _ in pairs))
    damage = {"relative_l2": float(f"{wrong / size:.3g}")} if size and np.isfinite(wrong) else {}
    if classified:
        damage["other_class"] = float(np.mean([(e.argmax(-1) != a.argmax(-1)).mean() for e, a in pairs]).round(3))
    return damage


def write(grown: Grown, saved: SavedCase, runner: Runner) -> None:
    """Put the model into the folder of the cause of `saved`, and what it does into cause.json."""
    if saved.cause is None or saved.cause.path is None:
        raise ValueError("only a case that has a cause can be grown for it")
    with corpus.whole(saved.cause.path / GROWN, replace=True) as draft:
        corpus.write_model(
            dataclasses.replace(grown.case, calibration=()), runner.reference.run(grown.case).outputs, draft
        )
    record.update(record.load(saved.cause.path), grown=grown.as_json())


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--causes", type=int, default=40, help="how many, by impact")
    parser.add_argument("--only", nargs="*", default=(), help="the 8 hex digits at the end of their names")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args()
    smallest: dict[str, tuple[SavedCase, CauseRecord]] = {}
    for saved in sorted(corpus.load_all(asked.corpus), key=lambda saved: saved.size):
        if saved.cause:
            smallest.setdefault(saved.cause.id, (saved, saved.cause))
    causes = ranked(smallest.values(), lambda pair: pair[1].standing)
    wanted = [pair for pair in causes if pair[1].id[-8:] in asked.only] if asked.only else causes[: asked.causes]
    for saved, _ in wanted:
        with Runner(small_models=True, hold_crashes=True) as runner:
            grown = grow(saved, resolve(where_seen(saved.target, saved.seen)), runner, asked.seconds)
            if grown:
                write(grown, saved, runner)
        print(saved.id, grown.as_json() if grown else "nothing could be added", flush=True)


if __name__ == "__main__":
    main()
