"""Steering keeps away from places that meet a known trigger, and from operators where no trigger is known."""

from __future__ import annotations

from dataclasses import replace

from driftnet.campaign.shard import Plan, Shard
from driftnet.campaign.steering import KEPT, STEERED_WEIGHT, Steering
from driftnet.causes.facts import host_of
from driftnet.causes.predicate import Atom
from driftnet.findings.known import KnownIssue
from driftnet.generators import bulk
from driftnet.model.inspect import digest
from onnx import helper

from tests.findings.test_known import small
from tests.findings.test_recognition import CASE, RELIABLE, triggered
from tests.support import reduction as tools

HOST = host_of(CASE)
RELU = Atom("0.op", "is", "Relu")


def of_mnn(known: KnownIssue) -> KnownIssue:
    return KnownIssue(replace(known.saved, target="mnn"))


def test_operators_of_places_that_meet_a_trigger_under_some_recipe_are_not_wanted():
    threads = Atom("recipe.threads", "is", 2)
    steering = Steering([of_mnn(triggered(RELU, threads))])
    one, two = ({"recipe.threads": n} for n in (1, 2))
    assert steering.unwanted(HOST, [("mnn", one), ("mnn", two)]) == {"Relu"}
    assert steering.unwanted(HOST, [("mnn", one)]) == set(), "no recipe meets it"
    assert steering.unwanted(HOST, [("other", two)]) == set(), "another target is asked"
    neg = small(helper.make_node("Neg", ["x"], ["y"]))
    assert steering.unwanted(host_of(neg), [("mnn", two)]) == set(), "there is no such place"


def test_a_trigger_that_errs_is_not_avoided_but_its_operators_are_rarer():
    good, bad = (of_mnn(triggered(RELU, score=RELIABLE | {"accuracy": share})) for share in (1.0, 0.6))
    assert Steering([bad]).unwanted(HOST, [("mnn", {})]) == set()
    assert Steering([bad]).weights("mnn") == {"Relu": STEERED_WEIGHT}
    assert Steering([good]).weights("mnn") == {}
    assert Steering([bad]).weights("other") == {}


def test_without_steering_and_for_one_index_in_ten_cases_are_drawn_as_ever(tmp_path):
    def drawn(steer: bool) -> list[str]:
        plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3, steer=steer)
        shard = Shard(plan, None, stopping=lambda: True)
        shard.known_issues = {"test_x": of_mnn(triggered(Atom("0.out.0.given", "is", True)))}
        return [digest(shard._case(index, 0)) for index in range(40)]

    plain = [digest(bulk.case(3, index)) for index in range(40)]
    assert drawn(False) == plain
    free = sum(a == b for a, b in zip(drawn(True), plain))
    assert 1 <= free <= 40 * 3 // KEPT, f"{free} of 40 cases have what a trigger says of every node"


def test_what_hangs_on_numbers_is_computed_once_where_nothing_else_is_unwanted():
    asked = []

    def unwanted(op, negative):
        steering = Steering([of_mnn(triggered(Atom("0.op", "is", op), Atom("0.in.0.negative", "is", negative)))])
        return steering.unwanted(HOST, [("mnn", {})], lambda: asked.append(op) or tools.record(CASE)[0])

    assert (unwanted("Relu", True), asked) == ({"Relu"}, []), "what is fed is known already"
    assert (unwanted("Neg", True), asked) == (set(), ["Neg"]), "what a Relu makes is not negative"
    assert (unwanted("Neg", False), asked) == ({"Neg"}, ["Neg", "Neg"])
