"""Templates: files of a package that become text with values; a value that is missing is an error."""

from collections.abc import Callable
from functools import cache

import jinja2


@cache  # compiling costs 80 ms a template, rendering 15
def templates(
    package: str, folder: str = "", *, markup: bool = False, **filters: Callable[..., str]
) -> jinja2.Environment:
    """Those in a folder of `package`. markup: what they are given is text in HTML, whatever it holds."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, folder),
        autoescape=markup,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not markup,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters
    return environment
