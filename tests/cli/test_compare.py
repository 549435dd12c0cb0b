"""compare, calibrate, cross-validate, review-labels, report and reproduce, as a user calls them."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from glassformer.cli.calibrate import few_mistakes
from glassformer.config import parse_settings, read_toml, toml_literal
from glassformer.report.published import published_rows
from glassformer.tasks.catalog import recipe_names

from .tiny import TINY, sentences, sets, settings, write_csv


@pytest.fixture
def study(reviews: Path, tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    values = parse_settings([f"source={str(reviews)!r}", "validation_size=0.3", *TINY])
    lines = "\n".join(f"{key} = {toml_literal(value)}" for key, value in values.items())
    path.write_text(f'recipe = "europe"\n[set]\n{lines}\n[grid]\nlr = [1e-2, 1e-3]\n', encoding="utf-8")
    return path


def test_compare_reports_and_can_be_called_again(ok, study, tmp_path):
    out = tmp_path / "out"
    first = ok("compare", study, "--out", out, "--workers", 0)
    assert "significant" in first.out
    assert "lr=0.001" in first.out
    assert (out / "report.html").is_file()
    again = ok("compare", study, "--out", out, "--workers", 0)
    assert "2 of 2 runs are finished already" in again.out
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    ok("report", out)
    assert (out / "report.html").read_bytes() == page


def test_models_are_compared_on_a_table_of_ones_own(gf, ok, refused, reviews, tmp_path):
    words = sets(*[setting for setting in TINY if not setting.startswith("model=")])
    call = ("compare", "--text", reviews, "--model", "encoder-mini", "encoder-small", "--workers", 0, *words)
    first = ok(*call)
    folder = tmp_path / "runs" / "reviews-models"
    assert "encoder-small" in first.out
    assert "validation examples, one seed" in first.out
    assert (folder / "report.html").is_file()
    assert "2 of 2 runs are finished already" in gf(*call).out
    runs = [folder / "arms" / name / "seed-0" for name in ("encoder-mini", "encoder-small")]
    beside = ok("compare", *runs, "--out", "both")
    assert "29" not in beside.err
    assert (tmp_path / "both" / "report.html").is_file()
    assert "to write a report and tables: --out DIR" in gf("compare", *runs).out
    assert "has no effect on finished runs" in refused("compare", *runs, "--set", "lr=1")
    assert "contains a run or a study" in refused("compare", *runs, "--out", folder)
    shutil.copytree(runs[1], other := tmp_path / "other")
    path = other / "predictions.csv"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-3]), encoding="utf-8")  # one of its examples is among the others' no more
    n = len(lines) - 1
    said = refused("compare", runs[0], other)
    ours, theirs = other.as_posix(), runs[0].as_posix()
    what = f"were evaluated on different examples: {n - 3} and {n}, {n - 3} of them the same"
    assert f"{ours} and {theirs} {what}" in said
    assert said.count(ours) == 1
    assert "evaluate RUN --data FILE" in said
    wider = [line.rstrip() + (",0" if i else ",p:fine") for i, line in enumerate(lines)]
    path.write_text("\n".join(wider) + "\n", encoding="utf-8")
    assert "have different labels: fine in only one of them" in refused("compare", runs[0], other)


def test_calibrate(gf, as_json, ok, run):
    result = ok("calibrate", run, "--threshold", "macro_f1")
    assert "temperature" in result.out
    assert "threshold on 'pos'" in result.out
    assert result.out.count("│ before │") == result.out.count("│ after  │") == 2  # no cell is broken
    assert all(len(line) <= 80 for line in result.out.splitlines() if "│" in line)
    assert "examples for calibration: with fewer than 100" in result.err
    assert "set the threshold with --abstain-below P; measured on the validation examples" in result.out
    found = as_json("calibrate", run)
    assert found["threshold"] is None
    limits = found["abstaining"]
    assert [left["answered"] for left in limits] == sorted((x["answered"] for x in limits), reverse=True)
    mistakes = round((1 - found["splits"]["validation"]["before"]["accuracy"]) * limits[0]["n"])
    assert found["mistakes"] == mistakes
    none = next(few_mistakes(found | {"mistakes": 0}))
    assert none.startswith(f"no wrong prediction in the {limits[0]['n']} examples")
    assert "only 1 wrong prediction in" in next(few_mistakes(found | {"mistakes": 1}))
    assert not list(few_mistakes(found | {"mistakes": 5}))
    several = next(few_mistakes(found | {"mistakes": [0, 3], "classes": ["warm", "cold"]}))
    assert "for 1 of 2 labels (warm)" in several
    assert "set the threshold with" not in gf("calibrate", run, "--abstain-below", 0.6).out


def test_calibrate_more_than_two_classes(gf, as_json, ok, tmp_path):
    rows = [(text, "odd" if i % 5 == 0 else label) for i, (text, label) in enumerate(sentences(90))]
    data = write_csv(tmp_path / "three.csv", rows)
    ok("train", "--text", data, "--out", "three", *settings())
    result = ok("calibrate", "three", "--threshold", "macro_f1", "--abstain-below", 0.4)
    assert "thresholds for the best macro-F1" in result.out
    assert "test: with abstention below 0.4" in result.out
    assert "clf.threshold_ = None; clf.abstain_below_ = None" in result.out
    found = as_json("calibrate", "three", "--threshold", "accuracy")
    assert len(found["threshold"]) == 3
    assert found["abstain_below"] is None
    ok("calibrate", "three", "--abstain-below", 0.999)
    told = gf("predict", "three", "a film", "a plot")
    assert [line.split("\t")[0] for line in told.out.splitlines()] == ["", ""]
    assert "2 of 2 texts got no label: the model abstains below a probability of 0.999" in told.err
    answers = as_json("predict", "three", "a film")
    assert answers["abstained"] == 1
    assert answers["answers"][0]["label"] is None
    assert len(answers["answers"][0]["probabilities"]) == 3
    ok("predict", "three", data, "--out", "said.csv")
    line = Path("said.csv").read_text().splitlines()[1].split(",")
    assert line[4] == ""
    assert float(line[5]) == max(map(float, line[6:9]))
    assert "with abstention below 0.999, 0 of" in gf("evaluate", "three").out


def test_cross_validate_and_review(gf, ok, refused, reviews, tmp_path):
    out = tmp_path / "folds"
    result = ok("cross-validate", "--text", reviews, "--folds", 2, "--out", out, *settings())
    assert "mean (SD)" in result.out
    assert "all 60 answers" in result.out
    listed = ok("review-labels", out, "--top", 5)
    assert "the 5 most suspicious" in listed.out
    pages = gf("report", out)
    assert pages.out.count("report: ") == 2
    said = refused("review-labels", out, "--model", "encoder-mini")
    assert "options of a finished cross-validation cannot be changed" in said
    assert "Use 1 or more" in refused("review-labels", out, "--top", 0)


def test_review_runs_the_folds_that_it_needs(ok, tmp_path):
    data = write_csv(tmp_path / "few.csv", sentences(20))
    result = ok("review-labels", "--text", data, "--folds", 2, "--out", tmp_path / "f", *settings())
    assert "labels look wrong" in result.out
    assert "that look wrong: " in result.out
    assert "the scores on these rows are too high" in result.err
    closing = next(line for line in result.out.splitlines() if "then train on that file: " in line)
    given = shlex.split(closing.split("then train on that file: ")[1])[1:]
    again = read_toml(tmp_path / "f" / "config.toml")
    ok(*given, "--out", tmp_path / "again")
    ours = read_toml(tmp_path / "again" / "config.toml")
    for name in ("text", "model", "train"):
        assert ours[name] == again[name]


def test_reproduce_lists_every_row(ok, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    result = ok("reproduce", "--table")
    assert all(f" {row.number} " in result.out for row in published_rows())
    assert "imdb-encoder-small" in result.out
    assert "2 h 30 min" in result.out
    ok("reproduce", "--table", "--out", "results.md")
    page = Path("results.md").read_text(encoding="utf-8")
    assert "| 13 | [encoder from scratch, base width](results/row-13.md) |" in page
    assert all(Path(link).is_file() for link in re.findall(r"\]\((results/[^)]*)\)", page))


def test_rows_name_recipes_that_are_there():
    named = {name for row in published_rows() for name in row.recipes}
    assert named <= set(recipe_names())
    assert [row.number for row in published_rows()] == list(range(1, 14))


def test_reproduce_runs_a_row(ok, tmp_path):
    result = ok("reproduce", "8", "--out", tmp_path / "r", *settings("limit=40"))
    assert "published: curves and maps" in result.out
    assert "with your own settings" in result.out


def test_runs_of_one_and_of_several_labels_are_not_compared(ok, refused, tmp_path):
    rows = [(f"{'good' if i % 2 else 'bad'} film {i}", ("neg", "pos")[i % 2]) for i in range(40)]
    write_csv(tmp_path / "r.csv", rows)
    for name, options in (("one", ()), ("several", ("--label-separator", "|"))):
        ok("train", "--text", "r.csv", "--model", "tfidf", "--out", name, *options)
    said = refused("compare", "one", "several", "--out", "both")
    assert "several predicts a set of labels per example, and one predicts one label per example" in said
