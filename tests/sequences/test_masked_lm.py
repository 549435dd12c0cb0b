"""MaskedLM: learns, fills, saves, resumes, and is what a classifier starts from."""

import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer.data.corpus import europe_splits
from glassformer.errors import ConfigError, DataError

PLACES = {"paris": "france", "rome": "italy", "madrid": "spain", "tokyo": "japan", "oslo": "norway"}
TEXTS = [f"{city} is the capital of {land}." for city, land in PLACES.items()] * 8
TINY = values(
    "d_model=24 num_layers=1 num_heads=2 d_ff=31 vocab_size=200 max_length=16 max_positions=24 epochs=30"
)
TINY |= values("lr=1e-2 batch_tokens=96 precision=fp32 threads=1 min_count=1 tokenizer=word")


@pytest.fixture(scope="module")
def learner():
    return gf.MaskedLM(**TINY).fit(TEXTS, validation=TEXTS[:10])


def test_it_learns_and_fills(learner):
    words = learner.fill("paris is the [MASK] of france.")
    assert words[0][0] == "capital"
    assert len(words) == 5
    assert [p for _, p in words] == sorted((p for _, p in words), reverse=True)
    assert sum(p for _, p in words) <= 1.0 + 1e-6
    both = learner.fill("[MASK] is the [MASK] of italy.", top=2)
    assert [len(w) for w in both] == [2, 2]
    assert both[1][0][0] == "capital"
    everything = learner.fill("[MASK].", top=10_000)
    assert not any(word.startswith("[") for word, p in everything if p > 0)
    assert learner.score(TEXTS) > 0.4


def test_it_saves_in_the_hubs_layout_and_loads(learner, tmp_path):
    folder = learner.save(tmp_path / "model")
    again = gf.load(folder)
    assert isinstance(again, gf.MaskedLM)
    assert again.fill("rome is the [MASK] of italy.") == learner.fill("rome is the [MASK] of italy.")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    peer = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    ids = torch.tensor([learner.tokenizer_.encode("rome is the [MASK] of italy.").ids])
    with torch.no_grad():
        torch.testing.assert_close(peer(ids).logits, learner.model_(ids).logits, atol=1e-5, rtol=1e-5)


def test_it_goes_on_from_a_checkpoint(learner, tmp_path):
    folder = learner.save(tmp_path / "model")
    labels = [i % 5 < 3 for i in range(len(TEXTS))]
    clf = gf.TextClassifier(str(folder), max_length=16, epochs=60, lr=5e-3, precision="fp32", threads=1)
    clf.fit(TEXTS, [int(label) for label in labels])
    assert "new (solved): classification head" in clf.weights_source_
    assert clf.score(TEXTS, [int(label) for label in labels]) == 1.0
    start = gf.load_pretrained(folder, head="classification").embeddings.tokens.weight
    assert torch.equal(start, learner.model_.embeddings.tokens.weight)
    more = gf.MaskedLM(
        str(folder), tokenizer="auto", epochs=1, lr=1e-5, max_length=16, precision="fp32", threads=1
    )
    more.fit(TEXTS)
    assert "new (random)" not in more.weights_source_
    assert more.score(TEXTS) > 0.4
    with pytest.raises(ConfigError, match="more than the model's 24 positions"):
        gf.MaskedLM(str(folder), tokenizer="auto", max_length=32).fit(TEXTS)
    with pytest.raises(ConfigError, match="belong to its own vocabulary"):
        gf.MaskedLM(str(folder), tokenizer="word").fit(TEXTS)


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
@pytest.mark.parametrize(
    "options", [{}, {"whole_words": True, "tokenizer": "wordpiece"}, {"next_sentence": True}]
)
def test_every_task_trains_and_every_parameter_learns(options):
    texts = europe_splits()["train"][0][:200]
    settings = TINY | {"epochs": 2, "vocab_size": 120, "tokenizer": "word", "max_length": 24} | options
    learner = gf.MaskedLM(**settings)
    learner.fit(texts, validation=texts[:40])
    losses = [r["loss"] for r in learner.history_ if r["kind"] == "evaluation"]
    assert losses[-1] < losses[0] < 6
    judged = learner.judge(texts[:40])
    for figure in ("next_sentence_loss", "next_sentence_accuracy"):
        assert (figure in judged) == bool(options.get("next_sentence"))
    fresh = gf.MaskedLM(**(settings | {"epochs": 1, "lr": 0.0})).fit(texts)
    start = dict(fresh.model_.named_parameters())
    still = {name for name, p in learner.model_.named_parameters() if torch.equal(p, start[name])}
    assert still <= (set() if options.get("next_sentence") else {"embeddings.segments.weight"})


@pytest.mark.parametrize(
    ("settings", "texts", "error", "said"),
    [
        ({}, [], DataError, "no texts"),
        ({}, ["a", ""], DataError, r"texts\[1\]: the text is empty"),
        ({"mask_share": 1.5}, TEXTS, ConfigError, r"mask_share = 1\.5"),
        ({"mask_share": float("nan")}, TEXTS, ConfigError, r"mask_share = nan.*Use 0\.15"),
        (
            {"label_smoothing": 0.1},
            TEXTS,
            ConfigError,
            "label_smoothing: the masked-word loss has no smoothing",
        ),
        ({"tokenizer": "wordpeice"}, TEXTS, ConfigError, "'wordpeice' is not a tokenizer"),
    ],
)
def test_bad_input_is_one_clear_line(settings, texts, error, said):
    with pytest.raises(error, match=said):
        gf.MaskedLM(**TINY | settings).fit(texts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("paris is the capital", r"no \[MASK\] in the text"),
        ("[MASK] " + "paris " * 30, "more than 16 tokens"),
    ],
)
def test_texts_that_cannot_be_filled(learner, text, said):
    with pytest.raises(DataError, match=said):
        learner.fill(text)


def test_joined_and_plain_syllables_are_one_text():
    plain, joined = ["món ăn ngon quá", "quán này rẻ"], ["món_ăn ngon_quá", "quán này rẻ"]
    small = TINY | {"clean": "syllables", "tokenizer": "word", "min_count": 1, "epochs": 1}
    learner = gf.MaskedLM(**small).fit(plain * 9)
    assert learner.judge(joined) == learner.judge(plain)
    assert "món" in learner.tokenizer_.get_vocab()
    # a step with nothing to guess is a step
    texts = ["a b a b", "zzz"] * 2  # the last word is unknown, and what is unknown is not asked for
    learner = gf.MaskedLM(**(TINY | {"min_count": 3, "batch_size": 1, "epochs": 2, "batch_tokens": 0})).fit(
        texts
    )
    losses = [r["loss"] for r in learner.history_ if r["kind"] == "step"]
    assert len(losses) == 8
    assert 0.0 in losses
