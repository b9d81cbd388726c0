"""Environments: which interpreter holds which release of which target.

A target word is `mnn` (the release installed here) or `mnn==3.4.1` (that release, in an environment of its own, made on
demand and cached); "module:attribute" may stand in place of a registered name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from driftnet.targets.interface import Target
from driftnet.util.errors import UserError
from driftnet.util.files import Scratch
from driftnet.util.machine import die_with_parent

GROUP = "driftnet.targets"
DEFAULT_TARGETS = tuple(e.name for e in metadata.distribution("driftnet").entry_points if e.group == GROUP)
"""those that driftnet itself registers"""

NAME = re.compile(r"(?!\.)(?!.*\.\.)[\w.-]+")
"""What a target may be called: its name is a folder of the corpus too. No "module:attribute" and no path fits it."""


@dataclass(frozen=True)
class Installed:
    """A target, and the interpreter that holds one release of it.

    spec  "module:attribute", where the sandbox finds the target;  python  path of the interpreter
    """

    target: Target
    spec: str
    release: str
    python: str


@dataclass(frozen=True)
class Environment:
    """A cached environment, made for one release of a distribution."""

    distribution: str
    release: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


def registered() -> dict[str, str]:
    """The targets that are registered here: name -> "module:attribute"."""
    return {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}


def onnx_engine() -> Installed:
    """Of the default targets the one that executes what quantizers write in ONNX; its options for a model as it is are
    `features["float"]` of its declaration."""
    return next(one for one in map(resolve, DEFAULT_TARGETS) if "onnx" in one.target.features)


def resolve(word: str, *, python: str | None = None) -> Installed:
    """The target that `word` names, held by the interpreter `python` (None: this one, or one made for the release).

    Raises UserError: kind "target" when there is no such target or it is not installed, "environment" when an
    environment for the release cannot be made or `python` holds another release.
    """
    name, _, wanted = (part.strip() for part in word.partition("=="))
    spec = registered().get(name, name)
    target = _load(name, spec)
    if python is None:
        held, release = sys.executable, _release(target.distribution)
        if wanted and wanted != release:
            return Installed(target, spec, wanted, environment(target.distribution, wanted, target.companions).python)
    else:
        held = _executable(python)
        release = _release_in(held, target.distribution)
    if release is None:
        raise UserError(
            f"target {name} needs the package {target.distribution}, which {held} does not hold",
            hint=f"install it there, or name a release, {name}==RELEASE, and it gets an environment of its own",
            kind="target",
        )
    if wanted and wanted != release:
        raise UserError(
            f"{held} holds {target.distribution} {release}, not {wanted}",
            hint=f"name {name}=={wanted} without an interpreter, and it gets an environment of its own",
            kind="environment",
        )
    return Installed(target, spec, release, held)


def environment(distribution: str, release: str, companions: Sequence[tuple[str, str]] = ()) -> Environment:
    """The cached environment that holds `release` of `distribution`; made now where there is none (takes a minute).

    Raises UserError (kind "environment") when it cannot be made; what stood there before is unharmed.
    """
    made = Environment(
        distribution, release, _cache() / f"{distribution}-{release}-py{sys.version_info.major}{sys.version_info.minor}"
    )
    if Path(made.python).exists():
        return made
    try:
        made.folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(made.folder, ignore_errors=True)  # its interpreter has gone
        with contextlib.closing(Scratch(made.folder.parent)) as scratch:  # one that is killed is removed by the next
            unfinished = scratch.path / "environment"
            _make(Environment(distribution, release, unfinished), _needed(companions, release))
            unfinished.rename(made.folder)
    except OSError as e:
        if not Path(made.python).exists():  # another process was first
            raise UserError(
                f"cannot make an environment in {made.folder.parent}: {e}",
                hint="set DRIFTNET_CACHE to a directory that can be written",
                kind="environment",
            ) from None
    return made


def environments() -> list[Environment]:
    """The cached environments, sorted by name and release."""
    found = (re.fullmatch(r"(.+?)-([^-]+)-(py\d+)", path.name) for path in sorted(_cache().glob("[!.]*-py*")))
    return [Environment(m[1], m[2], _cache() / m[0]) for m in found if m]


def prune() -> list[Environment]:
    """Delete every cached environment, half-made ones too. Returns those that stood."""
    stood = environments()
    shutil.rmtree(_cache(), ignore_errors=True)
    return stood


def _load(name: str, spec: str) -> Target:
    module, _, path = spec.partition(":")
    found: object = None
    if path:
        try:
            found = importlib.import_module(module)
            for attribute in path.split("."):
                found = getattr(found, attribute)
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            raise UserError(f"target {name} cannot be loaded: {e}", hint=_hint(), kind="target") from None
    if not isinstance(found, Target):
        raise UserError(f"there is no target {name!r}", hint=_hint(), kind="target")
    if not NAME.fullmatch(found.name):
        raise UserError(
            f"target {name} calls itself {found.name!r}",
            hint="its name may have letters, digits, '_', '-' and single dots",
            kind="target",
        )
    return found


def _hint() -> str:
    return f"targets are {', '.join(sorted(registered()))}, each also as NAME==RELEASE, or MODULE:ATTRIBUTE"


def _release(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _release_in(python: str, distribution: str) -> str | None:
    code = "import sys; from importlib import metadata; print(metadata.version(sys.argv[1]))"
    done = subprocess.run([python, "-I", "-c", code, distribution], capture_output=True, text=True)
    return done.stdout.strip() or None


def _executable(python: str) -> str:
    if found := shutil.which(python):
        return os.path.abspath(found)
    raise UserError(f"there is no interpreter {python}", hint="give the path of a Python", kind="environment")


def _cache() -> Path:
    if folder := os.environ.get("DRIFTNET_CACHE"):
        return Path(folder) / "environments"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "driftnet" / "environments"


def _make(new: Environment, companions: Sequence[str]) -> None:
    requirements = [f"{new.distribution}=={new.release}", "numpy", *companions]
    # Our own pip where there is one: putting pip into the environment takes 4 s, more than most releases themselves.
    ours = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-I", "-m", "pip", "--python", new.python] if ours else [new.python, "-I", "-m", "pip"]
    for command in (
        [sys.executable, "-I", "-m", "venv", *(["--without-pip"] if ours else []), str(new.folder)],
        [*pip, "install", "--only-binary=:all:", "--no-input", *requirements],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        if done.returncode:
            raise _failure(new, (done.stderr or done.stdout).strip())


def _needed(companions: Sequence[tuple[str, str]], release: str) -> list[str]:
    return [needed for below, needed in companions if not below or _numbers(release) < _numbers(below)]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


def _failure(new: Environment, said: str) -> UserError:
    what = (
        f"no environment for {new.distribution} {new.release} with Python {sys.version_info[0]}.{sys.version_info[1]}"
    )
    if offered := re.search(rf"{re.escape(new.distribution)}\S* \(from versions: (.+?)\)", said, re.IGNORECASE):
        if offered[1] == "none":
            return UserError(
                f"{what}: the package index offers none", hint="is the index reachable?", kind="environment"
            )
        return UserError(
            f"{what}: no wheel of that release fits",
            hint=f"releases that fit: {offered[1]}; for others, name an interpreter that holds one with --python",
            kind="environment",
        )
    last = said.rpartition("\n")[2] or "nothing was said"
    return UserError(
        f"{what}: {last}", hint="is the package index reachable, and the disk not full?", kind="environment"
    )
