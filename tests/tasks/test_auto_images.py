"""``model = "auto"`` on images: a linear model, and the pre-trained encoder, or where that is away one from scratch."""

import json
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from tests.cli.every import ok
from tests.cli.tiny import sets
from tests.image.conftest import quarters
from tests.stopping import StopAt

import glassformer as gf
from glassformer.checkpoints.hub import Resolved
from glassformer.data.transform import ImageTransform
from glassformer.errors import CheckpointError, FromScratchWarning
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.inputs.images import save_transform
from glassformer.tasks import auto

QUICK: dict[str, Any] = {"precision": "fp32", "threads": 1}
IMAGES, LABELS = quarters(37, 3)
HELD = IMAGES[-5:], [LABELS[1], *LABELS[-4:]]  # the first label is wrong: nothing is perfect
NOISY = [LABELS[(i * i) % 13] if i % 5 == 0 else label for i, label in enumerate(LABELS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """DINOv2 with a few thousand random weights."""
    path = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(7)
    family = FAMILIES["dinov2"]
    config = replace(family.tiny(), init_std=0.2, head=None, pooling=None)
    save_pretrained(family.model(config), path)
    save_transform(ImageTransform((8, 8)), path)
    return str(path)


@pytest.fixture
def at_hand(folder, monkeypatch):
    """The small encoder, fine-tuned for the fewest epochs."""
    monkeypatch.setattr(auto, "IMAGE_ENCODER", folder)
    monkeypatch.setattr(auto, "IMAGES_PER_FIT", 37)
    return folder


@pytest.fixture
def away(monkeypatch):
    def resolve(name: str) -> Resolved:
        raise CheckpointError("the Hub cannot be reached", where=name)

    monkeypatch.setattr(auto, "resolve_checkpoint", resolve)


def test_few_validation_examples_do_not_overrule_the_folds(at_hand, monkeypatch):
    """What cross-validation has scored is fitted: fine-tuning to its end, not back to its start."""
    made, make = [], auto._new_estimator
    monkeypatch.setattr(
        auto, "_new_estimator", lambda clf, candidate: made.append(make(clf, candidate)) or made[-1]
    )
    gf.ImageClassifier(**QUICK).fit(IMAGES, NOISY, validation=HELD)
    tuned = [model for model in made if model.model == at_hand and model.train_layers is None]
    assert tuned
    assert not any(model.keep_best for model in tuned)


def test_the_pretrained_encoder_is_frozen_and_fine_tuned(at_hand, tmp_path):
    clf = gf.ImageClassifier(**QUICK).fit(IMAGES, NOISY)
    names = ["hog", f"{at_hand}, frozen", f"{at_hand}, fine-tuned"]
    assert [record["model"] for record in clf.tried_] == names
    assert {record["by"] for record in clf.tried_} == {"cross-validation"}
    assert sum(record["chosen"] for record in clf.tried_) == 1
    assert max(record["score"] for record in clf.tried_) > 0.5  # of four classes
    back = gf.load(clf.save(tmp_path / "model"))
    assert list(back.tried_) == clf.tried_
    np.testing.assert_allclose(back.predict_proba(IMAGES), clf.predict_proba(IMAGES), atol=1e-6)
    # the search ends at its time limit
    clf = gf.ImageClassifier(time_limit=1e-9, **QUICK).fit(IMAGES, NOISY)
    assert [record.get("left out") for record in clf.tried_] == [None, "time_limit", "time_limit"]
    assert clf.tried_[0]["chosen"]
    # numbers of images
    brightness = [float(image.mean()) for image in IMAGES]
    reg = gf.ImageRegressor(**QUICK).fit(IMAGES, brightness)
    assert [record["metric"] for record in reg.tried_] == ["R²", "R²", "R²"]
    assert reg.predict(IMAGES[:3]).shape == (3,)


@pytest.mark.filterwarnings("error::glassformer.errors.FromScratchWarning")
@pytest.mark.parametrize("where", ["at_hand", "away"])
def test_hog_without_an_error_ends_the_search(where, request):
    request.getfixturevalue(where)
    clf = gf.ImageClassifier(**QUICK).fit(IMAGES, LABELS)
    assert clf.tried_[0]["model"] == "hog"
    assert clf.tried_[0]["score"] == 1.0
    assert {record.get("left out") for record in clf.tried_[1:]} == {auto.PERFECT}
    peer = gf.ImageClassifier("hog", **QUICK).fit(IMAGES, LABELS)
    np.testing.assert_array_equal(clf.predict_proba(IMAGES), peer.predict_proba(IMAGES))


def test_many_images_are_not_fine_tuned_unasked(at_hand, monkeypatch):
    monkeypatch.setattr(auto, "MAX_IMAGES", 36)
    clf = gf.ImageClassifier(**QUICK).fit(IMAGES, NOISY)
    assert clf.tried_[0]["chosen"]
    assert clf.tried_[2] == {
        "model": f"{at_hand}, fine-tuned",
        "left out": "more than 36 images: name the model to do it",
    }


@pytest.mark.parametrize(
    ("most", "epochs"), [(17, 3), pytest.param(170, 10, marks=pytest.mark.slow), (17_000, 20)]
)
def test_fine_tuning_has_the_epochs_that_there_is_time_for(at_hand, monkeypatch, most, epochs):
    monkeypatch.setattr(auto, "IMAGES_PER_FIT", most)
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: True)
    clf = gf.ImageClassifier(**QUICK).fit(IMAGES[:17], NOISY[:17])
    assert [record["chosen"] for record in clf.tried_] == [False, False, True]
    assert 1 + max(record["epoch"] for record in clf.history_) == epochs


@pytest.fixture
def small(monkeypatch):
    """``vit-tiny`` with a few thousand weights."""
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 12, "num_heads": 2, "epochs": 2}
    monkeypatch.setattr(
        auto,
        "SCRATCH_SHIFTED",
        replace(auto.SCRATCH_SHIFTED, settings={**auto.SCRATCH_SHIFTED.settings, **sizes}),
    )
    return auto.SCRATCH_SHIFTED.settings


@pytest.mark.parametrize("better", ["hog", "vit-tiny"])
@pytest.mark.parametrize("held", [False, True], ids=["by folds", "by validation"])
def test_without_its_weights_hog_and_an_encoder_from_scratch_are_compared(
    away, small, monkeypatch, better, held
):
    monkeypatch.setattr(auto, "MIN_VALIDATION", 5)
    monkeypatch.setattr(auto, "MAX_IMAGES", 7)  # of fine-tuning alone
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: better == "vit-tiny")
    more: dict[str, Any] = {"validation": HELD} if held else {}
    with pytest.warns(FromScratchWarning, match=r"dinov2-small \(88 MB\): .*the Hub cannot be reached"):
        clf = gf.ImageClassifier(**QUICK, class_weight="balanced").fit(IMAGES[:23], NOISY[:23], **more)
    assert [record["model"] for record in clf.tried_] == ["hog", "vit-tiny"]
    assert {record["by"] for record in clf.tried_} == {"validation" if held else "cross-validation"}
    assert [record["model"] for record in clf.tried_ if record["chosen"]] == [better]
    assert not any("start_share" in record for record in clf.tried_)
    settings = small if better == "vit-tiny" else {"model": "hog"}
    peer = gf.ImageClassifier(**settings, **QUICK, class_weight="balanced").fit(
        IMAGES[:23], NOISY[:23], **more
    )
    np.testing.assert_array_equal(clf.predict_proba(IMAGES), peer.predict_proba(IMAGES))


def test_a_run_that_was_stopped_when_auto_meant_vit_tiny_goes_on_with_it(away, small, tmp_path):
    given: dict[str, Any] = {**QUICK, "calibration": "auto", "batch_size": 4}
    more: dict[str, Any] = {"validation": HELD}
    whole = gf.ImageClassifier(**small, **given).fit(IMAGES[:23], NOISY[:23], **more)
    with pytest.raises(KeyboardInterrupt):
        gf.ImageClassifier(**small, **given, checkpoint_every=3).fit(
            IMAGES[:23], NOISY[:23], **more, callbacks=[StopAt(5)], checkpoints=tmp_path
        )
    clf = gf.ImageClassifier("auto", **QUICK)
    with mock.patch.object(
        auto, "SCRATCH_SHIFTED", replace(auto.SCRATCH_SHIFTED, settings={**small, "batch_size": 4})
    ):
        clf.fit(IMAGES[:23], NOISY[:23], **more, checkpoints=tmp_path, resume=True)
    assert list(clf.tried_) == []
    np.testing.assert_array_equal(clf.predict_proba(IMAGES), whole.predict_proba(IMAGES))


@pytest.mark.filterwarnings("ignore::glassformer.errors.FromScratchWarning")
def test_a_comparison_that_was_stopped_in_vit_tiny_goes_on_as_one(away, small, monkeypatch, tmp_path):
    monkeypatch.setattr(auto, "MIN_VALIDATION", 5)
    monkeypatch.setattr(
        auto, "SCRATCH_SHIFTED", replace(auto.SCRATCH_SHIFTED, settings={**small, "batch_size": 4})
    )
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: True)
    data: Any = IMAGES[:23], NOISY[:23]
    made = gf.ImageClassifier(**QUICK, checkpoint_every=3)
    whole = clone(made).fit(*data, validation=HELD)
    with pytest.raises(KeyboardInterrupt):
        clone(made).fit(*data, validation=HELD, callbacks=[StopAt(5)], checkpoints=tmp_path)
    clf = clone(made).fit(*data, validation=HELD, checkpoints=tmp_path, resume=True)
    assert [record["model"] for record in clf.tried_] == ["hog", "vit-tiny"]
    np.testing.assert_array_equal(clf.predict_proba(IMAGES), whole.predict_proba(IMAGES))


@pytest.mark.filterwarnings("error::glassformer.errors.FromScratchWarning")
def test_settings_of_an_encoder_from_scratch_ask_for_one(away):
    small: dict[str, Any] = {"image_size": 8, "patch_size": 4, "d_model": 12, "num_heads": 2, "epochs": 1}
    clf = gf.ImageClassifier(**small, **QUICK).fit(IMAGES, LABELS)
    peer = gf.ImageClassifier("vit-tiny", **small, **QUICK).fit(IMAGES, LABELS)
    np.testing.assert_array_equal(clf.predict_proba(IMAGES), peer.predict_proba(IMAGES))


def test_a_run_of_a_folder_shows_what_was_tried(at_hand, tmp_path):
    for i, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        place = tmp_path / "shown" / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i}.png")
    run = tmp_path / "run"
    settings = sets("threads=1", "test_size=0.3", "validation_size=0.3")
    ok("train", "--images", tmp_path / "shown", "--out", run, *settings)
    tried = json.loads((run / "metrics.json").read_text())["tried"]
    assert [one["model"].split(", ")[-1] for one in tried] == ["hog", "frozen", "fine-tuned"]
    assert "Models compared" in (run / "report.html").read_text()
    ok("predict", run, tmp_path / "shown" / "top")
    ok("evaluate", run, "--json")
