"""Where a policy would go, on a page: imagined values over recorded ones, as drawings that need no script."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from sbil.evaluation.imagined import Fan, Imagined
from sbil.reports.html import Html, tag

WIDE, HIGH = 420, 200  # of a drawing
LEFT, RIGHT, TOP, BOTTOM = 58, 410, 10, 172  # of the part with the axes
KEY = (
    "Grey: recorded episodes. Orange: episodes in which the policy acts, imagined from the same first states. Bands "
    "hold 90 % and the middle half of the episodes that go on, lines are medians. Right of the dashed line the model "
    "is not trusted."
)


def section(found: Imagined | str) -> Html:
    """Return the part of a page that shows where a policy would go, or says why that is not known."""
    title = tag("h2", "Where the policy would go", id="imagined-title")
    if isinstance(found, str):
        return _section(title, tag("p", f"{found[0].upper()}{found[1:]}", class_="note"))
    warning = [tag("p", found.warning, class_="private")] if found.warning else []
    facts = tag("ul", *(tag("li", line) for line in found.facts), class_="found")
    drawings = tag("div", *(_drawing(fan, found.horizon) for fan in found.fans), class_="fans")
    return _section(title, *warning, facts, *([drawings, tag("p", KEY, class_="note")] if found.fans else []))


def _section(*parts: Html) -> Html:
    return tag("section", *parts, id="imagined", aria_labelledby="imagined-title")


def _drawing(fan: Fan, horizon: int) -> Html:
    """Draw one column: two fans, their axes, and the step up to which the model is trusted."""
    steps = fan.recorded.shape[1] - 1
    values = np.concatenate([fan.recorded, fan.imagined])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    x = np.linspace(LEFT, RIGHT, steps + 1)

    def y(value: np.ndarray | float) -> np.ndarray:
        return np.asarray(BOTTOM - (value - low + room) / (high - low + 2 * room) * (BOTTOM - TOP))

    parts = [
        tag("text", _number(value), x=LEFT - 6, y=f"{y(value) + 4:.1f}", class_="height")
        for value in _ticks(low, high, 4)
    ]
    parts += [
        tag("text", _number(step), x=f"{x[int(step)]:.1f}", y=BOTTOM + 17, class_="step")
        for step in _ticks(0, steps, 5, whole=True)
    ]
    for look, bands in (("recorded", fan.recorded), ("imagined c1", fan.imagined)):
        least, lower, middle, upper, most = y(bands[:, ~np.isnan(bands[0])])
        parts += [tag("path", d=_area(x, *ends), class_=f"{look} spread") for ends in ((least, most), (lower, upper))]
        parts.append(tag("path", d=f"M{_points(x, middle)}", class_=f"{look} middle"))
    if horizon < steps:
        place = f"{x[horizon]:.1f}"
        parts.append(tag("rect", x=place, y=TOP, width=f"{RIGHT - x[horizon]:.1f}", height=BOTTOM - TOP, class_="veil"))
        parts.append(tag("path", d=f"M{place},{TOP}V{BOTTOM}", class_="trust"))
    parts.append(tag("path", d=f"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}", class_="axes"))
    label = f"{fan.column} over {steps} steps: imagined episodes over recorded ones"
    picture = tag("svg", *parts, viewBox=f"0 0 {WIDE} {HIGH}", role="img", aria_label=label)
    return tag("figure", tag("figcaption", fan.column), picture)


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=False))


def _area(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    return f"M{_points(x, high)}L{_points(x[: len(low)][::-1], low[::-1])}z"


def _ticks(low: float, high: float, count: int, whole: bool = False) -> Sequence[float]:
    return [value for value in MaxNLocator(count, integer=whole).tick_values(low, high) if low <= value <= high]


def _number(value: float) -> str:
    return f"{round(value, 12):g}".replace("-", "−")
