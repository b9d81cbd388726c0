"""Signatures: when two failures are the same.

coarse   target/stage/kind, and for errors the system's words without what varies from model to model. It stays what it
         is while a case shrinks, so a case reproduces a failure when its coarse signature comes back.
fine     coarse + the operators of the *reduced* case, how they hang together, and classes of their attributes and
         operands. Two findings with equal fine signatures are one bug, as far as can be told.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import onnx
from driftnet.model.constants import with_constants
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.verdict import Kind, Verdict
from onnx import helper

WORDS = 8
"""Words of an error message that count, its last ones: what a system says first of an error is which of its layers
speak."""


LONGEST = 1000
"""Characters of a system's words that are kept. What an error is about stands at their end: onnxruntime begins with the
status, the node, and the source file and signature of the function that found it."""


@dataclass(frozen=True)
class Signature:
    """Both signatures of a finding. fine is `coarse | operator>operator | classes`, see `fine`."""

    coarse: str
    fine: str

    @property
    def operators(self) -> str:
        """The operators of the reduced case, each after those it reads from."""
        return self.fine.split(" | ")[1]


DAMAGE = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL"})
"""Signals by which a process with a damaged heap may end: which of them it is depends on chance."""


def said(log: str, message: str, complaint: str) -> str:
    """What a system says of its failure: the line of its log that says why, else the error, else its log."""
    why = re.search(complaint, log) if complaint else None
    text = why.group(0) if why else message.strip() or log.strip()
    return text.strip().splitlines()[0][:LONGEST] if text.strip() else ""


def coarse(target: str, verdict: Verdict) -> str:
    """target/stage/kind[/words of the error]; the signals of DAMAGE are one kind, `crash`."""
    kind = "crash" if verdict.kind in DAMAGE else verdict.kind
    words = normalized(verdict.message) if kind == Kind.ERROR else ""
    return "/".join(part for part in (target, verdict.stage, kind, words) if part)


def fine(coarse: str, case: Case) -> str:
    """`coarse | operators | classes`, independent of names, of sizes, and of node order."""
    graph = case.proto.graph
    labels = node_labels(case)
    depths = _depths(graph)
    order = sorted(computing(graph), key=lambda i: (depths[i], labels[i]))
    operators = ">".join(graph.node[i].op_type for i in order)
    return f"{coarse} | {operators} | {' '.join(labels[i] for i in order)}"


def slug(signature: Signature) -> str:
    """A short name for people and folders: mnn_execute_wrong-values_convtranspose-batchnormalization."""
    target, *rest = signature.coarse.split("/")[:3]
    operators = "-".join(signature.operators.split(">")[:4])
    return re.sub(r"[^a-z0-9_-]+", "-", "_".join([target, *rest, operators]).lower())


def hash8(fine: str) -> str:
    """Eight hexadecimal digits that stand for a fine signature."""
    return hashlib.sha256(fine.encode()).hexdigest()[:8]


def folder_name(signature: Signature) -> str:
    """The corpus folder of a finding; ONNX's own test loader wants the prefix."""
    return f"test_{slug(signature)}_{hash8(signature.fine)}"


def other_name(name: str) -> str:
    """The name of what cannot be called `name`, which ends in digits: another is."""
    return f"{name[:-8]}{hash8(name)}"


def normalized(message: str) -> str:
    """The words of an error message that do not depend on the model: no numbers, names, addresses, paths, shapes, nor
    what implements an operator (QLinearMul), but for types of errors (ValueError)."""
    text = message.splitlines()[0] if message else ""
    text = re.sub(r"^\S+ failed in \w+: ", "", text)  # our own words
    text = re.sub(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`", " ", text)
    text = " ".join(map(_without_names, text.split()))
    words = [word for word in re.findall(r"[A-Za-z]{3,}", text) if not _names_code(word)]
    once = [word for word, _ in groupby(words)]  # of operands there may be any number
    return " ".join(once[-WORDS:]).lower()


def _without_names(word: str) -> str:
    """What is left of a word without (this), nothing if it has a digit or is a path. One pattern that takes both away
    from a whole text tries every place of a long word to its end: .17 CPU s for 4,000 characters."""
    rest = re.sub(r"^(\(\w+\))+", "", word)
    return "" if re.search(r"[\d_/\\]", rest) else re.sub(r"\(\w+\)", " ", rest)


def _names_code(word: str) -> bool:
    return re.search("[a-z][A-Z]", word) is not None and not word.endswith("Error")


def node_labels(case: Case) -> list[str]:
    """One label a node: operator, attribute classes, and for each operand its maker's label or its own class."""
    graph = case.proto.graph
    known = with_constants(case, case.feeds[0])
    labels: list[str] = []
    made: dict[str, str] = {}

    def operand(name: str, node: onnx.NodeProto) -> str:
        if name in known:
            return operand_class(known[name], ranked=is_ranked(node))
        return made.get(name) or (name and "outer")

    for node in graph.node:
        operands = ",".join(operand(name, node) for name in node.input)
        labels.append(f"{node.op_type}{_joined(attribute_classes(node))}({operands})")
        for slot, name in enumerate(node.output):
            # The digest keeps the labels of deep graphs short.
            made[name] = f"{hash8(labels[-1])}.{slot}"
    return labels


_RANKED = Trait.SPATIAL | Trait.RECURRENT


def is_ranked(node: onnx.NodeProto) -> bool:
    """Whether a tensor of another rank is something else to the operator: a 1-D for a 2-D convolution, say."""
    return has_any(node, _RANKED)


def operand_class(x: np.ndarray, *, ranked: bool) -> str:
    """What counts of an operand that no node makes: floating point, signed, unsigned or bool (f, i, u, b); the rank,
    where its operator `is_ranked`; whether it is empty. Not: its width, its sizes, and whether it is an input or a
    constant, which reduction leaves to what was smaller."""
    return f"{x.dtype.kind}{np.ndim(x) if ranked else ''}{'' if x.size else '[0]'}"


def attribute_classes(node: onnx.NodeProto) -> dict[str, str]:
    """Attribute name -> class of its value. Attributes at their default have been dropped by the reduction."""
    if node.op_type == "Constant":
        return {}
    values = {a.name: helper.get_attribute_value(a) for a in sorted(node.attribute, key=lambda a: a.name)}
    return {name: str(v) if name in ("to", "perm") else _attribute_class(v) for name, v in values.items()}


def _joined(classes: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{k}={v}" for k, v in classes.items()) + "}" if classes else ""


def _attribute_class(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.GraphProto):
        return ">".join(node.op_type for node in value.node)
    if isinstance(value, int | float):
        return str(int(value)) if value in (-1, 0, 1) else "n" if value > 0 else "-n"
    if isinstance(value, list):
        return "[" + "".join(sorted({_attribute_class(v) for v in value})) + "]"
    return type(value).__name__


def _depths(graph: onnx.GraphProto) -> list[int]:
    depths: list[int] = []
    made: dict[str, int] = {}
    for node in graph.node:
        depths.append(1 + max((made.get(name, 0) for name in node.input), default=0))
        made.update((name, depths[-1]) for name in node.output)
    return depths
