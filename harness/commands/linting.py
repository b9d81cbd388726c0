"""Lint: which known causes a model meets, by triggers alone."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from driftnet.campaign.refused import Refusals, remembered
from driftnet.causes import record
from driftnet.causes.facts import Facts, Value
from driftnet.causes.host import Host, hosts
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.meeting import Known, as_json, meetings, with_ways_out
from driftnet.causes.predicate import ONE_NODE, Atom, Region, Trigger
from driftnet.causes.record import CauseRecord, Status
from driftnet.causes.words import region_in_words
from driftnet.model.feeds import demand_dims, sized
from driftnet.model.graph import Graph, in_order, unmade
from driftnet.model.inference import InferenceError, inlined
from driftnet.model.inspect import NOT_REGISTERED, all_nodes, custom_operators
from driftnet.targets import recipe as recipes
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe
from driftnet.util.errors import UserError
from driftnet.util.options import demand_mapping

INLINE = "systems that take no functions want the model inlined: onnx.inliner.inline_local_functions(model)"


def _demand_opset(model: onnx.ModelProto) -> None:
    """Raises UserError (kind "model") for operators of an opset that nobody knows yet: their meaning is unknown."""
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise UserError(
                f"the model is of opset {opset.version}, the newest that onnx {onnx.__version__} knows is {newest}",
                hint="export it for an older opset",
                kind="model",
            )


def _demand_makers(graph: Graph) -> None:
    """Raises UserError (kind "model") for a node that reads what nothing makes: nobody could run that model."""
    if found := unmade(in_order(graph), graph.inputs):
        node, name = found
        raise UserError(
            f"node {node.name or node.outputs[0]!r} ({node.op}) reads {name!r}, which nothing makes",
            hint="the model is not valid ONNX: driftnet check says what onnxruntime makes of it",
            kind="model",
        )


def lint(
    model: Path | str,
    *,
    target: str,
    recipe: Recipe | None = None,
    options: Mapping[str, str] | None = None,
    corpus: Path | str | None = None,
    confirm: bool = False,
    python: str | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Which open causes of `corpus` the nodes of `model` meet on `target`, by the causes' triggers: nothing is run.

    recipe, options   the options that the model is meant for, as one value or as texts
    corpus    None: corpus/, and what came with driftnet
    confirm   run what is met or may be: each place, cut out with recorded operands, in the sandbox. What does not fail
              is left out ("cleared" counts it), "fails" says how one fails otherwise, "not_run" says why a run tells
              nothing, "cure" names options with which it was run and is right, and "advice" is what nobody tried there
    dims      sizes that symbolic dims of its inputs are fed in

    "met" tells one place of a cause after the other, what matters most first; "may" what depends on what a run alone
    could tell; "custom" the nodes whose operator is none of ONNX: a function of the model, which is read inlined, or
    what nobody registered; "refused" the nodes of a form that this release is known to refuse ("when", in words).
    Raises UserError for a model, a target, options or dims that there are not.
    """
    started, model = time.process_time(), Path(model)
    for name, one in (("recipe", recipe), ("options", options)):
        demand_mapping(one, name, '{"quantize": "offline"}')
    demand_mapping(dims, "dims", '{"batch": 1}')
    misdeclared: list[str] = []
    proto = read_model(model, misdeclared.append)
    _demand_opset(proto)
    demand_dims(proto, dims or {})
    custom = list(_custom(proto))
    with contextlib.suppress(InferenceError):  # what cannot be inlined is read as it is
        proto = inlined(proto)
    installed = resolve(target, python=python)
    parsed = recipes.parsed(installed.target, options or {})
    chosen = recipes.validated(installed.target, {**(recipe or {}), **parsed})
    known = causes_of(_known(corpus), installed.target)
    graphs, count = list(hosts(proto, _sized(proto, dims or {}))), len({one.record.id for one in known})
    _demand_makers(graphs[0].graph)
    known = reached(known, installed.target, chosen)
    found = meetings(graphs, known, recipe_facts(installed.target, chosen))
    refusals = remembered(_known(corpus), installed.target.name, installed.release)
    values = partial(_values, installed.target)
    found = with_ways_out(found, known, values, partial(_facts, installed.target, chosen))
    result: dict[str, Any] = {
        "target": installed.target.name,
        "release": installed.release,
        "recipe": dict(chosen),
        "causes": count,
        "misdeclared": misdeclared,
        "custom": custom,
        "refused": list(_refused(graphs[0], refusals)),
    }
    if not confirm:
        found = [meeting for meeting in found if meeting.tells]
    else:
        from driftnet.commands.confirming import confirmed  # the sandbox, the oracle: nothing that a lint needs

        found, cleared = confirmed(proto, model, found, installed, chosen, dims or {}, values)
        result["cleared"] = cleared
    return {
        **result,
        "met": [as_json(m) for m in found if not m.why],
        "may": [as_json(m) for m in found if m.why],
        "seconds": round(time.process_time() - started, 3),
    }


def _sized(model: onnx.ModelProto, dims: Mapping[str, int]) -> Mapping[str, onnx.TypeProto]:
    """The types of its tensors where it is fed such dims."""
    return next(hosts(sized(model, dims))).declared if dims else {}


def _custom(model: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    for node, op in custom_operators(model):
        yield {"node": node, "op_type": op, "function": False, "advice": NOT_REGISTERED}
    functions = {(f.domain, f.name) for f in model.functions}
    for called in all_nodes(model.graph):
        if (called.domain, called.op_type) in functions:
            name = called.name or next(filter(None, called.output), "")
            yield {"node": name, "op_type": f"{called.domain}::{called.op_type}", "function": True, "advice": INLINE}


def _refused(host: Host, refusals: Refusals) -> Iterator[dict[str, Any]]:
    for node, form in refusals.of_nodes(host):
        atoms = [Atom("0.op", "is", node.op)]
        if len(form) == 3:
            name, value = str(form[1]), form[2]
            pairs = zip(("in.0.dtype", name), value) if isinstance(value, tuple) else [(name, value)]
            atoms += [Atom(f"0.{fact}", "is", one) for fact, one in pairs]
        inside = "" if form[0] == node.op else f" with {form[0]} in it"
        when = region_in_words(Region(tuple(atoms)), ONE_NODE) + inside
        yield {"node": node.name or node.outputs[0], "op_type": node.op, "when": when}


def _values(target: Target, option: str) -> Sequence[Value]:
    return next((one.values for one in target.options if one.name == option), ())


def _facts(target: Target, chosen: Recipe, option: str, value: Value) -> Facts:
    return recipe_facts(target, recipes.canonical(target, {**chosen, option: value}))


def lint_status(result: Mapping[str, Any]) -> int:
    """The exit status of `lint`: 1 where a cause is met, or a place that was run fails otherwise than the cause that it
    may meet, or an operator is refused, or one that nobody registered."""
    failing = result["met"] or any("fails" in one for one in result["may"])
    return 1 if failing or result["refused"] or any(not one["function"] for one in result["custom"]) else 0


def read_model(path: Path, tell: Callable[[str], None]) -> onnx.ModelProto:
    """The model in `path`; `tell` hears what it declares wrongly. Raises UserError (kind "model")."""
    from driftnet.findings.corpus import read_given

    return read_given(path, entire=False, tell=tell)


def _known(folder: Path | str | None) -> tuple[Path, ...]:
    from driftnet.findings.corpus import OWN, known

    return known(Path(folder or OWN))


def causes_of(roots: Sequence[Path], target: Target) -> list[Known]:
    """The causes of `target` below `roots` that may still be met: those that are open or flaky and have a trigger."""
    found: list[Known] = []
    for cause in record.below(*roots, target=target.name):
        if cause.path and cause.status in (Status.OPEN, Status.FLAKY):
            found += _findings(cause, cause.path, target)
    return found


def reached(known: Sequence[Known], target: Target, chosen: Recipe) -> list[Known]:
    """Those of `known` whose stage is run: where nothing is quantized, nothing fails in quantizing."""
    is_quantized = target.scheme(recipes.effective(target, chosen)) is not None
    return [one for one in known if is_quantized or one.stage != "quantize"]


def _findings(cause: CauseRecord, folder: Path, target: Target) -> Iterator[Known]:
    """The cause as each of its findings shows it; those that are not kept count as seen with the first one's recipe."""
    kept = {path.parent.name: path for path in sorted(folder.glob("*/case.json"))}
    told = set[Trigger]()
    for id, own in cause.each.items():
        if own.trigger and own.trigger not in told:
            told.add(own.trigger)
            path = kept.get(id) or next(iter(kept.values()), None)
            seen = dict(json.loads(path.read_text(encoding="utf-8"))) if path else {}
            yield Known(own, recipe_facts(target, seen.get("recipe", {})), seen.get("coarse", ""))
