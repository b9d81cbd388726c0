"""A target that attacks whoever reads what it says: the pipe, the log, the oracle. Runs in the sandbox."""

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
}
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
    "gives wrong numbers": lambda: {"y": np.full((1, 4), 1e30, np.float32)},
}
DEEDS = (*TOLD, *SAID, *ANSWERED, *OUTPUT)


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
