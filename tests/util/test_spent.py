"""What the CPU time goes into is told by the parts of the work that are open, and all of it is told."""

import time
from types import SimpleNamespace

import pytest
from driftnet.run.sandbox.zygote import Zygote
from driftnet.util import spent
from driftnet.util.spent import OUTSIDE, WIRE, part

FAULTS = "tests.support.sandbox_faults"


@pytest.fixture
def clock(monkeypatch):
    """One that goes on when it is told to."""
    now = SimpleNamespace(seconds=time.process_time())
    monkeypatch.setattr(spent.time, "process_time", lambda: now.seconds)
    spent.take()
    return now


def test_time_goes_to_the_outermost_and_the_innermost_part_that_are_open(clock):
    @part("target")
    def run():
        clock.seconds += 4

    @part("oracle")
    @part("exact")
    def fail():
        clock.seconds += 8
        raise ValueError("one")

    clock.seconds += 1
    with part("explanation"):
        clock.seconds += 2
        with pytest.raises(ValueError, match="one"):
            fail()
        run()
    run()
    told = {name: round(seconds, 6) for name, seconds in spent.take().items() if seconds > 1e-6}
    should = {
        (OUTSIDE, OUTSIDE): 1,
        ("explanation", "explanation"): 2,
        ("explanation", "exact"): 8,
        ("explanation", "target"): 4,
        ("target", "target"): 4,
    }
    assert told == should, f"got {told}, should be {should}"
    again = sum(spent.take().values())
    assert again == 0, f"told once more: {again} s"


def test_what_was_spent_until_it_is_gathered_is_one_part(clock):
    with part("a"), part("b"):
        clock.seconds += 1
    clock.seconds += 2
    spent.gather("starting")
    told = {name: round(seconds, 6) for name, seconds in spent.take().items() if seconds}
    assert told == {("starting", "starting"): 3}, f"got {told}, should be 3 s of starting"


def test_what_a_worker_spends_is_not_the_wire_and_parts_add_up_to_the_whole():
    with Zygote(preload=(FAULTS,)) as zygote:
        worker = zygote.worker()
        worker.call(f"{FAULTS}:burn", 0.0)  # a template tells what it has used when it makes a process
        spent.take()
        own, before = time.process_time(), zygote.cpu_seconds
        with part("why"), part("stage"):
            worker.call(f"{FAULTS}:burn", 0.2)
            worker.renew()
        told = spent.take()
        whole = zygote.cpu_seconds - before + time.process_time() - own
    assert told["why", "stage"] >= 0.2, f"a worker that burned .2 s is told with {told['why', 'stage']:.3f} s"
    wire = told["why", WIRE]
    assert 0 < wire < 0.1, f"to ask it took {wire:.3f} s, should be a little"
    assert abs(sum(told.values()) - whole) < 0.01, f"the parts add up to {sum(told.values()):.3f} s of {whole:.3f}"
