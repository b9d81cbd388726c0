"""The verdict on a model by all that was found of it: what is at fault, what is excused, what stays undecided."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from driftnet.diagnosis.end_to_end import Impact
from driftnet.diagnosis.faults import rule_of, sorts_of
from driftnet.diagnosis.inquiry import (
    BUDGET,
    EXPLAINED,
    Found,
    Inquiry,
    affirms,
    is_lost,
    is_right,
    name_of,
    names_of,
    serious_faults,
    undecided,
    vouches,
)
from driftnet.diagnosis.localize import Fault
from driftnet.diagnosis.result import Checked, Culprit, Diagnosis
from driftnet.findings.issues import KnownIssue
from driftnet.model.arrays import has_nan
from driftnet.model.inspect import Case
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.model.windows import Judged, live_nodes
from driftnet.oracle.tolerances.table import LOST

ENOUGH = 0.95
"""Share of nodes that have to be vouched for where no tier can judge a model end to end."""


def conclude(inquiry: Inquiry, checked: Checked, found: Found) -> Checked:
    """`checked` with the verdict, the culprits and the share that is vouched for, by what is `found`."""
    case, whole, diagnoses = inquiry.case, checked.verdict, found.diagnoses
    serious, harmless = serious_faults(found), harmless_fault(checked, found)
    examined = len(diagnoses) >= len(sorts_of(case, serious)) and (whole.in_values or not whole.failed)
    rule = _excuse(inquiry.known_issues, diagnoses, lost=is_lost(checked)) if examined else ""
    doubtful, vouched = _doubtful(case, found, serious, rule)
    if harmless:
        message = f"but for what does nothing to the outputs: {harmless.verdict.message}"
        whole = Verdict(Word.AGREES if vouched >= ENOUGH else Word.ABSTAINS, Tier.WINDOWS, message=message)
    verdict = _overall(whole, found, serious, rule, vouched)
    culprits = _culprits(case, [_needed(case, fault, found.needed) for fault in serious], found.impacts)
    culprits = culprits or _blamed(diagnoses)
    if found.excused and not verdict.failed:
        verdict, culprits = _not_usable(case, found)
    elif not verdict.failed:
        verdict = _unless_open(inquiry, checked, found, verdict)
    verdict = _of_what_is_lost(checked, found, serious, verdict)
    if verdict.failed and (unasked := _unasked(inquiry, checked, found, serious)):
        message = f"undecided, for the budget was spent before it was known {unasked}: {verdict.message}"
        verdict = replace(verdict, word=Word.ABSTAINS, message=message, rule=BUDGET)
    if verdict.failed and verdict.in_values and not (culprits or verdict.culprits or found.interrupted):
        verdict = replace(verdict, message=f"{verdict.message}; {_nobody(found)}")
    return replace(
        checked,
        verdict=verdict,
        judged=tuple(found.judged),
        vouched=vouched,
        doubtful=dict(doubtful.most_common()),
        culprits=culprits,
        notes=_culprits(case, _noted(found, serious), found.impacts),
        diagnoses=tuple(diagnoses),
        depth=found.depth,
        interrupted=found.interrupted,
    )


def _noted(found: Found, serious: Sequence[Fault]) -> list[Fault]:
    """The faults that are only noted; not those of nodes that are fed NaN, where another fault is told: they show what
    becomes of that, and not what the model does when it is right."""
    rest = [fault for fault in found.faults if fault not in serious]
    return [fault for fault in rest if not (serious and has_nan(fault.case.feeds))]


def _doubtful(case: Case, found: Found, serious: Sequence[Fault], rule: str) -> tuple[Counter[str], float]:
    """The operators of live nodes that no window vouches for, and the share of those that one does.

    A window that is wrong vouches too where `rule` excuses that, or where it is so by nodes that do nothing to the
    outputs, and by no others.
    """
    wrong = {node for fault in serious for node in fault.nodes}
    noted = {node for fault in found.faults if not found.is_beside(fault) for node in fault.nodes} - wrong

    def is_right(judged: Judged) -> bool:
        if affirms(judged):
            return True
        harmless = not noted.isdisjoint(judged.nodes) and wrong.isdisjoint(judged.nodes)
        return judged.verdict.in_values and (bool(rule) or harmless)

    affirmed = {node for judged in found.judged if is_right(judged) for node in judged.nodes}
    affirmed -= set() if rule else wrong  # the bound of a larger window may allow what they do
    live, graph = live_nodes(case), case.proto.graph
    doubtful = Counter(graph.node[i].op_type for i in live if i not in affirmed)
    return doubtful, 1 - doubtful.total() / max(1, len(live))


def _unless_open(inquiry: Inquiry, checked: Checked, found: Found, verdict: Verdict) -> Verdict:
    """A verdict that accuses nobody, unless an output is lost and nobody knows why."""
    if undecided(checked) and (unexplained := _unexplained(inquiry, checked, found)):
        rule = BUDGET if found.unsought else verdict.rule
        return replace(verdict, word=Word.ABSTAINS, message=f"{unexplained}: {verdict.message}", rule=rule)
    if found.unweighed and verdict.word is Word.AGREES:
        message = "an output is lost, and the budget was spent before it was known whether what a rule excuses does it"
        return replace(verdict, word=Word.ABSTAINS, message=f"{message}: {verdict.message}", rule=BUDGET)
    if found.as_written and verdict.word is Word.AGREES:
        message = f"little is left of output {_lost(checked)}, as of the artifact executed as it is written"
        return replace(verdict, message=f"{verdict.message}; {message}: that is what its codes cost")
    return verdict


def _unasked(inquiry: Inquiry, checked: Checked, found: Found, serious: Sequence[Fault]) -> str:
    """What could take back an accusation, and was not known when the time was spent; "" where nothing is open. What
    ends a model, or gives its outputs another form, is taken back by nothing; and what somebody ended is as it is."""
    whole, diagnoses = checked.verdict, found.diagnoses
    if found.interrupted or (whole.failed and not whole.in_values):
        return ""
    if found.unheard and whole.failed:
        return "whether it is the rounding of a fast kernel"
    may_be_harmless = not whole.failed or is_right(checked) or (whole.stage == "quantize" and whole.culprits)
    if found.hasty and checked.outputs and may_be_harmless and all(f.nodes not in found.impacts for f in serious):
        return "what it does to the outputs"
    issues = inquiry.known_issues
    rules = any(issue.saved.rule for issue in issues)
    left = [d.examination for d in diagnoses if not rule_of(issues, d.examination)]
    open_ = [e for e in left if e.unexplained and (rules or e.verdict.kind == Kind.OFF_BY_ONE_STEP)]
    if diagnoses and len(left) == len(open_) and (open_ or found.cut):
        return "whether it is documented, or a step that is known"
    return ""


def _unexplained(inquiry: Inquiry, checked: Checked, found: Found) -> str:
    """Which outputs are lost for what no part shows by itself, and where first, as far as that was looked for; "" where
    nothing speaks for that."""
    if found.as_written or not (inquiry.suspects or inquiry.suspected or found.unsought):
        return ""
    first = f"; in the converted model it is lost first at tensor {inquiry.suspected[0]!r}" if inquiry.suspected else ""
    why = "the budget was spent before it was known why" if found.unsought else "no part cut out of the model shows why"
    return f"little is left of output {_lost(checked)}{first}, and {why}"


def _lost(checked: Checked) -> str:
    return ", ".join(repr(row.output) for row in checked.end_to_end if row.change >= LOST)


def _nobody(found: Found) -> str:
    """Why no node is named for a failure of the whole."""
    if found.unsought:
        return "the budget was spent before it was known which node does it: --budget SECONDS gives more"
    return "no part that was cut out of the model fails by itself"


def harmless_fault(checked: Checked, found: Found) -> Fault | None:
    """The fault by which the model as a whole fails, where that and all others do nothing to the outputs: it accuses
    the very weights, or the outputs are as good as right."""
    whole = checked.verdict
    if not (whole.failed and whole.in_values and found.faults) or serious_faults(found):
        return None
    if is_right(checked):
        return found.faults[0]
    accused = whole.stage == "quantize" and whole.culprits
    return next((fault for fault in found.faults if accused and fault.verdict.culprits == accused), None)


def _culprits(
    case: Case, faults: Sequence[Fault], impacts: Mapping[tuple[int, ...], Impact | None]
) -> tuple[Culprit, ...]:
    """Every node of the faults, each with the most that a fault of it explains."""
    shares: dict[tuple[str, str], float | None] = {}
    for fault in faults:
        weighed = impacts.get(fault.nodes)
        for pair in names_of(case, fault):
            shares.setdefault(pair, weighed.share if weighed else None)
    return tuple(Culprit(*pair, share) for pair, share in shares.items())


def _needed(case: Case, fault: Fault, needed: Mapping[tuple[int, ...], tuple[int, ...]]) -> Fault:
    """A fault without the nodes that one of the same operators does not need to end a model."""

    def operators(nodes: Sequence[int]) -> list[str]:
        return [case.proto.graph.node[i].op_type for i in nodes]

    for nodes, left in needed.items():
        if operators(nodes) == operators(fault.nodes):
            return replace(fault, nodes=tuple(fault.nodes[nodes.index(i)] for i in left))
    return fault


def _blamed(diagnoses: Sequence[Diagnosis]) -> tuple[Culprit, ...]:
    """The nodes that are left of a model that fails, though no part of it was found to."""
    return tuple(Culprit(*pair) for diagnosis in diagnoses for pair in diagnosis.nodes)


def _overall(whole: Verdict, found: Found, serious: Sequence[Fault], rule: str, vouched: float) -> Verdict:
    """The verdict on the model: any failure; agreement where the windows agree, or `rule` excuses every fault."""
    unconfirmed, unlocated = found.unconfirmed, found.unlocated
    if unlocated and not whole.failed and (rule or not found.diagnoses):
        message = f"a part fails, and the budget was spent before it was known which node does it: {unlocated.message}"
        return replace(unlocated, word=Word.ABSTAINS, message=message, rule=BUDGET)
    if found.diagnoses:
        first = found.diagnoses[0].examination.verdict
        if rule:
            return Verdict(
                Word.AGREES, Tier.WINDOWS, rule=rule, message=f"but for what is documented or known: {first.message}"
            )
        beside = any(whole.culprits and whole.culprits == f.verdict.culprits for f in found.faults if f not in serious)
        return whole if whole.failed and not beside else first  # what does nothing to the outputs is no headline
    if unconfirmed:
        message = f"failed once, but not again in fresh processes: {unconfirmed.word} in {unconfirmed.stage}"
        return replace(unconfirmed, word=Word.ABSTAINS, message=f"{message}: {unconfirmed.message}")
    failed = [verdict for verdict in (whole, *(fault.verdict for fault in serious)) if verdict.failed]
    if found.cut and failed and not found.again:
        message = f"failed, and the budget was spent before fresh processes could show it again ({found.cut})"
        message = f"{message}: {failed[0].word} in {failed[0].stage}: {failed[0].message}"
        return replace(failed[0], word=Word.ABSTAINS, message=message, rule=BUDGET)
    if whole.word is Word.AGREES and not vouches(whole) and vouched < ENOUGH:
        return replace(whole, word=Word.ABSTAINS, message="no output has elements that could be compared")
    if whole.word is Word.ABSTAINS and vouched >= ENOUGH:
        return Verdict(Word.AGREES, Tier.WINDOWS, message=f"in windows; end to end nobody can tell: {whole.message}")
    return whole


def _not_usable(case: Case, found: Found) -> tuple[Verdict, tuple[Culprit, ...]]:
    """The verdict on a model whose parts are right by the rules, and that is of no use for it; and these parts."""
    worst = sorted(found.excused, key=lambda each: each[2].share, reverse=True)
    culprits = [Culprit(*name_of(case, i), said.share) for nodes, _, said in worst for i in nodes]
    nodes, rule, said = worst[0]
    named = ", ".join(" ".join(name_of(case, i)[::-1]) for i in nodes)
    message = (
        f"right by the rules, but not usable: {named} ({rule}) moves an output by {said.change:.2g} of its size, which "
        f"explains {said.share:.0%} of the error of the outputs"
    )
    verdict = Verdict(Word.DIVERGES, Tier.WINDOWS, "execute", Kind.WRONG_VALUES, message, rule=rule)
    return verdict, tuple(dict.fromkeys(culprits))


def _of_what_is_lost(checked: Checked, found: Found, serious: Sequence[Fault], verdict: Verdict) -> Verdict:
    """The verdict by faults that explain little of an output that is lost: that is told first, they are told of it."""
    weighed = [found.impacts.get(fault.nodes) for fault in serious]
    share = min(1.0, sum(said.share for said in weighed if said))
    worst = max(checked.end_to_end, key=lambda row: row.change, default=None)
    if not (verdict.in_values and all(weighed) and weighed and share < EXPLAINED and worst and worst.change >= LOST):
        return verdict
    message = (
        f"little is left of output {worst.output!r}, which is off by {worst.change:.2g} of its size; what is at fault "
        f"explains {share:.0%} of the error: {verdict.message}"
    )
    return replace(verdict, message=message)


def _excuse(known_issues: Sequence[KnownIssue], diagnoses: Sequence[Diagnosis], *, lost: bool) -> str:
    """The rule by which the faults are no failure of the model, "" where one of them is.

    They are documented; or they are kernels that the corpus knows to be off by a step, which is a finding once for an
    operator, not once for every model that has it. But what explains most of the error of an output that is `lost` is
    a failure by whatever rule.
    """
    if lost and any((diagnosis.impact or 0.0) >= EXPLAINED for diagnosis in diagnoses):
        return ""
    rules = [rule_of(known_issues, diagnosis.examination) for diagnosis in diagnoses]
    return rules[0] if rules and all(rules) else ""
