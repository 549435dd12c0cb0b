"""Cross-entropy with smoothing and weights against torch's; words hidden at random."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch.nn import functional as F

from glassformer.data.batching import TextBatch
from glassformer.errors import ConfigError
from glassformer.packing import Packing
from glassformer.train.objectives import (
    BinaryCrossEntropy,
    Classification,
    InputMasking,
    SquaredError,
    class_weights,
    mixed_targets,
)

N, C = 13, 5
TARGETS = np.random.default_rng(3).integers(0, C, N)
INDEX = np.array([7, 0, 12, 3, 3, 11, 2])
LOGITS = 3.0 * torch.randn(len(INDEX), C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Fixed(torch.nn.Module):
    """Gives the same logits whatever comes in, and remembers what came in."""

    def __init__(self, logits=LOGITS):
        super().__init__()
        self.logits = torch.nn.Parameter(logits.clone().float())

    def forward(self, ids, token_type_ids=None, *, packing):
        self.ids, self.segments, self.packing = ids, token_type_ids, packing
        return SimpleNamespace(logits=self.logits)


def batch(index=INDEX, length=3):
    packing = Packing((length,) * len(index))
    return TextBatch(torch.arange(packing.total) + 10, None, packing, index)


def loss_and_gradient(model, objective):
    out = objective(model, batch())
    (gradient,) = torch.autograd.grad(out.loss, model.logits)
    return out, gradient


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_equals_torch(smoothing):
    model = Fixed()
    out, gradient = loss_and_gradient(model, Classification(TARGETS, label_smoothing=smoothing))
    targets = torch.from_numpy(TARGETS[INDEX])
    wanted = F.cross_entropy(model.logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(out.loss, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted, model.logits)[0])
    # and by hand: the true class gets 1 - s + s / C, every other s / C
    shares = torch.full((len(INDEX), C), smoothing / C)
    shares[range(len(INDEX)), targets] += 1 - smoothing
    torch.testing.assert_close(out.loss, -(shares * model.logits.log_softmax(1)).sum())


def test_class_weights_equal_torch():
    """Over all examples at once, torch's weighted mean is our sum over n, because our weights have mean 1."""
    table = {0: 1.0, 1: 0.5, 2: 3.0, 3: 2.0, 4: 0.25}
    weights = class_weights(TARGETS, list(range(C)), table)
    assert weights.mean() == pytest.approx(1.0)
    index = np.arange(N)
    logits = torch.randn(N, C, generator=torch.Generator().manual_seed(2))
    out = Classification(TARGETS, weights)(Fixed(logits), batch(index))
    wanted = F.cross_entropy(logits, torch.from_numpy(TARGETS), weight=torch.tensor(list(table.values())))
    torch.testing.assert_close(out.loss / N, wanted)


def test_weights_multiply_each_loss():
    rng = np.random.default_rng(4)
    weights = rng.random(N).astype(np.float32)
    out = Classification(TARGETS, weights, label_smoothing=0.1)(Fixed(), batch())
    losses = F.cross_entropy(
        LOGITS.float(), torch.from_numpy(TARGETS[INDEX]), label_smoothing=0.1, reduction="none"
    )
    torch.testing.assert_close(out.loss, (losses * torch.from_numpy(weights[INDEX])).sum())
    # a weight of 0 is an absent example
    weights = np.ones(N, np.float32)
    weights[INDEX[0]] = 0.0
    model = Fixed()
    _, gradient = loss_and_gradient(model, Classification(TARGETS, weights))
    assert not gradient[0].any()
    assert bool(gradient[1:].any(1).all())


def test_logits_of_any_format_are_judged_in_fp32():
    model = Fixed()
    model.logits.data = model.logits.data.bfloat16()
    out = Classification(TARGETS)(model, batch())
    assert out.loss.dtype == torch.float32
    wanted = F.cross_entropy(model.logits.float(), torch.from_numpy(TARGETS[INDEX]), reduction="sum")
    torch.testing.assert_close(out.loss, wanted)
    out = Classification(TARGETS)(Fixed(), batch())
    assert out.count == len(INDEX)
    assert out.correct == int((LOGITS.argmax(1).numpy() == TARGETS[INDEX]).sum())
    # nothing is hidden by default
    model, data = Fixed(), batch()
    Classification(TARGETS)(model, data)
    assert model.ids is data.ids
    assert model.packing is data.packing


# --- weights from settings ------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [["b", "a", "c", "d", "e"], [3, 1, 4, 15, 9]])
def test_balanced_equals_sklearn(labels):
    weights = class_weights(TARGETS, labels, "balanced")
    np.testing.assert_allclose(weights, compute_sample_weight("balanced", TARGETS), rtol=1e-6)
    assert weights.mean() == pytest.approx(1.0)
    sums = [weights[t == TARGETS].sum() for t in np.unique(TARGETS)]
    np.testing.assert_allclose(sums, sums[0], rtol=1e-5)  # every class weighs the same


def test_table_by_label():
    targets = np.array([0, 1, 1, 1])
    np.testing.assert_allclose(
        class_weights(targets, ["neg", "pos"], {"pos": 1, "neg": 3}), [2, 2 / 3, 2 / 3, 2 / 3]
    )
    np.testing.assert_allclose(class_weights(targets, [5, 7], {7: 1, 5: 3}), [2, 2 / 3, 2 / 3, 2 / 3])
    np.testing.assert_allclose(class_weights(targets, [5, 7], {5: 3}), [2, 2 / 3, 2 / 3, 2 / 3])  # others: 1
    assert class_weights(TARGETS, list(range(C)), None) is None
    # balanced, with a class that is not there
    targets = np.array([0, 0, 2])
    np.testing.assert_allclose(class_weights(targets, ["a", "b", "c"], "balanced"), [0.75, 0.75, 1.5])


WEIGHTS = [[1], {"a": 1}, "2", None, -1, float("nan"), float("inf")]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("balance", "balance"),
        ({"postive": 2.0}, "postive"),
        ({"pos": 0.0, "neg": 0.0}, "0"),
        *(
            ({"pos": weight}, r"class_weight: .* is not a weight\. Use 0, or numbers from")
            for weight in WEIGHTS
        ),
    ],
)
def test_class_weights_that_cannot_be(table, said):
    with pytest.raises(ConfigError, match=said):
        class_weights(np.array([0, 1]), ["neg", "pos"], table)


# --- hidden words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protect", [False, True])
def test_words_are_hidden_at_their_share(protect):
    torch.manual_seed(5)
    index = np.zeros(701, int)
    model = Fixed(torch.zeros(701, C))
    data = batch(index, length=11)
    before = data.ids.clone()
    Classification(TARGETS, masking=InputMasking(0.3, mask_id=4, mask_first=not protect))(model, data)
    hidden = model.ids != before
    assert bool((model.ids[hidden] == 4).all())
    assert torch.equal(data.ids, before)  # the batch itself stays as it is
    first = torch.arange(701 * 11) % 11 == 0
    for part, n in ((hidden[~first], 7010), (hidden[first], 701)):
        wanted = 0.0 if protect and n == 701 else 0.3
        assert abs(float(part.float().mean()) - wanted) <= 5 * (0.21 / n) ** 0.5 * (wanted > 0)
    Classification(TARGETS, masking=InputMasking(0.3, mask_id=4, mask_first=not protect))(model, data)
    assert not torch.equal(model.ids != before, hidden)  # others at the next step


def test_maskable_hides_any_share_of_half_of_the_texts_and_images():
    torch.manual_seed(5)
    packing = Packing((97,) * 701)
    ids = torch.arange(97).repeat(701)
    hidden = InputMasking(maskable=True, mask_id=500, special_ids=(0, 96)).tokens(ids, packing) == 500
    shares = hidden.view(701, 97)[:, 1:-1].float().mean(1)
    assert not hidden.view(701, 97)[:, [0, 96]].any()  # special tokens
    some = shares[shares > 0]
    assert abs(len(some) / 701 - 0.5) < 0.07
    assert (
        abs(some.quantile(torch.tensor([0.25, 0.5, 0.75])) - torch.tensor([0.25, 0.5, 0.75])) < 0.08
    ).all()
    # whole patches of images
    torch.manual_seed(5)
    pixels = torch.rand(307, 3, 13, 10) + 1
    out = InputMasking(maskable=True).patches(pixels, (4, 5))  # the last row of patches is cut
    assert ((out == pixels) | (out == 0)).all()
    cells = [out[:, :, i : i + 4, j : j + 5] == 0 for i in (0, 4, 8, 12) for j in (0, 5)]
    assert all((cell.flatten(1).all(1) == cell.flatten(1).any(1)).all() for cell in cells)
    shares = torch.stack([cell.flatten(1).all(1) for cell in cells], 1).float().mean(1)
    assert abs(float((shares > 0).float().mean()) - 0.5 * 8 / 9) < 0.09  # a share near 0 hides none
    assert abs(float(shares.mean()) - 0.25) < 0.06


# --- losses of several labels and of numbers, compared with torch's -------------------------------


def test_several_labels_and_numbers_have_torch_s_losses():
    torch.manual_seed(0)
    logits, y = torch.randn(7, 5), (torch.rand(7, 5) < 0.4).float()
    losses, right = BinaryCrossEntropy()(logits, y)
    torch.testing.assert_close(losses.mean(), F.binary_cross_entropy_with_logits(logits, y))
    assert int(right) == sum(((logits > 0) == (y > 0.5)).all(1).tolist())
    weights = (1.0, 2.0, 3.0, 0.5, 7.0)
    weighed, _ = BinaryCrossEntropy(weights, 0.2)(logits, y)
    torch.testing.assert_close(
        weighed.mean(),
        F.binary_cross_entropy_with_logits(logits, 0.8 * y + 0.1, pos_weight=torch.tensor(weights)),
    )
    logits, y = torch.tensor([[0.5], [2.0], [-1.0]]), torch.tensor([0.25, 0.0, -1.5])
    losses, right = SquaredError()(logits, y)
    torch.testing.assert_close(losses, torch.tensor([0.0625, 4.0, 0.25]))
    assert int(right) == 1


def test_targets_of_mixed_pictures():
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    mixed = mixed_targets(y, torch.tensor([1, 2, 0]), torch.tensor([0.75, 1.0, 0.5]))
    torch.testing.assert_close(mixed, torch.tensor([[0.75, 0.25], [0.0, 1.0], [1.0, 0.5]]))
    torch.testing.assert_close(
        mixed_targets(torch.tensor([1.0, 3.0]), torch.tensor([1, 0]), torch.tensor([0.5, 0.25])),
        torch.tensor([2.0, 1.5]),
    )
