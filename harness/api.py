"""What the command line and a notebook both call: one function a command, returning what `--json` prints."""

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
