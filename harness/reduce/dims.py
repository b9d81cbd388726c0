"""The pass that shrinks dimensions.

Sizes that constrain each other, directly or through others, form one group, which shrinks as a whole: u units of it,
where u is the greatest common divisor of its sizes, become t < u.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.constants import Tensors, stored_tensors, with_constants
from driftnet.model.inspect import Case, graph_inputs
from driftnet.model.submodel import edited
from driftnet.reduce.passes import drop_attribute, put_attribute
from driftnet.reduce.problem import Problem
from driftnet.reduce.size_constraints import Operands, Size, constraints, first_output
from driftnet.util.groups import groups
from onnx import helper, numpy_helper

LADDER = (1, 2, 3, 4, 6, 8, 16, 32, 64)


def smaller_dims(problem: Problem) -> None:
    """Shrink each group of sizes as far as it goes, once with the groups of convolutions kept, once with them in it."""
    for by_group in (False, True):
        tried: set[tuple[Size, ...]] = set()
        # A size that has shrunk may have taken others with it (a Squeeze, an attribute), so the groups are made anew.
        while group := next(
            (g for g in resizable(problem.case, _known(problem), by_group=by_group) if g not in tried), ()
        ):
            tried.add(group)
            _shrink(problem, group)
    for name, rank in [(n, len(s)) for n, s in _leaf_shapes(problem.case).items()]:
        for axis in range(rank):
            _shrink(problem, (Size("dim", name, axis),), ladder=(1,))


def resizable(case: Case, tensors: Tensors, *, by_group: bool) -> list[tuple[Size, ...]]:
    """The sizes of `case` in groups that can only change together, as far as inputs or initializers have part in them.

    tensors    arrays of the main graph, initializers included
    by_group   as in Operands
    """
    leaves = [Size("dim", name, axis) for name, shape in _leaf_shapes(case).items() for axis in range(len(shape))]
    links = [c for node in case.proto.graph.node for c in constraints(Operands(node, tensors, by_group))]
    found = groups([*links, *([leaf] for leaf in leaves)])
    return sorted(tuple(sorted(group)) for group in found if not group.isdisjoint(leaves))


def resized(
    case: Case, group: Iterable[Size], runs: tuple[Tensors, ...], units: int, *, last: bool = False
) -> Case | None:
    """`case` with `group` scaled down to `units` of its units; None where nothing would change.

    Where the runs differ in size that is meant of the largest, and the others shrink in proportion. Arrays keep their
    first elements, or their last ones.
    """
    most = max(_units(case, group, run) for run in runs)
    new = [_scaled(case, group, run, units, most) for run in runs]
    if all(_number(case, run, size) == n for run, sizes in zip(runs, new) for size, n in sizes.items()):
        return None
    fed = [{name: _cut(x, name, sizes, last) for name, x in feed.items()} for feed, sizes in zip(case.runs, new)]
    return edited(case.fed(fed), _resize, _following_shapes(case, runs[0], new[0]), last, case.file)


def _resize(model: onnx.ModelProto, sizes: Mapping[Size, int], last: bool, file: Path | None) -> None:
    for name, tensor in stored_tensors(model.graph):
        if not any(size.owner == name for size in sizes):
            continue
        x = np.array(_cut(external_data.array(tensor, file), name, sizes, last))
        for size, n in sizes.items():
            if size.what == "entry" and size.owner == name:
                x[size.at] = n
        tensor.CopyFrom(numpy_helper.from_array(x, tensor.name))
    for value in graph_inputs(model):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                dim.dim_value = sizes.get(Size("dim", value.name, axis), dim.dim_value)
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()  # `passes.static_dims` states them again
    makers = {first_output(node): node for node in model.graph.node}
    for size, n in sizes.items():
        if size.what not in ("dim", "entry"):
            _set_number(makers[size.owner], size, n)


def _following_shapes(case: Case, run: Tensors, sizes: dict[Size, int]) -> dict[Size, int]:
    """`sizes`, and the `output_shape` of each ConvTranspose whose input has shrunk: less by stride times as much."""
    more = dict(sizes)
    for node in case.proto.graph.node:
        given = {a.name: list(a.ints) for a in node.attribute}
        for axis, n in enumerate(given.get("output_shape", ()), start=2):
            size = Size("dim", node.input[0], axis)
            if node.op_type == "ConvTranspose" and size in sizes:
                stride = given.get("strides", [1] * axis)[axis - 2]
                shrunk = _number(case, run, size) - sizes[size]
                more[Size("output_shape", node.output[0], axis - 2)] = n - stride * shrunk
    return more


def _shrink(problem: Problem, group: tuple[Size, ...], ladder: tuple[int, ...] = LADDER) -> None:
    case, runs = problem.case, tuple(_known(problem, run) for run in range(len(problem.recording().runs)))
    units = max(_units(case, group, run) for run in runs)
    if units < 2:
        return
    sizes = [(t, False) for t in (*(t for t in ladder if t < units), units - 1)]
    # The one value that matters is as likely to be the last as the first; more ends cost more runs than they save.
    for t, last in [*sizes[:1], (1, True), *sizes[1:]]:
        if (candidate := resized(case, group, runs, t, last=last)) and problem.attempt(candidate):
            return


def _known(problem: Problem, run: int = 0) -> Tensors:
    return with_constants(problem.case, problem.recording().runs[run])


def _leaf_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    shapes = {name: tuple(t.dims) for name, t in stored_tensors(case.proto.graph)}
    return shapes | {v.name: np.shape(case.feeds[0][v.name]) for v in graph_inputs(case.proto)}


def _units(case: Case, group: Iterable[Size], run: Tensors) -> int:
    return math.gcd(*(_number(case, run, size) for size in group))


def _scaled(case: Case, group: Iterable[Size], run: Tensors, units: int, most: int) -> dict[Size, int]:
    have = max(1, _units(case, group, run))
    kept = max(1, have * units // most)
    return {size: _number(case, run, size) // have * kept for size in group}


def _number(case: Case, run: Tensors, size: Size) -> int:
    if size.what == "dim":
        return int(np.shape(run[size.owner])[size.at])
    if size.what == "entry":
        return int(run[size.owner][size.at])
    node = next(node for node in case.proto.graph.node if first_output(node) == size.owner)
    value = helper.get_node_attr_value(node, size.what)
    if size.what == "direction":
        return 2 if value == b"bidirectional" else 1
    return int(value[size.at] if isinstance(value, list) else value)


def _set_number(node: onnx.NodeProto, size: Size, n: int) -> None:
    if size.what == "direction":
        drop_attribute(node, size.what)  # one direction is the default
        return
    value = helper.get_node_attr_value(node, size.what)
    put_attribute(node, size.what, [*value[: size.at], n, *value[size.at + 1 :]] if isinstance(value, list) else n)


def _cut(x: np.ndarray, name: str, sizes: Mapping[Size, int], last: bool) -> np.ndarray:
    x = np.asarray(x)
    new = [sizes.get(Size("dim", name, axis), n) for axis, n in enumerate(x.shape)]
    return x[tuple(slice(have - n, None) if last else slice(0, n) for have, n in zip(x.shape, new))]
