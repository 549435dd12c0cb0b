"""Named values as lying bars, in panels, as an SVG file: the same bytes for the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from glassformer.explain.view import short_names
from glassformer.report.curves import COLORS, INK, MUTED

WIDTH, HEAD, LINE, NAME, FIGURE = 290, 34, 19, 100, 48  # pixels of a panel, its title, a bar, names, figures
LONGEST = 15  # letters of a name


def bar_panels(
    panels: Mapping[str, Sequence[tuple[str, float]]], form: str = "{:.1%}", columns: int = 2
) -> str:
    """Panels in rows of ``columns``, the first value of each on top; a value below 0 is drawn in red.

    Args:
        panels: title -> (name, value). A bar's length is its share of the largest value of all panels.
        form: how a value is written behind its bar.
    """
    most = max((abs(value) for bars in panels.values() for _, value in bars), default=0.0) or 1.0
    names = [name for bars in panels.values() for name, _ in bars]
    shown = dict(zip(names, short_names(names, LONGEST), strict=True))
    left = max(NAME, *(math.ceil(NAME / LONGEST * len(name)) for name in shown.values()), 0)
    panel = WIDTH - NAME + left
    rows = [list(panels.items())[i : i + columns] for i in range(0, len(panels), columns)]
    parts, y = [], 0
    for row in rows:
        for column, (title, bars) in enumerate(row):
            named = [(shown[name], value) for name, value in bars]
            parts.append(_panel(panel * column, y, left, short_names([title], 40)[0], named, most, form))
        y += HEAD + LINE * max(len(bars) for _, bars in row)
    width, height = panel * min(columns, len(panels)), y + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join([*parts, "</svg>"]) + "\n"
    )


def _panel(
    x: int, y: int, left: int, title: str, bars: Sequence[tuple[str, float]], most: float, form: str
) -> str:
    out = [f'<text x="{x + 10}" y="{y + 22}" fill="{INK}" font-weight="600">{escape(title)}</text>']
    room, left = WIDTH - NAME - FIGURE - 16, x + left
    for i, (name, value) in enumerate(bars):
        top = y + HEAD + LINE * i
        width = room * abs(value) / most
        out += [
            f'<text x="{left - 6}" y="{top + 12}" text-anchor="end" fill="{INK}">{escape(name)}</text>',
            f'<rect x="{left}" y="{top + 2}" width="{width:.1f}" height="13" rx="2" '
            f'fill="{COLORS[value < 0]}"/>',
            f'<text x="{left + width + 5:.1f}" y="{top + 12}" fill="{MUTED}">{form.format(value)}</text>',
        ]
    return "\n".join(out)
