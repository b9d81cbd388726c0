"""Rules: how an operator acts on balls, one short function each that reads like its specification.

    @rule("LeakyRelu")
    def leaky_relu(x: Ball, *, alpha: float = 0.01) -> Ball: ...

What a rule reads stands in its signature. Positional parameters are operands: a Ball, or where it has to be exactly
known an Array or Integers; absent ones are what they default to, or the attribute of that name, which older opsets have
instead. Keyword-only parameters are attributes, as they are when left out; `node` and `context` are what they say.

A rule gives a result, or a list of them with None for an output that has no answer. It raises Undecided, saying why,
when it has none at all. What only moves elements (`moving`), or is asked of what is exactly known (`knowing`), is a
function of arrays.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import onnx
from driftnet.model.graph import Node, Values
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, exact, moved, value
from onnx import helper

Operands = Sequence[Any]
"""A Ball, None when absent, or for a sequence of tensors a tuple of balls."""

Results = list[Any]
Maybe = Ball | None
"""An operand that may be absent."""
Integers = list[int]


@dataclass(frozen=True)
class Context:
    """What a rule may need beside its node and operands.

    opset     version of the default domain
    lenient   allow a QuantizeLinear one step more than its operand's ball does
    subgraph  (a graph attribute, its operands in order) -> its outputs, read with the tensors around the node in scope
    observed  tensors as the implementation that is judged gave them: what it makes of its own state may be judged by it
    """

    opset: int
    lenient: bool
    subgraph: Callable[[onnx.GraphProto, Sequence[Ball]], Sequence[Ball]]
    observed: Values = field(default_factory=dict)


Rule = Callable[[Node, Operands, Context], Results]
RULES: dict[str, Rule] = {}
"""Operator (as graph.read names it) -> its rule."""

Function = TypeVar("Function", bound=Callable[..., Any])


def rule(*operators: str) -> Callable[[Function], Function]:
    """Register the decorated function as the rule of `operators`."""
    return _registering(operators, lambda function, given, attributes: function(*given, **attributes))


def moving(*operators: str) -> Callable[[Function], Function]:
    """Register a function of an array, and of parameters that have to be exactly known, which puts its elements
    somewhere: where an element goes, its radius goes too."""

    def apply(function: Function, given: Sequence[Any], attributes: Mapping[str, Any]) -> Ball:
        return moved(given[0], lambda array: function(array, *given[1:], **attributes))

    return _registering(operators, apply, (None, value))


def knowing(*operators: str) -> Callable[[Function], Function]:
    """Register a function of arrays that have to be exactly known; its result is, too."""

    def apply(function: Function, given: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        found = function(*given, **attributes)
        return [exact(x) for x in found] if isinstance(found, list) else exact(np.asarray(found))

    return _registering(operators, apply, (value, value))


def integers(ball: Ball) -> Integers:
    """A tensor as a flat list of integers. Raises Undecided where it depends on rounding."""
    return [int(n) for n in value(ball).ravel().tolist()]


def dtype_of(number: int) -> np.dtype:
    """The dtype that an attribute means by a number."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(number))


Reader = Callable[[Ball], Any] | None
"""How an operand is read; None: as it is."""

_REQUIRED = inspect.Parameter.empty


def _registering(
    operators: Sequence[str], apply: Callable[..., Any], readers: tuple[Reader, Reader] | None = None
) -> Callable[[Function], Function]:
    """apply(a function, its operands, its attributes) is what a function means; readers, of the first operand and of
    the others, are what its annotations say where none are given."""

    def register(function: Function) -> Function:
        read = _reading(function, readers)

        def applied(node: Node, operands: Operands, context: Context) -> Results:
            found = apply(function, *read(node, operands, context))
            return found if isinstance(found, list) else [found]

        for operator in operators:
            if operator in RULES:
                raise ValueError(f"operator {operator} has two rules")
            RULES[operator] = applied
        return function

    return register


def _reading(function: Callable[..., Any], readers: tuple[Reader, Reader] | None) -> Callable[..., tuple[Any, Any]]:
    """How the operands and attributes that `function` asks for are read."""
    parameters = inspect.signature(function).parameters.values()
    hints = {} if readers else get_type_hints(function)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    positional = [
        (p.name, readers[min(k, 1)] if readers else _reader(hints[p.name]), p.default)
        for k, p in enumerate(p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    ]
    named = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    about = [name for name in ("node", "context") if named.pop(name, None)]

    def read(node: Node, operands: Operands, context: Context) -> tuple[Any, Any]:
        given = []
        for k, (name, reader, default) in enumerate(positional):
            operand = operands[k] if k < len(operands) else None
            if operand is None:
                given.append(_attribute(node, name, default))
            else:
                given.append(reader(operand) if reader else operand)
        if variadic:
            rest = operands[len(positional) :]
            given += [readers[1](x) for x in rest] if readers and readers[1] else rest
        keywords = {name: _attribute(node, name, default) for name, default in named.items()}
        return given, keywords | {name: {"node": node, "context": context}[name] for name in about}

    return read


def _attribute(node: Node, name: str, default: Any) -> Any:
    """An attribute; those that are floats are float32 in the model, as the standard's defaults are."""
    found = node.attributes.get(name, default)
    if found is _REQUIRED:
        raise LookupError(f"{node.op} has no {name}")
    return float(np.float32(found)) if isinstance(found, float) else found


def _reader(hint: Any) -> Reader:
    kinds = (hint, *get_args(hint))
    return value if Array in kinds else integers if Integers in kinds else None


def attribute(node: Node, name: str, default: Any) -> Any:
    """An attribute of `node`, or what it is when left out."""
    return node.attributes.get(name, default)
