"""A target word leads to an interpreter that holds the release asked for, or to a message that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from driftnet.run.sandbox.zygote import Zygote
from driftnet.targets import environments
from driftnet.targets.environments import declared, environment, prune, resolve
from driftnet.targets.interface import Target
from driftnet.targets.recipe import draw, effective
from driftnet.targets.registry import DEFAULT_TARGETS, registered
from driftnet.util.errors import UserError


def _unused(*_: object) -> str:
    raise AssertionError("these tests run no stage")


ARRAYS = Target("arrays", "numpy", _unused, _unused, lambda *_: [])
TOY = Target("toy", "driftnet-toy", _unused, _unused, lambda *_: [])
PATH = Target("../escape", "numpy", _unused, _unused, lambda *_: [])
NO_TARGET = "words"


def spec(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_word_means_the_release_in_this_environment() -> None:
    installed = resolve(spec("ARRAYS"))
    assert installed == environments.Installed(ARRAYS, spec("ARRAYS"), np.__version__, sys.executable)


def test_naming_the_installed_release_makes_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path))
    assert resolve(f"{spec('ARRAYS')}=={np.__version__}") == resolve(spec("ARRAYS"))
    assert list(tmp_path.iterdir()) == []


def test_our_targets_are_registered_as_anybody_elses() -> None:
    assert (
        registered().items()
        >= {
            "mnn": "driftnet.targets.mnn.target:MNN",
            "onnxruntime-graph": "driftnet.targets.onnxruntime_graph.target:ONNXRUNTIME_GRAPH",
            "onnxruntime-quant": "driftnet.targets.onnxruntime_quant.target:ONNXRUNTIME_QUANT",
        }.items()
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "there is no target ''"),
        ("no_such_module:TARGET", "No module named 'no_such_module'"),
        ("..x:y", "cannot be loaded"),
        (":x", "cannot be loaded"),
        ("x:", "there is no target 'x:'"),
        ("numpy:", "there is no target"),
        (spec("MISSING"), "no attribute 'MISSING'"),
        (spec("NO_TARGET"), "there is no target"),
    ],
)
def test_an_unknown_target_is_a_user_error_that_lists_what_there_is(word: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(word)
    assert message in caught.value.message, f"the message is {caught.value.message!r}"
    assert "mnn" in caught.value.hint, f"the hint {caught.value.hint!r} does not list the targets"
    assert "onnxruntime-quant" in caught.value.hint, f"the hint {caught.value.hint!r} does not list the targets"
    assert caught.value.kind == "target"


@pytest.mark.parametrize("word", ["mmn", "mmn==3.4.1"])
def test_an_unknown_target_that_is_nearly_one_is_asked_about(word: str) -> None:
    with pytest.raises(UserError, match="there is no target 'mmn'") as caught:
        resolve(word)
    assert caught.value.hint == "did you mean mnn?"


def test_a_target_whose_name_is_a_path_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"calls itself '\.\./escape'") as caught:
        resolve(spec("PATH"))
    assert caught.value.kind == "target"


def test_a_target_whose_package_is_missing_is_a_user_error() -> None:
    with pytest.raises(UserError, match="needs the package driftnet-toy") as caught:
        resolve(spec("TOY"))
    assert caught.value.kind == "target"


@pytest.mark.parametrize(("extra", "says"), [("toy", "'fast>=2' more there"), ("toys", "driftnet-toy there")])
def test_what_a_target_needs_is_told_by_its_own_names(monkeypatch: pytest.MonkeyPatch, extra: str, says: str) -> None:
    needs = ["numpy", f'fast>=2; extra == "{extra}"', f'more ; extra == "{extra}"']
    monkeypatch.setattr(environments.metadata, "requires", lambda name: needs)
    monkeypatch.setattr(environments, "registered", lambda: {"toy": spec("TOY")})
    with pytest.raises(UserError) as caught:
        resolve("toy")
    assert f"pip install {says}, or name toy==RELEASE" in caught.value.hint


def test_an_interpreter_of_ones_own_is_asked_for_its_release() -> None:
    assert resolve(spec("ARRAYS"), python=sys.executable).release == np.__version__
    with pytest.raises(UserError, match=f"holds numpy {np.__version__}, not 0.1"):
        resolve(f"{spec('ARRAYS')}==0.1", python=sys.executable)
    with pytest.raises(UserError, match="there is no interpreter /no/such/python"):
        resolve(spec("ARRAYS"), python="/no/such/python")
    with pytest.raises(UserError, match="/bin/ls is no Python"):
        resolve(spec("ARRAYS"), python="/bin/ls")


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("mnn", "3.0.0", set()),
        (
            "onnxruntime-quant",
            "1.16.3",
            {"onnx", "sympy", "scipy", "numpy<2", "onnx<1.16", "onnx<1.17", "onnx<1.18", "onnx<1.20"},
        ),
        ("onnxruntime-quant", "1.17.3", {"onnx", "sympy", "numpy<2", "onnx<1.17", "onnx<1.18", "onnx<1.20"}),
        ("onnxruntime-quant", "1.20.1", {"onnx", "sympy", "onnx<1.18", "onnx<1.20"}),
        ("onnxruntime-quant", "99.0", {"onnx", "onnx-ir", "sympy"}),
        ("ncnn", "1.0.20260114", {"onnx", "pnnx<=20260114 --no-deps"}),
    ],
)
def test_old_releases_get_companions_of_their_time(name: str, release: str, expected: set[str]) -> None:
    needed = environments._needed(declared(name).companions, release)
    assert set(needed) == expected, f"{name} {release} gets {needed}, should get {expected}"


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("mnn", "3.6.1", [["onnx", "numpy", "mnn==3.6.1"]]),
        ("iree", "3.13.0", [["numpy", "iree-base-compiler==3.13.0", "onnx", "iree-base-runtime==3.13.0"]]),
        ("ncnn", "1.0.20261020", [["numpy", "ncnn==1.0.20261020", "onnx"], ["--no-deps", "pnnx<=20261020"]]),
    ],
)
def test_what_is_told_to_install_has_what_the_release_needs_beside_itself(name, release, expected) -> None:
    assert environments.installs(declared(name), release, ("onnx", "numpy")) == expected


def test_a_companion_may_be_of_the_same_release() -> None:
    assert environments._needed([("", "runtime=={release}"), ("3.2", "old")], "3.2.1") == ["runtime==3.2.1"]


UV = f"""#!{sys.executable}
import pathlib, sys
here, given = pathlib.Path(__file__).parent, sys.argv[1:]
with open(here / "asked", "a") as file:
    print(*given, file=file)
if given[0] == "venv":
    (pathlib.Path(given[-1]) / "bin").mkdir(parents=True)
    (pathlib.Path(given[-1]) / "bin" / "python").touch()
if given[1] == "compile":
    print((here / "lock").read_text())
if "--exclude-newer" in given and (here / "young").exists():
    sys.exit(1)
"""
LOCK = """
[[packages]]
name = "driftnet-toy"
wheels = [{ upload-time = 2024-11-18T11:38:22Z }, { upload-time = 2024-11-18T11:00:00Z }]
"""


@pytest.mark.parametrize(
    ("lock", "young", "dates"),
    [
        (LOCK, False, ["2024-11-19T11:38:22Z"]),
        (LOCK, True, ["2024-11-19T11:38:22Z", ""]),
        ('[[packages]]\nname = "driftnet-toy"\n', False, [""]),
        ("", False, [""]),
    ],
    ids=["its time", "a companion is younger", "no date", "no lock"],
)
def test_what_a_release_needs_is_had_as_it_was_when_that_came_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, young: bool, dates: list[str]
) -> None:
    (tmp_path / "lock").write_text(lock)
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    if young:
        (tmp_path / "young").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path / "cache"))
    environment("driftnet-toy", "1.0", (("", "companion"),))
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines() if "install" in line]
    assert [line[line.index("--exclude-newer") + 1] if "--exclude-newer" in line else "" for line in asked] == dates
    assert {line[-1] for line in asked} == {"companion"}


def test_what_an_old_release_is_too_old_for_is_not_drawn_but_a_recipe_may_say_so() -> None:
    target = environments._of_its_time(resolve("onnxruntime-quant").target, "1.16.3", "1.31.1")
    rng = Random(3)
    drawn = [draw(target, rng) for _ in range(400)]
    assert {recipe.get("quantize", "static") for recipe in drawn} == {"static", "dynamic", "none"}
    assert {recipe.get("model_from", "file") for recipe in drawn} == {"file"}
    assert effective(target, {"model_from": "memory"})["model_from"] == "memory", "a saved recipe stays as it is"


def test_the_default_targets_are_those_that_driftnet_registers_itself() -> None:
    assert DEFAULT_TARGETS == ("mnn", "onnxruntime-graph", "onnxruntime-quant")
    assert set(DEFAULT_TARGETS) <= set(registered())


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache, and a package index without network that offers one release of a toy distribution, of numpy, and of what
    needs something that there is not."""
    folder = tmp_path_factory.mktemp("index")
    for name, release in ("driftnet_toy", "1.0"), ("numpy", "9.9"), ("driftnet_heavy", "1.3"):
        needs = "Requires-Dist: tons\n" if name == "driftnet_heavy" else ""
        info = f"{name}-{release}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{release}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", f"release = {release!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n{needs}")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTNET_CACHE", str(folder / "cache"))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        yield folder


def test_another_release_gets_an_environment_of_its_own_once(index: Path) -> None:
    installed = resolve(spec("TOY") + "==1.0")
    assert installed.release == "1.0"
    assert installed.python.startswith(str(index / "cache")), f"the interpreter is {installed.python}"
    assert environments._release_in(installed.python, "driftnet-toy") == "1.0"
    made = environment("driftnet-toy", "1.0")
    assert made.python == installed.python
    assert environments.environments() == [made]
    before = made.folder.stat().st_ino
    assert resolve(spec("TOY") + "==1.0") == installed
    assert made.folder.stat().st_ino == before, "the environment was made a second time"
    assert resolve(spec("TOY"), python=made.python) == installed
    assert prune() == [made]
    assert environments.environments() == []
    assert not made.folder.exists(), "prune() left the environment where it was"


def test_a_companion_may_come_without_what_it_requires_itself(index: Path) -> None:
    with pytest.raises(UserError, match=r"no environment for driftnet-toy 1\.0"):
        environment("driftnet-toy", "1.0", [("", "driftnet-heavy")])
    made = environment("driftnet-toy", "1.0", [("", "driftnet-heavy=={0}.3 --no-deps")])
    assert environments._release_in(made.python, "driftnet-heavy") == "1.3"
    prune()


def test_a_release_that_does_not_exist_is_a_user_error_that_lists_the_others(index: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve(spec("TOY") + "==2.0")
    assert "driftnet-toy 2.0" in caught.value.message, f"the message is {caught.value.message!r}"
    assert "1.0" in caught.value.hint, f"the hint is {caught.value.hint!r}"
    assert caught.value.kind == "environment"
    assert environments.environments() == [], "a failure leaves an environment"
    assert list((index / "cache" / "environments").iterdir()) == [], "a failure leaves files"


def test_a_cache_that_cannot_be_written_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot make an environment") as caught:
        environment("driftnet-toy", "1.0")
    assert "DRIFTNET_CACHE" in caught.value.hint, f"the hint is {caught.value.hint!r}"


def test_what_a_killed_build_leaves_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path))
    code = (
        "import subprocess\n"
        "from driftnet.targets import environments\n"
        "environments._make = lambda new, *_: (new.folder.mkdir(), print('begun', flush=True), input())\n"
        "environments.environment('nothing', '1')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as build:
        assert build.stdout is not None
        assert build.stdout.readline() == b"begun\n"
        build.kill()
    (left,) = (tmp_path / "environments").iterdir()
    os.utime(left, (0, 0))
    monkeypatch.setattr(environments, "_make", lambda new, companions, minor: new.folder.mkdir())
    made = environments.environment("nothing", "1")
    assert list((tmp_path / "environments").iterdir()) == [made.folder], "the folder of the killed build stayed"


def test_the_present_of_an_older_release_is_what_is_installed_here() -> None:
    here = environments.resolve("mnn")
    assert environments.present(replace(here, release="3.0.0")) == here
    assert environments.present(here) is None, "nothing is older than itself"
    assert environments.present(replace(here, release="3.0.0", spec="other:TARGET")) is None, "it is another target"


def test_another_interpreter_borrows_harness_and_keeps_its_own_packages(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    site = tmp_path / "other" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for package in Path(np.__file__).parents[1].glob("numpy*"):
        (site / package.name).symlink_to(package)
    (site / "click.py").write_text("whose = 'its own'\n")
    with Zygote(python=str(python), preload=("click", "tests.support.sandbox_faults")) as zygote:
        worker = zygote.worker()
        assert worker.call("tests.support.sandbox_faults:echo", np.arange(3)).value.tolist() == [0, 1, 2]
        assert worker.call("click:whose.upper").value == "ITS OWN"
        assert "No module named 'onnx'" in worker.call("onnx:load").message
