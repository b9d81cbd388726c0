"""What goes wrong outside the systems under test, said to the person who can mend it."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or usage. The command line prints `message`, then `hint` (what to do next), and exits 2.

    kind is a short stable slug for `--json` ("model", "feed", "case", "target", "option", "disk", ...).
    """

    def __init__(self, message: str, *, hint: str = "", kind: str = "usage") -> None:
        super().__init__(message)
        self.message, self.hint, self.kind = message, hint, kind
