"""Nights with one state: announced once, fixed when a newer release mends it, nothing lost."""

import json
import shutil
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from driftnet import api
from driftnet.campaign import state as states
from driftnet.campaign.ledger import Ledger, Night, Tracked, announced
from driftnet.campaign.plan import Plan
from driftnet.campaign.summary import Summary, described
from driftnet.causes.impact import Severity
from driftnet.cli.main import driftnet
from driftnet.findings import corpus
from driftnet.util.errors import UserError

from tests.findings.test_corpus import saved_relu
from tests.support.nights import night, promises

PLUG_IN = """
    import shutil
    from importlib import metadata
    from driftnet.targets.interface import StageError, Target

    def preload():
        import onnx, onnxruntime

    def convert(model, folder, options):
        return shutil.copy(model, folder + "/copy.onnx")

    def quantize(artifact, calibration, folder, options):
        return artifact

    def execute(artifact, feeds, outputs, options):
        import onnx, onnxruntime
        model = onnx.load(artifact)
        release = metadata.version("nightly-toy")
        operators = {node.op_type for node in model.graph.node}
        if release in ("1.0", "2.0") and "Sigmoid" in operators:
            raise StageError("no kernel of that name was found in the table")
        negated = release in ("1.0", "3.0")
        made = {name for node in model.graph.node if negated and node.op_type == "Relu" for name in node.output}
        session = onnxruntime.InferenceSession(artifact, providers=["CPUExecutionProvider"])
        found = [dict(zip(outputs, session.run(list(outputs), dict(feed)))) for feed in feeds]
        return [{name: -y if name in made else y for name, y in one.items()} for one in found]

    TARGET = Target("nightly-toy", "nightly-toy", convert, quantize, execute)
"""


def install(folder: Path, release: str) -> None:
    """A plug-in target of this release, where Python finds it."""
    for old in folder.glob("*.dist-info"):
        shutil.rmtree(old)
    (folder / "nightly_toy.py").write_text(textwrap.dedent(PLUG_IN), encoding="utf-8")
    info = folder / f"nightly_toy-{release}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nightly-toy\nVersion: {release}\n", encoding="utf-8")


def changes(told):
    """(what, the operator that it is about)"""
    return sorted((c["what"], c["cause"].split("_")[-2]) for c in told["night"]["changes"])


def test_each_cause_is_new_once_fixed_by_the_release_that_mends_it_and_back_where_it_breaks(tmp_path):
    plug_in, state, told = tmp_path / "plug-in", tmp_path / "state", []
    plug_in.mkdir()
    words = ["--target", "nightly_toy:TARGET", "--focus", "Relu", "--focus", "Sigmoid", "--corpus", str(tmp_path)]
    words += ["--cases", "12", "--workers", "1"]
    for release in ("1.0", "1.0", "2.0", "3.0"):
        install(plug_in, release)
        told.append(night(state, tmp_path / f"night-{len(told) + 1}", *words, path=[plug_in]))
    first, second, third, fourth = told
    assert list(promises(told, state)) == []
    assert sorted(changes(first) + changes(second)) == [("new", "relu"), ("new", "sigmoid")]
    assert changes(third) == [("fixed", "relu")]
    assert changes(fourth) == [("back", "relu"), ("fixed", "sigmoid")]
    assert (third["status"], fourth["status"]) == (3, 1), "red where something is new, back or worse, and only there"
    assert [one["seed"] for one in told] == [0, 1, 2, 3], "each night should draw with a seed of its own"
    (waiting,) = third["night"]["waiting"]
    assert waiting["cause"] in {c["cause"] for c in first["night"]["changes"] + second["night"]["changes"]}
    assert waiting["since"] == states.load(state).nights[first["night"]["id"]].begun[:10]
    page = (Path(third["report"]) / "summary.md").read_text(encoding="utf-8")
    assert f"`{waiting['cause']}`" in page, page


def test_what_a_killed_night_has_found_is_announced_by_the_next(tmp_path):
    state = tmp_path / "state"
    saved = corpus.save(saved_relu(), state / "cases")  # it had no time to write its ledger
    plan = Plan(report=tmp_path / "report", targets=("mnn",), cases=1, corpus=tmp_path / "none", state=state)
    summary = api.fuzz(plan)
    new = [change.cause for change in summary.night.changes if change.what == "new"]
    assert saved.name.removeprefix("test_") in new


def test_states_merge_with_their_cases(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        saved = corpus.save(saved_relu(), tmp_path / name / "cases")
        cause = announced(Tracked("toy", f"{name}", Severity.WRONG), "1.0", f"n{value}")
        states.save(tmp_path / name, Ledger(nights={f"n{value}": Night("2026", value)}, causes={f"c{value}": cause}))
    result = api.merge_states(tmp_path / "both", [tmp_path / "one", tmp_path / "two"])
    assert [cause["id"] for cause in result["causes"]] == ["c1", "c2"]
    assert len(result["nights"]) == 2
    assert (tmp_path / "both" / "cases" / saved.relative_to(tmp_path / "two" / "cases") / "case.json").exists()
    assert api.merge_states(tmp_path / "both", [tmp_path / "two"]) == result


def test_a_state_that_there_is_not_is_a_users_mistake(tmp_path):
    for folder, others in ((tmp_path / "none", []), (tmp_path / "some", [tmp_path / "none"])):
        with pytest.raises(UserError, match="is no state"):
            api.merge_states(folder, others)
    assert not (tmp_path / "some").exists(), "nothing should be made where nothing can be merged"


@pytest.mark.parametrize(
    ("status", "unexplained", "statuses"), [("known", [], (3, 0)), ("new", [], (1, 1)), ("known", [3], (1, 1))]
)
def test_only_new_is_clean_where_only_known_ones_were_met(tmp_path, monkeypatch, status, unexplained, statuses):
    finding = described(saved_relu(), "1", status)
    summary = Summary(seed=0, cases=1, models=1, findings=[finding], unexplained=unexplained)
    monkeypatch.setattr(api, "fuzz", lambda plan, listeners: summary, raising=False)
    words = ["fuzz", "--report", str(tmp_path), "--json"]
    plain, only = (
        CliRunner().invoke(driftnet, [*words, *more], standalone_mode=False) for more in ([], ["--only-new"])
    )
    assert (plain.return_value, only.return_value) == statuses
    assert [f["id"] for f in json.loads(only.stdout)["findings"]] == [finding.id] * (status == "new")
