"""Cases of systems that are not installed here are replayed by tests/targets/test_found.py, in environments."""

from collections.abc import Generator
from pathlib import Path

import pytest
from driftnet.targets.environments import is_installed
from driftnet.util.apart import trusting

collect_ignore = [
    path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and not is_installed(path.name)
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """These cases were judged before they were saved, so they are in this process, which spares a fork of it each."""
    with trusting():
        return (yield)
