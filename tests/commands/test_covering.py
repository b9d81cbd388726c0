"""`driftnet coverage` tells the same of a run and of the state that grew by it, and adds nothing up twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from driftnet import api
from driftnet.campaign import coverage
from driftnet.campaign.plan import Plan
from driftnet.cli.main import driftnet
from driftnet.util.errors import UserError

QUANT = "onnxruntime-quant"


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Path:
    """A folder with two nights of one state: `one`, `two`, `state`, and the state after the first, `before`."""
    folder = tmp_path_factory.mktemp("nights")
    for seed, name in enumerate(("one", "two")):
        plan = Plan(report=folder / name, corpus=folder, state=folder / "state", targets=[QUANT], cases=8, seed=seed)
        api.fuzz(plan)
        if name == "one":
            (folder / "before").mkdir()
            for file in ("state.json", "coverage.json"):
                (folder / "before" / file).write_bytes((folder / "state" / file).read_bytes())
    return folder


def cases(folder: Path) -> dict[str, int]:
    (told,) = api.coverage([folder])["targets"]
    return {one["operator"]: one["cases"] for one in told["operators"]}


def test_a_state_holds_what_its_nights_asked_and_grows(nights):
    one, two, state = (cases(nights / name) for name in ("one", "two", "state"))
    assert sum(one.values()) > 8, "a case counts for each of its operators"
    assert state == {name: one[name] + two[name] for name in state}
    assert cases(nights / "before") == one
    sought = [cell for cell in coverage.load(nights / "state") if cell[-1] == coverage.SOUGHT]
    assert sought, "nothing of what these nights drew was drawn because it was never asked"


def test_a_night_that_was_killed_and_goes_on_adds_all_it_asked_once(nights, tmp_path):
    shutil.copytree(nights, tmp_path, dirs_exist_ok=True)
    state, run = tmp_path / "state", tmp_path / "two"
    shutil.copy(tmp_path / "before" / coverage.FILE, state)  # as a SIGKILL leaves it
    plan = Plan(report=run, corpus=tmp_path, state=state, targets=[QUANT], cases=4, seed=1, resume=True)
    api.fuzz(plan)
    assert sum(cases(run).values()) > sum(cases(nights / "two").values()), "it did not go on"
    whole = coverage.load(tmp_path / "before") + coverage.asked(run)
    assert coverage.load(state) == whole
    coverage.take(state, run)
    assert coverage.load(state) == whole, "what was added is added again"
    api.fuzz(plan)
    assert coverage.load(state) == coverage.load(tmp_path / "before") + coverage.asked(run) > whole


def test_merging_takes_the_larger_count_however_often(nights):
    before, state = coverage.load(nights / "before"), coverage.load(nights / "state")
    for _ in range(2):
        api.merge_states(nights / "before", [nights / "state"])
        assert coverage.load(nights / "before") == before | state == state


def test_what_was_never_asked_stands_beside_what_was(nights):
    (told,) = api.coverage([nights / "state"])["targets"]
    for one in told["operators"]:
        lacking = sum(len(values) for trait, values in one["never"].items() if not trait.startswith("recipe."))
        assert one["forms"] + lacking == one["possible"], f"{one['operator']}: {one}"
        assert one["cases"] == sum(one["judged"].values())
    assert told["never"] == [one["operator"] for one in told["operators"] if not one["cases"]]
    assert told["never"], "eight cases hold every operator there is"
    options = {trait for one in told["operators"] for trait in one["never"] if trait.startswith("recipe.")}
    assert "recipe.quantize" in options, "no operator lacks a method of quantization"


def test_the_command_writes_a_page_and_says_what_is_wrong_with_a_folder(nights, tmp_path):
    words = ["coverage", str(nights / "state"), "--operator", "Conv", "--operator", "Relu", "--out", str(tmp_path)]
    done = CliRunner().invoke(driftnet, [*words, "--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
    (target,) = json.loads(done.stdout)["targets"]
    assert [one["operator"] for one in target["operators"]] == ["Conv", "Relu"]
    assert QUANT in (tmp_path / "coverage.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="neither a run nor a state"):
        api.coverage([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="nothing was asked of mnn"):
        api.coverage([nights / "state"], targets=["mnn"])
    with pytest.raises(UserError, match="Frobnicate is not generated"):
        api.coverage([nights / "state"], operators=["Frobnicate"])
