"""Cross-validation and the label review that stands on it."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tables import read_csv, write_csv

from glassformer.data.answered import QASplit
from glassformer.data.dataset import TextSplit
from glassformer.data.image_sources import ImageSplit
from glassformer.data.pairs import ScoredSplit
from glassformer.data.questions import Answers, Question
from glassformer.data.splits import stratified_folds
from glassformer.data.tagged import TaggedSplit
from glassformer.data.text_pairs import TextPair
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import read_predictions
from glassformer.study.folds import OUT_OF_FOLD, cross_validate, data_digest
from glassformer.study.review import review
from glassformer.tasks.catalog import load_recipe

FLIPPED = (3, 20, 41)  # rows of train.csv whose label is turned round
OTHER = {"good": "bad", "bad": "good"}


def read_rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_folds_are_stratified_and_copies_stay_together():
    labels = ["a"] * 41 + ["b"] * 23
    groups = [f"text {i % 50}" for i in range(41)] + [f"b {i % 17}" for i in range(23)]
    found = stratified_folds(labels, 5, 0, groups)
    assert sorted(set(found.tolist())) == list(range(5))
    for group in set(groups):
        assert len({f for f, g in zip(found, groups, strict=True) if g == group}) == 1
    shares = [np.mean(np.array(labels)[found == k] == "a") for k in range(5)]
    assert max(shares) - min(shares) < 0.25
    assert np.array_equal(found, stratified_folds(labels, 5, 0, groups))
    assert not np.array_equal(found, stratified_folds(labels, 5, 1, groups))
    said = r"class 'b' has 1 example, but 5 folds need 5\. Add examples of the class$"
    with pytest.raises(DataError, match=said):
        stratified_folds(["a"] * 9 + ["b"], 5, 0)
    with pytest.raises(DataError, match="class 'b' has 2 distinct examples, but 3 folds need 3"):
        stratified_folds(["a"] * 7 + ["b"] * 4, 3, 0, [str(i) for i in range(7)] + ["x", "x", "y", "y"])


def test_folds_of_neighbouring_rows():
    labels = ["a", "b"] * 30
    found = stratified_folds(labels, 5, 0, blocks=True)
    for name in "ab":
        own = found[np.array(labels) == name]
        assert own.tolist() == sorted(own.tolist())  # one run each
        assert np.bincount(own).tolist() == [6] * 5


@pytest.fixture(scope="module")
def noisy(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base recipe on data of which three training labels are wrong, without validation data."""
    folder = tmp_path_factory.mktemp("noisy")
    head, *rows = read_rows(base.parent / "train.csv")
    for i in FLIPPED:
        rows[i - 1][1] = OTHER[rows[i - 1][1]]
    write_csv(folder / "train.csv", head, rows)
    shutil.copy(base.parent / "test.csv", folder)
    path = folder / "noisy.toml"
    path.write_text(base.read_text().replace(str(base.parent), str(folder)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def done(noisy: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("folds") / "folds"
    lines: list[str] = []
    recipe = load_recipe(noisy, ["epochs=8"])
    return folder, cross_validate(recipe, folder, 3, log=lines.append), lines, recipe


def test_every_example_is_judged_once_by_a_model_new_to_it(done):
    folder, metrics, _, _ = done
    rows = list(read_predictions(folder / "predictions.csv"))
    assert [row.row for row in rows] == [str(i) for i in range(2, 63)]
    assert {row.split for row in rows} == {OUT_OF_FOLD}
    assert sum(f["n"] for f in metrics["folds"]) == len(rows) == metrics["test"]["n"] == 61
    assert all(f["n"] + f["trained_on"] == 61 for f in metrics["folds"])
    right = sum(not row.is_wrong for row in rows)
    assert metrics["test"]["accuracy"] == pytest.approx(right / 61)
    assert right / 61 > 0.85  # three labels are wrong


def test_a_label_that_only_copies_have_is_judged_too(base, tmp_path):
    """The first of two copies has another label, so one fold holds both and the others never learn it."""
    rows = [(f"a {('dull', 'warm')[i % 2]} film {i}", "ab"[i % 2]) for i in range(20)]
    write_csv(tmp_path / "train.csv", ["text", "label"], [*rows, (rows[2][0], "rare")])
    path = tmp_path / "rare.toml"
    path.write_text(base.read_text().replace(str(base.parent), str(tmp_path)), encoding="utf-8")
    metrics = cross_validate(load_recipe(path, ["epochs=1"]), tmp_path / "folds", 3)
    assert metrics["test"]["labels"] == ["a", "b", "rare"]
    assert metrics["test"]["n"] == 21
    assert metrics["test"]["per_class"][2]["recall"] == 0


def test_mean_and_spread_and_page(done):
    folder, metrics, _, _ = done
    shares = [f["accuracy"] for f in metrics["folds"]]
    over = metrics["over_folds"]["accuracy"]
    assert over["mean"] == pytest.approx(np.mean(shares))
    assert over["sd"] == pytest.approx(np.std(shares, ddof=1))
    assert (over["min"], over["max"]) == (min(shares), max(shares))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Cross-validation folds" in page
    assert "61 out-of-fold texts" in page


def test_finished_folds_are_kept_and_broken_ones_go_on(done, tmp_path):
    folder, metrics, _, recipe = done
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "fold-1" / "fold.json").unlink()
    lines: list[str] = []
    again = cross_validate(recipe, copy, 3, log=lines.append)
    assert again["test"] == metrics["test"]
    assert [line.endswith("(kept)") for line in lines[1:]] == [True, False, True]


def test_finished_folds_of_other_data_are_refused(done, noisy, tmp_path):
    folder = tmp_path / "folds"
    shutil.copytree(done[0], folder)
    head, *rows = read_rows(noisy.parent / "train.csv")
    relabelled = [[text, OTHER[label]] for text, label in rows]
    recipe = done[3]
    kept = (folder / "folds.json").read_text(encoding="utf-8")
    try:
        for changed in (relabelled, rows[::-1], rows[:-1]):
            write_csv(noisy.parent / "train.csv", head, changed)
            with pytest.raises(
                DataError, match=r"have changed since the finished folds .* Choose another --out"
            ):
                cross_validate(recipe, folder, 3)
            assert (folder / "folds.json").read_text(encoding="utf-8") == kept
            if changed is not relabelled:
                continue
            plan = json.loads(kept)
            plan.pop("data_sha256")  # as earlier versions wrote it, what can be seen is the number alone
            (folder / "folds.json").write_text(json.dumps(plan), encoding="utf-8")
            cross_validate(recipe, folder, 3)
            (folder / "folds.json").write_text(kept, encoding="utf-8")
    finally:
        write_csv(noisy.parent / "train.csv", head, rows)
    cross_validate(recipe, folder, 3)


ASKED = Question("a?", "b c")


@pytest.mark.parametrize(
    ("split", "other"),
    [
        (TextSplit(["a", "b"], ["x", "y"], "t"), TextSplit(["a", "b"], ["x", "z"], "t")),
        (TextSplit(["a", "b"], [0.5, 1.5], "t"), TextSplit(["a", "b"], [0.5, 1.25], "t")),
        (TextSplit([TextPair("a", "b")], None, "t"), TextSplit([TextPair("a", "c")], None, "t")),
        (ImageSplit([b"1", b"2"], [0, 1], "t"), ImageSplit([b"1", b"3"], [0, 1], "t")),
        (TaggedSplit([["a", "b"]], [["O", "X"]], "t"), TaggedSplit([["a", "b"]], [["X", "O"]], "t")),
        (ScoredSplit(["a"], ["b"], [1.0], "t"), ScoredSplit(["a"], ["b"], [2.0], "t")),
        (ScoredSplit(["a"], ["b"], None, "t"), ScoredSplit(["a"], ["c"], None, "t")),
        (QASplit([ASKED], [Answers(("b",), (0,))], "t"), QASplit([ASKED], [Answers(("c",), (2,))], "t")),
    ],
)
def test_the_digest_of_data_has_all_that_is_learned(split, other):
    def of(train, validation=None):
        return data_digest(SimpleNamespace(train=train, validation=validation))

    assert of(split) == of(split)
    assert len({of(split), of(other), of(split, other), of(other, split)}) == 4
    assert of(split) == of(replace(split, origin="elsewhere", rows=range(9)))


def test_what_is_refused(done, noisy, tmp_path):
    folder, _, _, recipe = done
    (tmp_path / "own.txt").write_text("mine")
    few = "column 'label': class 'good' has 30 examples, but 40 folds need 40"
    for asked, error, said in (
        ((recipe, folder, 4), ConfigError, "contains 3 folds, not 4"),
        ((load_recipe(noisy, ["lr=0.5"]), folder, 3), ConfigError, "another recipe"),
        ((recipe, tmp_path / "x", 1), ConfigError, "1 folds"),
        ((recipe, tmp_path / "x", 40), DataError, few),
        ((recipe, tmp_path, 3), ConfigError, "not the folder of a cross-validation"),
    ):
        with pytest.raises(error, match=said):
            cross_validate(*asked)


def test_review_finds_the_flipped_labels(done, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(done[0], folder)
    found = review(folder, top=7)
    first = {int(s["row"]) for s in found["suggestions"]}
    assert first >= {i + 1 for i in FLIPPED}
    assert found["suspicious"] >= 1
    rows = read_csv(folder / "review.csv")
    assert [row["rank"] for row in rows] == [str(i) for i in range(1, 8)]
    assert {int(row["row"]) for row in rows} == first
    flags = [row["suspicious"] for row in rows]
    assert flags == sorted(flags, reverse=True)
    page = (folder / "review.html").read_text(encoding="utf-8")
    assert page.count("<blockquote") == 7
    assert json.loads((folder / "review.json").read_text())["n"] == 61


def test_review_escapes_what_texts_bring(done, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(done[0], folder)
    path = folder / "predictions.csv"
    path.write_text(path.read_text().replace("number", "<img src=x onerror=alert(1)>=cmd"), encoding="utf-8")
    review(folder, top=3)
    page = (folder / "review.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_review_needs_a_finished_cross_validation(done, tmp_path):
    with pytest.raises(ConfigError, match="no finished cross-validation"):
        review(tmp_path)
    with pytest.raises(ConfigError, match="top: 0"):
        review(done[0], top=0)
    (tmp_path / "folds.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not finished"):
        review(tmp_path)
