"""ImageClassifier: scikit-learn's contract, saving, every kind of picture, training options."""

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from glassformer.checkpoints.names_lora import load_adapter
from glassformer.data.checks import check_pairs
from glassformer.errors import ConfigError, DataError
from glassformer.families.vit import VIT
from glassformer.tasks.image_classification.estimator import ImageClassifier

from .conftest import SETTINGS, encoded, quarters  # Weights at the start are those of a fit at rate 0.

pytestmark = pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")


def test_fit_predict_score_embed(fitted):
    pictures, labels = quarters(32, 7)
    assert fitted.score(pictures, labels) > 0.9
    probabilities = fitted.predict_proba(pictures)
    assert probabilities.shape == (32, 4)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert fitted.embed(pictures).shape == (32, 16)
    assert fitted.classes_.tolist() == ["bottom", "left", "right", "top"]
    one = np.concatenate([fitted.predict_proba([p]) for p in pictures])
    np.testing.assert_allclose(one, probabilities, atol=1e-5)  # a batch changes nothing


def test_every_kind_of_picture_gives_the_same_answer(fitted, tmp_path):
    pictures, _ = quarters(3, 11)
    raw, files = list(map(encoded, pictures)), [tmp_path / f"{i}.png" for i in range(3)]
    for file, content in zip(files, raw, strict=True):
        file.write_bytes(content)
    kinds = {
        "paths": files,
        "text paths": [str(f) for f in files],
        "bytes": raw,
        "mappings": [{"bytes": b, "path": None} for b in raw],
        "PIL": [Image.open(f) for f in files],
        "one array": np.stack(pictures),
        "one tensor": torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2),
        "tensors": [torch.from_numpy(p).permute(2, 0, 1) for p in pictures],
    }
    wanted = fitted.predict_proba(pictures)
    for kind, given in kinds.items():
        np.testing.assert_array_equal(fitted.predict_proba(given), wanted, err_msg=kind)


def test_fine_tuning_a_checkpoint_keeps_its_transform(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 23}
    config = transformers.ViTConfig(**sizes, image_size=12, patch_size=4)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        '{"size": {"height": 12, "width": 12}, "resample": 3, "image_mean": [0.1, 0.2, 0.3], '
        '"image_std": [0.7, 0.8, 0.9]}'
    )
    clf = ImageClassifier(str(tmp_path), epochs=1, precision="fp32").fit(*quarters(16, 3))
    assert clf.transform_.size == (12, 12)
    assert clf.transform_.interpolation == "bicubic"
    assert clf.transform_.mean == (0.1, 0.2, 0.3)
    assert "new (solved): classification head" in clf.weights_source_
    other = ImageClassifier(str(tmp_path), epochs=1, image_size=20, precision="fp32").fit(*quarters(16, 3))
    assert other.model_.config.embedding.num_tokens == 26
    assert "positions interpolated to 20 x 20" in other.weights_source_


def changed(options, **more):
    """Names of the weights that a short fit changes."""
    torch.manual_seed(0)
    settings = {**SETTINGS, "epochs": 1, "weight_decay": 0.0, **options, **more}
    before = ImageClassifier(**{**settings, "lr": 0.0}).fit(*quarters(16, 3)).model_.state_dict()
    after = ImageClassifier(**settings).fit(*quarters(16, 3)).model_.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_frozen_stays_to_the_bit(precision):
    assert changed({"train_layers": 0}, precision=precision) == {"head.out.weight", "head.out.bias"}
    last = changed({"train_layers": 1}, precision=precision)
    assert all(n.startswith(("head.", "encoder.layers.1.", "encoder.final_norm")) for n in last)
    assert "encoder.layers.1.attention.out.weight" in last
    everything = changed({}, precision=precision)
    assert {"embeddings.positions", "embeddings.cls", "embeddings.projection.weight"} <= everything


def test_what_patches_leave_over_is_said():
    shape = dict(patch_size=4, d_model=16, num_layers=1, num_heads=2, d_ff=23, epochs=1, threads=1)
    pictures = list(np.random.default_rng(0).integers(0, 256, (8, 13, 13, 3), np.uint8))

    def source(size):
        return ImageClassifier("vit-tiny", image_size=size, **shape).fit(pictures, [0, 1] * 4).weights_source_

    assert source(13).endswith("; patches of 4 x 4 leave 1 rows and 1 columns unseen")
    assert "unseen" not in source(12)


def test_gradual_unfreezing_reaches_down():
    names = changed({"train_layers": 0, "unfreeze_every": 1}, epochs=2)
    assert any("layers.1." in n for n in names)
    assert not any("layers.0." in n or n.startswith("embeddings") for n in names)
    assert "embeddings.positions" in changed({"train_layers": 0, "unfreeze_every": 1}, epochs=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lora_rank": 2, "train_layers": 0}, "lora_rank already freezes"),
        ({"unfreeze_every": 1}, "unfreeze_every needs train_layers"),
        ({"train_layers": 3}, "the encoder has 2"),
        ({"lora_rank": 99}, "lora_rank = 99"),
        ({"batch_size": 0}, "not supported for images"),
        ({"patch_size": 9}, "do not fit"),
        ({"stem": 8, "patch_size": 2}, "is not a multiple of 4"),
        ({"augment": "wild"}, "not a choice"),
        ({"model": "vit-tinny"}, "vit-tiny"),
        *(({"image_range": value}, "image_range") for value in (0, -1, "wide", True, float("inf"), [1, 2])),
    ],
)
def test_settings_that_exclude_each_other(options, said):
    with pytest.raises(ConfigError, match=said):
        ImageClassifier(**{**SETTINGS, **options}).fit(*quarters(8, 3))


def test_low_rank_updates_learn_and_are_merged(tmp_path):
    names = changed({"lora_rank": 3, "lr": 0.02})
    projections = {f"encoder.layers.{i}.attention.qkv.weight" for i in (0, 1)}
    assert names == {"head.out.weight", "head.out.bias"} | projections
    options = {**SETTINGS, "lora_rank": 3, "lr": 0.02, "epochs": 3}
    start = ImageClassifier(**{**options, "lr": 0.0}).fit(*quarters(16, 3))
    clf = ImageClassifier(**options).fit(*quarters(16, 3))
    clf.save_adapter(tmp_path)
    low = load_adapter(tmp_path, VIT.hub.names)
    assert (low.rank, low.alpha, len(low.updates), low.head) == (3, 16.0, 8, {})
    for layer in range(2):
        name = f"encoder.layers.{layer}.attention.qkv.weight"
        before, after = (m.state_dict()[name].chunk(3) for m in (start.model_, clf.model_))
        for part, third in (("query", 0), ("value", 2)):
            added = low.alpha / low.rank * low.updates[f"{layer}.{part}.B"] @ low.updates[f"{layer}.{part}.A"]
            torch.testing.assert_close(before[third] + added, after[third], rtol=1e-5, atol=1e-6)
        assert torch.equal(before[1], after[1])  # keys stay
    start.load_adapter(tmp_path)
    for name, tensor in start.model_.encoder.state_dict().items():
        torch.testing.assert_close(tensor, clf.model_.encoder.state_dict()[name])
    with pytest.raises(ConfigError, match="no low-rank updates"):
        ImageClassifier(**{**SETTINGS, "epochs": 1}).fit(*quarters(8, 3)).save_adapter(tmp_path / "none")


def test_bad_input_is_named(fitted, tmp_path):
    pictures, labels = quarters(8, 3)
    for X, said in (
        ([], "no images"),
        ("cat.jpg", "one image where a list is expected"),
        (pictures[0], "one image where a list"),
        ([*pictures[:2], None], r"images\[2\]: the image is missing"),
        ([tmp_path / "none.png"], "none.png: no such file"),
        ([pictures[0].astype(np.float32)], "float32 where uint8"),
        ([np.zeros((3, 5, 7, 2), np.uint8)], "is not an image"),
        ([3], "an int is not an image"),
    ):
        with pytest.raises(DataError, match=said):
            fitted.predict(X)
    for y, options, said in (
        (labels[:7], {}, "8 images but 7 labels"),
        (labels, {"validation": (pictures,)}, r"validation: expected \(images, labels\)"),
        (["a"] * 8, {}, "one class only"),
    ):
        with pytest.raises(DataError, match=said):
            ImageClassifier(**SETTINGS).fit(pictures, y, **options)
    assert check_pairs(["a"], ["b"], "fit", "texts", "labels") == (["a"], ["b"])
