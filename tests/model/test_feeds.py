"""Feeds from outside: bad ones are named, none is a traceback, and made-up ones fit the model and the memory."""

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet.model import feeds
from driftnet.model.inspect import validate_feed
from driftnet.util.errors import UserError
from onnx import TensorProto, helper, numpy_helper


def model(*inputs):
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "test", list(inputs), [])
    return helper.make_model(graph)


def tensor(dtype, *shape, name="x"):
    return helper.make_tensor_value_info(name, dtype, shape)


FLOATS = model(tensor(TensorProto.FLOAT, 2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int64", "bool"])
def test_a_made_up_feed_fits_the_model(dtype):
    proto = model(tensor(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), "N", 3, "M"))
    feed = feeds.made_up(proto, {"N": 5})
    assert (feed["x"].dtype, feed["x"].shape) == (dtype, (5, 3, 2))
    validate_feed(proto, feed, "made up")


def test_free_dims_get_other_sizes_where_the_model_does_not_run_with_two():
    proto = model(tensor(TensorProto.FLOAT, "N", 3, "H", "W"), tensor(TensorProto.INT64, "N", name="lengths"))
    tried = []

    def runs(feed):
        tried.append(feed["x"].shape)
        return feed["x"].shape[2] >= least and feed["x"].shape[0] <= most

    for least, most, shape in ((2, 2, (2, 3, 2, 2)), (20, 2, (2, 3, 32, 32)), (50, 1, (1, 3, 64, 64))):
        found = feeds.made_to_run(proto, {}, runs)
        assert (found["x"].shape, found["lengths"].shape) == (shape, shape[:1]), (least, most)
    wide = model(tensor(TensorProto.UINT8, "N", *"ABCDE"))
    found = feeds.made_to_run(wide, {}, lambda feed: feed["x"].shape[1] == 8)
    assert found["x"].shape == (1, 8, 8, 8, 8, 8), "sizes that are too large are passed over, not those that follow"
    least = 40
    assert feeds.made_to_run(proto, {"H": 40}, runs)["x"].shape == (1, 3, 40, 2), "a size that somebody gave stays"
    least, tried[:] = 10**6, []
    assert feeds.made_to_run(proto, {}, runs)["x"].shape == (2, 3, 2, 2), "where none fits it is what is made up else"
    assert len(tried) == 1 + len(feeds.FREE_SIZES)


def test_empty_inputs_and_scalars_are_made_up():
    proto = model(tensor(TensorProto.FLOAT, 0, 2**40), tensor(TensorProto.INT64, name="s"))
    feed = feeds.made_up(proto, {})
    assert (feed["x"].shape, feed["s"].shape) == ((0, 2**40), ())


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        (TensorProto.BFLOAT16, "input 'x' has element type bfloat16"),
        (TensorProto.FLOAT8E4M3FN, "input 'x' has element type float8_e4m3fn"),
        (TensorProto.FLOAT8E5M2, "input 'x' has element type float8_e5m2"),
        (TensorProto.INT4, "input 'x' has element type int4"),
        (TensorProto.STRING, "input 'x' holds strings"),
        (TensorProto.COMPLEX64, "input 'x' holds complex64"),
        (TensorProto.UNDEFINED, "input 'x' has no element type"),
        (99, "input 'x' has element type 99"),
    ],
)
def test_no_data_is_made_up_for_other_dtypes(dtype, says):
    with pytest.raises(UserError, match=says) as error:
        feeds.made_up(model(tensor(dtype, 2)), {})
    assert error.value.kind == "feed"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (tensor(TensorProto.FLOAT, "N"), r"input 'x' has a negative dimension: \[-4\]"),
        (tensor(TensorProto.FLOAT, 2**40, 2**20), f"the inputs have {2**60} elements .*more than {2**28}"),
        (tensor(TensorProto.BOOL, 2**62, 2**62), f"the inputs have {2**124} elements"),
        (tensor(TensorProto.INT8, "huge"), f"the inputs have {2**50} elements"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, None), "input 'x' has no tensor shape"),
        (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2]), "input 'x' has no tensor shape"),
    ],
)
def test_no_data_is_made_up_for_other_shapes(value, says):
    with pytest.raises(UserError, match=says) as error:
        feeds.made_up(model(value), {"N": -4, "huge": 2**50})
    assert error.value.kind == "feed"


def test_a_negative_dim_is_free():
    """Paddle's exporter writes -1 for a dim of any size."""
    proto = model(tensor(TensorProto.FLOAT, -1, 3))
    assert feeds.made_up(proto, {})["x"].shape == (2, 3)
    validate_feed(proto, {"x": np.zeros((7, 3), np.float32)}, "inputs")


def test_the_budget_of_made_up_elements_is_for_all_inputs_together():
    inputs = [tensor(TensorProto.INT8, 2**26, name=f"x{i}") for i in range(5)]
    with pytest.raises(UserError, match=f"the inputs have {5 * 2**26} elements"):
        feeds.made_up(model(*inputs), {})


@pytest.mark.parametrize("dtype", [TensorProto.UNDEFINED, 99, TensorProto.BFLOAT16, TensorProto.INT4])
def test_a_feed_for_an_input_of_no_numpy_dtype_is_refused(dtype):
    with pytest.raises(UserError, match=r"input 'x' has .*element type"):
        validate_feed(model(tensor(dtype, 2)), {"x": np.zeros(2, np.float32)}, "inputs")


def test_a_feed_for_an_input_that_is_no_tensor_is_refused():
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    with pytest.raises(UserError, match="input 'x' has a type that is no tensor"):
        validate_feed(model(sequence), {"x": np.zeros(2, np.float32)}, "inputs")


def test_strings_can_be_fed():
    validate_feed(model(tensor(TensorProto.STRING, 1)), {"x": np.array(["a"], object)}, "inputs")


def test_texts_are_read_from_npz_which_holds_them_by_their_length(tmp_path):
    np.savez(tmp_path / "feed.npz", x=np.array(["a", "words"]))
    (read,) = feeds.read_feeds(tmp_path / "feed.npz", model(tensor(TensorProto.STRING, 2)), "inputs")
    assert (read["x"].dtype, read["x"].tolist()) == (object, ["a", "words"])


def npz(save, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return bytearray(file.getvalue())


def single_array():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def damaged_stream():
    whole = npz(np.savez_compressed, x=np.random.default_rng(0).random((2, 3)))
    whole[60:80] = b"\xff" * 20
    return whole


def encrypted():
    whole = npz(np.savez, x=np.zeros((2, 3), np.float32))
    whole[6] |= 1
    whole[whole.rindex(b"PK\x01\x02") + 8] |= 1
    return whole


def header_alone():
    file, header = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2, 3)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    return file.getvalue()


def pickled():
    return npz(np.savez, x=np.array([{}], object))


@pytest.mark.parametrize(
    "content",
    [bytes, single_array, damaged_stream, encrypted, header_alone, pickled, lambda: b"PK\x03\x04 cut", lambda: b"text"],
)
def test_a_file_that_is_no_whole_npz_is_named(tmp_path, content):
    (tmp_path / "feed.npz").write_bytes(content())
    with pytest.raises(UserError, match=r"inputs: .*feed\.npz is not a whole \.npz file: \w") as error:
        feeds.read_feeds(tmp_path / "feed.npz", FLOATS, "inputs")
    assert error.value.kind == "feed"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_feeds_are_read_from_npz_and_from_data_sets_in_name_order(tmp_path, save):
    arrays = [np.full((2, 3), k, np.float32) for k in range(2)]
    save(tmp_path / "a.npz", x=arrays[0])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "input_0.pb").write_bytes(numpy_helper.from_array(arrays[1], "x").SerializeToString())
    read = feeds.read_feeds(tmp_path, FLOATS, "inputs")
    assert [feed["x"].tolist() for feed in read] == [x.tolist() for x in arrays]


def test_a_model_without_inputs_is_fed_nothing_by_its_data_set(tmp_path):
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / "test_data_set_0/output_0.pb").write_bytes(b"")
    assert feeds.feeds_beside(tmp_path / "model.onnx", model(), "inputs") == ({},)


def test_a_model_beside_is_the_same_however_its_path_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_data_set_0").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.onnx").touch()
    assert feeds.feeds_beside(Path("a.onnx"), model(), "inputs", tmp_path / "b.onnx") == ({},)
    assert feeds.feeds_beside(tmp_path / "a.onnx", model(), "inputs", Path("b.onnx")) == ({},)
    assert feeds.feeds_beside(Path("a.onnx"), model(), "inputs") == ()


@pytest.mark.parametrize("content", [b"\x08", bytes(range(256)), None])
def test_a_tensor_file_that_is_not_whole_is_named(tmp_path, content):
    cut = onnx.numpy_helper.from_array(np.zeros((2, 3), np.float32), "x").SerializeToString()[:-3]
    (tmp_path / "input_0.pb").write_bytes(cut if content is None else content)
    with pytest.raises(UserError, match=r"input_0\.pb is not a whole tensor"):
        feeds.read_feeds(tmp_path, FLOATS, "inputs")


def integers(nodes, constants, *, of="ids", shape=(64,)):
    """What is made up for the integer input `of` of these nodes."""
    graph = helper.make_graph(
        nodes,
        "test",
        [tensor(TensorProto.INT64, *shape, name=of), tensor(TensorProto.FLOAT, 5, 2, 4)],
        [],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
    )
    return feeds.made_up(helper.make_model(graph), {})[of]


TABLE = {"table": np.zeros((50, 3), np.float32)}


@pytest.mark.parametrize(
    ("nodes", "constants", "low", "high"),
    [
        ([helper.make_node("Gather", ["table", "ids"], ["y"])], TABLE, 0, 49),
        ([helper.make_node("Gather", ["table", "ids"], ["y"], axis=1)], TABLE, 0, 2),
        (
            [
                helper.make_node("Cast", ["ids"], ["cast"], to=TensorProto.INT32),
                helper.make_node("Unsqueeze", ["cast", "axes"], ["indices"]),
                helper.make_node("Gather", ["table", "indices"], ["y"]),
            ],
            TABLE,
            0,
            49,
        ),
        (
            [
                helper.make_node("Max", ["ids", "ids"], ["most"]),
                helper.make_node("ReverseSequence", ["most", "lengths"], ["reversed"]),
                helper.make_node("GatherND", ["reversed", "places"], ["indices"]),
                helper.make_node("Gather", ["table", "indices"], ["y"]),
            ],
            TABLE,
            0,
            49,
        ),
        ([helper.make_node("GatherElements", ["x", "ids"], ["y"], axis=2)], {}, 0, 3),
        (
            [helper.make_node("OneHot", ["ids", "depth", "values"], ["y"])],
            {"depth": np.array([7]), "values": np.array([0.0, 1.0])},
            0,
            6,
        ),
        ([helper.make_node("GRU", ["x", "w", "r", "", "ids"], ["y"], hidden_size=1)], {}, 1, 5),
        ([helper.make_node("NegativeLogLikelihoodLoss", ["table", "ids"], ["y"])], TABLE, 0, 2),
        ([helper.make_node("RoiAlign", ["x", "rois", "ids"], ["y"])], {}, 0, 4),
        ([helper.make_node("Div", ["a", "ids"], ["y"])], {"a": np.arange(64)}, 1, 1),
        ([helper.make_node("Relu", ["x"], ["y"])], {}, 0, 1),
    ],
)
def test_made_up_integers_are_in_the_range_that_their_readers_accept(nodes, constants, low, high):
    made = integers(nodes, constants)
    assert made.min() == low, "the lowest that is accepted is tried"
    assert made.max() == high, "the highest that is accepted is tried"


def test_the_narrowest_of_several_readers_decides():
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], axis=axis) for axis in (0, 1)]
    assert integers(nodes, TABLE).max() == 2


def claiming(shape, descr="<f4"):
    """An archive of an array x that is not there, but for its header."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    return file.getvalue()


@pytest.mark.parametrize(
    ("proto", "shape", "says"),
    [
        (FLOATS, (2**40,), r"input 'x' has shape \[1099511627776\], the model expects \[2, 3\]"),
        (model(tensor(TensorProto.FLOAT, "N")), (2**40,), f"its arrays have {2**40} elements, more than {2**28}"),
    ],
    ids=["contradicts the model", "contradicts every machine"],
)
def test_an_array_that_is_too_large_is_refused_before_it_is_read(tmp_path, proto, shape, says):
    (tmp_path / "x.npz").write_bytes(claiming(shape))
    with pytest.raises(UserError, match=says):
        feeds.read_feeds(tmp_path / "x.npz", proto, "inputs")


def test_a_tensor_in_a_file_that_another_file_names_is_not_read(tmp_path):
    outside = TensorProto(data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="/etc/passwd")
    (tmp_path / "input_0.pb").write_bytes(outside.SerializeToString())
    with pytest.raises(UserError, match="keeps its data in another file"):
        feeds.read_feeds(tmp_path, FLOATS, "inputs")


@pytest.mark.parametrize("what", ["inputs", "calibration"])
def test_of_many_files_the_one_that_holds_no_number_is_named(tmp_path, what):
    for k, value in enumerate((1, np.nan, 2)):
        np.savez(tmp_path / f"{k}.npz", x=np.full((2, 2), value, np.float32))
    proto = model(tensor(TensorProto.FLOAT, 2, 2))
    with pytest.raises(UserError, match=rf"{what} {tmp_path}/1.npz: input 'x' holds NaN"):
        feeds.read_feeds(tmp_path, proto, what)


def test_of_a_wrong_name_both_are_told(tmp_path):
    np.savez(tmp_path / "a.npz", feats=np.ones((2, 2), np.float32))
    with pytest.raises(UserError, match="lacks input 'x'; the model's inputs are x, got feats"):
        feeds.read_feeds(tmp_path / "a.npz", model(tensor(TensorProto.FLOAT, 2, 2)), "inputs")


@pytest.mark.parametrize(
    ("value", "finite", "says"),
    [
        (np.nan, False, "inputs: input 'x' holds NaN"),
        (-np.inf, False, ""),
        (np.inf, False, "inputs: input 'x' holds infinity"),
        (np.inf, True, "inputs: input 'x' holds infinity"),
        (-np.inf, True, "inputs: input 'x' holds infinity"),
        (1.0, True, ""),
    ],
)
def test_what_is_no_number_is_named_before_anybody_is_blamed_for_it(value, finite, says):
    """A mask holds -inf; calibration data may not."""
    given = [{"i": np.arange(2), "x": np.array([1, value], np.float32)}]
    with pytest.raises(UserError, match=says) if says else contextlib.nullcontext():
        feeds.demand_numbers(given, "inputs", finite=finite)
