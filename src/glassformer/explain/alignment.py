"""Word alignments of translations from cross-attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import DataError
from glassformer.explain.heatmap import escape_text, heatmap_svg
from glassformer.finite import json_text
from glassformer.outputs import check_page_path, write_text

BRAND = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><rect x="2" y="8" width="13" height="13" rx="2.5"/>'
    '<rect x="9" y="3" width="13" height="13" rx="2.5"/></svg>'
)
COLOR = "var(--train, #b8741a)"  # CSS variable of our pages, with a fallback for notebooks


@dataclass(frozen=True)
class Alignment:
    """Cross-attention from target to source tokens: ``weights`` ``[T, S]``, rows sum to 1."""

    source: list[str]  # S tokens
    target: list[str]  # T tokens, with the end token unless the translation was truncated
    weights: np.ndarray  # fp32, mean over the heads of the last cross-attention
    translation: str
    text: str = ""  # the source text

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "text": self.text,
            "translation": self.translation,
            "source": self.source,
            "target": self.target,
            "weights": np.round(self.weights.astype(np.float64), 4).tolist(),
        }

    def save(self, path: str | Path) -> Path:
        """Write ``.json`` (tokens and weights) or ``.html`` (a self-contained page)."""
        return save_alignments([self], path)

    def _repr_html_(self) -> str:
        return f"<div>{picture(self.source, self.target, self.weights.tolist())}</div>"


def save_alignments(alignments: Sequence[Alignment], path: str | Path) -> Path:
    """Like ``Alignment.save``, for several alignments: one page, or a JSON array."""
    path = check_page_path(path)
    if path.suffix.lower() == ".json":
        values = [alignment.to_dict() for alignment in alignments]
        text = json_text(values if len(values) > 1 else values[0], indent=2) + "\n"
    else:
        text = page(alignments)
    write_text(path, text)
    return path


def page(alignments: Sequence[Alignment]) -> str:
    """An HTML page with the plot of each alignment, its text and its translation."""
    from glassformer.explain.render import asset, policy

    css = asset("page.css")
    figures = "".join(
        '<figure class="alignment"><div class="scroll" tabindex="0">'
        f"{picture(one.source, one.target, one.weights.tolist())}</div>"
        f'<figcaption dir="auto">{escape_text(one.text)}<br>{escape_text(one.translation)}</figcaption>'
        "</figure>"
        for one in alignments
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(css, ""))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<title>glassformer alignment</title>\n'
        f'<style>{css}</style>\n</head>\n<body>\n<header class="page">'
        f'<p class="brand">{BRAND}glassformer</p>'
        "<h1>Word alignments</h1></header>\n<main>"
        '<section class="block"><div class="side"><h2>Alignments</h2><p>Each row is a token of the '
        "translation, each column a token of the text. Darker squares have more attention in the last "
        "decoder layer, as the mean over its heads. Attention shows where information was read, not why a "
        "word was chosen.</p></div>"
        f'<div class="main"><div class="alignments">{figures}</div></div></section></main>\n'
        "<footer>One self-contained file: it loads nothing and sends nothing.</footer>\n"
        "</body>\n</html>\n"
    )


def picture(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    origin: str = "alignment",
) -> str:
    """The plot of an alignment as SVG: one row per target token, one column per source token.

    Args:
        weights: ``[T, S]`` from 0 to 1.
        origin: the file of the weights, for error messages.
    """
    if len(weights) != len(target) or any(len(row) != len(source) for row in weights):
        raise DataError(
            f"the weights are not a {len(target)} by {len(source)} matrix", where=origin, fix="Train again"
        )

    def cell(t: int, s: int) -> tuple[str, str, str]:
        share = min(max(float(weights[t][s] or 0.0), 0.0), 1.0)
        return COLOR, f"{share:.3f}", f"{source[s]} → {target[t]}: {share:.1%}"

    label = f"Alignment of {len(target)} target tokens with {len(source)} source tokens"
    return heatmap_svg(target, source, cell, label)
