"""Explanation of the cosine similarity of two texts or images by pairs of tokens or patches.

The contributions of all pairs sum to the cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import BadValueError, ConfigError, DataError
from glassformer.explain.view import inert
from glassformer.finite import finite, json_text
from glassformer.models.sentences import Dense, Sentences
from glassformer.outputs import write_text

CELL, CHARACTER = 22, 7.2  # pixels per square, and per letter
INK = "var(--ink, currentColor)"
ADDS, TAKES = "var(--right, #0b7285)", "var(--wrong, #b93a2b)"
MOST = 200  # maximum number of drawn rows or columns; the JSON has all
MOST_SQUARES = 10_000  # maximum number of squares of a heatmap
STRONGEST = 8  # number of listed pairs
ABOUT = (
    "A row for each part of the first, a column for each of the second. A square is what the two add to the "
    "cosine: blue-green adds, red takes away, and all squares together are the cosine. A part stands for its "
    "place: what the model knows of it there includes what stands around it."
)


def picture(
    rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], origin: str = "pair map"
) -> str:
    """A heatmap as SVG; opacity is relative to the largest absolute value.

    Args:
        rows, columns: names of the tokens of both texts.
        table: ``[len(rows), len(columns)]`` contributions.
        origin: where the table comes from, for error messages.

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
    """An HTML page with the heatmap of each explanation and its strongest pairs.

    Args:
        found: explanations with ``a``, ``b``, ``rows``, ``columns``, ``table``, ``score`` and
            ``strongest(k)``; for images also ``urls`` and ``grids``, one per image.
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
    """An image overlaid with the contribution of each of its patches, as SVG.

    Args:
        url: ``data:`` URL of the image.
        sums: ``[rows * columns]`` contributions, summed over the patches of the other image.
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
    label = f"An image, and what each of its {rows} by {columns} patches adds"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{max(width, 224)}" role="img" aria-label="{label}">'
        f'<image href="{escape(url)}" width="{width}" height="{height}" preserveAspectRatio="none"/>'
        f"{cells}</svg>"
    )


def _text(name: Any) -> str:
    return escape(inert(str(name)))


@dataclass(frozen=True)
class SimilarityExplanation:
    """``table[i, j]`` is the contribution of token i of text a and token j of text b to ``score``."""

    a: str
    b: str
    tokens_a: list[str]
    tokens_b: list[str]
    table: np.ndarray  # [T_a, T_b] fp64
    score: float  # the cosine
    notes: tuple[str, ...] = ()  # remarks, for example that a text was truncated

    @property
    def rows(self) -> list[str]:
        """Names of the rows of the table."""
        return self.tokens_a

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the table."""
        return self.tokens_b

    def strongest(self, k: int = 5) -> list[tuple[str, str, float]]:
        """The ``k`` pairs with the largest contributions."""
        best = np.argsort(-self.table, axis=None, kind="stable")[:k]
        places = zip(*np.unravel_index(best, self.table.shape), strict=True)
        return [(self.tokens_a[i], self.tokens_b[j], float(self.table[i, j])) for i, j in places]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "texts": [self.a, self.b],
            "tokens": [self.tokens_a, self.tokens_b],
            "score": self.score,
            "table": self.table.tolist(),
            "notes": list(self.notes),
        }

    def html(self) -> str:
        """A self-contained page with the heatmap and the strongest pairs."""
        return page([self])

    def _repr_html_(self) -> str:
        return f"<div>{picture(self.tokens_a, self.tokens_b, self.table.tolist())}</div>"

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the values (``.json``).

        Raises:
            ConfigError: another extension.
        """
        return save_similarities([self], path)


def save_similarities(found: Sequence[SimilarityExplanation], path: str | Path) -> Path:
    """As ``SimilarityExplanation.save``, for several explanations: one page, or a JSON array."""
    path = Path(path)
    if path.suffix.lower() == ".html":
        text = page(
            found, "" if len(found) == 1 else f"{len(found)} pairs, and what their cosines are made of"
        )
    elif path.suffix.lower() == ".json":
        text = json_text([one.as_dict() for one in found], indent=2) + "\n"
    else:
        raise BadValueError("not .html or .json", where=str(path), fix="End the name with one of them")
    write_text(path, text)
    return path


def contributions(how: Sentences, first: Tensor, second: Tensor) -> tuple[np.ndarray, float]:
    """Contributions ``[T_a, T_b]`` of pairs of tokens to the cosine of two texts, and the cosine.

    The vector of a text is a sum over its tokens, so the dot product of two vectors is a sum over pairs.
    Divided by the norms it is the cosine.

    Args:
        how: the steps of the sentence embedding.
        first, second: last hidden states ``[T, D]`` of both texts.

    Raises:
        ConfigError: a dense layer has an activation, so that vectors are not sums over tokens.
    """
    parts = [_parts(how, states.double()) for states in (first, second)]
    norms = [part.sum(0).norm().clamp(min=1e-12) for part in parts]
    table = (parts[0] @ parts[1].T) / (norms[0] * norms[1])
    score = F.cosine_similarity(parts[0].sum(0), parts[1].sum(0), dim=0)
    return finite(table.numpy(), "vectors"), float(score)


def _parts(how: Sentences, states: Tensor) -> Tensor:
    """The contribution of each token to the vector before its normalization, ``[T, E]``."""
    if how.prompt(None, None) and not how.pool.include_prompt:
        what = "a prompt that is excluded from pooling is not supported"
        raise ConfigError(what, where="explain_similarity", fix="Explain without a default prompt")
    pools = []
    count = len(states)
    for mode in how.pool.modes:
        weights = torch.zeros(count, 1, dtype=states.dtype)
        if mode == "max":
            winners = F.one_hot(states.argmax(0), count).T.to(states)  # [T, D]
            pools.append(states * winners)
            continue
        if mode == "cls":
            weights[0] = 1
        elif mode == "lasttoken":
            weights[-1] = 1
        elif mode == "weightedmean":
            weights[:, 0] = torch.arange(1, count + 1, dtype=states.dtype)
            weights = weights / weights.sum()
        else:  # mean, or the sum over the root of the length
            weights[:] = 1 / count if mode == "mean" else count**-0.5
        pools.append(states * weights)
    parts = torch.cat(pools, 1)
    for step in how.after:
        if isinstance(step, Dense):
            if step.activation != "Identity":
                what = f"a dense layer with {step.activation} is not a sum over tokens"
                raise ConfigError(what, where="explain_similarity", fix="Use a model without it")
            bias = 0 if step.bias is None else step.bias.to(parts) / count
            straight = F.linear(parts, step.weight.to(parts)) + bias
            beside = step.residual_weight
            if step.residual:
                straight = straight + (parts if beside is None else F.linear(parts, beside.to(parts)))
            parts = straight
        else:
            parts = parts / parts.sum(0).norm().clamp(min=1e-12)
    return parts[:, : how.truncate_dim]
