"""Tests of somebody's own under `@given(case=cases())`: what fails in them is reduced by driftnet's reducer, with the
test itself for a judge."""

import functools
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftnet.commands import redtest
from driftnet.commands.testing import Divergence, Settled
from driftnet.findings import corpus
from driftnet.model.case import Case
from driftnet.model.signature import hash8
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import reduce
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

SECONDS, CALLS = 10.0, 300
"""CPU seconds, and calls of the test, that a reduction may take."""


@dataclass(frozen=True, eq=False)
class Failure:
    """How a test failed: what it was called with, the name of the argument that is the case, and what it raised."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    name: str
    error: BaseException

    @property
    def case(self) -> Case:
        """What it was given."""
        case: Case = self.kwargs[self.name]
        return case


class Watched:
    """A test as Hypothesis calls it. Its first failure with a case ends it, as those that the fixture finds do.

    errors   what counts as a failure, beside exceptions
    """

    def __init__(self, test: Callable[..., Any], errors: tuple[type[BaseException], ...]) -> None:
        self.test = test
        self.errors: tuple[type[BaseException], ...] = (Exception, *errors)
        self.failure: Failure | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """The test, watched, for Hypothesis, which looks at its code and signature."""

        @functools.wraps(self.test)
        def watched(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._called(args, kwargs)  # which may hold a `self`

        return watched

    def _called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        __tracebackhide__ = True
        name = next((name for name, value in kwargs.items() if isinstance(value, Case)), "")
        if name and self.failure and kwargs[name].digest != self.failure.case.digest:
            raise Settled(str(self.failure.error))
        try:
            return self.test(*args, **kwargs)
        except (Divergence, HypothesisException):
            raise
        except self.errors as e:
            self.failure = Failure(args, kwargs, name, e) if name else None
            raise


def reduced(watched: Watched, runner: Runner, folder: Path) -> str:
    """The failure of a test with the smallest case that fails alike, saved below `folder`, for a person; "" where the
    test does not fail alike when it is called again."""
    failure = watched.failure
    if failure is None:
        return ""
    wanted, allowance, smallest = _place(failure.error), runner.allow(SECONDS), list[Case]()

    def reproduces(case: Case, recipe: Recipe) -> str:
        if allowance.spent:
            raise ExhaustedError
        if runner.reference.run(case).error:
            return ""
        try:
            watched.test(*failure.args, **{**failure.kwargs, failure.name: case})
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # Hypothesis' own are among them: no more data to draw, an assumption
            return f"{type(e).__name__}: {e}" if _place(e) == wanted else ""
        return ""

    # Within a test of Hypothesis, of one case, the test may call note, assume, event.
    @settings(
        database=None, deadline=None, max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.none())
    def within(_: None) -> None:
        if reproduces(failure.case, {}):
            record = runner.reference.record
            smallest.append(reduce(failure.case, {}, _NOBODY, reproduces, record, calls=CALLS).case)

    try:
        within()
    except (ReferenceError, ExhaustedError):
        return ""
    if not smallest:
        return ""
    case, expected = smallest[0], runner.reference.run(smallest[0]).outputs
    name = watched.test.__name__.removeprefix("test_")
    there = redtest.begun(folder) / "own" / f"test_{name}_{hash8(case.digest)}"
    if not there.exists():
        with corpus.whole(there) as draft:
            corpus.write_model(case, expected, draft)
    lines = [*redtest.model(case, failure.case), *redtest.values(case.feeds, expected, ())]
    where = ["it is saved, in the layout of ONNX's own tests:", f"  {os.path.relpath(there)}"]
    return "\n".join(["", *lines, "", *where])


def _place(error: BaseException) -> tuple[str, str, int | None]:
    """What tells failures apart, as for Hypothesis: the type, and the line that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__, frames[-1].filename if frames else "", frames[-1].lineno if frames else None


def _unasked(*args: Any) -> Any:
    raise NotImplementedError("a test of somebody's own is no target")


_NOBODY = Target("own-test", "", _unasked, _unasked, _unasked)
"""The reducer simplifies the recipe of a target, too: here is none."""
