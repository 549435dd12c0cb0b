"""The loss of BERT's two tasks against transformers' BertForPreTraining, with its gradients."""

import logging

import numpy as np
import pytest
import torch
from tests.shaken import shaken

import glassformer as gf
from glassformer.data.masking import MaskedBatch
from glassformer.packing import Packing
from glassformer.train.objectives import MaskedWords, masked_token_losses

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)

V = 101
PACKING = Packing((11, 5, 7, 2))


@pytest.fixture
def peer():
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=33,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=71,
        max_position_embeddings=17,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    return shaken(transformers.BertForPreTraining(config), 0.1)


def batch():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, V, (PACKING.total,), generator=generator)
    segments = torch.randint(0, 2, (PACKING.total,), generator=generator)
    rows = torch.tensor([1, 4, 10, 12, 17, 18, 24])
    labels = torch.randint(1, V, (len(rows),), generator=generator)
    return MaskedBatch(ids, segments, PACKING, rows, labels, torch.tensor([0, 1, 1, 0]), np.arange(4))


def test_loss_and_gradients_equal_those_of_transformers(peer, tmp_path):
    peer.save_pretrained(tmp_path)
    model, b = gf.load_pretrained(tmp_path), batch()
    labels = torch.full((PACKING.total,), -100)
    labels[b.rows] = b.labels
    found = peer(
        PACKING.pad(b.ids),
        PACKING.mask().long(),
        PACKING.pad(b.segments),
        labels=PACKING.pad(labels, -100),
        next_sentence_label=b.is_random_next,
    )
    theirs = found.loss
    losses, _, strangers, told = masked_token_losses(model, b)
    assert strangers is not None
    assert told is not None
    assert torch.equal(told, found.seq_relationship_logits.argmax(1) == b.is_random_next)
    ours = losses.mean() + strangers.mean()
    assert abs(float(ours.detach()) - float(theirs.detach())) <= 1e-5
    out = MaskedWords()(model, b)
    assert out.count == 7
    (out.loss / out.count).backward()
    theirs.backward()
    for mine, other in (
        (model.embeddings.tokens.weight, peer.bert.embeddings.word_embeddings.weight),
        (model.mlm.dense.weight, peer.cls.predictions.transform.dense.weight),
        (model.mlm.bias, peer.cls.predictions.bias),
        (model.nsp.weight, peer.cls.seq_relationship.weight),
        (model.pooling.dense.weight, peer.bert.pooler.dense.weight),
    ):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-4)
