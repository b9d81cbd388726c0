"""How a command tells what it has come to: its two consoles, its result for people or as JSON, its errors."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import click
from driftnet.handover.markdown import plain
from driftnet.util.errors import UserError
from driftnet.util.files import json_text, leave_nothing
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Where nobody can widen the window (a log, a pipe), tables are given room instead of being folded at 80 columns.
_WIDTH = None if sys.stdout and sys.stdout.isatty() else 160


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed, without what a terminal would obey: a model is anybody's file, and its names are shown."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Nobody reads on, as after `| head -1`: say no more, but do what was asked, and end with the true status."""
        self.quiet = True
        _nowhere(sys.stderr if self.stderr else sys.stdout)


OUT = _Console(highlight=False, soft_wrap=True, width=_WIDTH)
ERR = _Console(stderr=True, highlight=False, soft_wrap=True)
_AS_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object on stdout and nothing else.")


class Told(NamedTuple):
    """What a command has to tell: its result, by what that is shown to people, and the exit status."""

    result: Mapping[str, Any]
    show: Callable[[Console, Mapping[str, Any]], None]
    status: int = 0


class _Command(click.Command):
    """A command with --json, whose function gives what it has Told; its value is the exit status."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.params.append(_AS_JSON)

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        """As click does; but of a target that is named twice where there can be one, none is dropped unheard."""
        _, _, order = self.make_parser(context).parse_args(list(words))
        one = [option for option in self.params if option.name == "target" and not getattr(option, "multiple", False)]
        if any(order.count(option) > 1 for option in one):
            raise click.UsageError(f"{self.name} takes one --target: run it once for each.", context)
        return super().parse_args(context, words)

    def invoke(self, context: click.Context) -> int:
        context.meta["as_json"] = context.params.pop("as_json")
        told: Told = super().invoke(context)
        if not context.meta["as_json"]:
            told.show(OUT, told.result)
            return told.status
        try:
            click.echo(json_text(told.result))
        except BrokenPipeError:
            _nowhere(sys.stdout)
        return told.status


class Commands(click.Group):
    """The commands, each of which is a _Command."""

    command_class = _Command


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While the block runs, SIGTERM ends it the way Ctrl-C does: workers are ended and temporary folders removed."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # timeout(1) sends it twice: the second would interrupt the cleaning up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(error: UserError, words: Sequence[str]) -> int:
    """Tell an error, as JSON where `words`, the command line, ask for it; the exit status."""
    leave_nothing()
    hint = error.hint
    if error.kind == "machine" and "fuzz" in words[:1]:
        hint += "; what was found before is kept: with --resume --report DIR the run goes on"
    if "--json" in words:
        said = {"kind": error.kind, "message": error.message, "hint": hint}
        click.echo(json_text({"error": said}))
    else:
        ERR.print(f"driftnet: {error.message}", markup=False)
        if hint:
            ERR.print(f"  {hint}", markup=False)
    return 2


def _nowhere(stream: TextIO) -> None:
    """Let what is still written to `stream`, by the interpreter at its end too, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_streams() -> None:
    """Open the standard streams that were closed (`>&-`): what is opened later would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
