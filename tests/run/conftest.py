"""Fixtures shared by the tests of this room."""

from collections.abc import Iterator

import pytest
from driftnet.run.sandbox.zygote import Worker, Zygote


@pytest.fixture
def worker(zygote: Zygote) -> Iterator[Worker]:
    """A worker of the module's own template."""
    made = zygote.worker()
    yield made
    made.close()
