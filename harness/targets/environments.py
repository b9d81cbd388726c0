"""Environments: which interpreter holds which release of which target.

A target word is `mnn` (the release installed here) or `mnn==3.4.1` (that release, in an environment of its own, made on
demand and cached); "module:attribute" may stand in place of a registered name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import metadata
from pathlib import Path

from driftnet.targets.declaration import misdeclared
from driftnet.targets.interface import Target
from driftnet.targets.loading import OURS as OWN
from driftnet.targets.loading import LoadingError, attribute
from driftnet.targets.registry import DEFAULT_TARGETS, registered
from driftnet.util.errors import UserError, in_a_line
from driftnet.util.files import Scratch, cache, in_turn, replace_text
from driftnet.util.machine import die_with_parent
from driftnet.util.nearest import meant

NAME = re.compile(r"(?!\.)(?!.*\.\.)[\w.-]+")
"""What a target may be called: its name is a folder of the corpus too. No "module:attribute" and no path fits it."""


DAY = 86400.0  # seconds
OURS = sys.version_info.minor
ALONE, BINARY = " --no-deps", "--only-binary=:all:"
MINORS = range(8, 15)
"""Pythons that a release may need: a worker runs on 3.8 and newer."""


class NoWheelError(UserError):
    """The index has no wheel of a release for an interpreter; it may have one for another."""


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


def onnx_engine() -> Installed:
    """Of the default targets the one that executes what quantizers write in ONNX; its options for a model as it is are
    `features["float"]` of its declaration."""
    return next(one for one in map(resolve, DEFAULT_TARGETS) if "onnx" in one.target.features)


def resolve(word: str, *, python: str | None = None) -> Installed:
    """The target that `word` names, held by the interpreter `python` (None: this one, or one made for the release).

    Raises UserError: kind "target" when there is no such target or it is not installed, "environment" when an
    environment for the release cannot be made or `python` holds another release.
    """
    name, asks, wanted = (part.strip() for part in word.partition("=="))
    spec = registered().get(name, name)
    target = declared(name)
    if asks and not wanted:
        raise UserError(f"{word!r} names no release", hint=f"{name}==RELEASE, or {name} alone", kind="target")
    here = release_here(target.distribution)
    if python is None:
        held, release = sys.executable, here
        if wanted and wanted != release:
            made = environment(target.distribution, wanted, target.companions)
            return Installed(_of_its_time(target, wanted, here), spec, wanted, made.python)
    else:
        held = _executable(python)
        release = _release_in(held, target.distribution)
    if release is None:
        # by their own names: driftnet itself may have come from a clone, and no index may know it
        asked = [one.partition(";") for one in metadata.requires("driftnet") or ()]
        extra = [need.strip() for need, _, when in asked if re.search(rf"extra == .{re.escape(name)}\W", when)]
        packages = shlex.join(extra or [target.distribution])
        raise UserError(
            f"target {name} needs the package {target.distribution}, which {held} does not hold",
            hint=f"pip install {packages} there, or name {name}==RELEASE, and it gets an environment of its own",
            kind="target",
        )
    if wanted and wanted != release:
        raise UserError(
            f"{held} holds {target.distribution} {release}, not {wanted}",
            hint=f"name {name}=={wanted} without an interpreter, and it gets an environment of its own",
            kind="environment",
        )
    return Installed(_of_its_time(target, release, here), spec, release, held)


def present(installed: Installed) -> Installed | None:
    """The release of a target that is installed here, where `installed` is an older one of it."""
    target = installed.target
    return _present(target.name, installed.spec, target.distribution, installed.release)


@functools.cache  # every failure asks
def _present(name: str, spec: str, distribution: str, release: str) -> Installed | None:
    here = release_here(distribution)
    if here is None or numbers(release) >= numbers(here) or registered().get(name) != spec:
        return None
    return resolve(name)


def declared(name: str) -> Target:
    """The declaration of a target, which need not be installed. Raises UserError (kind "target") for none."""
    return _load(name, registered().get(name, name))


def is_installed(name: str) -> bool:
    """Whether a release of this target is installed here. Raises UserError (kind "target") where there is no such
    target."""
    return release_here(declared(name).distribution) is not None


def where_seen(name: str, releases: Sequence[str]) -> str:
    """The word of a target as it is installed here; where it is not, that of the newest of `releases`, which a case of
    it was seen in, and which gets an environment of its own."""
    return name if is_installed(name) or not releases else f"{name}=={max(releases, key=numbers)}"


def environment(distribution: str, release: str, companions: Sequence[tuple[str, str]] = ()) -> Environment:
    """The cached environment that holds `release` of `distribution`; made now where there is none: of this interpreter,
    or, where the index has no wheel for it, of another one that is installed or that uv brings.

    Raises UserError (kind "environment") when it cannot be made; what stood there before is unharmed.
    """
    needed, failure = _needed(companions, release), None
    # Two targets may want other packages beside one distribution.
    beside = f"-{zlib.crc32(' '.join(needed).encode()):08x}" if needed else ""
    for minor in (OURS, *(m for m in MINORS if m != OURS)):
        made = Environment(distribution, release, _cache() / f"{distribution}-{release}-py3{minor}{beside}")
        if Path(made.python).exists():
            return made
        if failure is not None and (not _interpreter(minor) or release not in _offered(distribution, minor)):
            continue
        try:
            return _made(made, needed, minor)
        except NoWheelError as e:
            failure = failure or e
    assert failure is not None, "this interpreter is tried first"
    raise failure


def releases(distribution: str) -> list[str]:
    """The releases of `distribution` that the package index has wheels of, for this interpreter or for another one that
    an environment could be made of; the oldest first, pre-releases left out.

    What the index said is kept for a day: asking it for each interpreter takes 4 s. Raises UserError (kind
    "environment") where it says nothing.
    """
    kept = _cache() / f".{distribution}.releases"
    with contextlib.suppress(OSError):
        if time.time() - kept.stat().st_mtime < DAY:
            return kept.read_text(encoding="utf-8").split()
    with ThreadPoolExecutor() as threads:
        asked = [minor for minor in MINORS if minor == OURS or _interpreter(minor)]
        found = {release for some in threads.map(functools.partial(_offered, distribution), asked) for release in some}
    if not found:
        what = f"the package index offers no release of {distribution} to pip"
        raise UserError(what, hint="is it reachable? else name them: --releases A,B,C", kind="environment")
    offered = sorted(found, key=numbers)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_text(kept, " ".join(offered))
    return offered


def _made(made: Environment, needed: Sequence[str], minor: int) -> Environment:
    """Make this environment, unless another process does it meanwhile."""
    try:
        made.folder.parent.mkdir(parents=True, exist_ok=True)
        # The processes of a run all ask for the same environment at its start.
        with (
            in_turn(made.folder.parent.with_suffix(".lock")),
            contextlib.closing(Scratch(made.folder.parent)) as scratch,
        ):
            if Path(made.python).exists():
                return made
            shutil.rmtree(made.folder, ignore_errors=True)  # its interpreter has gone
            unfinished = scratch.path / "environment"  # one that is killed is removed by the next
            _make(Environment(made.distribution, made.release, unfinished), needed, minor)
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
    found = (re.fullmatch(r"(.+?)-([^-]+)-(py\d+)(-\w+)?", path.name) for path in sorted(_cache().glob("[!.]*-py*")))
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
            found = attribute(module, path)
        except LoadingError as e:
            raise UserError(f"target {name} cannot be loaded: {e}", hint=_hint(), kind="target") from None
    if not isinstance(found, Target):
        raise UserError(f"there is no target {name!r}", hint=meant(name, registered(), _hint()), kind="target")
    if not module.startswith(OWN) and (wrong := misdeclared(found)):
        raise UserError(
            f"the declaration of target {name} is wrong: {'; '.join(wrong)}",
            hint="driftnet.targets.interface.Option, Rule and Target say what each field means",
            kind="target",
        )
    if not NAME.fullmatch(found.name):
        raise UserError(
            f"target {name} calls itself {found.name!r}",
            hint="its name may have letters, digits, '_', '-' and single dots",
            kind="target",
        )
    return found


def _of_its_time(target: Target, release: str, here: str | None) -> Target:
    """What is declared of an older release than the one installed here: what that is too old for, it refuses."""
    if here is not None and numbers(release) >= numbers(here):
        return target
    own = numbers(release)
    later = {o.name: tuple(value for value, since in o.since.items() if own < numbers(since)) for o in target.options}
    return replace(target, refusals=(*target.refusals, *target.outgrown), undrawn=later)


def _hint() -> str:
    return f"targets are {', '.join(sorted(registered()))}, each also as NAME==RELEASE, or MODULE:ATTRIBUTE"


def release_here(distribution: str) -> str | None:
    """The release of a package that is installed here; None where it is not."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _release_in(python: str, distribution: str) -> str | None:
    code = "import sys; from importlib import metadata; print(metadata.version(sys.argv[1]))"
    done = subprocess.run([python, "-I", "-c", code, distribution], capture_output=True, text=True)
    if done.returncode and "PackageNotFoundError" not in done.stderr:
        why = in_a_line(done.stderr.strip().rpartition("\n")[2], 150) or "it says nothing"
        raise UserError(f"{python} is no Python: {why}", hint="give the path of a Python", kind="environment")
    return done.stdout.strip() or None


def _executable(python: str) -> str:
    if found := shutil.which(python):
        return os.path.abspath(found)
    raise UserError(f"there is no interpreter {python}", hint="give the path of a Python", kind="environment")


def _cache() -> Path:
    return cache() / "environments"


def _make(new: Environment, companions: Sequence[str], minor: int) -> None:
    """By uv where it is on the PATH (.3 s, where pip takes 3 s), with companions of the release's time; else, or where
    uv fails, by pip, which says why, with the newest that are allowed."""
    installs = _installs([f"{new.distribution}=={new.release}", "numpy"], companions)
    if uv := shutil.which("uv"):
        base, settings = _interpreter(minor), _as_pip()
        date = _dated(uv, new, minor)
        for until in [["--exclude-newer", date], []] if date else [[]]:  # a companion may be younger
            commands = (
                [uv, "venv", "-q", "--python", base, str(new.folder)],
                *([uv, "pip", "install", "-q", "--python", new.python, BINARY, *until, *wanted] for wanted in installs),
            )
            if not any(_ran(command, settings).returncode for command in commands):
                return
            shutil.rmtree(new.folder, ignore_errors=True)
    # Our own pip where there is one: putting pip into the environment takes 4 s, more than most releases themselves.
    ours = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-I", "-m", "pip", "--python", new.python] if ours else [new.python, "-I", "-m", "pip"]
    for command in (
        [_interpreter(minor), "-I", "-m", "venv", *(["--without-pip"] if ours else []), str(new.folder)],
        *([*pip, "install", "--no-input", BINARY, *wanted] for wanted in installs),
    ):
        done = _ran(command)
        if done.returncode:
            raise _failure(new, (done.stderr or done.stdout).strip(), minor)


def _dated(uv: str, new: Environment, minor: int) -> str:
    """A day after the index got this release, as uv takes it: what it needs is had as it was then, the same for
    everybody. "" where the index does not tell."""
    wanted = new.folder.with_suffix(".in")
    wanted.write_text(f"{new.distribution}=={new.release}", encoding="utf-8")
    lock = ["--no-deps", "-q", "--format", "pylock.toml", "--python-version", f"3.{minor}"]
    said = _ran([uv, "pip", "compile", *lock, str(wanted)], _as_pip()).stdout
    with contextlib.suppress(tomllib.TOMLDecodeError):
        files = [wheel for package in tomllib.loads(said).get("packages", []) for wheel in package.get("wheels", [])]
        if dates := [wheel["upload-time"] for wheel in files if "upload-time" in wheel]:
            return f"{max(dates) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    return ""


def _ran(command: Sequence[str], settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
        env={**(settings or {}), **os.environ},
    )


@functools.cache
def _as_pip() -> Mapping[str, str]:
    """What pip was told of indexes, as uv wants it: it reads none of that, and would ask a public index for what people
    here have on one of their own."""
    said = _ran([sys.executable, "-I", "-m", "pip", "config", "list"]).stdout
    found: dict[str, str] = {}
    for line in said.splitlines():  # global ones, those of `pip install`, then those of the environment
        name, _, value = line.partition("=")
        words = shlex.split(value)
        found[name.rpartition(".")[2]] = words[0] if words else ""
    uv = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # to pip, all its indexes are one
    for name, variable, separator in PIP_AS_UV:
        if found.get(name):
            uv[variable] = separator.join(found[name].split())
    return uv


PIP_AS_UV = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("no-index", "UV_NO_INDEX", " "),
    ("constraint", "UV_CONSTRAINT", " "),
    ("cert", "SSL_CERT_FILE", " "),
)


@functools.cache
def _interpreter(minor: int) -> str:
    """A Python 3.`minor`: this one, one on the PATH, one of pyenv's, or its number where uv brings it; ""."""
    if minor == OURS:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for found in (shutil.which(f"python3.{minor}"), *sorted(map(str, pyenv.glob(f"3.{minor}.*/bin/python")))):
        if found and not _ran([found, "-I", "-c", ""]).returncode:  # a shim of pyenv's runs nothing by itself
            return found
    return f"3.{minor}" if shutil.which("uv") else ""


@functools.cache
def _offered(distribution: str, minor: int) -> tuple[str, ...]:
    """The releases of which the index has wheels for Python 3.`minor`; none where there is no pip to ask it with."""
    command = [sys.executable, "-I", "-m", "pip", "index", "versions", distribution, "--only-binary=:all:"]
    said = _ran([*command, f"--python-version=3.{minor}"]).stdout
    found = re.search(r"^Available versions: (.+)", said, re.MULTILINE)
    return tuple(found[1].split(", ")) if found else ()


def installs(target: Target, release: str, beside: Sequence[str]) -> list[list[str]]:
    """What pip is told to install for a release, a list for each call of it: packages `beside` it, if it does not say
    itself which release of these it needs, the release, and what that needs."""
    needed = _needed(target.companions, release)
    named = {re.split(r"[<>=!~ \[]", one)[0] for one in (target.distribution, *needed)}
    return _installs([*(one for one in beside if one not in named), f"{target.distribution}=={release}"], needed)


def _installs(first: Sequence[str], companions: Sequence[str]) -> list[list[str]]:
    with_all = [needed for needed in companions if ALONE not in needed]
    alone = [needed.replace(ALONE, "") for needed in companions if ALONE in needed]
    return [[*first, *with_all], *([["--no-deps", *alone]] if alone else [])]


def _needed(companions: Sequence[tuple[str, str]], release: str) -> list[str]:
    own = numbers(release)
    return [
        needed.format(*own, release=release)
        for when, needed in companions
        if not when or (own >= numbers(when) if when.startswith(">=") else own < numbers(when))
    ]


def numbers(release: str) -> tuple[int, ...]:
    """What releases are ordered by."""
    return tuple(map(int, re.findall(r"\d+", release)))


def _failure(new: Environment, said: str, minor: int) -> UserError:
    what = f"no environment for {new.distribution} {new.release} with Python 3.{minor}"
    if offered := re.search(rf"{re.escape(new.distribution)}\S* \(from versions: (.+?)\)", said, re.IGNORECASE):
        if offered[1] == "none":
            return NoWheelError(
                f"{what}: the package index offers none", hint="is the index reachable?", kind="environment"
            )
        return NoWheelError(
            f"{what}: no wheel of that release fits",
            hint=f"releases that fit: {offered[1]}; for others, name an interpreter that holds one with --python",
            kind="environment",
        )
    last = said.rpartition("\n")[2] or "nothing was said"
    return UserError(
        f"{what}: {last}", hint="is the package index reachable, and the disk not full?", kind="environment"
    )
