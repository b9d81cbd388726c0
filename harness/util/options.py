"""Options as a person writes them on a command line; `driftnet.targets.recipe.parsed` reads them."""

from collections.abc import Mapping
from typing import Any


def text(value: Any) -> str:
    """The value of an option."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def written(recipe: Mapping[str, Any]) -> list[str]:
    """Each option with its value, as behind --option."""
    return [f"{name}={text(value)}" for name, value in recipe.items()]
