"""Small curves of a training as SVG files, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

INK, MUTED, COLORS = "#23303d", "#5b6672", ("#2f6db5", "#c8553d", "#3d7a4b")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 190, 44, 30, 34


def curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    last: int | None = None,
    ends: tuple[str, str] | None = None,
) -> str:
    """Panels beside each other, each with at most three named lines over the epochs.

    Args:
        panels: title -> line's name -> values, one an epoch or evenly over them.
        last: the number of the last epoch; None: as many as there are values.
        ends: what stands below the first and the last value where they are no epochs.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" '
        f'width="{WIDTH * len(panels)}" font-family="system-ui, sans-serif" font-size="11" role="img">',
        f'<rect width="{WIDTH * len(panels)}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for number, (title, lines) in enumerate(panels.items()):
        parts.append(_panel(WIDTH * number, title, lines, last, ends))
    return "\n".join([*parts, "</svg>"]) + "\n"


def learning_curves(
    evaluations: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Loss and accuracy over the epochs of one training; empty: fewer than two were evaluated.

    Args:
        evaluations: of a run's history.
        judged: figures of the judged split by the weights of each epoch; they stand beside the training's.
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
        if judged and len(judged) == len(records):
            lines["test"] = [float(e["log_loss" if title == "loss" else "accuracy"]) for e in judged]
        if lines and any(any(line) for line in lines.values()):  # word vectors have no accuracy to learn
            panels[title] = lines
    last = records[-1].get("epoch") if records else None
    return curves(panels, None if last is None else last + 1) if len(records) > 1 and panels else ""


def _panel(
    x: int,
    title: str,
    lines: Mapping[str, Sequence[float]],
    end: int | None,
    ends: tuple[str, str] | None,
) -> str:
    values = [value for line in lines.values() for value in line]
    low, high = min(values), max(values)
    span, last = (high - low) or 1.0, max(map(len, lines.values()))
    first, final = ends or ("1", f"epoch {end or last:,}")
    left, right, floor = x + LEFT, x + WIDTH - 12, HEIGHT - BOTTOM
    out = [
        f'<text x="{left}" y="16" fill="{INK}" font-weight="600">{title}</text>',
        f'<path d="M{left} {TOP}V{floor}H{right}" fill="none" stroke="{MUTED}"/>',
        *(
            f'<text x="{left - 5}" y="{y + 4}" text-anchor="end" fill="{MUTED}">{value:.2f}</text>'
            for value, y in ((high, TOP), (low, floor))
        ),
        f'<text x="{left}" y="{floor + 14}" fill="{MUTED}">{first}</text>',
        f'<text x="{right}" y="{floor + 14}" text-anchor="end" fill="{MUTED}">{final}</text>',
    ]
    for (name, line), color, place in zip(lines.items(), COLORS, (0, 80, 160)):
        points = [
            (
                left + (right - left) * i / max(last - 1, 1),
                floor - (floor - TOP) * (value - low) / span,
            )
            for i, value in enumerate(line)
        ]
        drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        out.append(f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="2"/>')
        out.append(
            f'<text x="{left + place}" y="{HEIGHT - 6}" fill="{color}" font-weight="600">{name}</text>'
        )
    return "\n".join(out)
