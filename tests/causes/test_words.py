"""Triggers as sentences."""

from driftnet.causes.predicate import Atom, Region, Shape
from driftnet.causes.words import atom_in_words, region_in_words

from tests.support.rules import assert_each

SAID = (
    (Atom("0.in.0.rank", "in", (2, 1)), "operand 0 of 1 or 2 axes"),
    (Atom("0.in.0.rank", "is", 1), "operand 0 of 1 axis"),
    (Atom("0.in.0.elements", "in", (4, 0)), "operand 0 of 4 elements or none"),
    (Atom("0.in.0.elements", "in", (1, 0)), "operand 0 of 1 element or none"),
    (Atom("0.in.0.elements", "is", 0), "operand 0 of no element"),
    (Atom("0.out.0.readers", "least", 2), "result read by 2 nodes or more"),
    (Atom("0.out.0.dtype", "is", "int64"), "result of int64"),
    (Atom("0.out.1.dtype", "is", "int64"), "result 1 of int64"),
    (Atom("0.out.2.final", "is", True), "result 2 a graph output"),
    (Atom("0.out.1.magnitude", "least", 3), "magnitude of result 1 at least 3"),
    (Atom("0.out.0.dim.-1", "is", 1), "dim -1 of the result = 1"),
    (Atom("0.axis.size", "is", 1), "along an axis of one element"),
    (Atom("0.axis.size", "is", 3), "elements along the axis = 3"),
    (Atom("0.out.1.lost", "is", 2), "axes lost of result 1 = 2"),
)


def test_a_condition_is_said_as_people_would():
    def rule(case):
        atom, said = case
        assert atom_in_words(atom, Region((atom,))) == said

    assert_each(SAID, rule, named=lambda case: case[1])


def test_what_is_bounded_by_one_value_on_both_sides_is_said_to_be_that():
    def said(*bounds):
        return region_in_words(Region((Atom("0.op", "is", "Mul"), *bounds)), Shape())

    low, high = Atom("0.out.0.magnitude", "least", 0.841), Atom("0.out.0.magnitude", "most", 0.841)
    assert said(low, high) == "Mul magnitude of the result = 0.841"
    other = said(low, Atom("0.out.0.magnitude", "most", 1.5))
    assert other == "Mul magnitude of the result at least 0.841, magnitude of the result at most 1.5", other
    assert said(low, low) == "Mul magnitude of the result at least 0.841", "a bound that is told twice is one bound"
