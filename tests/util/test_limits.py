"""Work that takes too much is given up, by name, and what comes after it is not touched."""

import re
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from driftnet.util.limits import ExceededError, bounded


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


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (spin, "more than 0.1 s of CPU time"),
        (swallow, "more than 0.1 s of CPU time"),
        (lambda: re.fullmatch("(a+)+b", "a" * 64), "more than 0.1 s of CPU time"),
        (lambda: np.ones(2**26), "more than 64 MiB of memory"),
        (lambda: ["x" * 2**20 + str(n) for n in range(1000)], "more than 64 MiB of memory"),
        (nest, "deeper nesting"),
    ],
    ids=["time", "a broad except", "a pattern", "one array", "many texts", "depth"],
)
def test_what_takes_too_much_is_given_up_and_what_comes_after_it_is_not_touched(work, says):
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(ExceededError, match=says):
        bounded(work, seconds=0.1, mib=64)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    assert len(np.ones(2**24)) == 2**24


def test_what_takes_little_gives_its_result_and_raises_what_it_raises():
    assert bounded(lambda: 7, seconds=1, mib=64) == 7
    with pytest.raises(KeyError):
        bounded(lambda: {}["x"], seconds=1, mib=64)


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
