"""Generation: greedy and beam search over any model with ``start`` and ``step`` (``models/seq2seq.py``).

Many sources go at once. A step asks the model for one more place of every hypothesis; what came before is in
the model's own state (a key-value cache, a recurrent state), which ``select`` reorders and thins out.
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

NEVER = float("-inf")
WIDEST = 256  # hypotheses: each has a row of the vocabulary in memory at every place
STRONGEST = 10  # length penalty: a length to a higher power leaves the range of floats
MOST = 2**31  # tokens of a translation: more than any memory holds


def room(tokens: Any) -> int:
    """The same number of tokens; ConfigError where it is no whole number from 1 to ``MOST``."""
    if isinstance(tokens, bool) or not isinstance(tokens, Integral) or not 1 <= int(tokens) <= MOST:
        fix = f"Give a whole number from 1 to {MOST:,}"
        raise ConfigError(f"max_tokens {tokens!r} is not a number of tokens", where="max_tokens", fix=fix)
    return int(tokens)


@dataclass(frozen=True)
class Limits:
    """When a hypothesis starts and ends.

    Raises:
        ConfigError: no room for a token.
    """

    begin: int  # the token before the first one
    end: int  # the token that ends a translation
    max_tokens: int | Tensor = 128  # the end included; a tensor [B] gives each source its own
    banned: tuple[int, ...] = ()  # never generated: padding, mask ...

    def per_source(self, memory: Memory) -> Tensor:
        """``[B]`` tokens at most."""
        count, device = memory.packing.count, memory.rows.device
        most = torch.as_tensor(self.max_tokens, device=device).expand(count)
        if int(most.min()) < 1:
            raise ConfigError(f"max_tokens {int(most.min())} leaves no room for a token", where="max_tokens")
        return most


@dataclass
class Hypothesis:
    """A translation: its tokens without the end, the sum of their log-probabilities, and whether it ended."""

    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0  # of the tokens and the end
    ended: bool = False

    def score(self, length_penalty: float) -> float:
        """Log-probability over ``length ** length_penalty`` with the end: 0 favors short, 1 is the mean."""
        return self.log_probability / max(len(self.tokens) + self.ended, 1) ** length_penalty


def _ban(logits: Tensor, limits: Limits) -> Tensor:
    if limits.banned:
        logits[:, list(limits.banned)] = NEVER
    return logits.log_softmax(-1)


@torch.inference_mode()
def greedy(model: Any, memory: Memory, limits: Limits) -> list[Hypothesis]:
    """The most probable token at each place, for every source."""
    most = limits.per_source(memory)
    state = model.start(memory)
    found = [Hypothesis() for _ in range(memory.packing.count)]
    alive = torch.arange(len(found), device=memory.rows.device)
    tokens = torch.full_like(alive, limits.begin)
    place = 0
    while len(alive):
        best, tokens = _ban(model.step(tokens, state), limits).max(-1)  # [R] each
        place += 1
        ended = tokens == limits.end
        for source, token, value, end in zip(
            alive.tolist(), tokens.tolist(), best.tolist(), ended.tolist(), strict=True
        ):
            found[source].log_probability += value
            found[source].ended = end
            if not end:
                found[source].tokens.append(token)
        keep = (~ended & (place < most[alive])).nonzero().squeeze(1)
        if len(keep) < len(alive):
            state.select(keep, keep)
            alive, tokens = alive[keep], tokens[keep]
    finite(torch.tensor([h.log_probability for h in found]), "probabilities")
    return found


@torch.inference_mode()
def beam_search(
    model: Any, memory: Memory, limits: Limits, beam: int = 5, length_penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """The best hypotheses of every source, the best first; ``beam`` = 1 is greedy search.

    A source is done when ``beam`` hypotheses have ended and no living one has a better score than the worst
    of them (its score at its present length: above penalty 0 a bound for likely, not for all continuations).

    Args:
        beam: hypotheses kept at each place.
        length_penalty: see ``Hypothesis.score``.

    Raises:
        ConfigError: a beam that is no number from 1 to ``WIDEST``, or a penalty beyond ``STRONGEST``.
        NotFiniteError: a probability is NaN or infinite.
    """
    if not isinstance(beam, int) or not 1 <= beam <= WIDEST:
        fix = f"Use a whole number from 1 (greedy) to {WIDEST}"
        raise ConfigError(f"no search keeps {beam!r} hypotheses", where="beam", fix=fix)
    if not -STRONGEST <= length_penalty <= STRONGEST:
        fix = f"Use a value from -{STRONGEST} to {STRONGEST}; 1 is the usual"
        raise ConfigError(
            f"length_penalty = {length_penalty} is out of range", where="length_penalty", fix=fix
        )
    if beam == 1:
        return [[best] for best in greedy(model, memory, limits)]
    most, device = limits.per_source(memory), memory.rows.device
    count = memory.packing.count
    state = model.start(memory)
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count, device=device)  # [A] sources that go on
    width = 1  # rows of each source: the first place has one hypothesis, all later ones `beam`
    scores = torch.zeros(count, 1, device=device)  # [A, width]
    history = torch.empty(count, 1, 0, dtype=torch.int64, device=device)  # [A, width, place]
    tokens = torch.full((count,), limits.begin, device=device)
    place = 0
    while len(alive):
        steps = _ban(model.step(tokens, state), limits)  # [A * width, V]
        place += 1
        totals = scores[:, :, None] + steps.view(len(alive), width, -1)  # [A, width, V]
        vocab = totals.shape[2]
        best, flat = totals.flatten(1).topk(min(2 * beam, width * vocab), 1)  # [A, 2 * beam], best first
        parents, words = flat // vocab, flat % vocab
        last = place >= most[alive]  # [A] no further place
        _collect(ended, alive, history, best, parents, words, limits.end, last, beam)
        open_scores = best.masked_fill(words == limits.end, NEVER)
        chosen = open_scores.topk(min(beam, open_scores.shape[1]), 1).indices  # [A, beam], best first
        scores, parents, words = (
            open_scores.gather(1, chosen),
            parents.gather(1, chosen),
            words.gather(1, chosen),
        )
        history = torch.cat(
            [history.gather(1, parents[:, :, None].expand(-1, -1, place - 1)), words[:, :, None]], 2
        )
        going = ~last & ~_settled(ended, alive, scores, place, beam, length_penalty)
        keep = going.nonzero().squeeze(1)
        rows = (torch.arange(len(alive), device=device)[:, None] * width + parents)[keep].flatten()
        if len(keep):
            state.select(rows, keep if len(keep) < len(alive) else None)
        alive, scores, history, tokens = alive[keep], scores[keep], history[keep], words[keep].flatten()
        width = chosen.shape[1]
    if not all(ended):  # nothing is above NEVER where a score is no number
        raise NotFiniteError("probabilities")
    return [sorted(found, key=lambda h: -h.score(length_penalty)) for found in ended]


def _collect(ended, alive, history, best, parents, words, end: int, last: Tensor, beam: int) -> None:
    """Keep what ends here: of each source's ``beam`` best those with the end token, at the last place all."""
    front = min(beam, best.shape[1])
    stops = (words[:, :front] == end) | last[:, None]
    stops &= best[:, :front] > NEVER
    at, column = stops.nonzero().unbind(1)
    # All that ends here in one piece: a GPU would be waited for once a hypothesis else.
    before = history[at, parents[at, column]].tolist()
    sources, newest = alive[at].tolist(), words[at, column].tolist()
    for source, tokens, word, value in zip(sources, before, newest, best[at, column].tolist(), strict=True):
        closed = word == end
        ended[source].append(Hypothesis(tokens if closed else [*tokens, word], value, closed))


def _settled(ended, alive: Tensor, scores: Tensor, place: int, beam: int, penalty: float) -> Tensor:
    """``[A]``: which sources have ``beam`` ended hypotheses that no living one beats."""
    done = []
    for leader, source in zip((scores[:, 0] / place**penalty).tolist(), alive.tolist(), strict=True):
        found = sorted((h.score(penalty) for h in ended[source]), reverse=True)
        done.append(leader == NEVER or (len(found) >= beam and leader <= found[beam - 1]))
    return torch.tensor(done, dtype=torch.bool, device=alive.device)
