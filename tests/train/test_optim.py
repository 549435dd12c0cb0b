"""AdamW on fp32 masters against torch's AdamW, decay groups, layer-wise rates, schedules, the running mean."""

import math

import pytest
import torch
from torch import nn

from glassformer.errors import ConfigError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.packing import Packing
from glassformer.train.config import ClassifierFitConfig, FitConfig
from glassformer.train.freezing import freeze
from glassformer.train.optim import MixedPrecisionOptimizer, has_weight_decay, learning_rate
from glassformer.train.state import Training

V = 31
PACKING = Packing((5, 2, 7))
IDS = torch.arange(14) % V


def advance(optimizer: MixedPrecisionOptimizer, lr: float) -> float:
    """Update the weights from the gradients of the model; returns the gradient norm before clipping."""
    norm = optimizer.gradient_norm()
    optimizer.update(lr, norm)
    return float(norm)


def build(layers=2, **options):
    torch.manual_seed(3)
    return Bert(bert(V, 14, layers, 2, 11, 17, 0.0, **{"head": "classification", "init_std": 0.2} | options))


def backward(model, step):
    """A loss that differs from step to step."""
    logits = model(IDS.roll(step), packing=PACKING).logits
    loss = (logits - step).square().sum()
    loss.backward()
    return loss.detach()


# --- the rate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 7, 101])
@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.5])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_rates_in_closed_form(schedule, warmup, total):
    config = FitConfig(lr=0.3, schedule=schedule, warmup=warmup)
    rates = [learning_rate(step, total, config) for step in range(total)]
    rise = round(warmup * total)
    for step, rate in enumerate(rates):
        if step < rise:
            wanted = 0.3 * (step + 1) / rise
        else:
            done = (step - rise) / (total - rise)  # 0 at the first step after the warm-up, never quite 1
            wanted = {
                "linear": 0.3 * (1 - done),
                "cosine": 0.3 * 0.5 * (1 + math.cos(math.pi * done)),
                "constant": 0.3,
            }[schedule]
        assert rate == pytest.approx(wanted, rel=1e-12)
    assert max(rates) == pytest.approx(0.3)
    assert min(rates) > 0  # no step is wasted at rate 0
    assert rates[:rise] == sorted(rates[:rise])
    assert rates[rise:] == sorted(rates[rise:], reverse=True)


# --- one update -----------------------------------------------------------------------------------


def reference(model, config):
    """torch's own, unfused, with the groups written out."""
    spared = [p for n, p in model.named_parameters() if p.ndim < 2 or "positions" in n or "segments" in n]
    decayed = [p for p in model.parameters() if not any(p is q for q in spared)]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    return kind(groups, lr=config.lr, betas=config.betas, foreach=False, fused=False)


def hand_over(ours, theirs):
    """The same gradients: where the true one is 0 (the bias of keys), Adam turns rounding into whole steps."""
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        q.grad = p.grad.to(torch.float32, copy=True)


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_fp32_equals_torch(optimizer, clip):
    config = FitConfig(lr=1e-2, weight_decay=0.3, optimizer=optimizer, clip=clip, betas=(0.8, 0.95))
    ours, theirs = build(), build()
    mine, yours = MixedPrecisionOptimizer(ours, config, torch.float32), reference(theirs, config)
    for step in range(7):
        backward(ours, step)
        hand_over(ours, theirs)
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), clip or math.inf)
        lr = learning_rate(step, 7, config)
        for group in yours.param_groups:
            group["lr"] = lr
        yours.step()
        yours.zero_grad()
        assert advance(mine, lr) == pytest.approx(float(wanted), rel=1e-4)  # the norm before clipping
        assert all(p.grad is None for p in ours.parameters())
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert not mine.low_precision


def test_a_step_of_the_optimizer_by_hand():
    config = FitConfig(lr=0.1, weight_decay=0.5, clip=0.0, betas=(0.9, 0.999), warmup=0.0)
    model = build()
    optimizer = MixedPrecisionOptimizer(model, config, torch.float32)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    backward(model, 1)
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    advance(optimizer, 0.1)
    for name, p in model.named_parameters():
        decay = 0.5 if p.ndim >= 2 and "positions" not in name and "segments" not in name else 0.0
        # At the first step the corrected moments are g and g^2.
        wanted = before[name] * (1 - 0.1 * decay) - 0.1 * grads[name] / (grads[name].abs() + 1e-8)
        torch.testing.assert_close(
            p.detach(), wanted, atol=1e-6, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    # an infinite clip is no clip
    norms = []
    for clip in (0.0, 1e9):
        model = build()
        optimizer = MixedPrecisionOptimizer(model, FitConfig(clip=clip), torch.float32)
        backward(model, 3)
        norms.append(advance(optimizer, 1e-3))
    assert norms[0] == norms[1] > 1.0


def test_bf16_updates_fp32_masters_with_the_models_gradients():
    config = FitConfig(lr=1e-2, weight_decay=0.3, clip=0.7)
    model, twin = build(), build()
    optimizer, yours = MixedPrecisionOptimizer(model, config, torch.bfloat16), reference(twin, config)
    for step in range(5):
        backward(model, step)
        hand_over(model, twin)
        nn.utils.clip_grad_norm_(twin.parameters(), config.clip)
        yours.step()
        advance(optimizer, config.lr)
    for (name, master), q in zip(optimizer.masters.items(), twin.parameters(), strict=True):
        assert master.dtype == torch.float32
        torch.testing.assert_close(master.detach(), q.detach(), atol=2e-6, rtol=1e-5)
        assert torch.equal(model.get_parameter(name), master.to(model.get_parameter(name).dtype))


def test_what_computes_in_bf16_and_what_decays():
    model = build()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = MixedPrecisionOptimizer(model, FitConfig(), torch.bfloat16)
    for name, p in model.named_parameters():
        in_encoder = name.startswith("encoder.")
        assert p.dtype == (torch.bfloat16 if in_encoder else torch.float32), name
        assert (name in optimizer.low_precision) == in_encoder
        assert (optimizer.masters[name] is p) == (not in_encoder)
        assert torch.equal(optimizer.masters[name], before[name])  # exact: taken before the rounding
    # what decays
    model = build(head="classification", pooling="pooler")
    decayed = {name for name, p in model.named_parameters() if has_weight_decay(name, p)}
    wanted = {"embeddings.tokens.weight", "pooling.dense.weight", "head.out.weight"}
    parts = ("attention.qkv", "attention.out", "feed_forward.up", "feed_forward.down")
    wanted |= {f"encoder.layers.{i}.{name}.weight" for i in range(2) for name in parts}
    assert decayed == wanted
    # frozen weights stay
    model.embeddings.requires_grad_(False)
    before = model.embeddings.tokens.weight.clone()
    optimizer = MixedPrecisionOptimizer(model, FitConfig(weight_decay=0.5), torch.float32)
    backward(model, 1)
    advance(optimizer, 0.1)
    assert torch.equal(model.embeddings.tokens.weight, before)
    assert not any(name.startswith("embeddings.") for name in optimizer.masters)


def test_updates_too_small_for_bf16_add_up():
    """A thousand steps of 1e-5 beside a weight of 1 vanish in bf16; the masters keep them."""
    model = build()
    with torch.no_grad():
        model.encoder.layers[0].norm1.weight.fill_(1.0)
    config = FitConfig(lr=1e-5, weight_decay=0.0, clip=0.0)
    optimizer = MixedPrecisionOptimizer(model, config, torch.bfloat16)
    weight = model.get_parameter("encoder.layers.0.norm1.weight")
    for _ in range(1000):
        weight.grad = torch.ones_like(weight)
        advance(optimizer, 1e-5)
    assert float(optimizer.masters["encoder.layers.0.norm1.weight"].detach().mean()) == pytest.approx(
        0.99, abs=1e-4
    )
    assert torch.equal(weight, torch.full_like(weight, 0.99))


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decay", "embedding_lr"), [(1.0, 1.0), (0.7, 1.0), (0.7, 0.1), (1.0, 3.0)])
def test_every_parameter_has_its_rate_and_decay(decay, embedding_lr):
    model = build(layers=3)
    config = FitConfig(lr=0.01, weight_decay=0.2, layer_decay=decay, embedding_lr=embedding_lr)
    optimizer = MixedPrecisionOptimizer(model, config, torch.float32)
    backward(model, 1)
    advance(optimizer, 0.5)
    found = {}
    for group in optimizer.optimizers[0].param_groups:
        for p in group["params"]:
            found[id(p)] = (group["lr"], group["weight_decay"])
    assert len(found) == len(list(model.parameters()))
    for name, p in model.named_parameters():
        rate, wd = found[id(p)]
        if name.startswith("embeddings."):
            often = name.split(".")[1] in ("positions", "segments", "norm")  # rows that learn at every step
            wanted = 0.5 * decay**4 * (1.0 if often else embedding_lr)
        elif name.startswith("encoder.layers."):
            wanted = 0.5 * decay ** (3 - int(name.split(".")[2]))
        else:
            wanted = 0.5
        assert rate == pytest.approx(wanted), name
        assert wd == (0.2 if has_weight_decay(name, p) else 0.0), name


# --- the running mean -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_running_mean_in_closed_form(dtype):
    model, d = build(), 0.8
    optimizer = MixedPrecisionOptimizer(model, FitConfig(average=d, lr=0.1), dtype)
    name = "encoder.layers.1.attention.qkv.weight"
    start, seen = optimizer.masters[name].detach().clone(), []
    torch.testing.assert_close(optimizer.weights()[name], start)  # before any step there is nothing else
    for step in range(6):
        backward(model, step)
        advance(optimizer, 0.1)
        seen.append(optimizer.masters[name].detach().clone())
    shares = [d ** (5 - i) for i in range(6)]  # of what came before the first step: none
    wanted = sum(share / sum(shares) * weights for share, weights in zip(shares, seen, strict=True))
    torch.testing.assert_close(optimizer.average[name], wanted)
    torch.testing.assert_close(optimizer.weights()[name], wanted)
    assert not torch.allclose(wanted, seen[-1])


@pytest.mark.parametrize(
    ("steps", "wanted"), [(10_000, 0.998), (1500, 0.998), (200, 0.985), (3, 0.0), (1, 0.0)]
)
def test_the_mean_reaches_over_a_third_of_the_run_at_most(steps, wanted):
    config = FitConfig(average=0.998, lr=0.1)
    optimizer = MixedPrecisionOptimizer(build(), config, torch.float32)
    Training(build(), optimizer, config, steps)
    assert optimizer.decay == pytest.approx(wanted)
    assert optimizer._newest_weight() == pytest.approx(1.0)  # the first step is all of it
    assert optimizer._newest_weight() == pytest.approx((1 - wanted) / (1 - wanted**2))


def test_a_checkpoint_without_the_count_goes_on_with_its_plain_mean():
    model, d = build(), 0.8
    optimizer = MixedPrecisionOptimizer(model, FitConfig(average=d, lr=0.1), torch.float32)
    backward(model, 0)
    advance(optimizer, 0.1)
    old = {n: t.clone() for n, t in optimizer.tensors().items() if n != "averaged"}
    again = MixedPrecisionOptimizer(model, FitConfig(average=d, lr=0.1), torch.float32)
    again.load_tensors(old)
    backward(model, 1)
    advance(again, 0.1)
    name = "head.out.weight"
    wanted = d * old[f"average/{name}"] + (1 - d) * again.masters[name].detach()
    torch.testing.assert_close(again.average[name], wanted)
    # without a running mean the weights are the masters
    model = build()
    optimizer = MixedPrecisionOptimizer(model, FitConfig(), torch.bfloat16)
    weights = optimizer.weights()
    assert all(torch.equal(weights[n], m) for n, m in optimizer.masters.items())
    backward(model, 1)
    advance(optimizer, 0.1)
    assert not torch.equal(weights["head.out.weight"], optimizer.masters["head.out.weight"])  # a copy


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_share_of_the_start_is_in_what_is_judged_and_kept(dtype, average):
    model = build()
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = MixedPrecisionOptimizer(
        model, ClassifierFitConfig(lr=0.05, average=average, start_share=0.25), dtype
    )
    alone = build()
    plain = MixedPrecisionOptimizer(alone, ClassifierFitConfig(lr=0.05, average=average), dtype)
    for step in range(3):
        for m, o in ((model, optimizer), (alone, plain)):
            backward(m, step)
            advance(o, 0.05)
    for n, w in optimizer.weights().items():
        torch.testing.assert_close(w, 0.75 * plain.weights()[n] + 0.25 * start[n])
        assert torch.equal(optimizer.masters[n], plain.masters[n])  # which learn on as without
    assert not optimizer.evaluates_current_weights


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [0, 3])
def test_tensors_are_all_that_decides_the_next_update(dtype, average, steps):
    config = FitConfig(lr=0.05, average=average)
    model = build()
    optimizer = MixedPrecisionOptimizer(model, config, dtype)
    for step in range(steps):
        backward(model, step)
        advance(optimizer, 0.05)
    kept = {n: t.clone() for n, t in optimizer.tensors().items()}
    other = build()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1.0)
    again = MixedPrecisionOptimizer(other, config, dtype)
    again.load_tensors(kept)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    for step in range(3, 6):
        for m, o in ((model, optimizer), (other, again)):
            backward(m, step)
            advance(o, 0.05)
    now, then = optimizer.tensors(), again.tensors()
    assert now.keys() == then.keys()
    assert all(torch.equal(now[n], then[n]) for n in now)


# --- which weights a fit changes ------------------------------------------------------------------


def learning(layers: int = 2, **settings) -> set[str]:
    """The parts that learn, by their first names."""
    torch.manual_seed(3)
    model = Bert(bert(17, 6, layers, 2, 7, 11, head="classification"))
    freeze(model, ClassifierFitConfig(**settings))
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    return {".".join(n.split(".")[:3]) if n.startswith("encoder.layers") else n.split(".")[0] for n in names}


def test_the_head_and_the_last_layers_learn():
    top, all_layers = {"pooling", "head"}, {"encoder.layers.0", "encoder.layers.1"}
    assert learning() == learning(train_layers=2) == top | all_layers | {"embeddings"}
    assert learning(train_layers=1) == top | {"encoder.layers.1"}
    assert learning(train_layers=0) == top
    assert learning(train_layers=0, unfreeze_every=1) == learning()  # opened as training goes
    assert learning(1, train_layers=1) == top | {"encoder.layers.0", "embeddings"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train_layers": 3}, "train_layers = 3, but the encoder has 2 layers"),
        ({"unfreeze_every": 1}, "unfreeze_every needs train_layers"),
        ({"lora_rank": 2, "train_layers": 0}, "lora_rank already freezes the encoder"),
        ({"lora_rank": 2, "unfreeze_every": 1}, "lora_rank already freezes the encoder"),
        ({"lora_rank": 7}, "lora_rank = 7 is not from 1 to the width 6"),
    ],
)
def test_settings_that_exclude_each_other(settings, said):
    with pytest.raises(ConfigError, match=said):
        learning(**settings)
