"""Signatures stay while a case shrinks and is renamed, and differ where bugs do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driftnet.model.inspect import Case
from driftnet.model.signature import Signature, coarse, fine, folder_name, hash8, normalized, slug
from driftnet.model.verdict import Kind, Verdict, Word
from onnx import helper

from tests.support import reduction as tools

DIVERGES = Verdict(Word.DIVERGES, "exact", "execute", Kind.WRONG_VALUES, "output y: 3.5 should be 1.25")


def failing(message: str) -> Verdict:
    return Verdict(Word.FAILS, stage="convert", kind=Kind.ERROR, message=message)


def conv_add(names: str = "x w b t y", size: int = 5, channels: int = 4, **attributes: int) -> Case:
    x, w, b, t, y = names.split()
    nodes = [helper.make_node("Conv", [x, w], [t], **attributes), helper.make_node("Add", [t, b], [y])]
    group = attributes.get("group", 1)
    constants = {
        w: np.ones((channels, channels // group, 2, 2), np.float32),
        b: np.ones((1, channels, 1, 1), np.float32),
    }
    return tools.make_case(nodes, {x: np.ones((1, channels, size, size), np.float32)}, [y], constants)


def test_coarse_is_target_stage_and_kind():
    assert coarse("mnn", DIVERGES) == "mnn/execute/wrong-values"


def test_coarse_has_no_magnitudes():
    other = replace(
        DIVERGES, message="output q: 7 should be 8", error=9.0, bound=0.5, output="q", feed=1, tier="lossless"
    )
    assert coarse("mnn", DIVERGES) == coarse("mnn", other)


@pytest.mark.parametrize(
    "message",
    [
        "cannot infer the shape of 'conv_12/out': [1, 3, 224, 224]",
        'cannot infer the shape of "y": [1]',
        "cannot infer the shape of t0_1 at 0x7ffde01a (/tmp/w17/model.mnn:118)",
        "cannot infer the shape of",
    ],
)
def test_errors_are_told_apart_by_words_not_by_names_numbers_addresses_or_paths(message: str):
    assert coarse("mnn", failing(message)) == "mnn/convert/error/cannot infer the shape"


def test_an_apostrophe_is_no_quote():
    assert normalized("Can't find enough output for 'x', don't ask") == "can find enough output for don ask"


def test_the_last_words_of_a_long_error_count_and_our_own_do_not():
    words = "onnxruntime-quant failed in execute: Fail: status code returned while running a Conv node: one two six"
    assert normalized(words) == "returned while running conv node one two six"
    assert normalized("mnn failed in convert: no such thing") == "such thing"
    assert normalized("In Node (x): tensor(float), tensor(int8), QLinearAdd is wrong") == "node tensor wrong"


def test_a_name_in_brackets_counts_for_nothing_wherever_it_stands():
    assert normalized("tensor(float)kept (axis_1)kept too(a)(b) call(x_1)lost") == "tensor kept too"


def test_words_without_end_are_kept_or_left_out_whole():
    assert normalized(f"{'a' * 50_000} {'(' * 50_000} kept") == f"{'a' * 50_000} kept"


def test_only_the_first_line_of_an_error_counts():
    assert normalized("bad thing\nat frame one") == "bad thing"


def test_different_errors_differ():
    assert coarse("mnn", failing("broadcast error")) != coarse("mnn", failing("reshape error"))


def test_fine_is_stable_under_renaming_and_under_sizes():
    of = "mnn/execute/wrong-values"
    expected = fine(of, conv_add())
    assert fine(of, conv_add("input conv.w bias.3 hidden out")) == expected, "names changed the fine signature"
    assert fine(of, conv_add(size=9, channels=8)) == expected, "sizes beyond 1 changed the fine signature"


def test_fine_does_not_depend_on_the_order_of_the_nodes():
    def branches(order: tuple[int, int]) -> Case:
        nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
        nodes = [nodes[i] for i in order] + [helper.make_node("Sub", ["a", "b"], ["y"])]
        return tools.make_case(nodes, {"x": np.ones(3, np.float32)}, ["y"])

    assert fine("c", branches((0, 1))) == fine("c", branches((1, 0)))


@pytest.mark.parametrize("other", [conv_add(group=2), conv_add(strides=[2, 2])], ids=["attribute", "attribute-list"])
def test_fine_tells_attribute_classes_apart(other: Case):
    assert fine("c", conv_add()) != fine("c", other)


def test_fine_tells_dtypes_apart_but_not_inputs_from_constants():
    def relu(dtype: type) -> Case:
        return tools.make_case([helper.make_node("Neg", ["x"], ["y"])], {"x": np.ones(3, dtype)}, ["y"])

    def add(*inputs: str) -> Case:
        there = {name: np.ones(3, np.float32) for name in "ab"}
        constants = {k: v for k, v in there.items() if k not in inputs}
        return tools.make_case(
            [helper.make_node("Add", ["a", "b"], ["y"])], {k: there[k] for k in inputs}, ["y"], constants
        )

    assert fine("c", relu(np.float32)) != fine("c", relu(np.int32))
    assert fine("c", add("a", "b")) == fine("c", add("a"))
    assert fine("c", relu(np.int32)) == fine("c", relu(np.int32))


def test_fine_tells_ranks_apart_where_they_make_another_operator():
    def unpooled(rank: int) -> str:
        x, indices = np.ones([1] * rank, np.float32), np.zeros([1] * rank, np.int64)
        node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[1] * (rank - 2))
        return fine("c", tools.make_case([node], {"x": x, "i": indices}, ["y"]))

    assert len({unpooled(rank) for rank in (3, 4, 5)}) == 3


def test_the_slug_says_target_stage_kind_and_operators():
    signature = Signature("mnn/execute/wrong-values", fine("mnn/execute/wrong-values", conv_add()))
    assert slug(signature) == "mnn_execute_wrong-values_conv-add"
    assert folder_name(signature) == f"test_mnn_execute_wrong-values_conv-add_{hash8(signature.fine)}"


def test_an_error_message_stays_out_of_the_folder_name():
    of = coarse("onnxruntime-quant", failing("cannot do this / that"))
    assert slug(Signature(of, fine(of, conv_add()))) == "onnxruntime-quant_convert_error_conv-add"


def test_signals_of_a_damaged_heap_are_one_coarse_kind():
    kinds = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "exit-3")
    said = {kind: coarse("t", Verdict(Word.CRASHES, stage="convert", kind=kind)) for kind in kinds}
    assert said["SIGSEGV"] == said["SIGABRT"] == said["SIGBUS"] == "t/convert/crash"
    assert said["SIGFPE"] == "t/convert/SIGFPE"
    assert said["exit-3"] == "t/convert/exit-3"
