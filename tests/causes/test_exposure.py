"""Exposure counts the models that may meet a trigger, and what is told first is new, of great impact, and different."""

import dataclasses

from driftnet.causes import exposure
from driftnet.causes.exposure import Exposure
from driftnet.causes.host import hosts
from driftnet.causes.impact import Severity, Standing, ranked, severity_of
from driftnet.causes.predicate import Trigger, trigger_of
from driftnet.causes.record import below
from driftnet.findings.corpus import COMMITTED
from driftnet.model.verdict import Verdict, Word
from onnx import TensorProto, helper

from tests.support.exposure import Source, gathered

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])


def of(*atoms, roles=1, edges=()):
    """A trigger of one region."""
    return trigger_of({"roles": roles, "edges": list(edges), "shared": [], "regions": [list(atoms)]})


def statistics(*models):
    """The statistics of models, each a list of nodes from x to y, after what they are when written down."""
    made = [
        helper.make_model(helper.make_graph(nodes, "g", [X], [helper.make_empty_tensor_value_info("y")]))
        for nodes in models
    ]
    found = gathered([Source(f"p{k}", "", 20, tuple(hosts(model))) for k, model in enumerate(made)])
    return exposure.from_json(exposure.as_json(found))


RELU = [helper.make_node("Relu", ["x"], ["y"])]
CHAIN = [helper.make_node("Softmax", ["x"], ["t"], axis=1), helper.make_node("Relu", ["t"], ["y"])]
BRANCH = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["z"])], "b", [], [X])
INSIDE = [helper.make_node("If", ["c"], ["y"], then_branch=BRANCH, else_branch=BRANCH)]
THREE = statistics(RELU, CHAIN, INSIDE)


def assert_exposure(trigger: Trigger, models: float, nodes: float) -> None:
    got, should = THREE.exposure(trigger), Exposure(models, nodes, models == 0)
    assert got == should, f"of {trigger} the exposure is {got}, should be {should}"


def test_models_and_nodes_that_meet_a_trigger_are_counted():
    assert_exposure(of({"fact": "0.op", "is": "Relu"}), 0.6667, 0.3333)


def test_nodes_inside_of_subgraphs_count():
    assert_exposure(of({"fact": "0.op", "is": "Sigmoid"}), 0.3333, 0.3333)


def test_an_attribute_that_is_stated_is_told_from_its_default():
    softmax = {"fact": "0.op", "is": "Softmax"}
    assert_exposure(of(softmax, {"fact": "0.attr.axis", "is": 1}), 0.3333, 0.1667)
    assert_exposure(of(softmax, {"fact": "0.attr.axis.stated", "is": False}), 0.0, 0.0)


def test_what_exporters_seldom_write_is_not_taken_to_fit_nor_for_artificial():
    relu = {"fact": "0.op", "is": "Relu"}
    for rare in ({"fact": "0.in.0.needless", "is": True}, {"fact": "0.twin", "is": True}):
        assert THREE.exposure(of(relu, rare)) == Exposure(0.0, 0.0, False), f"of {rare}"
        assert THREE.exposure(of({"fact": "0.op", "is": "Sign"}, rare)) == Exposure(0.0, 0.0, True), f"of {rare}"
    by = {"fact": "0.in.0.by", "in": ["value_int", "value_float"]}
    assert THREE.exposure(of(relu, by)) == Exposure(0.0, 0.0, True), "x is no constant"


def test_how_common_the_causes_of_the_corpus_are_follows_from_their_triggers():
    known, stated = exposure.statistics(), [cause for cause in below(COMMITTED) if cause.trigger]
    stale = [c.id for c in stated if c.impact != dataclasses.asdict(known.exposure(c.trigger))]
    assert stale == [], f"record.update(cause, trigger=cause.trigger) tells anew how common these are: {stale}"


def test_what_forms_do_not_tell_is_neutral():
    relu = {"fact": "0.op", "is": "Relu"}
    for unknown in ({"fact": "0.in.0.dim.1", "most": 2}, {"fact": "0.in.0.zeros", "is": False}):
        assert_exposure(of(relu, unknown, {"fact": "recipe.threads", "is": 4}), 0.6667, 0.3333)


def test_what_ordinary_data_have_not_nobody_meets():
    relu = {"fact": "0.op", "is": "Relu"}
    for fact in (
        {"fact": "0.in.0.zeros", "is": True},
        {"fact": "0.out.0.finite", "not": True},
        {"fact": "0.out.0.magnitude", "most": 1e-5},
        {"fact": "0.in.0.dim.-1", "is": 0},
    ):
        assert_exposure(of(relu, fact), 0.0, 0.0)


def test_every_model_that_people_have_has_inputs():
    relu = {"fact": "0.op", "is": "Relu"}
    assert_exposure(of(relu, {"fact": "fed", "is": False}), 0.0, 0.0)
    assert_exposure(of(relu, {"fact": "fed", "is": True}), 0.6667, 0.3333)


def test_a_trigger_of_two_nodes_asks_for_the_pair():
    softmax, relu = {"fact": "0.op", "is": "Softmax"}, {"fact": "1.op", "is": "Relu"}
    assert_exposure(of(softmax, relu, roles=2, edges=[[1, 0]]), 0.3333, 0.1667)
    assert_exposure(of(softmax, relu, roles=2, edges=[[0, 1]]), 0.0, 0.0)


def test_the_committed_statistics_know_what_everybody_has_and_what_nobody_has():
    real = exposure.statistics()
    common = real.exposure(of({"fact": "0.op", "is": "Conv"}, {"fact": "0.in.1.from", "is": "constant"}))
    assert common.exposure > 0.5, (
        f"{common.exposure:.0%} of real models have a Conv of constant weights, should be most"
    )
    rare = real.exposure(of({"fact": "0.op", "is": "Det"}))
    assert rare.artificial, f"the exposure of Det is {rare}, should be artificial"
    size = exposure.FILE.stat().st_size
    assert size < 300_000, f"{exposure.FILE.name} has {size} bytes, should stay a small file"


def standing(severity: Severity, models: float, *features: str, known: bool = False) -> Standing:
    return Standing(severity, models, models == 0, known, frozenset(features))


def test_new_comes_before_known_and_what_nobody_has_last():
    found = {
        "known": standing(Severity.WRONG, 0.9, known=True),
        "artificial": standing(Severity.WRONG, 0.0),
        "common": standing(Severity.WRONG, 0.5),
        "rare": standing(Severity.WRONG, 0.05),
        "error": standing(Severity.ERROR, 0.5),
    }
    got = ranked(found, found.__getitem__)
    assert got == ["common", "error", "rare", "artificial", "known"], f"the order is {got}"


def test_among_equals_what_differs_comes_first():
    found = {
        "a": standing(Severity.CRASH, 0.5, "Conv", "pads", "convert"),
        "like a": standing(Severity.CRASH, 0.5, "Conv", "pads", "execute"),
        "other": standing(Severity.CRASH, 0.5, "Gemm", "alpha", "execute"),
    }
    got = ranked(found, found.__getitem__)
    assert got == ["a", "other", "like a"], f"the order is {got}, should have what differs before what is alike"


def test_an_error_that_names_nothing_is_a_refusal_that_says_nothing():
    said = {
        "mnn failed in execute: Create execution error : 7": Severity.REFUSAL,
        "mnn failed in execute: Don't support type [Dropout]": Severity.ERROR,
        "onnxruntime-quant failed in quantize: ValueError: Histogram has not been collected.": Severity.ERROR,
    }
    for message, should in said.items():
        got = severity_of(Verdict(Word.FAILS, message=message))
        assert got == should, f"{message!r} has severity {got}, should be {should}"
