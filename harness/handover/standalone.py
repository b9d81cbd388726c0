"""Standalone: the text of functions, with all that they use, for a script that needs nothing of driftnet.

What a maintainer runs has to be what the target ran, so it is the very text of the target's functions. Annotations are
left out. What the functions use of the package they stand in, and of driftnet, is brought along, each statement behind
those that it uses; modules of other packages are imported.
"""

import ast
import contextlib
import copy
import functools
import importlib.util
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import accumulate, pairwise
from types import FunctionType
from typing import Any

ELSEWHERE = frozenset({"__file__", "__package__", "__path__", "__spec__", "globals"})
"""names that mean something else in a script"""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Importing = ast.Import | ast.ImportFrom
Span = tuple[int, int]


class EntangledError(Exception):
    """The text of a function does not stand by itself; the message is a sentence that says why."""


@dataclass(frozen=True, eq=False)
class Module:
    """A module as it is written.

    text    in UTF-8, in which the syntax tree counts columns;   lines  where each of them begins
    body    its statements;   binds  those that make each of its names
    edits   {where: what is to stand there instead}, those of annotations first
    """

    name: str
    package: str
    text: bytes
    lines: list[int]
    body: list[ast.stmt]
    binds: Mapping[str, list[ast.stmt]]
    edits: dict[Span, str] = field(default_factory=dict)

    def span(self, node: Any) -> Span:
        """Where a node begins and ends."""
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def written(self, statement: ast.stmt) -> str:
        """The edited text of a statement, with the comment above and the string below that explain it."""
        line = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ()))) - 1
        while line and self.text[self.lines[line - 1] :].startswith(b"#"):
            line -= 1
        last = statement
        for below in self.body[self.body.index(statement) + 1 :][:1]:
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                last = below
        end = self.lines[last.end_lineno or 0]
        pieces, at = [], self.lines[line]
        for (a, b), new in sorted(self.edits.items()):
            if at <= a and b <= end:
                pieces += [self.text[at:a], new.encode()]
                at = b
        text = b"".join([*pieces, self.text[at:end]]).decode().rstrip()
        return re.sub(r"^(def \w+\()\n +([^\n]*?),?\n\)", r"\1\2)", text, flags=re.MULTILINE)  # it fits on a line now


@dataclass(eq=False)
class Script:
    """What was collected so far.

    distribution  that of the target: its package is imported, not brought along
    given    {name that is made otherwise: the module that uses it}
    imports  statements;   parts  the texts of others, each behind those that it uses
    """

    distribution: str
    given: Mapping[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    parts: list[str] = field(default_factory=list)
    _tops: set[str] = field(default_factory=lambda: {"driftnet"})
    _modules: dict[str, Module] = field(default_factory=dict)
    _placed: set[ast.stmt] = field(default_factory=set)
    _makers: dict[str, str] = field(default_factory=dict)

    def add(self, function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> str:
        """Bring `function`, and say what it is called. options: what it is given last, wherever it is called.

        Raises EntangledError where its text does not stand by itself.
        """
        name = getattr(function, "__name__", "")
        if not isinstance(function, FunctionType) or vars(sys.modules[function.__module__]).get(name) is not function:
            made = getattr(function, "__qualname__", repr(function))
            raise EntangledError(f"{made} is made while its module runs: its text alone does not say what it does")
        self._tops.add(function.__module__.partition(".")[0])
        module = self._module(function.__module__)
        for statement in [*module.binds[name]]:
            if isinstance(statement, ast.FunctionDef) and options is not None:
                _cut(module, statement, options)
        self._bring(module, name)
        return name

    def _module(self, name: str) -> Module:
        if name not in self._modules:
            if (found := _found(name)) is None:
                raise EntangledError(f"the source of {name} is not there")
            read = _read(name, *found)
            binds = {bound: [*statements] for bound, statements in read.binds.items()}
            self._modules[name] = replace(read, body=[*read.body], binds=binds, edits={**read.edits})
        return self._modules[name]

    def _bring(self, module: Module, name: str) -> None:
        """See to it that `name` of `module` is in the script."""
        if name in ELSEWHERE:
            raise EntangledError(f"{module.name} uses {name}, which is something else in a script")
        for statement in module.binds.get(name, ()) if self.given.get(name) != module.name else ():
            if isinstance(statement, Importing):
                self.imports.add(line := ast.unparse(_alone(statement, name)))
                self._make(name, line)
            elif statement not in self._placed:
                self._placed.add(statement)
                self._follow(module, statement)
                self.parts.append(module.written(statement))
                for bound in sorted(_bound(statement)):
                    self._make(bound, module.name)
                    self._bring(module, bound)  # what else makes it

    def _make(self, name: str, maker: str) -> None:
        other = self.given.get(name) or self._makers.setdefault(name, maker)
        if other != maker:
            raise EntangledError(f"{name} is one thing in {maker} and another in {other}")

    def _follow(self, module: Module, statement: ast.stmt) -> None:
        """Bring all that a statement uses, and let it say what that is called in the script."""
        nodes = _nodes(statement)
        inside = {name: node for node in nodes if isinstance(node, Importing) for name in _bound(node)}
        holders = {id(node.value): node for node in nodes if isinstance(node, ast.Attribute)}
        made, own = _bound(statement), {node.arg for node in nodes if isinstance(node, ast.arg)} | _stored(nodes)
        for name, importing in inside.items():
            if self._is_ours(_meant(module, importing, name)[0]):
                module.edits[module.span(importing)] = "pass"
        for node in nodes:
            if not isinstance(node, ast.Name) or node.id in made:
                continue
            source = inside.get(node.id) or next(iter(module.binds.get(node.id, ())), None)
            where, what = _meant(module, source, node.id) if isinstance(source, Importing) else ("", "")
            if not self._is_ours(where):
                if node.id not in inside:
                    self._bring(module, node.id)
                continue
            if what and _found(f"{where}.{what}"):
                where, what = f"{where}.{what}", ""
            named = node if what else holders.get(id(node))
            meant = what or getattr(named, "attr", "")
            if meant not in self._module(where).binds or (meant != node.id and meant in own):
                raise EntangledError(f"what {module.name} takes from {where} cannot be told by its name")
            self._bring(self._module(where), meant)
            module.edits[module.span(named)] = meant

    def _is_ours(self, module: str) -> bool:
        """Whether whoever has the system has not this module, so that its text has to be brought along."""
        top = module.partition(".")[0]
        if not top or top in sys.stdlib_module_names:
            return False
        holders = {name.lower() for name in _holders().get(top, ())}
        if top not in self._tops:
            return not holders and _found(module) is not None
        return self.distribution.lower() not in holders or b"driftnet" in self._module(module).text


@functools.cache  # 0.4 s
def _holders() -> Mapping[str, Sequence[str]]:
    """The distributions that hold each top-level package."""
    return metadata.packages_distributions()


def joined(parts: Sequence[str]) -> str:
    """The text of parts, definitions two lines apart from their neighbours."""
    apart = [part.startswith(("def ", "class ", "@", "async ", "#")) for part in parts]
    gaps = ["\n\n\n" if a or b else "\n" for a, b in pairwise(apart)]
    return "".join(part + gap for part, gap in zip(parts, [*gaps, "\n"]))


@functools.lru_cache(maxsize=128)  # a third of what a new finding cost a campaign's own process went into reading again
def _read(name: str, source: str, package: str) -> Module:
    text, body = source.encode(), ast.parse(source).body
    binds: dict[str, list[ast.stmt]] = {}
    lines = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    module = Module(name, package, text, lines, body, binds)
    nodes = [node for statement in body for node in ast.walk(statement)]
    fields = {id(field) for node in nodes if isinstance(node, ast.ClassDef) for field in node.body}
    for node in nodes:
        if id(node) not in fields:
            _unannotate(module, node)
    for statement in body:  # once what they hold is settled: `_nodes` looks but once
        for bound in _bound(statement):
            binds.setdefault(bound, []).append(statement)
    return module


def _found(name: str) -> tuple[str, str] | None:
    """(the text of a module, the package that it is in); None where it has no text or is not there."""
    with contextlib.suppress(ModuleNotFoundError):  # what stands before a dot is no package, or not there
        spec = importlib.util.find_spec(name)
        if spec and (spec.origin or "").endswith(".py"):
            with tokenize.open(spec.origin or "") as file:
                return file.read(), spec.parent or ""
    return None


def _unannotate(module: Module, node: ast.AST) -> None:
    """Take the annotation of a node out of the tree and, by an edit, out of the text."""
    if isinstance(node, ast.arg) and node.annotation:
        module.edits[module.span(node)[0] + len(node.arg.encode()), module.span(node)[1]] = ""
        node.annotation = None
    elif isinstance(node, ast.AnnAssign) and node.value:
        module.edits[module.span(node.target)[1], module.span(node.annotation)[1]] = ""
        node.annotation = ast.Constant(None)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
        begin, end = module.span(node.returns)
        module.edits[len(module.text[:begin].rpartition(b"->")[0].rstrip()), end] = ""
        node.returns = None


def _cut(module: Module, function: ast.FunctionDef, options: Mapping[str, Any]) -> None:
    """Leave out what stands behind a return that these options always take."""
    for k, statement in enumerate(function.body[:-1]):
        leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return | ast.Raise)
        if isinstance(statement, ast.If) and leaves and _holds(ast.unparse(statement.test), function, options):
            rest = module.span(statement)[1], module.span(function)[1]
            module.edits[rest] = "\n    # what follows is for other options"
            shorter = copy.copy(function)
            shorter.body = function.body[: k + 1]
            for statements in (module.body, module.binds[function.name]):
                statements[statements.index(function)] = shorter
            return


def _holds(test: str, function: ast.FunctionDef, options: Mapping[str, Any]) -> bool:
    """Whether a test of the last parameter is one that obviously holds."""
    parameter = function.args.args[-1].arg if function.args.args else ""
    asked = re.fullmatch(rf"(not )?{parameter}\['(\w+)'\](?: (==|!=) (.+))?", test)
    if not asked or asked[2] not in options:
        return False
    value = options[asked[2]]
    return bool((repr(value) == asked[4]) == (asked[3] == "==") if asked[3] else value) != bool(asked[1])


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement makes, or whose object it changes."""
    if isinstance(statement, Definition):
        return {statement.name}
    if isinstance(statement, Importing):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    nodes = _nodes(statement)
    changed = [n.value for n in nodes if isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store)]
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        changed += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    inner = {name for node in nodes if isinstance(node, Definition | Importing) for name in _bound(node)}
    passing = {name for node in nodes if isinstance(node, ast.comprehension) for name in _stored(ast.walk(node.target))}
    return (_stored(nodes) | inner | {node.id for node in changed if isinstance(node, ast.Name)}) - passing


@functools.lru_cache(maxsize=4096)  # every script asks, of statements of modules that `_read` keeps
def _nodes(statement: ast.stmt) -> Sequence[ast.AST]:
    return tuple(ast.walk(statement))


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _meant(module: Module, source: Importing, name: str) -> tuple[str, str]:
    """(the module, what of it) that an importing statement calls `name`; "" for the module itself."""
    (alias,) = _alone(source, name).names
    if isinstance(source, ast.Import):
        return alias.name if alias.asname else name, ""
    return importlib.util.resolve_name("." * source.level + (source.module or ""), module.package), alias.name


def _alone(source: Importing, name: str) -> Importing:
    """An importing statement with only the name in question."""
    names = [alias for alias in source.names if (alias.asname or alias.name.partition(".")[0]) == name]
    return ast.Import(names) if isinstance(source, ast.Import) else ast.ImportFrom(source.module, names, source.level)
