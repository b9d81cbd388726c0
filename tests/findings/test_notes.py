"""What is said of a finding by hand, and what was learned of it, are both true of its case: so neither contradicts the
other."""

import re

import onnx
import pytest
from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.learning.experiment import computed
from driftnet.model.inspect import all_nodes
from driftnet.targets.environments import declared

from tests.support.paths import CORPUS

OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas()}
SPATIAL = 2  # axes before those of the image: a 3-D Conv reads tensors of rank 5
WITHOUT = re.compile(r"without (?:the )?(\w+)(?: attribute)?")


@pytest.fixture(scope="module")
def saved() -> list[SavedCase]:
    return corpus.load_all(CORPUS)


def test_a_case_meets_the_trigger_that_is_stated_of_it(saved, runner):
    missed, met = [], {}
    for one in filter(lambda one: one.cause, saved):
        own, whole = one.cause.of_case(one.id), one.cause
        host = host_of(one.case, computed(one.case, runner.reference))
        options = recipe_facts(declared(one.target), one.recipe)
        if own.trigger and not own.trigger.matches(host, options):
            missed.append(f"{one.id}: {own.sentence}")
        if whole.trigger:
            met[whole.id] = met.get(whole.id, False) or bool(whole.trigger.matches(host, options))
    assert not missed, "these say when they fail, and do not meet it themselves:\n" + "\n".join(missed)
    assert all(met.values()), f"no case of these causes meets what they state: {[id for id in met if not met[id]]}"


def test_a_condition_that_is_stated_tells_more_than_a_coin_would(saved):
    causes = {one.cause.id: one.cause for one in saved if one.cause and one.cause.trigger}
    counted = {id: cause.score for id, cause in causes.items() if cause.score.get("instances", 0) > 4}
    assert len(counted) > len(causes) / 2, f"of {len(counted)} of {len(causes)} causes instances were counted"
    poor = {id: score["accuracy"] for id, score in counted.items() if score["accuracy"] <= 0.5}
    assert not poor, f"learn these again, or state no trigger of them: {poor}"


def test_a_note_speaks_of_its_case(saved):
    told = {one.id: list(_untrue(one)) for one in saved if one.note}
    assert len(told) > len(saved) / 2, f"{len(told)} of {len(saved)} cases have a note, should be most"
    wrong = [f"{id}: {', '.join(said)}" for id, said in told.items() if said]
    assert not wrong, "notes that say what their case has not:\n" + "\n".join(wrong)


def _untrue(one: SavedCase):
    """What a note says of a model that is not so of its case; behind a colon it tells what the target makes of it."""
    nodes = list(all_nodes(one.case.proto.graph))
    there = {node.op_type for node in nodes}
    named = OPERATORS.intersection(re.findall(r"\b[A-Z]\w+\b", one.note.partition(":")[0]))
    if named and not named & there:
        yield f"{' '.join(sorted(named))}, the case has {' '.join(sorted(there))}"
    ranks = {len(shape) for shape in _shapes(one)}
    for digit, op in re.findall(r"(\d)-D ([A-Z]\w+)", one.note):
        if op in there and not {int(digit), int(digit) + SPATIAL} & ranks:
            yield f"{digit}-D {op}, the case has ranks {sorted(ranks)}"
    for name in WITHOUT.findall(one.note):
        known = [node for node in nodes if onnx.defs.has(node.op_type, node.domain)]
        have = [node for node in known if name in onnx.defs.get_schema(node.op_type, node.domain).attributes]
        if have and all(any(a.name == name for a in node.attribute) for node in have):
            yield f"without {name}, which all nodes of the case state"


def _shapes(one: SavedCase):
    for feed in (*one.case.feeds, *one.expected):
        yield from (x.shape for x in feed.values() if hasattr(x, "shape"))
    model = onnx.shape_inference.infer_shapes(one.case.proto)
    yield from (tuple(x.dims) for x in model.graph.initializer)
    for value in model.graph.value_info:
        yield tuple(value.type.tensor_type.shape.dim)
