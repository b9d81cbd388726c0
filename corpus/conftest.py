"""Cases of systems that are not installed here are replayed by tests/targets/test_found.py, in environments."""

from pathlib import Path

from driftnet.targets.environments import is_installed

collect_ignore = [
    path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and not is_installed(path.name)
]
