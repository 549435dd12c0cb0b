"""Both kinds of translator: packed = padded = one by one, gradients, bf16, and generation = teacher forcing."""

import copy

import pytest
import torch
from tests.shaken import shaken

from glassformer.errors import ConfigError, GlassformerError, ShapeError
from glassformer.models.decode import Hypothesis, Limits, beam_search, greedy
from glassformer.models.seq2seq import TransformerSeq2Seq, transformer
from glassformer.models.seq2seq_rnn import RecurrentConfig, RecurrentSeq2Seq
from glassformer.nn import Trace
from glassformer.packing import Packing

VS, VT, BEGIN, END = 31, 29, 2, 3
S, T = Packing((5, 1, 11, 7)), Packing((3, 7, 2, 7))
LIMITS = Limits(BEGIN, END, max_tokens=9, banned=(0, 4))


def small_transformer(**options):
    return TransformerSeq2Seq(transformer(VS, VT, 14, 2, 2, 23, 0.0, **options))


MODELS = {
    "transformer": lambda: small_transformer(),
    "post-norm, untied": lambda: small_transformer(norm="post", tied=False),
    **{
        name: lambda name=name: RecurrentSeq2Seq(RecurrentConfig(VS, VT, 14, attention=name, dropout=0.0))
        for name in ("none", "dot", "multiplicative", "additive")
    },
    "lstm, 2 layers": lambda: RecurrentSeq2Seq(
        RecurrentConfig(VS, VT, 14, 2, "lstm", "dot", 0.0, tied=False)
    ),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(11)
    return shaken(MODELS[request.param](), 0.2)


def ids(packing, size, seed):
    return torch.randint(5, size, (packing.total,), generator=torch.Generator().manual_seed(seed))


X, Y = ids(S, VS, 1), ids(T, VT, 2)


def packed(model, x=X, y=Y, **options):
    return model(x, y, source_packing=S, target_packing=T, **options)


def test_packed_equals_padded_on_either_side_and_one_by_one(model):
    whole = packed(model)
    for flip in (False, True):  # padding on the right, then on the left

        def pad(packing, rows, flip=flip):
            mask = packing.mask().flip(1) if flip else packing.mask()
            out = torch.full(mask.shape, 6)
            out[mask] = rows
            return out, mask

        (x, x_mask), (y, y_mask) = pad(S, X), pad(T, Y)
        out = model(x, y, x_mask, y_mask)
        torch.testing.assert_close(out.logits[y_mask], whole.logits, atol=1e-5, rtol=1e-5)
    for i, (x, y) in enumerate(zip(S.split(X), T.split(Y), strict=True)):
        alone = model(x[None], y[None]).logits[0]
        torch.testing.assert_close(T.split(whole.logits)[i], alone, atol=1e-5, rtol=1e-5)


def test_every_parameter_gets_a_gradient(model):
    model.zero_grad()
    out = packed(model.train())
    (out.logits * torch.randn(out.logits.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    blind = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert not [n for n in blind if "qkv.bias" not in n]


def test_bf16_is_near_fp32(model):
    exact = packed(model).logits
    rough = packed(copy.deepcopy(model).set_compute_dtype(torch.bfloat16)).logits
    assert rough.dtype == torch.bfloat16
    spread = float(exact.detach().std())
    assert float((rough.float() - exact).detach().abs().mean()) < 0.05 * spread


def test_generation_steps_equal_teacher_forcing(model):
    memory = model.encode(X, S)
    state = model.start(memory)
    y = torch.randint(5, VT, (S.count, 6), generator=torch.Generator().manual_seed(5))
    steps = torch.stack([model.step(y[:, t], state) for t in range(6)], 1)  # [B, 6, V]
    forced = model(X, y.flatten(), source_packing=S, target_packing=Packing.uniform(S.count, 6)).logits
    torch.testing.assert_close(steps.flatten(0, 1), forced, atol=1e-4, rtol=1e-4)


def log_probability(model, source: torch.Tensor, hypothesis: Hypothesis) -> float:
    """Of a hypothesis, from one pass without a cache."""
    said = [*hypothesis.tokens, *([END] if hypothesis.ended else [])]
    logits = model(source[None], torch.tensor([[BEGIN, *said[:-1]]])).logits[0].float()
    logits[:, list(LIMITS.banned)] = float("-inf")
    return float(logits.log_softmax(-1)[torch.arange(len(said)), torch.tensor(said)].sum())


def test_greedy_equals_search_without_a_cache(model):
    with torch.inference_mode():
        found = greedy(model, model.encode(X, S), LIMITS)
        for source, hypothesis in zip(S.split(X), found, strict=True):
            said = [BEGIN]
            while len(said) < 10 and said[-1] != END:
                logits = model(source[None], torch.tensor([said])).logits[0, -1]
                logits[list(LIMITS.banned)] = float("-inf")
                said.append(int(logits.argmax()))
            assert hypothesis.ended == (said[-1] == END)
            assert hypothesis.tokens == [t for t in said[1:] if t != END]
            assert abs(log_probability(model, source, hypothesis) - hypothesis.log_probability) < 1e-3


def test_beam_scores_are_those_of_the_model_and_no_worse_than_greedy(model):
    with torch.inference_mode():
        memory = model.encode(X, S)
        plain = greedy(model, memory, LIMITS)
        found = beam_search(model, memory, LIMITS, beam=4, length_penalty=0.0)
        for i, source in enumerate(S.split(X)):
            scores = [h.log_probability for h in found[i]]
            assert scores == sorted(scores, reverse=True)
            assert len({(*h.tokens, h.ended) for h in found[i]}) == len(found[i])
            for hypothesis in found[i]:
                assert len(hypothesis.tokens) + hypothesis.ended <= 9
                assert abs(log_probability(model, source, hypothesis) - hypothesis.log_probability) < 1e-3
            assert scores[0] >= plain[i].log_probability - 1e-4
        one = beam_search(model, memory, LIMITS, beam=1)
        assert [h[0].tokens for h in one] == [h.tokens for h in plain]


def test_a_wide_beam_finds_the_best_of_all():
    torch.manual_seed(13)
    model = TransformerSeq2Seq(transformer(7, 7, 6, 1, 1, 5, 0.0)).eval()
    limits = Limits(BEGIN, END, max_tokens=3, banned=(0, 1, 2))
    with torch.inference_mode():
        memory = model.encode(torch.tensor([5, 6, 5]), Packing((3,)))
        best = beam_search(model, memory, limits, beam=64, length_penalty=0.0)[0][0]
        free = [4, 5, 6]
        every = [[a, b, c] for a in free for b in free for c in free]
        every += [[END], *([a, END] for a in free), *([a, b, END] for a in free for b in free)]
        scores = []
        for said in every:
            logits = model(torch.tensor([[5, 6, 5]]), torch.tensor([[BEGIN, *said[:-1]]])).logits[0]
            logits[:, [0, 1, 2]] = float("-inf")
            scores.append(float(logits.log_softmax(-1)[range(len(said)), said].sum()))
        top = every[max(range(len(every)), key=scores.__getitem__)]
    assert [*best.tokens, *([END] if best.ended else [])] == top
    assert abs(best.log_probability - max(scores)) < 1e-4


def test_each_source_has_its_own_limit(model):
    most = torch.tensor([1, 2, 3, 4])
    limits = Limits(BEGIN, VT - 1, most, banned=(VT - 1,))  # the end never comes
    with torch.inference_mode():
        memory = model.encode(X, S)
        assert [len(h.tokens) for h in greedy(model, memory, limits)] == most.tolist()
        assert [len(h[0].tokens) for h in beam_search(model, memory, limits, 3)] == most.tolist()
    assert not any(h.ended for h in greedy(model, memory, limits))


def test_batching_changes_nothing(model):
    with torch.inference_mode():
        whole = beam_search(model, model.encode(X, S), LIMITS, 3)
        for i, source in enumerate(S.split(X)):
            alone = beam_search(model, model.encode(source, Packing((len(source),))), LIMITS, 3)[0]
            assert [h.tokens for h in alone] == [h.tokens for h in whole[i]]


def test_traces_of_all_three_attentions():
    model = MODELS["transformer"]().eval()
    out = packed(model, trace=Trace(attentions=True))
    assert out.encoder_trace is not None
    assert out.decoder_trace is not None
    assert out.cross_trace is not None
    assert out.cross_trace.attentions[1][2].shape == (2, 2, 11)
    assert out.encoder_trace.attentions[0][2].shape == (2, 11, 11)
    recurrent = MODELS["additive"]().eval()
    maps = packed(recurrent, trace=Trace(attentions=True)).cross_trace.attentions[0]
    torch.testing.assert_close(maps[0].sum(-1), torch.ones(1, 3))


def test_what_does_not_fit_is_said():
    model = MODELS["transformer"]()
    with pytest.raises(ShapeError, match="4 targets, but 1 sources"):
        model(X[:5], Y, source_packing=Packing((5,)), target_packing=T)
    with pytest.raises(ShapeError, match="need source_packing"):
        model(X, Y)
    for beam in (0, 1.5, 1000):
        with pytest.raises(ConfigError, match=f"beam = {beam} is out of range"):
            beam_search(model, model.encode(X, S), LIMITS, beam)
    for penalty in (float("nan"), 999.0):
        with pytest.raises(ConfigError, match=r"length_penalty = .* is out of range"):
            beam_search(model, model.encode(X, S), LIMITS, 2, penalty)
    with pytest.raises(ConfigError, match="is below 1"):
        greedy(model, model.encode(X, S), Limits(BEGIN, END, 0))
    with pytest.raises(ConfigError, match="differ in vocab_size"):
        transformer(VS, VT, shared_vocabulary=True)
    with pytest.raises(ConfigError, match="must be even"):
        RecurrentConfig(VS, VT, 15)


def test_a_diverged_model_is_said_to_be_one():
    broken = small_transformer().eval()
    with torch.inference_mode():
        memory = broken.encode(X, S)
        for weights in broken.parameters():
            weights.fill_(float("nan"))
        with pytest.raises(GlassformerError, match="its weights have diverged"):
            beam_search(broken, memory, LIMITS, beam=2)


def test_diverged_weights_say_nothing_rather_than_anything(model):
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with torch.inference_mode(), pytest.raises(GlassformerError, match="have diverged"):
        greedy(model, model.encode(X, S), LIMITS)
