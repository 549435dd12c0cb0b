"""Weights of every epoch: kept on the way, judged together at the end, nothing chosen by them."""

import json
import shutil

import pytest
import torch
from tests.stopping import StopAt
from tests.tables import write_csv

from glassformer import TextClassifier
from glassformer.errors import CheckpointError, ConfigError
from glassformer.report.wording import verdict_of
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import evaluate_task, run_task
from glassformer.tasks.supervised import still_learning
from glassformer.tasks.task import TINY
from glassformer.train.callbacks import epoch_weights, saved_epochs

TEXTS = [f"the {word} film number {i}" for i, word in enumerate(["good", "bad"] * 17)]
LABELS = [i % 2 for i in range(34)]
SMALL = TINY | {"batch_size": 5, "epochs": 3, "min_count": 1, "max_length": 16, "keep_epochs": True}


def kept(folder):
    return {epoch: epoch_weights(path) for epoch, path in saved_epochs(folder / "epochs")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return TextClassifier("encoder-mini", **SMALL).fit(TEXTS, LABELS, checkpoints=folder), kept(folder)


def test_each_epoch_is_kept_and_the_last_is_the_model(whole):
    clf, epochs = whole
    assert [(epoch, step) for epoch, (step, _) in epochs.items()] == [(1, 7), (2, 14), (3, 21)]
    own = clf.model_.state_dict()
    assert all(torch.equal(own[name], w) for name, w in epochs[3][1].items())
    assert not all(torch.equal(own[name], w) for name, w in epochs[2][1].items())
    # to keep them changes no bit
    plain = TextClassifier("encoder-mini", **SMALL | {"keep_epochs": False}).fit(TEXTS, LABELS)
    assert all(torch.equal(w, whole[0].model_.state_dict()[n]) for n, w in plain.model_.state_dict().items())
    with pytest.raises(ConfigError, match="keep_epochs"):
        TextClassifier("encoder-mini", **SMALL).fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match="cannot include LoRA updates"):
        TextClassifier("encoder-mini", **SMALL, lora_rank=2).fit(TEXTS, LABELS, checkpoints="nowhere")


@pytest.mark.parametrize("stops", [(7,), (8,), (3, 14, 20)])
def test_a_stopped_training_keeps_the_same(whole, tmp_path, stops):
    """Stopped at the end of an epoch, after it, and again and again; what a later past has left goes."""
    options = SMALL | {"checkpoint_every": 2}
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            TextClassifier("encoder-mini", **options).fit(
                TEXTS, LABELS, checkpoints=tmp_path, resume=True, callbacks=[StopAt(stop)]
            )
    shutil.copytree(tmp_path / "epochs" / "epoch-0001", tmp_path / "epochs" / "epoch-0009")
    TextClassifier("encoder-mini", **options).fit(TEXTS, LABELS, checkpoints=tmp_path, resume=True)
    found = kept(tmp_path)
    assert found.keys() == whole[1].keys()
    for epoch, (step, weights) in found.items():
        assert step == whole[1][epoch][0]
        assert all(torch.equal(w, whole[1][epoch][1][name]) for name, w in weights.items())


CHANGES = """
    model=encoder-mini d_model=14 num_layers=1 num_heads=2 d_ff=11 epochs=3 precision=fp32 threads=1
    bootstrap=20 maps=0 baselines=false limit=41 lr=0.01
""".split()


def test_a_run_judges_all_of_them_once(tmp_path):
    run = run_task(load_recipe("europe", [*CHANGES, "keep_epochs=true"]), tmp_path / "run")
    epochs = run.metrics["epochs"]
    assert [e["epoch"] for e in epochs] == [1, 2, 3]
    assert run.metrics["openings"] == {"test": 1}
    records = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    first = [r["loss"] for r in records if r["kind"] == "step" and r["epoch"] == 0]
    assert epochs[0]["batch_loss"] == pytest.approx(sum(first) / len(first))
    best = next(r for r in records if r["kind"] == "evaluation" and r["best"])
    assert any(
        e["log_loss"] == run.metrics["test"]["log_loss"] for e in epochs if e["epoch"] >= best["epoch"]
    )
    again = evaluate_task(tmp_path / "run", every_epoch=True)["epochs"]
    assert [e["accuracy"] for e in again] == [e["accuracy"] for e in epochs]
    assert evaluate_task(tmp_path / "run")["accuracy"] == run.metrics["test"]["accuracy"]
    assert "each epoch" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    weights = tmp_path / "run" / "checkpoints" / "epochs" / "epoch-0002" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="epoch-0002"):
        evaluate_task(tmp_path / "run", every_epoch=True)


def test_a_run_that_kept_none_says_how_to(tmp_path):
    run = run_task(load_recipe("europe", CHANGES), tmp_path / "run")
    assert "epochs" not in run.metrics
    with pytest.raises(ConfigError, match="keep_epochs=true"):
        evaluate_task(tmp_path / "run", every_epoch=True)


# --- a training that ended while its validation loss still fell -----------------------------------


SIZES = """test_size=0.2 validation_size=0.2 model=encoder-mini threads=1 bootstrap=53 baselines=false precision=fp32
    d_model=28 num_layers=1 num_heads=2 d_ff=11 min_count=1 maps=0 max_length=16"""


def history(*losses: float | None) -> list[dict]:
    rows = [{"kind": "step", "step": i, "loss": 3.0 - i} for i in range(3)]
    return rows + [{"kind": "evaluation", "epoch": i, "loss": loss} for i, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ((2.9, 2.1, 1.7), {"epochs": 3, "before": 2.1, "after": 1.7}),
        ((2.9, 2.1, 2.03), None),  # by three percent
        ((0.5, 0.9, 0.7), None),  # an earlier one was better
        ((0.5, 0.7), None),
        ((2.9, 0.004, 0.001), None),  # all is learned
        ((2.9,), None),
        ((), None),
        ((2.9, None, 1.7), {"epochs": 3, "before": 2.9, "after": 1.7}),
    ],
)
def test_only_a_last_epoch_that_gained_much_says_that_it_goes_on(losses, found):
    assert still_learning(history(*losses)) == found


def test_a_run_says_what_to_set(tmp_path):
    words = {"good": ("warm", "wise"), "bad": ("dull", "cold")}
    known = [(word, label) for label in words for word in words[label]]
    rows = [(f"a {word} film , number {i}", label) for i in range(31) for word, label in known]
    recipe = tmp_path / "own.toml"
    recipe.write_text(f'[data]\nsource = "{write_csv(tmp_path / "own.csv", ("text", "label"), rows)}"\n')
    quick = f"{SIZES} epochs=4 lr=0.003".split()
    done = run_task(load_recipe(recipe, quick), tmp_path / "run")
    still = done.metrics["still_learning"]
    assert (still["epochs"], still["lr"]) == (4, 0.003)
    assert still["after"] < still["before"]
    advice = "--set epochs=8 or --set lr=0.006"
    assert advice in verdict_of(done.metrics)
    assert advice in done.report.read_text("utf-8")
    longer = load_recipe(recipe, [*quick, *(w for w in advice.split() if "=" in w)])
    assert (longer.train.epochs, longer.train.lr) == (8, 0.006)
