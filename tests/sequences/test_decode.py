"""Greedy and beam search beside a plain search in lists, over models that are tables of probabilities."""

import math
import random
from types import SimpleNamespace

import pytest
import torch

from glassformer.errors import ConfigError, GlassformerError
from glassformer.models.backbone import Memory
from glassformer.models.decode import MAX_BEAM, MAX_PENALTY, Hypothesis, Limits, beam_search, greedy
from glassformer.packing import Packing

BEGIN, END, VOCAB = 1, 2, 7


class Table:
    """A model whose next logits are drawn from source and prefix; its state is those prefixes."""

    def __init__(self, seed: int, end: float = 0.0, broken: float | None = None):
        self.seed, self.end, self.broken = seed, end, broken

    def logits(self, source: int, prefix: tuple[int, ...]) -> list[float]:
        chance = random.Random(f"{self.seed} {source} {prefix}")
        found = [chance.gauss(0, 1.5) for _ in range(VOCAB)]
        found[END] += self.end
        return found

    def start(self, memory: Memory) -> SimpleNamespace:
        state = SimpleNamespace(rows=[(source, ()) for source in range(memory.packing.count)])

        def select(rows: torch.Tensor, sources: torch.Tensor | None) -> None:
            before = list(dict.fromkeys(source for source, _ in state.rows))
            state.rows = [state.rows[row] for row in rows.tolist()]
            after = list(dict.fromkeys(source for source, _ in state.rows))
            wanted = before if sources is None else [before[i] for i in sources.tolist()]
            assert after == wanted  # the sources named are those that rows are left of

        state.select = select
        return state

    def step(self, tokens: torch.Tensor, state: SimpleNamespace) -> torch.Tensor:
        state.rows = [(s, (*said, int(t))) for (s, said), t in zip(state.rows, tokens, strict=True)]
        found = torch.tensor([self.logits(*row) for row in state.rows])
        return found if self.broken is None else found * self.broken

    def log_probabilities(self, source: int, prefix: tuple[int, ...], banned: tuple[int, ...]) -> list[float]:
        free = [
            value if i not in banned else -math.inf for i, value in enumerate(self.logits(source, prefix))
        ]
        whole = math.log(sum(map(math.exp, free)))
        return [value - whole for value in free]


def memory(count: int) -> Memory:
    packing = Packing((1,) * count)
    return Memory(torch.zeros(count, 3), packing)


def plain_beam(model: Table, source: int, most: int, banned, beam: int, penalty: float) -> list[Hypothesis]:
    """The rules of ``beam_search`` for one source, without a tensor."""
    living, ended = [((BEGIN,), 0.0)], []
    for place in range(1, most + 1):
        every = [
            ((*said, token), total + value)
            for said, total in living
            for token, value in enumerate(model.log_probabilities(source, said, banned))
        ]
        every = sorted(every, key=lambda one: -one[1])[: 2 * beam]
        for said, total in every[:beam]:
            if total > -math.inf and (said[-1] == END or place == most):
                closed = said[-1] == END
                ended.append(Hypothesis(list(said[1 : -1 if closed else None]), total, closed))
        living = [one for one in every if one[0][-1] != END][:beam]
        best = sorted((h.score(penalty) for h in ended), reverse=True)
        if len(best) >= beam and living[0][1] / place**penalty <= best[beam - 1]:
            break
    return sorted(ended, key=lambda h: -h.score(penalty))


def same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [(h.tokens, h.ended) for h in found] == [(h.tokens, h.ended) for h in wanted]
    assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in wanted], abs=1e-4)


@pytest.mark.parametrize("penalty", [-0.7, 0.0, 1.0, 2.3])
@pytest.mark.parametrize("beam", [2, 3, 5, 11])
@pytest.mark.parametrize("end", [-1.0, 0.0, 2.0])
def test_beam_search_equals_the_plain_one(beam, penalty, end):
    most = [7, 1, 2, 5, 7]
    for seed in range(5):
        model = Table(seed, end)
        limits = Limits(BEGIN, END, torch.tensor(most), banned=(0, BEGIN) if seed % 2 else ())
        found = beam_search(model, memory(5), limits, beam, penalty)
        for source in range(5):
            same(found[source], plain_beam(model, source, most[source], limits.banned, beam, penalty))


@pytest.mark.parametrize("end", [-1.0, 0.0, 2.0])
def test_greedy_equals_the_plain_one_and_is_the_beam_of_one(end):
    most = [7, 1, 2, 5, 7]
    for seed in range(5):
        model = Table(seed, end)
        limits = Limits(BEGIN, END, torch.tensor(most), banned=(0, BEGIN))
        found = greedy(model, memory(5), limits)
        for source in range(5):
            said, total = [BEGIN], 0.0
            while len(said) <= most[source] and said[-1] != END:
                values = model.log_probabilities(source, tuple(said), limits.banned)
                said.append(max(range(VOCAB), key=values.__getitem__))
                total += values[said[-1]]
            closed = said[-1] == END
            wanted = Hypothesis(said[1 : -1 if closed else None], total, closed)
            same([found[source]], [wanted])
        assert beam_search(model, memory(5), limits, 1) == [[one] for one in found]


def test_the_end_counts_for_the_length_where_it_came():
    tokens = [3, 4, 5]
    assert Hypothesis(tokens, -6.0, ended=True).score(1.0) == pytest.approx(-6.0 / 4)
    assert Hypothesis(tokens, -6.0, ended=False).score(1.0) == pytest.approx(-6.0 / 3)
    assert Hypothesis(tokens, -6.0, ended=True).score(2.0) == pytest.approx(-6.0 / 16)
    assert Hypothesis(tokens, -6.0, ended=True).score(0.0) == -6.0
    assert Hypothesis([], -6.0, ended=True).score(3.0) == -6.0
    assert Hypothesis([], -6.0).score(3.0) == -6.0
    assert Hypothesis() == Hypothesis([], 0.0, False)
    # by default five are kept, by their mean
    model, limits = Table(3), Limits(BEGIN, END, 7)
    assert beam_search(model, memory(2), limits) == beam_search(model, memory(2), limits, 5, 1.0)
    assert beam_search(model, memory(2), limits) != beam_search(model, memory(2), limits, 6, 1.0)
    never_ends = beam_search(Table(3, end=-1e9), memory(1), Limits(BEGIN, END), 2)
    assert [len(h.tokens) for h in never_ends[0]] == [128, 128]


@pytest.mark.parametrize("penalty", [MAX_PENALTY, -MAX_PENALTY])
@pytest.mark.parametrize("beam", [1, MAX_BEAM])
def test_the_widest_and_the_strongest_are_allowed(beam, penalty):
    found = beam_search(Table(5), memory(1), Limits(BEGIN, END, 2), beam, penalty)
    assert len(found[0]) >= 1


@pytest.mark.parametrize("penalty", [10.1, -10.1, math.nan])
def test_other_penalties_are_refused(penalty):
    with pytest.raises(ConfigError, match=r"length_penalty = .* is out of range"):
        beam_search(Table(5), memory(1), Limits(BEGIN, END, 2), 3, penalty)


@pytest.mark.parametrize("beam", [0, -1, 257, 2.0, "3", None])
def test_other_beams_are_refused(beam):
    with pytest.raises(ConfigError, match=r"beam = .* is out of range"):
        beam_search(Table(5), memory(1), Limits(BEGIN, END, 2), beam)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_no_room_and_what_is_no_number_are_refused(search):
    for most in (0, -3, torch.tensor([4, 0])):
        with pytest.raises(ConfigError, match=r"max_tokens -?\d is below 1"):
            search(Table(5), memory(2), Limits(BEGIN, END, most))
    with pytest.raises(GlassformerError, match="probabilities are not finite"):
        search(Table(5, broken=math.nan), memory(2), Limits(BEGIN, END, 3))
