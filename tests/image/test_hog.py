"""``model="hog"``: a linear model of edges and colors, fitted, saved, explained and exported like any other."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import glassformer as gf
from glassformer.checkpoints.files import read_json
from glassformer.errors import ConfigError, InputError
from glassformer.export.hf_folder import export_hf
from glassformer.nn.hog import HogEmbedding

from ..checkpoints.test_settings import altered
from .conftest import quarters

IMAGES, LABELS = quarters(48, 3)
UNSEEN, TRUTH = quarters(24, 7)
SMALL: dict[str, Any] = {"image_size": 8, "patch_size": 4, "threads": 1}
BRIGHT = [float(image[..., 0].mean()) for image in IMAGES]
SETS = [{label, "even" if i % 8 < 4 else "odd"} - {"odd"} for i, label in enumerate(LABELS)]
TARGETS = {"classes": LABELS, "two classes": [x == "top" for x in LABELS], "numbers": BRIGHT, "sets": SETS}


def fit(kind: str = "classes", **settings: Any) -> Any:
    estimator = gf.ImageRegressor if kind == "numbers" else gf.ImageClassifier
    return estimator("hog", **(SMALL | settings)).fit(IMAGES, TARGETS[kind])


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.mark.parametrize("kind", TARGETS)
def test_it_learns_and_a_folder_gives_it_back(kind, tmp_path):
    clf = fit(kind)
    assert clf.score(IMAGES, TARGETS[kind]) > (0.3 if kind == "sets" else 0.9)
    again = gf.load(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.outputs(IMAGES), clf.outputs(IMAGES))
    assert not [*(tmp_path / "model").glob("*.pkl")]
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "glassformer-hog"
    np.testing.assert_array_equal(fit(kind).outputs(IMAGES), clf.outputs(IMAGES))  # the same bits again


def test_unseen_images_and_each_alone(fitted):
    assert fitted.score(UNSEEN, TRUTH) > 0.9
    found = fitted.predict_proba(UNSEEN)
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-12)
    alone = np.concatenate([fitted.predict_proba([image]) for image in UNSEEN[:3]])
    np.testing.assert_allclose(alone, found[:3], atol=1e-6)


def test_its_head_is_solved_whatever_a_recipe_says_of_its_start(tmp_path, fitted):
    assert fitted.weights_source_ == "hog; new (solved): classification head"
    text = 'task = "image-classification"\n[image]\nimage_size = 8\n[model]\nmodel = "hog"\npatch_size = 4\n'
    (tmp_path / "recipe.toml").write_text(text)
    clf = gf.ImageClassifier.from_recipe(tmp_path / "recipe.toml", threads=1)
    assert clf.head_start == "random"  # what a file without the key means
    np.testing.assert_array_equal(clf.fit(IMAGES, LABELS).logits(UNSEEN), fitted.logits(UNSEEN))
    assert [record["kind"] for record in clf.history_] == ["step", "evaluation"]


def test_calibrated_on_validation_images_and_cross_validated():
    X, y = quarters(120, 11)
    noisy = [LABELS[i % 7] if i % 3 == 0 else label for i, label in enumerate(y)]
    clf = gf.ImageClassifier("hog", **SMALL).fit(IMAGES, LABELS, validation=(X, noisy))
    assert clf.temperature_ > 1.0  # a third of the validation labels are wrong
    assert cross_val_score(clone(clf), IMAGES, LABELS, cv=3).mean() > 0.9
    reg = gf.ImageRegressor("hog", **SMALL, validation_fraction=0.3).fit(IMAGES, BRIGHT)
    bounds = reg.predict_interval(IMAGES)
    assert ((bounds[:, 0] <= BRIGHT) & (bounds[:, 1] >= BRIGHT)).mean() > 0.8


def test_the_cells_and_the_bias_add_up_to_the_logit(fitted):
    for image in UNSEEN[:2]:
        logits = fitted.logits([image])[0]
        for k, label in enumerate(fitted.classes_.tolist()):
            found = fitted.explain(image, method="gradient_x_input", target=label)
            assert found.scores.shape == (2, 2)
            bias = float(fitted.model_.head.out.bias[k].detach())
            assert found.scores.sum() + bias == pytest.approx(logits[k], abs=1e-4)


def test_the_bright_corner_is_what_occlusion_finds(fitted):
    found = fitted.explain(UNSEEN[1])
    assert found.method == "occlusion"
    assert np.unravel_index(found.scores.argmax(), (2, 2)) == (0, 1)
    assert fitted.explain(UNSEEN[1], trust=True).trust["verdict"]


def test_what_it_cannot_show_is_one_line(fitted):
    with pytest.raises(InputError, match=r"a linear model has no attention to show\. Use occlusion") as error:
        fitted.explain(UNSEEN[0], method="attention")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="Hide cells with by=mask"):
        fitted.explain(UNSEEN[0], method="occlusion", by="delete")
    with pytest.raises(ConfigError, match="no attention weights"):
        fitted.model_(torch.zeros(1, 3, 8, 8), trace=gf.Trace(attentions=True))


LAYERS = {"d_model": 7, "pooling": "mean", "head": "mlp", "dropout": 0.1, "train_layers": 0, "lora_rank": 2}


@pytest.mark.parametrize("key", LAYERS)
def test_settings_of_layers_are_refused(key):
    with pytest.raises(ConfigError, match=key) as error:
        fit(**{key: LAYERS[key]})
    assert "\n" not in str(error.value)


def test_it_reads_gray_images_and_images_of_any_size_in_fp32(fitted):
    np.testing.assert_array_equal(fit(precision="bf16").logits(UNSEEN), fitted.logits(UNSEEN))
    assert fit(channels=1).score(UNSEEN, TRUTH) > 0.9
    clf = gf.ImageClassifier("hog", threads=1).fit(IMAGES, LABELS)
    assert clf.model_.config.embedding.grid == (6, 6)
    wide = np.tile(UNSEEN[0], (1, 7, 1))
    assert clf.predict([wide, UNSEEN[1][:5]]).shape == (2,)


def test_embed_gives_what_the_head_reads(fitted):
    vectors = fitted.embed(UNSEEN[:3])
    assert vectors.shape == (3, 4 * 39)
    pixels = torch.from_numpy(np.stack([fitted.transform_.read(x) for x in UNSEEN[:3]]))
    rows = HogEmbedding(fitted.model_.config.embedding).padded(fitted.transform_.normalize(pixels))
    np.testing.assert_allclose(vectors, rows.flatten(1).numpy(), atol=1e-6)


def test_nothing_goes_on_from_it_and_transformers_has_no_class_for_it(fitted, tmp_path):
    folder = str(fitted.save(tmp_path / "model"))
    for said, refused in (
        ("Fit a new linear model with model=hog", lambda: gf.ImageClassifier(folder).fit(IMAGES, LABELS)),
        ("needs labels", lambda: gf.MaskedPatches("hog").fit(IMAGES)),
        ("has random weights", lambda: gf.Probe("hog").fit(IMAGES, LABELS)),
        ("it is not a Transformer", lambda: export_hf(fitted, tmp_path / "hub", UNSEEN)),
    ):
        with pytest.raises(ConfigError, match=said):
            refused()


def test_a_damaged_config_is_named(fitted, tmp_path):
    folder = fitted.save(tmp_path / "model")
    architecture = read_json(folder / "config.json")["architecture"]
    architecture["embedding"]["patch_size"] = [9, 9]
    with pytest.raises(ConfigError, match="pixels do not fit into an image"):
        gf.load(altered(folder, tmp_path / "bad", "config.json", architecture=architecture))


@pytest.mark.slow
def test_exported_as_a_graph(fitted, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from glassformer.export.onnx_folder import export_onnx

    assert export_onnx(fitted, tmp_path / "graph", UNSEEN)["largest_difference"] <= 1e-4
