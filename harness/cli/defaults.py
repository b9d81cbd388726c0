"""Defaults of the command line's options, from `[tool.driftnet]` of a pyproject.toml.

The file is that of whatever folder one stands in, anybody's: it can name no program to run and no code to import.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from driftnet.util.errors import UserError
from driftnet.util.nearest import meant

TABLES = "[tool.driftnet.COMMAND] holds defaults for the options of COMMAND, called as on the command line"
TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "integer range": (int,),
    "float range": (int, float),
    "path": (str,),
    "text": (str, int),  # --workers is both
}


def read(path: Path, commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """`[tool.driftnet]` of a pyproject.toml, as click's default map: {command: {parameter: value}}.

    Tables are called like commands, and keys like their long options. Raises UserError for any that there is not, and
    for a value of the wrong type.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("driftnet", {})
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UserError(f"{path} cannot be read: {e}", hint="driftnet takes its defaults from it") from e
    if not isinstance(tables, dict):
        raise UserError(f"{path}: [tool.driftnet] is not a table", hint=TABLES, kind="option")
    for command in tables:
        if command not in commands or not isinstance(tables[command], dict):
            what = f"{path}: [tool.driftnet.{command}] is not a table for one of {', '.join(commands)}"
            raise UserError(what, hint=TABLES, kind="option")
    return {name: _table_defaults(path, commands[name], table) for name, table in tables.items()}


def _table_defaults(path: Path, command: click.Command, table: Mapping[str, Any]) -> dict[str, Any]:
    # --json is left out: what decides how an error is printed must stand on the command line.
    options = {
        option.opts[0].removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option) and option.name != "as_json"
    }
    for name, value in table.items():
        where = f"{path}: {name} in [tool.driftnet.{command.name}]"
        if name not in options:
            raise UserError(
                f"{where} is no option; there is {', '.join(options)}", hint=meant(name, options, TABLES), kind="option"
            )
        if name == "python" or (name == "target" and _imports(value)):
            what = f"{where} would run what this file names: that has to stand on the command line"
            raise UserError(what, hint=f"driftnet {command.name} --{name} ...", kind="option")
        if not _fits(options[name], value):
            raise UserError(f"{where} cannot be {value!r}", hint=f"driftnet {command.name} --help", kind="option")
    return {str(options[name].name): value for name, value in table.items()}


def _imports(target: Any) -> bool:
    """Whether a target word, or one of several, is MODULE:ATTRIBUTE."""
    return any(":" in str(word) for word in (target if isinstance(target, list) else [target]))


def _fits(option: click.Option, value: Any) -> bool:
    """Whether a value of a TOML file has the type of `option`; click would make 1 of true, and letters of a text."""
    if option.is_flag:
        return isinstance(value, bool)
    if option.multiple or option.nargs != 1:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, TYPES[option.type.name]) and not isinstance(value, bool)
