"""The passes that take a model apart: nodes, outputs, feeds, inputs; and the recipe.

Each pass takes the Problem, attempts candidates, and leaves the best behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from driftnet.model.constants import Tensors, constant
from driftnet.model.inspect import Case, computing, graph_inputs
from driftnet.model.submodel import Recording, UnrecordedError, bodies, rebuilt, submodel
from driftnet.reduce.problem import Problem, shrink
from driftnet.targets.recipe import simpler as simpler_recipes
from onnx import numpy_helper


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
    if len(computing(problem.case.proto.graph)) > 1:
        shrink(computing(problem.case.proto.graph), _attempt_nodes(problem), least=1)


def fewer_outputs(problem: Problem) -> None:
    """ddmin over the graph outputs, and over the nodes that only a dropped output needs."""
    case = problem.case

    def test(names: list[str]) -> bool:
        model = copied(case)
        outputs = [v for v in model.graph.output if v.name in names]
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        return problem.attempt(rebuilt(case, model))

    shrink([v.name for v in case.proto.graph.output], test, least=1)


def fewer_feeds(problem: Problem) -> None:
    """One feed, and no calibration feeds, where that is enough."""
    problem.attempt(replace(problem.case, feeds=problem.case.feeds[:1], calibration=()))
    case = problem.case
    shrink(case.feeds, lambda feeds: problem.attempt(replace(case, feeds=tuple(feeds))), least=1)
    case = problem.case
    shrink(case.calibration, lambda feeds: problem.attempt(replace(case, calibration=tuple(feeds))))


def bypass(problem: Problem) -> None:
    """Let the readers of a node's output read one of its inputs of the same dtype and shape instead."""
    for index in reversed(computing(problem.case.proto.graph)):
        for candidate in _bypassed(problem, index):
            if problem.attempt(candidate):
                bypass(problem)  # what went with the node stood before it, so the indices have moved
                return


def inputs_to_initializers(problem: Problem) -> None:
    """Inputs that are equal in all feeds become initializers. One stays: a model without any is folded, not run."""
    case = problem.case
    names = [v.name for v in graph_inputs(case.proto)]
    free = [n for n in names if any(not np.array_equal(f[n], case.feeds[0][n]) for f in case.feeds)]

    def test(inputs: list[str]) -> bool:
        fixed = {name for name in names if name not in inputs}
        if not fixed.isdisjoint(free):
            return False
        model = copied(case)
        kept = [v for v in model.graph.input if v.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(case.feeds[0][n]), n) for n in sorted(fixed))
        return problem.attempt(rebuilt(case, model))

    # The first input is the one kept by preference: it is the data more often than the last.
    shrink(names[::-1], test, least=1)


def constants_to_initializers(problem: Problem) -> None:
    """Constant nodes become initializers, all at once or one by one."""
    case = problem.case
    constants = [node.output[0] for node in case.proto.graph.node if constant(node) is not None]

    def test(remaining: list[str]) -> bool:
        model = copied(case)
        kept = []
        for node in model.graph.node:
            value = constant(node)
            if value is None or node.output[0] in remaining:
                kept.append(node)
            else:
                model.graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        del model.graph.node[:]
        model.graph.node.extend(kept)
        return problem.attempt(rebuilt(case, model))

    if constants and not test([]):
        shrink(constants, test)


def static_dims(problem: Problem) -> None:
    """Symbolic dims become the sizes they have, where all feeds agree on them; outputs state their dims again."""
    case = problem.case
    if any(not d.WhichOneof("value") for v in case.proto.graph.output for d in v.type.tensor_type.shape.dim):
        problem.attempt(_stated(case, problem.recording()))
    case = problem.case
    sizes = _symbol_sizes(case)

    def test(symbols: list[str]) -> bool:
        model = copied(case)
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in sizes and dim.dim_param not in symbols:
                    dim.dim_value = sizes[dim.dim_param]
        return problem.attempt(rebuilt(case, model))

    if sizes and not test([]):
        shrink(list(sizes), test)


def simpler_recipe(problem: Problem) -> None:
    """Each option of the recipe to its default, all of them first."""
    tried = True
    while tried:
        tried = any(problem.attempt(problem.case, r) for r in simpler_recipes(problem.target, problem.recipe))


def copied(case: Case) -> onnx.ModelProto:
    """A copy of the model, to be changed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.proto)
    return model


def drop_attribute(node: onnx.NodeProto, name: str) -> None:
    """Remove the attribute `name`."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


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

    def attempt(kept: list[int]) -> bool:
        try:
            return problem.attempt(submodel(case, kept, recorded))
        except UnrecordedError:
            return False

    return attempt


def _bypassed(problem: Problem, index: int) -> Iterator[Case]:
    case = problem.case
    node = case.proto.graph.node[index]
    final = node.output[0] in {v.name for v in case.proto.graph.output}
    made = {name for other in case.proto.graph.node for name in other.output}
    for source in alike(problem, node):
        if final and source not in made:
            continue  # a graph input would become an output
        model = copied(case)
        rename_reads(model.graph, {node.output[0]: source})
        for value in model.graph.output:
            if value.name == node.output[0]:
                value.name = source
        yield rebuilt(case, model)


def _symbol_sizes(case: Case) -> dict[str, int]:
    sizes: dict[str, set[int]] = {}
    for value in graph_inputs(case.proto):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                runs = (*case.feeds, *case.calibration)
                sizes.setdefault(dim.dim_param, set()).update(np.shape(run[value.name])[axis] for run in runs)
    return {name: found.pop() for name, found in sizes.items() if len(found) == 1}


def _stated(case: Case, recorded: Recording) -> Case:
    model = copied(case)
    for value in model.graph.output:
        arrays = [run[value.name] for run in recorded.runs if value.name in run]
        for dim, sizes in zip(value.type.tensor_type.shape.dim, zip(*(x.shape for x in arrays))):
            if not dim.WhichOneof("value") and len(set(sizes)) == 1:
                dim.dim_value = sizes[0]
    return rebuilt(case, model)
