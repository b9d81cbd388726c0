"""Scripts of cases drawn at random see the failure, and do not see it without its trigger. `make proofs` draws more."""

from pathlib import Path

import pytest
from driftnet.findings import corpus

from tests.handover import proofs


def told(runner, tmp_path, count, pythons):
    found = [proofs.measured(source, tmp_path, runner, pythons, 0) for source in proofs.drawn(count, seed=7)]
    return {one.name: (one.case, one.control) for one in found}


def test_a_few_scripts_of_the_corpus_here(runner, tmp_path):
    found = told(runner, tmp_path, 2, {})
    assert {case for case, _ in found.values()} == {"reproduced"}, f"some do not reproduce: {found}"
    assert {control for _, control in found.values()} <= {"not reproduced", "none"}, f"some control fails: {found}"


@pytest.mark.network
def test_scripts_of_the_corpus_in_clean_environments(runner, tmp_path):
    sources = proofs.drawn(12, seed=7)
    pythons = proofs.clean(sorted({corpus.load(source).target for source in sources}), Path(tmp_path / "cache"))
    found = told(runner, tmp_path, 12, pythons)
    assert {case for case, _ in found.values()} == {"reproduced"}, f"some do not reproduce: {found}"
