"""Write constraints.txt anew: the releases it names, or those given as NAME==RELEASE, with the hashes of their wheels.

    python -m tests.support.pins [NAME==RELEASE]...
    python -m tests.support.pins docs/constraints.txt [NAME==RELEASE]...

The index is asked by pip, once for each Python and machine that the project promises.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from tests.support.paths import ROOT

FILE = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBCS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014", "manylinux_2_5")
SITE = ROOT / "docs" / "constraints.txt"
WHO = {FILE: "make setup` and CI install", SITE: "make site` installs"}
SAID = """\
# What `{}: every release pinned, with the hashes of its wheels for Linux on x86_64 and aarch64,
# for Python 3.11 to 3.14. A file with another hash is refused. What writes it anew:
# python -m tests.support.pins{}
"""


def pinned(text: str) -> dict[str, list[str]]:
    """The requirements of a file of constraints, NAME==RELEASE, with their hashes."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if requirement := re.match(r"[\w.-]+==[\w.]+", line):
            found[requirement[0]] = []
        elif said := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            found[list(found)[-1]].append(said[1])
    return found


def wheels(requirements: Sequence[str], python: str, machine: str) -> dict[str, str]:
    """The sha256 of the wheel that pip would install for each requirement, in lower case, on such a machine."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "asked.txt").write_text("\n".join(requirements))
        platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBCS]
        words = ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", f"--target={folder}/none"]
        words += [f"--report={folder}/report.json", f"--requirement={folder}/asked.txt", f"--python-version={python}"]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *words, *platforms], check=True)
        report = json.loads(Path(folder, "report.json").read_text())
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}".lower(): one["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for one in report["install"]
    }


def text_of(pins: Mapping[str, Set[str]], file: Path = FILE) -> str:
    """What `file` says then."""
    entries = [
        " \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))])
        for requirement, digests in pins.items()
    ]
    which = "" if file == FILE else f" {file.relative_to(ROOT)}"
    return SAID.format(WHO[file], which) + "\n".join(entries) + "\n"


def main(words: Sequence[str]) -> None:
    """Write the file."""
    file = SITE if words and words[0] == str(SITE.relative_to(ROOT)) else FILE
    words = words[1:] if file == SITE else words
    new = {word.partition("==")[0].lower(): word for word in words}
    asked = [new.pop(old.partition("==")[0].lower(), old) for old in pinned(file.read_text(encoding="utf-8"))]
    asked = sorted([*asked, *new.values()], key=str.lower)
    pins: dict[str, set[str]] = defaultdict(set)
    for python in PYTHONS:
        for machine in MACHINES:
            found = wheels(asked, python, machine)
            for requirement in asked:
                pins[requirement].add(found[requirement.lower()])
    file.write_text(text_of(pins, file), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
