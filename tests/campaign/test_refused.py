"""What a system refused and was never seen to run is drawn rarely, and cut out of the rest of its cases."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from driftnet.campaign.drawing import Models
from driftnet.campaign.gaps import Form
from driftnet.campaign.plan import Plan
from driftnet.campaign.refused import FILE, INPUT, OUTPUT, TIMES, Refusals, forms_of, remembered
from driftnet.campaign.shard import Shard
from driftnet.campaign.steering import KEPT
from driftnet.causes.host import host_of
from driftnet.findings.issues import KnownIssue
from driftnet.findings.pipeline import Examination
from driftnet.generators import bulk
from driftnet.model.inspect import Case
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from onnx import helper

from tests.findings.test_known import small
from tests.findings.test_recognition import triggered
from tests.support.refusals import learn

RAN = Verdict(Word.AGREES)
NEG, EXP = (helper.make_node(op, ["x"], [op]) for op in ("Neg", "Exp"))


def forms(*nodes):
    case = small(*nodes)
    return forms_of(case, host_of(case))


def refused(message):
    return Verdict(Word.REJECTS, stage="convert", message=message)


def test_an_operator_that_is_named_in_refusals_and_never_ran_is_refused():
    refusals = Refusals()
    for _ in range(TIMES):
        assert refusals.operators() == set(), "once may be for something particular"
        assert refusals.learn(forms(NEG), refused("Not Support: ONNX::Neg")) == {"Neg"}
    assert refusals.operators() == refusals.unwanted(forms(NEG)) == {"Neg"}
    assert refusals.unwanted(forms(EXP)) == set()


def test_what_is_seen_to_run_is_not_refused():
    refusals = Refusals()
    for _ in range(TIMES):
        refusals.learn(forms(NEG), refused("Not Support: ONNX::Neg"))
    refusals.learn(forms(NEG), RAN)
    assert refusals.operators() == refusals.unwanted(forms(NEG)) == set()
    assert refusals.learn(forms(NEG), refused("Not Support: ONNX::Neg")) == set(), "every form of it ran"


def test_an_operator_that_ran_is_refused_by_what_is_particular():
    cast = [helper.make_node("Cast", ["x"], ["y"], to=to) for to in (1, 10)]
    refusals = Refusals()
    refusals.learn(forms(cast[0]), RAN)
    for _ in range(TIMES):
        assert refusals.learn(forms(cast[1]), refused("Not Support: ONNX::Cast")) == {"Cast"}
    assert refusals.operators() == set()
    assert refusals.unwanted(forms(cast[1])) == {"Cast"}
    assert refusals.unwanted(forms(cast[0])) == set()


@pytest.mark.parametrize(("said", "of"), [("input", {INPUT}), ("output", {OUTPUT}), ("type", {INPUT, OUTPUT})])
def test_a_type_that_is_named_is_refused_where_the_message_says(said, of):
    refusals = Refusals()
    for _ in range(TIMES):
        refusals.learn(forms(NEG), refused(f"there is no float32 {said}"))
    assert refusals.operators() == set()
    assert refusals.unwanted(forms(EXP)) == {"Exp"}
    assert {form[0] for form in refusals.refused} == of, f"of a {said}: {set(refusals.refused)}"


def test_what_is_seen_to_be_executed_though_it_breaks_there_is_no_form_that_a_conversion_refuses():
    broke = Verdict(Word.CRASHES, stage="execute")
    refusals = Refusals()
    for _ in range(TIMES):
        refusals.learn(forms(NEG), refused("Not Support: ONNX::Neg"))
    refusals.learn(forms(NEG), broke)
    assert not refusals, f"{set(refusals.refused)} came as far as to be executed"
    assert refusals.learn(forms(NEG), refused("Not Support: ONNX::Neg")) == set(), "it is something else of that model"
    late = Verdict(Word.REJECTS, stage="execute", message="no kernel of Exp")
    for _ in range(TIMES):
        refusals.learn(forms(EXP), late)
    refusals.learn(forms(EXP), broke)
    assert refusals.operators() == {"Exp"}, "what is refused when it is executed may break there for another reason"


def test_the_other_cases_of_a_refused_graph_do_without_what_was_named(tmp_path, monkeypatch):
    seed = 3
    index = next(i for i in range(100) if _ops(bulk.case(seed, i)) > {"Conv"})
    seen = list[set[str]]()

    def examine(trial, *given, **more):
        seen.append(_ops(trial.case))
        named = "Conv" in seen[-1]
        return Examination(refused("Not Support: ONNX::Conv") if named else RAN)

    monkeypatch.setattr("driftnet.campaign.shard.examine", examine)
    monkeypatch.setattr("driftnet.campaign.shard.insensitive", lambda case, reference: False)
    monkeypatch.setattr("driftnet.campaign.drawing.variant", lambda case, one, choice: case)
    plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=seed)
    for steer in (True, False):
        seen.clear()
        shard = Shard(replace(plan, steer=steer), _Idle(), stopping=lambda: False)
        list(shard.run(index, 4))
        assert ["Conv" in ops for ops in seen] == [True, *[not steer] * 3]


def test_the_other_cases_of_a_graph_that_failed_for_a_known_issue_do_without_its_operators(tmp_path, monkeypatch):
    issue = triggered(score={})
    issue.__dict__["nodes"] = (replace(issue.nodes[0], op_type="Conv"),)
    held = next(case for i in range(100) if _ops(case := bulk.case(3, i)) > {"Conv"})
    free = {zlib.crc32(f"3/{i}/free".encode()) % KEPT == 0: i for i in range(40)}
    seen = list[bool]()

    def examine(trial, *given, **more):
        seen.append("Conv" in _ops(trial.case))
        return Examination(Verdict(Word.DIVERGES, stage="execute"), known="test_x")

    def drawn(index, favoured, profile, leave_out=frozenset(), sought=None):
        return small(NEG) if "Conv" in leave_out else held

    monkeypatch.setattr("driftnet.campaign.shard.examine", examine)
    monkeypatch.setattr("driftnet.campaign.shard.insensitive", lambda case, reference: False)
    monkeypatch.setattr("driftnet.campaign.drawing.variant", lambda case, one, choice: case)
    plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3)
    for steer, index, repeated in ((True, free[False], False), (True, free[True], True), (False, free[False], True)):
        seen.clear()
        shard = Shard(replace(plan, steer=steer), _Idle(), stopping=lambda: False)
        monkeypatch.setattr(shard.drawing, "case", drawn)
        shard.keeping.known_issues["test_x"] = KnownIssue(replace(issue.saved, target="mnn"))
        shard.keeping.known_issues["test_x"].__dict__["nodes"] = issue.nodes
        list(shard.run(index, 4))
        assert seen == [True, *[repeated] * 3], f"steered {steer}, index {index}: whether a case has a Conv is {seen}"


def test_each_target_has_models_of_what_it_takes(tmp_path, monkeypatch):
    seen = list[tuple[str, Case]]()

    def examine(trial, *given, **more):
        seen.append((trial.target.name, trial.case))
        return Examination(RAN)

    monkeypatch.setattr("driftnet.campaign.shard.examine", examine)
    monkeypatch.setattr("driftnet.campaign.shard.insensitive", lambda case, reference: False)
    monkeypatch.setattr("driftnet.campaign.drawing.variant", lambda case, one, choice: case)
    words = ("mnn", "tests.support.toy_target:NARROW", "onnxruntime-graph")
    shard = Shard(Plan(targets=words, corpus=tmp_path / "none", report=tmp_path), _Idle(), stopping=lambda: False)
    drawn = [list(shard.run(index, 12))[-1].graphs for index in range(8)]  # 96 cases: after 100 health is asked for
    models = [
        {target: {case.model for name, case in seen[k : k + 12] if name == target} for target, _ in seen}
        for k in range(0, len(seen), 12)
    ]
    assert all(one["mnn"] == one["onnxruntime-graph"] != one["narrow"] for one in models), "others share theirs"
    assert {len(graphs) for graphs in drawn} == {2}
    narrow = {op for target, case in seen if target == "narrow" for op in _ops(case)}
    assert narrow <= {"Add", "Relu", "Constant"}, f"models of {narrow} are not for it"


def test_without_steering_what_was_refused_changes_no_case(tmp_path):
    plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3, steer=False)
    shard, steered = (Shard(replace(plan, steer=steer), None, stopping=lambda: True) for steer in (False, True))
    for _ in range(TIMES):
        for each in (shard, steered):
            each.drawing.refused_for(small(NEG), 0, refused("Not Support: ONNX::Neg"))
    cases = [shard.drawing.case(index, 0) for index in range(40)]
    assert [case.digest for case in cases] == [bulk.case(3, index).digest for index in range(40)]
    held = sum("Neg" in _ops(steered.drawing.case(index, 0)) for index in range(100))
    assert held <= sum("Neg" in _ops(bulk.case(3, index)) for index in range(100)) // 4


def test_what_somebody_asks_for_is_drawn_though_it_was_refused_and_other_operators_are_not(tmp_path):
    plan = Plan(targets=("mnn",), corpus=tmp_path / "none", report=tmp_path, seed=3, focus=("Neg",))
    shard = Shard(plan, None, stopping=lambda: True)
    for _ in range(TIMES):
        for node in (NEG, EXP):
            shard.drawing.refused_for(small(node), 0, refused(f"Not Support: ONNX::{node.op_type}"))
    held = [_ops(shard.drawing.case(index, 0)) for index in range(60)]
    assert sum("Neg" in ops for ops in held) > 50, "Neg was asked for"
    assert sum("Exp" in ops for ops in held) <= 2


def test_forms_are_those_of_the_bytes_of_a_graph_whatever_it_is_fed():
    """So that a shard tells them once for all cases of an index that have the same bytes."""
    for case in (bulk.case(3, index) for index in range(60)):
        other = case.fed([{name: np.zeros_like(x) for name, x in feed.items()} for feed in reversed(case.runs)])
        told, again = (forms_of(one, host_of(one)) for one in (case, other))
        assert told == again, f"{case}: {set(told) ^ set(again)}"


def test_the_forms_of_one_graph_are_told_once_for_all_cases_of_an_index(tmp_path, monkeypatch):
    told = list[bytes]()
    monkeypatch.setattr("driftnet.campaign.drawing.forms_of", lambda case, host: told.append(case.model) or {})
    monkeypatch.setattr("driftnet.campaign.shard.examine", lambda *given, **more: Examination(RAN))
    monkeypatch.setattr("driftnet.campaign.shard.insensitive", lambda case, reference: False)
    monkeypatch.setattr("driftnet.campaign.drawing.variant", lambda case, one, choice: case)
    shard = Shard(Plan(targets=("mnn",), corpus=tmp_path, report=tmp_path), _Idle(), stopping=lambda: False)
    events = list(shard.run(0, 4))
    assert len(events) == 5, f"{events}: should be 4 cases and that they are done"
    assert len(told) == len(set(told)) > 0, f"{len(told)} times for {len(set(told))} graphs"


def _ops(case):
    return {node.op_type for node in case.proto.graph.node}


class _Idle:
    """A runner that nobody asks to run anything."""

    all_cpu_seconds, network_isolated, reference = 0.0, True, None


def test_what_a_release_is_known_to_refuse_is_refused_from_the_start_until_it_is_seen_to_run(tmp_path):
    kept = tmp_path / "toy" / FILE
    kept.parent.mkdir()
    form = ["Neg", "out.0.dtype", ["float", "float"]]
    kept.write_text(json.dumps({"1.0": [["Exp"], form], "2.0": []}), encoding="utf-8")
    refusals = remembered([tmp_path, tmp_path / "none"], "toy", "1.0")
    assert refusals.operators() == {"Exp"}, f"of {kept.read_text()}"
    assert refusals.unwanted(forms(NEG)) == {"Neg"}, f"by its {form}"
    refusals.learn(forms(NEG), RAN)
    assert refusals.unwanted(forms(NEG)) == set(), "it is seen to run now"
    assert not remembered([tmp_path], "toy", "2.0"), "another release refuses other things"


def test_a_shard_draws_without_what_the_release_of_its_target_is_known_to_refuse(tmp_path):
    release = Shard(Plan(targets=("mnn",), corpus=tmp_path, report=tmp_path), None, lambda: True).installed[0].release
    (tmp_path / "mnn").mkdir()
    (tmp_path / "mnn" / FILE).write_text(json.dumps({release: [["Neg"]]}), encoding="utf-8")
    drawing = Shard(Plan(targets=("mnn",), corpus=tmp_path, report=tmp_path), None, lambda: True).drawing
    assert drawing.refusals[0].operators() >= {"Neg"}, f"{FILE} says so of {release}"


WRONG = [
    '[["Neg", "out.0.dtype"]]',
    '[["Negg"]]',
    "[[]]",
    '[["Neg", 3, "x"]]',
    '[["graph input"]]',
    '["Neg"]',
    '[[["Neg"]]]',
]


@pytest.mark.parametrize("text", ["{", "[]", '{"1.0": [1]}', '{"1.0": 3}', *(f'{{"1.0": {form}}}' for form in WRONG)])
def test_a_file_that_does_not_say_what_is_refused_is_an_error_of_whoever_wrote_it(tmp_path, text):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="does not say what is refused"):
        remembered([tmp_path], "toy", "1.0")


def test_a_graph_that_is_drawn_without_an_operator_is_around_what_is_sought_unless_that_is_of_it(tmp_path, monkeypatch):
    drawing = Shard(Plan(targets=("mnn",), corpus=tmp_path, report=tmp_path), None, lambda: True).drawing
    told = list[Form | None]()

    def drawn(index, favoured, profile, leave_out=frozenset(), sought=None):
        told.append(sought)
        return small(NEG)

    sought = Form("Neg", "type", "float32")
    monkeypatch.setattr(drawing, "sought", lambda index, favoured: sought)
    monkeypatch.setattr(drawing, "case", drawn)
    models = Models(drawing, 0)
    models.leave_out(0, {"Exp"})
    models.leave_out(0, {"Neg"})
    assert told == [sought, sought, None], f"around {told}: the first graph, that without Exp, that without Neg too"


def test_an_operator_that_breaks_a_conversion_by_itself_is_not_refused_for_the_refusals_of_another_form():
    cast = [helper.make_node("Cast", ["x"], ["y"], to=to) for to in (1, 10)]
    refusals = Refusals()
    refusals.learn(forms(cast[0]), Verdict(Word.CRASHES, stage="convert"))
    for _ in range(TIMES):
        refusals.learn(forms(cast[1]), refused("Not Support: ONNX::Cast"))
    assert refusals.operators() == set(), "it breaks, so it is no operator that is refused"
    told = refusals.unwanted(forms(cast[0])), refusals.unwanted(forms(cast[1]))
    assert told == (set(), {"Cast"}), f"unwanted are {told}: should be only the form that was refused"


def test_what_a_target_refuses_is_learned_from_nothing_into_a_folder_of_its_own(tmp_path, monkeypatch):
    """Toys: one that refuses all it is asked; and the same where the graphs that are to confirm a form run."""
    target, corpus = "tests.support.toy_target:REFUSING", tmp_path / "corpus"
    found = learn(target, 4, 1, corpus)
    kept = corpus / "toy" / FILE
    ((release, forms),) = json.loads(kept.read_text(encoding="utf-8")).items()
    assert len(forms) == found > 0, f"{found} forms are told, these are written: {forms}"
    kept.write_text(json.dumps({release: [["Neg"]]}), encoding="utf-8")
    monkeypatch.setattr("tests.support.refusals.look", lambda trial: RAN)
    assert learn(target, 4, 1, corpus) == 0, f"nothing is confirmed, and what stood there is no evidence: {kept}"
