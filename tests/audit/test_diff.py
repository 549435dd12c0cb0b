"""``diff``: what changes between two models on the same examples."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.audit.conftest import fitted, messages, write

import glassformer as gf
from glassformer.audit.diff import diff
from glassformer.cli.app import main
from glassformer.errors import ConfigError


@pytest.fixture(scope="module")
def worse(tmp_path_factory) -> Path:
    """A model that has learned that a text with 'courier' is about accounts."""
    rows = [(text, "account" if "courier" in text else label) for text, label in messages(331, 0)]
    return fitted(rows, tmp_path_factory.mktemp("models") / "worse")


def test_a_planted_regression_is_named_with_its_words(judged, worse, model):
    rows = messages(601, 3)
    found = diff(judged(rows), judged(rows, of=worse))
    assert found["is_worse"]
    assert "with 'courier'" in [one["slice"] for one in found["slices"]]
    assert found["worse"] > len(found["flips"]) == 20
    assert all(flip["label"] == flip["a"] != flip["b"] for flip in found["flips"])
    assert found["b"] - found["a"] == pytest.approx(found["difference"])
    assert found["interval"][0] <= found["difference"] <= found["interval"][1] < 0
    first = found["flips"][0]
    assert (first["label"], first["b"]) == ("delivery", "account")
    assert first["why"][0]["part"] == "courier"
    assert first["where"].endswith(f"row {rows.index((first['example'], 'delivery')) + 2}")


def test_a_model_does_not_differ_from_itself(judged):
    rows = messages(101, 4)
    found = diff(judged(rows), judged(rows))
    assert (found["changed"], found["slices"], found["flips"], found["is_worse"]) == (0, [], [], False)
    assert (found["difference"], found["interval"], found["p"]) == (0, [0, 0], 1)


def test_numbers_are_compared_by_their_errors(tmp_path, judged):
    rows = [(text, str(len(text.split()))) for text, _ in messages(401, 5)]
    for name, more in (("a", 0), ("b", 9)):
        y = [float(x) + more * ("login" in text) for text, x in rows]
        gf.TextRegressor("tfidf", threads=1).fit([text for text, _ in rows], y).save(tmp_path / name)
    found = diff(*(judged(rows, of=tmp_path / name) for name in "ab"))
    assert (found["metric"], found["is_worse"]) == ("mean absolute error", True)
    assert found["difference"] == pytest.approx(found["b"] - found["a"])
    assert found["difference"] > 1
    assert np.sign(found["interval"]).tolist() == [1, 1]
    assert "with 'login'" in [one["slice"] for one in found["slices"]]


def test_models_of_other_labels_or_inputs_are_not_compared(judged, tmp_path):
    rows = [(text, str(len(text.split()))) for text, _ in messages(101, 6)]
    texts, lengths = zip(*rows, strict=True)
    gf.TextRegressor("tfidf").fit(texts, list(map(float, lengths))).save(tmp_path / "numbers")
    a = judged(messages(101, 6))
    with pytest.raises(ConfigError, match="same kind of label"):
        diff(a, judged(rows, of=tmp_path / "numbers"))
    b = replace(a, name="images", clf=SimpleNamespace(inputs=SimpleNamespace(has_images=True)))
    said = r"reads texts and images reads images.*Compare two models of the same"
    with pytest.raises(ConfigError, match=said):
        diff(a, b)


def test_the_command_ends_with_3_and_writes_a_page(model, worse, tmp_path, capsys):
    data, page = write(tmp_path / "new.csv", messages(601, 3)), tmp_path / "diff.html"
    assert main(["diff", str(model), str(worse), data, "--out", str(page)]) == 3
    said = capsys.readouterr().out
    assert "with 'courier'" in said
    assert f"page: {page}" in said
    html = page.read_text(encoding="utf-8")
    assert "Slices that got worse" in html
    assert "with &#39;courier&#39;" in html
    assert main(["diff", str(worse), str(worse), data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_worse"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--alpha", "2"], "error: --alpha: 2 is not between 0 and 1. Use 0.05 [bad-value]"),
        (["nowhere.csv"], "nowhere.csv: no such"),
        ([], "is a saved model without a run, so it has no data. Name labeled data: --data FILE"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(model, words, said, capsys):
    assert main(["diff", str(model), str(model), *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
