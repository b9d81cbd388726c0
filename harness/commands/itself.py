"""driftnet itself: what it can examine, what it costs, and whether its oracle bites."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from driftnet.commands import bench as benchmarks
from driftnet.run.sandbox import hiding
from driftnet.run.sandbox.zygote import Zygote
from driftnet.selfcheck import selfcheck as selfchecks
from driftnet.targets import environments
from driftnet.targets.interface import STAGES
from driftnet.targets.registry import DEFAULT_TARGETS, registered
from driftnet.util.errors import UserError
from driftnet.util.files import json_text, make_folder, replace_text


def targets(*, prune: bool = False) -> dict[str, Any]:
    """Every registered target with its releases and options; `prune` deletes the environments of other releases."""
    if prune:
        environments.prune()
    with Zygote() as zygote:
        isolated = zygote.network_isolated
    refused = hiding.refusal()
    return {
        "targets": [_described(name) | {"network_isolated": isolated} for name in registered()],
        "files": {"hidden": hiding.asked(), "can_be_hidden": refused is None, "why_not": refused[0] if refused else ""},
    }


def _described(name: str) -> dict[str, Any]:
    target = environments.declared(name)
    made = [e.release for e in environments.environments() if e.distribution == target.distribution]
    return {
        "name": name,
        "installed": environments.release_here(target.distribution),
        "releases": list(dict.fromkeys(made)),
        "stages": list(STAGES),
        "options": [{k: v for k, v in vars(option).items() if k != "applies"} for option in target.options],
    }


def bench(name: str = "cases", *, compare: tuple[Path, Path] | None = None, out: Path | None = None) -> dict[str, Any]:
    """Run one benchmark, or put two results beside each other (the second against the first).

    Raises UserError for an unknown benchmark, a file that holds no result, and when `out` cannot be written.
    """
    if out:
        make_folder(out.parent)
        if out.is_dir():
            raise UserError(f"cannot write {out}: it is a folder", hint="name a file in it", kind="disk")
    if compare:
        before, measured = (benchmarks.read(path) for path in compare)
        measured = benchmarks.compared(before, measured)
    else:
        measured = benchmarks.run(name)
    result: dict[str, Any] = msgspec.to_builtins(measured)
    if out:
        replace_text(out, json_text(result, indent=1) + "\n")
    return result


def selfcheck(
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    cases: int = 22,
    seed: int = 0,
    kinds: Sequence[str] = (),
    workers: int = 1,
    corpus_folder: Path = Path("corpus"),
    out: Path | None = None,
    listener: selfchecks.Listener = selfchecks.nobody,
) -> dict[str, Any]:
    """Put bugs into real targets and count which are detected, on `cases` effective cases of each kind of bug.

    kinds  names of bugs, by default all that fit into the targets; the listener is told of each that is done. What the
    open cases in `corpus_folder` explain is no false alarm; what else clean targets are blamed for is written into
    `out`, reduced. Raises UserError for a kind or a target that there is not.
    """
    many = {"cases": cases, "seed": seed, "workers": workers}
    counts = selfchecks.run(kinds, targets=targets, corpus_folder=corpus_folder, out=out, listener=listener, **many)
    return {"seed": seed, "cases": cases, **selfchecks.summary(counts)}


def selfcheck_status(result: Mapping[str, Any]) -> int:
    """The exit status of `selfcheck`: 1 when too little is tested or detected, or there is a false alarm."""
    return 1 if result["problems"] else 0
