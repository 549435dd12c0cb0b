"""The words of a pair against each other as a table of squares, for pages: see ``cross.py``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from glassformer.explain.view import short_names

CELL, LETTER, LONGEST = 20, 6.6, 18  # pixels of a square and of a letter; letters of a word
FOR, AGAINST = "rgb(214 140 30)", "rgb(60 110 200)"
MAPS = (
    (
        "interactions",
        "first",
        "second",
        "What words of the second text give to “{target}” because of words of the first",
    ),
    ("first_reads_second", "first", "second", "What words of the first text read of the second"),
    ("second_reads_first", "second", "first", "What words of the second text read of the first"),
)


def cross_pictures(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Each map of ``cross`` as a heading and an SVG."""
    made = []
    for key, rows, columns, heading in MAPS:
        if found[key] is not None:
            title = heading.format(target=found["target"])
            made.append((title, squares(found[rows], found[columns], found[key], title)))
    return made


def squares(rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], title: str) -> str:
    """A row for each of ``rows``; a square is as strong as its share of the strongest one, blue below 0."""
    names = [short_names(side, LONGEST) for side in (rows, columns)]
    left, top = (LETTER * max(map(len, side)) + 12 for side in names)
    width, height = left + CELL * len(columns) + 4, top + CELL * len(rows) + 4
    peak = max((abs(value) for line in table for value in line), default=0.0) or 1.0
    parts = [
        f'<text transform="translate({left + CELL * (i + 0.5) + 4:.0f} {top - 6:.0f}) rotate(-90)">'
        f"{escape(name)}</text>"
        for i, name in enumerate(names[1])
    ]
    for i, (name, line) in enumerate(zip(names[0], table, strict=True)):
        y = top + CELL * i
        parts.append(f'<text x="{left - 6:.0f}" y="{y + 14:.0f}" text-anchor="end">{escape(name)}</text>')
        for j, value in enumerate(line):
            about = f"{name} · {names[1][j]}: {value:.4f}"
            parts.append(
                f'<rect x="{left + CELL * j:.0f}" y="{y:.0f}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="{FOR if value >= 0 else AGAINST}" fill-opacity="{abs(value) / peak:.3f}">'
                f"<title>{escape(about)}</title></rect>"
            )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" font-size="11" '
        f'fill="currentColor" aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg>'
    )
