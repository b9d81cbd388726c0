"""Localization names the nodes at fault: one, or the fewest that fail only together; and what the failure hangs on."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from driftnet.diagnosis import attribution
from driftnet.diagnosis.attribution import Remedy, stage_at_fault
from driftnet.diagnosis.localize import Search, alike, locate, locate_told
from driftnet.findings.trial import Trial
from driftnet.model.artifact import Artifact
from driftnet.model.inspect import Case
from driftnet.model.submodel import recording
from driftnet.model.verdict import MADE_TWICE, Kind, Observation, Tier, Verdict, Word
from driftnet.model.windows import survey
from driftnet.reduce.problem import ExhaustedError
from driftnet.targets.environments import Installed
from driftnet.targets.interface import Option, Scheme
from onnx import helper

from tests.support import reduction as tools

AGREES = Verdict(Word.AGREES)
WRONG = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES)
WRONG_SHAPE = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_SHAPE)
REFUSED = Verdict(Word.FAILS, stage="convert", kind=Kind.ERROR, message="cannot lower this node")
NO_OUTPUT = Verdict(Word.FAILS, stage="execute", kind=Kind.NO_OUTPUT)


@cache
def deep():
    case = tools.cnn(blocks=8)
    return case, recording(case, tools.record)


def found(look, whole=AGREES):
    """The operators of the faults, and how many models were looked at."""
    case, recorded = deep()
    looks = []

    def counted(part: Case) -> Verdict:
        looks.append(part)
        return look(part)

    judged = list(survey(case, recorded, counted, lambda verdict: verdict.failed))
    failing = [one for one in judged if one.verdict.failed]
    faults = locate(Search(case, recorded, counted, "planted"), failing, whole)
    graph = case.proto.graph
    return [[graph.node[i].op_type for i in fault.nodes] for fault in faults], len(looks)


def where(chain, verdict=WRONG):
    """`verdict` where these operators follow each other."""
    bug = tools.contains(*chain)
    return lambda part: verdict if bug(part, {}) else AGREES


def test_a_single_layer_is_named():
    assert found(where(["ConvTranspose"]))[0] == [["ConvTranspose"]]


def test_a_fusion_is_named_by_all_of_its_nodes():
    assert found(where(["ConvTranspose", "BatchNormalization"]))[0] == [["ConvTranspose", "BatchNormalization"]]


def test_every_place_of_a_bug_is_named_and_costs_little_after_the_first():
    faults, looks = found(where(["Conv", "BatchNormalization"]))
    assert faults == [["Conv", "BatchNormalization"]] * 7
    assert looks < 80, "33 nodes"


def test_nothing_is_named_where_nothing_fails():
    assert found(lambda part: AGREES)[0] == []


def test_no_part_that_is_right_is_held():
    case, recorded = deep()
    search = Search(case, recorded, lambda part: AGREES, "planted")
    assert search.fault((0, 1)) is None
    assert search.told == {(0, 1): None}, "its weights stay in memory"


def far_apart(verdict: Verdict):
    """`verdict` where what no window holds is together."""

    def look(part: Case) -> Verdict:
        operators = [node.op_type for node in part.proto.graph.node]
        return verdict if operators.count("Conv") >= 5 and "ConvTranspose" in operators else AGREES

    return look


def test_wrong_values_of_the_whole_model_only_are_bisected():
    ((*operators,),), looks = found(far_apart(WRONG), WRONG)
    assert sorted(operators) == ["Conv"] * 5 + ["ConvTranspose"], "nothing that is not needed"
    assert looks < 120, looks


def test_what_ends_the_whole_model_only_is_left_to_the_reducer():
    faults, looks = found(far_apart(REFUSED), REFUSED)
    assert faults == []
    assert looks < 40, looks


@pytest.mark.parametrize("names", ["tensor", "node", "nothing"])
def test_what_a_system_says_that_it_cannot_take_is_found_without_a_survey(names):
    case, recorded = deep()
    graph = case.proto.graph
    k = next(k for k, node in enumerate(graph.node) if node.op_type == "ConvTranspose")
    said = {"tensor": graph.node[k].input[0], "node": graph.node[k].name or graph.node[k].output[0], "nothing": "this"}
    refused = replace(REFUSED, message=f"ValueError: Expected {said[names]} to be an initializer")
    looks = []

    def look(part: Case) -> Verdict:
        looks.append(part)
        return refused if tools.contains("ConvTranspose")(part, {}) else AGREES

    found = [fault.nodes for fault in locate_told(Search(case, recorded, look, "planted"), refused)]
    should = [] if names == "nothing" else [(k,)]
    assert found == should, f"at fault by a message that names a {names} are {found}, should be {should}"
    assert len(looks) <= 8, f"{len(looks)} parts were run of {len(graph.node)} nodes, should be a few"
    again = locate(Search(case, recorded, look, "planted"), survey_of(look), refused, known=tuple(told(look, refused)))
    assert [fault.nodes for fault in again] == ([(k,)] if names == "nothing" else []), "a fault is told once"


def told(look, whole):
    case, recorded = deep()
    return locate_told(Search(case, recorded, look, "planted"), whole)


def survey_of(look):
    """The windows that fail."""
    case, recorded = deep()
    return [one for one in survey(case, recorded, look, lambda verdict: verdict.failed) if one.verdict.failed]


def test_a_wrong_shape_that_surfaces_as_no_output_is_named_where_it_arises():
    def look(part: Case) -> Verdict:
        operators = [node.op_type for node in part.proto.graph.node]
        return AGREES if "ConvTranspose" not in operators else WRONG_SHAPE if len(operators) == 1 else NO_OUTPUT

    assert found(look, NO_OUTPUT)[0] == [["ConvTranspose"]]


def test_a_wrong_shape_of_one_node_that_is_wrong_values_of_the_next_is_named_by_the_one():
    def look(part: Case) -> Verdict:
        last = part.proto.graph.node[-1].op_type
        if not tools.contains("ConvTranspose")(part, {}):
            return AGREES
        return WRONG_SHAPE if last == "ConvTranspose" else WRONG

    assert found(look, WRONG)[0] == [["ConvTranspose"]]


@pytest.mark.parametrize(
    ("stage", "word", "expected"), [("quantize", Word.FAILS, False), ("execute", Word.CRASHES, True)]
)
def test_what_ends_a_part_in_a_stage_that_the_whole_came_through_explains_nothing(stage, word, expected):
    whole = Verdict(Word.FAILS, stage="execute", kind=Kind.ERROR, message="a scale is no scalar")
    assert alike("mnn", Verdict(word, stage=stage, kind=Kind.ERROR, message="no data"), whole) is expected
    assert alike("mnn", Verdict(Word.DIVERGES, stage="quantize", kind=Kind.WRONG_VALUES), whole), "it ran"


def test_only_what_has_a_name_that_means_two_things_explains_such_a_name():
    clash = replace(WRONG, about=(MADE_TWICE, "scale"))
    assert not alike("onnxruntime-quant", WRONG, clash), "it may be wrong because of another name"
    assert alike("onnxruntime-quant", replace(WRONG, about=(MADE_TWICE, "another")), clash), "it has such a name too"


def test_what_is_left_of_a_fault_is_asked_once_more():
    """A wrong shape that is wrong values of the next node, which by itself fits what it is given."""

    def look(part: Case) -> Verdict:
        operators = [node.op_type for node in part.proto.graph.node]
        if operators[-1] == "ConvTranspose":
            return WRONG_SHAPE
        return WRONG if "ConvTranspose" in operators[1:] else AGREES

    assert found(look, WRONG)[0] == [["ConvTranspose"]]


def test_what_is_found_before_the_budget_is_spent_is_kept():
    case, recorded = deep()
    look = where(["Conv"])
    failing = [one for one in survey(case, recorded, look, lambda verdict: verdict.failed) if one.verdict.failed]
    left = iter(range(8))

    def limited(part: Case) -> Verdict:
        if next(left, None) is None:
            raise ExhaustedError
        return look(part)

    kept = []
    with pytest.raises(ExhaustedError):
        kept.extend(locate(Search(case, recorded, limited, "planted"), failing, AGREES))
    assert kept


def test_what_only_the_intact_artifact_shows_is_looked_for_from_there_upwards():
    """A chain that fails together; what goes wrong in the artifact is the last of it, and is named first."""
    case, recorded = deep()
    graph = case.proto.graph
    last = next(node for node in graph.node if node.op_type == "ConvTranspose")
    chain = ["Conv", "BatchNormalization", "Relu", "Conv", "ConvTranspose"]
    looks = []

    def look(part: Case) -> Verdict:
        looks.append(part)
        return where(chain)(part)

    (fault,) = locate(Search(case, recorded, look, "planted"), [], WRONG, [last.output[0]])
    assert [graph.node[i].op_type for i in fault.nodes] == chain[::-1]
    assert len(looks) <= 6, f"{len(looks)} models were looked at, should be 2, 4, 8 nodes, and a few between"


OPTIONS = (
    Option("level", "convert", (1, 0), ""),
    Option("quantize", "quantize", ("static", "none"), ""),
    Option("threads", "execute", (1, 2), ""),
)
PARTS = ("folding", "fusing", "sharing", "unrolling")
TARGET = replace(
    tools.TARGET,
    options=OPTIONS,
    scheme=lambda options: Scheme((-127, 127), (-128, 127)) if options["quantize"] == "static" else None,
    switches={"without": PARTS},
)
SMALL = Trial(tools.cnn(blocks=1), Installed(TARGET, "planted:TARGET", "1", ""), {}, None)


def cured_by(*cures):
    """A target that goes wrong until an option has one of these values."""

    def watch(trial):
        listed = {name: value if isinstance(value, list) else [value] for name, value in trial.recipe.items()}
        given = [(name, v) for name, values in listed.items() for v in values]
        return (AGREES if set(given) & set(cures) else WRONG), None

    return watch


def cures_of(verdict, watch):
    """The options that cure; rewrites of the model are told from these in test_likeness."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attribution, "REWRITES", {})
        return tuple(attribution.remedies(SMALL, verdict, watch))


def attributed(watch):
    cures = cures_of(WRONG, watch)
    return cures, stage_at_fault(SMALL, WRONG, cures, watch)


def test_an_option_that_makes_it_go_away_tells_the_stage():
    assert attributed(cured_by(("level", 0))) == ((Remedy("level", 0, "convert"),), "convert")
    assert attributed(cured_by(("threads", 2))) == ((Remedy("threads", 2, "execute"),), "execute")
    assert attributed(cured_by(("quantize", "none"))) == ((Remedy("quantize", "none", "quantize"),), "quantize")


def test_of_a_switch_the_one_part_that_is_needed_is_named():
    assert attributed(cured_by(("without", "sharing"))) == ((Remedy("without", ["sharing"], "execute"),), "execute")


def test_what_damages_the_heap_is_cured_by_what_is_right_in_every_layout_and_template():
    crash = Verdict(Word.CRASHES, Tier.STRUCTURE, stage="execute", kind="SIGSEGV")
    runner = SimpleNamespace(turn=lambda: setattr(runner, "template", 1 - runner.template), template=0)

    def watch(trial):
        lucky = trial.recipe.get("threads") == 2 and trial.layout == 0
        lucky = lucky or (trial.recipe.get("quantize") == "none" and runner.template == 0)
        return (AGREES if lucky or trial.recipe.get("level") == 0 else crash), None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attribution, "REWRITES", {})
        cures = tuple(attribution.remedies(replace(SMALL, runner=runner), crash, watch))
    assert cures == (Remedy("level", 0, "convert"),), "others are right by chance"


def test_a_default_that_is_stated_is_tried_before_any_option():
    """What the model means stays as it is. The others that are left out do not matter, and are not told."""
    nodes = [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"])]
    case = tools.make_case(nodes, {name: np.float32([1]) for name in ("x", *"sbmv")}, ["y"])

    def watch(trial):
        said = {attribute.name for node in trial.case.proto.graph.node for attribute in node.attribute}
        return (AGREES if "epsilon" in said or trial.recipe.get("level") == 0 else WRONG), None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attribution, "REWRITES", {})
        cures = list(attribution.remedies(replace(SMALL, case=case), WRONG, watch))
    assert list(map(str, cures)) == ["model=epsilon of BatchNormalization stated", "level=0"]
    mended = attribution.under(replace(SMALL, case=case), cures[0])
    assert [attribute.name for node in mended.case.proto.graph.node for attribute in node.attribute] == ["epsilon"]
    assert attribution.under(mended, cures[0]) is mended, "there is nothing left to state"


def test_a_stage_is_not_guessed():
    assert attributed(cured_by()) == ((), "")
    assert attributed(cured_by(("level", 0), ("threads", 2)))[1] == ""


MISEXECUTED = Verdict(Word.DIVERGES, Tier.ARTIFACT, stage="execute", kind=Kind.WRONG_VALUES)


@pytest.mark.parametrize(("verdict", "stage"), [(REFUSED, "convert"), (NO_OUTPUT, "execute"), (MISEXECUTED, "execute")])
def test_a_stage_that_is_seen_to_fail_is_the_one(verdict, stage):
    assert stage_at_fault(SMALL, verdict, (), cured_by()) == stage


@pytest.mark.parametrize(
    ("executed", "stage"), [(AGREES, "quantize"), (WRONG, "execute"), (Verdict(Word.ABSTAINS), "")]
)
def test_a_quantized_model_that_can_be_read_is_executed_for_what_it_is(executed, stage):
    artifact = tools.cnn(blocks=2).model

    def watch(trial):
        if trial.case.model == artifact:
            return executed, None
        return cured_by(("quantize", "none"))(trial)[0], Observation((), artifact=Artifact(model=artifact))

    assert attributed(watch)[1] == stage


WRONG_ARTIFACT = Verdict(Word.DIVERGES, stage="quantize", kind=Kind.WRONG_VALUES)
NOT_QUANTISED = Verdict(Word.FAILS, stage="quantize", kind=Kind.ERROR, message="incompatible dimensions")


@pytest.mark.parametrize("verdict", [WRONG_ARTIFACT, NOT_QUANTISED])
@pytest.mark.parametrize(("cures", "stage"), [([("quantize", "none")], "quantize"), ([], "convert")])
def test_a_failure_of_quantizing_is_the_quantizers_only_where_it_has_a_part_in_it(verdict, cures, stage):
    found = cures_of(verdict, cured_by(*cures))
    assert stage_at_fault(SMALL, verdict, found, cured_by(*cures)) == stage
