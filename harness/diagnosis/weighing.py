"""What a fault does to the outputs of its model, and what that does which a rule excuses."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from driftnet.diagnosis.end_to_end import Impact, References, impact, losses
from driftnet.diagnosis.inquiry import EXPLAINED, Found, Inquiry, is_lost, is_wrong, serious_faults, vouches
from driftnet.diagnosis.inside import in_form, look_inside, made_by_cutting
from driftnet.diagnosis.localize import Fault
from driftnet.diagnosis.result import Checked
from driftnet.diagnosis.views import distribution
from driftnet.findings.trial import watch
from driftnet.model.submodel import Recording, UnrecordedError, submodel
from driftnet.model.verdict import WITHOUT_NOISE, Observation
from driftnet.model.windows import live_nodes
from driftnet.oracle.judge import cut_tensors, of_nearest_codes, of_wrong_weights
from driftnet.oracle.tolerances.table import LEAST_CHANGE, LEAST_SHARE, LOST
from driftnet.reduce.problem import ExhaustedError
from driftnet.run.reference import Reference, ReferenceError

CUTTING = "codes that are cut, not rounded"
"""What excuses a part whose results are whole codes, but not the nearest, as its target declares."""


def weigh(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """What each fault does to the outputs that was not weighed before; the faults are put in that order, without those
    that cutting made."""
    outputs = checked.outputs
    if not outputs or not found.faults:
        return
    trial, reference = inquiry.trial, References(recorded.feeds, inquiry.trial.runner.reference.outputs)
    new = [fault for fault in found.faults if fault.nodes not in found.weighed]
    names = [value.name for fault in new for value in fault.case.proto.graph.output]
    with contextlib.suppress(ExhaustedError):
        inside = inquiry.inside or (look_inside(inquiry.intact, recorded, names) if new else None)
        for fault in new:
            _, seen = inquiry.watch(replace(trial, case=fault.case))
            if not seen or not seen.outputs:
                continue
            if fault.case.digest in inquiry.frames:
                seen = replace(seen, outputs=tuple(map(in_form, seen.outputs, recorded.feeds)))
            alone = fault.verdict.failed and not is_wrong(fault.verdict, checked.verdict)
            if alone or (inside and made_by_cutting(fault, seen.outputs, inside, recorded)):
                found.faults.remove(fault)
            else:
                said = _impact(inquiry, fault, seen, outputs, reference)
                found.impacts[fault.nodes] = found.weighed[fault.nodes] = said
                wrong = fault.verdict.output
                found.distributions[fault.nodes] = distribution(wrong, seen.outputs, recorded.feeds)
        found.impacts |= found.weighed  # of what is found since, what is kept of these hangs on all
        _keep_intertwined(inquiry, recorded, checked, found)
        _keep_drowned(inquiry, found)
        _keep_varying(inquiry, checked, found)

    def share(fault: Fault) -> float:
        weighed = found.impacts.get(fault.nodes)
        return weighed.share if weighed else 0.0

    found.faults.sort(key=share, reverse=True)


def _keep_intertwined(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """Let nobody tell the share of a fault that the intact artifact has too, where faults work on each other: of a
    fraction whose two sums are wrong, either alone may be farther off than both."""
    trial, weighed = inquiry.trial, {nodes: said for nodes, said in found.impacts.items() if said}
    if trial.target.tap is None or trial.quantizes or sum(said.share for said in weighed.values()) >= EXPLAINED:
        return
    off = [row.relative_l2 for row in checked.end_to_end if math.isfinite(row.relative_l2)]
    least = max(LEAST_CHANGE, LEAST_SHARE * max(off, default=0.0))
    acquitted = [f for f in found.faults if (said := weighed.get(f.nodes)) and said.negligible and said.change >= least]
    graphs = [fault.case.proto.graph for fault in acquitted]
    names = [value.name for part in graphs for value in (*part.input, *part.output)]
    inside = inquiry.inside or (look_inside(inquiry.intact, recorded, names) if names else None)
    for fault in acquitted:
        within = inside.verdict(fault.case) if inside else None
        if within and within.failed:
            found.impacts[fault.nodes] = None


def _keep_drowned(inquiry: Inquiry, found: Found) -> None:
    """Let no share tell of a fault without noise that only the noise of quantizing makes a small one: what it does is
    held against the other faults."""
    weighed = {fault: said for fault in found.faults if (said := found.impacts.get(fault.nodes))}
    most = max((said.change for said in weighed.values()), default=0.0)
    for fault, said in weighed.items():
        noiseless = fault.verdict.tier in WITHOUT_NOISE or (fault.verdict.stage == "execute" and not said.noisy)
        if inquiry.trial.quantizes and noiseless and said.change**2 >= LEAST_SHARE * most**2:
            found.impacts[fault.nodes] = replace(said, drowned=True)


def _keep_varying(inquiry: Inquiry, checked: Checked, found: Found) -> None:
    """Let nobody tell the share of a fault where the outputs differ from run to run: what is read that was never
    written is huge in one run and nothing in the next."""
    weighed = {nodes: said for nodes, said in found.impacts.items() if said}
    acquitted = [nodes for nodes, said in weighed.items() if said.negligible and said.change >= LEAST_CHANGE]
    entered = inquiry.given is not None and inquiry.given is not inquiry.case
    if not acquitted or entered or sum(said.share for said in weighed.values()) >= EXPLAINED:
        return
    if not inquiry.in_time:
        raise ExhaustedError
    _, again = watch(inquiry.intact, fresh=True)
    runs = zip(checked.outputs, again.outputs if again else ())
    if any(x.tobytes() != after[name].tobytes() for run, after in runs for name, x in run.items() if name in after):
        found.impacts.update(dict.fromkeys(acquitted))


def _impact(
    inquiry: Inquiry,
    fault: Fault,
    seen: Observation,
    outputs: Sequence[Mapping[str, np.ndarray]],
    reference: References,
) -> Impact | None:
    """What a fault does to the outputs; where weights are wrong what these do, without the noise of the others."""
    trial, recorded = inquiry.trial, inquiry.trial.runner.reference
    if fault.verdict.stage == "quantize":
        pair = of_wrong_weights(fault.case, seen, target=trial.target, options=trial.options, reference=recorded)
        if pair:
            return impact(inquiry.case, fault, pair[0], outputs, reference, innocent=pair[1])
    noisy = trial.quantizes and fault.verdict.tier not in WITHOUT_NOISE
    innocent = _as_written(fault, seen, recorded) if noisy and fault.verdict.stage == "execute" else None
    said = impact(inquiry.case, fault, seen.outputs, outputs, reference, innocent, noisy=noisy)
    return said and replace(
        said, noisy=noisy and innocent is None
    )  # what is held against codes has none of their noise


def _as_written(fault: Fault, seen: Observation, reference: Reference) -> Sequence[Mapping[str, np.ndarray]] | None:
    """What the quantized part gives where it is executed as it is written; None where that is no ONNX model."""
    if seen.artifact.model is None:
        return None
    with contextlib.suppress(ReferenceError):
        return reference.outputs(replace(fault.case, model=seen.artifact.model))
    return None


def is_lost_as_written(inquiry: Inquiry, checked: Checked) -> bool:
    """Whether the artifact is an ONNX model of which the reference, which executes it as it is written, makes what came
    out, or nearly so: then the numbers in it are why an output is lost, and of these its parts tell."""
    data = checked.observation.artifact.model if checked.observation else None
    if data is None or not inquiry.trial.quantizes:
        return False
    with contextlib.suppress(ReferenceError):
        case = replace(inquiry.case, model=data, calibration=())
        written = inquiry.trial.runner.reference.outputs(case)
        return all(row.change < LOST for row in losses(checked.outputs, written, checked.random))
    return False


def weigh_excuses(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """What is right by a rule only is carried to the outputs too, where one of these is lost. The noise of rounding to
    codes is no part of it; nor are floats that would move the outputs as much if they were rounded once more."""
    if checked.verdict.failed or serious_faults(found) or not is_lost(checked):
        return
    trial, recorder = inquiry.trial, inquiry.trial.runner.reference
    reference = References(recorded.feeds, recorder.outputs)
    parts = [(tuple(j.nodes), j.verdict.rule) for j in found.judged if vouches(j.verdict) and j.verdict.rule]
    if trial.quantizes and checked.observation:
        cut = cut_tensors(
            trial.case, checked.observation, target=trial.target, options=trial.options, reference=recorder
        )
        nodes = trial.case.proto.graph.node
        parts = [((i,), CUTTING) for i in live_nodes(trial.case) if not cut.isdisjoint(nodes[i].output)]
    for excused, rule in parts:
        with contextlib.suppress(UnrecordedError, ReferenceError):  # of what cannot be cut out nobody can tell
            part = submodel(inquiry.case, excused, recorded, shared=True)
            verdict, seen = inquiry.watch(replace(trial, case=part))
            if not seen or not seen.outputs:
                continue
            rounded: Sequence[Mapping[str, np.ndarray]] | None
            if trial.quantizes:
                rounded = of_nearest_codes(part, seen, target=trial.target, options=trial.options, reference=recorder)
            else:
                rounded = [
                    {name: np.nextafter(x, np.inf) if x.dtype.kind == "f" else x for name, x in run.items()}
                    for run in recorder.run(part).outputs
                ]
            fault = Fault(excused, part, verdict)
            said = rounded and impact(inquiry.case, fault, seen.outputs, checked.outputs, reference, innocent=rounded)
            if said and said.change >= LOST and said.share >= EXPLAINED:
                found.excused.append((excused, rule, said))
