"""Why two texts are alike: what each pair of tokens adds to the cosine. The table sums up to it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.checkpoints.files import replace_text
from glassformer.errors import ConfigError
from glassformer.models.sentences import Dense, Sentences


@dataclass(frozen=True)
class SimilarityExplanation:
    """``table[i, j]`` is what token i of one text and token j of the other add to ``score``."""

    a: str
    b: str
    tokens_a: list[str]
    tokens_b: list[str]
    table: np.ndarray  # [T_a, T_b]
    score: float  # the cosine

    def strongest(self, k: int = 5) -> list[tuple[str, str, float]]:
        """The pairs that add most."""
        best = np.argsort(-self.table, axis=None, kind="stable")[:k]
        places = zip(*np.unravel_index(best, self.table.shape), strict=True)
        return [(self.tokens_a[i], self.tokens_b[j], float(self.table[i, j])) for i, j in places]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "texts": [self.a, self.b],
            "tokens": [self.tokens_a, self.tokens_b],
            "score": self.score,
            "table": self.table.tolist(),
        }

    def html(self) -> str:
        """The table as a page: green adds, red takes away."""
        peak = max(float(np.abs(self.table).max()), 1e-12)

        def cell(value: float, pair: str) -> str:
            color = "0, 128, 64" if value >= 0 else "192, 32, 32"
            style = f"background: rgba({color}, {0.65 * abs(value) / peak:.3f})"
            return f'<td style="{style}" title="{html.escape(pair)}">{100 * value:.1f}</td>'

        head = "".join(f'<th scope="col"><span>{html.escape(t)}</span></th>' for t in self.tokens_b)
        rows = "".join(
            f'<tr><th scope="row">{html.escape(t)}</th>'
            + "".join(cell(float(v), f"{t} / {o}") for v, o in zip(line, self.tokens_b, strict=True))
            + "</tr>"
            for t, line in zip(self.tokens_a, self.table, strict=True)
        )
        a, b = html.escape(self.a), html.escape(self.b)
        return PAGE.format(a=a, b=b, score=f"{self.score:.4f}", head=head, rows=rows)

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        replace_text(Path(path), self.html())
        return Path(path)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Why these texts are alike</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
  padding: 0 1rem; color: #1b1b1b; background: #fff }}
main div {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: 14px }}
td {{ text-align: right; padding: .2rem .4rem; min-width: 2.6rem; font-variant-numeric: tabular-nums }}
th {{ font-weight: 600; text-align: right; padding: .2rem .5rem; white-space: nowrap }}
</style></head><body><main>
<h1>Cosine {score}</h1>
<p>Across: {b}<br>Down: {a}</p>
<div role="region" aria-label="Contributions of token pairs" tabindex="0"><table>
<tr><td></td>{head}</tr>
{rows}
</table></div>
<p>Each cell is what a pair of tokens adds to the cosine, times 100. All cells add up to {score} (times 100).
A token stands for its place in its text: what the model knows of it there includes the words around it.</p>
</main></body></html>
"""


def contributions(how: Sentences, first: Tensor, second: Tensor) -> tuple[np.ndarray, float]:
    """``[T_a, T_b]`` from the last states ``[T, D]`` of two texts, and their cosine.

    The vector of a text is a sum of one part for each of its tokens, and so is a product of two of them a sum
    over pairs. Dividing by the lengths of both vectors makes it the cosine.

    Raises:
        ConfigError: a dense layer with an activation, through which a vector is no such sum.
    """
    parts = [_parts(how, states.double()) for states in (first, second)]
    norms = [part.sum(0).norm().clamp(min=1e-12) for part in parts]
    table = (parts[0] @ parts[1].T) / (norms[0] * norms[1])
    score = F.cosine_similarity(parts[0].sum(0), parts[1].sum(0), dim=0)
    return table.numpy(), float(score)


def _parts(how: Sentences, states: Tensor) -> Tensor:
    """``[T, E]``: rows that sum up to the vector before it is normalized."""
    skip = 0 if how.pool.include_prompt or not how.prompt(None, None) else -1
    if skip:
        what = "a prompt that does not count leaves tokens without a part"
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
        else:  # mean, mean_sqrt_len_tokens: the length is divided out by the cosine of one mode alone
            weights[:] = 1 / count if mode == "mean" else count**-0.5
        pools.append(states * weights)
    parts = torch.cat(pools, 1)
    for step in how.after:
        if isinstance(step, Dense):
            if step.activation != "Identity":
                what = f"a dense layer with {step.activation} makes no sum of tokens"
                raise ConfigError(what, where="explain_similarity", fix="Use a model without it")
            bias = 0 if step.bias is None else step.bias.to(parts) / count
            straight = F.linear(parts, step.weight.to(parts)) + bias
            beside = step.residual_weight
            if step.residual:
                straight = straight + (parts if beside is None else F.linear(parts, beside.to(parts)))
            parts = straight
        else:
            parts = parts / parts.sum(0).norm().clamp(min=1e-12)
    return parts
