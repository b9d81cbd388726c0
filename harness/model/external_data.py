"""External data: tensors that a model keeps in files beside its own.

A protobuf message holds 2 GiB at most, and each process that a message goes through holds it several times over. So a
model with much external data stays what its own file is: a skeleton, whose weights everybody reads at the place where
they lie. Parts that are cut out of it load what they read, as soon as that is little enough.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from driftnet.model.inspect import Case, Feed, bodies
from driftnet.util.errors import UserError
from driftnet.util.limits import lacks_memory
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

MOST_LOADED = 2**30
"""Bytes of external data up to which a model is loaded as a whole."""

MOST_IN_A_MESSAGE = 2**31 - 1

SMALL = 1024
"""Bytes up to which a tensor is loaded at any rate, as onnx does when it saves: shapes and axes are among these."""

EXTERNAL_KEYS = frozenset({"location", "offset", "length", "checksum", "basepath"})
"""What the standard, or onnx before it, writes of a tensor outside."""

CHUNK = 2**26
"""Bytes that are copied at once."""


def settle(model: onnx.ModelProto, path: Path, *, entire: bool) -> None:
    """Load the external data of `model`, which was read from `path`. Where they are more than MOST_LOADED bytes, and
    it need not be `entire`, the large initializers of the main graph stay outside.

    Raises UserError (kind "model") for data that lie outside the model's folder, that are missing or too short, and
    for more than a message can hold where it has to.
    """
    initializers = tensors_outside(model)
    others = others_outside(model)
    for tensor in (*initializers, *others):
        _check(tensor, path)
    total = _bytes((*initializers, *others))
    if entire and total > MOST_IN_A_MESSAGE:
        raise UserError(
            f"{path} holds {total / 2**30:.1f} GiB of external data; this command takes models up to 2 GiB, the most "
            "that one protobuf message can hold",
            hint="driftnet check and driftnet reduce take larger ones; "
            "onnx.utils.extract_model(MODEL, PART, [inputs], [outputs]) cuts a part out",
            kind="model",
        )
    if not entire and total > MOST_LOADED:
        initializers = [t for t in initializers if _bytes([t]) <= SMALL]
    _load((*initializers, *others), path)


def case(
    model: onnx.ModelProto,
    path: Path,
    feeds: Sequence[Feed],
    calibration: Sequence[Feed] = (),
    origin: Mapping[str, Any] | None = None,
) -> Case:
    """The case of a settled model that was read from `path`, and that nobody changes any more."""
    file = path.absolute() if outside(model) else None
    made = Case(model.SerializeToString(), tuple(feeds), tuple(calibration), origin or {}, file)
    return made.sharing(model)


def tensors_outside(model: onnx.ModelProto) -> list[TensorProto]:
    """The initializers that `model` keeps outside itself."""
    return [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]


def others_outside(model: onnx.ModelProto) -> list[TensorProto]:
    """All other tensors that `model` keeps outside itself."""
    return [tensor for tensor in _others(model) if uses_external_data(tensor)]


def outside(model: onnx.ModelProto) -> int:
    """Their bytes."""
    return _bytes(tensors_outside(model))


def beside(model: onnx.ModelProto, folder: Path) -> set[Path]:
    """The files in `folder` in which `model` keeps initializers."""
    return {folder / ExternalDataInfo(tensor).location for tensor in tensors_outside(model)}


def files(case: Case) -> set[Path]:
    """The file of `case` and those beside it; none where it keeps nothing outside."""
    return {case.file, *beside(case.proto, case.file.parent)} if case.file else set()


def loaded(case: Case) -> Case:
    """`case` with its model whole, where what it keeps outside is at most MOST_LOADED bytes; else as it is."""
    if case.file is None or outside(case.proto) > MOST_LOADED:
        return case
    model = deepcopy(case.proto)
    _load(tensors_outside(model), case.file)
    return dataclasses.replace(case, model=model.SerializeToString(deterministic=True), file=None)


def array(tensor: TensorProto, file: Path | None) -> np.ndarray:
    """The values of a tensor of a case whose file is `file`; of one that lies outside they are read when looked at."""
    if file is None or not uses_external_data(tensor):
        return numpy_helper.to_array(tensor)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.isbuiltin != 1:  # packed: two int4 in a byte
        whole = deepcopy(tensor)
        _load([whole], file)
        return numpy_helper.to_array(whole)
    info = ExternalDataInfo(tensor)
    return np.asarray(np.memmap(file.parent / info.location, dtype, "r", info.offset or 0, tuple(tensor.dims)))


def write(case: Case, path: Path) -> None:
    """Write the model of `case` to `path`, and what it keeps outside itself to one file beside it."""
    if case.file is None:
        path.write_bytes(case.model)
        return
    model = deepcopy(case.proto)
    with open(path.with_name(f"{path.name}.data"), "wb") as data:
        for tensor in tensors_outside(model):
            _move(tensor, case.file, data)
    path.write_bytes(model.SerializeToString())


def is_whole(case: Case) -> bool:
    """Whether the file of `case` holds its very model: not so of a part that was cut out."""
    if case.file is None:
        return False
    model = onnx.load(case.file, load_external_data=False)
    settle(model, case.file, entire=False)
    return bool(model.SerializeToString() == case.model)


def _move(tensor: TensorProto, file: Path, data: BinaryIO) -> None:
    info, offset, left = ExternalDataInfo(tensor), data.tell(), _bytes([tensor])
    with open(file.parent / info.location, "rb") as source:
        source.seek(info.offset or 0)
        while left:
            if not (chunk := source.read(min(CHUNK, left))):
                raise _unreadable(file, f"{info.location} has become shorter")
            left -= data.write(chunk)
    del tensor.external_data[:]
    for key, value in (("location", Path(data.name).name), ("offset", offset), ("length", data.tell() - offset)):
        tensor.external_data.add(key=key, value=str(value))


def _load(tensors: Sequence[TensorProto], path: Path) -> None:
    try:
        for tensor in tensors:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
    except Exception as e:  # missing, too short, no regular file: a type each
        if lacks_memory(e):
            raise
        raise _unreadable(path, str(e)) from e


def _check(tensor: TensorProto, path: Path) -> None:
    if unknown := {entry.key for entry in tensor.external_data} - EXTERNAL_KEYS:
        raise _unreadable(path, f"tensor {tensor.name!r} has an entry {min(unknown)!r:.80}")
    try:
        info, size = ExternalDataInfo(tensor), _bytes([tensor])
        place = path.parent / info.location
        inside, there = place.resolve().is_relative_to(path.parent.resolve()), place.is_file()
    # an element type or an offset that there is not; a NUL, a name too long, a circle of links
    except (KeyError, ValueError, OSError, RuntimeError) as e:
        raise _unreadable(path, f"tensor {tensor.name!r}: {e}") from e
    if not inside:
        raise UserError(
            f"{path}: tensor {tensor.name!r} points outside its folder ({info.location})",
            hint="save the model with its external data beside it",
            kind="model",
        )
    if not there:
        raise _unreadable(path, f"there is no file {info.location}")
    if place.stat().st_size < (info.offset or 0) + size:
        raise _unreadable(path, f"{info.location} is too short for tensor {tensor.name!r}")


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: its external data cannot be read: {why}",
        hint="the data file belongs beside the model, under the name it was saved with",
        kind="model",
    )


def _bytes(tensors: Iterable[TensorProto]) -> int:
    return sum(math.ceil(math.prod(t.dims) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize) for t in tensors)


def _others(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model but the initializers of its main graph."""
    yield from _held(model.graph.node)
    for sparse in model.graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for function in model.functions:
        yield from _held(function.node)


def _held(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
        for body in bodies(node):
            yield from body.initializer
            yield from _held(body.node)
