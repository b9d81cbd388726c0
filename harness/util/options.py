"""Options as a person writes them on a command line; `driftnet.targets.recipe.parsed` reads them."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from driftnet.util.errors import UserError


def listed(words: str | PathLike[str] | Sequence[Any]) -> Sequence[Any]:
    """Words or paths of which somebody gave one, or several."""
    return (words,) if isinstance(words, str | PathLike) else words


def paths_of(given: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    """The same as paths."""
    return [Path(path) for path in listed(given)]


def demand_mapping(given: object, name: str, example: str) -> None:
    """Raises UserError (kind "option") unless `given` is a mapping, or nothing."""
    if not (given is None or isinstance(given, Mapping)):
        what = f"{name} is {type(given).__name__} {given!r:.80}, it has to be a mapping"
        raise UserError(what, hint=f"write {name}={example}", kind="option")


def text(value: Any) -> str:
    """The value of an option."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def written(recipe: Mapping[str, Any]) -> list[str]:
    """Each option with its value, as behind --option."""
    return [f"{name}={text(value)}" for name, value in recipe.items()]
