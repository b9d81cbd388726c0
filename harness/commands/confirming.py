"""What a model may meet, run: each place cut out with recorded operands, in the sandbox."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from driftnet.causes.meeting import Meeting
from driftnet.findings.issues import symptom_of
from driftnet.findings.trial import Trial, watch_cut
from driftnet.model import external_data
from driftnet.model.feeds import made_up
from driftnet.model.inspect import Case, computing
from driftnet.model.signature import coarse
from driftnet.model.submodel import Recording, UnrecordedError, recording, submodel, with_makers
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES
from driftnet.targets.recipe import Recipe
from driftnet.util.errors import UserError
from onnx import ModelProto


def confirmed(
    model: ModelProto,
    path: Path,
    found: Sequence[Meeting],
    installed: Installed,
    recipe: Recipe,
    dims: Mapping[str, int],
) -> tuple[list[Meeting], int]:
    """`found`, of which what was doubtful and fails as its cause does is met, and what does not fail is left out; and
    how many are left out. What lies inside of a subgraph, or cannot be cut out, stays doubtful. dims: sizes of symbolic
    ones.

    Raises UserError (kind "model") for a model that does not run on what is made up for it.
    """
    case = external_data.case(model, path, [made_up(model, dims)])
    with Runner() as runner:
        try:
            recorded = recording(case, runner.reference.record)
        except ReferenceError as e:
            raise UserError(f"{path} does not run on made-up inputs: {e}", hint="lint it without --confirm") from None
        failures: dict[tuple[int, ...], str | None] = {}
        left, cleared = [], 0
        for meeting in found:
            if meeting.why and not meeting.inside:
                nodes = tuple(sorted(meeting.place))
                if nodes not in failures:
                    failures[nodes] = _failure(case, nodes, recorded, Trial(case, installed, recipe, runner))
                said = failures[nodes]
                if said == "" or _comes_later(said, meeting.known.stage):
                    cleared += 1
                    continue
                if said is not None and _alike(said, meeting.known.coarse):
                    meeting = replace(meeting, why="")
            left.append(meeting)
    return left, cleared


def _failure(case: Case, nodes: Sequence[int], recorded: Recording, trial: Trial) -> str | None:
    """The coarse signature with which nodes fail by themselves, "" where they do not, or only because they were cut
    out; None where they cannot be."""
    indices = computing(case.proto.graph)
    try:
        part = submodel(case, with_makers(case, [indices[i] for i in nodes], recorded), recorded)
    except UnrecordedError:
        return None
    verdict, _ = watch_cut(replace(trial, case=part), case)
    return coarse(trial.target.name, verdict) if verdict.failed else ""


def _comes_later(said: str | None, stage: str) -> bool:
    """Whether a failure was in a later stage than `stage`, which has passed then."""
    return said is not None and stage in STAGES and STAGES.index(said.split("/")[1]) > STAGES.index(stage)


def _alike(said: str, known: str) -> bool:
    return symptom_of(said, ()).sort == symptom_of(known, ()).sort
