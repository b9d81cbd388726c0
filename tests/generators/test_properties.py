"""Hypothesis on the real targets: every divergence is explained by an open case of the corpus.

Derandomized, so that a failure here is one for everybody; it means a regression of driftnet or of a target, or that the
corpus lacks a case: `driftnet fuzz --save` finds and saves it.
"""

import pytest
from driftnet.generators.strategies import cases
from driftnet.model.verdict import Word
from driftnet.targets import recipe
from driftnet.targets.environments import resolve
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.paths import CORPUS


@pytest.fixture(scope="session")
def knowing(driftnet):
    return driftnet.knowing(CORPUS)


@pytest.mark.parametrize("target", ["mnn", "onnxruntime-quant"])
def test_every_divergence_is_explained_by_an_open_case(knowing, target):
    declared = resolve(target).target

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=25,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],  # a draw is fast, MNN's first crash is not
    )
    @given(case=cases(max_nodes=6), rng=st.randoms(use_true_random=False))
    def examine(case, rng):
        word = knowing.check(case, target, recipe.draw(declared, rng))
        assert word is not Word.INVALID, "the generator made a model that the reference refuses"

    examine()
