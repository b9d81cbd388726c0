"""What the command line and a notebook both call: one function a command, returning what `--json` prints.

A command is imported when it is first asked for: `driftnet lint` needs nothing of what `driftnet fuzz` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftnet.campaign.shard import Plan
    from driftnet.commands.fuzzing import Listener, fuzz, generate
    from driftnet.commands.itself import bench, selfcheck, selfcheck_status, targets
    from driftnet.commands.linting import lint, lint_status
    from driftnet.commands.models import CheckSettings, audit, audit_status, check, check_status, reduce
    from driftnet.commands.saved import behaves, replay, replay_one, replay_status, report
    from driftnet.commands.triage import triage
    from driftnet.targets.environments import DEFAULT_TARGETS

__all__ = [
    "DEFAULT_TARGETS",
    "CheckSettings",
    "Listener",
    "Plan",
    "audit",
    "audit_status",
    "behaves",
    "bench",
    "check",
    "check_status",
    "fuzz",
    "generate",
    "lint",
    "lint_status",
    "reduce",
    "replay",
    "replay_one",
    "replay_status",
    "report",
    "selfcheck",
    "selfcheck_status",
    "targets",
    "triage",
]

_HOMES = {
    "driftnet.campaign.shard": ("Plan",),
    "driftnet.commands.fuzzing": (
        "Listener",
        "fuzz",
        "generate",
    ),
    "driftnet.commands.itself": (
        "bench",
        "selfcheck",
        "selfcheck_status",
        "targets",
    ),
    "driftnet.commands.linting": (
        "lint",
        "lint_status",
    ),
    "driftnet.commands.models": (
        "CheckSettings",
        "audit",
        "audit_status",
        "check",
        "check_status",
        "reduce",
    ),
    "driftnet.commands.saved": (
        "behaves",
        "replay",
        "replay_one",
        "replay_status",
        "report",
    ),
    "driftnet.commands.triage": ("triage",),
    "driftnet.targets.environments": ("DEFAULT_TARGETS",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
