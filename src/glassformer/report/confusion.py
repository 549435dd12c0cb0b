"""A confusion matrix as an SVG file: a row a true class, a column a predicted one, counts in the squares."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from glassformer.errors import DataError
from glassformer.explain.view import short_names
from glassformer.report.curves import COLORS, INK, MUTED

CELL, LETTER, LONGEST = 40, 7, 18  # pixels of a square and of a letter; letters of a class
MOST = 30  # classes: more squares cannot be read


def confusion_matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Right answers on blue, mistakes on red, each as strong as the root of its share of the true class.

    Args:
        counts: ``[true][predicted]``, as in the figures of a split.

    Raises:
        DataError: the counts are no square table of the classes, or there are too many classes to read.
    """
    n = len(labels)
    if len(counts) != n or any(len(row) != n for row in counts):
        raise DataError(f"the counts are not {n} by {n}", where="confusion", fix="Judge the run again")
    if not 0 < n <= MOST:
        raise DataError(f"{n} classes, 1 to {MOST} can be drawn", where="confusion")
    names = short_names(labels, LONGEST)
    edge = LETTER * max(map(len, names)) + 12
    left, top = edge + 18, edge + 18
    width, height = left + CELL * n + 6, top + CELL * n + 6
    parts = [
        f'<text x="{left + CELL * n / 2:.0f}" y="14" text-anchor="middle" fill="{MUTED}">predicted</text>',
        f'<text transform="translate(14 {top + CELL * n / 2:.0f}) rotate(-90)" text-anchor="middle" '
        f'fill="{MUTED}">true</text>',
    ]
    for i, (name, row) in enumerate(zip(map(escape, names), counts, strict=True)):
        middle = CELL * (i + 0.5) + 4
        parts += [
            f'<text x="{left - 6}" y="{top + middle:.0f}" text-anchor="end" fill="{INK}">{name}</text>',
            f'<text transform="translate({left + middle:.0f} {top - 6}) rotate(-90)" '
            f'fill="{INK}">{name}</text>',
        ]
        whole = max(sum(row), 1)
        parts += [_square(left + CELL * j, top + CELL * i, c, c / whole, i == j) for j, c in enumerate(row)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join([*parts, "</svg>"]) + "\n"
    )


def _square(x: int, y: int, count: int, share: float, right: bool) -> str:
    strength = share**0.5
    square = (
        f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3" fill="{COLORS[not right]}" '
        f'fill-opacity="{0.05 + 0.85 * strength:.3f}"/>'
    )
    if not count:
        return square
    ink = "#ffffff" if strength > 0.6 else INK
    return square + (
        f'<text x="{x + CELL / 2 - 1:.0f}" y="{y + CELL / 2 + 4:.0f}" text-anchor="middle" fill="{ink}">'
        f"{count}</text>"
    )
