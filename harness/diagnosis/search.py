"""Which windows of a model go wrong, and which nodes of these do it: as far as the runs reach."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.meeting import Known, meetings
from driftnet.diagnosis.inquiry import EXPLAINED, Found, Inquiry, is_wrong, names_of
from driftnet.diagnosis.inside import look_inside, off
from driftnet.diagnosis.localize import TOLD, Fault, Search, alike, locate, locate_told
from driftnet.diagnosis.result import Checked
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import VALUES, KnownIssues
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.signature import coarse
from driftnet.model.submodel import Recording, UnrecordedError, makers, reads, submodel
from driftnet.model.verdict import Verdict, Word
from driftnet.model.windows import NODES, Judged, Unit, Window, live_nodes, nodes_of, survey
from driftnet.oracle.tolerances.table import LOST
from driftnet.reduce.passes import bisect
from driftnet.reduce.problem import ExhaustedError
from driftnet.targets.recipe import unquantized

SURVEYED, FAILING_SURVEYED, NARROWED = 0.7, 0.45, 0.6
"""The shares of these runs after which no further window is judged, the same of a model that fails, and after which no
fault is looked for."""

MOST_IN_A_STEP = 2 * NODES
"""Nodes between two tensors that an artifact hands out, beyond which the bound of them all tells little."""


def survey_windows(
    inquiry: Inquiry, recorded: Recording, whole: Verdict, found: Found, pieces: Sequence[Window]
) -> None:
    """Judge the windows among `pieces`, down to what fails, as far as a share of the runs reaches."""
    live, share = len(live_nodes(inquiry.case)), FAILING_SURVEYED if whole.failed else SURVEYED

    def explains(verdict: Verdict) -> bool:
        return is_wrong(verdict, whole) and (verdict.in_values or not whole.in_values)

    try:
        look = partial(inquiry.survey, share=share)
        for one in survey(inquiry.case, recorded, look, explains, pieces):
            found.judged.append(one)
            seen = {node for j in found.judged for node in j.nodes}
            inquiry.tell(f"windows: {len(seen)} of {live} nodes")
    except ExhaustedError:
        inquiry.tell("windows: the budget is spent")


def places(inquiry: Inquiry, windows: Sequence[Window]) -> list[Window]:
    """Where the model meets, or may meet, a cause of wrong values that is known: each place as a window of its own, for
    in a larger one the bound may allow what the cause does."""
    unit_of = {node: unit for window in windows for unit in window for node in unit}
    found: dict[Window, None] = {}
    for nodes in _met(inquiry, lambda saved: saved.kind in VALUES):
        if all(node in unit_of for node in nodes):
            found[tuple(sorted({unit_of[node] for node in nodes}))] = None
    return [place for place in found if place not in windows]


def _met(inquiry: Inquiry, counts: Callable[[SavedCase], bool]) -> list[Unit]:
    """The nodes of each place at which the model meets, or may meet, a cause that is known by a case that `counts`;
    first where it does."""
    known: dict[object, Known] = {}
    for issue in KnownIssues.of(inquiry.known_issues, inquiry.trial.target.name) if inquiry.known_issues else ():
        for cause in issue.causes if counts(issue.saved) and not issue.saved.rule else ():
            seen = recipe_facts(inquiry.trial.target, issue.saved.recipe)
            known.setdefault(cause.trigger, Known(cause, seen, issue.saved.coarse))
    if not known:
        return []
    indices = computing(inquiry.case.proto.graph)
    facts = recipe_facts(inquiry.trial.target, inquiry.trial.recipe)
    met = sorted(meetings([host_of(inquiry.case)], [*known.values()], facts), key=lambda meeting: bool(meeting.why))
    return list(dict.fromkeys(tuple(sorted(indices[i] for i in meeting.place)) for meeting in met))


def steps(inquiry: Inquiry, recorded: Recording, windows: Sequence[Window]) -> list[Window]:
    """What the intact artifact gets wrong from one tensor that it hands out to the next, across a cut: `windows` take
    apart what it has fused. Each as a window of its own."""
    if not inquiry.inside:
        return []
    graph, handed_out = inquiry.case.proto.graph, inquiry.inside.handed_out(recorded)
    unit_of = {node: unit for window in windows for unit in window for node in unit}
    made_by, whole = makers(graph), [set(nodes_of(window)) for window in windows]
    found: dict[Window, None] = {}
    for name in (name for i in sorted(unit_of) for name in graph.node[i].output if name in handed_out):
        nodes, waiting = set[int](), [name]
        while waiting and len(nodes) <= MOST_IN_A_STEP:
            node = made_by.get(waiting.pop())
            if node in unit_of and node not in nodes:
                nodes.add(node)
                waiting += [read for read in reads(graph.node[node]) if read not in handed_out]
        if len(nodes) > MOST_IN_A_STEP or any(nodes <= window for window in whole):
            continue
        if not inquiry.in_time:
            break
        with contextlib.suppress(UnrecordedError):
            within = inquiry.inside.verdict(submodel(inquiry.case, nodes, recorded, [name]))
            if within and within.word is Word.DIVERGES:
                found[tuple(sorted({unit_of[node] for node in nodes}))] = None
    return list(found)


def locate_what_is_told(inquiry: Inquiry, recorded: Recording, found: Found) -> None:
    """Adds to the faults that are `found` what a system names itself that makes nothing of the model."""
    if found.ended is None:
        return
    search = Search(inquiry.case, recorded, partial(inquiry.look, share=NARROWED), inquiry.trial.target.name)
    with contextlib.suppress(ExhaustedError):
        for fault in locate_told(search, found.ended):
            _add(inquiry, found, fault)


def locate_what_is_met(inquiry: Inquiry, recorded: Recording, found: Found) -> None:
    """Adds to the faults that are `found` the first place that ends by itself as the model does, of those at which this
    meets a cause that is known to end one so. A run or two tell what windows on large inputs may have no time to."""
    if found.ended is None or found.faults:
        return
    ended, target = found.ended, inquiry.trial.target.name
    search = Search(inquiry.case, recorded, partial(inquiry.look, share=NARROWED), target)
    live = set(live_nodes(inquiry.case))
    met = [
        nodes for nodes in _met(inquiry, lambda saved: saved.coarse == coarse(target, ended)) if live.issuperset(nodes)
    ]
    with contextlib.suppress(ExhaustedError):
        if fault := next(filter(None, (search.fault(nodes, ended) for nodes in met[:TOLD])), None):
            _add(inquiry, found, fault)


def locate_what_is_accused(inquiry: Inquiry, recorded: Recording, whole: Verdict, found: Found) -> None:
    """Adds to the faults that are `found` the nodes that the verdict on a model accuses for their very weights: what
    these do to the outputs is known a run later, whatever the windows have time for."""
    if not (whole.failed and whole.in_values and whole.stage == "quantize"):
        return
    search = Search(inquiry.case, recorded, partial(inquiry.look, share=NARROWED), inquiry.trial.target.name)
    with contextlib.suppress(ExhaustedError):
        for node in accused(inquiry.case, whole):
            if fault := search.fault((node,), whole):
                _add(inquiry, found, fault)


def accused(case: Case, whole: Verdict) -> list[int]:
    """The live nodes that a verdict names, by their names or by what they make."""
    names, nodes = {name for name, _ in whole.culprits}, case.proto.graph.node
    return [i for i in live_nodes(case) if not names.isdisjoint((nodes[i].name, *nodes[i].output))]


def _add(inquiry: Inquiry, found: Found, fault: Fault) -> None:
    """Adds a fault to those that are `found`. A parameter that two are about is that of a tensor: it belongs to the one
    that makes it, which stands before those that read it."""
    about = fault.verdict.about
    same = sorted([fault, *(f for f in found.faults if about and f.verdict.about == about)], key=lambda f: f.nodes)
    found.shared += same[1:]
    found.faults[:] = [other for other in found.faults if other not in same]
    found.faults.append(same[0])
    if same[0] is not fault:
        return
    inquiry.tell(f"at fault: {', '.join(' '.join(pair) for pair in names_of(inquiry.case, fault))}")


def is_explained(case: Case, checked: Checked, found: Found) -> bool:
    """Whether what is found explains the failure, or the loss of an output, or is all that the whole is accused for:
    then nobody looks at the cuts between windows, which are twice as many."""
    named = accused(case, checked.verdict) if checked.verdict.failed else []
    if named and {node for fault in found.faults for node in fault.nodes}.issuperset(named):
        return True
    if checked.verdict.failed and not checked.outputs:
        return any(not found.is_beside(fault) for fault in found.faults)
    said = [found.impacts.get(fault.nodes) for fault in found.faults]
    return sum(weighed.share for weighed in said if weighed) >= EXPLAINED


def to_narrow(target: str, judged: Sequence[Judged], whole: Verdict) -> list[Judged]:
    """The windows to be narrowed: those that fail as the model does, if there are any. To find which node is wrong
    beside what ends a model takes longer than all else."""
    wrong = [j for j in judged if is_wrong(j.verdict, whole)]
    return [j for j in wrong if whole.failed and alike(target, j.verdict, whole)] or wrong


def locate_faults(
    inquiry: Inquiry, recorded: Recording, failing: Sequence[Judged], whole: Verdict, found: Found, lost: bool = False
) -> Verdict | None:
    """Adds to the faults that are `found`; how a window fails of which the budget did not reach to say why.

    lost   of an output nothing is left, nobody can tell whether that is right, and no window was asked yet
    """
    before = [judged for judged in failing if judged.verdict.before]
    rest = [judged for judged in failing if judged not in before]
    try:
        suspects = _suspects(inquiry, recorded)
        if lost:
            suspects = _first_lost(inquiry, recorded)
            inquiry.suspected.extend(suspects)
        early = before or inquiry.suspected  # it fails before it is quantized, or may
        for plain, windows in (*([(True, before)] if early else []), *([(False, rest)] if rest or not early else [])):
            look = partial(inquiry.look, share=NARROWED, plain=plain)
            search = Search(inquiry.case, recorded, look, inquiry.trial.target.name)
            asked = found.ended or whole.stage == "quantize"  # of what a verdict names, before any window
            for fault in locate(search, windows, whole, suspects, tuple(found.faults) if asked else ()):
                _add(inquiry, found, fault)
    except ExhaustedError:
        inquiry.tell("localization: the budget is spent")
        found.unsought = True
        located = {node for fault in found.faults for node in fault.nodes}
        return next((j.verdict for j in failing if located.isdisjoint(j.nodes)), None)
    return None


def _suspects(inquiry: Inquiry, recorded: Recording) -> list[str]:
    """The tensors, in order, that the intact artifact gets wrong from right ones, though a model of their own is right:
    what single nodes make, else what a part does."""
    graph, inside = inquiry.case.proto.graph, inquiry.inside
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    found: set[str] = set()
    for part in inquiry.suspects:
        nodes = sorted({makers[name] for node in part.proto.graph.node for name in node.output if name in makers})
        for node in nodes:
            with contextlib.suppress(UnrecordedError, ValueError):
                verdict = inside.verdict(submodel(inquiry.case, [node], recorded)) if inside else None
                if verdict and verdict.failed:
                    found.update(name for name in graph.node[node].output if name)
                    break
        else:
            found.update(value.name for value in part.proto.graph.output)
    return sorted(found, key=lambda name: makers.get(name, 0))


def _first_lost(inquiry: Inquiry, recorded: Recording) -> list[str]:
    """The first tensor of the intact artifact of which nothing is left before it is quantized, as a bisection finds it:
    of an artifact into which it takes too long to look as a whole. None where it cannot be asked."""
    graph, right, trial = inquiry.case.proto.graph, recorded.feeds[0], inquiry.trial
    trial = replace(trial, recipe=unquantized(trial.target, trial.recipe))
    live, decided = live_nodes(inquiry.case), set[str]()  # behind a decision rounding explains the loss of anything
    for node in (graph.node[i] for i in live):
        floats = [name for name in reads(node) if name in right and right[name].dtype.kind == "f"]
        if (has_any(node, Trait.DECIDES) and floats) or not decided.isdisjoint(reads(node)):
            decided.update(node.output)
    names = [name for i in live for name in graph.node[i].output if name in right and name not in decided]
    names = [name for name in names if right[name].dtype.kind == "f" and right[name].any()]
    if trial.target.tap is None or not names:
        return []
    inquiry.tell("looking for the first tensor that is lost inside of the converted model")

    def is_lost(count: int) -> bool:
        for name in names[count - 1 :: -1]:  # a fusion takes some of them away
            if not inquiry.in_time:
                raise ExhaustedError
            if name in (seen := look_inside(trial, recorded, [name]).tensors[0]):
                return off(seen[name], right[name]) >= LOST
        return False

    return [names[bisect(len(names), is_lost) - 1]] if is_lost(len(names)) else []
