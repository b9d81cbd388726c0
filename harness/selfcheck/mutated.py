"""Mutated targets: "driftnet.selfcheck.mutated:MUTANT@TARGET" is a target word like "mnn", for every mutant that fits.

A dot in TARGET is written as a slash: lost-bias@my_package/target:TARGET.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping

from driftnet.selfcheck import converter, quantizer, rewrites, runtime
from driftnet.selfcheck.mutant import MUTANTS, Mutant, own
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Target
from driftnet.targets.registry import registered

SHARED = (converter, rewrites, quantizer, runtime)
"""the modules whose bugs stand in MUTANTS"""


def mutants(target: Target) -> Mapping[str, Mutant]:
    """The bugs that fit into `target`, by name: the shared ones, and its own."""
    shared = [found for found in MUTANTS.values() if set(found.needs) <= target.features.keys()]
    return {found.name: found for found in (*shared, *(own(damage, quantizer.WEIGHTED) for damage in target.mutants))}


def word(mutant: str, target: str) -> str:
    """The target word of the target `target` with that bug."""
    return f"{__name__}:{mutant}@{target.replace('.', '/')}"


def preload() -> None:
    """Import what is registered, with what it wraps, so that forked workers have it."""
    for spec in registered().values():
        with contextlib.suppress(ImportError):  # a system that is not here
            getattr(importlib.import_module(spec.partition(":")[0]), "preload", lambda: None)()


def __getattr__(name: str) -> Target:
    called, _, target = name.partition("@")
    if not target:
        raise AttributeError(name)
    real = resolve(target.replace("/", ".")).target
    if called not in mutants(real):
        raise AttributeError(f"{called} is no bug that fits into {real.name}")
    return mutants(real)[called].put_into(real)
