"""Focus, weights, features, profiles and motifs: what is drawn, and how that is steered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from driftnet.generators import bulk, features, motifs
from driftnet.generators.building.header import HEADER, Header
from driftnet.generators.building.profile import CONSTANT_OPERANDS, Profile
from driftnet.generators.building.record import RECORD
from driftnet.generators.building.serialization import build
from driftnet.generators.focus import fragments, known_focus
from driftnet.generators.genome import Genome, decode
from driftnet.generators.ops.table import CODES, OPERATORS
from driftnet.generators.strategies import cases
from driftnet.model.case import Case
from onnx import TensorProto

from tests.support.generated import assert_valid, digest, operators
from tests.support.rules import assert_each


def test_focus_makes_every_case_around_what_it_names() -> None:
    def rule(name: str) -> None:
        wanted = [{OPERATORS[step.data[0]].name for step in fragment} for fragment in fragments((name,))]
        for index in range(3):
            found = set(operators(bulk.case(2, index, focus=(name,))))
            assert any(found & names for names in wanted), f"case {index} has {found}, should have some of {wanted}"

    assert_each(known_focus(), rule)


def test_an_unknown_focus_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'Convolute'.*Conv, .*pooling.*group-norm"):
        bulk.case(0, 0, focus=("Convolute",))
    with pytest.raises(ValueError, match="Convolute"):
        cases(focus="Convolute")


def test_weights_steer_what_is_drawn() -> None:
    def frequency(weights: dict[str, float]) -> Counter[str]:
        return Counter(name for index in range(80) for name in operators(bulk.case(6, index, weights=weights)))

    plain, steered = frequency({}), frequency({"Conv": 10.0, "Relu": 0.0})
    assert plain["Relu"] > 0
    assert steered["Conv"] > 3 * plain["Conv"]
    motif_relus = steered["Relu"]
    assert motif_relus < plain["Relu"] / 2, "only motifs may still bring a Relu"
    with pytest.raises(ValueError, match="Convolute"):
        bulk.case(0, 0, weights={"Convolute": 2.0})
    with pytest.raises(ValueError, match="leave no operator"):
        bulk.case(0, 0, weights=dict.fromkeys([*CODES, *motifs.MOTIFS], 0.0))


def test_weights_steer_features() -> None:
    def share(has: Callable[[Case], bool], **weights: float) -> float:
        steered = {f"feature:{name.replace('_', '-')}": factor for name, factor in weights.items()}
        return sum(has(bulk.case(3, index, weights=steered)) for index in range(60)) / 60

    def symbolic(case: Case) -> bool:
        return any(d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim)

    def constant(case: Case) -> bool:
        return any(node.op_type == "Constant" for node in case.proto.graph.node)

    def newest(case: Case) -> bool:
        return case.proto.opset_import[0].version == 26

    def empty(case: Case) -> bool:
        return any(x.size == 0 for x in case.feeds[0].values())

    assert share(symbolic, symbolic=0.1) < share(symbolic) - 0.2
    assert share(symbolic, symbolic=0.0) == 0
    assert share(newest, opset_26=20.0) > 0.3
    assert share(constant, source_constant=0.1) < share(constant) - 0.3
    assert share(empty, zero_size=0.0) == 0
    assert digest(bulk.case(3, 1, weights={"feature:symbolic": 1.0})) == digest(bulk.case(3, 1))
    with pytest.raises(ValueError, match="feature:form-listed"):
        bulk.case(0, 0, weights={"feature:green": 2.0})
    with pytest.raises(ValueError, match="hardly a model"):
        bulk.case(0, 0, weights={name: 0.0 for name in bulk.known_features() if "opset" in name})


def test_every_feature_of_a_model_can_be_ruled_out_and_asked_for() -> None:
    def rule(name: str) -> None:
        def frequency(factor: float) -> int:
            wanted = features.factors({features.PREFIX + name: factor})
            headers = [Header.read(features.header(Random(index), wanted)) for index in range(60)]
            return sum(map(features.OF_HEADER[name], headers))

        never, often = frequency(0.0), frequency(300.0)
        assert never == 0, f"in {never} of 60 headers with weight 0, should be in none"
        assert often >= 45, f"in {often} of 60 headers with weight 300, should be in 45 at least"

    assert_each(sorted(features.OF_HEADER), rule)


def test_every_source_of_operands_can_be_ruled_out() -> None:
    def rule(name: str) -> None:
        narrowed = features.narrowed(None, Random(0), {name: 0.0})
        assert narrowed is not None, "weight 0 narrowed nothing"
        left = (*narrowed.weights, *narrowed.numbers)
        assert features.OF_OPERANDS[name] not in left, f"ruled out, but among {left}"
        assert features.narrowed(None, Random(0), {name: 2.0}) is None, "nothing is narrowed by asking for more"

    assert_each(sorted(features.OF_OPERANDS), rule)


def test_a_profile_makes_operands_constant() -> None:
    seen = 0
    for index in range(60):
        case = bulk.case(8, index, profile=CONSTANT_OPERANDS)
        assert_valid(case)
        given = {value.name for value in case.proto.graph.input}
        with_weights = [n for n in case.proto.graph.node if n.op_type in ("Conv", "Gemm", "MatMul", "Reshape", "Slice")]
        # A number whose size differs between the feeds can only be an input.
        from_outside = [f"{n.op_type} {n.input[1]}" for n in with_weights if n.input[1] in given]
        assert from_outside == [], f"second operands of case {index} that are inputs, should be constant"
        seen += len(with_weights)
    assert seen > 30, f"only {seen} operators with weights in 60 cases: nothing was asked"


def test_a_size_that_differs_between_feeds_is_never_a_constant() -> None:
    """Where it may not be computed either, there are scales in its place: they fit every feed."""
    for index in range(30):
        assert_valid(bulk.case(7, index, focus=("Resize",), profile=CONSTANT_OPERANDS))


FEW = Profile(
    weights=("initializer", "constant"),
    numbers=("initializer",),
    symbolic=False,
    empty=False,
    dtypes=("float",),
    ranks=(2, 3),
    operators=("Add", "Cast", "Conv", "ConstantOfShape", "GRU", "MatMul", "Relu", "Reshape", "Tanh", "Where"),
    newest=18,
)


def test_a_profile_makes_models_of_what_it_has() -> None:
    def rule(index: int) -> None:
        case = bulk.case(8, index, profile=FEW)
        assert_valid(case)
        unknown = {*operators(case)} - {*FEW.operators, "Constant"}
        assert not unknown, f"has {unknown}, which the profile has not"
        assert case.proto.opset_import[0].version <= FEW.newest
        inputs = [value for value in case.proto.graph.input if value.type.tensor_type.elem_type != TensorProto.BOOL]
        for value in inputs:  # only Where needs another dtype
            kind, dims = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
            assert (kind, len(dims)) in ((1, 2), (1, 3)), f"{value.name} is of dtype {kind} and rank {len(dims)}"
            assert all(dim.dim_value > 0 for dim in dims), f"{value.name} is symbolic or empty"

    assert_each(range(60), rule, str)
    met = {name for index in range(60) for name in operators(bulk.case(8, index, profile=FEW))}
    assert met >= {*FEW.operators}, f"never drawn: {set(FEW.operators) - met}"
    assert "Neg" in operators(bulk.case(8, 1, profile=FEW, focus=("Neg",))), "what is asked for by name comes"


def test_a_motif_is_alive_from_its_first_step_to_its_last() -> None:
    def rule(name: str) -> None:
        fragment = motifs.MOTIFS[name]
        records = tuple(step.filled(bytes(RECORD)) for step in fragment)
        case = build(decode(Genome(bytes(HEADER), records, bytes(range(64)))))
        assert_valid(case)
        wanted = [OPERATORS[step.data[0]].name for step in fragment]
        left = iter(operators(case))
        assert all(op_type in left for op_type in wanted), f"became {operators(case)}, should hold {wanted} in order"

    assert_each(sorted(motifs.MOTIFS), rule)


def test_a_motif_cannot_ask_for_a_choice_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="Relu has no choice 'groups'"):
        motifs.step("Relu", groups=2)
    with pytest.raises(ValueError, match="not in tuple"):
        motifs.step("Conv", group=77)


def poolings_with_strides(case: Case) -> frozenset[str]:
    nodes = [n for n in case.proto.graph.node if n.op_type == "MaxPool"]
    return frozenset({"MaxPool"} if any(a.name == "strides" for n in nodes for a in n.attribute) else ())


def test_what_is_not_wanted_is_drawn_again_with_other_parameters() -> None:
    plain = [bulk.case(5, index, focus=("MaxPool",)) for index in range(40)]
    avoided = [bulk.case(5, index, focus=("MaxPool",), avoid=poolings_with_strides) for index in range(40)]
    left = [case for case in avoided if poolings_with_strides(case)]
    assert all(operators(case) == ["MaxPool"] for case in left), "only where a graph would have no node at all"
    assert len(left) <= 1
    objected = [i for i, case in enumerate(plain) if poolings_with_strides(case)]
    kept = [i for i in objected if "MaxPool" in operators(avoided[i])]
    assert len(kept) > len(objected) / 4, f"of {len(objected)} cases {len(kept)} have a MaxPool with other parameters"
    for case in avoided:
        assert_valid(case)
    same = [digest(a) == digest(b) for a, b in zip(plain, avoided) if not poolings_with_strides(a)]
    assert all(same), "a case that nobody objects to stays as it is"


def test_an_operator_that_is_never_wanted_is_left_out() -> None:
    def has_relu(case: Case) -> frozenset[str]:
        return frozenset({"Relu"} & set(operators(case)))

    avoided = [bulk.case(5, index, avoid=has_relu) for index in range(60)]
    assert any(has_relu(bulk.case(5, index)) for index in range(60)), "no case has what is avoided"
    assert not any(map(has_relu, avoided)), "a case has what is to be avoided"
    assert [digest(case) for case in avoided] == [digest(bulk.case(5, i, avoid=has_relu)) for i in range(60)]


def test_what_only_operands_come_from_is_avoided_by_the_operators_that_read_it():
    def dequantized(case: Case) -> frozenset[str]:
        return frozenset({"DequantizeLinear"} & set(operators(case)))

    assert sum(bool(dequantized(bulk.case(5, index))) for index in range(60)) > 5, "few cases have what is avoided"
    left = [index for index in range(60) if dequantized(bulk.case(5, index, avoid=dequantized))]
    assert not left, f"these still have what is to be avoided: {left}"
