"""One quantized model, audited against what it was made of."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from driftnet.diagnosis import audit as audits
from driftnet.diagnosis.end_to_end import are_usable
from driftnet.diagnosis.synthetic_inputs import made_to_fit
from driftnet.findings import corpus
from driftnet.model.feeds import free_sizes, given_or_beside, made_up
from driftnet.model.inspect import Case, Feed, graph_inputs
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.run.share import MEMORY_GIB, REAL_SECONDS

FEEDS, SAMPLES = 2, 8
"""How many made-up feeds an artifact is audited on, and how many ranges are judged by, if they are small."""
MANY_ELEMENTS = 2**14
"""Elements of a feed, of which two tell as much of ranges as eight of small ones."""


def audit(
    model: Path | str,
    quantized: Path | str,
    *,
    inputs: Path | str | None = None,
    timeout: float = REAL_SECONDS,
    memory_gib: float = MEMORY_GIB,
) -> dict[str, Any]:
    """Whether the ONNX model in `quantized` is a right quantization of that in `model`, and executed as written.

    inputs   feeds for both; without them the data sets beside an only model are taken, else some are made up, in the
             ranges that the artifact rounds its inputs to, whose symbolic dims differ if the model takes them

    Raises UserError for files and feeds that cannot be used, for models whose inputs or outputs differ, and where
    nothing is quantized.
    """
    path, made = Path(model), Path(quantized)
    misdeclared: list[str] = []
    proto, other = (corpus.read_given(each, tell=misdeclared.append) for each in (path, made))
    audits.check_pair(proto, other)
    given = given_or_beside(inputs, path, proto, "inputs", made)
    with Runner(timeout=timeout, memory_gib=memory_gib) as runner:
        if given:
            found = audits.audit(proto, other, given, runner, alike=True)
        else:
            feeds = made_to_fit(_feeds_that_run(proto, runner), proto, other, runner)
            found = audits.audit(proto, other, feeds[:FEEDS], runner, more=feeds[FEEDS:])
        return {
            "verdict": str(found.verdict),
            "made_up": [] if given else [value.name for value in graph_inputs(proto)],
            "misdeclared": [*dict.fromkeys(misdeclared)],
            "problems": [
                {name: getattr(problem, name) for name in ("question", "where", "error", "bound", "message")}
                | {"culprit": dict(zip(("node", "op_type"), problem.culprit))}
                for problem in found.problems
            ],
            "compared": found.vouched,
            "preprocessed": found.preprocessed,
            "unmatched": [{"node": name, "op_type": operator} for name, operator in found.unmatched],
            "end_to_end": [loss.as_json() for loss in found.end_to_end],
            "usable": are_usable(found.end_to_end),
            "layers": [loss.as_json() for loss in found.layers],
            "in_float": [layer.as_json() for layer in found.in_float],
            "vanishing": list(found.vanishing),
            "joins_in_float": [loss.as_json() for loss in found.joins_in_float],
            "notes": [f"{problem.question} {problem.where}: {problem.message}" for problem in found.notes],
            "tolerated": found.tolerated,
            "excused": dict(found.excused),
            "network_isolated": runner.network_isolated,
        }


def audit_status(result: Mapping[str, Any]) -> int:
    """The exit status of `audit`: 1 for a problem, 2 when too little could be compared to say that there is none."""
    return {str(Word.AGREES): 0, str(Word.ABSTAINS): 2}.get(result["verdict"], 1)


def _feeds_that_run(model: onnx.ModelProto, runner: Runner) -> list[Feed]:
    """Feeds for an audit. Of equal dims none is told from another, but some models take no others."""
    names = dict.fromkeys(d.dim_param for v in graph_inputs(model) for d in v.type.tensor_type.shape.dim if d.dim_param)
    usual = (2, 2)
    unlike: dict[str, int] = {name: 2 + k for k, name in enumerate(names)}
    ways = [(unlike, usual), *((dict[str, int](), free) for free in (usual, *free_sizes(model, {})))]
    first = made_up(model, ways[0][0])
    case = Case(model.SerializeToString(), (first,))

    def fits(sizes: Mapping[str, int], free: tuple[int, int]) -> bool:
        return runner.reference.runs(replace(case, feeds=(made_up(model, sizes, free=free),)))

    sizes, free = next((way for way in ways if fits(*way)), ({}, usual))
    count = SAMPLES if sum(x.size for x in first.values()) < MANY_ELEMENTS else FEEDS
    return [made_up(model, sizes, seed, free=free) for seed in range(count)]
