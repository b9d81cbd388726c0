"""What the command line and a notebook both call: one function a command, returning what `--json` prints.

A command is imported when it is first asked for: `driftnet lint` needs nothing of what `driftnet fuzz` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftnet.util.lazy import found, homes

if TYPE_CHECKING:
    from driftnet.campaign.plan import Plan as Plan
    from driftnet.commands.auditing import audit as audit
    from driftnet.commands.auditing import audit_status as audit_status
    from driftnet.commands.bisecting import bisect as bisect
    from driftnet.commands.checking import CheckSettings as CheckSettings
    from driftnet.commands.checking import check as check
    from driftnet.commands.checking import check_status as check_status
    from driftnet.commands.covering import coverage as coverage
    from driftnet.commands.fuzzing import Listener as Listener
    from driftnet.commands.fuzzing import fuzz as fuzz
    from driftnet.commands.fuzzing import generate as generate
    from driftnet.commands.itself import bench as bench
    from driftnet.commands.itself import selfcheck as selfcheck
    from driftnet.commands.itself import selfcheck_status as selfcheck_status
    from driftnet.commands.itself import targets as targets
    from driftnet.commands.linting import lint as lint
    from driftnet.commands.linting import lint_status as lint_status
    from driftnet.commands.nights import merge_states as merge_states
    from driftnet.commands.nights import next_seed as next_seed
    from driftnet.commands.reducing import Given as Given
    from driftnet.commands.reducing import reduce as reduce
    from driftnet.commands.reporting import Answer as Answer
    from driftnet.commands.reporting import answers as answers
    from driftnet.commands.reporting import report as report
    from driftnet.commands.saved import behaves as behaves
    from driftnet.commands.saved import replay as replay
    from driftnet.commands.saved import replay_one as replay_one
    from driftnet.commands.saved import replay_status as replay_status
    from driftnet.commands.supporting import support as support
    from driftnet.commands.triage import triage as triage
    from driftnet.commands.trying import attempt as attempt
    from driftnet.commands.trying import attempt_status as attempt_status
    from driftnet.targets.registry import DEFAULT_TARGETS as DEFAULT_TARGETS

__all__ = [*homes(__file__)]


def __getattr__(name: str) -> Any:
    return found(name, __name__, __file__)
