"""Case: what is parsed of it, and how long that lives."""

import dataclasses
import gc
import weakref
from pathlib import Path

from driftnet.model import external_data
from driftnet.model.case import Case
from onnx import TensorProto, helper

from tests.support import models


def case_of_a_sum() -> Case:
    given = {"x": models.grid((2, 3))}
    return models.case([helper.make_node("Add", ["x", "x"], ["y"])], given, outputs=[("y", TensorProto.FLOAT, (2, 3))])


def test_cases_of_the_same_bytes_hold_one_parsed_model():
    case = case_of_a_sum()
    other = dataclasses.replace(case, feeds=(*case.feeds, *case.feeds))
    assert other.proto is case.proto, "each case holds a model of its own"
    changed = dataclasses.replace(case, model=bytes(bytearray(case.model)))
    assert changed.proto is not case.proto, "other bytes have the model of these"


def test_a_case_holds_the_model_that_it_was_made_of_and_parses_none():
    proto = case_of_a_sum().proto
    made = external_data.case(proto, Path("sum.onnx"), ())
    assert made.proto is proto, "it holds its model twice"
    assert dataclasses.replace(made, feeds=({},)).proto is proto


def test_a_parsed_model_goes_with_the_last_case_that_needs_it():
    case = case_of_a_sum()
    other = dataclasses.replace(case)
    held = weakref.ref(case._parsed)
    assert other._parsed is held(), "each case holds a model of its own"
    del case
    gc.collect()
    assert held() is not None, "it goes while a case needs it"
    del other
    gc.collect()
    assert held() is None, "it stays when no case needs it"
