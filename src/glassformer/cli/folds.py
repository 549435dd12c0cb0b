"""``glassformer cross-validate`` and ``review-labels``: out-of-fold predictions, and labels to check."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli.options import (
    BAD_ROW,
    DATA,
    LABELED,
    MODEL_NAME,
    RECIPE_NAME,
    SETTINGS,
    SOURCE,
    a_recipe,
    check_bad_row,
    column_settings,
    data_option,
    default_folder,
    option,
    tell,
    with_columns,
)
from glassformer.cli.output import AS_JSON, excerpt, note, say, say_json, show, show_table, stream
from glassformer.cli.own_data import choose_recipe
from glassformer.errors import BadValueError, ConflictError, GlassformerError, NotForThisModelError
from glassformer.outputs import check_folder_path
from glassformer.report.wording import percent
from glassformer.tasks.catalog import TARGETS, check_classifies, recipe_names


def recipe_for_folds(
    recipe: str | None,
    text: str | None,
    model: str | None,
    data: str | None,
    settings: Sequence[str],
    on_bad_row: str | None = None,
    images: str | None = None,
) -> Any:
    """The recipe for the arguments of a command; all of the user's own examples go into the folds."""
    data_kind = recipe is not None and recipe not in recipe_names() and data_option(recipe)
    if check_bad_row(on_bad_row) and (text or images or data_kind):
        key = "broken" if images or data_kind == "--images" else "on_bad_row"  # the key for images
        settings = [*settings, f"{key}={on_bad_row}"]
    config = choose_recipe(
        recipe,
        text,
        images=images,
        model=model,
        data=data,
        settings=settings,
        command="cross-validate",
        alternatives="--text FILE or --images FOLDER",
        all_in_folds=True,
    )
    from glassformer.tasks.run_folder import with_bad_rows  # imports torch, which --help must not

    config = with_bad_rows(config, on_bad_row, other=True)
    if text or images or data_kind:
        config = replace(config, data=replace(config.data, validation_size=None, test_size=None))
    return config


def cross_validate(recipe: Any, folder: Path, folds: int) -> dict[str, Any]:
    """Run the folds in ``folder`` with a progress bar; see ``study.folds.cross_validate``."""
    from glassformer.study.folds import cross_validate
    from glassformer.train.callbacks import Interrupted, Progress

    check_folder_path(folder)
    try:
        calls = [Progress(stream())]
        return cross_validate(recipe, folder, folds, log=tell, callbacks=calls)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted("interrupted; run the same command again to continue") from None
    except GlassformerError:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def predictions_of(folder: Path) -> Path:
    """The file of out-of-fold predictions."""
    other_formats = (folder / "predictions.conll", folder / "predictions.jsonl", folder / "pairs.csv")
    return next((path for path in other_formats if path.is_file()), folder / "predictions.csv")


def show_folds(metrics: dict[str, Any], folder: Path) -> None:
    """Print one row per fold, mean and standard deviation, and the metrics of all predictions together."""
    from glassformer.report.metrics import cells, fold_table, heads
    from glassformer.targets import target_of
    from glassformer.targets.multiclass import no_better_than_majority

    scores = metrics["test"]
    target, n = target_of(scores), scores.get("n", scores.get("pairs"))
    show("out-of-fold", fold_table(metrics, short=True))
    keys, digits = target.summary_metrics(metrics.get("measure") or "accuracy"), target.digits(n)
    named_values = zip(heads(keys, target), cells(scores, keys, target, digits), strict=True)
    summary = ", ".join(f"{called} {value}" for called, value in named_values)
    if scores.get(f"{keys[-1]}_interval"):
        summary += f", 95 % interval {cells(scores, [f'{keys[-1]}_interval'], target, digits)[0]}"
    say(f"all {n:,} {target.predictions}: {summary}")
    if "per_class" in scores and (comparison := no_better_than_majority(scores)):
        note(f"these predictions are {comparison}")
    say(f"predictions: {predictions_of(folder)}")
    say(f"report: {folder / 'report.html'}")


TEXT: Any = option("FILE", "Labeled texts, instead of a recipe; all rows go into the folds.", panel=DATA)
IMAGES: Any = option(
    "FOLDER", "Labeled images, instead of a recipe: a folder or a table; all go into the folds.", panel=DATA
)

OUT: Any = option("DIR", "Output folder; finished folds in it are kept.", show_default="runs/NAME-folds")
FOLDS: Any = option("K", "Number of folds.", default=5)


@with_columns(*LABELED)
def cross_validate_command(
    recipe: str | None = RECIPE_NAME,
    text: str | None = TEXT,
    images: str | None = IMAGES,
    model: str | None = MODEL_NAME,
    settings: list[str] | None = SETTINGS,
    data: str | None = SOURCE,
    out: Path | None = OUT,
    folds: int = FOLDS,
    on_bad_row: str | None = BAD_ROW,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Cross-validate a recipe: mean and standard deviation over k folds, and out-of-fold predictions."""
    settings = [*column_settings(columns), *(settings or ())]
    config = recipe_for_folds(recipe, text, model, data, settings, on_bad_row, images)
    folder = out or default_folder(config.name, "-folds")
    metrics = cross_validate(config, folder, folds)
    show_folds(metrics, folder)
    if json:
        files = {"predictions": predictions_of(folder), "report": folder / "report.html"}
        say_json({"folder": folder, **files, "metrics": metrics})


# --- which labels are probably wrong? ---------------------------------------------------------------

MAX_SUGGESTIONS = 10  # suggestions on the terminal


def show_review(result: dict[str, Any], folder: Path) -> None:
    """Print how many labels look wrong, and the first suggestions."""
    if result.get("several"):
        say(
            f"{result['suspicious']:,} of {result['n']:,} examples have a label that looks wrong, or lack "
            f"one; for each label, an estimated {percent(result['noise'])} of the examples have or lack it "
            "wrongly"
        )
    else:
        say(
            f"{result['suspicious']:,} of {result['n']:,} labels look wrong; "
            f"the estimated share of wrong labels is {percent(result['noise'])}"
        )
    rows = [
        [
            s["rank"],
            s["row"],
            s["label"],
            s["suggested"],
            percent(s["label_probability"]),
            excerpt(s["text"], 60),
        ]
        for s in result["suggestions"][:MAX_SUGGESTIONS]
    ]
    columns = ("rank", "row", "label", "probably", "P(label)", "text")
    show_table("labels most likely to be wrong", columns, rows, right=("rank", "P(label)"))
    marked = min(result["suspicious"], result["listed"])
    marks = f"the column 'suspicious' marks the {marked:,} that look wrong"
    say(f"the {result['listed']:,} most suspicious labels, in order; {marks}: {folder / 'review.csv'}")
    table = folder / result["to_correct"]["file"]
    if result["to_correct"]["edited"]:
        say(f"{table} has been edited, so it was not overwritten")
    say(f"correct the labels in {table}, then train on that file: {shlex.join(result['give_back'])}")
    note(
        "if you correct labels of test rows as a model suggests, the scores on these rows are too good; to "
        "measure the gain, set test rows aside first (train.csv and test.csv in one folder)"
    )
    if result["judge"]:
        note(result["judge"])
    say(f"page: {folder / 'review.html'}")


@with_columns(*LABELED)
def review_labels_command(
    recipe: str | None = a_recipe(
        "Recipe name or .toml file, or the folder of a finished cross-validation.", "RECIPE|FOLDER"
    ),
    text: str | None = TEXT,
    images: str | None = IMAGES,
    model: str | None = MODEL_NAME,
    settings: list[str] | None = SETTINGS,
    data: str | None = SOURCE,
    out: Path | None = OUT,
    folds: int = FOLDS,
    top: int = option("N", "Number of suggestions to write.", default=1000),
    on_bad_row: str | None = BAD_ROW,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Find labels that are probably wrong, by cross-validation and confident learning. Changes no labels."""
    if top < 1:
        raise BadValueError(f"{top} suggestions", where="--top", fix="Use 1 or more")
    column_values = column_settings(columns)
    folder = Path(recipe) if recipe else None
    if folder is not None and folder.is_dir() and not data_option(str(folder)):
        if text or images or model or data or settings or column_values or out or on_bad_row:
            fix = "Give --top alone"
            raise ConflictError(
                "the options of a finished cross-validation cannot be changed", where=recipe, fix=fix
            )
    else:
        settings = [*column_values, *(settings or ())]
        config = recipe_for_folds(recipe, text, model, data, settings, on_bad_row, images)
        if config.task in TARGETS.values():  # before folds are trained
            fix = "Use glassformer cross-validate: predictions.csv has each number next to its prediction"
            what = f"a recipe of {config.task} has numbers, and review-labels needs labels"
            raise NotForThisModelError(what, where="task", fix=fix)
        check_classifies(config, words=True)
        folder = out or default_folder(config.name, "-folds")
        cross_validate(config, folder, folds)
    from glassformer.study.review import review

    result = review(folder, top)
    show_review(result, folder)
    if json:
        say_json({"folder": folder, **result})
