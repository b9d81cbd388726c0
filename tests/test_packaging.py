"""The wheel, installed for a project that has folders `harness` and `generators` of its own: all of driftnet is in it,
its corpus too, it is in nobody's way, and pytest pays for it only where it is asked for."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.paths import ROOT, saved_case
from tests.support.pins import FILE, SITE, pinned, text_of

SOURCES = ("corpus", "generators", "harness", "LICENSE", "README.md", "pyproject.toml")
SEED_WITH_KNOWN_ISSUES = 4
FREE_SECONDS = 0.02
HEAVY = ("hypothesis", "numpy", "onnx", "onnxruntime")

OWN_TEST = f"""
import sys
import generators, harness
def test_its_own_packages_are_its_own():
    assert harness.WHOSE == generators.WHOSE == "the project's"
def test_the_plugin_is_there_and_costs_nothing(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("driftnet")
    assert not set({HEAVY}) & sys.modules.keys()
"""


def run(*words, cwd=None):
    """The standard output of a command that succeeds, by exit status 0 or one that says what was found."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode in (0, 1, 3), f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A virtual environment with the wheel; what it depends on is that of this one."""
    folder = tmp_path_factory.mktemp("packaging")
    (folder / "source").mkdir()  # setuptools builds in the source tree, and takes along what an earlier build left
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    offline = ("--no-index", "--no-deps", "--quiet")
    run(*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, folder / "source")
    shutil.rmtree(folder / "source")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    run(*pip, "--python", python, "install", *offline, "--no-compile", *folder.glob("*.whl"))
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python, site


@pytest.fixture
def project(tmp_path):
    """A project with packages called like driftnet's folders, and with a case.json that is none of driftnet's."""
    for name in ("harness", "generators"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('WHOSE = "the project\'s"\n')
    (tmp_path / "conftest.py").write_text("import harness\n")
    (tmp_path / "test_own.py").write_text(OWN_TEST)
    (tmp_path / "case.json").write_text('{"schema": 1, "verdict": "a judge\'s"}')
    (tmp_path / "model.onnx").touch()
    return tmp_path


def test_the_wheel_installs_one_package_that_holds_everything(installed):
    _, site = installed
    unexpected = {path.name.partition("-")[0] for path in site.iterdir()} - {"driftnet", "dependencies.pth"}
    assert not unexpected, f"the wheel installs {sorted(unexpected)} beside driftnet"
    assert (site / "driftnet" / "py.typed").exists(), "type checkers take driftnet for untyped: py.typed is missing"
    folders = {"harness": "", "generators": "generators", "corpus": "corpus"}
    missing = [
        path.relative_to(ROOT)
        for source, there in folders.items()
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if not (site / "driftnet" / there / path.relative_to(ROOT / source)).exists()
    ]
    assert not missing, f"the wheel lacks {missing[:5]}, {len(missing)} in all: see [tool.setuptools] of pyproject.toml"


def test_the_source_distribution_is_the_repository(tmp_path):
    passing = shutil.ignore_patterns(
        *(".git", ".venv", "build", "dist", "__pycache__", "*_cache", ".hypothesis", ".driftnet", "*.egg-info")
    )
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=passing)
    for run_of_somebody in (source / "reports").iterdir():
        if run_of_somebody.name not in ("README.md", "bench"):
            shutil.rmtree(run_of_somebody)
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, tmp_path, cwd=source)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    lacking = sorted(files - packed)
    assert not lacking, f"lacks {lacking[:5]}, {len(lacking)} in all, and cannot pass its own tests: see MANIFEST.in"


@pytest.mark.parametrize(("file", "extra"), [(FILE, "dev"), (FILE, "cluster"), (SITE, "docs")])
def test_every_release_is_pinned_by_the_hashes_of_its_files(file, extra):
    text = file.read_text(encoding="utf-8")
    pins = pinned(text)
    made = text_of({requirement: set(digests) for requirement, digests in pins.items()}, file)
    assert made == text, "it was edited by hand"
    assert all(pins.values()), f"no hash for {[name for name, hashes in pins.items() if not hashes]}"
    names = {requirement.partition("==")[0].lower().replace("_", "-") for requirement in pins}
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    wanted = [*(project["dependencies"] if file == FILE else ()), *project["optional-dependencies"][extra]]
    unpinned = {re.match(r"[\w-]+", line)[0].lower() for line in wanted} - names
    assert not unpinned, f"{file} lacks {unpinned}"
    built = set(pyproject["build-system"]["requires"]) if file == FILE else set()
    assert built <= set(pins), "what builds it is pinned otherwise than in constraints.txt"


def test_what_ci_runs_of_others_is_pinned_by_commit():
    places = [*(ROOT / ".github" / "workflows").iterdir(), ROOT / "action.yml", ROOT / "docs" / "ci.md"]
    workflows = [path.read_text(encoding="utf-8") for path in places]
    used = [name for text in workflows for name in re.findall(r"uses: (\S+)", text)]
    ours = ("./", "OWNER/driftnet@COMMIT")  # what was checked out; what the reader is to pin
    loose = [name for name in used if name not in ours and not re.search(r"@[0-9a-f]{40}$", name)]
    assert used, "the workflows use nothing"
    assert not loose, f"whoever moves a tag runs what he likes: {loose}"


def test_installed_it_knows_the_known_issues(installed, project):
    python, site = installed
    words = ("fuzz", "--cases", "20", "--seed", SEED_WITH_KNOWN_ISSUES, "--no-steer", "--workers", "1")
    result = json.loads(run(python.parent / "driftnet", *words, "--report", "run", "--json", cwd=project))
    known = [finding["path"] for finding in result["findings"] if finding["status"] == "known"]
    assert result["cases"] == 20, f"it examined {result['cases']} cases of 20"
    assert known, f"no finding is known, of {result['findings']}"
    assert all(Path(path).is_relative_to(site / "driftnet" / "corpus") for path in known), f"they are known by {known}"


def test_a_suite_that_did_not_ask_for_the_plugin_pays_nothing(installed, project):
    python, _ = installed
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert "2 passed" in said, f"the project's own two tests are not all that ran, or failed:\n{said}"
    code = "import pytest, time; t = time.process_time(); import driftnet.pytest_plugin; print(time.process_time() - t)"
    spent = min(float(run(python, "-c", code, cwd=project)) for _ in range(3))
    assert spent < FREE_SECONDS, f"importing the plugin takes {spent:.3f} CPU seconds, should be under {FREE_SECONDS}"


def test_installed_it_replays_saved_cases_as_tests(installed, tmp_path):
    python, _ = installed
    saved = saved_case("142bee66")
    shutil.copytree(saved, tmp_path / saved.name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.onnx").touch()
    (tmp_path / "broken" / "case.json").write_text('{"schema": 1, "coarse')
    said = run(python, "-m", "pytest", "-q", "-rfEsx", "-p", "no:cacheprovider", tmp_path)
    assert "not a whole case.json" in said, f"a saved case that was cut short is not named:\n{said}"
    assert "1 failed, 1 xfailed" in said, f"the open case is not an expected failure:\n{said}"
