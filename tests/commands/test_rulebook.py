"""The page that says what judges what is that of the code, and leaves no operator out."""

from driftnet.commands.rulebook import page, tiers
from driftnet.generators.ops.table import OPERATORS

from tests.support.paths import ROOT


def test_the_page_is_up_to_date():
    written = (ROOT / "docs" / "judgement.md").read_text()
    assert written == page(), "docs/judgement.md is out of date: python -m driftnet.commands.rulebook"


def test_every_operator_has_a_tier_beside_sampling():
    alone = [operator.name for operator in OPERATORS if not set(tiers(operator.name)) - {"sampling", "structure"}]
    assert not alone, f"nothing but sampling judges {alone}"
