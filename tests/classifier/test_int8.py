"""Prediction in int8 and its gate: passed, not passed, refused, saved, and asked for on the command line."""

import json
import warnings

import numpy as np
import pytest
import torch
from tests.cli.tiny import settings
from tests.tables import write_csv

import glassformer as gf
from glassformer.cli.app import main
from glassformer.errors import CheckpointError, ConfigError, IdleSettingWarning
from glassformer.explain.heads import ablation
from glassformer.nn.int8 import Int8Linear, precision_of
from glassformer.nn.kernels import int8, loading
from glassformer.tasks.classifier import compare_with_int8, describe_int8, read_int8_result

from .conftest import make_texts

here = pytest.mark.skipif(int8.why_not() is not None, reason=f"no int8: {int8.why_not()}")
OTHERS = make_texts(211, seed=1)
PASSED = {"n": 400, "agree": 0.9975, "accuracy": 0.9, "accuracy_int8": 0.8985, "passed": True, "level": "X"}


def reload(clf, tmp_path):
    return gf.load(clf.save(tmp_path / "saved", overwrite=True))


@pytest.fixture
def own(fitted, tmp_path):
    """The shared classifier, as a test may change it."""
    return reload(fitted, tmp_path)


def spoil(clf) -> None:
    """Weights that int8 loses: one huge column beside each weight's others, over a place that is always 0."""
    with torch.no_grad():
        for part in clf.model_.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.weight[0] = part.bias[0] = 0.0
        for layer in clf.model_.encoder.layers:
            layer.attention.qkv.weight[:, 0] = layer.feed_forward.up.weight[:, 0] = 1e6
    clf._compute_model = None


def test_the_gate_counts_labels_and_points():
    targets = np.arange(1000) % 2
    wrong = lambda n: np.where(np.arange(1000) < n, 1 - targets, targets)  # noqa: E731
    assert compare_with_int8(wrong(100), wrong(102), targets)["passed"]
    assert not compare_with_int8(wrong(100), wrong(103), targets)["passed"]  # 0.3 points
    swapped = wrong(100)
    swapped[98:100], swapped[998:] = targets[98:100], 1 - targets[998:]
    found = compare_with_int8(wrong(100), swapped, targets)
    wanted = {"agree": 0.996, "accuracy": 0.9, "accuracy_int8": 0.9, "passed": True}
    assert found.items() >= wanted.items()
    swapped[96:98], swapped[996:998] = targets[96:98], 1 - targets[996:998]
    assert not compare_with_int8(wrong(100), swapped, targets)["passed"]  # 99.2 % of the labels
    several = np.zeros((200, 3), bool)
    other = several.copy()
    other[0] = True
    assert compare_with_int8(several, other, several)["agree"] == 0.995
    assert describe_int8(PASSED).startswith(
        "on with precision=int8: 99.75 % of 400 validation labels are the same as in fp32"
    )
    assert "(required: 99.5 %, and a difference of at most 0.2 points)" in describe_int8(
        PASSED | {"passed": False}
    )


@here
def test_a_model_that_passes_is_used_saved_and_loaded(own, tmp_path):
    own.precision = "int8"
    with pytest.raises(
        ConfigError, match=r"has not been checked on this model's validation labels yet.*check_int8"
    ):
        own.predict(OTHERS[0])
    found = own.check_int8(*OTHERS)
    assert found == own.int8_
    assert found["passed"]
    assert found["n"] == 211
    again = reload(own, tmp_path)
    assert again.int8_ == found
    assert again.precision == "int8"
    assert precision_of(again.predictor()) == "int8"
    small = again.logits(OTHERS[0])
    again.precision = "fp32"
    full = again.logits(OTHERS[0])
    assert precision_of(again.predictor()) == "fp32"
    assert 0 < np.abs(small - full).max() < 0.1 * np.abs(full).max()
    assert np.mean(small.argmax(1) == full.argmax(1)) == found["agree"]
    again.precision = "int8"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(again.logits(OTHERS[0]), small)
    np.testing.assert_allclose(again.logits(OTHERS[0][:3]), small[:3], rtol=1e-5)  # whatever its neighbors
    assert again.explain(OTHERS[0][0], method="gradient_x_input").scores.any()  # by the fp32 model
    with pytest.raises(ConfigError, match="heads cannot be ablated in int8"):
        ablation(again, *OTHERS)
    again.calibrate(*OTHERS)
    assert again.int8_ is None


@here
def test_weights_that_change_in_place_ask_for_the_gate_again(own, tmp_path):
    own.check_int8(*OTHERS)
    own.precision = "int8"
    before = own.logits(OTHERS[0])
    own = reload(own, tmp_path)
    assert np.array_equal(own.logits(OTHERS[0]), before)  # the outcome of a loaded model is its own
    with torch.no_grad():
        for p in own.model_.parameters():
            p.mul_(-1.5)
    with pytest.raises(ConfigError, match="has not been checked on this model's validation labels yet"):
        own.predict(OTHERS[0])
    assert own.int8_ is None
    own.check_int8(*OTHERS)
    assert not np.allclose(own.logits(OTHERS[0]), before)
    with torch.no_grad():  # nor is an outcome of other weights saved
        own.model_.head.out.weight.neg_()
    assert reload(own, tmp_path).int8_ is None


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_copy_in_another_format_follows_the_weights(own, precision):
    own.precision = precision
    before = own.logits(OTHERS[0][:7])
    with torch.no_grad():
        own.model_.head.out.weight.neg_()
        own.model_.head.out.bias.neg_()
    np.testing.assert_allclose(own.logits(OTHERS[0][:7]), -before, rtol=1e-2, atol=1e-3)


@here
def test_a_model_that_does_not_pass_goes_on_without_and_says_so(own, tmp_path):
    own.predict(OTHERS[0][:2])
    spoil(own)
    found = own.check_int8(*OTHERS)
    assert not found["passed"]
    assert found["agree"] < 0.995
    again = reload(own, tmp_path)
    full = again.logits(OTHERS[0])
    again.set_params(precision="int8")
    with pytest.warns(IdleSettingWarning) as said:
        assert np.allclose(again.logits(OTHERS[0]), full, atol=0.05)
    (line,) = [str(w.message) for w in said]
    assert line.startswith(
        f"int8 is off: {100 * found['agree']:.2f} % of 211 validation labels are the same as in fp32"
    )
    assert line.endswith("prediction computes as with precision=auto")
    assert not any(isinstance(part, Int8Linear) for part in again.predictor().modules())


@here
def test_a_fit_with_int8_measures_it_on_what_it_held_out(small, data):
    clf = small(precision="int8", epochs=1).fit(*data, validation=OTHERS)
    assert clf.int8_ is not None
    assert clf.int8_["n"] == 211
    same = small(precision="auto", epochs=1).fit(*data, validation=OTHERS)
    for a, b in zip(clf.model_.parameters(), same.model_.parameters(), strict=True):
        assert torch.equal(a, b)
    assert same.int8_ is None


def test_what_cannot_be_held_to_labels_is_refused(small, data, held, own):
    with pytest.raises(ConfigError, match="at least 200, and there are 0"):
        small(precision="int8").fit(*data)
    with pytest.raises(ConfigError, match="at least 200, and there are 29"):
        small(precision="int8").fit(*data, validation=held)
    with pytest.raises(ConfigError, match="int8"):
        own.check_int8(*held)
    regressor = gf.TextRegressor("encoder-mini", precision="int8")
    with pytest.raises(ConfigError, match="precision"):
        regressor.fit(data[0], [float(i) for i in range(len(data[0]))])
    tagger = gf.TokenTagger("encoder-mini", d_model=16, num_heads=2, d_ff=16, num_layers=1, epochs=1)
    tagger.fit([["a", "b"]] * 4, [["O", "B-X"]] * 4)
    tagger.precision = "int8"
    with pytest.raises(ConfigError, match="checked on validation labels, which a TokenTagger does not have"):
        tagger.predict([["a"]])


def test_without_kernels_prediction_goes_on_and_says_so(own, monkeypatch):
    full = own.logits(OTHERS[0][:7])
    monkeypatch.setattr(loading, "_loaded", ["switched off by a test"])
    own.precision, own.int8_, own._compute_model = "int8", PASSED, None
    with pytest.warns(
        IdleSettingWarning, match="int8 is off: switched off by a test; prediction computes as"
    ):
        assert np.allclose(own.logits(OTHERS[0][:7]), full, atol=0.05)
    with pytest.raises(ConfigError, match="int8 is off: switched off by a test"):
        own.check_int8(*OTHERS)


WRONG = [PASSED | change for change in ({"agree": 1.5}, {"n": 0}, {"passed": 1}, {"accuracy": None})]


@pytest.mark.parametrize("wrong", [[], "yes", *WRONG])
def test_an_outcome_that_nobody_measured_is_refused(wrong):
    assert read_int8_result(PASSED, "here") == PASSED
    assert read_int8_result(None, "here") is None
    with pytest.raises(CheckpointError, match="is not a valid result of the int8 check"):
        read_int8_result(wrong, "here")


@here
@pytest.mark.filterwarnings("always::glassformer.errors.IdleSettingWarning")
def test_the_command_measures_once_and_the_doctor_shows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [(f"{text} {i}", label) for i, (text, label) in enumerate(zip(*make_texts(701, seed=2)))]
    write_csv(tmp_path / "films.csv", ("text", "label"), rows)
    words = settings("lr=0.03", "epochs=2", "maps=0", "validation_size=211")
    assert main(["train", "--text", "films.csv", "--out", "run", *words]) == 0

    def ask(*argv: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main(list(argv)) == 0
        return capsys.readouterr()

    out, err = ask("predict", "run", "a superb film", "--precision", "int8")
    assert out.startswith("pos\t")
    assert "note: int8 is checked on 211 validation examples, once for this model\n" in err
    kept = json.loads((tmp_path / "run" / "model" / "glassformer.json").read_text(encoding="utf-8"))
    assert kept["int8"]["n"] == 211
    assert kept["parameters"]["precision"] == "fp32"
    state = "on with precision=int8" if kept["int8"]["passed"] else "off"
    assert f"note: int8 is {state}: " in err
    assert "once for this model" not in ask("predict", "run", "a superb film", "--precision", "int8")[1]
    found = json.loads(ask("doctor", "run", "--json")[0])["checkpoint"]
    (line,) = [line for line in found if line["what"] == "int8"]
    assert line["found"].startswith(f"{state}: ")
    assert "after a check on their validation labels" in str(
        json.loads(ask("doctor", "--json")[0])["machine"]
    )
    spoiled = gf.load("run")
    spoiled.int8_ = {**PASSED, "passed": False}
    spoiled.save("run/model", overwrite=True)
    err = ask("predict", "run", "a superb film", "--precision", "int8")[1]
    assert err.startswith("note: int8 is off: 99.75 % of 400 validation labels")
    assert err.count("\n") == 1
    bare = gf.load("run")
    bare.int8_ = None
    bare.save("bare")
    assert main(["predict", "bare", "a film", "--precision", "int8"]) == 2
    assert "this folder is not a run with a validation split" in capsys.readouterr().err
    assert main(["predict", "run", "a film", "--precision", "int4"]) == 2
    assert "'int4' is not a precision" in capsys.readouterr().err
