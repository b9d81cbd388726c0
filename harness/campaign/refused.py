"""What a system refuses, learned while a campaign runs: forms of operators that it refused and was never seen to run.
What was learned of a release before lies beside the causes of its target; what is seen to run then is forgotten again.

A form is an operator, or one with a type, rank or origin of an operand, or a value of an attribute; and a type of a
graph's inputs and outputs. Where a refusal names operators or types, it is put down to these.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftnet.causes.facts import SLOTS, Value, of_attributes
from driftnet.causes.host import Host
from driftnet.causes.lookup import of_node
from driftnet.model.case import Case
from driftnet.model.graph import Node, nested
from driftnet.model.inspect import dtype_name
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from onnx import defs

TRIED = 50
"""One index in so many is drawn as if nothing was refused: what was learned may be wrong."""
TIMES = 3
"""Models with a form that have to be refused, and none to be run, until it counts as refused."""

Form = tuple[Value, ...]
"""What it is of (an operator, or INPUT or OUTPUT), and what of that, if anything: the name of a fact and its value."""
Forms = Mapping[Form, Set[str]]
"""Form -> the operators that a model would have to do without not to have it."""
INPUT, OUTPUT = "graph input", "graph output"

FILE = "refused.json"
"""Release -> the forms that it refuses, in the folder of a target; `python -m tests.support.refusals` writes it."""

_RAN = frozenset((Word.AGREES, Word.DIVERGES, Word.ABSTAINS))
_BROKE = frozenset((Word.FAILS, Word.CRASHES, Word.HANGS))


def forms_of(case: Case, host: Host) -> Forms:
    """The forms in a case; host: what is known of it without running it."""
    found = defaultdict[Form, set[str]](set)
    nodes, graph = host.graph.nodes, case.proto.graph
    for i, node in enumerate(nodes):
        for form in _of_node(host, i):
            found[form].add(node.op)
        for inner in nested([node], host.graph.opset):
            found[inner.op,].add(node.op)
    for value in graph.input:
        found[INPUT, "dtype", dtype_name(value)].update(nodes[i].op for i in host.readers.get(value.name, ()))
    for value in graph.output:
        if value.name in host.makers:
            maker = nodes[host.makers[value.name][0]].op
            for what in ("dtype", f"of {maker}"):
                found[OUTPUT, what, dtype_name(value)].add(maker)
    return found


def _of_node(host: Host, index: int) -> Iterator[Form]:
    node, facts = host.graph.nodes[index], of_node(host, index)
    for k in range(min(SLOTS, len(node.inputs))):
        for what in ("dtype", "rank", "from"):
            yield node.op, f"in.{k}.{what}", facts.get(f"in.{k}.{what}", "")
    yield node.op, "out.0.dtype", (facts.get("in.0.dtype", ""), facts.get("out.0.dtype"))
    for name, value in of_attributes(node.op, host.graph.opset, node.attributes):
        if name.count(".") == 1 and isinstance(value, str | int):
            yield node.op, name, value


@dataclass
class Refusals:
    """What one release of a system was seen to run, and in how many models it refused what else, so far.

    taken   what came as far as to be executed, and broke there, or broke before with nothing else beside it: no
            conversion refuses it
    late    what was refused when it was executed
    """

    ran: set[Form] = field(default_factory=set)
    taken: set[Form] = field(default_factory=set)
    late: set[Form] = field(default_factory=set)
    refused: Counter[Form] = field(default_factory=Counter)

    def learn(self, forms: Forms, verdict: Verdict) -> frozenset[str]:
        """Take into account what became of a model; the operators that it was refused for, where that is told."""
        if verdict.word in _RAN:
            self.ran.update(forms)
            for form in forms:
                self.refused.pop(form, None)
        executed = verdict.stage == "execute"
        if verdict.word in _BROKE and (executed or len(frozenset().union(*forms.values())) == 1):
            self.taken.update(forms)
            for form in forms.keys() - self.late:
                self.refused.pop(form, None)
        if verdict.word is not Word.REJECTS:
            return frozenset()
        said = set(re.findall(r"\w+", verdict.message))
        ends = {end for word, end in (("input", INPUT), ("output", OUTPUT)) if word in said} or {INPUT, OUTPUT}
        told = [form for form in forms if form[0] in said or (form[0] in ends and form[2] in said)]
        ran = self.ran if executed else self.ran | self.taken
        blamed = self._blamed([form for form in told or forms if form not in ran])
        self.refused.update(blamed)
        if executed:
            self.late.update(blamed)
        return frozenset(op for form in blamed for op in forms[form]) if told else frozenset()

    def __bool__(self) -> bool:
        return any(self._known())

    def operators(self) -> frozenset[str]:
        """Those that are always refused."""
        return frozenset(str(form[0]) for form in self._known() if is_whole(form))

    def unwanted(self, forms: Forms) -> frozenset[str]:
        """The operators by which a model has forms that are refused."""
        return frozenset(op for form in self._known() for op in forms.get(form, ()))

    def of_nodes(self, host: Host) -> Iterator[tuple[Node, Form]]:
        """The nodes of a model that are refused, each with a form by which it is."""
        known = set(self._known())
        for index, node in enumerate(host.graph.nodes) if known else ():
            own = ((node.op,), *_of_node(host, index), *((one.op,) for one in nested([node], host.graph.opset)))
            if form := next((form for form in own if form in known), None):
                yield node, form

    def _known(self) -> Iterator[Form]:
        return (form for form, times in self.refused.items() if times >= TIMES)

    def _blamed(self, among: Iterable[Form]) -> list[Form]:
        """Of what was never seen to run: an operator as a whole before what is particular about it, and what is known
        to be refused before what is not."""
        of = defaultdict[Value, list[Form]](list)
        for form in among:
            of[form[0]].append(form)
        found = list[Form]()
        for forms_ in of.values():
            whole, known = ([f for f in forms_ if test(f)] for test in (is_whole, lambda f: self.refused[f] >= TIMES))
            found += whole or known or forms_
        return found


def remembered(folders: Iterable[Path], target: str, release: str) -> Refusals:
    """What is known of one release below these folders of known cases. Raises UserError for a file that is damaged."""
    found = Refusals()
    for path in (folder / target / FILE for folder in folders):
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            found.refused.update(dict.fromkeys(map(_read, told.get(release, ())), TIMES))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, AttributeError) as e:
            raise UserError(f"{path} does not say what is refused: {e}", hint="restore it, or delete it") from e
    return found


def _read(told: Any) -> Form:
    """The form that an entry of a file stands for. Raises ValueError for what is none."""
    values = [tuple(value) if isinstance(value, list) else value for value in told] if isinstance(told, list) else []
    of = values[0] if values else None
    plain = all(isinstance(value, str | int | tuple) for value in values)
    if not plain or not isinstance(of, str) or len(values) not in ((3,) if of in (INPUT, OUTPUT) else (1, 3)):
        raise ValueError(f"{json.dumps(told)} is no form")
    if of not in (INPUT, OUTPUT) and not defs.has(of):
        raise ValueError(f"{json.dumps(told)} is of an operator that ONNX has not")
    if len(values) == 3 and not isinstance(values[1], str):
        raise ValueError(f"{json.dumps(told)} does not name a fact")
    return tuple(values)


def is_whole(form: Form) -> bool:
    """Whether a form is an operator, whatever else."""
    return len(form) == 1
