"""Findings whose trigger is known, and what is learned of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.findings.corpus import SavedCase
from driftnet.findings.pursuing import Finding, signed
from driftnet.findings.trial import Confirmed, Trial, look
from driftnet.learning.trigger import Learned, learn_trigger
from driftnet.model.case import Case
from driftnet.model.signature import Signature, coarse, fine, folder_name
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import Recipe
from onnx import TensorProto, helper

from tests.support import models

PLAIN: Recipe = {"quantize": "none"}
"""The recipe under which onnxruntime only executes."""


def one(op: str, *inputs: np.ndarray, constants: Sequence[np.ndarray] = (), opset: int = 17, **attributes: Any) -> Case:
    """A case of one node, fed `inputs`; its last operands are `constants`."""
    feed = {f"x{k}": x for k, x in enumerate(inputs)}
    fixed = {f"w{k}": x for k, x in enumerate(constants)}
    node = helper.make_node(op, [*feed, *fixed], ["y"], **attributes)
    return some([node], feed, fixed, outputs=["y"], opset=opset)


def some(
    nodes: Sequence[onnx.NodeProto],
    feed: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    *,
    outputs: Sequence[str],
    opset: int = 17,
) -> Case:
    """A case of several nodes, the types of its outputs inferred."""
    case = models.case(nodes, feed, constants, outputs=[(o, TensorProto.FLOAT, None) for o in outputs], opset=opset)
    untyped = onnx.ModelProto.FromString(case.model)
    for output in untyped.graph.output:
        output.ClearField("type")
    return replace(case, model=onnx.shape_inference.infer_shapes(untyped).SerializeToString())


def saved(case: Case, target: str, runner: Runner, recipe: Recipe = PLAIN) -> SavedCase:
    """`case` as a finding, with the verdict that a run gives."""
    installed = resolve(target)
    verdict = look(Trial(case, installed, recipe, runner))
    assert verdict.failed, f"the verdict is {verdict}, should be a failure"
    sign = coarse(installed.target.name, verdict)
    signature = Signature(sign, fine(sign, case))
    expected = runner.reference.run(case).outputs
    name = folder_name(signature)
    return SavedCase(name, case, expected, installed.target.name, dict(recipe), sign, signature.fine, verdict)


def found(case: Case, target: str, runner: Runner) -> Finding:
    """`case`, which has to fail on `target`, as a campaign finds it."""
    trial = Trial(case, resolve(target), PLAIN, runner)
    return signed(trial, Confirmed(look(trial), 5, 5))


def learned(case: Case, target: str, runner: Runner, *, seconds: float = 5.0) -> Learned:
    """What is learned of `case`, which has to fail on `target`."""
    return learn_trigger(saved(case, target, runner), resolve(target), runner, seconds=seconds)


def said(learned: Learned, case: Case, recipe: Mapping[str, Any] = PLAIN) -> bool | None:
    """What the trigger says of `case`, without a run: of values it knows what the first feed gives."""
    assert learned.trigger is not None
    return learned.trigger.matches(host_of(case), recipe_facts(resolve("onnxruntime-quant").target, recipe))
