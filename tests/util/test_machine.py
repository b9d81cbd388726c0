"""What a process asks of the machine that it runs on."""

import subprocess
import sys

FREED = """
import resource
from driftnet.util.machine import give_back_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

held = [bytearray(50_000) for _ in range(2000)]
del held[:-1]
freed = resident()
give_back_memory()
print(freed - resident())
"""


def test_what_was_freed_is_given_back_to_the_system():
    """Of 100 MB the last 50 KB are still held, and keep the allocator from giving back those before."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80, f"{done.stdout.strip()} MiB of 95 were given back"


def test_a_process_of_a_pool_leaves_signals_to_its_parent():
    code = """
import os, signal
from driftnet.util.machine import leave_to_parent
leave_to_parent()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), number)
print("it goes on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "it goes on\n"), done.stderr
