"""A target that attacks whoever runs it and reads what it says: the pipe, the log, the oracle. In the sandbox."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from driftnet.targets import interface
from driftnet.targets.interface import Feed, Option, Options, Scheme, StageError, Target
from onnx import TensorProto, helper, numpy_helper

from tests.support.hostile_deeds import DONE

COMPLAINT = r"(?m)^.*\b(Error|Not support)\b.*$"
LONG = 1 << 14


def model(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, np.ndarray] | None = None) -> bytes:
    """An artifact that makes y of x, [1, 4]."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    weights = [numpy_helper.from_array(x, name) for name, x in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "told", info[:1], info[1:], weights)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def expanded(size: int) -> bytes:
    """What is made of `size` copies of an element of x."""
    nodes = [node("ReduceMax", "x", "m", axes=[1]), node("Expand", "m to", "e"), node("ReduceMax", "e", "r", axes=[0])]
    return model([*nodes, node("Add", "r x", "y")], {"to": np.array([size, 1], np.int64)})


def filled(size: int) -> bytes:
    nodes = [node("ConstantOfShape", "to", "e"), node("ReduceMax", "e", "r", axes=[0]), node("Add", "r x", "y")]
    return model(nodes, {"to": np.array([size], np.int64)})


def chain(op: str, count: int) -> bytes:
    return model([node(op, f"t{k}" if k else "x", f"t{k + 1}" if k < count - 1 else "y") for k in range(count)])


def pairs(count: int) -> bytes:
    """So many pairs of QuantizeLinear and DequantizeLinear."""
    nodes = []
    for k in range(count):
        nodes.append(node("QuantizeLinear", f"{f't{k}' if k else 'x'} s z", f"q{k}"))
        nodes.append(node("DequantizeLinear", f"q{k} s z", f"t{k + 1}" if k < count - 1 else "y"))
    return model(nodes, {"s": np.array(0.5, np.float32), "z": np.array(0, np.uint8)})


def wide(count: int) -> bytes:
    nodes = [node("Relu", "x", f"t{k}") for k in range(count)]
    return model([*nodes, node("Sum", " ".join(f"t{k}" for k in range(count)), "y")])


def product(size: int) -> bytes:
    """A product of two square matrices that are made of nothing."""
    nodes = [node("ConstantOfShape", "to", "e"), node("MatMul", "e e", "p"), node("ReduceMax", "p", "r")]
    return model([*nodes, node("Add", "r x", "y")], {"to": np.array([size, size], np.int64)})


def looped(count: int) -> bytes:
    """So many turns of a loop that does nothing."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Relu", "v", "w")],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1, 4])],
        [info("d", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [1, 4])],
    )
    constants = {"n": np.array(count, np.int64), "go": np.array(True)}
    return model([helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)], constants)


def matching(pattern: str, text: str) -> bytes:
    nodes = [node("RegexFullMatch", "words", "b", pattern=pattern), node("Cast", "b", "f", to=TensorProto.FLOAT)]
    proto = onnx.ModelProto.FromString(model([*nodes, node("Mul", "f x", "y")]))
    proto.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [1], [text.encode()]))
    proto.opset_import[0].version = 20
    return bytes(proto.SerializeToString())


def empty_nodes(count: int) -> bytes:
    return model([node("Relu", "x", "y")]) + b"\x3a" + _varint(2 * count) + b"\x0a\x00" * count


def _varint(n: int) -> bytes:
    found = []
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def nested(depth: int) -> bytes:
    """So many Ifs in one another."""
    info = helper.make_tensor_value_info
    branch = helper.make_graph([node("Relu", "x", "b0")], "branch", [], [info("b0", TensorProto.FLOAT, [1, 4])])
    for k in range(1, depth):
        inner = helper.make_node("If", ["go"], [f"b{k}"], then_branch=branch, else_branch=branch)
        branch = helper.make_graph([inner], "branch", [], [info(f"b{k}", TensorProto.FLOAT, [1, 4])])
        if len(branch.SerializeToString()) > 2**24:  # each is written twice
            break
    both = {"then_branch": branch, "else_branch": branch}
    return model([helper.make_node("If", ["go"], ["y"], **both)], {"go": np.array(True)})


def quantized(scale: float, zero_point: int) -> bytes:
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    return model(nodes, {"s": np.array(scale, np.float32), "z": np.array(zero_point, np.uint8)})


def with_tensor(**fields: Any) -> bytes:
    """One that adds a tensor with these fields."""
    proto = onnx.ModelProto.FromString(model([node("Add", "x w", "y")]))
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT)
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return bytes(proto.SerializeToString())


def changed(proto: bytes, change: Callable[[onnx.ModelProto], object]) -> bytes:
    told = onnx.ModelProto.FromString(proto)
    change(told)
    return bytes(told.SerializeToString())


def sized(op: str, shape: Sequence[int], **attributes: Any) -> bytes:
    """An operator that takes its size from an operand, and its largest element."""
    nodes = [node(op, "x to", "e", **attributes), node("ReduceMax", "e", "r"), node("Add", "r x", "y")]
    return model(nodes, {"to": np.array(shape, np.int64)})


def operations(count: int, **more: Any) -> dict[str, Any]:
    """So many operations in a row, each of which may do anything."""
    told = {"name": "o", "runs": "somehow", **more}
    return {"operations": [{**told, "inputs": [f"t{k}"], "outputs": [f"t{k + 1}"]} for k in range(count)]}


def deep(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def layer(weights: np.ndarray, scales: np.ndarray) -> dict[str, Any]:
    return {"layers": [{"name": "l", "result": "y", "weights": weights, "scales": scales}]}


def codes(**more: Any) -> dict[str, Any]:
    return {"tensors": {"y": {"scale": 1.0, "zero_point": 0.0, "low": -127.0, "high": 127.0, **more}}}


def layered(count: int) -> dict[str, Any]:
    """Codes of so many tensors."""
    return {"tensors": {f"t{k}": {"scale": 1, "zero_point": 0, "low": 0, "high": 1} for k in range(count)}}


TOLD: dict[str, Callable[[], Any]] = {
    "tells Expand to 2^26": lambda: {"model": expanded(2**26)},
    "tells Expand to 2^34": lambda: {"model": expanded(2**34)},
    "tells ConstantOfShape 2^40": lambda: {"model": filled(2**40)},
    "tells ConstantOfShape 2^27": lambda: {"model": filled(2**27)},
    "tells a product of 2^12": lambda: {"model": product(2**12)},
    "tells a product of 2^13": lambda: {"model": product(2**13)},
    "tells 20000 Relus": lambda: {"model": chain("Relu", 20000)},
    "tells 20000 Relus side by side": lambda: {"model": wide(20000)},
    "tells 10000 pairs": lambda: {"model": pairs(10000)},
    "tells 20000 Identities": lambda: {"model": chain("Identity", 20000)},
    "tells a loop of 2^40 turns": lambda: {"model": looped(2**40)},
    "tells an unknown input": lambda: {"model": model([node("Add", "x nobody", "y")])},
    "tells another input": lambda: {"model": model([node("Relu", "x", "y")]).replace(b"\x0a\x01x", b"\x0a\x01z")},
    "tells a circle": lambda: {
        "model": model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")])
    },
    "tells 3 million empty nodes": lambda: {"model": empty_nodes(3_000_000)},
    "tells a slow pattern": lambda: {"model": matching("(a+)+b", "a" * 64)},
    "tells 2^18 tensors": lambda: layered(2**18),
    "tells an artifact of 512 MiB": lambda: {"model": bytes(2**29)},
    "tells a weight of 2^26": lambda: {
        "model": model([node("ReduceMax", "w", "r"), node("Add", "r x", "y")], {"w": np.ones(2**26, np.float32)})
    },
    "tells nothing": lambda: None,
    "tells a list": lambda: deep(100),
    "tells a model that is a text": lambda: {"model": "x"},
    "tells 10 levels of If": lambda: {"model": nested(10)},
    "tells a scale of 0": lambda: {"model": quantized(0.0, 0)},
    "tells a scale of NaN": lambda: {"model": quantized(float("nan"), 0)},
    "tells a scale of 10^-45": lambda: {"model": quantized(1e-45, 255)},
    "tells a tensor of 2^62": lambda: {"model": with_tensor(dims=[2**31, 2**31])},
    "tells a tensor of -1": lambda: {"model": with_tensor(dims=[-1], raw_data=b"")},
    "tells a tensor of too few bytes": lambda: {"model": with_tensor(dims=[4], raw_data=b"abc")},
    "tells a tensor of no type": lambda: {"model": with_tensor(dims=[4], data_type=99, raw_data=bytes(16))},
    "tells a tensor twice over": lambda: {"model": with_tensor(dims=[1], raw_data=bytes(4), float_data=[1.0] * 2**16)},
    "tells opset 2^31": lambda: {
        "model": changed(chain("Relu", 1), lambda m: setattr(m.opset_import[0], "version", 2**31))
    },
    "tells no opset": lambda: {"model": changed(chain("Relu", 1), lambda m: m.ClearField("opset_import"))},
    "tells 2^16 inputs": lambda: {
        "model": changed(chain("Relu", 1), lambda m: m.graph.input.extend([m.graph.input[0]] * 2**16))
    },
    "tells an operator of nobody": lambda: {"model": model([node("Nobody", "x", "y", domain="no.body")])},
    "tells an attribute of 16 MiB": lambda: {"model": model([node("Relu", "x", "y", more=b"x" * 2**24)])},
    "tells Tile by 2^31": lambda: {"model": sized("Tile", [2**31, 1])},
    "tells Reshape to 2^62": lambda: {"model": sized("Reshape", [2**31, 2**31])},
    "tells a Gather of -2^40": lambda: {"model": sized("Gather", [-(2**40)])},
    "tells a scale that is NaN": lambda: codes(scale=float("nan")),
    "tells codes of 10^308": lambda: codes(scale=1e308, low=-1e308, high=1e308),
    "tells codes upside down": lambda: codes(low=127.0, high=-127.0),
    "tells weights of NaN": lambda: layer(np.full((4, 4), np.nan, np.float32), np.zeros((4, 1), np.float32)),
    "tells weights of nobody": lambda: layer(np.ones((2**12, 2**12), np.float32), np.ones((2**12, 1), np.float32)),
    "tells 20000 operations": lambda: operations(20000),
    "tells an operation in a circle": lambda: operations(1, runs="float", computes="Relu", attributes={"a": deep(300)}),
    "tells NaN steps": lambda: operations(2, runs="codes", steps=float("nan")),
    "tells a histogram of 2^62": lambda: {**codes(), "histogram": {"bins": 2**62, "least": 1}},
}
SAID = {
    "fails with a line of 32 KB": ("x" * 2 * LONG, "it failed"),
    "fails with a line of 64 KB of words": ("Err or " * 4 * LONG, "it failed"),
    "fails with 64 KB of lines": ("\n" * 4 * LONG, ""),
    "fails with 16000 letters": ("", "a" * LONG),
    "fails with 16000 quotes": ("", "'" * LONG),
    "fails with 16000 apostrophes": ("", "a'" * LONG),
    "fails with 16000 digits": ("", "(a" * LONG + "1"),
    "fails with 16000 slashes": ("", "/a" * LONG),
    "fails with 16 million letters": ("", "a" * 2**24),
    "fails with 100000 lines": ("", "a\n" * 100_000),
}


def _aliased(size: int) -> bytes:
    """2 MiB that claim to be 3 GiB: every array is the same bytes."""
    arrays = {"a": ["<f4", [size // 4], 0]}
    header = json.dumps([{"m": {f"y{k}": arrays for k in range(1536)}}]).encode()
    return struct.pack("<4sIQ", b"DFT1", len(header), size) + header + bytes(size)


def _header(text: bytes) -> bytes:
    return struct.pack("<4sIQ", b"DFT1", len(text), 0) + text


ANSWERED: dict[str, Callable[[], bytes]] = {
    "answers with aliased buffers": lambda: _aliased(2**21),
    "answers with 20 million lists": lambda: _header(b"[" + b"[]," * 20_000_000 + b"[]]"),
    "answers 100000 deep": lambda: _header(b"[" * 100_000 + b"]" * 100_000),
    "answers with a number of 10^6 digits": lambda: _header(b"[" + b"9" * 10**6 + b"]"),
    "answers with keys twice": lambda: _header(b'[{"m":{},"m":{}}]'),
    "answers with a shape of 2^62": lambda: _header(b'[{"m":{"y":{"a":["<f4",[4611686018427387904,0],0]}}}]'),
    "answers with 10^5 dimensions": lambda: _header(b'[{"m":{"y":{"a":["<f4",[' + b"0," * 10**5 + b"0],0]}}}]"),
    "answers with 2^62 strings": lambda: _header(b'[{"m":{"y":{"s":[[4611686018427387904,0],[]]}}}]'),
    "answers NaN": lambda: _header(b"NaN"),
    "answers with half a surrogate": lambda: _header(b'[{"m":{"\\ud800":1}}]'),
    "answers with objects": lambda: _array(b'["|O8",[1],0]'),
    "answers with dates": lambda: _array(b'["<M8",[1],0]'),
    "answers with texts of 2^31": lambda: _array(b'["<U2147483647",[1],0]'),
    "answers with a structure": lambda: _array(b'[[["a","<f4"]],[1],0]'),
    "answers with a float of 99 bytes": lambda: _array(b'["<f99",[1],0]'),
    "answers with a negative place": lambda: _array(b'["<f4",[1],-4]'),
    "answers with a place of NaN": lambda: _array(b'["<f4",[1],NaN]'),
    "answers with half a dimension": lambda: _array(b'["<f4",[0.5],0]'),
    "answers with a dimension true": lambda: _array(b'["<f4",[true],0]'),
    "answers with 0 times 2^62": lambda: _array(b'["<f4",[0,4611686018427387904],0]'),
    "answers with no UTF-8": lambda: _header(b'[{"m":{"\xff":1}}]'),
    "answers with nothing": lambda: _header(b""),
    "answers with two tags": lambda: _header(b'[{"m":{},"b":[0,0]}]'),
    "answers with an answer in an answer": lambda: _header(b'[{"e":[0,0]}]'),
}


def _array(told: bytes) -> bytes:
    return _header(b'[{"m":{"y":{"a":' + told + b"}}}]")


class Lying(np.ndarray):
    """An array that says it has another shape."""

    @property
    def shape(self) -> Any:
        return (2**40, 2**40)


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def of_bits(bits: int) -> np.ndarray:
    return np.full((1, 4), bits, np.uint32).view(np.float32)


OUTPUT: dict[str, Callable[[], Any]] = {
    "gives 1 GiB": lambda: {"y": np.zeros(2**28, np.float32)},
    "gives 200000 outputs": lambda: {f"y{k}": np.zeros(1, np.float32) for k in range(200_000)},
    "gives strings": lambda: {"y": np.array([["a"] * 4], object)},
    "gives 2 million strings": lambda: {"y": np.array(["a"] * 2_000_000, object)},
    "gives complex numbers": lambda: {"y": np.zeros((1, 4), np.complex64)},
    "gives a wrong rank": lambda: {"y": np.zeros([1] * 30, np.float32)},
    "gives NaN": lambda: {"y": np.full((1, 4), np.nan, np.float32)},
    "gives big-endian numbers": lambda: {"y": np.ones((1, 4), ">f4")},
    "gives a name of 1 MB": lambda: {"y" * 2**20: np.ones((1, 4), np.float32)},
    "gives none": dict,
    "gives no mapping": lambda: None,
    "gives a circle": circle,
    "gives an integer of 5000 digits": lambda: {"y": 10**4000},
    "gives a list": lambda: {"y": [[0.0] * 4]},
    "gives numbers as texts": lambda: {"y": np.array([["1", "2", "3", "4"]])},
    "gives objects": lambda: {"y": np.array([[None, {}, [], object()]], object)},
    "gives a structure": lambda: {"y": np.zeros((1, 4), [("a", "f4"), ("b", "O")])},
    "gives dates": lambda: {"y": np.zeros((1, 4), "M8[ns]")},
    "gives bytes": lambda: {"y": np.array([[b"a"] * 4])},
    "gives long doubles": lambda: {"y": np.ones((1, 4), np.longdouble)},
    "gives booleans": lambda: {"y": np.ones((1, 4), bool)},
    "gives a scalar": lambda: {"y": np.float32(1)},
    "gives no element": lambda: {"y": np.zeros((0, 4), np.float32)},
    "gives an array that lies": lambda: {"y": np.zeros((1, 4), np.float32).view(Lying)},
    "gives a masked array": lambda: {"y": np.ma.masked_all((1, 4), np.float32)},
    "gives negative strides": lambda: {"y": np.arange(4, dtype=np.float32)[None, ::-1]},
    "gives one element 2^27 times": lambda: {"y": np.broadcast_to(np.float32(1), (2**27,))},
    "gives a NaN with a message": lambda: {"y": of_bits(0x7FA5A5A5)},
    "gives infinities": lambda: {"y": of_bits(0xFF800000)},
    "gives subnormal numbers": lambda: {"y": of_bits(1)},
    "gives an output without a name": lambda: {"": np.ones((1, 4), np.float32)},
    "gives names that are no texts": lambda: {7: np.ones((1, 4), np.float32), None: np.ones(1)},
    "gives names of surrogates": lambda: {"\ud800": np.ones((1, 4), np.float32)},
    "gives names of paths": lambda: {"../../y\0\n": np.ones((1, 4), np.float32)},
    "gives wrong numbers": lambda: {"y": np.full((1, 4), 1e30, np.float32)},
}
DEEDS = (*TOLD, *SAID, *ANSWERED, *OUTPUT, *DONE)


def convert(model: str, folder: str, options: Options) -> str:
    log, message = SAID.get(options["deed"], ("", ""))
    if log:
        os.write(1, log.encode())
    if log or message:
        raise StageError(message)
    return model


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    return artifact


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    deed = options["deed"]
    if deed in DONE:
        DONE[deed]()
    if deed in ANSWERED:
        honest, told = interface.encode, ANSWERED[deed]()

        def lie(value: Any) -> bytes:
            interface.encode = honest
            return told

        interface.encode = lie
    if deed in OUTPUT:
        return [OUTPUT[deed]() for _ in feeds]
    return [{"y": np.maximum(next(iter(feed.values())), 0) + np.float32(0.25)} for feed in feeds]


def inspect(artifact: str, options: Options) -> Any:
    return TOLD[options["deed"]]()


def scheme(options: Options) -> Scheme | None:
    return Scheme((-127, 127), (0, 255)) if options["deed"] in TOLD else None


HOSTILE = Target(
    *("hostile", "numpy", convert, quantize, execute),
    options=(Option("deed", "convert", DEEDS, "how it attacks"),),
    scheme=scheme,
    inspect=inspect,
    complaint=COMPLAINT,
)
