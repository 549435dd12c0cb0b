"""The kernels as operators of torch: graphs hold them whole, and compute what is computed without a graph."""

import pytest
import torch
from torch import nn

from glassformer.nn import Encoder, EncoderConfig, attend, kernels
from glassformer.nn.feedforward import gelu
from glassformer.nn.kernels import loading, ops
from glassformer.nn.linear import LayerNorm
from glassformer.packing import Packing

here = pytest.mark.skipif(not kernels.has_dtype(torch.bfloat16), reason="no kernels in bf16")
PACKING = Packing((7, 31, 379))


def drawn(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


class Block(nn.Module):
    """Everything that there are operators for."""

    def __init__(self):
        super().__init__()
        self.norm = LayerNorm(48).bfloat16()

    def forward(self, qkv: torch.Tensor) -> torch.Tensor:
        out = attend(*qkv.unbind(1), PACKING, branch="kernel").flatten(1)  # [N, 48]
        return gelu(self.norm(out, qkv[:, 0].flatten(1)))


def test_shapes_and_formats_are_known_without_a_call():
    q, k = (torch.empty(n, 3, 16, dtype=torch.bfloat16, device="meta") for n in (5, 7))
    out, stats = ops.attention(q, k, k, [5], [7], False, 1.0)
    assert (out.shape, out.dtype, stats.shape, stats.dtype) == (q.shape, q.dtype, (5, 3, 2), torch.float32)
    gradients = ops.attention_backward(q, k, k, out, stats, q, [5], [7], False, 1.0)
    assert [g.shape for g in gradients] == [q.shape, k.shape, k.shape, (0,)]
    bias = q.new_empty(3, 13)
    gradients = ops.attention_backward(q, k, k, out, stats, q, [5], [7], False, 1.0, bias)
    assert gradients[3].shape == bias.shape
    x, weight = q.flatten(1), q.new_empty(48)
    normed, total, stats = ops.layer_norm(x, None, weight, weight, 1e-5)
    assert (normed.shape, total.shape, stats.shape) == (x.shape, (0,), (5, 2))
    assert ops.layer_norm(x, x, weight, weight, 1e-5)[1].shape == x.shape
    assert [g.shape for g in ops.layer_norm_backward(x, stats, weight, x)] == [x.shape, (48,), (48,)]
    assert ops.gelu(x).shape == ops.gelu_backward(x, x).shape == x.shape
    assert [g.shape for g in ops.weight_gradient(x, x[:, :32])] == [(48, 32), (48,)]


@here
def test_a_graph_holds_the_operators_and_gives_the_same_bits():
    block, graphs = Block(), []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    found = []
    for one in (block, torch.compile(block, backend=keep, fullgraph=True)):
        qkv = drawn(PACKING.total, 3, 3, 16).requires_grad_()
        block.zero_grad()
        out = one(qkv)
        out.square().sum().backward()
        found.append([out.detach(), qkv.grad, block.norm.weight.grad, block.norm.bias.grad])
    assert len(graphs) == 1
    called = {str(node.target) for node in graphs[0].graph.nodes if "glassformer" in str(node.target)}
    assert len(called) == 3
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


@here
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_encoder_in_training_is_one_graph_from_the_first_call_on(dtype, monkeypatch):
    monkeypatch.setattr(loading, "_loaded", [])
    torch._dynamo.reset()
    encoder = Encoder(EncoderConfig(d_model=48, num_heads=3, d_ff=77, num_layers=1, dropout=0.1))
    encoder.to(dtype).train()
    one = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    for lengths in ((7, 2, 5), (3, 11)):
        packing = Packing(lengths)
        encoder.zero_grad()
        one(drawn(packing.total, 48).to(dtype), packing).square().sum().backward()
        for weight in encoder.parameters():
            assert weight.grad.isfinite().all()
            assert weight.grad.any()


@here
@pytest.mark.parametrize("name", ["attention", "layer_norm", "gelu"])
def test_operators_keep_the_rules_of_torch(name):
    q, weight = drawn(PACKING.total, 3, 16).requires_grad_(), drawn(48).requires_grad_()
    lengths = list(PACKING.lengths)
    given = {
        "attention": (q, q, q, lengths, lengths, True, 0.25),
        "layer_norm": (q.detach().flatten(1).requires_grad_(), None, weight, weight, 1e-5),
        "gelu": (q,),
    }[name]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    found = torch.library.opcheck(getattr(ops, name), given, test_utils=tests)
    assert set(found.values()) == {"SUCCESS"}
