"""Where a text classifier looks: attention maps, and attention rollout (Abnar and Zuidema, 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from glassformer.config import nearest
from glassformer.data.text import clean_text
from glassformer.errors import InputError
from glassformer.explain.result import Explanation
from glassformer.nn.pooling import AttentionPooling, FirstPooling, Pooler
from glassformer.nn.trace import Trace
from glassformer.packing import Packing

METHODS = ("attention", "rollout")


def explain_text(clf, text: str, *, method: str = "attention", target: Any = None) -> Explanation:
    """Scores for the tokens of one text, from the fp32 model.

    ``attention``: the last layer's weights in the rows that the head reads, mean over heads. ``rollout``: the
    product over layers of ``(A + I) / 2``, A the mean over heads, in the same rows. Both say where the model
    looked, not why it decided: they have no target.

    Raises:
        InputError: an unknown method, or a target for a method that has none.
    """
    if method not in METHODS:
        raise InputError(f"no method {method!r}", where="explain", fix=nearest(method, METHODS))
    if target is not None:
        raise InputError(f"{method} has no target", where="explain", fix="Leave target out")
    if not getattr(clf.model_, "has_attention", True):
        raise InputError(
            f"{clf.model!r} has no attention to look at", where="explain", fix="Take a Transformer"
        )
    tokens, offsets, ids, shown = tokens_of(clf, text)
    model = clf.model_.eval()
    device = next(model.parameters()).device
    with torch.inference_mode():
        packing = Packing((len(ids),), device)
        out = model(torch.tensor(ids, device=device), packing=packing, trace=Trace(attentions=True))
        weights = rows_read(model.pooling, out, len(ids))  # [T], sums to 1
    maps = np.stack([layer[0].float().cpu().numpy() for layer in out.trace.attentions])  # [L, H, T, T]
    probabilities = torch.softmax(out.logits[0].double() / clf.temperature_, 0).cpu().numpy()
    best = clf.decide(probabilities[None])[0]
    flow = maps[-1].mean(0) if method == "attention" else rollout(maps)
    return Explanation(
        shown, tokens, offsets, weights @ flow, best,
        float(probabilities[clf.classes_.tolist().index(best)]), method, maps=maps,
    )  # fmt: skip


def rollout(maps: np.ndarray) -> np.ndarray:
    """``[L, H, T, T]`` -> ``[T, T]``: how much of each input token reaches each output row."""
    flow = np.eye(maps.shape[-1])
    for layer in maps.mean(1):
        flow = (0.5 * layer + 0.5 * np.eye(len(layer))) @ flow
    return flow


def rows_read(pooling, out, length: int) -> np.ndarray:
    """How much of each row the pooling takes, ``[T]``: [CLS] alone, or all rows equally."""
    weights = np.full(length, 1.0 / length)
    if isinstance(pooling, Pooler | FirstPooling):
        weights[:] = 0.0
        weights[0] = 1.0
    elif isinstance(pooling, AttentionPooling) and out.states is not None:
        weights = torch.softmax(pooling.score(out.states.float()).squeeze(1), 0).cpu().numpy()
    return weights


def tokens_of(clf, text: str) -> tuple[list[str], list[tuple[int, int]], list[int], str]:
    """Tokens, their places in the cleaned text, ids, and that text; cut exactly as in training."""
    shown = clean_text(text, clf.clean)
    encoding = clf.tokenizer_.encode(shown, add_special_tokens=clf.add_special_tokens)
    ids = clf._encode([text])[0].tolist()
    kept = list(range(len(encoding.ids)))
    if len(ids) < len(kept):  # the end special tokens stay, the middle is cut
        tail = sum(1 for m in reversed(encoding.special_tokens_mask) if m) - encoding.special_tokens_mask[0]
        tail = max(0, min(tail, 1))
        kept = kept[: len(ids) - tail] + kept[len(kept) - tail :]
    if not kept:  # a text without a known word counts as one unknown token
        return [clf.tokenizer_.id_to_token(ids[0])], [(0, len(shown))], ids, shown
    return [encoding.tokens[i] for i in kept], [encoding.offsets[i] for i in kept], ids, shown
