"""What is told of a failure that is known by a case of another model speaks of the failure's own."""

import numpy as np
from driftnet.causes.host import host_of
from driftnet.findings import corpus
from driftnet.findings.telling import cause_as_met, note_of
from driftnet.targets.mnn.target import MNN
from onnx import helper

from tests.support.models import grid, relu
from tests.support.paths import CORPUS, saved_case
from tests.support.triggers import some

RECIPE = {"quantize": "offline"}


def test_of_a_cause_that_is_known_by_another_operator_the_region_that_is_met_is_told():
    gru = corpus.load(saved_case("449ede13"))
    node = helper.make_node("ReduceMean", ["x", "w"], ["y"], keepdims=0)
    host = host_of(some([node], {"x": grid((1, 1, 2, 2))}, {"w": np.int64([0, 1])}, outputs=["y"]))
    told = cause_as_met(gru, host, MNN, RECIPE)
    assert told.sentence.startswith("ReduceMean "), f"it says {told.sentence}, of a ReduceMean"
    assert told.title == gru.cause.title, f"the title is {told.title}, should be that of the cause"
    assert note_of(gru, ["ReduceMean"]) == "", "a note about a GRU is told of a ReduceMean"
    assert note_of(gru, ["ReduceMean", *gru.operators]) == gru.note, "a note about what is there is not told"


def test_of_a_model_that_meets_no_region_no_trigger_is_told():
    told = cause_as_met(corpus.load(saved_case("449ede13")), host_of(relu()), MNN, RECIPE)
    assert told.sentence == "", f"it says {told.sentence}, of a Relu"
    assert not told.impact, f"{told.impact} is said to be how common nothing is"


def test_no_note_of_the_corpus_names_what_only_its_writer_knows():
    named = [str(path) for path in CORPUS.rglob("c*.json") if "field report" in path.read_text(encoding="utf-8")]
    assert not named, f"{named} speak of field reports, which nobody has who reads them"


def test_a_softmax_over_one_element_and_one_over_several_are_two_causes():
    options = {"recipe.format": "QDQ"}
    named = {}
    for digits in ("ea342d05", "9804cf0d"):
        trigger = corpus.load(saved_case(digits)).cause.trigger
        for shape in ((4, 1), (4, 7)):
            softmax = helper.make_node("Softmax", ["x"], ["y"])
            host = host_of(some([softmax], {"x": grid(shape)}, {}, outputs=["y"]))
            named[digits, shape[1]] = trigger.matches(host, options)
    should = {("ea342d05", 1): True, ("ea342d05", 7): False, ("9804cf0d", 1): False, ("9804cf0d", 7): True}
    assert named == should, f"along so many elements it is named {named}, should be {should}"
