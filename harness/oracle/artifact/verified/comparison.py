"""What a comparison of a float model with its artifact carries from question to question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import AFFINE
from driftnet.oracle.artifact.verified.calibration import Calibration
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.format import Artifact, Piece, Use
from driftnet.oracle.artifact.verified.names import first_result


class How(StrEnum):
    """In which way a node of the float model is found in an artifact."""

    SAME = "same"  # the same operator
    BY_NAME = "by name"  # only its first result, which has its name
    ABSORBED = "absorbed"  # by the node that makes its first operand
    UNMATCHED = "unmatched"


@dataclass(frozen=True)
class Pair:
    """A float node and what became of it.

    piece    its counterpart, for SAME; what it was absorbed into, for ABSORBED, if that is a float operation
    operands the counterpart of each operand of the node, by position: the piece's use of it
    bias     an Add behind the piece, where that adds the node's bias; for ABSORBED, where folding made that bias, which
             is then the only operand
    guessed  neither a name nor every operand says that it is the counterpart
    """

    node: Node
    how: How
    piece: Piece | None = None
    operands: tuple[Use | None, ...] = ()
    bias: Piece | None = None
    guessed: bool = False

    @property
    def first(self) -> str:
        """The node's first result that is read."""
        return first_result(self.node)

    @property
    def transposed(self) -> bool:
        """Whether a Gemm has become a MatMul, with its weights the other way round."""
        # The two products that an optimizer rewrites into each other.
        became = self.how is How.SAME and self.node.op == "Gemm" and self.piece and self.piece.node.op == "MatMul"
        return bool(became) and bool(self.node.attributes.get("transB", 0))

    def operand(self, k: int) -> Use | None:
        """The counterpart of operand k, if there is one."""
        return self.operands[k] if k < len(self.operands) else None


@dataclass(frozen=True, eq=False)
class Comparison:
    """A float model and its artifact, and what is known of both.

    constants    of the model, what is computed from them included
    numbers      what the tensors of the artifact stand for, under one feed
    pairs        what became of each node that depends on the inputs, in the order of the model
    at           tensor of the model -> the real tensor of the artifact that it is
    calibration  of activations; None: nothing is known of it, and ranges are not judged
    span         highest less lowest code of weights; None: the scheme is not known
    """

    model: Graph
    constants: Mapping[str, np.ndarray]
    numbers: Numbers
    pairs: tuple[Pair, ...]
    at: Mapping[str, str]
    calibration: Calibration | None = None
    span: int | None = None

    @property
    def artifact(self) -> Artifact:
        return self.numbers.artifact

    @cached_property
    def tensors(self) -> Mapping[str, Sequence[str]]:
        """Real tensor of the artifact -> the tensors of the model that it is, in the order of `at`."""
        found: dict[str, list[str]] = {}
        for name, real in self.at.items():
            found.setdefault(real, []).append(name)
        return found

    @cached_property
    def folded(self) -> Mapping[int, Sequence[Node]]:
        """By the id of a piece, the affine nodes that it has absorbed."""
        found: dict[int, list[Node]] = {}
        for pair in self.pairs:
            if pair.how is How.ABSORBED and pair.node.op in AFFINE and pair.piece:
                found.setdefault(id(pair.piece), []).append(pair.node)
        return found


@dataclass(frozen=True)
class Problem:
    """Something wrong with an artifact.

    question  "execution", "topology" or "parameter";   where  the tensor, node or parameter
    error, bound   how far off, and what was allowed, in the unit of the message
    culprit   (name, operator) of the node it belongs to;   mild  within one quantization step
    at        index of the element;   about  the rule that is broken, and the tensors that it is about
    stored    what the artifact has in the place of the float model's constant called `where`, if that is what is wrong,
              has been rounded, and is no weight
    """

    question: str
    where: str
    error: float
    bound: float
    message: str
    culprit: tuple[str, str] = ("", "")
    mild: bool = False
    at: tuple[int, ...] = ()
    about: tuple[str, ...] = ()
    stored: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def excess(self) -> float:
        """How many times what was allowed it is off."""
        return self.error / self.bound if self.bound else np.inf


def label(node: Node) -> str:
    """What a node is called, or its first result where it has no name."""
    return node.name or first_result(node)


def problem_of(node: Node, question: str, error: float, bound: float, message: str, *, where: str = "") -> Problem:
    """The problem of a node, with the node itself unless it is said where."""
    return Problem(question, where or label(node), float(error), float(bound), message, (label(node), node.op))
