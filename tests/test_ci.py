"""The scripts of the jobs of CI, with a driftnet that tells what it was asked, and a branch in a bare repository."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

RECORDING = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["ASKED"], "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
sys.exit(json.loads(os.environ["STATUSES"]).get(sys.argv[1], 0))
"""


def script(name, *words, folder, **variables):
    """The process that `.ci/NAME` was, run in `folder`, which is its home, with no other variable than PATH."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    environment |= {name: str(value) for name, value in variables.items()}
    command = [ROOT / ".ci" / name, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def job(tmp_path):
    """The exit status of a job, and what it asks of a driftnet that ends with these statuses."""
    command, asked = tmp_path / "recording", tmp_path / "asked"
    command.write_text(RECORDING)
    command.chmod(0o755)

    def run(statuses=(), **variables):
        asked.write_text("")
        told = {"ASKED": asked, "STATUSES": json.dumps(dict(statuses)), "DRIFTNET": command}
        done = script("job", folder=tmp_path, **told, **variables)
        return done, [json.loads(line) for line in asked.read_text().splitlines()]

    return run


def words_of(asked, command):
    return next((words for words in asked if words[0] == command), [])


def test_a_pull_request_replays_and_then_fuzzes_on_a_copy_of_the_state(job, tmp_path):
    (tmp_path / "cases").mkdir()
    _, asked = job(MODE="pull-request", MINUTES="5", CORPUS="cases", TARGET="mnn openvino")
    fuzz = words_of(asked, "fuzz")
    state = fuzz[fuzz.index("--state") + 1]
    assert asked[:2] == [["replay", "cases", "--target", name, "--budget", "150"] for name in ("mnn", "openvino")], (
        "saved cases come first, on the targets of the job, and share its minutes"
    )
    assert {"--only-new", "--target=mnn", "--target=openvino", "--corpus=cases"} <= set(fuzz)
    assert state != "driftnet-state", "the state itself was worked on"
    assert not os.path.exists(state), f"the copy {state} stayed behind"


@pytest.mark.parametrize(
    ("replay", "fuzz", "status"),
    [(0, 0, 0), (3, 0, 0), (0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 0, 2), (1, 124, 2), (137, 1, 2), (3, 1, 1)],
)
def test_a_pull_request_ends_with_the_worse_of_both_statuses(job, tmp_path, replay, fuzz, status):
    (tmp_path / "cases").mkdir()
    done, _ = job({"replay": replay, "fuzz": fuzz}, MODE="pull-request", CORPUS="cases")
    assert done.returncode == status


@pytest.mark.parametrize(("mode", "command"), [("nightly", "fuzz"), ("weekly", "bisect")])
def test_a_job_ends_with_a_status_of_driftnet_whatever_ended_a_step(job, mode, command):
    assert [job({command: status}, MODE=mode)[0].returncode for status in (0, 1, 2, 3, 124, 137)] == [0, 1, 2, 3, 2, 2]
    assert "fuzz ended with 124; 124 is that it took too long" in job({"fuzz": 124}, MODE="nightly")[0].stderr


def test_a_job_without_a_state_warns_that_nothing_is_known(job, tmp_path):
    assert "no state in 'driftnet-state'" in job(MODE="nightly")[0].stderr
    (tmp_path / "driftnet-state" / "state.json").write_text("{}")
    assert "no state" not in job(MODE="nightly")[0].stderr


def test_a_night_goes_on_with_the_state_and_tells_the_status(job, tmp_path):
    done, asked = job({"fuzz": 3}, MODE="nightly", MINUTES="60")
    assert done.returncode == 3
    assert asked == [
        ["fuzz", "--minutes", "60", "--target=mnn", "--report", "driftnet-report", "--state", "driftnet-state"]
    ]
    assert (tmp_path / "driftnet-state" / "cases").is_dir(), "the state was not begun"


def test_a_week_bisects_what_nights_found_and_shares_its_minutes(job):
    _, asked = job(MODE="weekly", MINUTES="60", TARGET="mnn==3.4.1 openvino")
    rest = ["--corpus", "driftnet-state/cases", "--budget", "1800"]
    assert asked == [["bisect", "--all", "--target", name, *rest] for name in ("mnn", "openvino")]


def test_targets_may_be_lines_and_one_of_two_releases_is_bisected_once(job):
    _, asked = job(MODE="weekly", MINUTES="60", TARGET="mnn==3.4.1\nopenvino mnn==3.6.1\n")
    assert [(words[3], words[-1]) for words in asked] == [("mnn", "1800"), ("openvino", "1800")]


@pytest.mark.parametrize(
    "wrong", [{"TARGET": " "}, {"MODE": "daily"}, {"MINUTES": "5m"}, {"MINUTES": "0"}, {"CORPUS": "nowhere"}]
)
def test_a_job_that_cannot_be_is_refused_before_anything_is_run(job, wrong):
    done, asked = job(**{"MODE": "nightly"} | wrong)
    assert (done.returncode, asked) == (2, [])
    assert f"not '{wrong.get(*wrong)}'" in done.stderr or "there is no 'nowhere'" in done.stderr


@pytest.fixture
def branch(tmp_path):
    """Runs .ci/state with a bare repository as remote."""
    remote, command = tmp_path / "remote.git", tmp_path / "driftnet"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m driftnet.cli.main "$@"\n')
    command.chmod(0o755)

    def run(word, **variables):
        told = {"REMOTE": remote, "DRIFTNET": command, "BRANCH": "nights"} | variables
        return script("state", word, folder=tmp_path, **told)

    return run


def night(state, id):
    """Write a state that knows of one night."""
    (state / "cases").mkdir(parents=True)
    text = {"schema": 1, "nights": {id: {"begun": "2026-11-23T02:17:00+00:00", "seed": 1}}, "causes": {}}
    (state / "state.json").write_text(json.dumps(text))


def nights(state):
    return set(json.loads((state / "state.json").read_text())["nights"])


def test_a_state_that_jobs_save_beside_each_other_on_a_branch_has_what_both_know(branch, tmp_path):
    night(tmp_path / "one", "a")
    night(tmp_path / "other", "b")
    (tmp_path / "one" / "lock").write_text("held")
    saved = [branch("save", STATE=name) for name in ("one", "other", "other")]
    restored = branch("restore", STATE="again")
    assert [done.returncode for done in (*saved, restored)] == [0, 0, 0, 0], [done.stderr for done in saved]
    assert "nothing changed" in saved[2].stdout
    assert nights(tmp_path / "again") == {"a", "b"}
    assert not (tmp_path / "again" / "lock").exists(), "the lock of a job is nothing to keep"
    assert not (tmp_path / "again" / ".git").exists()


def test_a_state_is_on_the_branch_of_that_very_name_wherever_the_remote_is_and_whoever_signs(branch, tmp_path):
    (tmp_path / ".gitconfig").write_text("[commit]\ngpgsign = true\n[gpg]\nprogram = false\n")
    night(tmp_path / "one", "a")
    night(tmp_path / "other", "b")
    saved = [branch("save", STATE="other", BRANCH="old/nights"), branch("save", STATE="one", REMOTE="remote.git")]
    restored = branch("restore", STATE="again", REMOTE="remote.git")
    assert [done.returncode for done in (*saved, restored)] == [0, 0, 0], [done.stderr for done in (*saved, restored)]
    assert nights(tmp_path / "again") == {"a"}


def test_a_branch_that_there_is_not_yet_is_no_state_and_one_that_cannot_be_read_is_an_error(branch, tmp_path):
    first, unreadable = branch("restore", STATE="first"), branch("restore", STATE="second", REMOTE=tmp_path / "nowhere")
    assert (first.returncode, list((tmp_path / "first").iterdir())) == (0, [])
    assert (unreadable.returncode, (tmp_path / "second").exists()) == (2, False)
    assert "announced again" in unreadable.stderr
