"""Hidden files: templates see the file system that bubblewrap (https://github.com/containers/bubblewrap) makes them.

It holds the interpreter, driftnet, what is preloaded, the system's libraries, /proc, a few devices, an empty /tmp, and
the folder of the workers; nothing else can be read, and only that folder and /tmp be written.

Who asks for it does so for the whole process and all that it starts, by a variable of the environment: one template
that somebody forgot to tell would show everything.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driftnet.run.sandbox import outside
from driftnet.run.sandbox.worker import make_empty
from driftnet.util.errors import UserError

VARIABLE = "DRIFTNET_HIDE_FILES"
GENERATIONS = 3
"""Processes from a template up to the one that wanted it: bwrap, and that which stands by outside."""
_INSTALL = "install bubblewrap (apt-get install bubblewrap), or leave --hide-files out and run driftnet in a container"
_GRANT = (
    "the system has to grant user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns; a container by its security options); else leave --hide-files out"
)
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/usr/sbin", "/usr/share"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    "/sys/devices/system",  # how many cores and caches there are: it chooses kernels
)
_PARTS = ("bin", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg")
"""What is shown of a prefix: people make an environment of the folder that they work in."""
_ALWAYS = (
    *("--die-with-parent", "--cap-drop", "ALL"),
    *(() if os.getuid() else ("--cap-add", "CAP_SETFCAP")),  # or root could have no user namespace of its own
)
_MADE = (
    *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--ro-bind", "/proc/sys", "/proc/sys", "--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger"),
)
_SHARED = ("/tmp", "/var/tmp")
_MOST_LINKS = 40  # as many as the kernel follows
_ASK = """
import json, sys
modules = [module for name, module in sys.modules.items() if name.startswith("__editable__")]
path = sys.path + [place for module in modules for place in getattr(module, "MAPPING", {}).values()]
print(json.dumps([sys.executable, [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix], path]))
"""
"""What setuptools installs editable is found by modules of its own."""
_ASKED_SECONDS = 60.0


@dataclass(frozen=True)
class Interpreter:
    """A Python: what to run, its prefixes, and where it finds modules."""

    executable: str
    prefixes: Sequence[str]
    path: Sequence[str]


def asked() -> bool:
    """Whether files are to be hidden."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """While the block runs, files are hidden from every template that is made. Raises UserError (kind "environment")
    where that cannot be."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        demand()
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def demand() -> None:
    """Raise UserError (kind "environment") where files cannot be hidden."""
    if said := refusal():
        raise UserError(f"files cannot be hidden from targets: {said[0]}", hint=said[1], kind="environment")


@functools.cache
def refusal() -> tuple[str, str] | None:
    """Why files cannot be hidden here, and what to do; None where they can."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap is not installed: there is no bwrap on the PATH", _INSTALL
    words = [bwrap, *_ALWAYS, "--ro-bind", "/", "/", *_MADE, sys.executable, "-I", "-S", "-c", ""]
    try:
        done = _ran(words)
        said = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as e:
        said = str(e)
    else:
        if done.returncode == 0:
            return None
    return f"{bwrap} does not run here ({said})", _GRANT


def interpreter(python: str) -> Interpreter:
    """What is known of the interpreter `python`; of one that does not say, nothing but its path.

    Raises OSError where it does not start.
    """
    told = _told(python)
    if os.path.abspath(python) == os.path.abspath(sys.executable):  # what was added in this process is lent, too
        return replace(told, path=(*sys.path, *told.path))
    return told


@functools.cache
def _told(python: str) -> Interpreter:
    """It says so where nothing is hidden, before anything of a target is imported."""
    words = [python, "-I", "-c", _ASK]
    try:
        done = _ran(words)
        executable, prefixes, path = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):  # what is wrong with it is told when it is started
        return Interpreter(python, (), ())
    return Interpreter(executable or python, tuple(prefixes), tuple(path))


def _ran(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a command says; once more where somebody has killed it: what it says is remembered."""
    for _ in range(2):
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASKED_SECONDS, errors="replace"
        )
        if done.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):  # the latter is bwrap's word for it
            break
    return done


def command(
    words: Sequence[str], one: Interpreter, folder: Path, *, lent: Iterable[str], shown: Collection[Path], passwd: int
) -> list[str]:
    """`words` for `one`, to be run where nothing is seen but what it needs.

    lent     names of modules that are lent from here;   shown   files that may be read, too
    folder   the only one that may be written;           passwd  file descriptor of what stands in for /etc/passwd

    What is written beside a file that is shown, as onnxruntime's quantizer does, goes to `folder`.
    """
    wanted = [*_SYSTEM, *_places(one), *(str(place) for name in lent for place in locations(name)), *map(str, shown)]
    mounts, links = seen(wanted)
    around = sorted({os.path.realpath(place.parent) for place in shown})
    around = [place for place in around if place != "/" and not any(_within(place, mount) for mount in mounts)]
    bwrap = shutil.which("bwrap") or "bwrap"
    return [
        *(bwrap, *_ALWAYS, *_MADE),
        *(word for k, place in enumerate(around) for word in ("--bind", str(_beside(folder, k)), place)),
        *(word for place in mounts for word in ("--ro-bind-try", place, place)),
        *(word for link, to in links.items() for word in ("--symlink", to, link)),
        *("--file", str(passwd), "/etc/passwd"),
        *("--bind", str(folder), str(folder), "--chdir", str(folder), "--remount-ro", "/"),
        *("--", one.executable, *words),
    ]


def beside(parent: int, control: int, folder: Path, above: str, command: Sequence[str]) -> list[str]:
    """The command of the process that stands by while `command` runs."""
    return [sys.executable, "-I", "-S", outside.__file__, str(parent), str(control), str(folder), above, *command]


def _beside(folder: Path, k: int) -> Path:
    """An empty folder in it: in that of an earlier template something may lie where a file is to be shown."""
    place = folder / f"beside-{k}"
    make_empty(place)
    return place


def _places(one: Interpreter) -> Iterator[str]:
    """What an interpreter needs. Of where it finds modules a folder is left out that holds what people work in, as that
    in which `python -m driftnet.cli.main` was started does."""
    yield one.executable
    for prefix in ("/usr", "/usr/local", *one.prefixes):
        yield from (os.path.join(prefix, part) for part in _PARTS)
    own = (os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), *_SHARED)
    private = [os.path.realpath(place) for place in own]
    for entry in (*one.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        folder = os.path.realpath(entry)
        if os.path.isabs(entry) and not any(_within(place, folder) for place in private):
            yield entry
            with contextlib.suppress(OSError), os.scandir(entry) as modules:
                yield from (module.path for module in modules if module.is_symlink())


def locations(module: str) -> Sequence[str]:
    """Where a module of ours lies that is in no package."""
    spec = importlib.util.find_spec(module)
    return [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]


def seen(wanted: Iterable[str]) -> tuple[list[str], Mapping[str, str]]:
    """The places to be mounted so that all that is wanted, and is there, is seen under its own path; and the symbolic
    links on the way to them."""
    links: dict[str, str] = {}
    real = {_followed(place, links) for place in wanted if os.path.isabs(place) and os.path.exists(place)}
    mounts: list[str] = []
    for place in sorted(real):  # a folder comes before what lies in it
        if not any(_within(place, mount) for mount in mounts):
            mounts.append(place)
    return mounts, {link: to for link, to in sorted(links.items()) if not any(_within(link, mount) for mount in mounts)}


def _followed(path: str, links: dict[str, str]) -> str:
    """The real path, each link on the way added to `links`."""
    left, at, budget = path.split("/"), "/", _MOST_LINKS
    while left:
        part = left.pop(0)
        if part in ("", "."):
            continue
        place = os.path.dirname(at) if part == ".." else os.path.join(at, part)
        if part != ".." and budget and os.path.islink(place):
            to = links[place] = os.readlink(place)
            left, budget = [*to.split("/"), *left], budget - 1
            at = "/" if to.startswith("/") else at
        else:
            at = place
    return at


def _within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")
