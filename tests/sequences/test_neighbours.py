"""A new BERT whose heads begin by looking beside them: where they look, what stays as it was, what it is worth."""

import numpy as np
import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer.families.bert import bert
from glassformer.models.text import OFFSETS, init_local_attention
from glassformer.models.text import TextEncoder as Bert

LENGTH = 41


def new(d: int, heads: int, layers: int, **options) -> Bert:
    torch.manual_seed(7)
    return Bert(bert(211, d, layers, heads, 31, 61, 0.0, head="mlm", pooling=None, **options)).eval()


def maps_of(model: Bert) -> torch.Tensor:
    """``[L, H, T, T]`` on random tokens."""
    ids = torch.randint(5, 211, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        found = model(ids, trace=gf.Trace(attentions=True)).trace.attentions
    return torch.stack([layer[0] for layer in found])


@pytest.mark.parametrize(("d", "heads"), [(256, 4), (88, 2), (77, 7)])
def test_each_head_looks_at_its_own_place(d, heads):
    model = new(d, heads, 2)
    before = maps_of(model)
    init_local_attention(model)
    after = maps_of(model)[0]
    middle = torch.arange(5, LENGTH - 5)
    for head, offset in zip(range(heads), OFFSETS, strict=False):
        share = float(after[head, middle, middle + offset].mean())
        assert share > 5 * float(before[0, head, middle, middle + offset].mean())
        assert int((after[head].argmax(-1)[middle] - middle).float().median()) == offset


def test_the_second_layer_goes_on_with_the_list():
    """About: its rows are what the first has mixed, so a head leans to its side."""
    model = new(256, 4, 2)
    init_local_attention(model)
    second = maps_of(model)[1]
    middle = torch.arange(5, LENGTH - 5)
    for head, side in ((0, -1), (1, 1)):
        looks = [
            [float(second[head, middle, middle + s * k].mean()) for k in range(1, 6)] for s in (side, -side)
        ]
        assert sum(looks[0]) > 5 * sum(looks[1])
        assert max(looks[0]) == looks[0][2]  # three places on
    # heads without a place and narrow models stay random
    model = new(88, 4, 2)
    init_local_attention(model)
    second = maps_of(model)[1]
    middle = torch.arange(7, LENGTH - 7)
    for head in (2, 3):  # OFFSETS has six
        assert all(float(second[head, middle, middle + k].mean()) < 0.1 for k in OFFSETS)
    narrow, same = new(7, 1, 1), new(7, 1, 1)
    init_local_attention(narrow)
    for name, weight in narrow.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name


def test_a_masked_word_is_learnt_from_its_neighbours_sooner():
    """Sentences in which each word follows from the one before it, and the model has 60 steps."""
    rng = np.random.default_rng(5)
    follower = rng.permutation(97)
    texts = []
    for _ in range(400):
        words = [int(rng.integers(97))]
        for _ in range(12):
            words.append(int(follower[words[-1]]))
        texts.append(" ".join(f"w{w}" for w in words))
    settings = values(
        "d_model=64 num_layers=1 num_heads=2 d_ff=67 vocab_size=200 min_count=1 tokenizer=word seed=1"
    )
    settings |= values(
        "max_length=17 max_positions=17 epochs=4 lr=3e-3 batch_tokens=300 precision=fp32 threads=1"
    )
    beside = gf.MaskedLM(**settings).fit(texts)
    anywhere = gf.MaskedLM(**settings, neighbours=False).fit(texts)
    assert beside.score(texts) > 2 * anywhere.score(texts)
    assert beside.get_params()["neighbours"] is True
