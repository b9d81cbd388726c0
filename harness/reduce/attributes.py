"""The passes that make what is left plain: operators, ranks, operands, attributes, names."""

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import Any

import numpy as np
import onnx
from driftnet.model.inspect import Case, bodies, computing, graph_inputs, refill
from driftnet.model.signature import is_ranked
from driftnet.model.submodel import edited
from driftnet.reduce.passes import alike, at_nodes, drop_attribute, put_attribute
from driftnet.reduce.problem import PLAIN, Problem, shrink
from onnx import defs, helper

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic


def plain_operators(problem: Problem) -> None:
    """A plain operator in place of whatever keeps dtype and shape. Where it does not matter which operator stands
    there (an offline quantizer that crashes on any graph without a convolution, say) cases come out the same."""
    at_nodes(problem, _plainer)


def fewer_axes(problem: Problem) -> None:
    """Drop the first axis, of size 1, of all tensors of the highest rank; not where operators give axes a meaning."""
    taken = True
    while taken:
        candidate = _without_first_axis(problem.case)
        taken = candidate is not None and problem.attempt(candidate)


def fewer_declarations(problem: Problem) -> None:
    """Drop the declared types of initializers, which say nothing that these do not."""
    if problem.case.proto.graph.value_info:
        problem.attempt(edited(problem.case, lambda model: refill(model.graph.value_info, [])))


def fewer_operands(problem: Problem) -> None:
    """Drop optional inputs, and all but one of variadic ones."""
    at_nodes(problem, _without_operand, at_length=True)


def fewer_attributes(problem: Problem) -> None:
    """Drop attributes that need not be given, half of them at a time, then one by one; not where a failure looks
    different with the default stated."""
    case = problem.case
    named = [
        (index, attribute.name)
        for index in computing(case.proto.graph)
        for attribute in case.proto.graph.node[index].attribute
        if _is_optional(case, case.proto.graph.node[index], attribute.name)
    ]

    def without(dropped: set[tuple[int, str]], *, at_length: bool) -> Case:
        def drop(model: onnx.ModelProto) -> None:
            for node, name in ((model.graph.node[index], name) for index, name in dropped):
                default = _default(case, node, name)
                if default or not at_length:
                    drop_attribute(node, name)
                if default and at_length:
                    node.attribute.append(default)

        return edited(case, drop)

    def test(remaining: list[tuple[int, str]]) -> bool:
        dropped = set(named) - set(remaining)
        return problem.attempt(without(dropped, at_length=False), at_length=without(dropped, at_length=True))

    shrink(named, test)


def simpler_attributes(problem: Problem) -> None:
    """Bring the numbers of the remaining attributes towards 0 and 1."""
    for index in computing(problem.case.proto.graph):
        for attribute in problem.case.proto.graph.node[index].attribute:
            before = helper.get_attribute_value(attribute)
            for value in _simpler_numbers(before) if isinstance(before, int | float | list) else ():
                node = deepcopy(problem.case.proto.graph.node[index])
                put_attribute(node, attribute.name, value)
                if problem.attempt(edited(problem.case, _put_node, index, node)):
                    break


def readable_names(problem: Problem) -> None:
    """Names that say what a value is; nodes need none."""
    problem.attempt(plainly_named(problem.case))


def plainly_named(case: Case, keep: Collection[str] = ()) -> Case:
    """x… for inputs, w… for initializers, y… for outputs, t… between; values in `keep` are called what they are."""
    graph = case.proto.graph
    inputs = [v.name for v in graph_inputs(case.proto)]
    outputs = [v.name for v in graph.output if v.name not in inputs]
    weights = [t.name for t in graph.initializer if t.name not in outputs]
    names = {**_numbered("x", inputs), **_numbered("y", outputs), **_numbered("w", weights)}
    names.update((name, name) for name in keep)
    renamed = case.fed([{names.get(name, name): x for name, x in feed.items()} for feed in case.runs])
    return edited(renamed, lambda model: _rename(model.graph, names, count()))


def _plainer(problem: Problem, index: int) -> Iterator[Case]:
    node = problem.case.proto.graph.node[index]
    sources = [name for name in alike(problem, node) if problem.recording().runs[0][name].dtype.kind == "f"]
    for op_type in PLAIN if sources and len(node.output) == 1 else ():
        plain = helper.make_node(op_type, sources[:1], node.output)
        yield edited(problem.case, _put_node, index, plain)


def _put_node(model: onnx.ModelProto, index: int, node: onnx.NodeProto) -> None:
    model.graph.node[index].CopyFrom(node)


def _without_first_axis(case: Case) -> Case | None:
    graph = case.proto.graph
    shapes = [(t.name, tuple(t.dims)) for t in graph.initializer]
    shapes += [(name, np.shape(x)) for feed in case.runs for name, x in feed.items()]
    rank = max((len(shape) for _, shape in shapes), default=0)
    highest = {name for name, shape in shapes if len(shape) == rank}
    ranked = any(is_ranked(node) for node in graph.node)
    if rank < 2 or ranked or any(shape[0] != 1 for name, shape in shapes if name in highest):
        return None

    def drop(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.name in highest:
                del tensor.dims[0]
        for value in (*model.graph.input, *model.graph.output):
            dims = value.type.tensor_type.shape.dim
            if value.name in highest or len(dims) == rank:
                del dims[0]

    runs = [{name: x[0] if name in highest else x for name, x in feed.items()} for feed in case.runs]
    return edited(case.fed(runs), drop)


def _without_operand(problem: Problem, index: int) -> Iterator[Case]:
    case, node = problem.case, problem.case.proto.graph.node[index]
    for slot in reversed(range(len(node.input) if node.op_type != "Loop" else 0)):  # without its count it may not end
        option = _option(case, node, slot)
        left = [*node.input[:slot], *([] if option == VARIADIC else [""]), *node.input[slot + 1 :]]
        while left and not left[-1]:
            left.pop()
        if node.input[slot] and (option == OPTIONAL or (option == VARIADIC and slot > 0)):
            plain = deepcopy(node)
            refill(plain.input, left)
            yield edited(case, _put_node, index, plain)


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
    return schema is None or name not in schema.attributes or not schema.attributes[name].required


def _default(case: Case, node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """What the schema says of the attribute where it is absent, if it does."""
    schema = _schema(case, node)
    default = schema.attributes[name].default_value if schema and name in schema.attributes else None
    return default if default and default.name else None


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
