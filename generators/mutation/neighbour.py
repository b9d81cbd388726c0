"""Mutation: neighbours of a real model or a saved case.

A neighbour differs in one to four places: an attribute, a dim, a dtype, where an operand comes from, a node inserted,
replaced or removed, another model spliced on, an intermediate that is an output too. Of a model from outside nothing is
known by construction, so a change is taken back unless onnx still infers a type for every output and accepts the whole.
What only a run can tell (the sizes that a Reshape computes) is left to who runs it: ask for the next attempt.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from driftnet.generators.mutation.changes import CHANGES
from driftnet.generators.mutation.draft import Dice, Draft
from driftnet.model.case import Case, Feed
from driftnet.model.inference import InferenceError

MOSTCHANGES = 4
TRIES = 12
"""Changes that are tried for one that holds."""


def neighbour(case: Case, seed: int, index: int, *, others: Sequence[Case] = (), attempt: int = 0) -> Case:
    """Neighbour number `index` of `case` in the stream `seed`; `case` itself when no change holds.

    others   cases that may be spliced onto this one;   attempt  another neighbour of the same number
    """
    dice = Dice(f"{seed} {index} {attempt}")
    changed, names = case, []
    for _ in range(1 + dice.below(MOSTCHANGES)):
        for _ in range(TRIES):
            change = dice.pick(CHANGES)
            draft = Draft(changed, others)
            if change(draft, dice) and (held := _checked(draft, changed)) is not None:
                changed = held
                names.append(change.__name__)
                break
    origin = {**case.origin, "mutation": {"seed": seed, "index": index, "attempt": attempt, "changes": names}}
    return Case(changed.model, changed.feeds, changed.calibration, origin)


def _checked(draft: Draft, before: Case) -> Case | None:
    """The draft as a case with its types inferred anew; None when onnx does not accept it."""
    try:
        whole = draft.inferred(strict_mode=True)
        if not all(output.type.WhichOneof("value") == "tensor_type" for output in whole.graph.output):
            return None
        onnx.checker.check_model(whole, full_check=True)
    except (onnx.checker.ValidationError, InferenceError, ValueError, RuntimeError):
        return None
    shapes = [{name: x.shape for name, x in feeds[0].items()} for feeds in (draft.feeds, before.feeds)]
    calibration = before.calibration if shapes[0] == shapes[1] else ()
    return Case(whole.SerializeToString(), tuple(_fitting(draft.feeds)), calibration, before.origin)


def _fitting(feeds: Sequence[Mapping[str, np.ndarray]]) -> Iterator[Feed]:
    for feed in feeds:
        yield {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in feed.items()}
