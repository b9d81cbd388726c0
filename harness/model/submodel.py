"""Any subset of a model's nodes as a model of its own.

Every tensor of the failing model is recorded once; then a set of nodes that is cut out stays legal, because each cut
edge becomes a graph input that is fed the recorded value, or an initializer that holds it.

Plain protobuf, not onnx_ir: parsing and copying cost .01 ms against 1.5 ms for the way through onnx_ir and back (40
nodes, 186 kB), and `onnx_ir.convenience.extract` takes what lies between given values, not a given set of nodes.
"""

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.constants import Tensors
from driftnet.model.inspect import UNNAMED, Case, bodies, computing, declared_dims, graph_inputs, has_any
from driftnet.model.operators import Trait
from onnx import helper, numpy_helper

Record = Callable[[Case], Sequence[Tensors]]
"""Every tensor of a case's main graph, one mapping a feed. Raises ReferenceError for a case that does not run."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The tensors of a case's main graph under each of its feeds and calibration feeds."""

    feeds: tuple[Tensors, ...]
    calibration: tuple[Tensors, ...]

    @property
    def runs(self) -> tuple[Tensors, ...]:
        return self.feeds + self.calibration


MOST_RECORDED = 2**28
"""Bytes of tensors of one model that are held, but for those of its first feed."""


class UnrecordedError(LookupError):
    """A tensor at the cut cannot become an input: it is a sequence, a map or an optional, or its rank varies."""


def recording(case: Case, record: Record) -> Recording:
    """Run `case` on all it is fed. Raises what `record` raises."""
    calibration = record(replace(case, feeds=case.calibration, calibration=())) if case.calibration else ()
    return Recording(tuple(record(case)) if case.feeds else (), tuple(calibration))


def recording_within(case: Case, record: Record, most: int = MOST_RECORDED) -> tuple[Case, Recording]:
    """`case` with as many of its feeds and calibration feeds as `most` bytes hold the tensors of, one of each at
    least, or one feed for both; and these tensors. Raises what `record` raises."""
    first = tuple(record(replace(case, feeds=case.feeds[:1], calibration=())))
    held = {id(x): x.nbytes for x in first[0].values()}  # copies of one tensor are one array
    count = most // max(1, sum(held.values()))
    if count < 2 and case.calibration:
        return replace(case, feeds=case.feeds[:1], calibration=case.feeds[:1]), Recording(first, first)
    feeds = case.feeds[: max(1, count)]
    part = replace(case, feeds=feeds, calibration=case.calibration[: max(1, count - len(feeds))])
    rest = recording(replace(part, feeds=feeds[1:]), record) if len(part.runs) > 1 else Recording((), ())
    return part, Recording(first + rest.feeds, rest.calibration)


def submodel(
    case: Case,
    keep: Collection[int],
    recorded: Recording,
    outputs: Sequence[str] = (),
    *,
    shared: bool = False,
    spared: Collection[str] = (),
) -> Case:
    """The model of the nodes of `case` whose indices are in `keep`.

    Constant nodes come along with the nodes that read them, whether named in `keep` or not. A cut edge becomes an
    initializer when its value does not depend on the feed (it derives from constants only, or it is an integer vector,
    such as a computed shape, that is equal in all feeds); else a graph input.

    outputs   by default the graph outputs among the kept values and whatever only dropped nodes read
    shared    floats that kept and dropped nodes read are outputs as well: what is wrong in them may not show inside
    spared    as `rebuilt` says
    Raises UnrecordedError where a cut edge or an output has no recorded value; ValueError when nothing is kept.
    """
    graph = case.proto.graph
    operators = set(keep).intersection(computing(graph))
    if not operators:
        raise ValueError("a submodel needs at least one node that is no Constant")
    read = {name for i in operators for name in reads(graph.node[i])}
    stated = set(range(len(graph.node))).difference(computing(graph))
    constants = {i for i in stated if graph.node[i].output[0] in read}
    kept = [graph.node[i] for i in sorted(constants | operators)]
    outputs = outputs or _exposed(graph, operators, recorded.feeds[0] if shared else {})

    there = {name for node in kept for name in node.output}
    there.update(v.name for v in graph.input)
    there.update(t.name for t in graph.initializer)
    there.update(s.values.name for s in graph.sparse_initializer)
    cut = list(dict.fromkeys(name for node in kept for name in reads(node) if name not in there))
    if missing := [name for name in cut if any(name not in run for run in recorded.runs)]:
        raise UnrecordedError(f"no recorded value for {missing[0]!r}")
    fixed = constant_values(graph)
    frozen = [name for name in cut if name in fixed or _is_parameter([run[name] for run in recorded.runs])]
    fed = [name for name in cut if name not in frozen]

    # Only what is read is copied: a window of ten nodes of a model of 100 MB would cost .1 s otherwise.
    model = onnx.ModelProto(ir_version=case.proto.ir_version, opset_import=case.proto.opset_import)
    model.functions.extend(case.proto.functions)
    model.graph.node.extend(kept)
    model.graph.input.extend(graph.input)
    model.graph.initializer.extend(t for t in graph.initializer if t.name in read)
    model.graph.sparse_initializer.extend(s for s in graph.sparse_initializer if s.values.name in read)
    model.graph.initializer.extend(numpy_helper.from_array(recorded.feeds[0][name], name) for name in frozen)
    model.graph.value_info.extend(graph.value_info)
    declare = _declarer(case, recorded)
    model.graph.input.extend(declare(name) for name in fed)
    known = {v.name: v for v in (*graph.value_info, *graph.output)}
    model.graph.output.extend(known[name] if name in known else declare(name) for name in outputs)

    runs = [{**given, **{name: run[name] for name in fed}} for given, run in zip(case.runs, recorded.runs)]
    return rebuilt(case.fed(runs), model, spared)


def with_makers(case: Case, keep: Iterable[int], recorded: Recording) -> set[int]:
    """`keep` with the nodes that make what it reads and nothing can feed, sequences and optionals, back to tensors."""
    return _with_producers(case.proto.graph, keep, lambda name: any(name not in run for run in recorded.runs))


def edited(case: Case, change: Callable[..., object], *args: object) -> Case:
    """`case` rebuilt with a copy of its model, after change(model, *args). What was needless before stays."""
    model = deepcopy(case.proto)
    change(model, *args)
    return rebuilt(case, model, needless(case.proto.graph))


def needless(graph: onnx.GraphProto) -> set[str]:
    """The inputs that nothing reads, and the results of nodes that no output needs: a failure may need them."""
    live = ancestors(graph, [v.name for v in graph.output])
    dead = set(range(len(graph.node))).difference(live)
    read = {name for node in graph.node for name in reads(node)} | {v.name for v in graph.output}
    made = {name for i in dead for name in graph.node[i].output if name}
    return made | {v.name for v in graph.input if v.name not in read}


def rebuilt(case: Case, model: onnx.ModelProto, spared: Collection[str] = ()) -> Case:
    """`case` with `model`, of which only what the outputs need is left, and nothing that is for people.

    Dead nodes, unread initializers, unread inputs with their feeds, doc strings and metadata go, and value_info but for
    that of initializers: a tool that changes one and leaves its declaration has a bug that shows only with it.

    spared   inputs and results that stay, needed or not
    """
    graph = model.graph
    live = ancestors(graph, [*(v.name for v in graph.output), *spared])
    read = {name for i in live for name in reads(graph.node[i])} | {v.name for v in graph.output} | set(spared)
    # An initializer that is no graph input needs IR version 4.
    slim = onnx.ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    body = slim.graph  # filled where it is: to put a graph into a model copies all its weights
    body.name = "graph"
    body.node.extend(_bare(graph.node[i]) for i in sorted(live))
    body.input.extend(v for v in graph.input if v.name in read)
    body.output.extend(graph.output)
    body.initializer.extend(t for t in graph.initializer if t.name in read)
    body.sparse_initializer.extend(s for s in graph.sparse_initializer if s.values.name in read)
    body.value_info.extend(_declared(graph, read))
    slim.functions.extend(model.functions)
    names = [v.name for v in graph_inputs(slim)]
    part = replace(case, model=slim.SerializeToString(deterministic=True))
    return external_data.loaded(part.fed([{name: feed[name] for name in names} for feed in case.runs]))


def reads(node: onnx.NodeProto) -> list[str]:
    """The values a node takes from its graph: its inputs and what its subgraphs capture."""
    names = [name for name in node.input if name]
    for body in bodies(node):
        inner = {v.name for v in body.input} | {t.name for t in body.initializer}
        inner.update(name for n in body.node for name in n.output)
        names += [name for n in body.node for name in reads(n) if name not in inner]
        names += [v.name for v in body.output if v.name not in inner]
    return names


def ancestors(graph: onnx.GraphProto, names: Iterable[str]) -> set[int]:
    """Indices of the nodes that the values `names` are computed by."""
    made_by = makers(graph)
    return _with_producers(graph, [made_by[name] for name in names if name in made_by], lambda name: True)


def makers(graph: onnx.GraphProto) -> dict[str, int]:
    """The index of the node that makes each value."""
    return {name: i for i, node in enumerate(graph.node) for name in node.output if name}


def _with_producers(graph: onnx.GraphProto, nodes: Iterable[int], wanted: Callable[[str], bool]) -> set[int]:
    """`nodes`, those that make what they read and is `wanted`, those that make what these read, and so on."""
    made_by, found, waiting = makers(graph), set[int](), list(nodes)
    while waiting:
        i = waiting.pop()
        if i not in found:
            found.add(i)
            waiting += [made_by[name] for name in reads(graph.node[i]) if name in made_by and wanted(name)]
    return found


def constant_values(graph: onnx.GraphProto) -> set[str]:
    """The values that do not depend on what the graph is fed, nor on chance."""
    constant = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    for node in graph.node:
        if constant.issuperset(reads(node)) and not has_any(node, Trait.RANDOM):
            constant.update(node.output)
    return constant


def _declared(graph: onnx.GraphProto, read: Container[str]) -> list[onnx.ValueInfoProto]:
    """The declarations of initializers that are read, with the shapes that these have."""
    declared = {v.name for v in graph.value_info}
    stored = [t for t in graph.initializer if t.name in read and t.name in declared]
    return [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in stored]


def _exposed(graph: onnx.GraphProto, keep: set[int], shared: Tensors) -> list[str]:
    # A value that only kept nodes read stays inside: as an output it would forbid the fusion that may be the failure.
    # So does one that others read too, but for floats among `shared`.
    readers: dict[str, set[int]] = {}
    for i, node in enumerate(graph.node):
        for name in reads(node):
            readers.setdefault(name, set()).add(i)
    final = {v.name for v in graph.output}
    made = [name for i in sorted(keep) for name in graph.node[i].output if name]
    unread = [name for name in made if not readers.get(name, set()) & keep]
    beside = {
        name for name in made if name in shared and shared[name].dtype.kind == "f" and readers.get(name, keep) - keep
    }
    # A node that nothing reads was dead before; it is shown only where nothing else is.
    return [name for name in made if name in final or (name in readers and name in unread) or name in beside] or unread


def _is_parameter(arrays: list[np.ndarray]) -> bool:
    first = arrays[0]
    return first.dtype.kind in "iub" and first.ndim <= 1 and all(np.array_equal(first, x) for x in arrays)


def _declarer(case: Case, recorded: Recording) -> Callable[[str], onnx.ValueInfoProto]:
    """name -> its declaration from the recorded arrays.

    A dim is free where its size differs between feeds, or where a declared free dim at the same place in its shape has
    the same sizes: with the name of that, if it has one.
    """
    names: dict[tuple[int, ...], str] = {}
    placed: dict[tuple[int, tuple[int, ...]], str | None] = {}
    for value in graph_inputs(case.proto):
        for axis, dim in enumerate(declared_dims(value)):
            if isinstance(dim, str):
                sizes = tuple(run[value.name].shape[axis] for run in recorded.runs)
                name = dim if dim != UNNAMED else None
                placed[axis, sizes] = placed.get((axis, sizes)) or name
                if name:
                    names.setdefault(sizes, name)

    def declare(name: str) -> onnx.ValueInfoProto:
        arrays = [run[name] for run in recorded.runs if name in run]
        if len(arrays) < len(recorded.runs):
            raise UnrecordedError(f"no recorded value for {name!r}")
        if len({x.ndim for x in arrays}) > 1:
            raise UnrecordedError(f"{name!r} has no one rank that could be declared")
        shape: list[int | str | None] = []
        for axis, sizes in enumerate(zip(*(x.shape for x in arrays))):
            if len(set(sizes)) > 1:
                shape.append(names.setdefault(sizes, f"dim_{len(names)}"))
            else:
                shape.append(placed.get((axis, sizes), sizes[0]))
        return helper.make_tensor_value_info(name, _element_type(arrays[0]), shape)

    return declare


def _element_type(x: np.ndarray) -> int:
    if x.dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(x.dtype)


def _bare(node: onnx.NodeProto) -> onnx.NodeProto:
    bare = deepcopy(node)
    bare.ClearField("doc_string")
    bare.ClearField("metadata_props")
    return bare
