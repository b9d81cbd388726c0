"""Files that appear whole or not at all, and folders to write them into."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import UserError


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path`; what stood there before is untouched until all of it is written, and when it cannot be.

    Raises UserError (kind "disk").
    """
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as f:
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
