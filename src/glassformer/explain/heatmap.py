"""Heatmaps as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from glassformer.explain.view import inert

CELL, CHARACTER = 22, 7.2  # width in pixels of a square and of a letter
INK = "var(--ink, currentColor)"  # CSS variable of our pages, with a fallback for notebooks


def heatmap_svg(
    rows: Sequence[str], columns: Sequence[str], cell: Callable[[int, int], tuple[str, str, str]], label: str
) -> str:
    """A heatmap as SVG, with names of rows and columns.

    Args:
        cell: index of row and column -> color, opacity and tooltip of their square.
        label: description for screen readers.
    """
    left = CHARACTER * max(map(len, rows), default=1) + 8
    top = CHARACTER * max(map(len, columns), default=1) + 8
    width, height = left + CELL * len(columns) + 8, top + CELL * len(rows) + 4
    parts = [
        f'<text transform="translate({left + CELL * (c + 0.5) + 4:.1f} {top - 6:.1f}) rotate(-90)" '
        f'fill="{INK}">{escape_text(name)}</text>'
        for c, name in enumerate(columns)
    ]
    for r, name in enumerate(rows):
        y = top + CELL * r
        parts.append(
            f'<text x="{left - 6:.1f}" y="{y + 15:.1f}" text-anchor="end" fill="{INK}">'
            f"{escape_text(name)}</text>"
        )
        for c in range(len(columns)):
            color, opacity, tooltip = cell(r, c)
            parts.append(
                f'<rect x="{left + CELL * c + 1:.1f}" y="{y + 1:.1f}" width="{CELL - 2}" '
                f'height="{CELL - 2}" rx="2" fill="{color}" fill-opacity="{opacity}">'
                f"<title>{escape_text(tooltip)}</title></rect>"
            )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}" font-size="12">{"".join(parts)}</svg>'
    )


def escape_text(text: Any) -> str:
    """Escape text for HTML; control characters are replaced."""
    return escape(inert(str(text)))
