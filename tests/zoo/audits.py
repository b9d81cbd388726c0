"""Is the word of `driftnet audit` about trained models right? Clean pairs of the zoo, and the same with a damage.

`python -m tests.zoo.audits [--models "A B"] [--damages N]` quantizes each model as onnxruntime does, statically into
Q/DQ pairs and into QOperators, and dynamically, with its pre-processing and without; audits each, and N of each with
one damage (`tests.support.damage`) that changes an output; and prints a line for each, and the counts.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from driftnet.diagnosis import audit
from driftnet.model.case import Case
from driftnet.model.verdict import Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import onnx_engine
from driftnet.util.errors import UserError

from tests.support import damage
from tests.zoo.models import Specimen, specimens

MODELS = (
    "face_proposals face_refinement face_output ocr_classifier speech_embedding mel_bands wake_word thai_words "
    "thai_syllables traffic_pairs"
)
FORMS = {"static QDQ": {}, "static QOperator": {"format": "QOperator"}, "dynamic": {"quantize": "dynamic"}}
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
    """Audit, print and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=MODELS, help="names, with spaces")
    parser.add_argument("--damages", type=int, default=2, help="of each pair")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for specimen in [s for s in specimens() if s.name in given.models.split()]:
        with Runner() as runner:
            for pair in pairs(specimen, runner):
                for said in audited(pair, given.damages, given.seed, runner):
                    counts[said] += 1
    print(", ".join(f"{count} {said}" for said, count in sorted(counts.items())))


def pairs(specimen: Specimen, runner: Runner) -> Iterator[Pair]:
    """The model under each form, pre-processed or not; without those of which nothing can be quantized."""
    samples = tuple(specimen.feed(100 + seed) for seed in range(SAMPLES))
    case = Case(specimen.load().SerializeToString(), samples[:FEEDS], samples)
    for (form, options), ready in itertools.product(FORMS.items(), (False, True)):
        seen = runner.observe(case, onnx_engine(), {**options, "preprocess": ready})
        if seen.artifact.model:
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
        near = any(a.startswith(b) or b.startswith(a) for a in where for b in names)
        said = "damage found" if near else "damage found elsewhere" if found.problems else "damage MISSED"
        yield told(pair, damage.DAMAGES[harm].__name__, said, f"made at {sorted(names)[:3]}, named {sorted(where)[:3]}")
        done += 1
        if done == count:
            return


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
