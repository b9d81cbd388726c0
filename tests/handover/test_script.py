"""reproduce.py runs what the target ran, works in its own folder, and blames the target for nothing of its own."""

import ast
import json
import subprocess
import sys
import sysconfig
from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.findings import corpus
from driftnet.handover import handover, markdown, measures
from driftnet.handover.measures import OtherwiseError, Run
from driftnet.model.verdict import Verdict, Word
from driftnet.targets.environments import Installed, declared, release_here, resolve
from driftnet.targets.recipe import canonical, effective, swept
from driftnet.targets.registry import registered
from onnx import helper

from tests.handover.test_handover import proof, run, saved_relu, script
from tests.support import models
from tests.support.paths import ROOT
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net
from tests.targets.test_rewriters import RELEASES as REWRITERS
from tests.targets.test_tract import RELEASES

TOYS = "tests.support.toy_target"


def calibrated():
    """Something for every option: a convolution, an activation, a product of data and constants; three samples."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "product"),
    ]
    constants = {name: rng.standard_normal(shape).astype("f") for name, shape in SHAPES.items()}
    feeds = [{"x": rng.uniform(-1, 1, (1, 3, 2, 40)).astype("f")} for _ in range(3)]
    case = models.case(nodes, feeds[0], constants, outputs=[("y", 1, (1, 4, 2, 6))], feeds=feeds[1:], opset=21)
    return replace(case, calibration=tuple({"x": 2 * feed["x"]} for feed in feeds))


SHAPES = {"w": (4, 3, 3, 3), "b": (4,), "v": (40, 6)}


def written(saved, word, folder):
    """reproduce.py in the folder of the case."""
    corpus.write_model(saved.case, saved.expected, folder)
    (folder / "reproduce.py").write_text(script(saved, word))
    return folder


def imported(text):
    """The top-level packages that a script imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(text, feature_version=(3, 8))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in registered() if release_here(declared(name).distribution)),
        *(
            pytest.param(f"{name}=={release}", marks=pytest.mark.network)
            for name, release in {**REWRITERS, **RELEASES}.items()
        ),
    ],
)
def test_the_script_asks_the_system_what_the_target_asks_it_under_every_value_of_every_option(name, tmp_path):
    """A system that is not installed gets an environment, in which the packages of this one come last."""
    installed, case = resolve(name), calibrated()
    target = installed.target
    systems = {native.partition(".")[0] for native in target.natives}
    assert systems, f"{name} declares no `natives`: nothing can be compared"
    recipes = swept(target) + [{part: list(parts[:2])} for part, parts in target.switches.items()]
    saved = saved_relu(case=case, target=name, expected=tuple({"y": feed["x"]} for feed in case.feeds))
    for k, recipe in enumerate(recipes):
        folder = tmp_path / f"{k:03}"
        folder.mkdir()
        text = (written(replace(saved, recipe=recipe), name, folder) / "reproduce.py").read_text(encoding="utf-8")
        assert imported(text) <= {"numpy", "onnx", "onnxruntime", *systems}, f"{recipe}: {imported(text)}"
        asked = {"target": name, "options": effective(target, recipe)}
        (folder / "asked.json").write_text(json.dumps(asked))
    behind = f"import runpy, site; site.addsitedir({sysconfig.get_path('purelib')!r}); "
    run_it = "runpy.run_module('tests.support.native_calls', run_name='__main__')"
    command = [installed.python, "-c", behind + run_it, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: the last recipes were not run\n{done.stderr[-2000:]}"
    told = [json.loads((tmp_path / f"{k:03}" / "told.json").read_text(encoding="utf-8")) for k in range(len(recipes))]
    for recipe, both in zip(recipes, told, strict=True):
        assert both["script"] == both["target"], f"{name} under {recipe}: the script does something else"
        assert both["target"]["calls"], f"{name} under {recipe}: no native call was recorded"
        assert isinstance(both["target"]["results"], list), f"{name} under {recipe}: {both['target']['results']}"
    lesser = [
        (k, recipes.index(less), option)
        for k, recipe in enumerate(recipes)
        for option in recipe
        if (less := canonical(target, {o: v for o, v in recipe.items() if o != option})) in recipes
    ]
    assert len(lesser) >= len(recipes) - 1, "each recipe but the empty one sets an option that another lacks"
    for k, less, option in lesser:
        asked = [(told[i]["script"]["calls"], told[i]["script"]["files"]) for i in (k, less)]
        assert asked[0] != asked[1], f"{name} under {recipes[k]}: {option} changes nothing"


@pytest.mark.parametrize("name", registered())
def test_the_text_of_every_target_that_is_registered_stands_by_itself(name):
    """None of them need be installed for that."""
    target = declared(name)
    held = Installed(target, registered()[name], "1.0.0", sys.executable)

    def rule(recipe):
        saved = saved_relu(recipe=recipe, target=name)
        text = handover.script(saved, held, proof(saved))
        assert ast.parse(text, feature_version=(3, 8)), f"{recipe}: no script"

    assert_each(swept(target), rule, str)


def test_what_only_an_annotation_names_is_left_out():
    text = script(saved_relu(target="toy"), f"{TOYS}:TOY")
    assert "OFFSETS = {" in text
    assert "MutableMapping" not in text, "it annotates OFFSETS, and nothing else needs it"


def test_what_these_options_never_reach_is_left_out():
    whole = script(saved_relu(recipe={"quantize": "offline"}), "mnn")
    short = script(saved_relu(), "mnn")
    assert "_write_sequences" in whole
    assert "_write_sequences" not in short
    assert "# what follows is for other options" in short


@pytest.mark.parametrize(("name", "status"), [("../../../outside", 2), ("/outside", 1), ("a/../../../../outside", 2)])
def test_a_name_of_an_input_leads_to_no_file_outside(name, status, tmp_path):
    """A leading slash, as exporters write it, is a file like any other; what leads upwards is refused."""
    if name.startswith("/"):
        name = f"{tmp_path}{name}"
    case = conv_net()
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    case = models.Case(model.SerializeToString(), tuple({name: feed["x"]} for feed in case.feeds))
    saved = saved_relu(
        case=case, expected=tuple({"y": feed[name]} for feed in case.feeds), recipe={"quantize": "offline"}
    )
    folder = tmp_path / "deep" / "er" / "case"
    folder.mkdir(parents=True)
    written(saved, "mnn", folder)
    before = sorted(tmp_path.rglob("*"))
    result = run(folder, TMPDIR=str(tmp_path / "deep"))
    assert result.returncode == status, result.stdout + result.stderr
    assert ("would be a file outside its folder" in result.stdout) is (status == 2)
    assert sorted(tmp_path.rglob("*")) == before, "the script left something behind, or wrote beside itself"


def test_a_target_in_several_modules_of_its_package_gets_a_script(tmp_path):
    saved = saved_relu(recipe={"offset": "one"}, target="toy")
    folder = written(saved, f"{TOYS}:TOY", tmp_path)
    text = (folder / "reproduce.py").read_text(encoding="utf-8")
    assert imported(text) == {"numpy", "onnx", "onnxruntime"}, "what others have not is in the script itself"
    result = run(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "off by 1 (allowed: 0)" in result.stdout
    assert run(written(replace(saved, recipe={}), f"{TOYS}:TOY", tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CLOSURE", "made.<locals>.convert is made while its module runs"),
        ("PARTIAL", "functools.partial"),
        ("ELSEWHERE", "uses __file__, which is something else in a script"),
        ("NAMED_ALIKE", "main is one thing in"),
        ("MODULE_AS_A_VALUE", "what tests.support.toy_target takes from tests.support.toy_arrays cannot be told"),
    ],
)
def test_a_target_whose_text_does_not_stand_by_itself_gets_a_reason_instead(runner, tmp_path, name, why):
    folder = corpus.save(saved_relu(target="toy"), tmp_path)
    (folder / "reproduce.py").write_text("of an earlier release")
    handover.write(folder, resolve(f"{TOYS}:{name}"), runner)
    assert not (folder / "reproduce.py").exists()
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert "driftnet replay ." in text
    assert markdown.inline(why) in text


def test_a_system_that_is_not_there_and_a_script_that_cannot_read_its_data_reproduce_nothing(tmp_path):
    folder = written(saved_relu(target="toy"), f"{TOYS}:LACKS_ITS_SYSTEM", tmp_path)
    result = run(folder)
    assert (result.returncode, "REPRODUCED" in result.stdout) == (2, False), result.stdout
    assert "No module named 'no_such_system'" in result.stdout
    said = "toy failed in convert: ModuleNotFoundError: No module named 'no_such_system'"
    seen = saved_relu(target="toy", verdict=Verdict(Word.FAILS, stage="convert", kind="error", message=said))
    assert run(written(seen, f"{TOYS}:LACKS_ITS_SYSTEM", tmp_path)).returncode == 1, "here that is what was seen"
    written(saved_relu(target="toy"), f"{TOYS}:TOY", tmp_path)
    (folder / "test_data_set_0" / "input_0.pb").write_bytes(b"no tensor")
    result = run(folder)
    assert (result.returncode, "REPRODUCED" in result.stdout) == (2, False), result.stdout + result.stderr
    (folder / "model.onnx").unlink()
    assert run(folder).returncode == 2


def test_a_heap_that_is_damaged_ends_the_script_where_what_the_target_made_is_freed(tmp_path):
    """That is after its error, and seldom where the C library does not check."""
    seen = saved_relu(target="toy", verdict=Verdict(Word.CRASHES, stage="execute", kind="SIGABRT"))
    result = run(written(seen, f"{TOYS}:DAMAGES", tmp_path))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "execute ended with SIGABRT" in result.stdout


def test_the_script_says_how_it_is_called(tmp_path):
    folder = written(saved_relu(target="toy"), f"{TOYS}:TOY", tmp_path)
    asked = [(["--help"], 0, "usage:"), (["nowhere"], 2, "no model.onnx in nowhere")]
    asked += [([".", *tries], 2, "TRIES is a number from 1 on") for tries in (["often"], ["0"], ["2", "3"])]
    for given, status, said in asked:
        command = [sys.executable, "-I", "reproduce.py", *given]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"status of {given}: got {done.returncode}, should be {status}: {done.stderr}"
        assert said in done.stdout, f"what {given} prints: got {done.stdout!r}, should hold {said!r}"
        assert not done.stderr, f"errors of {given}: got {done.stderr!r}, should be none"


@pytest.mark.parametrize(
    ("kind", "deed", "status", "said"),
    [
        ("wrong-values", "raise ValueError('other')", 2, "something else fails: execute ended with error"),
        ("error", "raise ValueError('that')", 1, "fails: this model: execute ended with error: ValueError: that"),
        ("error", "raise ValueError('this')", 2, "something else fails: execute ended with error: ValueError: this"),
        ("error", "raise NameError('no name of the script')", 2, "could not be tried"),
        ("wrong-values", "os.kill(os.getpid(), signal.SIGKILL)", 2, "could not be tried"),
        ("wrong-values", "os.kill(os.getpid(), signal.SIGSEGV)", 2, "something else fails: execute ended with SIGSEGV"),
        ("SIGSEGV", "os.kill(os.getpid(), signal.SIGABRT)", 1, "execute ended with SIGABRT"),
        ("SIGFPE", "os.kill(os.getpid(), signal.SIGSEGV)", 2, "something else fails: execute ended with SIGSEGV"),
        ("exit-7", "os._exit(7)", 1, "execute ended with exit-7"),
        ("wrong-values", "os._exit(7)", 2, "something else fails: execute ended with exit-7"),
        ("hang", "(os.fork(), signal.pause())", 1, "execute ended with hang"),
        ("no-output", "results.clear()", 1, "output 'y' is missing"),
        ("wrong-values", "results.clear()", 2, "something else fails: the output is missing"),
        ("wrong-values", "None", 0, "not reproduced"),
    ],
)
def test_only_the_failure_that_was_seen_is_one(tmp_path, kind, deed, status, said):
    word, message = Word.DIVERGES if kind == "wrong-values" else Word.FAILS, "toy failed in execute: ValueError: that"
    saved = saved_relu(target="toy", verdict=Verdict(word, stage="execute", kind=kind, message=message, output="y"))
    folder = written(saved, f"{TOYS}:TOY", tmp_path)
    text = (folder / "reproduce.py").read_text(encoding="utf-8")
    damaged = text.replace("    return results\n", f"    {deed}\n    return results\n")
    assert damaged != text
    (folder / "reproduce.py").write_text(damaged)
    result = run(folder)
    assert (result.returncode, said in result.stdout) == (status, True), result.stdout + result.stderr
    assert ("\nREPRODUCED" in result.stdout) == (status == 1)


def test_a_measure_of_values_tells_another_form_from_wrong_values():
    def off(actual, right):
        about = {"feed": 0, "output": "y", "at": [], "as_written": False, "norm": "element", "alone": False}
        ask = lambda model, feeds, names: [{"y": right}]
        return measures.values(Run(None, [{}], [], [{"y": actual}], [], None, "", "", "", ask), about).error

    nan = np.float32([1, np.nan])
    assert off(nan, nan) == 0
    assert off(np.float32([1, 2]), nan) == np.inf
    assert off(np.array(["a"]), np.array(["b"])) == np.inf
    assert off(np.float32([1, 3]), np.float32([1, 1])) == 2
    for other in (np.ones(2), np.ones((1, 2), np.float32)):
        with pytest.raises(OtherwiseError, match="it is float"):
            off(other, np.ones(2, np.float32))
