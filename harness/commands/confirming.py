"""What a model meets or may meet, run: each place cut out with recorded operands, in the sandbox."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from driftnet.causes.facts import Value
from driftnet.causes.host import host_of, hosts
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.meeting import Meeting, meetings
from driftnet.diagnosis.attribution import mends
from driftnet.findings.issues import VALUES, symptom_of
from driftnet.findings.trial import Trial, look, watch, watch_cut
from driftnet.model import external_data
from driftnet.model.feeds import made_to_run
from driftnet.model.inspect import Case, Feed, computing
from driftnet.model.signature import coarse
from driftnet.model.submodel import Recording, UnrecordedError, recording, submodel, with_makers
from driftnet.model.verdict import Kind, Word
from driftnet.run.reference import ReferenceError
from driftnet.run.refusals import explained
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES
from driftnet.targets.recipe import Recipe, remedied
from driftnet.util.errors import UserError
from onnx import ModelProto

FARTHER = 8
"""What does not fail on numbers up to 1, and asks for others, is fed some up to this: most magnitudes that triggers ask
for are below it."""
UNMET = f"inputs made up for it, up to 1 and up to {FARTHER}, do not come to what the trigger asks of them"


def confirmed(
    model: ModelProto,
    path: Path,
    found: Sequence[Meeting],
    installed: Installed,
    recipe: Recipe,
    dims: Mapping[str, int],
    values: Callable[[str], Sequence[Value]],
) -> tuple[list[Meeting], int]:
    """`found`, of which what fails as its cause does is met, and what does not fail is left out; and how many are left
    out. What fails otherwise says so: it is no all-clear. What tells nothing when it is run stays what it was, and says
    why, unless the whole model comes to values and the cause ends it; so does what is fed nothing that the trigger asks
    of it. Of what is met, the options that may end it are tried on the same place.

    dims   sizes of symbolic ones;   values   those that an option may have, by its name

    Raises UserError (kind "model") for a model that does not run on what is made up for it.
    """
    with Runner() as runner:
        reference = runner.reference
        given = made_to_run(model, dims, lambda feed: reference.runs(external_data.case(model, path, [feed])))
        case = external_data.case(model, path, [given])
        try:
            recorded = recording(case, runner.reference.record)
        except ReferenceError as e:
            raise UserError(
                f"{path} does not run on inputs made up for it, {_shapes(case)}: {explained(str(e))}",
                hint="--dim NAME=N gives a symbolic dim another size; without --confirm nothing is run",
            ) from None
        near, far = _Fed(Trial(case, installed, recipe, runner), recorded), None
        whole: _Shown | None = None
        left, cleared = [], 0
        for meeting in found:
            one = near.shows(meeting)
            if one.passes(meeting) and not one.meets(meeting):
                far = far or _Fed(replace(near.trial, case=_farther(case, given)))
                one = far.shows(meeting)
                if one.nothing or (one.passes(meeting) and not one.meets(meeting)):
                    left.append(replace(meeting, not_run=UNMET))
                    continue
            nothing = one.nothing
            if one.trial and not nothing and not _meets_still(one.trial, meeting):
                nothing = "cut out, the place no longer meets the trigger"
            if one.trial is None or nothing:
                whole = whole or _run(near.trial)
                if not whole.nothing and _passed(whole.said, meeting.known.coarse):
                    cleared += 1
                else:
                    left.append(replace(meeting, not_run=nothing))
            elif one.passes(meeting):
                cleared += 1
            elif _alike(one.said, meeting.known.coarse):
                left.append(replace(meeting, why="", cures=_cures(one.trial, meeting, values)))
            else:
                said = f"run by itself, it fails otherwise, with {one.said.partition('/')[2]}"
                left.append(replace(meeting, why=meeting.why or said, cures=(), fails=said))
    return left, cleared


@dataclass(frozen=True, eq=False)
class _Shown:
    """What a place showed by itself: the run, and its coarse signature, "" where it did not fail, or only because it is
    cut out. nothing: why that tells nothing."""

    trial: Trial | None
    said: str
    nothing: str

    def passes(self, meeting: Meeting) -> bool:
        """Whether it comes through what fails as the cause does."""
        ran = self.trial is not None and not self.nothing
        return ran and (self.said == "" or _passed(self.said, meeting.known.coarse))

    def meets(self, meeting: Meeting) -> bool:
        """Whether the trigger holds, or may, with the numbers that were fed; one that the place no longer meets
        whatever is fed is not asked about them."""
        if self.trial is None or not _meets_still(self.trial, meeting):
            return True
        case = self.trial.case
        fed = host_of(case, self.trial.runner.reference.computed(case))
        return bool(meetings([fed], [meeting.known], recipe_facts(self.trial.target, self.trial.recipe)))


@dataclass(eq=False)
class _Fed:
    """A model that is fed something, and what its places show with that, each run once.

    trial   of the whole model;   recorded   its tensors; None: to be recorded, or it does not run
    """

    trial: Trial
    recorded: Recording | None = None
    shown: dict[tuple[int, ...], _Shown] = field(default_factory=dict)

    def shows(self, meeting: Meeting) -> _Shown:
        """What the place of a meeting shows."""
        if meeting.inside:
            return _Shown(None, "", "it lies in a subgraph, which is not cut out")
        nodes = tuple(sorted(meeting.place))
        if nodes not in self.shown:
            self.shown[nodes] = self._shown(nodes)
        return self.shown[nodes]

    def _shown(self, nodes: Sequence[int]) -> _Shown:
        case = self.trial.case
        indices = computing(case.proto.graph)
        try:
            self.recorded = self.recorded or recording(case, self.trial.runner.reference.record)
            part = submodel(case, with_makers(case, [indices[i] for i in nodes], self.recorded), self.recorded)
        except (UnrecordedError, ReferenceError) as e:
            return _Shown(None, "", f"it cannot be cut out: {e}")
        return _run(replace(self.trial, case=part), case)


def _farther(case: Case, given: Feed) -> Case:
    """A model, fed what it was `given`, of which numbers that may be any reach FARTHER times as far."""
    far = {name: x * x.dtype.type(FARTHER) if x.dtype.kind == "f" else x for name, x in given.items()}
    return replace(case, feeds=(far,))


def _run(trial: Trial, whole: Case | None = None) -> _Shown:
    """What a trial shows; whole: what its case was cut out of."""
    verdict = watch_cut(trial, whole)[0] if whole else look(trial)
    if verdict.failed:
        return _Shown(trial, coarse(trial.target.name, verdict), "")
    return _Shown(trial, "", "" if verdict.word is Word.AGREES else f"{verdict.word}: {verdict.message}")


def _meets_still(trial: Trial, meeting: Meeting) -> bool:
    """Whether the place, cut out, is one that the trigger may be about: it may hang on what stands around it."""
    facts = recipe_facts(trial.target, trial.recipe)
    return bool(meetings(list(hosts(trial.case.proto)), [meeting.known], facts))


def _passed(said: str, known: str) -> bool:
    """Whether what failed as `said` has passed what fails as `known`: it failed in a later stage, or came to values
    where that comes to none. "": what did not fail came to values too."""
    said = said or f"/{STAGES[-1]}/{Kind.WRONG_VALUES}"
    (stage, kind), (its, other) = said.split("/", 3)[1:3], (*known.split("/"), "", "")[1:3]
    if stage not in STAGES or its not in STAGES:
        return False
    return STAGES.index(stage) > STAGES.index(its) or (stage == its and kind in VALUES and other not in VALUES)


def _alike(said: str, known: str) -> bool:
    return symptom_of(said, ()).sort == symptom_of(known, ()).sort


def _cures(trial: Trial, meeting: Meeting, values: Callable[[str], Sequence[Value]]) -> list[Recipe]:
    """The ways out by options that mend the place."""
    ways, verdict = meeting.ways_out(values), look(trial)
    tried = [(way, replace(trial, recipe=remedied(trial.target, trial.recipe, way))) for way in ways]
    return [way for way, other in tried if mends(trial, verdict, other, watch)]


def _shapes(case: Case) -> str:
    """What was fed, in words."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in case.feeds[0].items())
