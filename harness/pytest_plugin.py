"""pytest: saved cases are tests, and `driftnet` is a fixture for Hypothesis tests on real targets.

`pytest DIR` replays every saved case below DIR. An open case that reproduces is an expected failure, strictly: a
fix turns the replay red until `driftnet triage` says that it is fixed. Only a case that was measured to depend on the
CPU or on the heap (`depends` in its case.json) need not reproduce where these are others than when it was saved.

Every run of pytest imports this module, also where nobody asked for it: what it needs is imported when it is needed.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from driftnet.commands.own_tests import Watched
    from driftnet.commands.sliced import Budget, Fuzzer
    from driftnet.commands.testing import Examiner, Latest
    from driftnet.run.runner import Runner

_RUNNER = pytest.StashKey["Runner"]()
_FUZZER: pytest.StashKey[Fuzzer] = pytest.StashKey()
_BUDGET: pytest.StashKey[Budget] = pytest.StashKey()
_LATEST: pytest.StashKey[Latest] = pytest.StashKey()
_INFRASTRUCTURE = {"hypothesis", "_pytest", "pluggy"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """A fuzzing budget, and what it goes by."""
    group = parser.getgroup("driftnet", "differential fuzzing of ONNX toolchains")
    group.addoption(
        "--driftnet-minutes", type=float, metavar="M", help="fuzz for M minutes in each process, as tests of this suite"
    )
    group.addoption(
        "--driftnet-target", action="append", default=[], metavar="T", help="mnn, mnn==3.4.1, ...; may be repeated"
    )
    group.addoption(
        "--driftnet-corpus", type=Path, metavar="DIR", help="known cases, of the fixture too [default: driftnet's own]"
    )
    group.addoption("--driftnet-seed", type=int, metavar="S", help="same seed: same cases [default: another each time]")


def pytest_configure(config: pytest.Config) -> None:
    """Where fuzzing is asked for: what with. The same for each worker of pytest-xdist."""
    if config.getoption("driftnet_minutes") is None:
        return
    from driftnet.util.elsewhere import refusal

    if said := refusal():
        raise pytest.UsageError(said)
    from driftnet.commands.sliced import Budget, discard
    from driftnet.util.errors import UserError

    worker = getattr(config, "workerinput", None)  # of pytest-xdist
    seed = config.getoption("driftnet_seed")
    if seed is None:
        seed = zlib.crc32(worker["testrunuid"].encode()) if worker else random.getrandbits(31)
    budget = Budget(
        config.getoption("driftnet_minutes"),
        worker["workercount"] if worker else 1,
        seed,
        config.rootpath,
        tuple(config.getoption("driftnet_target")),
        config.getoption("driftnet_corpus"),
    )
    try:
        budget.check()
    except UserError as e:
        raise pytest.UsageError(f"{e.message}\n  {e.hint}") from None
    if not worker:
        discard(budget)  # before any worker begins
    config.stash[_BUDGET] = budget


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among them, too
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slices of the budget are tests."""
    if budget := config.stash.get(_BUDGET, None):
        for k in range(budget.slices):
            name = f"fuzz[{k + 1} of {budget.slices}]"
            items.append(FuzzItem.from_parent(session, name=name, nodeid=f"driftnet::{name}", k=k))


def _demand_linux() -> None:
    """Fail the test that needs driftnet where it does not run, in a sentence."""
    from driftnet.util.elsewhere import refusal

    if said := refusal():
        pytest.fail(said, pytrace=False)


def runner_of(config: pytest.Config) -> Runner:
    """The workers of this pytest process, made when first asked for and closed with the session."""
    from driftnet.run.runner import Runner

    if _RUNNER not in config.stash:
        config.stash[_RUNNER] = Runner(hold_crashes=True)  # a crash is known by where it is
        config.add_cleanup(config.stash[_RUNNER].close)
    return config.stash[_RUNNER]


@pytest.fixture(scope="session")
def driftnet(pytestconfig: pytest.Config) -> Examiner:
    """Examine cases on real targets: `driftnet.knowing(corpus).check(case, "mnn", recipe)`.

    It knows what is saved in --driftnet-corpus.
    """
    _demand_linux()
    from driftnet.commands.testing import Examiner

    examiner = Examiner(runner_of(pytestconfig), found=pytestconfig.rootpath / ".driftnet")
    if folder := pytestconfig.getoption("driftnet_corpus"):
        examiner = examiner.knowing(folder)
    pytestconfig.stash[_LATEST] = examiner.latest
    return examiner


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """What fails with a case is told reduced. A test that is settled ends with its failure, as Hypothesis' own do."""
    if "driftnet.model.case" not in sys.modules:
        return (yield)
    from driftnet.commands.testing import Latest, Settled

    latest = pyfuncitem.config.stash.get(_LATEST, None) or Latest()
    latest.asked = latest.error = None
    handle, watched = getattr(pyfuncitem.obj, "hypothesis", None), None
    if handle is not None:
        from driftnet.commands.own_tests import Watched

        watched = Watched(handle.inner_test, (pytest.fail.Exception,))
        handle.inner_test = watched.function
    try:
        return (yield)
    except BaseException as e:
        failed = watched.failure.error if watched and watched.failure else None
        if watched and failed and type(e) in (type(failed), Settled):
            _tell(failed, watched, pyfuncitem)
        error = (latest.error or failed) if isinstance(e, Settled) else None
        if error is None:
            raise
        raise error.with_traceback(_from_the_test_on(error.__traceback__)) from None
    finally:
        if handle is not None and watched:
            handle.inner_test = watched.test


def _tell(error: BaseException, watched: Watched, item: pytest.Function) -> None:
    """Note below a failure the smallest case that shows it."""
    from driftnet.commands.own_tests import reduced

    if told := reduced(watched, runner_of(item.config), item.config.rootpath / ".driftnet"):
        error.add_note(f"{told}\nagain:\n  pytest '{item.nodeid}'")


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
    """Whether it has what a saved case has, or the beginning of one: it may have been cut short."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        said = json.loads(text)
    except OSError:
        return False
    except (ValueError, RecursionError):
        return all(f'"{word}' in text for word in ("schema", "coarse"))
    return isinstance(said, dict) and {"schema", "target", "coarse", "fine"} <= said.keys()


class CaseFile(pytest.File):
    """A case.json."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test it stands for."""
        yield CaseItem.from_parent(self, name=self.path.parent.name)


class CaseItem(pytest.Item):
    """The replay of one saved case."""

    def runtest(self) -> None:
        """Pass, fail or xfail as the status of the case demands; skip where its target is not installed."""
        _demand_linux()
        from driftnet.commands.testing import replayed

        said = replayed(self.path.parent, runner_of(self.config))
        if said.absent:
            pytest.skip(said.absent)
        if said.failure:
            pytest.fail(said.failure, pytrace=False)  # a traceback would show only driftnet's own lines
        if said.excuse:
            raise pytest.xfail.Exception(said.excuse, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands, and its name."""
        return self.path, None, f"saved case {self.name}"


class FuzzItem(pytest.Item):
    """One slice of the fuzzing budget: it fails where it finds what no saved case explains."""

    def __init__(self, *, k: int, **given: Any) -> None:
        super().__init__(**given)
        self.k = k

    def runtest(self) -> None:
        """Fuzz, and tell the report what was met."""
        from driftnet.commands.sliced import Fuzzer
        from driftnet.util.errors import UserError

        stash, budget = self.config.stash, self.config.stash[_BUDGET]
        try:
            if _FUZZER not in stash:
                stash[_FUZZER] = Fuzzer(budget)
                self.config.add_cleanup(stash[_FUZZER].close)
            told = stash[_FUZZER].run(self.k)
        except UserError as e:
            pytest.fail(f"{e.message}\n  {e.hint}", pytrace=False)
        self.user_properties += [("driftnet-seed", budget.seed), ("driftnet-cases", told.cases)]
        self.user_properties.append(("driftnet-indices", " ".join(map(str, told.indices))))
        self.user_properties += [("driftnet-known", name) for name in sorted(told.known)]
        self.user_properties += [("driftnet-cause", cause) for cause in told.causes]
        if told.new or told.errors:
            failures = "\n\n".join((*told.new, *(f"error of driftnet: {error}" for error in told.errors)))
            pytest.fail(f"{failures}\n\n(--driftnet-seed {budget.seed})", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands, and its name."""
        return self.config.rootpath, None, f"driftnet {self.name}"
