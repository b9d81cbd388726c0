"""The runner takes whatever a target does for an observation, and leaves nothing behind."""

import os
import re
import resource
import signal
import sys
import tempfile
import threading
from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.model.artifact import UNTOLD
from driftnet.model.verdict import Outcome, Word
from driftnet.oracle.judge import judge
from driftnet.run import runner
from driftnet.run.runner import Runner
from driftnet.run.sandbox.worker import Worker
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES, unquantized
from driftnet.util.errors import UserError

from tests.support import models
from tests.support.sandbox_faults import HOSTILE
from tests.support.toy_target import DAMAGES_FREED

INSTALLED = Installed(HOSTILE, "tests.support.sandbox_faults:HOSTILE", "1", sys.executable)


def observe(runner, deed):
    return runner.observe(models.relu(), INSTALLED, {"deed": deed})


def assert_goes_on(runner):
    __tracebackhide__ = True
    last = observe(runner, "none").last
    assert (last.stage, last.outcome) == ("execute", Outcome.OK), f"the next case ends so: {last}"


def test_a_case_in_which_a_worker_is_killed_is_run_again_in_a_new_folder(runner):
    last = observe(runner, "killed at first").last
    assert (last.stage, last.outcome) == ("execute", Outcome.OK), f"a kill is told as {last}"


def test_a_stage_that_damages_the_heap_and_raises_has_crashed(runner):
    damages = Installed(DAMAGES_FREED, "tests.support.toy_target:DAMAGES_FREED", "1", sys.executable)
    last = runner.observe(models.relu(), damages, {}).last
    ended = (last.stage, last.outcome, last.signal)
    assert ended == ("execute", Outcome.CRASH, "SIGABRT"), f"it is told as {last}"


@pytest.mark.parametrize(
    "deed", ["nul", "long name", "surrogate", "circle of links", "folder", "outside", "out by a link"]
)
def test_a_path_that_is_no_file_of_the_case_is_garbage(runner, deed):
    last = observe(runner, deed).last
    assert (last.stage, last.outcome) == ("convert", Outcome.GARBAGE), f"it is taken for {last}"
    assert_goes_on(runner)


def test_a_stage_that_gives_what_it_is_given_is_asked_of_nobody(runner, monkeypatch):
    plain = replace(INSTALLED, target=replace(HOSTILE, quantize=unquantized))
    asked = []
    call = Worker.call
    monkeypatch.setattr(
        Worker, "call", lambda self, word, *args, **told: [asked.append(word), call(self, word, *args, **told)][1]
    )
    seen = runner.observe(models.relu(), plain, {"deed": "none"})
    assert [(run.stage, run.outcome) for run in seen.stages] == [(stage, Outcome.OK) for stage in STAGES]
    assert [word.rpartition(".")[2] for word in asked] == ["convert", "execute"]


def test_templates_are_not_given_up_before_their_health_is_known(runner, monkeypatch):
    def fail():
        raise UserError("no space", kind="machine")

    monkeypatch.setattr(runner, "check_health", fail)
    with pytest.raises(UserError, match="no space"):
        runner.let_go()


def test_templates_of_several_begin_at_once_and_one_that_does_not_start_says_why_where_it_is_asked_for(tmp_path):
    none = replace(INSTALLED, python=str(tmp_path / "python"))
    with Runner(small_models=True) as runner:
        runner.ready([INSTALLED, none, INSTALLED])
        begun = {zygote.python: zygote._template.pid for zygote in runner._zygotes.values() if zygote.preload}
        assert_goes_on(runner)
        now = {zygote.python: zygote._template.pid for zygote in runner._zygotes.values() if zygote.preload}
        assert now == begun, f"templates are {now}, should be those that were begun: {begun}"
        with pytest.raises(UserError, match="does not start"):
            runner.observe(models.relu(), none, {"deed": "none"})


def test_workers_take_turns_in_two_templates_that_stand():
    started = []
    with Runner(small_models=True) as runner:
        for _ in range(4):
            assert_goes_on(runner)
            started.append({zygote._template.pid for zygote in runner._zygotes.values()})
            runner.turn()
    assert [len(pids) for pids in started] == [2, 3, 3, 3], "the reference has one template, a target two"
    assert started[1] == started[2] == started[3], "a template that stood by was made anew"


def test_a_reference_that_is_wrong_about_the_simplest_model_is_the_machines_fault(runner, monkeypatch):
    runner.check_health()
    monkeypatch.setattr("driftnet.run.runner.CANARY", [[0.0, 0.0, 1.0, 2.5]])
    with pytest.raises(UserError, match="says of the simplest model") as error:
        runner.check_health()
    assert error.value.kind == "machine"


@pytest.mark.parametrize("function", ["probe", "run"])
def test_a_template_killed_while_it_is_asked_for_its_health_is_not_the_machines_fault(runner, monkeypatch, function):
    call, killed = Worker.call, []

    def killed_first(worker, name, *args, **kwargs):
        if name.endswith(f":{function}") and not killed:
            killed.append(name)
            call(worker, "time:time")
            os.kill(worker._process.pid, signal.SIGSTOP)  # it is asked, and does not answer before it dies
            zygote = next(zygote for zygote in runner._zygotes.values() if worker in zygote._workers)
            threading.Timer(0.1, zygote._template.kill).start()
        return call(worker, name, *args, **kwargs)

    monkeypatch.setattr(Worker, "call", killed_first)
    runner.check_health()
    assert killed
    assert_goes_on(runner)


@pytest.mark.parametrize("deed", ["nothing", "file", "pipe", "link", "file in the way"])
def test_a_target_that_replaces_its_folder_harms_no_later_case(runner, deed):
    observe(runner, deed)
    assert_goes_on(runner)
    assert_goes_on(runner)


@pytest.mark.parametrize(
    ("deed", "outcome", "says"),
    [
        ("garbage from inspect", Outcome.GARBAGE, "the model cannot be read"),
        ("crash in inspect", Outcome.CRASH, "ended by SIGSEGV"),
    ],
)
def test_an_inspect_that_fails_is_told_and_the_stages_go_on(runner, deed, outcome, says):
    case = models.relu()
    observation = observe(runner, deed)
    assert [(run.stage, run.outcome) for run in observation.stages][2:] == [("inspect", outcome), ("execute", "ok")]
    assert observation.artifact == UNTOLD, "what it told is taken for an artifact"
    right = replace(observation, outputs=runner.reference.run(case).outputs)
    verdict = judge(case, right, target=HOSTILE, options={"deed": deed}, reference=runner.reference)
    assert (verdict.word, says in verdict.message) == (Word.AGREES, True), f"the verdict does not tell: {verdict}"


ARRAY = np.zeros((2, 4), np.float32)
LAYER = {"name": "y", "result": "y", "weights": ARRAY, "scales": ARRAY[:, :2]}
GRID = {"scale": 0.5, "zero_point": 0, "low": -1.0, "high": 1.0}
OPERATION = {"name": "y", "inputs": ["x"], "outputs": ["y"], "runs": "codes"}
RIGHT = {"layers": [LAYER], "tensors": {"x": GRID}, "operations": [OPERATION], "histogram": {"bins": 9, "least": 2}}


def outside_data():
    """A model that keeps a tensor in a file."""
    model = models.relu().proto
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([1], "the artifact is [1]: expected `object`"),
        ({"model": "text"}, "the artifact.model is 'text': expected `bytes"),
        ({"model": b""}, "no output"),
        ({"model": b"garbage"}, "cannot be read"),
        ({"model": outside_data()}, "another file"),
        ({"layers": 3}, "the artifact.layers is 3: expected `array`"),
        ({"layers": [{}]}, "missing required field `name`"),
        ({"layers": [LAYER | {"weights": ARRAY[0]}]}, "layer 'y'"),
        ({"layers": [LAYER | {"scales": ARRAY[:, :3]}]}, "layer 'y'"),
        ({"tensors": {"x": "a"}}, "the artifact.tensors[...], in {'x': 'a'}: expected `object`"),
        ({"tensors": {"x": GRID | {"scale": True}}}, ".scale, in {'x': {'high': 1.0, 'low': -1.0, 'scale': True"),
        ({"operations": [OPERATION | {"runs": "away"}]}, ".operations[0].runs is 'away': expected one of codes, "),
        ({"operations": [OPERATION | {"outputs": []}]}, "the artifact.operations[0].outputs is []"),
        ({"operations": [OPERATION | {"inputs": [1]}]}, "operations[0].inputs[0] is 1: expected `str`"),
        ({"operations": [OPERATION | {"more": 1}]}, "unknown field `more`"),
        ({"histogram": {"bins": 0, "least": 1}}, "0 bins"),
    ],
)
def test_what_is_no_artifact_is_refused_and_why(told, says):
    assert runner.told(RIGHT, models.relu()).layers, "an artifact is refused"
    with pytest.raises(ValueError, match=re.escape(says)):
        runner.told(told, models.relu())


def test_what_a_target_says_can_be_written_and_names_no_folder_of_the_sandbox(runner):
    last = observe(runner, "surrogate in message").last
    assert (last.outcome, last.message) == (Outcome.ERROR, "w: bad ?, t")
    (last.message + last.log).encode()


def test_a_laboratory_says_whether_it_is_cut_off_from_the_network(runner):
    assert runner.network_isolated is all(zygote.network_isolated for zygote in runner._zygotes.values())
    assert runner._zygotes


def test_a_laboratory_that_cannot_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(runner, "REFERENCE", "no_such_module")
    with pytest.raises(UserError, match="no_such_module"):
        Runner()
    assert list(tmp_path.iterdir()) == [], "a folder is left behind"


def test_an_allowance_is_of_cpu_time_and_ends_in_wall_time_too(monkeypatch):
    with Runner() as runner:
        cpu, wall = 5.0, 100.0
        monkeypatch.setattr("time.monotonic", lambda: wall)
        monkeypatch.setattr("time.process_time", lambda: cpu)
        allowance = runner.allow(10.0)
        cpu, wall = 12.0, 115.0
        assert allowance.left == pytest.approx(3.0), f"{allowance.left} CPU seconds are left of 10, after 7"
        wall = 130.0
        assert allowance.spent, "30 s have passed of an allowance of 10 CPU seconds, and it is not over"
        assert runner.allow(0.0).spent, "nothing was allowed, and it is not spent"


@pytest.mark.parametrize(
    ("which", "value", "says"),
    [
        (resource.RLIMIT_NOFILE, 24, "cannot open 48 files"),
        (resource.RLIMIT_FSIZE, 4096, "cannot write a MiB"),
        (resource.RLIMIT_AS, 1 << 25, "cannot have 64 MiB of memory|does not answer"),
    ],
    ids=["descriptors", "space", "memory"],
)
def test_a_worker_that_cannot_do_what_any_system_asks_for_is_the_machines_fault(which, value, says):
    with Runner(small_models=True) as one:
        one.check_health()
        template = next(iter(one._zygotes.values()))._template.pid
        resource.prlimit(template, which, (value, value))
        with pytest.raises(UserError, match=says) as error:
            one.check_health()
    assert error.value.kind == "machine"
