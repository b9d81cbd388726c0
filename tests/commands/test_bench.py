"""Benchmarks measure what they say they measure."""

import pytest
from driftnet.commands import bench
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


def test_a_benchmark_that_there_is_not_is_named_with_those_there_are():
    with pytest.raises(UserError) as error:
        bench.run("nothing")
    assert error.value.hint == "there is cases, generators"
