"""Text families against transformers': equal logits, hidden states and attention maps, and folders both open."""

from __future__ import annotations

import itertools
import json
import logging
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError
from glassformer.families import FAMILIES
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)

B, T = 5, 13
LENGTHS = (13, 1, 7, 11, 3)
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
KINDS = [
    name
    for name, family in FAMILIES.items()
    if family.hub
    and family.model.reads == "texts"
    and family.hub.classes[None] != "BertModel"
    and name in transformers.CONFIG_MAPPING  # others have no peer
]
DRAWS = range(11)
CASES = pytest.mark.parametrize(("kind", "draw"), list(itertools.product(KINDS, DRAWS)))
FEW = pytest.mark.parametrize(("kind", "draw"), list(itertools.product(KINDS, DRAWS[:4])))


def sizes_of(kind: str, draw: int) -> dict[str, Any]:
    """Random prime sizes in the words of a kind's config.json, so that no axis can be taken for another."""
    rng = random.Random(f"{kind} {draw}")
    heads = rng.choice(PRIMES[:6])
    width, layers, d_ff = (
        heads * rng.choice((3, 5, 7)),
        rng.choice((1, 2, 3, 5)),
        rng.choice((23, 29, 31, 37)),
    )
    activation = rng.choice(("gelu", "relu", "gelu_new") if kind != "distilbert" else ("gelu", "relu"))
    shared = {"vocab_size": rng.choice((101, 103, 107)), "initializer_range": 0.2}
    if kind == "distilbert":
        return shared | {
            "dim": width,
            "n_layers": layers,
            "n_heads": heads,
            "hidden_dim": d_ff,
            "activation": activation,
            "max_position_embeddings": rng.choice((13, 17, 23)),
            "sinusoidal_pos_embds": draw % 3 == 0,
            "seq_classif_dropout": 0.3,
            "dropout": 0.2,
        }
    both = shared | {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": d_ff,
        "hidden_act": activation,
        "max_position_embeddings": rng.choice((19, 23)),
        "layer_norm_eps": rng.choice((1e-12, 1e-5)),
    }
    if kind == "mpnet":
        return both
    return both | {
        "pad_token_id": draw % 4,
        "type_vocab_size": rng.choice((1, 1, 2)),
        "classifier_dropout": 0.3 if draw % 2 else None,
    }


def peer_of(kind: str, draw: int, head: str | None = None, pooler: bool = True, **extra: Any) -> Any:
    """A random model of transformers; biases and norms moved off 0 and 1, which would hide a swapped pair."""
    torch.manual_seed(100 + draw)
    config = transformers.CONFIG_MAPPING[kind](**sizes_of(kind, draw), **extra)
    config._attn_implementation = "eager"
    has_pooler = head is None and "pooling.dense" in FAMILIES[kind].hub.names.encoder
    options = {"add_pooling_layer": pooler} if has_pooler else {}
    model = getattr(transformers, FAMILIES[kind].hub.classes[head])(config, **options)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not (getattr(config, "sinusoidal_pos_embds", False) and "position_embeddings" in name):
                p.add_(0.1 * torch.randn_like(p))
    return model.eval()


@dataclass
class Asked:
    ids: torch.Tensor
    mask: torch.Tensor

    @staticmethod
    def of(config: Any) -> Asked:
        """Padded with the kind's own padding token, which stands nowhere else."""
        generator = torch.Generator().manual_seed(config.vocab_size)
        ids = torch.randint(0, config.vocab_size - 1, (B, T), generator=generator)
        ids += ids >= config.pad_token_id
        mask = (torch.arange(T) < torch.tensor(LENGTHS)[:, None]).long()
        return Asked(torch.where(mask.bool(), ids, config.pad_token_id), mask)

    def packed(self, model: Any) -> Any:
        return model(self.ids[self.mask.bool()], packing=gf.Packing(LENGTHS))


def close(ours, theirs, mask=None):
    if mask is not None:
        ours, theirs = ours[mask.bool()], theirs[mask.bool()]
    assert ours.shape == theirs.shape
    largest = max(1.0, float(theirs.detach().abs().max()))  # logits of 4 and more have coarser last bits
    assert float((ours - theirs).detach().abs().max()) <= 1e-5 * largest


@CASES
def test_states_maps_and_pooler(kind, draw, tmp_path):
    peer = peer_of(kind, draw, pooler=draw % 2 == 0)
    peer.save_pretrained(tmp_path)
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    with torch.no_grad():
        theirs = peer(asked.ids, asked.mask, output_hidden_states=True, output_attentions=True)
        ours = model(asked.ids, asked.mask, trace=Trace(attentions=True, hidden_states=True))
        close(asked.packed(model).last_hidden_state, ours.last_hidden_state[asked.mask.bool()])
    close(ours.last_hidden_state, theirs.last_hidden_state, asked.mask)
    assert len(theirs.hidden_states) == len(theirs.attentions) + 1 == model.config.encoder.num_layers + 1
    for i, state in enumerate(theirs.hidden_states):
        close(ours.trace.hidden_states[i], state, asked.mask)
    for i, maps in enumerate(theirs.attentions):
        # Rows of padding are computed there and left out here.
        close(ours.trace.attentions[i].transpose(1, 2), maps.transpose(1, 2), asked.mask)
    pooled = getattr(theirs, "pooler_output", None)
    assert (pooled is None) == (ours.pooler_output is None)
    if pooled is not None:
        close(ours.pooler_output, pooled)


@CASES
def test_classifiers_both_ways(kind, draw, tmp_path):
    peer = peer_of(kind, draw, "classification", num_labels=3 + draw % 3)
    peer.save_pretrained(tmp_path / "theirs")
    model, asked = gf.load_pretrained(tmp_path / "theirs"), Asked.of(peer.config)
    ours, theirs = model(asked.ids, asked.mask).logits, peer(asked.ids, asked.mask).logits
    close(ours, theirs)
    with torch.no_grad():
        close(asked.packed(model).logits, ours)
    weights = torch.randn_like(ours)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    table = peer.get_input_embeddings().weight.grad
    size = max(
        1.0, float(table.abs().max())
    )  # gradients are of any size, and the rounding of fp32 grows with it
    close(model.embeddings.tokens.weight.grad / size, table / size)

    gf.save_pretrained(model, tmp_path / "ours")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    assert type(again) is type(peer)
    with torch.no_grad():
        close(again(asked.ids, asked.mask).logits, theirs)
        close(gf.load_pretrained(tmp_path / "ours")(asked.ids, asked.mask).logits, theirs)
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    for key in before.keys() - {"distilbert.embeddings.position_embeddings.weight"}:
        assert torch.equal(before[key], after[key]), key
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    wrote = json.loads((tmp_path / "ours" / "config.json").read_text())
    for key in sizes_of(kind, draw):
        if said[key] is not None and "act" not in key:
            assert wrote[key] == said[key], key


@CASES
def test_masked_words_both_ways(kind, draw, tmp_path):
    peer = peer_of(kind, draw, "mlm")
    peer.save_pretrained(tmp_path / "theirs")
    model, asked = gf.load_pretrained(tmp_path / "theirs"), Asked.of(peer.config)
    assert model.config.head == "mlm"
    with torch.no_grad():
        theirs = peer(asked.ids, asked.mask).logits
        ours = model(asked.ids, asked.mask)
        close(ours.logits, theirs, asked.mask)
        close(asked.packed(model).logits, ours.logits[asked.mask.bool()])
    gf.save_pretrained(model, tmp_path / "ours")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    assert type(again) is type(peer)
    with torch.no_grad():
        close(again(asked.ids, asked.mask).logits, theirs, asked.mask)


@FEW
def test_the_encoder_alone_opens_there(kind, draw, tmp_path):
    peer = peer_of(kind, draw, pooler=draw % 2 == 0)
    peer.save_pretrained(tmp_path / "theirs")
    gf.save_pretrained(gf.load_pretrained(tmp_path / "theirs"), tmp_path / "ours")
    again, asked = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval(), Asked.of(peer.config)
    with torch.no_grad():
        theirs, ours = peer(asked.ids, asked.mask), again(asked.ids, asked.mask)
    close(ours.last_hidden_state, theirs.last_hidden_state, asked.mask)
    if getattr(theirs, "pooler_output", None) is not None:
        close(ours.pooler_output, theirs.pooler_output)


@FEW
def test_a_head_of_ours_stands_beside_an_encoder_that_opens_there(kind, draw, tmp_path):
    peer = peer_of(kind, draw)
    peer.save_pretrained(tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs").with_head(
        head="classification", pooling="mean", num_labels=3
    )
    gf.save_pretrained(model.eval(), tmp_path / "ours")
    again, asked = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval(), Asked.of(peer.config)
    with torch.no_grad():
        states = peer(asked.ids, asked.mask).last_hidden_state
        close(again(asked.ids, asked.mask).last_hidden_state, states, asked.mask)
        read = gf.load_pretrained(tmp_path / "ours")
        assert read.config == model.config
        close(read(asked.ids, asked.mask).logits, model(asked.ids, asked.mask).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_of_its_own_is_refused(kind, tmp_path):
    peer = peer_of(kind, 1, "mlm")
    peer.save_pretrained(tmp_path)
    tensors = read_tensors(tmp_path)
    weight, *others = FAMILIES[kind].hub.names.tied
    table = peer.get_input_embeddings().weight.detach()
    write_tensors(
        tmp_path,
        tensors | {weight: table} | {key: tensors[FAMILIES[kind].hub.names.tied[key]] for key in others},
    )
    gf.load_pretrained(tmp_path)
    write_tensors(tmp_path, tensors | {weight: table + 1.0})
    with pytest.raises(CheckpointError, match=f"{weight} differs from .*untied heads are not supported"):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pad_token_id": 22}, "pad_token_id = 22 with 23 rows of positions"),
        ({"pad_token_id": -1}, "pad_token_id = -1"),
        ({"pad_token_id": "one"}, "pad_token_id = 'one'"),
        (
            {"pad_token_id": None},
            r"config\.json: pad_token_id = None .*Set it to the id of the tokenizer's padding",
        ),
        ({"num_attention_heads": 10007}, r"config\.json: .* is not a multiple of num_heads 10007"),
        ({"is_decoder": True}, "is_decoder = True is not supported"),
        ({"hidden_act": "swish"}, "hidden_act = 'swish'"),
    ],
)
def test_roberta_s_settings_that_cannot_be(change, said, tmp_path):
    peer_of("roberta", 1).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text()) | {"max_position_embeddings": 23} | change
    file.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_chooses_among_texts_is_refused_as_one(kind, tmp_path):
    name = FAMILIES[kind].hub.classes[None].removesuffix("Model") + "ForMultipleChoice"
    config = transformers.CONFIG_MAPPING[kind](**sizes_of(kind, 1))
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=rf"config\.json: a head that chooses .* \('{name}'\) is not supported"
    ):
        gf.load_pretrained(tmp_path)


def test_dropout_falls_where_theirs_does(tmp_path):
    """RoBERTa's head drops before and behind its dense layer; a model that is tuned starts without dropout."""
    peer_of("roberta", 1, "classification", num_labels=3).save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path)
    assert model.pooling.dropout.p == model.head.dropout.p == 0.3
    alone = gf.load_pretrained(tmp_path).with_head(head=None)
    assert alone.pooling.dropout.p == 0.0
    seen: list[torch.Tensor] = []
    model.train().pooling.dense.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.pooling(torch.ones(41, model.config.encoder.d_model), gf.Packing.uniform(41, 1))
    assert 0.1 < float((seen[0] == 0).float().mean()) < 0.4


def test_sines_and_cosines_that_are_none_are_refused(tmp_path):
    peer_of("distilbert", 0).save_pretrained(tmp_path)
    name, tensors = "embeddings.position_embeddings.weight", read_tensors(tmp_path)
    model = gf.load_pretrained(tmp_path)
    assert model.config.embedding.positions == "sinusoidal"
    assert not [key for key in model.state_dict() if "position" in key]
    write_tensors(tmp_path, tensors | {name: tensors[name].half()})
    gf.load_pretrained(tmp_path)
    for wrong in (tensors[name] + 0.01, tensors[name][:-1], tensors[name] * float("nan")):
        write_tensors(tmp_path, tensors | {name: wrong})
        with pytest.raises(CheckpointError, match=r"are no sines and cosines.*Set it to false"):
            gf.load_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"sinusoidal_pos_embds": 1}))
    with pytest.raises(CheckpointError, match="sinusoidal_pos_embds = 1 is no truth value"):
        gf.load_pretrained(tmp_path)
