"""The record of a cause: what cause.json says. One folder a cause, with its variants (saved cases) below it:

    <target>/<slug>_<hash8>/
        cause.json
        test_<slug>_<hash8>/case.json, model.onnx, ...

A cause is what one fix would mend. Its record says when the system fails (trigger), where in the system (place), what
that does to a user (severity, impact), and what people said of it (status, upstream, note).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from driftnet.causes.exposure import statistics
from driftnet.causes.impact import Severity, Standing, features_of
from driftnet.causes.place import Where
from driftnet.causes.predicate import Trigger, trigger_of
from driftnet.causes.releases import History
from driftnet.causes.upstream import reported
from driftnet.causes.words import sentence
from driftnet.targets.environments import NAME
from driftnet.util.errors import UserError
from driftnet.util.files import json_number, json_text, replace_text
from driftnet.util.records import read

SCHEMA = 1
FILE = "cause.json"
_HINT = "restore the file from version control"

Value = str | int | float | bool | None
Options = Mapping[str, Value | list[Value]]
"""A recipe as JSON may hold it."""


class Status(StrEnum):
    """What a saved case promises of its replay (`driftnet.commands.saved.behaves`), and a cause of its variants."""

    OPEN = "open"
    FIXED = "fixed"
    FLAKY = "flaky"
    EXPECTED = "expected"


@dataclass(frozen=True, eq=False)
class CauseRecord:
    """cause.json is these fields, but for the folder's own name and path.

    id         the folder's name
    title      the cause in a line
    trigger    the condition under which the system fails; None where none was learned
    score      of the trigger on fresh instances
    tried      what was changed without losing the failure;   needed  what was not
    place      where in the system it fails
    impact     {"exposure": the share of real models that may meet the trigger, "nodes": the share of their nodes,
               "artificial": whether none may}: `driftnet.causes.exposure.Exposure`
    seen, not_seen   releases of the target that showed it and that did not
    releases   what its smallest variant did on each release it was bisected on, the oldest first: release -> state
               (`driftnet.causes.releases`)
    remedy     options under which it is gone
    status     of its variants the one that asks for most: open where any is open
    merged     cases that were merged into it and are not kept: id -> what was said of each
    findings   what was learned of each case by itself: id -> {"trigger", "place", "score"}, as these fields
    together   ids of what a person merged into it
    grown      of a model that somebody might have and that fails too, in grown/: {"of": the case, "added", "nodes",
               "elements", and its damage} (`driftnet.learning.growing`)
    apart      ids of what a person split off
    """

    id: str
    target: str
    title: str
    severity: Severity
    trigger: Trigger | None = None
    score: Mapping[str, int | float] = field(default_factory=dict)
    tried: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    place: Where = field(default_factory=Where)
    impact: Mapping[str, Any] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    releases: Mapping[str, str] = field(default_factory=dict)
    remedy: Options = field(default_factory=dict)
    status: Status = Status.OPEN
    upstream: str = ""
    note: str = ""
    merged: Mapping[str, str] = field(default_factory=dict)
    findings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grown: Mapping[str, Any] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    path: Path | None = None

    def of_case(self, id: str) -> CauseRecord:
        """The record with what was learned of the case `id` by itself in the place of what holds of the whole.

        Findings of one cause may show at several places, under several conditions. Raises ValueError for a finding that
        is none.
        """
        if id in self.findings and id not in self._of_cases:
            said = self.findings[id]
            own = read({**said, "trigger": None}, _Finding, "cause.findings")
            trigger = None if said.get("trigger") is None else _trigger(said["trigger"])
            told = dataclasses.replace(self, trigger=trigger, place=own.place, score=own.score, needed=())
            self._of_cases[id] = told
        return self._of_cases.get(id, self)

    @cached_property
    def _of_cases(self) -> dict[str, CauseRecord]:
        """What was told of each case."""
        return {}

    @property
    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        """What was learned of each case, as `findings`; of the one that it is named after, where it has but that."""
        return self.findings or {f"test_{self.id}": finding(self.trigger, self.place, self.score)}

    @property
    def each(self) -> dict[str, CauseRecord]:
        """The record as each of its findings shows it, by their ids; by its own where it has but one."""
        return {id: self.of_case(id) for id in self.findings or (self.id,)}

    @property
    def sentence(self) -> str:
        """The trigger in words, what was tried, and whether it is good; "" where there is no trigger."""
        return sentence(self.trigger, self.tried, self.needed, self.score) if self.trigger else ""

    @property
    def history(self) -> str:
        """The first bad release, the last good one, what else `releases` tell; "" where none was tried."""
        return History(self.releases).sentence

    @property
    def damage(self) -> str:
        """What it does to a model that somebody might have, in words; "" where that was not measured."""
        said = []
        if (error := self.grown.get("relative_l2")) is not None:
            said.append(f"outputs off by {error:.1%}")
        if other := self.grown.get("other_class"):
            said.append(f"another class for {other:.0%} of inputs")
        return ", ".join(said)

    @property
    def reported(self) -> str:
        """What is known of it upstream, in words; "" where nobody has looked."""
        return reported(self.upstream)

    @property
    def exposure(self) -> float:
        """How common the trigger is in real models, 0 where nobody has said."""
        return float(self.impact.get("exposure") or 0.0)

    @property
    def artificial(self) -> bool:
        """Whether no real model is known to have what it takes."""
        return bool(self.impact.get("artificial"))

    @property
    def standing(self) -> Standing:
        """What it is ranked by (`driftnet.causes.impact.ranked`)."""
        features = features_of(self.id, self.title, *self.place.keys)
        return Standing(self.severity, self.exposure, self.artificial, features=features)

    def as_json(self) -> dict[str, Any]:
        """What stands in cause.json: the fields, the trigger in words too, and how many cases were merged."""
        said = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _BESIDE}
        trigger = self.trigger.as_json() if self.trigger else None
        told = {"trigger": trigger, "sentence": self.sentence, "place": self.place.as_json()}
        told |= {"history": self.history} if self.releases else {}
        return {"schema": SCHEMA, "id": self.id, **said, **told, "count": len(self.merged)}


_BESIDE = ("id", "path")


def finding(trigger: Trigger | None, place: Where, score: Mapping[str, int | float]) -> dict[str, Any]:
    """What was learned of one case, as `CauseRecord.findings` holds it."""
    return {"trigger": trigger and trigger.as_json(), "place": place.as_json(), "score": dict(score)}


@dataclass(frozen=True)
class _Finding:
    """What was learned of one case, but for its trigger."""

    trigger: None
    place: Where
    score: Mapping[str, int | float]


def load(folder: Path) -> CauseRecord:
    """The record of the cause in `folder`. Raises UserError (kind "cause") that says what is wrong with it."""
    path = Path(folder) / FILE
    try:
        fields = read(json.loads(path.read_text(encoding="utf-8"), parse_float=json_number), dict[str, Any], "cause")
        if fields.get("schema", SCHEMA) != SCHEMA:
            what = f"{path}: schema {fields['schema']!r:.80}, this driftnet reads {SCHEMA}"
            raise UserError(what, hint="use the driftnet release that wrote it", kind="cause")
        return of_json(fields, path.parent.resolve().name, path.parent)
    except OSError as e:
        raise UserError(f"cannot read {path}: {e.strerror}", hint=_HINT, kind="cause") from None
    except (ValueError, RecursionError) as e:
        raise UserError(f"{path}: not a whole {FILE}: {e}", hint=_HINT, kind="cause") from None


def below(*roots: Path, target: str = "*") -> list[CauseRecord]:
    """The records of all causes of the corpora in `roots`, or of those of `target`; of a cause in several, that of the
    first. Raises what `load` raises."""
    found = [path.parent for root in roots for path in sorted(root.glob(f"{target}/*/{FILE}"))]
    return [*map(load, {folder.name: folder for folder in reversed(found)}.values())][::-1]


def of_json(fields: Mapping[str, Any], id: str, path: Path | None = None) -> CauseRecord:
    """The record that `fields` of a JSON object say. Raises ValueError that says what is wrong with them."""
    said = fields.get("trigger")
    record = read({**fields, "id": id, "path": None, "trigger": None}, CauseRecord, "cause")
    if not NAME.fullmatch(record.target):
        raise ValueError(f"target {record.target!r:.80} is not the plain name of a registered target")
    record = dataclasses.replace(record, trigger=None if said is None else _trigger(said), path=path)
    for case in record.findings:
        record.of_case(case)
    return record


def save(record: CauseRecord, folder: Path) -> CauseRecord:
    """Write cause.json into `folder`, atomically, and return the record as it now stands there."""
    replace_text(folder / FILE, json_text(record.as_json(), indent=1) + "\n")
    return dataclasses.replace(record, id=folder.resolve().name, path=folder)


def update(record: CauseRecord, **changes: Any) -> CauseRecord:
    """Change fields of cause.json in place, atomically, and return the record as it now stands. With another trigger it
    is another number of models that may meet it."""
    if record.path is None:
        raise ValueError("only a cause that was loaded from a folder can be updated")
    changed = dataclasses.replace(record, **changes)
    return save(stating(changed, changed.trigger) if "trigger" in changes else changed, record.path)


def stating(record: CauseRecord, trigger: Trigger | None) -> CauseRecord:
    """`record` with that trigger, and with how common that is."""
    impact = dataclasses.asdict(statistics().exposure(trigger)) if trigger else {}
    return dataclasses.replace(record, trigger=trigger, impact=impact)


def _trigger(said: object) -> Trigger:
    try:
        return trigger_of(read(said, dict[str, Any], "cause.trigger"))
    except (LookupError, TypeError, AttributeError, OverflowError) as e:
        raise ValueError(f"cause.trigger is no trigger: {type(e).__name__} {e}") from None
