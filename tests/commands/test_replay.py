"""Confirming a failure, and replaying it: what must be seen again, and where."""

import sys

import pytest
from driftnet import api
from driftnet.commands.saved import is_elsewhere
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, confirm, watch
from driftnet.targets.environments import Installed, resolve
from driftnet.util.machine import description

from tests.findings.test_corpus import saved_relu
from tests.support import models, mutants


def test_a_failure_is_confirmed_in_workers_that_share_no_template(runner):
    installed = Installed(mutants.DEPENDS_ON_LAYOUT, "tests.support.mutants:DEPENDS_ON_LAYOUT", "1", sys.executable)
    verdict, reproduced = confirm(Trial(models.relu(), installed, {}, runner))
    assert (reproduced, verdict.kind) == (CONFIRMING_RUNS, "nondeterministic"), "every worker had one memory layout"


@pytest.mark.parametrize(
    ("machine", "release", "answers", "elsewhere"),
    [
        (description(), "1", {"same"}, False),
        (description(), "1", {"same", "another"}, False),
        (description(), "1", {"another"}, True),
        (description(), "2", {"another"}, False),
        ({"cpu_features": ["of", "another", "machine"]}, "1", {"same"}, True),
    ],
    ids=["as saved", "once as saved", "another answer", "another release", "another CPU"],
)
def test_where_a_case_was_seen_is_told_by_the_cpu_and_by_the_answer_of_a_release_that_showed_it(
    machine, release, answers, elsewhere
):
    assert is_elsewhere(saved_relu(machine=machine, seen=("1",), answer="same"), release, answers) is elsewhere


@pytest.mark.parametrize(("answered", "as_expected"), [("as saved", False), ("otherwise", True), ("", False)])
def test_an_open_case_must_reproduce_unless_the_target_answers_otherwise_than_when_it_was_saved(
    runner, answered, as_expected
):
    mnn, case = resolve("mnn"), models.relu()
    answer = watch(Trial(case, mnn, {}, runner))[1].digest if answered == "as saved" else answered
    saved = saved_relu(recipe={}, machine=description(), seen=(mnn.release,), answer=answer)
    result = api.replay_one(saved, "", 1, runner)
    assert (result["outcome"], result["as_expected"]) == ("agrees", as_expected)
