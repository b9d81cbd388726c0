"""Profiles for tests of toolchains, which Hypothesis registers itself when it is imported (an entry point): used by
`--hypothesis-profile driftnet-ci`, or `settings.load_profile("driftnet-ci")` in a conftest.py."""

from typing import Any

from hypothesis import HealthCheck, settings

# A stage that takes long is ended by the sandbox, and the first run of a native library is slower than all others.
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
_CASES = {"driftnet-dev": 25, "driftnet-ci": 100, "driftnet-nightly": 2000}


def register() -> None:
    """driftnet-dev: few cases, other ones each time. driftnet-ci: the same ones each time, for everybody.
    driftnet-nightly: many, other ones each time."""
    for name, cases in _CASES.items():
        same: dict[str, Any] = {"derandomize": True, "database": None} if name == "driftnet-ci" else {}
        # Hypothesis' own "ci" is the parent where CI is set, and has no database: a night would forget what failed.
        settings.register_profile(name, settings.get_profile("default"), max_examples=cases, **_COMMON, **same)
