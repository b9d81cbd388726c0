"""A plug-in that is broken itself is told from a system that fails, by every command that runs it."""

import json
import struct
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from driftnet import api
from driftnet.cli import main as cli
from driftnet.findings import corpus
from driftnet.targets.declaration import misdeclared
from driftnet.targets.environments import declared
from driftnet.targets.interface import Option, Rule, StageError, Target
from driftnet.targets.registry import registered
from driftnet.util.errors import UserError

from tests.handover.test_handover import saved_relu
from tests.support.rules import assert_each
from tests.support.toy_target import TOY, execute, keep


def misspelt(model, folder, options):
    return shutil.copy(model, folder)  # noqa: F821


def without_options(artifact, feeds, outputs):
    return [{} for _ in feeds]


def failing_system(model, folder, options):
    return np.load(f"{folder}/nothing.npy")


def native_failure(model, folder, options):
    return struct.unpack("<I", b"")


def without_a_key(artifact, calibration, folder, options):
    return artifact if options["no such option"] else ""


def giving_no_value(artifact, feeds, outputs, options):
    return object()


def in_a_list(artifact, feeds, outputs, options):
    return [[feed["x"]] for feed in feeds]


def once_for_all(artifact, feeds, outputs, options):
    return {"y": feeds[0]["x"]}


def without_a_value(artifact, feeds, outputs, options):
    return [{"y": None} for _ in feeds]


def no_path(model, folder, options):
    return None


def no_file(model, folder, options):
    return f"{folder}/nothing.bin"


def from_a_damaged_heap(artifact, feeds, outputs, options):
    np.asarray = np.zeros  # what packs the answer fails inside numpy
    return [{"y": np.array([-1])} for _ in feeds]


def after_the_first(artifact, feeds, outputs, options, calls=[]):  # noqa: B006
    calls.append(artifact)
    return execute(artifact, feeds, outputs, options) if len(calls) == 1 else calls["what lay here"]


def refusing(model, folder, options):
    raise StageError("there is no Relu here")


MISSPELT = replace(TOY, convert=misspelt)
TAKES_LESS = replace(TOY, execute=without_options)
SYSTEM_FAILS = replace(TOY, convert=failing_system)
NATIVE_FAILS = replace(TOY, convert=native_failure)
LACKS_A_KEY = replace(TOY, quantize=without_a_key)
GIVES_NO_VALUE = replace(TOY, execute=giving_no_value)
IN_A_LIST = replace(TOY, execute=in_a_list)
ONCE_FOR_ALL = replace(TOY, execute=once_for_all)
WITHOUT_A_VALUE = replace(TOY, execute=without_a_value)
NO_PATH = replace(TOY, convert=no_path)
NO_FILE = replace(TOY, convert=no_file)
DAMAGES_THE_HEAP = replace(TOY, execute=from_a_damaged_heap)
DAMAGED_BEFORE = replace(TOY, execute=after_the_first)
KEEPS = replace(TOY, quantize=keep)
IN_LISTS = replace(KEEPS, options=[replace(option, values=[*option.values]) for option in KEEPS.options])
CONTRADICTS_ITSELF = replace(
    KEEPS,
    options=(Option("mode", "run", (), "how"), Option("mode", "execute", (1,), "how", {"sped": ("up",)})),
    refusals=(Rule("not supported", "load", "(", "its docs"), Rule("not now", "convert", "later", "its docs")),
    features={"float": {"mode": 2}},
)
NO_COMPLAINT = replace(TOY, complaint=None)
REFUSES = replace(KEEPS, convert=refusing, refusals=(Rule("not supported", "convert", "no Relu here", "its docs"),))


def test_the_easiest_model_goes_through_every_value_of_every_option():
    tried = api.attempt(f"{__name__}:KEEPS")["tried"]
    assert [row["recipe"] for row in tried] == [{}, {"offset": "one"}]
    assert [row["verdict"] for row in tried] == ["agrees", "diverges"], "one is added where that is asked for"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MISSPELT", "test_trying.py:LINE, convert: NameError"),
        ("LACKS_A_KEY", "test_trying.py:LINE, quantize: KeyError"),
        ("TAKES_LESS", "test_trying.py:LINE, execute: TypeError"),
        ("GIVES_NO_VALUE", "test_trying.py:LINE, execute: TypeError"),
        ("IN_A_LIST", r"IN_A_LIST.execute, .* list\[dict\[str, ndarray\]\] of length 1, .* list\[list\[ndarray\]\] of"),
        ("ONCE_FOR_ALL", r"ONCE_FOR_ALL.execute, .* returned dict\[str, ndarray\]"),
        ("WITHOUT_A_VALUE", r"WITHOUT_A_VALUE.execute, .* returned list\[dict\[str, NoneType\]\] of length 1"),
        ("NO_PATH", "NO_PATH.convert, convert: convert has to return str, the path of a file; it returned NoneType"),
    ],
)
def test_a_plug_in_that_is_broken_is_a_mistake_of_its_author(name, said):
    said = said.replace("LINE", r"\d+")
    with pytest.raises(UserError, match=f"plug-in of target toy is broken: .*{said}") as caught:
        api.attempt(f"{__name__}:{name}")
    assert caught.value.kind == "target"


def test_a_declaration_that_cannot_be_meant_is_told_before_anything_runs():
    with pytest.raises(UserError) as caught:
        api.attempt(f"{__name__}:CONTRADICTS_ITSELF")
    assert caught.value.kind == "target"
    said = caught.value.message.partition("CONTRADICTS_ITSELF is wrong: ")[2].split("; ")
    assert said == [
        "option mode has the stage 'run', which is none of convert, quantize, execute",
        "option mode has no values",
        "there are two options mode",
        "there are two options mode",
        "rule 'not supported' has the stage 'load', which is none of convert, quantize, execute",
        "the pattern of rule 'not supported' is none: missing ), unterminated subpattern at position 0",
        "option mode speaks of sped='up', which is no value of an option",
        "feature 'float' speaks of mode=2, which is no value of an option",
    ]


class Nothing:
    """Of no type that a field of a declaration may have."""

    def __repr__(self):
        return "Nothing"


@pytest.mark.parametrize(("wrong", "but"), [(None, ("inspect", "tap", "commands")), (Nothing(), ()), (3, ())])
def test_a_field_of_the_wrong_type_is_told_by_name_with_what_it_should_be(wrong, but):
    def told(field):
        said = misdeclared(replace(TOY, **{field: wrong}))
        assert [one.partition(", should be ")[0] for one in said] == [f"{field} is {wrong!r}"], f"it says {said}"

    assert_each([field.name for field in fields(Target) if field.name not in but], told)
    assert misdeclared(replace(TOY, **dict.fromkeys(but))) == [], f"{but} may be missing"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"complaint": "("}, "the pattern complaint is none: missing ), unterminated subpattern at position 0"),
        (
            {"profile": {"axes": ()}},
            "profile has 'axes', should have none but weights, numbers, symbolic, empty, dtypes,",
        ),
        ({"profile": {"ranks": ("4",)}}, "profile['ranks'][0] is '4', should be int"),
        ({"profile": {"numbers": ("literal",)}}, "profile['numbers'] has 'literal', should be one of initializer, "),
        ({"profile": {"dtypes": ("float31",)}}, "profile['dtypes'] has 'float31', which is no type of ONNX"),
        ({"profile": {"operators": ("Conv", "Convolve")}}, "profile['operators'] has 'Convolve', should be one of "),
        ({"refusals": (Rule("none", "convert", None, "its docs"),)}, "refusals[0].pattern is None, should be str"),
        ({"options": (Option("o", "execute", ([1],), "how"),)}, "option o has the value [1], should be a text, "),
        ({"options": (Option("o", "execute", "abc", "how"),)}, "options[0].values is 'abc', should be tuple[Any, ...]"),
        ({"companions": (("", "numpy", "onnx"),)}, "companions[0] has 3 items, should have 2: tuple[str, str]"),
        ({"approximations": {"Erf": "much"}}, "approximations['Erf'] is 'much', should be float"),
        ({"scheme": lambda options: {}}, "what scheme returns is {}, should be Scheme, under {}"),
        ({"scheme": lambda options: options["mode"]}, "scheme raises KeyError under {}: 'mode'"),
        ({"scheme": lambda options: sys.exit("no scheme")}, "scheme raises SystemExit under {}: no scheme"),
        ({"options": [Option("o", "execute", [[1]], "how")]}, "option o has the value [1], should be a text, "),
        ({"companions": [["", "numpy", "onnx"]]}, "companions[0] has 3 items, should have 2: tuple[str, str]"),
    ],
)
def test_what_is_wrong_inside_a_field_is_told_with_its_place(changed, said):
    found = misdeclared(replace(TOY, **changed))
    assert [one[: len(said)] for one in found] == [said], f"it says {found}"


def test_a_list_does_where_a_tuple_is_stated():
    result = api.attempt(f"{__name__}:IN_LISTS")
    assert [row["verdict"] for row in result["tried"]] == ["agrees", "diverges"], f"as of tuples, not {result['tried']}"


def test_no_declaration_of_this_repository_contradicts_itself():
    assert_each(registered(), lambda name: _meant(declared(name)))


def _meant(target):
    wrong = misdeclared(target)
    assert wrong == [], f"it says {wrong}"


def test_a_target_that_refuses_every_recipe_was_not_shown_to_work():
    result = api.attempt(f"{__name__}:REFUSES")
    assert ({row["verdict"] for row in result["tried"]}, api.attempt_status(result)) == ({"rejects"}, 1)


def test_what_a_damaged_process_says_is_not_held_against_the_plug_in():
    assert {row["verdict"] for row in api.attempt(f"{__name__}:DAMAGED_BEFORE")["tried"]} == {"agrees", "fails"}


@pytest.mark.parametrize("name", ["SYSTEM_FAILS", "NATIVE_FAILS", "NO_FILE", "DAMAGES_THE_HEAP"])
def test_what_the_system_raises_or_does_not_write_is_a_failure_of_the_system(name):
    result = api.attempt(f"{__name__}:{name}")
    assert ({row["verdict"] for row in result["tried"]}, api.attempt_status(result)) == ({"fails"}, 1)


def test_each_command_that_runs_it_ends_with_status_2_and_has_found_nothing(tmp_path, capsys):
    saved = corpus.save(saved_relu(target="toy"), tmp_path / "corpus")
    broken, run = f"{__name__}:LACKS_A_KEY", tmp_path / "run"
    commands = [
        ["targets", "--try", broken],
        ["targets", "--try", f"{__name__}:IN_A_LIST"],
        ["fuzz", "--target", f"{__name__}:NO_COMPLAINT", "--cases", "2", "--workers", "1", "--report", str(run)],
        ["check", str(saved / "model.onnx"), "--target", broken],
        ["replay", str(saved), "--target", broken],
        ["fuzz", "--target", broken, "--cases", "2", "--workers", "1", "--report", str(run), "--corpus", str(tmp_path)],
    ]

    def rule(command):
        with pytest.raises(SystemExit) as end:
            cli.main([*command, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert (end.value.code, told["error"]["kind"]) == (2, "target"), f"ends with {end.value.code}: {told}"

    assert_each(commands, rule, lambda command: command[0])
    assert not list(run.glob("cases/*/*")), "nothing is found in a plug-in"
