"""Is the word of `driftnet audit` about trained models right? Clean pairs of the zoo, and the same with a damage.

`python -m tests.zoo.audits [--models "A B"] [--damages N]` quantizes each model as onnxruntime does, statically into
Q/DQ pairs and into QOperators, and dynamically, with its pre-processing and without; audits each, and N of each with
one damage (`tests.support.damage`) that changes an output; prints a line for each, and writes their table at the end of
docs/zoo.md, models that were not audited now as it stood.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from driftnet.diagnosis import audit
from driftnet.model.case import Case
from driftnet.model.verdict import Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import onnx_engine
from driftnet.util.errors import UserError
from onnx import numpy_helper

from tests.support import damage
from tests.support.paths import ROOT
from tests.zoo.measure import off, run
from tests.zoo.models import Specimen, specimens

MODELS = (
    "face_proposals face_refinement face_output ocr_classifier speech_embedding mel_bands wake_word thai_words "
    "thai_syllables traffic_pairs"
)
FORMS: Mapping[str, Mapping[str, Any]] = {
    "QDQ": {},
    "QDQ u8s8 per channel": {"types": "u8s8", "per_channel": True},
    "QDQ u8u8 percentile": {"types": "u8u8", "calibration": "Percentile"},
    "QOperator u8u8": {"format": "QOperator", "types": "u8u8"},
    "QOperator per channel": {"format": "QOperator", "per_channel": True, "reduce_range": True},
    "dynamic": {"quantize": "dynamic"},
    "dynamic u8": {"quantize": "dynamic", "types": "u8u8"},
}
SAID = (
    "clean agrees",
    "clean FALSE ALARM",
    "clean abstains",
    "clean refused",
    "clean is not clean",
    "damage found",
    "damage found elsewhere",
    "damage MISSED",
)
INTRODUCTION = """\
`driftnet audit` on trained models and what onnxruntime's quantizer makes of them, in seven forms, pre-processed or not
(`python -m tests.zoo.audits`); and on each of these with a damage that changes an output by at least 1e-4: an audit
names where it was made, or something else, or misses it. Not clean is what the quantizer itself spoiled, as numpy and
onnxruntime show without driftnet: it rounds an epsilon of 1e-5 to 0.
"""
HEADING = "## Audits"
FEEDS, SAMPLES = 2, 4
CHANGED = 1e-4
"""What a damage changes an output by at least, relative to its L2 norm."""
TRIES = 12
"""Damages that are tried on a model until one changes an output."""


@dataclass(frozen=True)
class Pair:
    """A trained model and what a quantizer made of it."""

    name: str
    case: Case
    quantized: onnx.ModelProto


def main(arguments: Sequence[str] | None = None) -> None:
    """Audit, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=MODELS, help="names, with spaces")
    parser.add_argument("--damages", type=int, default=1, help="of each pair")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    written = ROOT / "docs" / "zoo.md"
    for specimen in [s for s in specimens() if s.name in given.models.split()]:
        counts: Counter[str] = Counter()
        with Runner() as runner:
            for pair in pairs(specimen, runner):
                counts.update(audited(pair, given.damages, given.seed, runner))
        written.write_text(page(written.read_text(encoding="utf-8"), specimen.name, counts), encoding="utf-8")


def page(before: str, name: str, counts: Mapping[str, int]) -> str:
    """docs/zoo.md with the row of one model, and the sums of all."""
    text, _, section = before.partition(HEADING)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    rows = {line[0]: line for line in lines if line[0] in {specimen.name for specimen in specimens()}}
    rows[name] = [name, *(str(counts.get(said, 0)) for said in SAID)]
    sums = [sum(int(row[k + 1]) for row in rows.values()) for k in range(len(SAID))]
    table = [("model", *SAID), ("---",) * (1 + len(SAID)), *rows.values(), ("all", *map(str, sums))]
    body = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"{text.rstrip()}\n\n{HEADING}\n\n{INTRODUCTION}\n{body}\n"


def pairs(specimen: Specimen, runner: Runner) -> Iterator[Pair]:
    """The model under each form, pre-processed or not; without those that are not quantized, or do not run."""
    samples = tuple(specimen.feed(100 + seed) for seed in range(SAMPLES))
    case = Case(specimen.load().SerializeToString(), samples[:FEEDS], samples)
    for (form, options), ready in itertools.product(FORMS.items(), (False, True)):
        seen = runner.observe(case, onnx_engine(), {**options, "preprocess": ready})
        if seen.artifact.model and seen.outputs:
            name = f"{specimen.name}, {form}{', preprocessed' if ready else ''}"
            yield Pair(name, case, onnx.ModelProto.FromString(seen.artifact.model))


def audited(pair: Pair, count: int, seed: int, runner: Runner) -> Iterator[str]:
    """What came of the clean pair, and of so many damages."""
    try:
        clean = audit.audit(pair.case.proto, pair.quantized, pair.case.feeds, runner, alike=True)
    except UserError as e:
        yield told(pair, "", "clean refused", e.message)
        return
    said = {Word.AGREES: "clean agrees", Word.ABSTAINS: "clean abstains"}.get(clean.verdict, "clean FALSE ALARM")
    if clean.problems and all(is_spoiled(pair, problem.where) for problem in clean.problems):
        said = "clean is not clean"
    problem = clean.problems[0].message if clean.problems else f"{clean.vouched:.1%} compared"
    yield told(pair, "", said, problem)
    if clean.verdict is Word.AGREES and clean.vouched < audit.ENOUGH:
        yield told(pair, "", "clean AGREES BELOW 95 %", "")
    rng = np.random.default_rng([seed, *map(ord, pair.name)])
    done = 0
    for harm in rng.permutation(np.arange(len(damage.DAMAGES)))[:TRIES] if count else ():
        wrong, names = damage.damaged(pair.quantized, damage.DAMAGES[harm], int(rng.integers(1000)))
        if not names or not changes_an_output(pair, wrong, runner):
            continue
        found = audit.audit(pair.case.proto, wrong, pair.case.feeds, runner, alike=True)
        where = {text.removesuffix("_quant") for p in found.problems for text in (p.where, p.culprit[0]) if text}
        where |= {name for node in pair.case.proto.graph.node if node.name in where for name in node.output}
        near = any(a.startswith(b) or b.startswith(a) for a in where for b in names)
        said = "damage found" if near else "damage found elsewhere" if found.problems else "damage MISSED"
        first = f": {found.problems[0].message}" if found.problems and not near else ""
        what = f"made at {sorted(names)[:3]}, named {sorted(where)[:3]}{first}"
        yield told(pair, damage.DAMAGES[harm].__name__, said, what)
        done += 1
        if done == count:
            return


def is_spoiled(pair: Pair, name: str) -> bool:
    """Whether the quantizer made something else of a constant: with what its Q/DQ pair gives of that the float model
    gives something else."""
    read, model = f"{name}_DequantizeLinear_Output", onnx.ModelProto()
    model.CopyFrom(pair.case.proto)
    stated = {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    tensor = ({t.name: t for t in model.graph.initializer} | stated).get(name)
    if tensor is None or not any(read in node.output for node in pair.quantized.graph.node):
        return False
    whole = onnx.ModelProto()
    whole.CopyFrom(pair.quantized)
    whole.graph.output.append(onnx.ValueInfoProto(name=read))
    held = run(whole.SerializeToString(), pair.case.feeds[:1])[0][read]
    tensor.CopyFrom(numpy_helper.from_array(held, name))
    return off(*(run(m.SerializeToString(), pair.case.feeds) for m in (model, pair.case.proto))) > CHANGED


def changes_an_output(pair: Pair, wrong: onnx.ModelProto, runner: Runner) -> bool:
    """Whether the damaged model gives something else, or does not even run."""
    before, after = (Case(model.SerializeToString(), pair.case.feeds) for model in (pair.quantized, wrong))
    try:
        rows = audit.losses(*(list(runner.reference.run(c).outputs) for c in (after, before)))
    except ReferenceError:
        return True
    return not rows or any(row.relative_l2 > CHANGED for row in rows)


def told(pair: Pair, what: str, said: str, why: str) -> str:
    """`said`, printed with the rest."""
    print(f"{said}: {pair.name}{', ' + what if what else ''}: {why}", flush=True)
    return said


if __name__ == "__main__":
    main()
