"""What ends its process, or never ends, ends a fork: this one goes on, and says what became of it."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from driftnet.util import apart as room
from driftnet.util.apart import apart, at_risk, cpu_seconds, tried
from driftnet.util.errors import UserError
from driftnet.util.limits import ExceededError, bounded

from tests.support.deeds import crash, spin, spin_in_c, swell


@pytest.mark.parametrize(
    ("work", "seconds", "says"),
    [
        (crash, 9, "its process down .SIGSEGV."),
        (os.abort, 9, "its process down .SIGABRT."),
        (lambda: os._exit(3), 9, "its process down .exit status 3."),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 9, "its process down .SIGKILL."),
        (spin, 0.2, "more than 0.2 s of CPU time"),
        (spin_in_c, 0.2, "more than 0.2 s of CPU time"),
        (swell, 9, "more than 64 MiB of memory"),
        (lambda: time.sleep(99), 0.2, "more than 6 s"),
    ],
    ids=["crash", "abort", "exit", "kill", "loop", "loop in C", "memory", "sleep"],
)
def test_what_ends_or_holds_up_its_process_is_named(work, seconds, says, monkeypatch):
    before, fork, forks = resource.getrlimit(resource.RLIMIT_AS), os.fork, []
    monkeypatch.setattr(os, "fork", lambda: forks.append(fork()) or forks[-1])
    with pytest.raises(ExceededError, match=says):
        apart(lambda ask: work() or b"", seconds=seconds, mib=64)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(forks[0], os.WNOHANG)  # it is not left; other tests may have children


def test_work_whose_fork_is_killed_is_done_by_another(tmp_path):
    def work(ask):
        if not (begun := tmp_path / "begun").exists():
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(b"again")

    assert apart(work, seconds=9, mib=64, answer=bytearray.upper) == b"AGAIN"


def test_a_fork_that_says_too_much_is_ended_and_does_not_work_again(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "MOST_SAID", 1000)

    def work(ask):
        (tmp_path / str(os.getpid())).touch()
        return bytes(1001)

    with pytest.raises(ExceededError, match="a message of 1001 bytes"):
        apart(work, seconds=9, mib=64)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_keeps_its_questions_from_being_answered_is_raised():
    def answer(said):
        raise OSError(24, "Too many open files")

    with pytest.raises(OSError, match="Too many open files"):
        apart(lambda ask: ask(b"2"), seconds=9, mib=64, answer=answer)


def test_what_it_gives_comes_back_and_what_it_asks_is_answered():
    def work(ask):
        return ask(b"2") + ask(b"3" * 2**20)

    assert apart(work, seconds=9, mib=64, answer=lambda said: said * 2) == b"22" + b"3" * 2**21


def test_what_is_said_in_parts_is_heard_whole_and_never_held_twice():
    large = bytes(range(256)) * 2**17

    def work(ask):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before = peak_mib()
        heard = ask([b"a", memoryview(large), b"z"])
        return b"%d %d" % (peak_mib() - before, heard == b"A" + large + b"Z")

    def answer(said):
        return [said[:1].upper(), memoryview(said)[1:-1], said[-1:].upper()]

    more, right = map(int, apart(work, seconds=9, mib=128, answer=answer).split())
    assert right
    assert more < 1.5 * len(large) / 2**20, f"an answer of {len(large) / 2**20:.0f} MiB took {more}"


def peak_mib():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def test_what_it_raises_is_told_with_its_traceback():
    with pytest.raises(RuntimeError, match="KeyError: 'here'"):
        apart(lambda ask: {}["here"], seconds=9, mib=64)


def test_its_time_counts():
    before = cpu_seconds()
    with pytest.raises(ExceededError):
        apart(lambda ask: spin(), seconds=0.3, mib=64)
    assert cpu_seconds() - before > 0.1


def test_it_has_limits_of_its_own_inside_bounded_work():
    room_for_more = lambda ask: bytes(np.ones(2**20).nbytes >> 20)
    assert bounded(lambda: apart(room_for_more, seconds=9, mib=256), seconds=9, mib=4) == bytes(8)


@pytest.mark.parametrize("trusting", [True, False])
def test_what_is_tried_in_place_is_small_and_of_a_process_that_trusts_it(trusting):
    with room.trusting(trusting):
        assert tried(lambda: "here", lambda: "there") == ("here" if trusting else "there")
        assert tried(lambda: np.ones(2**25), lambda: "there") == "there"
    assert not room.trusts(), "trust outlives what it was for"


def test_an_endless_loop_in_c_that_is_tried_in_place_ends_the_process():
    code = "import collections, itertools\nfrom driftnet.util import apart\napart.HOPELESS_SECONDS = 1\n"
    code += "with apart.trusting():\n"
    code += "    apart.tried(lambda: collections.deque(itertools.repeat(0), maxlen=0), lambda: print('there'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == -signal.SIGXCPU


def test_a_fork_does_not_outlive_its_process(tmp_path):
    code = "import os, time\nfrom driftnet.util.apart import apart\n"
    code += "apart(lambda ask: open('pid', 'w').write(str(os.getpid())) and time.sleep(99) or b'', seconds=99, mib=64)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    end = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < end, "the fork has not begun"
        time.sleep(0.01)
    process.kill()
    process.wait()
    pid = int((tmp_path / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end and os.getpgid(pid):
            time.sleep(0.01)
        pytest.fail("the fork goes on")


def test_what_is_at_risk_judges_in_place_and_tells(monkeypatch):
    heard = []

    def work(tell):
        tell("begun")
        return f"{room.trusts()} {tried(os.getpid, lambda: 0) == os.getpid()}".encode()

    assert at_risk(work, heard.append) == b"True True"
    assert heard == ["begun"]
    assert not room.trusts(), "this process trusts too"


@pytest.mark.parametrize("end", [crash, os.abort, lambda: os._exit(0)], ids=["crash", "abort", "exit"])
def test_what_ends_a_process_at_risk_is_none_and_ends_no_other(end):
    assert at_risk(lambda tell: end() or b"", print) is None


def test_what_is_at_risk_raises_what_its_work_does():
    def refuse(tell):
        raise UserError("no", hint="yes", kind="target")

    with pytest.raises(UserError) as refused:
        at_risk(refuse, print)
    assert (refused.value.message, refused.value.hint, refused.value.kind) == ("no", "yes", "target")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        at_risk(lambda tell: bytes(1 // 0), print)


def interrupt(number, frame):
    raise KeyboardInterrupt


@pytest.fixture
def interruptible():
    """SIGTERM interrupts as Ctrl-C does, as it does while a command of driftnet runs."""
    before = signal.signal(signal.SIGTERM, interrupt)
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
    yield
    assert signal.signal(signal.SIGTERM, before) is interrupt, "another handler is left"
    assert signal.signal(signal.SIGINT, ignored) is signal.default_int_handler


INTERRUPTS = {
    "SIGINT": lambda text: os.kill(os.getpid(), signal.SIGINT),
    "SIGTERM": lambda text: os.kill(os.getpid(), signal.SIGTERM),
    "who is told": lambda text: interrupt(0, None),
}


@pytest.mark.parametrize("tell", INTERRUPTS.values(), ids=INTERRUPTS)
def test_an_interrupt_goes_on_to_what_is_at_risk_which_may_keep_what_it_has(tell, interruptible):
    def work(tell, keep):
        try:
            tell("ready")
            time.sleep(60)
        except KeyboardInterrupt:
            if not keep:
                raise
        return b"kept"

    assert at_risk(lambda tell: work(tell, keep=True), tell) == b"kept"
    with pytest.raises(KeyboardInterrupt):
        at_risk(lambda tell: work(tell, keep=False), tell)


def test_an_interrupt_goes_on_where_ctrl_c_is_ignored(interruptible):
    def work(tell):
        with contextlib.suppress(KeyboardInterrupt):
            tell("ready")
            time.sleep(60)
            return b"slept"
        return b"kept"

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert at_risk(work, INTERRUPTS["SIGTERM"]) == b"kept"
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupt_goes_on_while_nothing_is_told(interruptible):
    def work(tell):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(60)
        return bytes(2**20)

    assert at_risk(work, print) == bytes(2**20)


def test_a_signal_that_comes_to_all_processes_interrupts_what_is_at_risk_once(interruptible):
    def work(tell):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            tell("ready")
            time.sleep(60)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGTERM)
        return b"kept"

    assert at_risk(work, INTERRUPTS["SIGTERM"]) == b"kept"


def test_what_is_interrupted_before_its_fork_is_there_is_interrupted_in_it(interruptible, monkeypatch):
    fork, forks = os.fork, []

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        forks.append(fork())
        return forks[-1]

    monkeypatch.setattr(os, "fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        at_risk(lambda tell: time.sleep(60) or b"", print)
    with pytest.raises(ChildProcessError):
        os.waitpid(forks[0], os.WNOHANG)


@pytest.mark.parametrize("end", [os.abort, lambda: time.sleep(60)], ids=["lost", "deaf"])
def test_what_is_interrupted_and_gives_no_answer_is_ended_and_not_done_again(end, interruptible, monkeypatch):
    def work(tell):
        try:
            tell("ready")
            time.sleep(60)
        except KeyboardInterrupt:
            end()
        return b""

    monkeypatch.setattr(room, "LAST_WORDS", 0.3)
    with pytest.raises(KeyboardInterrupt):
        at_risk(work, INTERRUPTS["SIGTERM"])


def test_what_says_too_much_at_risk_is_lost(monkeypatch):
    monkeypatch.setattr(room, "MOST_SAID", 1000)
    assert at_risk(lambda tell: bytes(1001), print) is None
