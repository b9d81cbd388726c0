"""Faults of the machine, at the start of a run and in its middle: each has to be named, and none blamed on a target.

Needs user namespaces, in which file systems of any size can be mounted and limits hold for root too.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import no_cases
from tests.support.torture import descendants

CASES = 24
SECONDS = 180
Middle = Callable[["Run"], None]


class Run:
    """A run of driftnet fuzz in a namespace of its own, where /dev/shm and `place` are small file systems."""

    def __init__(self, folder: Path, before: str, shm: str, disk: str) -> None:
        self.place = folder / "place"
        self.place.mkdir()
        words = ["fuzz", "--target", "onnxruntime-quant", "--seed", "6", "--no-steer", "--workers", "1", "--json"]
        words += ["--cases", str(CASES), "--report", str(self.place / "report"), "--corpus", str(no_cases(folder))]
        command = " ".join([sys.executable, "-m", "driftnet.cli.main", *words])
        script = f"mount -t tmpfs -o {shm} none /dev/shm; mount -t tmpfs -o {disk} none {self.place}; cd {self.place}; "
        script += f"{before}\n{command}; status=$?; cp report/summary.json {folder} 2>/dev/null; exit $status"
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def inside(self, path: str) -> Path:
        """A path of the run's own file systems, seen from here."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    def family(self, word: bytes) -> list[int]:
        """Its processes with that word in their command line."""
        found = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                found += [pid] if word in Path(f"/proc/{pid}/cmdline").read_bytes() else []
        return found

    def begun(self) -> None:
        """Wait until cases are being examined."""
        ended = time.monotonic() + 90
        journal = self.inside(f"{self.place}/report/journal")
        while time.monotonic() < ended and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if any(b'"done"' in path.read_bytes() for path in journal.iterdir()):
                    return
            time.sleep(0.02)


def fill(path: str) -> Middle:
    def middle(run: Run) -> None:
        with contextlib.suppress(OSError), open(run.inside(path.format(place=run.place)) / "filling", "wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()

    return middle


def crowd(path: str) -> Middle:
    def middle(run: Run) -> None:
        folder = run.inside(path.format(place=run.place)) / "crowd"
        with contextlib.suppress(OSError):
            folder.mkdir()
            for k in range(1_000_000):
                (folder / str(k)).touch()

    return middle


def limit(which: int, value: int, word: bytes) -> Middle:
    def middle(run: Run) -> None:
        for pid in run.family(word):
            with contextlib.suppress(OSError):
                resource.prlimit(pid, which, (value, value))

    return middle


def no_more_memory(mib: int, word: bytes) -> Middle:
    """No more address space than they have, and so much."""

    def middle(run: Run) -> None:
        for pid in run.family(word):
            with contextlib.suppress(OSError):
                had = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
                resource.prlimit(pid, resource.RLIMIT_AS, (had + (mib << 20),) * 2)

    return middle


def no_more_processes(word: bytes) -> Middle:
    """By a control group: what is limited for a user does not hold for root."""

    def middle(run: Run) -> None:
        GROUP.mkdir(exist_ok=True)
        for pid in run.family(word):
            with contextlib.suppress(OSError):
                (GROUP / "cgroup.procs").write_text(str(pid), encoding="utf-8")
        (GROUP / "pids.max").write_text("1", encoding="utf-8")

    return middle


def send(number: int, word: bytes) -> Middle:
    def middle(run: Run) -> None:
        for pid in run.family(word):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    return middle


def mount(what: str) -> Middle:
    def middle(run: Run) -> None:
        enter = ["nsenter", f"--target={run.process.pid}", "--user", "--mount", "--preserve-credentials", "sh", "-c"]
        subprocess.run([*enter, what.format(place=run.place)], capture_output=True)

    return middle


ROOMY = "size=2g"
GROUPS = Path("/sys/fs/cgroup")
GROUP = (GROUPS / "pids" if (GROUPS / "pids").is_dir() else GROUPS) / f"driftnet-faults-{os.getpid()}"
COORDINATOR, SHARD, TEMPLATE = b"driftnet.cli.main", b"spawn_main", b"run.sandbox.inside"
STARTS = {
    "no space for workers": ("", "size=1m", ROOMY),
    "little space for workers": ("", "size=40m", ROOMY),
    "no inode for workers": ("", "size=2g,nr_inodes=40", ROOMY),
    "no space for the report": ("", ROOMY, "size=4k"),
    "little space for the report": ("", ROOMY, "size=64k"),
    "no inode for the report": ("", ROOMY, "size=2g,nr_inodes=4"),
    "few inodes for the report": ("", ROOMY, "size=2g,nr_inodes=20"),
    "16 descriptors": ("ulimit -n 16", ROOMY, ROOMY),
    "32 descriptors": ("ulimit -n 32", ROOMY, ROOMY),
    "64 descriptors": ("ulimit -n 64", ROOMY, ROOMY),
    "no process": (f"mkdir -p {GROUP}; echo $$ > {GROUP}/cgroup.procs; echo 3 > {GROUP}/pids.max", ROOMY, ROOMY),
    "256 MiB of address space": ("ulimit -v 262144", ROOMY, ROOMY),
    "1 GiB of address space": ("ulimit -v 1048576", ROOMY, ROOMY),
    "no /proc": ("mount -t tmpfs none /proc", ROOMY, ROOMY),
    "no user namespace": ("echo 0 > /proc/sys/user/max_user_namespaces", ROOMY, ROOMY),
    "files of 4 KiB at most": ("ulimit -f 8", ROOMY, ROOMY),
    "a temporary folder that is not there": ("export TMPDIR=/none", "size=1m", ROOMY),
    "a report that cannot be written": ("mount -o remount,ro {place}", ROOMY, ROOMY),
}
MIDDLES: dict[str, Middle] = {
    "no space for workers": fill("/dev/shm"),
    "no inode for workers": crowd("/dev/shm"),
    "no space for the report": fill("{place}"),
    "another disk over the report": mount("mount -t tmpfs -o size=4k none {place}/report"),
    "a report that is gone": mount("rm -rf {place}/report"),
    "no descriptor in a shard": limit(resource.RLIMIT_NOFILE, 8, SHARD),
    "no descriptor in templates": limit(resource.RLIMIT_NOFILE, 8, TEMPLATE),
    "no memory in a shard": limit(resource.RLIMIT_AS, 1 << 28, SHARD),
    "no memory in the coordinator": limit(resource.RLIMIT_AS, 1 << 26, COORDINATOR),
    "less memory than a shard has": limit(resource.RLIMIT_AS, 1 << 26, SHARD),
    "less memory than templates have": limit(resource.RLIMIT_AS, 1 << 26, TEMPLATE),
    "little memory in all": limit(resource.RLIMIT_AS, 1 << 28, b""),
    "no memory in templates": no_more_memory(16, TEMPLATE),
    "no process in templates": no_more_processes(TEMPLATE),
    "no process in all": no_more_processes(b""),
    "no /proc": mount("mount -t tmpfs none /proc"),
    "stopped templates": send(signal.SIGSTOP, TEMPLATE),
    "killed templates": send(signal.SIGKILL, TEMPLATE),
    "files of 4 KiB at most": limit(resource.RLIMIT_FSIZE, 4096, SHARD),
    "scratch folders that are gone": mount("rm -rf /dev/shm/driftnet-scratch-*"),
}


def tried(before: str, shm: str, disk: str, middle: Middle | None) -> tuple[int | str, set[str], str]:
    """The exit status of a run with a fault, the signatures that it tells as new, and the last that it says."""
    with contextlib.suppress(OSError):  # there is none, or somebody is still in it
        GROUP.rmdir()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Run(Path(folder), before.replace("{place}", f"{folder}/place"), shm, disk)
        if middle:
            run.begun()
            middle(run)
        try:
            out, err = run.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(run.process.pid, signal.SIGKILL)
            out, err = run.process.communicate()
            return "did not end", set(), err[-300:]
        said: object = None
        with contextlib.suppress(ValueError):
            said = json.loads(out)
        findings = said.get("findings", []) if isinstance(said, dict) else []
        with contextlib.suppress(OSError, ValueError):
            findings = findings or json.loads(Path(folder, "summary.json").read_text()).get("findings", [])
        new = {f["signature"] for f in findings if f["status"] == "new"}
        if isinstance(said, dict) and (errors := said.get("errors") or said.get("error")):
            err = json.dumps(errors)
        elif "Traceback" in err:
            err = f"TRACEBACK {err[-300:]}"
        return run.process.returncode, new, " | ".join(err.strip().splitlines()[-2:])[:400]


def main(words: list[str]) -> int:
    """Print what each fault led to; 0 where no run told a false finding, hung, or ended in a traceback."""
    _, usual, said = tried("", ROOMY, ROOMY, None)
    print(json.dumps({"undisturbed": sorted(usual)}), said, flush=True)
    right = bool(usual)
    faults = [(f"at the start: {name}", *given, None) for name, given in STARTS.items()]
    faults += [(f"in the middle: {name}", "", ROOMY, ROOMY, middle) for name, middle in MIDDLES.items()]
    for name, before, shm, disk, middle in faults:
        if words and not any(word in name for word in words):
            continue
        status, new, said = tried(before, shm, disk, middle)
        false = sorted(new - usual)
        right = right and not false and isinstance(status, int) and "TRACEBACK" not in said
        print(json.dumps({"fault": name, "status": status, "new": len(new), "false": false, "said": said}), flush=True)
    return int(not right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
