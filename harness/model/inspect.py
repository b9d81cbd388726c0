"""Case, as the harness sees it: size, and feeds that fit."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import onnx
from driftnet.model.case import Case as Case
from driftnet.model.case import Feed as Feed
from driftnet.model.operators import Trait, full_name, traits_of
from driftnet.util.errors import UserError
from onnx import helper

NUMBERED = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a feed must give: graph inputs without an initializer."""
    given = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in given]


def opset(model: onnx.ModelProto) -> int:
    """The version of the default domain, 1 where a model imports none."""
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def input_dtype(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    """The dtype of an array for the graph input `value`. Raises UserError (kind "feed") where there is none: no tensor,
    no element type, or one that numpy lacks (bfloat16, float8, int4, ...) and a feed cannot carry."""
    number = value.type.tensor_type.elem_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(number)
    except KeyError:
        said = f"element type {number}" if number else "no element type"
    else:
        if dtype.isbuiltin == 1:
            return dtype
        said = f"element type {dtype.name}"
    what = said if value.type.HasField("tensor_type") else "a type that is no tensor"
    raise UserError(
        f"input {value.name!r} has {what}: driftnet cannot feed it",
        hint="give the model inputs of a type that numpy has, with a Cast behind each where it needs another",
        kind="feed",
    )


def dtype_name(value: onnx.ValueInfoProto) -> str:
    """numpy's name of the element type that `value` is declared to have, "" where it is declared to have none."""
    return _dtype_name(value.type.tensor_type.elem_type)


@cache
def _dtype_name(number: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(number).name) if number in NUMBERED else ""


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of subgraphs included."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def no_text(graph: onnx.GraphProto) -> bytes | None:
    """A name of a graph or its subgraphs that is not UTF-8, which protobuf gives as bytes; None where all are texts."""
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    dims = (d.dim_param for v in (*graph.input, *graph.output) for d in v.type.tensor_type.shape.dim)
    nodes = (
        name
        for node in all_nodes(graph)
        for name in (node.op_type, node.domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute))
    )
    names: Iterator[Any] = chain((v.name for v in values), dims, nodes)
    return next((name for name in names if isinstance(name, bytes)), None)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs a node holds."""
    return [g for a in node.attribute for g in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs)]


def computing(graph: onnx.GraphProto) -> list[int]:
    """Indices of the nodes that are no Constant, subgraphs excluded."""
    return [i for i, node in enumerate(graph.node) if node.op_type != "Constant"]


def has_any(node: onnx.NodeProto, traits: Trait) -> bool:
    """Whether the operator of `node` has any of `traits`."""
    return bool(traits_of(full_name(node.op_type, node.domain)) & traits)


def refill(field: Any, items: Iterable[Any]) -> None:
    """Let a repeated field of a protobuf message hold `items`, some of which it may hold already."""
    kept = list(items)
    del field[:]
    field.extend(kept)


def nodes(case: Case) -> int:
    """Number of nodes without Constant, subgraphs included."""
    return sum(node.op_type != "Constant" for node in all_nodes(case.proto.graph))


def elements(case: Case) -> int:
    """Elements of the first feed's inputs, of initializers and of Constant nodes."""
    total = sum(int(np.prod(t.dims)) for t in case.proto.graph.initializer)
    for node in all_nodes(case.proto.graph):
        if node.op_type == "Constant":
            for a in node.attribute:
                total += int(np.prod(a.t.dims)) if a.HasField("t") else max(1, len(a.floats) + len(a.ints))
    return total + sum(int(x.size) for x in (case.feeds[0] if case.feeds else {}).values())


UNNAMED = "?"
"""In the place of the name of a dim that is free without one."""


def declared_dims(value: onnx.ValueInfoProto) -> list[int | str]:
    """Each dim of a tensor: its size, its name, or UNNAMED where it is free without one: Paddle writes -1 for that."""
    dims = value.type.tensor_type.shape.dim
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else UNNAMED) for d in dims]


def validate_feed(model: onnx.ModelProto, feed: Feed, what: str) -> None:
    """Raise UserError unless `feed` gives every graph input of `model` with the declared dtype and shape.

    what names the feed for the reader ("calibration feed 2 of DIR"). A symbolic dim takes one size throughout a feed.
    """
    expected = {v.name: v for v in graph_inputs(model)}
    if missing := [name for name in expected if name not in feed]:
        got = f", got {', '.join(feed)}" if feed else ""
        raise _misfit(f"{what} lacks input {missing[0]!r}; the model's inputs are {', '.join(expected)}{got}")
    if unknown := [name for name in feed if name not in expected]:
        inputs = ", ".join(expected)
        raise _misfit(f"{what} gives {unknown[0]!r}, which is no input of the model; its inputs are {inputs}")
    symbols: dict[str, tuple[int, str]] = {}
    for name, value in expected.items():
        x, tensor, dtype = np.asarray(feed[name]), value.type.tensor_type, input_dtype(value)
        if x.dtype != dtype:
            raise _misfit(f"{what}: input {name!r} has dtype {x.dtype}, the model expects {dtype}")
        if not tensor.HasField("shape"):
            continue
        declared = declared_dims(value)
        said, given = f"[{', '.join(map(str, declared))}]", list(x.shape)
        if len(declared) != x.ndim or any(isinstance(d, int) and d != n for d, n in zip(declared, x.shape)):
            raise _misfit(f"{what}: input {name!r} has shape {given}, the model expects {said}")
        for dim, n in zip(declared, x.shape):
            before, other = symbols.setdefault(dim, (n, name)) if isinstance(dim, str) and dim != "?" else (n, name)
            if before != n:
                raise _misfit(
                    f"{what}: dimension {dim!r} is {before} in input {other!r} but {n} in input {name!r} "
                    f"(shape {given}, the model expects {said})"
                )


def _misfit(said: str) -> UserError:
    hint = "each feed needs one array for every graph input, with the declared dtype and shape"
    return UserError(said, hint=hint, kind="feed")


NOT_REGISTERED = "export it as operators of ONNX, or put its definition into the model as a function (model.functions)"
"""What to do about what `custom_operators` finds."""


def custom_operators(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """(node name, domain::operator) of every node whose operator no ONNX schema, no function of the model and no
    contributed domain of onnxruntime defines: for these nobody can know even the output's shape."""
    functions = {(f.domain, f.name) for f in model.functions}
    known_domains = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
    return [
        (node.name or ", ".join(node.output), f"{node.domain}::{node.op_type}" if node.domain else node.op_type)
        for node in all_nodes(model.graph)
        if (node.domain, node.op_type) not in functions
        and not (
            onnx.defs.has(node.op_type, node.domain) if node.domain in ("", "ai.onnx") else node.domain in known_domains
        )
    ]
