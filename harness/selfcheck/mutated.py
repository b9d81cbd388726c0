"""Mutated targets: "driftnet.selfcheck.mutated:MUTANT@MODULE:ATTRIBUTE" is a target word, for every mutant that
fits into the target there, whose dots are slashes: lost-bias@my_package/target:TARGET. It holds no name, for a worker
in an environment that was made for another release knows of none.
"""

import contextlib
import importlib
from collections.abc import Mapping

from driftnet.selfcheck import converter, quantizer, rewrites, runtime
from driftnet.selfcheck.mutant import MUTANTS, Mutant, own
from driftnet.targets.interface import Target
from driftnet.targets.loading import attribute
from driftnet.targets.registry import registered

SHARED = (converter, rewrites, quantizer, runtime)
"""the modules whose bugs stand in MUTANTS"""


def mutants(target: Target) -> Mapping[str, Mutant]:
    """The bugs that fit into `target`, by name: the shared ones, and its own."""
    shared = [found for found in MUTANTS.values() if set(found.needs) <= target.features.keys()]
    return {found.name: found for found in (*shared, *(own(damage, quantizer.WEIGHTED) for damage in target.mutants))}


def word(mutant: str, target: str) -> str:
    """The target word of the target `target`, NAME or NAME==RELEASE, with that bug."""
    name, equals, release = target.partition("==")
    spec = registered().get(name, name)
    return f"{__name__}:{mutant}@{spec.replace('.', '/')}{equals}{release}"


def preload() -> None:
    """Import what is registered, with what it wraps, so that forked workers have it."""
    for spec in registered().values():
        with contextlib.suppress(ImportError):  # a system that is not here
            getattr(importlib.import_module(spec.partition(":")[0]), "preload", lambda: None)()


def __getattr__(name: str) -> Target:
    called, _, target = name.partition("@")
    if not target:
        raise AttributeError(name)
    module, _, path = target.replace("/", ".").partition(":")
    real = attribute(module, path)
    if not isinstance(real, Target):
        raise AttributeError(name)
    if called not in mutants(real):
        raise AttributeError(f"{called} is no bug that fits into {real.name}")
    return mutants(real)[called].put_into(real)
