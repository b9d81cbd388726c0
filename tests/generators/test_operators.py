"""The generators: every case is valid and varied, and the operators are those of the specification."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime as ort
from driftnet.generators import bulk, genome
from driftnet.generators.building import kernels, values
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import GraphSpec, Node, pruned
from driftnet.generators.building.header import FORMS, HEADER, Header
from driftnet.generators.building.record import CHOICES, RECORD, Record
from driftnet.generators.building.serialization import build
from driftnet.generators.building.values import DOUBLE, FLOAT, FLOAT16, INT32, INT64, UINT8, UINT32, UINT64
from driftnet.generators.genome import Genome, decode
from driftnet.generators.ops.registry import REGISTRY, Operator
from driftnet.generators.ops.table import CODES, OPERATORS, families
from driftnet.generators.strategies import cases
from driftnet.model.case import Case
from driftnet.model.operators import NOT_GENERATED
from hypothesis import given, settings

from tests.support import kernel_table
from tests.support.generated import assert_valid, operators, run
from tests.support.rules import assert_each

SOURCES = sorted(Path(genome.__file__).parent.rglob("[a-z]*.py"))


@lru_cache(maxsize=1)
def specs() -> tuple[GraphSpec, ...]:
    """Live parts of many graphs, without the cost of building them."""
    return tuple(pruned(decode(bulk.genome(77, index))) for index in range(1500))


def test_every_bulk_case_is_valid() -> None:
    assert_each(range(320), lambda index: assert_valid(bulk.case(1, index)))


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(case=cases())
def test_every_drawn_case_is_valid(case: Case) -> None:
    assert_valid(case)


def test_an_operator_is_valid_at_the_edges_of_its_opsets() -> None:
    def rule(name: str) -> None:
        rng = Random(name)
        oldest, newest = (header_of(opset) for opset in (11, REGISTRY[name].until))
        for header in (oldest, newest, oldest, newest):
            record = genome.of_code(CODES[name]).filled(rng.randbytes(RECORD))
            spec = decode(Genome(header[:1] + rng.randbytes(HEADER - 1), (record,), rng.randbytes(64)))
            made = [node.op_type for node in spec.nodes]
            assert name in made, f"its record adds {made}, should add {name}"
            assert_valid(build(spec))

    assert_each(CODES, rule)


def header_of(opset: int) -> bytes:
    return next(
        bytes([n, *bytes(HEADER - 1)]) for n in range(256) if Header.read(bytes([n, *bytes(HEADER - 1)])).opset == opset
    )


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
    rejecting = [
        path.name
        for path in SOURCES
        if re.search(r"\.filter\(|\bassume\b|\breject\(", path.read_text(encoding="utf-8"))
    ]
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


def test_forms_that_past_bugs_hang_on_are_half_of_what_is_drawn_of_an_operator() -> None:
    def share(name: str, has: Callable[[GraphSpec, Node], bool]) -> float:
        drawn = [decode(bulk.genome(5, index, focus=(name,), alone=True)) for index in range(80)]
        found = [has(spec, node) for spec in drawn for node in spec.nodes if node.op_type == name]
        return sum(found) / len(found)

    def from_the_end(spec: GraphSpec, node: Node) -> bool:
        (numbers,) = (given.fill.array for given in spec.givens if given.value.index == node.inputs[1])
        return numbers is not None and numbers.min() < 0

    def of_no_float(spec: GraphSpec, node: Node) -> bool:
        return spec.values[node.outputs[0]].dtype in values.RANGES

    assert 0.35 < share("ScatterND", from_the_end) < 0.65, "symbolic dims or not"
    assert 0.35 < share("SequenceEmpty", of_no_float) < 0.65, "whatever most of the model is"


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
            assert {feed[name].shape for feed in case.calibration} == {x.shape}, f"shapes of {name} in case {index}"
        for name, x in ((name, x) for name, x in case.feeds[0].items() if x.size):
            samples = np.concatenate([feed[name].ravel() for feed in case.calibration])
            assert np.nanmin(samples) <= np.nanmin(x), f"calibration of {name} in case {index} begins above the feed"
            assert np.nanmax(samples) >= np.nanmax(x), f"calibration of {name} in case {index} ends below the feed"


def test_constructed_numbers_are_small_and_dyadic() -> None:
    regular = [spec for spec in specs() if spec.regime is values.CONSTRUCTED][:40]
    for case in map(build, regular):
        for x in (array for feed in case.feeds for array in feed.values() if array.dtype == np.float32):
            numbers = x[np.isfinite(x)]
            assert np.array_equal(numbers * 32, np.round(numbers * 32)), "an input is off the grid"
            assert np.abs(numbers).max(initial=0) <= 16


def test_an_operator_is_registered_as_the_specification_has_it() -> None:
    def defined(name: str, opset: int) -> bool:
        return onnx.defs.has(name, opset) and not onnx.defs.get_schema(name, opset).deprecated

    def rule(operator: Operator) -> None:
        assert operator.rule, "states no rule, should say in its docstring what it computes"
        assert operator.family in families(), f"is of family {operator.family}, should be one of {list(families())}"
        assert defined(operator.name, operator.since), f"is not defined in opset {operator.since}, its first"
        older = operator.since > 11 and defined(operator.name, operator.since - 1)
        assert not older, f"is registered since opset {operator.since}, but is defined in the one before"

    assert_each(OPERATORS, rule, lambda operator: operator.name)


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
            Builder(header, max(header.opset, operator.since)).add(operator.name, operator.function, opened)
            assert records[-1].made <= RECORD - CHOICES, f"{operator.name} makes {records[-1].made} choices"


def test_every_operator_of_the_specification_is_decided_on() -> None:
    named = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert not set(CODES) & set(NOT_GENERATED)
    undecided = sorted(named - set(CODES) - set(NOT_GENERATED))
    assert undecided == [], (
        f"onnx {onnx.__version__} has {undecided}: register them, or say in model/operators.py why not"
    )


def test_the_table_of_kernels_is_what_its_onnxruntime_has() -> None:
    table, read = json.loads(kernel_table.FILE.read_text(encoding="utf-8")), kernel_table.read()
    # Of another onnxruntime than the table's nothing is known to be out of date.
    of_this_release = table["onnxruntime"] == ort.__version__
    assert not of_this_release or table == read, "kernels.json is out of date: python -m tests.support.kernel_table"
    assert kernels.dtypes("Add", 13) == (FLOAT, INT64, INT32, FLOAT16, DOUBLE, UINT32, UINT64)
    assert UINT8 in kernels.dtypes("Add", 14)
