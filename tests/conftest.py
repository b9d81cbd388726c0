"""Fixtures shared by the tests."""

import pytest

from harness.laboratory import Laboratory
from harness.pytest_plugin import laboratory


@pytest.fixture(scope="session")
def lab(pytestconfig) -> Laboratory:
    """Workers, one set for each process of pytest."""
    return laboratory(pytestconfig)
