"""Several labels an example through every verb, on a table whose cells join them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import read_csv

import glassformer

from .tiny import settings

LABELS = ("cat", "dog", "run")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    rows = []
    for i in range(90):
        labels = [label for label in LABELS if rng.random() < 0.4]
        words = [f"number {i}", *rng.choice(["the", "a", "old", "red"], 3), *labels]
        rows.append(f"{' '.join(words)},{';'.join(labels)}")
    path = tmp_path / "tags.csv"
    path.write_text("\n".join(["text,tags", *rows]) + "\n")
    return path


def asked(table: Path, *more: str) -> list[str]:
    given = ["--text", str(table), "--label-column", "tags", "--label-separator", ";"]
    return [*given, *settings("epochs=3", "lr=0.03", "batch_size=8", *more)]


def test_from_a_table_to_answers(gf, as_json, ok, table, tmp_path):
    ok("train", *asked(table, "baselines=true"), "--out", "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    clf = glassformer.load(tmp_path / "run")
    texts = ["the old cat run", "a red dog"]
    lines = gf("predict", "run", *texts).out.splitlines()
    shown = [" | ".join(labels) or "(none)" for labels in clf.predict(texts)]
    assert [line.split("\t")[0] for line in lines] == shown

    ok("predict", "run", table, "--text-column", "text", "--out", "said.csv")
    rows = read_csv("said.csv")
    assert len(rows) == 90
    p = np.array([[float(row[f"p:{label}"]) for label in LABELS] for row in rows])
    given = [tuple(np.array(LABELS)[row]) for row in p >= clf.threshold_]
    assert [row["predicted"] for row in rows] == [" | ".join(labels) or "(none)" for labels in given]
    sure = [min(own[np.isin(LABELS, labels)], default=1 - own.max()) for own, labels in zip(p, given)]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], sure, atol=1e-5)

    pq.write_table(pa.table({"text": texts}), "rows.parquet")
    ok("predict", "run", "--data", "rows.parquet", "--out", "scores.parquet")
    assert list(map(tuple, pq.read_table("scores.parquet").column("label").to_pylist())) == clf.predict(texts)

    figures = as_json("evaluate", "run")
    assert figures["micro_f1"] == metrics["test"]["micro_f1"]
    simple = max(metrics["baselines"].values(), key=lambda figures: figures["macro_f1"])
    apart = abs(simple["difference"]["value"]) * 100
    assert f"{apart:.1f} points" in figures["verdict"]  # of macro-F1, as the training said it
    found = as_json("calibrate", "run", "--threshold", "f1")
    assert len(found["temperature"]) == len(found["threshold"]) == 3
    again = as_json("calibrate", "run")
    assert again["splits"] == found["splits"]  # what was before stays what the training left
    np.testing.assert_allclose(glassformer.load(tmp_path / "run").temperature_, found["temperature"])


def test_labels_that_look_like_joined_ones_are_compared_as_they_were_judged(gf, ok, table, tmp_path):
    renamed = table.read_text().replace("dog", "R&D | lab").replace("cat", "(other)")
    table.write_text(renamed)
    for seed, name in enumerate("ab"):
        ok("train", *asked(table, f"seed={seed}", "epochs=1"), "--out", name)
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert metrics["label_names"] == ["(other)", "R&D | lab", "run"]
    assert gf("compare", "a", "b", "--out", "both").code != 0  # two seeds of one recipe
    ok("train", *asked(table, "epochs=1", "lr=0.001"), "--out", "c")
    ok("compare", "a", "c", "--out", "both")
    arm = json.loads((tmp_path / "both" / "results.json").read_text())["arms"][0]
    assert arm["accuracy"]["mean"] == pytest.approx(metrics["test"]["accuracy"])
    assert arm["macro_f1"]["mean"] == pytest.approx(metrics["test"]["macro_f1"])
    table.write_text(renamed + "one more,run;(none)\n")
    result = gf("train", *asked(table), "--out", "none")
    assert result.code == 2
    assert "a label is called '(none)'" in result.err


def test_cells_without_a_separator_say_how_to_name_it(refused, table, tmp_path):
    said = refused("train", "--text", table, "--label-column", "tags", "--out", "run")
    assert "several labels" in said
    assert "--label-separator" in said


def test_the_doctor_names_the_separator_that_it_sees(ok, table, tmp_path):
    result = ok("data", "doctor", table, "--label-column", "tags")
    said = " ".join(result.out.replace("│", " ").split())
    assert "Name the separator with --label-separator ';'" in said
    assert "class_weight" not in said
    assert "lone-classes" not in said
    assert "--label-separator ';'" in result.out.splitlines()[-1]


def test_a_label_that_is_asked_about_has_its_own_probability(gf, ok, table, tmp_path):
    ok("train", *asked(table), "--out", "run")
    clf = glassformer.load(tmp_path / "run")
    p = dict(zip(clf.classes_, clf.predict_proba(["a red dog run"])[0], strict=True))
    first, *_, last = sorted(p, key=p.__getitem__, reverse=True)
    given = ["explain", "run", "a red dog run", "--method", "occlusion", "--target", last]
    answer, asked_for = gf(*given).out.splitlines()[0].split(" · ")
    assert answer.split()[0] == first
    assert float(answer.split()[1]) == pytest.approx(p[first], abs=0.02)
    assert asked_for.startswith(f"occlusion for {last} ")
    assert float(asked_for.split()[-1]) == pytest.approx(p[last], abs=0.02)
    ok(*given, "--out", "why.html")
    assert f"{100 * float(asked_for.split()[-1]):.1f} %" in (tmp_path / "why.html").read_text()


def test_labels_that_look_wrong_or_are_missing_are_found_and_given_back(ok, table, tmp_path):
    lines = table.read_text().splitlines()
    texts = [line.split(",")[0] for line in lines[1:]]
    wrong = [i for i, text in enumerate(texts) if "dog" in text.split()][:3]
    for i in wrong:  # a dog is forgotten
        left = [label for label in LABELS if label in texts[i] and label != "dog"]
        lines[i + 1] = f"{texts[i]},{';'.join(left)}"
    table.write_text("\n".join(lines) + "\n")
    result = ok("review-labels", *asked(table, "epochs=25"), "--folds", "3", "--out", "folds")
    assert "examples have a label that looks wrong, or lack one" in result.out
    rows = read_csv(tmp_path / "folds" / "to_correct.csv")
    assert [row["text"] for row in rows[:3]] != texts[:3]
    assert sorted(row["text"] for row in rows) == sorted(texts)
    marked = {row["text"] for row in rows if row["review:suspicious"] == "yes"}
    forgotten = [row for row in rows if row["text"] in {texts[i] for i in wrong}]
    assert sum(row["text"] in marked for row in forgotten) >= 2
    assert all("dog" in row["review:suggested"].split(";") for row in forgotten if row["text"] in marked)
    found = json.loads((tmp_path / "folds" / "review.json").read_text())
    assert found["several"]
    assert found["give_back"][found["give_back"].index("--label-separator") + 1] == ";"
    assert next(p for p in found["pairs"] if p["label"] == "without dog")["count"] >= 2
    assert "lack one" in (tmp_path / "folds" / "review.html").read_text()
    ok(*found["give_back"][1:], "--set", "epochs=1", "--out", "again")
