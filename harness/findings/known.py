"""Known issues: the bugs of saved cases that are not fixed, and whether one of them explains a failure.

Toolchains carry many bugs, and one common bug drowns the rest: 59 of 60 raw failures were the same one. An issue is the
reduced case of a known bug read as a pattern (`pattern`): reduction leaves only what the failure needs, so it is a
lower bound. Three things say where in the pattern the bug is, so that the other nodes may be any:

    the verdict names the node at fault   an activation that a quantizer drops, whatever made its operand
    the result is a step off       the nodes that nothing else reads: one such finding an operator is enough
    the system says at length why it failed   the nodes that nothing else reads; its words are compared in the place of
        classes, and they are the pattern of any one node too (a quantizer that refuses float16 does so everywhere)

A lone Identity does nothing that could go wrong but pass a tensor on: it is the pattern of whatever reads or makes
a tensor of that class (a quantizer that takes integers for floats crashes at every operator that has any).

That a place matches proves nothing. Known issues explain a failure when such places, cut out with their recorded
operands, fail by themselves as the saved cases did, and the model without these places, their outputs recorded, does
not fail. The kind is compared where the bug is; what consumers make of a wrong value downstream (NaN, no output) may be
of any kind. And what fails on an older release by a bug that a later one has too must fail on that as well: else it is
another one, mended since.

Some bugs have no place: a graph optimizer moves a rounding through whatever stands there. Where a saved case names a
remedy, options under which its bug is gone (the optimizer switched off), no pattern is asked: a failure of that kind,
or with those words, that goes away under the same options is the same one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from driftnet.causes.place import SINGULAR
from driftnet.causes.record import Status
from driftnet.findings.issues import KnownIssue, KnownIssues, Symptom
from driftnet.findings.pattern import Occurrence, family, occurrences
from driftnet.model.constants import with_constants
from driftnet.model.inspect import Case, computing, graph_inputs
from driftnet.model.signature import operand_class
from driftnet.model.submodel import Record, Recording, UnrecordedError, reads, recording, submodel
from driftnet.model.verdict import DEPENDS_ON_RUN
from driftnet.util.groups import groups
from onnx import helper, numpy_helper

Failure = Callable[[Case], Symptom]
Cured = Callable[[Case, Mapping[str, Any]], bool]
"""Whether a case does not fail when these options are changed too."""


@dataclass(frozen=True, eq=False)
class Recognized:
    """What a failure is known by without a run: a known issue, and the nodes that meet its trigger, by their indices;
    none where its place in the system alone says so.

    sure   whether it shows as the saved case does, a step off or by more; else the rest has to be right without these
           nodes
    alone  the place that was run and failed by itself, where no trigger said so; the same with what reads its results
    """

    issue: KnownIssue
    nodes: frozenset[int] = frozenset()
    sure: bool = True
    alone: tuple[Case, ...] = ()


Recognize = Callable[[Symptom, Set[int]], Recognized | None]
"""What a failure of a case is recognized as; the nodes of these indices are not there any more."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """known_issues: the known bugs that show in a case.

    rest: what still fails when their places are replaced by recorded
    values (the case itself where there are none), None when nothing does: then they explain the failure.

    cut: the effort was spent before all of them had been asked.

    shown: of those that no trigger told, a place that failed by itself as the saved case does, and the same with what
    reads its results in the case."""

    known_issues: tuple[KnownIssue, ...]
    rest: Case | None
    cut: bool = False
    shown: tuple[tuple[KnownIssue, Case], ...] = ()


class Other(NamedTuple):
    """What is another bug than a known issue, though it looks like that.

    doubted   those of the issues that a failure is not
    differs   whether a part fails by another bug than an issue (`pipeline.difference`)
    """

    doubted: Callable[[Symptom], Collection[KnownIssue]] = lambda failed: ()
    differs: Callable[[KnownIssue, Case], bool] = lambda issue, part: False


NO_OTHER = Other()
NO_SYMPTOM = Symptom()


def explain(
    known_issues: KnownIssues,
    case: Case,
    failure: Failure,
    record: Record,
    cured: Cured = lambda case, remedy: False,
    recognize: Recognize = lambda failed, gone: None,
    trusting: bool = True,
    other: Other = NO_OTHER,
) -> Explanation:
    """How far known bugs account for the failure of `case`: a graph of ten nodes may well have two of them, or one and
    a new one, which is then all that is left in the rest.

    known_issues     of the target that failed
    failure   how a case fails
    recognize   what is known without a run, by trigger and place; it is asked first
    trusting    whether that is taken for known; else its nodes have to fail by themselves as the saved case does
    other       what is not to be put down to an issue, whatever its pattern says
    Raises what `record` raises for `case` itself.
    """
    failed = failure(case) if known_issues else NO_SYMPTOM
    search, rest = _Search(known_issues, case, failure, record, other, failed), case
    tried: Case | None = None

    def remedied() -> KnownIssue | None:
        nonlocal tried
        if tried is rest:
            return None
        tried = rest
        alike = (i for i in known_issues.cured(search.failed) if cured(rest, i.saved.remedy))
        return next((issue for issue in alike if not other.differs(issue, rest)), None)

    while search.failed.coarse:
        seen = recognize(search.failed, search.places)
        if seen is None and rest is case and search.failed.is_told and (issue := remedied()):
            return Explanation((issue,), None)  # its words are few runs away, places are many
        if seen is None or not (trusting or search.shows_alone(seen)):
            seen = next(search.asked(), None)
        elif seen.issue.symptom.is_a_step != search.failed.is_a_step:  # an operator may have a bug of either size
            seen = next(search.asked(), None) or seen
        if seen is None:
            break
        without = search.without(seen)
        if without is None or not (failed := failure(without)).coarse:
            return Explanation(tuple(search.found), None, shown=tuple(search.shown))
        rest, search.failed = without, failed
    if issue := remedied():
        return Explanation((*search.found, issue), None, shown=tuple(search.shown))
    return Explanation(tuple(search.found), rest, shown=tuple(search.shown))


@dataclass(eq=False)
class _Search:
    """The search for known bugs in one case: those found so far, the nodes of their places, and how what is left
    without these fails. told: of what a system says at length, the issues that were asked."""

    issues: KnownIssues
    case: Case
    failure: Failure
    record: Record
    other: Other
    failed: Symptom
    found: list[KnownIssue] = field(default_factory=list)
    places: set[int] = field(default_factory=set)
    told: set[KnownIssue] = field(default_factory=set)
    shown: list[tuple[KnownIssue, Case]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._possible = cache(partial(self.issues.possible, case=self.case))
        # Of a place, whichever issues it may be of: so what they cost does not grow with their number.
        self._parts = cache(self._cut_out)
        self._occurrences = cache(lambda pattern: occurrences(pattern, self.case, self.recorded.runs[0]))

    @cached_property
    def recorded(self) -> Recording:
        """All tensors of the case."""
        return recording(self.case, self.record)

    def _cut_out(self, place: Occurrence) -> tuple[tuple[Case, Callable[[], Symptom]], ...]:
        alone = _alone(self.case, place, self.recorded)
        return tuple((part, cache(partial(self.failure, part))) for part in alone)

    def shows_alone(self, seen: Recognized) -> bool:
        """Whether its nodes fail by themselves as the saved case does."""
        parts = self._parts(tuple(sorted(seen.nodes))) if seen.nodes else ()
        return any(shows(seen.issue, ask()) for _, ask in parts)

    def asked(self) -> Iterator[Recognized]:
        """The issues of which some place fails alone, with all places that do; those that fail in this way first. A bug
        of one stage is not why another fails; when it is neutralized, what is left may fail in a later one. But what
        fixes shapes, folds constants or calibrates runs the model, and a tensor of a wrong shape may crash that."""
        here = near(self.case, self.failed)
        out = {*map(id, self.found), *map(id, self.other.doubted(self.failed))}
        stages = dict.fromkeys((self.failed.stage, "execute") if self.failed.anywhere else (self.failed.stage,))
        left = [issue for stage in stages for issue in self._possible(stage) if id(issue) not in out]
        for issue in sorted(left, key=lambda issue: issue.symptom.sort != self.failed.sort):
            yield from self._there(issue, self._places(issue), here)
        if (last := self.issues.told(self.failed)) and last not in self.told:
            self.told.add(last)
            yield from self._there(last, _inseparable(self.case, self.recorded), here)

    def _places(self, issue: KnownIssue) -> list[Occurrence]:
        """Where the bug of `issue` may be at work."""
        if issue.passes_on:
            return _passing(issue.passes_on, self.case, self.recorded)
        return self._occurrences(issue.pattern)

    def _there(self, issue: KnownIssue, at: Sequence[Occurrence], here: Set[int]) -> Iterator[Recognized]:
        free = [place for place in at if self.places.isdisjoint(place)]
        if first := next((place for place in free if not here.isdisjoint(place) and self._fails(issue, place)), None):
            fails = frozenset(i for place in free if self._fails(issue, place) for i in place)
            yield Recognized(issue, fails, alone=self._shown(issue, first))

    def _shown(self, issue: KnownIssue, place: Occurrence) -> tuple[Case, ...]:
        """The part at `place` that failed as the saved case does, and the same with what reads its results, if anything
        does; none where that comes and goes, and none was run."""
        parts = self._parts(tuple(sorted(place))) if issue.saved.status != Status.FLAKY else ()
        alone = [part for part, ask in parts if shows(issue, ask())][:1]
        nodes = self.case.proto.graph.node
        made = {name for i in place for name in nodes[i].output if name}
        readers = {i for i in computing(self.case.proto.graph) if not made.isdisjoint(reads(nodes[i]))}
        if not alone or readers <= {*place}:
            return tuple(alone)
        try:
            return (*alone, submodel(self.case, sorted({*place} | readers), self.recorded))
        except UnrecordedError:
            return tuple(alone)

    def _fails(self, issue: KnownIssue, place: Occurrence) -> bool:
        comes_and_goes = issue.saved.status == Status.FLAKY and issue.symptom.coarse == self.failed.coarse
        if comes_and_goes and not self.other.differs(issue, self.case):
            return True
        parts = self._parts(tuple(sorted(place)))
        return any(shows(issue, ask()) and not self.other.differs(issue, part) for part, ask in parts)

    def without(self, seen: Recognized) -> Case | None:
        """Take what was found into account: the case without its places too, None where none is left or known."""
        self.found.append(seen.issue)
        self.shown += [(seen.issue, part) for part in seen.alone]
        if not seen.nodes:
            return None
        # With what they pass on to each other and cannot be recorded, or nothing could be cut out.
        joined = _inseparable(self.case, self.recorded)
        self.places.update(i for group in joined if not seen.nodes.isdisjoint(group) for i in group)
        return _without(self.case, self.places, self.recorded)


def near(case: Case, failed: Symptom) -> frozenset[int]:
    """The nodes of `case` of which one has to be in the place of the bug: the one that is named as at fault, or those
    that the wrong output hangs on."""
    nodes = case.proto.graph.node
    if named := [i for i, node in enumerate(nodes) if failed.node and failed.node in (node.name, *node.output)]:
        return frozenset(named)
    if not any(failed.output in node.output for node in nodes if failed.output):
        return frozenset(range(len(nodes)))
    found, wanted = set[int](), {failed.output}
    for i in reversed(range(len(nodes))):
        if not wanted.isdisjoint(nodes[i].output):
            found.add(i)
            wanted.update(reads(nodes[i]))
    return frozenset(found)


def _inseparable(case: Case, recorded: Recording) -> list[Occurrence]:
    """The nodes of `case` one by one; those together that pass on what cannot be recorded, a sequence for one."""
    graph, known = case.proto.graph, recorded.runs[0]
    made = {name: i for i in computing(graph) for name in graph.node[i].output if name not in known}
    links = [[i, *(made[name] for name in reads(graph.node[i]) if name in made)] for i in computing(graph)]
    return [tuple(sorted(group)) for group in groups(links)]


def _passing(leaf: str, case: Case, recorded: Recording) -> list[Occurrence]:
    """Where a tensor of the class `leaf` is read or made."""
    tensors, nodes = with_constants(case, recorded.runs[0]), case.proto.graph.node

    def has(i: int) -> bool:
        arrays = [tensors[name] for name in (*nodes[i].input, *nodes[i].output) if name in tensors]
        return any(operand_class(x, ranked=False) == leaf for x in arrays)

    return [group for group in _inseparable(case, recorded) if any(map(has, group))]


def _alone(case: Case, place: Occurrence, recorded: Recording) -> Iterator[Case]:
    """The nodes of `place` as cases of their own, to be asked in turn; none where they cannot be cut out."""
    whole = len(place) == len(computing(case.proto.graph))
    try:
        part = case if whole else submodel(case, place, recorded)
    except UnrecordedError:
        return
    # What is computed from constants alone is another case: quantizers want an input.
    yield from (part, *_fed(part))


def shows(issue: KnownIssue, found: Symptom) -> bool:
    """Whether a place with the pattern of `issue` fails as that does, be it in another model."""
    if issue.saved.kind in DEPENDS_ON_RUN:
        return found.coarse != ""
    classes = {issue.wrong, *(cause.place.artifact for cause in issue.causes)}
    if found.where.artifact not in classes and not {issue.wrong, found.where.artifact}.isdisjoint(SINGULAR):
        return False
    # One operator of any place says little: by that alone a range is not known for an operator that is removed.
    alike = (family(found.culprit), found.where.artifact) == (family(issue.symptom.culprit), issue.wrong)
    return found.coarse == issue.symptom.coarse and (alike or not issue.pattern.is_loose)


def _fed(part: Case) -> list[Case]:
    """`part`, where it has no input, with the first float constant that is read for one."""
    graph = part.proto.graph
    constants = {t.name: t for t in graph.initializer if numpy_helper.to_array(t).dtype.kind == "f"}
    first = next((name for node in graph.node for name in node.input if name in constants), "")
    if graph_inputs(part.proto) or not first:
        return []
    model, fed = deepcopy(part.proto), constants[first]
    model.graph.initializer.remove(fed)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info(fed.name, fed.data_type, fed.dims))
    given = {fed.name: numpy_helper.to_array(fed)}
    calibration = tuple(given for _ in part.calibration)
    return [replace(part, model=model.SerializeToString(), feeds=(given,) * len(part.feeds), calibration=calibration)]


def _without(case: Case, places: set[int], recorded: Recording) -> Case | None:
    """`case` without these nodes, None when none is left; `case` itself when it cannot be cut there."""
    kept = [i for i in computing(case.proto.graph) if i not in places]
    try:
        return submodel(case, kept, recorded) if kept else None
    except UnrecordedError:
        return case
