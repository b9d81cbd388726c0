"""The page that says what judges what leaves no operator out."""

from driftnet.generators.ops.table import OPERATORS

from tests.support.rulebook import tiers


def test_every_operator_has_a_tier_beside_sampling():
    alone = [operator.name for operator in OPERATORS if not set(tiers(operator.name)) - {"sampling", "structure"}]
    assert not alone, f"nothing but sampling judges {alone}"
