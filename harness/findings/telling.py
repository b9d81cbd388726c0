"""What people are told of a failure that is known by the case of another model."""

from collections.abc import Collection
from dataclasses import replace

from driftnet.causes.host import Host
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.meeting import Known, Meeting, places
from driftnet.causes.record import CauseRecord, stating
from driftnet.causes.words import SHOWS
from driftnet.findings.corpus import SavedCase
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe


def note_of(known: SavedCase, operators: Collection[str]) -> str:
    """What somebody said of the case that a failure is known by; "" where the failure lacks an operator of it: a note
    speaks of its own model, and one cause has findings of many operators."""
    return known.note if {*known.operators} <= {*operators} else ""


def cause_as_met(known: SavedCase, host: Host, target: Target, recipe: Recipe) -> CauseRecord | None:
    """The cause of `known` as the failing model `host` shows it: of its trigger the region that is met there, of the
    operators that are there. Where none is, what was learned of the case itself if the model has its operators, else no
    trigger, and no title that tells one. None where the case has no cause."""
    if known.cause is None:
        return None
    options = recipe_facts(target, recipe)
    own = known.cause.of_case(known.id)
    for cause in (own, known.cause):
        asked = Known(cause, options)
        for place, region, unknown in places(host, asked, options, lambda place: facts_of(host, place, options)):
            if cause.trigger and not unknown:
                met = stating(cause, replace(cause.trigger, regions=(region,)))
                return replace(met, title=Meeting(asked, host, place, region).title, findings={})
    if {*known.operators} <= {node.op for node in host.graph.nodes}:
        return own
    title = "" if SHOWS.search(own.title) else own.title
    return replace(stating(own, None), title=title, findings={})
