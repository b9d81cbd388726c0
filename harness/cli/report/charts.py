"""Charts of the page of a check: where on the paper each thing stands, for the templates to draw."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from driftnet.model import svg
from markupsafe import Markup
from onnx import helper

WIDE, HIGH, ROOM = 640, 170, 46  # pixels: of a chart, and on its left for the numbers
LEAST, MOST = 1e-9, 1e3
"""What is smaller or larger is drawn at the edge."""

Json = Mapping[str, Any]


def along_the_depth(points: Sequence[Json]) -> dict[str, Any] | None:
    """Dots for errors by their bounds, with a line at 1, and for errors in the intact artifact, joined; logarithmic.
    None where there is nothing to draw."""
    series = {what: [(p["at"], p[what], p["tensor"]) for p in points if p[what]] for what in ("error", "excess")}
    values = [value for rows in series.values() for _, value, _ in rows]
    if not values:
        return None
    low = math.floor(math.log10(max(LEAST, min(*values, 1.0))))
    high = math.ceil(math.log10(min(MOST, max(*values, 1.0)))) + (0 if max(values) > 1 else 1)

    def place(at: float, value: float) -> tuple[float, float]:
        share = (math.log10(min(MOST, max(LEAST, value))) - low) / max(1, high - low)
        return round(ROOM + at * (WIDE - ROOM), 1), round(HIGH * (1 - share), 1)

    dots = {
        what: [
            {"x": x, "y": y, "said": f"{name}: {value:.2g}", "over": what == "excess" and value > 1}
            for at, value, name in rows
            for x, y in [place(at, value)]
        ]
        for what, rows in series.items()
    }
    path = "M" + " L".join(f"{dot['x']},{dot['y']}" for dot in dots["error"]) if dots["error"] else ""
    every = max(1, (high - low) // 5)
    ticks = [{"y": place(0, 10.0**k)[1], "said": f"1e{k}" if k else "1"} for k in range(low, high + 1, every)]
    return {"path": path, **dots, "ticks": ticks, "bound": place(0, 1.0)[1], "wide": WIDE, "high": HIGH, "room": ROOM}


def histogram(shown: Json | None) -> dict[str, Any] | None:
    """Bars for the elements as they should be, and a line for them as they are; None where there are none."""
    if not shown:
        return None
    tallest = max(*shown["right"], *shown["made"]) or 1
    step = WIDE / len(shown["right"])

    def height(count: int) -> float:
        return round(HIGH * math.log1p(count) / math.log1p(tallest), 1)

    bars = [
        {"x": round(i * step, 1), "y": HIGH - height(n), "w": round(step - 1, 1), "h": height(n)}
        for i, n in enumerate(shown["right"])
    ]
    tops = [(i * step, (i + 1) * step, HIGH - height(n)) for i, n in enumerate(shown["made"])]
    path = "M" + " L".join(f"{left:.1f},{y} {right:.1f},{y}" for left, right, y in tops)
    ends = {"least": shown["low"], "most": shown["high"]}
    return {"tensor": shown["tensor"], **ends, "bars": bars, "path": path, "wide": WIDE, "high": HIGH}


def neighbourhood(nodes: Sequence[Json]) -> Markup:
    """The nodes at a fault, marked, among those next to them; nothing where there are none."""
    if not nodes:
        return Markup()
    made = [helper.make_node(n["op_type"], n["inputs"], n["outputs"], name=n["node"]) for n in nodes]
    drawn = svg.picture(helper.make_model(helper.make_graph(made, "neighbourhood", [], [])))
    marked = {n["node"] for n in nodes if n["at_fault"]}
    return Markup(svg.svg(svg.marked(drawn, made, marked), "Where in the model the fault lies")) if drawn else Markup()
