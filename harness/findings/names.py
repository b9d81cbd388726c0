"""How people name a cause or a case: by its folder, by its id, or by the 8 hex digits at its end."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from driftnet.causes import record
from driftnet.findings import corpus
from driftnet.util.errors import UserError
from driftnet.util.files import RUNS
from driftnet.util.nearest import meant

DEFAULT_ROOTS = (Path("corpus"), corpus.COMMITTED)
TESTS = Path(".driftnet")
"""The folder of what tests have found."""


def located(name: Path, roots: Sequence[Path] = DEFAULT_ROOTS) -> Path:
    """The folder of the cause or case that `name` says: what stands there, else what is called so in the first of
    `roots`, then of the runs, the newest first, then of tests, that has it; a cause before the case that it has its
    digits from. Behind the folder of a report or of a corpus, DIR/19604402, a name is looked for in that alone.

    Any other path, and that of an ONNX file, is given back as it is. Raises UserError (kind "case") that
    says what is nearest for a name that there is not, and into which cause a case was merged that is not kept.
    """
    word, alone = name.name, len(name.parts) > 1
    if name.exists() or name.suffix == ".onnx":
        return name
    known: dict[str, Path] = {}
    asked = _behind(name.parent) if alone else (*roots, *_found())
    for folder in (folder for root in asked for folder in _all(root)):
        known.setdefault(folder.name, folder)
        known.setdefault(folder.name[-8:], folder)
    if word in known:
        return known[word]
    if alone:
        return name
    for folder in dict.fromkeys(known.values()):
        gone = record.load(folder).merged if (folder / record.FILE).exists() else {}
        if merged := [id for id in gone if word in (id, id[-8:])]:
            what = f"{merged[0]} was merged into {folder.name}, and is not kept"
            raise UserError(what, hint=f"name that cause: {folder.name[-8:]}", kind="case")
    hint = meant(word, known, "name a folder, an id, or the 8 hex digits at its end; in a report elsewhere DIR/DIGITS")
    raise UserError(f"there is no cause and no case {word!r}, nor such a path", hint=hint, kind="case")


def located_case(name: Path, roots: Sequence[Path] = DEFAULT_ROOTS) -> Path:
    """As `located`, and of a cause its smallest variant."""
    found = located(name, roots)
    if not (found / record.FILE).exists():
        return found
    variants = [corpus.load(folder) for folder in corpus.folders([found])]
    if not variants:
        raise UserError(f"{found} has no case", hint="restore the folder from version control", kind="case")
    smallest = min(variants, key=lambda saved: saved.size)
    return found / smallest.id


def namesake(name: Path, case: Path) -> Path | None:
    """The case that `name` would say too, where it says a cause of which `case` was taken (`located_case`)."""
    same = [path for path in case.parent.glob("test_*") if path.name[-8:] == name.name != case.name[-8:]]
    return next(iter(same), None)


def called(path: Path) -> str:
    """What to call the cause or case in `path` on a command line: its 8 hex digits where `located` finds it by them, of
    a report elsewhere these behind its folder, else the path."""
    known, roots = path.resolve(), (*DEFAULT_ROOTS, RUNS, TESTS)
    if any(known.is_relative_to(root.resolve()) for root in roots):
        return path.name[-8:]
    report = next((folder.parent for folder in path.parents if folder.name == "cases"), None)
    return str(report / path.name[-8:] if report else path)


def _found() -> list[Path]:
    """The folders of cases of the runs in RUNS, the newest run first, and of tests."""
    return [*sorted(RUNS.glob("*/cases"), key=lambda folder: -folder.stat().st_mtime), TESTS]


def _behind(folder: Path) -> list[Path]:
    """Where the cases of the report or corpus in `folder` are; none where it is neither: it may be a whole disk."""
    if (cases := folder / "cases").is_dir():
        return [cases]
    forms = (f"*/*/{record.FILE}", "*/test_*/case.json")
    with suppress(OSError):  # what may not be read, or goes meanwhile, as processes do
        return [folder] if any(True for form in forms for _ in folder.glob(form)) else []
    return []


def _all(root: Path) -> Iterator[Path]:
    """The folders of causes and cases below `root`, causes first."""
    yield from sorted(path.parent for path in root.glob(f"*/*/{record.FILE}"))
    yield from corpus.case_folders(root)
