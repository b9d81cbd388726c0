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

STRANGERS = ("cli", "util", "zoo", "findings/test_hostile.py", "findings/test_readers.py")
"""What judges what others have made, or may have, and so does it in a fork; all else judges what it has made itself,
the corpus or the generator."""
HERE = Path(__file__).parent
assert all((HERE / place).exists() for place in STRANGERS), "a room has another name now"


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
    """Of models of our own this process judges, as a shard does: a fork of it, which has every test in its memory,
    costs more than judging. Of strangers' it forks as it does for people: what it reads may end a process."""
    with trusting(not any(request.path.is_relative_to(HERE / place) for place in STRANGERS)):
        yield


@pytest.fixture(scope="session")
def runner(pytestconfig) -> Runner:
    """Workers, one set for each process of pytest."""
    return runner_of(pytestconfig)
