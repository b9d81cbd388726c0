"""pytest: saved cases are tests, and `driftnet` is a fixture for Hypothesis tests on real targets.

`pytest DIR` replays every saved case below DIR. An open case that reproduces is an expected failure, strictly: a
fix turns the replay red until `driftnet triage` says that it is fixed. Only a case that was measured to depend on the
CPU or on the heap (`depends` in its case.json) need not reproduce where these are others than when it was saved.

Every run of pytest imports this module, also where nobody asked for it: what it needs is imported when it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from driftnet.commands.testing import Examiner, Latest
    from driftnet.run.runner import Runner

_RUNNER = pytest.StashKey["Runner"]()
_LATEST: pytest.StashKey[Latest] = pytest.StashKey()
_INFRASTRUCTURE = {"hypothesis", "_pytest", "pluggy"}


def runner_of(config: pytest.Config) -> Runner:
    """The workers of this pytest process, made when first asked for and closed with the session."""
    from driftnet.run.runner import Runner

    if _RUNNER not in config.stash:
        config.stash[_RUNNER] = Runner(hold_crashes=True)  # a crash is known by where it is
        config.add_cleanup(config.stash[_RUNNER].close)
    return config.stash[_RUNNER]


@pytest.fixture(scope="session")
def driftnet(pytestconfig: pytest.Config) -> Examiner:
    """Examine cases on real targets: `driftnet.knowing(corpus).check(case, "mnn", recipe)`."""
    from driftnet.commands.testing import Examiner

    examiner = Examiner(runner_of(pytestconfig), found=pytestconfig.rootpath / ".driftnet")
    pytestconfig.stash[_LATEST] = examiner.latest
    return examiner


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that begins has not failed yet; one that is settled ends with its failure, as Hypothesis' own tests do."""
    latest = pyfuncitem.config.stash.get(_LATEST, None)
    if latest is None:
        return (yield)
    from driftnet.commands.testing import Settled

    latest.asked = latest.error = None
    try:
        return (yield)
    except Settled:
        assert latest.error is not None, "nothing is settled without a failure"
        raise latest.error.with_traceback(_from_the_test_on(latest.error.__traceback__)) from None


def _from_the_test_on(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without what Hypothesis and pytest have called before the person's own code."""
    own, there = trace, trace
    while there:
        if not _INFRASTRUCTURE.isdisjoint(Path(there.tb_frame.f_code.co_filename).parts):
            own = there.tb_next
        there = there.tb_next
    return own


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A folder with a saved case is a test."""
    if file_path.name == "case.json" and (file_path.parent / "model.onnx").exists() and _may_be_ours(file_path):
        return CaseFile.from_parent(parent, path=file_path)
    return None


def _may_be_ours(path: Path) -> bool:
    """Whether it says what a saved case says, or cannot be read: then it may be one that was cut short."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True
    return isinstance(said, dict) and "coarse" in said


class CaseFile(pytest.File):
    """A case.json."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test it stands for."""
        yield CaseItem.from_parent(self, name=self.path.parent.name)


class CaseItem(pytest.Item):
    """The replay of one saved case."""

    def runtest(self) -> None:
        """Pass, fail or xfail as the status of the case demands."""
        from driftnet.commands.testing import replayed

        failure, excuse = replayed(self.path.parent, runner_of(self.config))
        if failure:
            pytest.fail(failure, pytrace=False)  # a traceback would show only driftnet's own lines
        if excuse:
            pytest.xfail(excuse)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands, and its name."""
        return self.path, None, f"saved case {self.name}"
