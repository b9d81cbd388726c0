"""Facts: what can be said of a place in a model without running it, as data that a trigger is a predicate over.

A place is a few nodes of one graph, in the roles 0, 1, ... that a trigger gives them. Each fact has a name and a value:

    0.op                          "MaxPool"                      0.attr.strides            (2, 2)
    0.attr.strides.stated         False                          0.in.0.dtype              "float32"
    0.in.1.from                   "constant"|"input"|"computed"  0.in.0.dim.-1             5
    0.in.0.negative               True                           0.out.0.final             True
    0.any.integer                 False
    1.in.0.made                   "0.out.0"                      0.in.2.shared             "1.in.2"
    1.in.1.equals                 "0.in.1"                       1.attr.perm.equals        "0.attr.perm"
    0.out.0.extended._scale       True                           0.out.0.declared          False
    0.in.1.raised                 False                          0.twin                     True
    0.passes                      True                           0.moves                    True
    recipe.quantize               "offline"                      opset                     13
    named                         True                           symbolic                      False

A value that only a run could tell (the sign of what a graph input is fed) is None: unknown. What has no meaning at a
place, such as the strides of an Add, has no fact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import Any

import numpy as np
from driftnet.causes.host import Dims, Host
from driftnet.model.graph import Node
from driftnet.model.index_ranges import PASSING
from driftnet.model.operators import Trait, traits_of
from driftnet.model.schemas import default_of, plain, schema_of

Value = str | int | float | bool | tuple[Any, ...] | None
Facts = Mapping[str, Value]
Place = tuple[int, ...]
"""Indices into `Graph.nodes`, in the order of the roles."""

SLOTS = 8
"""Operands of a node that are looked at; what is variadic has alike ones."""
PARAMETERS = frozenset(
    (
        "axes",
        "depth",
        "ends",
        "k",
        "kernel_shape",
        "pads",
        "repeats",
        "scales",
        "shape",
        "sizes",
        "split",
        "starts",
        "steps",
    )
)
"""Operands that were attributes once, or might be."""
DIMS = (0, 1, 2, 3, -2, -1)
LARGE = 2**14
"""Elements of a tensor beyond which nobody sorts it to tell whether two of them are equal."""


@cache
def kind_of(name: str) -> str:
    """What a fact of a node is found out with: facts of one operand with each other, but for its type, what it is like,
    and its numbers, each of which takes longer."""
    head, _, rest = name.partition(".")
    if head not in ("in", "out"):
        return head
    slot, _, what = rest.partition(".")
    part = _PART_OF.get(what.partition(".")[0], "")
    return f"{head}.{slot}{part}"


def kinds_of(node: Node) -> Iterator[str]:
    """What all the facts of a node are found out with."""
    yield from ("op", "trait", "attr")
    for head, names in (("in", node.inputs), ("out", node.outputs)):
        for k in range(min(SLOTS, len(names))):
            yield from (f"{head}.{k}{part}" for part in _PARTS)
    yield from ("any", "broadcast", "say", "axis", "twin", "passes", "moves", "on_grid", "inputs", "outputs")


def of_kind(host: Host, node: Node, kind: str) -> Iterable[tuple[str, Value]]:
    """The facts of a node that are found out with one `kind_of` them."""
    match kind.split("."):
        case ["op"]:
            yield "op", node.op
        case ["trait"]:
            yield from _traits(node.op)
        case ["attr"]:
            yield from of_attributes(node.op, host.graph.opset, node.attributes)
        case ["in", slot, *part] if slot.isdecimal() and int(slot) < SLOTS:
            yield from _of_operand(host, node, int(slot), *part)
        case ["out", slot, *part] if slot.isdecimal() and int(slot) < SLOTS:
            yield from _of_result(host, node, int(slot), *part)
        case ["any"]:
            yield from _of_any(host, node)
        case ["broadcast"] if Trait.BROADCASTS in traits_of(node.op):
            if len(node.inputs) > 1 and all(node.inputs[:2]):
                yield "broadcast", _broadcast(host, *node.inputs[:2])
            if len(names := [name for name in node.inputs if name]) > 1:
                yield "broadcast.alike", _all(host.of_one_shape(names[0], name) for name in names[1:])
        case ["say"]:
            yield from _of_parameters(host, node)
            if Trait.SPATIAL in traits_of(node.op) and (even := _pads_evenly(host, node)) is not Ellipsis:
                yield "say.pads.even", even
            if node.attributes.get("ceil_mode") and (image := (host.shape(node.inputs[0]) or ())[2:]):
                yield "say.beyond", _begins_beyond(node, image)
            if Trait.SPATIAL in traits_of(node.op) and (pads := node.attributes.get("pads")):
                before = zip((host.shape(node.inputs[0]) or ())[2:], pads[: len(pads) // 2])
                covered = {None if n is None else pad >= n for n, pad in before}
                yield "say.covered", True if True in covered else None if None in covered else False
            if Trait.SPATIAL in traits_of(node.op) and (dilations := node.attributes.get("dilations")):
                wide = [k for k, d in zip(_kernel(host, node) or [None] * len(dilations), dilations) if d > 1]
                yield "say.spread", any(k is not None and k > 1 for k in wide) or (None if None in wide else False)
            shape = host.shape(node.inputs[0]) if "group" in node.attributes and node.inputs else None
            if shape is not None and len(shape) > 1 and shape[1] is not None:
                yield "say.depthwise", node.attributes["group"] == shape[1] > 1
            weights = host.shape(node.inputs[1]) if node.op == "Conv" and shape is not None else None
            if weights and weights[0] is not None and node.attributes["group"]:
                yield "say.per_group", weights[0] // node.attributes["group"]
        case ["axis"]:
            shape = host.shape(node.inputs[0]) if node.inputs else None
            if isinstance(axis := _axis(node, host.graph.opset), int) and shape is not None:
                yield "axis.first", axis in (0, -len(shape))
                yield "axis.last", axis in (-1, len(shape) - 1)
                if -len(shape) <= axis < len(shape):
                    yield "axis.size", _length(node, host.graph.opset, shape, axis)
        case ["twin"]:
            yield "twin", any(name in host.twins for name in node.outputs)
        case ["passes"]:
            yield "passes", _passes(host, node)
        case ["moves"]:
            yield "moves", Trait.MOVES in traits_of(node.op) or _passes(host, node)
        case ["on_grid"] if Trait.QUANTIZES in traits_of(node.op):
            yield "on_grid", _is_on_grid(host, node)
        case ["inputs"]:
            yield "inputs", sum(bool(name) for name in node.inputs)
        case ["outputs"]:
            yield "outputs", sum(bool(name) for name in node.outputs)
            yield "outputs.listed", len(node.outputs)  # with what has no name: an importer may ask for its place


@cache
def _traits(op: str) -> tuple[tuple[str, Value], ...]:
    return tuple((f"trait.{str(trait.name).lower()}", True) for trait in traits_of(op))


ANY: Mapping[str, frozenset[str]] = {
    "integer": frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)),
    "bool": frozenset(("bool",)),
    "half": frozenset(("float16", "bfloat16")),
    "double": frozenset(("double",)),
}
"""Classes of dtypes that systems made for float treat in ways of their own."""


def _of_any(host: Host, node: Node) -> Iterable[tuple[str, Value]]:
    names = [name for name in (*node.inputs, *node.outputs) if name and name not in host.folded]
    return of_dtypes({host.dtype(name) for name in names})


def of_dtypes(found: Set[Value]) -> Iterable[tuple[str, Value]]:
    """Whether any operand that is no constant, or any result, is of a class of dtypes. found: theirs, None unknown."""
    for what, dtypes in ANY.items():
        yield f"any.{what}", True if found & dtypes else None if None in found else False


# no trait says beside which number an operator does nothing
NEUTRAL = {"Add": (0, (1, 0)), "Sub": (0, (1,)), "Mul": (1, (1, 0)), "Div": (1, (1,)), "Pow": (1, (1,))}
"""Operators of two operands -> the number beside which the result is the other operand, and the slots it may be in."""


def _passes(host: Host, node: Node) -> bool | None:
    """Whether a node hands on an operand as it is, whatever is fed: converters take such ones away. None where that
    hangs on a shape or a dtype that is unknown."""
    given, made = node.input(0), next(iter(node.outputs), "")
    if not given or not made:
        return False

    def holds(k: int, value: int) -> bool:
        x = host.graph.constants.get(node.input(k))
        return x is not None and x.dtype.kind not in "OSU" and bool((x == value).all())

    match node.op:  # that it does nothing here is no trait: it hangs on what it is given
        case "Identity":
            return True
        case "Dropout":
            return not node.input(2) or holds(2, 0)
        case "Concat" | "Sum" | "Max" | "Min" | "Mean":
            return len(node.inputs) == 1
        case "Split":
            return len(node.outputs) == 1
        case "Cast":
            before, after = (host.dtype(name) for name in (given, made))
            return None if before is None or after is None else before == after
        case op if op in NEUTRAL:
            number, slots = NEUTRAL[op]
            kept = {_is_kept(host, node.input(1 - k), node.input(k), made) for k in slots if holds(k, number)}
            return True if True in kept else None if None in kept else False
        case "Pad":
            return holds(1, 0) if node.input(1) else not any(node.attributes.get("pads") or [1])
        case "MaxPool" | "AveragePool":
            sizes = (*node.attributes["kernel_shape"], *node.attributes.get("strides", ()))
            return set(sizes) == {1} and not any(node.attributes.get("pads", ()))
    return False


def _is_on_grid(host: Host, node: Node) -> bool:
    """Whether what is quantized was made of codes of the same type, scale and zero point, along the same axis, and has
    only been moved, repeated or chosen from since: such a pair of Q and DQ changes nothing, whoever leaves it out."""

    def is_alike(a: str, b: str) -> bool:
        if not (a and b):  # a zero point that is not there is 0
            x = host.array(a or b)
            return a == b or (x is not None and bool((x == 0).all()))
        x, y = host.array(a), host.array(b)
        return a == b or (x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y))

    def has_codes_of(maker: Node) -> bool:
        typed = ((maker.input(0), node.outputs[0]), (maker.input(1), maker.outputs[0]))  # codes; floats as the scale
        return (
            all(is_alike(maker.input(k), node.input(k)) for k in (1, 2))
            and all(host.dtype(a) == host.dtype(b) for a, b in typed)
            and (is_one_scale or _along(host, maker) == _along(host, node))
        )

    scale = host.shape(node.input(1))
    is_one_scale = scale is not None and all(n == 1 for n in scale)
    left, seen = [node.input(0)], set[str]()
    while left:
        seen.add(name := left.pop())
        made = host.makers.get(name)
        maker = host.graph.nodes[made[0]] if made else None
        traits = traits_of(maker.op) if maker else Trait(0)
        passed = {n for n in maker.inputs if n and host.dtype(n) == host.dtype(name)} if maker else set[str]()
        # Of several scales each is for its place along an axis: what moves elements hands them to others.
        stays = Trait.ELEMENTWISE in traits and all(host.of_one_shape(n, name) for n in passed)
        if maker and Trait.DEQUANTIZES in traits:
            if not has_codes_of(maker):
                return False
        elif traits & PASSING and passed and (is_one_scale or stays):
            left += passed - seen
        else:
            return False
    return True


def _along(host: Host, node: Node) -> tuple[Any, int]:
    """The axis that the scales of a Q or DQ are along, from the front where the rank is known, and of how many elements
    each is, 0 where there is one for each place."""
    axis, shape = _axis(node, host.graph.opset), host.shape(node.input(0))
    return axis % len(shape) if shape and axis is not None else axis, node.attributes.get("block_size", 0)


def _is_kept(host: Host, name: str, constant: str, result: str) -> bool | None:
    """Whether an operand keeps its shape beside a constant: one number widens no operand of as many axes or more."""
    shape, x = host.shape(name), host.graph.constants[constant]
    if x.size == 1 and (x.ndim == 0 or (shape is not None and x.ndim <= len(shape))):
        return True
    return host.of_one_shape(name, result)


def _of_growth(image: Sequence[int | None], result: Sequence[int | None]) -> Iterable[tuple[str, Value]]:
    """By what the last two axes grow."""
    for axis in (-2, -1):
        if min(len(image), len(result)) >= 2 - axis and (before := image[axis]) and (after := result[axis]):
            yield f"out.0.ratio.{axis}", round(after / before, 3)


def _axis(node: Node, opset: int) -> Any:
    schema = schema_of(node.op, opset)
    default = default_of(schema, "axis") if schema and "axis" in schema.attributes else None
    return node.attributes.get("axis", default)


def _length(node: Node, opset: int, shape: Dims, axis: int) -> int | None:
    """How many elements lie along the axis; below opset 13 a Softmax goes over all axes from it on, as one."""
    flat = node.op in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13  # no trait tells what a version changed
    dims = shape[axis:] if flat else (shape[axis],)
    return None if None in dims else math.prod(n or 0 for n in dims)


def _broadcast(host: Host, *operands: str) -> str | None:
    """What broadcasting two operands takes: nothing, as they are as large; repeating one number; more."""
    a, b = map(host.shape, operands)
    if a is None or b is None:
        return None
    if None in a or None in b:
        return "nothing" if 0 not in a and host.of_one_shape(*operands) else None
    shapes = [tuple(n or 0 for n in shape) for shape in (a, b)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    if 0 in sizes:
        return "empty"
    try:
        most = int(np.prod(np.broadcast_shapes(*shapes)))
    except ValueError:
        most = -1
    return "nothing" if min(sizes) == most else "one number" if min(sizes) == 1 else "axes"


def _all(told: Iterable[bool | None]) -> bool | None:
    found = set(told)
    return False if False in found else None if None in found else True


def of_attributes(op: str, opset: int, attributes: Mapping[str, Any]) -> Iterable[tuple[str, Value]]:
    """The facts of an operator's attributes, of which `attributes` are stated."""
    defaults = _defaults(op, opset)
    for name in {**defaults, **attributes}:
        stated, default = name in attributes, defaults.get(name)
        value = plain(attributes[name]) if stated else "unset" if default is None else default
        yield f"attr.{name}.stated", stated
        yield f"attr.{name}", value
        if default is not None:
            yield f"attr.{name}.default", value == default
        if isinstance(value, tuple) and value and all(isinstance(v, str) for v in value):
            yield from ((f"attr.{name}.has.{v}", True) for v in dict.fromkeys(value))
        elif isinstance(value, tuple) and value and all(isinstance(v, int | float) for v in value):
            yield f"attr.{name}.least", min(value)
            yield f"attr.{name}.most", max(value)
            yield f"attr.{name}.length", len(value)
            yield f"attr.{name}.first", value[0]  # the axis that loops over images run along by themselves


@lru_cache(maxsize=4096)
def _defaults(op: str, opset: int) -> Mapping[str, Any]:
    """The attributes that a schema has, with the values of those that are not stated."""
    schema = schema_of(op, opset)
    return {name: default_of(schema, name) for name in schema.attributes} if schema else {}


def _of_parameters(host: Host, node: Node) -> Iterable[tuple[str, Value]]:
    """Lists of integers that say how, whether this opset has them as an attribute or as an operand: axes, pads, ..."""
    schema = schema_of(node.op, host.graph.opset)
    named = {name: np.asarray(v) for name, v in node.attributes.items() if isinstance(v, list)}
    for k, name in enumerate(node.inputs[:SLOTS]):
        if name and schema and k < len(schema.inputs) and schema.inputs[k].name in PARAMETERS:
            x = host.array(name)
            if x is None:
                yield f"say.{schema.inputs[k].name}.count", None
            else:
                named[schema.inputs[k].name] = x.reshape(-1)
    for name, x in named.items():
        yield from of_list(name, x)


def _kernel(host: Host, node: Node) -> Sequence[int | None]:
    """The sizes of a window, which weights have where they are not stated; none where not even their rank is known."""
    return node.attributes.get("kernel_shape") or (host.shape(node.input(1)) or ())[2:]


def _pads_evenly(host: Host, node: Node) -> Any:
    """Whether as much is padded before as behind along each axis, where a rule says how much: auto_pad, or ceil_mode,
    which reaches beyond the end. None where sizes are unknown, ... where no rule says."""
    image = (host.shape(node.inputs[0]) or ())[2:]
    kernel = _kernel(host, node)
    is_same = str(node.attributes.get("auto_pad", "")).startswith("SAME")
    if not (is_same or node.attributes.get("ceil_mode")) or not len(image) == len(kernel) > 0:
        return ...
    told, count = [], len(kernel)
    strides, dilations = (node.attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    pads = node.attributes.get("pads") or [0] * 2 * count
    if not len(strides) == len(dilations) == len(pads) // 2 == count or 0 in strides:
        return ...
    further = node.attributes.get("output_padding") or [0] * count
    for n, k, s, d, more, before, behind in zip(image, kernel, strides, dilations, further, pads, pads[count:]):
        if k is not None and node.op == "ConvTranspose":
            told.append(max(d * (k - 1) + 1 - s + more, 0) % 2 == 0)
        elif n is None or k is None:
            told.append((d * (k - 1)) % 2 == 0 if is_same and s == 1 and k is not None else None)
        elif is_same:
            told.append(max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) % 2 == 0)
        else:
            told.append(before == behind and (n + before + behind - d * (k - 1) - 1) % s == 0)
    return _all(told)


def _begins_beyond(node: Node, image: Sequence[int | None]) -> bool | None:
    """Whether along some axis the last window that ceil_mode makes would begin behind the image and what is padded
    before it: ONNX leaves such a one out. None where sizes are unknown."""
    count, kernel = len(image), node.attributes.get("kernel_shape", ())
    strides, dilations = (node.attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    pads = node.attributes.get("pads") or [0] * 2 * count
    if None in image or 0 in strides or not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == count:
        return None
    axes = zip(image, kernel, strides, dilations, pads, pads[count:])
    return any(-((d * (k - 1) + 1 - n - before - after) // s) * s >= n + before for n, k, s, d, before, after in axes)


def of_list(name: str, x: np.ndarray) -> Iterable[tuple[str, Value]]:
    """The facts of a list that says how."""
    if x.dtype.kind in "iuf":
        yield f"say.{name}.count", int(x.size)
        if name == "pads" and x.size and x.size % 2 == 0:
            yield "say.pads.even", bool((x[: x.size // 2] == x[x.size // 2 :]).all())
        if x.size:
            yield f"say.{name}.least", _rounded(float(x.min()))
            yield f"say.{name}.most", _rounded(float(x.max()))


def _of_operand(host: Host, node: Node, k: int, part: str = "", *number: str) -> Iterable[tuple[str, Value]]:
    name, key = node.inputs[k] if k < len(node.inputs) else "", f"in.{k}"
    if not name:
        return
    if part == "numbers":
        yield from _of_values(host, key, name, number or _NUMBERS)
    elif part == "dtype":
        yield f"{key}.dtype", host.dtype(name)
    elif part == "shape":
        yield from _of_shape(host, key, name)
    elif part == "likeness":
        if k == 0:
            yield f"{key}.tied", _tied(host.array(name), node.attributes.get("axis", -1))
        elif node.inputs[0]:
            yield f"{key}.like.0", host.of_one_shape(name, node.inputs[0])
        if Trait.BROADCASTS in traits_of(node.op) and node.outputs:
            yield f"{key}.like.out", host.of_one_shape(name, node.outputs[0])
            shape, result = host.shape(name), host.shape(node.outputs[0])
            if shape is not None and result is not None and len(result) > 1:
                sizes = {*shape, result[1]}
                yield f"{key}.like.channels", None if None in sizes else math.prod(n or 0 for n in shape) == result[1]
        if name in node.inputs[:k]:
            yield f"{key}.repeated", True
    else:
        maker = host.makers.get(name)
        yield f"{key}.given", True
        yield f"{key}.from", "constant" if name in host.folded else "computed" if maker else "input"
        if name not in host.needed:
            yield f"{key}.needless", True
        yield f"{key}.maker", host.graph.nodes[maker[0]].op if maker else ""
        if name in host.graph.constants:
            yield f"{key}.initializer", name in host.graph.initializers
            if by := host.stated.get(name):
                yield f"{key}.by", by
        yield from ((f"{key}.extended.{rest}", True) for rest in host.extended.get(name, ()))


def _of_result(host: Host, node: Node, k: int, part: str = "", *number: str) -> Iterable[tuple[str, Value]]:
    name, key = node.outputs[k] if k < len(node.outputs) else "", f"out.{k}"
    if not name:
        return
    if part == "numbers":
        yield from _of_values(host, key, name, [what for what in number or _OF_RESULTS if what in _OF_RESULTS])
    elif part == "dtype":
        yield f"{key}.dtype", host.dtype(name)
    elif part == "shape":
        yield from _of_shape(host, key, name)
    elif part == "likeness":
        if node.inputs and node.inputs[0]:
            shape, image = host.shape(name), host.shape(node.inputs[0])
            yield f"{key}.like.0", host.of_one_shape(name, node.inputs[0])
            if shape is not None and image is not None:
                yield f"{key}.lost", len(image) - len(shape)
            if k == 0 and shape and image and Trait.SPATIAL in traits_of(node.op):
                yield from _of_growth(image, shape)
    else:
        readers = host.readers.get(name, [])
        yield f"{key}.given", True
        yield f"{key}.final", name in host.graph.outputs
        yield f"{key}.declared", name in host.typed
        yield f"{key}.readers", len(readers)
        yield from ((f"{key}.extended.{rest}", True) for rest in host.extended.get(name, ()))
        yield f"{key}.reader", host.graph.nodes[readers[0]].op if readers else ""


def _of_shape(host: Host, key: str, name: str) -> Iterable[tuple[str, Value]]:
    x, declared = host.array(name), host.declared.get(name)
    tensor = declared.tensor_type if declared and declared.HasField("tensor_type") else None
    if x is None and declared is not None and tensor is None:
        return
    shape = host.shape(name)
    if shape is None:
        yield from ((f"{key}.{what}", None) for what in ("rank", "elements"))
        return
    if tensor is not None and tensor.HasField("shape") and name not in host.graph.constants:
        yield f"{key}.symbolic", any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim)
    yield f"{key}.rank", len(shape)
    sizes = [n for n in shape if n is not None]
    yield f"{key}.elements", math.prod(sizes) if len(sizes) == len(shape) else 0 if 0 in sizes else None
    for k in DIMS:
        if -len(shape) <= k < len(shape):
            yield f"{key}.dim.{k}", shape[k]


_OF_RESULTS = ("negative", "positive", "finite", "nan", "zeros", "magnitude")
_NUMBERS = (*_OF_RESULTS, "zero", "minus", "whole", "halves", "raised", "same", "distinct", "smallest")
_PARTS = ("", ".dtype", ".shape", ".likeness", ".numbers")
_PART_OF = {
    "dtype": ".dtype",
    **dict.fromkeys(("rank", "elements", "dim", "symbolic"), ".shape"),
    **dict.fromkeys(("tied", "like", "repeated", "lost", "ratio"), ".likeness"),
    **{name: f".numbers.{name}" for name in _NUMBERS},
}
"""What facts of an operand are found out with, by the first word of their names. Of its numbers most triggers ask one
thing, which is found out by itself."""


def _of_values(host: Host, key: str, name: str, wanted: Sequence[str] = _NUMBERS) -> Iterable[tuple[str, Value]]:
    x = host.array(name)
    if x is None:
        yield from ((f"{key}.{what}", None) for what in wanted)
    elif x.dtype.kind in "biuf" and x.size:
        v = x.astype(np.float64).reshape(-1) if x.size <= LARGE or x.dtype.itemsize < 4 else x.reshape(-1)
        sizes = np.abs(v[np.isfinite(v)])
        for what in wanted:
            if (value := _of_numbers(what, x.dtype, v, sizes)) is not _NOTHING:
                yield f"{key}.{what}", value


_NOTHING = object()


def _of_numbers(what: str, dtype: np.dtype, v: np.ndarray, sizes: np.ndarray) -> Any:
    """One thing about the numbers `v` of a tensor; _NOTHING where there is no such thing. sizes: of those finite."""
    match what:
        case "negative":
            return bool((v < 0).any())
        case "positive":
            return bool((v > 0).any())
        case "zero":
            return bool((v == 0).any())
        case "minus":
            return bool((np.signbit(v) & (v == 0)).any())
        case "zeros":
            return bool(not sizes.any() and sizes.size == v.size)
        case "whole":
            return bool((sizes == np.rint(sizes)).all())
        case "halves":  # of 2.5 two rules of rounding differ, of 1.5 not
            fractions, wholes = np.modf(sizes)
            return bool(((fractions == 0.5) & (wholes % 2 == 0)).any())
        case "raised" if dtype.kind == "f" and dtype.itemsize > 2:
            with np.errstate(over="ignore"):
                return bool((sizes.astype(np.float16) > sizes).any())  # to the nearest, which is further from 0
        case "finite":
            return sizes.size == v.size
        case "nan":
            return bool(np.isnan(v).any())
        case "same":
            return bool((v == v[0]).all())
        case "distinct":
            return bool(v.size == np.unique(v).size) if v.size <= LARGE else None
        case "magnitude" if sizes.size:
            return _rounded(sizes.max())
        case "smallest" if sizes.any():
            return _rounded(sizes[sizes > 0].min())
    return _NOTHING


def _tied(x: np.ndarray | None, axis: object) -> bool | None:
    """Whether the greatest or the least element along an axis occurs there more than once."""
    if x is None:
        return None
    if x.dtype.kind not in "biuf" or not x.size or not x.ndim:
        return False
    axis = axis if isinstance(axis, int) and -x.ndim <= axis < x.ndim else -1
    ends = (x == extreme(x, axis=axis, keepdims=True) for extreme in (np.max, np.min))
    return any(bool((np.count_nonzero(end, axis=axis) > 1).any()) for end in ends)


def _rounded(x: float) -> float:
    """`x` to two digits: what a trigger says of sizes are orders of magnitude."""
    return float(f"{x:.2g}")
