"""Explanations of the cosine similarity of two inputs.

Each pair of a token or patch of the first input and one of the second has a contribution. The contributions
of all pairs sum to the cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import BadValueError, ConfigError, DataError
from glassformer.explain.heatmap import heatmap_svg
from glassformer.explain.view import inert
from glassformer.finite import finite, json_text
from glassformer.models.sentences import Dense, EmbeddingSettings
from glassformer.outputs import write_text

POSITIVE, NEGATIVE = "var(--right, #0b7285)", "var(--wrong, #b93a2b)"  # colors of positive, negative values
MAX_TOKENS = 200  # maximum number of displayed rows and of columns; the JSON has all
MAX_SQUARES = 10_000  # maximum number of squares of a heatmap
NUM_STRONGEST = 8  # number of listed pairs
ABOUT = (
    "Each row is a token or patch of the first input, each column one of the second input. A square is the "
    "contribution of both to the cosine: blue-green is positive, red is negative, and all squares sum to the "
    "cosine. The vector of a token or patch also depends on the tokens or patches around it."
)


def picture(
    rows: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[float]], origin: str = "pair map"
) -> str:
    """A heatmap as SVG; opacity is relative to the largest absolute value.

    Args:
        rows, columns: names of the tokens of both texts.
        table: ``[len(rows), len(columns)]`` contributions.
        origin: the file of the table, for error messages.
    """
    if len(table) != len(rows) or any(len(line) != len(columns) for line in table):
        what = f"the contributions are not a {len(rows)} by {len(columns)} matrix"
        raise DataError(what, where=origin, fix="Explain it again")
    rows, columns = rows[:MAX_TOKENS], columns[:MAX_TOKENS]
    peak = max((abs(value) for line in table for value in line), default=0.0) or 1.0

    def cell(r: int, c: int) -> tuple[str, str, str]:
        value = table[r][c]
        color = POSITIVE if value >= 0 else NEGATIVE
        return color, f"{abs(value) / peak:.3f}", f"{rows[r]} · {columns[c]}: {value:+.4f}"

    label = f"Contributions of {len(rows)} by {len(columns)} pairs to the cosine"
    return heatmap_svg(rows, columns, cell, label)


def page(explanations: Sequence[Any], title: str = "") -> str:
    """An HTML page with the heatmap of each explanation and its strongest pairs.

    Args:
        explanations: ``SimilarityExplanation`` or ``ImageSimilarity`` objects.
    """
    from markupsafe import Markup

    from glassformer.explain.render import TEMPLATES, asset, environment, policy

    css = asset("page.css")
    shown = [
        {
            "a": inert(e.a),
            "b": inert(e.b),
            "score": e.score,
            "picture": _draw_table(e),
            "strongest": [(inert(r), inert(c), value) for r, c, value in e.strongest(NUM_STRONGEST)],
            "pictures": [
                Markup(patches(url, e.table.sum(1 - side), grid))
                for side, (url, grid) in enumerate(zip(e.urls, e.grids, strict=True))
            ]
            if hasattr(e, "urls")
            else [],
        }
        for e in explanations
    ]
    return (
        environment(TEMPLATES)
        .get_template("similarity.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, "", pictures=any(entry["pictures"] for entry in shown)),
            title=title or f"Cosine {shown[0]['score']:.4f}",
            about=ABOUT,
            shown=shown,
        )
    )


def _draw_table(e: Any) -> Any:
    from markupsafe import Markup

    if e.table.size > MAX_SQUARES or hasattr(e, "urls"):
        return ""
    return Markup(picture(e.rows, e.columns, e.table.tolist()))


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
        f'fill="{POSITIVE if value >= 0 else NEGATIVE}" fill-opacity="{0.75 * abs(value) / peak:.3f}">'
        f"<title>row {i // columns + 1}, column {i % columns + 1}: {value:+.4f}</title></rect>"
        for i, value in enumerate(map(float, sums))
    )
    label = f"An image, and the contributions of its {rows} by {columns} patches"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{max(width, 224)}" role="img" aria-label="{label}">'
        f'<image href="{escape(url)}" width="{width}" height="{height}" preserveAspectRatio="none"/>'
        f"{cells}</svg>"
    )


class PairMap:
    """Base class of explanations of a cosine by a table of contributions of pairs."""

    rows: Any  # names of the rows of ``table``
    columns: Any  # names of the columns
    table: np.ndarray

    def strongest(self, k: int = 5) -> list[tuple[str, str, float]]:
        """The ``k`` pairs with the largest contributions."""
        best = np.argsort(-self.table, axis=None, kind="stable")[:k]
        pairs = zip(*np.unravel_index(best, self.table.shape), strict=True)
        rows, columns = self.rows, self.columns
        return [(rows[i], columns[j], float(self.table[i, j])) for i, j in pairs]

    def json(self) -> str:
        """The values as JSON."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the values (``.json``).

        Raises:
            ConfigError: the file has another extension.
        """
        return _write(path, lambda: page([self]), self.json)


@dataclass(frozen=True)
class SimilarityExplanation(PairMap):
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
        """The names of the rows of ``table``."""
        return self.tokens_a

    @property
    def columns(self) -> list[str]:
        """The names of the columns of ``table``."""
        return self.tokens_b

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

    def json(self) -> str:
        return json_text([self.as_dict()], indent=2) + "\n"


@dataclass(frozen=True)
class ImageSimilarity(PairMap):
    """Explanation of the similarity of two images by pairs of patches.

    ``table[i, j]`` is the contribution of patch i of the first image and patch j of the second image.
    """

    a: str
    b: str
    table: np.ndarray  # [P, P] fp64, patches row by row
    score: float  # the cosine of the means over all patches
    grids: tuple[tuple[int, int], tuple[int, int]]  # rows and columns of patches
    urls: tuple[str, str] = field(repr=False)  # ``data:`` URLs of the images as the model reads them

    @property
    def rows(self) -> list[str]:
        """Names of the patches of the first image."""
        return _patch_names(self.grids[0])

    @property
    def columns(self) -> list[str]:
        """Names of the patches of the second image."""
        return _patch_names(self.grids[1])

    def json(self) -> str:
        values = {"score": self.score, "grids": self.grids, "table": self.table.tolist()}
        return json_text(values, ascii=True) + "\n"


def _patch_names(grid: tuple[int, int]) -> list[str]:
    return [f"row {i + 1}, column {j + 1}" for i in range(grid[0]) for j in range(grid[1])]


def save_similarities(explanations: Sequence[SimilarityExplanation], path: str | Path) -> Path:
    """Like ``SimilarityExplanation.save``, for several explanations: one page, or a JSON array."""
    title = "" if len(explanations) == 1 else f"The cosines of {len(explanations)} pairs"
    values = [e.as_dict() for e in explanations]
    return _write(path, lambda: page(explanations, title), lambda: json_text(values, indent=2) + "\n")


def _write(path: str | Path, html: Callable[[], str], values: Callable[[], str]) -> Path:
    """Write a page or JSON, by the extension of the file."""
    path, texts = Path(path), {".html": html, ".json": values}
    if (text := texts.get(path.suffix.lower())) is None:
        raise BadValueError(
            "is not an .html or .json file", where=str(path), fix="Use one of these extensions"
        )
    write_text(path, text())
    return path


def contributions(steps: EmbeddingSettings, first: Tensor, second: Tensor) -> tuple[np.ndarray, float]:
    """Contributions ``[T_a, T_b]`` of pairs of tokens to the cosine of two texts, and the cosine.

    The vector of a text is a sum over its tokens. So the dot product of two vectors is a sum over pairs of
    tokens, and the cosine is the dot product divided by the norms.

    Args:
        steps: the steps from hidden states to the sentence vector.
        first, second: last hidden states ``[T, D]`` of both texts.
    """
    parts = [_token_parts(steps, states.double()) for states in (first, second)]
    norms = [part.sum(0).norm().clamp(min=1e-12) for part in parts]
    table = (parts[0] @ parts[1].T) / (norms[0] * norms[1])
    score = F.cosine_similarity(parts[0].sum(0), parts[1].sum(0), dim=0)
    return finite(table.numpy(), "vectors"), float(score)


def _token_parts(steps: EmbeddingSettings, states: Tensor) -> Tensor:
    """The contribution of each token to the vector before its normalization, ``[T, E]``."""
    if steps.prompt(None, None) and not steps.pool.include_prompt:
        what = "a prompt that is excluded from pooling is not supported"
        raise ConfigError(what, where="explain_similarity", fix="Explain without a default prompt")
    pooled = []
    count = len(states)
    for mode in steps.pool.modes:
        weights = torch.zeros(count, 1, dtype=states.dtype)
        if mode == "max":
            is_max = F.one_hot(states.argmax(0), count).T.to(states)  # [T, D]
            pooled.append(states * is_max)
            continue
        if mode == "cls":
            weights[0] = 1
        elif mode == "lasttoken":
            weights[-1] = 1
        elif mode == "weightedmean":
            weights[:, 0] = torch.arange(1, count + 1, dtype=states.dtype)
            weights = weights / weights.sum()
        else:  # the mean, or the sum divided by the square root of the length
            weights[:] = 1 / count if mode == "mean" else count**-0.5
        pooled.append(states * weights)
    parts = torch.cat(pooled, 1)
    for step in steps.after:
        if isinstance(step, Dense):
            if step.activation != "Identity":
                what = f"a dense layer with {step.activation} is not a sum over tokens"
                raise ConfigError(what, where="explain_similarity", fix="Use a model without it")
            bias = 0 if step.bias is None else step.bias.to(parts) / count
            outputs = F.linear(parts, step.weight.to(parts)) + bias
            weight = step.residual_weight
            if step.residual:
                outputs = outputs + (parts if weight is None else F.linear(parts, weight.to(parts)))
            parts = outputs
        else:
            parts = parts / parts.sum(0).norm().clamp(min=1e-12)
    return parts[:, : steps.truncate_dim]
