"""A program of somebody who uses driftnet, and checks types strictly: `make lint` reads it."""

from pathlib import Path
from typing import Any, assert_type

from driftnet import (
    Case,
    CheckSettings,
    Option,
    Plan,
    Rule,
    StageError,
    Summary,
    Target,
    audit,
    cases,
    check,
    coverage,
    fuzz,
    generate,
    lint,
    replay,
    report,
    support,
)
from hypothesis.strategies import SearchStrategy


def uses(model: str, case: Case) -> Target:
    """Each name of the package, with the type that its user is told."""
    assert_type(cases(focus="Conv"), SearchStrategy[Case])
    assert_type(case.model, bytes)
    assert_type(check(model, CheckSettings(targets=["mnn"])), dict[str, Any])
    assert_type(audit(Path(model), model), dict[str, Any])
    assert_type(lint(model, target="mnn"), dict[str, Any])
    assert_type(replay([model]), dict[str, Any])
    assert_type(fuzz(Plan(report=Path(model), targets="mnn", cases=1)), Summary)
    assert_type(generate(cases=1, out=model, focus="Conv"), dict[str, Any])
    assert_type(report(model, out=model), dict[str, Any])
    assert_type(support("mnn", operators="Conv"), dict[str, Any])
    assert_type(coverage([Path(model)], targets="mnn"), dict[str, Any])

    def convert(model: str, folder: str, options: object) -> str:
        raise StageError(model)

    return Target(
        "mine",
        "my-package",
        convert,
        lambda artifact, calibration, folder, options: artifact,
        lambda artifact, feeds, outputs, options: [],
        options=(Option("threads", "execute", (1, 4), "threads"),),
        refusals=(Rule("unsupported", "execute", "not supported", "its manual"),),
    )
