"""A finished run of every kind: what it is asked again changes nothing, and what its report does without."""

import json
import shutil
from pathlib import Path

import pytest

from glassformer.tasks.catalog import TASKS

from .every import KINDS, TEXT, call, ok, train_words
from .tiny import sentences, sets, snapshot, write_csv


def test_there_is_a_run_of_every_task(made):
    assert made.runs.keys() == {*KINDS}
    saved = [run / "model" / "glassformer.json" for run in made.runs.values()]
    kinds = {json.loads(file.read_text())["kind"] for file in saved}
    assert kinds == {task.estimator.saved_as() for task in TASKS.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_goes_on_to_itself_and_its_report_is_written_anew(kind, made, tmp_path):
    run = Path(shutil.copytree(made.runs[kind], tmp_path / "run"))
    page = run / "report.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    assert call("report", run).code == 0
    assert page.read_text(encoding="utf-8") == before
    weights = {k: v for k, v in snapshot(run / "model").items() if k.endswith((".safetensors", ".npy"))}
    assert weights
    ok("train", "--resume", "--out", run)
    after = snapshot(run / "model")
    assert {name: after[name] for name in weights} == weights


# --- reports ----------------------------------------------------------------------------------------

NEEDED = ("metrics.json", "report.html")
# Have no baselines, intervals and test data anyway.
ALONE = ("masked words", "word vectors", "masked pictures")
TAGS = sets(*[s for s in TEXT if s != "maps=0"])


def page(run: Path) -> str:
    """The report, written anew."""
    done = call("report", run)
    assert (done.code, done.err) == (0, ""), done.err
    return (run / "report.html").read_text(encoding="utf-8")


def squad(path: Path, count: int, answered: bool = True) -> Path:
    """SQuAD 1.1 has no unanswerable questions; ``answered=False``: nothing else."""
    paragraphs = []
    for i in range(count):
        city = ("Rome", "Oslo", "Lima")[i % 3]
        text = f"film {i} is in {city} now"
        answers = [{"text": city, "answer_start": text.index(city)}] if answered else []
        asked = {"id": str(i), "question": f"where is film {i}", "answers": answers}
        paragraphs.append({"context": text, "qas": [asked | ({} if answered else {"is_impossible": True})]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_needs_no_file_but_the_metrics(kind, made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made.runs[kind], run, ignore=shutil.ignore_patterns("model", "checkpoints"))
    optional = sorted(f for f in run.iterdir() if f.is_file() and f.name not in NEEDED)
    content = {file: file.read_bytes() for file in optional}
    for absent in (optional[::2], optional[1::2], optional):
        for file in absent:
            file.unlink()
        assert "glassformer report" in page(run)
        for file in absent:
            file.write_bytes(content[file])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ALONE])
def test_a_run_without_held_out_data_intervals_and_baselines_ends_with_a_report(kind, made, tmp_path):
    bare = [] if kind == "translation" else ["bootstrap=0", "baselines=false"]
    bare += ["validation_size=none", "test_size=none"]
    ok(*train_words(kind, made.data[kind], tmp_path / "run"), *sets(*bare))
    assert "glassformer report" in page(tmp_path / "run")


def test_squad_1_1_has_no_unanswerable_questions(tmp_path):
    data, run = squad(tmp_path / "squad.json", 24), tmp_path / "run"
    ok(*train_words("questions", data, run))
    scores = json.loads((run / "metrics.json").read_text())["test"]
    assert "unanswerable" not in scores
    found = page(run)
    assert "Of 8 test questions on 8 texts" in found
    assert "have no answer." not in found
    assert "of these without one" not in found
    folds = tmp_path / "folds"
    ok("cross-validate", run / "config.toml", "--folds", 2, "--out", folds)
    assert "have no answer" not in page(folds)
    assert "exact" in page(folds)


def test_questions_of_which_none_has_an_answer_can_be_judged(tmp_path):
    folder = tmp_path / "squad"
    folder.mkdir()
    squad(folder / "train.json", 24)
    squad(folder / "test.json", 11, answered=False)
    ok("train", "facts-minilm", "--data", folder, "--out", tmp_path / "run", *TAGS)
    assert "; 11 of them have no answer" in page(tmp_path / "run")


@pytest.mark.parametrize("bootstrap", [0, 7])
def test_sentences_without_a_span_can_be_judged(tmp_path, bootstrap):
    folder, run = tmp_path / "tags", tmp_path / "run"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        lines = [f"no\tO\n{split}{i}\tO\n" for i in range(13)]
        lines += ["Ann\tB-per\nsaw\tO\n"] * (11 if split == "train" else 0)
        (folder / f"{split}.conll").write_text("\n".join(lines))
    words = ["train", "wnut17-minilm", "--data", folder, "--out", run]
    ok(*words, *TAGS, *sets(f"bootstrap={bootstrap}"))
    assert "The 13 test sentences have no spans, so there is no F1" in page(run)
    ok("calibrate", run)
    assert "Calibration" in page(run)


@pytest.mark.parametrize(("count", "chosen"), [(1, "pos"), (7, "neg")])
def test_one_class_or_one_row_can_be_judged(tmp_path, count, chosen):
    folder, run = tmp_path / "texts", tmp_path / "run"
    write_csv(folder / "train.csv", sentences(40))
    other = [row for row in sentences(80)[40:] if row[1] == chosen]
    write_csv(folder / "test.csv", other[:count])
    words = ["train", "--text", folder, "--out", run]
    ok(*words, *sets(*TEXT, "bootstrap=0", "baselines=true"))
    page(run)
    ok("calibrate", run)
    assert "Calibration" in page(run)


@pytest.mark.parametrize("kind", ["texts", "tags", "numbers"])
def test_runs_without_intervals_can_be_compared(kind, made, tmp_path):
    for epochs in (1, 2):
        words = train_words(kind, made.data[kind], tmp_path / f"run-{epochs}")
        ok(*words, *sets("bootstrap=0", f"epochs={epochs}"))
    ok("compare", tmp_path / "run-1", tmp_path / "run-2", "--out", tmp_path / "study")
    assert "Training cost" in page(tmp_path / "study")
