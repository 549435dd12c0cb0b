"""The recurrent and convolutional classifiers: packed = padded = one by one, and equal to torch's own layers."""

import pytest
import torch
from torch import nn

import glassformer as gf
from glassformer.errors import ConfigError, ShapeError
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.textcnn import TextCnn, TextCnnConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.packing import Packing

V, E, D, C = 31, 7, 11, 3
LENGTHS = (13, 1, 5, 7, 3)
PACKING = Packing(LENGTHS)
IDS = torch.randint(0, V, (PACKING.total,), generator=torch.Generator().manual_seed(23))
IDS[::6] = 2  # a special token, which is trained where words are frozen


def embedding(**options) -> EmbeddingConfig:
    return EmbeddingConfig(V, E, "none", segments=0, norm=False, **options)


CONFIGS = {
    "lstm": RnnConfig(embedding(), "lstm", D, 2, True, num_labels=C, embedding_std=1.0),
    "gru, one way": RnnConfig(embedding(), "gru", D, 1, False, num_labels=C, embedding_std=1.0),
    "lstm, max": RnnConfig(embedding(), "lstm", D, 1, True, pooling="max", num_labels=C, embedding_std=1.0),
    "gru, attention": RnnConfig(
        embedding(), "gru", D, 1, True, pooling="attention", num_labels=C, embedding_std=1.0
    ),
    "textcnn": TextCnnConfig(
        embedding(), 5, (2, 3, 4), 0.0, num_labels=C, head_type="mlp", embedding_std=1.0
    ),
    "frozen": TextCnnConfig(embedding(frozen=True), 5, (3,), 0.0, num_labels=C, embedding_std=1.0),
}
BLIND = "pooling.score.bias"  # a softmax does not see what is added to all of its scores


@pytest.fixture(params=CONFIGS)
def model(request) -> Rnn | TextCnn:
    torch.manual_seed(3)
    config = CONFIGS[request.param]
    return (Rnn(config) if isinstance(config, RnnConfig) else TextCnn(config)).eval()


def padded_ids(left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = torch.full((5, 17), 2), torch.zeros(5, 17, dtype=torch.long)
    for b, (start, n) in enumerate(zip(PACKING.starts, LENGTHS, strict=True)):
        place = slice(17 - n, 17) if left else slice(1, n + 1)
        ids[b, place], mask[b, place] = IDS[start : start + n], 1
    return ids, mask


def test_padded_equals_packed_equals_one_by_one(model):
    wanted = model(IDS, packing=PACKING)
    for left in (False, True):
        ids, mask = padded_ids(left)
        out = model(ids, mask)
        torch.testing.assert_close(out.logits, wanted.logits, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            out.last_hidden_state[mask.bool()], wanted.last_hidden_state, atol=1e-6, rtol=0
        )
        assert not out.last_hidden_state[~mask.bool()].any()
    for b, part in enumerate(PACKING.split(IDS)):
        one = model(part, packing=Packing((len(part),)))
        torch.testing.assert_close(one.logits[0], wanted.logits[b], atol=1e-6, rtol=0)


def test_every_trained_parameter_receives_a_gradient(model):
    model.train()
    model(IDS, packing=PACKING).logits.square().sum().backward()
    idle = {
        n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
    }
    assert not idle - {BLIND}
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    assert frozen == (["embeddings.tokens.weight"] if model.config.embedding.frozen else [])


def test_errors(model):
    with pytest.raises(ShapeError, match=r"\[B, T\]"):
        model(IDS)
    with pytest.raises(ShapeError, match="attention_mask"):
        model(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 2))
    with pytest.raises(ConfigError, match="no attention"):
        model(IDS, packing=PACKING, trace=gf.Trace(attentions=True))


def test_an_lstm_is_torchs_own_one_by_one():
    torch.manual_seed(5)
    model = Rnn(CONFIGS["lstm"]).eval()
    theirs = nn.LSTM(E, D, 2, bidirectional=True)
    theirs.load_state_dict(model.encoder.rnn.state_dict())
    out = model(IDS, packing=PACKING)
    states = PACKING.split(out.last_hidden_state)
    for b, ids in enumerate(PACKING.split(IDS)):
        rows, (h, _) = theirs(model.embeddings.tokens(ids)[:, None])
        torch.testing.assert_close(states[b], rows[:, 0], atol=1e-6, rtol=0)
        torch.testing.assert_close(out.pooler_output[b], torch.cat([h[-2, 0], h[-1, 0]]), atol=1e-6, rtol=0)


def test_a_textcnn_is_torchs_convolution_one_by_one():
    torch.manual_seed(7)
    model = TextCnn(CONFIGS["textcnn"]).eval()
    out = model(IDS, packing=PACKING)
    for b, ids in enumerate(PACKING.split(IDS)):
        x = model.embeddings.tokens(ids).T[None]  # [1, E, T]
        found = []
        for layer in model.encoder:
            left = (layer.width - 1) // 2
            line = nn.functional.pad(x, (left, layer.width - 1 - left))
            found.append(layer.conv(line).relu().amax(2)[0])
        torch.testing.assert_close(out.pooler_output[b], torch.cat(found), atol=1e-6, rtol=0)


def test_settings_that_cannot_be():
    with pytest.raises(ConfigError, match="first pooling is only for Transformers"):
        RnnConfig(embedding(), pooling="first")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"filters cannot have the widths \(\)"):
        TextCnnConfig(embedding(), widths=())


def test_special_tokens_learn_while_words_stay():
    torch.manual_seed(11)
    model = TextCnn(CONFIGS["frozen"])
    ids = torch.tensor([0, 2, 4, 5, 9])
    model(ids, packing=Packing((5,))).logits.sum().backward()
    assert model.embeddings.special is not None
    grad = model.embeddings.special.weight.grad
    assert grad is not None
    assert grad[[0, 2, 4]].any(1).all()
    assert not grad[[1, 3]].any()
    assert model.embeddings.tokens.weight.grad is None
