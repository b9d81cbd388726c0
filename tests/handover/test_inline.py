"""A model as code is the model, and short."""

import base64

import numpy as np
import onnx
import pytest
from driftnet.findings import corpus
from driftnet.handover.inline import array_code, feeds_code, model_code
from driftnet.model.inspect import all_nodes
from onnx import helper, numpy_helper

from tests.handover.proofs import drawn

NAMES = {"onnx": onnx, "np": np, "base64": base64, "helper": helper, "numpy_helper": numpy_helper}
LINES = 60


def made(code, name):
    given = dict(NAMES)
    exec(code, given)
    return given[name]


def plain(model):
    """The model without what says nothing: an empty name, that of a tensor in an attribute, the order of attributes."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for node in all_nodes(model.graph):
        attributes = sorted(node.attribute, key=lambda a: a.name)
        for attribute in attributes:
            if attribute.HasField("t"):
                attribute.t.ClearField("name")
        del node.attribute[:]
        node.attribute.extend(attributes)
    return onnx.printer.to_text(model).replace('[""] ', "")


def test_the_code_of_a_model_makes_that_model_in_a_few_lines():
    for folder in drawn(60, seed=11):
        saved = corpus.load(folder)
        code = model_code(saved.case.proto)
        again = made(code, "model")
        assert plain(again) == plain(saved.case.proto), f"{folder.name} is another model"
        assert len(code.splitlines()) <= LINES, f"{folder.name} takes {len(code.splitlines())} lines"
        feeds = made(feeds_code(saved.case.feeds, "feeds"), "feeds")
        for feed, wanted in zip(feeds, saved.case.feeds, strict=True):
            for name, x in wanted.items():
                assert feed[name].dtype == x.dtype, f"{folder.name}: {name} has another dtype"
                assert feed[name].tobytes() == x.tobytes(), f"{folder.name}: {name} has other values"


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((0, 3), np.int64),
        np.array(["a", "\"b'"], object),
        np.float32([np.nan, np.inf]),
        np.full((2, 3), -0.0, np.float16),
        np.arange(200, dtype=np.uint8),
        np.array(True),
        np.array([1, -2]).astype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_the_code_of_an_array_makes_it_bit_by_bit(x):
    again = made(f"x = {array_code(x)}", "x")
    assert (again.dtype, again.shape) == (x.dtype, x.shape)
    assert again.tolist() == x.tolist() if x.dtype.hasobject else again.tobytes() == x.tobytes()
