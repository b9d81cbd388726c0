"""Patterns are matched as onnxruntime matches them, and in a time that is linear in the text."""

import time

import numpy as np
import onnx
import pytest
from driftnet.model.inspect import Case
from driftnet.oracle.ball_arithmetic.ball import Undecided
from onnx import TensorProto, helper

from tests.support.balls import apply
from tests.support.rules import assert_each

PATTERNS = r"""
    a a* (a+)+b a|ab|b (?i)A [[:alpha:]]+ \d+ \D* \w+ \W+ \s* [^a] . .* (?s).* (?-s).* ^a$ \Aa\z a$ (?m)^a$ \bab\b
    a{2,3} a{0,1000} (a*)* (?:a|b)*? [a-z&&b]+ \p{L}+ \pN+ \p{Greek}+ [\x{e0}-\x{ff}]+
    \Q.*\E \x61 é+ \C+ (?P<n>a)b (?U)a+ |a
    () [\d_]+ [^\n]* \t a\.b -?[0-9]+(\.[0-9]+)? [0-9a-f]{8}
""".split()  # noqa: SIM905  (a list of that many patterns is unreadable)
TEXTS = [
    *("", "a", "b", "ab", "aa", "aaa", "aaab", "A", "é", "éé", "αβ", "٣", "1", "12", "-1.5", "_", "a_b", "a b", "a.b"),
    *(
        ".*",
        "\n",
        "a\n",
        "\na",
        "a\nb",
        "\t",
        " ",
        "ß",
        "\u017f",
        "K",
        "日本",
        "😀",
        "\x00",
        "a\x00",
        "deadbeef",
        "a" * 1000,
    ),
]


def matching(pattern, texts):
    """A model that says which of its texts match."""
    words = helper.make_tensor_value_info("words", TensorProto.STRING, [len(texts)])
    found = helper.make_tensor_value_info("found", TensorProto.BOOL, [len(texts)])
    node = helper.make_node("RegexFullMatch", ["words"], ["found"], pattern=pattern)
    graph = helper.make_graph([node], "g", [words], [found])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return Case(model.SerializeToString(), ({"words": np.array(texts, object)},))


def test_each_pattern_matches_what_it_matches_in_the_reference(runner):
    def alike(pattern):
        run = runner.reference.run(matching(pattern, TEXTS))
        assert not run.error + run.broken, f"the reference says {run.error}{run.broken}"
        (ball,) = apply("RegexFullMatch", np.array(TEXTS, object), pattern=pattern)
        want = dict(zip(TEXTS, run.outputs[0]["found"].tolist()))
        got = dict(zip(TEXTS, np.asarray(ball.midpoint).astype(bool).tolist()))
        assert got == want, f"differ in {[word for word in TEXTS if got[word] != want[word]]}"

    assert_each(PATTERNS, alike)


def test_one_text_that_is_no_list_has_one_answer():
    (ball,) = apply("RegexFullMatch", np.array("aa", object), pattern="a+")
    assert (ball.midpoint.shape, bool(ball.midpoint)) == ((), True)


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?=a)", r"(a)\1", r"\p{Nothing}"])
def test_what_is_no_pattern_has_no_answer(runner, pattern):
    assert runner.reference.run(matching(pattern, ["a"])).error, "the reference takes it"
    with pytest.raises(Undecided, match="no pattern"):
        apply("RegexFullMatch", np.array(["a"], object), pattern=pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)*b", "(.*)*b", "(a?){500}a{500}b"])
def test_a_pattern_takes_time_that_is_linear_in_the_text(pattern):
    begun = time.process_time()
    (ball,) = apply("RegexFullMatch", np.array(["a" * 100_000], object), pattern=pattern)
    assert not np.asarray(ball.midpoint).any(), f"{pattern} matches a text without b"
    assert time.process_time() - begun < 2, f"took {time.process_time() - begun:.1f} CPU s"
