"""Feeds from outside: NPZ files, folders of them, ONNX test data sets, or made up where there are none."""

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from driftnet.model.index_ranges import ranges
from driftnet.model.inspect import UNNAMED, Feed, declared_dims, graph_inputs, input_dtype, validate_feed
from driftnet.util.errors import UserError
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

_HINT = "give an .npz with one array per graph input, a folder of them, or an ONNX test_data_set folder"

NPY = b"\x93NUMPY"

FREE_SIZES = ((1, 2), (2, 32), (1, 32), (1, 64), (1, 8), (1, 128), (1, 320))
"""Sizes of free dims, of first axes and of the rest, that are tried in this order where a model does not run with 2."""
MOST_ELEMENTS = 2**28
"""Elements of all inputs together that are made up: 1 GiB of float32, more than a worker's memory lets a model use."""


def read_feeds(path: Path, model: onnx.ModelProto, what: str, *, beside: bool = False) -> tuple[Feed, ...]:
    """Every feed at `path`: an .npz file, a test_data_set folder (input_<i>.pb), or a folder of either.

    Of a model without inputs any folder is a data set: nothing is fed. what names them in messages ("inputs",
    "calibration"). Raises UserError (kind "feed") for files that cannot be read, for a feed that contradicts the model,
    naming the input, what was expected and what was given, and for numbers that `demand_numbers` refuses; not for
    these in what lies `beside` a model, as a saved case has it.
    """
    if not (path.is_file() or path.is_dir()):
        raise UserError(f"{what}: no such file or folder: {path}", hint=_HINT, kind="feed")
    if path.is_file() or any(path.glob("input_*.pb")) or not graph_inputs(model):
        sources = [path]
    else:
        sources = sorted(p for p in path.iterdir() if p.suffix == ".npz" or any(p.glob("input_*.pb")))
    if not sources:
        raise UserError(f"{what}: no .npz and no input_<i>.pb in {path}", hint=_HINT, kind="feed")
    feeds = []
    for source in sources:
        feed = _read_npz(source, model, what) if source.is_file() else _read_data_set(source, model, what)
        validate_feed(model, feed, f"{what} {source}")
        if not beside:
            demand_numbers([feed], f"{what} {source}", finite=what == "calibration")
        feeds.append(feed)
    return tuple(feeds)


def feeds_beside(path: Path, model: onnx.ModelProto, what: str, *made_of_it: Path) -> tuple[Feed, ...]:
    """The "inputs" or "calibration" feeds in the folders beside the only model at `path`, but for `made_of_it`, as
    ONNX's tests and saved cases have them; none where there are none. Raises UserError as `read_feeds` does."""
    if {*map(Path.resolve, path.parent.glob("*.onnx"))} - {*map(Path.resolve, (path, *made_of_it))}:
        return ()  # nobody knows whose they are
    prefix = {"inputs": "test_data_set", "calibration": "calibration"}[what]
    folders = sorted(path.parent.glob(f"{prefix}_*"), key=lambda folder: (len(folder.name), folder.name))
    return tuple(feed for folder in folders for feed in read_feeds(folder, model, what, beside=True))


def given_or_beside(
    given: Path | str | None, path: Path, model: onnx.ModelProto, what: str, *made_of_it: Path
) -> tuple[Feed, ...]:
    """The "inputs" or "calibration" feeds that somebody gave, else `feeds_beside`; none where there are none. Raises
    UserError as `read_feeds` does."""
    return read_feeds(Path(given), model, what) if given else feeds_beside(path, model, what, *made_of_it)


def demand_numbers(feeds: Sequence[Feed], what: str, *, finite: bool) -> None:
    """Raises UserError (kind "feed") where a feed holds NaN or infinity: whatever comes of that says nothing of who is
    fed it. Of what has not to be `finite` minus infinity is one of the numbers: masks hold it."""
    for feed in feeds:
        for name, x in feed.items():
            if x.dtype.kind == "f" and not (np.isfinite(x) if finite else x < np.inf).all():
                held = "NaN" if np.isnan(x).any() else "infinity"
                raise UserError(
                    f"{what}: input {name!r} holds {held}",
                    hint="give inputs like those that the model is made for"
                    + ("" if finite else "; a mask may hold -inf"),
                    kind="feed",
                )


def demand_dims(model: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Raises UserError (kind "option") for a size below 1, and for a name that no symbolic dim of an input has."""
    symbolic = {d.dim_param for v in graph_inputs(model) for d in v.type.tensor_type.shape.dim if d.dim_param}
    for name, size in dims.items():
        if size < 1:
            raise UserError(
                f"--dim {name}={size}: an empty tensor cannot show a difference", hint=f"--dim {name}=2", kind="option"
            )
        if name not in symbolic:
            raise UserError(
                f"no input of the model has a dim called {name!r}",
                hint=f"symbolic dims of its inputs: {', '.join(sorted(symbolic)) or 'none'}",
                kind="option",
            )


def sized(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """`model` with symbolic dims of these sizes; what it says of tensors that have others too is left to inference."""
    given, model = model, onnx.ModelProto()
    model.CopyFrom(given)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    whole = [v for v in model.graph.value_info if all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)]
    del model.graph.value_info[:]
    model.graph.value_info.extend(whole)
    return model


def made_to_run(model: onnx.ModelProto, sizes: Mapping[str, int], runs: Callable[[Feed], bool]) -> Feed:
    """The feed that is `made_up`; where the model does not run on that, the first of those with FREE_SIZES that it
    `runs` on, if there is one: what halves an image five times takes none of 2 x 2. Raises UserError as that does."""
    usual = made_up(model, sizes)
    return usual if runs(usual) else next(filter(runs, made_up_otherwise(model, sizes)), usual)


def made_up_otherwise(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Iterator[Feed]:
    """What is `made_up` with each of the other sizes that free dims may have, up to MOST_ELEMENTS."""
    for free in free_sizes(model, sizes):
        with suppress(UserError):  # not around the loop: a later size may be smaller
            yield made_up(model, sizes, free=free)


def free_sizes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Sequence[tuple[int, int]]:
    """FREE_SIZES; none where each free dim has a size."""
    free = {dim for value in graph_inputs(model) for dim in declared_dims(value) if not isinstance(dim, int)}
    return () if free <= sizes.keys() else FREE_SIZES


def made_up(model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0, *, free: tuple[int, int] = (2, 2)) -> Feed:
    """A feed: floats uniform in [-1, 1), integers that what reads them accepts (else 0 or 1), bools at random; symbolic
    dims as `sizes` says, else as `free` does: those of first axes, and the rest.

    Raises UserError (kind "feed") for an input that is no tensor of these or has an unknown rank, for a negative size,
    and for more than MOST_ELEMENTS elements in all.
    """
    rng = np.random.default_rng(seed)
    values, (first, rest) = graph_inputs(model), free
    leading = {dims[0] for dims in map(declared_dims, values) if dims and not isinstance(dims[0], int)}
    sizes = {**dict.fromkeys(leading - {UNNAMED}, first), **sizes}
    inputs = {value.name: (_shape(value, sizes, first, rest), input_dtype(value)) for value in values}
    if (total := sum(math.prod(shape) for shape, _ in inputs.values())) > MOST_ELEMENTS:
        shapes = ", ".join(f"{name} {list(shape)}" for name, (shape, _) in inputs.items())
        raise _nothing_made_up(f"the inputs have {total} elements ({shapes:.200}), more than {MOST_ELEMENTS}")
    feed, accepted = {}, ranges(model)
    for name, (shape, dtype) in inputs.items():
        if dtype.kind not in "fiub":
            raise _nothing_made_up(f"input {name!r} holds {'strings' if dtype.kind == 'O' else dtype}")
        low, end = accepted[name] if dtype.kind != "b" else (0, 2)
        drawn = rng.uniform(-1, 1, shape) if dtype.kind == "f" else rng.integers(low, end, shape)
        feed[name] = np.asarray(drawn).astype(dtype)
    return feed


def _shape(value: onnx.ValueInfoProto, sizes: Mapping[str, int], first: int, rest: int) -> tuple[int, ...]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise _nothing_made_up(f"input {value.name!r} has no tensor shape")
    dims = enumerate(declared_dims(value))
    shape = [d if isinstance(d, int) else sizes.get(d, rest if axis else first) for axis, d in dims]
    if any(n < 0 for n in shape):
        raise _nothing_made_up(f"input {value.name!r} has a negative dimension: {shape}")
    return tuple(shape)


def _nothing_made_up(why: str) -> UserError:
    return UserError(f"{why}: no data can be made up", hint=_HINT, kind="feed")


def _read_npz(path: Path, model: onnx.ModelProto, what: str) -> Feed:
    try:
        with open(path, "rb") as file:
            if file.read(len(NPY)) == NPY:
                raise ValueError("it holds a single array without a name, as .npy files do")
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no zip archive")
            file.seek(0)
            with zipfile.ZipFile(file) as members:
                claimed = dict(_claimed(members, member) for member in members.namelist())
            validate_feed(model, claimed, f"{what} {path}")  # before anything is read, however much it claims to be
            if (total := sum(x.size for x in claimed.values())) > MOST_ELEMENTS:
                raise ValueError(f"its arrays have {total} elements, more than {MOST_ELEMENTS}")
            file.seek(0)
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files}
            return {name: x.astype(object) if x.dtype.kind == "U" else x for name, x in arrays.items()}
    except UserError:
        raise
    except Exception as e:  # zipfile, zlib and numpy raise a dozen types for bytes that are no archive of arrays
        raise UserError(f"{what}: {path} is not a whole .npz file: {e}", hint=_HINT, kind="feed") from e


def _claimed(archive: zipfile.ZipFile, member: str) -> tuple[str, np.ndarray]:
    """The name of a member, and an array of the shape and dtype that its header claims, which takes no memory."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{member} holds Python objects, not numbers: save arrays of a numeric dtype")
    if dtype.kind == "U":  # of so many characters, which ONNX has no type for
        dtype = np.dtype(object)
    return member.removesuffix(".npy"), np.broadcast_to(np.zeros((), dtype), shape)


def _read_data_set(folder: Path, model: onnx.ModelProto, what: str) -> Feed:
    feed = {}
    for i, value in enumerate(graph_inputs(model)):
        path = folder / f"input_{i}.pb"
        try:
            tensor = onnx.TensorProto.FromString(path.read_bytes())
            if uses_external_data(tensor):
                raise ValueError("it keeps its data in another file")
            feed[tensor.name or value.name] = numpy_helper.to_array(tensor)
        except FileNotFoundError:
            raise UserError(f"{what}: {path} is missing: the input {value.name!r}", hint=_HINT, kind="feed") from None
        except Exception as e:  # protobuf's DecodeError and numpy's ValueError share no nearer type
            raise UserError(f"{what}: {path} is not a whole tensor: {e}", hint=_HINT, kind="feed") from e
    return feed
