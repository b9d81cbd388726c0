"""Simulated nights: runs with one state, and what must hold of what they told.

    python -m tests.support.nights DIR mnn==3.0.0:7 mnn:7 --minutes 5

runs seven nights with one release, then seven with another, and says what it saw. `promises` is what must hold. What a
night said stands beside its report; one that is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

RED = {"new", "back", "worse"}


def night(state: Path, report: Path, *words: str, path: Sequence[Path] = ()) -> dict[str, Any]:
    """What a run with this state says, with its exit status; path: where Python finds more modules."""
    if (said := report.with_suffix(".json")).exists():
        return dict(json.loads(said.read_text()))
    command = [
        sys.executable,
        "-m",
        "driftnet.cli.main",
        "fuzz",
        "--json",
        "--state",
        state,
        "--report",
        report,
        *words,
    ]
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env=_environment(path), capture_output=True, text=True, check=False
    )
    summary = report / "summary.json"  # which a night that ends with an error has written, too
    told = json.loads(summary.read_text()) if done.returncode == 2 and summary.exists() else {}
    told |= {**json.loads(done.stdout), "status": done.returncode, "report": str(report)}
    report.with_suffix(".json").write_text(json.dumps(told, indent=1))
    report.with_suffix(".log").write_text(done.stderr)
    return told


def promises(nights: Sequence[Mapping[str, Any]], state: Path) -> Iterator[str]:
    """What does not hold of these nights: each cause announced as new once, red if and only if something is new, back
    or worse, fixed before it is back, and everything that any night found in the state."""
    new, status = Counter[str](), dict[str, str]()
    kept = {path.parent.name for path in (state / "cases").rglob("test_*/case.json")}
    causes = {path.parent.name: json.loads(path.read_text()) for path in (state / "cases").rglob("cause.json")}
    listed = {id for cause in causes.values() for id in (*cause["merged"], *cause["findings"])}
    ledger = json.loads((state / "state.json").read_text())["causes"]
    for number, told in enumerate(nights, 1):
        if "error" in told or told["errors"]:
            yield f"night {number} ended with an error: {told.get('error') or told['errors']}"
        changes = (told.get("night") or {"changes": ()})["changes"]
        red = any(change["what"] in RED for change in changes)
        if told["status"] != 2 and red != (told["status"] == 1):
            yield f"night {number} ended with {told['status']}, with {[c['what'] for c in changes]} to tell"
        for change in changes:
            new[change["cause"]] += change["what"] == "new"
            if change["what"] == "back" and status.get(change["cause"], "fixed") != "fixed":
                yield f"night {number}: {change['cause']} is back, and was not fixed"
            status[change["cause"]] = change["what"]
        for finding in told.get("findings", ()):
            if finding["status"] == "new" and finding["id"] not in kept | listed:
                yield f"night {number} found {finding['id']}, which is not in the state"
            if finding["cause"] not in ledger:
                yield f"night {number} met {finding['cause']}, of which the state knows nothing"
    yield from (f"{cause} was announced as new {times} times" for cause, times in new.items() if times > 1)
    for id, what in status.items():
        if ledger[id].get("status", "open") != ("fixed" if what == "fixed" else "open"):
            yield f"{id} was told to be {what} last, and the state does not say so"


def _environment(path: Sequence[Path]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}


def _said(told: Mapping[str, Any]) -> str:
    if "error" in told:
        return str(told["error"])
    happened = Counter(change["what"] for change in told["night"]["changes"])
    tonight = {name: told["night"][name] for name in ("open", "fixed", "asked", "unasked")}
    return f"{told['cases']} cases, {dict(happened)}, {tonight}"


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("phases", nargs="+", metavar="TARGET:NIGHTS")
    parser.add_argument("--minutes", default="5")
    parser.add_argument("--corpus", type=Path, default=ROOT / "corpus")
    parser.add_argument("--workers", default="1")
    asked = parser.parse_args()
    state, nights = asked.folder / "state", []
    for phase in asked.phases:
        target, _, count = phase.rpartition(":")
        for _ in range(int(count)):
            words = ("--target", target, "--minutes", asked.minutes, "--corpus", str(asked.corpus))
            told = night(state, asked.folder / f"night-{len(nights) + 1:02d}", *words, "--workers", asked.workers)
            nights.append(told)
            print(f"night {len(nights)}, {target}: status {told['status']}, {_said(told)}", flush=True)
    broken = list(promises(nights, state))
    print("\n".join(broken or ["every promise holds"]))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
