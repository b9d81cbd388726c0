"""The profiles that Hypothesis knows where driftnet is installed."""

import pytest
from hypothesis import settings


@pytest.mark.parametrize(
    ("name", "cases", "always_the_same"),
    [("driftnet-dev", 25, False), ("driftnet-ci", 100, True), ("driftnet-nightly", 2000, False)],
)
def test_hypothesis_has_the_profile(name, cases, always_the_same):
    profile = settings.get_profile(name)
    assert (profile.max_examples, profile.derandomize) == (cases, always_the_same)
    assert profile.deadline is None, "the first run of a native library would be a failure"
    assert (profile.database is None) is always_the_same, "what failed before would come first, and not for everybody"
