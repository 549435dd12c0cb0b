"""Charts as SVG: curves, bars and confusion matrices.

The SVG of equal numbers has equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from glassformer.errors import DataError

# --- learning curves ------------------------------------------------------------------------------


INK, MUTED, COLORS = "#23303d", "#5b6672", ("#2f6db5", "#c8553d", "#3d7a4b")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 190, 44, 30, 34  # pixels: size of a panel, and its margins


def curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    last_epoch: int | None = None,
    end_labels: tuple[str, str] | None = None,
) -> str:
    """An SVG of line plots next to each other, each with at most three named lines over the epochs.

    Args:
        panels: title of the plot -> name of the line -> values, which are evenly spaced over the epochs.
        last_epoch: number of the last epoch; None: the number of values.
        end_labels: labels of the first and the last value, if the x-axis does not show epochs.
    """
    parts = [_panel(WIDTH * i, *panel, last_epoch, end_labels) for i, panel in enumerate(panels.items())]
    return _svg(WIDTH * len(panels), HEIGHT, parts, font=11)


def _svg(width: int, height: int, parts: Sequence[str], font: int = 12) -> str:
    """An SVG with a white background."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="system-ui, sans-serif" font-size="{font}" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join([*parts, "</svg>"]) + "\n"
    )


def learning_curves(
    evaluations: Sequence[Mapping[str, Any]], test_records: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Loss and accuracy over the epochs of a run; empty if fewer than two were evaluated.

    Args:
        evaluations: evaluation records of a run's history.
        test_records: test metrics of the weights of each epoch, drawn as a third line.
    """
    records = [e for e in evaluations if "train_loss" in e]
    panels: dict[str, dict[str, list[float]]] = {}
    for title, keys in {
        "loss": {"training": "train_loss", "validation": "loss"},
        "accuracy": {"training": "train_accuracy", "validation": "accuracy"},
    }.items():
        lines = {
            name: [float(e[key]) for e in records]
            for name, key in keys.items()
            if records and all(e.get(key) is not None for e in records)
        }
        if test_records and len(test_records) == len(records):
            lines["test"] = [float(e["log_loss" if title == "loss" else "accuracy"]) for e in test_records]
        if lines and any(any(line) for line in lines.values()):  # word vectors have no accuracy
            panels[title] = lines
    if len(records) < 2 or not panels:
        return ""
    last_epoch = records[-1].get("epoch")
    return curves(panels, None if last_epoch is None else last_epoch + 1)


def _panel(
    x: int,
    title: str,
    lines: Mapping[str, Sequence[float]],
    last_epoch: int | None,
    end_labels: tuple[str, str] | None,
) -> str:
    values = [value for line in lines.values() for value in line]
    low, high = min(values), max(values)
    span, length = (high - low) or 1.0, max(map(len, lines.values()))
    first_label, last_label = end_labels or ("1", f"epoch {last_epoch or length:,}")
    left, right, floor = x + LEFT, x + WIDTH - 12, HEIGHT - BOTTOM
    out = [
        f'<text x="{left}" y="16" fill="{INK}" font-weight="600">{title}</text>',
        f'<path d="M{left} {TOP}V{floor}H{right}" fill="none" stroke="{MUTED}"/>',
        *(
            f'<text x="{left - 5}" y="{y + 4}" text-anchor="end" fill="{MUTED}">{value:.2f}</text>'
            for value, y in ((high, TOP), (low, floor))
        ),
        f'<text x="{left}" y="{floor + 14}" fill="{MUTED}">{first_label}</text>',
        f'<text x="{right}" y="{floor + 14}" text-anchor="end" fill="{MUTED}">{last_label}</text>',
    ]
    for (name, line), color, offset in zip(lines.items(), COLORS, (0, 80, 160)):
        points = [
            (left + (right - left) * i / max(length - 1, 1), floor - (floor - TOP) * (value - low) / span)
            for i, value in enumerate(line)
        ]
        coordinates = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        out.append(f'<polyline points="{coordinates}" fill="none" stroke="{color}" stroke-width="2"/>')
        position = f'x="{left + offset}" y="{HEIGHT - 6}"'
        out.append(f'<text {position} fill="{color}" font-weight="600">{name}</text>')
    return "\n".join(out)


# --- horizontal bars in panels ---------------------------------------------------------------------


# Pixels: width of a panel, heights of its title and of a bar, widths of names and values
BARS_WIDTH, TITLE_HEIGHT, BAR_HEIGHT, NAME_WIDTH, VALUE_WIDTH = 290, 34, 19, 100, 48
MAX_NAME = 15  # maximum number of characters of a name


def bar_panels(
    panels: Mapping[str, Sequence[tuple[str, float]]], value_format: str = "{:.1%}", columns: int = 2
) -> str:
    """An SVG of horizontal bar charts, ``columns`` of them per row; negative values are red."""
    from glassformer.explain.view import short_names  # imports torch, which curves do not need

    largest = max((abs(value) for bars in panels.values() for _, value in bars), default=0.0) or 1.0
    names = [name for bars in panels.values() for name, _ in bars]
    short = dict(zip(names, short_names(names, MAX_NAME), strict=True))
    left = max(NAME_WIDTH, *(math.ceil(NAME_WIDTH / MAX_NAME * len(name)) for name in short.values()), 0)
    panel = BARS_WIDTH - NAME_WIDTH + left
    rows = [list(panels.items())[i : i + columns] for i in range(0, len(panels), columns)]
    parts, y = [], 0
    for row in rows:
        for column, (title, bars) in enumerate(row):
            short_title, short_bars = short_names([title], 40)[0], [(short[n], value) for n, value in bars]
            parts.append(_bars(panel * column, y, left, short_title, short_bars, largest, value_format))
        y += TITLE_HEIGHT + BAR_HEIGHT * max(len(bars) for _, bars in row)
    return _svg(panel * min(columns, len(panels)), y + 8, parts)


def _bars(
    x: int,
    y: int,
    left: int,
    title: str,
    bars: Sequence[tuple[str, float]],
    largest: float,
    value_format: str,
) -> str:
    out = [f'<text x="{x + 10}" y="{y + 22}" fill="{INK}" font-weight="600">{escape(title)}</text>']
    max_width, left = BARS_WIDTH - NAME_WIDTH - VALUE_WIDTH - 16, x + left
    for i, (name, value) in enumerate(bars):
        top = y + TITLE_HEIGHT + BAR_HEIGHT * i
        width = max_width * abs(value) / largest
        out += [
            f'<text x="{left - 6}" y="{top + 12}" text-anchor="end" fill="{INK}">{escape(name)}</text>',
            f'<rect x="{left}" y="{top + 2}" width="{width:.1f}" height="13" rx="2" '
            f'fill="{COLORS[value < 0]}"/>',
            f'<text x="{left + width + 5:.1f}" y="{top + 12}" fill="{MUTED}">'
            f"{value_format.format(value)}</text>",
        ]
    return "\n".join(out)


# --- confusion matrix: one row per true class, one column per predicted class ------------------------


CELL, LETTER_WIDTH = 40, 7  # pixels
MAX_CLASS_NAME = 18  # maximum number of characters of a class name
MAX_CLASSES = 30  # more classes are not legible


def confusion_matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """An SVG of a confusion matrix: correct predictions are blue, mistakes red.

    The opacity of a cell grows with the square root of its share of the true class.
    """
    from glassformer.explain.view import short_names  # imports torch, which curves do not need

    n = len(labels)
    if len(counts) != n or any(len(row) != n for row in counts):
        raise DataError(f"the counts are not {n} by {n}", where="confusion", fix="Evaluate the run again")
    if not 0 < n <= MAX_CLASSES:
        raise DataError(f"{n} classes cannot be drawn, only 1 to {MAX_CLASSES}", where="confusion")
    names = short_names(labels, MAX_CLASS_NAME)
    left = top = LETTER_WIDTH * max(map(len, names)) + 30
    size = left + CELL * n + 6
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
        total = max(sum(row), 1)
        parts += [_square(left + CELL * j, top + CELL * i, c, c / total, i == j) for j, c in enumerate(row)]
    return _svg(size, size, parts)


def _square(x: int, y: int, count: int, share: float, correct: bool) -> str:
    strength = share**0.5
    square = (
        f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3" fill="{COLORS[not correct]}" '
        f'fill-opacity="{0.05 + 0.85 * strength:.3f}"/>'
    )
    if not count:
        return square
    ink = "#ffffff" if strength > 0.6 else INK
    return square + (
        f'<text x="{x + CELL / 2 - 1:.0f}" y="{y + CELL / 2 + 4:.0f}" text-anchor="middle" fill="{ink}">'
        f"{count}</text>"
    )
