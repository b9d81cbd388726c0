"""The console script. Where driftnet does not run it ends here, before anything is imported that there may not be."""

import sys

from driftnet.util.elsewhere import refusal


def main() -> None:
    """The command line, or a sentence and status 2."""
    if said := refusal():
        sys.stderr.write(f"driftnet: {said}\n")
        raise SystemExit(2)
    from driftnet.cli.main import main as run

    run()
