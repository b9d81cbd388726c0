"""Plan: what a campaign examines, and what is chosen for each of its cases beside the graph."""

import math
import random
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from driftnet.model.inspect import Case
from driftnet.on_grid.construct import construct
from driftnet.run.share import GENERATED_SECONDS, MEMORY_GIB
from driftnet.targets import recipe
from driftnet.targets.environments import Installed
from driftnet.targets.interface import Target
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.options import listed, paths_of

RECIPES_PER_MODEL = 4
REDRAWS = 8
"""Times that another recipe is drawn in the place of one that its model has: of some rewriters there are but two."""
LOSSLESS_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a campaign examines, and when it ends.

    targets   target words ("mnn", "mnn==3.4.1", ...); one that is named twice runs once
    minutes, cases   of wall time, or cases (model x target x recipe), whichever is over first; two minutes by default
    focus     names the generator is restricted to
    seeds     models (ONNX files, saved cases, folders of them) whose neighbours take the place of generated graphs
    steer     make what open cases already blame rarer (then the cases depend on what was found before)
    corpus    folder of known cases; of corpus/ what came with driftnet is known too;   save   bring new ones into it
    state     folder of a state (`driftnet.campaign.state`), what its nights found is known too
    mended    ids of causes that are fixed on these releases: what fails like them is new
    report    folder of the run: new cases are written below its cases/ as they are found
    resume    go on with the case indices after those of the summary.json in `report`
    cluster   address of a Dask scheduler, whose workers examine then in place of processes of this machine
    python    the interpreter that holds the targets; None: this one, or one made for a release
    timeout, memory_gib   of one stage of a target;   reduce_seconds   for the reduction of one finding

    Paths may be given as texts, and a single target, name or seed as it is.
    """

    report: Path
    targets: str | Sequence[str] = DEFAULT_TARGETS
    minutes: float | None = None
    cases: int | None = None
    seed: int = 0
    workers: int = 1
    cluster: str = ""
    focus: Sequence[str] = ()
    seeds: Sequence[Path] = ()
    steer: bool = True
    corpus: Path = Path("corpus")
    save: bool = False
    state: Path | None = None
    mended: Set[str] = frozenset()
    resume: bool = False
    python: str | None = None
    timeout: float = GENERATED_SECONDS
    memory_gib: float = MEMORY_GIB
    reduce_seconds: float = 10.0

    def __post_init__(self) -> None:
        # Programs have paths as texts, and one name where there may be several: what reads a plan is spared that.
        given = {name: path for name in ("report", "corpus", "state") if (path := getattr(self, name)) is not None}
        paths = {name: Path(path) for name, path in given.items()}
        names = {"targets": tuple(dict.fromkeys(listed(self.targets))), "focus": tuple(listed(self.focus))}
        for name, value in {**paths, **names, "seeds": tuple(paths_of(self.seeds))}.items():
            object.__setattr__(self, name, value)

    @property
    def found(self) -> Path:
        """The folder into which new cases are written."""
        return self.report / "cases"

    @property
    def seconds(self) -> float:
        """Of wall time, after which it ends."""
        minutes = 2.0 if self.minutes is None and self.cases is None else self.minutes
        return math.inf if minutes is None else 60 * minutes

    @property
    def cases_per_model(self) -> int:
        """How many cases (model x target x recipe) one index stands for."""
        return len(self.targets) * RECIPES_PER_MODEL


class Choice(NamedTuple):
    """What is chosen for one case beside its graph.

    grid_seed, on_grid   whether it is put on the quantizer's grid, where it quantizes and the graph allows that
    """

    recipe: dict[str, Any]
    grid_seed: int
    on_grid: bool


def choices(installed: Installed, seed: int, index: int) -> list[Choice]:
    """What is chosen for each case of `index` on one target, the same wherever it is examined: what quantizes nothing
    first, as what fails there needs no search behind a quantizer, and explains what fails alike when quantized. Where
    the target has as many recipes each is another: the same of the same graph says nothing more."""
    target, name = installed.target, f"{seed}/{index}/{installed.target.name}"
    rng, again = random.Random(name), random.Random(f"{name}/again")
    chosen: list[Choice] = []
    for _ in range(RECIPES_PER_MODEL):
        one = Choice(recipe.draw(target, rng), rng.getrandbits(32), rng.random() < LOSSLESS_SHARE)
        taken = [before.recipe for before in chosen]
        if one.recipe in taken:
            others = (recipe.draw(target, again) for _ in range(REDRAWS))
            one = one._replace(recipe=next((other for other in others if other not in taken), one.recipe))
        chosen.append(one)
    return sorted(chosen, key=lambda one: target.scheme(recipe.effective(target, one.recipe)) is not None)


def runs_under(target: Target, chosen: recipe.Recipe) -> list[recipe.Recipe]:
    """The recipes by which a model is run under one: where what is to be quantized is executed too, that without
    quantizing as well."""
    plain = recipe.unquantized(target, chosen) if target.executes_plain else chosen
    return [chosen] if plain == chosen else [chosen, plain]


def variant(case: Case, installed: Installed, choice: Choice) -> Case:
    """`case`, on the grid where that is chosen."""
    scheme = installed.target.scheme(recipe.effective(installed.target, choice.recipe))
    return (construct(case, scheme, choice.grid_seed) if scheme and choice.on_grid else None) or case
