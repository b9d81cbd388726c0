"""Kill runs at random, go on with them, and count what was lost: python -m tests.support.torture [KILLS] [SEED].

Each trial starts `driftnet fuzz --save`, kills one of its processes (the coordinator, a shard, a template, a worker) or
the whole group at a random moment with SIGKILL, and goes on with --resume until as many indices are done as in the
undisturbed run with the same seed. Lost is a finding of the undisturbed run that the corpus has not, or a case in the
run's folder; left behind is a process of the run that is still there, or its folder of scratch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from driftnet.campaign.events import Done
from driftnet.campaign.journal import histories
from driftnet.run.runner import MEMORY

VICTIMS = ("coordinator", "shard", "template", "worker", "group")
CASES, MODELS = 60, 15
PATIENCE = 10.0  # seconds for what was orphaned to end


def started(words: list[str]) -> subprocess.Popen[bytes]:
    """driftnet as the leader of a process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "driftnet.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before children."""
    found = [pid]
    for member in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{member}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="utf-8").split())
    return found[1:]


def stat(pid: int) -> list[str]:
    """What /proc/PID/stat says after the name, from field 3 (the state) on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def alive(pids: list[int]) -> list[int]:
    """Those that still run; one that nobody waits for has ended all the same."""
    states = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            states[pid] = stat(pid)[0]
    return [pid for pid, state in states.items() if state != "Z"]


def kill(process: subprocess.Popen[bytes], victim: str, rng: random.Random) -> list[int]:
    """Kill one of its processes; all that there were. Without a victim of that sort (yet), the coordinator."""
    family = descendants(process.pid)
    commands = {}
    for pid in family:
        with contextlib.suppress(OSError):
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    shards = [pid for pid in family if b"spawn_main" in commands.get(pid, b"")]
    templates = [pid for shard in shards for pid in descendants(shard) if os.path.exists(f"/proc/{pid}")]
    workers = [pid for template in templates for pid in descendants(template)]
    sorts = {"shard": shards, "template": sorted({*templates} - {*workers}), "worker": workers}
    with contextlib.suppress(ProcessLookupError):
        if victim == "group":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(rng.choice(sorts.get(victim) or [process.pid]), signal.SIGKILL)
    return family


def abandoned(place: Path) -> list[Path]:
    """The scratch folders in `place` that no process holds."""
    return [path for path in place.glob("driftnet-scratch-*") if is_free(path)]


def left_behind(family: list[int], before: set[Path]) -> bool:
    """Whether one of `family` still runs, or left a folder; what removes that may live for a moment longer."""
    return bool(alive(family) or {*abandoned(Path(MEMORY))} - before)


def is_free(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        return True
    return False


def done(report: Path) -> set[int]:
    """The indices that the journal says are done."""
    return {event.index for history in histories(report) for event in history if isinstance(event, Done)}


def found(folder: Path) -> set[str]:
    """The names of the cases saved below `folder`."""
    return {path.parent.name for path in folder.rglob("test_*/case.json")}


def told_errors(output: bytes) -> list[object]:
    """The errors of driftnet and of the machine that a run with --json tells."""
    with contextlib.suppress(ValueError):
        told = json.loads(output)
        return [*told.get("errors", []), *([told["error"]] if told.get("error") else [])]
    return []


def main(kills: int = 100, seed: int = 0) -> int:
    """Print what came of each kill, and of all of them; 0 where nothing was lost and nothing left behind."""
    rng, counts, statuses = random.Random(seed), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "fuzz",
            "--target",
            "onnxruntime-quant",
            "--seed",
            "6",
            "--no-steer",
            "--save",
            "--workers",
            "2",
            "--json",
        ]

        def run(name: str) -> tuple[list[str], Path, Path]:
            report, corpus = Path(folder, name, "report"), Path(folder, name, "corpus")
            corpus.mkdir(parents=True)
            return [*words, "--report", str(report), "--corpus", str(corpus)], report, corpus

        asked, report, corpus = run("undisturbed")
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "driftnet.cli.main", *asked, "--cases", str(CASES)], capture_output=True)
        usual, seconds = found(corpus), time.monotonic() - begun
        assert done(report) == set(range(MODELS)), done(report)
        for trial in range(kills):
            victim = VICTIMS[trial % len(VICTIMS)]
            asked, report, corpus = run(f"{trial}")
            before = {*abandoned(Path(MEMORY))}
            process = started([*asked, "--cases", str(CASES)])
            moment = time.monotonic() + rng.uniform(0.1, 1.0) * seconds
            while process.poll() is None and time.monotonic() < moment:
                time.sleep(0.01)
            family = kill(process, victim, rng) if process.poll() is None else []
            said = [process.communicate()[0]]
            ended = time.monotonic() + PATIENCE
            while left_behind(family, before) and time.monotonic() < ended:
                time.sleep(0.05)
            processes, folders = alive(family), {*abandoned(Path(MEMORY))} - before
            ends = [f"{victim} killed: {process.returncode}"]
            while left := MODELS - len(done(report)):
                go_on = [*asked, "--cases", str(4 * left), *(["--resume"] if (report / "journal").exists() else [])]
                status = subprocess.run([sys.executable, "-m", "driftnet.cli.main", *go_on], capture_output=True)
                ends.append(f"gone on with: {status.returncode}")
                said.append(status.stdout)
            came = {
                "processes left behind": len(processes),
                "scratch folders left behind": len(folders),
                "indices skipped": len(set(range(MODELS)) - done(report)),
                "findings of the undisturbed run lost": len(usual - found(corpus)),
                "cases on the disk lost to the corpus": len(found(report / "cases") - found(corpus)),
                "other findings than undisturbed": len(found(corpus) - usual),
            }
            counts.update(came, trials=1)
            statuses.update(ends)
            what: dict[str, object] = {what: count for what, count in came.items() if count}
            if errors := [error for output in said for error in told_errors(output)]:
                what["errors"] = errors
            print(json.dumps({"kill": trial + 1, "exit statuses": ends, **what}), flush=True)
    print(json.dumps({"findings": len(usual), **counts, "exit statuses": statuses}, indent=1))
    return int(any(counts[name] for name in counts if "lost" in name or "left" in name or "skipped" in name))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
