"""Names at the boundary: a target sees plain ones, whatever the tensors of a model are called.

Exporters write names like `/stft/Conv_output_0` and `input:0`, which are paths, ports or flags to some system.
What a tensor is called is nobody's fault, and no finding; so odd names are replaced before a model leaves the harness,
and put back in whatever a target answers: outputs, messages, what it tells of an artifact. One that extends another
(`/a` and `/a_scale`) does so still, and what a node is called too: systems make such names themselves, and theirs clash
with the model's own or do not. A model whose weights lie in files beside it is left as it is: it is taken where it
lies.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
import onnx
from driftnet.model.artifact import Artifact
from driftnet.model.inspect import Case, Feed, bodies
from driftnet.model.verdict import Observation

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
REST = re.compile(r"[A-Za-z0-9_.-]*\Z")
STEM = "tensor"


@dataclass(frozen=True, eq=False)
class Names:
    """plain: the plain name of each tensor whose own is odd, and of nothing else; stem: what each begins with."""

    plain: Mapping[str, str] = field(default_factory=dict)
    stem: str = STEM

    def feed(self, given: Feed) -> dict[str, np.ndarray]:
        """Tensors by the names that a target knows."""
        return {self.plain.get(name, name): x for name, x in given.items()}

    def made(self, given: Feed) -> dict[str, np.ndarray]:
        """Tensors by the names that the model gives them."""
        return {self._own.get(name, name): x for name, x in given.items()}

    def observation(self, seen: Observation) -> Observation:
        """What was observed, in the model's own names."""
        if not self.plain:
            return seen
        return replace(
            seen,
            stages=tuple(replace(run, message=self._back(run.message), log=self._back(run.log)) for run in seen.stages),
            outputs=tuple(map(self.made, seen.outputs)),
            artifact=self._artifact(seen.artifact),
            plain=tuple(map(self.made, seen.plain)),
        )

    def model(self, data: bytes) -> bytes:
        """An ONNX model that was made of one with plain names: its tensors, and what is called after them."""
        if not self.plain:
            return data
        model = onnx.ModelProto.FromString(data)
        _rename(model.graph, self._back)
        for node in model.graph.node:
            node.name = self._back(node.name)
        renamed: bytes = model.SerializeToString()
        return renamed

    def _artifact(self, artifact: Artifact) -> Artifact:
        told = {name: self._said(getattr(artifact, name)) for name in artifact.__struct_fields__ if name != "model"}
        return Artifact(**told, model=artifact.model and self.model(artifact.model))

    def _said(self, told: Any) -> Any:
        """Texts in the model's own names, wherever they stand."""
        if isinstance(told, str):
            return self._back(told)
        if isinstance(told, Mapping):
            return {self._said(name): self._said(x) for name, x in told.items()}
        if isinstance(told, (list, tuple)):
            return type(told)(map(self._said, told))
        if isinstance(told, msgspec.Struct):
            fields = {name: self._said(getattr(told, name)) for name in told.__struct_fields__}
            return type(told)(**fields)
        return told

    def _back(self, text: str) -> str:
        """`text` with the model's own names; what a system puts before or behind a name stays."""
        return self._pattern.sub(lambda found: self._own.get(found[0], found[0]), text)

    @cached_property
    def _own(self) -> Mapping[str, str]:
        return {plain: name for name, plain in self.plain.items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{self.stem}\d+_")


@lru_cache(maxsize=1)
def plainly_named(case: Case) -> tuple[Case, Names]:
    """`case` as a target sees it, and the names that were changed."""
    odd = {name for name in _names(case.proto.graph) if name and not PLAIN.fullmatch(name)}
    if not odd or case.file:
        return case, Names()
    model, found = _renamed(case.model)
    feeds, calibration = (tuple(map(found.feed, runs)) for runs in (case.feeds, case.calibration))
    return replace(case, model=model, feeds=feeds, calibration=calibration), found


@lru_cache(maxsize=1)
def _renamed(data: bytes) -> tuple[bytes, Names]:
    """A model with plain names, whatever it is fed, and the names that were changed."""
    model = onnx.ModelProto.FromString(data)
    names = list(dict.fromkeys(_names(model.graph)))
    odd = [name for name in names if name and not PLAIN.fullmatch(name)]
    stem, nodes = STEM, [node.name for node in model.graph.node]
    while any(stem in name for name in (*names, *nodes)):
        stem = f"x{stem}"
    known = frozenset(odd)
    roots = {name: _root(name, known) for name in (*odd, *nodes)}
    numbered = dict.fromkeys(roots[name] for name in odd)
    stems = {root: f"{stem}{k}_" for k, root in enumerate(numbered)}  # the number's end is plain whatever follows
    found = Names({name: stems[roots[name]] + name.removeprefix(roots[name]) for name in odd}, stem)
    _rename(model.graph, lambda name: found.plain.get(name, name))
    for node in model.graph.node:
        node.name = stems.get(roots[node.name], roots[node.name]) + node.name.removeprefix(roots[node.name])
    return model.SerializeToString(), found


def _root(name: str, known: frozenset[str]) -> str:
    """The shortest of the names that are known which `name` extends, by what is plain; itself where it extends none."""
    behind = len(name) - len(REST.search(name)[0])  # type: ignore[index]
    return next((name[:k] for k in range(max(behind, 1), len(name)) if name[:k] in known), name)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of all tensors, those of subgraphs included."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from node.output
        for body in bodies(node):
            yield from _names(body)


def _rename(graph: onnx.GraphProto, new: Callable[[str], str]) -> None:
    """Give every tensor of a graph another name, and every one of its subgraphs."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = new(sparse.values.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = new(annotation.tensor_name)
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = new(entry.value)
    for node in graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
        for body in bodies(node):
            _rename(body, new)
