"""A worker can do what it likes: the harness sees it, says what it was, and goes on."""

from __future__ import annotations

import _ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from driftnet.model.verdict import Outcome
from driftnet.run.sandbox import held, inside
from driftnet.run.sandbox import worker as worker_module
from driftnet.run.sandbox.zygote import Limits, Reply, Worker, Zygote
from driftnet.targets import interface
from driftnet.util.errors import UserError

from tests.support.paths import ROOT

FAULTS = "tests.support.sandbox_faults"


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(preload=(FAULTS,), limits=Limits(memory_mib=256, seconds=20.0, file_mib=4)) as made:
        yield made


def call(worker: Worker, name: str, *args: object, timeout: float | None = None) -> Reply:
    return worker.call(f"{FAULTS}:{name}", *args, timeout=timeout)


def assert_outcome(reply: Reply, outcome: Outcome, message: str = "", signal: str = "") -> None:
    __tracebackhide__ = True
    assert reply.outcome is outcome, f"the outcome is {reply.outcome}, should be {outcome} [{reply}]"
    assert message in reply.message, f"the message is {reply.message!r}, should contain {message!r}"
    assert reply.signal == signal, f"the signal is {reply.signal!r}, should be {signal!r}"


def assert_works(worker: Worker) -> None:
    __tracebackhide__ = True
    reply = call(worker, "echo", "still here")
    assert reply.value == "still here", f"the worker does not answer after the fault: {reply}"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends between opening and reading
        return False


def wait_until_gone(*pids: int) -> list[int]:
    """Those of `pids` that are still running after five seconds."""
    end = time.monotonic() + 5
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def test_arrays_and_options_cross_the_pipe_and_come_back(worker: Worker) -> None:
    feed = {"x": np.arange(6, dtype=np.float16).reshape(2, 3), "n": np.array(-3, dtype=np.int64)}
    reply = call(worker, "echo", [feed, {"bits": 8, "method": "KL", "on": True, "scale": None}])
    assert_outcome(reply, Outcome.OK)
    assert np.array_equal(reply.value[0]["x"], feed["x"]), f"x came back as {reply.value[0]['x']}"
    assert reply.value[0]["n"].shape == (), f"a 0-d array came back with shape {reply.value[0]['n'].shape}"
    assert reply.value[1] == {"bits": 8, "method": "KL", "on": True, "scale": None}


def test_a_large_array_crosses_the_pipe(worker: Worker) -> None:
    x = np.arange(3_000_000, dtype=np.float32)
    assert np.array_equal(call(worker, "echo", x).value, x), "an array of 12 MB came back different"


def test_an_argument_that_cannot_cross_is_the_callers_mistake(worker: Worker) -> None:
    with pytest.raises(TypeError, match="set cannot cross the pipe"):
        call(worker, "echo", {1, 2})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raise_value_error", "ValueError: seven is not even"),
        ("recurse", "RecursionError: "),
        ("answer_with_what_cannot_cross", "TypeError: a object cannot cross the pipe"),
        ("no_such_function", "AttributeError: "),
    ],
)
def test_an_exception_is_an_error_with_its_type(worker: Worker, name: str, message: str) -> None:
    assert_outcome(call(worker, name), Outcome.ERROR, message)


def test_a_stage_error_is_an_error_in_the_systems_own_words(worker: Worker) -> None:
    reply = call(worker, "refuse")
    assert_outcome(reply, Outcome.ERROR)
    assert reply.message == "Don't support type Einsum"


def test_an_error_keeps_the_process(worker: Worker) -> None:
    before = call(worker, "pid").value
    call(worker, "raise_value_error")
    assert call(worker, "pid").value == before, "an exception cost the process"


def test_an_error_says_where_it_was_raised(worker: Worker) -> None:
    frames = call(worker, "raise_value_error").frames
    assert frames[0] == "tests/support/sandbox_faults.py raise_value_error", f"the frames are {frames}"
    own = "driftnet/run/sandbox/inside.py _answer"
    assert frames[-1] == own, f"the outermost frame is {frames[-1]}, should be {own}, wherever driftnet is installed"
    assert call(worker, "echo", 1).frames == ()


@pytest.fixture(scope="module")
def holding() -> Iterator[Zygote]:
    with Zygote(preload=(FAULTS,), limits=Limits(seconds=20.0, hold_crashes=True)) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "signal", "inside"),
    [
        ("segfault", "SIGSEGV", "_ctypes string_at"),
        ("speak_and_segfault", "SIGSEGV", "_ctypes string_at"),
        ("segfault_in_a_child", "SIGSEGV", "_ctypes string_at"),
        ("segfault_in_a_thread", "SIGSEGV", "_ctypes string_at"),
        ("abort", "SIGABRT", "libc abort"),
    ],
)
def test_a_crash_that_is_held_says_where_it_was(holding: Zygote, name: str, signal: str, inside: str) -> None:
    worker = holding.worker()
    reply = call(worker, name)
    assert_outcome(reply, Outcome.CRASH, signal=signal)
    assert inside in reply.frames, f"the frames are {reply.frames}, {inside!r} should be one of them"
    assert reply.seconds < 5, f"seeing the crash took {reply.seconds:.1f} s"
    assert_works(worker)


@pytest.fixture
def unwound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[held.Held]]:
    """The crashes that were unwound, of which none is known yet."""
    seen: list[held.Held] = []
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path))
    monkeypatch.setattr(held, "_unwound", lambda crash, *more, by=held._unwound: seen.append(crash) or by(crash, *more))
    held._remembered.cache_clear()
    yield seen
    held._remembered.cache_clear()


def test_a_stack_that_is_known_is_that_of_the_same_crash(
    holding: Zygote, unwound: list[held.Held], tmp_path: Path
) -> None:
    # Once a worker has had several threads, the C library's pause has a frame of its own above the handler's.
    for _ in range(2):
        assert "_ctypes string_at" in call(holding.worker(), "segfault_beside_a_thread").frames
    assert len(unwound) == 1, f"one crash, seen twice, was unwound {len(unwound)} times"
    assert all(held._remembered()), "a stack is known by an instruction, never by nothing"
    kept = tmp_path / held.STACKS
    kept.write_bytes(b'[half a li\n["a", [], "b", ["\xff\xfe"]]\n' + kept.read_bytes())
    held._remembered.cache_clear()
    assert "_ctypes string_at" in call(holding.worker(), "segfault_beside_a_thread").frames
    assert len(unwound) == 1, "what an earlier process has unwound is remembered"


def test_an_instruction_that_others_have_called_before_is_told_by_its_own_callers(
    holding: Zygote, unwound: list[held.Held]
) -> None:
    number, array = (call(holding.worker(), name).frames for name in ("read_a_number", "read_from_an_array"))
    assert number[0] == array[0], "they should crash in the same function"
    assert number != array, f"both are called by {number[1:]}"
    assert [call(holding.worker(), "read_a_number").frames, len(unwound)] == [number, 2]


def test_a_jump_by_a_null_pointer_is_told_by_what_is_returned_to_and_never_unwound(
    holding: Zygote, unwound: list[held.Held]
) -> None:
    frames = call(holding.worker(), "jump_to_nowhere").frames
    assert [frame.split("+")[0] for frame in frames[:1]] == ["_ctypes"], (
        f"the frames are {frames}, _ctypes has called it"
    )
    assert not unwound, f"{len(unwound)} stacks were unwound from where nothing is mapped, which tells nothing"


def test_a_stack_is_known_for_the_builds_of_all_its_modules_wherever_they_are_installed(tmp_path: Path) -> None:
    module = Path(_ctypes.__file__)
    content, again, other = bytearray(module.read_bytes()), tmp_path / "again", tmp_path / "other"
    again.write_bytes(content)
    content[300] ^= 1
    other.write_bytes(content)
    build, same, another = (held._build(str(path)) for path in (module, again, other))
    assert build == same != another
    assert held._builds(os.getpid(), ["_ctypes+0x1"]) == f"_ctypes:{build}"
    assert held._builds(os.getpid(), ["_ctypes+0x1", "nobody's+0x1"]) == "", "of one of them nobody knows the build"


def test_a_stack_through_the_cpp_library_has_builds_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, maps = tmp_path / "libstdc++.so.6.0.33", tmp_path / "maps"
    module.write_bytes(b"a build")
    maps.write_text(f"7f0000000000-7f0000001000 r-xp 00000000 00:00 1 {module}\n")
    opened = open
    monkeypatch.setattr(
        "builtins.open", lambda path, **how: opened(maps if str(path).startswith("/proc") else path, **how)
    )
    builds = held._builds(os.getpid(), ["libstdc+++0xa8e1a"])
    assert builds == f"libstdc++:{held._build(str(module))}", f"got {builds!r}: what throws would be unwound each time"


def test_builds_without_an_id_differ_wherever_a_byte_of_them_does(tmp_path: Path) -> None:
    module, content = tmp_path / "module.so", bytearray(b"\x7fELF" + bytes(2**22))
    builds = set()
    for at in (0, 2**21, 2**22):
        content[at] ^= 1
        module.write_bytes(content)
        os.utime(module, ns=(at, at))
        builds.add(held._build(str(module)))
    assert len(builds) == 3


def test_a_crash_that_is_not_held_has_no_frames(worker: Worker) -> None:
    assert call(worker, "segfault").frames == ()


def test_what_names_no_code_of_the_system_is_no_place() -> None:
    frames = ["libc raise", "libc abort", "libstdc++ std::terminate", "_x std::vector::at", "_x Pool::run", "_x main"]
    assert held.telling(frames) == ("_x Pool::run", "_x main")
    assert held.telling(["python3.11 _PyEval_Vector", "_x+0x12", "_x bool std::operator_1"]) == ("_x+0x12",)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("MNN::Pool::run(std::vector<int, std::allocator<int> > const&) const", "MNN::Pool::run const"),
        ("f(int)::{lambda(A<B>)#1}::operator()(C) const", "f::{lambda#1}::operator() const"),
        ("(anonymous namespace)::g(int)", "{anonymous}::g"),
    ],
)
def test_a_function_is_named_without_its_arguments(symbol: str, name: str) -> None:
    assert held.without_arguments(symbol) == name


@pytest.mark.parametrize(
    ("name", "args", "signal"),
    [
        ("segfault", (), "SIGSEGV"),
        ("abort", (), "SIGABRT"),
        ("signal_itself", (int(signal.SIGFPE),), "SIGFPE"),
        ("signal_itself", (int(signal.SIGILL),), "SIGILL"),
        ("exit_at_once", (3,), "exit-3"),
        ("exit_at_once", (0,), "exit-0"),
        ("exit_politely", (4,), "exit-4"),
        ("interrupt", (), "exit-1"),
        ("start_child_and_segfault", (), "SIGSEGV"),
    ],
)
def test_a_crash_is_an_observation(worker: Worker, name: str, args: tuple[int, ...], signal: str) -> None:
    reply = call(worker, name, *args)
    assert_outcome(reply, Outcome.CRASH, signal=signal)
    assert reply.seconds < 5, f"seeing the crash took {reply.seconds:.1f} s"
    assert_works(worker)


def test_what_was_printed_before_a_crash_is_kept(worker: Worker) -> None:
    log = call(worker, "speak_and_segfault").log
    assert "last words of native code" in log, f"the log is {log!r}"
    assert "last words of Python" in log, f"the log is {log!r}"


@pytest.mark.parametrize("name", ["sleep", "spin_in_native_code"])
def test_a_hang_is_an_observation(worker: Worker, name: str) -> None:
    pid = call(worker, "pid").value
    reply = call(worker, name, timeout=0.2)
    assert_outcome(reply, Outcome.HANG)
    assert 0.2 <= reply.seconds < 5, f"a time limit of .2 s took {reply.seconds:.2f} s"
    assert not is_running(pid), "the hung process is still running"
    assert_works(worker)


def test_what_others_keep_from_its_core_is_no_hang(worker: Worker) -> None:
    reply = call(worker, "work_on_half_a_core", 0.3, timeout=0.4)
    assert_outcome(reply, Outcome.OK)
    assert reply.seconds > 0.4, f"it was done in {reply.seconds:.2f} s, so nothing was shown"


def test_a_process_that_waits_for_a_core_does_not_hang(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftnet.run.sandbox.worker.BUSY", 0.75)  # of two on one core no process has so much
    core = {min(os.sched_getaffinity(0))}
    spin = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(spin, preexec_fn=lambda: os.sched_setaffinity(0, core)) as other:
        reply = call(worker, "work_on_the_first_core", 0.45, timeout=0.5)
        other.kill()
    assert_outcome(reply, Outcome.OK)
    assert reply.seconds > 0.5, f"it was done in {reply.seconds:.2f} s, so nothing was shown"


def test_using_up_the_cpu_limit_is_a_hang(worker: Worker) -> None:
    assert_outcome(call(worker, "signal_itself", int(signal.SIGXCPU)), Outcome.HANG, "CPU")
    assert_works(worker)


def test_a_stopped_process_is_a_hang(worker: Worker) -> None:
    assert_outcome(call(worker, "signal_itself", int(signal.SIGSTOP), timeout=0.2), Outcome.HANG)
    assert_works(worker)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("fill_memory", (2000,), "MiB of the 256 allowed"),
        ("fill_memory_in_a_child", (2000,), "MiB of the 256 allowed"),
        ("ask_for_memory", (1 << 30,), "MemoryError"),
        ("abort_for_want_of_memory", (), "bad_alloc"),
        ("signal_itself", (int(signal.SIGKILL),), "as the kernel does"),
    ],
)
def test_too_much_memory_is_an_observation(worker: Worker, name: str, args: tuple[int, ...], message: str) -> None:
    reply = call(worker, name, *args)
    assert_outcome(reply, Outcome.MEMORY, message)
    assert reply.peak_mib < 1000, f"it got {reply.peak_mib:.0f} MiB before anybody noticed"
    assert_works(worker)


@pytest.mark.parametrize("name", ["fill_memory", "fill_memory_in_a_child"])
def test_memory_below_the_limit_is_no_matter(worker: Worker, name: str) -> None:
    reply = call(worker, name, 100)
    assert_outcome(reply, Outcome.OK)
    assert 100 < reply.peak_mib < 256, f"filling 100 MiB is reported as a peak of {reply.peak_mib:.0f} MiB"


def test_memory_that_children_share_with_their_worker_counts_once(worker: Worker) -> None:
    assert_outcome(call(worker, "share_memory_with_children", 100, 3), Outcome.OK)


FORGED = interface.encode(
    {"id": -1, "outcome": "ok", "message": "", "value": interface.encode(1), "cpu": 0.0, "peak_mib": 1.0}
)
GOOD = {"id": 1, "outcome": "ok", "message": "", "value": interface.encode(1), "cpu": 0.0, "peak_mib": 1.0}
FALSE = [
    interface.encode({**GOOD, field: value})
    for field, value in [
        ("id", np.array([1, 1])),
        ("id", True),
        ("outcome", np.array([1, 1])),
        ("outcome", ["ok"]),
        ("cpu", float("nan")),
        ("cpu", float("inf")),
        ("cpu", -1.0),
        ("peak_mib", float("nan")),
        ("peak_mib", -1.0),
    ]
]
UNTYPED = interface.encode({"id": 1, "outcome": "ok", "message": 3, "value": None, "cpu": "much", "peak_mib": []})
HUGE = b"DFT1" + b"\xff" * 12


@pytest.mark.parametrize("garbage", [b"garbage", b"DFT1", b"\0", HUGE, FORGED, UNTYPED, *FALSE, interface.encode([1])])
def test_garbage_on_the_pipe_is_an_observation(worker: Worker, garbage: bytes) -> None:
    assert_outcome(call(worker, "write_to_pipe", garbage), Outcome.GARBAGE)
    assert_works(worker)


def test_an_answer_that_breaks_off_is_garbage(worker: Worker) -> None:
    reply = call(worker, "write_to_pipe_and_exit", interface.encode("half of this")[:-4], 0)
    assert_outcome(reply, Outcome.GARBAGE, "breaks off")
    assert_works(worker)


def test_an_answer_in_crumbs_is_garbage_and_costs_little(worker: Worker) -> None:
    before = time.process_time()
    assert_outcome(call(worker, "dribble"), Outcome.GARBAGE, "answers in crumbs")
    assert time.process_time() - before < 1, f"took {time.process_time() - before:.1f} CPU s"
    assert_works(worker)


def test_an_answer_of_many_small_arrays_comes_in_few_pieces(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftnet.run.sandbox.worker.CRUMBS", 50)
    many = [np.zeros(1, np.float32)] * 60_000
    assert len(call(worker, "echo", many).value) == len(many)


def test_closing_the_pipe_is_garbage(worker: Worker) -> None:
    assert_outcome(call(worker, "close_pipe"), Outcome.GARBAGE, "closed")
    assert_works(worker)


def test_output_is_captured_call_by_call(worker: Worker) -> None:
    log = call(worker, "speak").log
    for line in ("from Python", "from Python's stderr", "from native code", "from a child"):
        assert f"{line}\n" in log, f"{line!r} is not in the log {log!r}"
    assert call(worker, "echo", 1).log == "", "output of one call turns up in the next"


def test_of_a_huge_output_the_end_is_kept_and_the_rest_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    read, delays = worker_module._read_tail, iter([1.0])

    def slowly(log: int) -> bytes:
        tail = read(log)
        time.sleep(next(delays, 0))  # in which a process that goes on would write the rest of it, and that be lost
        return tail

    monkeypatch.setattr(worker_module, "_read_tail", slowly)
    with Zygote(preload=(FAULTS,), limits=Limits(file_mib=80)) as zygote:
        reply = call(zygote.worker(), "chatter", 100)
    assert_outcome(reply, Outcome.OK)
    assert len(reply.log) == 64 * 1024, f"the log has {len(reply.log)} characters"
    assert reply.log.endswith("the end\n"), f"the log ends {reply.log[-20:]!r}"


def test_standard_input_is_empty(worker: Worker) -> None:
    assert call(worker, "read_input", timeout=5).value == ""


def test_no_secret_reaches_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "hush")
    with Zygote(preload=(FAULTS,)) as zygote:
        assert "hush" not in call(zygote.worker(), "environment").value, "a variable of ours is visible in the worker"


def test_a_worker_has_no_network(zygote: Zygote, worker: Worker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reply = call(worker, "connect", server.getsockname()[1])
    reached = reply.outcome is Outcome.OK
    assert not (reached and zygote.network_isolated), "network_isolated is True, but the network was reached"
    back = call(worker, "join_network_of", os.getpid())
    assert not (back.outcome is Outcome.OK and zygote.network_isolated), "a target can take the network back"


def test_no_secret_is_read_from_the_processes_outside(zygote: Zygote, worker: Worker) -> None:
    if zygote.network_isolated:  # by way of a user namespace
        reply = call(worker, "environment_of", os.getpid())
        assert_outcome(reply, Outcome.ERROR, "PermissionError")


def test_limits_cannot_be_raised_again(zygote: Zygote, worker: Worker) -> None:
    if zygote.network_isolated or os.getuid():  # no namespace: nothing holds root
        assert_outcome(call(worker, "raise_limits"), Outcome.ERROR, "ValueError")


def test_a_worker_lives_in_a_folder_of_its_own(zygote: Zygote, worker: Worker) -> None:
    assert call(worker, "folders").value == [str(worker.folder)] * 3
    assert zygote.worker().folder != worker.folder, "two workers share a folder"


def test_files_are_limited_in_size(worker: Worker) -> None:
    assert_outcome(call(worker, "write_file", 3), Outcome.OK)
    assert_outcome(call(worker, "write_file", 5), Outcome.ERROR, "OSError")
    assert (worker.folder / "big").stat().st_size <= 4 << 20, "the file is larger than the limit"


def test_a_crash_leaves_no_core_file(worker: Worker) -> None:
    call(worker, "segfault")
    assert list(worker.folder.iterdir()) == []


def test_a_worker_holds_no_descriptor_but_its_own(zygote: Zygote, worker: Worker) -> None:
    other = zygote.worker()
    call(other, "echo", 1)
    sockets = [what for what in call(worker, "open_descriptors").value if what.startswith("socket:")]
    assert len(sockets) == 1, f"the worker holds {len(sockets)} sockets; it needs its pipe only"


def test_state_stays_within_a_process_and_ends_with_it(worker: Worker) -> None:
    assert call(worker, "hoard", 1).value == ["preloaded", 1]
    assert call(worker, "hoard", 2).value == ["preloaded", 1, 2], "a worker does not persist between calls"
    (worker.folder / "left").mkdir()
    (worker.folder / "left" / "file").touch()
    worker.renew()
    assert call(worker, "hoard", 3).value == ["preloaded", 3], "state leaks into a renewed worker"
    assert list(worker.folder.iterdir()) == [], "files leak into a renewed worker"


def test_a_renewed_worker_has_the_heap_it_was_asked_for(worker: Worker) -> None:
    for layout in (*range(inside.LAYOUTS), 0):
        worker.renew(layout)
        found = set(call(worker, "unwritten", 4096).value[64:])
        byte = inside.FILLED[layout]
        assert (found == {byte ^ 0xFF}) == bool(byte), f"layout {layout}: memory holds {sorted(found)[:5]}"


def test_children_of_a_worker_end_with_it(worker: Worker) -> None:
    child = call(worker, "start_child").value
    worker.renew()
    assert wait_until_gone(child) == [], "a child that a worker had started outlives it"


def test_a_daemon_of_a_worker_ends_with_it(zygote: Zygote, worker: Worker) -> None:
    before = zygote.cpu_seconds
    daemon = call(worker, "start_daemon", 0.2).value
    assert is_running(daemon), "it has ended before its worker"
    worker.renew()
    assert wait_until_gone(daemon) == [], "a child in a session of its own outlives the worker"
    assert zygote.cpu_seconds - before >= 0.2, "the CPU time of a daemon is lost"


def test_a_daemon_ends_when_its_worker_crashes(worker: Worker) -> None:
    call(worker, "start_daemon_and_segfault", "pid")
    assert wait_until_gone(int((worker.folder / "pid").read_text(encoding="utf-8"))) == [], (
        "a daemon outlives the crash of its worker"
    )


def test_a_daemon_of_another_worker_is_left_alone(zygote: Zygote, worker: Worker) -> None:
    daemon = call(worker, "start_daemon", 0.0).value
    other = zygote.worker()
    assert_works(other)
    other.renew()
    assert is_running(daemon), "reaping one worker ended what another one had started"


FOLDERS = pytest.mark.parametrize("what", ["nothing", "file", "pipe", "link"])


@FOLDERS
def test_a_worker_that_replaces_its_folder_gets_it_back(worker: Worker, what: str) -> None:
    assert_outcome(call(worker, "replace_folder", what), Outcome.OK)
    worker.renew()
    assert call(worker, "folders").value[0] == str(worker.folder)
    assert list(worker.folder.iterdir()) == [], "the folder is not empty"


@FOLDERS
def test_a_worker_without_a_folder_starts_even_so(worker: Worker, what: str) -> None:
    call(worker, "replace_folder", what)
    call(worker, "segfault")
    assert call(worker, "folders").value[0] == str(worker.folder)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def test_a_worker_that_dies_between_calls_is_replaced_unnoticed(worker: Worker) -> None:
    pid = call(worker, "pid").value
    os.kill(pid, signal.SIGKILL)
    assert wait_until_gone(pid) == []
    assert_works(worker)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_is_asked_of_a_worker_that_is_killed_or_stopped_is_asked_again(worker: Worker, number: int) -> None:
    replies: list[Reply] = []
    worker.undisturbed(lambda: replies.append(call(worker, "signal_itself_at_first", int(number), timeout=1.0)))
    assert [reply.outcome is Outcome.OK for reply in replies] == [False, True]


@pytest.mark.parametrize("name", ["sleep", "segfault", "pid"])
def test_what_a_worker_does_by_itself_is_not_asked_again(worker: Worker, name: str) -> None:
    replies: list[Reply] = []
    worker.undisturbed(lambda: replies.append(call(worker, name, timeout=0.5)))
    assert len(replies) == 1, "it may be a target that was not disturbed"


def test_each_thread_may_have_a_worker(zygote: Zygote) -> None:
    def talk(thread: int) -> list[object]:
        worker = zygote.worker()
        answers: list[object] = []
        for i in range(20):
            if i % 5 == 4:
                call(worker, "segfault")
            answers.append(call(worker, "echo", [thread, i]).value)
        return answers

    with ThreadPoolExecutor(4) as pool:
        for thread, answers in enumerate(pool.map(talk, range(4))):
            assert answers == [[thread, i] for i in range(20)], f"thread {thread} got {answers}"


def test_an_interrupted_call_does_not_answer_the_next_one(worker: Worker) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    call(worker, "echo", 1)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            call(worker, "sleep")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert_works(worker)


def test_ctrl_c_is_for_the_harness_not_for_its_workers(worker: Worker) -> None:
    pid = call(worker, "pid").value
    os.kill(pid, signal.SIGINT)
    assert call(worker, "pid").value == pid, "SIGINT ended a worker"


def test_a_killed_template_is_replaced(zygote: Zygote, worker: Worker) -> None:
    pid, other = call(worker, "pid").value, zygote.worker()
    assert_works(other)
    template = parent_of(pid)
    os.kill(template, signal.SIGKILL)
    assert wait_until_gone(pid, template) == [], "workers outlive their template"
    assert_works(worker)
    assert_works(other)


def test_a_template_that_is_killed_while_it_begins_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "killed"
    once = f"if not os.path.exists({str(killed)!r}):\n    os.mkdir({str(killed)!r})\n    os.kill(os.getpid(), 9)\n"
    (tmp_path / "killed_once.py").write_text(f"import os\n{once}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with Zygote(preload=("killed_once", FAULTS)) as zygote:
        assert_works(zygote.worker())
    assert killed.exists(), "it was not killed"


def test_a_template_begins_although_what_stands_by_to_sweep_after_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = """
        import os, signal, time
        (child,) = map(int, open("/proc/self/task/%d/children" % os.getpid()).read().split())
        os.kill(child, signal.SIGKILL)
        while open("/proc/%d/stat" % child).read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
    """
    (tmp_path / "kills_its_child.py").write_text(textwrap.dedent(kill), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with Zygote(preload=("kills_its_child", FAULTS)) as zygote:
        assert_works(zygote.worker())


def test_a_template_that_is_killed_as_it_makes_a_worker_is_replaced(
    zygote: Zygote, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_pidfd, killed = os.pidfd_open, []

    def killed_first(pid: int) -> int:
        if not killed:
            zygote._template.kill()
            killed.append(pid)
            raise ProcessLookupError  # so it is once that is gone, too
        return open_pidfd(pid)

    monkeypatch.setattr(os, "pidfd_open", killed_first)
    assert_works(worker)
    assert wait_until_gone(*killed) == [], "it outlives its template"


@pytest.mark.timing
def test_the_cpu_time_of_workers_is_counted_while_they_run_and_afterwards() -> None:
    def reaped() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = reaped()
    zygote = Zygote(preload=(FAULTS,))
    worker = zygote.worker()
    call(worker, "burn", 0.2)
    running = zygote.cpu_seconds
    assert 0.2 <= running < 1, f"after burning .2 s the running total is {running:.3f} s"
    worker.renew()
    call(worker, "burn_in_a_child", 0.2)
    total = zygote.cpu_seconds
    assert 0.4 <= total < 1.2, f"after burning .4 s the running total is {total:.3f} s"
    zygote.close()
    after = reaped() - before
    assert total - 0.05 <= after < total + 0.2, (
        f"the children's CPU time is {after:.3f} s, the running total {total:.3f} s"
    )


def test_closing_leaves_neither_process_nor_folder() -> None:
    zygote = Zygote(preload=(FAULTS,))
    pids = [call(zygote.worker(), "pid").value for _ in range(2)]
    pids += [call(zygote.worker(), name, *args).value for name, *args in (("start_child",), ("start_daemon", 0.0))]
    zygote.close()
    assert wait_until_gone(*pids) == [], "processes outlive close()"
    assert not zygote.folder.exists(), f"{zygote.folder} outlives close()"
    zygote.close()
    with pytest.raises(RuntimeError, match="closed"):
        call(zygote.worker(), "pid")


def test_nothing_outlives_a_harness_that_is_killed() -> None:
    script = f"""
import threading
from driftnet.run.sandbox import held
from driftnet.run.sandbox.zygote import Zygote
zygote = Zygote(preload=("{FAULTS}",))
worker = zygote.worker()
child, pid = (worker.call("{FAULTS}:" + name).value for name in ("start_child", "pid"))
daemon = worker.call("{FAULTS}:start_daemon", 0.0).value
hung = zygote.worker()
hung_pid = hung.call("{FAULTS}:pid").value
print(child, daemon, pid, hung_pid, zygote.folder, flush=True)
threading.Thread(target=hung.call, args=["{FAULTS}:spin_in_native_code"], kwargs=dict(timeout=600)).start()
while True:
    zygote.worker().call("{FAULTS}:pid")
"""
    root = ROOT
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root) as harness:
        assert harness.stdout is not None
        *pids, folder = harness.stdout.readline().split()
        time.sleep(0.1)
        harness.kill()
    assert wait_until_gone(*map(int, pids)) == [], "processes outlive the harness"
    end = time.monotonic() + 5
    while Path(folder).exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(folder).exists(), f"{folder} outlives the harness"


@pytest.mark.parametrize("who", ["runner", "group"])
def test_a_runner_that_is_killed_while_its_first_template_begins_leaves_no_folder(tmp_path: Path, who: str) -> None:
    script = f"""
import tempfile
tempfile.tempdir = {str(tmp_path)!r}
from driftnet.run import runner
runner.REFERENCE = "endless_import"
runner.Runner()
"""
    (tmp_path / "endless_import.py").write_text("import time\nprint(time.sleep(600))", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, start_new_session=True) as harness:
        end = time.monotonic() + 30
        while len(begun := inside.children(harness.pid)) != 1 or len(inside.children(begun[0])) != 1:
            assert time.monotonic() < end, "no template begins"
            time.sleep(0.01)
        if who == "group":
            os.killpg(harness.pid, signal.SIGKILL)
        else:
            harness.kill()
    end = time.monotonic() + 5
    while (left := list(tmp_path.glob("driftnet-scratch-*"))) and time.monotonic() < end:
        time.sleep(0.01)
    assert left == [], "a folder outlives the runner"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"python": "/no/such/python"}, "/no/such/python does not start"),
        ({"python": "/bin/false"}, "exit status 1"),
        ({"preload": ("no_such_module",)}, "No module named 'no_such_module'"),
    ],
)
def test_an_interpreter_that_cannot_start_is_the_users_to_mend(
    arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"could not start|does not start") as caught:
        Zygote(folder=tmp_path, **arguments)  # type: ignore[arg-type]
    assert message in caught.value.message, f"the message is {caught.value.message!r}"
    assert caught.value.kind == "environment"
    assert list(tmp_path.iterdir()) == [], "a folder is left behind"
