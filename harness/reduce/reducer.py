"""The model reducer: the smallest, most readable case that still fails in the same way."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from driftnet.model.inspect import Case
from driftnet.model.submodel import Record
from driftnet.reduce import attributes, data, dims, opsets, passes, subgraphs
from driftnet.reduce.problem import ExhaustedError, Problem, Reproduces
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe

MINIMAL, BUDGET, INTERRUPTED = "minimal", "budget", "interrupted"


@dataclass(frozen=True)
class Reduced:
    """The simplest case found.

    named    the same under the names that it was given;   calls   invocations of `reproduces`;   seconds   wall time
    ended    MINIMAL: no pass finds anything smaller;  BUDGET or INTERRUPTED: stopped before that
    """

    case: Case
    named: Case
    recipe: Recipe
    calls: int
    seconds: float
    ended: str


PASSES: tuple[Callable[[Problem], None], ...] = (
    passes.plain_recipe,
    passes.only_needed,
    passes.fewer_feeds,
    passes.window,
    passes.fewer_outputs,
    passes.fewer_nodes,
    subgraphs.inlined,
    subgraphs.fewer_nodes,
    passes.bypass,
    attributes.plain_operators,
    passes.inputs_to_initializers,
    passes.constants_to_initializers,
    attributes.fewer_declarations,
    attributes.fewer_operands,
    passes.simpler_recipe,
    passes.static_dims,
    dims.smaller_dims,
    attributes.fewer_axes,
    attributes.fewer_attributes,
    data.simpler_data,
    attributes.simpler_attributes,
    opsets.older_versions,
)
"""What removes most for one run comes first. Names are left until the end: what was tried under them need not be tried
again."""


def reduce(
    case: Case,
    recipe: Recipe,
    target: Target,
    reproduces: Reproduces,
    record: Record,
    *,
    budget: float = math.inf,
    calls: int = 500,
    simpler: Callable[[Case, Recipe, bool], None] = lambda case, recipe, anew: None,
) -> Reduced:
    """Apply the passes until none of them makes the model smaller. Deterministic when `reproduces` is.

    `case` is taken to reproduce. Every candidate that `reproduces` sees has legal cut edges, but it may be invalid in
    other ways (a dimension that no longer fits), so `reproduces` has to ask the reference first.

    budget, calls   limits in seconds of wall time and in invocations of `reproduces`
    simpler  called with what fails after each pass that took something; anew: when no node can go any more, before
             attributes and numbers are simplified, and whenever it has other operators or another recipe after that
    Raises ReferenceError when `record` does not run `case`. KeyboardInterrupt ends the reduction, not the program.
    """
    problem = Problem(case, recipe, target, reproduces, record, budget, calls)
    ended, named = MINIMAL, None
    try:
        before, asked = None, None
        while before != problem.outline():  # one more for values alone: 16 runs of 110, for nothing
            before = problem.outline()
            for apply in PASSES:
                was = problem.case, problem.recipe
                apply(problem)
                least = asked is not None or apply is passes.bypass
                form = problem.recipe, [node.op_type for node in problem.case.proto.graph.node]
                anew = least and asked != form
                if anew or was != (problem.case, problem.recipe):
                    simpler(problem.case, problem.recipe, anew)
                asked = form if anew else asked
        named = problem.case
        attributes.readable_names(problem)
    except ExhaustedError:
        ended = BUDGET
    except KeyboardInterrupt:
        ended = INTERRUPTED
    return Reduced(problem.case, named or problem.case, problem.recipe, problem.calls, problem.elapsed, ended)
