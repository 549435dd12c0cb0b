"""One recipe from data to report: what stands in the run folder, and what is refused."""

import io
import json
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.stopping import StopAt

from glassformer.data.splits import block_split
from glassformer.errors import DataError
from glassformer.evaluate.predictions import read_predictions
from glassformer.report.html import write_report
from glassformer.tasks import supervised
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run import evaluate_task, run_task
from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.train.callbacks import Progress

from .conftest import write_split

HELD = {"loss", "accuracy", "macro_f1", "best"}  # keys of an evaluation that come from held-out data
FAST = ["epochs=5", "batch_size=8", "max_length=31", "bootstrap=50", "maps=2", "threads=1"]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    for split, count in (("train", 97), ("validation", 29), ("test", 31)):
        write_split(folder / f"{split}.csv", count)
    return folder


class Watch(Progress):
    """Notes what is judged, of how many it is told, and how many there are."""

    def __init__(self):
        super().__init__(io.StringIO())
        self.counted = []

    @contextmanager
    def count(self, what, total):
        done = []
        yield done.append
        self.counted.append((what, sum(done), total))


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def run(reviews, watch, tmp_path_factory):
    lines = []
    recipe = load_recipe("europe", [f"data.source={str(reviews)!r}", *FAST, 'sentences=["a warm film"]'])
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised, "TRAINING_SAMPLE", 43)
        return run_task(recipe, folder, log=lines.append, callbacks=[watch]), recipe, lines


def test_a_run_agrees_with_itself(run):
    result, recipe, _ = run
    assert load_recipe(result.folder / "config.toml").train == recipe.train
    rows = list(read_predictions(result.folder / "predictions.csv"))
    right = sum(not row.is_wrong for row in rows) / 31
    assert result.metrics["test"]["accuracy"] == pytest.approx(right)
    assert right > 0.9  # three words a class: a Transformer that fails here is not trained
    assert result.metrics["sentences"][0]["label"] == "good"
    assert result.metrics["padding"]["linear"] == 0.0
    assert 0.0 <= result.metrics["padding"]["attention"] <= 0.1


def test_a_sample_of_the_training_part_is_judged_like_the_others(run):
    result, _, _ = run
    train = result.metrics["train"]
    assert (train["n"], train["of"]) == (43, 97)
    assert sum(map(sum, train["confusion"])) == 43
    page = result.report.read_text(encoding="utf-8")
    assert "train: 43 of its 97 texts, evaluated after training" in page
    assert "The gap between the splits below" in page


def test_a_run_without_held_out_data_has_curves_too(run, tmp_path):
    result, _, _ = run
    metrics = {"test": result.metrics["test"], "train": result.metrics["train"]}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    records = [json.loads(line) for line in (result.folder / "history.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in r.items() if r["kind"] == "step" or k not in HELD} for r in records]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(r) + "\n" for r in kept))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "Accuracy over optimizer steps" in page
    assert "There was no validation split" in page
    assert '<span class="key held">validation</span>' not in page


def test_whoever_watches_is_told_how_far_judging_is(run, watch):
    result, _, _ = run
    assert watch.counted == [("evaluating", n, n) for n in (43, 29, 31)]
    again = Watch()
    evaluate_task(result.folder, count=again.count)
    assert again.counted == [("evaluating", 31, 31)]


def test_the_doctor_changes_no_bit_of_the_training(run):
    result, recipe, _ = run
    splits = TASKS["text-classification"].load(recipe)
    held = splits.validation.texts, splits.validation.labels
    plain = TextClassifier.from_recipe(recipe).fit(splits.train.texts, splits.train.labels, validation=held)
    kept, fitted = load(result.folder).model_.state_dict(), plain.model_.state_dict()
    assert all((kept[key] == fitted[key]).all() for key in fitted)


def test_a_stopped_run_goes_on_whatever_is_said_of_its_recipe(run, tmp_path):
    result, recipe, _ = run
    before = replace(recipe, train=replace(recipe.train, checkpoint_every=11))
    with pytest.raises(KeyboardInterrupt):
        run_task(before, tmp_path / "run", callbacks=[StopAt(17)])
    loud = replace(before.train, verbose=1)
    other = replace(before, summary="of a later release", expect="another figure", train=loud)
    again = run_task(other, tmp_path / "run", resume=True)
    assert again.metrics["test"] == result.metrics["test"]
    a, b = (load(folder).model_.state_dict() for folder in (result.folder, again.folder))
    assert all((a[key] == b[key]).all() for key in a)


def load_splits(source, *settings):
    return TASKS["text-classification"].load(
        load_recipe("europe", [f"data.source={str(source)!r}", *settings])
    )


def test_validation_is_held_out_of_train_and_in_blocks_where_asked(reviews):
    splits = load_splits(reviews, "validation_size=17", "train_size=53")
    assert (len(splits.train), len(splits.validation), len(splits.evaluated)) == (53, 17, 31)
    assert not set(splits.train.texts) & set(splits.validation.texts)
    splits = load_splits(reviews, "validation_size=17", "hold_out='blocks'")
    everything = splits.dataset.splits["train"]
    held = block_split(everything.labels, 17, 0)[1].tolist()
    assert [*splits.validation.texts] == [everything.texts[i] for i in held]
    assert not set(splits.train.texts) & set(splits.validation.texts)


def test_no_train_split(reviews, tmp_path):
    (tmp_path / "test.csv").write_bytes((reviews / "test.csv").read_bytes())
    with pytest.raises(DataError, match="no train split"):
        load_splits(tmp_path)
