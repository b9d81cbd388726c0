"""Benchmarks measure what they say they measure."""

import shutil

import pytest
from driftnet.campaign.summary import Entry, Summary
from driftnet.causes.impact import Severity
from driftnet.commands import bench
from driftnet.findings import corpus
from driftnet.findings.corpus import COMMITTED
from driftnet.util.errors import UserError

from tests.support import check_costs, models


def test_a_check_is_measured_with_all_of_its_processes():
    forms = dict(check_costs.forms())
    assert [*forms] == [
        "float on mnn",
        "float on onnxruntime-graph",
        "float on onnxruntime-quant",
        "quantized by onnxruntime-quant",
    ]
    measures = check_costs.measures({"relu": models.relu}, {"float": forms["float on onnxruntime-quant"]})
    assert measures.pop("relu, float: share vouched for") == 1.0
    assert measures.pop("relu, float: runs of the target") == 1.0
    assert 0.1 < measures.pop("relu, float: CPU s") < 60
    assert measures.pop("relu, float: largest process, MiB") > 50
    assert not measures


def test_a_campaign_is_measured_by_what_it_finds_for_its_time():
    def finding(name, status, times):
        told = {"release": "1", "stage": "execute", "kind": "crash", "signature": name, "message": "", "path": ""}
        counts = {"nodes": 1, "elements": 1, "unfinished": False, "times": times}
        return Entry(id=name, target="mnn", status=status, cause=name[0], severity=Severity.CRASH, **told, **counts)

    summary = Summary(
        cases=120,
        models=30,
        seed=1,
        cpu_seconds=40.0,
        cpu_by={"clean": 4.0, "known": 6.0, "new": 20.0, "handed over": 5.0, "other": 5.0},
        verdicts={"rejects": 20, "agrees": 60, "crashes": 40},
        findings=[finding("a1", "new", 1), finding("a2", "new", 2), finding("b1", "new", 1), finding("c", "known", 29)],
        mistaken=1,
        wall_seconds=50.0,
        cpu_parts={
            "explanation: target convert": 8.0,
            "explanation: explanation": 2.0,
            "reduction: target convert": 20.0,
        },
    )
    measures = bench.campaign_measures(summary)
    assert measures["new causes"] == 2, "two findings share a cause"
    assert measures["new causes per CPU minute"] == 3
    assert measures["cases per CPU second"] == 3
    assert measures["cases that are not refused per CPU second"] == 2.5
    assert measures["CPU ms of a known failure"] == 200
    assert measures["share of the CPU time, known"] == 0.15
    assert sum(value for name, value in measures.items() if name.startswith("share")) == 1
    parts = {name.split("spent ")[1]: value for name, value in measures.items() if name.startswith("part of the CPU")}
    should = {
        "for: everything else": 0.25,
        "for: explanation": 0.25,
        "for: reduction": 0.5,
        "on: everything else": 0.25,
        "on: explanation": 0.05,
        "on: target convert": 0.7,
    }
    assert parts == should, f"got {parts}, should be {should}"
    assert round(measures["part of the wall time, waiting"], 6) == 0.2, "50 s for 40 CPU s"


def test_two_results_are_compared_as_they_are_and_as_if_the_fixed_work_had_taken_as_long():
    names = ("cases per CPU second", "oracle, ms per case", "mnn, CPU s", "share of the CPU time, known")
    before = bench.Result("b", dict.fromkeys(names, 10.0), {}, work=2.0)
    ratios = bench.compared(before, bench.Result("b", dict.fromkeys(names, 20.0), {}, work=4.0)).ratios
    should = dict(zip(names, [(2.0, 4.0), (2.0, 1.0), (2.0, 1.0), (2.0, None)]))
    assert ratios == should, f"on a machine at half the speed: got {ratios}, should be {should}"
    older = bench.compared(bench.Result("b", before.measures, {}), before).ratios
    assert set(older.values()) == {(1.0, None)}, f"an older result has no fixed work: got {older}"


def test_a_result_tells_what_it_was_measured_with(monkeypatch):
    monkeypatch.setattr(bench, "BENCHMARKS", {"one": lambda: {"x": 1.0}})
    monkeypatch.setattr(bench, "WORK", 1)
    told = bench.run("one")
    lacking = {"arch", "python", "onnx", "numpy", *bench.DEFAULT_TARGETS} - told.machine.keys()
    assert not lacking, f"nothing says which {lacking}"
    assert told.work is not None
    assert 0 < told.work < 10, f"got {told.work} CPU s"


def test_a_benchmark_that_there_is_not_is_named_with_those_there_are():
    with pytest.raises(UserError) as error:
        bench.run("nothing")
    assert error.value.hint == "there is campaign, cases, generators, lint"


def test_a_corpus_ten_times_as_large_has_the_same_causes_under_other_names(tmp_path):
    part = tmp_path / "part" / "tract"
    shutil.copytree(COMMITTED / "tract", part)
    bench.multiplied(part.parent, tmp_path / "many", 3)
    once, many = corpus.load_all(part.parent), corpus.load_all(tmp_path / "many")
    assert len(many) == 3 * len(once)
    assert len({saved.id for saved in many}) == len(many), "each has a name of its own"
    assert {saved.id for saved in once} < {saved.id for saved in many}
    for saved in many:
        assert saved.cause, f"{saved.id} has a cause"
        assert saved.cause.trigger in {one.cause.trigger for one in once if one.cause}
