"""MPNet against transformers' at lengths that meet every bucket of distances, and at its real weights."""

from __future__ import annotations

import json
import random

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors
from glassformer.errors import CheckpointError
from glassformer.families.mpnet import mpnet
from glassformer.models.text import TextEncoder
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
LENGTHS = (131, 2, 67, 1, 101)  # distances up to 130: all 32 buckets
HEADS = {
    "classification": "SequenceClassification",
    "tokens": "TokenClassification",
    "spans": "QuestionAnswering",
}
TABLE = "encoder.relative_attention_bias.weight"


def peer_of(draw: int, kind: str = "Model", **extra):
    """A random model of transformers in prime sizes, whose table of biases says much."""
    rng = random.Random(draw)
    heads = rng.choice((2, 3, 5, 7))
    config = transformers.MPNetConfig(
        vocab_size=rng.choice((101, 103)),
        hidden_size=heads * rng.choice((3, 5, 16)),
        num_attention_heads=heads,
        num_hidden_layers=rng.choice((1, 2, 3)),
        intermediate_size=rng.choice((23, 29)),
        initializer_range=0.2,
        max_position_embeddings=139,
        layer_norm_eps=rng.choice((1e-12, 1e-5)),
        hidden_dropout_prob=0.3,
        hidden_act=rng.choice(("gelu", "relu", "gelu_new")),
        **extra,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(draw)
    model = getattr(transformers, f"MPNet{kind}")(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_((1.0 if "relative" in name else 0.1) * torch.randn_like(p))
    return model


def asked(vocabulary: int):
    """Ids ``[B, T]`` right-padded, and their mask; the padding token stands nowhere else."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(2, vocabulary, mask.shape, generator=torch.Generator().manual_seed(vocabulary))
    return torch.where(mask, ids, 1), mask


def furthest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, by the larger of 1 and the numbers themselves."""
    assert a.shape == b.shape
    return float((a - b).detach().abs().max() / max(1.0, float(b.detach().abs().max())))


@pytest.mark.parametrize("draw", range(11))
def test_states_maps_and_gradients_of_long_texts(draw, tmp_path):
    peer = peer_of(draw)
    peer.save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path)
    ids, mask = asked(peer.config.vocab_size)
    theirs = peer(ids, mask.long(), output_hidden_states=True, output_attentions=True)
    trace = Trace(attentions=True, hidden_states=True)
    ours = model(ids[mask], packing=gf.Packing(LENGTHS), trace=trace)
    assert furthest(ours.last_hidden_state, theirs.last_hidden_state[mask]) <= 1e-5
    assert furthest(model(ids, mask).last_hidden_state[mask], theirs.last_hidden_state[mask]) <= 1e-5
    for i, state in enumerate(theirs.hidden_states):
        assert furthest(ours.trace.hidden_states[i], state[mask]) <= 1e-5
    for i, maps in enumerate(theirs.attentions):
        for b, n in enumerate(LENGTHS):
            assert furthest(ours.trace.attentions[i][b], maps[b, :, :n, :n]) <= 1e-5
    weights = torch.randn(ours.last_hidden_state.shape, generator=torch.Generator().manual_seed(3))
    (model(ids[mask], packing=gf.Packing(LENGTHS)).last_hidden_state * weights).sum().backward()
    (theirs.last_hidden_state[mask] * weights).sum().backward()
    wanted = {name: p.grad for name, p in peer.named_parameters() if p.grad is not None}
    for ours_, theirs_ in (
        (model.encoder.relative.weight, TABLE),
        (model.embeddings.tokens.weight, "embeddings.word_embeddings.weight"),
    ):
        gradient = wanted[theirs_]
        assert bool(gradient.any(1).sum() > 29)  # buckets that are met
        assert float((ours_.grad - gradient).abs().max() / gradient.abs().max()) <= 1e-4


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("draw", range(4))
def test_heads_both_ways(head, draw, tmp_path):
    peer = peer_of(draw, f"For{HEADS[head]}", num_labels=2 if head == "spans" else 5)
    peer.save_pretrained(tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs")
    ids, mask = asked(peer.config.vocab_size)

    def answers(one):
        out = one(ids, mask.long())
        logits = torch.stack([out.start_logits, out.end_logits], 2) if head == "spans" else out.logits
        return logits if head == "classification" else logits[mask]

    with torch.no_grad():
        theirs = answers(peer)
        assert furthest(model(ids[mask], packing=gf.Packing(LENGTHS)).logits, theirs) <= 1e-5
        gf.save_pretrained(model, tmp_path / "ours")
        again, info = type(peer).from_pretrained(tmp_path / "ours", output_loading_info=True)
        assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        assert furthest(answers(again.eval()), theirs) <= 1e-5
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("key", "value"), [("pad_token_id", 0), ("pad_token_id", None), ("relative_attention_num_buckets", 64)]
)
def test_settings_that_transformers_would_not_read_are_refused(key, value, tmp_path):
    gf.save_pretrained(TextEncoder(mpnet(31, 12, 1, 3, 17, 19)), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(CheckpointError, match=rf"config\.json: {key} = {value} is not supported"):
        gf.load_pretrained(tmp_path)


def test_half_precision_is_near_and_the_way_back_reaches_the_table():
    torch.manual_seed(7)
    model = TextEncoder(mpnet(31, 48, 2, 3, 77, 139, init_std=0.2, head="classification"))
    ids, packing = torch.randint(5, 31, (sum(LENGTHS),)), gf.Packing(LENGTHS)
    model.eval()(ids, packing=packing).logits.square().sum().backward()
    exact = model.encoder.relative.weight.grad.clone()
    model.zero_grad()
    model.set_compute_dtype(torch.bfloat16)(ids, packing=packing).logits.square().sum().backward()
    rough = model.encoder.relative.weight.grad
    assert rough.dtype == torch.float32
    assert float((rough - exact).norm() / exact.norm()) < 2**-4


def test_real_weights(weights_root):
    folder = weights_root / "all-mpnet-base-v2"
    peer = transformers.MPNetModel.from_pretrained(folder, attn_implementation="eager").eval()
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
