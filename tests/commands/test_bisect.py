"""Bisection finds the release that broke a case and the one that mended it, and takes nothing untestable for good."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from driftnet import api
from driftnet.causes import record
from driftnet.causes.releases import History
from driftnet.commands.bisecting import walk
from driftnet.findings import arrange, corpus
from driftnet.targets import environments
from driftnet.util.errors import UserError

from tests.findings.test_corpus import saved_relu

TARGETS = {"released": "tests.support.toy_target:RELEASED", "mnn": "driftnet.targets.mnn.target:MNN"}
OF_TWO = ("given", "corpus")
RELEASES = [f"1.{n}" for n in range(6)]
STATES = {
    "1.0": "untestable: released does not support this: Unsupported model IR version",
    "1.1": "agrees",
    "1.2": "reproduces",
    "1.3": "differs: execute/error/does not work today",
    "1.4": "reproduces",
    "1.5": "agrees",
}


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ("g b b", "first bad 1.1, last good 1.0; still in 1.2"),
        ("b b b", "bad since 1.0, the oldest that could be tried; still in 1.2"),
        ("u b b", "bad since 1.1, the oldest that could be tried; still in 1.2; could not be tried on 1.0"),
        ("d b", "bad since 1.1; still in 1.1; fails otherwise on 1.0 (x)"),
        (
            "g u b",
            "first bad 1.2, last good 1.0 (1.1 between them cannot tell); still in 1.2; could not be tried on 1.1",
        ),
        ("g b g", "first bad 1.1, last good 1.0; gone in 1.2, last bad 1.1"),
        ("b g b", "first bad 1.2, last good 1.1; bad before on 1.0; still in 1.2"),
        (
            "b d g",
            "bad since 1.0, the oldest that could be tried; gone in 1.2, last bad 1.0; fails otherwise on 1.1 (x)",
        ),
        ("g g u", "bad on none of 2 releases, 1 more could not be tried"),
        ("b u u u b", "bad since 1.0, the oldest that could be tried; still in 1.4; could not be tried on 1.1 to 1.3"),
        ("", ""),
    ],
)
def test_what_releases_did_is_told_in_words(states: str, sentence: str) -> None:
    words = {"g": "agrees", "b": "reproduces", "d": "differs: x", "u": "untestable: y"}
    history = History({f"1.{n}": words[state] for n, state in enumerate(states.split())})
    assert history.sentence == sentence


@pytest.mark.parametrize(("broken", "mended"), [(0, 54), (1, 54), (17, 54), (20, 37), (53, 54), (54, 54)])
def test_of_many_releases_those_are_asked_between_which_something_changed(broken: int, mended: int) -> None:
    names = [f"1.{n}" for n in range(54)]
    truth = ["reproduces" if broken <= n < mended else "agrees" for n in range(54)]
    asked: list[str] = []

    def ask(release: str) -> str:
        asked.append(release)
        return truth[names.index(release)]

    found = walk(names, ask)
    history = History(found)
    assert len(asked) == len(set(asked)) <= 5 + 2 * 5, f"{len(asked)} of 54 were asked"
    assert list(found) == [name for name in names if name in found], "the states are not in order"
    assert history.first_bad == (f"1.{broken}" if broken < 54 else "")
    assert history.last_good == (f"1.{broken - 1}" if 0 < broken < 54 else "")
    assert history.gone_in == (f"1.{mended}" if mended < 54 else "")


def test_of_many_releases_those_that_a_case_was_seen_on_are_asked_however_few_they_are() -> None:
    names = [f"1.{n}" for n in range(54)]
    found = walk(names, lambda release: "reproduces" if release == "1.52" else "agrees", known={"1.52"})
    assert History(found).sentence == "first bad 1.52, last good 1.51; gone in 1.53, last bad 1.52"


def test_few_releases_are_all_asked() -> None:
    assert walk(RELEASES, STATES.__getitem__) == STATES


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with a cause of a target of which there are seven releases, of the last no wheel that fits, and of
    another API the first."""

    def make(new: environments.Environment, companions: object, minor: int) -> None:
        if new.release == "1.5":
            raise environments.NoWheelError("no wheel of that release fits", kind="environment")
        venv.create(new.folder, with_pip=False, symlinks=True)
        site = new.folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        for package in Path(np.__file__).parents[1].glob("numpy*"):
            (site / package.name).symlink_to(package)
        (site / "driftnet_toy.py").write_text(f"release = {new.release!r}\n")

    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "_make", make)
    monkeypatch.setattr(environments, "_offered", lambda distribution, minor: ("0.9", *RELEASES))
    monkeypatch.setattr(environments, "registered", lambda: TARGETS)
    saved = saved_relu(target="released", recipe={}, coarse="released/execute/wrong-values")
    return corpus.save(saved, tmp_path / "corpus")


def test_each_release_is_run_and_what_fails_otherwise_or_cannot_run_is_neither_good_nor_bad(releases: Path) -> None:
    result = api.bisect(releases)
    told = {one["release"]: one["outcome"] for one in result["states"]}
    assert told == {
        "0.9": "untestable",
        "1.0": "untestable",
        "1.1": "agrees",
        "1.2": "reproduces",
        "1.3": "differs",
        "1.4": "reproduces",
        "1.5": "untestable",
    }
    assert (result["first_bad"], result["last_good"], result["gone_in"]) == ("1.2", "1.1", "")
    after = corpus.load(releases)
    assert {"1.2", "1.4"} <= {*after.seen}
    assert "1.1" in after.not_seen


def test_a_name_is_looked_for_in_the_corpus_that_is_given_first(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tmp_path / "corpus", tmp_path / "given")
    monkeypatch.chdir(tmp_path)  # where ./corpus has a case of that name too
    api.bisect(releases.name[-8:], releases=["1.1", "1.2"], root=Path("given"))
    kept = {where: "1.1" in corpus.load(tmp_path / where / "released" / releases.name).not_seen for where in OF_TWO}
    assert kept == {"given": True, "corpus": False}, "what releases did is kept in another corpus than the one given"


def test_a_cause_keeps_what_each_release_did(releases: Path, tmp_path: Path) -> None:
    cause = tmp_path / "corpus" / "released" / "released_execute_wrong-values_relu_00000000"
    cause.mkdir()
    saved = corpus.load(releases)
    record.save(dataclasses.replace(arrange.loose(saved), id=cause.name), cause)
    releases.rename(cause / releases.name)
    api.bisect(cause, releases=["1.2", "1.1"])
    kept = record.load(cause)
    assert kept.releases == {"1.1": "agrees", "1.2": "reproduces"}
    assert kept.history == "first bad 1.2, last good 1.1; still in 1.2"
    everything = api.bisect(every=True, root=tmp_path / "corpus", releases=["1.4"])
    assert [one["id"] for one in everything["bisected"]] == [cause.name]
    assert list(record.load(cause).releases) == ["1.1", "1.2", "1.4"], "what was known before is gone"
    again = api.bisect(every=True, root=tmp_path / "corpus", releases=["1.4"])
    assert again["bisected"] == [], "what has a history was run again"


@pytest.mark.parametrize("release", ["banana", "9.9.9"])
def test_a_release_that_there_is_not_is_a_mistake_and_nothing_is_kept_of_it(releases: Path, release: str) -> None:
    before = (releases / "case.json").read_bytes()
    with pytest.raises(UserError, match=f"there is no release '{release}' of"):
        api.bisect(str(releases), releases=release)
    assert (releases / "case.json").read_bytes() == before


def test_neither_nothing_nor_both_can_be_bisected(releases: Path) -> None:
    with pytest.raises(UserError, match="name one cause or case, or --all"):
        api.bisect()
    with pytest.raises(UserError, match="is a case of released, not of mnn"):
        api.bisect(releases, target="mnn")
