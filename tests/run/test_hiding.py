"""Files that are hidden: a target sees the interpreter and its own folder, and all else goes on as without that."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet.cli import main as cli
from driftnet.findings import corpus
from driftnet.model import external_data
from driftnet.model.verdict import Outcome
from driftnet.run.runner import Runner
from driftnet.run.sandbox import hiding, inside
from driftnet.run.sandbox.hiding import Interpreter
from driftnet.run.sandbox.zygote import Limits, Worker, Zygote
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from onnx import TensorProto, helper

from tests.run.test_sandbox import FAULTS, assert_works, call, is_running, parent_of, wait_until_gone
from tests.support import models
from tests.support.localization import FLOAT
from tests.support.paths import ROOT


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hiding.VARIABLE, "1")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with hiding.hidden():
        made = Zygote(preload=(FAULTS,), limits=Limits(seconds=20.0, hold_crashes=True))
    with made:
        yield made


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What was found out about bubblewrap on this machine."""
    hiding.refusal.cache_clear()
    yield
    hiding.refusal.cache_clear()


def executable(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def options_of(command: list[str], name: str, words: int) -> list[tuple[str, ...]]:
    """What follows each `name` in a command."""
    return [tuple(command[k + 1 : k + 1 + words]) for k, word in enumerate(command) if word == name]


def wait_for(what: Callable[[], object], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


# What needs no bubblewrap: what is asked of it, what is told where it is not there, and what stands by outside.


def test_nothing_is_hidden_unless_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, hides in ((None, False), ("", False), ("0", False), ("1", True), ("yes", True)):
        monkeypatch.delenv(hiding.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(hiding.VARIABLE, value)
        assert hiding.asked() is hides, f"{hiding.VARIABLE}={value}"


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("before", [None, "0"])
def test_who_asks_for_a_block_changes_nothing_after_it(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "bwrap", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(hiding.VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(hiding.VARIABLE, before)
    with hiding.hidden():
        assert hiding.asked(), "it is not told to what is started"
    assert os.environ.get(hiding.VARIABLE) == before


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How an interpreter in the working folder would be started, that is below the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work, site = tmp_path / "home" / "project", tmp_path / "home" / "project" / "venv" / "lib" / "site"
    (tmp_path / "home" / "project" / "venv" / "bin").mkdir(parents=True)
    for folder in (site, tmp_path / "folder", tmp_path / "lent" / "mine", work / "more"):
        folder.mkdir(parents=True)
    (work / "mine.py").touch()
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(work)
    one = Interpreter(str(work / "venv/bin/python"), [str(work / "venv")], [str(work), str(tmp_path), str(site), "/"])
    (work / "more" / "model").touch()
    shown, folder = [work / "more" / "model"], tmp_path / "folder"
    return hiding.command(["-c", "pass"], one, folder, lent=["mine"], shown=shown, passwd=7)


def test_of_the_working_folder_only_the_environment_and_what_is_lent_are_shown(
    command: list[str], tmp_path: Path
) -> None:
    shown = {place for place, _ in options_of(command, "--ro-bind-try", 2) if place.startswith(str(tmp_path))}
    work = f"{tmp_path}/home/project"
    assert shown == {f"{work}/venv/bin", f"{work}/venv/lib", f"{work}/mine.py", f"{work}/more/model"}


def test_one_folder_may_be_written(command: list[str], tmp_path: Path) -> None:
    folder, beside = tmp_path / "folder", (str(tmp_path / "folder/beside-0"), str(tmp_path / "home/project/more"))
    assert options_of(command, "--bind", 2) == [beside, (str(folder),) * 2], "more than it, and what is in it"
    assert options_of(command, "--tmpfs", 1) == [("/tmp",)], "another place is shared"
    assert command[-4:] == ["--", str(tmp_path / "home/project/venv/bin/python"), "-c", "pass"]
    assert {"--die-with-parent", "--remount-ro"} <= {*command}
    assert options_of(command, "--cap-drop", 1) == [("ALL",)]


@pytest.mark.parametrize("place", ["/", "/home", "/root", "/tmp", "/etc", "/var", "/run", "/usr", "/sys"])
def test_no_folder_of_people_or_of_the_system_is_shown_whole(command: list[str], place: str) -> None:
    assert place not in {shown for shown, _ in options_of(command, "--ro-bind-try", 2)}


def test_places_are_seen_under_their_names_and_once(tmp_path: Path) -> None:
    (tmp_path / "store" / "python-3.11.7" / "bin").mkdir(parents=True)
    (tmp_path / "store" / "python-3.11.7" / "bin" / "python").touch()
    (tmp_path / "store" / "python-3.11").symlink_to("python-3.11.7")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python").symlink_to(tmp_path / "store" / "python-3.11" / "bin" / ".." / "bin" / "python")
    real = tmp_path / "store" / "python-3.11.7" / "bin"
    wanted = [str(tmp_path / "venv" / "python"), str(real), str(real / "python"), str(tmp_path / "none"), "relative"]
    mounts, links = hiding.seen(wanted)
    assert mounts == [str(real)]
    there = {str(link.relative_to(tmp_path)): to for link, to in ((Path(link), to) for link, to in links.items())}
    assert there == {"store/python-3.11": "python-3.11.7", "venv/python": str(os.readlink(tmp_path / "venv/python"))}


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert hiding.seen([str(tmp_path / "a")]) == ([], {}), "it is not there"


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("bwrap", "says", "hint"),
    [
        (None, "bubblewrap is not installed", "apt-get install bubblewrap"),
        ("#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2; exit 1", "No permissions", "namespaces"),
        ("#!/no/such/shell\n", "No such file", "namespaces"),
    ],
)
def test_where_files_cannot_be_hidden_that_is_told_and_nothing_is_run(
    bwrap: str | None,
    says: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if bwrap:
        executable(tmp_path / "bwrap", bwrap)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv(hiding.VARIABLE, raising=False)
    report = tmp_path / "report"
    with pytest.raises(SystemExit) as end:
        cli.main(["fuzz", "--cases", "1", "--hide-files", "--json", "--report", str(report)])
    error = json.loads(capsys.readouterr().out)["error"]
    assert end.value.code == 2, f"the status is {end.value.code}, should be 2"
    assert (error["kind"], says in error["message"], hint in error["hint"]) == ("environment", True, True), error
    assert not report.exists(), "something was begun"
    assert not hiding.asked(), "it lasts"
    monkeypatch.setenv(hiding.VARIABLE, "1")
    for make in (Runner, Zygote):
        with pytest.raises(UserError, match=says):
            make()
    assert list(tmp_path.glob("*sandbox-*")) + list(tmp_path.glob("driftnet-*")) == [], "a folder is left behind"


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("ends", ["kill -KILL $$", "exit 137"])
def test_a_trial_that_somebody_kills_is_made_again(ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bwrap", f"#!/bin/sh\n[ -e {tmp_path}/tried ] && exit 0\n: > {tmp_path}/tried\n{ends}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hiding.refusal() is None
    assert (tmp_path / "tried").exists(), "it was not killed"


def test_an_interpreter_that_somebody_kills_is_asked_again(tmp_path: Path) -> None:
    again = f'[ -e {tmp_path}/tried ] && exec {sys.executable} "$@"'
    python = executable(tmp_path / "python", f"#!/bin/sh\n{again}\n: > {tmp_path}/tried\nkill -KILL $$\n")
    assert hiding.interpreter(str(python)).prefixes, "it said nothing"


def test_every_command_that_runs_targets_can_hide_files() -> None:
    have = {
        name for name, it in cli.driftnet.commands.items() if "--hide-files" in {o for p in it.params for o in p.opts}
    }
    assert have == {*cli.driftnet.commands} - {"state", "coverage", "generate", "bench"}, "these run no target"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -KILL $$", -signal.SIGKILL),
        ("exit 137", -signal.SIGKILL),  # so says bwrap what has killed its child
        ("exit 139", -signal.SIGSEGV),
        ("exit 200", 200),
        ("trap '' TERM; kill -TERM $$; exit 5", 5),
    ],
)
def test_what_stands_by_ends_as_the_template_did(script: str, status: int, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = hiding.beside(os.getpid(), theirs.fileno(), tmp_path, "", ["/bin/sh", "-c", script])
        assert subprocess.run(words, pass_fds=[theirs.fileno()]).returncode == status
    assert tmp_path.exists(), "the parent lives, and may want its folder"


@pytest.mark.parametrize("held", [False, True])
def test_what_stands_by_removes_the_folders_of_a_parent_that_was_killed(held: bool, tmp_path: Path) -> None:
    above, folder = tmp_path / "above", tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    script = f"""
        import os, signal, socket, subprocess, sys
        from pathlib import Path
        from driftnet.run.sandbox import hiding
        ours, theirs = socket.socketpair()
        folder, above = Path({str(folder)!r}), {str(above)!r}
        words = hiding.beside(os.getpid(), theirs.fileno(), folder, above, ["/bin/sleep", "600"])
        other = subprocess.Popen(words, pass_fds=[theirs.fileno()], start_new_session=True)
        print(other.pid, flush=True)
        signal.pause()
    """
    lock = os.open(above, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX if held else fcntl.LOCK_UN)
    words = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        other = int(parent.stdout.readline())
        assert wait_for(lambda: inside.children(other)), "it runs nothing"
        sleeps = inside.children(other)
        parent.kill()
    assert wait_until_gone(other, *sleeps) == [], "it outlives its parent"
    assert (folder.exists(), above.exists()) == (False, held)
    os.close(lock)


# What needs it.


def read(worker: Worker, path: Path) -> str:
    """What a worker makes of a file."""
    reply = worker.call("builtins:open", str(path))
    return reply.message.partition(":")[0] if reply.outcome is Outcome.ERROR else f"{reply.outcome}: {reply.value}"


@pytest.mark.bubblewrap
def test_a_worker_reads_no_file_of_people(worker: Worker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the password", encoding="utf-8")
    places = [secret, ROOT / "README.md", ROOT / "pyproject.toml", Path.home() / ".profile", Path("/etc/shadow")]
    assert {str(place): read(worker, place) for place in places} == dict.fromkeys(map(str, places), "FileNotFoundError")
    for place in (Path.home(), Path("/home"), Path("/tmp"), Path("/dev/shm"), Path("/var"), Path("/run"), Path("/mnt")):
        found = worker.call("os:listdir", str(place))
        seen = {place / name for name in found.value or ()}
        ours = {*map(Path, (sys.prefix, sys.base_prefix)), worker.folder.parent}
        assert all(any(own.is_relative_to(one) for own in ours) for one in seen), f"{place} has {seen}"


@pytest.mark.bubblewrap
def test_a_worker_sees_no_user_but_its_own(worker: Worker) -> None:
    reply = worker.call("subprocess:getoutput", "cut -d: -f1,3 /etc/passwd")
    assert reply.value.rpartition(":")[2] == str(os.getuid()), f"/etc/passwd says {reply.value!r}"
    assert reply.value.count("\n") == 0, "there are others"


@pytest.mark.bubblewrap
def test_no_process_outside_leads_a_worker_to_its_files(zygote: Zygote, worker: Worker) -> None:
    assert_works(worker)
    line = zygote._line()
    assert len(line) == hiding.GENERATIONS, f"the template and what stands between are {line}"
    for pid in (os.getpid(), os.getppid(), *line[:-1]):
        for what in ("root", "cwd", "exe", "fd/0"):
            said = worker.call("os:readlink", f"/proc/{pid}/{what}")
            assert "PermissionError" in said.message, f"/proc/{pid}/{what}: {said}"


@pytest.mark.bubblewrap
def test_a_worker_writes_into_its_own_folder_alone(worker: Worker, tmp_path: Path) -> None:
    places = ["/", "/usr", "/usr/lib", "/etc", "/sys", "/proc/sys/kernel", sys.prefix, str(ROOT / "harness")]
    could = [place for place in places if worker.call("subprocess:call", ["touch", f"{place}/x"]).value == 0]
    assert could == [], "it wrote there"
    assert worker.call("subprocess:call", ["touch", str(worker.folder / "x"), "/tmp/x", "/dev/shm/x"]).value == 0
    assert (worker.folder / "x").exists(), "what it writes there is not seen"
    assert not Path("/dev/shm/x").exists(), "/dev/shm is shared"


@pytest.mark.bubblewrap
def test_all_else_about_the_sandbox_holds(zygote: Zygote, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Zygote(preload=(FAULTS,)) as plain:
        assert zygote.network_isolated == plain.network_isolated
        assert [call(w, "folders").value[0] == str(w.folder) for w in (worker, plain.worker())] == [True, True]
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert np.array_equal(call(worker, "echo", x).value, x), "an array came back different"
    assert call(worker, "sleep", timeout=0.2).outcome is Outcome.HANG
    crash = call(worker, "segfault")
    assert (crash.outcome, crash.signal, bool(crash.frames)) == (Outcome.CRASH, "SIGSEGV", True), (
        "the stack is not read"
    )
    daemon = call(worker, "start_daemon", 0.0).value
    worker.renew()
    assert wait_until_gone(daemon) == [], "a child in a session of its own outlives the worker"


@pytest.mark.bubblewrap
@pytest.mark.parametrize("generation", range(hiding.GENERATIONS))
def test_whatever_of_a_template_is_killed_all_of_it_ends_and_is_replaced(
    generation: int, zygote: Zygote, worker: Worker
) -> None:
    pid, line = call(worker, "pid").value, zygote._line()
    assert parent_of(pid) == line[-1], "the worker is no child of the template"
    os.kill(line[generation], signal.SIGKILL)
    assert wait_until_gone(pid, *line) == [], "something outlives it"
    assert_works(worker)
    assert_works(zygote.worker())


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
def test_a_template_that_is_stopped_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Zygote(preload=(FAULTS,)) as zygote:
        worker = zygote.worker()
        zygote._control.settimeout(0.1)
        line = zygote._line()
        os.kill(line[-1], signal.SIGSTOP)
        assert_works(worker)
        assert wait_until_gone(*line) == [], "it was left behind"


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
def test_closing_leaves_neither_process_nor_folder() -> None:
    zygote = Zygote(preload=(FAULTS,))
    pids = [call(zygote.worker(), "pid").value, *zygote._line()]
    zygote.close()
    assert [pid for pid in pids if is_running(pid)] == [], "processes outlive close()"
    assert not zygote.folder.exists(), f"{zygote.folder} outlives close()"


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("module", ["driftnet.run.reference_worker", "endless_import"])
@pytest.mark.parametrize("who", ["runner", "group"])
def test_a_runner_that_is_killed_leaves_neither_process_nor_folder(tmp_path: Path, who: str, module: str) -> None:
    script = f"""
        import signal, tempfile
        tempfile.tempdir = {str(tmp_path)!r}
        from driftnet.run import runner
        runner.REFERENCE = {module!r}
        made = runner.Runner()
        signal.pause()
    """
    (tmp_path / "endless_import.py").write_text("import time\nprint(time.sleep(600))", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(words, env=environment, start_new_session=True) as harness:
        line: list[list[int]] = []

        def begun() -> bool:
            line[:] = [[harness.pid]]
            while line[-1]:
                line.append([child for pid in line[-1] for child in inside.children(pid)])
            return bool(list(tmp_path.glob("driftnet-scratch-*"))) and len(line) > hiding.GENERATIONS + 2

        assert wait_for(begun, 30), "no template begins"
        pids = [pid for generation in line for pid in generation]
        if who == "group":
            os.killpg(harness.pid, signal.SIGKILL)
        else:
            harness.kill()
    assert wait_until_gone(*pids) == [], "processes outlive the runner"
    assert wait_for(lambda: not list(tmp_path.glob("driftnet-scratch-*")), 5), "a folder outlives the runner"


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"python": "/no/such/python"}, "/no/such/python does not start"),
        ({"python": "/bin/false"}, "exit status 1"),
        ({"preload": ("no_such_module",)}, "No module named 'no_such_module'"),
        ({"preload": ("ends_itself",)}, "signal 11"),
    ],
)
def test_an_interpreter_that_cannot_start_is_told_as_without(
    arguments: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_itself.py").write_text("import os\nos.kill(os.getpid(), 11)\n", encoding="utf-8")
    (tmp_path / "place").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"could not start|does not start") as caught:
        Zygote(folder=tmp_path / "place", **arguments)  # type: ignore[arg-type]
    assert message in caught.value.message, f"the message is {caught.value.message!r}"
    assert list((tmp_path / "place").iterdir()) == [], "a folder is left behind"


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
def test_what_else_is_shown_is_seen_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("large", encoding="utf-8")
    (tmp_path / "secret").touch()
    with Zygote(preload=(FAULTS,)) as zygote:
        worker = zygote.worker()
        (worker.folder / "kept").touch()
        assert worker.call("os.path:exists", str(tmp_path / "weights")).value is False
        before = zygote.cpu_seconds
        zygote.show([tmp_path / "weights"])
        assert worker.call("os:listdir", str(tmp_path)).value == ["weights"]
        assert (worker.folder / "kept").exists(), "the folder was emptied"
        assert zygote.cpu_seconds > before, "the CPU time of the first template is lost"
        line = zygote._line()
        zygote.show([tmp_path / "weights"])
        assert zygote._line() == line, "it was made anew for nothing"


@pytest.mark.bubblewrap
@pytest.mark.parametrize("target", ["mnn", "onnxruntime-quant"])
def test_a_target_does_the_same(target: str) -> None:
    case, installed = models.relu(), resolve(target)
    seen = []
    for hides in (False, True):
        with hiding.hidden() if hides else open(os.devnull), Runner(small_models=True) as runner:
            seen.append(runner.observe(case, installed, {}))
    plain, hidden = seen
    assert hidden.last.outcome is plain.last.outcome is Outcome.OK, f"{hidden.last}"
    assert [{n: x.tolist() for n, x in o.items()} for o in hidden.outputs] == [
        {n: x.tolist() for n, x in o.items()} for o in plain.outputs
    ]


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
def test_a_script_runs_on_a_copy_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "secret").touch()
    script = (
        "import os, sys\nopen('x', 'w')\nprint(os.path.exists(sys.argv[1]), os.path.exists(sys.argv[2]))\nsys.exit(7)"
    )
    (tmp_path / "case" / "script.py").write_text(script, encoding="utf-8")
    folder = tmp_path / "case"
    words = [sys.executable, "-I", str(folder / "script.py"), str(folder / "script.py"), str(tmp_path / "secret")]
    with Runner(small_models=True) as runner:
        assert runner.output_of(sys.executable, folder, words, 20.0) == "True False"
        assert runner.status_of(resolve("mnn"), folder, words[2:], 20.0) == 7
    assert [path.name for path in folder.iterdir()] == ["script.py"], "it wrote into the folder itself"


@pytest.mark.bubblewrap
def test_targets_tells_that_files_can_be_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["targets", "--json"], ["targets", "--json", "--hide-files"]):
        with pytest.raises(SystemExit):
            cli.main(words)
        said.append(json.loads(capsys.readouterr().out)["files"])
    assert [one["hidden"] for one in said] == [False, True]
    assert {(one["can_be_hidden"], one["why_not"]) for one in said} == {(True, "")}


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("target", ["mnn", "onnxruntime-quant"])
def test_a_large_model_is_seen_where_it_lies(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_data, "MOST_LOADED", 4096)
    x, w = np.arange(64, dtype=np.float32).reshape(1, 64), np.eye(64, dtype=np.float32)
    node, path = helper.make_node("MatMul", ["x", "w"], ["y"]), tmp_path / "model.onnx"
    small = models.case([node], {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 64))])
    onnx.save(small.proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "secret").touch()
    case = external_data.case(corpus.read_onnx(path, entire=False), path, small.feeds)
    assert case.file == path, "it is no large one"
    with Runner(small_models=True) as runner:
        assert np.array_equal(runner.reference.run(case).outputs[0]["y"], x)
        seen = runner.observe(case, resolve(target), {} if target == "mnn" else FLOAT)
        assert seen.last.outcome is Outcome.OK, f"{seen.last}"
        assert np.allclose(seen.outputs[0]["y"], x), "it was run with other weights"
        (worker,) = (worker for key, worker in runner._workers.items() if key[1] != "driftnet.run.reference_worker")
        assert worker.call("subprocess:call", ["touch", str(tmp_path / "new")]).value == 0
        assert not (tmp_path / "new").exists(), "it wrote beside the model"
        assert worker.call("subprocess:call", ["touch", str(path)]).value == 1, "it wrote to the model"
        worker.call("os:remove", str(tmp_path / "new"))
        found = {name for worker in runner._workers.values() for name in worker.call("os:listdir", str(tmp_path)).value}
    assert found == {"model.onnx", "weights.bin"}, "more than the model is seen"
