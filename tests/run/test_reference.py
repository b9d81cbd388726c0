"""The reference: what it runs, what it refuses and in which words, what it records, how it samples."""

import dataclasses

import numpy as np
import onnx
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Outcome, Word
from driftnet.oracle.judge import judge
from driftnet.run.reference import Reference, ReferenceError
from driftnet.run.runner import Runner
from driftnet.run.sandbox.zygote import Limits, Reply, Zygote
from driftnet.targets import interface
from driftnet.targets.environments import resolve
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from onnx import TensorProto, helper

from tests.support import models

FLOAT = TensorProto.FLOAT


@pytest.fixture(scope="module")
def zygote():
    with Zygote(preload=("driftnet.run.reference_worker",), limits=Limits(seconds=20.0)) as zygote:
        yield zygote


@pytest.fixture
def reference(zygote):
    return Reference(zygote.worker())


def chain():
    """Conv, Relu, Reshape: float tensors and an integer one, two feeds of different size."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
    ]
    return models.case(
        nodes,
        {"x": models.grid((1, 2, 3, 3))},
        {"w": models.grid((4, 2, 1, 1))},
        outputs=[("y", FLOAT, ("n", 4, 3, 3))],
        shapes={"x": ("n", 2, 3, 3)},
        feeds=[{"x": models.grid((2, 2, 3, 3))}],
    )


def changed(case, **fields):
    model = onnx.ModelProto.FromString(case.model)
    for name, value in fields.items():
        setattr(model.graph.node[0], name, value)
    return dataclasses.replace(case, model=model.SerializeToString())


def test_nobody_waits_long_for_a_case_that_is_one_of_many(reference, monkeypatch):
    """A tree whose nodes were changed may go round for ever."""
    said = []

    def call(key, model, feeds, seconds):
        said.append(seconds)
        longest = {2: 1.5, 4: 2.0}.get(len(said))  # 20 s is the limit
        return Reply(Outcome.OK, [], seconds=longest) if longest else Reply(Outcome.HANG, seconds=seconds or 0)

    monkeypatch.setattr(reference, "_call", call)
    assert reference.run(chain(), 0.1).broken
    assert not reference.run(chain()).broken, "what came too late for one is not kept for others"
    assert not reference.run(chain(), 0.1).broken, "what came is"
    assert reference.run(changed(chain(), op_type="Abs"), 0.1).broken
    assert said == [2.0, None, 15.0], "ten times what the longest took"
    reference.run(changed(chain(), op_type="Neg"))
    reference.run(changed(chain(), op_type="Exp"), 0.1)
    assert said[4:] == [None], "nobody waits longer than the limit"


def joined(parts):
    return bytearray(b"".join(parts))


def test_a_fork_waits_as_long_as_it_says(zygote, monkeypatch):
    said = []

    def call(key, model, feeds, seconds):
        said.append(seconds)
        return Reply(Outcome.HANG, seconds=2.0)

    reference, fork = (Reference(zygote.worker()) for _ in range(2))
    monkeypatch.setattr(reference, "_call", call)
    fork.ask_by(lambda question: joined(reference.answer(joined(question))))
    assert fork.run(chain(), 0.1).broken == "the reference did not come back in 2 s"
    assert said == [2.0]


def test_run_gives_the_outputs_of_every_feed(reference):
    run = reference.run(chain())
    assert run.error == ""
    assert [outputs["y"].shape for outputs in run.outputs] == [(1, 4, 3, 3), (2, 4, 3, 3)]
    assert [list(outputs) for outputs in run.outputs] == [["y"], ["y"]]


def test_record_gives_every_tensor_of_the_main_graph(reference):
    case = chain()
    for record, feed, outputs in zip(reference.record(case), case.feeds, reference.run(case).outputs, strict=True):
        assert set(record) == {"x", "c", "r", "s", "y"}
        assert np.array_equal(record["x"], feed["x"])
        assert np.array_equal(record["y"], outputs["y"])
        assert np.array_equal(record["r"], np.maximum(record["c"], 0))
        assert record["s"].tolist() == list(record["r"].shape)


def test_copies_of_an_initializer_are_recorded_as_one_array(reference):
    nodes = [
        *(helper.make_node("Identity", [a], [b]) for a, b in [("w", "v"), ("v", "u"), ("x", "z"), ("w", "g")]),
        helper.make_node("Sum", ["v", "u", "z"], ["y"]),
    ]
    given = {"x": models.grid((2, 3))}
    weights, outputs = {"w": models.grid((2, 3), step=0.25)}, [("y", FLOAT, (2, 3)), ("g", FLOAT, (2, 3))]
    case = models.case(nodes, given, weights, outputs=outputs, feeds=[given])
    first, second = reference.record(case)
    assert set(first) == set(second) == {"x", "v", "u", "z", "y", "g"}
    assert first["v"] is first["u"] is second["v"], "each copy is held"
    other = [name for name in ("v", "u", "g") if not np.array_equal(first[name], weights["w"])]
    assert other == [], "not the values of the initializer"
    assert np.array_equal(first["z"], given["x"])


def test_record_holds_no_more_than_is_said_but_for_one_feed(reference):
    case = chain()
    sizes = [sum(x.nbytes for x in record.values()) for record in reference.record(case)]
    assert len(reference.record(case, most=sum(sizes))) == 2, "what is allowed is refused"
    with pytest.raises(ReferenceError, match="all tensors of 2 inputs are more than 0 MiB"):
        reference.record(case, most=sum(sizes) - 1)
    alone = dataclasses.replace(case, feeds=case.feeds[:1])
    assert len(reference.record(alone, most=1)) == 1, "one feed is always allowed"


def test_an_answer_too_large_for_a_fork_is_an_answer_that_says_so(reference, monkeypatch):
    monkeypatch.setattr("driftnet.run.reference.MOST_TOLD", 100)
    asked = interface.encode([["record", "digest"], chain().model, list(chain().feeds), None])
    outcome, value, message, *_ = interface.decode(joined(reference.answer(asked)))
    assert (outcome, value) == ("memory", None), f"is {outcome}: {message}"
    assert "of which a fork holds no copy" in message


def test_record_leaves_sequences_out(reference):
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["q"], axis=1),
        helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=1),
    ]
    case = models.case(nodes, {"x": models.grid((2, 3))}, outputs=[("y", FLOAT, (2, 3))])
    (record,) = reference.record(case)
    assert set(record) == {"x", "y"}


def test_samples_are_the_same_each_time(zygote):
    first, second = (Reference(zygote.worker()).sample(chain(), 3) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a, b, strict=True):
            assert np.array_equal(x["y"], y["y"])


def test_samples_differ_by_a_few_ulps(reference):
    case = chain()
    samples = reference.sample(case)
    assert (len(samples), len(samples[0])) == (6, 2)
    for position, right in enumerate(reference.run(case).outputs):
        ys = np.stack([sample[position]["y"] for sample in samples])
        scale = np.abs(right["y"]).max()
        assert (ys.std(axis=0) > 0).any(), "no sample differs from another"
        assert np.abs(ys - right["y"]).max() < 20 * 2.0**-24 * scale


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("float32", 2.0**-24), ("float64", 2.0**-24)])
def test_noise_is_in_the_precision_of_the_tensor(reference, dtype, unit):
    x = np.linspace(1, 2, 512).astype(dtype)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    case = models.case([helper.make_node("Identity", ["x"], ["y"])], {"x": x}, outputs=[("y", element, (512,))])
    samples = reference.sample(case, 4)
    assert len(samples) == 4, f"{len(samples)} samples"
    for (sample,) in samples:
        error = np.abs(sample["y"].astype(float) / x.astype(float) - 1).max()
        assert sample["y"].dtype == dtype
        assert unit / 2 <= error <= 8 * unit, f"{error:g} is not the noise of {dtype}"


def test_noise_leaves_parameters_of_shapes_alone(reference):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    constants = {"scales": np.array([1, 1, 2, 3], np.float32)}
    case = models.case([node], {"x": models.grid((1, 1, 5, 7))}, constants, outputs=[("y", FLOAT, (1, 1, 10, 21))])
    assert {sample[0]["y"].shape for sample in reference.sample(case, 20)} == {(1, 1, 10, 21)}


def test_noise_leaves_the_grids_of_codes_alone(reference):
    x, w = (np.arange(4, dtype=np.uint8).reshape(2, 2) for _ in range(2))
    operands = ["x", "s", "z", "w", "s", "z", "t", "z"]
    scales = {"s": np.float32(1), "t": np.float32(2), "z": np.uint8(0), "w": w}  # products at 6.5, 1.5 ... steps
    node = helper.make_node("QLinearMatMul", operands, ["y"])
    constants = {name: np.asarray(value) for name, value in scales.items()}
    case = models.case([node], {"x": x}, constants, outputs=[("y", helper.TensorProto.UINT8, (2, 2))])
    assert len({sample[0]["y"].tobytes() for sample in reference.sample(case, 20)}) == 1, "codes differ"


def test_noise_reaches_subgraphs(reference):
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [_float("t", (3,))])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["e"])], "else", [], [_float("e", (3,))])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    feed = {"c": np.array(True), "x": np.array([1, 3, 5], np.float32) / 3}
    case = models.case([node], feed, outputs=[("y", FLOAT, (3,))])
    (right,) = reference.run(case).outputs
    moved = [(sample[0]["y"] != right["y"]).sum() for sample in reference.sample(case)]
    assert max(moved) > 0, "no sample moved an element of y"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        pytest.param(changed(chain(), op_type="Foo"), "Foo", id="unknown-operator"),
        pytest.param(changed(chain(), domain="com.nobody"), "com.nobody", id="unknown-domain"),
        pytest.param(dataclasses.replace(chain(), model=b"junk"), "parse", id="no-model"),
        pytest.param(dataclasses.replace(chain(), feeds=({"x": models.grid((1, 5, 3, 3))},)), "Expected: 2", id="feed"),
    ],
)
def test_what_is_refused_is_told_in_the_words_of_the_one_who_refuses(reference, case, said):
    run = reference.run(case)
    assert said in run.error, f"{run.error!r} does not say {said!r}"
    assert run.outputs == ()
    with pytest.raises(ReferenceError) as caught:
        reference.record(case)
    assert str(caught.value) != ""


def test_answers_are_remembered_for_equal_cases(reference):
    first, again = reference.run(chain()), reference.run(chain())
    assert again.outputs[0]["y"] is first.outputs[0]["y"]
    other = dataclasses.replace(chain(), feeds=({"x": models.grid((3, 2, 3, 3))},))
    assert reference.run(other).outputs[0]["y"].shape[0] == 3


def test_a_reference_over_its_time_is_at_fault_itself_and_comes_back():
    with Zygote(preload=("driftnet.run.reference_worker",), limits=Limits(seconds=1.5)) as short:
        reference = Reference(short.worker())
        run = reference.run(_endless_loop())
        assert run.broken.startswith("the reference did not come back in "), run.broken
        assert (run.error, run.outputs) == ("", ())
        with pytest.raises(ReferenceError, match="the reference did not come back"):
            reference.record(_endless_loop())
        run = reference.run(chain())
        assert (run.error, run.broken, len(run.outputs)) == ("", "", 2)


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("segfault", (), "the reference crashed: SIGSEGV"),
        ("exit_at_once", (3,), "the reference crashed: exit-3"),
        ("ask_for_memory", (1 << 30,), "the reference ran out of memory: MemoryError"),
        ("write_to_pipe", (b"rubbish!",), "the reference gave no proper answer: not a message"),
    ],
)
def test_what_breaks_the_reference_is_no_fault_of_the_model(name, args, said):
    with Zygote(preload=("tests.support.sandbox_faults",)) as zygote:
        run = Reference(Faulty(zygote.worker(), name, args)).run(chain())
    assert run.broken.startswith(said), f"{run.broken!r} should be {said!r}"
    assert (run.error, run.outputs) == ("", ())


def test_a_broken_reference_is_an_abstention_that_says_so():
    case = chain()
    with Runner() as runner:
        right = runner.observe(case, resolve("onnxruntime-quant"), {})
        with Zygote(preload=("tests.support.sandbox_faults",)) as zygote:
            runner.reference = Reference(Faulty(zygote.worker(), "segfault", ()))
            looked = look(Trial(case, resolve("onnxruntime-quant"), {}, runner))
            judged = judge(case, right, target=ONNXRUNTIME_QUANT, options={}, reference=runner.reference)
    for found in looked, judged:
        assert (found.word, found.stage) == (Word.ABSTAINS, "")
        assert found.message == "the reference crashed: SIGSEGV"


class Faulty:
    """A worker that does something else than it is asked to."""

    def __init__(self, worker, name, args):
        self.worker, self.name, self.args, self.seconds = worker, name, args, worker.seconds

    def call(self, function, *args, timeout):
        return self.worker.call(f"tests.support.sandbox_faults:{self.name}", *self.args)

    def undisturbed(self, ask):
        return self.worker.undisturbed(ask)


def _float(name, shape):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def _endless_loop():
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Cos", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            _float("v", (1000,)),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()), _float("w", (1000,))],
    )
    node = helper.make_node("Loop", ["m", "c", "x"], ["y"], body=body)
    constants = {"m": np.array(10**9), "c": np.array(True)}
    return models.case([node], {"x": models.grid((1000,))}, constants, outputs=[("y", FLOAT, (1000,))])


def test_large_answers_are_not_kept_beside_others(reference, monkeypatch):
    case = chain()
    monkeypatch.setattr("driftnet.run.reference.MOST_REMEMBERED", 1)
    reference.record(case)
    reference.run(case)
    kept = [function for function, *_ in reference._replies]
    assert kept == ["run"], f"the answers to {kept} are kept, should be the last only"
