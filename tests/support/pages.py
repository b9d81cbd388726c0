"""The pages of docs/ that are made from the code. `make docs` writes them; a test says when one is stale."""

from collections.abc import Iterator

import click
from driftnet.cli import main
from driftnet.commands import rulebook
from driftnet.generators.ops import catalogue

from tests.support.paths import ROOT

WIDTH = 100


def commands() -> str:
    """What `--help` of driftnet and of each of its commands says, as Markdown."""
    return "\n".join(["# The command line", "", *_helped("driftnet", main.driftnet)])


def _helped(words: str, command: click.Command) -> Iterator[str]:
    settings = {"terminal_width": WIDTH, "max_content_width": WIDTH, "help_option_names": ["-h", "--help"]}
    context = click.Context(command, info_name=words, show_default=True, **settings)
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    yield from (f"## {words}", "", *(f"    {line}" if line else "" for line in lines), "")
    for name, part in sorted(getattr(command, "commands", {}).items()):
        yield from _helped(f"{words} {name}", part)


PAGES = {"commands.md": commands, "judgement.md": rulebook.page, "operators.md": catalogue.page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())
