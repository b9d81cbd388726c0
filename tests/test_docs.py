"""The documentation says what is there: generated pages, links, files, modules and commands that it names."""

import ast
import difflib
import importlib
import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from driftnet.cli import main

from tests.support.pages import PAGES
from tests.support.paths import ROOT
from tests.support.rules import assert_each

PAPERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "reports/README.md")]
PAPERS += sorted((ROOT / "docs").glob("*.md"))
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:harness|generators|tests|docs|corpus|reports)/[\w./-]*[\w/]")
MODULE = re.compile(r"driftnet(?:\.\w+)+")
IN_CODE = re.compile(r"^(?: {4,}|\t)\$? ?driftnet ([a-z].*)$", re.M)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def spans(path: Path) -> Iterator[str]:
    """What stands in backquotes."""
    for span in SPAN.finditer(path.read_text(encoding="utf-8")):
        yield span.group(1)


def test_generated_pages_are_up_to_date():
    stale = []
    for name, page in PAGES.items():
        written, made = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines(), page().splitlines()
        stale += list(difflib.unified_diff(written, made, f"docs/{name}", "what the code says now", lineterm="", n=0))
    assert stale == [], "a page is stale: make docs\n" + "\n".join(stale[:20])


def test_links_lead_somewhere():
    def rule(path: Path) -> None:
        targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
        dead = [to for to in targets if "://" not in to and not leads_somewhere(path, to)]
        assert dead == [], f"links to {dead}, which is not there"

    assert_each(PAPERS, rule, named)


def leads_somewhere(path: Path, link: str) -> bool:
    """Whether there is what `path` links to: the file, and in it the heading."""
    file, _, heading = link.partition("#")
    there = path.parent / file if file else path
    return there.exists() and (not heading or heading in slugs(there.read_text(encoding="utf-8")))


def slugs(text: str) -> set[str]:
    """What the headings of a page are called in links, on GitHub and on the site."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("link", ["python.md", "python.md#cases-for-your-own-tests", "#an-issue-a-cause"])
def test_a_link_leads_to_a_heading(link):
    page = ROOT / "docs" / "ci.md"
    assert leads_somewhere(page, link), f"{link} is taken for dead"
    dead = f"{link.partition('#')[0]}#no-such-heading"
    assert not leads_somewhere(page, dead), f"{dead} is taken for a link that leads somewhere"


def test_every_page_stands_in_the_menu_of_the_site_once():
    conf = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8")).body
    parts = next(line.value for line in conf if isinstance(line, ast.Assign) and line.targets[0].id == "PARTS")
    menu = sorted(page for _, pages in ast.literal_eval(parts) for page in pages)
    assert menu == sorted(
        named(path).removesuffix(".md") for path in PAPERS if path.name != "README.md" or path.parent != ROOT
    )


def test_examples_of_python_are_code_on_the_page():
    quoted = {named(path): re.findall(r"^>>>.*", path.read_text(encoding="utf-8"), re.M) for path in PAPERS}
    assert {name: lines for name, lines in quoted.items() if lines} == {}, "a line that begins so is a quotation"


def test_files_that_are_named_are_there():
    def rule(path: Path) -> None:
        files = {span for span in spans(path) if FILE.fullmatch(span)}
        gone = sorted(file for file in files if not (ROOT / file).exists())
        assert gone == [], f"names {gone}, which is not there"

    assert_each(PAPERS, rule, named)


def test_modules_that_are_named_are_there():
    def rule(path: Path) -> None:
        gone = []
        for dotted in sorted({span for span in spans(path) if MODULE.fullmatch(span)}):
            parts = dotted.split(".")
            found = next((k for k in range(len(parts), 0, -1) if importable(".".join(parts[:k]))), 0)
            thing = importlib.import_module(".".join(parts[:found]))
            for attribute in parts[found:]:
                thing = getattr(thing, attribute, None)
            if thing is None:
                gone.append(dotted)
        assert gone == [], f"names {gone}, which is not there"

    assert_each(PAPERS, rule, named)


def importable(dotted: str) -> bool:
    try:
        return importlib.util.find_spec(dotted) is not None
    except ModuleNotFoundError:
        return False


def test_commands_in_the_documents_are_understood():
    def rule(path: Path) -> None:
        lines = [line.partition("  #")[0] for line in IN_CODE.findall(path.read_text(encoding="utf-8"))]
        lines += [span.removeprefix("driftnet ") for span in spans(path) if span.startswith("driftnet ")]
        wrong = [line for line in lines if not understood(shlex.split(line))]
        assert wrong == [], f"has commands that driftnet does not know: {wrong}"

    assert_each(PAPERS, rule, named)


def understood(words: list[str]) -> bool:
    """Whether there is this command, with these options."""
    context = click.Context(main.driftnet)
    command = main.driftnet.get_command(context, words[0])
    if command is None:
        return False
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {word.partition("=")[0] for word in words[1:] if word.startswith("--")} <= known | {"--help"}


@pytest.mark.parametrize("words", [["fuzz", "--minute", "1"], ["fuss"]], ids=" ".join)
def test_commands_that_there_are_not_are_told(words):
    assert not understood(words), f"driftnet {' '.join(words)} is taken for a command"


TUTORIALS = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
RUN = re.compile(r"^ +\$ driftnet (.+)\n((?: {7}.*\n)+)", re.M)


@pytest.mark.parametrize("words", [m[1] for m in RUN.finditer(TUTORIALS)])
def test_the_tutorials_show_what_a_command_says(words, tmp_path, monkeypatch):
    """Line by line, but for numbers and for what `...` stands for; in a folder with the files that are to be copied. A
    number of causes is another one after each change of the corpus: it is left out."""
    example = next(m for m in RUN.finditer(TUTORIALS) if m[1] == words)
    copied = re.findall(r"^ +cp -r (\S+)/\. \.$", TUTORIALS[: example.start()], re.M)[-1]
    shutil.copytree(ROOT / copied, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(main.driftnet, shlex.split(words)).stdout
    shown = [line[7:].rstrip() for line in example[2].splitlines()]
    lines = iter(said.splitlines())
    missing = [line for line in shown if line != "..." and not any(is_shown(one.rstrip(), line) for one in lines)]
    assert missing == [], f"driftnet {words} says otherwise:\n{said}"
    assert not re.search(r"\bof \d+ of \w+ \d", example[2]), "how many causes are known is told, and will be wrong"
    assert "..." in shown or len(shown) == len(said.splitlines()), f"driftnet {words} says more:\n{said}"


def is_shown(said: str, line: str) -> bool:
    said, line = masked(said), masked(line)
    return said.startswith(line.removesuffix(" ...")) if line.endswith(" ...") else said == line


def masked(line: str) -> str:
    return re.sub(r"\d+(\.\d+)*", "N", line)
