"""Runs that have not ended, whose data have changed, or that an earlier version began."""

import csv
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli.export import sample_validation
from glassformer.config import read_toml
from glassformer.data.duplicates import comparison_key
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.predictions import read_predictions
from glassformer.study.arms import Job, with_existing_split
from glassformer.study.calibration import set_precision
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run import create_run_folder, run_task, with_run_settings

from .every import KINDS, PICTURES, Runs
from .tiny import TINY, sentences, sets, settings, snapshot, write_csv


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """60 texts, each a second time in capitals."""
    return write_csv(
        tmp_path / "twice.csv", [r for t, label in sentences(60) for r in ((t, label), (t.upper(), label))]
    )


def mine(source: Path) -> Path:
    """A recipe of one's own on a table."""
    toml = source.with_name("mine.toml")
    toml.write_text(f'name = "mine"\n[data]\nsource = "{source}"\ntest_size = 0.2\n', encoding="utf-8")
    return toml


def judged(run: str) -> set[str]:
    return {comparison_key(row.text) for row in read_predictions(f"{run}/predictions.csv")}


def old(run: str) -> bytes:
    """The run as one that was begun before there was the setting, and that was stopped while judging."""
    config = Path(run, "config.toml")
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("copies")), encoding="utf-8")
    Path(run, "metrics.json").unlink()
    return Path(run, "model", "model.safetensors").read_bytes()


def test_new_runs_keep_copies_on_one_side(ok, twice: Path):
    ok("train", "--text", twice, "--out", "run", *settings())
    assert read_toml("run/config.toml")["data"]["copies"] == "together"
    report = json.loads(Path("run/doctor.json").read_text(encoding="utf-8"))
    assert {f["severity"] for f in report["findings"] if f["code"] == "leaks"} == {"ok"}
    ok("train", "--text", twice, "--out", "run", "--resume", *settings())
    ok("evaluate", "run")


def test_a_stopped_run_goes_on_as_it_was_split(ok, refused, twice: Path):
    ok("train", "--text", twice, "--out", "run", *settings("copies=apart"))
    before, weights = judged("run"), old("run")
    ok("train", "--text", twice, "--out", "run", "--resume", *settings())
    assert judged("run") == before
    assert Path("run/model/model.safetensors").read_bytes() == weights
    assert "copies" not in read_toml("run/config.toml")["data"]
    line = refused("train", "--text", twice, "--out", "run", "--resume", *settings("copies=together"))
    assert "was started with copies = apart" in line


def test_further_arms_of_a_study_are_split_as_its_first(twice: Path, tmp_path: Path):
    recipe = load_recipe(mine(twice))
    arms = tmp_path / "study" / "arms"
    job = Job("b", 0, recipe, arms / "b" / "seed-0")
    assert with_existing_split(job).data.copies is None
    create_run_folder(arms / "a" / "seed-0", recipe)  # before there was the setting
    assert with_existing_split(job).data.copies == "apart"
    create_run_folder(arms / "0" / "seed-0", with_run_settings(recipe, arms / "0" / "seed-0")[0])
    assert with_existing_split(job).data.copies == "together"


def test_named_data_are_split_as_ever(ok):
    small = settings("limit=60", "validation_size=0.2", "sentences=[]")
    ok("train", "europe", "--out", "run", *small)
    assert "copies" not in read_toml("run/config.toml")["data"]


def test_in_python_too(twice: Path, tmp_path: Path):
    run_task(load_recipe(mine(twice), TINY), tmp_path / "run")
    found = [comparison_key(row.text) for row in read_predictions(tmp_path / "run" / "predictions.csv")]
    assert len(found) == 2 * len({*found})


def test_folds_keep_spellings_together_and_go_on_as_they_were(ok, twice: Path):
    ok("cross-validate", "--text", twice, "--folds", "2", "--out", "folds", *settings())
    plan = json.loads(Path("folds/folds.json").read_text(encoding="utf-8"))
    assert plan["assignment"][::2] == plan["assignment"][1::2]
    torn = [i // 2 % 2 for i in range(60) for _ in range(2)]
    torn[1] = 1 - torn[1]  # as exact copies alone were kept together
    Path("folds/folds.json").write_text(json.dumps(plan | {"assignment": torn}), encoding="utf-8")
    for fold in Path("folds").glob("fold-*"):
        shutil.rmtree(fold)
    ok("cross-validate", "--text", twice, "--folds", "2", "--out", "folds", *settings())
    assert json.loads(Path("folds/folds.json").read_text(encoding="utf-8"))["assignment"] == torn


SIZES = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 13, "max_length": 16}
SIZES |= {"epochs": 1, "min_count": 1, "precision": "fp32"}


def fitted(monkeypatch, together: bool, folder: Path, resume: bool = False):
    """A fit whose held-out part is drawn with copies together, or as it was before."""
    rows = [r for t, label in sentences(20) for r in ((t, label), (t.upper(), label))]
    texts, labels = zip(*rows, strict=True)
    clf = gf.TextClassifier("encoder-mini", validation_fraction=0.2, **SIZES)
    held: list[set[str]] = []
    inner = gf.TextClassifier._examples

    def look(self, fit, *data):
        if not together and not resume:
            fit.group_duplicates = False
        found = inner(self, fit, *data)
        held.append(({comparison_key(t) for t in found[0].X}, {comparison_key(t) for t in found[1][0]}))
        return found

    monkeypatch.setattr(gf.TextClassifier, "_examples", look)
    clf.fit(list(texts), list(labels), checkpoints=folder, resume=resume)
    return clf, held[0]


def test_a_held_out_fraction_shares_no_copy(monkeypatch, tmp_path: Path):
    _, (train, held) = fitted(monkeypatch, True, tmp_path / "c")
    assert held
    assert not train & held
    _, again = fitted(monkeypatch, True, tmp_path / "c", resume=True)
    assert again == (train, held)


def test_a_fit_stopped_before_goes_on_as_it_was_split(monkeypatch, tmp_path: Path):
    first, (train, held) = fitted(monkeypatch, False, tmp_path / "c")
    assert train & held
    monkeypatch.undo()
    second, again = fitted(monkeypatch, False, tmp_path / "c", resume=True)
    assert again == (train, held)
    a, b = first.predict_proba(["a film"]), second.predict_proba(["a film"])
    assert np.array_equal(a, b)
    other = gf.TextClassifier("encoder-mini", validation_fraction=0.3, **SIZES)
    with pytest.raises(CheckpointError):
        other.fit(["a film", "no film"] * 9, ["a", "b"] * 9, checkpoints=tmp_path / "c", resume=True)


# --- changed data -----------------------------------------------------------------------------------

CHANGED = "has changed since the training: a new split may have rows that the model was trained on"


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
def test_rows_in_another_order_are_not_judged(made, gf, ok, refused, tmp_path, kind):
    run, data = moved(made, kind, tmp_path)
    as_it_was = ok("evaluate", run, "--json")
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
def test_every_change_of_every_form(gf, as_json, ok, refused, monkeypatch, tmp_path, form):
    whatever = "glassformer.study.calibration.int8_obstacle"  # this processor does
    monkeypatch.setattr(whatever, lambda *_: None)
    rows = sentences(41)
    data = write(tmp_path / "mine", form, rows)
    ok("train", "--text", data, "--out", "run", *settings())
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert set(metrics["data_sha256"]) == {"train", "validation", "judged"}
    assert as_json("evaluate", "run")["accuracy"] == metrics["test"]["accuracy"]

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
        assert sample_validation("run") is None
    write(tmp_path / "mine", form, rows)
    if form != "folder of files":
        ok("evaluate", "run")


def test_parts_in_files_of_their_own(gf, ok, tmp_path):
    """What is judged cannot hold training examples where these, or itself, are as they were."""
    folder = tmp_path / "mine"
    write_csv(folder / "train.csv", sentences(40))
    write_csv(folder / "test.csv", sentences(11, 2))
    ok("train", "--text", folder, "--out", "run", *settings("validation_size=7"))
    write_csv(folder / "test.csv", sentences(13, 3))
    result = ok("evaluate", "run", "--json")
    assert json.loads(result.out)["n"] == 13
    assert f"{folder} has changed since the training; its training examples are the same" in result.err
    write_csv(folder / "test.csv", sentences(11, 2))
    write_csv(folder / "train.csv", sentences(47))
    result = ok("evaluate", "run", "--json")
    assert "changed" not in result.err
    assert gf("calibrate", "run").code == 2  # by validation examples, which are drawn from the training file


def test_a_run_without_digests_goes_on(ok, run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics.pop("data_sha256")
    (run / "metrics.json").write_text(json.dumps(metrics))
    for verb in ("evaluate", "calibrate"):
        result = ok(verb, run)
        said = "reviews.csv has changed since the training is unknown: the run has no digest"
        assert said in (result.out + result.err).replace("\n", " ")


def test_other_data_go_on(as_json, ok, made, tmp_path):
    """What is given by --data needs no split of the run's own; what cannot be known is said, or left out."""
    run, data = moved(made, "texts", tmp_path)
    rows = [row.rsplit(",", 1) for row in data.read_text().splitlines()[1:]]
    others = [(f"once more {text}", label) for text, label in sentences(40, 7)]
    half = write_csv(tmp_path / "half.csv", [*rows, *others])
    known = as_json("evaluate", run, data)
    trained = json.loads((run / "metrics.json").read_text())["train"]["of"]
    assert known["seen_in_training"] == trained
    assert f"other texts, {trained} of them seen in training" in known["verdict"]
    found = as_json("evaluate", run, half)
    assert (found["n"], found["seen_in_training"]) == (80, trained)
    new = as_json("evaluate", run, write_csv(tmp_path / "new.csv", others))
    assert new["seen_in_training"] == 0
    assert "other texts, not seen in training" in new["verdict"]
    turn_round("texts", data)
    found = as_json("evaluate", run, half)
    assert found["seen_in_training"] is None
    assert "seen in training" not in found["verdict"]
    result = ok("calibrate", run, "--data", half)
    said = (result.out + result.err).replace("\n", " ")
    assert "a new split may have rows that the model was trained on" in said
    written = json.loads((run / "calibration.json").read_text())
    assert list(written["splits"]) == [str(half)]


def test_all_rows_of_the_training(gf, ok, tmp_path):
    """One sentence on what was seen, not two that contradict."""
    folder = tmp_path / "mine"
    for name, count, seed in (("train", 40, 0), ("validation", 9, 3), ("test", 11, 2)):
        write_csv(folder / f"{name}.csv", sentences(count, seed))
    ok("train", "--text", folder, "--out", "run", *settings())
    for measure in ("accuracy", "macro_f1"):
        config = Path("run/config.toml")
        text = config.read_text()
        config.write_text(text.replace('monitor = "accuracy"', f'monitor = "{measure}"'))
        result = gf("evaluate", "run", folder / "train.csv")
        said = (result.out + result.err).replace("\n", " ")
        assert "40 of 40 texts, or copies of them, were in training" in said
        assert "40 other texts, seen in training" in said
        assert "not seen in training" not in said


def test_a_finished_run_of_a_linear_model_is_not_trained_anew_on_other_rows(ok, refused, tmp_path):
    data = write_csv(tmp_path / "d.csv", sentences(59))
    quick = sets("min_count=1", "baselines=false")
    begin = ("train", "--text", data, "--out", tmp_path / "run", "--model", "tfidf", *quick)
    ok(*begin)
    kept = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    ok(*begin, "--resume")
    turn_round("texts", data)
    said = refused(*begin, "--resume")
    assert f"{data}: has changed since the training. Restore it, or train into another folder" in said
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == kept


# --- not finished -----------------------------------------------------------------------------------


@pytest.fixture
def unfinished(run: Path) -> Path:
    """A run as a stop leaves it: its recipe and its checkpoints."""
    for path in run.iterdir():
        if path.name not in ("config.toml", "checkpoints", "history.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return run


def test_so_does_the_library_and_a_run_in_training_is_waited_for(unfinished: Path):
    with pytest.raises(ConfigError, match="training is not finished"):
        gf.load(unfinished)
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        gf.load(unfinished)


def test_a_run_goes_on_by_its_name_alone(ok, unfinished: Path):
    ok("train", unfinished, "--resume")
    assert (unfinished / "report.html").is_file()


def test_a_copy_of_hard_links_stays_as_it_is_when_the_run_goes_on(ok, unfinished, tmp_path):
    """Backups are made with ``cp -al``: both folders name the same files."""
    copy = tmp_path / "copy"
    shutil.copytree(unfinished, copy, copy_function=os.link)
    before = snapshot(copy)
    ok("train", "--resume", "--out", unfinished)
    assert snapshot(copy) == before
    assert snapshot(unfinished).keys() > before.keys()
    ok("train", "--resume", "--out", copy)  # and goes on to the same model
    for name in ("model.safetensors", "config.json"):
        assert (copy / "model" / name).read_bytes() == (unfinished / "model" / name).read_bytes()
