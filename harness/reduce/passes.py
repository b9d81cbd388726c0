"""The passes that take a model apart: nodes, outputs, feeds, inputs; and the recipe.

Each pass takes the Problem, attempts candidates, and leaves the best behind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import onnx
from driftnet.model.constants import Tensors, constant
from driftnet.model.inspect import UNNAMED, Case, bodies, computing, declared_dims, graph_inputs, refill
from driftnet.model.submodel import UnrecordedError, edited, needless, rebuilt, submodel
from driftnet.reduce.problem import Problem, shrink
from driftnet.targets.recipe import simpler as simpler_recipes
from driftnet.targets.recipe import unquantized
from onnx import helper, numpy_helper

T = TypeVar("T")


def only_needed(problem: Problem) -> None:
    """Without the nodes that no output needs and the inputs that nothing reads: all at once, or as many as can go."""
    case = problem.case

    def attempt(spared: list[str]) -> bool:
        return problem.attempt(rebuilt(case, case.proto, spared))

    found = sorted(needless(case.proto.graph))
    if found and not attempt([]):
        shrink(found, attempt, least=1)


def window(problem: Problem) -> None:
    """Bisect for the shortest failing prefix of the node list, then for its shortest failing suffix: 2 log2(n) runs.

    Then try its two ends alone, which is what two nodes that fail together with others between them come down to.
    """
    kept = computing(problem.case.proto.graph)
    attempt = _attempt_nodes(problem)
    end = bisect(len(kept), lambda n: attempt(kept[:n]))
    kept = kept[:end]
    length = bisect(end, lambda n: attempt(kept[end - n :]))
    if length > 2:
        attempt([kept[end - length], kept[end - 1]])


def fewer_nodes(problem: Problem) -> None:
    """ddmin over the nodes; whatever is dropped leaves its recorded outputs behind."""
    nodes = computing(problem.case.proto.graph)
    if len(nodes) > 1:
        shrink(nodes, _attempt_nodes(problem), least=1)


def fewer_outputs(problem: Problem) -> None:
    """ddmin over the graph outputs, and over the nodes that only a dropped output needs."""

    def keep(model: onnx.ModelProto, names: list[str]) -> None:
        refill(model.graph.output, [v for v in model.graph.output if v.name in names])

    shrink_model(problem, [v.name for v in problem.case.proto.graph.output], keep, least=1)


def fewer_feeds(problem: Problem) -> None:
    """One feed, and no calibration feeds, where that is enough."""
    problem.attempt(replace(problem.case, feeds=problem.case.feeds[:1], calibration=()))
    case = problem.case
    shrink(case.feeds, lambda feeds: problem.attempt(replace(case, feeds=tuple(feeds))), least=1)
    case = problem.case
    shrink(case.calibration, lambda feeds: problem.attempt(replace(case, calibration=tuple(feeds))))


def bypass(problem: Problem) -> None:
    """Let the readers of a node's output read one of its inputs of the same dtype and shape instead."""
    at_nodes(problem, _bypassed)


def inputs_to_initializers(problem: Problem) -> None:
    """Inputs that are equal in all feeds become initializers. One stays: a model without any is folded, not run."""
    case = problem.case
    names = [v.name for v in graph_inputs(case.proto)]
    equal = [n for n in names if all(np.array_equal(f[n], case.feeds[0][n]) for f in case.feeds)]

    def keep(model: onnx.ModelProto, inputs: list[str]) -> None:
        fixed = sorted(set(equal).difference(inputs))
        refill(model.graph.input, [v for v in model.graph.input if v.name not in fixed])
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(case.feeds[0][n]), n) for n in fixed)

    # The first input is the one kept by preference: it is the data more often than the last.
    shrink_model(problem, equal[::-1], keep, least=1 if len(equal) == len(names) else 0)


def constants_to_initializers(problem: Problem) -> None:
    """Constant nodes become initializers, all at once or one by one."""

    def keep(model: onnx.ModelProto, remaining: list[str]) -> None:
        values = {node.output[0]: x for node in model.graph.node if (x := constant(node)) is not None}
        stored = [name for name in values if name not in remaining]
        model.graph.initializer.extend(numpy_helper.from_array(values[name], name) for name in stored)
        refill(model.graph.node, [node for node in model.graph.node if node.output[0] not in stored])

    constants = [node.output[0] for node in problem.case.proto.graph.node if constant(node) is not None]
    shrink_model(problem, constants, keep, at_once=True)


def static_dims(problem: Problem) -> None:
    """Free dims become the sizes they have, where all feeds agree on them; outputs state their dims again."""
    case = problem.case
    if any(not d.WhichOneof("value") for v in case.proto.graph.output for d in v.type.tensor_type.shape.dim):
        problem.attempt(_stated(case, problem.recording().runs))
    sizes = _free_sizes(problem.case)

    def keep(model: onnx.ModelProto, free: list[str]) -> None:
        for value in (*model.graph.input, *model.graph.output):
            for name, dim in zip(_free_names(value), value.type.tensor_type.shape.dim):
                if name in sizes and name not in free:
                    dim.dim_value = sizes[name]

    shrink_model(problem, list(sizes), keep, at_once=True)


def plain_recipe(problem: Problem) -> None:
    """No options, or none by which anything is quantized, where that is enough: all that is tried after costs less, a
    third in MNN."""
    if not problem.attempt(problem.case, {}):
        problem.attempt(problem.case, unquantized(problem.target, problem.recipe))


def simpler_recipe(problem: Problem) -> None:
    """Each option of the recipe to its default, all of them first."""
    tried = True
    while tried:
        tried = any(problem.attempt(problem.case, r) for r in simpler_recipes(problem.target, problem.recipe))


def shrink_model(
    problem: Problem,
    items: Sequence[T],
    keep: Callable[[onnx.ModelProto, list[T]], None],
    *,
    least: int = 0,
    at_once: bool = False,
) -> None:
    """ddmin over `items` of the model. keep(model, those left) takes the others from it; at_once: all of them first."""
    case = problem.case

    def test(left: list[T]) -> bool:
        return problem.attempt(edited(case, keep, left))

    if items and not (at_once and test([])):
        shrink(items, test, least=least)


def at_nodes(
    problem: Problem, candidates: Callable[[Problem, int], Iterator[Case]], *, at_length: bool = False
) -> None:
    """Attempt the candidates at each node, from the last to the first: again at the same one as long as one is taken.

    With what a node does not read any more its makers go, so there may be fewer nodes than before.
    """
    index = len(problem.case.proto.graph.node)
    while index > 0:
        index = min(index, len(problem.case.proto.graph.node)) - 1
        before = problem.case if at_length else None
        if any(problem.attempt(candidate, at_length=before) for candidate in candidates(problem, index)):
            index += 1


def drop_attribute(node: onnx.NodeProto, name: str) -> None:
    """Remove the attribute `name`."""
    refill(node.attribute, [a for a in node.attribute if a.name != name])


def put_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give the attribute `name` another value."""
    drop_attribute(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def rename_reads(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let every node that reads a key of `names`, subgraphs included, read its value instead."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for body in bodies(node):
            rename_reads(body, names)
            for value in body.output:
                value.name = names.get(value.name, value.name)


def bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The least n in 1..most for which `holds`, if it holds from there on; it is known to hold for `most`."""
    low = 0
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (low, middle) if holds(middle) else (middle, most)
    return most


def alike(problem: Problem, node: onnx.NodeProto) -> list[str]:
    """The inputs of `node` with the dtype and the shape of its first output in every run."""

    def alike(run: Tensors, name: str) -> bool:
        x, y = run.get(name), run.get(node.output[0])
        return x is not None and y is not None and x.dtype == y.dtype and x.shape == y.shape

    runs = problem.recording().runs
    return [name for name in dict.fromkeys(node.input) if all(alike(run, name) for run in runs)]


def _attempt_nodes(problem: Problem) -> Callable[[list[int]], bool]:
    """Attempt a set of nodes of the case that is the best now, whatever the best has become by then."""
    case, recorded = problem.case, problem.recording()
    spared = needless(case.proto.graph)

    def attempt(kept: list[int]) -> bool:
        try:
            return problem.attempt(submodel(case, kept, recorded, spared=spared))
        except UnrecordedError:
            return False

    return attempt


def _bypassed(problem: Problem, index: int) -> Iterator[Case]:
    graph = problem.case.proto.graph
    node = graph.node[index]
    final = node.output[0] in {v.name for v in graph.output}
    made = {name for other in graph.node for name in other.output}
    for source in alike(problem, node):
        if not final or source in made:  # else a graph input would become an output
            yield edited(problem.case, lambda model, *names: read_instead(model.graph, *names), node.output[0], source)


def read_instead(graph: onnx.GraphProto, name: str, source: str) -> None:
    """Let every reader of `name`, the graph's outputs too, read `source` instead."""
    rename_reads(graph, {name: source})
    for value in graph.output:
        value.name = source if value.name == name else value.name


def _free_sizes(case: Case) -> dict[str, int]:
    sizes: dict[str, set[int]] = {}
    for value in graph_inputs(case.proto):
        for axis, name in enumerate(_free_names(value)):
            if name:
                sizes.setdefault(name, set()).update(np.shape(run[value.name])[axis] for run in case.runs)
    return {name: found.pop() for name, found in sizes.items() if len(found) == 1}


def _free_names(value: onnx.ValueInfoProto) -> list[str]:
    """For each dim of a tensor what it is called where it is free, "" where it is not."""
    dims = enumerate(declared_dims(value))
    return ["" if isinstance(d, int) else f"{value.name}:{axis}" if d == UNNAMED else d for axis, d in dims]


def _stated(case: Case, runs: Sequence[Tensors]) -> Case:
    def state(model: onnx.ModelProto) -> None:
        for value in model.graph.output:
            arrays = [run[value.name] for run in runs if value.name in run]
            for dim, sizes in zip(value.type.tensor_type.shape.dim, zip(*(x.shape for x in arrays))):
                if not dim.WhichOneof("value") and len(set(sizes)) == 1:
                    dim.dim_value = sizes[0]

    return edited(case, state)
