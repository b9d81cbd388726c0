"""How the resident memory of a run's processes grows: python -m tests.support.growth [MINUTES] [SEED] [SETTLING].

Runs `driftnet fuzz` on both default targets and says, of every process that lives from minute SETTLING to the end, its
resident memory (RSS, and PSS, which shares out what several map) in the minute after that and in the last one: the
medians of what was read every two seconds.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.support.torture import descendants, stat

SECONDS = 2.0
Reading = tuple[float, float]
"""MiB of RSS and of PSS."""
Name = tuple[int, str]
"""The number of a process, which another one may have later, and when it began."""


def resident(pid: int) -> Reading | None:
    """What a process has; None where it has ended, or is about to."""
    with contextlib.suppress(OSError, KeyError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        kib = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
        return kib["Rss:"] / 1024, kib["Pss:"] / 1024
    return None


def sort(pid: int) -> str:
    """What a process is, by its command line: that of a worker is its template's."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    above = stat(pid)[1]
    said = command.decode(errors="replace").replace("\0", " ")
    known = {"driftnet.cli.main": "coordinator", "spawn_main": "shard", "resource_tracker": "resource tracker"}
    if word := next((word for word in known if word in said), None):
        return known[word]
    what = "worker" if Path(f"/proc/{above}/cmdline").read_bytes() == command else "template"
    modules = said.partition('"preload": [')[2].partition("]")[0].replace('"', "")
    return f"{what} of {modules or 'none'}"


def watched(process: subprocess.Popen[bytes]) -> list[tuple[str, list[tuple[float, Reading]]]]:
    """Of each process of a run its sort, and what it had when."""
    begun, readings, sorts = time.monotonic(), defaultdict[Name, list[tuple[float, Reading]]](list), dict[Name, str]()
    while process.poll() is None:
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(OSError):
                name = (pid, stat(pid)[19])
                if reading := resident(pid):
                    sorts[name] = sort(pid)  # of one that has just been forked it may change
                    readings[name].append((time.monotonic() - begun, reading))
        time.sleep(SECONDS)
    return [(sorts[name], readings[name]) for name in readings]


def medians(readings: list[tuple[float, Reading]], begin: float, end: float) -> Reading:
    """Of what was read between two moments, seconds from the beginning."""
    those = [reading for when, reading in readings if begin <= when <= end]
    return statistics.median(rss for rss, _ in those), statistics.median(pss for _, pss in those)


def main(minutes: int = 31, seed: int = 0, settling: int = 5) -> int:
    """Print what became of each process."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["fuzz", "--minutes", str(minutes), "--seed", str(seed), "--workers", "1", "--report", folder]
        command = [sys.executable, "-m", "driftnet.cli.main", *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes = watched(process)
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    start, last = 60 * settling, max(when for _, readings in processes for when, _ in readings)
    print(f"{'process':<60}{'RSS MiB':>18}{'':>9}{'PSS MiB':>18}")
    for name, readings in processes:
        if readings[0][0] < start + 60 and readings[-1][0] > last - 60:
            before, after = medians(readings, start, start + 60), medians(readings, last - 60, last)
            columns = [f"{a:9.1f}{b:9.1f}{b / a - 1:+9.1%}" for a, b in zip(before, after)]
            print(f"{name:<60}{''.join(columns)}")
    print(f"{summary['cases']} cases, {summary['cpu_seconds']:.0f} CPU s, exit status {process.returncode}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
