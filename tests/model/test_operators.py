"""Every operator has a row of traits, and what the traits say can be seen."""

from driftnet.generators.ops.table import CODES
from driftnet.model.operators import OPERATORS, Trait, having, parameters, traits_of
from onnx import defs


def test_what_is_generated_has_a_row():
    missing = CODES.keys() - OPERATORS.keys()
    assert not missing, f"decide on the traits of {sorted(missing)}: a row each in harness/model/operators.py"


def test_a_row_is_an_operator_that_exists():
    standard = {schema.name for schema in defs.get_all_schemas_with_history()}
    own = {op for op in OPERATORS if not op.startswith("com.microsoft.")}
    assert own <= standard | {"SimplifiedLayerNormalization"}, f"no such operators: {sorted(own - standard)}"


def test_what_follows_from_a_trait_is_there():
    assert having(Trait.KEEPS_ORDER) < having(Trait.PERMUTES) < having(Trait.MOVES) < having(Trait.WITHIN)
    assert Trait.MONOTONE | Trait.HOMOGENEOUS in traits_of("Flatten")
    assert having(Trait.MOVES | Trait.SHAPE_FROM_NUMBERS) == {"Compress"}
    assert (parameters("Pad"), parameters("Add"), traits_of("nobody.Knows")) == ((1, 2, 3), (), Trait(0))
