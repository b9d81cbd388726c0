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

OWN_MODELS = {"campaign", "diagnosis", "generators", "handover", "learning", "oracle", "reduce", "selfcheck", "targets"}
"""Rooms that judge what they have made themselves, or the generator. What `check` says of anybody's model, judged in
a fork, tests/cli shows."""
assert all(Path(__file__).with_name(room).is_dir() for room in OWN_MODELS), "a room has another name now"


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays, and need not be gone through again and again: a tenth of the CPU time of all tests."""
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
    """In rooms of their own models this process judges, as a shard does: a fork of it, which has every test in its
    memory, costs more than judging. Elsewhere it forks as it does for people: what it reads may end a process."""
    with trusting(request.path.relative_to(Path(__file__).parent).parts[0] in OWN_MODELS):
        yield


@pytest.fixture(scope="session")
def runner(pytestconfig) -> Runner:
    """Workers, one set for each process of pytest."""
    return runner_of(pytestconfig)
