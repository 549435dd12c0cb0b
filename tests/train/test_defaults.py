"""What a fit does where nothing is said."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from tests.commands import values
from tests.stopping import StopAt

import glassformer as gf
from glassformer.checkpoints.settings import resolved_settings
from glassformer.errors import FewStepsWarning, HighRateWarning, IdleSettingWarning
from glassformer.train.config import (
    AUTO_KEYS,
    BATCH_SIZES,
    DEFAULTS,
    MIN_STEPS,
    TOTAL_STEPS,
    ClassifierFitConfig,
    auto_values,
    warn_high_rate,
)

PAIRS = [
    ("a warm and wise film", 1), ("dull and far too long", 0), ("what a joy to see", 1), ("a waste of an evening", 0),
    ("truly great acting", 1), ("truly awful acting", 0), ("go and see it", 1), ("stay at home", 0),
]  # fmt: skip
TEXTS = [f"{text} , number {i}" for i in range(12) for text, _ in PAIRS]
LABELS = np.array([label for _ in range(12) for _, label in PAIRS])
SMALL = dict(d_model=14, num_heads=2, d_ff=22, num_layers=1, max_length=13, precision="fp32", threads=1)


def steps(values: dict, given: dict, examples: int) -> int:
    v = given | values
    return -(-examples // v["batch_size"]) * v["epochs"]


def test_many_classes_want_a_higher_rate_and_more_steps_from_a_solved_head():
    few, many = (auto_values(ClassifierFitConfig(), "solved", 384, 9001, classes) for classes in (2, 77))
    assert (few["lr"], few["epochs"]) == (1e-4, 2)
    assert (many["lr"], many["epochs"]) == (4e-4, 4)
    assert auto_values(ClassifierFitConfig(), "solved", 384, 9001, 151)["lr"] == 4e-4  # and no more
    assert auto_values(ClassifierFitConfig(), "pretrained", 384, 9001, 77) == few
    # a solved head has nothing to learn unless it is told to
    out = auto_values(ClassifierFitConfig(), "solved head", 384, 97)
    assert (out["lr"], out["epochs"], out["warmup"]) == (0.0, 1, 0.0)
    assert auto_values(ClassifierFitConfig(epochs=5), "solved head", 384, 97)["lr"] == DEFAULTS["head"].lr
    # what is given stays
    given = {"epochs": 2, "lr": 3e-4, "batch_size": 5, "warmup": 0.0}
    assert auto_values(ClassifierFitConfig(**given), "pretrained", 384, 97) == {}
    out = auto_values(ClassifierFitConfig(batch_size=0), "encoder", 128, 97)
    assert "batch_size" not in out
    assert out["epochs"] > 3
    # wider models get lower rates
    for kind in ("pretrained", "encoder", "adapter"):
        rates = [DEFAULTS[kind].rate(d) for d in (64, 128, 384, 768, 1024)]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] > rates[-1]
    assert 2e-5 <= DEFAULTS["pretrained"].rate(768) <= 5e-5  # Devlin et al. 2019, A.3


@pytest.mark.parametrize("kind", [kind for kind in DEFAULTS if kind != "solved head"])
@pytest.mark.parametrize("examples", [2, 7, 64, 97, 1009, 10_007, 1_000_003])
def test_every_number_of_examples_gets_steps_enough_and_not_too_many(kind, examples):
    out = auto_values(ClassifierFitConfig(), kind, 384, examples)
    assert set(out) == set(AUTO_KEYS)
    assert ClassifierFitConfig(**out).lr == out["lr"]  # within the ranges of a recipe
    assert out["batch_size"] in BATCH_SIZES
    if examples >= 37:
        assert steps(out, {}, examples) >= 2 * MIN_STEPS
    assert steps(out, {}, examples) <= max(
        2 * DEFAULTS[kind].steps, DEFAULTS[kind].min_epochs * (examples // 32 + 1)
    )


@pytest.mark.parametrize("given", [{"epochs": 3}, {"epochs": 1}, {"epochs": 7, "lr": 1e-3}])
@pytest.mark.parametrize("examples", [64, 97, 1009])
def test_batches_make_up_for_few_epochs(given, examples):
    out = auto_values(ClassifierFitConfig(**given), "encoder", 128, examples)
    assert not set(out) & set(given)
    smallest = out["batch_size"] == BATCH_SIZES[-1]
    assert steps(out, given, examples) >= TOTAL_STEPS or smallest


@pytest.mark.parametrize(
    ("model", "settings", "kind"),
    [
        ("encoder-mini", {}, "encoder"),
        ("lstm", {}, "recurrent"),
        ("textcnn", {}, "convolution"),
        ("encoder-mini", {"train_layers": 0}, "head"),
        ("encoder-mini", {"lora_rank": 2}, "adapter"),
    ],
)
def test_each_kind_of_model_is_known(model, settings, kind):
    clf = gf.TextClassifier(model, epochs=1, d_model=14, max_length=13, threads=1, **settings)
    clf.fit(TEXTS[:11], LABELS[:11])
    assert clf.chosen_["lr"] == DEFAULTS[kind].rate(14, 1)


def test_a_saved_encoder_counts_as_pretrained(tmp_path):
    gf.TextClassifier("encoder-mini", epochs=1, **SMALL).fit(TEXTS[:11], LABELS[:11]).save(tmp_path / "m")
    again = gf.TextClassifier(str(tmp_path / "m"), epochs=1, max_length=13).fit(TEXTS[:11], LABELS[:11])
    assert again.chosen_["lr"] == DEFAULTS["pretrained"].rate(14) != DEFAULTS["encoder"].rate(14)


def test_what_was_chosen_is_kept_shown_and_chosen_again(tmp_path):
    clf = gf.TextClassifier("encoder-mini", **SMALL).fit(TEXTS[:37], LABELS[:37])
    assert set(clf.chosen_) == set(AUTO_KEYS)
    assert clf.lr is None  # parameters stay as they were given
    loaded = gf.load(clf.save(tmp_path / "m"))
    assert loaded.chosen_ == clf.chosen_
    (tmp_path / "r.toml").write_text(clf.to_recipe("r"))
    told = gf.TextClassifier.from_recipe(tmp_path / "r.toml")
    assert {key: getattr(told, key) for key in AUTO_KEYS} == clf.chosen_
    told.set_params(threads=1).fit(TEXTS[:37], LABELS[:37])
    assert told.chosen_ == {}
    assert np.array_equal(
        told.predict_proba(TEXTS), clf.predict_proba(TEXTS)
    )  # the same training, bit for bit
    # what is set after a fit is in the recipe
    clf = gf.TextClassifier("encoder-mini", epochs=1, **SMALL).fit(TEXTS[:37], LABELS[:37])
    clf.set_params(lr=0.125, epochs=7)
    (tmp_path / "r.toml").write_text(clf.to_recipe("r"))
    told = gf.TextClassifier.from_recipe(tmp_path / "r.toml")
    assert (told.lr, told.epochs, told.batch_size) == (0.125, 7, clf.chosen_["batch_size"])


def test_a_resumed_training_goes_on_with_what_was_chosen(tmp_path):
    settings = SMALL | {"checkpoint_every": 3, "epochs": 5}
    whole = gf.TextClassifier("encoder-mini", **settings).fit(TEXTS[:37], LABELS[:37])
    stopped = gf.TextClassifier("encoder-mini", **settings)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(TEXTS[:37], LABELS[:37], checkpoints=tmp_path / "c", callbacks=[StopAt(7)])
    stopped.fit(TEXTS[:37], LABELS[:37], checkpoints=tmp_path / "c", resume=True)
    assert stopped.chosen_ == whole.chosen_
    assert np.array_equal(stopped.predict_proba(TEXTS), whole.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (
            FewStepsWarning,
            "epochs=1 batch_size=32",
            "2 optimizer steps are too few to learn from (epochs = 1, batch_size = 32); raise",
        ),
        (
            FewStepsWarning,
            "epochs=1",
            "31 optimizer steps are too few to learn from (epochs = 1); raise epochs, or",
        ),
        (FewStepsWarning, "epochs=3", None),
        (FewStepsWarning, "", None),
        (IdleSettingWarning, "epochs=3 lr=0.0", "lr = 0 changes no weight; raise it"),
        (
            IdleSettingWarning,
            "epochs=3 early_stopping=3",
            "early_stopping = 3 stops nothing without validation data; give validation, or",
        ),
        (IdleSettingWarning, "epochs=3 early_stopping=3 validation_fraction=0.2", None),
        (IdleSettingWarning, "epochs=3 lr=1e-3", None),
    ],
)
def test_too_few_steps_and_idle_settings_are_warned_of(kind, given, said):
    clf = gf.TextClassifier("encoder-mini", **SMALL, **values(given))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", kind)
        clf.fit(TEXTS[:61], LABELS[:61])
    told = [w for w in found if w.category is kind]
    assert len(told) == (said is not None)
    if said:
        assert str(told[0].message).startswith(said)
        assert told[0].filename == __file__  # the line that called fit


SLOW = [("encoder-small", {"epochs": 3}), ("textcnn", {}), ("lstm", {}), ("lstm", {"epochs": 3})]


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("encoder-small", {}),
        ("textcnn", {"epochs": 3}),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_the_defaults_learn_what_a_bag_of_words_learns(model, given):
    """64 texts of eight sentences, and 32 that are held out."""
    split = train_test_split(TEXTS, LABELS, test_size=32, stratify=LABELS, random_state=0)
    texts, held, labels, held_labels = split
    clf = gf.TextClassifier(model, threads=1, **given).fit(texts, labels)
    assert clf.score(held, held_labels) >= 0.95


HOSTILE = [["lr"], {str(i): 1 for i in range(99)}]
HOSTILE += [{"lr": wrong} for wrong in ("fast", float("nan"), True, -1)]


def test_hostile_values_of_what_was_chosen():
    assert resolved_settings({}, "x") == {}
    for wrong in HOSTILE:
        with pytest.raises(gf.errors.CheckpointError, match="chosen"):
            resolved_settings({"chosen": wrong}, "x")


@pytest.mark.parametrize("given", [{}, {"batch_size": 0}, {"batch_size": 32}, {"batch_size": 5}])
@pytest.mark.parametrize("accumulate", [1, 3, 8])
def test_accumulated_batches_are_one_step(given, accumulate):
    out = given | auto_values(ClassifierFitConfig(accumulate=accumulate, **given), "pretrained", 384, 37)
    each = (out["batch_size"] or 32) * accumulate
    assert out["epochs"] * -(-37 // each) >= MIN_STEPS


@pytest.mark.parametrize(("lr", "said"), [(0.1, False), (2.0, True), (None, False)])
def test_a_rate_far_above_the_usual_one_is_told_with_the_usual_one(lr, said):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", HighRateWarning)
        warn_high_rate(ClassifierFitConfig(lr=lr), "encoder", 128)
    told = [str(w.message) for w in found if w.category is HighRateWarning]
    assert bool(told) is said
    if told:
        assert "lr = 2 is 2,000 times the usual 0.001 of such a model" in told[0]
        assert "leave lr unset" in told[0]
