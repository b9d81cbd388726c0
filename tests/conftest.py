"""Fixtures shared by the tests."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from driftnet.pytest_plugin import runner_of
from driftnet.run.runner import Runner
from driftnet.run.sandbox import hiding
from driftnet.util.apart import trusting

# Before a test imports them: what helpers assert is explained as if a test had asserted it.
pytest.register_assert_rewrite("tests.support")

OWN_MODELS = (
    *("campaign", "diagnosis", "generators", "handover", "learning", "oracle", "reduce", "selfcheck", "targets"),
    *("commands/test_replay.py", "findings/test_notes.py", "findings/test_recognition.py", "test_field_reports.py"),
)
"""What judges what it has made itself, the generator or the corpus. What `check` says of anybody's model, judged in a
fork, tests/cli shows."""
HERE = Path(__file__).parent
assert all((HERE / place).exists() for place in OWN_MODELS), "a room has another name now"


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays, and need not be gone through again and again: that took a twentieth of the CPU time of
    some rooms."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs bubblewrap is deselected, and counted so, where that does not run."""
    needing = [item for item in items if item.get_closest_marker("bubblewrap")]
    if needing and hiding.refusal():
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.fixture(scope="module", autouse=True)
def own_models(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of its own models this process judges, as a shard does: a fork of it, which has every test in its memory, costs
    more than judging. Elsewhere it forks as it does for people: what it reads may end a process."""
    with trusting(any(request.path.is_relative_to(HERE / place) for place in OWN_MODELS)):
        yield


@pytest.fixture(scope="session")
def runner(pytestconfig) -> Runner:
    """Workers, one set for each process of pytest."""
    return runner_of(pytestconfig)
