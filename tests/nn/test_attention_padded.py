"""The padded door of ``attend`` against torch's own, and against the packed one."""

import pytest
import torch
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn import attend, causal_mask
from glassformer.packing import Packing

B, H, T, S, K, V = 2, 3, 5, 7, 11, 13


def make(heads=True, v_width=V):
    generator = torch.Generator().manual_seed(17)
    lead = (B, H) if heads else (B,)
    return tuple(
        (1.5 * torch.randn(*lead, rows, width, generator=generator, dtype=torch.float64)).requires_grad_()
        for rows, width in ((T, K), (S, K), (S, v_width))
    )


def mask_of(*shape):
    """About half True, and True in the first column: every row may attend somewhere."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(len(shape))) < 0.5
    mask[..., 0] = True
    return mask


def compare(ours, theirs, inputs):
    torch.testing.assert_close(ours, theirs)
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=ours.dtype)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, upstream, retain_graph=True),
        torch.autograd.grad(theirs, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


# our mask -> the same one as torch's function wants it, [B, (H,) T, S]
MASKS_4D = {
    "none": (None, None),
    "keys": (mask_of(B, S), lambda m: m[:, None, None, :]),
    "rows and keys": (mask_of(B, T, S), lambda m: m[:, None]),
    "one for the batch": (mask_of(1, T, S), lambda m: m[:, None]),
    "per head": (mask_of(B, H, T, S), lambda m: m),
    "broadcast heads": (mask_of(B, 1, T, S), lambda m: m),
    "broadcast rows": (mask_of(B, H, 1, S), lambda m: m),
    "broadcast all": (mask_of(1, 1, 1, S), lambda m: m),
}
MASKS_3D = {
    "none": (None, None),
    "keys": (mask_of(B, S), lambda m: m[:, None, :]),
    "rows and keys": (mask_of(B, T, S), lambda m: m),
    "one for the batch": (mask_of(1, T, S), lambda m: m),
    "broadcast rows": (mask_of(B, 1, S), lambda m: m),
}


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("name", MASKS_4D)
def test_several_heads(name, scale):
    q, k, v = inputs = make()
    mask, full = MASKS_4D[name]
    theirs = F.scaled_dot_product_attention(q, k, v, None if mask is None else full(mask), scale=scale)
    compare(attend(q, k, v, mask=mask, scale=scale), theirs, inputs)


@pytest.mark.parametrize("name", MASKS_3D)
def test_one_head(name):
    q, k, v = inputs = make(heads=False)
    mask, full = MASKS_3D[name]
    theirs = F.scaled_dot_product_attention(q, k, v, None if mask is None else full(mask))
    compare(attend(q, k, v, mask=mask), theirs, inputs)


@pytest.mark.parametrize("masked", [False, True])
def test_causal(masked):
    """The last row sees everything, also where there are more keys than rows."""
    q, k, v = inputs = make()
    ahead = torch.arange(S) > torch.arange(T)[:, None] + (S - T)
    mask = mask_of(B, S) if masked else None
    allowed = (~ahead)[None, None] if mask is None else (~ahead)[None, None] & mask[:, None, None]
    theirs = F.scaled_dot_product_attention(q, k, v, allowed)
    compare(attend(q, k, v, causal=True, mask=mask), theirs, inputs)


def test_causal_mask_by_hand():
    wanted = [[True, True, True, False, False], [True] * 4 + [False], [True] * 5]
    assert causal_mask(3, 5).tolist() == wanted
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]
    square = causal_mask(7, 7)
    assert torch.equal(square, torch.arange(7) <= torch.arange(7)[:, None])


def test_keys_serve_as_values():
    q, k, _ = make()
    compare(attend(q, k), F.scaled_dot_product_attention(q, k, k), (q, k))


def test_rows_that_may_attend_nowhere_give_zeros_and_no_nan():
    q, k, v = inputs = make()
    mask = mask_of(B, T, S)
    mask[0, 2] = False
    mask[1] = False
    out, weights = attend(q, k, v, mask=mask, return_weights=True)
    nowhere = ~mask.any(-1)[:, None].expand(B, H, T)
    assert bool((out[nowhere] == 0).all())
    assert bool((weights[nowhere] == 0).all())
    assert bool((out[~nowhere] != 0).all())
    found = torch.autograd.grad(out.square().sum(), inputs)
    assert all(bool(x.isfinite().all()) for x in found)
    assert bool((found[0][nowhere] == 0).all())
    assert bool((found[1][1] == 0).all())


def test_weights_on_request():
    q, k, v = make()
    mask = mask_of(B, T, S)
    out, weights = attend(q, k, v, mask=mask, return_weights=True)
    assert weights.shape == (B, H, T, S)
    assert bool((weights[~mask[:, None].expand_as(weights)] == 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    torch.testing.assert_close(weights @ v, out)


def test_dropout_zeroes_weights_and_scales_the_rest():
    torch.manual_seed(3)
    q, k, p = torch.randn(B, 53, K), torch.randn(B, 31, K), 0.37
    v = torch.eye(31).expand(B, 31, 31)  # so that the output is the weights
    out, weights = attend(q, k, v, dropout=p, return_weights=True)
    kept = out != 0
    torch.testing.assert_close(out[kept], (weights / (1 - p))[kept])
    assert abs(float(kept.float().mean()) - (1 - p)) < 5 * (p * (1 - p) / kept.numel()) ** 0.5


def test_causal_softmax_by_hand():
    """exp of the last row is 1, 2, 3; what lies ahead is large and must not count."""
    scores = torch.tensor([[0.1, 9.0, 9.0], [0.5, 0.5, 9.0], [0.0, 0.6931, 1.0986]], dtype=torch.float64)
    _, weights = attend(
        torch.eye(3, dtype=torch.float64)[None],
        scores.T[None],
        None,
        causal=True,
        scale=1.0,
        return_weights=True,
    )
    wanted = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [1 / 6, 2 / 6, 3 / 6]], dtype=torch.float64)
    torch.testing.assert_close(weights[0], wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_equals_padded(causal):
    """Garbage in the padding must not matter, forward or gradient."""
    q_packing, kv_packing = Packing((5, 2, 3)), Packing((7, 2, 5))
    generator = torch.Generator().manual_seed(23)
    q, k, v = (
        torch.randn(n, H, K, generator=generator, dtype=torch.float64).requires_grad_() for n in (10, 14, 14)
    )
    padded = [
        packing.pad(x, value=1e3).transpose(1, 2)
        for x, packing in ((q, q_packing), (k, kv_packing), (v, kv_packing))
    ]
    mask = kv_packing.mask()[:, None]  # [B, 1, S]
    if causal:  # each sequence counts from its own end
        starts = kv_packing.length_tensor - q_packing.length_tensor
        mask = mask & (torch.arange(7) <= torch.arange(5)[None, :, None] + starts[:, None, None])
    out = attend(*padded, mask=mask).transpose(1, 2)[q_packing.mask()]
    compare(attend(q, k, v, q_packing, kv_packing, causal), out, (q, k, v))


def zeros(*shape):
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((zeros(B, T, K), zeros(B, S, V), zeros(B, S, V)), r"q \(2, 5, 11\), k \(2, 7, 13\)"),
        ((zeros(B, T, K), zeros(B, S, K), zeros(B, T, K)), r"k \(2, 7, 11\), v \(2, 5, 11\)"),
        ((zeros(B, H, T, K), zeros(B, S, K)), "shapes do not fit"),
        ((zeros(T, K), zeros(S, K)), "shapes do not fit"),
        ((zeros(1, B, H, T, K), zeros(1, B, H, S, K)), "shapes do not fit"),
    ],
)
def test_shapes_that_do_not_fit(args, said):
    with pytest.raises(ShapeError, match=said):
        attend(*args)


@pytest.mark.parametrize(
    "args",
    [
        (zeros(2, T, K), zeros(3, S, K)),
        (zeros(2, T, K), zeros(2, S, K), zeros(3, S, K)),
        (zeros(2, H, T, K), zeros(2, 2, S, K)),
    ],
    ids=["batch of k", "batch of v", "heads"],
)
def test_batches_and_heads_that_do_not_fit(args):
    with pytest.raises(ShapeError, match="shapes do not fit"):
        attend(*args)


@pytest.mark.parametrize("shape", [(B, T), (3, S), (B, S, T), (B, H, S), (B, 2, T, S), (1, B, H, T, S)])
def test_masks_that_do_not_fit(shape):
    q, k, v = make()
    with pytest.raises(ShapeError, match="mask"):
        attend(q, k, v, mask=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_is_boolean(dtype):
    """A 0/1 mask of another type could as well be meant to be added."""
    q, k, v = make()
    with pytest.raises(ShapeError, match=r"not boolean.*True = may attend"):
        attend(q, k, v, mask=torch.ones(B, S, dtype=dtype))
