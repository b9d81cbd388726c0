"""What was found in releases of systems that are not installed here is still seen there."""

import pytest
from driftnet.commands.saved import replay_one, telling
from driftnet.findings import corpus
from driftnet.targets.environments import is_installed, where_seen

from tests.support.paths import CORPUS

ELSEWHERE = [path for path in CORPUS.iterdir() if path.is_dir() and not is_installed(path.name)]


@pytest.mark.network
@pytest.mark.parametrize("folder", corpus.folders(ELSEWHERE), ids=lambda folder: folder.name)
def test_a_saved_case_does_what_its_status_says_in_the_newest_release_that_did_so(folder, runner):
    saved = corpus.load(folder)
    said = replay_one(saved, where_seen(saved.target, telling(saved)), 2, runner)
    assert said["as_expected"], f"{saved.id} {said['outcome']}: {said['message']}"
