"""T1, exact: where no operation rounds, every right implementation gives the same bits.

Every value of a tensor, and every partial sum on the way to it, is a multiple of 2^lsb and at most `size`. While
size < 2^(lsb + p), p the bits of the significand, nothing rounds: any order of summation, fused multiply-add, blocking
or folding gives the same bits (-0 is 0). Both bounds are propagated from the data of constants and feeds, operator by
operator (see dyadic), so that they also cover a converter that multiplies constants together beforehand; only integers
and truth values that are exactly known are measured on the way. What the standard leaves open (see underspecified) is
no business of this tier.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from driftnet.model.arrays import distance, identical
from driftnet.model.verdict import Tier, Verdict
from driftnet.oracle.exemptions import underspecified
from driftnet.oracle.fixed_point.fixed_point import FixedPoint, fixed_point_of
from driftnet.oracle.fixed_point.rules import RULES, WITHOUT_ARITHMETIC, Application, UnrecordedError
from driftnet.oracle.question.answers import abstains, agrees, diverges
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.tolerances.table import INEXACT_KERNEL as INEXACT_BOUND
from driftnet.util import spent

INEXACT_KERNEL = "inexact-kernel"


@spent.part("oracle exact")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Any differing bit diverges. A difference that an inexact kernel could make bears the rule of that name."""
    verdicts = {}
    for feed in sorted({feed for feed, _ in places}):
        known = formats(question, feed)
        for place in (p for p in places if p[0] == feed):
            error = distance(*question.pair(place))
            if place[1] not in known:
                operators = [n.op for n in question.graph.ancestors(place[1]) if not known.keys() & set(n.outputs)]
                verdicts[place] = abstains(Tier.EXACT, place, "an operation may round", operators)
            elif not error.any():
                verdicts[place] = agrees(Tier.EXACT, place)
            else:
                verdict = diverges(Tier.EXACT, question, place, error > 0, np.zeros(()))
                excusable = _computed(question, place) and error.max() <= INEXACT_BOUND * known[place[1]].size
                verdicts[place] = dataclasses.replace(verdict, rule=INEXACT_KERNEL if excusable else "")
    return verdicts


def _computed(question: Question, place: Place) -> bool:
    """Whether floats were added or multiplied, and not merely moved or compared."""
    arithmetic = [node for node in question.graph.ancestors(place[1]) if RULES[node.op] not in WITHOUT_ARITHMETIC]
    return bool(arithmetic) and question.pair(place)[0].dtype.kind == "f"


def formats(question: Question, feed: int) -> dict[str, FixedPoint]:
    """The fixed-point format of each tensor of feed `feed` before which nothing rounds."""
    graph = question.graph
    leaves = {**graph.constants, **question.case.feeds[feed]}
    known = {name: fixed_point_of(x) for name, x in leaves.items() if _is_carried(x) and name not in question.inexact}
    values = {**question.records[feed], **graph.constants}
    for node in graph.nodes:
        rule = RULES.get(node.op)
        if rule is None or any(name and name not in known for name in node.inputs):
            continue
        at = Application(graph, node, known, values)
        try:
            found = None if underspecified.is_open(node, values, graph.opset) else rule(at)
        except UnrecordedError:
            continue
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


def _is_carried(x: np.ndarray) -> bool:
    """Whether an engine without doubles, which computes them in float32, can hold `x`."""
    return x.dtype != np.float64 or identical(x, x.astype(np.float32).astype(np.float64))
