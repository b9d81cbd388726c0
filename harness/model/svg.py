"""A small graph as a picture: boxes and arrows, written as Mermaid (GitHub renders it) or as SVG."""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from driftnet.model.inspect import declared_dims
from driftnet.model.submodel import reads
from driftnet.util.templates import templates
from onnx import TensorProto, helper, numpy_helper

MOST_BOXES = 80
"""Beyond that a picture says less than a list."""

WIDTH, LINE, GAP_X, GAP_Y = 7.0, 17, 26, 52  # pixels: of a character, of a line, between boxes, between layers
SHOWN_ELEMENTS = 4
DTYPES = TensorProto.DataType


@dataclass(frozen=True)
class Box:
    """A graph input, constant, node or output; `kind` is that word."""

    kind: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Arrow:
    """A tensor on its way between two boxes, by their index; its name is the label where neither box says it."""

    source: int
    target: int
    label: str


@dataclass(frozen=True)
class Picture:
    """Boxes in an order in which every arrow goes forward, and the arrows."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def picture(model: onnx.ModelProto) -> Picture | None:
    """The main graph of `model`, a body in a line; None when there are more than MOST_BOXES boxes."""
    graph = model.graph
    constants = {t.name: t for t in graph.initializer}
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    made: dict[str, int] = {}

    def add(box: Box, reads: Sequence[str], makes: Sequence[str]) -> None:
        for name in dict.fromkeys(name for name in reads if name in made):
            said = {*box.lines, *boxes[made[name]].lines}
            arrows.append(Arrow(made[name], len(boxes), "" if name in said else name))
        made.update(dict.fromkeys(filter(None, makes), len(boxes)))
        boxes.append(box)

    for value in graph.input:
        if value.name not in constants:
            add(Box("input", (value.name, _type(value))), (), (value.name,))
    for name, tensor in constants.items():
        add(Box("constant", (name, *_constant(tensor))), (), (name,))
    for node in graph.node:
        add(Box("node", (node.op_type, *_attributes(node))), reads(node), node.output)
    for value in graph.output:
        add(Box("output", (value.name, _type(value))), (value.name,), ())
    return Picture(tuple(boxes), tuple(arrows)) if len(boxes) <= MOST_BOXES else None


def marked(drawn: Picture, nodes: Sequence[onnx.NodeProto], names: Collection[str]) -> Picture:
    """A picture of nothing but `nodes`, in which each is called by its name, and those of `names` are marked."""
    boxes = (
        replace(box, kind="node fault" if node.name in names else box.kind, lines=(node.op_type, _tail(node.name, 30)))
        for box, node in zip(drawn.boxes, nodes)
    )
    return replace(drawn, boxes=tuple(boxes))


def mermaid(drawn: Picture) -> str:
    """The picture as a Mermaid flowchart."""
    shapes = {"input": '(["{}"])', "output": '(["{}"])', "constant": '[/"{}"/]', "node": '["{}"]'}
    lines = ["flowchart TD"]
    for i, box in enumerate(drawn.boxes):
        lines.append(f"  b{i}" + shapes[box.kind].format("<br/>".join(map(_entities, box.lines))))
    for arrow in drawn.arrows:
        label = f'|"{_entities(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  b{arrow.source} -->{label} b{arrow.target}")
    return "\n".join(lines)


def svg(drawn: Picture, title: str) -> str:
    """The picture as an SVG element for an HTML page: layers from the inputs down, colours from the page's style."""
    layers, ways = _layers(drawn)
    sizes = [*map(_size, drawn.boxes), *[(0.0, 0.0)] * sum(len(way) - 2 for way in ways)]
    width = max(sum(sizes[i][0] + GAP_X for i in layer) for layer in layers)
    placed: dict[int, tuple[float, float]] = {}
    ends: dict[int, float] = {}
    y = 0.0
    for layer in layers:
        x = (width - sum(sizes[i][0] + GAP_X for i in layer)) / 2 + GAP_X / 2
        end = y + max(sizes[i][1] for i in layer)
        for i in layer:
            placed[i], ends[i] = (x, y), end
            x += sizes[i][0] + GAP_X
        y = end + GAP_Y
    boxes = [
        {"kind": box.kind, "lines": box.lines, "x": placed[i][0], "y": placed[i][1], "w": sizes[i][0], "h": sizes[i][1]}
        for i, box in enumerate(drawn.boxes)
    ]
    template = templates("driftnet.model", markup=True).get_template("graph.svg.jinja")
    arrows = [_curve(way, placed, sizes, ends) | {"label": _tail(a.label)} for a, way in zip(drawn.arrows, ways)]
    size = {"width": width, "height": y - GAP_Y}
    return template.render(boxes=boxes, arrows=arrows, title=title, line=LINE, **size)


def _layers(drawn: Picture) -> tuple[list[list[int]], list[list[int]]]:
    """Indices of boxes, layer by layer, and the way of each arrow through them: a box stands as low as those that read
    from it allow, an output at the end. In a layer that an arrow only passes it has a place of its own, with an index
    beyond those of boxes: it would run behind a box else."""
    readers: Mapping[int, list[int]] = defaultdict(list)
    for arrow in drawn.arrows:
        readers[arrow.source].append(arrow.target)
    height: dict[int, int] = {}  # layers below
    for i in reversed(range(len(drawn.boxes))):
        height[i] = 1 + max((height[j] for j in readers[i]), default=-1)
    layers: list[list[int]] = [[] for _ in range(max(height.values(), default=0) + 1)]
    for i in range(len(drawn.boxes)):
        layers[-1 - height[i]].append(i)
    ways, free = [], itertools.count(len(drawn.boxes))
    for arrow in drawn.arrows:
        passed = [*zip(range(height[arrow.source] - 1, height[arrow.target], -1), free)]
        for above, i in passed:
            layers[-1 - above].append(i)
        ways.append([arrow.source, *(i for _, i in passed), arrow.target])
    made_of: Mapping[int, list[int]] = defaultdict(list)
    for source, target in itertools.chain.from_iterable(map(itertools.pairwise, ways)):
        made_of[target].append(source)
    for upper, lower in itertools.pairwise(layers):
        at = {i: place for place, i in enumerate(upper)}
        sources = {i: [at[source] for source in made_of[i]] for i in lower}
        lower.sort(key=lambda i: sum(sources[i]) / len(sources[i]) if sources[i] else len(upper))
    return layers, ways


def _curve(
    way: Sequence[int],
    placed: Mapping[int, tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    ends: Mapping[int, float],
) -> dict[str, object]:
    """Straight through the layers that it passes, and bent between them."""
    middle = {i: placed[i][0] + sizes[i][0] / 2 for i in way}
    path = f"M{middle[way[0]]:.0f},{placed[way[0]][1] + sizes[way[0]][1]:.0f}"
    for i, j in itertools.pairwise(way):
        x0, y0, x1, y1 = middle[i], ends[i], middle[j], placed[j][1] - (6 if j == way[-1] else 0)
        bend = (y1 - y0) / 2
        path += f" V{y0:.0f} C{x0:.0f},{y0 + bend:.0f} {x1:.0f},{y1 - bend:.0f} {x1:.0f},{y1:.0f}"
    return {"path": path, "x": (middle[way[0]] + middle[way[1]]) / 2, "y": (ends[way[0]] + placed[way[1]][1]) / 2}


def _size(box: Box) -> tuple[float, float]:
    return max(map(len, box.lines)) * WIDTH + 22, len(box.lines) * LINE + 12


def _type(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return value.type.WhichOneof("value") or "?"
    dims = ", ".join(map(str, declared_dims(value))) if tensor.HasField("shape") else "..."
    return f"{_dtype(tensor.elem_type)}[{dims}]"


def _dtype(number: int) -> str:
    return DTYPES.Name(number).lower() if number in DTYPES.values() else str(number)


def _constant(tensor: TensorProto) -> Iterator[str]:
    yield f"{_dtype(tensor.data_type)}[{', '.join(map(str, tensor.dims))}]"
    if math.prod(tensor.dims) <= SHOWN_ELEMENTS:
        yield ", ".join(_short(v) for v in numpy_helper.to_array(tensor).ravel().tolist())


def _attributes(node: onnx.NodeProto) -> Iterator[str]:
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            text = " ".join(inner.op_type for inner in value.node) or "no node"
        elif isinstance(value, TensorProto):
            text = " = ".join(_constant(value))
        elif isinstance(value, bytes):
            text = value.decode(errors="replace")
        elif isinstance(value, list):
            text = "[" + ", ".join(map(_short, value)) + "]"
        else:
            text = _short(value)
        yield _short(f"{attribute.name} {text}", 40)


def _short(value: object, most: int = 24) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _tail(name: str, most: int = 18) -> str:
    """The end of a long name: exporters put the scope first."""
    return name if len(name) <= most else "…" + name[1 - most :]


def _entities(text: str) -> str:
    """`text` for a Mermaid label: what could end it or mean something in it becomes an entity of Mermaid's own."""
    return "".join(c if c.isalnum() or c in " _.,:=+-/[](){}*" else f"#{ord(c)};" for c in text)
