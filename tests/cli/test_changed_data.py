"""A run whose own data have changed since its training: its split cannot be drawn again."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from glassformer.cli.export import held_out
from glassformer.errors import DataError
from glassformer.study.calibration import set_precision
from glassformer.tasks.load import load

from .every import KINDS, PICTURES, Runs
from .tiny import sentences, settings, write_csv

CHANGED = "has changed since the training: drawn anew, its split may hold rows that the model has seen"


def moved(made: Runs, kind: str, home: Path) -> tuple[Path, Path]:
    """A run and its data in folders of the test's own."""
    source = made.data[kind]
    run = Path(shutil.copytree(made.runs[kind], home / "run"))
    if kind == "numbers of pictures":
        shutil.copytree(made.data["pictures"], home / "pictures")
    copy = shutil.copytree if source.is_dir() else shutil.copy
    data = Path(copy(source, home / source.name))
    config = run / "config.toml"
    config.write_text(config.read_text().replace(str(source), str(data)))
    return run, data


def turn_round(kind: str, data: Path) -> None:
    """The same examples in another order."""
    if data.is_dir():
        for i, image in enumerate(sorted(data.rglob("*.png"))):
            image.rename(image.with_name(f"{97 - i}-{image.name}"))
        return
    between = "\n\n" if kind == "tags" else "\n"
    head, *rest = data.read_text().strip("\n").split(between)
    rows = [*rest[::-1], head] if data.suffix != ".csv" else [head, *rest[::-1]]
    data.write_text(between.join(rows) + "\n")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word vectors"])
def test_rows_in_another_order_are_not_judged(made, gf, refused, tmp_path, kind):
    run, data = moved(made, kind, tmp_path)
    as_it_was = gf("evaluate", run, "--json")
    assert as_it_was.code == 0, as_it_was.err
    assert "changed" not in as_it_was.err
    turn_round(kind, data)
    said = refused("evaluate", run)
    assert f"{data}: {CHANGED}. Restore it, or give rows that are new" in said
    assert f"glassformer evaluate {run} --data FILE" in said
    if kind in ("texts", "label sets", "text pairs", "tags", "pictures"):
        assert CHANGED in refused("calibrate", run)
    if kind not in PICTURES:  # which are named anew
        turn_round(kind, data)
        again = gf("evaluate", run, "--json").out
        assert TIMES.sub("", again) == TIMES.sub("", as_it_was.out)


TIMES = re.compile(r'"\w*second\w*": [\d.]+')
FORMS = ("csv", "tsv", "json", "jsonl", "parquet", "folder of files")


def write(path: Path, form: str, rows: list[tuple[str, str]]) -> Path:
    named = [{"text": text, "label": label} for text, label in rows]
    if form == "folder of files":
        for i, (text, label) in enumerate(rows):
            (path / label).mkdir(parents=True, exist_ok=True)
            (path / label / f"{i:03}.txt").write_text(text)
        return path
    path = path.with_suffix(f".{form}")
    if form == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(named), path)
    elif form in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter="," if form == "csv" else "\t").writerows([("text", "label"), *rows])
    else:
        path.write_text(json.dumps(named) if form == "json" else "\n".join(map(json.dumps, named)))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_change_of_every_form(gf, refused, monkeypatch, tmp_path, form):
    monkeypatch.setattr(
        "glassformer.study.calibration.obstacle", lambda *_: None
    )  # whatever this processor does
    rows = sentences(41)
    data = write(tmp_path / "mine", form, rows)
    assert gf("train", "--text", data, "--out", "run", *settings()).code == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert set(metrics["data_sha256"]) == {"train", "validation", "judged"}
    assert json.loads(gf("evaluate", "run", "--json").out)["accuracy"] == metrics["test"]["accuracy"]

    edited = [(text.replace("film", "movie"), label) for text, label in rows]
    other_label = [(text, "pos" if i == 0 else label) for i, (text, label) in enumerate(rows)]
    for other in (rows[::-1], rows[3:], rows + sentences(7, 5), edited, other_label):
        if form == "folder of files":
            shutil.rmtree(data)
        write(tmp_path / "mine", form, other)
        if other is other_label and gf("evaluate", "run").code == 0:
            continue  # the row fell into validation or test, and the training examples are the same
        for verb in ("evaluate", "calibrate"):
            assert CHANGED in refused(verb, "run")
        with pytest.raises(DataError, match=CHANGED):
            set_precision("run", load("run"), "int8", print)
        assert held_out("run") is None
    write(tmp_path / "mine", form, rows)
    if form != "folder of files":
        assert gf("evaluate", "run").code == 0


def test_parts_in_files_of_their_own(gf, tmp_path):
    """What is judged cannot hold training examples where these, or itself, are as they were."""
    folder = tmp_path / "mine"
    write_csv(folder / "train.csv", sentences(40))
    write_csv(folder / "test.csv", sentences(11, 2))
    assert gf("train", "--text", folder, "--out", "run", *settings("validation_size=7")).code == 0
    write_csv(folder / "test.csv", sentences(13, 3))
    result = gf("evaluate", "run", "--json")
    assert result.code == 0
    assert json.loads(result.out)["n"] == 13
    assert f"{folder} has changed since the training; its training examples are the same" in result.err
    write_csv(folder / "test.csv", sentences(11, 2))
    write_csv(folder / "train.csv", sentences(47))
    result = gf("evaluate", "run", "--json")
    assert result.code == 0
    assert "changed" not in result.err
    assert gf("calibrate", "run").code == 2  # by validation examples, which are drawn from the training file


def test_a_run_without_digests_goes_on(gf, run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics.pop("data_sha256")
    (run / "metrics.json").write_text(json.dumps(metrics))
    for verb in ("evaluate", "calibrate"):
        result = gf(verb, run)
        assert result.code == 0
        said = "reviews.csv is as it was at the training is not known: the run keeps no digest"
        assert said in (result.out + result.err).replace("\n", " ")


def test_other_data_go_on(gf, made, tmp_path):
    """What is given by --data needs no split of the run's own; what cannot be known is said, or left out."""
    run, data = moved(made, "texts", tmp_path)
    rows = [row.rsplit(",", 1) for row in data.read_text().splitlines()[1:]]
    others = [(f"once more {text}", label) for text, label in sentences(40, 7)]
    half = write_csv(tmp_path / "half.csv", [*rows, *others])
    known = json.loads(gf("evaluate", run, data, "--json").out)
    trained = json.loads((run / "metrics.json").read_text())["train"]["of"]
    assert known["seen_in_training"] == trained
    assert f"other texts, {trained} of them seen in training" in known["verdict"]
    found = json.loads(gf("evaluate", run, half, "--json").out)
    assert (found["n"], found["seen_in_training"]) == (80, trained)
    new = json.loads(gf("evaluate", run, write_csv(tmp_path / "new.csv", others), "--json").out)
    assert new["seen_in_training"] == 0
    assert "other texts, not seen in training" in new["verdict"]
    turn_round("texts", data)
    found = json.loads(gf("evaluate", run, half, "--json").out)
    assert found["seen_in_training"] is None
    assert "seen in training" not in found["verdict"]
    result = gf("calibrate", run, "--data", half)
    assert result.code == 0
    assert "its test examples are not looked at" in (result.out + result.err).replace("\n", " ")
    written = json.loads((run / "calibration.json").read_text())
    assert list(written["splits"]) == [str(half)]


def test_all_rows_of_the_training(gf, tmp_path):
    """One sentence on what was seen, not two that contradict."""
    folder = tmp_path / "mine"
    for name, rows in {
        "train": sentences(40),
        "validation": sentences(9, 3),
        "test": sentences(11, 2),
    }.items():
        write_csv(folder / f"{name}.csv", rows)
    assert gf("train", "--text", folder, "--out", "run", *settings()).code == 0
    for measure in ("accuracy", "macro_f1"):
        config = Path("run/config.toml")
        text = config.read_text()
        config.write_text(text.replace('monitor = "accuracy"', f'monitor = "{measure}"'))
        result = gf("evaluate", "run", folder / "train.csv")
        said = (result.out + result.err).replace("\n", " ")
        assert "40 of 40 texts, or copies of them, were in training" in said
        assert "40 other texts, seen in training" in said
        assert "not seen in training" not in said


def test_a_finished_run_of_a_linear_model_is_not_trained_anew_on_other_rows(gf, refused, tmp_path):
    data = write_csv(tmp_path / "d.csv", sentences(59))
    begin = ("train", "--text", data, "--out", tmp_path / "run", "--model", "tfidf", "--set", "min_count=1")
    assert gf(*begin).code == 0
    kept = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    assert gf(*begin, "--resume").code == 0
    turn_round("texts", data)
    said = refused(*begin, "--resume")
    assert f"{data}: has changed since the training. Restore it, or train into another folder" in said
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == kept
