"""Recognition: what a failure is known by without running anything again.

A cause is what one fix would mend, and findings are merged into one by place and by trigger. So a failure is known

    by place     it crashes in the same function, an exception of the same function says the same words, or what is
                 wrong in an artifact is of a class that one function makes
    by trigger   it shows in the same way, some place in its model meets the trigger, and what is wrong hangs on that

A place decides by itself. A trigger was learned, and errs: only one that was right about almost all fresh instances may
stand for an experiment. What the others match is asked first when known issues are run (`known.explain`).

What writes out of bounds is a crash, a wrong value, or nothing at all, as the heap has it. So where a heap was damaged,
or is by what is known, a trigger that is met tells what may be behind a failure of the other sort, too; it counts if
the rest of the model is right.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain

from driftnet.causes.facts import Facts
from driftnet.causes.host import Host, Tensors, host_of
from driftnet.causes.lookup import facts_of
from driftnet.causes.predicate import Trigger
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings.issues import HEAP, KnownIssue, KnownIssues, Symptom
from driftnet.findings.known import Recognized, near
from driftnet.model.inspect import Case, computing
from driftnet.model.verdict import Kind
from driftnet.targets.environments import numbers

TRUSTED, TRUSTED_WITH_WORDS = 0.8, 0.7
"""The share of instances about which a trigger has to be right; less where words or a function say the same too. Most
that a trigger errs about does not fail at all: of 279 failures of MNN as many were mistaken at 0.95 and 0.8."""
TRUSTED_OF_OLD = 0.9
"""The same on an older release than the one installed: it has bugs of its own at the same operators. A trigger of MNN
3.0.0 that was right about 82 % took the defaults of Selu for a Softmax that is off by 1e-5."""
INSTANCES = 10
"""Instances of which such a share says anything."""


@dataclass(eq=False)
class Recognizer:
    """Recognizes failures of one case under the options of one recipe.

    tensors   everything that the first feed of the case makes, asked for once and only where a trigger hangs on that
    trusted   the share of instances about which a trigger has to be right to be taken at its word, if not the usual one
    """

    case: Case
    options: Facts
    tensors: Callable[[], Tensors]
    trusted: float | None = None
    _hosts: list[Host] = field(default_factory=list)

    def recognized(self, issues: KnownIssues, failed: Symptom, gone: Set[int] = frozenset()) -> Recognized | None:
        """The issue that `failed` is known by. gone: indices of nodes that are not there any more."""
        trusted = _believed(issues, failed, self.trusted)
        named = near(self.case, failed) if failed.node else frozenset()
        there = (Recognized(issue, named) for issue, _ in _in_place(issues, failed))
        unsure = None
        for found in chain(self._matching(trusted, failed, gone), there):
            if found.sure:
                return found
            unsure = unsure or found
        return unsure

    def matching(self, issues: KnownIssues, failed: Symptom) -> list[KnownIssue]:
        """The issues whose triggers are met, trusted or not."""
        found = (met.issue for met in self._matching(_alike(issues, failed), failed))
        return list(dict.fromkeys(found))

    def doubted(self, issues: KnownIssues, failed: Symptom, release: str) -> list[KnownIssue]:
        """The issues that show alike, but fail at another place, or ask for options that mean nothing here, or have
        triggers that are trusted and not met, where a pattern says little: of what comes and goes no run asks whether
        it is that, and on an older release than showed it last, what was mended since may look like it."""

        def among() -> Iterator[tuple[KnownIssue, tuple[bool, bool, Wanted]]]:
            """Those like it: whether it is none of them, whether it is only if a trigger is met, and what it asks
            for."""
            alike = {issue for issue, _ in _alike(issues, failed)}
            for issue in issues.like(failed):
                flaky = issue.saved.status == Status.FLAKY
                weak = flaky or is_older(release, issue.causes)
                of_trigger = weak and all(map(is_trusted, issue.causes))
                if issue in alike:
                    yield issue, (False, of_trigger, wanted_by(issue))
                elif flaky and issue.causes:
                    yield issue, (True, False, ())

        told = [*issues.once(("doubted", failed.coarse, failed.where, release), among)]
        elsewhere = [issue for issue, (other, _, wanted) in told if other or _lacking(wanted, self.options)]
        trusted = [issue for issue, (_, of_trigger, _) in told if of_trigger]
        met = self.matching(issues, failed) if trusted else ()  # most failures have none of these
        return [*elsewhere, *(issue for issue in trusted if issue not in met)]

    def _matching(
        self, issues: Iterable[tuple[KnownIssue, CauseRecord]], failed: Symptom, gone: Set[int] = frozenset()
    ) -> Iterator[Recognized]:
        """Each issue whose trigger is met where the failure may come from. A trigger is asked once, whoever has it."""
        asked: dict[Trigger, frozenset[int]] = {}
        wanted = near(self.case, failed)
        for issue, cause in issues:
            if cause.trigger is None:
                continue
            if cause.trigger not in asked:
                asked[cause.trigger] = self._place(cause.trigger, wanted, gone)
            if asked[cause.trigger]:
                alike = (issue.symptom.sort, issue.symptom.is_a_step) == (failed.sort, failed.is_a_step)
                sure = alike and (is_trusted(cause) or not _comes_and_goes(cause))
                yield Recognized(issue, asked[cause.trigger], sure)

    def _place(self, trigger: Trigger, wanted: Set[int], gone: Set[int]) -> frozenset[int]:
        """The nodes of the places that meet `trigger`, have any of the nodes `wanted`, and none that is gone."""
        found, indices = set[int](), self._indices
        for host in self._each_host():
            unknown = False
            for place in trigger.shape.places(host, trigger.operators):
                nodes = {indices[i] for i in place}
                if not wanted.isdisjoint(nodes) and gone.isdisjoint(nodes):
                    met = trigger.holds(facts_of(host, place, self.options))
                    unknown = unknown or met is None
                    found |= nodes if met else set()
            if found or not unknown:
                break
        return frozenset(found)

    @cached_property
    def _indices(self) -> Sequence[int]:
        """The nodes that a place speaks of, by their indices in the model."""
        return computing(self.case.proto.graph)

    def _each_host(self) -> Iterator[Host]:
        """The model with what is known of it without running it, then with every tensor."""
        if not self._hosts:
            self._hosts.append(host_of(self.case))
        yield self._hosts[0]
        if len(self._hosts) == 1:
            self._hosts.append(host_of(self.case, self.tensors()))
        yield self._hosts[1]


def is_trusted(cause: CauseRecord | None, least: float | None = None) -> bool:
    """Whether the trigger of `cause` was right often enough to stand for an experiment, or about the share `least`.

    Where it named nothing and some failed, all that was seen of it is that it missed these. Where none failed either,
    half of the instances may be what it names, and all that it errs about.
    """
    if cause is None or cause.trigger is None or cause.score.get("instances", 0) < INSTANCES:
        return False
    wanted = least or (TRUSTED_WITH_WORDS if cause.place.sort else TRUSTED)
    right, failing, found, named = (cause.score.get(name, 0) for name in ("accuracy", "failing", "found", "named"))
    if not named:
        return not failing and right >= (1 + wanted) / 2
    return right >= wanted and found >= wanted * named


Wanted = tuple[frozenset[str], ...]
"""Region by region, the options that it asks of; without these it does not hold."""


def asked_for(issue: KnownIssue, options: Facts) -> list[str]:
    """The options that have no meaning under these and without which none of its triggers, if all are trusted, is met:
    what is wrong before it is quantized is not what goes wrong when it is."""
    return _lacking(wanted_by(issue), options)


def wanted_by(issue: KnownIssue) -> Wanted:
    """What its triggers ask for, if all are trusted; else nothing, and so where one region does without."""
    if not all(map(is_trusted, issue.causes)):
        return ()
    regions = [region for cause in issue.causes if cause.trigger for region in cause.trigger.regions]
    # A negative test holds of what is not there.
    wanted = tuple(
        frozenset(
            a.fact.removeprefix("recipe.") for a in region.atoms if a.fact.startswith("recipe.") and not a.holds({})
        )
        for region in regions
    )
    return wanted if all(wanted) else ()


def _lacking(wanted: Wanted, options: Facts) -> list[str]:
    lacking = [{name for name in of_region if f"recipe.{name}" not in options} for of_region in wanted]
    return sorted(set[str]().union(*lacking)) if all(lacking) else []


def is_older(release: str, causes: Sequence[CauseRecord]) -> bool:
    """Whether it came out before the last one that showed one of `causes`, and did not show that itself."""
    return any(
        release not in cause.seen and any(numbers(release) < numbers(later) for later in cause.seen) for cause in causes
    )


def _comes_and_goes(cause: CauseRecord) -> bool:
    """Whether what meets its trigger fails as the heap has it, so that few instances of it did."""
    return cause.place.sort == HEAP


def _alike(issues: KnownIssues, failed: Symptom) -> Iterator[tuple[KnownIssue, CauseRecord]]:
    """The issues that show so, and by which cause, those first that do in the same way."""
    for same in (True, False):
        yield from issues.once((failed.coarse, failed.where, same), partial(_shown_alike, issues, failed, same))


def _believed(issues: KnownIssues, failed: Symptom, least: float | None) -> Iterator[tuple[KnownIssue, CauseRecord]]:
    """Those of them whose trigger is taken at its word, or may be; of several that a trigger tells alike, the first."""

    def among(same: bool) -> Iterable[tuple[KnownIssue, CauseRecord]]:
        told: dict[object, tuple[KnownIssue, CauseRecord]] = {}
        for issue, cause in _shown_alike(issues, failed, same):
            if cause.trigger and (is_trusted(cause, least) or _comes_and_goes(cause)):
                sure = is_trusted(cause) or not _comes_and_goes(cause)
                told.setdefault((cause.trigger, issue.symptom.sort, issue.symptom.is_a_step, sure), (issue, cause))
        return told.values()

    for same in (True, False):
        yield from issues.once(("believed", failed.coarse, failed.where, least, same), partial(among, same))


def _shown_alike(issues: KnownIssues, failed: Symptom, same: bool) -> list[tuple[KnownIssue, CauseRecord]]:
    found = (issue for issue in issues.like(failed) if (issue.symptom.sort == failed.sort) is same)
    return [(issue, cause) for issue in found for cause in issue.causes if is_alike(issue, cause, failed)]


def _in_place(issues: KnownIssues, failed: Symptom) -> Iterator[tuple[KnownIssue, CauseRecord]]:
    """Those of them that are in the same place."""
    found = partial(filter, lambda both: is_same_place(both[1], failed), _alike(issues, failed))
    return issues.once(("place", failed.coarse, failed.where), found)


def is_alike(issue: KnownIssue, cause: CauseRecord, failed: Symptom) -> bool:
    """Whether `failed` shows as the saved case does (stage, kind, words, and the function where that is known), or as
    what may come of the same damage."""
    if failed.sort != issue.symptom.sort:
        return is_of_one_damage(issue, cause, failed)
    if cause.place.sort == HEAP:  # a damaged heap crashes anywhere
        return failed.where.sort in (HEAP, "crash", "")
    alike = (cause.place.sort, cause.place.keys[:1]) == (failed.where.sort, failed.where.keys[:1])
    return alike or not cause.place.sort or is_same_place(cause, failed)


def is_of_one_damage(issue: KnownIssue, cause: CauseRecord, failed: Symptom) -> bool:
    """Whether one of the two is a damaged heap, and the other wrong values: what is written out of bounds, be it while
    converting, ends in the one or in the other, as the heap has it. And what is read there, if it comes and goes, is
    followed, which is a crash, or taken for a size, which no memory is enough for. A crash that names a function is
    known by that, and by no want of memory."""
    if failed.sort == issue.symptom.crash_or_memory:
        return not failed.where.tells and (_comes_and_goes(cause) or issue.saved.status is Status.FLAKY)
    if HEAP not in (cause.place.sort, failed.where.sort):
        return False
    return (failed.sort if cause.place.sort == HEAP else issue.symptom.sort).endswith(Kind.WRONG_VALUES)


def is_same_place(cause: CauseRecord, failed: Symptom) -> bool:
    """Whether it failed in the place by which findings are merged into causes: whoever called the function, unless that
    only checks what others did, whatever node an artifact of that class is wrong at."""
    place, there = cause.place, failed.where
    return (place.is_one_with(there) and not place.is_a_check) or (
        place.class_tells and (place.sort, place.keys) == (there.sort, there.keys)
    )
