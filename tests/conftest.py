"""Fixtures shared by the tests."""

import pytest
from driftnet.pytest_plugin import runner_of
from driftnet.run.runner import Runner

# Before a test imports them: what helpers assert is explained as if a test had asserted it.
pytest.register_assert_rewrite("tests.support")


@pytest.fixture(scope="session")
def runner(pytestconfig) -> Runner:
    """Workers, one set for each process of pytest."""
    return runner_of(pytestconfig)
