"""The key layouts of well-known checkpoints, built small from what their files hold: nothing is unexplained.

Sizes are small; every other value, every kind of key and every buffer is as published.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import write_tensors

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 101,
    "hidden_size": 15,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 23,
}
SMALL_DISTILLED = {"vocab_size": 101, "dim": 15, "n_layers": 2, "n_heads": 3, "hidden_dim": 23}
# As RoBERTa's own; 514 rows of positions hold 512 tokens.
ROBERTA = {
    "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
    "pad_token_id": 1, "type_vocab_size": 1,
}  # fmt: skip
DISTILLED = {
    "activation": "gelu", "attention_dropout": 0.1, "dropout": 0.1, "initializer_range": 0.02,
    "max_position_embeddings": 512, "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False, "tie_weights_": True,
}  # fmt: skip
NEWER = {"gradient_checkpointing": False, "position_embedding_type": "absolute", "use_cache": True}
IDS = "embeddings.position_ids"  # a buffer that older versions saved


@dataclass
class Published:
    """One checkpoint: its config, the class that it is opened with, and what its file holds beside that class's own."""

    kind: str
    made_as: str
    settings: dict[str, Any]
    beside: tuple[str, ...] = ()  # full names
    without: tuple[str, ...] = ()  # of the class's own
    head: str | None = None
    pooling: str | None = None
    positions: int = 512
    labels: tuple[str, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)


POOLER = ("roberta.pooler.dense.weight", "roberta.pooler.dense.bias")
DECODER = ("lm_head.decoder.weight", "lm_head.decoder.bias")
KNOWN = {
    "roberta-base": Published(
        "roberta",
        "RobertaForMaskedLM",
        ROBERTA,
        (*POOLER, f"roberta.{IDS}", "lm_head.decoder.weight"),
        head="mlm",
        pooling="pooler",
    ),
    "roberta-large": Published(
        "roberta",
        "RobertaForMaskedLM",
        ROBERTA,
        (*POOLER, f"roberta.{IDS}", *DECODER),
        head="mlm",
        pooling="pooler",
    ),
    "xlm-roberta-base": Published(
        "xlm-roberta",
        "XLMRobertaForMaskedLM",
        ROBERTA | NEWER | {"output_past": True},
        (*POOLER, f"roberta.{IDS}", *DECODER),
        head="mlm",
        pooling="pooler",
    ),
    "camembert-base": Published(
        "camembert",
        "CamembertForMaskedLM",
        ROBERTA | {"bos_token_id": 5, "eos_token_id": 6, "output_past": True},
        (*POOLER, f"roberta.{IDS}", "lm_head.decoder.weight"),
        head="mlm",
        pooling="pooler",
    ),
    "distilroberta-base": Published(
        "roberta", "RobertaForMaskedLM", ROBERTA, (*POOLER, f"roberta.{IDS}"), head="mlm", pooling="pooler"
    ),
    "phobert-base": Published(
        "roberta",
        "RobertaForMaskedLM",
        ROBERTA | {"max_position_embeddings": 258, "tokenizer_class": "PhobertTokenizer"},
        (*POOLER, f"roberta.{IDS}", *DECODER),
        head="mlm",
        pooling="pooler",
        positions=256,
    ),
    "all-distilroberta-v1": Published(
        "roberta", "RobertaModel", ROBERTA | NEWER | {"classifier_dropout": None}, (IDS,), pooling="pooler"
    ),
    "a fine-tuned roberta of older versions": Published(
        "roberta",
        "RobertaForSequenceClassification",
        ROBERTA | {"id2label": {"0": "negative", "1": "neutral", "2": "positive"}},
        (*POOLER, f"roberta.{IDS}"),
        head="classification",
        pooling="pooler",
        labels=("negative", "neutral", "positive"),
    ),
    "distilbert-base-uncased": Published(
        "distilbert", "DistilBertForMaskedLM", DISTILLED, ("vocab_projector.weight",), head="mlm"
    ),
    "distilbert-base-uncased-finetuned-sst-2-english": Published(
        "distilbert",
        "DistilBertForSequenceClassification",
        DISTILLED
        | {"finetuning_task": "sst-2", "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "output_past": True},
        (f"distilbert.{IDS}",),
        head="classification",
        pooling="first",
        labels=("NEGATIVE", "POSITIVE"),
    ),
}


def put(name: str, folder: Path) -> Any:
    """The files of a checkpoint; gives the model of transformers that wrote them."""
    known = KNOWN[name]
    small = SMALL_DISTILLED if known.kind == "distilbert" else SMALL
    settings = known.settings | small
    config = transformers.CONFIG_MAPPING[known.kind](**settings)
    torch.manual_seed(17)
    peer = getattr(transformers, known.made_as)(config).eval()
    tensors = dict(peer.state_dict())
    table = peer.get_input_embeddings().weight.detach()
    for key in known.beside:
        if key.endswith(IDS):
            tensors[key] = torch.arange(settings["max_position_embeddings"])[None]
        elif key.endswith(("decoder.weight", "projector.weight")):
            tensors[key] = table
        elif key == "lm_head.decoder.bias":
            tensors[key] = tensors["lm_head.bias"]
        else:
            tensors[key] = torch.randn(15, 15) if key.endswith("weight") else torch.randn(15)
    tied = {"lm_head.decoder.weight", "lm_head.decoder.bias", "vocab_projector.weight"}
    write_tensors(folder, {key: t for key, t in tensors.items() if key in known.beside or key not in tied})
    said = {"model_type": known.kind, "architectures": [known.made_as], **settings}
    (folder / "config.json").write_text(json.dumps(said))
    return peer


@pytest.mark.parametrize("name", KNOWN)
def test_no_key_is_unexplained_and_written_again_it_opens_there(name, tmp_path):
    (tmp_path / "theirs").mkdir()
    known, peer = KNOWN[name], put(name, tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs")
    config = model.config
    assert (config.head, config.pooling) == (known.head, known.pooling)
    assert config.embedding.max_positions == known.positions
    assert "random" not in model.weights_source
    gf.save_pretrained(model, tmp_path / "ours", label_names=known.labels)
    said = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (said["model_type"], said["architectures"]) == (known.kind, [known.made_as])
    again = getattr(transformers, known.made_as).from_pretrained(tmp_path / "ours").eval()
    ids = torch.randint(3, 101, (2, 7), generator=torch.Generator().manual_seed(3))
    what = "logits" if known.head else "last_hidden_state"
    with torch.no_grad():
        found, wanted, reopened = (getattr(one(ids), what) for one in (model, peer, again))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(reopened, wanted, atol=1e-5, rtol=0)
    if known.labels:
        assert config.num_labels == len(known.labels)
        assert tuple(again.config.id2label.values()) == known.labels
