"""Neighbours of models that somebody has: seeds of a campaign beside, or in the place of, generated graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from generators.mutation.neighbour import neighbour as mutated
from harness import corpus
from harness.case import Case
from harness.errors import UserError
from harness.feeds import made_up, read_feeds
from harness.reference import Reference

ATTEMPTS = 12
"""In 300 neighbours of saved and generated cases the reference refused 16 % of first attempts."""


def seeds(paths: Sequence[Path]) -> list[Case]:
    """The models at `paths`: ONNX files (fed with what is made up), saved cases, ONNX backend tests, folders of these.

    Raises UserError for what is none of these, or not whole, and for a folder without any.
    """
    found = []
    for path in paths:
        if path.is_file():
            model = corpus.read_onnx(path)
            found.append(Case(model.SerializeToString(), (made_up(model, {}),), origin={"file": path.name}))
            continue
        folders = [path] if (path / "model.onnx").is_file() else sorted(p.parent for p in path.rglob("model.onnx"))
        if not folders:
            raise UserError(f"no model at or below {path}", hint="name an ONNX file, a saved case or a folder of them")
        found.extend(_loaded(folder) for folder in folders)
    return found


def neighbour(cases: Sequence[Case], seed: int, index: int, reference: Reference) -> Case:
    """Neighbour `index` of one of `cases`, the others spliced on now and then; one that the reference runs.

    A case itself where no attempt gives a neighbour.
    """
    case = cases[index % len(cases)]
    for attempt in range(ATTEMPTS):
        changed = mutated(case, seed, index, others=cases, attempt=attempt)
        if reference.run(changed).outputs:
            return changed
    return case


def _loaded(folder: Path) -> Case:
    if (folder / "case.json").is_file():
        return corpus.load(folder).case
    model = corpus.read_onnx(folder / "model.onnx")
    has_data = any(folder.glob("test_data_set_*"))
    feeds = read_feeds(folder, model, "inputs") if has_data else (made_up(model, {}),)
    return Case(model.SerializeToString(), feeds, origin={"file": folder.name})
