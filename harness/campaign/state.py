"""State: a folder that goes from one night to the next.

state.json      the ledger (`driftnet.campaign.ledger`)
coverage.json   what its nights have asked (`driftnet.campaign.coverage`)
cases/          what nights have found, as a corpus: a folder a cause, its cases below it
lock            held by the run that works on it
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from driftnet.campaign.ledger import SCHEMA, Ledger, Status, Tracked
from driftnet.causes import record
from driftnet.causes.impact import severity_of
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.util.errors import UserError
from driftnet.util.files import json_text, remedy, replace_text
from driftnet.util.records import read

T = TypeVar("T")

FILE, CASES, LOCK = "state.json", "cases", "lock"


@dataclass(frozen=True, eq=False)
class Kept:
    """A cause with its cases, the smallest first."""

    cause: CauseRecord
    cases: tuple[SavedCase, ...]

    @property
    def certain(self) -> bool:
        """Whether all of it shows in every run, wherever it is run."""
        return all(saved.status == record.Status.OPEN and not saved.depends for saved in self.cases)

    @property
    def tracked(self) -> Tracked:
        """What a ledger says of it before any night has asked."""
        status = Status.FIXED if self.cause.status == record.Status.FIXED else Status.OPEN
        seen = {release for saved in self.cases for release in saved.seen} | {*self.cause.seen}
        severity = min((severity_of(s.verdict) for s in self.cases), key=list(type(self.cause.severity)).index)
        return Tracked(
            self.cause.target, self.cause.title, severity, status, bad=tuple(sorted(seen)), certain=self.certain
        )


def load(folder: Path) -> Ledger:
    """The ledger of the state in `folder`, empty where there is none yet. Raises UserError (kind "state")."""
    lost = "restore it from the night before; without it every cause is announced again, and none is lost"
    return part(folder / FILE, Ledger, SCHEMA, lost) or Ledger()


def part(path: Path, form: type[T], schema: int, lost: str) -> T | None:
    """What a file of a state holds, None where it is not there; lost: what to do where it is not whole. Raises
    UserError (kind "state")."""
    try:
        said = read(json.loads(path.read_text(encoding="utf-8")), dict[str, Any], path.stem)
        if said.get("schema") != schema:
            what = f"{path}: schema {said.get('schema')!r:.80}, this driftnet reads {schema}"
            raise UserError(what, hint="use the driftnet release that wrote it", kind="state")
        return read(said, form, path.stem)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise UserError(f"cannot read {path}: {e.strerror}", hint=remedy(e), kind="state") from None
    except (ValueError, RecursionError) as e:
        raise UserError(f"{path}: not a whole {path.name}: {e}", hint=lost, kind="state") from None


def save(folder: Path, ledger: Ledger) -> None:
    """Write the ledger into `folder`, atomically."""
    replace_text(folder / FILE, json_text(msgspec.to_builtins(ledger), indent=1) + "\n")


def causes(*roots: Path) -> Mapping[str, Kept]:
    """The causes below some corpora, by their ids; of one in several, all its cases and the first record. Those that
    are expected, and folders that are not whole, are left out."""
    found: dict[str, list[SavedCase]] = {}
    for saved in (saved for root in roots for saved in _cases(root)):
        if saved.status != record.Status.EXPECTED:
            cause = saved.cause or arrange.loose(saved)
            others = found.setdefault(cause.id, [])
            if saved.id not in {other.id for other in others}:
                others.append(saved)
    return {id: _kept(cases) for id, cases in found.items()}


def _kept(cases: list[SavedCase]) -> Kept:
    ordered = sorted(cases, key=lambda saved: saved.size)
    return Kept(cases[0].cause or arrange.loose(cases[0]), tuple(ordered))


def _cases(root: Path) -> Iterator[SavedCase]:
    for folder in corpus.folders([root]) if root.is_dir() else []:
        try:
            yield corpus.load(folder)
        except UserError:  # not whole: the run says so
            continue
