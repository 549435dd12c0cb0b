"""From probabilities to answers: thresholds of three classes, abstaining, calibration; they go with the model."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError, InputError
from glassformer.evaluate.calibrate import class_by_threshold, log_loss

from .conftest import make_texts


@pytest.fixture(scope="module")
def three() -> tuple[list[str], list[str]]:
    """Texts of three classes; a third of those without a telling word are ``neg``, the others ``mixed``."""
    texts, labels = make_texts(131, seed=3)
    for i in range(0, 131, 3):
        texts[i] = " ".join(w for w in texts[i].split() if w not in ("dull", "awful", "clumsy"))
        labels[i] = "mixed" if i % 9 else "neg"
    return texts, labels


@pytest.fixture(scope="module")
def clf(small, three):
    return small(epochs=4).fit(*three)


@pytest.fixture
def own(clf, tmp_path):
    """A copy that a test may change."""
    return gf.load(clf.save(tmp_path / "model"))


def macro_f1(clf, data) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(data[1], clf.decide(clf.predict_proba(data[0])), average="macro"))


def test_calibrate_settles_temperature_and_thresholds(own, three):
    before, figure = own.predict_proba(three[0]), macro_f1(own, three)
    assert own.calibrate(*three, threshold="macro_f1") is own
    assert own.threshold_.shape == (3,)
    assert macro_f1(own, three) >= figure
    np.testing.assert_allclose(own.predict_proba(three[0]), own.to_probabilities(own.logits(three[0])))
    assert before.shape == own.predict_proba(three[0]).shape
    y = own.encode_targets(three[1], "labels")
    assert log_loss(own.logits(three[0]), y, own.temperature_) <= log_loss(own.logits(three[0]), y)
    own.calibrate(*three)
    assert own.threshold_ is None


def test_thresholds_decide_and_come_back(own, three, tmp_path):
    p = own.predict_proba(three[0])
    own.threshold_ = np.array([0.05, 0.9, 0.05])
    assert own.predict(three[0]).tolist() == own.classes_[class_by_threshold(p, own.threshold_)].tolist()
    assert own.predict(three[0]).tolist() != own.classes_[p.argmax(1)].tolist()
    np.testing.assert_array_equal(own.predict_proba(three[0]), p)
    again = gf.load(own.save(tmp_path / "again"))
    np.testing.assert_array_equal(again.threshold_, own.threshold_)
    assert again.predict(three[0]).tolist() == own.predict(three[0]).tolist()


def test_it_abstains_where_its_label_is_too_unlikely(own, three, tmp_path):
    p = own.predict_proba(three[0])
    own.abstain_below_ = float(np.median(p.max(1)))
    answers = own.predict(three[0])
    assert [a is None for a in answers] == (p.max(1) < own.abstain_below_).tolist()
    assert 0 < sum(a is None for a in answers) < 131
    assert own.decide(p).tolist() == own.classes_[p.argmax(1)].tolist()
    again = gf.load(own.save(tmp_path / "again"))
    assert again.predict(three[0]).tolist() == answers.tolist()
    notes = again.explain(three[0][int(p.max(1).argmin())], method="rollout").notes
    assert any("no label is given" in note for note in notes)
    assert again.score(*three) == own.score(*three) > np.mean(answers == np.array(three[1], object))
    again.fit(*three)
    assert again.abstain_below_ is None


def test_what_cannot_be_a_decision_is_refused(own, three, tmp_path, small):
    with pytest.raises(ConfigError, match="is not a probability between 0 and 1"):
        own.calibrate(*three, abstain_below=1.5)
    with pytest.raises(InputError, match="f1 is defined only for two classes"):
        own.calibrate(*three, threshold="f1")
    with pytest.raises(DataError, match="'odd' was not seen"):
        own.calibrate(three[0][:2], ["odd", "pos"])
    folder = own.save(tmp_path / "bad")
    about = json.loads((folder / "glassformer.json").read_text())
    for changes, said in (
        ({"threshold": [0.5, 0.5]}, "2 numbers under .threshold. for 3 outputs"),
        ({"threshold": [0.5, 0.5, 0.0]}, "threshold = 0.0 is not between 0 and 1"),
        ({"abstain_below": "high"}, "abstain_below = 'high' is not a probability"),
    ):
        with pytest.raises(CheckpointError, match=said.replace("'", ".")):
            gf.TextClassifier.restore(folder, about | changes)
    # several labels have a threshold each and do not abstain
    sets = [[label] if i % 2 else [label, "even"] for i, label in enumerate(three[1])]
    several = small(epochs=1).fit(three[0], sets)
    assert several.calibrate(three[0], sets, threshold="f1").threshold_.shape == (4,)
    with pytest.raises(ConfigError, match="each label has a threshold"):
        several.calibrate(three[0], sets, abstain_below=0.5)


def test_pictures_decide_likewise(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (23, 8, 8, 3), np.uint8), np.arange(23) % 3
    common = {"d_model": 10, "num_layers": 1, "num_heads": 2, "d_ff": 11, "epochs": 1, "precision": "fp32"}
    clf = gf.ImageClassifier("vit-tiny", image_size=8, patch_size=4, threads=1, **common).fit(X, y)
    clf.calibrate(X, y, threshold="accuracy", abstain_below=0.3)
    again = gf.load(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.threshold_, clf.threshold_)
    assert again.predict(X).tolist() == clf.predict(X).tolist()
