"""Declarations of targets, which anybody may have written: what is mistyped in one, or contradicts itself."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.building.values import codes
from driftnet.targets.interface import STAGES, Scheme, Target
from driftnet.targets.recipe import effective, swept
from driftnet.util.errors import in_a_line, shortened

SHOWN = 60
"""Characters of a value that is wrong."""


def misdeclared(target: Target) -> list[str]:
    """What is wrong with a declaration, a sentence each: first what is of another type than `Target` states, and only
    where nothing is what contradicts itself."""
    return [*_mistyped(target, Target, "")] or [*_contradictory(target)]


def _mistyped(value: object, form: Any, where: str) -> Iterator[str]:
    """What of a value is not of a `form`: a dataclass, plain type, tuple, mapping, function or union of such."""
    if form is Any:
        return
    origin, inside = get_origin(form) or form, get_args(form)
    if origin in (Union, UnionType):
        if all(any(_mistyped(value, one, where)) for one in inside):
            kind = next(one for one in inside if one is not type(None))  # of a function or None what the function is
            yield from _mistyped(value, kind, where)
    elif not _is_a(value, origin):
        yield f"{where or 'it'} is {shortened(repr(value), SHOWN)}, should be {_named(form)}"
    elif is_dataclass(origin):
        for name, each in get_type_hints(origin).items():
            yield from _mistyped(getattr(value, name), each, f"{where}.{name}" if where else name)
        if isinstance(value, Target):
            yield from _mistyped_profile(value.profile)
    elif isinstance(value, Mapping) and inside:
        for key, item in value.items():
            yield from _mistyped(key, inside[0], f"the key {key!r} of {where}")
            yield from _mistyped(item, inside[1], f"{where}[{key!r}]")
    elif isinstance(value, Sequence) and inside[-1:] == (...,):
        for i, item in enumerate(value):
            yield from _mistyped(item, inside[0], f"{where}[{i}]")
    elif origin is tuple and isinstance(value, Sequence):
        if len(value) != len(inside):
            yield f"{where} has {len(value)} items, should have {len(inside)}: {_named(form)}"
        for i, (item, each) in enumerate(zip(value, inside, strict=False)):
            yield from _mistyped(item, each, f"{where}[{i}]")
    elif isinstance(value, frozenset):
        for item in value:
            yield from _mistyped(item, inside[0], f"an item of {where}")


def _is_a(value: object, origin: Any) -> bool:
    if origin is Callable:
        return callable(value)
    if origin in (int, float) and isinstance(value, bool):
        return False
    if origin in (tuple, Sequence):  # a list does what a tuple does
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return isinstance(value, (int, float) if origin is float else origin)


def _named(form: Any) -> str:
    """A type as a person writes it."""
    origin, inside = get_origin(form) or form, get_args(form)
    if origin is Callable:
        return f"a function of {len(inside[0])} arguments"
    name = "Any" if form is Any else origin.__name__
    parts = ", ".join("..." if one is ... else _named(one) for one in inside)
    return f"{name}[{parts}]" if parts else name


def _mistyped_profile(profile: Any) -> Iterator[str]:
    forms = get_type_hints(Profile)
    for name, value in profile.items() if isinstance(profile, Mapping) else ():
        if name in forms:
            yield from _mistyped(value, forms[name], f"profile[{name!r}]")
        else:
            yield f"profile has {shortened(repr(name), SHOWN)}, should have none but {', '.join(forms)}"


def _contradictory(target: Target) -> Iterator[str]:
    stages, values = ", ".join(STAGES), {option.name: option.values for option in target.options}
    for option in target.options:
        if option.stage not in STAGES:
            yield f"option {option.name} has the stage {option.stage!r}, which is none of {stages}"
        if not option.values:
            yield f"option {option.name} has no values"
        for value in option.values:
            if type(value) not in (str, int, float, bool, type(None)):
                yield f"option {option.name} has the value {value!r}, should be a text, a number, a bool or None"
        if sum(other.name == option.name for other in target.options) > 1:
            yield f"there are two options {option.name}"
    rules = (*target.refusals, *target.outgrown, *target.exceptions)
    for rule in rules:
        if rule.stage not in STAGES:
            yield f"rule {rule.name!r} has the stage {rule.stage!r}, which is none of {stages}"
        yield from _no_pattern(rule.pattern, f"the pattern of rule {rule.name!r}")
    yield from _no_pattern(target.complaint, "the pattern complaint")
    conditions = [(f"option {option.name}", option.when) for option in target.options]
    conditions += [(f"rule {rule.name!r}", rule.when) for rule in rules]
    single = [(f"feature {name!r}", options) for name, options in target.features.items()]
    single += [(f"kernel {kernel.name!r}", kernel.when) for kernel in target.kernels]
    conditions += [(who, {name: (value,) for name, value in options.items()}) for who, options in single]
    for who, when in conditions:
        for name, wanted in when.items():
            if strange := [value for value in wanted if value not in values.get(name, ())]:
                yield f"{who} speaks of {name}={strange[0]!r}, which is no value of an option"
    yield from _unknown_to_profile(target.profile)
    if all(option.values for option in target.options):
        yield from _no_scheme(target)


def _no_pattern(pattern: str, who: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as e:
        yield f"{who} is none: {e}"


def _unknown_to_profile(profile: Mapping[str, Any]) -> Iterator[str]:
    there = {"weights": EVERYTHING.weights, "numbers": EVERYTHING.numbers}
    if profile.get("operators"):
        from driftnet.generators.ops.table import CODES  # all operators are imported with it

        there["operators"] = tuple(sorted(CODES))
    for name, known in there.items():
        for word in profile.get(name, ()):
            if word not in known:
                yield f"profile[{name!r}] has {word!r}, should be one of {in_a_line(', '.join(known), 2 * SHOWN)}"
    for word in profile.get("dtypes", ()):
        try:
            codes(word)
        except ValueError:
            yield f"profile['dtypes'] has {word!r}, which is no type of ONNX"


def _no_scheme(target: Target) -> Iterator[str]:
    """Where `scheme` raises or gives something else: this process asks it."""
    for recipe in swept(target):
        try:
            given = target.scheme(effective(target, recipe))
        except (Exception, SystemExit) as e:
            yield f"scheme raises {type(e).__name__} under {json.dumps(recipe)}: {in_a_line(str(e), SHOWN)}"
            return
        if wrong := [*_mistyped(given, Scheme | None, "what scheme returns")]:
            yield f"{wrong[0]}, under {json.dumps(recipe)}"
            return
