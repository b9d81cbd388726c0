"""Recipe: the options of the three stages for one run, a plain JSON value {option name: value}.

An option that is absent has its default, so the empty recipe is the simplest run and `simplify` moves towards it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from driftnet.targets.interface import Option, Target
from driftnet.util.errors import UserError
from driftnet.util.nearest import meant

Recipe = Mapping[str, Any]
LISTED = "driftnet targets lists every option with its values"
TYPED = 0.8
"""How alike a value has to be to one that there is, for it to be a slip of the keyboard: "offlin" is, "nope" is not
"none". All values are told beside it."""
DRAWN = 6
"""Of more options no recipe is near to what anybody uses."""


def effective(target: Target, recipe: Recipe) -> dict[str, Any]:
    """Every option that has a meaning under `recipe`, with its value: what the three stage functions are given."""
    chosen: dict[str, Any] = {}
    for option in target.options:
        if _applies(option, chosen):
            chosen[option.name] = recipe.get(option.name, option.values[0])
    return chosen | {name: list(recipe.get(name, ())) for name in target.switches}


def canonical(target: Target, recipe: Recipe) -> dict[str, Any]:
    """`recipe` without defaults and without options that have no meaning under it."""
    defaults: dict[str, Any] = {option.name: option.values[0] for option in target.options}
    defaults |= {name: [] for name in target.switches}
    return {name: value for name, value in effective(target, recipe).items() if value != defaults[name]}


def remedied(target: Target, recipe: Recipe, remedy: Recipe) -> dict[str, Any]:
    """`recipe` with the options of `remedy` in the place of its own; the parts of a switch are added to its own."""
    changed = {
        name: sorted({*recipe.get(name, ()), *value}) if name in target.switches else value
        for name, value in remedy.items()
    }
    return canonical(target, {**recipe, **changed})


def draw(target: Target, rng: random.Random) -> dict[str, Any]:
    """A random recipe, canonical. Of some options another value than the default is drawn as often as that, DRAWN at
    most on average, of one of less `share` less often; one which opens others (a quantization method, say) evenly.
    What the release is too old for is not drawn."""
    opens = {name for option in target.options for name in option.when}
    share = min(0.5, DRAWN / max(1, len(target.options) - len(opens)))
    chosen: dict[str, Any] = {}
    for option in target.options:
        if _applies(option, chosen):
            even = option.name in opens or rng.random() < share * option.share
            values = [value for value in option.values if value not in target.undrawn.get(option.name, ())]
            chosen[option.name] = rng.choice(values) if even else values[0]
    return canonical(target, chosen)


def simpler(target: Target, recipe: Recipe) -> Iterator[dict[str, Any]]:
    """Recipes one step nearer to the empty one: each option back to its default, all at once first."""
    if recipe:
        yield {}
    for name in recipe:
        candidate = canonical(target, {k: v for k, v in recipe.items() if k != name})
        if candidate:
            yield candidate


def unquantized(target: Target, recipe: Recipe) -> Recipe:
    """The recipe nearest to `recipe` under which nothing is quantized: itself, or with one option back to its default,
    or with what the target says to leave it in floats, or the empty one."""
    _, *nearer = simpler(target, recipe) if recipe else ({},)
    floats = canonical(target, {**recipe, **target.features.get("float", {})})
    return next((one for one in (recipe, *nearer, floats) if target.scheme(effective(target, one)) is None), {})


def swept(target: Target) -> list[dict[str, Any]]:
    """The empty recipe, then every other value of every option on its own, with what opens that option."""
    recipes: list[dict[str, Any]] = [{}]
    for option in target.options:
        opened = {name: values[0] for name, values in option.when.items()}
        for value in option.values[1:]:
            candidate = canonical(target, opened | {option.name: value})
            if candidate not in recipes:
                recipes.append(candidate)
    return recipes


def validated(target: Target, recipe: Recipe) -> dict[str, Any]:
    """`recipe` in canonical form. Raises UserError for an unknown option or value, naming what there is, and for an
    option without a meaning under the rest, naming what would give it one."""
    options = {option.name: option for option in target.options}
    there = ", ".join(sorted({*options, *target.switches}))
    for name, value in recipe.items():
        if name in target.switches:
            _check_switch(target, name, value)
            continue
        if name not in options:
            what = f"target {target.name} has no option {name!r}; it has {there}"
            raise UserError(what, hint=meant(name, [*options, *target.switches], LISTED), kind="option")
        if value not in options[name].values:
            what = f"option {name} of target {target.name} cannot be {value!r}"
            what += f"; it is one of {', '.join(map(repr, options[name].values))}"
            raise UserError(what, hint=meant(str(value), options[name].values, LISTED, cutoff=TYPED), kind="option")
    in_effect = effective(target, recipe)
    if idle := [name for name in recipe if name not in in_effect]:
        name = idle[0]
        when = " and ".join(f"{k} = {' or '.join(map(str, values))}" for k, values in options[name].when.items())
        raise UserError(
            f"option {name} of target {target.name} has a meaning only with {when}",
            hint=f"set that too, or leave {name} out; {LISTED}",
            kind="option",
        )
    return canonical(target, recipe)


def _check_switch(target: Target, name: str, value: Any) -> None:
    parts = target.switches[name]
    if not isinstance(value, list) or any(part not in parts for part in value):
        raise UserError(
            f"option {name} of target {target.name} takes a list of {', '.join(parts)}; not {value!r}",
            hint=f"--option {name}={','.join(parts[:2])}",
            kind="option",
        )


def parsed(target: Target, texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of options that a person wrote as texts; what is unknown comes back as it is."""
    values = {option.name: {str(value).lower(): value for value in option.values[::-1]} for option in target.options}
    return {
        name: [part for part in text.split(",") if part]
        if name in target.switches
        else values.get(name, {}).get(text.lower(), text)
        for name, text in texts.items()
    }


def _applies(option: Option, chosen: Mapping[str, Any]) -> bool:
    return not option.when or all(chosen.get(name) in values for name, values in option.when.items())
