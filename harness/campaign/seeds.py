"""Neighbours of models that somebody has: seeds of a campaign beside, or in the place of, generated graphs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx
from driftnet.findings import corpus
from driftnet.findings.names import located
from driftnet.generators.mutation.neighbour import neighbour as mutated
from driftnet.model.feeds import feeds_beside, made_to_run
from driftnet.model.inspect import Case, Feed
from driftnet.run.reference import Reference
from driftnet.run.refusals import explained
from driftnet.util.errors import UserError

ATTEMPTS = 12
"""In 300 neighbours of saved and generated cases the reference refused 16 % of first attempts."""


def seeds(paths: Sequence[Path], reference: Reference) -> list[Case]:
    """The models at `paths`: ONNX files (fed with what lies beside them, or is made up), saved cases, ONNX backend
    tests, folders of these. The reference says whether a model runs on what is made up.

    Raises UserError for what is none of these, or not whole, and for a folder without any.
    """
    return [case for _, case in _read(paths, reference)]


def check(paths: Sequence[Path], reference: Reference, tell: Callable[[str], None] = lambda text: None) -> list[Case]:
    """The `seeds` at `paths`; `tell` hears which are taken otherwise than they are declared. Raises UserError (kind
    "model") for one that the checker or the reference refuses, too: a neighbour of what is no model is none either."""
    found = []
    for path, case in _read(paths, reference, tell):
        seen = reference.run(case)
        if not seen.outputs:
            why = explained(seen.error) if seen.error else seen.broken
            hint = f"driftnet check {path} says so too; feeds go into test_data_set_0 beside a model.onnx"
            raise UserError(f"{path}: {why}", hint=hint, kind="model")
        found.append(case)
    return found


def neighbour(cases: Sequence[Case], seed: int, index: int, reference: Reference) -> Case:
    """Neighbour `index` of one of `cases`, the others spliced on now and then; one that the reference runs.

    A case itself where no attempt gives a neighbour.
    """
    case = cases[index % len(cases)]
    for attempt in range(ATTEMPTS):
        changed = mutated(case, seed, index, others=cases, attempt=attempt)
        if reference.runs(changed):
            return changed
    return case


def _read(
    paths: Sequence[Path], reference: Reference, tell: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[Path, Case]]:
    """Each model with the path of its file."""
    for path in map(located, paths):
        if path.is_file():
            yield path, _fed(path, _given(path, tell), path.name, reference)
            continue
        folders = [path] if (path / "model.onnx").is_file() else sorted(p.parent for p in path.rglob("model.onnx"))
        if not folders:
            raise UserError(f"no model at or below {path}", hint="name an ONNX file, a saved case or a folder of them")
        for folder in folders:
            yield folder / "model.onnx", _loaded(folder, tell, reference)


def _given(path: Path, tell: Callable[[str], None]) -> onnx.ModelProto:
    return corpus.read_given(path, tell=lambda said: tell(f"{path} is taken otherwise than it is declared: {said}"))


def _loaded(folder: Path, tell: Callable[[str], None], reference: Reference) -> Case:
    if (folder / "case.json").is_file():
        return corpus.load(folder).case
    return _fed(folder / "model.onnx", _given(folder / "model.onnx", tell), folder.name, reference)


def _fed(path: Path, model: onnx.ModelProto, name: str, reference: Reference) -> Case:
    """The model with the feeds that lie beside it, or with one that is made up."""

    def case(*feeds: Feed) -> Case:
        return Case(model.SerializeToString(), feeds, origin={"file": name})

    given = feeds_beside(path, model, "inputs")
    return case(*given or (made_to_run(model, {}, lambda feed: reference.runs(case(feed))),))
