"""AdamW with eps before bias correction, against its equations in plain numbers and against torch's."""

import pytest
import torch

from glassformer.train.optim import AdamWHat


@pytest.fixture(params=[True, False], ids=["fused", "foreach, as on a GPU"])
def kernel(request, monkeypatch):
    update = AdamWHat._update
    monkeypatch.setattr(
        AdamWHat, "_update", lambda self, w, t, fused, group: update(self, w, t, request.param, group)
    )


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_follows_its_equations(decay, kernel):
    w = torch.nn.Parameter(torch.tensor([0.5, -2.0, 3.0]))
    optimizer = AdamWHat([w], lr=0.1, betas=(0.8, 0.9), eps=0.03, weight_decay=decay)
    x, m, v = [0.5, -2.0, 3.0], [0.0] * 3, [0.0] * 3
    for t in range(1, 6):
        grads = [0.3 * t, -0.01, 0.5 / t]
        w.grad = torch.tensor(grads)
        optimizer.step()
        for i, g in enumerate(grads):
            m[i], v[i] = 0.8 * m[i] + 0.2 * g, 0.9 * v[i] + 0.1 * g * g
            x[i] -= 0.1 * (1 - 0.9**t) ** 0.5 / (1 - 0.8**t) * m[i] / (v[i] ** 0.5 + 0.03)
            x[i] -= 0.1 * decay * x[i]
    assert w.tolist() == pytest.approx(x, rel=1e-5)


def test_a_weight_without_a_gradient_stays_and_keeps_its_own_count(kernel):
    def run(skipped):
        a, b = torch.nn.Parameter(torch.tensor([1.0])), torch.nn.Parameter(torch.tensor([1.0]))
        optimizer = AdamWHat([a, b], lr=0.1, eps=0.03)
        for t in range(4):
            a.grad, b.grad = torch.tensor([0.01]), None if t in skipped else torch.tensor([0.01])
            before = b.item()
            optimizer.step()
            assert (b.item() == before) == (t in skipped)
        return a.item(), b.item(), optimizer.state[b]["step"].item()

    whole, short = run(()), run((0, 2))
    assert whole[0] == whole[1] == short[0]
    assert (whole[2], short[2]) == (4, 2)
    assert short[1] > whole[1]  # two steps less far from one


def test_only_the_place_of_eps_tells_it_from_torch():
    def run(cls, eps):
        w = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
        optimizer = cls([w], lr=0.01, eps=eps, weight_decay=0.0)
        for t in range(3):
            w.grad = torch.tensor([1e-3 * (t + 1), 2.0])
            optimizer.step()
        return w.detach()

    assert torch.allclose(run(AdamWHat, 1e-12), run(torch.optim.AdamW, 1e-12), rtol=1e-6)
    assert not torch.allclose(run(AdamWHat, 1e-3), run(torch.optim.AdamW, 1e-3), rtol=1e-4)
    assert torch.equal(run(AdamWHat, 1e-3), run(AdamWHat, 1e-3))
    # nothing is written beside a weight that is a part of a tensor
    torch.manual_seed(0)
    whole, grad = torch.ones(5, 7), torch.randn(5, 3)
    w = torch.nn.Parameter(whole[:, :3])
    assert w.data_ptr() == whole.data_ptr()
    optimizer = AdamWHat([w], lr=0.1)
    w.grad = grad
    optimizer.step()
    assert (whole[:, 3:] == 1).all()
    torch.testing.assert_close(
        whole[:, :3], 1 - 0.1 * grad.sign(), rtol=0, atol=1e-3
    )  # the first step is the rate


LAYOUTS = {
    "weight transposed": (lambda x: x.t().contiguous().t(), lambda g: g),
    "gradient transposed": (lambda x: x, lambda g: g.t().contiguous().t()),
    "gradient expanded": (lambda x: x, lambda g: g[:, :1].expand(5, 3)),
    "gradient negated": (lambda x: x, lambda g: torch._neg_view(-g)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_may_lie_in_memory_as_they_like(layout):
    torch.manual_seed(0)
    weight, grad = LAYOUTS[layout]
    start, grads = torch.randn(5, 3), [grad(torch.randn(5, 3)) for _ in range(4)]
    ends = []
    for w, how in ((start.clone(), torch.Tensor.contiguous), (weight(start.clone()), lambda g: g)):
        w = torch.nn.Parameter(w)
        optimizer = AdamWHat([w], lr=0.01)
        for g in grads:
            w.grad = how(g)
            optimizer.step()
        ends.append(w.detach())
    assert torch.allclose(*ends, rtol=1e-5)


def test_a_step_is_seen_by_autograd_and_its_closure_has_gradients():
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = AdamWHat([w], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    before = w._version
    assert optimizer.step(closure).item() == 5.0
    assert w._version > before
    kept = w.square().sum()
    w.grad = torch.ones(2)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
