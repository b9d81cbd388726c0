"""Made-up feeds for the audit of an artifact: as large as its ranges say that the data of its calibration were."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from driftnet.model import graph as graphs
from driftnet.model.graph import Values
from driftnet.model.inspect import Case, Feed
from driftnet.oracle.artifact.verified.calibration import Range, largest_of, ranges_of
from driftnet.oracle.artifact.verified.range_outliers import moved_from
from driftnet.oracle.artifact.verified.ranges import stated_ranges
from driftnet.run.runner import Runner

SHARES = tuple(2.0**-k for k in range(6))  # of the range of an input, which made-up data may fill


def made_to_fit(
    feeds: Sequence[Feed], model: onnx.ModelProto, quantized: onnx.ModelProto, runner: Runner
) -> tuple[Feed, ...]:
    """`feeds` made up in [-1, 1), with floats as large as the model is made for, as far as the artifact says: spread
    over the range that it rounds the input to, or a part of that, of which the other tensors fill their ranges best.
    The largest of data with outliers lie far beyond most of them."""
    if not any(x.dtype.kind == "f" for x in feeds[0].values()):
        return tuple(feeds)
    ranges = stated_ranges(graphs.in_order(graphs.read(quantized)))
    spread = [{name: _spread(x, ranges.get(name)) for name, x in feed.items()} for feed in feeds]
    floating = graphs.read(model)
    judged = {name: found for name, found in ranges.items() if moved_from(floating, name) not in feeds[0]}
    misfits = []
    for share in SHARES:  # one after the other: the records of a large model are many times its weights
        case = Case(model.SerializeToString(), (_shrunk(spread[0], share),))
        misfits.append(_misfit(judged, runner.reference.record(case)[0]))
    best = SHARES[int(np.argmin(misfits))]
    return tuple(_shrunk(feed, best) for feed in spread)


def _misfit(ranges: Mapping[str, Range], record: Values) -> float:
    """The mean |log2| of the largest that a range holds by the largest data."""
    seen = ranges_of([{name: record[name] for name in ranges.keys() & record.keys()}])
    sizes = [(largest_of(ranges[name]), largest_of(found)) for name, found in seen.items()]
    return float(np.mean([abs(np.log2(a / b)) for a, b in sizes if a > 0 and 0 < b < np.inf] or [0]))


def _shrunk(feed: Feed, share: float) -> Feed:
    return {name: x * x.dtype.type(share) if x.dtype.kind == "f" else x for name, x in feed.items()}


def _spread(x: np.ndarray, range: Range | None) -> np.ndarray:
    if x.dtype.kind != "f" or range is None:
        return x
    low, high = np.clip(range, np.finfo(x.dtype).min, np.finfo(x.dtype).max)
    return np.asarray(low + (x.astype(np.float64) + 1) / 2 * (high - low), x.dtype)
