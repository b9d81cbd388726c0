"""One model or saved case, reduced to what still fails."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.record import Status
from driftnet.commands.checking import cause_of, demand_mappings, hand_over, runner_for
from driftnet.diagnosis import check as checks
from driftnet.findings import arrange, corpus
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import issues
from driftnet.findings.names import located_case, namesake
from driftnet.findings.pipeline import examine, known_by
from driftnet.findings.pursuing import Finding
from driftnet.findings.trial import Trial, laid_out
from driftnet.model import external_data
from driftnet.model.feeds import demand_dims, given_or_beside, made_to_run, made_up
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Verdict
from driftnet.reduce.reducer import INTERRUPTED
from driftnet.run.runner import Runner
from driftnet.run.share import MEMORY_GIB, SAVED_SECONDS
from driftnet.targets import recipe
from driftnet.targets.environments import resolve, where_seen
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder


@dataclass(frozen=True)
class Given:
    """What a model is reduced with, each as in `CheckSettings`."""

    inputs: Path | str | None = None
    calibration: Path | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        demand_mappings(self.dims, self.options)


def reduce(
    path: Path | str,
    *,
    target: str = "",
    given: Given | None = None,
    budget: float = 60.0,
    out: Path | str,
    python: str | None = None,
    timeout: float = SAVED_SECONDS,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Reduce a saved case, or a model on the inputs that are given, lie beside it or are made up, and write the result
    below `out`, ready to be handed over.

    given    of a model;   budget   CPU seconds;   tell   hears what is being done, for people

    Of a cause its smallest case is reduced ("of"); a case that has the cause's digits, and is not that one, is told
    ("not"). What is left may show otherwise than what was given, and be called otherwise ("renamed"); then it is asked
    by which cause it is known ("cause", "" for none). A saved case of a target that is not installed runs on the newest
    release that it was seen in. Raises UserError when the case does not fail: there is nothing to reduce then; when
    `out` cannot be written; and for inputs or options beside a saved case, which has its own.
    """
    name, out, misdeclared, given = Path(path), Path(out), list[str](), given or Given()
    path = located_case(name)
    before = corpus.load(path) if path.is_dir() else None
    if before and given != Given():
        what = f"{path} is a saved case, which has inputs and options of its own"
        raise UserError(what, hint=f"of its model alone: driftnet reduce {path}/model.onnx ...", kind="option")
    if before:
        case, chosen = before.case, before.recipe
        word = target or (before.target if python else where_seen(before.target, before.seen))
    else:
        proto = corpus.read_given(path, entire=False, tell=misdeclared.append)
        demand_dims(proto, given.dims)
        feeds = given_or_beside(given.inputs, path, proto, "inputs")
        samples = given_or_beside(given.calibration, path, proto, "calibration")
        case = external_data.case(proto, path, feeds or (made_up(proto, given.dims),), samples)
        if not feeds:
            with runner_for(case, timeout, MEMORY_GIB) as runner:
                fed = made_to_run(proto, given.dims, lambda feed: runner.reference.runs(replace(case, feeds=(feed,))))
            case = replace(case, feeds=(fed,))
        chosen, word = {}, target or DEFAULT_TARGETS[0]
    installed, other = resolve(word, python=python), namesake(name, path)
    if given.options:
        chosen = recipe.validated(installed.target, recipe.parsed(installed.target, given.options))
    make_folder(out)
    with runner_for(case, timeout, MEMORY_GIB) as runner:
        trial, cpu_before = Trial(case, installed, chosen, runner), runner.all_cpu_seconds
        verdict, finding = _reduced(trial, before, budget, tell)
        if finding is None:
            raise _nothing_to_reduce(f"{word} {verdict.word} on {path}", verdict, path, before)
        found = finding.to_save()
        folder = corpus.save(_with_what_is_known(before, found) if before else found, out)
        if before and before.cause and _is_the_same(before, finding, runner):
            loose = corpus.load(folder)
            folder = folder if loose.cause else arrange.found(loose, arrange.of_the_same(before.cause, before.id), out)
        hand_over(folder, installed, runner)
        renamed = "" if before and found.id == before.id else found.id
        known = known_by(finding, issues(corpus.OWN), runner, Effort()) if renamed else None
        return {
            "path": str(folder),
            "of": str(path),
            "renamed": renamed,
            "cause": cause_of(known.saved) if known else "",
            **({"not": f"{other.name}, which has these digits too: name it whole"} if other else {}),
            "target": f"{installed.target.name}=={installed.release}",
            "nodes": nodes(finding.case),
            "elements": elements(finding.case),
            "target_runs": runner.target_runs,
            "cpu_seconds": round(runner.all_cpu_seconds - cpu_before, 2),
            "interrupted": finding.ended == INTERRUPTED,
            "unfinished": found.unfinished,
            "network_isolated": runner.network_isolated,
            **({"misdeclared": misdeclared} if misdeclared else {}),
        }


def _reduced(
    trial: Trial, before: corpus.SavedCase | None, budget: float, tell: Callable[[str], None]
) -> tuple[Verdict, Finding | None]:
    """The verdict on a saved case, or on a model, and what is left of it where it fails."""
    runner = trial.runner
    if before is None:  # a model may be so deep that only its windows tell
        checked = checks.check(trial, (), seconds=budget, tell=tell)
        findings = (diagnosis.examination.finding for diagnosis in checked.diagnoses)
        return checked.verdict, next((finding for finding in findings if finding), None)
    from driftnet.handover.control import tries_of

    allowance, runs = runner.allow(budget), runner.target_runs

    def going_on() -> bool:
        tell(f"{runner.target_runs - runs} runs, {allowance.left:.0f} CPU seconds left")
        return False

    for one in laid_out(trial, tries_of(before)):  # it may show in some runs only
        examined = examine(one, effort=Effort(seconds=allowance.left, stop=going_on))
        if examined.finding or allowance.spent:
            break
        runner.turn()
    return examined.verdict, examined.finding


def _nothing_to_reduce(what: str, verdict: Verdict, path: Path, before: corpus.SavedCase | None) -> UserError:
    from driftnet.handover.control import tries_of

    if before and before.status == Status.FLAKY:
        message = f"nothing to reduce: {path} did not fail in {tries_of(before)} runs, or not again"
        message += f"; of {before.runs} runs it showed in {before.reproduced} when it was saved"
        hint = f"try again, or see how often it fails here: driftnet replay {path} --runs 50"
    elif verdict.failed:
        message, hint = (
            f"{what}, but not when it was run again: {verdict.message}",
            "give it more --budget or --timeout",
        )
    else:
        message = f"nothing to reduce: {what}" + (f": {verdict.message}" if verdict.message else "")
        hint = "give --target another target or release"
        if not path.is_dir():
            hint += ", or your own inputs and options: --inputs, --dim, --option"
            hint += f"; a part may fail where the whole agrees: driftnet check {path} --out FOLDER reduces those"
    return UserError(message, hint=hint, kind="case")


def _is_the_same(before: corpus.SavedCase, finding: Finding, runner: Runner) -> bool:
    """Whether what was reduced anew fails alike, and still meets the condition that was learned of the case it was made
    of."""
    trigger = before.cause and before.cause.of_case(before.id).trigger
    if not trigger or before.coarse != finding.signature.coarse:  # the target is part of that
        return False
    from driftnet.learning.experiment import computed

    host = host_of(finding.case, computed(finding.case, runner.reference))
    return bool(trigger.matches(host, recipe_facts(finding.installed.target, finding.recipe)))


def _with_what_is_known(before: corpus.SavedCase, found: corpus.SavedCase) -> corpus.SavedCase:
    """`found`, with what people have said of `before` where it is the same bug."""
    if before.fine != found.fine:
        return found
    known = {name: getattr(before, name) or getattr(found, name) for name in ("note", "upstream", "not_seen")}
    return replace(found, seen=tuple(dict.fromkeys((*before.seen, *found.seen))), **known)
