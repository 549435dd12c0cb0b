"""A training on kept outputs of frozen layers is the one that computes them anew, for texts and for pictures."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import values
from tests.stopping import same, stopped_and_resumed

import glassformer as gf
from glassformer.data.batching import pack_texts
from glassformer.data.image_batching import AugmentSettings, BatchSpec
from glassformer.train import features

WORDS = ("good", "bad", "fine", "dull", "bright", "slow", "quick")
TEXTS = [" ".join(WORDS[(i * k) % 7] for k in range(1, 3 + i % 11)) for i in range(41)]
PICTURES = list(np.random.default_rng(0).integers(0, 256, (41, 11, 11, 3), dtype=np.uint8))
LABELS = ["pos" if i % 3 else "neg" for i in range(41)]
HELD = slice(0, 13)
SHARED = values(
    "d_model=22 num_layers=2 num_heads=2 d_ff=13 batch_size=7 epochs=3 lr=0.01 train_layers=0 precision=fp32"
)
IDLE = pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start


@dataclass
class Kind:
    """Examples of a kind, what learns from them, and what is patched to see how."""

    X: list[Any]
    estimator: type[Any]
    preset: str
    own: dict[str, Any]
    computes: str  # in ``features``
    module: str
    counted: list[int] = field(default_factory=list)  # how many outputs were computed, one entry a table

    def make(self, **settings: Any) -> Any:
        return self.estimator(self.preset, **SHARED | self.own | settings)

    def fit(self, held: Any = None, **settings: Any) -> Any:
        return self.make(**settings).fit(self.X, LABELS, validation=held)

    @property
    def held(self) -> tuple[list[Any], list[str]]:
        return self.X[HELD], LABELS[HELD]


TASK = "glassformer.tasks.{}_classification.estimator"
OWN = {"dropout": 0.0, "max_length": 17, "min_count": 1}
SHAPE = {"image_size": 11, "patch_size": 5}
KINDS = {
    "texts": (TEXTS, gf.TextClassifier, "encoder-small", OWN, "predict_rows", TASK.format("text")),
    "pictures": (PICTURES, gf.ImageClassifier, "vit-tiny", SHAPE, "predict_images", TASK.format("image")),
}
OF_TEXTS = pytest.mark.parametrize("kind", ["texts"], indirect=True)
OF_PICTURES = pytest.mark.parametrize("kind", ["pictures"], indirect=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "glassformer" / "features"


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch) -> Kind:
    made = Kind(*KINDS[request.param])
    compute = getattr(features, made.computes)

    def count(model, table, *args, **kwargs):
        made.counted.append(len(table))
        return compute(model, table, *args, **kwargs)

    monkeypatch.setattr(features, made.computes, count)
    return made


def weights(clf: Any) -> dict[str, torch.Tensor]:
    return clf.model_.state_dict()


def near(precision: str) -> dict[str, float]:
    return dict(rtol=1e-3, atol=1e-4) if precision == "fp32" else dict(rtol=0.05, atol=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["first", "mean", "max", "pooler"])
def test_equal_to_training_without_the_cache(monkeypatch, kind, pooling, precision):
    settings = values("class_weight=balanced label_smoothing=0.1 head=mlp head_hidden=11 head_dropout=0.2")
    settings |= {"pooling": pooling, "precision": precision}
    ours = kind.fit(kind.held, **settings)
    assert kind.counted == [41, 13]
    monkeypatch.setattr(f"{kind.module}.can_be_cached", lambda *_: False)
    plain = kind.fit(kind.held, **settings)
    assert kind.counted == [41, 13]
    for name, wanted in weights(plain).items():
        torch.testing.assert_close(weights(ours)[name], wanted, **near(precision))
    for a, b in zip(ours.history_, plain.history_, strict=True):
        assert a.keys() == b.keys()
        assert a["loss"] == pytest.approx(b["loss"], rel=near(precision)["rtol"])
        assert a.get("tokens") == b.get("tokens")


@OF_TEXTS
def test_held_out_texts_in_windows_are_judged_as_without_the_cache(monkeypatch, kind):
    settings = {"max_length": 5, "long_texts": "mean", "window_stride": 2, "held": (TEXTS, LABELS)}
    ours = kind.fit(**settings)
    monkeypatch.setattr(f"{kind.module}.can_be_cached", lambda *_: False)
    plain = kind.fit(**settings)
    losses = [[r["loss"] for r in clf.history_ if r["kind"] == "evaluation"] for clf in (ours, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@OF_PICTURES
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("layers", [{"train_layers": 1}, {"train_layers": 0, "unfreeze_every": 2}])
@pytest.mark.parametrize(("pooling", "judged"), [("first", False), ("mean", True)])
def test_the_upper_layers_learn_from_kept_rows(monkeypatch, kind, pooling, judged, layers, precision):
    settings = {"pooling": pooling, "precision": precision, "num_layers": 3} | layers
    held = kind.held if judged else None
    ours = kind.fit(held, **settings)
    assert kind.counted == [41, 13][: 1 + judged]
    monkeypatch.setattr(f"{kind.module}.cached_layers", lambda *_: 0)
    plain = kind.fit(held, **settings)
    assert kind.counted == [41, 13][: 1 + judged]
    start = weights(kind.fit(**settings | {"train_layers": 0, "unfreeze_every": 0, "lr": 1e-9}))
    learned = set()
    for name, wanted in weights(plain).items():
        found = weights(ours)[name]
        torch.testing.assert_close(found, wanted, **near(precision))
        if not torch.allclose(found, start[name], atol=1e-6):
            learned.add(".".join(name.split(".")[:3]) if name.startswith("encoder.layers") else "head")
    assert (
        learned == {"head", "encoder.layers.2"} or judged
    )  # which may choose weights from before it learned
    for a, b in zip(ours.history_, plain.history_, strict=True):
        assert a.get("loss", 0.0) == pytest.approx(b.get("loss", 0.0), rel=near(precision)["rtol"])


@IDLE
@OF_TEXTS
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_encoder_keeps_its_bits_and_the_head_learns(kind, precision):
    before, after = (weights(kind.fit(precision=precision, lr=lr)) for lr in (0.0, 0.01))
    for name, wanted in before.items():
        assert torch.equal(after[name], wanted) == (not name.startswith("head.")), name


def test_a_second_head_computes_no_features(kind, cache):
    first = kind.fit()
    assert same(kind.fit(), first)
    kind.fit(lr=0.1, head_dropout=0.3, class_weight="balanced")
    assert kind.counted == [41]
    assert not [file for file in cache.rglob("*") if file.suffix in (".pt", ".pkl", ".npy", ".npz")]


@OF_TEXTS
def test_other_weights_or_other_texts_are_other_features(kind):
    kind.fit()
    kind.fit(seed=1)
    kind.make().fit([*TEXTS[1:], TEXTS[0]], [*LABELS[1:], LABELS[0]])
    kind.fit(max_length=5)
    kind.fit(pooling="mean")
    assert kind.counted == [41] * 5


@OF_PICTURES
def test_bytes_that_are_read_in_another_way_are_other_features(kind, monkeypatch):
    kind.fit()
    kind.fit(mean=(0.1, 0.2, 0.3))
    assert kind.counted == [41, 41]
    monkeypatch.setattr(features, "MAX_TOKEN_BYTES", 41 * 5 * 22 * 4 - 1)
    kind.fit(epochs=1, train_layers=1)
    assert kind.counted == [41, 41]
    monkeypatch.setattr(features, "MAX_TOKEN_BYTES", 41 * 5 * 22 * 4)
    kind.fit(epochs=1, train_layers=1)
    assert kind.counted == [41, 41, 41]


@OF_PICTURES
def test_kept_outputs_are_the_outputs(kind):
    clf, few = kind.fit(), PICTURES[HELD]
    for _ in range(2):
        np.testing.assert_allclose(clf.cached_outputs(few), clf.outputs(few), atol=1e-5)
    assert kind.counted == [41, 13]
    learned = kind.fit(train_layers=1)
    np.testing.assert_array_equal(learned.cached_outputs(few), learned.outputs(few))


@OF_TEXTS
@pytest.mark.parametrize("damage", [b"", b"\0" * 64, None])
def test_damage_is_noticed_and_mended(kind, cache, damage):
    wanted = kind.fit()
    (file,) = cache.rglob("*.safetensors")
    if damage is None:
        flipped = bytearray(file.read_bytes())
        flipped[-3] ^= 1
        damage = bytes(flipped)
    file.write_bytes(damage)
    again = kind.fit()
    assert kind.counted == [41, 41]
    assert same(again, wanted)
    kind.fit()
    assert kind.counted == [41, 41]


@OF_TEXTS
def test_a_cache_that_cannot_be_written_is_done_without(kind, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    clf = kind.fit()
    assert kind.counted == [41]
    assert len(clf.predict(TEXTS)) == 41


CHANGING = [("texts", "word_dropout=0.1"), ("texts", "stochastic_depth=0.1"), ("pictures", "train_layers=2")]
CHANGING += [("pictures", change) for change in ("augment=light", "mix=cutmix", "patch_dropout=0.3")]
CHANGING += [(name, change) for name in KINDS for change in ("dropout=0.1", "pooling=attention")]


@IDLE
@pytest.mark.parametrize(("kind", "settings"), CHANGING, indirect=["kind"])
def test_what_changes_from_step_to_step_is_not_kept(kind, settings):
    settings = values(settings)
    clf = kind.fit(epochs=1, **settings)
    assert kind.counted == []
    if "train_layers" in settings:
        return
    start = weights(kind.fit(epochs=1, lr=0.0, **settings))
    for name, weight in weights(clf).items():
        if name.startswith(("encoder.", "embeddings.")):
            assert torch.equal(weight, start[name]), name


@OF_TEXTS
def test_resume_gives_the_same_bits(tmp_path, kind):
    found = stopped_and_resumed(kind.make(checkpoint_every=4), TEXTS, LABELS, folder=tmp_path / "c", at=(8,))
    assert same(found, kind.fit())


@OF_TEXTS
def test_the_oldest_features_go_first(kind, cache):
    for seed in range(3):
        kind.fit(seed=seed)
        for folder in cache.iterdir():
            os.utime(folder, (folder.stat().st_atime - 100, folder.stat().st_mtime - 100))
    folders = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime)
    one = sum(file.stat().st_size for file in folders[0].iterdir())
    features._prune(cache, 2 * one + 100)
    assert set(cache.iterdir()) == set(folders[1:])


def test_a_clock_set_back_does_not_throw_the_newest_away(cache):
    for name, when in (("from-the-future", 4e9), ("fresh", 1e9)):
        (cache / name).mkdir(parents=True)
        (cache / name / "x").write_bytes(bytes(101))
        os.utime(cache / name, (when, when))
    features._prune(cache, 150, cache / "fresh")
    assert [path.name for path in cache.iterdir()] == ["fresh"]


@OF_TEXTS
def test_features_lead_to_the_models_own_logits(kind):
    clf = kind.fit(pooling="pooler")
    batch = pack_texts(clf.encode(TEXTS), np.arange(41))
    with torch.no_grad():
        wanted = clf.model_(batch.ids, packing=batch.packing).logits
        got = clf.model_.classify(clf.model_.features(batch.ids, batch.packing))
    torch.testing.assert_close(got, wanted)


def test_each_process_gets_the_features_of_its_own_images():
    rows = torch.arange(6.0)[:, None]
    no_pixels: Any = None
    stream = features.ImageFeatureStream(
        no_pixels, no_pixels, AugmentSettings(), 5, 4, 1, 0, torch.device("cpu"), rows
    )
    draw = BatchSpec(0, 0, np.array([4, 0, 2, 5]))
    parts = [stream.pack(stream.shard(draw, rank, 2)) for rank in range(2)]
    assert [part.features[:, 0].tolist() for part in parts] == [[4, 2], [0, 5]]
    assert [(part.index.tolist(), part.packing.total) for part in parts] == [([4, 2], 10), ([0, 5], 10)]
