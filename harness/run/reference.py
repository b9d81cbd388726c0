"""Reference: what a case's model should give, asked of onnxruntime without optimizations in a worker process."""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.case import Feed
from driftnet.model.inspect import Case
from driftnet.model.verdict import Outcome
from driftnet.run.reference_worker import copies
from driftnet.run.sandbox.zygote import Reply, Worker
from driftnet.targets import interface
from driftnet.util import spent
from driftnet.util.apart import MOST_SAID, Ask

Outputs = dict[str, np.ndarray]
Key = tuple[Any, ...]
"""What is asked, the digest of the case, and what else is said."""
REMEMBERED = 8
"""Cases whose answers are kept: a reducer comes back to the same few."""
MOST_REMEMBERED = 2**28
"""Bytes of these answers, but for the last."""
LONGER, LEAST_SECONDS = 10.0, 2.0
"""A case that nobody waits long for may take so many times what the longest took that came back, and at least this."""
MOST_TOLD = MOST_SAID - 2**20
"""Bytes of arrays in an answer that a fork is told."""


class ReferenceError(Exception):
    """The reference does not run a case; the message says why."""


class TooLargeError(ReferenceError):
    """All tensors of several feeds take too much; those of one may be asked for."""


@dataclass(frozen=True, eq=False)
class ReferenceRun:
    """The outputs of a case, one mapping a feed; or why there are none.

    error   why the checker or onnxruntime refuses the case, in their words;   broken  "the reference crashed: SIGSEGV"
            and the like, where it is the reference that is at fault
    """

    error: str
    outputs: tuple[Outputs, ...]
    broken: str = ""


class Reference:
    """Asks the reference in `worker`, a worker of the interpreter that holds driftnet.run.reference_worker.

    Remembers the last few answers. They are shared between callers: copy an array before changing it.

    show   told which files the worker is about to read
    """

    def __init__(self, worker: Worker, show: Callable[[Collection[Path]], None] = lambda files: None) -> None:
        def call(key: Key, model: bytes, feeds: list[Feed], seconds: float | None) -> Reply:
            function, _, *args = key
            if args and isinstance(args[0], str) and args[0]:
                show(external_data.beside(onnx.ModelProto.FromString(model), Path(args[0])))
            word = f"driftnet.run.reference_worker:{function}"
            return worker.undisturbed(lambda: worker.call(word, model, feeds, *args, timeout=seconds))

        self._call: Callable[[Key, bytes, list[Feed], float | None], Reply] = call
        self._replies: OrderedDict[Key, Reply] = OrderedDict()
        self._longest, self._limit = 0.0, worker.seconds

    def run(self, case: Case, patience: float = math.inf) -> ReferenceRun:
        """The outputs of `case`, when onnx's full check accepts its model and onnxruntime runs it.

        patience   seconds after which nobody waits any more, where the reference did not take as long before
        """
        seconds = max(patience, LEAST_SECONDS, LONGER * self._longest)
        reply = self._ask("run", case, *_beside(case), seconds=seconds if seconds < self._limit else None)
        if reply.outcome is Outcome.OK:
            return ReferenceRun("", tuple(reply.value))
        if reply.outcome is Outcome.ERROR:
            return ReferenceRun(reply.message, ())
        return ReferenceRun("", (), _failure(reply))

    def runs(self, case: Case) -> bool:
        """Whether there are outputs: onnx's full check accepts the model, and onnxruntime runs it."""
        return bool(self.run(case).outputs)

    def record(self, case: Case, *, most: int = 0) -> tuple[Outputs, ...]:
        """Every tensor of the main graph (inputs, intermediates, outputs; initializers not), one mapping a feed.

        Sequences and optionals are left out. Raises ReferenceError when the case does not run, TooLargeError where the
        tensors of several feeds take more than `most` bytes, if that is said.
        """
        limit = ((_beside(case) or ("",))[0], most) if most and len(case.feeds) > 1 else _beside(case)
        runs = self._value("record", case, *limit)
        if len(runs) < len(case.feeds):
            raise TooLargeError(f"all tensors of {len(case.feeds)} inputs are more than {most // 2**20} MiB")
        copied = copies(case.proto.graph)  # they are not asked for: one array is all of them
        stored = {t.name: t for t in case.proto.graph.initializer if t.name in copied.values()}
        values = {name: external_data.array(tensor, case.file) for name, tensor in stored.items()}
        same = {name: values[source] for name, source in copied.items()}
        return tuple({**same, **run} for run in runs) if same else tuple(runs)

    def outputs(self, case: Case) -> tuple[Outputs, ...]:
        """The outputs alone of a part of a model, one mapping a feed. Raises ReferenceError when it does not run."""
        return tuple(self._value("outputs", case, *_beside(case)))

    def computed(self, case: Case) -> Outputs:
        """Every tensor of the main graph under the first feed; none where the case does not run."""
        try:
            return self.record(case)[0]
        except ReferenceError:
            return {}

    def sample(self, case: Case, count: int = 6) -> tuple[tuple[Outputs, ...], ...]:
        """[sample][feed][output]: `count` runs with every float tensor perturbed, x (1 + u U(-2, 2)).

        Deterministic. Raises ReferenceError when the case does not run.
        """
        return tuple(tuple(feeds) for feeds in self._value("sample", case, count))

    def second_opinion(self, case: Case) -> tuple[Outputs, ...]:
        """The outputs by onnx.reference, one mapping a feed; none where it does not run the case."""
        reply = self._ask("second_opinion", case)
        return tuple(reply.value) if reply.outcome is Outcome.OK else ()

    def ask_by(self, ask: Ask) -> None:
        """In a fork: `ask` the process that has the worker, which says what `answer` gives."""

        def call(key: Key, model: bytes, feeds: list[Feed], seconds: float | None) -> Reply:
            question = interface.Encoded([list(key), model, feeds, seconds])
            outcome, *said = interface.decode(ask([*question.pieces()]), copy=False)
            return Reply(Outcome(outcome), *said)

        self._call = call

    def answer(self, question: bytearray) -> Sequence[Any]:
        """What became of what a fork asks, encoded, in pieces."""
        key, model, feeds, seconds = interface.decode(question, copy=False)
        reply = self._reply(tuple(key), model, feeds, seconds)
        if (size := _bytes(reply.value)) > MOST_TOLD:
            reply = Reply(Outcome.MEMORY, message=f"an answer of {size // 2**20} MiB, of which a fork holds no copy")
        said = reply.message, reply.signal, reply.log, reply.seconds
        return [*interface.Encoded([str(reply.outcome), reply.value, *said]).pieces()]

    def _value(self, function: str, case: Case, *args: int | str) -> Any:
        reply = self._ask(function, case, *args)
        if reply.outcome is not Outcome.OK:
            raise ReferenceError(_failure(reply))
        return reply.value

    def _ask(self, function: str, case: Case, *args: int | str, seconds: float | None = None) -> Reply:
        return self._reply((function, case.digest, *args), case.model, list(case.feeds), seconds)

    @spent.part("reference")
    def _reply(self, key: Key, model: bytes, feeds: list[Feed], seconds: float | None = None) -> Reply:
        if key in self._replies:
            self._replies.move_to_end(key)
        else:
            reply = self._call(key, model, feeds, seconds)
            if reply.outcome is Outcome.CUT or (seconds is not None and reply.outcome is Outcome.HANG):
                return reply  # another time it is asked again
            if reply.outcome is Outcome.OK:
                self._longest = max(self._longest, reply.seconds)
            self._replies[key] = reply
            while len(self._replies) > REMEMBERED or (len(self._replies) > 1 and self._size > MOST_REMEMBERED):
                self._replies.popitem(last=False)
        return self._replies[key]

    @property
    def _size(self) -> int:
        return sum(_bytes(reply.value) for reply in self._replies.values())


def _bytes(value: Any) -> int:
    """What the arrays in an answer take."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_bytes, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


def _beside(case: Case) -> tuple[str, ...]:
    """The folder in which lies what the model keeps outside itself, if anything does."""
    return (str(case.file.parent),) if case.file else ()


def _failure(reply: Reply) -> str:
    """Why there is no value, in words."""
    match reply.outcome:
        case Outcome.CRASH:
            return f"the reference crashed: {reply.signal}"
        case Outcome.HANG:
            return f"the reference did not come back in {round(reply.seconds, 1):g} s"
        case Outcome.CUT:
            return f"the reference was cut off after {reply.seconds:.1f} s"
        case Outcome.MEMORY:
            return f"the reference ran out of memory: {reply.message}"
        case Outcome.GARBAGE:
            return f"the reference gave no proper answer: {reply.message}"
    return reply.message
