"""A graph is drawn whole, and nothing in its names can leave the svg."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import onnx
from driftnet.model import svg
from onnx import TensorProto, helper

from tests.support import models, production


def test_every_node_input_constant_and_output_is_a_box():
    case = models.grouped_conv_transpose_and_norm()
    drawn = svg.picture(case.proto)
    kinds = [box.kind for box in drawn.boxes]
    assert [kinds.count(kind) for kind in ("input", "constant", "node", "output")] == [1, 5, 2, 1]
    assert [arrow for arrow in drawn.arrows if arrow.source >= arrow.target] == [], "arrows that do not lead on"
    assert len(drawn.arrows) == 2 + 5 + 1


def test_a_body_is_named_and_what_it_reads_of_the_graph_around_it_is_an_arrow():
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["inner"])], "b", [], [helper.make_tensor_value_info("inner", 1, [2])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    feed = {"c": np.array(True), "x": np.zeros(2, np.float32)}
    drawn = svg.picture(models.case([node], feed, outputs=[("y", TensorProto.FLOAT, [2])]).proto)
    assert "then_branch Relu" in drawn.boxes[2].lines
    assert {(a.source, a.target) for a in drawn.arrows if a.target == 2} == {(0, 2), (1, 2)}


def test_names_cannot_leave_the_picture():
    hostile = '"]\n<script>alert(1)</script>`#'
    node = helper.make_node("Relu", [hostile], ["y"])
    case = models.case([node], {hostile: np.zeros(1, np.float32)}, outputs=[("y", TensorProto.FLOAT, [1])])
    drawn = svg.picture(case.proto)
    text = svg.mermaid(drawn)
    assert "<script" not in text
    assert [line for line in text.splitlines() if line.count('"') not in (0, 2)] == [], (
        "labels with quotes of their own"
    )
    tree = ElementTree.fromstring(svg.svg(drawn, hostile))
    assert tree.findall(".//script") == []
    assert hostile.split("\n")[0] in "".join(tree.itertext())


def test_boxes_of_a_drawing_do_not_overlap():
    graph = onnx.ModelProto.FromString(models.grouped_conv_transpose_and_norm().model)
    tree = ElementTree.fromstring(svg.svg(svg.picture(graph), "a graph"))
    rects = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in tree.iter("rect")]
    assert len(rects) > 1, f"{len(rects)} boxes"
    for i, (x, y, w, h) in enumerate(rects):
        for u, v, wide, high in rects[:i]:
            assert x + w <= u or u + wide <= x or y + h <= v or v + high <= y, "two boxes lie on each other"


def on_its_way(path):
    """Points of the path of an arrow."""
    words = re.findall(r"[MVC][^MVC]*", path)
    x, y = map(float, words[0][1:].split(","))
    for word in words[1:]:
        if word[0] == "V":
            end = float(word[1:])
            yield from ((x, y + t * (end - y)) for t in np.linspace(0, 1, 9))
            y = end
        else:
            a, b, c = (np.array([*map(float, pair.split(","))]) for pair in word[1:].split())
            p = np.array([x, y])
            for t in np.linspace(0, 1, 33):
                yield tuple((1 - t) ** 3 * p + 3 * t * (1 - t) ** 2 * a + 3 * t**2 * (1 - t) * b + t**3 * c)
            x, y = c


def test_no_arrow_runs_behind_a_box():
    """y0 is told by the first node, and stands below the others."""
    tensors = ["x", "y0", "t", "y1"]
    chain = [helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(tensors)]
    outputs = [(name, TensorProto.FLOAT, [2]) for name in ("y0", "y1")]
    graph = models.case(chain, {"x": np.zeros(2, np.float32)}, outputs=outputs).proto
    tree = ElementTree.fromstring(svg.svg(svg.picture(graph), "a graph"))
    rects = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in tree.iter("rect")]
    paths = [p.get("d") for p in tree.iter("path")]
    assert len(paths) == 5, paths
    for path in paths:
        behind = [r for r in rects for x, y in on_its_way(path) if 0 < x - r[0] < r[2] and 0 < y - r[1] < r[3]]
        assert behind == [], f"{path} runs behind a box"


def test_what_is_too_large_to_look_at_is_not_drawn():
    assert svg.picture(production.SMALL["unet"]().proto) is None
