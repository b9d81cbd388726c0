"""Profile: what a toolchain takes at all, where that is little."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from driftnet.generators.building.values import codes


@dataclass(frozen=True)
class Profile:
    """What models are made of, for a toolchain that takes no others. The default allows everything.

    weights    where parameters come from: kernels, biases, scales, initial states
    numbers    likewise what decides a shape: axes, sizes, repeats, bounds of slices, indices
    symbolic   whether a dim may have another size in another feed
    empty      whether a tensor may be without elements
    dtypes     what the data of operators may be, as ONNX calls it in small letters; none named: anything
    ranks      likewise
    operators  what it knows; none named: all
    newest     the newest opset

    An operator that has none of these dtypes or ranks has what it has.
    """

    weights: tuple[str, ...] = ("initializer", "constant", "input", "shared", "value", "dequantized")
    numbers: tuple[str, ...] = ("initializer", "constant", "input", "computed")
    symbolic: bool = True
    empty: bool = True
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    newest: int = 99

    def of_dtypes(self, dtypes: Sequence[int]) -> Sequence[int]:
        """Those that may be, in their order."""
        return _among(dtypes, self._codes)

    def of_ranks(self, ranks: Sequence[int]) -> Sequence[int]:
        """Those that may be, in their order."""
        return _among(ranks, self.ranks)

    @cached_property
    def _codes(self) -> tuple[int, ...]:
        return codes(" ".join(self.dtypes))


def _among(options: Sequence[int], allowed: Sequence[int]) -> Sequence[int]:
    return [one for one in options if one in allowed] or options if allowed else options


EVERYTHING = Profile()
CONSTANT_OPERANDS = Profile(weights=("initializer", "shared"), numbers=("initializer",))
