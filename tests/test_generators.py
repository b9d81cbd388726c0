"""The generators: every case is valid, varied, and the same wherever it is made."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from onnx import helper

from generators import bulk, genome, motifs, values
from generators.builder import Builder
from generators.case import Case, Feed
from generators.focus import fragments, known_focus
from generators.genome import Genome, decode
from generators.graph import GraphSpec, pruned
from generators.header import FORMS, HEADER, Header
from generators.ops import kernels
from generators.ops.catalogue import NOT_GENERATED, page
from generators.ops.registry import REGISTRY
from generators.ops.table import CODES, OPERATORS, families
from generators.profile import CONSTANT_OPERANDS
from generators.record import CHOICES, RECORD, Record
from generators.serialisation import build
from generators.strategies import cases
from generators.values import DOUBLE, FLOAT, FLOAT16, INT32, INT64, UINT8, UINT32, UINT64
from tests import kernel_table

CHUNK = 40


def run(model: bytes, feed: Feed) -> list[np.ndarray]:
    """The outputs of onnxruntime without optimisations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, dict(feed))]


def assert_as_declared(value: onnx.ValueInfoProto, x: np.ndarray, symbols: dict[str, int]) -> None:
    """Dtype and shape are those declared, and a symbol has one size throughout."""
    tensor = value.type.tensor_type
    assert x.dtype == helper.tensor_dtype_to_np_dtype(tensor.elem_type), f"{value.name} has dtype {x.dtype}"
    declared = [d.dim_param or d.dim_value for d in tensor.shape.dim]
    assert len(declared) == x.ndim, f"{value.name} has shape {x.shape}, declared {declared}"
    for dim, n in zip(declared, x.shape):
        expected = symbols.setdefault(dim, n) if isinstance(dim, str) else dim
        assert expected == n, f"{value.name} has shape {x.shape}, declared {declared}, symbols {symbols}"


def assert_valid(case: Case) -> None:
    """The checker accepts the model, and onnxruntime gives finite outputs as declared for every feed."""
    onnx.checker.check_model(case.proto, full_check=True)
    for feed in (*case.feeds, *case.calibration):
        symbols: dict[str, int] = {}
        outputs = run(case.model, feed)
        for value in case.proto.graph.input:
            if value.name in feed:  # else it has an initializer
                assert_as_declared(value, feed[value.name], symbols)
        for value, x in zip(case.proto.graph.output, outputs):
            assert_as_declared(value, x, symbols)
            assert x.dtype.kind != "f" or np.isfinite(x).all(), f"{value.name} is not finite in {case.origin}"


def operators(case: Case) -> list[str]:
    return [node.op_type for node in case.proto.graph.node if node.op_type != "Constant"]


def digest(case: Case) -> str:
    h = hashlib.sha256(case.model)
    for feed in (*case.feeds, *case.calibration):
        for name in sorted(feed):
            h.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode() + feed[name].tobytes())
    return h.hexdigest()


@lru_cache(maxsize=1)
def specs() -> tuple[GraphSpec, ...]:
    """Live parts of many graphs, without the cost of building them."""
    return tuple(pruned(decode(bulk.genome(77, index))) for index in range(1500))


@pytest.mark.parametrize("start", range(0, 320, CHUNK))
def test_every_bulk_case_is_valid(start: int) -> None:
    for index in range(start, start + CHUNK):
        assert_valid(bulk.case(1, index))


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(case=cases())
def test_every_drawn_case_is_valid(case: Case) -> None:
    assert_valid(case)


@pytest.mark.parametrize("name", [operator.name for operator in OPERATORS])
def test_an_operator_is_valid_at_the_edges_of_its_opsets(name: str) -> None:
    rng = Random(name)
    oldest, newest = (header_of(opset) for opset in (11, REGISTRY[name].until))
    for header in (oldest, newest, oldest, newest):
        record = genome.of_code(CODES[name]).filled(rng.randbytes(RECORD))
        spec = decode(Genome(header[:1] + rng.randbytes(HEADER - 1), (record,), rng.randbytes(64)))
        assert name in [node.op_type for node in spec.nodes], f"a record of {name} adds no {name}"
        assert_valid(build(spec))


def header_of(opset: int) -> bytes:
    return next(
        bytes([n, *bytes(HEADER - 1)]) for n in range(256) if Header.read(bytes([n, *bytes(HEADER - 1)])).opset == opset
    )


def test_a_pair_of_seed_and_index_names_one_case_in_every_process() -> None:
    here = [digest(bulk.case(5, index)) for index in (0, 1, 40, 41)]
    program = (
        "import tests.test_generators as t; from generators import bulk; "
        "print(*[t.digest(bulk.case(5, index)) for index in (41, 0, 40, 1)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    folder = Path(__file__).parent.parent
    there = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()
    assert [there[1], there[3], there[2], there[0]] == here, "another process made other cases"
    assert len(set(here)) == 4, "different indices made the same case"


def test_zero_bytes_mean_one_node_on_one_element() -> None:
    case = build(decode(Genome(bytes(HEADER), (bytes(RECORD),), bytes(8))))
    assert operators(case) == ["Identity"]
    assert [x.tolist() for x in case.feeds[0].values()] == [[[0.0]]]
    assert len(case.feeds) == 1


def test_any_bytes_are_a_genome() -> None:
    for header, records, pool in (
        (b"", (), b""),
        (b"\xff", (b"\xff" * 3, b""), b"\1"),
        (b"\7" * 99, (b"\5" * 99,), b""),
    ):
        assert_valid(build(decode(Genome(header, records, pool))))


def test_deleting_a_record_leaves_the_operators_of_the_others_alone() -> None:
    for index in range(60):
        whole = bulk.genome(9, index)
        expected = [OPERATORS[record[0] % len(OPERATORS)].name for record in whole.records]
        for position in range(0, len(whole.records), 3):
            rest = whole.records[:position] + whole.records[position + 1 :]
            made = [node.op_type for node in decode(Genome(whole.header, rest, whole.pool)).nodes]
            left = iter(made)
            wanted = expected[:position] + expected[position + 1 :]
            assert all(name in left for name in wanted), f"{wanted} became {made}"


def test_nothing_is_rejected() -> None:
    sources = sorted(Path(genome.__file__).parent.rglob("*.py"))
    rejecting = [path.name for path in sources if re.search(r"\.filter\(|\bassume\b|\breject\(", path.read_text())]
    assert rejecting == [], f"valid by construction means no assume and no filter, but {rejecting} have them"


def test_every_operator_and_every_opset_appears() -> None:
    seen = {node.op_type for spec in specs() for node in spec.nodes}
    assert [name for name in CODES if name not in seen] == []
    assert sorted({spec.opset for spec in specs()}) == list(range(11, 27))


def test_graphs_are_varied() -> None:
    def share(property_: list[bool]) -> float:
        return sum(property_) / len(property_)

    all_specs = specs()
    given = [[g.source for g in spec.givens] for spec in all_specs]
    inner = [bool({i for node in s.nodes for i in node.inputs} & set(s.outputs)) for s in all_specs]
    assert sum(len(spec.nodes) for spec in all_specs) / len(all_specs) >= 6, "mean of live nodes"
    assert share([not all(value.static for value in spec.values) for spec in all_specs]) > 0.5, "symbolic dims"
    assert share([sources.count("input") > 1 for sources in given]) > 0.5, "several inputs"
    assert share([len(spec.outputs) > 1 for spec in all_specs]) > 0.3, "several outputs"
    assert share(inner) > 0.2, "intermediates that are outputs"
    assert share([{"initializer", "constant", "input"} <= set(sources) for sources in given]) > 0.3, "operand sources"
    wide = [any(v.rank > 2 and v.shape[1] > 64 for v in spec.values) for spec in all_specs]
    assert 0.01 < share(wide) < 0.2, "channels beyond one vector loop, now and then"
    assert {spec.form for spec in all_specs} == set(FORMS)
    assert {spec.regime.name for spec in all_specs} == {regime.name for regime in values.REGIMES}
    assert {value.rank for spec in all_specs for value in spec.values} >= {0, 1, 2, 3, 4, 5}


def test_most_cases_are_not_vacuous() -> None:
    moved = 0
    for index in range(100):
        spec = decode(bulk.genome(3, index))
        one, other = build(spec), build(replace(spec, pool=spec.pool[::-1]))
        outputs = zip(run(one.model, one.feeds[0]), run(other.model, other.feeds[0]))
        moved += any(not np.array_equal(x, y) for x, y in outputs)
    assert moved >= 90, f"only {moved} of 100 cases change an output when inputs and weights change"


def test_calibration_covers_the_first_feed() -> None:
    for index in range(50):
        case = bulk.case(4, index)
        for name, x in case.feeds[0].items():
            samples = np.concatenate([feed[name].ravel() for feed in case.calibration])
            if x.size:
                assert np.nanmin(samples) <= np.nanmin(x)
                assert np.nanmax(samples) >= np.nanmax(x)
            assert all(feed[name].shape == x.shape for feed in case.calibration)


def test_constructed_numbers_are_small_and_dyadic() -> None:
    regular = [spec for spec in specs() if spec.regime is values.CONSTRUCTED][:40]
    for case in map(build, regular):
        for x in (array for feed in case.feeds for array in feed.values() if array.dtype == np.float32):
            numbers = x[np.isfinite(x)]
            assert np.array_equal(numbers * 32, np.round(numbers * 32)), "an input is off the grid"
            assert np.abs(numbers).max(initial=0) <= 16


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


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_is_registered_as_the_specification_has_it(operator: object) -> None:
    assert isinstance(operator, type(OPERATORS[0]))
    assert operator.rule, f"{operator.name} states no rule"
    assert operator.family in families()
    schema = onnx.defs.get_schema(operator.name, operator.since)
    assert not schema.deprecated, f"{operator.name} is deprecated"
    if operator.since > 11:
        before = operator.since - 1
        assert not onnx.defs.has(operator.name, before) or onnx.defs.get_schema(operator.name, before).deprecated, (
            f"{operator.name} is older than {operator.since}"
        )


def test_every_choice_has_a_byte() -> None:
    class Counting(Record):
        made = 0

        def choose(self, name, options):  # type: ignore[no-untyped-def]
            self.made += 1
            return super().choose(name, options)

    rng, records = Random(0), []

    def opened() -> Counting:
        records.append(Counting(rng.randbytes(RECORD)))
        return records[-1]

    for operator in OPERATORS:
        for _ in range(8):
            header = Header.read(rng.randbytes(HEADER))
            Builder(header, max(header.opset, operator.since)).add(operator.function, opened)
            assert records[-1].made <= RECORD - CHOICES, f"{operator.name} makes {records[-1].made} choices"


def test_every_operator_of_the_specification_is_decided_on() -> None:
    named = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert not set(CODES) & set(NOT_GENERATED)
    undecided = sorted(named - set(CODES) - set(NOT_GENERATED))
    assert undecided == [], f"onnx {onnx.__version__} has {undecided}: register them, or say in the catalogue why not"


def test_the_page_of_operators_is_that_of_the_registry() -> None:
    written = (Path(__file__).parent.parent / "docs" / "operators.md").read_text()
    assert written == page(), "docs/operators.md is out of date: python -m generators.ops.catalogue"


def test_the_table_of_kernels_is_what_its_onnxruntime_has() -> None:
    table = json.loads(kernel_table.FILE.read_text())
    if table["onnxruntime"] == ort.__version__:
        assert table == kernel_table.read(), "kernels.json is out of date: python -m tests.kernel_table"
    assert kernels.dtypes("Add", 13) == (FLOAT, INT64, INT32, FLOAT16, DOUBLE, UINT32, UINT64)
    assert UINT8 in kernels.dtypes("Add", 14)


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
