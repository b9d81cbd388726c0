"""Support: which operators a target has, of which types, ranks and attributes, found by running each by itself."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.causes import record
from driftnet.causes.impact import ranked
from driftnet.causes.predicate import ONE_NODE
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings.corpus import known
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
from driftnet.util.nearest import demand

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

Tell = Callable[[str], None]


def support(
    target: str,
    *,
    against: str = "",
    options: Mapping[str, str] | None = None,
    operators: Sequence[str] = (),
    budget: float = BUDGET,
    seed: int = 0,
    root: Path = Path("corpus"),
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
    demand(operators, REGISTRY, "{} is not generated", "docs/operators.md lists what is")
    ours, theirs = resolve(target), resolve(against) if against else None
    given = recipe.parsed(ours.target, options or {})
    chosen = recipe.validated(ours.target, given) if given else None
    names = operators or sorted(REGISTRY)
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with Runner(timeout=STAGE_SECONDS, small_models=True) as runner:
        allowance = runner.allow(budget)
        rounds = ((index, name) for index in itertools.count() for name in names)
        interrupted = False
        try:
            for index, name in itertools.takewhile(lambda _: not allowance.spent, rounds):
                tell(f"{sum(map(len, seen.values()))} models, {100 * (1 - allowance.left / budget):.0f} % of the time")
                if case := _drawn(seed, index, name, Profile(**ours.target.profile), runner):
                    seen[name].append(_run(case, name, [one for one in (ours, theirs) if one], chosen, runner))
        except KeyboardInterrupt:
            if not any(seen.values()):
                raise
            interrupted = True
        cpu = runner.all_cpu_seconds
    causes = _causes(root, ours.target.name)
    return {
        "target": ours.target.name,
        "release": ours.release,
        "against": f"{theirs.target.name}=={theirs.release}" if theirs else "",
        "options": dict(ours.target.features.get("float", {})) if chosen is None else chosen,
        "interrupted": interrupted,
        "models": sum(map(len, seen.values())),
        "cpu_seconds": round(cpu, 1),
        "operators": [_told(name, models, causes.get(name, [])) for name, models in seen.items()],
    }


def _drawn(seed: int, index: int, name: str, profile: Profile, runner: Runner) -> Case | None:
    try:
        return instances.drawn(seed, index, [[name]], ONE_NODE, runner.reference.record, profile)
    except ReferenceError:
        return None


def _run(
    case: Case, name: str, on: Sequence[Installed], chosen: Mapping[str, Any] | None, runner: Runner
) -> dict[str, Any]:
    found: list[Verdict] = []
    for one in on:
        mine = one.target.features.get("float", {}) if chosen is None else chosen
        found.append(look(Trial(case, one, mine, runner)))
    outcomes = [_OF_WORD.get(verdict.word, "untold") for verdict in found]
    graph = case.proto.graph
    node = next(graph.node[i] for i in computing(graph) if graph.node[i].op_type == name)
    return {
        "outcome": outcomes[0],
        "before": outcomes[1] if len(outcomes) > 1 else "",
        "traits": {
            "type": dtype_name(graph.output[0]) or "sequence",
            "rank": str(_rank(case)),
            "opset": str(case.proto.opset_import[0].version),
            **attribute_classes(node),
        },
        "message": found[0].message if outcomes[0] not in ("works", "untold") else "",
    }


def _rank(case: Case) -> int:
    """Of its largest operand or result."""
    graph = case.proto.graph
    ranks = [len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.output)]
    return max([*ranks, *(len(tensor.dims) for tensor in graph.initializer)])


def _told(name: str, models: Sequence[Mapping[str, Any]], causes: Sequence[CauseRecord]) -> dict[str, Any]:
    counts = Counter(one["outcome"] for one in models)
    forms: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for one in models:
        for trait, value in one["traits"].items():
            forms[trait][value][one["outcome"]] += 1
    examples: dict[str, str] = {}
    for one in models:
        if one["message"] and len(examples) < EXAMPLES:
            examples.setdefault(one["outcome"], one["message"])
    changed = Counter((one["before"], one["outcome"]) for one in models if one["before"] not in ("", one["outcome"]))
    return {
        "operator": name,
        "models": len(models),
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]},
        "word": _word(counts),
        "forms": {trait: {v: dict(c) for v, c in sorted(values.items())} for trait, values in forms.items()},
        "examples": examples,
        "changed": [{"from": a, "to": b, "models": n} for (a, b), n in sorted(changed.items())],
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


def _word(counts: Mapping[str, int]) -> str:
    """An operator in a word: what it does always, or "partly" where some models of it work."""
    said = [outcome for outcome in OUTCOMES if counts.get(outcome) and outcome != "untold"]
    return said[0] if len(said) == 1 else "partly" if "works" in said else "fails" if said else "untold"


def _causes(root: Path, target: str) -> Mapping[str, list[CauseRecord]]:
    """Operator -> the open causes whose trigger is about a single node of it, those of most impact first."""
    found: dict[str, list[CauseRecord]] = defaultdict(list)
    open_ones = [cause for cause in record.below(*known(root), target=target) if cause.status == Status.OPEN]
    for cause in ranked(open_ones, lambda cause: cause.standing):
        for name in sorted(_single(cause)):
            found[name].append(cause)
    return found


def _single(cause: CauseRecord) -> Collection[str]:
    if cause.trigger is None or cause.trigger.shape != ONE_NODE:
        return ()
    return cause.trigger.operators.get(0, ())
