"""Minimal pairs: the reduced case with one thing changed.

What cannot be changed without losing the failure is necessary, what can is free. A change that makes no legal model
costs one question to the reference and is forgotten.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from driftnet.causes.facts import Place
from driftnet.causes.host import Host
from driftnet.generators.mutation.changes import WORDS
from driftnet.generators.ops.table import families
from driftnet.learning import edits
from driftnet.learning.edits import Refill
from driftnet.model.case import Case
from driftnet.model.inspect import graph_inputs
from driftnet.model.operators import Trait, traits_of
from driftnet.model.schemas import FEW, default_of, plain, schema_of
from driftnet.reduce.problem import PLAIN
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe, canonical, effective
from driftnet.util.groups import groups
from onnx import defs, helper

DTYPES = ("float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool")
OPSETS = (13, 21, 17, 26, 11, 19, 23, 14)
"""The ones after which much changed first."""
SIZES = (1, 2, 3, 5)
# Of those that need nothing but a tensor, one or two of each kind.
ANY = ("Identity", "Transpose", "Flatten", "Neg", "Relu")
"""Operators that take a tensor of nearly any kind: where these fail too, the operator does not matter."""
SIBLINGS = 12
"""Operators of one family that are tried in the place of one."""


@dataclass(frozen=True)
class Change:
    """One thing changed.

    aspect   what it is that was changed, as facts call it ("0.attr.strides", "0.in.1.dtype", "recipe.threads")
    said     to what, for people
    make     the changed model; None where it cannot be
    recipe   the changed recipe; None: as it was
    """

    aspect: str
    said: str
    make: Callable[[], Case | None]
    recipe: Recipe | None = None


def changes(case: Case, recipe: Recipe, target: Target, host: Host, place: Place) -> Iterator[Change]:
    """Every change of one thing at `place`, which is all of `case`, what tells most first."""
    yield from _of_operators(case, host, place)
    yield from _of_attributes(case, host, place)
    yield from _of_presence(case, host, place)
    yield from _of_sources(case, host, place)
    yield from _of_dtypes(case, host, place)
    yield from _of_company(case, host, place)
    yield from _of_sizes(case, host)
    yield from _of_values(case, host, place)
    yield from _of_opset(case, host)
    yield from _of_recipe(case, recipe, target)


def _of_recipe(case: Case, recipe: Recipe, target: Target) -> Iterator[Change]:
    chosen = effective(target, recipe)
    for option in target.options:
        for value in option.values if option.name in chosen else ():
            if value != chosen[option.name]:
                changed = canonical(target, {**recipe, option.name: value})
                yield Change(f"recipe.{option.name}", str(value), lambda: case, changed)


def _of_opset(case: Case, host: Host) -> Iterator[Change]:
    for version in OPSETS:
        if version != host.graph.opset:
            yield Change("opset", str(version), partial(edits.at_opset, case, version))


def _of_operators(case: Case, host: Host, place: Place) -> Iterator[Change]:
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        family = next((names for names in families().values() if node.op in names), ())
        at = family.index(node.op) if family else 0
        near = sorted((name for name in family if name != node.op), key=lambda name: abs(family.index(name) - at))
        known = schema_of(node.op, host.graph.opset) is not None
        fitting = [name for name in near if known and accepts(name, len(node.inputs), host.graph.opset)]
        for name in dict.fromkeys([*fitting[:SIBLINGS], *(PLAIN if len(place) > 1 else ANY)]):
            if name != node.op:
                yield Change(f"{role}.op", name, partial(edits.with_operator, case, node.outputs, name))
        if Trait.COMMUTES in traits_of(node.op) and len(set(node.inputs[:2])) == 2:
            yield Change(f"{role}.order", "swapped", partial(edits.swapped, case, node.outputs))


def accepts(name: str, inputs: int, opset: int) -> bool:
    """Whether an operator may read so many operands, and make one result."""
    schema = schema_of(name, opset)
    return schema is not None and schema.min_input <= inputs <= schema.max_input and schema.min_output <= 1


def _of_attributes(case: Case, host: Host, place: Place) -> Iterator[Change]:
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        schema = schema_of(node.op, host.graph.opset)
        if schema is None:
            continue
        rank = next((x.ndim for name in node.inputs[:1] if (x := host.array(name)) is not None), 0)
        for name, attribute in schema.attributes.items():
            aspect = f"{role}.attr.{name}"
            stated = name in node.attributes
            default = default_of(schema, name)
            if stated and not attribute.required:
                yield Change(
                    f"{aspect}.stated", "left out", partial(edits.with_attribute, case, node.outputs, name, None)
                )
            if not stated and default is not None:
                yield Change(f"{aspect}.stated", str(default), _setter(case, node.outputs, attribute, default))
            now = plain(node.attributes[name]) if stated else default
            for value in _other_values(attribute, now, node.op, rank):
                if value != now:
                    yield Change(aspect, str(value), _setter(case, node.outputs, attribute, value))


def _setter(case: Case, outputs: Sequence[str], attribute: Any, value: Any) -> Callable[[], Case | None]:
    kind = int(attribute.type.value) if hasattr(attribute.type, "value") else int(attribute.type)
    made = helper.make_attribute(attribute.name, value, attr_type=kind)
    return partial(edits.with_attribute, case, outputs, attribute.name, made)


def _other_values(attribute: Any, now: Any, op: str, rank: int) -> Iterator[Any]:
    types = defs.OpSchema.AttrType
    match attribute.type:
        case types.INT:
            if attribute.name == "to":
                yield from (helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in DTYPES)
                return
            base = now if isinstance(now, int) else 0
            yield from dict.fromkeys((0, 1, 2, -1, base + 1, base - 1))
        case types.FLOAT:
            number = now if isinstance(now, float) else 0.0
            yield from dict.fromkeys((0.0, 1.0, 0.5, -1.0, 2 * number, -number))
        case types.STRING:
            yield from next((words for words in WORDS if now in words), ())
        case types.INTS:
            if isinstance(now, tuple) and now:
                yield from ([n] * len(now) for n in (0, 1, 2, 3))
                yield list(now[::-1])
                yield from ([*now[:i], n + 1, *now[i + 1 :]] for i, n in enumerate(now[:FEW]))
            elif Trait.SLIDES in traits_of(op) and rank > 2:
                spatial = 2 * (rank - 2) if attribute.name == "pads" else rank - 2
                yield from ([n] * spatial for n in (1, 2, 3))
            elif attribute.name == "axes":
                yield from ([0], [1], [-1], [0, 1])


def _of_presence(case: Case, host: Host, place: Place) -> Iterator[Change]:
    """Optional operands and results left out; results that no one had; the same tensor twice."""
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        schema = schema_of(node.op, host.graph.opset)
        for k, name in enumerate(node.inputs):
            last = k == len(node.inputs) - 1
            option = schema.inputs[min(k, len(schema.inputs) - 1)].option if schema and schema.inputs else None
            if name and (option == defs.OpSchema.FormalParameterOption.Optional or (option and last and k)):
                yield Change(f"{role}.in.{k}.given", "left out", partial(edits.without_operand, case, node.outputs, k))
        if schema and len(node.outputs) < min(schema.max_output, 4):
            yield Change(f"{role}.outputs", "one more", partial(edits.with_result, case, node.outputs))
        for k in range(1, len(node.outputs)):
            yield Change(f"{role}.outputs", f"{k}", partial(edits.with_fewer_results, case, node.outputs, k))


def _of_sources(case: Case, host: Host, place: Place) -> Iterator[Change]:
    """A constant becomes an input or the result of a Constant node, an input becomes a constant; what is read twice is
    there twice."""
    fed = [v.name for v in graph_inputs(case.proto)]
    for aspect, name in _leaves(host, place):
        x = host.array(name)
        if x is None:
            continue
        if name in fed and len(fed) > 1 and all(np.array_equal(x, feed[name]) for feed in case.feeds):
            yield Change(f"{aspect}.from", "constant", partial(edits.as_constant, case, name))
        elif name in fed and len(fed) == 1:
            yield Change(
                f"{aspect}.from", "constant beside an input", partial(edits.as_constant, case, name, beside=True)
            )
        elif name in host.graph.constants and x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1:
            yield Change(f"{aspect}.from", "input", partial(edits.as_input, case, name))
            other = "Constant" if name in host.graph.initializers else "initializer"
            yield Change(f"{aspect}.initializer", other, partial(edits.as_other_constant, case, name))
    read = set[str]()
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        for k, name in enumerate(node.inputs):
            if name in read and name not in host.makers:
                fixed = name not in fed
                copy = partial(edits.given_instead, case, node.outputs, k, host, fixed=fixed)
                yield Change(f"{role}.in.{k}.shared", "a copy", copy)
                if fixed and _is_float(host, name):
                    yield Change(f"{role}.in.{k}.equals", "of other numbers", partial(copy, change=_turned))
            read.add(name)


def _turned(x: np.ndarray) -> np.ndarray:
    """Other numbers of the same sort."""
    other = np.roll(x, 1)
    return x + x.dtype.type(1) if np.array_equal(other, x) else other


def _leaves(host: Host, place: Place) -> Iterator[tuple[str, str]]:
    """(aspect, name) of the operands that no node of the place makes, each once."""
    seen = set[str]()
    for role, index in enumerate(place):
        for k, name in enumerate(host.graph.nodes[index].inputs):
            if name and name not in host.makers and name not in seen:
                seen.add(name)
                yield f"{role}.in.{k}", name


def _of_dtypes(case: Case, host: Host, place: Place) -> Iterator[Change]:
    """Tensors that have to have one dtype, in another one."""
    for aspect, names in _alike_in_type(host, place):
        known = [x for name in names if (x := host.array(name)) is not None]
        if known and known[0].dtype.kind in "biuf":
            now = known[0].dtype
            for name in DTYPES:
                if np.dtype(name) != now:
                    yield Change(f"{aspect}.dtype", name, partial(edits.in_dtype, case, names, np.dtype(name)))


def _alike_in_type(host: Host, place: Place) -> Iterator[tuple[str, frozenset[str]]]:
    """(aspect, tensors) that the schemas tie to one type; the aspect is that of the first operand."""
    aspects: dict[str, str] = {}
    links: list[list[str]] = []
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        schema = schema_of(node.op, host.graph.opset)
        if schema is None:
            continue
        tied: dict[str, list[str]] = {}
        for formals, names in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
            for k, name in enumerate(names):
                formal = formals[min(k, len(formals) - 1)] if formals else None
                if name and formal and formal.is_homogeneous:
                    tied.setdefault(formal.type_str, []).append(name)
        for k, name in enumerate(node.inputs):
            aspects.setdefault(name, f"{role}.in.{k}")
        links += tied.values()
    for joined in groups(links):
        if named := [aspects[name] for name in aspects if name in joined]:
            yield named[0], frozenset(joined)


def _of_company(case: Case, host: Host, place: Place) -> Iterator[Change]:
    final = set(host.graph.outputs)
    for role, index in enumerate(place):
        node = host.graph.nodes[index]
        for k, name in enumerate(node.outputs[:1]):
            if _has_sign(host, name):
                yield Change(f"{role}.out.{k}.reader", "a Neg too", partial(edits.read_too, case, name))
                if name in final:
                    yield Change(f"{role}.out.{k}.final", "a Neg behind", partial(edits.behind, case, name))
            if name not in final:
                yield Change(f"{role}.out.{k}.final", "an output too", partial(edits.exposed, case, name))
        for k, name in enumerate(node.inputs):
            if name in case.feeds[0] and _is_float(host, name):
                yield Change(f"{role}.in.{k}.maker", "Neg", partial(edits.before, case, name, "Neg"))
                yield Change(f"{role}.in.{k}.maker", "Relu", partial(edits.before, case, name, "Relu"))
            elif name in host.makers and host.array(name) is not None:
                yield Change(f"{role}.in.{k}.from", "input", partial(edits.given_instead, case, node.outputs, k, host))
                yield Change(
                    f"{role}.in.{k}.from",
                    "constant",
                    partial(edits.given_instead, case, node.outputs, k, host, fixed=True),
                )


def _has_sign(host: Host, name: str) -> bool:
    """Whether Neg takes a tensor."""
    x = host.array(name)
    return x is not None and x.dtype.kind in "fi"


def _is_float(host: Host, name: str) -> bool:
    x = host.array(name)
    return x is not None and x.dtype.kind == "f"


def _of_sizes(case: Case, host: Host) -> Iterator[Change]:
    tensors = {**host.graph.constants, **host.tensors}
    leaves = {v.name for v in graph_inputs(case.proto)} | set(host.graph.constants)
    for group in edits.resizable_groups(case, host):
        first = next(size for size in group if size.what == "dim" and size.owner in leaves)
        now = np.shape(tensors[first.owner])[first.at]
        for n in (*SIZES, 8 * max(now, 1)):
            if n != now:
                aspect = f"{_aspect(host, first.owner)}.dim.{first.at}"
                yield Change(aspect, str(n), partial(edits.sized, case, group, first, n, tensors))
    if any(not _is_symbolic(v) and len(v.type.tensor_type.shape.dim) for v in graph_inputs(case.proto)):
        yield Change("symbolic", "the first dims", partial(edits.symbolic, case, (0,)))
        yield Change("symbolic", "the last dims", partial(edits.symbolic, case, (-1,)))
        yield Change("symbolic", "all dims", partial(edits.symbolic, case, range(8)))
    if any(map(_is_symbolic, graph_inputs(case.proto))):
        yield Change("symbolic", "none", partial(edits.static, case))
    yield Change("rank", "one more", partial(edits.with_axis, case))
    yield Change("rank", "one less", partial(edits.without_axis, case))


def _aspect(host: Host, name: str) -> str:
    for role, node in enumerate(host.graph.nodes):
        if name in node.inputs:
            return f"{role}.in.{node.inputs.index(name)}"
    return "0.in.0"


def _is_symbolic(value: onnx.ValueInfoProto) -> bool:
    return any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


REFILLS: Mapping[str, Refill] = {
    "negated": lambda x, rng: -x,
    "positive": lambda x, rng: np.abs(x) + 0.5,
    "zeros": lambda x, rng: np.zeros_like(x),
    "ones": lambda x, rng: np.ones_like(x),
    "whole": lambda x, rng: rng.integers(-3, 4, x.shape).astype(x.dtype),
    "distinct": lambda x, rng: rng.permutation(x.size).reshape(x.shape).astype(x.dtype) - x.size // 2 + 0.25,
    "random": lambda x, rng: rng.standard_normal(x.shape).astype(x.dtype),
    "large": lambda x, rng: (rng.standard_normal(x.shape) * 1e4).astype(x.dtype),
    "small": lambda x, rng: (rng.standard_normal(x.shape) * 1e-5).astype(x.dtype),
}
"""Other values of a float operand."""

WHOLE_REFILLS: Mapping[str, Refill] = {
    "zeros": lambda x, rng: np.zeros_like(x),
    "ones": lambda x, rng: np.ones_like(x),
    "more": lambda x, rng: x + 1,
    "less": lambda x, rng: x - 1,
    "random": lambda x, rng: rng.integers(0 if x.dtype.kind == "u" else -3, 4, x.shape).astype(x.dtype),
}
"""Other values of an integer operand."""


def _of_values(case: Case, host: Host, place: Place) -> Iterator[Change]:
    for aspect, name in _leaves(host, place):
        x = host.array(name)
        if x is None or not x.size or x.dtype.kind not in "iuf":
            continue
        for how, refill in (REFILLS if x.dtype.kind == "f" else WHOLE_REFILLS).items():
            yield Change(f"{aspect}.values", how, partial(edits.refilled, case, name, refill))
    if len([name for _, name in _leaves(host, place)]) > 1:
        yield Change("values", "all random", partial(edits.refilled, case, "", REFILLS["random"]))
