"""Support: which operators a target has, of which types, ranks and attributes, found by running each by itself."""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.causes.impact import ranked
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.predicate import ONE_NODE
from driftnet.causes.record import CauseRecord, Status
from driftnet.commands.linting import causes_of, reached
from driftnet.findings.corpus import known as corpora
from driftnet.findings.trial import Trial, look
from driftnet.generators.building.profile import Profile
from driftnet.generators.ops.registry import REGISTRY
from driftnet.learning import instances
from driftnet.model.case import Case
from driftnet.model.inspect import computing, dtype_name
from driftnet.model.signature import attribute_classes
from driftnet.model.verdict import Verdict, Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets import recipe
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe
from driftnet.util.nearest import demand
from driftnet.util.options import listed

OUTCOMES = ("works", "diverges", "crashes", "errors", "refused", "untold")
"""What a target does with a model; untold where no tier can tell, or where the reference refuses it."""
_OF_WORD = {
    Word.AGREES: "works",
    Word.DIVERGES: "diverges",
    Word.CRASHES: "crashes",
    Word.HANGS: "crashes",
    Word.FAILS: "errors",
    Word.REJECTS: "refused",
}
BUDGET = 120.0
"""CPU seconds: some forty models of each operator on MNN."""
STAGE_SECONDS = 5.0
EXAMPLES = 3
BY_CHANCE = 0.05
"""What would have come about so often anyhow is not told as the reason for anything."""
FIRST = 0.75
"""Of the time, for models of every form; in the rest those that stand out among these are tried again."""
AGAIN, DRAWS = 12, 120
"""Fresh models of a form that stands out, and how many are drawn for them at most."""

Tell = Callable[[str], None]
Form = tuple[str, str]
"""A trait and its value."""
Forms = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Trait -> value -> outcome -> models."""


def support(
    target: str,
    *,
    against: str = "",
    options: Mapping[str, str] | None = None,
    operators: str | Sequence[str] = (),
    budget: float = BUDGET,
    seed: int = 0,
    root: Path | str = "corpus",
    tell: Tell = lambda text: None,
) -> dict[str, Any]:
    """Run models of one operator each, as the generator draws them: what works, of which types, ranks and attributes?

    against    another release, or another target, that is given the same models: what it does otherwise
    options    of the target, as a person writes them; without any, those under which nothing is quantized
    operators  only these;   budget   CPU seconds, in which each operator gets as many models as any other
    root       the corpus, whose causes are told beside the operators that their triggers name; of corpus/ also those of
        what came with driftnet

    What was done until somebody interrupted it is "interrupted". Raises UserError for an unknown operator, target or
    option; KeyboardInterrupt where nothing was done yet.
    """
    operators, root = listed(operators), Path(root)
    demand(operators, REGISTRY, "{} is not generated", "docs/operators.md lists what is")
    ours, theirs = resolve(target), resolve(against) if against else None
    given = recipe.parsed(ours.target, options or {})
    chosen = recipe.validated(ours.target, given) if given else None
    names = operators or sorted(REGISTRY)
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    again: dict[str, dict[Form, list[str]]] = {name: {} for name in names}
    with Runner(timeout=STAGE_SECONDS, small_models=True) as runner:
        allowance = runner.allow(budget)
        rounds = ((index, name) for index in itertools.count() for name in names)
        profile, on = Profile(**ours.target.profile), [one for one in (ours, theirs) if one]
        interrupted, index = False, 0

        def done() -> str:
            return f"{sum(map(len, seen.values()))} models, {100 * (1 - allowance.left / budget):.0f} % of the time"

        try:
            for index, name in itertools.takewhile(lambda _: allowance.left > (1 - FIRST) * budget, rounds):
                tell(done())
                if case := _drawn(seed, index, name, profile, runner):
                    seen[name].append(_run(case, name, on, chosen, runner))
            for name, models in seen.items():
                tell(f"{done()}, {name} again")
                drawn = (_drawn(seed, later, name, profile, runner) for later in range(index + 1, index + 1 + DRAWS))
                cases = itertools.takewhile(lambda _: not allowance.spent, drawn)
                run = functools.partial(_run, name=name, on=on[:1], chosen=chosen, runner=runner)
                again[name] = _again(name, models, filter(None, cases), run)
        except KeyboardInterrupt:
            if not any(seen.values()):
                raise
            interrupted = True
        cpu = runner.all_cpu_seconds
    options_run = dict(ours.target.features.get("float", {})) if chosen is None else chosen
    causes = _causes(root, ours.target, options_run)
    return {
        "target": ours.target.name,
        "release": ours.release,
        "against": f"{theirs.target.name}=={theirs.release}" if theirs else "",
        "options": options_run,
        "interrupted": interrupted,
        "models": sum(map(len, seen.values())),
        "cpu_seconds": round(cpu, 1),
        "operators": [_told(name, models, causes.get(name, []), again[name]) for name, models in seen.items()],
    }


def _drawn(seed: int, index: int, name: str, profile: Profile, runner: Runner) -> Case | None:
    try:
        return instances.drawn(seed, index, [[name]], ONE_NODE, runner.reference.record, profile)
    except ReferenceError:
        return None


def _run(
    case: Case, name: str, on: Sequence[Installed], chosen: Mapping[str, Any] | None, runner: Runner
) -> dict[str, Any]:
    found = _each(case, on, chosen, runner)
    outcomes = [_outcome(verdict) for verdict in found]
    if len(set(outcomes)) > 1 and outcomes != [_outcome(verdict) for verdict in _each(case, on, chosen, runner)]:
        outcomes = outcomes[:1]  # what comes and goes is no change
    return {
        "outcome": outcomes[0],
        "before": outcomes[1] if len(outcomes) > 1 else "",
        "traits": _traits(case, name),
        "message": found[0].message if outcomes[0] not in ("works", "untold") else "",
        "said_before": found[1].message if outcomes[1:] and outcomes[1] not in ("works", "untold") else "",
    }


def _traits(case: Case, name: str) -> dict[str, str]:
    graph = case.proto.graph
    node = next(graph.node[i] for i in computing(graph) if graph.node[i].op_type == name)
    return {
        "type": dtype_name(graph.output[0]) or "sequence",
        "rank": str(_rank(case)),
        "opset": str(case.proto.opset_import[0].version),
        **attribute_classes(node),
    }


def _again(
    name: str, models: Sequence[Mapping[str, Any]], cases: Iterable[Case], run: Callable[[Case], Mapping[str, Any]]
) -> dict[Form, list[str]]:
    """What becomes of those of other `cases` that have a form which stands out among `models`, of AGAIN a form at most:
    of so many forms some fail oftener by chance, but not once more."""
    found: dict[Form, list[str]] = {form: [] for form in _standing_out(_forms_of(models))}
    for case in cases:
        short = {form for form, outcomes in found.items() if len(outcomes) < AGAIN}
        if not short:
            break
        if its := short & {*_traits(case, name).items()}:
            outcome = run(case)["outcome"]
            for form in its:
                found[form].append(outcome)
    return found


def _each(case: Case, on: Sequence[Installed], chosen: Mapping[str, Any] | None, runner: Runner) -> list[Verdict]:
    options = [one.target.features.get("float", {}) if chosen is None else chosen for one in on]
    return [look(Trial(case, one, mine, runner)) for one, mine in zip(on, options, strict=True)]


def _outcome(verdict: Verdict) -> str:
    return _OF_WORD.get(verdict.word, "untold")


def _rank(case: Case) -> int:
    """Of its largest operand or result."""
    graph = case.proto.graph
    ranks = [len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.output)]
    return max([*ranks, *(len(tensor.dims) for tensor in graph.initializer)])


def _told(
    name: str,
    models: Sequence[Mapping[str, Any]],
    causes: Sequence[CauseRecord],
    again: Mapping[Form, Sequence[str]] | None = None,
) -> dict[str, Any]:
    counts = Counter(one["outcome"] for one in models)
    examples: dict[str, str] = {}
    for one in models:
        if one["message"] and len(examples) < EXAMPLES:
            examples.setdefault(one["outcome"], one["message"])
    changed: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for one in models:
        if one["before"] not in ("", one["outcome"]):
            changed[one["before"], one["outcome"]].append(one)
    return {
        "operator": name,
        "models": len(models),
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]},
        "word": _word(counts),
        "forms": _forms_of(models),
        "failing": _failing(_forms_of(models), counts, again or {}),
        "examples": examples,
        "changed": [_change(*words, alike, models) for words, alike in sorted(changed.items())],
        "causes": [
            {
                "id": cause.id,
                "severity": str(cause.severity),
                "when": cause.sentence,
                "releases": cause.history,
                "upstream": cause.upstream,
            }
            for cause in causes
        ],
    }


def _change(before: str, now: str, alike: Sequence[Mapping[str, Any]], models: Sequence[Mapping[str, Any]]) -> Any:
    """What became of the models `alike`: in which forms oftener than by chance, as trait -> value -> how many of its
    models changed so and how many did not; and what was said of the first."""
    ids = set(map(id, alike))
    forms = telling(_forms((one["traits"], "changed" if id(one) in ids else "works") for one in models))
    said = next((one["message"] or one["said_before"] for one in alike), "")
    return {"from": before, "to": now, "models": len(alike), "forms": forms, "message": said}


def _forms(models: Iterable[tuple[Mapping[str, str], str]]) -> dict[str, dict[str, dict[str, int]]]:
    """`Forms`, of the traits and the outcome of each model."""
    forms: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for traits, outcome in models:
        for trait, value in traits.items():
            forms[trait][value][outcome] += 1
    return {trait: {value: dict(n) for value, n in sorted(values.items())} for trait, values in forms.items()}


def _forms_of(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    return _forms((one["traits"], one["outcome"]) for one in models)


def _failing(forms: Forms, whole: Mapping[str, int], again: Mapping[Form, Sequence[str]]) -> Forms:
    """Of each trait the values that have to do with a failure, and what became of all their models: those that tell by
    themselves, and those of which fresh models, too, fail oftener than the `whole`."""
    found: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    certain = telling(forms)
    for trait, value in _standing_out(forms):
        fresh = Counter(again.get((trait, value), ()))
        if value in certain.get(trait, ()) or _likelihood(fresh, Counter(whole) + fresh) <= BY_CHANCE:
            found[trait][value] = dict(Counter(forms[trait][value]) + fresh)
    return dict(found)


def telling(forms: Forms) -> dict[str, dict[str, dict[str, int]]]:
    """Of each trait the values of whose models more fail, at all or in one way, than chance would have it of as many
    values as there are of all traits. As `forms`: trait -> value -> outcome -> models."""
    found: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    looks = sum(len(values) for values in forms.values() if len(values) > 1)
    for trait, value in _standing_out(forms):
        if _likelihood(forms[trait][value], _whole(forms[trait])) * looks <= BY_CHANCE:
            found[trait][value] = dict(forms[trait][value])
    return dict(found)


def _standing_out(forms: Forms) -> Iterator[Form]:
    """The values of whose models more fail than chance would have it, were there no others: some do by chance."""
    for trait, values in forms.items():
        whole = _whole(values)
        for value, counts in values.items() if len(values) > 1 else ():
            if _likelihood(counts, whole) <= BY_CHANCE:
                yield trait, value


def _whole(values: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    return Counter(itertools.chain.from_iterable(Counter(counts).elements() for counts in values.values()))


def _likelihood(counts: Mapping[str, int], whole: Mapping[str, int]) -> float:
    """How likely it is that so many of some models of a `whole` fail, at all or in one way; 1 where none does."""
    size, total = sum(counts.values()), sum(whole.values())
    failed = {outcome: n for outcome, n in counts.items() if outcome not in ("works", "untold")}
    ways = [chance(n, size, whole[outcome], total) for outcome, n in failed.items()]
    bad = total - whole.get("works", 0) - whole.get("untold", 0)
    return min([chance(sum(failed.values()), size, bad, total), *ways]) if failed else 1.0


def chance(hits: int, of: int, bad: int, total: int) -> float:
    """The probability of at least `hits` bad ones among so many of a `total` in which so many are `bad` (Fisher's exact
    test), by logarithms: of some 1,030 on there are more ways than a float holds."""
    ways = (_ways(bad, k) + _ways(total - bad, of - k) for k in range(max(hits, of + bad - total, 0), min(of, bad) + 1))
    return min(math.fsum(math.exp(each - _ways(total, of)) for each in ways), 1.0)


def _ways(n: int, k: int) -> float:
    """The logarithm of how many ways there are to take k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _word(counts: Mapping[str, int]) -> str:
    """An operator in a word: what it does always, or "partly" where some models of it work."""
    said = [outcome for outcome in OUTCOMES if counts.get(outcome) and outcome != "untold"]
    return said[0] if len(said) == 1 else "partly" if "works" in said else "fails" if said else "untold"


def _causes(root: Path, target: Target, chosen: Recipe) -> Mapping[str, list[CauseRecord]]:
    """Operator -> the open causes of which a trigger is about a single node of it and may hold under what is `chosen`,
    those of most impact first."""
    known = reached(causes_of(corpora(root), target), target, chosen)
    facts = recipe_facts(target, chosen)
    found: dict[str, dict[str, CauseRecord]] = defaultdict(dict)
    for one in ranked(known, lambda known: known.record.standing):
        trigger = one.record.trigger
        if one.record.status != Status.OPEN or trigger is None or trigger.shape != ONE_NODE:
            continue
        if any(all(a.holds(facts) is not False for a in region.of_role(-1)) for region in trigger.regions):
            for name in sorted(trigger.operators.get(0, ())):
                found[name].setdefault(one.record.id, one.record)
    return {name: [*its.values()] for name, its in found.items()}
