"""The terminal says what the page says, and what other spellings of labels were taken for."""

from __future__ import annotations

import json

from glassformer.cli.finished import show_run
from glassformer.cli.output import stdout_for_json
from glassformer.config import read_toml
from glassformer.report.html import write_report
from glassformer.tasks.catalog import build_recipe, known_recipe
from glassformer.tasks.run_folder import Run

from .tiny import sentences, write_csv


def test_a_share_of_nearly_all_is_no_hundred_percent(run, capsys):
    path = run / "metrics.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))
    metrics["sentences"] = [{"text": "a fine film", "label": "good", "probability": 0.99971}]
    metrics["validation"]["accuracy"] = 0.99997
    path.write_text(json.dumps(metrics), encoding="utf-8")
    recipe = build_recipe(read_toml(run / "config.toml"), "config.toml")
    stdout_for_json(False)  # whatever the command before has asked for
    show_run(Run.of(run), recipe)
    said = capsys.readouterr().out
    page = write_report(run, known_recipe(run)).read_text(encoding="utf-8")
    own = said.partition("own sentences")[2]
    assert "99.9 %" in own
    assert "99.9\u202f%" in page.partition("Your sentences")[2]
    assert "100.0" not in own
    assert "validation accuracy: 99.9 %" in said


def test_labels_in_other_spellings_are_said_with_the_class_that_they_are(gf, run, tmp_path):
    rows = [(text, label.upper()) for text, label in sentences(20)]
    said = gf("evaluate", run, "--data", write_csv(tmp_path / "cased.csv", rows))
    assert said.code == 0, said.err
    assert "labels in another spelling than the model's: 'NEG' as 'neg' (10), 'POS' as 'pos' (10)" in said.out


def test_notes_of_a_verb_name_its_options(gf, run, tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("\n".join(["remark,mood", *(f"{text},{label}" for text, label in sentences(20))]))
    said = gf("evaluate", run, "--data", table).out
    assert "texts in 'remark', labels in 'mood'; --text-column and --label-column name others" in said
    assert "another spelling" not in said
