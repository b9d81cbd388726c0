"""The passes that take control flow apart: what If, Loop and Scan hold comes out, or at least gets fewer nodes."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

import numpy as np
import onnx
from driftnet.model.constants import with_constants
from driftnet.model.inspect import Case, bodies, refill
from driftnet.model.submodel import Record, ancestors, needless, rebuilt, recording
from driftnet.reduce.passes import read_instead, rename_reads
from driftnet.reduce.problem import Problem
from onnx import helper, numpy_helper


def inlined(problem: Problem) -> None:
    """In place of an If the branch that is taken, where it is the same in all feeds; in place of a Loop or a Scan its
    first iteration."""
    for index, node in enumerate(problem.case.proto.graph.node):
        for candidate in _inlined(problem, index, node):
            if problem.attempt(candidate):
                inlined(problem)  # the indices have moved
                return


def fewer_nodes(problem: Problem) -> None:
    """Inside of bodies: let the readers of a node's output read one of its inputs instead."""
    taken = True
    while taken:
        taken = any(problem.attempt(candidate) for candidate in _bypassed(problem.case))


def entered(case: Case, record: Record) -> Case:
    """`case` with the branch that is taken in the place of each If of its main graph, where all feeds take the same:
    exporters put whole nets there. Raises what `record` raises."""
    while True:
        nodes = case.proto.graph.node
        ifs = [k for k, node in enumerate(nodes) if node.op_type == "If"]
        runs = [with_constants(case, run) for run in recording(case, record).runs] if ifs else []
        taken = {k: {bool(run[nodes[k].input[0]]) for run in runs if nodes[k].input[0] in run} for k in ifs}
        index = next((k for k in ifs if len(taken[k]) == 1), None)
        if index is None:
            return case
        case = _in_place(case, index, "then_branch" if taken[index].pop() else "else_branch")


def _inlined(problem: Problem, index: int, node: onnx.NodeProto) -> Iterator[Case]:
    case = problem.case
    if node.op_type == "If":
        runs = [with_constants(case, run) for run in problem.recording().runs]
        taken = {bool(run[node.input[0]]) for run in runs}
        if len(taken) == 1:
            yield _in_place(case, index, "then_branch" if taken.pop() else "else_branch")
    if node.op_type == "Loop":
        first, condition = (f"{node.output[0]}.{name}" for name in ("iteration", "condition"))
        constants = {first: np.zeros([], np.int64), condition: np.ones([], bool)}
        yield _in_place(case, index, "body", [first, condition, *node.input[2:]], constants)
    if node.op_type == "Scan":
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != "body"}
        states = len(node.input) - given["num_scan_inputs"]
        axes = given.get("scan_input_axes") or [0] * len(node.input)
        zero = f"{node.output[0]}.first"
        slices = [
            helper.make_node("Gather", [name, zero], [f"{node.output[0]}.{k}"], axis=axis)
            for k, (name, axis) in enumerate(zip(node.input[states:], axes))
        ]
        operands = [*node.input[:states], *(n.output[0] for n in slices)]
        yield _in_place(case, index, "body", operands, {zero: np.zeros([], np.int64)}, slices)


def _in_place(
    case: Case,
    index: int,
    attribute: str,
    operands: Sequence[str] = (),
    constants: Mapping[str, np.ndarray] | None = None,
    before: Sequence[onnx.NodeProto] = (),
) -> Case:
    """`case` with the body in that attribute of node `index` in its place, run once on `operands`.

    What a Loop or a Scan would stack comes out unstacked; a Loop's first result, whether to go on, is nobody's.
    """
    model = deepcopy(case.proto)
    graph, node = model.graph, model.graph.node[index]
    body = next(a.g for a in node.attribute if a.name == attribute)
    inner = [t.name for t in body.initializer] + [name for n in body.node for name in n.output if name]
    outputs = body.output[1:] if node.op_type == "Loop" else body.output
    names = dict(zip((v.name for v in body.input), operands)) | {name: f"{node.output[0]}.{name}" for name in inner}
    results = []
    for value, out in zip(outputs, node.output):
        if value.name in inner and out and out not in names.values():
            names[value.name] = out
        elif out:
            results.append(helper.make_node("Identity", [names.get(value.name, value.name)], [out]))
    rename_reads(body, names)
    for n in body.node:
        n.output[:] = [names.get(name, name) for name in n.output]
    for tensor in body.initializer:
        tensor.name = names[tensor.name]
    carried = len(operands) - (2 if node.op_type == "Loop" else len(before))
    for value in graph.output:
        if operands and value.name in node.output[carried:]:
            del value.type.tensor_type.shape.dim[:1]
    graph.initializer.extend(body.initializer)
    graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in (constants or {}).items())
    refill(graph.node, [*graph.node[:index], *before, *body.node, *results, *graph.node[index + 1 :]])
    return rebuilt(case, model, needless(case.proto.graph))


def _bypassed(case: Case) -> Iterator[Case]:
    for place, (held, index) in enumerate(_held(case.proto.graph)):
        for source in dict.fromkeys(name for name in held.node[index].input if name):
            model = deepcopy(case.proto)
            body, _ = list(_held(model.graph))[place]
            read_instead(body, body.node[index].output[0], source)
            refill(body.node, [body.node[i] for i in sorted(ancestors(body, [v.name for v in body.output]))])
            yield rebuilt(case, model, needless(case.proto.graph))


def _held(graph: onnx.GraphProto) -> Iterator[tuple[onnx.GraphProto, int]]:
    """(body, index of a node in it) for every node of every body."""
    for node in graph.node:
        for body in bodies(node):
            yield from ((body, index) for index in range(len(body.node)))
            yield from _held(body)
