"""Files that appear whole or not at all, and folders to write them into."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftnet.util.errors import UserError

LARGEST = 1.7976931348623157e308


def json_text(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON, which has no infinity and no NaN: LARGEST stands for the one, null for the other."""
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


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path`; what stood there before is untouched until all of it is written, and when it cannot be.

    Raises UserError (kind "disk").
    """
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(draft, 0o644)
            os.replace(draft, path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise UserError(
            f"cannot write {path}: {e.strerror}; what was saved before is untouched",
            hint="free some space, or name another folder",
            kind="disk",
        ) from e


def make_folder(folder: Path) -> None:
    """Make `folder`, in which one can write. Raises UserError (kind "disk") where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as e:
        raise UserError(
            f"cannot write into {folder}: {e.strerror}",
            hint="name another folder, or mend its permissions",
            kind="disk",
        ) from e
