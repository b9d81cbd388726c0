"""A finding with another operator has the cause of a trigger that tells which of its minimal pairs fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftnet.causes.host import host_of
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings.corpus import SavedCase
from driftnet.learning.foretelling import Tried, is_foretold
from driftnet.learning.trigger import Learned, Score
from driftnet.model.case import Case
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from onnx import TensorProto, helper

from tests.support import models
from tests.support.models import grid

WRONG = Verdict(Word.DIVERGES, Tier.EXACT, "execute", Kind.WRONG_SHAPE)
OVERWRITTEN = Trigger(
    Shape(2, frozenset({(1, 0)})),
    (Region((Atom("0.op", "is", "Flatten"), Atom("0.out.0.final", "is", True), Atom("1.op", "in", ("Abs", "Relu")))),),
)
"""An output that Flatten makes, and a unary operator reads."""


def flattened(reader: str, *, final: bool = True, first: str = "Flatten", size: int = 3) -> Case:
    nodes = [helper.make_node(first, ["x"], ["t"]), helper.make_node(reader, ["t"], ["y"])]
    outputs = [(name, TensorProto.FLOAT, None) for name in ("t", "y")]
    return models.case(nodes, {"x": grid((2, size))}, outputs=outputs if final else outputs[1:])


def learned(reader: str, *, right: int = 20, where: Where | None = None) -> Learned:
    coarse = f"mnn/execute/{WRONG.kind}"
    saved = SavedCase(f"test_{reader}", flattened(reader), (), "mnn", {}, coarse, f"{coarse} | {reader}", WRONG)
    return Learned(saved, where or Where(), OVERWRITTEN, operators=(("Flatten",), (reader,)), score=Score(20, right))


def tried(case: Case, aspect: str = "", *, fails: bool = False) -> Tried:
    return Tried(host_of(case), {}, fails, aspect)


FAILS = (tried(flattened("Exp"), fails=True), tried(flattened("Exp", size=5), "0.in.0.dim.1", fails=True))
CURED = (
    tried(flattened("Exp", final=False), "0.out.0.final"),
    tried(flattened("Exp", final=False, size=5), "0.out.0.reader"),
    tried(flattened("Exp", first="Softmax"), "0.op"),
)
LEFT = (
    tried(flattened("Exp", size=7), "rank"),
    tried(flattened("Exp", size=8), "values"),
    tried(flattened("Exp", size=9), "opset"),
)
"""What is cured by something that the trigger knows nothing of."""


POOL = Where("crash", ("_mnn Pool::run",))


def foretold(what: Sequence[Tried], *, by: Learned | None = None) -> bool:
    return is_foretold(learned("Exp"), what, by or learned("Relu"))


def test_what_is_cured_as_the_trigger_says_is_of_its_cause_whatever_its_operator() -> None:
    assert foretold((*FAILS, *CURED)), "each pair is as the trigger says"


def test_what_other_things_cure_is_of_another_cause() -> None:
    assert not foretold((*FAILS, *LEFT)), "all models meet the trigger, and half of them are right"
    assert not foretold((*FAILS, *CURED, *LEFT)), "half of what is sound meets the trigger"
    more = tried(flattened("Exp", final=False, size=6), "symbolic", fails=True)
    assert not foretold((*FAILS, *CURED, more)), "a pair fails that does not meet the trigger"


def test_that_no_other_operator_fails_tells_nothing() -> None:
    others = tuple(tried(flattened(op), "1.op") for op in ("Sin", "Cos", "Floor", "Ceil"))
    assert not foretold((*FAILS, *CURED[:2], *others)), "only two pairs show what cures it"


def test_what_was_never_tried_or_a_trigger_that_errs_says_nothing() -> None:
    assert not foretold(()), "nothing was tried"
    assert not foretold((*FAILS, *CURED), by=learned("Relu", right=16)), "the trigger errs"
    assert not foretold((*FAILS, *CURED), by=learned("Relu", where=POOL)), "it tells another place"


def test_one_operator_at_least_is_one_that_is_known() -> None:
    others = tuple(
        tried(flattened("Exp", first="Softmax", final=one.aspect != "0.out.0.final"), one.aspect, fails=one.fails)
        for one in (*FAILS, *CURED[:1])
    )
    member = learned("Exp")
    assert not is_foretold(member, (*others, *CURED[1:]), learned("Relu")), "no operator is one of the trigger's"


def test_what_one_thing_less_makes_fulfil_a_trigger_is_of_its_cause_if_most_of_what_cures_it_is_told() -> None:
    """The trigger was learned with small tensors only."""
    (region,) = OVERWRITTEN.regions
    narrow = replace(OVERWRITTEN, regions=(Region((*region.atoms, Atom("0.in.0.dim.1", "most", 3))),))
    by = replace(learned("Relu"), trigger=narrow)
    large = tried(flattened("Relu", size=5), fails=True)
    smaller = tried(flattened("Relu", size=3), "0.in.0.dim.1", fails=True)
    cured = tuple(tried(flattened("Relu", final=False, size=n), f"{n}") for n in (3, 4, 5))
    member = learned("Relu")
    assert is_foretold(member, (large, smaller, *cured, *LEFT[:1]), by), "three of four that are sound are told"
    sound = tuple(tried(flattened("Relu"), str(n)) for n in range(3))
    assert not is_foretold(member, (large, smaller, *cured, *sound), by), "half of what is sound is told wrongly"
    assert not is_foretold(member, (large, *cured), by), "no pair fulfils the trigger"
    twice = replace(OVERWRITTEN, regions=(Region((*narrow.regions[0].atoms, Atom("0.in.0.dim.-1", "most", 3))),))
    assert not is_foretold(member, (large, smaller, *cured), replace(by, trigger=twice)), "the pair breaks two of it"
