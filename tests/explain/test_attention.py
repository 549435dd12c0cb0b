"""Attention maps and rollout of one text: against sums written out, and on networks whose answer is known."""

import numpy as np
import pytest
import torch

from glassformer import TextClassifier
from glassformer.errors import DataError, InputError
from glassformer.explain.attention import rollout
from glassformer.nn import Trace
from glassformer.packing import Packing

TEXTS = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"] * 4
LABELS = ["pos", "neg"] * 8
TINY = {"model": "encoder-mini", "d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 3, "dropout": 0.0,
        "max_length": 13, "min_count": 1, "epochs": 2, "lr": 1e-2, "batch_size": 5, "precision": "fp32"}  # fmt: skip
BROKEN = "attention"
POOLINGS = ["first", "mean", "max", "pooler", BROKEN]


@pytest.fixture(scope="module")
def clf():
    return TextClassifier(**TINY).fit(TEXTS, LABELS)


def with_pooling(kind):
    return TextClassifier(**(TINY | {"pooling": kind})).fit(TEXTS, LABELS)


def maps_of(clf, ids):
    out = clf.model_(torch.tensor(ids), packing=Packing((len(ids),)), trace=Trace(True, hidden_states=[-1]))
    return np.stack([m[0].detach().numpy() for m in out.trace.attentions]), out.last_hidden_state.detach()


def read_by(clf, states):
    """How much of each row the head reads."""
    kind, n = clf.pooling if clf.pooling != "auto" else "first", len(states)
    if kind in ("first", "pooler"):
        return np.eye(n)[0]
    if kind == "attention":
        return torch.softmax(clf.model_.pooling.score(states)[:, 0], 0).detach().numpy()
    return np.full(n, 1 / n)


# --- rollout on paper -----------------------------------------------------------------------------


def test_rollout_on_paper():
    maps = np.random.default_rng(1).dirichlet(np.ones(5), (1, 3, 5))  # [L, H, T, T]
    np.testing.assert_allclose(rollout(maps), 0.5 * maps[0].mean(0) + 0.5 * np.eye(5))
    # it multiplies from the last layer down
    rng = np.random.default_rng(2)
    maps = rng.dirichlet(np.ones(5), (3, 2, 5))
    first, second, third = (0.5 * m.mean(0) + 0.5 * np.eye(5) for m in maps)
    np.testing.assert_allclose(rollout(maps), third @ second @ first)
    np.testing.assert_allclose(rollout(maps).sum(1), 1.0)
    maps = np.tile(np.eye(7), (4, 2, 1, 1))
    np.testing.assert_allclose(rollout(maps), np.eye(7))
    # Row 2 looks at row 1, row 1 at row 0: two layers carry a quarter of row 0 to row 2.
    step = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    flow = rollout(np.tile(step, (2, 1, 1, 1)))
    np.testing.assert_allclose(flow[2], [0.25, 0.5, 0.25])
    np.testing.assert_allclose(flow[1], [0.75, 0.25, 0.0])
    # rows of which all is left out
    rng = np.random.default_rng(0)
    maps = rng.dirichlet(np.full(11, 0.2), (3, 2, 11))  # [L, H, T, T], most of the weight on a few
    for residual in (0.0, 0.5):
        flow = rollout(maps, residual=residual, discard=0.9)
        np.testing.assert_allclose(flow.sum(-1), 1.0, atol=1e-9)


# --- of a classifier ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["attention", "rollout"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_scores_are_what_reaches_the_rows_that_the_head_reads(pooling, method):
    clf = with_pooling(pooling)
    text = "wonderful , a dull film"
    e = clf.explain(text, method=method)
    ids = clf.encode([text])[0].tolist()
    maps, states = maps_of(clf, ids)
    flow = maps[-1].mean(0)
    if method == "rollout":
        flow = np.eye(len(ids))
        for layer in maps:
            flow = (layer.mean(0) + np.eye(len(ids))) / 2 @ flow
    np.testing.assert_allclose(e.scores, read_by(clf, states) @ flow, atol=1e-6)
    np.testing.assert_allclose(e.maps, maps, atol=1e-6)
    assert e.scores.sum() == pytest.approx(1.0, abs=1e-5)
    assert (e.scores >= 0).all()
    assert e.maps.shape == (3, 2, 7, 7)
    assert (e.method, e.target, e.error) == (method, None, None)


def test_it_explains_the_prediction_that_predict_makes(clf):
    for text in TEXTS[:4]:
        e = clf.explain(text)
        assert e.label == clf.predict([text])[0]
        proba = clf.predict_proba([text])[0]
        assert e.probability == pytest.approx(proba[clf.classes_.tolist().index(e.label)], abs=1e-6)
    # to explain changes nothing
    before, state = clf.predict_proba(TEXTS), torch.get_rng_state()
    first, second = clf.explain(TEXTS[0]), clf.explain(TEXTS[0])
    np.testing.assert_array_equal(first.scores, second.scores)
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not clf.model_.training


def test_threshold_and_temperature_count():
    clf = with_pooling("mean")
    plain = clf.explain(TEXTS[0])
    proba = clf.predict_proba([TEXTS[0]])[0, 1]
    clf.threshold_ = float(proba) + (-0.01 if plain.label == "neg" else 0.01)  # just the other side
    other = clf.explain(TEXTS[0])
    assert other.label == clf.predict([TEXTS[0]])[0] != plain.label
    assert other.probability == pytest.approx(1 - plain.probability, abs=1e-6)
    clf.threshold_, clf.temperature_ = None, 3.0
    cooler = clf.explain(TEXTS[0])
    assert cooler.probability == pytest.approx(clf.predict_proba([TEXTS[0]]).max(), abs=1e-6)
    assert cooler.probability < plain.probability


def test_a_model_that_looks_at_one_word_only():
    """Keys made to point at one token: its score must be 1."""
    clf = with_pooling("first")
    word = clf.tokenizer_.token_to_id("dull")
    with torch.no_grad():
        model = clf.model_
        model.embeddings.tokens.weight.zero_()
        model.embeddings.tokens.weight[word, :] = torch.arange(22.0)
        for layer in model.encoder.layers:
            layer.norm1.weight.fill_(1.0)
            layer.norm1.bias.zero_()
            layer.attention.qkv.weight.zero_()
            layer.attention.qkv.bias.zero_()
            layer.attention.qkv.bias[:22] = 100.0  # the same query everywhere
            layer.attention.qkv.weight[22:44] = torch.linspace(-1, 1, 22)  # a key that grows with the token
            for linear in (layer.attention.out, layer.feed_forward.down):
                linear.weight.zero_()
                linear.bias.zero_()
    e = clf.explain("a dull film", method="attention")
    assert e.tokens[int(e.scores.argmax())] == "dull"
    assert e.scores.max() > 0.99


# --- tokens and their places ----------------------------------------------------------------------


def test_tokens_and_offsets(clf):
    text = "It was  NOT dull, zyzzyva!"
    e = clf.explain(text, method="attention")
    assert e.text == text
    assert e.tokens == ["[CLS]", "it", "was", "not", "dull", ",", "[UNK]", "[UNK]", "[SEP]"]
    places = [text[a:b] for a, b in e.offsets]
    assert places == ["", "It", "was", "NOT", "dull", ",", "zyzzyva", "!", ""]
    assert len(e.scores) == len(e.tokens) == e.maps.shape[-1]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("words", [1, 10, 11, 12, 13, 14, 40])
def test_long_texts_are_cut_as_in_training(special, words):
    clf = TextClassifier(**(TINY | {"add_special_tokens": special, "epochs": 1})).fit(TEXTS, LABELS)
    text = " ".join(["film", "dull", "a", "it"][i % 4] for i in range(words))
    e = clf.explain(text)
    room = 11 if special else 13
    shown = text.split()[:room]
    assert e.tokens == (["[CLS]", *shown, "[SEP]"] if special else shown)
    ids = clf.encode([text])[0].tolist()
    assert [clf.tokenizer_.token_to_id(token) for token in e.tokens] == ids
    inside = e.offsets[1:-1] if special else e.offsets
    assert [text[a:b] for a, b in inside] == shown


def test_text_is_shown_as_the_model_saw_it():
    clf = TextClassifier(**(TINY | {"clean": "words"})).fit(TEXTS, LABELS)
    e = clf.explain("a <br /> dull -- film!")
    assert e.text == "a dull film"
    assert e.tokens == ["[CLS]", "a", "dull", "film", "[SEP]"]
    assert [e.text[a:b] for a, b in e.offsets] == ["", "a", "dull", "film", ""]
    # a text without a token
    clf = TextClassifier(**(TINY | {"clean": "words", "add_special_tokens": False})).fit(TEXTS, LABELS)
    e = clf.explain("!!!", method="attention")
    assert e.tokens == ["[UNK]"]
    assert e.scores.tolist() == [1.0]
    assert e.label == clf.predict(["!!!"])[0]


# --- errors ---------------------------------------------------------------------------------------


def test_what_cannot_be_explained(clf):
    for options, said in (
        ({"method": "rolout"}, "'rolout'.*'rollout'"),
        ({"method": "attention", "target": "pos"}, "attention has no target"),
        ({"method": "rollout", "target": "pos"}, "rollout has no target"),
    ):
        with pytest.raises(InputError, match=said):
            clf.explain("a film", **options)
    for text in ("", "  ", None, 3):
        with pytest.raises(DataError):
            clf.explain(text)
