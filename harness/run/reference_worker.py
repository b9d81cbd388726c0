"""The reference, worker side: onnxruntime without optimizations, on models that nobody vouches for.

The parent side is driftnet.run.reference. Every function raises StageError, in the words of onnx or onnxruntime, when
the model or a feed is refused. `data` is the folder of what the model keeps outside itself (external data), "" for
none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from driftnet.model.operators import full_name, settings
from driftnet.targets.interface import Feed, StageError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Outputs = dict[str, np.ndarray]

# Unit roundoff by element type. A target may compute float64 in float32, so float64 gets the noise of float32.
UNIT_ROUNDOFF: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-24,
    TensorProto.DOUBLE: 2.0**-24,
    TensorProto.FLOAT16: 2.0**-11,
}
NUMPY_TYPES = frozenset(
    f"tensor({name})"
    for name in (
        *("float", "double", "float16", "bool", "string"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
COPIED_TYPES = frozenset(
    (
        *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL),
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    )
)
"""Of NUMPY_TYPES those of numbers, as a tensor says them."""


def preload() -> None:
    """Import what every call needs, so that forked workers have it."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)


def run(model: bytes, feeds: Sequence[Feed], data: str = "") -> list[Outputs]:
    """The outputs of a model that the checker accepts, one mapping a feed."""
    checked = _with_inputs_for_data(model) if data else model
    _said(lambda: onnx.checker.check_model(checked, full_check=True))
    return outputs(model, feeds, data)


def outputs(model: bytes, feeds: Sequence[Feed], data: str = "") -> list[Outputs]:
    """The same of a model that nobody checks, one that was cut out of a checked one."""
    session = _session(model, data)
    return [_outputs(session, feed) for feed in feeds]


def record(model: bytes, feeds: Sequence[Feed], data: str = "", most: int = 0) -> list[Outputs]:
    """Every tensor of the main graph but initializers and `copies` of these, one mapping a feed; nothing at all where
    that is more than `most` bytes, if so many are said."""
    proto = ModelProto.FromString(model)
    return _recorded(proto, feeds, copies(proto.graph), data, most)


def copies(graph: GraphProto) -> dict[str, str]:
    """What an Identity makes of an initializer, by the name of that: a model whose layers share their weights has one
    for each use, of a size that is many times its own. Not where numpy has no such type, nor what the graph gives."""
    stored = {t.name: t.name for t in graph.initializer if t.data_type in COPIED_TYPES}
    given, found = {v.name for v in graph.output}, dict[str, str]()
    for node in graph.node:
        if full_name(node.op_type, node.domain) == "Identity":
            found |= {made: stored[read] for read, made in zip(node.input, node.output) if read in stored}
            stored |= found
    return {name: source for name, source in found.items() if name not in given}


def _recorded(
    proto: ModelProto, feeds: Sequence[Feed], without: Collection[str], data: str = "", most: int = 0
) -> list[Outputs]:
    known = {*without, *(v.name for v in proto.graph.output)}
    names = [name for node in proto.graph.node for name in node.output if name and name not in known]
    proto.graph.output.extend(ValueInfoProto(name=name) for name in names)  # onnxruntime infers the types itself
    session, recorded, size = _session(proto.SerializeToString(), data), [], 0
    for feed in feeds:
        recorded.append({**{k: np.asarray(x) for k, x in feed.items()}, **_outputs(session, feed)})
        size += sum(x.nbytes for x in recorded[-1].values())
        if most and size * len(feeds) > most * len(recorded):
            return []
    return recorded


def sample(model: bytes, feeds: Sequence[Feed], count: int) -> list[list[Outputs]]:
    """Monte-Carlo arithmetic: `count` times the outputs with each float tensor x replaced by x (1 + u U(-2, 2)).

    u is the unit roundoff; x goes over inputs, initializers and results of nodes of the main graph. In the precision of
    x that flips its last bits at random. The same arguments give the same samples.
    """
    proto, tensors = _with_noise(ModelProto.FromString(model))
    session = _session(proto.SerializeToString())
    rng = np.random.default_rng(0)
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    samples: list[list[Outputs]] = [[] for _ in range(count)]
    for feed, known in zip(feeds, _recorded(ModelProto.FromString(model), feeds, ())):
        exact = {f"{name}/exact" if name in tensors else name: x for name, x in feed.items()}
        for outputs in samples:
            noise = {}
            for name, element in tensors.items():
                x = known[name] if name in known else constants[f"{name}/exact"]
                noise[f"{name}/noise"] = np.asarray(1 + UNIT_ROUNDOFF[element] * rng.uniform(-2, 2, x.shape), x.dtype)
            outputs.append(_outputs(session, {**exact, **noise}))
    return samples


def second_opinion(model: bytes, feeds: Sequence[Feed]) -> list[Outputs]:
    """The outputs by onnx.reference, which is written after the text of the standard; sequences are left out."""
    from onnx.reference import ReferenceEvaluator

    evaluator = _said(lambda: ReferenceEvaluator(ModelProto.FromString(model)))

    def evaluated(feed: Feed) -> Outputs:
        values = _said(lambda: evaluator.run(None, dict(feed)))
        arrays = {name: np.asarray(x) for name, x in zip(evaluator.output_names, values)}
        return {name: x for name, x in arrays.items() if x.dtype.kind in "biuf"}

    return [evaluated(feed) for feed in feeds]


def _with_inputs_for_data(model: bytes) -> bytes:
    """The model with a graph input in place of each initializer that lies outside: the checker would look for its file,
    and needs none for what it infers of shapes."""
    proto = ModelProto.FromString(model)
    there, tensors = {v.name for v in proto.graph.input}, list(proto.graph.initializer)
    outside = [t for t in tensors if t.data_location == TensorProto.EXTERNAL]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(t for t in tensors if t.data_location != TensorProto.EXTERNAL)
    proto.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in outside if t.name not in there
    )
    return bytes(proto.SerializeToString())


def _session(model: bytes, data: str = "") -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if data:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", data)
        # A kernel that packs its weights holds them twice; unpacked they stay pages of the file.
        options.add_session_config_entry("session.disable_prepacking", "1")
    return _said(lambda: ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]))


def _outputs(session: Any, feed: Feed) -> Outputs:
    """Every output that numpy can hold: sequences, absent optionals, bfloat16 and the like are left out."""
    names = [output.name for output in session.get_outputs() if output.type in NUMPY_TYPES]
    if not names:
        return {}
    values = _said(lambda: session.run(names, dict(feed)))
    return {name: x for name, x in zip(names, values) if isinstance(x, np.ndarray)}


def _said(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as e:
        raise StageError(str(e) or type(e).__name__) from None


def _with_noise(model: ModelProto) -> tuple[ModelProto, dict[str, int]]:
    """The model with a factor, a new input `x`/noise, on every float tensor `x`; and those with their element types.

    What makes a tensor `x` makes `x`/exact instead, and `x` becomes x/exact times noise: so consumers, those in
    subgraphs too, need no change. onnxruntime has no random generator for every opset and type, hence the inputs.
    """
    tensors = _float_tensors(model)
    noise = {name: helper.make_node("Mul", [f"{name}/exact", f"{name}/noise"], [name]) for name in tensors}
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    nodes = [noise[name] for name in {v.name: v for v in (*graph.initializer, *graph.input)} if name in noise]
    for value in (*graph.initializer, *graph.input):
        value.name = f"{value.name}/exact" if value.name in tensors else value.name
    for node in model.graph.node:
        nodes.append(NodeProto())
        nodes[-1].CopyFrom(node)
        nodes[-1].output[:] = [f"{name}/exact" if name in tensors else name for name in node.output]
        nodes += [noise[name] for name in node.output if name in tensors]
    del graph.node[:]
    graph.node.extend(nodes)
    for name, element in tensors.items():
        graph.input.append(helper.make_tensor_value_info(f"{name}/noise", element, None))
    return changed, tensors


def _float_tensors(model: ModelProto) -> dict[str, int]:
    """Tensor -> element type, for the float tensors of the main graph that are no mere settings of an operator."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    types.update((t.name, t.data_type) for t in graph.initializer)
    fixed = {  # one ulp off may change a shape or a grid, which no rounding does
        name
        for node in _all_nodes(graph)
        for k, name in enumerate(node.input)
        if k in settings(full_name(node.op_type, node.domain))
    }
    return {name: element for name, element in types.items() if element in UNIT_ROUNDOFF and name not in {"", *fixed}}


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g)
