"""SVG grids of explanations.

A grid has the attention maps of all heads of a layer, or images with their scores. The background is white on
light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import numpy as np

from glassformer.errors import InputError, counted
from glassformer.explain.result import Result
from glassformer.explain.view import certainty, image_data_url, inert, short_names

CELL, LETTER = 22, 7  # width in pixels of a square and of a letter
IMAGE_SIDE, GAP, HEADER, FOOTER = 100, 8, 34, 20  # sizes in pixels
INK, MUTED, MAP_COLOR = "#23303d", "#5b6672", "#2f6db5"
POSITIVE, NEGATIVE = (255, 110, 0), (40, 90, 220)  # colors of scores on an image
MAX_TOKEN_LETTERS, MAX_LABEL_LETTERS = 16, 11  # longer tokens and labels are shortened
MAX_TOKENS = 64  # maximum number of tokens of a map


def to_svg_file(svg: str) -> str:
    """The contents of an SVG file from an ``<svg>`` element.

    CSS variables are replaced by their fallbacks, and a white background is added.
    """
    svg = re.sub(r"var\(--[\w-]+, ([^()]+)\)", r"\1", svg)
    start = svg.index(">") + 1
    head, box = svg[:start], re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg[:start])
    if box is None:
        raise ValueError("no viewBox that begins at 0 0")
    if "xmlns=" not in head:
        head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    if "font-family=" not in head:
        head = head.replace("<svg ", '<svg font-family="system-ui, sans-serif" ', 1)
    background = f'<rect width="{box[1]}" height="{box[2]}" fill="#ffffff"/>'
    return f"{head}{background}{svg[start:]}\n"


def heads(explanation: Result, layer: int = -1) -> str:
    """The attention maps of all heads of one layer, side by side; rows attend to columns.

    Args:
        explanation: the explanation of a text, with ``maps=True``.
        layer: index of the layer; negative indices count from the end.
    """
    e = explanation
    if e.maps is None or e.image is not None:
        what = "the explanation has no attention maps of a text"
        raise InputError(what, where="heads", fix="Explain a text with maps=True")
    if not -len(e.maps) <= layer < len(e.maps):
        raise InputError(f"no layer {layer}: the model has {counted(len(e.maps), 'layer')}", where="heads")
    if len(e.tokens) > MAX_TOKENS:
        raise InputError(
            f"the explanation has {len(e.tokens)} tokens; at most {MAX_TOKENS} can be drawn", where="heads"
        )
    tokens = [escape(token) for token in short_names(e.tokens, MAX_TOKEN_LETTERS)]
    maps = e.maps[layer]  # [H, T, T]
    edge = LETTER * max(map(len, tokens)) + 10
    side, top = CELL * len(tokens), edge + 22
    width, height = edge + (side + GAP) * len(maps), top + side + GAP
    parts = [
        f'<text x="{edge - 6}" y="{top + CELL * i + 15}" text-anchor="end" fill="{INK}">{token}</text>'
        for i, token in enumerate(tokens)
    ]
    for number, weights in enumerate(maps):
        left = edge + (side + GAP) * number
        parts.append(f'<text x="{left}" y="14" fill="{INK}" font-weight="600">head {number + 1}</text>')
        parts += [
            f'<text transform="translate({left + CELL * i + 15} {top - 5}) rotate(-90)" '
            f'fill="{INK}">{token}</text>'
            for i, token in enumerate(tokens)
        ]
        parts += [
            f'<rect x="{left + CELL * j + 1}" y="{top + CELL * i + 1}" width="{CELL - 2}" '
            f'height="{CELL - 2}" rx="2" fill="{MAP_COLOR}" fill-opacity="{share:.3f}"/>'
            for i, row in enumerate(weights.tolist())
            for j, share in enumerate(row)
        ]
    return _svg_file(width, height, parts)


def pictures(
    rows: Sequence[Sequence[Result]], titles: Sequence[str], names: Sequence[str] | None = None
) -> str:
    """One row per image: the image, then the scores of each explanation over the image in gray.

    For methods with a target, orange patches support the target and blue patches oppose it. The opacity is
    relative to the largest score. The predictions are below the explanations.

    Args:
        rows: for each image, its explanations, one for each title.
        titles: column titles, with an optional line break.
        names: captions of the images, such as the true label; None: their file names.
    """
    captions = names or [row[0].name for row in rows if row]
    if not rows or len(captions) != len(rows) or any(len(row) != len(titles) for row in rows):
        raise InputError(
            f"there are {len(rows)} rows, but {len(titles)} titles or {len(captions)} names", where="images"
        )
    if any(e.image is None for row in rows for e in row):
        raise InputError("one explanation is of a text", where="images", fix="Give explanations of images")
    column_width, row_height = IMAGE_SIDE + GAP, IMAGE_SIDE + FOOTER + GAP
    parts, definitions = [], []
    labels = iter(short_names([str(e.label) for row in rows for e in row], MAX_LABEL_LETTERS))
    for column, title in enumerate(titles, 1):
        parts += [
            _text_line(column_width * column, 13 + 14 * i, line, INK, i == 0)
            for i, line in enumerate(title.split("\n")[:2])
        ]
    for i, (row, name) in enumerate(zip(rows, captions, strict=True)):
        y, image = HEADER + row_height * i, row[0].image
        assert image is not None
        gray = np.repeat((image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None], 3, 2)
        definitions.append(_image(f'id="grey-{i}" ', image_data_url(gray)))
        parts.append(f'<g transform="translate(0 {y})">{_image("", image_data_url(image))}</g>')
        parts.append(_text_line(0, y + IMAGE_SIDE + 14, name, MUTED))
        for column, e in enumerate(row, 1):
            x = column_width * column
            heat = _image("", image_data_url(heat_colors(e.scores, signed=e.target is not None)))
            parts.append(f'<g transform="translate({x} {y})"><use href="#grey-{i}"/>{heat}</g>')
            prediction = f"{next(labels)} {certainty(e.probability)} %"
            parts.append(_text_line(x, y + IMAGE_SIDE + 14, prediction, MUTED))
    width, height = column_width * (1 + len(titles)), HEADER + row_height * len(rows)
    return _svg_file(width, height, [f"<defs>{''.join(definitions)}</defs>", *parts])


def heat_colors(scores: np.ndarray, *, signed: bool) -> np.ndarray:
    """Scores ``[gh, gw]`` as RGBA colors ``[gh, gw, 4]`` uint8."""
    values = scores.astype(np.float64)
    if not signed:
        values = values - values.min()
    shares = values / max(float(np.abs(values).max()), 1e-12)
    colors = np.where(shares[..., None] >= 0, POSITIVE, NEGATIVE)
    opacity = np.rint(200 * np.abs(shares))[..., None]
    return np.concatenate([colors, opacity], -1).astype(np.uint8)


def _image(attributes: str, url: str) -> str:
    return (
        f'<image {attributes}href="{url}" width="{IMAGE_SIDE}" height="{IMAGE_SIDE}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    )


def _text_line(x: int, y: int, text: str, color: str, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    size = ' font-size="11"' if color == MUTED else ""
    return f'<text x="{x}" y="{y}" fill="{color}"{weight}{size}>{escape(inert(text))}</text>'


def _svg_file(width: int, height: int, parts: Sequence[str]) -> str:
    return to_svg_file(
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" font-size="12">'
        + "\n".join(parts)
        + "</svg>"
    )
