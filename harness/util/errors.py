"""What goes wrong outside the systems under test, said to the person who can mend it."""

LONGEST = 1500
"""Characters of what a person is told of one error: it may quote what somebody handed in."""


class UserError(Exception):
    """Bad input or usage. The command line prints `message`, then `hint` (what to do next), and exits 2.

    kind is a short stable slug for `--json` ("model", "feed", "case", "target", "option", "disk", ...).
    """

    def __init__(self, message: str, *, hint: str = "", kind: str = "usage") -> None:
        super().__init__(message)
        if hint:
            self.add_note(shortened(hint, LONGEST))  # where nobody catches it, as in a test or a notebook
        self.message, self.hint, self.kind = shortened(message, LONGEST), shortened(hint, LONGEST), kind


def in_a_line(text: str, most: int) -> str:
    """A text in one line, without its end where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def shortened(text: str, most: int) -> str:
    """A text without its middle, where it is too long: what it is about stands at its beginning or at its end."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"
