"""Known history: bugs that are mended since, with where that can be read, and which of them fuzzing finds.

    python -m tests.support.past_bugs --target mnn==3.0.0 --then 3.1.0 --then 3.2.0 ... [--report DIR ...]

Each has a small model. It fails on the old release, and the first later one on which it is right is told. A finding
of a report is that bug where its model has one of the bug's operators and is right from the same release on; it is one
bug at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from driftnet.causes.record import Status
from driftnet.findings import corpus
from driftnet.findings.trial import Trial, look
from driftnet.model.case import Case
from driftnet.model.inspect import computing
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.util.apart import trusting
from onnx import TensorProto, helper

from tests.support.models import case, grid

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class PastBug(NamedTuple):
    """told: where the mend can be read;  operators: with any of which it shows"""

    name: str
    told: str
    operators: frozenset[str]
    case: Case
    recipe: Mapping[str, Any]


def _bug(
    name: str,
    told: str,
    nodes: Sequence[tuple[str, Sequence[str], str] | tuple[str, Sequence[str], str, Mapping[str, Any]]],
    feed: Mapping[str, np.ndarray],
    shape: Sequence[int | str] | None,
    constants: Mapping[str, Any] | None = None,
    *,
    also: str = "",
    dtype: int = FLOAT,
    opset: int = 17,
    **recipe: Any,
) -> PastBug:
    made = [helper.make_node(op, inputs, [name], **dict(*more)) for op, inputs, name, *more in nodes]
    outputs = [(made[-1].output[0], dtype, shape)]
    given = {k: np.asarray(v) for k, v in (constants or {}).items()}
    halved = {k: (x / 2).astype(x.dtype) for k, x in feed.items()}
    whole = case(made, feed, given, outputs=outputs, calibration=[halved, feed], opset=opset)
    return PastBug(name, told, frozenset([made[-1].op_type, *also.split()]), whole, recipe)


def _of_mnn() -> Iterator[PastBug]:
    x, image, one = grid((2, 3)), grid((1, 2, 3, 4)), np.ones((1, 1, 1, 1), np.float32)
    four, six = grid((2, 3, 4, 5)), grid((2, 6, 4, 5))
    commit, offline = "github.com/alibaba/MNN/commit/", {"quantize": "offline"}
    tag = "github.com/alibaba/MNN/compare/3.0.0...3.1.0 "
    exponentials = "Exp Celu Softplus ReduceLogSumExp RNN LSTM"
    yield _bug("exponentials off by 2e-5", tag + "x86_64", [("Elu", ["x"], "y")], {"x": x}, (2, 3), also=exponentials)
    yield _bug("defaults of Selu", tag + "EluOnnx.cpp", [("Selu", ["x"], "y")], {"x": 8 * x}, (2, 3))
    sequence = [
        ("SequenceEmpty", [], "a", {"dtype": TensorProto.INT32}),
        ("SequenceInsert", ["a", "x"], "b"),
        ("SequenceAt", ["b", "i"], "y"),
    ]
    numbers = {"x": np.int32([1, 2])}
    told = tag + "SequenceOnnx.cpp"
    yield _bug("type of SequenceEmpty", told, sequence, numbers, (2,), {"i": 0}, dtype=TensorProto.INT32)
    told = commit + "01accaf64 (issues 4152, 4217)"
    yield _bug("start and end of Shape", told, [("Shape", ["x"], "y", {"start": 1})], {"x": x}, (1,), dtype=INT64)
    some = {"x": np.float32([3, 1, 2, 3])}
    yield _bug("order of Unique", commit + "837dd1ce6 (4544)", [("Unique", ["x"], "y")], some, (3,))
    told = "github.com/alibaba/MNN/compare/3.2.0...3.4.0 OnnxClip.cpp"
    yield _bug("Clip without a least", told, [("Clip", ["x", "", "m"], "y")], {"x": x}, (2, 3), {"m": np.float32(0.5)})
    told, slopes = commit + "b1e89f14c", {"s": grid((1, 1, 1, 4))}
    yield _bug("PRelu along the width", told, [("PRelu", ["x", "s"], "y")], {"x": image}, image.shape, slopes)
    at = {"i": np.int64([[-1], [0]]), "u": grid((2, 3))}
    told = tag + "OnnxScatterND.cpp"
    yield _bug("negative indices of ScatterND", told, [("ScatterND", ["x", "i", "u"], "y")], {"x": x}, (2, 3), at)
    for equation, told, a, b, shape in (
        ("binc,bjnc->bnij", commit + "42dc804ad (4466)", four, six, (2, 4, 3, 6)),
        ("i,i...->...", commit + "37d4360c6 (4254)", grid((3,)), grid((3, 2, 4)), (2, 4)),
        ("...ij,...jk->...ik", "github.com/alibaba/MNN/compare/3.1.0...3.2.0", four[0], grid((3, 5, 2)), (3, 4, 2)),
    ):
        node = ("Einsum", ["a", "b"], "y", {"equation": equation})
        yield _bug(f"Einsum {equation}", told, [node], {"a": a, "b": b}, shape)
    yield _bug(
        "Concat and Split of one",
        tag + "geometry",
        [("Concat", ["x"], "y", {"axis": 0})],
        {"x": x},
        (2, 3),
        also="Split",
    )
    nothing = [("Add", ["x", "c"], "t"), ("Relu", ["t"], "y")]
    told = "github.com/alibaba/MNN/compare/3.2.0...3.4.0 optimizer"
    also = "Add Sub Mul Div Identity Celu"
    yield _bug("what adds nothing", told, nothing, {"x": x}, (2, 3), {"c": np.float32(0)}, also=also)
    told = "github.com/alibaba/MNN/compare/3.2.0...3.4.0 source/backend/cpu"
    yield _bug(
        "Softmax off by 1e-5",
        told,
        [("Softmax", ["x"], "y")],
        {"x": np.linspace(-5, 5, 24, dtype=np.float32).reshape(4, 6)},
        (4, 6),
    )
    told = "github.com/alibaba/MNN/compare/3.2.0...3.4.0 tools/quantization"
    conv = [("ConvTranspose", ["x", "w"], "y")]
    yield _bug("int8 layers", told, conv, {"x": one}, one.shape, {"w": one}, also="Conv Einsum MatMul", **offline)
    two = [("Relu", ["x"], "t"), ("Neg", ["x"], "u"), ("Add", ["t", "u"], "y")]
    yield _bug("Relu and Neg of one input, int8", told, two, {"x": x}, (2, 3), also="Neg Relu", **offline)
    told = tag + "tools/quantization"
    yield _bug("range of KL", told, [("Neg", ["x"], "y")], {"x": one[0, 0, 0]}, (1,), also="Gemm Sin Cos", **offline)
    pool = [("Conv", ["x", "w"], "t"), ("LpPool", ["t"], "y", {"kernel_shape": [1, 1], "strides": [1, 1]})]
    feed, given, also = {"x": grid((2, 3, 6, 6))}, {"w": grid((4, 3, 3, 3))}, "Abs Neg Add Mul Sigmoid"
    yield _bug("ADMM", told, pool, feed, (2, 4, 4, 4), given, also=also, method="ADMM", **offline)
    numbers, given = {"x": grid((3, 1, 2))}, {"w": grid((1, 2, 2)) / 8, "r": grid((1, 2, 2)) / 8}
    node = ("RNN", ["x", "w", "r"], "y", {"hidden_size": 2})
    yield _bug(
        "EMA of recurrent layers", told, [node], numbers, (3, 1, 1, 2), given, also="LSTM", method="EMA", **offline
    )


def _of_onnxruntime_quant() -> Iterator[PastBug]:
    pulls, issues = "github.com/microsoft/onnxruntime/pull/", "github.com/microsoft/onnxruntime/issues/"
    x, channels = {"x": grid((3, 4))}, {"per_channel": True, "types": "s8s8"}
    told, given = pulls + "19996 (issue 19694)", {"w": grid((3, 2, 3, 3)), "b": grid((2,))}
    node = ("ConvTranspose", ["x", "w", "b"], "y")
    yield _bug("ConvTranspose per channel", told, [node], {"x": grid((1, 3, 4, 4))}, (1, 2, 6, 6), given, **channels)
    given = {"w": grid((4, 5)), "b": grid((5,))}
    node = ("Gemm", ["x", "w", "b"], "y", {"alpha": 0.5})
    # of other types a processor may cut what it adds, and nothing is told of it
    yield _bug("alpha of Gemm", issues + "28130", [node], x, (3, 5), given, types="u8u8")
    image, given = {"x": grid((1, 3, 4, 4))}, {"w": grid((2, 3, 3, 3))}
    node = ("Conv", ["x", "w"], "y")
    yield _bug(
        "signed weights of ConvInteger",
        issues + "15888",
        [node],
        image,
        (1, 2, 2, 2),
        given,
        also="ConvInteger",
        quantize="dynamic",
    )
    node = ("ReduceSum", ["x"], "y", {"noop_with_empty_axes": 1})
    yield _bug("noop_with_empty_axes", issues + "19147, 25095", [node], x, (3, 4))


def right_from(bug: Case, recipe: Mapping[str, Any], old: Installed, later: Sequence[Installed], runner: Runner) -> str:
    """The first of the releases from which on it is right; "" where it never was wrong or still is. What is wrong
    before it is quantized is no bug of quantizing: EMA of an RNN was one here, and is right where its floats are."""

    def fails(release: Installed) -> bool:
        verdict = look(Trial(bug, release, recipe, runner))
        return verdict.failed and not verdict.before

    if not fails(old):
        return ""
    found = ""
    for release in reversed(later):
        if fails(release):
            break
        found = release.release
    return found


def main() -> None:
    """Print the table: since when each bug is mended, and a finding that is right since then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--then", action="append", default=[])
    parser.add_argument("--report", action="append", default=[], type=Path)
    parser.add_argument("--corpus", type=Path, help="what a run was told is known: it is found, and drawn seldom")
    asked = parser.parse_args()
    name = asked.target.partition("==")[0]
    old, later = resolve(asked.target), [*(resolve(f"{name}=={release}") for release in asked.then), resolve(name)]
    bugs = list({"mnn": _of_mnn, "onnxruntime-quant": _of_onnxruntime_quant}[name]())
    seen: dict[str, list[tuple[str, frozenset[str]]]] = {}
    with trusting(), Runner(timeout=5.0, small_models=True) as runner:
        found = [p.parent for report in asked.report for p in sorted(report.glob("cases/**/case.json"))]
        kept = corpus.load_all(asked.corpus) if asked.corpus else []
        mended = [x for x in kept if (x.target, x.status) == (name, Status.FIXED) and old.release in x.cause.seen]
        for saved in (*map(corpus.load, found), *mended):
            graph = saved.case.proto.graph
            operators = frozenset(graph.node[i].op_type for i in computing(graph))
            seen.setdefault(right_from(saved.case, saved.recipe, old, later, runner), []).append(
                (saved.id[-8:], operators)
            )
        since = {bug.name: right_from(bug.case, bug.recipe, old, later, runner) or "not so" for bug in bugs}
        # what depends on the instructions that a processor has may be right here
    fitting = {
        bug.name: [id for id, operators in seen.get(since[bug.name], ()) if operators & bug.operators] for bug in bugs
    }
    by: dict[str, str] = {}
    for name in sorted(fitting, key=lambda name: len(fitting[name])):  # each finding stands for one bug
        if left := [id for id in fitting[name] if id not in by.values()]:
            by[name] = left[0]
    for bug in bugs:
        print(f"{since[bug.name]:8} {by.get(bug.name, '-'):8} {bug.name} ({bug.told})")
    right = {release: len(ids) for release, ids in seen.items()}
    shows = [name for name, release in since.items() if release != "not so"]
    print(f"{len(by)} of {len(shows)} that show here found; findings that are right since: {right}")


if __name__ == "__main__":
    main()
