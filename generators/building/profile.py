"""Profile: where operands may come from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Where operands may come from, for a toolchain that wants some of them constant. The default allows everything.

    weights  parameters: kernels, biases, scales, initial states
    numbers  what decides a shape: axes, sizes, repeats, bounds of slices
    """

    weights: tuple[str, ...] = ("initializer", "constant", "input", "shared", "value", "dequantized")
    numbers: tuple[str, ...] = ("initializer", "constant", "input")


CONSTANT_OPERANDS = Profile(weights=("initializer", "shared"), numbers=("initializer",))
