"""Lint names the nodes that meet a known cause, says what may be met apart from it, and reads each node once."""

import dataclasses
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from driftnet import api
from driftnet.causes import meeting, record
from driftnet.causes.predicate import trigger_of
from driftnet.causes.record import CauseRecord, Severity, Status
from driftnet.cli import main
from driftnet.cli.report import tables
from driftnet.commands import confirming, linting
from driftnet.findings import corpus
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from onnx import TensorProto, helper, load, numpy_helper, save
from rich.console import Console

IMAGE = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
ANY = helper.make_empty_tensor_value_info
SURE = {"instances": 40.0, "right": 40.0, "failing": 20.0, "found": 20.0, "named": 20.0}
HALF = SURE | {"found": 10.0}
POOL = [{"fact": "0.op", "is": "MaxPool"}, {"fact": "0.attr.strides.stated", "is": False}]


def cause(id, *atoms, severity=Severity.CRASH, score=SURE, target="mnn", **said):
    """A cause whose trigger is one region of one node."""
    trigger = trigger_of({"roles": 1, "edges": [], "shared": [], "regions": [list(atoms)]})
    return CauseRecord(id, target, f"title of {id}", severity, trigger, score, **said)


@pytest.fixture
def lint(tmp_path):
    """A function that lints nodes from x to y against causes."""

    def linted(nodes, *causes, inputs=(IMAGE,), constants=(), domains=(), functions=(), opset=17, **given):
        for one in causes:
            folder = tmp_path / "corpus" / one.target / one.id
            folder.mkdir(parents=True)
            record.save(one, folder)
        path = tmp_path / "model.onnx"
        held = [numpy_helper.from_array(value, name) for name, value in dict(constants).items()]
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        graph = helper.make_graph(list(nodes), "g", list(inputs), [ANY("y")], held)
        save(helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8), path)
        return api.lint(path, **{"target": "mnn", "corpus": tmp_path / "corpus"} | given)

    return linted


def pools(*names, **attributes):
    """MaxPool nodes one after the other."""
    tensors = ["x", *(f"t{k}" for k in range(len(names) - 1)), "y"]
    return [
        helper.make_node("MaxPool", [a], [b], name=name, kernel_shape=[1, 1], **attributes)
        for name, a, b in zip(names, tensors, tensors[1:])
    ]


def test_a_row_speaks_of_the_place_that_is_met_and_not_of_where_the_cause_was_learned(lint):
    either = [{"fact": "0.op", "in": ["AveragePool", "MaxPool"]}, POOL[1]]
    learned = cause("pool_aaaaaaaa", *either)
    made = dataclasses.replace(
        learned, id="pool_bbbbbbbb", title="AveragePool dtype = float16: SIGSEGV when converting"
    )
    result = lint(pools("pool"), learned, made)
    assert {(m["title"], m["when"]) for m in result["met"]} == {
        ("title of pool_aaaaaaaa", "MaxPool without `strides`"),
        ("MaxPool without `strides`: SIGSEGV when converting", "MaxPool without `strides`"),
    }


def test_a_node_that_meets_a_trigger_is_named_with_what_to_do_instead(lint):
    url = "https://example.org/1"
    result = lint(pools("pool"), cause("pool_aaaaaaaa", *POOL, upstream=url, remedy={"optimize_level": 0}))
    (met,) = result["met"]
    want = {"cause": "pool_aaaaaaaa", "node": "pool", "op_type": "MaxPool", "severity": "crash", "upstream": url}
    assert {key: met[key] for key in want} == want
    assert met["advice"] == "option optimize_level=0; or with `strides` stated"
    assert api.lint_status(result) == 1


def test_no_option_is_advised_under_which_the_node_meets_another_cause(lint):
    """Nor one under which it would by a trigger that errs, where another ends it too."""
    offline = {"options": {"quantize": "offline"}}
    by = [{"fact": "recipe.method", "is": method} for method in ("KL", "EMA", "ADMM")]
    tried = ("recipe.quantize",)
    kl = cause("pool_aaaaaaaa", *POOL, by[0], tried=tried)
    (alone,) = lint(pools("pool"), kl, **offline)["met"]
    assert alone["advice"] == "under method other than KL; or with `strides` stated"
    (beside,) = lint(pools("pool"), cause("pool_bbbbbbbb", *POOL, by[1], score=HALF, tried=tried), **offline)["met"]
    assert beside["advice"] == "under method=ADMM; or with `strides` stated"
    (between,) = lint(pools("pool"), cause("pool_cccccccc", *POOL, by[2], tried=tried), **offline)["met"]
    assert between["advice"] == "with `strides` stated"


def test_an_option_that_the_failure_needed_is_advised_first_though_the_trigger_does_not_ask_for_it(lint):
    """Of several other values nobody knows which one mends it."""
    seen = cause("pool_aaaaaaaa", *POOL, needed=("recipe.optimize_level", "recipe.origin_rnn"))
    (met,) = lint(pools("pool"), seen)["met"]
    assert met["advice"] == "under origin_rnn=True; or with `strides` stated"
    worse = cause("pool_bbbbbbbb", *POOL, {"fact": "recipe.origin_rnn", "is": True}, tried=("recipe.origin_rnn",))
    assert lint(pools("pool"), worse)["met"][0]["advice"] == "with `strides` stated"


def test_what_fails_in_quantizing_is_not_met_where_nothing_is_quantized(lint, monkeypatch):
    quantizing = meeting.Known(cause("pool_aaaaaaaa", *POOL), {}, "mnn/quantize/crash")
    monkeypatch.setattr(linting, "causes_of", lambda corpus, target: [quantizing])
    assert lint(pools("pool"))["met"] == []
    assert [m["cause"] for m in lint(pools("pool"), options={"quantize": "offline"})["met"]] == ["pool_aaaaaaaa"]


def test_a_failure_in_a_later_stage_shows_that_the_one_before_has_passed():
    said = ("mnn/execute/wrong-values", "mnn/quantize/crash", "mnn/convert/error/at node", "")
    assert [confirming._passed(one, "mnn/quantize/crash") for one in said[:3]] == [True, False, False]


def test_a_place_that_came_to_wrong_values_did_not_end_in_an_error():
    known = ("mnn/execute/error/broad cast error", "mnn/execute/SIGSEGV", "mnn/execute/nan", "")
    assert [confirming._passed("mnn/execute/wrong-values", one) for one in known] == [True, True, False, False]


def test_a_node_outside_of_the_trigger_is_not_named(lint):
    result = lint(pools("pool", strides=[1, 1]), cause("pool_aaaaaaaa", *POOL))
    assert (result["met"], result["may"], api.lint_status(result)) == ([], [], 0)


def test_what_depends_on_what_is_fed_may_be_met_and_is_told_apart(lint):
    negative = cause("relu_aaaaaaaa", {"fact": "0.op", "is": "Relu"}, {"fact": "0.in.0.negative", "is": True})
    result = lint([helper.make_node("Relu", ["x"], ["y"])], negative)
    assert [m["why"] for m in result["may"]] == ["it depends on: operand 0 with negative numbers"]
    assert (result["met"], api.lint_status(result)) == ([], 0)


def test_what_depends_on_all_that_a_trigger_asks_for_is_not_told_twice(lint):
    """And of the operators that a trigger may be about, the one that is there is named."""
    either = {"fact": "0.op", "in": ["Relu", "Sigmoid"]}
    asked = [{"fact": "0.in.0.whole", "is": True}, {"fact": "0.in.0.magnitude", "least": 33.0}]
    result = lint([helper.make_node("Relu", ["x"], ["y"])], cause("relu_aaaaaaaa", either, *asked))
    said = "Relu operand 0 of whole numbers, magnitude of operand 0 at least 33"
    assert [(m["when"], m["why"]) for m in result["may"]] == [(said, "it depends on all of that")]


def test_what_acts_on_negative_numbers_alone_is_expected_to_be_fed_some(lint):
    negative = cause("slopes_aaaaaaaa", {"fact": "0.op", "is": "LeakyRelu"}, {"fact": "0.in.0.negative", "is": True})
    assert [m["op_type"] for m in lint([helper.make_node("LeakyRelu", ["x"], ["y"])], negative)["met"]] == ["LeakyRelu"]


@pytest.mark.parametrize(
    ("codes", "met"), [(TensorProto.FLOAT8E4M3FN, True), (TensorProto.FLOAT8E5M2, True), (TensorProto.INT8, False)]
)
def test_weights_of_float8_alone_are_said_to_fail_in_a_conv(tmp_path, codes, met):
    """A saved trigger once named weights of any type that a model in QDQ's form has."""
    held = [helper.make_tensor("w", codes, [2, 3, 1, 1], [1] * 6), helper.make_tensor("s", TensorProto.FLOAT, [], [1])]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["floats"]),
        helper.make_node("Conv", ["x", "floats"], ["made"]),
        helper.make_node("Relu", ["made"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [IMAGE], [ANY("y")], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "model.onnx")
    found = api.lint(tmp_path / "model.onnx", target="onnxruntime-quant")["met"]
    assert any(m["cause"].endswith("82307bc4") for m in found) == met


def test_what_is_fed_is_expected_to_hold_different_numbers(lint):
    relu = {"fact": "0.op", "is": "Relu"}
    usual = cause("relu_aaaaaaaa", relu, {"fact": "0.in.0.same", "is": False})
    flat = cause("relu_bbbbbbbb", relu, {"fact": "0.in.0.zeros", "is": True})
    result = lint([helper.make_node("Relu", ["x"], ["y"])], usual, flat)
    assert [m["cause"] for m in result["met"]] == ["relu_aaaaaaaa"]
    assert [m["why"] for m in result["may"]] == ["it depends on: operand 0 all zeros"]


@pytest.mark.parametrize("fact", ["0.in.0.dim.0", "0.out.0.elements"])
def test_a_size_that_is_unknown_is_expected_to_be_other_than_one(lint, fact):
    relu, rows = {"fact": "0.op", "is": "Relu"}, {"fact": fact}
    conditions = {"one": rows | {"is": 1}, "some": rows | {"least": 2}, "many": rows | {"least": 3}}
    known = [cause(f"{name}_aaaaaaaa", relu, condition) for name, condition in conditions.items()]
    symbolic = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    result = lint([helper.make_node("Relu", ["x"], ["y"])], *known, inputs=[symbolic])
    assert [m["cause"] for m in result["met"]] == ["some_aaaaaaaa"]
    assert {m["cause"] for m in result["may"]} == {"one_aaaaaaaa", "many_aaaaaaaa"}


SIZE, MAGNITUDE = "0.in.0.dim.0", "0.out.0.magnitude"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("op", "fact", "asked", "where"),
    [
        ("Relu", SIZE, ({"least": 2}, {"not": 1}), "met"),
        ("Relu", SIZE, ({"least": 2}, {"most": 8}), "may"),
        ("Relu", SIZE, ({"not": 1}, {"most": 2}), "may"),
        ("Relu", SIZE, ({"not": 1}, {"in": [1, 2]}), "may"),
        ("Relu", SIZE, ({"not": 1}, {"not": 8}), "may"),
        ("Relu", MAGNITUDE, ({"least": 1}, {"most": 1}), "may"),
        ("Relu", "0.in.0.magnitude", ({"least": 0.25},), "met"),
        ("Relu", "0.in.0.magnitude", ({"least": 3},), "may"),
        ("Relu", "0.in.0.smallest", ({"most": 5},), "met"),
        ("Relu", MAGNITUDE, ({"least": 1},), "met"),
        ("Sigmoid", MAGNITUDE, ({"least": 1},), "may"),
        ("Tanh", MAGNITUDE, ({"least": 1},), "may"),
    ],
)
def test_what_is_expected_of_a_number_meets_every_condition_in_whatever_order(lint, op, fact, asked, where, order):
    """Of a batch of which nobody knows anything it was said that it is met where it is 2."""
    known = cause("one_aaaaaaaa", {"fact": "0.op", "is": op}, *({"fact": fact} | one for one in asked[::order]))
    symbolic = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    result = lint([helper.make_node(op, ["x"], ["y"])], known, inputs=[symbolic])
    told = next((key for key in ("met", "may") if result[key]), "nothing")
    assert told == where, f"{op} with {fact} {asked[::order]} is {told}, should be {where}"


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (
            cause("a_aaaaaaaa", *POOL, score=SURE | {"found": 10.0}),
            "10 of 20 instances that the trigger named did not fail",
        ),
        (cause("a_aaaaaaaa", POOL[1] | {"fact": "0.attr.strides.stated"}), "the trigger names no operator"),
        (
            cause("a_aaaaaaaa", *POOL, score=SURE | {"failing": 2.0, "found": 2.0, "named": 2.0}),
            "the trigger was measured on 2 that it names only",
        ),
    ],
)
def test_a_trigger_that_is_known_to_err_is_not_taken_at_its_word(lint, known, why):
    result = lint(pools("pool"), known)
    assert ([m["why"] for m in result["may"]], result["met"]) == ([why], [])


def test_the_worst_and_commonest_comes_first(lint):
    result = lint(
        pools("a", "b"),
        cause("rare_aaaaaaaa", *POOL, severity=Severity.WRONG, impact={"exposure": 0.01}),
        cause("nobody_aaaaaaaa", *POOL, severity=Severity.WRONG, impact={"exposure": 0.0, "artificial": True}),
        cause("common_aaaaaaaa", *POOL, severity=Severity.WRONG, impact={"exposure": 0.5}),
    )
    got = [(m["cause"].partition("_")[0], m["node"]) for m in result["met"]]
    assert got == [(c, n) for c in ("common", "rare", "nobody") for n in ("a", "b")]


def test_causes_of_other_targets_and_those_that_are_fixed_are_not_met(lint):
    fixed = cause("pool_aaaaaaaa", *POOL, status=Status.FIXED)
    assert lint(pools("pool"), fixed, cause("pool_bbbbbbbb", *POOL, target="onnxruntime-quant"))["causes"] == 0


def test_nodes_inside_of_subgraphs_are_named(lint):
    (pool,) = pools("inside")
    branch = helper.make_graph([pool], "b", [], [ANY("y")])
    node = helper.make_node("If", ["c"], ["y"], name="outside", then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    result = lint([node], cause("pool_aaaaaaaa", *POOL), inputs=[IMAGE, condition])
    assert {m["node"] for m in result["met"]} == {"inside"}


def test_dims_of_minus_one_as_paddle_declares_them_are_unknown(lint):
    add = helper.make_node("Add", ["x", "z"], ["y"], name="add")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [-1, 3]) for name in "xz"]
    result = lint([add], cause("add_aaaaaaaa", {"fact": "0.op", "is": "Add"}), inputs=inputs)
    assert [m["node"] for m in result["met"]] == ["add"]


def test_options_under_which_a_cause_was_never_seen_make_it_doubtful(lint):
    quantized = cause("pool_aaaaaaaa", *POOL, {"fact": "recipe.quantize", "is": "offline"})
    assert lint(pools("pool"), quantized)["met"] == []
    assert len(lint(pools("pool"), options={"quantize": "offline"})["met"]) == 1


def test_confirming_runs_the_doubtful_places(lint):
    relu = {"fact": "0.op", "is": "Relu"}
    doubtful = cause("relu_aaaaaaaa", relu, {"fact": "0.in.0.negative", "is": True})
    result = lint([helper.make_node("Relu", ["x"], ["y"])], doubtful, confirm=True)
    assert (result["cleared"], result["met"], result["may"]) == (1, [], [])


@pytest.mark.parametrize(("least", "cleared"), [(3, 1), (300, 0)])
def test_what_made_up_numbers_do_not_come_to_is_not_confirmed_away(lint, least, cleared):
    """Of numbers up to 8 some are 3 or more, none is 300."""
    asked = {"fact": "0.in.0.magnitude", "least": least}
    result = lint([helper.make_node("Relu", ["x"], ["y"])], cause("relu_aaaaaaaa", RELU, asked), confirm=True)
    told = [one["not_run"] for one in result["may"]]
    want = (cleared, [] if cleared else [confirming.UNMET])
    assert (result["cleared"], told) == want, f"{result['cleared']} cleared, untold {told}, should be {want}"


def test_a_trigger_that_names_no_operator_nor_asks_but_for_origins_makes_no_row(lint):
    asked = {"fact": "0.in.0.from", "is": "input"}
    result = lint([helper.make_node("Relu", ["x"], ["y"])], cause("any_aaaaaaaa", asked))
    assert (result["met"], result["may"]) == ([], []), f"{result['met']}, {result['may']} say nothing of the node"


def test_confirming_runs_what_is_met_too_and_leaves_out_what_does_not_fail(lint):
    result = lint([helper.make_node("Relu", ["x"], ["y"])], cause("relu_aaaaaaaa", RELU), confirm=True)
    assert (result["cleared"], result["met"], result["may"]) == (1, [], [])


INSTANCE = helper.make_node("InstanceNormalization", ["x", "ones", "zeros"], ["y"], name="norm")
CONSTANTS = {"ones": np.ones(3, np.float32), "zeros": np.zeros(3, np.float32)}
EPSILON = {"fact": "0.attr.epsilon.stated", "is": False}
NORM = [{"fact": "0.op", "is": "InstanceNormalization"}, EPSILON]


def test_a_cure_is_told_where_it_was_tried_on_the_very_place(lint, monkeypatch):
    """MNN takes 0 for the epsilon of an InstanceNormalization that states none, under every option."""
    monkeypatch.setattr(
        linting, "causes_of", lambda roots, target: [meeting.Known(norm, {}, "mnn/execute/wrong-values")]
    )
    norm = cause("norm_aaaaaaaa", *NORM, remedy={"optimize_level": 0}, tried=("recipe.optimize_level",))
    given = {"inputs": [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 2])], "constants": CONSTANTS}
    (untried,) = lint([INSTANCE], **given)["met"]
    assert (untried["advice"], "cure" in untried) == ("option optimize_level=0; or with `epsilon` stated", False)
    (tried,) = lint([INSTANCE], confirm=True, **given)["met"]
    assert (tried["cure"], tried["advice"]) == ("", "with `epsilon` stated")


def test_why_a_place_was_not_run_is_said(lint):
    (pool,) = pools("inside")
    branch = helper.make_graph([pool], "b", [], [ANY("y")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [IMAGE, helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    met = lint([node], cause("pool_aaaaaaaa", *POOL), inputs=inputs, confirm=True)["met"]
    assert {m["not_run"] for m in met} == {"it lies in a subgraph, which is not cut out"}


def test_a_model_that_does_not_run_on_what_is_made_up_is_told_with_the_shapes_that_were(lint):
    other = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["m", 4])
    with pytest.raises(UserError, match=r"does not run on inputs made up for it, x \[.*\], z \[.*\]: ") as told:
        lint([helper.make_node("Add", ["x", "z"], ["y"])], inputs=[FREE, other], confirm=True)
    assert "--dim" in told.value.hint


FREE = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
RELU = {"fact": "0.op", "is": "Relu"}


@pytest.mark.parametrize(("size", "met"), [(4, True), (1, False)])
def test_a_size_that_a_dim_is_fed_in_decides_what_hangs_on_it(lint, size, met):
    symbolic = {"fact": "0.in.0.symbolic", "is": True}
    batch = cause("relu_aaaaaaaa", RELU, symbolic, {"fact": "0.out.0.dim.0", "least": 3})
    relu = helper.make_node("Relu", ["x"], ["y"])
    unknown = lint([relu], batch, inputs=[FREE])
    assert (unknown["met"], len(unknown["may"])) == ([], 1), "nobody has said yet how large n is"
    result = lint([relu], inputs=[FREE], dims={"n": size})
    assert (bool(result["met"]), result["may"]) == (met, [])


def test_a_dim_that_there_is_not_is_a_mistake(lint):
    with pytest.raises(UserError, match="no input of the model has a dim called 'm'"):
        lint([helper.make_node("Relu", ["x"], ["y"])], inputs=[FREE], dims={"m": 2})


def test_what_may_be_is_said_in_the_first_line(lint):
    doubtful = cause("relu_aaaaaaaa", RELU, {"fact": "0.in.0.negative", "is": True})
    said = io.StringIO()
    tables.lint(Console(file=said, width=200), lint([helper.make_node("Relu", ["x"], ["y"])], doubtful))
    assert said.getvalue().startswith("0 known causes met, 1 more may be: --confirm runs them; of 1 of mnn ")


def test_an_operator_that_nobody_registered_is_named_with_what_to_do(lint):
    norm = helper.make_node("MyNorm", ["x"], ["n"], name="norm", domain="acme")
    result = lint([norm, helper.make_node("Relu", ["n"], ["y"])], domains=["acme"])
    (told,) = result["custom"]
    assert (told["node"], told["op_type"], told["function"]) == ("norm", "acme::MyNorm", False)
    assert "export it as operators of ONNX" in told["advice"]
    assert api.lint_status(result) == 1


@pytest.mark.parametrize(
    ("form", "when"),
    [(["Mish"], "Mish"), (["Mish", "in.0.rank", 4], "Mish operand 0 of 4 axes"), (["Mish", "in.0.rank", 3], None)],
)
def test_what_a_release_is_known_to_refuse_is_named(lint, tmp_path, form, when):
    (tmp_path / "corpus" / "mnn").mkdir(parents=True)
    release = resolve("mnn").release
    (tmp_path / "corpus" / "mnn" / "refused.json").write_text(json.dumps({release: [form], "0.1": [["Mish"]]}))
    result = lint([helper.make_node("Mish", ["x"], ["y"], name="mish")], opset=18)
    named = [{"node": "mish", "op_type": "Mish", "when": when}] if when else []
    assert (result["refused"], api.lint_status(result)) == (named, 1 if when else 0)


def test_a_function_of_the_model_is_read_inlined_and_named(lint):
    body = helper.make_function(
        "acme", "Half", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    half = helper.make_node("Half", ["x"], ["y"], name="half", domain="acme")
    result = lint([half], cause("relu_aaaaaaaa", RELU), domains=["acme"], functions=[body])
    assert [m["op_type"] for m in result["met"]] == ["Relu"]
    assert [(c["node"], c["op_type"], c["function"]) for c in result["custom"]] == [("half", "acme::Half", True)]
    assert "inline_local_functions" in result["custom"][0]["advice"]


def test_a_dtype_behind_an_unregistered_operator_is_that_of_what_it_has_to_be_like(lint):
    """y is a float: so is what the Relu reads, though nobody knows what makes it."""
    nodes = [
        helper.make_node("MyNorm", ["x"], ["n"], domain="acme"),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Add", ["r", "one"], ["y"]),
    ]
    small = cause("relu_aaaaaaaa", RELU, {"fact": "0.in.0.dtype", "is": "int4"})
    result = lint(nodes, small, constants={"one": np.ones(1, np.float32)}, domains=["acme"])
    assert (result["met"], result["may"]) == ([], [])


def test_what_is_read_of_a_node_is_read_once_for_all_causes(lint, monkeypatch):
    read = []
    facts_of = meeting.facts_of
    monkeypatch.setattr(
        meeting, "facts_of", lambda host, place, options: read.append(place) or facts_of(host, place, options)
    )
    names = [f"conv{k}" for k in range(20)]
    tensors = ["x", *(f"t{k}" for k in range(19)), "y"]
    convs = [
        helper.make_node("Conv", [a, f"w{k}"], [b], name=name, pads=[1, 1, 1, 1])
        for k, (name, a, b) in enumerate(zip(names, tensors, tensors[1:]))
    ]
    weights = {f"w{k}": np.random.default_rng(k).standard_normal((3, 3, 3, 3)).astype(np.float32) for k in range(20)}
    causes = [
        cause(
            f"conv_{k:08d}",
            {"fact": "0.op", "in": ["Conv", "ConvTranspose"]},
            {"fact": "0.in.0.rank", "is": 4},
            {"fact": "0.in.1.dim.0", "least": k},
        )
        for k in range(25)
    ]
    result = lint(convs, *causes, constants=weights)
    assert len({m["cause"] for m in result["met"]}) == 4, "causes 0 to 3 hold of Conv of three channels"
    assert len(read) == 20, f"{len(read)} readings of 20 nodes for 25 causes, should be one a node"


def test_pairs_of_nodes_are_looked_at_under_the_recipes_alone_that_a_cause_is_about(lint, monkeypatch):
    """Of 500 nodes that need not hang together there are 250,000 pairs, which took 3 CPU s for a cause of no use."""
    asked, real = list[meeting.Place](), meeting.facts_of
    monkeypatch.setattr(
        meeting, "facts_of", lambda host, place, options: asked.append(place) or real(host, place, options)
    )
    region = [{"fact": "1.op", "is": "MaxPool"}, {"fact": "recipe.quantize", "is": "offline"}]
    pair = trigger_of({"roles": 2, "edges": [], "shared": [], "regions": [region]})
    known = dataclasses.replace(cause("pools_aaaaaaaa"), trigger=pair)
    result = lint(pools("one", "two"), known)
    assert (asked, result["met"]) == ([], [])
    result = lint(pools("one", "two"), options={"quantize": "offline"})
    assert len(asked) == 2


def test_the_command_prints_one_object_and_exits_with_what_was_met(lint, tmp_path, capsys):
    lint(pools("pool"), cause("pool_aaaaaaaa", *POOL))
    words = ["lint", str(tmp_path / "model.onnx"), "--target", "mnn", "--corpus", str(tmp_path / "corpus")]
    said = []
    for more in (["--json"], []):
        with pytest.raises(SystemExit) as ended:
            main.main([*words, *more])
        assert ended.value.code == 1
        said.append(capsys.readouterr().out)
    assert json.loads(said[0])["met"][0]["node"] == "pool"
    assert said[1].count("title of pool_aaaaaaaa") == 1


def test_a_file_that_is_no_model_and_an_option_that_there_is_not_are_told(lint, tmp_path):
    with pytest.raises(UserError, match="no such file"):
        api.lint(tmp_path / "none.onnx", target="mnn", corpus=tmp_path)
    with pytest.raises(UserError):
        lint(pools("pool"), options={"quantise": "offline"})


def test_a_model_of_an_opset_that_nobody_knows_is_not_called_clean(lint, tmp_path):
    lint(pools("pool"))
    newer = load(tmp_path / "model.onnx")
    newer.opset_import[0].version = 99
    save(newer, tmp_path / "newer.onnx")
    with pytest.raises(UserError, match="the model is of opset 99, the newest that onnx"):
        api.lint(tmp_path / "newer.onnx", target="mnn", corpus=str(tmp_path / "corpus"))


@pytest.mark.parametrize("given", [{"recipe": '{"quantize": "offline"}'}, {"options": "a=b"}, {"dims": "n=2"}])
def test_text_in_the_place_of_a_mapping_is_told_with_what_to_write(lint, given):
    (name,) = given
    with pytest.raises(UserError, match=f"{name} is str .* it has to be a mapping") as told:
        lint(pools("pool"), **given)
    assert told.value.hint.startswith(f"write {name}={{")
    if name != "recipe":
        with pytest.raises(UserError, match="mapping"):
            api.Given(**given)
    with pytest.raises(UserError, match="mapping"):
        api.CheckSettings(**given)


def test_a_model_that_reads_what_nothing_makes_is_not_called_clean(lint):
    with pytest.raises(UserError, match=r"'second' \(Add\) reads 'nope', which nothing makes"):
        lint([helper.make_node("Add", ["x", "nope"], ["y"], name="second")])


def test_the_command_imports_nothing_of_what_others_need():
    code = "import sys; from driftnet.cli import main; from driftnet.api import lint; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"hypothesis", "driftnet.campaign.shard", "driftnet.oracle.judge", "driftnet.generators.bulk"} & {*loaded}
    assert not heavy, f"driftnet lint imports {sorted(heavy)}, which take longer than linting does"


def test_whatever_the_api_lists_is_there():
    missing = [name for name in api.__all__ if not hasattr(api, name)]
    assert missing == [], f"driftnet.api lists {missing}, and has none of them"


def test_what_a_project_says_of_a_cause_goes_before_what_came_with_driftnet(lint, tmp_path, monkeypatch):
    relu = [{"fact": "0.op", "is": "Relu"}]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(corpus, "COMMITTED", tmp_path / "bundled")
    mended = dataclasses.replace(cause("pool_aaaaaaaa", *POOL), status=Status.FIXED)
    for one in (cause("pool_aaaaaaaa", *POOL), cause("relu_bbbbbbbb", *relu)):
        (folder := tmp_path / "bundled" / "mnn" / one.id).mkdir(parents=True)
        record.save(one, folder)
    pool = helper.make_node("MaxPool", ["x"], ["r"], kernel_shape=[1, 1])
    result = lint([pool, helper.make_node("Relu", ["r"], ["y"])], mended, corpus=None)
    assert [m["cause"] for m in result["met"]] == ["relu_bbbbbbbb"]


def test_a_place_that_fails_otherwise_than_the_cause_is_no_all_clear(lint, monkeypatch):
    """The same InstanceNormalization, of which a cause is known that is an error of the same stage."""
    monkeypatch.setattr(linting, "causes_of", lambda roots, target: [meeting.Known(norm, {}, "mnn/execute/error/x")])
    monkeypatch.setattr(confirming, "_passed", lambda said, known: False)
    norm = cause("norm_aaaaaaaa", *NORM)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 2])]
    result = lint([INSTANCE], inputs=inputs, constants=CONSTANTS, confirm=True)
    told = [one.get("fails") for one in result["may"]]
    assert (told, result["met"]) == (["run by itself, it fails otherwise, with execute/wrong-values"], [])
    assert linting.lint_status(result) == 1
