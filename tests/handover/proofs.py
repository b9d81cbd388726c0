"""Hand-overs of cases of the corpus, drawn at random, and what their scripts say by themselves.

    python -m tests.handover.proofs --cases 120 --seed 1        (make proofs)

writes the hand-over of each case into a folder, and runs its reproduce.py in an environment that holds the target,
onnx, numpy and onnxruntime, and nothing of driftnet: on the case, on the negative control that stands beside it, and on
other models without the trigger, which are chosen as the control is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from driftnet.findings import corpus
from driftnet.handover import handover
from driftnet.handover.control import Proof
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, environment, is_installed, resolve

from tests.support.paths import CORPUS

STATUS = {0: "not reproduced", 1: "reproduced", 2: "could not be told"}
BESIDE = ("onnx", "numpy", "onnxruntime")
SECONDS = 300


@dataclass(frozen=True)
class Ran:
    """What the script of one case said: of the case, of its control, of other models without the trigger."""

    name: str
    case: str
    control: str
    others: tuple[str, ...]
    said: str


def drawn(count: int, seed: int) -> list[Path]:
    """Cases of the corpus, of every target that is installed, tier and kind as often as they are there; not those that
    the installed release does right."""
    known = corpus.load_all(CORPUS)
    cases = [saved for saved in known if saved.status not in ("expected", "fixed") and is_installed(saved.target)]
    folders = [saved.path for saved in cases if saved.path]
    return sorted(random.Random(seed).sample(folders, min(count, len(folders))))


def measured(source: Path, out: Path, runner: Runner, pythons: dict[str, str], others: int) -> Ran:
    """Write the hand-over of a case and run its script."""
    folder = out / source.name
    shutil.copytree(source, folder)
    name = corpus.load(source).target
    installed = resolve(name)
    proof = handover.write(folder, installed, runner)
    python = pythons.get(name, sys.executable)
    if not (folder / "reproduce.py").exists():
        return Ran(source.name, "no script", "", (), "")
    case, said = ran(python, folder, "")
    beside = folder / "without_trigger"
    told = ran(python, folder, str(beside))[0] if beside.exists() else "none"
    found = islice(_others(folder, proof, installed, runner), others)
    more = [ran(python, folder, str(other))[0] for other in found]
    return Ran(source.name, case, told, tuple(more), said)


def ran(python: str, folder: Path, *arguments: str) -> tuple[str, str]:
    """What reproduce.py says, by its status, and its last lines."""
    command = [python, "-I", str(folder / "reproduce.py"), *filter(None, arguments)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=SECONDS, errors="replace", env={})
    return STATUS.get(done.returncode, f"status {done.returncode}"), "\n".join(done.stdout.splitlines()[-3:])


def _others(folder: Path, proof: Proof, installed: Installed, runner: Runner) -> Iterator[Path]:
    """Models that do not fail, other than the one that the hand-over has chosen, judged as that is: by what the script
    claims, and by the script itself in the sandbox."""
    saved = corpus.load(folder)
    chosen = proof.control and proof.control.case.model
    found = (one for one in proof.others if one.case.model != chosen and one.recipe == saved.recipe)
    for k, one in enumerate(found):
        other = folder / f"other_{k}"
        other.mkdir()
        corpus.write_model(one.case, (), other)
        if handover.says_no(folder, other, saved, installed, runner):
            yield other


def clean(names: Sequence[str], cache: Path) -> dict[str, str]:
    """Interpreters that hold one target each, and what a script tells its user to install beside it."""
    os.environ["DRIFTNET_CACHE"] = str(cache)
    made = {}
    for name in names:
        target, release = resolve(name).target, resolve(name).release
        beside = tuple(("", package) for package in BESIDE if package != target.distribution)
        made[name] = environment(target.distribution, release, (*target.companions, *beside)).python
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--others", type=int, default=1, help="further models without the trigger, a case")
    parser.add_argument("--here", action="store_true", help="in this environment, not in clean ones")
    parser.add_argument("--out", type=Path, help="keep the hand-overs in this folder")
    asked = parser.parse_args()
    sources = drawn(asked.cases, asked.seed)
    names = sorted({corpus.load(source).target for source in sources})
    with tempfile.TemporaryDirectory() as place, Runner(small_models=True) as runner:
        out = asked.out or Path(place)
        out.mkdir(parents=True, exist_ok=True)
        pythons = {} if asked.here else clean(names, Path("build/proofs").resolve())
        found = []
        for source in sources:
            found.append(measured(source, out, runner, pythons, asked.others))
            one = found[-1]
            odd = one.case != "reproduced" or "reproduced" in (one.control, *one.others)
            print(one.name, "|", one.case, "|", one.control, "|", *one.others, flush=True)
            print(*(f"    {line[:300]}" for line in one.said.splitlines() if odd), sep="\n", end="\n" if odd else "")
    others = [told for one in found for told in one.others]
    print(f"with the trigger:    {dict(Counter(one.case for one in found))}")
    print(f"negative controls:   {dict(Counter(one.control for one in found))}")
    print(f"others without it:   {dict(Counter(others))}")


if __name__ == "__main__":
    main()
