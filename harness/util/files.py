"""Files that appear whole or not at all, and folders to write them into."""

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from driftnet.util.errors import UserError

RUNS = Path("reports")
"""The folder that has one of each run, where nobody said another."""

SCRATCH = "driftnet-scratch-"
_SETTLED_SECONDS = 60.0  # between making a folder and holding it lies a moment
_MADE: list[Path] = []
"""Folders that this process made, and the locks in them, the outer ones first."""
LARGEST = 1.7976931348623157e308


def json_text(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON, which has no infinity and no NaN: LARGEST stands for the one, null for the other."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError):  # rare; to look through all of it takes four times as long as to write it
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def json_number(text: str) -> float:
    """The number that `json_text` wrote so."""
    x = float(text)
    return math.copysign(math.inf, x) if abs(x) >= LARGEST else x


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(LARGEST, value)
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def cache() -> Path:
    """The folder of what is kept for this user, and may be made again."""
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DRIFTNET_CACHE") or Path(kept) / "driftnet")


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path`; what stood there before is untouched until all of it is written, and when it cannot be.

    Raises UserError (kind "disk").
    """
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
            os.chmod(draft, 0o644)
            os.replace(draft, path)
            sync(path.parent)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise disk_error(path, e) from e


def disk_error(path: Path, e: OSError) -> UserError:
    """What to tell a person when `path` could not be written; of a folder that was copied, what its first file met."""
    several = isinstance(e, shutil.Error) and isinstance(e.args[0], list)
    reason = e.args[0][0][-1] if several else e.strerror or e
    what = f"cannot write {path}: {reason}; what was saved before is untouched"
    return UserError(what, hint=remedy(e), kind="disk")


def remedy(e: OSError) -> str:
    """What to do where a file could not be read or written."""
    mend = {errno.EACCES: "mend its permissions, or ", errno.EPERM: "mend its permissions, or "}
    full = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or ")
    return f"{(mend | full).get(e.errno or 0, '')}name another folder"


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """One process after the other gets here with the same `path`, a file that is made: each waits for those before."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """While the block runs, no other process gets here with the same `path`, a file that is made.

    Raises UserError (kind "report") that names the process that has it.
    """
    is_made = path.parent in _MADE and not path.exists()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as e:
        raise disk_error(path, e) from e
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace") or "unknown"
            raise UserError(
                f"process {holder} is writing into {path.parent} already",
                hint="wait until it has ended, or name another folder",
                kind="report",
            ) from None
        if is_made:
            _MADE.insert(_MADE.index(path.parent) + 1, path)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


class Scratch:
    """A temporary folder below `parent`, for as long as it is not closed.

    Whoever is killed cannot remove his: the folders of processes that are gone are removed by the next one.
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        parent = Path(parent or tempfile.gettempdir())
        sweep_scratch(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=parent))
        self._handle = _locked(self.path)

    def close(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def sweep_scratch(parent: Path) -> None:
    """Remove the scratch folders in `parent` whose processes are gone."""
    for folder in parent.glob(f"{SCRATCH}*"):
        maker = folder.name.removeprefix(SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):  # somebody else's, or just being removed
            settled = time.time() - folder.stat().st_mtime > _SETTLED_SECONDS or not Path("/proc", maker).exists()
            if settled and (handle := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)


def leave_nothing() -> None:
    """Remove what this process made to write into and wrote nothing into: a command that is refused leaves no trace."""
    while _MADE:
        path = _MADE.pop()
        with contextlib.suppress(OSError):
            if path.is_dir():
                path.rmdir()
            elif [*path.parent.iterdir()] == [path]:
                path.unlink()


def _locked(folder: Path) -> int | None:
    """A handle by which this process holds `folder` until it ends; None where another one does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether `folder` is there and this process has it, which no other gets while the block runs."""
    try:
        handle = _locked(folder)
    except FileNotFoundError:
        handle = None
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Make `folder`, in which one can write. Raises UserError (kind "disk") where that cannot be."""
    try:
        _MADE.extend(path for path in (*reversed(folder.parents), folder) if not path.exists())
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as e:
        raise UserError(f"cannot write into {folder}: {e.strerror}", hint=remedy(e), kind="disk") from e
