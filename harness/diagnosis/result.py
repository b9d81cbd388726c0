"""What a check found: of a model the verdict, of each fault the nodes, what cures it and the reduced case."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from driftnet.diagnosis.attribution import Remedy
from driftnet.diagnosis.end_to_end import Loss
from driftnet.diagnosis.views import Distribution, Neighbour, Point
from driftnet.findings.pipeline import Examination
from driftnet.model.inspect import elements
from driftnet.model.inspect import nodes as size
from driftnet.model.verdict import Observation, Verdict, Word
from driftnet.model.windows import Judged
from driftnet.reduce.reducer import MINIMAL
from driftnet.util.options import written

WORST = 5
"""Tensors that are told with their error and their bound, those nearest to it or farthest beyond."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """One fault examined.

    nodes    (name, operator) of the nodes in the model that fail together; empty where it is the model as a whole
    stage    the stage that goes wrong, "" where that cannot be told
    impact   the share of the error of the outputs that it explains, None where that cannot be told
    around   the neighbourhood in the model;   distribution   of the tensor that is wrong
    unlike   why it need not be the known issue that the examination names, but looks like it; "" where it is that
    """

    nodes: tuple[tuple[str, str], ...]
    examination: Examination
    remedies: tuple[Remedy, ...] = ()
    stage: str = ""
    impact: float | None = None
    unlike: str = ""
    around: tuple[Neighbour, ...] = ()
    distribution: Distribution | None = None

    @property
    def known(self) -> str:
        """The open case of the same cause, "" where there is none."""
        return "" if self.unlike else self.examination.known

    @property
    def looks_like(self) -> str:
        """The open case that it looks like without being shown to be of its cause."""
        return self.examination.known if self.unlike else ""

    def as_json(self) -> dict[str, Any]:
        """The fault as a JSON value; `reduced` where there is a finding. Paths, and of what is known the
        cause and the note, are left open."""
        verdict, finding = self.examination.verdict, self.examination.finding
        reduced = finding and {
            "path": "",
            "nodes": size(finding.case),
            "elements": elements(finding.case),
            "unfinished": finding.ended != MINIMAL,
        }
        return {
            "nodes": [_node(pair) for pair in self.nodes],
            **_said(verdict, "kind", "tier", "error", "bound", "message"),
            "stage": self.stage,
            "impact": self.impact,
            "known": self.known,
            "known_path": "",
            "cause": "",
            "looks_like": self.looks_like,
            "unlike": self.unlike,
            "note": "",
            "goes_away_with": [{"option": r.option, "value": r.value} for r in self.remedies],
            "reduced": reduced,
            "around": [asdict(neighbour) for neighbour in self.around],
            "distribution": self.distribution and asdict(self.distribution),
        }


@dataclass(frozen=True)
class Culprit:
    """A node at fault, and the share of the outputs' error that its fault explains; None where nobody can tell."""

    node: str
    op_type: str
    impact: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The node as a JSON value."""
        return {**_node((self.node, self.op_type)), "impact": self.impact}


@dataclass(frozen=True)
class Cost:
    """What a fast kernel's rounding, or what is documented, does to the output that it moves most, and the options that
    do without it.

    kernel   its name, or that of the rule
    moved   how far it is from that without the kernel;   left   how far that is off (both relative, L2; for zeros the
            error itself)
    """

    kernel: str
    output: str
    moved: float
    left: float
    options: Mapping[str, Any]

    def __str__(self) -> str:
        remedy = ", ".join(written(self.options))
        cost = f"{self.kernel} costs {self.moved:.1e} of output {self.output!r} (relative L2)"
        return f"{cost}, gone with {remedy}, which leaves an error of {self.left:.1e}"

    def as_json(self) -> dict[str, Any]:
        """The cost as a JSON value."""
        cures = [{"option": name, "value": value} for name, value in self.options.items()]
        numbers = {"relative_l2": self.moved, "relative_l2_without": self.left}
        said = {"kernel": self.kernel, "output": self.output, "message": str(self)}
        return {**said, **numbers, "goes_away_with": cures}


@dataclass(frozen=True, eq=False)
class Checked:
    """What a check found.

    verdict   on the model; observation of the run of the whole model, None when the target was not asked
    judged    the windows and the verdicts on them
    vouched   share of the nodes that some tier affirmed;   doubtful   operator -> how many nodes it did not
    culprits  every node found at fault, those of faults that were not examined too, the gravest first
    notes     the same of faults that do nothing to the outputs, or too little to matter; or that fail otherwise than a
              model of which nothing comes out
    end_to_end   of each graph output how far it is off, over all feeds
    costs     what the rounding of fast kernels comes to, where something was excused by it
    random    the graph outputs that hang on random numbers, of which there is no error
    unquantized   why nothing is quantized under a recipe that should; "" where something is, or nobody can tell
    quantized_already   which nodes say that a model is so, under a recipe that quantizes it once more
    vanishing, joins_in_float   as of an Audit, where the outputs of an artifact that can be read are off by much
    depth     what is known of the tensors along the depth of the model
    interrupted   somebody ended the check: this is what it had come to
    """

    verdict: Verdict
    observation: Observation | None = None
    judged: tuple[Judged, ...] = ()
    vouched: float = 0.0
    doubtful: Mapping[str, int] = field(default_factory=dict)
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[Culprit, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    end_to_end: tuple[Loss, ...] = ()
    costs: tuple[Cost, ...] = ()
    random: tuple[str, ...] = ()
    unquantized: str = ""
    quantized_already: str = ""
    vanishing: tuple[str, ...] = ()
    joins_in_float: tuple[Loss, ...] = ()
    depth: tuple[Point, ...] = ()
    interrupted: bool = False

    @property
    def outputs(self) -> Sequence[Mapping[str, np.ndarray]]:
        """What comes out of the model, one mapping a feed; nothing where it does not run, or was not judged whole."""
        return self.observation.outputs if self.observation else ()

    @property
    def known(self) -> str:
        """The open case that explains everything found; "" where one of the faults is new, or nobody can tell whether
        the model fails: what is undecided is not known."""
        names = [diagnosis.known for diagnosis in self.diagnoses if self.verdict.word is not Word.ABSTAINS]
        return names[0] if names and all(names) else ""

    def as_json(self) -> dict[str, Any]:
        """The check as a JSON value; `worst` are outputs of the model and of its windows."""
        verdict, observation = self.verdict, self.observation
        wrong = [v for v in (verdict, *(judged.verdict for judged in self.judged)) if v.error]
        worst = sorted(wrong, key=_excess, reverse=True)
        told = [_said(v, "output", "tier", "rule", "error", "bound") for v in worst]
        return {
            **_said(verdict, "stage", "kind", "tier", "rule"),
            "known": self.known,
            "interrupted": self.interrupted,
            "message": verdict.message,
            "stages": [
                {"stage": run.stage, "outcome": str(run.outcome), "seconds": round(run.seconds, 3)}
                for run in (observation.stages if observation else ())
            ],
            "end_to_end": [loss.as_json() for loss in self.end_to_end],
            "kernels": [cost.as_json() for cost in self.costs],
            "random": list(self.random),
            "unquantized": self.unquantized,
            "quantized_already": self.quantized_already,
            "vanishing": list(self.vanishing),
            "joins_in_float": [loss.as_json() for loss in self.joins_in_float],
            "worst": [row for k, row in enumerate(told) if row not in told[:k]][:WORST],
            "depth": [asdict(point) for point in self.depth],
            "culprits": [culprit.as_json() for culprit in self.culprits],
            "notes": [culprit.as_json() for culprit in self.notes],
            "vouched": round(self.vouched, 4),
            "doubtful": dict(self.doubtful),
            "windows": {"judged": len(self.judged), **Counter(str(j.verdict.word) for j in self.judged)},
            "faults": [diagnosis.as_json() for diagnosis in self.diagnoses],
        }


def _said(verdict: Verdict, *names: str) -> dict[str, Any]:
    return {"verdict": str(verdict.word), **{name: getattr(verdict, name) for name in names}}


def _node(pair: tuple[str, str]) -> dict[str, str]:
    name, operator = pair
    return {"node": name, "op_type": operator.rpartition("::")[2]}


def _excess(verdict: Verdict) -> float:
    return verdict.error / verdict.bound if verdict.bound else math.inf
