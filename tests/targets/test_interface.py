"""What crosses the pipe comes back the same, and what is no message is refused with WireError and nothing else."""

from __future__ import annotations

import ast
import gc
import itertools
import random
import weakref
from typing import Any

import numpy as np
import pytest
from driftnet.targets import interface

from tests.support.paths import ROOT
from tests.support.rules import assert_each

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f4", "c8")
VALUES = (
    None,
    True,
    -7,
    2.5,
    "",
    "Ä \ud800",
    b"\0raw",
    [],
    {},
    [1, [2, [3, {}]]],
    {"m": {"a": [1], "b": {"s": None}}},
    {"": float("inf")},
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_come_back_the_same(value: object) -> None:
    back = interface.decode(interface.encode(value))
    assert back == value, f"{value!r} came back as {back!r}"
    assert type(back) is type(value), f"a {type(value).__name__} came back as a {type(back).__name__}"


def test_arrays_come_back_the_same() -> None:
    def rule(form: tuple[str, tuple[int, ...]]) -> None:
        dtype, shape = form
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        back = interface.decode(interface.encode([x, x]))
        for y in back:
            assert (y.dtype, y.shape) == (x.dtype, x.shape), f"came back as {y.dtype}{y.shape}"
            assert y.tobytes() == x.tobytes(), f"{x} came back as {y}"
            assert y.flags.writeable, "came back and cannot be written"

    assert_each(itertools.product(DTYPES, [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]), rule)


def test_arrays_that_are_not_contiguous_come_back_with_the_same_values() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[::-2, 1::2].T
    for y in (x, np.broadcast_to(np.float32(1.5), (2, 3))):
        back = interface.decode(interface.encode(y))
        assert back.tolist() == y.tolist(), f"{y} came back as {back}"


def test_not_a_number_keeps_its_bits() -> None:
    x = np.array([np.nan, -np.nan, np.inf, -0.0], dtype=np.float32)
    assert interface.decode(interface.encode(x)).tobytes() == x.tobytes()


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.int64(-1), np.bool_(True), np.float64(0.1)], ids=repr)
def test_a_numpy_scalar_comes_back_as_a_0_d_array(scalar: Any) -> None:
    back = interface.decode(interface.encode(scalar))
    assert (back.dtype, back.shape, back[()]) == (scalar.dtype, (), scalar), f"{scalar!r} came back as {back!r}"


@pytest.mark.parametrize("x", [np.array([["a", "ä"]]), np.array(["a", 1], dtype=object), np.array([], dtype=object)])
def test_arrays_of_strings_come_back_as_objects(x: np.ndarray) -> None:
    back = interface.decode(interface.encode(x))
    assert (back.dtype, back.shape) == (np.dtype(object), x.shape), f"{x!r} came back as {back!r}"
    assert back.tolist() == x.astype(str).tolist()


def test_tuples_come_back_as_lists() -> None:
    assert interface.decode(interface.encode(((1, 2), {"a": (3,)}))) == [[1, 2], {"a": [3]}]


@pytest.mark.parametrize(
    "value",
    [object(), {1}, 1j, np.array(["2020-01-01"], "M8[D]"), np.zeros(2, "i4,f4"), np.array([b"a"]), [{"x": len}]],
)
def test_what_cannot_cross_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="cannot cross the pipe"):
        interface.encode(value)


def test_the_size_of_a_message_shows_in_its_first_bytes() -> None:
    message = interface.encode({"x": np.zeros(100)})
    for cut in range(len(message)):
        assert interface.message_size(message[:cut]) in (None, len(message)), f"{cut} bytes give another size"
    assert interface.message_size(message[:16]) == len(message), "16 bytes are not enough to tell the size"


def test_encoding_keeps_nothing_alive() -> None:
    x = np.zeros(10)
    gc.disable()  # without it, a reference cycle keeps 64 MiB a call alive until the collector happens to run
    try:
        interface.decode(interface.encode([x]))
        alive = weakref.ref(x)
        del x
        assert alive() is None, "an array that was sent stays in memory"
    finally:
        gc.enable()


def test_large_arrays_are_not_copied_on_either_side() -> None:
    x = np.arange(interface._COPIED, dtype=np.float32).reshape(2, -1)
    parts = interface.Encoded({"x": x, "empty": np.zeros((0, 3))}).parts
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), x) for part in parts), "what is sent is a copy"
    message = bytearray(interface.encode({"reply": interface.Encoded([b"1", x])}))
    inner = interface.decode(message, copy=False)["reply"]
    text, back = interface.decode(inner, copy=False)
    assert [text, back.tolist()] == [b"1", x.tolist()], f"{text!r} and {back!r} came back"
    assert np.shares_memory(back, np.frombuffer(message, np.uint8)), "what was received is a copy"


def header(text: str, body: bytes = b"") -> bytes:
    return interface._HEADER.pack(b"DFT1", len(text), len(body)) + text.encode() + body


NO_MESSAGES = [
    b"",
    b"DFT1",
    b"GET / HTTP/1.1\r\n\r\n",
    interface.encode([1]) + b"x",
    interface.encode(np.zeros(3))[:-1],
    header("{"),
    header("{}"),
    header('{"m": [1]}'),
    header('{"m": {}, "b": [0, 0]}'),
    header('{"?": 1}'),
    header('{"b": [5, 0]}', b"1234"),
    header('{"b": [-1, 0]}', b"1234"),
    header('{"b": [1, -1]}', b"1234"),
    header('{"b": ["1", 0]}', b"1234"),
    header('{"b": [1e0, 0]}', b"1234"),
    header('{"a": ["<f4", [1], 1]}', b"1234"),
    header('{"a": ["<f4", [-1], 0]}', b"1234"),
    header('{"a": ["<f4", [true], 0]}', b"1234"),
    header('{"a": ["<f4", [1.0], 0]}', b"1234"),
    header('{"a": ["<f4", "1", 0]}', b"1234"),
    header('{"a": ["<f4", [4294967296, 4294967296], 0]}', b"1234"),
    header('{"a": ["<f4", [0, 100000000000000000000000], 0]}', b"1234"),
    header('{"a": ["|O", [1], 0]}', b"12345678"),
    header('{"a": ["O", [1], 0]}', b"12345678"),
    header('{"a": ["<f3", [1], 0]}', b"1234"),
    header('{"a": ["(2,2)<f4", [1], 0]}', b"1234"),
    header('{"a": [["x", "<f4"], [1], 0]}', b"1234"),
    header('{"s": [[2], ["a"]]}'),
    header('{"s": [[1], 5]}'),
    header("[" * 100_000),
    header('"\xff"'),
    header("9" * 5000),
]


def test_what_is_no_message_is_a_wire_error() -> None:
    def rule(message: bytes) -> None:
        with pytest.raises(interface.WireError):
            interface.decode(message)

    assert_each(NO_MESSAGES, rule, lambda message: repr(message[16:60]))


def test_damaged_messages_give_a_value_or_a_wire_error() -> None:
    rng = random.Random(1)
    message = interface.encode(
        {"x": np.arange(6.0).reshape(2, 3), "s": np.array(["a"]), "b": b"raw", "l": [1, None, "t"]}
    )
    refused = 0
    for _ in range(3000):
        damaged = bytearray(message)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            interface.decode(damaged)
        except interface.WireError:
            refused += 1
    assert 1000 < refused < 3000, f"{refused} of 3000 damaged messages are refused"


@pytest.mark.parametrize("file", ["harness/targets/interface.py", "harness/run/sandbox/inside.py"])
def test_the_workers_side_is_written_in_python_3_8(file: str) -> None:
    assert ast.parse((ROOT / file).read_text(encoding="utf-8"), feature_version=(3, 8)).body != []
