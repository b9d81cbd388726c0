"""The console script. Where driftnet does not run it ends here, before anything is imported that there may not be."""

import os
import sys

from driftnet.util.elsewhere import refusal


def main() -> None:
    """The command line, or a sentence and status 2."""
    if said := refusal():
        sys.stderr.write(f"driftnet: {said}\n")
        raise SystemExit(2)
    # OpenBLAS starts its threads as numpy is imported. Where no process may be started any more it says so with SIGINT,
    # as if somebody had interrupted the program; and what driftnet itself multiplies is small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from driftnet.cli.main import main as run
    except Exception as e:
        from driftnet.util.misfits import fault

        if unfit := fault(e):
            sys.stderr.write(f"driftnet: {unfit.message}\n  {unfit.hint}\n")
            raise SystemExit(2) from None
        raise
    run()
