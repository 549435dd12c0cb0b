"""Low-rank updates: the formula, what learns, and the limits of the rank."""

import pytest
import torch
from torch import nn

from glassformer.errors import ConfigError
from glassformer.nn import Encoder, EncoderConfig
from glassformer.nn.lora import (
    ALL_PARTS,
    PARTS,
    LowRank,
    adapter,
    add_lora,
    merge,
    part_weights,
    select_parts,
)
from glassformer.packing import Packing

D = 14


def whole(layers: int) -> nn.ModuleDict:
    torch.manual_seed(layers)
    encoder = Encoder(EncoderConfig(D, layers, 2, 23, "post", "gelu", 1e-5))
    return nn.ModuleDict({"embeddings": nn.Embedding(5, D), "encoder": encoder, "head": nn.Linear(D, 3)})


def test_the_sum_is_the_papers():
    torch.manual_seed(0)
    low, weight = LowRank(D, 3, 5.0), torch.randn(3 * D, D)
    torch.testing.assert_close(low(weight), weight)  # at first nothing changes
    for part in PARTS:
        nn.init.normal_(low.up[part])
        assert low.down[part].abs().max() > 0
    wanted = weight.clone()
    wanted[:D] += 5 / 3 * low.up["query"] @ low.down["query"]
    wanted[2 * D :] += 5 / 3 * low.up["value"] @ low.down["value"]
    torch.testing.assert_close(low(weight), wanted)


@pytest.mark.parametrize("layers", [1, 3])
def test_only_the_updates_and_the_head_learn_and_they_can_be_merged(layers):
    model = whole(layers)
    add_lora(model, 2)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(learning) == 2 + 4 * layers
    assert all(("parametrizations" in name and "original" not in name) or "head" in name for name in learning)
    found = adapter(model)
    assert set(found) == {f"{i}.{part}.{side}" for i in range(layers) for part in PARTS for side in "AB"}
    assert found["0.query.A"].shape == found["0.value.B"].T.shape == (2, D)
    assert model["encoder"].layers[0].attention.qkv.parametrizations.weight[0].scale == 8
    for name, p in model.named_parameters():
        if ".up." in name:
            nn.init.normal_(p, std=0.1)
    assert not found["0.query.B"].any()  # a copy
    packing = Packing((3, 4))
    x = torch.randn(7, D)
    before = model["encoder"](x, packing)
    merge(model)
    assert adapter(model) == {}
    torch.testing.assert_close(model["encoder"](x, packing), before)
    merge(model)  # a plain model stays what it is


@pytest.mark.parametrize("rank", [0, -1, D + 1])
def test_ranks_that_are_none(rank):
    with pytest.raises(ConfigError, match=f"lora_rank = {rank} is not from 1 to the width 14"):
        add_lora(whole(1), rank)


@pytest.mark.parametrize("rank", [1, D])
def test_the_least_and_the_largest_rank(rank):
    model = whole(1)
    add_lora(model, rank)
    assert adapter(model)["0.value.A"].shape == (rank, D)


@pytest.mark.parametrize(
    ("targets", "parts"),
    [
        (("q", "v"), ("query", "value")),
        ("v, q", ("query", "value")),
        (["key", "k", "o"], ("key", "out")),
        (("down",), ("down",)),
        ("output,up", ("out", "up")),
        ("all-linear", ALL_PARTS),
        (("q", "all-linear"), ALL_PARTS),
    ],
)
def test_names_of_layers(targets, parts):
    assert select_parts(targets) == parts


def test_names_that_are_none():
    with pytest.raises(
        ConfigError, match=r"lora_targets: unknown linear layer 'valeu'\. Did you mean 'value'"
    ):
        select_parts(("q", "valeu"))
    for none in ((), "", ("q", ""), (3,)):
        with pytest.raises(ConfigError, match="lora_targets"):
            select_parts(none)


@pytest.mark.parametrize("targets", [*ALL_PARTS, "all-linear", ("k", "o"), ("up", "down", "q")])
def test_every_linear_layer_can_have_updates(targets):
    model, parts = whole(2), select_parts(targets)
    plain = {name: block.clone() for name, block in part_weights(model).items()}
    torch.manual_seed(4)
    add_lora(model, 3, 5.0, targets)
    packing, x = Packing((3, 4)), torch.randn(7, D)
    start = model["encoder"](x, packing)
    for name, p in model.named_parameters():
        if ".up." in name and "parametrizations" in name and "original" not in name:
            nn.init.normal_(p, std=0.3)
    found = adapter(model)
    assert {key.split(".")[1] for key in found} == set(parts)
    changed = model["encoder"](x, packing)
    assert (changed - start).abs().max() > 0.01
    merge(model)
    torch.testing.assert_close(model["encoder"](x, packing), changed)
    for name, block in part_weights(model).items():
        wanted = plain[name]
        if name.split(".")[1] in parts:
            wanted = wanted + 5 / 3 * found[f"{name}.B"] @ found[f"{name}.A"]
        torch.testing.assert_close(block, wanted)
