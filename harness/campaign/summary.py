"""Summary: a listener that counts what a campaign reports, and is what `driftnet fuzz --json` prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftnet.campaign.shard import Event
from driftnet.findings import corpus
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Word

Types = Mapping[str, type | tuple[type, ...]]
_RESULT: Types = {
    **dict.fromkeys(("cases", "models", "seed", "next_index", "unconfirmed", "insensitive"), int),
    **dict.fromkeys(("wall_seconds", "cpu_seconds"), (int, float)),
    **dict.fromkeys(("verdicts", "abstained", "operators", "rules"), dict),
    **dict.fromkeys(("findings", "errors"), list),
}
_FINDING: Types = {
    **dict.fromkeys(("id", "target", "release", "stage", "kind", "signature", "status", "message", "path"), str),
    **dict.fromkeys(("nodes", "elements", "times"), int),
}
_ERROR: Types = {"index": int, "message": str}


@dataclass
class Summary:
    """Counts so far.

    run_cases   the folder of this run's own cases: what stands elsewhere was known before
    verdicts, rules   verdict words and documented rules -> cases
    abstained   operator type -> cases that no tier could decide because of it
    operators   operator type -> cases that hold it, of those that the target did not refuse
    insensitive     cases in which no damage could have shown, examined as they were: no other numbers helped
    findings    id -> what the JSON says of a new or known finding; `times` says how often it was met
    unconfirmed  failures that fresh workers did not show again;   errors   of driftnet itself
    wall_before, cpu_before   seconds that the runs before this one took, where it goes on with one
    """

    run_cases: Path
    seed: int = 0
    cases: int = 0
    models: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    abstained: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    insensitive: int = 0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    unconfirmed: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    wall_before: float = 0.0
    cpu_before: float = 0.0
    left: float = math.inf
    next_index: int = 0

    def __call__(self, event: Event) -> None:
        """Take one event of a campaign into account."""
        match event["event"]:
            case "examined":
                self._examined(event)
            case "found":
                self._count(Path(event["path"]), event["release"], "new")
            case "done":
                self.models += 1
                self.next_index = max(self.next_index, event["index"] + 1)
            case "error":
                self.errors.append(dict(event))
            case "tick":
                self.wall_seconds, self.left = self.wall_before + event["elapsed"], event["left"]
            case "end":
                self.wall_seconds = self.wall_before + event["elapsed"]
                self.cpu_seconds = self.cpu_before + event["cpu"]

    @property
    def new(self) -> list[dict[str, Any]]:
        """The findings that no saved case explained."""
        return [finding for finding in self.findings.values() if finding["status"] == "new"]

    @property
    def exit_status(self) -> int:
        """2 after an error of driftnet itself, 1 with a new finding, 3 with known ones only, else 0."""
        return 2 if self.errors else 1 if self.new else 3 if self.findings else 0

    def as_json(self) -> dict[str, Any]:
        """The JSON object of `driftnet fuzz --json`."""
        return {
            "cases": self.cases,
            "models": self.models,
            "seed": self.seed,
            "next_index": self.next_index,
            "wall_seconds": round(self.wall_seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "verdicts": dict(self.verdicts.most_common()),
            "abstained": dict(self.abstained.most_common()),
            "abstention_rates": self._abstention_rates(),
            "operators": dict(self.operators.most_common()),
            "insensitive": self.insensitive,
            "rules": dict(self.rules.most_common()),
            "unconfirmed": self.unconfirmed,
            "findings": list(self.findings.values()),
            "errors": self.errors,
        }

    def _abstention_rates(self) -> dict[str, float]:
        """Operator type -> of the cases that hold it, the share that no tier could decide because of it."""
        return {op: round(n / max(n, self.operators[op]), 3) for op, n in self.abstained.most_common()}

    def restore(self, result: Mapping[str, Any]) -> None:
        """Go on from an earlier `as_json`. Raises ValueError for another seed, KeyError or TypeError for other JSON."""
        _check_types(result, _RESULT)
        if result["seed"] != self.seed:
            raise ValueError(f"that run has seed {result['seed']}, not {self.seed}")
        for name in ("cases", "models", "next_index", "unconfirmed", "insensitive"):
            setattr(self, name, result[name])
        for name in ("verdicts", "abstained", "operators", "rules"):
            _check_types(result[name], dict.fromkeys(result[name], int))
            getattr(self, name).update(result[name])
        for record, types in [(f, _FINDING) for f in result["findings"]] + [(e, _ERROR) for e in result["errors"]]:
            _check_types(record, types)
        self.findings = {finding["id"]: finding for finding in result["findings"]}
        self.errors = result["errors"]
        self.wall_before = self.wall_seconds = result["wall_seconds"]
        self.cpu_before = self.cpu_seconds = result["cpu_seconds"]

    def _examined(self, event: Event) -> None:
        verdict = event["verdict"]
        self.cases += 1
        self.verdicts[verdict["word"]] += 1
        self.abstained.update(verdict.get("abstained", ()))
        if verdict["word"] != Word.REJECTS:
            self.operators.update(event["operators"])
        self.insensitive += event["insensitive"]
        if rule := verdict.get("rule"):
            self.rules[rule] += 1
        self.unconfirmed += not event["confirmed"]
        if event["known"]:
            path = Path(event["known"])
            status = "new" if path.is_relative_to(self.run_cases) else "known"
            self._count(path, event["release"], status)

    def _count(self, path: Path, release: str, status: str) -> None:
        if path.name not in self.findings:
            self.findings[path.name] = described(corpus.load(path), release, status) | {"times": 0}
        self.findings[path.name]["times"] += 1


def _check_types(record: Any, types: Types) -> None:
    """Raise KeyError or TypeError unless `record` maps every name in `types` to a value of its type, numbers >= 0."""
    if not isinstance(record, dict):
        raise TypeError(f"{record!r} is no JSON object")
    for name, wanted in types.items():
        value = record[name]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}")
        if isinstance(value, int | float) and value < 0 and name != "seed":
            raise TypeError(f"{name} is negative: {value}")


def described(saved: corpus.SavedCase, release: str, status: str) -> dict[str, Any]:
    """What a finding's entry in JSON says of `saved`."""
    return {
        "id": saved.id,
        "target": saved.target,
        "release": release,
        "stage": saved.stage,
        "kind": saved.kind,
        "signature": saved.coarse,
        "status": status,
        "nodes": nodes(saved.case),
        "elements": elements(saved.case),
        "unfinished": saved.unfinished,
        "message": saved.verdict.message,
        "path": str(saved.path),
    }
