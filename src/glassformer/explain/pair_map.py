"""What each pair of tokens (of patches) adds to the cosine of two texts (pictures), as a map and a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from glassformer.errors import DataError
from glassformer.explain.view import inert

CELL, CHARACTER = 22, 7.2  # pixels of a square, and of a letter beside it
INK = "var(--ink, currentColor)"
ADDS, TAKES = "var(--right, #0b7285)", "var(--wrong, #b93a2b)"
MOST = 200  # parts of a side that are drawn; the figures have all
MOST_SQUARES = 10_000  # of one map; patches of two pictures are shown in the pictures instead
STRONGEST = 8  # pairs that are listed
ABOUT = (
    "A row for each part of the first, a column for each of the second. A square is what the two add to the "
    "cosine: blue-green adds, red takes away, and all squares together are the cosine. A part stands for its "
    "place: what the model knows of it there includes what stands around it."
)


def picture(
    rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], origin: str = "pair map"
) -> str:
    """The map as SVG; a square's strength is its share of the strongest one.

    Args:
        rows, columns: what to call the parts of each side.
        table: ``[len(rows), len(columns)]``, of any sign.
        origin: where it comes from, for messages.

    Raises:
        DataError: the table has another shape.
    """
    if len(table) != len(rows) or any(len(line) != len(columns) for line in table):
        what = f"contributions are not {len(rows)} by {len(columns)}"
        raise DataError(what, where=origin, fix="Explain it again")
    rows, columns = rows[:MOST], columns[:MOST]
    peak = max((abs(value) for line in table for value in line), default=0.0) or 1.0
    left = CHARACTER * max(map(len, rows), default=1) + 8
    top = CHARACTER * max(map(len, columns), default=1) + 8
    width, height = left + CELL * len(columns) + 8, top + CELL * len(rows) + 4
    parts = [
        f'<text transform="translate({left + CELL * (c + 0.5) + 4:.1f} {top - 6:.1f}) rotate(-90)" '
        f'fill="{INK}">{_text(name)}</text>'
        for c, name in enumerate(columns)
    ]
    for r, name in enumerate(rows):
        y = top + CELL * r
        parts.append(
            f'<text x="{left - 6:.1f}" y="{y + 15:.1f}" text-anchor="end" fill="{INK}">{_text(name)}</text>'
        )
        parts += [
            f'<rect x="{left + CELL * c + 1:.1f}" y="{y + 1:.1f}" width="{CELL - 2}" height="{CELL - 2}" '
            f'rx="2" fill="{ADDS if value >= 0 else TAKES}" fill-opacity="{abs(value) / peak:.3f}">'
            f"<title>{_text(name)} · {_text(columns[c])}: {value:+.4f}</title></rect>"
            for c, value in enumerate(table[r][: len(columns)])
        ]
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="What each of {len(rows)} by {len(columns)} pairs adds to the cosine" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def page(found: Sequence[Any], title: str = "") -> str:
    """A whole page with the map of each explanation and its strongest pairs.

    Args:
        found: each has ``a``, ``b``, ``rows``, ``columns``, ``table``, ``score`` and ``strongest(k)``; of
            pictures ``urls`` and ``grids`` too, one for each side.
    """
    from markupsafe import Markup

    from glassformer.explain.render import TEMPLATES, asset, environment, policy

    css = asset("page.css")
    shown = [
        {
            "a": inert(one.a),
            "b": inert(one.b),
            "score": one.score,
            "picture": _map_of(one),
            "strongest": [(inert(r), inert(c), value) for r, c, value in one.strongest(STRONGEST)],
            "pictures": [
                Markup(patches(url, one.table.sum(1 - side), grid))
                for side, (url, grid) in enumerate(zip(one.urls, one.grids, strict=True))
            ]
            if hasattr(one, "urls")
            else [],
        }
        for one in found
    ]
    return (
        environment(TEMPLATES)
        .get_template("similarity.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, "", pictures=any(one["pictures"] for one in shown)),
            title=title or f"Cosine {shown[0]['score']:.4f}",
            about=ABOUT,
            shown=shown,
        )
    )


def _map_of(one: Any) -> Any:
    from markupsafe import Markup

    if one.table.size > MOST_SQUARES or hasattr(one, "urls"):
        return ""
    return Markup(picture(one.rows, one.columns, one.table.tolist()))


def patches(url: str, sums: Any, grid: tuple[int, int]) -> str:
    """A picture under what each of its patches adds to the cosine, all patches of the other together.

    Args:
        url: ``data:`` address of the picture.
        sums: ``[rows * columns]``.
        grid: rows and columns of patches.
    """
    side, (rows, columns) = 16, grid
    peak = max((abs(float(value)) for value in sums), default=0.0) or 1.0
    width, height = side * columns, side * rows
    cells = "".join(
        f'<rect x="{side * (i % columns)}" y="{side * (i // columns)}" width="{side}" height="{side}" '
        f'fill="{ADDS if value >= 0 else TAKES}" fill-opacity="{0.75 * abs(value) / peak:.3f}">'
        f"<title>row {i // columns + 1}, column {i % columns + 1}: {value:+.4f}</title></rect>"
        for i, value in enumerate(map(float, sums))
    )
    label = f"A picture, and what each of its {rows} by {columns} patches adds"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{max(width, 224)}" role="img" aria-label="{label}">'
        f'<image href="{escape(url)}" width="{width}" height="{height}" preserveAspectRatio="none"/>'
        f"{cells}</svg>"
    )


def _text(name: Any) -> str:
    return escape(inert(str(name)))
