"""Fixtures shared by the tests."""

import pytest
from driftnet.pytest_plugin import runner_of
from driftnet.run.runner import Runner


@pytest.fixture(scope="session")
def runner(pytestconfig) -> Runner:
    """Workers, one set for each process of pytest."""
    return runner_of(pytestconfig)
