"""The zoo is what its manifest says, and its inputs make each trained model do something. Run by `make zoo`."""

import numpy as np
import pytest
from driftnet.findings.corpus import read_given
from driftnet.model.case import Case

from tests.zoo.models import FEEDS, specimens

pytestmark = pytest.mark.zoo


def test_every_specimen_has_a_maker_of_inputs():
    names = [specimen.name for specimen in specimens()]
    assert sorted(FEEDS) == sorted(names), f"makers {sorted(FEEDS)}, should be those of the manifest, {sorted(names)}"
    assert len(names) >= 15, f"{len(names)} models, should be at least 15"


@pytest.mark.parametrize("specimen", specimens(), ids=lambda specimen: specimen.name)
def test_a_model_runs_on_its_inputs_and_tells_them_apart(specimen, runner):
    model = read_given(specimen.path)
    case = Case(model.SerializeToString(), (specimen.feed(0), specimen.feed(1)))
    ran = runner.reference.run(case)
    assert not ran.error, f"{specimen.name} does not run: {ran.error}"
    outputs = ran.outputs
    for name, first in outputs[0].items():
        assert first.dtype == object or np.isfinite(first).all(), (
            f"{specimen.name}: output {name} holds {first[~np.isfinite(first)][:3]}"
        )
    moved = [name for name, first in outputs[0].items() if not np.array_equal(first, outputs[1][name])]
    assert moved, f"{specimen.name}: no output of {list(outputs[0])} differs between two inputs"
