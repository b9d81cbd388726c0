"""Work that takes too much is given up, by name, and what comes after it is not touched."""

import re
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import pytest
from driftnet.util.limits import ExceededError, bounded
from google.protobuf.message import DecodeError


def spin():
    while True:
        pass


def swallow():
    while True:
        try:
            spin()
        except Exception:
            continue


def nest():
    nest()


TENSOR = onnx.TensorProto(raw_data=bytes(3 * 2**25))
LARGE = TENSOR.SerializeToString()


@pytest.mark.parametrize(
    ("work", "seconds", "says"),
    [
        (spin, 0.1, "more than 0.1 s of CPU time"),
        (swallow, 0.1, "more than 0.1 s of CPU time"),
        (lambda: re.fullmatch("(a+)+b", "a" * 64), 0.1, "more than 0.1 s of CPU time"),
        (lambda: np.ones(2**26), 60, "more than 64 MiB of memory"),
        (lambda: ["x" * 2**20 + str(n) for n in range(1000)], 60, "more than 64 MiB of memory"),
        (lambda: onnx.TensorProto.FromString(LARGE), 60, "more than 64 MiB of memory"),
        (lambda: TENSOR.SerializeToString(), 60, "more than 64 MiB of memory"),
        (nest, 60, "deeper nesting"),
    ],
    ids=[
        "time",
        "a broad except",
        "a pattern",
        "one array",
        "many texts",
        "protobuf reads",
        "protobuf writes",
        "depth",
    ],
)
def test_what_takes_too_much_is_given_up_and_what_comes_after_it_is_not_touched(work, seconds, says):
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(ExceededError, match=says):
        bounded(work, seconds=seconds, mib=64)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    end = time.process_time() + 0.3  # as long as a limit of .1 s could still come
    while time.process_time() < end:
        pass
    assert len(np.ones(2**24)) == 2**24


def test_what_takes_little_gives_its_result_and_raises_what_it_raises():
    assert bounded(lambda: 7, seconds=1, mib=64) == 7
    with pytest.raises(KeyError):
        bounded(lambda: {}["x"], seconds=1, mib=64)
    with pytest.raises(DecodeError):
        bounded(lambda: onnx.TensorProto.FromString(b"no tensor"), seconds=1, mib=64)


def test_waiting_takes_no_time():
    assert bounded(lambda: time.sleep(0.3) or 7, seconds=0.1, mib=64) == 7


def test_in_another_thread_memory_is_limited_and_time_is_not():
    seen = []

    def work():
        try:
            bounded(lambda: np.ones(2**26), seconds=0.1, mib=64)
        except ExceededError as e:
            seen.append(str(e))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["more than 64 MiB of memory"]


def test_inside_another_work_the_limits_of_that_hold():
    with pytest.raises(ExceededError, match="64 MiB"):
        bounded(lambda: bounded(lambda: np.ones(2**26), seconds=9, mib=4096), seconds=9, mib=64)


def test_one_that_is_late_ends_no_process():
    code = "from driftnet.util.limits import bounded\nimport os, signal\nbounded(lambda: 7, seconds=9, mib=64)\n"
    assert subprocess.run([sys.executable, "-c", f"{code}os.kill(os.getpid(), signal.SIGPROF)"]).returncode == 0


CRAMPED = """
import os, resource, sys
import numpy as np
from driftnet.util.apart import apart
from driftnet.util.limits import address_space, bounded

def cramp():
    limit = address_space() + 2**25
    resource.prlimit(os.getpid(), resource.RLIMIT_AS, (limit, limit))

def work(ask=None):
    if sys.argv[1] == "meanwhile":
        cramp()
    return bytes(np.ones(2**23))

if sys.argv[1] == "before":
    cramp()
try:
    apart(work, seconds=9, mib=1024) if sys.argv[2] == "apart" else bounded(work, seconds=9, mib=1024)
except Exception as e:
    print("MemoryError" if isinstance(e, MemoryError) else repr(e), resource.getrlimit(resource.RLIMIT_AS)[0] > 0)
"""


@pytest.mark.parametrize(
    ("when", "where", "says"),
    [
        ("before", "here", "MemoryError True"),
        ("before", "apart", "MemoryError True"),
        ("meanwhile", "here", "MemoryError True"),
        ("meanwhile", "apart", "MemoryError False"),  # that was the fork's own limit
    ],
)
def test_memory_that_somebody_else_took_away_is_not_too_much_and_stays_away(when, where, says):
    done = subprocess.run([sys.executable, "-c", CRAMPED, when, where], capture_output=True, text=True)
    assert done.stdout.strip() == says, f"{done.stdout}{done.stderr}"
