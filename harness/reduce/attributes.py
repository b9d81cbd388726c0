"""The passes that make what is left plain: operators, ranks, operands, attributes, names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import onnx
from driftnet.model.inspect import Case, Feed, graph_inputs
from driftnet.model.signature import is_ranked
from driftnet.model.submodel import bodies, rebuilt
from driftnet.reduce.passes import alike, copied, drop_attribute
from driftnet.reduce.problem import PLAIN, Problem, shrink
from onnx import defs, helper

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic


def plain_operators(problem: Problem) -> None:
    """A plain operator in place of whatever keeps dtype and shape. Where it does not matter which operator stands
    there (an offline quantizer that crashes on any graph without a convolution, say) cases come out the same."""
    index = len(problem.case.proto.graph.node)
    while index > 0:
        # With an operand that is not read any more its makers go, so there may be fewer nodes than before.
        index = min(index, len(problem.case.proto.graph.node)) - 1
        node = problem.case.proto.graph.node[index]
        sources = [name for name in alike(problem, node) if problem.recording().runs[0][name].dtype.kind == "f"]
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


def fewer_declarations(problem: Problem) -> None:
    """Drop the declared types of initializers, which say nothing that these do not."""
    model = copied(problem.case)
    if model.graph.value_info:
        del model.graph.value_info[:]
        problem.attempt(rebuilt(problem.case, model))


def fewer_operands(problem: Problem) -> None:
    """Drop optional inputs, and all but one of variadic ones."""
    index = 0
    while index < len(problem.case.proto.graph.node):
        before = len(problem.case.proto.graph.node)
        for slot in reversed(range(len(problem.case.proto.graph.node[index].input))):
            case = problem.case
            candidate = _without_operand(case, index, slot)
            taken = candidate is not None and problem.attempt(candidate, at_length=case)
            if taken and len(problem.case.proto.graph.node) < before:
                index = -1  # its maker went with it, so the indices have moved
                break
        index += 1


def fewer_attributes(problem: Problem) -> None:
    """Drop attributes that need not be given, half of them at a time, then one by one; not where a failure looks
    different with the default stated."""
    case = problem.case
    named = [
        (index, attribute.name)
        for index, node in enumerate(case.proto.graph.node)
        for attribute in node.attribute
        if _is_optional(case, node, attribute.name)
    ]

    def without(dropped: set[tuple[int, str]], *, at_length: bool) -> Case:
        model = copied(case)
        for index, name in dropped:
            node = model.graph.node[index]
            default = _default(case, node, name)
            if default or not at_length:
                drop_attribute(node, name)
            if default and at_length:
                node.attribute.append(default)
        return rebuilt(case, model)

    def test(remaining: list[tuple[int, str]]) -> bool:
        dropped = set(named) - set(remaining)
        return problem.attempt(without(dropped, at_length=False), at_length=without(dropped, at_length=True))

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


def readable_names(problem: Problem) -> None:
    """Names that say what a value is; nodes need none."""
    problem.attempt(plainly_named(problem.case))


def plainly_named(case: Case, keep: Collection[str] = ()) -> Case:
    """x… for inputs, w… for initializers, y… for outputs, t… between; values in `keep` are called what they are."""
    model = copied(case)
    graph = model.graph
    inputs = [v.name for v in graph_inputs(case.proto)]
    outputs = [v.name for v in graph.output if v.name not in inputs]
    weights = [t.name for t in graph.initializer if t.name not in outputs]
    names = {**_numbered("x", inputs), **_numbered("y", outputs), **_numbered("w", weights)}
    names.update((name, name) for name in keep)
    _rename(graph, names, count())
    feeds, calibration = _renamed(case.feeds, names), _renamed(case.calibration, names)
    return rebuilt(replace(case, feeds=feeds, calibration=calibration), model)


def _without_first_axis(case: Case) -> Case | None:
    graph = case.proto.graph
    shapes = [(t.name, tuple(t.dims)) for t in graph.initializer]
    shapes += [(name, np.shape(x)) for feed in (*case.feeds, *case.calibration) for name, x in feed.items()]
    rank = max((len(shape) for _, shape in shapes), default=0)
    highest = {name for name, shape in shapes if len(shape) == rank}
    ranked = any(is_ranked(node) for node in graph.node)
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
    if slot >= len(node.input) or not node.input[slot] or node.op_type == "Loop":  # without its count it may not end
        return None
    option = _option(case, node, slot)
    if option == VARIADIC and slot > 0:
        del node.input[slot]
    elif option == OPTIONAL:
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


def _renamed(feeds: tuple[Feed, ...], names: Mapping[str, str]) -> tuple[Feed, ...]:
    return tuple({names.get(name, name): x for name, x in feed.items()} for feed in feeds)
