"""likeness: known means the same cause; what only looks like it is told with the reason."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.diagnosis import likeness
from driftnet.diagnosis.attribution import MODEL, Remedy, frozen, under
from driftnet.diagnosis.check import check
from driftnet.diagnosis.likeness import unlike
from driftnet.findings import corpus
from driftnet.findings.issues import KnownIssue
from driftnet.findings.known import Explanation
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial
from driftnet.model.inspect import graph_inputs
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Verdict, Word
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.support.checking import put
from tests.support.localization import FLOAT
from tests.support.paths import saved_case

ERF = "tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant"
RIGHT = Verdict(Word.AGREES)
WRONG = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES, output="y")
UNFUSED = Remedy("optimize_level", 0, "convert")
PLAIN = Remedy("quantize", "none", "quantize")
KL = {"quantize": "offline"}


def erf():
    node = helper.make_node("Erf", ["x"], ["y"], name="erf")
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    return models.case([node], {"x": x}, outputs=[("y", TensorProto.FLOAT, (8,))])


def issue_of(case, verdict, target="mnn"):
    saved = corpus.SavedCase("test_known", case, (), target, {}, f"{target}/execute/{verdict.kind}", "", verdict)
    return KnownIssue(saved)


def test_what_is_reduced_to_a_saved_case_is_that_whatever_it_was_recognized_as(runner, monkeypatch):
    """Of merged cases that are not kept only the name is left: offline calibration ends at a bool."""
    merged, other = (KnownIssue(corpus.load(saved_case(digits))) for digits in ("442ee623", "a909caa6"))
    assert "test_mnn_quantize_crash_not_bfecfd84" in merged.names
    node = helper.make_node("Not", ["x"], ["y"])
    case = models.case([node], {"x": np.array([False])}, outputs=[("y", TensorProto.BOOL, (1,))])

    def recognized(trial, known_issues=(), **more):
        return replace(examine(trial, **more), known=other.id if known_issues else "")

    put(monkeypatch, "examine", recognized)
    (diagnosis,) = check(Trial(case, resolve("mnn"), KL, runner), [other, merged]).diagnoses
    assert (diagnosis.examination.known, diagnosis.unlike) == (merged.id, "")


def test_an_infinite_scale_is_known_by_the_cause_of_that_and_not_by_another_at_the_same_operator(runner):
    """The case of the one fails only where data movement is quantized too; that of the other is an Add as well."""
    scales, adds = (KnownIssue(corpus.load(saved_case(digits))) for digits in ("647b97dd", "bd916636"))
    node = helper.make_node("Add", ["x", "mask"], ["y"])
    feed, constants = {"x": np.array([0.5, 1], np.float32)}, {"mask": np.array([0, -np.inf], np.float32)}
    case = models.case([node], feed, constants, outputs=[("y", TensorProto.FLOAT, (2,))])
    (diagnosis,) = check(Trial(case, resolve("onnxruntime-quant"), {}, runner), [adds, scales]).diagnoses
    assert (diagnosis.known, diagnosis.unlike) == (scales.id, "")


@pytest.mark.parametrize(
    ("recipe", "ours", "theirs", "reason"),
    [
        ({}, [], [], ""),
        ({}, [UNFUSED], [UNFUSED], ""),
        ({}, [UNFUSED], [], "optimize_level=0 mends this, but not that"),
        ({}, [], [UNFUSED], "optimize_level=0 mends that, but not this"),
        (KL, [Remedy("method", "EMA", "quantize")], [], ""),
        (KL, [PLAIN], [], "quantize=none mends this, but not that"),
    ],
)
def test_known_is_what_the_same_options_mend(runner, monkeypatch, recipe, ours, theirs, reason):
    """Another method of calibration gives other numbers, which may happen to be right: that says nothing."""
    own, known = (Trial(models.relu(), resolve("mnn"), recipe, runner) for _ in range(2))
    known = replace(known, case=erf())
    issue = issue_of(known.case, WRONG)
    right = [under(own, cure) for cure in ours] + [under(known, cure) for cure in theirs]

    def watch(trial):
        mended = any(one.case is trial.case and one.recipe == trial.recipe for one in right)
        return RIGHT if mended else WRONG, Observation(())

    monkeypatch.setattr(likeness, "explanation", lambda *args: Explanation((issue,), None))
    assert unlike(own, issue.id, [issue], ours, watch) == reason


def test_a_case_that_does_not_fail_under_the_recipe_of_the_model_is_not_what_is_behind_it(runner, monkeypatch):
    own = Trial(models.relu(), resolve("mnn"), FLOAT, runner)
    issue = issue_of(erf(), WRONG)
    monkeypatch.setattr(likeness, "explanation", lambda *args: Explanation((issue,), None))

    def watch(trial):
        return WRONG if trial.case is own.case else RIGHT, Observation(())

    assert unlike(own, issue.id, [issue], (), watch) == "its case does not fail so under this recipe"


def test_what_the_reduced_case_does_not_show_is_not_behind_it(runner):
    """It shows something else: an Erf that was saved is no reason why a Relu fails."""
    own, issue = Trial(models.relu(), resolve("mnn"), {}, runner), issue_of(erf(), WRONG)
    seen = Observation((StageRun("execute", Outcome.OK),))
    said = unlike(own, issue.id, [issue], (), lambda trial: (WRONG, seen))
    assert said == "the reduced case does not show it"


def symbolic_lstm():
    shapes = {"w": (1, 4, 1), "r": (1, 4, 1), "h": (1, 1, 1), "c": (1, 1, 1)}
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["all", "last", "y"], name="lstm", hidden_size=1)
    outputs = [("y", TensorProto.FLOAT, (1, 1, 1))]
    case = models.case([node], {"x": np.zeros((2, 1, 1), np.float32)}, weights, outputs=outputs)
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "length"
    return replace(case, model=model.SerializeToString())


def test_an_lstm_of_symbolic_length_is_right_with_frozen_dims_and_not_the_rnn_that_is_known(runner):
    known = KnownIssue(corpus.load(saved_case("1cf2de2e")))
    checked = check(Trial(symbolic_lstm(), resolve("mnn"), {}, runner), [known])
    (diagnosis,) = checked.diagnoses
    assert (MODEL, "symbolic dims frozen") in {(r.option, r.value) for r in diagnosis.remedies}, diagnosis.remedies
    assert (checked.known, diagnosis.looks_like) == ("", known.id), diagnosis.unlike
    assert diagnosis.examination.finding is not None, "the model's own case should be reduced"


def test_wrong_shapes_are_told_apart_by_rank_and_axis(runner, monkeypatch):
    own = Trial(symbolic_lstm(), resolve("mnn"), {}, runner)
    wrong = replace(WRONG, kind=Kind.WRONG_SHAPE)
    issue = issue_of(erf(), wrong)
    monkeypatch.setattr(likeness, "explanation", lambda *args: Explanation((issue,), None))

    def watch(trial):
        made = np.zeros((1, 2, 3) if trial.case is own.case else (1, 8))
        return wrong, Observation((), ({"y": made},))

    said = unlike(own, issue.id, [issue], (), watch)
    assert said == "its shape is rank 2 in the place of 1, this one of rank 3, wrong in axis 1 and 2"


def test_frozen_dims_are_those_of_the_inputs(runner):
    trial = Trial(symbolic_lstm(), resolve("mnn"), {}, runner)
    (value,) = graph_inputs(frozen(trial).case.proto)
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 1, 1]
    fixed = replace(trial, case=models.relu())
    assert frozen(fixed) is fixed, "there is nothing to freeze"


def test_a_known_fault_is_reduced_and_handed_over_all_the_same_with_the_note_of_the_known_one(runner, tmp_path):
    found = examine(Trial(erf(), resolve(ERF), FLOAT, runner)).finding
    corpus.save(replace(found.to_save(), note="Erf is approximated"), tmp_path / "corpus")
    model = tmp_path / "erf.onnx"
    model.write_bytes(erf().model)
    settings = api.CheckSettings(
        targets=[ERF], options={"quantize": "none"}, corpus=tmp_path / "corpus", out=tmp_path / "out"
    )
    (result,) = json.loads(json.dumps(api.check(model, settings)))["targets"]
    (fault,) = result["faults"]
    said = (fault["known"], fault["looks_like"], fault["note"])
    assert said == (found.to_save().id, "", "Erf is approximated")
    assert corpus.load(result["reduced"]["path"]).target == found.installed.target.name
    assert fault["reduced"]["nodes"] == 1
