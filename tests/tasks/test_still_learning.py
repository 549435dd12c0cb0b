"""Whether a training ended while its validation loss still fell."""

import csv

import pytest

from glassformer.report.wording import verdict_of
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task
from glassformer.tasks.supervised import still_learning


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
    rows = [
        (f"a {word} film , number {i}", label) for i in range(31) for label in words for word in words[label]
    ]
    with (tmp_path / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        f'task = "text-classification"\nname = "own"\n[data]\nsource = "{tmp_path / "own.csv"}"\n'
        'test_size = 0.2\nvalidation_size = 0.2\n[model]\nmodel = "encoder-mini"\n'
    )
    quick = ["threads=1", "bootstrap=53", "baselines=false", "precision=fp32", "epochs=4", "lr=0.003"]
    small = ["d_model=28", "num_layers=1", "num_heads=2", "d_ff=11", "min_count=1", "maps=0", "max_length=16"]
    done = run_task(load_recipe(recipe, [*quick, *small]), tmp_path / "run")
    still = done.metrics["still_learning"]
    assert (still["epochs"], still["lr"]) == (4, 0.003)
    assert still["after"] < still["before"]
    advice = "--set epochs=8 or --set lr=0.006"
    assert advice in verdict_of(done.metrics)
    assert advice in done.report.read_text("utf-8")
    longer = load_recipe(recipe, [*quick, *small, *(w for w in advice.split() if "=" in w)])
    assert (longer.train.epochs, longer.train.lr) == (8, 0.006)
