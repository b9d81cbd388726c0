"""Where driftnet does not run: on any system but Linux. There it says so in a sentence, and is in nobody's way."""

import sys

NAMES = {"darwin": "macOS", "win32": "Windows"}


def refusal() -> str:
    """Why driftnet does not run here, and what to do; "" on Linux."""
    here = str(sys.platform)
    if here == "linux":
        return ""
    return (
        f"driftnet needs Linux, and this is {NAMES.get(here, here)}: use its container, which docs/install.md tells of"
    )
