"""The few types that cross the pipe between the harness and a worker process.

A worker may run in another, older interpreter that has nothing but the system under test, so this module needs the
standard library and numpy only, and runs on Python 3.8 and numpy 1.19. Values cross as a JSON header followed by raw
buffers; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Dict, Iterator, List, Mapping  # noqa: UP035  (others need Python 3.9, a worker may have 3.8)

import numpy as np

Feed = Mapping[str, np.ndarray]
Answers = List[Dict[str, np.ndarray]]  # noqa: UP006
"""Of execute: {output: array}, one a feed."""
Options = Mapping[str, Any]
STAGES = ("convert", "quantize", "execute")
OURS = "driftnet/"
"""How a worker's frames of driftnet itself begin."""


@dataclass(frozen=True)
class Option:
    """One axis of a target's recipe space.

    values[0] is the default, towards which recipes are simplified. The option has a meaning only where each option
    named in `when` has one of the values given there; elsewhere it is left out of the recipe. `since` says which values
    came with a later release than the oldest: of an older one they are not drawn. What costs much more than the default
    is drawn in a `share` of the recipes in which it otherwise would be; above 1, what users ask for oftener. `applies`
    says whether it means anything for what is calibrated on these feeds; None: for all.
    """

    name: str
    stage: str
    values: tuple[Any, ...]
    help: str
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    since: Mapping[Any, str] = field(default_factory=dict)
    share: float = 1.0
    applies: Callable[[Sequence[Feed]], bool] | None = None


@dataclass(frozen=True)
class Rule:
    """Documented behaviour that is no bug: a refusal, or an exception the oracle has to make.

    pattern is searched (re.MULTILINE) in the message and native log of `stage`; source says where it is documented.
    It is so only where each option named in `when` has one of the values given there. An exception that takes its toll
    of an output may have options `without` which it does not.
    """

    name: str
    stage: str
    pattern: str
    source: str
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    without: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, options: Options) -> bool:
        return all(options.get(name) in values for name, values in self.when.items())

    def matches(self, text: str) -> re.Match[str] | None:
        return re.search(self.pattern, text, re.MULTILINE)


@dataclass(frozen=True)
class Scheme:
    """How a target quantizes under one recipe, as data for the oracle. None: that side stays in floating point.

    weight_codes      (lowest, highest) integer code of weights
    activation_codes  (lowest, highest) integer code of activations
    symmetric_weights, symmetric_activations   scale = max|x| / highest code and no zero point; else the scale is
                      (max - min) / (highest - lowest)
    per_channel       one weight scale an output channel, else one a tensor
    halves            nothing is quantized, but constants are rounded to float16
    told              scales are others than these formulas say (of blocks, ...), and the artifact has to tell them
    per_tensor        operators that keep one weight scale a tensor even so
    clips             calibration may choose a range narrower than the data (KL, Entropy, ...)
    nearest_weights   each weight gets the code nearest to it; else that is done first, and then codes and scales are
                      fitted to each other by least squares, where the largest weights are clipped
    moves_biases      biases are moved to make up for what quantizing does to the mean of a result
    held_as_floats    operators stand between DequantizeLinear and QuantizeLinear, and are fused by the runtime
    narrow            a range of activations that is narrower than this ends so much above its least number
    """

    weight_codes: tuple[int, int] | None = None
    activation_codes: tuple[int, int] | None = None
    symmetric_weights: bool = True
    symmetric_activations: bool = False
    per_channel: bool = False
    halves: bool = False
    told: bool = False
    per_tensor: frozenset[str] = frozenset()
    clips: bool = False
    nearest_weights: bool = True
    moves_biases: bool = False
    narrow: float = 0.0
    held_as_floats: bool = False


@dataclass(frozen=True)
class Kernel:
    """A fast algorithm (Winograd, Strassen ...) that rounds more than any bound of single elements allows.

    operators   ONNX operators that it may compute
    loss        what it may be off by at most, of the largest element of a result
    without     options under which the target does not use it;   source   where it is documented
    seen        a release, and the most that one layer lost in it: tests measure the installed one
    when        options that it is used under, by their values
    """

    name: str
    operators: frozenset[str]
    loss: float
    without: Mapping[str, Any]
    source: str
    seen: tuple[str, float]
    when: Mapping[str, Any] = field(default_factory=dict)


class StageError(Exception):
    """The system under test said that a stage failed. The message is the system's own words."""


def answered(outputs: Mapping[str, str], values: Sequence[Any]) -> Dict[str, np.ndarray]:  # noqa: UP006
    """One feed's results by name. What a system gives no value for (None) is left out, and counts as missing."""
    return {name: value for name, value in zip(outputs, values) if value is not None}


def unquantized(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """The quantize stage of a target that quantizes nothing."""
    return artifact


def _no_scheme(options: Options) -> Scheme | None:
    return None


@dataclass(frozen=True)
class Target:
    """A system under test: three functions and their declaration.

    The module that holds a Target imports the system only inside the three functions, because the declaration is read
    in the harness process and the functions run in the sandbox. `folder` is an empty directory of the case's own.

    convert(model, folder, options) -> artifact          paths; `options` are those of all stages
    quantize(artifact, calibration, folder, options) -> artifact
    execute(artifact, feeds, outputs, options) -> one {output name: array} a feed, all run in one session; outputs:
        {output name: numpy's name of the type that it is declared to have, "" for none}
    inspect(artifact, options) -> what the oracle wants to know of a quantized artifact: the data of a
        driftnet.model.artifact.Artifact; may be missing
    tap(artifact, feeds, tensors, options) -> what the intact artifact makes of tensors on its way, those that it knows
        by the name they have in the ONNX model; tensors as `outputs` of execute; may be missing
    commands(options) -> what a user of the system types to make the same of model.onnx and run it, in the folder of a
        saved case: a block of shell, "" where it takes more. A comment says what is left to fill in; may be missing
    tools         packages that these tools install into whatever environment they run in, unless they are there
    executes_plain  whether execute runs what convert gives too, where quantize made something else of it

    Each raises StageError with the system's own message when the system reports a failure; any other exception
    that comes out of the system counts as one too, with its type in the message; one that a statement of the functions'
    own file raises says that they are broken. A quantize that has nothing to do under `options` returns its input.

    distribution  the package whose installed version is this target's release
    options       the recipe space, each default first
    switches      names of options that take a list of parts of the system to do without, none by default, and those
                  parts. Never drawn nor swept: they are there to find which part a failure needs
    scheme        the quantization scheme under given options, or None when nothing is quantized
    complaint     a pattern for the line of native log that says why a stage failed, where the error itself does not
    refusals      "not supported", as documented
    outgrown      refusals of releases older than the one installed here: what they say of an opset, IR version,
                  operator or type that came after them
    exceptions    documented numerical behaviour that the oracle must not report
    approximations  operator -> by how much its results are off in float32, where that is more than other systems' are:
                  by so much, and of results beyond 1 by so much of them; two numbers: the first, and the second
                  for each unit of the (first) operand, which is rounded
    kernels       its fast kernels that no bound of single elements holds, each with its own bound and its switch
    companions    (releases below, requirement): what those need beside themselves, or cannot run with when it is newer;
                  below "" is every release, below ">=1.22" that one and newer ones; {release} is the one
                  itself, {0}, {1} ... its numbers; of one that ends with " --no-deps" comes nothing that it requires
    features      for `driftnet selfcheck`, which puts bugs into targets: {what a bug may need: options that give it}.
                  "float" nothing is quantized; "onnx" what is quantized is an ONNX model, with onnxruntime's names for
                  codes (x_quantized), scales (x_scale) and zero points (x_zero_point); of such, "qdq" pairs of
                  QuantizeLinear and DequantizeLinear; "unfused" these, run as they are written; "min-max" scales of all
                  that calibration saw; "per-channel" a scale a channel of weights; "u8s8" unsigned activations, signed
                  weights. For `audit`: "preprocessed" convert gives the ONNX model as it is made ready for quantizing
    mutants       bugs of its own for it: each changes the file that quantize gave, in place
    profile       what models are drawn for it, where it takes little at all (only constants for axes, say): the fields
                  of driftnet.generators.building.profile.Profile
    undrawn       option -> values that this release is too old for, by their `since`
    natives       the system's functions and methods, dotted, through which everything goes that is asked of it: what
                  the script for maintainers asks of them is held against what the target asks

    Where the functions are plain ones of a module, their text goes into the script that maintainers get beside a case.
    """

    name: str
    distribution: str
    convert: Callable[[str, str, Options], str]
    quantize: Callable[[str, Sequence[Feed], str, Options], str]
    execute: Callable[[str, Sequence[Feed], Mapping[str, str], Options], Answers]
    options: tuple[Option, ...] = ()
    scheme: Callable[[Options], Scheme | None] = _no_scheme
    complaint: str = ""
    refusals: tuple[Rule, ...] = ()
    outgrown: tuple[Rule, ...] = ()
    exceptions: tuple[Rule, ...] = ()
    inspect: Callable[[str, Options], Mapping[str, Any]] | None = None
    tap: Callable[[str, Sequence[Feed], Mapping[str, str], Options], Answers] | None = None
    commands: Callable[[Options], str] | None = None
    tools: tuple[str, ...] = ()
    executes_plain: bool = False
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    approximations: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    companions: tuple[tuple[str, str], ...] = ()
    features: Mapping[str, Options] = field(default_factory=dict)
    mutants: tuple[Callable[[str], None], ...] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    natives: tuple[str, ...] = ()
    undrawn: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class WireError(ValueError):
    """Bytes on the pipe that are no message: the other side is broken or hostile."""


SMALL, LARGE = 1 << 16, 1 << 20  # bytes to send or receive at once: a buffer of 1 MiB costs 30 us to get
MOST_TEXT = 2**24
"""Bytes of the JSON header of a message: of lists in lists, an interpreter makes twenty times as many."""

_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"DFT1"
_DTYPE = re.compile(r"[<>|][biufc]\d{1,2}")
_PLAIN = frozenset({type(None), bool, int, float, str})
_ALIGNED = 16  # bytes: arrays that are views into a message lie where numpy reads them fast
_GAP = bytes(_ALIGNED)
_COPIED = 1 << 14  # bytes of an array of which a copy costs less than a view
_JSON = json.JSONEncoder(check_circular=False, separators=(",", ":"))


class Encoded:
    """One message in parts: the memory of large arrays is not copied, and can be sent from where it lies.

    Within another message it is a value that is decoded by itself: a memoryview, to be given to `decode` again.
    """

    def __init__(self, value: Any) -> None:
        self.parts: list[Any] = []
        self.size = 0
        header = _JSON.encode(_pack(value, self)).encode()
        if len(header) >= MOST_TEXT:
            raise TypeError(f"{len(header)} bytes of texts and names cannot cross the pipe, {MOST_TEXT} can")
        header += b" " * (-len(header) % _ALIGNED)
        self.parts[:0] = [_HEADER.pack(_MAGIC, len(header), self.size), header]
        self.size += _HEADER.size + len(header)

    def add(self, *parts: Any) -> int:
        """Put buffers of bytes at the end of the body; where they begin."""
        offset = self.size
        self.parts += parts
        self.size += sum(map(len, parts))
        if gap := -self.size % _ALIGNED:
            self.parts.append(_GAP[:gap])
            self.size += gap
        return offset

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def pieces(self) -> Iterator[Any]:
        """The parts as they are to be sent, large ones from where they lie: joined, the tensors of a large model would
        be in memory twice. Small ones are joined: each by itself, 200,000 of them took the receiver's time."""
        small = bytearray()
        for part in self.parts:
            if len(part) < SMALL:
                small += part
            if len(part) >= SMALL or len(small) >= LARGE:
                yield bytes(small)
                small.clear()
            if len(part) >= SMALL:
                yield part
        yield bytes(small)


def encode(value: Any) -> bytes:
    """One message: None, bool, int, float, str, bytes, numpy arrays and scalars, lists and str-keyed dicts of these.

    Arrays are of booleans, integers, floats, complex numbers, or strings (which come back as objects). Tuples come
    back as lists, and a mapping as a dict. Raises TypeError for anything else, and for more than MOST_TEXT bytes of it.
    """
    return bytes(Encoded(value))


def decode(message: bytes | bytearray | memoryview, *, copy: bool = True) -> Any:
    """The value of one whole message. Raises WireError for anything that `encode` does not write.

    copy   whether arrays get memory of their own; else they are views into the message, as far as numpy likes them
    """
    try:
        if message_size(message) != len(message):
            raise WireError(f"not one whole message: {bytes(message[:16])!r}")
        _, header_size, _ = _HEADER.unpack_from(message)
        memory, body = memoryview(message), _HEADER.size + header_size
        return _unpack(json.loads(str(memory[_HEADER.size : body], "utf-8")), _Body(memory[body:], copy))
    except WireError:
        raise
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise WireError(f"malformed message: {type(e).__name__}: {e}") from None


def message_size(prefix: bytes | bytearray | memoryview) -> int | None:
    """Total bytes of the message that starts with `prefix`, or None while the prefix is too short to tell."""
    if not _MAGIC.startswith(bytes(prefix[:4])):
        raise WireError(f"not a message: {bytes(prefix[:16])!r}")
    if len(prefix) < _HEADER.size:
        return None
    _, header_size, size = _HEADER.unpack_from(prefix)
    if header_size > MOST_TEXT:
        raise WireError(f"a message with {header_size} bytes of texts and names, {MOST_TEXT} are allowed")
    return int(_HEADER.size + header_size + size)


def _pack(v: Any, body: Encoded) -> Any:
    """`v` as a JSON value, its bytes added to `body`. (No closure: one that calls itself is a reference cycle, which
    kept every array that had been sent in memory.)"""
    if type(v) in _PLAIN:
        return v
    if isinstance(v, (np.ndarray, np.generic)):
        x = np.asarray(v)
        if x.dtype.kind in "OUT":
            return {"s": [list(x.shape), [str(y) for y in x.ravel()]]}
        code = x.dtype.str
        if not _dtype(code):
            raise TypeError(f"a {x.dtype} array cannot cross the pipe")
        small = x.nbytes <= _COPIED
        data = x.tobytes() if small else np.ascontiguousarray(x).reshape(-1).view(np.uint8).data
        return {"a": [code, list(x.shape), body.add(data)]}
    if isinstance(v, (bool, int, float, str)):
        return v
    if isinstance(v, (dict, Mapping)):  # to ask the second takes longer than all the rest
        return {"m": {str(k): _pack(x, body) for k, x in v.items()}}
    if isinstance(v, (list, tuple)):
        return [_pack(x, body) for x in v]
    if isinstance(v, (bytes, bytearray)):
        return {"b": [len(v), body.add(v)]}
    if isinstance(v, Encoded):
        return {"e": [len(v), body.add(*v.parts)]}
    raise TypeError(f"a {type(v).__name__} cannot cross the pipe")


@dataclass
class _Body:
    """What follows the header, of which `taken` bytes have been read: each once at most, and in order. So no message
    can claim to be more than it is. copy: as in `decode`."""

    bytes: memoryview
    copy: bool
    taken: int = 0

    def take(self, offset: int, size: int) -> memoryview:
        if not self.taken <= offset <= offset + size <= len(self.bytes):
            raise WireError(
                "a buffer that begins before the one before it ends, or reaches past the end of the message"
            )
        self.taken = offset + size
        return self.bytes[offset : offset + size]


def _unpack(v: Any, body: _Body) -> Any:
    if isinstance(v, list):
        return [_unpack(x, body) for x in v]
    if not isinstance(v, dict):
        return v
    ((kind, x),) = v.items()
    if kind == "m":
        return {k: _unpack(y, body) for k, y in x.items()}
    if kind in ("b", "e"):
        size, offset = x
        part = body.take(offset, size)
        return part if kind == "e" else bytes(part)
    if kind == "s":
        shape, strings = x
        return np.array([str(y) for y in strings], dtype=object).reshape(_shape(shape))
    if kind != "a":
        raise WireError(f"unknown tag {kind!r}")
    code, shape, offset = x
    dtype, shape = _dtype(code), _shape(shape)
    if dtype is None:
        raise WireError(f"a {code!r} array cannot cross the pipe")
    array: np.ndarray = np.ndarray(shape, dtype, body.take(offset, math.prod(shape) * dtype.itemsize))
    return array if not body.copy and array.flags.aligned else array.copy()


@lru_cache(maxsize=64)
def _dtype(code: str) -> np.dtype | None:
    """The dtype that numpy writes so; None of what cannot cross the pipe."""
    return np.dtype(code) if _DTYPE.fullmatch(code) else None


def _shape(dims: Any) -> tuple[int, ...]:
    if not isinstance(dims, list) or not all(type(d) is int and d >= 0 for d in dims):
        raise WireError(f"{dims!r:.80} is no shape")
    return tuple(dims)
