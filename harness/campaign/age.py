"""Age: what an old release has not yet is learned once, by asking it, and left out of what is drawn for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from driftnet.findings.trial import Trial, look
from driftnet.generators.building.kernels import OPSETS
from driftnet.generators.features import PREFIX
from driftnet.generators.ops.registry import REGISTRY
from driftnet.model.case import Case
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from onnx import TensorProto, helper

LEAST = 0.05
"""An operator that was refused each time is drawn so much as often: of another type it may be there."""
ENOUGH = 3
"""Refusals after which an operator is drawn less often."""


@dataclass
class Age:
    """What one release of a target is too old for, as far as it is known; nothing where it is none of the past."""

    installed: Installed
    runner: Runner
    refused: Counter[str] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)

    @cached_property
    def newest_opset(self) -> int:
        """The newest opset that it does not refuse, of a Relu."""
        for opset in reversed(OPSETS):
            if not self._refuses(look(Trial(_relu(opset), self.installed, {}, self.runner))):
                return opset
        return OPSETS[0]

    def learn(self, verdict: Verdict, operators: Collection[str]) -> None:
        """Take into account what it said of a case with these operators."""
        if self._refuses(verdict):
            self.refused.update({*re.findall(r"\w+", verdict.message)} & {*operators})
        elif self._of_the_past and verdict.word not in (Word.REJECTS, Word.INVALID):
            self.ran.update(operators)

    @property
    def weights(self) -> Mapping[str, float]:
        """Operator or feature -> factor on how often it is drawn."""
        if not self._of_the_past:
            return {}
        found = {f"{PREFIX}opset-{opset}": 0.0 for opset in OPSETS if opset > self.newest_opset}
        found |= {name: 0.0 for name, operator in REGISTRY.items() if operator.since > self.newest_opset}
        for name, count in self.refused.items():
            if count >= ENOUGH and name in REGISTRY:
                found[name] = min(found.get(name, 1.0), max(LEAST, self.ran[name] / (count + self.ran[name])))
        return found

    @property
    def _of_the_past(self) -> bool:
        target = self.installed.target
        return bool(target.outgrown) and all(rule in target.refusals for rule in target.outgrown)

    def _refuses(self, verdict: Verdict) -> bool:
        names = {rule.name for rule in self.installed.target.outgrown}
        return verdict.word is Word.REJECTS and verdict.rule in names


def _relu(opset: int) -> Case:
    value = helper.make_tensor_value_info
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph(
        [node], "relu", [value("x", TensorProto.FLOAT, [1, 4])], [value("y", TensorProto.FLOAT, [1, 4])]
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    return Case(model.SerializeToString(), ({"x": np.array([[-1, 0, 1, 2]], np.float32)},))
