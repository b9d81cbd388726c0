"""Options that several commands have, and what is made of the words given for them."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from driftnet import api
from driftnet.run.share import MEMORY_GIB
from driftnet.util import machine
from driftnet.util.errors import UserError

WHOLE = re.compile("[0-9]{1,9}")
PATH = click.Path(path_type=Path)
DAY, MONTH = 86400.0, 30 * 86400.0  # seconds


class Amount(click.FloatRange):
    """A finite number within bounds: what a click.FloatRange takes but nan, which is in every one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is no finite number.", param, ctx)


target = click.option(
    "--target",
    "targets",
    multiple=True,
    callback=lambda context, option, words: words or api.DEFAULT_TARGETS,
    help="mnn, mnn==3.4.1, onnxruntime-quant, ...; repeat it for several.  "
    f"[default: {', '.join(api.DEFAULT_TARGETS)}]",
)


def there(context: click.Context, option: click.Parameter, folder: Path) -> Path:
    """`folder`. One that somebody named and that is not there is an error, or with a typo everything would be new;
    --save makes it."""
    is_named = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if folder.is_dir() or context.params.get("save") or not is_named:
        return folder
    hint = (
        "name a folder of saved cases, an empty one if all is to be new; without --corpus those that came with driftnet"
    )
    raise UserError(f"--corpus {folder}: there is no such folder", hint=hint, kind="corpus")


def corpus(callback: Callable[[click.Context, click.Parameter, Path], Path] | None) -> Callable[[Any], Any]:
    """--corpus; callback: what is made of the folder, None where it is not for what is known in it."""
    known = ", the known issues: that alone, but ./corpus adds to those that came with driftnet" if callback else ""
    text = f"Folder of saved cases{known}."
    return click.option("--corpus", type=PATH, default=Path("corpus"), callback=callback, help=text)


memory = click.option(
    "--memory",
    "memory_gib",
    type=Amount(min=0.1, max=1024),
    default=MEMORY_GIB,
    metavar="GIB",
    help="Memory one worker may use.",
)
operators = click.option(
    "--operator", "operators", multiple=True, metavar="NAME", help="Only this one; repeat it for several."
)
seeds = click.option(
    "--from",
    "seeds",
    multiple=True,
    type=PATH,
    metavar="MODEL|CASE|DIR",
    help="Mutate these models instead of generating graphs.",
)
python = click.option(
    "--python", metavar="INTERPRETER", help="The Python that the targets are installed in.  [default: this one]"
)


def budget(seconds: float, help: str, least: float = 0) -> Callable[[Any], Any]:
    """--budget, so many `seconds` where none are given; infinite: as long as it takes."""
    return click.option(
        "--budget",
        type=Amount(min=least, max=MONTH),
        default=seconds if math.isfinite(seconds) else None,
        callback=lambda context, option, said: math.inf if said is None else said,
        metavar="SECONDS",
        help=help if math.isfinite(seconds) else f"{help}  [default: none]",
    )


def _hide(context: click.Context, option: click.Parameter, yes: bool) -> None:
    if yes:
        from driftnet.run.sandbox import hiding

        context.with_resource(hiding.hidden())


hide_files = click.option(
    "--hide-files",
    is_flag=True,
    expose_value=False,
    callback=_hide,
    help="Show targets no files but their own, by bubblewrap. DRIFTNET_HIDE_FILES=1 says so too.",
)


def timeout(seconds: float) -> Callable[[Any], Any]:
    """--timeout, so many seconds where none is given."""
    return click.option(
        "--timeout", type=Amount(min=0.1, max=DAY), default=seconds, metavar="S", help="Seconds one stage may take."
    )


def workers(default: str) -> Callable[[Any], Any]:
    """--workers, a number or "auto"."""

    def count(context: click.Context, option: click.Parameter, text: str) -> int:
        if text == "auto":
            return machine.available_cores()
        if WHOLE.fullmatch(text) and int(text) > 0:
            return int(text)
        raise UserError(f"--workers is a positive number or auto, not {text!r}", hint="driftnet fuzz --help")

    return click.option(
        "--workers", default=default, metavar="N|auto", callback=count, help="Processes; auto is one a core."
    )


def several(
    name: str, parameter: str, form: str, value: Callable[[str, str], Any] = lambda key, text: text, *, help: str
) -> Callable[[Any], Any]:
    """An option that may be given several times, as a dict."""

    def parsed(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, Any]:
        pairs = {}
        for text in texts:
            key, separator, given = text.partition("=")
            if not separator or not key:
                what = f"{text!r} is not of the form {name} {form}"
                raise UserError(what, hint=f"{context.command_path} --help", kind="option")
            pairs[key] = value(key, given)
        return pairs

    return click.option(name, parameter, multiple=True, metavar=form, callback=parsed, help=help)


def size(name: str, text: str) -> int:
    """The size of the dim `name`."""
    if not WHOLE.fullmatch(text):
        raise UserError(f"--dim {name} takes a whole number, not {text!r}", hint="driftnet check --help", kind="option")
    return int(text)


def recipe(context: click.Context, option: click.Parameter, text: str | None) -> Mapping[str, Any] | None:
    """A whole recipe, a JSON object."""
    try:
        value = None if text is None else json.loads(text)
    except ValueError as e:
        raise UserError(f"--recipe is not JSON: {e}", hint="driftnet check --help", kind="option") from e
    if value is not None and not isinstance(value, dict):
        raise UserError("--recipe is not a JSON object", hint="driftnet check --help", kind="option")
    return value


inputs = click.option("--inputs", type=PATH, metavar="NPZ|DIR", help="Feeds: .npz, or an ONNX test_data_set folder.")
calibration = click.option("--calibration", type=PATH, metavar="DIR", help="Calibration feeds, in the same formats.")
option = several("--option", "options", "K=V", help="One option of the target.")
dims = several("--dim", "dims", "NAME=N", size, help="Size of a symbolic dim where inputs are generated.")
