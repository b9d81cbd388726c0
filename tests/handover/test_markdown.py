"""What a case says of itself becomes no markup, no mention, no command of a terminal, and no page without end."""

import dataclasses
import re

import onnx
import pytest
from driftnet.handover import handover, markdown
from driftnet.targets.environments import resolve

from tests.handover.test_handover import RAN, proof, run, saved_relu, script
from tests.handover.test_script import written
from tests.support import models

HOSTILE = "```\n# owned\n@someone see #12 <img src=x> [a](http://b) | \x1b[2J\x1b]0;t\x07 \u202e `x` **b**"


def test_text_in_a_line_is_words_alone():
    said = markdown.inline(HOSTILE)
    assert not {"\n", "\x1b", "\u202e"}.intersection(said), f"control characters are left in {said!r}"
    for mark in ("``", "@", "<", "](", "|", "**", "see #12"):
        assert mark not in said, f"{mark!r} is left in {said!r}"
    assert markdown.inline("`axis` of `@me` `") == "`axis` of &#96;&#64;me&#96; &#96;", "a word of code is one"
    assert markdown.inline("x86_64, 'y_scale' is 3") == "x86_64, 'y_scale' is 3", "plain words stay as they are"


@pytest.mark.parametrize("text", ["a", "```", "a ```` b", HOSTILE])
def test_no_text_ends_the_block_that_it_stands_in(text):
    first, *inside, last = markdown.fenced(text, "text").splitlines()
    fence = first.removesuffix("text")
    assert last == fence
    assert all(fence not in line for line in inside), f"{fence!r} is in {inside}"


def test_a_page_has_an_end_and_closes_what_is_open():
    said = markdown.page("```text\n" + "word\n" * 20_000 + "```\n")
    assert len(said) <= markdown.PAGE
    assert said.count("```") == 2
    assert "left out" in said


def hostile():
    case = models.relu()
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input[0].name = model.graph.node[0].input[0] = HOSTILE
    model.graph.node[0].name = HOSTILE * 200
    case = models.Case(model.SerializeToString(), tuple({HOSTILE: feed["x"]} for feed in case.feeds))
    verdict = dataclasses.replace(saved_relu().verdict, message=HOSTILE * 100)
    return saved_relu(case=case, verdict=verdict, note=HOSTILE, upstream=HOSTILE, seen=(HOSTILE,))


def test_an_issue_of_a_hostile_case_is_short_and_mentions_nobody():
    saved = hostile()
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved), [HOSTILE])
    assert len(text) <= markdown.PAGE
    assert not {"\x1b", "\u202e"}.intersection(text), "control characters are left"
    open_, outside = "", []
    for line in text.splitlines():
        fence = line[: len(line) - len(line.lstrip("`"))]
        if len(fence) >= 3 and (not open_ or line == open_):
            open_ = "" if open_ else fence
        elif not open_:
            outside.append(line)
    marked = [line for line in outside if re.search("@someone|<img|^# owned", line)]
    assert marked == [], f"markup of the case in {marked}"
    assert not open_, "a block is left open"


def test_a_script_of_a_hostile_case_says_nothing_that_a_terminal_obeys(tmp_path):
    saved = dataclasses.replace(hostile(), target="toy")
    text = script(saved, "tests.support.toy_target:TOY")
    assert "\x1b" not in text
    result = run(written(saved, "tests.support.toy_target:TOY", tmp_path))
    assert not {"\x1b", "\u202e"}.intersection(result.stdout), f"control characters are said: {result.stdout!r}"
    assert result.returncode == 0, result.stdout + result.stderr
