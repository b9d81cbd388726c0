"""What pages have in common: how a template becomes text, and how a model, its values and its commands are shown."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.findings.corpus import SavedCase
from driftnet.model import svg
from driftnet.model.inspect import Case, Feed, elements, nodes
from driftnet.util.templates import templates
from markupsafe import Markup, escape

MOST_PRINTED = 40_000
"""Bytes of a model that is shown as text."""

SHOWN_ELEMENTS = 64


def commands(saved: SavedCase) -> list[str]:
    """How to see a saved case fail again."""
    path = str(saved.path)
    script = Path(path, "reproduce.py")
    return [shlex.join(["driftnet", "replay", path])] + (
        [shlex.join(["python", str(script)])] if script.exists() else []
    )


def shown(case: Case, expected: Sequence[Feed]) -> dict[str, Any]:
    """A model as picture and text, with its inputs and expected outputs."""
    drawn = svg.picture(case.proto)
    printed = len(case.model) <= MOST_PRINTED
    return {
        "picture": Markup(svg.svg(drawn, "The graph of the model")) if drawn else "",
        "text": onnx.printer.to_text(case.proto) if printed else f"not shown: {len(case.model)} bytes",
        "nodes": nodes(case),
        "elements": elements(case),
        "values": "\n".join(_values(case.feeds, "input") + _values(expected, "expected")),
    }


def _values(feeds: Sequence[Feed], what: str) -> list[str]:
    with np.printoptions(threshold=SHOWN_ELEMENTS, linewidth=110):
        return [
            f"{what} {name}{f' of feed {k}' if len(feeds) > 1 else ''}: {x.dtype}{list(x.shape)}\n{x}"
            for k, feed in enumerate(feeds)
            for name, x in feed.items()
        ]


def rendered(name: str, values: Mapping[str, Any]) -> str:
    """The template `name` with these values; whatever they hold is text, not markup."""
    return templates("driftnet.cli.report", markup=True, coded=_coded).get_template(name).render(values)


def _coded(text: str) -> Markup:
    """What stands between backticks as code, all else as text."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))
