"""Fixtures shared by the tests."""

import pytest
from driftnet.pytest_plugin import laboratory
from driftnet.run.runner import Laboratory


@pytest.fixture(scope="session")
def lab(pytestconfig) -> Laboratory:
    """Workers, one set for each process of pytest."""
    return laboratory(pytestconfig)
