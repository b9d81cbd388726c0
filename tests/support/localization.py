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
from driftnet.check.check import check
from driftnet.check.result import Checked
from driftnet.findings.trial import Trial
from driftnet.model.case import Case
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Kind
from driftnet.run.runner import Runner
from driftnet.selfcheck import mutant, mutated
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Feed, Options, StageError, Target
from driftnet.targets.mnn.target import MNN
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from onnx import ModelProto, NodeProto, helper, numpy_helper

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
    damage: Callable[[ModelProto, Sequence[NodeProto]], None]
    when: Callable[[ModelProto, Sequence[NodeProto]], bool]

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
        return [chain for chain in chains if self.when(model, chain)]

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
            self.damage(model, [makers[name] for name in outputs])


BUGS: dict[str, Bug] = {}


def bug(*operators: str, when: Callable[[ModelProto, Sequence[NodeProto]], bool] = lambda model, chain: True) -> Any:
    """Make the decorated damage a bug where these operators follow each other."""

    def made(damage: Callable[[ModelProto, Sequence[NodeProto]], None]) -> Bug:
        name = damage.__name__
        BUGS[name] = Bug(name.replace("_", "-"), operators, damage, when)
        return BUGS[name]

    return made


def value(model: ModelProto, name: str) -> np.ndarray | None:
    """The constant `name`, dequantized where it is held in codes; None where it is computed."""
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            return numpy_helper.to_array(node.attribute[0].t)
        if node.op_type == "DequantizeLinear" and node.output[0] == name:
            codes, scale, zero = (value(model, operand) for operand in node.input)
            return None if codes is None else ((codes.astype(np.int32) - zero) * scale).astype(np.float32)
    return None


def constants(model: ModelProto, node: NodeProto) -> dict[int, np.ndarray]:
    """Position -> value of the operands that are constants."""
    return {k: x for k, name in enumerate(node.input) if (x := value(model, name)) is not None}


def feed(model: ModelProto, node: NodeProto, slot: int, x: np.ndarray) -> None:
    """Give `node` a constant of its own."""
    name = f"{node.output[0]}~{slot}"
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(x), name))
    node.input[slot] = name


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def put(node: NodeProto, **attributes: Any) -> None:
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in attributes.items() if v is not None)])


def before(model: ModelProto, node: NodeProto, *new: NodeProto) -> None:
    """Insert nodes in front of `node`, which is another object afterwards."""
    at = list(model.graph.node).index(node)
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*kept[:at], *new, *kept[at:]])


def grouped(model: ModelProto, chain: Sequence[NodeProto]) -> bool:
    return attribute(chain[0], "group", 1) > 1


def spatial(model: ModelProto, chain: Sequence[NodeProto]) -> bool:
    weights = value(model, chain[0].input[1])
    return weights is not None and weights.ndim > 2 and max(weights.shape[2:]) > 1


@bug("Conv", when=lambda model, chain: len(chain[0].input) > 2)
def CONV_LOSES_BIAS(model, chain):
    del chain[0].input[2:]


@bug("Conv", when=lambda model, chain: grouped(model, chain) and spatial(model, chain))
def GROUPED_CONV_FLIPS_KERNEL(model, chain):
    w = value(model, chain[0].input[1])
    feed(model, chain[0], 1, np.flip(w, range(2, w.ndim)))


@bug("Conv", when=lambda model, chain: max(attribute(chain[0], "strides", [1])) > 1 and spatial(model, chain))
def STRIDED_CONV_LOSES_LAST_TAP(model, chain):
    w = value(model, chain[0].input[1]).copy()
    w[..., -1] = 0
    feed(model, chain[0], 1, w)


@bug("ConvTranspose", when=spatial)
def CONV_TRANSPOSE_FLIPS_KERNEL(model, chain):
    w = value(model, chain[0].input[1])
    feed(model, chain[0], 1, np.flip(w, range(2, w.ndim)))


@bug("InstanceNormalization")
def NORM_TAKES_ANOTHER_EPSILON(model, chain):
    put(chain[0], epsilon=0.05)


@bug("BatchNormalization")
def BATCH_NORM_TAKES_ANOTHER_EPSILON(model, chain):
    put(chain[0], epsilon=0.05)


@bug("Softmax")
def SOFTMAX_GOES_ALONG_ANOTHER_AXIS(model, chain):
    put(chain[0], axis=1)


@bug("Gemm", when=lambda model, chain: len(chain[0].input) > 2)
def GEMM_DOUBLES_ITS_BIAS(model, chain):
    put(chain[0], beta=2.0)


@bug("Resize")
def RESIZE_SHIFTS_BY_A_PIXEL(model, chain):
    put(chain[0], nearest_mode=b"ceil")


@bug("Concat", when=lambda model, chain: len(chain[0].input) == 2)
def CONCAT_SWAPS_ITS_PARTS(model, chain):
    chain[0].input[:] = chain[0].input[::-1]


@bug("Split", when=lambda model, chain: len(chain[0].output) == 2)
def SPLIT_SWAPS_ITS_PARTS(model, chain):
    chain[0].output[:] = chain[0].output[::-1]


@bug("LSTM")
def LSTM_MIXES_UP_ITS_GATES(model, chain):
    w = value(model, chain[0].input[1])
    feed(model, chain[0], 1, np.roll(w, w.shape[1] // 4, axis=1))


@bug("GRU")
def GRU_RESETS_AFTER(model, chain):
    put(chain[0], linear_before_reset=1 - attribute(chain[0], "linear_before_reset", 0))


@bug("Sigmoid")
def SIGMOID_IS_APPROXIMATED(model, chain):
    chain[0].op_type = "HardSigmoid"


@bug("Clip")
def CLIP_LOSES_ITS_UPPER_END(model, chain):
    del chain[0].input[2:]


@bug("PRelu")
def PRELU_HALVES_ITS_SLOPE(model, chain):
    feed(model, chain[0], 1, value(model, chain[0].input[1]) / 2)


@bug("ReduceMean")
def REDUCE_MEAN_TAKES_THE_MAXIMUM(model, chain):
    chain[0].op_type = "ReduceMax"


@bug("Erf")
def ERF_IS_APPROXIMATED(model, chain):
    chain[0].op_type = "Tanh"


@bug("Gather", when=lambda model, chain: value(model, chain[0].input[0]) is not None)
def GATHER_IS_ONE_OFF(model, chain):
    feed(model, chain[0], 0, np.roll(value(model, chain[0].input[0]), 1, axis=0))


@bug("Add", when=lambda model, chain: any(np.size(x) > 1 for x in constants(model, chain[0]).values()))
def ADD_BROADCASTS_THE_FIRST_ELEMENT(model, chain):
    for slot, x in constants(model, chain[0]).items():
        feed(model, chain[0], slot, np.full_like(x, x.flat[0]))


@bug("GRU")
def GRU_IS_NOT_CONVERTED(model, chain):
    raise StageError("cannot lower node of type recurrent")


@bug("Transpose")
def TRANSPOSE_REVERSES_ALL_AXES(model, chain):
    put(chain[0], perm=None)


@bug("ConvTranspose")
def CONV_TRANSPOSE_CRASHES(model, chain):
    os.kill(os.getpid(), signal.SIGSEGV)


@bug("Conv", "Clip")
def CONV_CLIP_FUSES_TO_RELU(model, chain):
    del chain[1].input[2:]


@bug("Conv", "BatchNormalization")
def CONV_NORM_FOLD_FORGETS_THE_MEAN(model, chain):
    feed(model, chain[1], 3, np.zeros_like(value(model, chain[1].input[3])))


@bug("ConvTranspose", "BatchNormalization", when=grouped)
def GROUPED_FOLD_TAKES_ONE_SCALE(model, chain):
    scale = value(model, chain[1].input[1])
    feed(model, chain[1], 1, np.resize(scale[: len(scale) // 2], scale.shape))


@bug("Sigmoid", "Mul", when=lambda model, chain: chain[0].input[0] in chain[1].input)
def SWISH_TAKES_ANOTHER_BETA(model, chain):
    name = f"{chain[0].output[0]}~scaled"
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.702, np.float32), f"{name}~"))
    scaled = helper.make_node("Mul", [chain[0].input[0], f"{name}~"], [name])
    chain[0].input[0] = name
    before(model, chain[0], scaled)


@bug("MatMul", "Add", when=lambda model, chain: bool(constants(model, chain[1])))
def MATMUL_ADD_LOSES_THE_BIAS(model, chain):
    for slot, x in constants(model, chain[1]).items():
        feed(model, chain[1], slot, np.zeros_like(x))


@bug("Mul", "Add", when=lambda model, chain: bool(constants(model, chain[1])))
def AFFINE_LOSES_ITS_SHIFT(model, chain):
    for slot, x in constants(model, chain[1]).items():
        feed(model, chain[1], slot, np.zeros_like(x))


@bug("Conv", "Add", when=lambda model, chain: not constants(model, chain[1]))
def RESIDUAL_IS_SUBTRACTED(model, chain):
    chain[1].op_type = "Sub"


@bug("Conv", "PRelu")
def CONV_PRELU_FUSES_TO_RELU(model, chain):
    feed(model, chain[1], 1, np.zeros_like(value(model, chain[1].input[1])))


@bug("Softmax", "MatMul")
def ATTENTION_HALVES_ITS_WEIGHTS(model, chain):
    name = f"{chain[0].output[0]}~half"
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), f"{name}~"))
    chain[1].input[0] = name
    before(model, chain[1], helper.make_node("Mul", [chain[0].output[0], f"{name}~"], [name]))


@bug("Pow", "ReduceMean")
def VARIANCE_OF_CUBES(model, chain):
    feed(model, chain[0], 1, np.asarray(np.float32(4)))


@bug("Transpose", "Reshape")
def TRANSPOSE_BEFORE_RESHAPE_IS_DROPPED(model, chain):
    put(chain[0], perm=sorted(attribute(chain[0], "perm")))


@bug("Reshape", "InstanceNormalization")
def GROUP_NORM_SCALES_TWICE(model, chain):
    feed(model, chain[1], 1, 2 * value(model, chain[1].input[1]))


@bug("InstanceNormalization", "Reshape")
def GROUP_NORM_FORGETS_TO_RESHAPE_BACK(model, chain):
    put(chain[0], epsilon=0.3)


@bug("LSTM", "Transpose")
def LSTM_SWAPS_ITS_DIRECTIONS(model, chain):
    for slot in (1, 2, 3):
        feed(model, chain[0], slot, np.flip(value(model, chain[0].input[slot]), 0))


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
OPTIMIZER_BREAKS_SOFTMAX = replace(ONNXRUNTIME_QUANT, name="optimizer-breaks-softmax", execute=_fused_wrongly)


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
