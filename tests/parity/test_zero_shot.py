"""Labels without training, by a model of entailment: the probabilities of transformers' zero-shot pipeline."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli.app import main
from glassformer.errors import ConfigError, DataError

from .test_pairs_of_texts import KINDS, SIDES, put

transformers = pytest.importorskip("transformers")

LABELS = ["guitar", "dog fight", "child"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("template", ["This example is {}.", "about {}"])
def test_probabilities_are_those_of_their_pipeline(kind, multi_label, template, tmp_path):
    put(kind, tmp_path)
    theirs = transformers.pipeline("zero-shot-classification", str(tmp_path), device="cpu")
    texts = [*SIDES, "a dog runs through the high grass " * 20]  # the last is cut, its hypothesis never
    clf = gf.ZeroShotClassifier(tmp_path, LABELS, template=template, multi_label=multi_label)
    clf.classifier.set_params(precision="fp32", max_length=97)
    found = clf.predict_proba(texts)
    for row, answer in zip(
        found, theirs(texts, LABELS, hypothesis_template=template, multi_label=multi_label), strict=True
    ):
        wanted = dict(zip(answer["labels"], answer["scores"], strict=True))
        np.testing.assert_allclose(row, [wanted[label] for label in LABELS], atol=1e-5)
    assert clf.predict(texts).tolist() == [LABELS[i] for i in found.argmax(1)]
    assert clf.truncated(texts).tolist() == [False] * len(SIDES) + [True]


def test_one_label_is_judged_by_itself(tmp_path):
    put("bert", tmp_path)
    theirs = transformers.pipeline("zero-shot-classification", str(tmp_path), device="cpu")
    clf = gf.ZeroShotClassifier(gf.load(tmp_path).set_params(precision="fp32", max_length=97), ["guitar"])
    wanted = [answer["scores"] for answer in theirs(SIDES, ["guitar"])]
    np.testing.assert_allclose(clf.predict_proba(SIDES), wanted, atol=1e-5)


def test_an_answer_is_explained_as_the_pair_it_is(tmp_path):
    put("bert", tmp_path)
    clf = gf.ZeroShotClassifier(tmp_path, LABELS)
    e = clf.explain(SIDES[0], "guitar", cross=True)
    assert e.target == "entailment"
    assert e.text == f"{SIDES[0]}\nThis example is guitar."
    assert e.cross is not None
    assert clf.explain(SIDES[0], method="rollout").text.startswith(SIDES[0])


def test_what_cannot_be_asked_is_refused_in_one_line(tmp_path):
    put("bert", tmp_path)
    clf = gf.load(tmp_path)
    with pytest.raises(ConfigError, match="for the label"):
        gf.ZeroShotClassifier(clf, LABELS, template="no place")
    with pytest.raises(DataError, match="two classes are called 'a'"):
        gf.ZeroShotClassifier(clf, ["a", "a"])
    with pytest.raises(ConfigError, match="no list of labels"):
        gf.ZeroShotClassifier(clf, [])
    clf.classes_ = np.array(["x", "y", "z"])
    with pytest.raises(ConfigError, match="expected one entailment class among x, y, z"):
        gf.ZeroShotClassifier(clf, LABELS)
    clf.pairs_ = False
    with pytest.raises(ConfigError, match="only for entailment models"):
        gf.ZeroShotClassifier(clf, LABELS)


def test_from_the_command_line(tmp_path, capsys):
    put("bert", tmp_path)
    given = ["--labels", "guitar, dog fight", "--labels", "child", "--template", "about {}"]
    assert main(["predict", str(tmp_path), *SIDES[:2], *given]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    clf = gf.ZeroShotClassifier(tmp_path, LABELS, template="about {}")
    assert [label for label, *_ in lines] == clf.predict(SIDES[:2]).tolist()
    assert main(["predict", str(tmp_path), *SIDES[:2], "--template", "about {}"]) == 2
    assert "no list of labels" in capsys.readouterr().err
