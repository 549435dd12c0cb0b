"""Translator: overfits, saves and loads, resumes to the same bits, and says what is wrong."""

import json

import numpy as np
import pytest
from tests.commands import values

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.tasks.catalog import load_recipe

SOURCE = ["a man walks", "the dog runs", "two girls play", "a girl runs", "the man plays", "two dogs walk"]
TARGET = "ein Mann geht|der Hund läuft|zwei Mädchen spielen|ein Mädchen läuft|der Mann spielt|zwei Hunde gehen".split(
    "|"
)
TINY = values(
    "d_model=32 num_layers=1 num_heads=2 d_ff=47 dropout=0.0 vocab_size=300 epochs=40 lr=1e-2 batch_size=3"
)
TINY |= values("label_smoothing=0.0 precision=fp32 threads=1 max_length=24")


def fitted(**options):
    return gf.Translator(**tiny(**options)).fit(SOURCE, TARGET)


def tiny(**options):
    """Without what a recurrent network has not."""
    both = TINY | options
    return {k: v for k, v in both.items() if both.get("model") != "rnn" or k not in ("num_heads", "d_ff")}


@pytest.fixture(scope="module")
def translator():
    return fitted()


RNN = ["model=rnn attention=none", "model=rnn attention=additive cell=lstm"]


@pytest.mark.parametrize("options", ["", *RNN, "tokenizer=wordpiece shared_vocabulary=False tied=False"])
def test_overfits_saves_and_loads(options, tmp_path):
    options = values(options)
    translator = fitted(**({"epochs": 150} if options.get("model") == "rnn" else {}), **options)
    if options.get("tokenizer") == "wordpiece":  # lower-case there, and blanks are guessed
        assert [t.lower() for t in translator.translate(SOURCE)] == [t.lower() for t in TARGET]
    else:
        assert translator.translate(SOURCE) == TARGET
        assert translator.translate(SOURCE, beam=1) == TARGET
    translator.save(tmp_path / "model")
    loaded = gf.load(tmp_path / "model")
    assert isinstance(loaded, gf.Translator)
    assert loaded.translate(SOURCE, 3) == translator.translate(SOURCE, 3)
    assert loaded.get_params() == translator.get_params()
    assert loaded.weights_source_.startswith("random")
    inner = loaded.encode(["a [SEP] b"], True).ids[1:-1].tolist()  # written out, it is text and not the token
    assert inner == translator.encode(["a [SEP] b"], True).ids[1:-1].tolist()
    assert loaded.source_tokenizer_.token_to_id("[SEP]") not in inner


def test_order_and_company_of_texts_change_nothing(translator):
    whole = translator.translate(SOURCE)
    assert translator.translate(SOURCE[::-1]) == whole[::-1]
    assert [translator.translate([text])[0] for text in SOURCE] == whole
    assert translator.translate(SOURCE, max_tokens=np.int64(64)) == whole
    for wrong in (2.5, 2**70, True, 0):
        with pytest.raises(ConfigError, match=f"max_tokens {wrong} is not a number of tokens"):
            translator.translate(SOURCE, max_tokens=wrong)


def test_the_loss_is_a_mean_over_tokens_however_they_are_batched():
    losses = []
    for size, accumulate in ((6, 1), (2, 3), (1, 6)):
        translator = fitted(epochs=1, batch_size=size, accumulate=accumulate, lr=1e-3)
        losses.append(translator.history_[0]["loss"])
        first = translator.model_.target_embeddings.tokens.weight
        losses.append(float(first.detach().double().sum()))
    assert losses[0::2] == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert losses[1::2] == pytest.approx([losses[1]] * 3, rel=1e-4)


def test_alignment_has_a_row_for_each_target_token(translator, tmp_path, monkeypatch):
    found = translator.align(SOURCE[0])
    assert found.translation == TARGET[0]
    assert found.weights.shape == (len(found.target), len(found.source))
    np.testing.assert_allclose(found.weights.sum(1), 1.0, atol=1e-5)
    assert found.source[0] == "[CLS]"
    assert found.target[-1] == "[SEP]"
    assert found.text == SOURCE[0]
    assert found._repr_html_().count("<rect") == found.weights.size
    assert found.save(tmp_path / "map.html").read_text().count("<rect x=") - 2 == found.weights.size
    assert json.loads(found.save(tmp_path / "map.json").read_text())["target"] == found.target
    monkeypatch.setattr("glassformer.tasks.translation.estimator.MAX_TARGET_TOKENS", (0, 2))
    cut = translator.align(SOURCE[0])
    assert cut.target == found.target[:2]
    assert cut.weights.shape == (2, len(cut.source))
    thought = fitted(model="rnn", attention="none", epochs=1)
    with pytest.raises(ConfigError, match="decoder without attention has no alignment"):
        thought.align(SOURCE[0])


@pytest.mark.parametrize("validation", [(SOURCE,), list(zip(SOURCE, TARGET, strict=True)), "text"])
def test_validation_is_two_lists(validation):
    with pytest.raises(DataError, match=r"validation: expected \(source texts, target texts\)"):
        gf.Translator(**TINY).fit(SOURCE, TARGET, validation=validation)


def test_validation_keeps_the_best_and_is_judged_per_token():
    translator = gf.Translator(**(TINY | {"epochs": 3, "average": 0.5}))
    translator.fit(SOURCE, TARGET, validation=(SOURCE[:2], TARGET[:2]))
    records = [r for r in translator.history_ if r["kind"] == "evaluation"]
    assert len(records) == 3
    assert all(0 <= r["accuracy"] <= 1 and r["loss"] > 0 for r in records)
    assert {type(value) for r in records for value in (r["accuracy"], r["loss"], r["train_accuracy"])} == {
        float
    }
    assert translator.best_step_ in {r["step"] for r in records}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("model=transformr", r"'transformr' is not a choice.*Did you mean 'transformer'"),
        ("class_weight=balanced", "class_weight belongs to classification"),
        ("model=rnn num_heads=3", "num_heads: 'rnn' has no num_heads"),
        ("d_model=32 num_heads=3", "not a multiple of num_heads"),
    ],
)
def test_settings_that_cannot_be(settings, said):
    with pytest.raises(ConfigError, match=said):
        gf.Translator(**values(settings)).fit(SOURCE, TARGET)


def test_bad_input_is_one_clear_line(translator, tmp_path):
    for texts, said in (
        (["a man", "the dog runs " * 20], r"texts\[1\]: the text has more than 24 tokens.*Cut it"),
        ([""], r"texts\[0\]: the text is empty"),
    ):
        with pytest.raises(DataError, match=said):
            translator.translate(texts)
    for data, said in (
        ((SOURCE, TARGET[:5]), "6 source texts but 5 target texts"),
        ((SOURCE[:3], [*TARGET[:2], " "]), r"target\[2\]: the text is empty"),
    ):
        with pytest.raises(DataError, match=said):
            gf.Translator(**TINY).fit(*data)
    with pytest.raises(ConfigError, match="beam = 0 is out of range"):
        translator.translate(SOURCE, beam=0)
    with pytest.raises(ConfigError, match="'transformer' has no attention"):
        load_recipe("multi30k-transformer", ["attention=additive"])
    assert translator.translate(SOURCE) == TARGET  # what failed left it as it was
    # a damaged folder is refused
    folder = translator.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "glassformer-transformer"
    (folder / "source_tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="source_tokenizer"):
        gf.load(folder)
