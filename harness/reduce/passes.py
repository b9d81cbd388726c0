"""The passes that make a model smaller: nodes, interface, operands, attributes, recipe, names.

Each takes the Problem, attempts candidates, and leaves the best behind. Dimensions and values have their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from harness.case import Case, Feed, graph_inputs
from harness.recipe import simpler as simpler_recipes
from harness.reduce.problem import PLAIN, Problem, shrink
from harness.reduce.submodel import Recording, Tensors, UnrecordedError, bodies, constant, rebuilt, submodel

SINGLE_BUT_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
RANKED = (
    "Conv",
    "Pool",
    "Resize",
    "Upsample",
    "RNN",
    "GRU",
    "LSTM",
    "GridSample",
    "RoiAlign",
    "Col2Im",
    "SpaceToDepth",
)
"""In the names of operators to which a tensor of another rank is something else: a 1-D for a 2-D convolution, say."""
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic


def window(problem: Problem) -> None:
    """Bisect for the shortest failing prefix of the node list, then for its shortest failing suffix: 2 log2(n) runs.

    Then try its two ends alone, which is what two nodes that fail together with others between them come down to.
    """
    kept = operators(problem.case)
    attempt = _attempt_nodes(problem)
    end = bisect(len(kept), lambda n: attempt(kept[:n]))
    kept = kept[:end]
    length = bisect(end, lambda n: attempt(kept[end - n :]))
    if length > 2:
        attempt([kept[end - length], kept[end - 1]])


def fewer_nodes(problem: Problem) -> None:
    """ddmin over the nodes; whatever is dropped leaves its recorded outputs behind."""
    if len(operators(problem.case)) > 1:
        shrink(operators(problem.case), _attempt_nodes(problem), least=1)


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
    for index in reversed(operators(problem.case)):
        for candidate in _bypassed(problem, index):
            if problem.attempt(candidate):
                bypass(problem)  # what went with the node stood before it, so the indices have moved
                return


def plain_operators(problem: Problem) -> None:
    """A plain operator in place of whatever keeps dtype and shape. Where it does not matter which operator stands
    there (an offline quantiser that crashes on any graph without a convolution, say) cases come out the same."""
    for index in range(len(problem.case.proto.graph.node)):
        node = problem.case.proto.graph.node[index]
        sources = [name for name in _alike(problem, node) if problem.recording().runs[0][name].dtype.kind == "f"]
        for op_type in PLAIN if sources and len(node.output) == 1 else ():
            model = copied(problem.case)
            model.graph.node[index].CopyFrom(helper.make_node(op_type, sources[:1], node.output))
            if problem.attempt(rebuilt(problem.case, model)):
                break


def fewer_axes(problem: Problem) -> None:
    """Drop the first axis, of size 1, of all tensors of the highest rank; not where operators give axes a meaning."""
    taken = True
    while taken:
        candidate = _without_first_axis(problem.case)
        taken = candidate is not None and problem.attempt(candidate)


def fewer_operands(problem: Problem) -> None:
    """Drop optional inputs, and all but one of variadic ones."""
    index = 0
    while index < len(problem.case.proto.graph.node):
        before = len(problem.case.proto.graph.node)
        for slot in reversed(range(len(problem.case.proto.graph.node[index].input))):
            candidate = _without_operand(problem.case, index, slot)
            if candidate and problem.attempt(candidate) and len(problem.case.proto.graph.node) < before:
                index = -1  # its maker went with it, so the indices have moved
                break
        index += 1


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


def fewer_attributes(problem: Problem) -> None:
    """Drop attributes that need not be given, half of them at a time, then one by one."""
    case = problem.case
    named = [
        (index, attribute.name)
        for index, node in enumerate(case.proto.graph.node)
        for attribute in node.attribute
        if _is_optional(case, node, attribute.name)
    ]

    def test(remaining: list[tuple[int, str]]) -> bool:
        model = copied(case)
        for index, name in set(named) - set(remaining):
            drop_attribute(model.graph.node[index], name)
        return problem.attempt(rebuilt(case, model))

    shrink(named, test)


def simpler_attributes(problem: Problem) -> None:
    """Bring the numbers of the remaining attributes towards 0 and 1."""
    for index, node in enumerate(problem.case.proto.graph.node):
        for attribute in node.attribute:
            before = helper.get_attribute_value(attribute)
            if node.op_type == "Constant" or not isinstance(before, int | float | list):
                continue
            for value in _simpler_numbers(before):
                model = copied(problem.case)
                drop_attribute(model.graph.node[index], attribute.name)
                model.graph.node[index].attribute.append(helper.make_attribute(attribute.name, value))
                if problem.attempt(rebuilt(problem.case, model)):
                    break


def simpler_recipe(problem: Problem) -> None:
    """Each option of the recipe to its default, all of them first."""
    tried = True
    while tried:
        tried = any(problem.attempt(problem.case, r) for r in simpler_recipes(problem.target, problem.recipe))


def readable_names(problem: Problem) -> None:
    """x… for inputs, w… for initializers, y… for outputs, t… between; nodes need no names."""
    model = copied(problem.case)
    graph = model.graph
    inputs = [v.name for v in graph_inputs(problem.case.proto)]
    outputs = [v.name for v in graph.output if v.name not in inputs]
    weights = [t.name for t in graph.initializer if t.name not in outputs]
    names = {**_numbered("x", inputs), **_numbered("y", outputs), **_numbered("w", weights)}
    inner = count()
    _rename(graph, names, inner)
    case = replace(problem.case, feeds=_renamed(problem.case.feeds, names))
    case = replace(case, calibration=_renamed(case.calibration, names))
    problem.attempt(rebuilt(case, model))


def is_ranked(op_type: str) -> bool:
    """Whether a tensor of another rank is something else to the operator: a 1-D for a 2-D convolution, say."""
    return any(part in op_type for part in RANKED)


def operators(case: Case) -> list[int]:
    """Indices of the nodes that are no Constant."""
    return [i for i, node in enumerate(case.proto.graph.node) if node.op_type != "Constant"]


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


def _attempt_nodes(problem: Problem) -> Callable[[list[int]], bool]:
    """Attempt a set of nodes of the case that is the best now, whatever the best has become by then."""
    case, recorded = problem.case, problem.recording()

    def attempt(kept: list[int]) -> bool:
        try:
            return problem.attempt(submodel(case, kept, recorded))
        except UnrecordedError:
            return False

    return attempt


def bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The least n in 1..most for which `holds`, if it holds from there on; it is known to hold for `most`."""
    low = 0
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (low, middle) if holds(middle) else (middle, most)
    return most


def _bypassed(problem: Problem, index: int) -> Iterator[Case]:
    case = problem.case
    node = case.proto.graph.node[index]
    final = node.output[0] in {v.name for v in case.proto.graph.output}
    made = {name for other in case.proto.graph.node for name in other.output}
    for source in _alike(problem, node):
        if final and source not in made:
            continue  # a graph input would become an output
        model = copied(case)
        rename_reads(model.graph, {node.output[0]: source})
        for value in model.graph.output:
            if value.name == node.output[0]:
                value.name = source
        yield rebuilt(case, model)


def _alike(problem: Problem, node: onnx.NodeProto) -> list[str]:
    """The inputs of `node` with the dtype and the shape of its first output in every run."""

    def alike(run: Tensors, name: str) -> bool:
        x, y = run.get(name), run.get(node.output[0])
        return x is not None and y is not None and x.dtype == y.dtype and x.shape == y.shape

    runs = problem.recording().runs
    return [name for name in dict.fromkeys(node.input) if all(alike(run, name) for run in runs)]


def _without_first_axis(case: Case) -> Case | None:
    graph = case.proto.graph
    shapes = [(t.name, tuple(t.dims)) for t in graph.initializer]
    shapes += [(name, np.shape(x)) for feed in (*case.feeds, *case.calibration) for name, x in feed.items()]
    rank = max((len(shape) for _, shape in shapes), default=0)
    highest = {name for name, shape in shapes if len(shape) == rank}
    ranked = any(is_ranked(node.op_type) for node in graph.node)
    if rank < 2 or ranked or any(shape[0] != 1 for name, shape in shapes if name in highest):
        return None
    model = copied(case)
    for tensor in model.graph.initializer:
        if tensor.name in highest:
            del tensor.dims[0]
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.name in highest or len(dims) == rank:
            del dims[0]

    def fed(feed: Feed) -> Feed:
        return {name: np.reshape(x, np.shape(x)[1:]) if name in highest else x for name, x in feed.items()}

    feeds, calibration = (tuple(map(fed, given)) for given in (case.feeds, case.calibration))
    return rebuilt(replace(case, feeds=feeds, calibration=calibration), model)


def _without_operand(case: Case, index: int, slot: int) -> Case | None:
    model = copied(case)
    node = model.graph.node[index]
    if slot >= len(node.input) or not node.input[slot]:
        return None
    option = _option(case, node, slot)
    if option == VARIADIC and slot > 0:
        del node.input[slot]
    elif option == SINGLE_BUT_OPTIONAL:
        node.input[slot] = ""
        while node.input and not node.input[-1]:
            del node.input[-1]
    else:
        return None
    return rebuilt(case, model)


def _schema(case: Case, node: onnx.NodeProto) -> Any:
    versions = {o.domain: o.version for o in case.proto.opset_import}
    if node.domain in versions and defs.has(node.op_type, node.domain):
        return defs.get_schema(node.op_type, versions[node.domain], node.domain)
    return None


def _option(case: Case, node: onnx.NodeProto, slot: int) -> Any:
    schema = _schema(case, node)
    if schema is None or not schema.inputs:
        return None
    return schema.inputs[min(slot, len(schema.inputs) - 1)].option


def _is_optional(case: Case, node: onnx.NodeProto, name: str) -> bool:
    schema = _schema(case, node)
    if node.op_type == "Constant":
        return False
    return schema is None or name not in schema.attributes or not schema.attributes[name].required


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


def _simpler_numbers(value: Any) -> Iterator[Any]:
    items = list(value) if isinstance(value, list) else [value]
    if not items or not all(isinstance(v, int | float) for v in items):
        return
    if not isinstance(value, list):
        zero = type(value)(0)
        yield from (zero, zero + 1, zero - 1, type(value)(round(value)))
        return
    kind = type(items[0])
    yield from ([kind(0)] * len(items), [kind(1)] * len(items))
    for i, v in enumerate(items):
        yield from ([*items[:i], kind(n), *items[i + 1 :]] for n in (0, 1) if v != n)


def _numbered(letter: str, names: list[str]) -> dict[str, str]:
    return {name: letter if len(names) == 1 else f"{letter}{i}" for i, name in enumerate(names)}


def _rename(graph: onnx.GraphProto, outer: Mapping[str, str], numbers: Iterator[int]) -> None:
    defined = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    defined += [name for node in graph.node for name in node.output if name]
    names = dict(outer)
    names.update((name, f"t{next(numbers)}") for name in defined if name not in outer)
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        node.name = ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for body in bodies(node):
            hidden = {v.name for v in body.input} | {name for n in body.node for name in n.output}
            _rename(body, {k: v for k, v in names.items() if k not in hidden}, numbers)


def _renamed(feeds: tuple[Feed, ...], names: Mapping[str, str]) -> tuple[Feed, ...]:
    return tuple({names.get(name, name): x for name, x in feed.items()} for feed in feeds)
