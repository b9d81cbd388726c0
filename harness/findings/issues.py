"""What is known: the bugs of saved cases that are not fixed, as a failure of another model is held against them.

A failure is looked up by how it shows (stage, kind, words) and by the operators that its model has, so that what it
costs does not grow with the number of known issues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

from driftnet.causes.place import Where, class_of
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.pattern import Pattern, PatternNode, families, family, may_occur, nodes_of, sinks
from driftnet.model.inspect import Case
from driftnet.model.signature import DAMAGE, other_name
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind

K = TypeVar("K")
V = TypeVar("V")

HEAP = "heap"
"""The place of a crash in a heap that was damaged before."""

TELLING = 5
"""Words of an error message that tell its cause, whatever the operator; MNN's "Compute Shape Error" does not. A Python
exception, which has a type, does in fewer, but for its type alone."""


NOWHERE = Where()


@dataclass(frozen=True)
class Symptom:
    """How a case fails: the coarse signature, "" when it does not; the node that the verdict names as at fault, and its
    operator, "" when it names none; the output that is wrong, "" when it is not one; where in the system it fails."""

    coarse: str = ""
    node: str = ""
    culprit: str = ""
    output: str = ""
    where: Where = NOWHERE

    @cached_property
    def stage(self) -> str:
        """The stage that failed."""
        return (*self.coarse.split("/"), "")[1]

    @property
    def anywhere(self) -> bool:
        """Whether it may happen in any stage: an error, a crash or a division by zero."""
        return (*self.coarse.split("/", 2), "", "")[2].startswith(ANYWHERE)

    @property
    def is_a_step(self) -> bool:
        """Whether values are a rounding step off, and no more."""
        return self.coarse.endswith(f"/{Kind.OFF_BY_ONE_STEP}")

    @property
    def crash_or_memory(self) -> str:
        """The sort of a crash for what ran out of memory, and the other way round; "" of any other."""
        target, stage, kind = (*self.coarse.split("/", 2), "", "")[:3]
        other = {Kind.MEMORY: "crash", "crash": f"{stage}/{Kind.MEMORY}"}.get("crash" if kind in DAMAGE else kind)
        return f"{target}/{other}" if other else ""

    @property
    def is_told(self) -> bool:
        """Whether it is an error whose words tell its cause."""
        words = self.coarse.rpartition("/")[2].split()
        types = sum(word.endswith("error") and word != "error" for word in words)
        return f"/{Kind.ERROR}/" in self.coarse and (len(words) >= TELLING or 0 < types < len(words))

    @cached_property
    def sort(self) -> str:
        """The coarse signature, in which how far a wrong value is off does not count, nor how often, nor in which stage
        there was an error, a crash or a division by zero: a converter that fixes shapes computes them as the runtime
        does, and calibration runs the model. Other signals are not joined; who runs out of memory is looked up for a
        crash, too, and the other way round (`crash_or_memory`), but shows otherwise."""
        target, stage, kind = (*self.coarse.split("/", 2), "", "")[:3]
        if self.anywhere:
            return f"{target}/{'crash' if kind in DAMAGE else kind}"
        return f"{target}/{stage}/{Kind.WRONG_VALUES}" if kind in VALUES else self.coarse


VALUES = frozenset({Kind.WRONG_VALUES, Kind.OFF_BY_ONE_STEP, Kind.NAN, *DEPENDS_ON_RUN})
"""Kinds that only tell how far a wrong value is off, or how often."""

ANYWHERE = (f"{Kind.ERROR}/", "crash", "SIGFPE", *DAMAGE)
"""How signatures of what may happen in any stage go on after the stage."""


def symptom_of(coarse: str, culprits: Sequence[Sequence[str]], output: str = "", where: Where = NOWHERE) -> Symptom:
    """The symptom of a verdict with these (name, operator) pairs for culprits."""
    node, culprit = culprits[0] if culprits else ("", "")
    return Symptom(coarse, node, culprit, output, where)


@dataclass(frozen=True, eq=False)
class KnownIssue:
    """A known bug, to be found in other models by the case that was saved of it."""

    saved: SavedCase

    @property
    def id(self) -> str:
        """The name of the saved case."""
        return self.saved.id

    @cached_property
    def wrong(self) -> str:
        """The class of what is wrong in its artifact; "" where that is right."""
        return class_of(self.saved.verdict)

    @cached_property
    def names(self) -> frozenset[str]:
        """Its name, and those of the cases that were merged into its cause and are not kept."""
        return frozenset((self.id, *(self.saved.cause.merged if self.saved.cause else ())))

    @cached_property
    def causes(self) -> tuple[CauseRecord, ...]:
        """Its cause, by what was learned of this case, by what holds of the whole, and by what was learned of cases
        that are not kept; none where it lies loose."""
        whole = self.saved.cause
        if whole is None:
            return ()
        merged = (whole.of_case(id) for id in whole.findings if id in whole.merged)
        return tuple(dict.fromkeys((whole.of_case(self.saved.id), whole, *merged)))

    @cached_property
    def symptom(self) -> Symptom:
        """How the saved case fails."""
        return symptom_of(self.saved.coarse, self.saved.verdict.culprits)

    @cached_property
    def nodes(self) -> tuple[PatternNode, ...]:
        """The nodes of the saved case."""
        return nodes_of(self.saved.case)

    @property
    def is_told(self) -> bool:
        """Whether the words of the error are pattern enough."""
        return self.symptom.is_told

    @cached_property
    def passes_on(self) -> str:
        """The class of the tensor that is pattern enough, "" where the operators count."""
        lone = self.nodes[0] if len(self.nodes) == 1 and self.nodes[0].op_type == "Identity" else None
        return lone.operands[0].leaf if lone and lone.operands[0] else ""

    @property
    def op_types(self) -> frozenset[str]:
        """The operators of the pattern."""
        return frozenset(node.op_type for node in self.nodes)

    @cached_property
    def pattern(self) -> Pattern:
        """What a place has to have."""
        if self.is_told:
            return Pattern(self.nodes, sinks(self.nodes), classless=True)
        blamed = frozenset(i for i, node in enumerate(self.nodes) if node.name == self.symptom.node)
        if not blamed and self.saved.kind == Kind.OFF_BY_ONE_STEP:
            blamed = sinks(self.nodes)
        rankless = self.symptom.stage == "quantize"
        return Pattern(self.nodes, blamed or frozenset(range(len(self.nodes))), rankless=rankless)


class _Index:
    """What is looked up of some known issues, each found out once, when it is asked for."""

    def __init__(self, issues: Sequence[KnownIssue]) -> None:
        self.all = issues
        self.order: Mapping[int, int] = {id(issue): k for k, issue in enumerate(issues)}
        self.found: dict[Hashable, dict[int, list[Any]]] = {}

    @cached_property
    def of_sort(self) -> Mapping[str, list[KnownIssue]]:
        return _grouped(self.all, lambda issue: issue.symptom.sort)

    @cached_property
    def of_heaps(self) -> list[KnownIssue]:
        return [issue for issue in self.all if any(cause.place.sort == HEAP for cause in issue.causes)]

    @cached_property
    def by_place(self) -> list[KnownIssue]:
        """Those that are known by a place in a model."""
        return [issue for issue in self.all if not issue.saved.remedy]

    @cached_property
    def passing_on(self) -> Mapping[str, list[KnownIssue]]:
        return _grouped((issue for issue in self.by_place if issue.passes_on), lambda issue: issue.symptom.stage)

    @cached_property
    def of_operator(self) -> Mapping[tuple[str, str], list[KnownIssue]]:
        """Stage, and one operator with its siblings that a place has to have."""

        def key(issue: KnownIssue) -> tuple[str, str]:
            anchor = min(issue.pattern.anchors, default=-1)
            return issue.symptom.stage, family(issue.nodes[anchor].op_type) if anchor >= 0 else ""

        return _grouped((issue for issue in self.by_place if not issue.passes_on), key)

    @cached_property
    def told(self) -> Mapping[str, KnownIssue]:
        return {issue.symptom.coarse: issue for issue in self.by_place if issue.is_told}

    @cached_property
    def cured(self) -> Mapping[str, list[KnownIssue]]:
        named = {f"{issue.symptom.sort} {issue.saved.remedy}": issue for issue in self.all if issue.saved.remedy}
        return _grouped(named.values(), lambda issue: issue.symptom.sort)

    @cached_property
    def named(self) -> Mapping[str, KnownIssue]:
        return {name: issue for issue in reversed(self.all) for name in issue.names}


class KnownIssues(Sequence[KnownIssue]):
    """Known issues of one target, in the order in which they are asked: as they are given, but what was preferred last
    comes first."""

    def __init__(self, issues: Iterable[KnownIssue] = ()) -> None:
        self._index = _Index(tuple(issues))
        self._preferred: dict[int, None] = {}

    @classmethod
    def of(cls, issues: Sequence[KnownIssue], target: str) -> KnownIssues:
        """Those of `target` among `issues`; what is one of these already is of it."""
        return issues if isinstance(issues, cls) else cls(one for one in issues if one.saved.target == target)

    @overload
    def __getitem__(self, k: int) -> KnownIssue: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[KnownIssue]: ...
    def __getitem__(self, k: int | slice) -> KnownIssue | Sequence[KnownIssue]:
        return self._index.all[k]

    def __len__(self) -> int:
        return len(self._index.all)

    def prefer(self, issue: KnownIssue) -> None:
        """Ask this one first from now on: what explained one failure is likely to explain the next."""
        self._preferred.pop(id(issue), None)
        self._preferred[id(issue)] = None

    def first(self, issues: Iterable[KnownIssue]) -> KnownIssues:
        """The same, with some of them asked before all others."""
        found = copy(self)
        found._preferred = dict(self._preferred)
        for issue in reversed([*issues]):
            found.prefer(issue)
        return found

    def once(self, key: Hashable, find: Callable[[], Iterable[tuple[KnownIssue, V]]]) -> Iterator[tuple[KnownIssue, V]]:
        """The issues that `find` gives, each with what it gives of it, in the order in which they are asked. They are
        found once for a `key`: of one sort there may be thousands."""
        if key not in self._index.found:
            there: dict[int, list[Any]] = {}
            for pair in sorted(find(), key=lambda pair: self._index.order[id(pair[0])]):
                there.setdefault(id(pair[0]), []).append(pair)
            self._index.found[key] = there
        there = self._index.found[key]
        preferred = {issue: None for issue in reversed(self._preferred) if issue in there}
        for issue in preferred:
            yield from there[issue]
        for issue, pairs in there.items():
            if issue not in preferred:
                yield from pairs

    def like(self, failed: Symptom) -> list[KnownIssue]:
        """Those that show as `failed` does, and those that may come of the same damage: of which one is a damaged heap
        where the other is wrong values, or a crash where the other ran out of memory."""
        found = [*self._index.of_sort.get(failed.sort, ())]
        found += self._index.of_sort.get(failed.crash_or_memory, ())
        if failed.where.sort == HEAP:
            found += [issue for sort, there in self._index.of_sort.items() if _is_wrong(sort) for issue in there]
        if _is_wrong(failed.sort):
            found += self._index.of_heaps
        return self._ordered(found)

    def possible(self, stage: str, case: Case) -> list[KnownIssue]:
        """Those of this stage of which a place may be in `case`, by its operators, and that name no remedy."""
        there = families(case)
        found = [*self._index.passing_on.get(stage, ())]
        for op in there:
            found += (issue for issue in self._index.of_operator.get((stage, op), ()) if may_occur(issue.pattern, case))
        return self._ordered(found)

    def told(self, failed: Symptom) -> KnownIssue | None:
        """One that is known by its words alone, which `failed` says too."""
        return self._index.told.get(failed.coarse)

    def cured(self, failed: Symptom) -> list[KnownIssue]:
        """Those that name a remedy and show as `failed` does, one for each remedy."""
        return self._ordered(self._index.cured.get(failed.sort, ()))

    def named(self, name: str) -> KnownIssue | None:
        """One that is called so, or would be if no fixed case was, or has had a case merged into its cause that was."""
        return self._index.named.get(name) or self._index.named.get(other_name(name))

    def _ordered(self, found: Iterable[KnownIssue]) -> list[KnownIssue]:
        order = {issue: -k for k, issue in enumerate(self._preferred, 1)}
        return sorted(
            {id(issue): issue for issue in found}.values(),
            key=lambda issue: order.get(id(issue)) or self._index.order[id(issue)],
        )


def _grouped(issues: Iterable[KnownIssue], key: Callable[[KnownIssue], K]) -> Mapping[K, list[KnownIssue]]:
    found = defaultdict[K, list[KnownIssue]](list)
    for issue in issues:
        found[key(issue)].append(issue)
    return found


def _is_wrong(sort: str) -> bool:
    return sort.endswith(Kind.WRONG_VALUES)


def issues(folder: Path) -> list[KnownIssue]:
    """What is known where `folder` is named (`corpus.known`): a fixed case explains nothing any more."""
    cases = map(corpus.load, corpus.known_folders(folder))
    return [KnownIssue(saved) for saved in cases if saved.status != Status.FIXED]
