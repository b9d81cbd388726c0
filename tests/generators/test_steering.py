"""Focus, weights, features, profiles and motifs: what is drawn, and how that is steered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from driftnet.generators import bulk, features, motifs
from driftnet.generators.focus import fragments, known_focus
from driftnet.generators.genome import Genome, decode
from driftnet.generators.header import HEADER, Header
from driftnet.generators.ops.table import CODES, OPERATORS
from driftnet.generators.profile import CONSTANT_OPERANDS
from driftnet.generators.record import RECORD
from driftnet.generators.serialization import build
from driftnet.generators.strategies import cases
from driftnet.model.case import Case

from tests.support.generated import assert_valid, digest, operators


@pytest.mark.parametrize("name", known_focus())
def test_focus_makes_every_case_around_what_it_names(name: str) -> None:
    wanted = [{OPERATORS[step.data[0]].name for step in fragment} for fragment in fragments((name,))]
    for index in range(3):
        found = set(operators(bulk.case(2, index, focus=(name,))))
        assert any(found & names for names in wanted), f"no trace of {name} in {found}"


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


@pytest.mark.parametrize("name", sorted(features.OF_HEADER))
def test_every_feature_of_a_model_can_be_ruled_out_and_asked_for(name: str) -> None:
    def headers(factor: float) -> list[Header]:
        wanted = features.factors({features.PREFIX + name: factor})
        return [Header.read(features.header(Random(index), wanted)) for index in range(60)]

    has = features.OF_HEADER[name]
    assert not any(map(has, headers(0.0))), f"{name} appears with weight 0"
    assert sum(map(has, headers(300.0))) >= 45, f"{name} is not frequent with weight 300"


@pytest.mark.parametrize("name", sorted(features.OF_OPERANDS))
def test_every_source_of_operands_can_be_ruled_out(name: str) -> None:
    narrowed = features.narrowed(None, Random(0), {name: 0.0})
    assert narrowed is not None
    assert features.OF_OPERANDS[name] not in (*narrowed.weights, *narrowed.numbers)
    assert features.narrowed(None, Random(0), {name: 2.0}) is None, "nothing is narrowed by asking for more"


def test_a_profile_makes_operands_constant() -> None:
    for index in range(60):
        case = bulk.case(8, index, profile=CONSTANT_OPERANDS)
        assert_valid(case)
        given = {value.name for value in case.proto.graph.input}
        for node in case.proto.graph.node:
            if node.op_type in ("Conv", "Gemm", "MatMul", "Reshape", "Slice"):
                # A number whose size differs between the feeds can only be an input.
                fixed = [name for name in node.input[1:2] if name in given]
                assert fixed == [], f"{node.op_type} takes {fixed} from outside in case {index}"


@pytest.mark.parametrize("name", sorted(motifs.MOTIFS))
def test_a_motif_is_alive_from_its_first_step_to_its_last(name: str) -> None:
    fragment = motifs.MOTIFS[name]
    records = tuple(step.filled(bytes(RECORD)) for step in fragment)
    case = build(decode(Genome(bytes(HEADER), records, bytes(range(64)))))
    assert_valid(case)
    wanted = [OPERATORS[step.data[0]].name for step in fragment]
    left = iter(operators(case))
    assert all(op_type in left for op_type in wanted), f"{name} became {operators(case)}"


def test_a_motif_cannot_ask_for_a_choice_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="Relu has no choice 'groups'"):
        motifs.step("Relu", groups=2)
    with pytest.raises(ValueError, match="not in tuple"):
        motifs.step("Conv", group=77)
