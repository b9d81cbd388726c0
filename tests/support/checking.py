"""What stands in the place of a function in every module of a check that uses it."""

from typing import Any

import pytest
from driftnet.diagnosis import check, conclusion, faults, inquiry, search, weighing

MODULES = (check, inquiry, search, weighing, faults, conclusion)


def put(monkeypatch: pytest.MonkeyPatch, name: str, double: object) -> None:
    """Let `double` be what a check calls by this name."""
    users = [module for module in MODULES if hasattr(module, name)]
    assert users, f"no module of a check has {name}"
    for module in users:
        monkeypatch.setattr(module, name, double)


def what(name: str) -> Any:
    """What a check calls by this name."""
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))
