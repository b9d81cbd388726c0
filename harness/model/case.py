"""Case: a valid ONNX model, the feeds to run it on, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnx

MOST_OPERATORS, MOST_INPUTS = 8, 3
"""That the repr of a case names."""

Feed = Mapping[str, np.ndarray]
"""Input name -> array, one for every graph input that has no initializer."""


@dataclass(frozen=True, eq=False)
class Case:
    """One model to be examined. Immutable: derive a new one with `dataclasses.replace`.

    model        serialized `onnx.ModelProto`
    feeds        one or more; with symbolic dims their shapes may differ from feed to feed
    calibration  feeds for the quantizers that calibrate; empty means: calibrate on `feeds`
    origin       JSON value for people and reports (seed and index, file name, ...); nothing may branch on it
    file         absolute path of the ONNX file beside which lies what the model keeps outside itself (external data);
                 None: it is whole
    """

    model: bytes
    feeds: tuple[Feed, ...]
    calibration: tuple[Feed, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    def __repr__(self) -> str:
        """What a person wants to see of it in a line: its operators in order, and what it is fed."""
        try:
            operators = [node.op_type for node in self.proto.graph.node if node.op_type != "Constant"]
        except Exception:  # protobuf's DecodeError, whose module has no types
            return f"Case({len(self.model)} bytes that are no ONNX model)"
        fed = [f"{name}: {x.dtype}{list(x.shape)}" for name, x in (self.feeds[0].items() if self.feeds else ())]
        nodes, inputs = _listed(operators, "-", MOST_OPERATORS), _listed(fed, ", ", MOST_INPUTS)
        more = f"; {len(self.feeds)} feeds" if len(self.feeds) != 1 else ""
        return f"Case({nodes or 'no nodes'}; {inputs or 'no inputs'}{more})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same for Hypothesis and IPython, which would print each field."""
        printer.text(repr(self))

    @property
    def runs(self) -> tuple[Feed, ...]:
        """All that the model is fed: feeds, then calibration feeds."""
        return self.feeds + self.calibration

    def fed(self, runs: Sequence[Feed]) -> Case:
        """The case with other `runs`, as many."""
        return replace(self, feeds=tuple(runs[: len(self.feeds)]), calibration=tuple(runs[len(self.feeds) :]))

    @property
    def proto(self) -> onnx.ModelProto:
        """The parsed model. Shared, by all cases of these very bytes: copy it before changing anything."""
        return self._parsed.proto

    @cached_property
    def _parsed(self) -> _Parsed:
        return _PARSED.get(id(self.model)) or _PARSED.setdefault(id(self.model), _Parsed(self.model))

    def sharing(self, proto: onnx.ModelProto) -> Case:
        """The case, to which `proto` is its model: these are its bytes, and nobody changes it any more."""
        vars(self)["_parsed"] = _PARSED.setdefault(id(self.model), _Parsed(self.model, proto))
        return self

    @cached_property
    def digest(self) -> str:
        """A stable hexadecimal name for the model and everything it is fed."""
        h = hashlib.sha256(self.model)
        h.update(str(self.file or "").encode())
        for feed in self.runs:
            for name in sorted(feed):
                x = np.asarray(feed[name])
                h.update(f"{name}:{x.dtype.str}:{x.shape}".encode())
                h.update(x.tobytes() if x.dtype.kind != "O" else repr(x.tolist()).encode())
        return h.hexdigest()


class _Parsed:
    """A model and its bytes. A case with fewer feeds is another case of the same bytes, and a check has several: each
    would hold a model of 80 MiB once more."""

    def __init__(self, model: bytes, proto: onnx.ModelProto | None = None) -> None:
        self.model = model
        self.proto: onnx.ModelProto = proto or onnx.ModelProto.FromString(model)


_PARSED: WeakValueDictionary[int, _Parsed] = WeakValueDictionary()
"""By the identity of the bytes, which what is parsed keeps alive."""


def _listed(words: Sequence[str], between: str, most: int) -> str:
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return between.join([*words[:most], *more])
