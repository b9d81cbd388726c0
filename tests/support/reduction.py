"""Models, a recording reference and planted bugs for the tests of the reduction room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime
from driftnet.model.inspect import Case
from driftnet.run.reference import ReferenceError
from driftnet.run.reference_worker import NUMPY_TYPES
from driftnet.targets.interface import Option, Target
from driftnet.targets.recipe import Recipe
from onnx import helper, numpy_helper

Bug = Callable[[Case, Recipe], bool]

TARGET = Target(
    "planted",
    "planted",
    convert=lambda *_: "",
    quantize=lambda *_: "",
    execute=lambda *_: [],
    options=(Option("method", "quantize", ("none", "KL"), ""), Option("threads", "execute", (1, 4), "")),
)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def record(case: Case) -> tuple[Mapping[str, np.ndarray], ...]:
    """Every tensor of the main graph for every feed, sequences left out. Raises ReferenceError where it fails."""
    model = onnx.ModelProto.FromString(case.model)
    there = {v.name for v in model.graph.output}
    made = dict.fromkeys(name for node in model.graph.node for name in node.output if name and name not in there)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    try:
        running = session(model)
        names = [v.name for v in running.get_outputs() if v.type in NUMPY_TYPES]
        runs = (dict(zip(names, running.run(names, dict(feed)))) for feed in case.feeds)
        tensors = ({k: x for k, x in made.items() if isinstance(x, np.ndarray)} for made in runs)
        return tuple({**feed, **made} for feed, made in zip(case.feeds, tensors))
    except Exception as e:  # onnxruntime raises a dozen types
        raise ReferenceError(str(e)) from None


def outputs(case: Case) -> list[dict[str, np.ndarray]]:
    """What the model gives for each feed. Raises when the checker or onnxruntime refuses it."""
    onnx.checker.check_model(case.proto, full_check=True)
    running = session(case.proto)
    names = [v.name for v in running.get_outputs()]
    return [dict(zip(names, running.run(names, dict(feed)))) for feed in case.feeds]


def is_valid(case: Case) -> bool:
    try:
        outputs(case)
    except Exception:  # the checker and onnxruntime raise a dozen types
        return False
    return True


def on_valid(bug: Bug) -> Bug:
    """The bug as the pipeline sees it: the reference is asked first."""
    return lambda case, recipe: is_valid(case) and bug(case, recipe)


def make_case(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    symbols: Mapping[str, Sequence[int | str | None]] | None = None,
    more_feeds: Sequence[Mapping[str, np.ndarray]] = (),
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
    opset: int = 17,
) -> Case:
    """A case of these nodes; outputs are float and get the shape onnx infers."""
    shapes = symbols or {}
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.dtype), shapes.get(k, x.shape))
            for k, x in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), k) for k, x in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return Case(inferred.SerializeToString(), (inputs, *more_feeds), tuple(calibration))


def cnn(blocks: int = 13, *, planted: int = 6, channels: int = 8, size: int = 16) -> Case:
    """Conv, BatchNormalization, Relu, `blocks` times, a grouped ConvTranspose before BatchNormalization `planted`."""
    rng = np.random.default_rng(7)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        constants[name] = rng.normal(size=shape).astype(np.float32)
        return name

    last, c = "input", channels
    for i in range(blocks):
        conv = [last, weight(f"conv{i}.w", c, c, 3, 3), weight(f"conv{i}.b", c)]
        nodes.append(helper.make_node("Conv", conv, [f"conv{i}"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]))
        last = f"conv{i}"
        if i == planted:
            up = [last, weight("up.w", c, c // 2, 2, 2), weight("up.b", c)]
            nodes.append(helper.make_node("ConvTranspose", up, ["up"], group=2, kernel_shape=[2, 2]))
            last = "up"
        constants[f"bn{i}.v"] = rng.uniform(0.5, 2, size=c).astype(np.float32)
        bn = [last, *(weight(f"bn{i}.{part}", c) for part in "sbm"), f"bn{i}.v"]
        nodes.append(helper.make_node("BatchNormalization", bn, [f"bn{i}"]))
        nodes.append(helper.make_node("Relu", [f"bn{i}"], [f"relu{i}"]))
        last = f"relu{i}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["output"]))
    feeds = [{"input": rng.normal(size=(n, c, size, size)).astype(np.float32)} for n in (2, 3)]
    shape = ["N", c, size, size]
    return make_case(nodes, feeds[0], ["output"], constants, symbols={"input": shape}, more_feeds=feeds[1:])


def edges(case: Case) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """(maker, reader) for every value that passes between two nodes."""
    makers = {name: node for node in case.proto.graph.node for name in node.output}
    for reader in case.proto.graph.node:
        yield from ((makers[name], reader) for name in reader.input if name in makers)


def constants_of(case: Case) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in case.proto.graph.initializer}


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def folds_scale_by_group(case: Case, recipe: Recipe) -> bool:
    """A converter that folds BatchNormalization into a grouped ConvTranspose as if it had one group: each group gets
    the first group's factors. The result differs where the factors do and the weights are not 0."""
    constants = constants_of(case)
    for maker, reader in edges(case):
        if (maker.op_type, reader.op_type) != ("ConvTranspose", "BatchNormalization"):
            continue
        weight, (scale, variance) = constants[maker.input[1]], (constants[reader.input[i]] for i in (1, 4))
        factor = scale / np.sqrt(np.maximum(variance, 0) + 1e-5)
        wrong = np.resize(factor[: weight.shape[1]], factor.shape)
        if attributes(maker).get("group", 1) > 1 and weight.any() and np.abs(wrong - factor).max() > 0.1:
            return True
    return False


def contains(*chain: str) -> Bug:
    """The bug shows where these operators follow each other."""

    def bug(case: Case, recipe: Recipe) -> bool:
        if len(chain) == 1:
            return any(node.op_type == chain[0] for node in case.proto.graph.node)
        found = {(a.op_type, b.op_type) for a, b in edges(case)}
        return all(pair in found for pair in pairwise(chain))

    return on_valid(bug)
