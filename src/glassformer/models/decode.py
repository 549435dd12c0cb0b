"""Greedy and beam search for models with ``start`` and ``step`` (``models/seq2seq.py``).

All sources (texts to translate) of a batch are decoded together. Each step extends every hypothesis by one
token. The model's state (a key-value cache or a recurrent state) represents the earlier tokens. Its method
``select`` keeps some hypotheses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigError, NotFiniteError
from glassformer.finite import finite
from glassformer.models.backbone import Memory

NEG_INF = float("-inf")
MAX_BEAM = 256  # maximum beam width; each hypothesis needs a row of vocabulary size in memory
MAX_PENALTY = 10  # maximum length penalty; a length to a higher power can overflow
MAX_TOKENS = 2**31  # maximum number of tokens of a translation


def check_max_tokens(tokens: Any) -> int:
    """Return ``tokens`` as an int; raise ConfigError unless it is an integer from 1 to ``MAX_TOKENS``."""
    if isinstance(tokens, bool) or not isinstance(tokens, Integral) or not 1 <= int(tokens) <= MAX_TOKENS:
        fix = f"Give a whole number from 1 to {MAX_TOKENS:,}"
        raise ConfigError(f"max_tokens {tokens!r} is not a number of tokens", where="max_tokens", fix=fix)
    return int(tokens)


@dataclass(frozen=True)
class Limits:
    """Start token, end token and limits of a generation."""

    begin: int  # id of the start token
    end: int  # id of the end token
    max_tokens: int | Tensor = 128  # including the end token; a tensor [B] has one limit per source
    banned: tuple[int, ...] = ()  # tokens that are never generated, such as padding

    def per_source(self, memory: Memory) -> Tensor:
        """``max_tokens`` of each source, ``[B]``."""
        count, device = memory.packing.count, memory.rows.device
        limits = torch.as_tensor(self.max_tokens, device=device).expand(count)
        if int(limits.min()) < 1:
            raise ConfigError(f"max_tokens {int(limits.min())} is below 1", where="max_tokens")
        return limits


@dataclass
class Hypothesis:
    """A translation: its tokens without the end token, and the sum of log-probabilities."""

    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0  # including the end token
    ended: bool = False  # whether the end token was generated

    def score(self, length_penalty: float) -> float:
        """Log-probability divided by ``length ** length_penalty``: 0 favors short texts, 1 gives the mean."""
        return self.log_probability / max(len(self.tokens) + self.ended, 1) ** length_penalty


def _allowed_log_probs(logits: Tensor, limits: Limits) -> Tensor:
    if limits.banned:
        logits[:, list(limits.banned)] = NEG_INF
    return logits.log_softmax(-1)


@torch.inference_mode()
def greedy(model: Any, memory: Memory, limits: Limits) -> list[Hypothesis]:
    """Greedy search: the most probable token at each position, for every source."""
    max_tokens = limits.per_source(memory)
    state = model.start(memory)
    hypotheses = [Hypothesis() for _ in range(memory.packing.count)]
    alive = torch.arange(len(hypotheses), device=memory.rows.device)  # [R] unfinished sources
    tokens = torch.full_like(alive, limits.begin)
    position = 0
    while len(alive):
        best, tokens = _allowed_log_probs(model.step(tokens, state), limits).max(-1)  # [R] each
        position += 1
        ended = tokens == limits.end
        for source, token, value, end in zip(
            alive.tolist(), tokens.tolist(), best.tolist(), ended.tolist(), strict=True
        ):
            hypotheses[source].log_probability += value
            hypotheses[source].ended = end
            if not end:
                hypotheses[source].tokens.append(token)
        keep = (~ended & (position < max_tokens[alive])).nonzero().squeeze(1)
        if len(keep) < len(alive):
            state.select(keep, keep)
            alive, tokens = alive[keep], tokens[keep]
    finite(torch.tensor([h.log_probability for h in hypotheses]), "probabilities")
    return hypotheses


@torch.inference_mode()
def beam_search(
    model: Any, memory: Memory, limits: Limits, beam: int = 5, length_penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """Beam search: the hypotheses of every source, the best first; ``beam`` = 1 is greedy search.

    A source is finished when ``beam`` hypotheses have ended and no unfinished hypothesis has a better score
    than these. An unfinished hypothesis is scored at its current length. For a positive penalty, this score
    is not an upper bound for all continuations.

    Args:
        beam: number of hypotheses kept at each position.
        length_penalty: see ``Hypothesis.score``.

    Raises:
        ConfigError: ``beam`` is not from 1 to ``MAX_BEAM``, or ``length_penalty`` exceeds ``MAX_PENALTY``.
        NotFiniteError: a probability is NaN or infinite.
    """
    if not isinstance(beam, int) or not 1 <= beam <= MAX_BEAM:
        fix = f"Use a whole number from 1 (greedy) to {MAX_BEAM}"
        raise ConfigError(f"beam = {beam!r} is out of range", where="beam", fix=fix)
    if not -MAX_PENALTY <= length_penalty <= MAX_PENALTY:
        fix = f"Use a value from -{MAX_PENALTY} to {MAX_PENALTY}; the default is 1"
        raise ConfigError(
            f"length_penalty = {length_penalty} is out of range", where="length_penalty", fix=fix
        )
    if beam == 1:
        return [[best] for best in greedy(model, memory, limits)]
    max_tokens, device = limits.per_source(memory), memory.rows.device
    count = memory.packing.count
    state = model.start(memory)
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count, device=device)  # [A] unfinished sources
    width = 1  # hypotheses per source: one at the first position, then `beam`
    scores = torch.zeros(count, 1, device=device)  # [A, width]
    history = torch.empty(count, 1, 0, dtype=torch.int64, device=device)  # [A, width, position]
    tokens = torch.full((count,), limits.begin, device=device)
    position = 0
    while len(alive):
        log_probs = _allowed_log_probs(model.step(tokens, state), limits)  # [A * width, V]
        position += 1
        totals = scores[:, :, None] + log_probs.view(len(alive), width, -1)  # [A, width, V]
        vocab = totals.shape[2]
        best, flat = totals.flatten(1).topk(min(2 * beam, width * vocab), 1)  # [A, 2 * beam], best first
        parents, words = flat // vocab, flat % vocab
        at_limit = position >= max_tokens[alive]  # [A] max_tokens is reached
        _collect(ended, alive, history, best, parents, words, limits.end, at_limit, beam)
        open_scores = best.masked_fill(words == limits.end, NEG_INF)
        top = open_scores.topk(min(beam, open_scores.shape[1]), 1).indices  # [A, beam], best first
        scores, parents, words = (
            open_scores.gather(1, top),
            parents.gather(1, top),
            words.gather(1, top),
        )
        history = torch.cat(
            [history.gather(1, parents[:, :, None].expand(-1, -1, position - 1)), words[:, :, None]], 2
        )
        unfinished = ~at_limit & ~_finished(ended, alive, scores, position, beam, length_penalty)
        keep = unfinished.nonzero().squeeze(1)
        rows = (torch.arange(len(alive), device=device)[:, None] * width + parents)[keep].flatten()
        if len(keep):
            state.select(rows, keep if len(keep) < len(alive) else None)
        alive, scores, history, tokens = alive[keep], scores[keep], history[keep], words[keep].flatten()
        width = top.shape[1]
    if not all(ended):  # with a NaN score no hypothesis can end
        raise NotFiniteError("probabilities")
    return [sorted(hypotheses, key=lambda h: -h.score(length_penalty)) for hypotheses in ended]


def _collect(ended, alive, history, best, parents, words, end: int, at_limit: Tensor, beam: int) -> None:
    """Move those of the ``beam`` best hypotheses that end with the end token to ``ended``.

    For sources with ``at_limit``, all ``beam`` best hypotheses are moved.
    """
    width = min(beam, best.shape[1])
    has_ended = (words[:, :width] == end) | at_limit[:, None]
    has_ended &= best[:, :width] > NEG_INF
    rows, column = has_ended.nonzero().unbind(1)
    # One transfer for all sources: a GPU is synchronized only once.
    prefixes = history[rows, parents[rows, column]].tolist()
    sources, new_tokens = alive[rows].tolist(), words[rows, column].tolist()
    scores = best[rows, column].tolist()
    for source, prefix, token, score in zip(sources, prefixes, new_tokens, scores, strict=True):
        has_end = token == end
        ended[source].append(Hypothesis(prefix if has_end else [*prefix, token], score, has_end))


def _finished(ended, alive: Tensor, scores: Tensor, position: int, beam: int, penalty: float) -> Tensor:
    """Mask ``[A]`` of the sources with ``beam`` ended hypotheses that no unfinished hypothesis beats."""
    done = []
    for best_open, source in zip((scores[:, 0] / position**penalty).tolist(), alive.tolist(), strict=True):
        ranked = sorted((h.score(penalty) for h in ended[source]), reverse=True)
        done.append(best_open == NEG_INF or (len(ranked) >= beam and best_open <= ranked[beam - 1]))
    return torch.tensor(done, dtype=torch.bool, device=alive.device)
