"""What a message offers can be typed: the options that the verb has, the folder that was meant, a name that is free."""

from __future__ import annotations

import re
import shutil

from glassformer.cli.app import main
from glassformer.cli.stopping import INTERRUPTED

from .tiny import sentences, settings, write_csv


def test_bad_rows_are_answered_by_an_option_of_the_verb(refused, run, tmp_path):
    gaps = write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos")])
    for command in (("train", "--text", gaps, "--out", "x"), ("evaluate", run, "--data", gaps)):
        said = refused(*command)
        assert "or leave such rows out with --on-bad-row skip" in said
        assert "on_bad_row" not in said
    said = refused("explain", run, gaps)  # which has no such option
    assert "row 22: the text is empty" in said
    assert "on-bad-row" not in said


def test_a_setting_without_its_option_is_named(refused, reviews):
    said = refused("train", "--text", reviews, "on_bad_row=skip")
    assert "both a recipe (on_bad_row=skip) and --text are given" in said
    assert "a setting stands behind --set: --set on_bad_row=skip" in said


def test_a_finished_run_in_the_way_is_said_before_the_data_are_read(gf, refused, run, reviews, tmp_path):
    shutil.copytree(run, tmp_path / "runs" / "reviews")
    broken = tmp_path / "reviews.csv"
    broken.write_text("no table at all\n")
    said = refused("train", "--text", broken)
    assert (
        "runs/reviews: the output folder exists, its run has ended. Choose another: --out runs/reviews-2"
        in said
    )
    write_csv(broken, [*sentences(20), *sentences(20)])
    last = gf("data", "doctor", "reviews.csv").out.splitlines()[-1]
    assert last.endswith("train --text reviews.csv --set drop_duplicates=true --out runs/reviews-2")


def test_what_a_resumed_run_has_otherwise_is_said(refused, run, tmp_path):
    data = run / "config.toml"
    source = next(line for line in data.read_text().splitlines() if line.startswith("source"))
    source = source.partition("=")[2].strip().strip('"')
    said = refused("train", "--text", source, "--out", run, "--resume", *settings("epochs=7"))
    assert "holds a run of another recipe (train.epochs is 1 there and 7 here)" in said


def test_a_run_that_is_not_there_has_a_neighbor(refused, run):
    for command in (("predict", "rnu", "a film"), ("train", "--resume", "--out", "rnu")):
        assert "rnu: no such run folder. Did you mean 'run'?" in refused(*command)


def test_an_encoding_is_refused_before_the_model_is_loaded(refused, run, tmp_path):
    (tmp_path / "new.csv").write_bytes("text\nun café\n".encode("cp1252"))
    shutil.rmtree(run / "model")
    assert "--encoding cp1252" in refused("predict", run, "new.csv")


def test_a_training_ends_with_what_comes_next_and_with_how_many_warnings(gf, tmp_path):
    table = write_csv(tmp_path / "twice.csv", [*sentences(40), *sentences(20)])
    result = gf("train", "--text", table, "--out", "run", *settings())
    assert result.code == 0, result.err
    assert '"A TEXT OF YOUR OWN", or a table: FILE.csv --out ANSWERS.csv' in result.out
    warned = re.search(r"note: (\d+ warnings?) about the data: above, and in the report", result.err)
    assert warned is not None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f'<a href="#data">{warned[1]} about the data</a>' in page


def test_a_server_that_is_stopped_is_no_error(monkeypatch, capsys):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.cli.app._command", stopped)
    assert main(["serve", "run"]) == INTERRUPTED
    assert capsys.readouterr().err == "stopped\n"
    assert main(["evaluate", "run"]) == INTERRUPTED
    assert capsys.readouterr().err.startswith("error: interrupted")


def test_the_help_begins_with_where_to_begin(gf):
    panels = gf("--help").out
    assert panels.index("Start here") < panels.index("Train and compare") < panels.index("Use a model")
    assert "glassformer data doctor FILE.csv, then glassformer train --text FILE.csv" in " ".join(
        panels.split()
    )
    for verb in ("predict", "train", "evaluate"):
        assert "--encoding cp1252" in gf(verb, "--help").out
