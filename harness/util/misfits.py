"""What is installed beside driftnet and does not fit: somebody else's `pip install` may have changed it."""

import contextlib
import shlex
import sys
from importlib import metadata

from driftnet.util.errors import UserError


def fault(error: BaseException, of: str = "driftnet") -> UserError | None:
    """The misfit (kind "environment") that `error` may come from, and what mends it; None where all fits that the
    package `of` needs, and what that needs."""
    lacks = dict[str, str]()
    with contextlib.suppress(ImportError):  # `packaging` comes with pytest: without it nothing can be told
        lacks = _misfits(of)
    if not lacks:
        return None
    what = f"the environment of driftnet does not fit: {'; '.join(lacks.values())}"
    cure = f"{sys.executable} -m pip install {shlex.join(lacks)}"
    hint = f"something else was installed into it. What mends it: {cure}   (in a clone: make clean setup)"
    return UserError(f"{what} ({type(error).__name__}: {error})", hint=hint, kind="environment")


def _misfits(of: str) -> dict[str, str]:
    """Requirement that is not met -> what is there instead."""
    from packaging.requirements import Requirement

    found, seen, left = dict[str, str](), set[str](), [of]
    while left:
        if (name := left.pop()) in seen:
            continue
        seen.add(name)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker and not needed.marker.evaluate({"extra": ""}):
                continue
            asked = f"{needed.name}{needed.specifier}"
            try:
                there = metadata.version(needed.name)
            except metadata.PackageNotFoundError:
                found[asked] = f"{name} needs {asked}, which is not installed"
                continue
            if not needed.specifier.contains(there, prereleases=True):
                found[asked] = f"{name} needs {asked}, and {there} is installed"
            left.append(needed.name)
    return found
