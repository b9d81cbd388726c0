"""Recipes: drawn legally, canonical, simplified towards the empty one, and bad options named."""

import random
from dataclasses import replace

import pytest
from driftnet.targets import recipe
from driftnet.targets.environments import declared, resolve
from driftnet.targets.interface import Option, Scheme, Target
from driftnet.targets.registry import registered
from driftnet.util.errors import UserError
from driftnet.util.options import written

OPTIONS = (
    Option("level", "convert", (1, 0, 2), "optimization level"),
    Option("quantize", "quantize", ("none", "kl", "ema"), "method"),
    Option("bits", "quantize", (8, 4), "width", when={"quantize": ("kl", "ema")}),
)
TARGET = Target("toy", "numpy", lambda *a: "", lambda *a: "", lambda *a: [], OPTIONS)


def test_the_empty_recipe_is_all_defaults():
    assert recipe.effective(TARGET, {}) == {"level": 1, "quantize": "none"}


def test_an_option_without_a_meaning_is_left_out():
    assert recipe.canonical(TARGET, {"bits": 4, "level": 1}) == {}
    assert recipe.canonical(TARGET, {"bits": 4, "quantize": "kl"}) == {"bits": 4, "quantize": "kl"}


def test_every_drawn_recipe_is_canonical_and_every_value_is_drawn():
    drawn = [recipe.draw(TARGET, random.Random(seed)) for seed in range(200)]
    assert [r for r in drawn if recipe.canonical(TARGET, r) != r] == [], "recipes that are drawn in another form"
    assert {tuple(sorted(r.items())) for r in drawn} >= {(), (("level", 2),), (("bits", 4), ("quantize", "ema"))}


def test_the_same_seed_draws_the_same_recipe():
    assert recipe.draw(TARGET, random.Random("1/2/toy")) == recipe.draw(TARGET, random.Random("1/2/toy"))


def test_an_option_of_less_share_is_drawn_less_often():
    options = (Option("slow", "convert", (False, True), "", share=1 / 4), Option("fast", "convert", (False, True), ""))
    drawn = [recipe.draw(replace(TARGET, options=options), random.Random(seed)) for seed in range(2000)]
    slow, fast = (sum(name in r for r in drawn) for name in ("slow", "fast"))
    assert 1 / 5 < slow / fast < 1 / 3


def test_simpler_recipes_lose_one_option_and_what_it_opened():
    found = list(recipe.simpler(TARGET, {"level": 0, "quantize": "kl", "bits": 4}))
    assert found[0] == {}
    assert {"level": 0} in found
    assert {"quantize": "kl", "bits": 4} in found
    assert {"level": 0, "quantize": "kl"} in found


def test_a_sweep_holds_every_value_of_every_option():
    swept = recipe.swept(TARGET)
    assert swept[0] == {}
    for wanted in ({"level": 0}, {"level": 2}, {"quantize": "ema"}, {"quantize": "kl", "bits": 4}):
        assert wanted in swept


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"levl": 1}, "no option 'levl'; it has bits, level, quantize"),
        ({"level": 7}, "cannot be 7; it is one of 1, 0, 2"),
        ({"bits": 4}, "option bits of target toy has a meaning only with quantize = kl or ema"),
        ({"bits": 8, "quantize": "none"}, "has a meaning only with quantize = kl or ema"),
    ],
)
def test_bad_options_are_named_with_what_there_is(given, says):
    with pytest.raises(UserError, match=says) as error:
        recipe.validated(TARGET, given)
    assert error.value.kind == "option"


def test_options_with_a_meaning_are_taken_in_any_order():
    assert recipe.validated(TARGET, {"bits": 4, "quantize": "kl"}) == {"quantize": "kl", "bits": 4}
    assert recipe.validated(TARGET, {"level": 1, "quantize": "ema", "bits": 8}) == {"quantize": "ema"}


def test_texts_become_the_values_they_stand_for():
    assert recipe.parsed(TARGET, {"level": "0"}) == {"level": 0}
    assert recipe.parsed(TARGET, {"quantize": "KL"}) == {"quantize": "kl"}


SWITCHED = Target(
    "toy", "numpy", lambda *a: "", lambda *a: "", lambda *a: [], OPTIONS, switches={"without": ("folding", "fusing")}
)


def test_a_switch_is_empty_unless_it_is_given_and_never_drawn_nor_swept():
    assert recipe.effective(SWITCHED, {})["without"] == []
    assert recipe.validated(SWITCHED, {"without": ["fusing"]}) == {"without": ["fusing"]}
    assert recipe.parsed(SWITCHED, {"without": "folding,fusing"}) == {"without": ["folding", "fusing"]}
    assert recipe.swept(SWITCHED) == recipe.swept(TARGET)
    drawn = [recipe.draw(SWITCHED, random.Random(seed)) for seed in range(50)]
    assert [r for r in drawn if "without" in r] == [], "a switch was drawn"


def test_a_switch_for_what_there_is_not_is_named():
    with pytest.raises(UserError, match=r"option without of target toy takes a list of folding, fusing"):
        recipe.validated(SWITCHED, {"without": ["unrolling"]})


def test_the_recipe_without_quantizing_is_the_nearest_one():
    def scheme(options):
        return None if options["quantize"] == "none" else Scheme()

    target = replace(TARGET, scheme=scheme)
    plain = {"level": 2}
    for given in (plain, {**plain, "quantize": "kl"}, {**plain, "quantize": "ema", "bits": 4}):
        assert recipe.unquantized(target, given) == plain, f"of {given}"
    assert recipe.unquantized(target, {}) == {}
    quantizing = resolve("onnxruntime-quant").target
    assert recipe.unquantized(quantizing, {"per_channel": True}) == {"quantize": "none"}, "its default quantizes"


def test_what_is_written_of_a_recipe_is_what_can_be_typed():
    def typed(target, chosen):
        words = dict(text.split("=", 1) for text in written(chosen))
        assert recipe.parsed(target, words) == chosen, f"{target.name}: {written(chosen)}"

    for name in registered():
        target = declared(name)
        for option in target.options:
            for value in option.values:
                typed(target, {option.name: value})
        for switch, parts in target.switches.items():
            typed(target, {switch: [*parts][:2]})
