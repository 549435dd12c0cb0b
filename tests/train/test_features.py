"""A head trained on cached features is the head trained on a frozen encoder."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from tests.stopping import same, stopped_and_resumed

from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.train import features

WORDS = ("good", "bad", "fine", "dull", "bright", "slow", "quick")
TEXTS = [" ".join(WORDS[(i * k) % 7] for k in range(1, 3 + i % 11)) for i in range(41)]
LABELS = ["pos" if i % 3 else "neg" for i in range(41)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "glassformer" / "features"


@pytest.fixture
def counted(monkeypatch):
    """The texts whose features were computed, one entry a table."""
    calls = []
    compute = features.predict_rows

    def count(model, table, *args, **kwargs):
        calls.append(len(table))
        return compute(model, table, *args, **kwargs)

    monkeypatch.setattr(features, "predict_rows", count)
    return calls


def make(**settings) -> TextClassifier:
    shape = dict(d_model=22, num_layers=2, num_heads=2, d_ff=13, dropout=0.0)
    common = dict(
        max_length=17, min_count=1, batch_size=7, epochs=3, lr=0.01, train_layers=0, precision="fp32"
    )
    return TextClassifier("encoder-small", **(shape | common | settings))


def weights(clf: TextClassifier) -> dict[str, torch.Tensor]:
    return clf.model_.state_dict()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["first", "mean", "max", "pooler"])
def test_equal_to_training_without_the_cache(monkeypatch, counted, pooling, precision):
    held = TEXTS[:13], LABELS[:13]
    settings = dict(
        pooling=pooling,
        precision=precision,
        class_weight="balanced",
        label_smoothing=0.1,
        head="mlp",
        head_dropout=0.2,
    )
    ours = make(**settings).fit(TEXTS, LABELS, validation=held)
    assert counted == [41, 13]
    monkeypatch.setattr("glassformer.tasks.text_classification.estimator.can_be_cached", lambda *_: False)
    plain = make(**settings).fit(TEXTS, LABELS, validation=held)
    assert counted == [41, 13]
    near = dict(rtol=1e-3, atol=1e-4) if precision == "fp32" else dict(rtol=0.05, atol=0.05)
    for name, wanted in weights(plain).items():
        torch.testing.assert_close(weights(ours)[name], wanted, **near)
    for a, b in zip(ours.history_, plain.history_, strict=True):
        assert a.keys() == b.keys()
        if a["kind"] == "step":
            assert a["loss"] == pytest.approx(b["loss"], rel=near["rtol"])
            assert a["tokens"] == b["tokens"]
        else:
            assert a["loss"] == pytest.approx(b["loss"], rel=near["rtol"])


def test_held_out_texts_in_windows_are_judged_as_without_the_cache(monkeypatch):
    settings = dict(max_length=5, long_texts="mean", window_stride=2)
    ours = make(**settings).fit(TEXTS, LABELS, validation=(TEXTS, LABELS))
    monkeypatch.setattr("glassformer.tasks.text_classification.estimator.can_be_cached", lambda *_: False)
    plain = make(**settings).fit(TEXTS, LABELS, validation=(TEXTS, LABELS))
    losses = [[r["loss"] for r in clf.history_ if r["kind"] == "evaluation"] for clf in (ours, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_encoder_keeps_its_bits_and_the_head_learns(precision):
    before = weights(make(precision=precision, lr=0.0).fit(TEXTS, LABELS))
    after = weights(make(precision=precision).fit(TEXTS, LABELS))
    for name, wanted in before.items():
        assert torch.equal(after[name], wanted) == (not name.startswith("head.")), name


def test_a_second_run_computes_no_features(counted, cache):
    first = make().fit(TEXTS, LABELS)
    assert counted == [41]
    second = make(epochs=3, batch_size=7).fit(TEXTS, LABELS)
    make(lr=0.1, head_dropout=0.3, class_weight="balanced").fit(
        TEXTS, LABELS
    )  # another head on the same encoder
    assert counted == [41]
    assert all(torch.equal(weights(second)[n], w) for n, w in weights(first).items())
    assert not [file for file in cache.rglob("*") if file.suffix in (".pt", ".pkl", ".npy", ".npz")]


def test_other_weights_or_other_texts_are_other_features(counted):
    make().fit(TEXTS, LABELS)
    make(seed=1).fit(TEXTS, LABELS)
    make().fit([*TEXTS[1:], TEXTS[0]], [*LABELS[1:], LABELS[0]])
    make(max_length=5).fit(TEXTS, LABELS)
    make(pooling="mean").fit(TEXTS, LABELS)
    assert counted == [41] * 5


@pytest.mark.parametrize("damage", [b"", b"\0" * 64, None])
def test_damage_is_noticed_and_mended(counted, cache, damage):
    wanted = make().fit(TEXTS, LABELS)
    (file,) = cache.rglob("*.safetensors")
    if damage is None:
        flipped = bytearray(file.read_bytes())
        flipped[-3] ^= 1
        damage = bytes(flipped)
    file.write_bytes(damage)
    again = make().fit(TEXTS, LABELS)
    assert counted == [41, 41]
    assert all(torch.equal(weights(again)[n], w) for n, w in weights(wanted).items())
    make().fit(TEXTS, LABELS)
    assert counted == [41, 41]


def test_a_cache_that_cannot_be_written_is_done_without(counted, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    clf = make().fit(TEXTS, LABELS)
    assert counted == [41]
    assert len(clf.predict(TEXTS)) == 41


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
@pytest.mark.parametrize(
    "settings",
    [dict(dropout=0.1), dict(word_dropout=0.1), dict(stochastic_depth=0.1), dict(pooling="attention")],
)
def test_what_changes_from_step_to_step_is_not_cached(counted, settings):
    clf = make(**settings).fit(TEXTS, LABELS)
    assert counted == []
    start = weights(make(lr=0.0, **settings).fit(TEXTS, LABELS))
    for name, weight in weights(clf).items():
        if name.startswith(("encoder.", "embeddings.")):
            assert torch.equal(weight, start[name]), name


def test_resume_gives_the_same_bits(tmp_path, counted):
    found = stopped_and_resumed(make(checkpoint_every=4), TEXTS, LABELS, folder=tmp_path / "c", at=(8,))
    assert same(found, make().fit(TEXTS, LABELS))


def test_the_oldest_features_go_first(tmp_path, monkeypatch, cache):
    import os

    for seed in range(3):
        make(seed=seed).fit(TEXTS, LABELS)
        for folder in cache.iterdir():
            os.utime(folder, (folder.stat().st_atime - 100, folder.stat().st_mtime - 100))
    folders = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime)
    one = sum(file.stat().st_size for file in folders[0].iterdir())
    features._prune(cache, 2 * one + 100)
    assert set(cache.iterdir()) == set(folders[1:])


def test_a_clock_set_back_does_not_throw_the_newest_away(tmp_path, cache):
    for name, when in (("from-the-future", 4e9), ("fresh", 1e9)):
        (cache / name).mkdir(parents=True)
        (cache / name / "x").write_bytes(bytes(101))
        os.utime(cache / name, (when, when))
    features._prune(cache, 150, cache / "fresh")
    assert [path.name for path in cache.iterdir()] == ["fresh"]


def test_features_lead_to_the_models_own_logits():
    clf = make(pooling="pooler").fit(TEXTS, LABELS)
    table = clf.encode(TEXTS)
    from glassformer.data.batching import pack_texts

    batch = pack_texts(table, np.arange(41))
    with torch.no_grad():
        wanted = clf.model_(batch.ids, packing=batch.packing).logits
        got = clf.model_.classify(clf.model_.features(batch.ids, batch.packing))
    torch.testing.assert_close(got, wanted)
