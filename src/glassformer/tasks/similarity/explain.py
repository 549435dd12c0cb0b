"""Why two texts are alike: what each pair of tokens adds to the cosine. The table sums up to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.explain.pair_map import page, picture
from glassformer.finite import finite, json_text
from glassformer.models.sentences import Dense, Sentences
from glassformer.outputs import write_text_whole


@dataclass(frozen=True)
class SimilarityExplanation:
    """``table[i, j]`` is what token i of one text and token j of the other add to ``score``."""

    a: str
    b: str
    tokens_a: list[str]
    tokens_b: list[str]
    table: np.ndarray  # [T_a, T_b] fp64
    score: float  # the cosine
    notes: tuple[str, ...] = ()  # what a reader must know: a text of which a part alone was read

    @property
    def rows(self) -> list[str]:
        """What to call the rows of the table."""
        return self.tokens_a

    @property
    def columns(self) -> list[str]:
        """What to call its columns."""
        return self.tokens_b

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
            "notes": list(self.notes),
        }

    def html(self) -> str:
        """A page that opens anywhere: the table as a map, and the strongest pairs."""
        return page([self])

    def _repr_html_(self) -> str:
        return f"<div>{picture(self.tokens_a, self.tokens_b, self.table.tolist())}</div>"

    def save(self, path: str | Path) -> Path:
        """Write the page (``.html``) or the figures (``.json``).

        Raises:
            ConfigError: another ending.
        """
        return save_similarities([self], path)


def save_similarities(found: Sequence[SimilarityExplanation], path: str | Path) -> Path:
    """As ``SimilarityExplanation.save``, for several: one page, or a JSON array."""
    path = Path(path)
    if path.suffix.lower() == ".html":
        text = page(
            found, "" if len(found) == 1 else f"{len(found)} pairs, and what their cosines are made of"
        )
    elif path.suffix.lower() == ".json":
        text = json_text([one.as_dict() for one in found], indent=2) + "\n"
    else:
        raise ConfigError("not .html or .json", where=str(path), fix="End the name with one of them")
    write_text_whole(path, text)
    return path


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
    return finite(table.numpy(), "vectors"), float(score)


def _parts(how: Sentences, states: Tensor) -> Tensor:
    """``[T, E]``: rows that sum up to the vector before it is normalized."""
    if how.prompt(None, None) and not how.pool.include_prompt:
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
        else:  # mean, or the sum over the root of the length
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
    return parts[:, : how.truncate_dim]
