"""Anonymize a finding, so that it may leave the house: nothing of the model's names, texts and numbers but what the
failure needs. Operators, attributes and shapes of the reduced graph are the failure, and stay.

Each change is tried on the target, and taken back when the failure goes away with it.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from driftnet.findings.pursuing import Finding, is_clear
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, blamed, confirm, look
from driftnet.model import external_data
from driftnet.model.arrays import distance
from driftnet.model.inspect import Case, all_nodes, bodies
from driftnet.model.signature import Signature, coarse, fine
from driftnet.model.submodel import needless, rebuilt
from driftnet.reduce.attributes import plainly_named
from driftnet.reduce.data import Place, array_at, changed, places
from driftnet.reduce.problem import PALETTE, shrink
from driftnet.run.runner import Runner
from onnx import inliner

SMALL = 4
"""Integers up to this magnitude say nothing of where they come from."""

SEED = 0
MOST_TRIES = 200  # runs of the target: a case of two nodes takes about ten


@dataclass(frozen=True, eq=False)
class Anonymous:
    """What is left. `remained` says in words what of the original could not be replaced."""

    case: Case
    remained: tuple[str, ...]


def anonymize(case: Case, fails: Callable[[Case], bool]) -> Anonymous:
    """Rename everything and replace values, as far as `fails` still holds, which is taken to hold of `case`."""
    tries = 0

    def test(candidate: Case) -> bool:
        nonlocal tries
        tries += 1
        return tries <= MOST_TRIES and fails(candidate)

    remained: list[str] = []
    case = replace(case, origin={})
    if test(inlined := _inlined(case)):
        case = inlined
    elif case.proto.functions:
        remained.append("the model's own functions, with their names")
    case = _renamed(case, test, remained)
    case = _replaced(case, test, remained)
    remained += [f"initializer {t.name!r}, too large to be read" for t in external_data.tensors_outside(case.proto)]
    return Anonymous(case, tuple(remained))


def anonymized(finding: Finding, runner: Runner) -> tuple[Finding | None, tuple[str, ...]]:
    """`finding` with its case anonymized and all that is said of it said anew, and what remained of the original.

    None when fresh processes do not show the anonymized failure.
    """
    trial, wanted = Trial(finding.case, finding.installed, finding.recipe, runner), finding.signature.coarse
    runs = 1 if finding.reproduced == finding.runs else CONFIRMING_RUNS

    def fails(candidate: Case) -> bool:
        verdicts = (look(replace(trial, case=candidate), fresh=True) for _ in range(runs))
        return any(is_clear(verdict) and coarse(trial.target.name, verdict) == wanted for verdict in verdicts)

    found = anonymize(finding.case, fails)
    trial = replace(trial, case=found.case)
    verdict, reproduced, tried = confirm(trial)
    if not reproduced:
        return None, found.remained
    verdict, answer, _ = blamed(trial, verdict)
    again = replace(
        finding,
        case=found.case,
        expected=runner.reference.run(found.case).outputs,
        verdict=verdict,
        answer=answer,
        signature=Signature(wanted, fine(wanted, found.case)),
        runs=tried,
        reproduced=reproduced,
        symptom="",
    )
    return again, found.remained


def _inlined(case: Case) -> Case:
    """Without functions of its own, and without texts for people."""
    model = inliner.inline_local_functions(case.proto) if case.proto.functions else deepcopy(case.proto)
    return rebuilt(case, model, needless(case.proto.graph))


def _renamed(case: Case, test: Callable[[Case], bool], remained: list[str]) -> Case:
    if (plain := plainly_named(case)).model != case.model and not test(plain):
        names = [*dict.fromkeys(_names(case.proto.graph))]
        kept = shrink(names, lambda kept: test(plainly_named(case, kept)))
        remained += [f"the name {name!r}" for name in kept]
        plain = plainly_named(case, kept)
    if (nameless := _without_dim_names(plain)).model == plain.model or test(nameless):
        return nameless
    remained.append("the names of dims")
    return plain


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.initializer, *graph.output))
    for node in graph.node:
        yield from filter(None, node.output)
        for body in bodies(node):
            yield from _names(body)


def _without_dim_names(case: Case) -> Case:
    model = deepcopy(case.proto)
    graphs = [model.graph, *(body for node in all_nodes(model.graph) for body in bodies(node))]
    dims = [d for g in graphs for v in (*g.input, *g.output) for d in v.type.tensor_type.shape.dim if d.dim_param]
    names = {name: f"n{i}" for i, name in enumerate(dict.fromkeys(d.dim_param for d in dims))}
    for dim in dims:
        dim.dim_param = names[dim.dim_param]
    return rebuilt(case, model, needless(case.proto.graph))


def _replaced(case: Case, test: Callable[[Case], bool], remained: list[str]) -> Case:
    """Other values wherever they are not neutral: everywhere at once, else array by array, else element by element."""
    telling = [place for place in places(case) if not _neutral(array_at(case, place)).all()]
    for invent in (_small_integers, _like):
        if telling and test(candidate := changed(case, telling, partial(_invented, invent=invent))):
            return candidate
    for place in telling:
        before = array_at(case, place)
        case = _replaced_at(case, place, test)
        same = int(np.count_nonzero((distance(array_at(case, place), before) == 0) & ~_neutral(before)))
        if same:
            what = f"initializer {place.name!r}" if place.run is None else f"input {place.name!r} in run {place.run}"
            remained.append(f"{same} of {before.size} values of {what}")
    return case


def _replaced_at(case: Case, place: Place, test: Callable[[Case], bool]) -> Case:
    for invent in (_small_integers, _like):
        if test(candidate := changed(case, [place], partial(_invented, invent=invent))):
            return candidate
    telling = np.flatnonzero(~_neutral(array_at(case, place)).ravel()).tolist()

    def without(kept: Sequence[int]) -> Case:
        at = sorted({*telling} - {*kept})
        return changed(case, [place], partial(_invented, invent=_like, at=at))

    return without(shrink(telling, lambda kept: test(without(kept)), grain=max(1, len(telling) // 8)))


def _invented(
    x: np.ndarray, invent: Callable[[np.ndarray, np.random.Generator], np.ndarray], at: Sequence[int] | None = None
) -> np.ndarray:
    """`x` with other values where it is not neutral, or at these flat positions."""
    new = invent(x, np.random.default_rng(SEED)).astype(x.dtype)
    where = ~_neutral(x)
    if at is not None:
        where = np.zeros(x.size, bool)
        where[list(at)] = True
        where = where.reshape(x.shape)
    return np.asarray(np.where(where, new, x), x.dtype)


def _small_integers(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (
        _text(x) if x.dtype.kind in "OUS" else rng.integers(0 if x.dtype.kind in "ub" else -SMALL, SMALL + 1, x.shape)
    )


def _like(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random values in the range of `x`."""
    if x.dtype.kind in "OUSbc" or x.size == 0:
        return _small_integers(x, rng)
    if x.dtype.kind in "iu":
        return np.asarray(rng.integers(x.min(), x.max(), x.shape, dtype=x.dtype, endpoint=True))
    finite = np.abs(x[np.isfinite(x)].astype(np.float64))
    largest = float(finite.max(initial=0.0)) or 1.0
    return np.where(np.isfinite(x), rng.uniform(-largest, largest, x.shape), x)


def _text(x: np.ndarray) -> np.ndarray:
    words = {word: f"s{i}" for i, word in enumerate(dict.fromkeys(map(str, x.ravel())))}
    return np.array([words[str(word)] for word in x.ravel()], object).reshape(x.shape)


def _neutral(x: np.ndarray) -> np.ndarray:
    """Which elements could stand in anybody's model: small integers, a half, what is not finite."""
    if x.dtype.kind in "OUS":
        return np.zeros(x.shape, bool)
    if x.dtype.kind == "c":
        return np.asarray(x == 0)
    v = x.astype(np.float64)
    integer = (v == np.rint(v)) & (np.abs(v) <= SMALL)
    return np.asarray(integer | np.isin(v, list(PALETTE)) | ~np.isfinite(v))
