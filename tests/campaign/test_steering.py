"""Steering keeps away from places that meet a known trigger, and from operators where no trigger is known."""

from __future__ import annotations

from dataclasses import replace

from driftnet.campaign.plan import Choice, Plan
from driftnet.campaign.shard import Shard
from driftnet.campaign.steering import KEPT, STEERED_WEIGHT, TIMES, Doubts, Steering
from driftnet.causes.host import host_of
from driftnet.causes.predicate import Atom
from driftnet.findings.issues import KnownIssue, issues
from driftnet.generators import bulk
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from onnx import helper

from tests.findings.test_known import small
from tests.findings.test_recognition import CASE, RELIABLE, triggered
from tests.support import reduction as tools
from tests.support.paths import CORPUS

HOST = host_of(CASE)
RELU = Atom("0.op", "is", "Relu")


def of_mnn(known: KnownIssue) -> KnownIssue:
    return KnownIssue(replace(known.saved, target="mnn"))


def test_operators_of_places_that_meet_a_trigger_under_some_recipe_are_not_wanted():
    threads = Atom("recipe.threads", "is", 2)
    steering = Steering([of_mnn(triggered(RELU, threads))])
    one, two = ({"recipe.threads": n} for n in (1, 2))
    assert steering.under([("mnn", "2.0", one), ("mnn", "2.0", two)]).unwanted(HOST) == {"Relu"}
    assert steering.under([("mnn", "2.0", one)]).unwanted(HOST) == set(), "no recipe meets it"
    assert steering.under([("other", "2.0", two)]).unwanted(HOST) == set(), "another target is asked"
    but_neg = Atom("0.op", "in", ("Relu", "Neg")), Atom("0.op", "not", "Neg")
    assert Steering([of_mnn(triggered(*but_neg))]).under([("mnn", "2.0", {})]).unwanted(HOST) == {"Relu"}, (
        "one is left out"
    )
    neg = small(helper.make_node("Neg", ["x"], ["y"]))
    assert steering.under([("mnn", "2.0", two)]).unwanted(host_of(neg)) == set(), "there is no such place"


def test_a_trigger_that_errs_is_not_avoided_but_its_operators_are_rarer():
    good, bad = (of_mnn(triggered(RELU, score=RELIABLE | {"accuracy": share})) for share in (1.0, 0.6))
    assert Steering([bad]).under([("mnn", "2.0", {})]).unwanted(HOST) == set()
    assert Steering([bad]).weights("mnn", "2.0") == {"Relu": STEERED_WEIGHT}
    assert Steering([good]).weights("mnn", "2.0") == {}
    assert Steering([bad]).weights("other", "2.0") == {}
    seen = KnownIssue(replace(bad.saved, cause=replace(bad.saved.cause, seen=("1.0", "2.0"))))
    rarer = [release for release in ("0.9", "1.0", "3.0") if Steering([seen]).weights("mnn", release)]
    assert rarer == ["1.0", "3.0"], "what a release is older than keeps nothing away from it"
    of_two = KnownIssue(replace(good.saved, cause=replace(good.saved.cause, seen=("1.0", "2.0"))))
    avoiding = [r for r in ("0.9", "1.0", "3.0") if Steering([of_two]).under([("mnn", r, {})]).unwanted(HOST)]
    assert avoiding == ["1.0", "3.0"], "nor do its places"


def test_an_operator_that_is_never_drawn_is_not_steered_by():
    known = of_mnn(triggered(RELU, score=RELIABLE | {"accuracy": 0.6}))
    known.__dict__["nodes"] = (replace(known.nodes[0], op_type="Normalizer"),)
    assert known.op_types == {"Normalizer"}, f"what the saved model has: got {known.op_types}"
    assert Steering([known]).weights("mnn", "2.0") == {}, "what a saved model has may be no operator of the generator's"


def test_cases_are_drawn_by_all_that_the_corpus_knows():
    everything = issues(CORPUS)
    steering = Steering(everything)
    for target in sorted({issue.saved.target for issue in everything}):
        drawn = bulk.case(1, 1, weights=steering.weights(target, "9999"))
        assert drawn.proto.graph.node, f"a case drawn by what is known of {target}: got no node"


def test_without_steering_and_for_few_indices_cases_are_drawn_as_ever(tmp_path):
    def drawn(steer: bool) -> list[str]:
        plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3, steer=steer)
        shard = Shard(plan, None, stopping=lambda: True)
        shard.keeping.known_issues |= {"test_x": of_mnn(triggered(Atom("0.out.0.given", "is", True)))}
        return [shard.drawing.case(index, 0).digest for index in range(40)]

    plain = [bulk.case(3, index).digest for index in range(40)]
    assert drawn(False) == plain
    free = sum(a == b for a, b in zip(drawn(True), plain))
    assert 1 <= free <= 40 * 3 // KEPT, f"{free} of 40 cases have what a trigger says of every node"


def test_a_part_on_the_grid_is_not_asked_where_it_alone_meets_what_is_known(tmp_path, monkeypatch):
    neg, relu = (small(helper.make_node(op, ["x"], ["y"])) for op in ("Neg", "Relu"))
    monkeypatch.setattr("driftnet.campaign.drawing.variant", lambda case, one, choice: relu)

    def asked(steer: bool, case: Case) -> list[Case]:
        plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3, steer=steer)
        drawing = Shard(plan, None, stopping=lambda: True).drawing
        drawing.known["test_x"] = of_mnn(triggered(RELU))
        return [drawing.variant(case, index, 0, Choice({}, 1, True)) for index in range(40)]

    assert asked(False, neg) == [relu] * 40, "without steering it is asked"
    free = sum(case is relu for case in asked(True, neg))
    assert 1 <= free <= 40 * 3 // KEPT, (
        f"{free} of 40 cases are of a part that meets a trigger, one in {KEPT} should be"
    )
    assert asked(True, relu) == [relu] * 40, "what was drawn is asked in any case"


def test_another_part_on_the_grid_is_asked_where_the_first_meets_what_is_known(tmp_path, monkeypatch):
    neg, relu, tanh = (small(helper.make_node(op, ["x"], ["y"])) for op in ("Neg", "Relu", "Tanh"))
    monkeypatch.setattr(
        "driftnet.campaign.drawing.variant", lambda case, one, choice: relu if choice.grid_seed < 3 else tanh
    )
    plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3)
    drawing = Shard(plan, None, stopping=lambda: True).drawing
    drawing.known["test_x"] = of_mnn(triggered(RELU))
    asked = [drawing.variant(neg, index, 0, Choice({}, 1, True)) for index in range(40)]
    assert not any(case is neg for case in asked), "none should be off the grid: the third part meets no trigger"
    other = sum(case is tanh for case in asked)
    assert other >= 40 - 40 * 3 // KEPT, f"{other} of 40 are of another part, should be all but one in {KEPT}"


def test_what_hangs_on_numbers_is_computed_once_where_nothing_else_is_unwanted():
    asked = []

    def unwanted(op, negative):
        steering = Steering([of_mnn(triggered(Atom("0.op", "is", op), Atom("0.in.0.negative", "is", negative)))])
        return steering.under([("mnn", "2.0", {})]).unwanted(HOST, lambda: asked.append(op) or tools.record(CASE)[0])

    assert (unwanted("Relu", True), asked) == ({"Relu"}, []), "what is fed is known already"
    assert (unwanted("Neg", True), asked) == (set(), ["Neg"]), "what a Relu makes is not negative"
    assert (unwanted("Neg", False), asked) == ({"Neg"}, ["Neg", "Neg"])


def test_a_trigger_that_graphs_meet_without_failing_is_doubted_and_avoided_no_more():
    known = of_mnn(triggered(Atom("0.out.0.given", "is", True)))
    (trigger,) = (cause.trigger for cause in known.causes)
    steering = Steering([known], doubts := Doubts())
    assert steering.under([("mnn", "2.0", {})]).met(HOST) == {trigger}
    assert steering.under([("mnn", "2.0", {})]).unwanted(HOST) == {"Relu", "Neg"}, "every node meets it"
    for _ in range(TIMES - 1):
        doubts.learn([({trigger}, False)] * 4)
    assert trigger not in doubts, "one graph counts once, however many cases it had"
    doubts.learn([({trigger}, False), ({trigger}, True)])
    assert trigger not in doubts, "under one recipe the graph failed"
    doubts.learn([({trigger}, False), (set(), True)])
    assert trigger in doubts, f"it was met {doubts.ran[trigger]} times without a failure, {doubts.failed[trigger]} with"
    assert steering.under([("mnn", "2.0", {})]).unwanted(HOST) == set()
    for _ in range(4 * TIMES):
        doubts.learn([({trigger}, True)])
    assert steering.under([("mnn", "2.0", {})]).unwanted(HOST) == {"Relu", "Neg"}, "after all it tells of failures"


def test_a_shard_doubts_triggers_that_its_cases_meet_and_agree(tmp_path):
    with Runner(small_models=True) as runner:
        plan = Plan(targets=("onnxruntime-quant",), corpus=tmp_path / "none", report=tmp_path, seed=3)
        shard = Shard(plan, runner, stopping=lambda: False)
        known = triggered(Atom("0.out.0.given", "is", True))
        shard.keeping.known_issues |= {"test_x": KnownIssue(replace(known.saved, target="onnxruntime-quant"))}
        for index in range(12):
            for _ in shard.run(index, 1):
                pass
        (trigger,) = (doubts := shard.drawing.doubts).ran
        assert doubts.ran[trigger] >= TIMES, f"met without a failure {doubts.ran[trigger]} times of 12"
        assert trigger in doubts
