"""Artifact trace: the operations and grids of tensors that an artifact which is no ONNX tells.

What is only moved keeps its codes where the grids are the same. A grid that is told for what is moved is that of what
it is moved into, too, if that has none; and where a grid is told for the result of a move alone, the executor may take
it for what is moved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from driftnet.model.artifact import Artifact, Operation


@dataclass(frozen=True)
class Grid:
    """Codes clip(round(x / scale) + zero_point, low, high). sure: whether a tensor surely is on it, or may be."""

    scale: float
    zero_point: float
    low: float
    high: float
    sure: bool = True

    def value(self, code: float) -> float:
        """What a code stands for."""
        return (code - self.zero_point) * self.scale


NOT_TOLD = Grid(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Trace:
    """The operations of an artifact by the tensors that they give, the grids of tensors, and which of the model's those
    are that go by another name, or hold theirs in another order."""

    makers: Mapping[str, Operation]
    grids: Mapping[str, Grid]
    reordered: Mapping[str, str] = field(default_factory=dict)

    def name(self, tensor: str) -> str:
        """What the model calls the artifact's `tensor`, if it has it."""
        return self.reordered.get(tensor, tensor)

    def names(self, name: str) -> list[str]:
        """What the artifact may call tensor `name` of the model: as it is, or in another order."""
        own = [name] if self.name(name) == name else []
        return [*own, *(tensor for tensor, of in self.reordered.items() if of == name)]

    def start(self, name: str) -> str:
        """What it calls tensor `name`; "" where it does not have it."""
        return next((tensor for tensor in self.names(name) if tensor in self.makers), "")

    def grid(self, tensor: str, sure: bool = True) -> Grid:
        """The grid that an operation in codes has for an operand or result: data that are moved keep theirs.

        sure   whether it surely runs in codes
        """
        found = {self.grids.get(name) for name in ([tensor] if tensor in self.grids else self._origins(tensor))}
        return replace((found.pop() if len(found) == 1 else None) or NOT_TOLD, sure=sure)

    def moved_on(self, tensor: str) -> Grid | None:
        """The grid that moving data into `tensor` puts them on: between tensors of one grid, codes are moved.

        Surely where all are told and the same, and not from one other grid. From several, perhaps: only some may be
        picked, or all joined first. Where the grid is told for the result only, an executor may take it for what is
        moved too; where for what is moved only, floats are put on it as they are moved.
        """
        if tensor not in self.grids:
            return self.taken(tensor) or self._passed_on(tensor)
        grid, origins = self.grids[tensor], list(self._origins(tensor))
        told = {self.grids.get(name) for name in origins}
        if not origins or (len(origins) == 1 and told.isdisjoint((grid, None))):
            return None
        return replace(grid, sure=told == {grid} and all(self._is_held(name) for name in origins))

    def _passed_on(self, tensor: str) -> Grid | None:
        """The grid of all that is moved into a `tensor` without one; of several joined, perhaps."""
        origins = list(self._origins(tensor))
        told = {self.grids.get(name) for name in origins}
        grid = told.pop() if len(told) == 1 else None
        return grid and replace(grid, sure=len(origins) == 1 and self._is_held(origins[0]))

    def _is_held(self, tensor: str) -> bool:
        """Whether a tensor that has a grid is on it: data moved from another one are not, nor stored floats."""
        op = self.makers.get(tensor)
        if op and op.values is not None:
            return False
        moved = self.moved_on(tensor) if op and op.runs == "moves" else None
        return moved.sure if moved else not (op and op.runs == "moves")

    def taken(self, tensor: str) -> Grid | None:
        """The grid that an executor may take for a `tensor` made without one: that of what it is moved into. It is not
        told which where there are several, or where it was moved from another one."""
        if tensor in self.grids or tensor not in self.makers or not self.makers[tensor].inputs:
            return None
        moved = set(self._moved_into(tensor))
        ends = moved | {self.grids[name] for name in self._origins(tensor) if name in self.grids}
        return None if not moved else replace(moved.pop(), sure=False) if len(ends) == 1 else NOT_TOLD

    def copies(self, name: str) -> list[Grid]:
        """The grids of tensor `name` of the model, and of its data in another order or place, as far as they have some.

        Its own is the first.
        """
        held = self.names(name)
        return [*(self.grids[x] for x in held if x in self.grids), *(g for x in held for g in self._moved_into(x))]

    def _moved_into(self, tensor: str) -> Iterator[Grid]:
        """The grids that the data in `tensor` are moved into."""
        for name, op in self.makers.items():
            if op.runs == "moves" and tensor in op.inputs:
                yield from (self.grids[name],) if name in self.grids else self._moved_into(name)

    def _origins(self, tensor: str) -> Iterator[str]:
        """The tensors that the data in `tensor` are moved from; only what has memory of its own has a grid."""
        op = self.makers.get(tensor)
        for name in op.inputs if op and op.runs == "moves" else ():
            moved = list(self._origins(name)) if name not in self.grids else []
            yield from moved or [name]


def read_trace(artifact: Artifact) -> Trace:
    """The Trace of an artifact that tells its operations; one that reads what only a later one gives is left out."""
    grids = {name: Grid(t.scale, t.zero_point, t.low, t.high) for name, t in artifact.tensors.items()}
    makers: dict[str, Operation] = {}
    operations = artifact.operations or ()
    given = {name for op in operations for name in op.outputs}
    for op in operations:
        if all(name in makers or name not in given for name in op.inputs):
            makers |= dict.fromkeys(op.outputs, op)
    return Trace(makers, grids, artifact.reordered)
