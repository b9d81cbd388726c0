"""The pages of docs/ that are made from the code. `make docs` writes them; a test says when one is stale."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import click
from driftnet.cli import main
from driftnet.commands import findings, rulebook, trophies
from driftnet.generators.ops import catalogue

from tests.support.paths import ROOT
from tests.support.worked_examples import one_artifact, one_case

WIDTH = 100
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.S)
"""In a page that is written by hand: what a worked example says at one of its steps."""


def filled(name: str, example: Callable[[], Mapping[str, str]]) -> str:
    """The page `name` as it is, but for what the example says in its blocks."""

    def made(block: re.Match[str]) -> str:
        lines = (f"    {line}".rstrip() for line in example()[block[2]].splitlines())
        return "\n".join([block[1], *lines, "", block[3]])

    return BLOCK.sub(made, (ROOT / "docs" / name).read_text(encoding="utf-8"))


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


PAGES: Mapping[str, Callable[[], str]] = {
    "architecture.md": partial(filled, "architecture.md", one_case),
    "artifact-tier.md": partial(filled, "artifact-tier.md", one_artifact),
    "commands.md": commands,
    "findings.md": findings.page,
    "judgement.md": rulebook.page,
    "operators.md": catalogue.page,
    "trophies.md": trophies.page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())
