"""Windows cover a model, stay small, are legal models of their own, and cut nothing that belongs together."""

from functools import cache

import numpy as np
import pytest
from driftnet.model.inspect import has_any
from driftnet.model.operators import Trait
from driftnet.model.submodel import recording, submodel
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.model.windows import LAYERS, NODES, live_nodes, nodes_of, seams, split, survey
from onnx import helper

from tests.support import production
from tests.support import reduction as tools

AGREES, ABSTAINS = Verdict(Word.AGREES), Verdict(Word.ABSTAINS)


@cache
def cut(name):
    """(case, recording, windows) of a model of tests.support.production."""
    case = production.SMALL[name.removesuffix(" in QDQ")]()
    case = production.quantized(case) if name.endswith(" in QDQ") else case
    recorded = recording(case, tools.record)
    return case, recorded, split(case, recorded)


NAMES = (*production.SMALL, "mobilenet_v2 in QDQ")
every_model = pytest.mark.parametrize("name", NAMES)


@every_model
def test_every_live_node_is_in_a_window(name):
    case, _, windows = cut(name)
    covered = {node for window in windows for node in nodes_of(window)}
    assert covered == set(live_nodes(case)), "every node that an output depends on is judged in some window"


@every_model
def test_windows_are_shallow(name):
    case, recorded, windows = cut(name)
    for window in windows:
        nodes = [case.proto.graph.node[i] for i in nodes_of(window)]
        computing = [n for n in nodes if n.op_type != "DequantizeLinear"]
        assert sum(recorded.feeds[0][n.output[0]].dtype.kind == "f" for n in computing) <= NODES
        assert sum(has_any(n, Trait.CONTRACTS | Trait.HAS_BODY) for n in nodes) <= LAYERS


def test_windows_hold_few_elements_or_one_unit(monkeypatch):
    case, recorded, windows = cut("unet")
    most = 2**12
    monkeypatch.setattr("driftnet.model.windows.ELEMENTS", most)
    smaller = split(case, recorded)
    made = {w: sum(recorded.feeds[0][case.proto.graph.node[i].output[0]].size for i in nodes_of(w)) for w in smaller}
    large = {window: size for window, size in made.items() if len(window) > 1 and size > most}
    assert not large, f"of more than {most} elements are {large}"
    assert {node for window in smaller for node in nodes_of(window)} == set(live_nodes(case))
    assert len(smaller) > len(windows)


@pytest.mark.parametrize("name", ["unet", "speech_enhancer", "mobilenet_v2 in QDQ"])
def test_a_window_computes_what_was_recorded(name):
    case, recorded, windows = cut(name)
    for window in windows[::4]:
        part = submodel(case, nodes_of(window), recorded)
        for output, x in tools.outputs(part)[0].items():
            assert np.array_equal(x, recorded.feeds[0][output]), f"{output} of a window differs from the whole model's"


def test_no_qdq_pair_is_cut():
    case, recorded, windows = cut("mobilenet_v2 in QDQ")
    for window in windows:
        part = submodel(case, nodes_of(window), recorded)
        assert all(x.dtype == np.float32 for x in part.feeds[0].values()), (
            "a window is fed what pairs read, never codes"
        )
        makers = {name for node in part.proto.graph.node for name in node.output}
        read = {n.input[0] for n in part.proto.graph.node if n.op_type == "DequantizeLinear"} - makers
        assert read <= {t.name for t in part.proto.graph.initializer}, "only weights are dequantized without their pair"


def test_what_is_made_of_constants_or_is_a_shape_stays_with_what_reads_it():
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"]),
        *(helper.make_node("Relu", ["x" if i == 0 else f"r{i - 1}"], [f"r{i}"]) for i in range(NODES)),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("MatMul", [f"r{NODES - 1}", "wt"], ["m"]),
        helper.make_node("Reshape", ["m", "to"], ["y"]),
    ]
    x = rng.normal(size=(2, 4)).astype(np.float32)
    constants = {"w": rng.normal(size=(6, 4)).astype(np.float32), "one": np.array([0]), "rest": np.array([3, -1])}
    case = tools.make_case(nodes, {"x": x}, ["y"], constants)
    windows = split(case, recording(case, tools.record))
    operators = [{case.proto.graph.node[i].op_type for i in nodes_of(window)} for window in windows]
    assert {"Transpose", "MatMul"} <= operators[1]
    assert {"Shape", "Gather", "Concat", "Reshape"} <= operators[1]


@every_model
def test_seams_reach_across_every_cut(name):
    case, _, windows = cut(name)
    home = {node: k for k, window in enumerate(windows) for node in nodes_of(window)}
    together = [set(nodes_of(piece)) for piece in (*windows, *seams(case, windows))]
    makers = {output: i for i, node in enumerate(case.proto.graph.node) for output in node.output}
    for node in home:
        for maker in (makers[x] for x in case.proto.graph.node[node].input if makers.get(x) in home):
            assert any({maker, node} <= nodes for nodes in together), "two nodes that meet are run together somewhere"


def test_what_nobody_can_judge_is_halved_down_to_single_units():
    case, recorded, _ = cut("mobilenet_v2")
    unable = {i for i in live_nodes(case) if case.proto.graph.node[i].op_type == "Gemm"}

    def look(part):
        return ABSTAINS if any(node.op_type == "Gemm" for node in part.proto.graph.node) else AGREES

    judged = list(survey(case, recorded, look, lambda verdict: False))
    affirmed = {node for one in judged if one.verdict.word is Word.AGREES for node in one.nodes}
    assert set(live_nodes(case)) - affirmed == unable
    assert len(judged) < 1.2 * len(live_nodes(case))


def test_a_window_that_agrees_within_a_bound_that_allows_anything_is_halved_until_its_parts_do_not():
    case, recorded, windows = cut("mobilenet_v2")

    def look(part):
        return Verdict(Word.AGREES, Tier.RUNNING_ERROR, loose=len(part.proto.graph.node) > 2)

    judged = list(survey(case, recorded, look, lambda verdict: False, windows))
    loose = [one for one in judged if one.loose]
    affirmed = {node for one in judged if not one.loose for node in one.nodes}
    assert loose, "the windows of several nodes are loose"
    assert len(judged) > len(windows), f"{len(judged)} windows are judged, should be more than {len(windows)}: halves"
    assert affirmed == set(live_nodes(case)), "each node is judged within a bound that is narrow enough at last"


def test_a_single_node_is_judged_within_whatever_its_bound_is():
    case, recorded, windows = cut("mobilenet_v2")

    def look(part):
        return Verdict(Word.AGREES, Tier.RUNNING_ERROR, loose=len(part.proto.graph.node) == 1)

    judged = list(survey(case, recorded, look, lambda verdict: False, windows))
    assert len(judged) == len(windows), f"{len(judged)} windows are judged, should be {len(windows)}, none halved"


def test_nothing_is_halved_once_something_is_wrong():
    case, recorded, windows = cut("mobilenet_v2")
    wrong = Verdict(Word.DIVERGES, kind=Kind.WRONG_VALUES)
    judged = list(survey(case, recorded, lambda part: wrong, lambda verdict: verdict.failed))
    assert len(judged) == len({*windows, *seams(case, windows)})
