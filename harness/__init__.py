"""Differential fuzz testing for ONNX deployment toolchains. What Python programs use stands here; docs/python.md tells
how.

Each name is imported when it is first asked for: `import driftnet` runs in every worker, and in every run of pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what type checkers go by, and the list of what there is
    from driftnet.campaign.plan import Plan as Plan
    from driftnet.campaign.summary import Summary as Summary
    from driftnet.commands.auditing import audit as audit
    from driftnet.commands.checking import CheckSettings as CheckSettings
    from driftnet.commands.checking import check as check
    from driftnet.commands.covering import coverage as coverage
    from driftnet.commands.fuzzing import fuzz as fuzz
    from driftnet.commands.fuzzing import generate as generate
    from driftnet.commands.linting import lint as lint
    from driftnet.commands.reporting import report as report
    from driftnet.commands.saved import replay as replay
    from driftnet.commands.supporting import support as support
    from driftnet.generators.strategies import cases as cases
    from driftnet.model.case import Case as Case
    from driftnet.targets.interface import Option as Option
    from driftnet.targets.interface import Rule as Rule
    from driftnet.targets.interface import StageError as StageError
    from driftnet.targets.interface import Target as Target
    from driftnet.util.errors import UserError as UserError
else:  # unseen by type checkers, so that they know what there is not

    def __getattr__(name):
        from driftnet.util.lazy import found

        return found(name, __name__, __file__)

    def __dir__():
        from driftnet.util.lazy import homes

        return sorted({*globals(), *homes(__file__)})
