"""What holds for every registered target's declaration."""

import random
import re

import pytest
from driftnet.generators.building.kernels import name_of
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.values import NUMPY
from driftnet.generators.ops.table import CODES as OPERATORS
from driftnet.targets.environments import declared
from driftnet.targets.interface import STAGES, Option, Scheme
from driftnet.targets.recipe import canonical, draw, effective
from driftnet.targets.registry import registered

TARGETS = {name: declared(name) for name in registered()}


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request):
    return request.param


def test_each_target_is_registered_under_its_name():
    assert {name: target.name for name, target in TARGETS.items()} == {name: name for name in TARGETS}


def test_options_are_told_apart_by_name(target):
    names = [option.name for option in target.options]
    assert len(names) == len(set(names)), f"{target.name} declares an option twice: {names}"


def test_options_have_several_values_of_json_and_a_help(target):
    for option in target.options:
        assert option.stage in STAGES, f"{option.name} belongs to no stage"
        assert len(set(option.values)) == len(option.values) >= 2, f"{option.name} leaves no choice: {option.values}"
        assert all(isinstance(value, bool | int | str) for value in option.values), f"{option.name} is no JSON"
        assert option.help, f"{option.name} has no help"


def test_conditions_name_values_of_options_declared_before(target):
    before: dict[str, Option] = {}
    for option in target.options:
        for name, values in option.when.items():
            assert name in before, f"{option.name} depends on {name}, which is declared later or never"
            assert set(values) < set(before[name].values), f"{option.name} wants {name} in {values}"
        before[option.name] = option


def test_every_recipe_has_a_scheme_or_none(target):
    rng = random.Random(1)
    for _ in range(200):
        options = effective(target, draw(target, rng))
        scheme = target.scheme(options)
        assert scheme is None or isinstance(scheme, Scheme), f"{options} gives {scheme!r}"
        for low, high in filter(None, (scheme.weight_codes, scheme.activation_codes) if scheme else ()):
            assert low < high, f"{options} gives the codes {low} to {high}"


def test_every_value_is_reached_by_drawing(target):
    rng = random.Random(2)
    drawn = [effective(target, draw(target, rng)) for _ in range(400)]
    for option in target.options:
        missing = set(option.values) - {options.get(option.name) for options in drawn}
        assert not missing, f"{option.name} was never {missing}"


def test_the_defaults_are_the_empty_recipe(target):
    assert canonical(target, effective(target, {})) == {}


def test_rules_compile_and_say_where_they_are_documented(target):
    for rule in (*target.refusals, *target.exceptions):
        re.compile(rule.pattern)
        assert rule.stage in STAGES, f"{rule.name} belongs to no stage"
        assert rule.source.startswith("https://"), f"{rule.name} is documented nowhere"


def test_a_profile_names_what_the_generator_has(target):
    profile, whole = Profile(**target.profile), Profile()
    assert set(profile.weights) <= set(whole.weights), f"parameters come from {profile.weights}"
    assert set(profile.numbers) <= set(whole.numbers), f"numbers come from {profile.numbers}"
    assert set(profile.operators) <= set(OPERATORS), f"{set(profile.operators) - set(OPERATORS)} is not generated"
    assert set(profile.dtypes) <= {name_of(code) for code in NUMPY}, f"data may be of {profile.dtypes}"


def test_no_refusal_matches_everything(target):
    for rule in target.refusals:
        assert not rule.matches("ended by SIGSEGV\nforward gave 0 of 1 outputs"), f"{rule.name} refuses anything"
