"""What a model declares otherwise than onnx has it: shapes that contradict what it infers, nodes before those that make
what they read, outputs that are no tensors.

Exporters leave wrong shapes behind (an output declared a scalar, a batch that was edited afterwards); onnxruntime warns
and runs such a model, onnx's checker calls it invalid. They say nothing about what is computed.
"""

import contextlib
from graphlib import CycleError, TopologicalSorter

import onnx
from driftnet.model.inference import InferenceError, inferred, light
from driftnet.model.inspect import all_nodes, bodies, refill
from driftnet.model.submodel import makers, reads
from onnx import TensorShapeProto, ValueInfoProto

# No trait of what they compute tells these: they make sequences, and compute nothing.
SEQUENCES = {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence"}
PACKING = SEQUENCES | {"Identity", "ZipMap"}
"""Operators that make a sequence or a map of tensors, or of another one, and compute nothing."""


def undeclare(graph: onnx.GraphProto) -> None:
    """Take away the shapes that are declared of what nodes make. Without that of a constant onnx infers wrong ones: it
    takes a Slice for one along the first axes."""
    constant = {tensor.name for tensor in graph.initializer}
    for value in (*graph.output, *graph.value_info):
        # To touch a tensor's type would make a tensor of a sequence.
        if value.name not in constant and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def settle_bodies(model: onnx.ModelProto) -> list[str]:
    """Put the inferred shape in the place of each that the outputs of bodies declare and that contradicts it, and say
    which these were: Paddle's exporter calls a branch's one number a scalar."""
    bare = onnx.ModelProto()
    bare.CopyFrom(light(model))
    declaring = [value for value in _outputs_of_bodies(bare.graph) if _shape(value) is not None]
    for value in declaring:
        value.type.tensor_type.ClearField("shape")
    try:
        found = inferred(bare, data_prop=True).graph if declaring else bare.graph
    except InferenceError:
        return []
    said = []
    for value, right in zip(_outputs_of_bodies(model.graph), _outputs_of_bodies(found)):
        shape, wanted = _shape(value), _shape(right)
        if shape is not None and wanted is not None and _contradict(shape, wanted):
            said.append(f"{value.name} is declared {_text(shape)}, and is {_text(wanted)}")
            shape.CopyFrom(wanted)
    return said


def settle_shapes(model: onnx.ModelProto) -> list[str]:
    """Put the inferred shape in the place of each declared one that contradicts it, and say which these were. An output
    that declares none, which the checker refuses and onnxruntime does not, gets the inferred one."""
    bare = onnx.ModelProto()
    bare.CopyFrom(light(model))
    undeclare(bare.graph)
    try:
        graph = inferred(bare, data_prop=True).graph
    except InferenceError:
        return []
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    found = {value.name: shape for value in (*graph.value_info, *graph.output) if (shape := _shape(value)) is not None}
    said = []
    for value in (*model.graph.output, *model.graph.value_info):
        shape, right = _shape(value), found.get(value.name)
        if right is None:
            continue
        if shape is None:
            value.type.CopyFrom(types[value.name])
        elif _contradict(shape, right):
            said.append(f"{value.name} is declared {_text(shape)}, and is {_text(right)}")
            shape.CopyFrom(right)
    return said


def settle_order(model: onnx.ModelProto) -> list[str]:
    """Put the nodes in an order in which each comes after those that make what it reads, as the standard asks for and
    onnxruntime does by itself, and say so where they are not."""
    nodes = list(model.graph.node)
    made_by = makers(model.graph)
    needs = {k: {made_by[name] for name in reads(node) if name in made_by} for k, node in enumerate(nodes)}
    if all(before < k for k, there in needs.items() for before in there):
        return []
    try:
        order = [*TopologicalSorter(needs).static_order()]
    except CycleError:
        return []
    refill(model.graph.node, [nodes[k] for k in order])
    return ["nodes stand before those that make what they read, and are put in order"]


def only_tensors(model: onnx.ModelProto) -> list[str]:
    """Put the tensors of which an output that is a sequence or a map is made in its place, as scikit-learn's exporter
    does if it is told to, and say where: nobody compares maps element by element."""
    graph, said = model.graph, []
    made_by = {name: node for node in graph.node for name in node.output}
    types = {t.name for t in graph.initializer} | {v.name for v in graph.input if v.type.HasField("tensor_type")}
    tensors: dict[str, ValueInfoProto] = {}
    for value in [v for v in graph.output if v.type.HasField("sequence_type") or v.type.HasField("map_type")]:
        if not tensors:
            with contextlib.suppress(InferenceError):
                found = inferred(light(model)).graph
                tensors = {v.name: v for v in (*found.value_info, *found.output) if v.type.tensor_type.elem_type}
        made_of, makes = [value.name], list[onnx.NodeProto]()
        while others := [name for name in made_of if name not in tensors and name not in types]:
            node = made_by.get(others[0])
            if node is None or not _packs(node) or node in makes:  # which nodes do that wait for each other
                break
            if node.op_type == "ZipMap" and _rankless(tensors.get(node.input[0])):  # no schema infers anything of it
                tensors[node.input[0]] = _scores(node.input[0])
            makes.append(node)
            made_of = list(dict.fromkeys([*node.input, *(name for name in made_of if name not in node.output)]))
        there = {v.name for v in graph.output} | types
        new = [name for name in made_of if name and name not in there]
        if others or not new or any(_rankless(tensors[name]) for name in new):  # nobody may declare an output like that
            continue
        graph.output.remove(value)
        graph.output.extend(tensors[name] for name in new)
        for node in makes:
            if not {*node.output} & {name for n in graph.node for name in n.input}.union(v.name for v in graph.output):
                graph.node.remove(node)
        said.append(f"{value.name} is no tensor, and {', '.join(new)} stands in its place, of which it is made")
    return said


def _packs(node: onnx.NodeProto) -> bool:
    return node.op_type in PACKING and node.domain in ("", "ai.onnx", "ai.onnx.ml")


def _rankless(value: ValueInfoProto | None) -> bool:
    return value is None or _shape(value) is None


def _scores(name: str) -> ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, None])


def _outputs_of_bodies(graph: onnx.GraphProto) -> list[ValueInfoProto]:
    return [value for node in all_nodes(graph) for body in bodies(node) for value in body.output]


def _shape(value: ValueInfoProto) -> TensorShapeProto | None:
    tensor = value.type.tensor_type
    return tensor.shape if tensor.HasField("shape") else None


def _contradict(one: TensorShapeProto, other: TensorShapeProto) -> bool:
    pairs = zip(one.dim, other.dim)
    return len(one.dim) != len(other.dim) or any(
        a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value for a, b in pairs
    )


def _text(shape: TensorShapeProto) -> str:
    dims = (str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in shape.dim)
    return f"[{', '.join(dims)}]"
