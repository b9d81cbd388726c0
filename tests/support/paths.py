"""Where things stand in the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "corpus"


def no_cases(folder: Path) -> Path:
    """An empty corpus in `folder`, for which every failure is a new one."""
    made = folder / "no-cases"
    made.mkdir(exist_ok=True)
    return made


def saved_case(digits: str) -> Path:
    """The folder of the case of the corpus whose id ends with these digits."""
    (found,) = CORPUS.rglob(f"test_*_{digits}")
    return found
