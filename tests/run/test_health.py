"""A machine that has too little of something is named, and no target is blamed for it."""

import _thread
import errno
import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest
from driftnet.run import health
from driftnet.run.runner import Runner
from driftnet.util.errors import UserError

from tests.support.models import relu

ROOMY = {"f_bavail": 1 << 20, "f_frsize": 4096, "f_files": 1 << 20, "f_favail": 1 << 20}


def start_nothing(function, args):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("where", "name", "lacking", "says"),
    [
        (os, "statvfs", lambda folder: SimpleNamespace(**ROOMY | {"f_bavail": 5}), "0 MiB are free in"),
        (os, "statvfs", lambda folder: SimpleNamespace(**ROOMY | {"f_favail": 7}), "7 files can be made in"),
        (resource, "getrlimit", lambda which: (20, 20), "more files can be opened"),
        (health, "_available_mib", lambda: 12, "12 MiB of memory are available"),
        (health, "address_space", lambda: 1 << 62, "0 MiB more of address space may be had"),
        (_thread, "start_new_thread", start_nothing, "no process can be started"),
    ],
    ids=["space", "inodes", "descriptors", "memory", "address space", "processes"],
)
def test_what_the_machine_lacks_is_named(tmp_path, monkeypatch, where, name, lacking, says):
    limits = resource.getrlimit
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (1 << 62,) * 2 if which == resource.RLIMIT_AS else limits(which)
    )
    health.check(tmp_path)
    monkeypatch.setattr(where, name, lacking)
    with pytest.raises(UserError, match=says) as error:
        health.check(tmp_path)
    assert error.value.kind == "machine"


def test_a_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(UserError, match="gone is gone"):
        health.check(tmp_path / "gone")


def test_a_runner_leaves_no_folder_where_the_machine_lacks_something(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(health, "_available_mib", lambda: 0)
    with pytest.raises(UserError, match="memory"):
        Runner()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("descriptors", "status"), [(32, 2), (300, 0)])
def test_few_descriptors_are_the_machines_fault_or_enough(tmp_path, descriptors, status):
    model = tmp_path / "model.onnx"
    model.write_bytes(relu().model)
    command = [sys.executable, "-m", "driftnet.cli.main", "check", str(model), "--target", "mnn"]
    limit = (descriptors, descriptors)
    done = subprocess.run(
        command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit), capture_output=True, text=True
    )
    assert done.returncode == status, f"{done.stdout}{done.stderr}"
    assert ("too little to run targets" in done.stderr) == (status == 2), done.stderr


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (MemoryError(), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOENT, "No such file or directory"), False),
        (ValueError("a slip"), False),
    ],
    ids=["space", "descriptors", "memory", "threads", "a file that is not there", "a slip"],
)
def test_an_error_that_comes_from_the_machine_is_none_of_driftnet(error, is_one):
    found = health.fault(error)
    assert (found is not None and found.kind == "machine") == is_one, f"{error!r} is told as {found}"


def test_a_thread_that_never_begins_is_the_machines_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "STARTING_SECONDS", 0.01)
    monkeypatch.setattr(_thread, "start_new_thread", lambda function, args: None)
    with pytest.raises(UserError, match="a new thread does not begin"):
        health.check(tmp_path)
