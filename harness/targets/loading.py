"""Loading: the declaration of a target out of a module that anybody may have written.

A fork of this process imports it first. What ends its process, raises or never ends there is told, and is not imported
here: a status that a module chose would be taken for that of the command.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator

from driftnet.util.apart import apart
from driftnet.util.limits import ExceededError

OURS = "driftnet."
SECONDS, MIB = 60.0, 16 * 1024
"""CPU time and address space that an import may take: of systems under test some bring gigabytes of libraries."""


class LoadingError(Exception):
    """It cannot be imported; the message says why."""


def attribute(module: str, path: str) -> object:
    """What "attribute.attribute" of a module is. Raises LoadingError."""
    if not module.startswith(OURS) and module not in sys.modules:
        try:
            apart(lambda ask: _tried(module, path), seconds=SECONDS, mib=MIB)
        except ExceededError as e:
            raise LoadingError(f"its import takes {e}") from None
        except (RuntimeError, MemoryError) as e:
            raise LoadingError(str(e).strip().rpartition("\n")[2] or "its import has no memory") from None
    try:
        with _said_as_an_aside():
            return _found(module, path)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        raise LoadingError(f"{type(e).__name__}: {e}") from None


def _tried(module: str, path: str) -> bytes:
    _found(module, path)
    return b""


def _found(module: str, path: str) -> object:
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@contextlib.contextmanager
def _said_as_an_aside() -> Iterator[None]:
    """While the block runs, what is written to stdout goes to stderr: there may be JSON to come."""
    if sys.stdout:  # nobody may be there to read
        sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
