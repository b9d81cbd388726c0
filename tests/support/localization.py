"""Bugs put at single nodes and at pairs of nodes of a converter, and where they strike in a model.

python -m tests.support.localization FORM [BUG]... prints, for each bug and each model of tests.support.production it
strikes, what `check` makes of it; FORM is one of FORMS.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from driftnet.diagnosis.check import check
from driftnet.diagnosis.result import Checked
from driftnet.findings.trial import Trial
from driftnet.model.case import Case
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Kind
from driftnet.run.runner import Runner
from driftnet.selfcheck import mutant, mutated
from driftnet.selfcheck.site import Site
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Feed, Options, StageError, Target
from driftnet.targets.mnn.target import MNN
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from onnx import ModelProto, NodeProto

from tests.support import production

preload = mutated.preload

FLOAT = {"quantize": "none"}
PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True)
class Form:
    """How a model goes through a target: which one, the recipe, and whether the model is quantized beforehand."""

    target: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    quantized: bool = False


FORMS = {
    "float": Form("onnxruntime_quant", FLOAT),
    "qdq": Form("onnxruntime_quant"),
    "qoperator": Form("onnxruntime_quant", {"format": "QOperator"}),
    "dynamic": Form("onnxruntime_quant", {"quantize": "dynamic"}),
    "mnn": Form("mnn"),
    "mnn-qdq": Form("mnn", quantized=True),
}


@dataclass(frozen=True)
class Bug:
    """damage changes a model where nodes with these operators follow each other and `when` holds of them."""

    name: str
    operators: tuple[str, ...]
    damage: Callable[[Sequence[Site]], None]
    when: Callable[[Sequence[Site]], bool]

    def places(self, model: ModelProto) -> list[tuple[NodeProto, ...]]:
        """The nodes it strikes, each time it does. A Q/DQ pair may stand between two that follow each other."""
        readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)

        def following(node: NodeProto) -> list[NodeProto]:
            found = readers.get(node.output[0], [])
            pairs = [reader for reader in found if reader.op_type in PAIR]
            return found + [reader for pair in pairs for reader in following(pair)]

        chains = [(node,) for node in model.graph.node if node.op_type == self.operators[0]]
        for operator in self.operators[1:]:
            chains = [
                (*chain, reader) for chain in chains for reader in following(chain[-1]) if reader.op_type == operator
            ]
        return [chain for chain in chains if self.when([Site(model, node) for node in chain])]

    @property
    def onnxruntime_quant(self) -> Target:
        """onnxruntime's quantizer, or its execution, with the bug."""
        return replace(mutant.converting(ONNXRUNTIME_QUANT, self._strike), name=self.name)

    @property
    def mnn(self) -> Target:
        """MNN with the bug."""
        return replace(mutant.converting(MNN, self._strike), name=self.name)

    def _strike(self, model: ModelProto) -> None:
        for outputs in [[node.output[0] for node in chain] for chain in self.places(model)]:
            makers = {node.output[0]: node for node in model.graph.node}  # new ones whenever a node was inserted
            self.damage([Site(model, makers[name]) for name in outputs])


BUGS: dict[str, Bug] = {}


def bug(*operators: str, when: Callable[[Sequence[Site]], bool] = lambda chain: True) -> Any:
    """Make the decorated damage a bug where these operators follow each other."""

    def made(damage: Callable[[Sequence[Site]], None]) -> Bug:
        name = damage.__name__
        BUGS[name] = Bug(name.replace("_", "-"), operators, damage, when)
        return BUGS[name]

    return made


def value(at: Site, slot: int) -> np.ndarray | None:
    """The constant operand at `slot`, dequantized where it is held in codes; None where it is computed."""
    if (found := at.constant(slot)) is not None or not at.has(slot):
        return found
    maker = at.producer(slot)
    if maker is None or maker.node.op_type != "DequantizeLinear":
        return None
    codes, scale, zero = (value(maker, k) for k in range(3))
    return None if codes is None else ((codes.astype(np.int32) - zero) * scale).astype(np.float32)


def constants(at: Site) -> dict[int, np.ndarray]:
    """Position -> value of the operands that are constants."""
    return {k: x for k in range(len(at.node.input)) if (x := value(at, k)) is not None}


def grouped(chain: Sequence[Site]) -> bool:
    return chain[0].get("group", 1) > 1


def spatial(chain: Sequence[Site]) -> bool:
    weights = value(chain[0], 1)
    return weights is not None and weights.ndim > 2 and max(weights.shape[2:]) > 1


@bug("Conv", when=lambda chain: len(chain[0].node.input) > 2)
def CONV_LOSES_BIAS(chain):
    del chain[0].node.input[2:]


@bug("Conv", when=lambda chain: grouped(chain) and spatial(chain))
def GROUPED_CONV_FLIPS_KERNEL(chain):
    w = value(chain[0], 1)
    chain[0].feed(1, np.flip(w, range(2, w.ndim)))


@bug("Conv", when=lambda chain: max(chain[0].get("strides", [1])) > 1 and spatial(chain))
def STRIDED_CONV_LOSES_LAST_TAP(chain):
    w = value(chain[0], 1).copy()
    w[..., -1] = 0
    chain[0].feed(1, w)


@bug("ConvTranspose", when=spatial)
def CONV_TRANSPOSE_FLIPS_KERNEL(chain):
    w = value(chain[0], 1)
    chain[0].feed(1, np.flip(w, range(2, w.ndim)))


@bug("InstanceNormalization")
def NORM_TAKES_ANOTHER_EPSILON(chain):
    chain[0].put(epsilon=0.05)


@bug("BatchNormalization")
def BATCH_NORM_TAKES_ANOTHER_EPSILON(chain):
    chain[0].put(epsilon=0.05)


@bug("Softmax")
def SOFTMAX_GOES_ALONG_ANOTHER_AXIS(chain):
    chain[0].put(axis=1)


@bug("Gemm", when=lambda chain: len(chain[0].node.input) > 2)
def GEMM_DOUBLES_ITS_BIAS(chain):
    chain[0].put(beta=2.0)


@bug("Resize")
def RESIZE_SHIFTS_BY_A_PIXEL(chain):
    chain[0].put(nearest_mode=b"ceil")


@bug("Concat", when=lambda chain: len(chain[0].node.input) == 2)
def CONCAT_SWAPS_ITS_PARTS(chain):
    chain[0].node.input[:] = chain[0].node.input[::-1]


@bug("Split", when=lambda chain: len(chain[0].node.output) == 2)
def SPLIT_SWAPS_ITS_PARTS(chain):
    chain[0].node.output[:] = chain[0].node.output[::-1]


@bug("LSTM")
def LSTM_MIXES_UP_ITS_GATES(chain):
    w = value(chain[0], 1)
    chain[0].feed(1, np.roll(w, w.shape[1] // 4, axis=1))


@bug("GRU")
def GRU_RESETS_AFTER(chain):
    chain[0].put(linear_before_reset=1 - chain[0].get("linear_before_reset", 0))


@bug("Sigmoid")
def SIGMOID_IS_APPROXIMATED(chain):
    chain[0].node.op_type = "HardSigmoid"


@bug("Clip")
def CLIP_LOSES_ITS_UPPER_END(chain):
    del chain[0].node.input[2:]


@bug("PRelu")
def PRELU_HALVES_ITS_SLOPE(chain):
    chain[0].feed(1, value(chain[0], 1) / 2)


@bug("ReduceMean")
def REDUCE_MEAN_TAKES_THE_MAXIMUM(chain):
    chain[0].node.op_type = "ReduceMax"


@bug("Erf")
def ERF_IS_APPROXIMATED(chain):
    chain[0].node.op_type = "Tanh"


@bug("Gather", when=lambda chain: value(chain[0], 0) is not None)
def GATHER_IS_ONE_OFF(chain):
    chain[0].feed(0, np.roll(value(chain[0], 0), 1, axis=0))


@bug("Add", when=lambda chain: any(np.size(x) > 1 for x in constants(chain[0]).values()))
def ADD_BROADCASTS_THE_FIRST_ELEMENT(chain):
    for slot, x in constants(chain[0]).items():
        chain[0].feed(slot, np.full_like(x, x.flat[0]))


@bug("GRU")
def GRU_IS_NOT_CONVERTED(chain):
    raise StageError("cannot lower node of type recurrent")


@bug("Transpose")
def TRANSPOSE_REVERSES_ALL_AXES(chain):
    chain[0].put(perm=None)


@bug("ConvTranspose")
def CONV_TRANSPOSE_CRASHES(chain):
    os.kill(os.getpid(), signal.SIGSEGV)


@bug("Conv", "Clip")
def CONV_CLIP_FUSES_TO_RELU(chain):
    del chain[1].node.input[2:]


@bug("Conv", "BatchNormalization")
def CONV_NORM_FOLD_FORGETS_THE_MEAN(chain):
    chain[1].feed(3, np.zeros_like(value(chain[1], 3)))


@bug("ConvTranspose", "BatchNormalization", when=grouped)
def GROUPED_FOLD_TAKES_ONE_SCALE(chain):
    scale = value(chain[1], 1)
    chain[1].feed(1, np.resize(scale[: len(scale) // 2], scale.shape))


@bug("Sigmoid", "Mul", when=lambda chain: chain[0].node.input[0] in chain[1].node.input)
def SWISH_TAKES_ANOTHER_BETA(chain):
    chain[0].before(0, "Mul", np.array(1.702, np.float32))


@bug("MatMul", "Add", when=lambda chain: bool(constants(chain[1])))
def MATMUL_ADD_LOSES_THE_BIAS(chain):
    for slot, x in constants(chain[1]).items():
        chain[1].feed(slot, np.zeros_like(x))


@bug("Mul", "Add", when=lambda chain: bool(constants(chain[1])))
def AFFINE_LOSES_ITS_SHIFT(chain):
    for slot, x in constants(chain[1]).items():
        chain[1].feed(slot, np.zeros_like(x))


@bug("Conv", "Add", when=lambda chain: not constants(chain[1]))
def RESIDUAL_IS_SUBTRACTED(chain):
    chain[1].node.op_type = "Sub"


@bug("Conv", "PRelu")
def CONV_PRELU_FUSES_TO_RELU(chain):
    chain[1].feed(1, np.zeros_like(value(chain[1], 1)))


@bug("Softmax", "MatMul")
def ATTENTION_HALVES_ITS_WEIGHTS(chain):
    chain[1].before(0, "Mul", np.array(0.5, np.float32))


@bug("Pow", "ReduceMean")
def VARIANCE_OF_CUBES(chain):
    chain[0].feed(1, np.asarray(np.float32(4)))


@bug("Transpose", "Reshape")
def TRANSPOSE_BEFORE_RESHAPE_IS_DROPPED(chain):
    chain[0].put(perm=sorted(chain[0].get("perm")))


@bug("Reshape", "InstanceNormalization")
def GROUP_NORM_SCALES_TWICE(chain):
    chain[1].feed(1, 2 * value(chain[1], 1))


@bug("InstanceNormalization", "Reshape")
def GROUP_NORM_FORGETS_TO_RESHAPE_BACK(chain):
    chain[0].put(epsilon=0.3)


@bug("LSTM", "Transpose")
def LSTM_SWAPS_ITS_DIRECTIONS(chain):
    for slot in (1, 2, 3):
        chain[0].feed(slot, np.flip(value(chain[0], slot), 0))


def _scale_inexactly(chain: Sequence[Site]) -> None:
    for slot, x in constants(chain[4]).items():
        chain[4].feed(slot, x * np.float32(1 + 2e-5))


def _but_for_what_is_fused(
    artifact: str, feeds: Sequence[Feed], tensors: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    inner = ("Abs", "Sqrt", "Neg", "Exp")
    fused = {name for n in onnx.load(artifact).graph.node if n.op_type in inner for name in n.output}
    asked = {name: kind for name, kind in tensors.items() if name not in fused}
    return ONNXRUNTIME_QUANT.tap(artifact, feeds, asked, options)


_FUSED = Bug("fuses-inexactly", ("Abs", "Sqrt", "Neg", "Exp", "Mul"), _scale_inexactly, lambda chain: True)
FUSES_INEXACTLY = replace(_FUSED.onnxruntime_quant, tap=_but_for_what_is_fused)
FUSES_EXACTLY = replace(ONNXRUNTIME_QUANT, name="fuses-exactly", tap=_but_for_what_is_fused)


def _fused_wrongly(
    artifact: str, feeds: Sequence[Feed], outputs: Sequence[str], options: Options
) -> list[dict[str, np.ndarray]]:
    results = ONNXRUNTIME_QUANT.execute(artifact, feeds, outputs, options)
    operators = {node.op_type for node in onnx.load(artifact).graph.node}
    fused = options["optimization"] == "all" and "TransposeOptimizer" not in options["disabled_optimizers"]
    return [{k: x + 0.25 if fused and "Softmax" in operators else x for k, x in r.items()} for r in results]


def _rewritten_wrongly(model: str, folder: str, options: Options) -> str:
    converter = SOFTMAX_GOES_ALONG_ANOTHER_AXIS.mnn if options["optimize_level"] else MNN
    return converter.convert(model, folder, options)


REWRITING_BREAKS_SOFTMAX = replace(MNN, name="rewriting-breaks-softmax", convert=_rewritten_wrongly)
OPTIMIZER_BREAKS_SOFTMAX = replace(ONNXRUNTIME_QUANT, name="optimizer-breaks-softmax", execute=_fused_wrongly, tap=None)


def judged(checked: Checked, struck: Bug, case: Case) -> tuple[bool, int, int]:
    """(every fault is a place where the bug strikes, extra nodes of the worst reduced case, its elements)"""
    places = {tuple(sorted(node.name for node in chain)) for chain in struck.places(case.proto)}
    # QLinearSoftmax of onnxruntime 1.31.1 is a step low by itself.
    of_the_bug = [d for d in checked.diagnoses if d.examination.verdict.kind != Kind.OFF_BY_ONE_STEP]
    faults = [tuple(sorted(name for name, op in diagnosis.nodes if op not in PAIR)) for diagnosis in of_the_bug]
    findings = [d.examination.finding for d in of_the_bug if d.examination.finding]
    extra = max((nodes(f.case) - len(struck.operators) for f in findings), default=-1)
    return bool(faults) and set(faults) <= places, extra, max((elements(f.case) for f in findings), default=-1)


def made(model: str, form: Form) -> Case:
    """The small model of that name, quantized where the form says so."""
    case = production.SMALL[model]()
    return production.quantized(case) if form.quantized else case


def strikes(name: str, form: Form) -> list[str]:
    """The models of tests.support.production that the bug strikes."""
    return [model for model in production.SMALL if BUGS[name].places(made(model, form).proto)]


def main(form: str, *names: str) -> None:
    """Print what `check` makes of each bug in each model."""
    chosen, right = FORMS[form], []
    with Runner() as runner:
        for name in names or BUGS:
            installed = resolve(f"tests.support.localization:{name}.{chosen.target}")
            for model in strikes(name, chosen):
                case = made(model, chosen)
                runs, started = runner.target_runs, time.process_time() + runner.cpu_seconds
                checked = check(Trial(case, installed, chosen.recipe, runner), ())
                spent = time.process_time() + runner.cpu_seconds - started
                found, extra, size = judged(checked, BUGS[name], case)
                right.append(found)
                stages = "/".join(d.stage or "?" for d in checked.diagnoses)
                what = f"{checked.verdict.word} in {stages}, extra nodes {extra}, elements {size}"
                where = "" if found else f", {[d.nodes for d in checked.diagnoses]}"
                print(
                    f"{'right' if found else 'WRONG'} {name} {model}: {what}, runs {runner.target_runs - runs}, "
                    f"CPU s {spent:.1f}{where}",
                    flush=True,
                )
    print(f"{sum(right)} of {len(right)} right")


if __name__ == "__main__":
    main(*sys.argv[1:])
