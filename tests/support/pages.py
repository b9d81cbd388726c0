"""The pages of docs/ that are made from the code. `make docs` writes them; a test says when one is stale."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import click
from driftnet.cli import main
from driftnet.generators.building import kernels
from driftnet.generators.ops.registry import Operator
from driftnet.generators.ops.table import OPERATORS, families
from driftnet.model.operators import NOT_GENERATED

from tests.support import pages_of_causes, rulebook
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


def operators() -> str:
    """The table of all operators as Markdown."""
    lines = [
        "# Operators",
        "",
        f"{len(OPERATORS)} operators of the default ONNX domain are generated, each in the form right for its opset.",
        "Dtypes are those of the operator's first type parameter in the newest opset it is generated in, as far as a",
        "kernel of onnxruntime's CPU provider and the specification agree. Weight: how often an operator is drawn.",
        "",
    ]
    for family, names in families().items():
        members = [operator for operator in OPERATORS if operator.name in names]
        lines += [f"## {family}", "", "| operator | opsets | weight | dtypes | rule |", "|---|---|---:|---|---|"]
        lines += [_row(operator) for operator in members]
        lines.append("")
    lines += ["## Not generated", "", "| operator | why |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in NOT_GENERATED.items()]
    return "\n".join(lines) + "\n"


def _row(operator: Operator) -> str:
    opsets = f"{operator.since}-{operator.until}"
    rule = " ".join(operator.rule.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| {operator.name} | {opsets} | {operator.weight:g} | {_dtypes(operator)} | {rule} |"


def _dtypes(operator: Operator) -> str:
    for parameter in kernels.parameters(operator.name, operator.until):
        codes = kernels.dtypes(operator.name, operator.until, parameter)
        return " ".join(map(kernels.name_of, codes))
    return ""


PAGES: Mapping[str, Callable[[], str]] = {
    "architecture.md": partial(filled, "architecture.md", one_case),
    "artifact-tier.md": partial(filled, "artifact-tier.md", one_artifact),
    "commands.md": commands,
    "findings.md": pages_of_causes.findings,
    "judgement.md": rulebook.page,
    "operators.md": operators,
    "trophies.md": pages_of_causes.trophies,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())
