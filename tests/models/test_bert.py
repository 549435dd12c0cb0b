"""The presets' numbers, configs that cannot be, initial weights, and a change of head."""

from dataclasses import replace

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.families import TEXT_ARCHITECTURES, own
from glassformer.families import bert as presets
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.packing import Packing

V = 31
PACKING = Packing((5, 2, 7))
IDS = torch.arange(14) % V


def tiny(**options):
    return bert(V, 14, 2, 7, 11, 17, 0.0, **options)


def count(config):
    """Parameters of a full-size model, without its memory."""
    with torch.device("meta"):
        return sum(p.numel() for p in Bert(config).parameters())


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (bert(), 109_482_240),  # bert-base-uncased with its pooler
        (presets.bert_large(), 335_141_888),
        (presets.minilm(), 22_713_216),  # all-MiniLM-L6-v2
        (own.encoder_mini(101), 101 * 64 + 4 * (64 * 64 + 64) + 2 * 64 * 128 + 64 + 128 + 3 * 128),
        (own.encoder_small(101), 101 * 128 + 2 * (4 * (128 * 128 + 128) + 2 * 128 * 256 + 128 + 256 + 512)),
        (
            own.encoder_base(101),
            (101 + 512) * 768 + 1536 + 4 * (4 * (768 * 768 + 768) + 2 * 768 * 3072 + 768 + 3072 + 3072),
        ),
    ],
    ids=["base", "large", "minilm", "encoder-mini", "encoder-small", "encoder-base"],
)
def test_presets_have_the_published_sizes(config, wanted):
    assert count(config) == wanted


@pytest.mark.parametrize(
    ("config", "layers", "width", "heads", "d_ff", "norm", "activation", "positions"),
    [
        (bert(), 12, 768, 12, 3072, "post", "gelu", "learned"),
        (presets.bert_large(), 24, 1024, 16, 4096, "post", "gelu", "learned"),
        (presets.minilm(), 6, 384, 12, 1536, "post", "gelu", "learned"),
        (own.encoder_small(V), 2, 128, 4, 256, "post", "relu", "sinusoidal"),
        (own.encoder_base(V), 4, 768, 12, 3072, "post", "gelu", "learned"),
        (own.encoder_mini(V), 1, 64, 2, 128, "pre", "gelu", "sinusoidal"),
    ],
    ids=["base", "large", "minilm", "encoder-small", "encoder-base", "encoder-mini"],
)
def test_presets_number_by_number(config, layers, width, heads, d_ff, norm, activation, positions):
    e = config.encoder
    assert (e.num_layers, e.d_model, e.num_heads, e.d_ff) == (layers, width, heads, d_ff)
    assert (e.norm, e.activation, config.embedding.positions) == (norm, activation, positions)
    assert e.dropout == config.embedding.dropout == 0.1
    assert e.final_norm == (norm == "pre")


def test_berts_own_numbers():
    config = bert()
    assert config.encoder.eps == config.embedding.eps == 1e-12
    assert config.encoder.attention_dropout == 0.1
    assert (config.embedding.vocab_size, config.embedding.max_positions, config.embedding.segments) == (
        30522,
        512,
        2,
    )
    assert config.pooling == "pooler"


def test_catalogue_builds_what_its_names_say():
    ours = {name: preset for name, preset in TEXT_ARCHITECTURES.items() if name.startswith("encoder")}
    assert set(ours) == {"encoder-mini", "encoder-small", "encoder-base"}
    for name, preset in ours.items():
        assert preset(V) == getattr(own, name.replace("-", "_"))(V)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pooling": None, "head": "classification"}, "needs a pooling"),
        ({"pooling": "mean", "head": "pretraining"}, "reads the pooler"),
    ],
)
def test_heads_that_cannot_be(changes, said):
    with pytest.raises(ConfigError, match=said):
        tiny(**changes)


def test_widths_must_agree():
    config = tiny()
    with pytest.raises(ConfigError, match="embedding width 14 and encoder width 21"):
        replace(config, encoder=replace(config.encoder, d_model=21))


# --- initial weights ------------------------------------------------------------------------------


def test_initial_weights():
    torch.manual_seed(1)
    config = replace(bert(503, 70, 2, 7, 101, 89, 0.0, head="classification"), embedding_std=0.5)
    model = Bert(config)
    for name, p in model.named_parameters():
        if "norm" in name:
            assert torch.equal(p, torch.full_like(p, float(name.endswith("weight")))), name
        elif name.endswith("bias"):
            assert not p.any(), name
        elif p.numel() > 1000:
            std = 0.5 if name.startswith("embeddings") else 0.02
            assert float(p.detach().std()) == pytest.approx(std, rel=0.1), name
            assert abs(float(p.detach().mean())) < 5 * std / p.numel() ** 0.5, name
    plain = Bert(replace(config, embedding_std=None))
    assert float(plain.embeddings.tokens.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_zero_init_starts_as_the_identity(norm):
    config = tiny(init_std=0.3)
    model = Bert(replace(config, encoder=replace(config.encoder, zero_init=True, norm=norm))).eval()
    x = torch.randn(14, 14)
    wanted = x
    if norm == "post":
        for _ in range(4):
            wanted = torch.nn.functional.layer_norm(wanted, (14,), eps=1e-12)
    torch.testing.assert_close(model.encoder(x, PACKING), wanted)


# --- another head on the same encoder -------------------------------------------------------------


def shared(model):
    return {k: v for k, v in model.state_dict().items() if k.startswith(("embeddings.", "encoder."))}


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ({}, {"head": "classification", "num_labels": 5}),
        ({"head": "mlm", "pooling": None}, {"head": "classification", "pooling": "mean"}),
        ({"head": "pretraining"}, {"head": "classification", "num_labels": 3, "head_type": "mlp"}),
        ({"head": "classification"}, {"head": None, "pooling": None}),
    ],
)
def test_with_head_keeps_the_encoder(before, changes):
    model = Bert(tiny(**before))
    model.weights_source = "somewhere"
    other = model.with_head(**changes)
    for name, tensor in shared(model).items():
        assert torch.equal(tensor, shared(other)[name]), name
    assert other.weights_source == "somewhere"
    assert other.config == replace(model.config, **changes)
    if other.config.head == "classification":
        assert other(IDS, packing=PACKING).logits.shape == (3, other.config.num_labels)
    with torch.no_grad():  # a copy, not the same memory
        before_change = model.embeddings.tokens.weight.clone()
        other.embeddings.tokens.weight.add_(1.0)
    assert torch.equal(model.embeddings.tokens.weight, before_change)


def test_with_head_keeps_the_same_pooling():
    model = Bert(tiny())
    kept, fresh = (
        model.with_head(head="classification"),
        model.with_head(pooling="attention", head="classification"),
    )
    assert torch.equal(kept.pooling.dense.weight, model.pooling.dense.weight)
    assert "pooling.score.weight" in fresh.state_dict()


def test_with_head_keeps_the_head_of_masked_words():
    model = Bert(tiny(head="pretraining"))
    other = model.with_head(head="mlm")
    assert torch.equal(other.mlm.dense.weight, model.mlm.dense.weight)


def test_the_masked_words_head_is_tied_to_the_token_table():
    model = Bert(tiny(head="mlm", pooling=None, init_std=0.3)).eval()
    before = model(IDS, packing=PACKING).logits
    with torch.no_grad():
        model.embeddings.tokens.weight[29] += 1.0  # not among the ids: the input stays the same
    after = model(IDS, packing=PACKING).logits
    assert not torch.equal(before[:, 29], after[:, 29])
    others = torch.arange(V) != 29
    torch.testing.assert_close(before[:, others], after[:, others])
    table = model.embeddings.tokens.weight
    (grad,) = torch.autograd.grad(after.square().sum(), table)
    assert bool(grad[29].any())  # it learns from both of its uses
