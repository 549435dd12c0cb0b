"""``audit``: planted defects are found, one at a time, and clean data have none."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.audit.conftest import ACCENTED, fitted, messages, write

import glassformer as gf
from glassformer.audit.audit import CHECKS, audit
from glassformer.audit.perturb import IMAGE_CHANGES, TEXT_CHANGES, changed
from glassformer.audit.predictions import predict
from glassformer.cli.app import main
from glassformer.data.text_pairs import TextPair
from glassformer.errors import InputError


def codes(found) -> set[str]:
    return {f["code"] for one in found["checks"] for f in one["findings"] if f["severity"] == "warning"}


def test_a_clean_model_on_clean_data_has_no_warning(judged):
    found = audit(judged(messages(401, 7)))
    assert codes(found) == set()
    assert found["warnings"] == 0
    measured = {one["name"]: one["measured"] for one in found["checks"]}
    assert [*measured] == [*CHECKS]
    assert [name for name, so in measured.items() if not so] == ["leaks"]  # a model without its run
    assert len(found["sentences"]) == 5


OTHER = {"refund": "delivery", "delivery": "account", "account": "refund"}
DEFECTS = {  # code of the check -> what is planted, and the other checks that it may set off
    "duplicates": (lambda rows: rows + rows[:20], set()),
    "wrong-labels": (
        lambda rows: [(t, y if i % 20 else OTHER[y]) for i, (t, y) in enumerate(rows)],
        {"miscalibrated"},
    ),
    "label-map": (
        lambda rows: [(t, OTHER[y]) for t, y in rows],
        {"miscalibrated", "no-better-than-constant"},
    ),
    "imbalance": (
        lambda rows: [row for i, row in enumerate(rows) if row[1] != "account" or i % 36 == 2],
        set(),
    ),
}


@pytest.mark.parametrize("code", DEFECTS)
def test_a_defect_of_the_data_is_found_and_nothing_else(judged, code):
    plant, others = DEFECTS[code]
    found = audit(judged(plant(messages(601, 8))), checks=["performance", "data", "calibration"])
    assert code in codes(found)
    assert codes(found) <= {code} | others
    if code == "wrong-labels":  # the flipped rows are those that are shown
        shown = next(f for one in found["checks"] for f in one["findings"] if f["code"] == code)
        rows = [int(line.rpartition(", row ")[2].partition(":")[0]) for line in shown["examples"]]
        assert {(row - 2) % 20 for row in rows} == {0}


def test_a_word_that_decides_alone_is_found(judged, tmp_path):
    rows = messages(331, 0)
    trained = [(f"{t} zq", "refund") if i % 9 == 0 else (t, y) for i, (t, y) in enumerate(rows)]
    bad = fitted(trained, tmp_path / "bad")
    # Enough of the word to be seen among the predictions; a linear model needs a large weight to be turned by it.
    new = [(f"{t} zq zq zq", y) if i % 25 == 0 else (t, y) for i, (t, y) in enumerate(messages(401, 9))]
    (check,) = (one for one in audit(judged(new, of=bad), checks=["shortcuts"])["checks"] if one["measured"])
    strongest = {(one["part"], one["label"]) for one in check["values"]["strongest"]}
    assert ("zq", "refund") in strongest


def test_the_run_knows_its_training_data(tmp_path, monkeypatch, capsys):
    """Rows of the training are a leak; accents that the training's texts had are missed."""
    monkeypatch.chdir(tmp_path)
    rows = messages(331, 0)
    write(Path("train.csv"), rows)
    assert main(["train", "--text", "train.csv", "--model", "tfidf", "--out", "run"]) == 0
    new = [(" ".join(w for w in t.split() if w not in ACCENTED), y) for t, y in messages(201, 10)]
    write(Path("new.csv"), new + rows[:30])
    capsys.readouterr()
    assert main(["audit", "run", "new.csv", "--out", "audit", "--fail-on-warning", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert {"leak", "accents-lost"} <= codes(found)
    leaks = next(one for one in found["checks"] if one["name"] == "leaks")
    assert 20 <= leaks["values"]["seen"] <= 30  # a tenth of the rows became validation data
    assert f" of {len(new) + 30} examples" in leaks["findings"][0]["message"]
    assert found["folder"] == "audit"
    assert json.loads(Path("audit/audit.json").read_text())["n"] == len(new) + 30
    table = list(csv.DictReader(Path("audit/predictions.csv").read_text().splitlines()))
    assert table[3]["where"] == "new.csv, row 5"
    assert np.mean([row["wrong"] == "0" for row in table]) == found["checks"][0]["values"]["value"]
    page = Path("audit/audit.html").read_text()
    for title in ("Leaks from training", "EU AI Act, Annex IV", "Not measured: negation"):
        assert title in page
    assert main(["audit", "run", "--check", "performance", "--out", "own", "--fail-under", "1"]) in (0, 3)
    assert Path("own/audit.html").read_text().count("Not measured: it was not selected") == 7


def test_a_watermark_in_images_of_one_class_is_found(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(60):
        label = ["dark", "light"][i % 2]
        image = rng.integers(90, 160, (24, 24, 3)).astype(np.uint8)
        if label == "light":
            image[:6, :6] = 255
        (tmp_path / "all" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "all" / label / f"{i}.png")
    files = sorted((tmp_path / "all").rglob("*.png"))
    model = gf.ImageClassifier("hog", threads=1).fit(files, [f.parent.name for f in files])
    model.save(tmp_path / "model")
    found = audit(predict(tmp_path / "model", str(tmp_path / "all")), checks=["shortcuts", "robustness"])
    shown = [f["message"] for one in found["checks"] for f in one["findings"] if f["code"] == "shortcut"]
    assert any("row 1, column 1 of 4 x 4" in line and "to 'light'" in line for line in shown)
    changes = next(one["values"]["changes"] for one in found["checks"] if one["name"] == "robustness")
    assert [one["change"] for one in changes] == [*IMAGE_CHANGES]
    assert len(changes) == 15


def test_numbers_have_the_checks_that_fit_them(tmp_path, judged):
    rows = [(text, str(len(text.split()))) for text, _ in messages(211, 11)]
    texts, lengths = zip(*rows, strict=True)
    gf.TextRegressor("tfidf", threads=1).fit(texts, list(map(float, lengths))).save(tmp_path / "m")
    found = audit(judged(rows, of=tmp_path / "m"))
    left_out = {one["name"] for one in found["checks"] if not one["measured"]}
    assert left_out == {"leaks", "calibration", "shortcuts"}
    assert found["checks"][0]["values"]["metric"] == "mean absolute error"


@pytest.mark.parametrize("name", [*TEXT_CHANGES])
def test_a_change_of_texts_is_the_same_again_and_keeps_the_words_in_number(name):
    text = "Très bien, the parcel ARRIVED yesterday"
    assert changed(text, name, 3) == changed(text, name, 3)
    assert len(changed(text, name, 3).split()) == len(text.split())
    assert isinstance(changed(TextPair(text, text), name, 3), TextPair)


def test_what_texts_become():
    assert changed("Crème đường", "accents dropped", 0) == "Creme duong"
    assert changed("Well, no!", "punctuation dropped", 0) == "Well no"
    assert changed("?!", "punctuation dropped", 0) == "?!"
    assert changed("Aa", "upper case", 0) == "AA"


@pytest.mark.parametrize("name", [*IMAGE_CHANGES])
def test_a_change_of_images_keeps_size_and_range_and_is_the_same_again(name):
    image = np.random.default_rng(0).integers(0, 256, (37, 23, 3)).astype(np.uint8)
    once, again = (changed(image, name, 5) for _ in range(2))
    assert (once.shape, once.dtype) == (image.shape, np.uint8)
    assert (once == again).all()
    assert (once != image).any()


def test_a_missing_folder_is_named_as_typed():
    with pytest.raises(InputError, match=r"^nofolder: no such run folder\. Name a folder"):
        predict("nofolder", "reviews.csv")
