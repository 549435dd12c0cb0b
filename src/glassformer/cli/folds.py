"""``glassformer cross-validate`` and ``review-labels``.

``cross-validate`` makes out-of-fold predictions. ``review-labels`` finds labels that are probably wrong.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli import options as cli
from glassformer.cli import output
from glassformer.cli.options import option
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note
from glassformer.cli.own_data import choose_recipe
from glassformer.errors import BadValueError, ConflictError, GlassformerError, NotForThisModelError
from glassformer.outputs import check_folder_path
from glassformer.report.wording import percent
from glassformer.tasks.catalog import TARGETS, check_classifies, recipe_names

TEXT: Any = option("FILE", "Labeled texts, instead of a recipe; all rows go into the folds.", panel=cli.DATA)
IMAGES: Any = option(
    "FOLDER",
    "Labeled images, instead of a recipe: a folder or a table; all go into the folds.",
    panel=cli.DATA,
)
OUT: Any = option("DIR", "Output folder; finished folds in it are kept.", show_default="runs/NAME-folds")
OPTIONS: dict[str, tuple[Any, Any]] = {  # options of both commands: name of the parameter -> type, option
    "text": (str | None, TEXT),
    "images": (str | None, IMAGES),
    "model": (str | None, cli.MODEL_NAME),
    "settings": (list[str] | None, cli.SETTINGS),
    "data": (str | None, cli.SOURCE),
    "out": (Path | None, OUT),
    "folds": (int, option("K", "Number of folds.", default=5)),
    "on_bad_row": (str | None, cli.BAD_ROW),
    "json": (bool, AS_JSON),
    **{key: (str | None, cli.COLUMNS[key]) for key in cli.LABELED_COLUMNS},
}


def recipe_for_folds(recipe: str | None, options: Mapping[str, Any]) -> Any:
    """The recipe for the arguments of a command; all examples of the user go into the folds."""
    text, images, on_bad_row = options["text"], options["images"], options["on_bad_row"]
    columns = {key: options[key] for key in cli.LABELED_COLUMNS}
    settings = [*cli.column_settings(columns), *(options["settings"] or ())]
    data_option = recipe is not None and recipe not in recipe_names() and cli.guess_data_option(recipe)
    if cli.check_bad_row(on_bad_row) and (text or images or data_option):
        key = "broken" if images or data_option == "--images" else "on_bad_row"
        settings = [*settings, f"{key}={on_bad_row}"]
    sources = {"images": images, "model": options["model"], "data": options["data"], "settings": settings}
    config = choose_recipe(recipe, text, **sources, command="cross-validate", all_in_folds=True)
    from glassformer.tasks.run import with_bad_rows  # not at the top: it imports torch

    config = with_bad_rows(config, on_bad_row, is_other_data=True)
    if text or images or data_option:
        config = replace(config, data=replace(config.data, validation_size=None, test_size=None))
    return config


def cross_validate(recipe: Any, folder: Path, folds: int) -> dict[str, Any]:
    """Run the folds in ``folder`` with a progress bar; see ``study.folds.cross_validate``."""
    from glassformer.study.folds import cross_validate
    from glassformer.train.callbacks import Interrupted, Progress

    check_folder_path(folder)
    try:
        calls = [Progress(output.output_stream())]
        return cross_validate(recipe, folder, folds, log=cli.print_library_message, callbacks=calls)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted("interrupted; run the same command again to continue") from None
    except GlassformerError:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def predictions_file(folder: Path) -> Path:
    """The file of out-of-fold predictions."""
    other_formats = (folder / "predictions.conll", folder / "predictions.jsonl", folder / "pairs.csv")
    return next((path for path in other_formats if path.is_file()), folder / "predictions.csv")


def show_folds(metrics: dict[str, Any], folder: Path) -> None:
    """Print the metrics of each fold, their mean and standard deviation, and those over all examples."""
    from glassformer.report.metrics import cells, column_names, fold_table
    from glassformer.targets import target_of
    from glassformer.targets.multiclass import no_better_than_majority

    scores = metrics["test"]
    target, n = target_of(scores), scores.get("n", scores.get("pairs"))
    output.show_metric_table("out-of-fold", fold_table(metrics, short=True))
    keys, digits = target.summary_metrics(metrics.get("measure") or "accuracy"), target.digits(n)
    named_values = zip(column_names(keys, target), cells(scores, keys, target, digits), strict=True)
    summary = ", ".join(f"{name} {value}" for name, value in named_values)
    if scores.get(f"{keys[-1]}_interval"):
        summary += f", 95 % interval {cells(scores, [f'{keys[-1]}_interval'], target, digits)[0]}"
    print_message(f"all {n:,} {target.predictions}: {summary}")
    if "per_class" in scores and (comparison := no_better_than_majority(scores)):
        print_note(f"these predictions are {comparison}")
    print_message(f"predictions: {predictions_file(folder)}")
    print_message(f"report: {folder / 'report.html'}")


@cli.add_options(OPTIONS)
def cross_validate_command(recipe: str | None = cli.RECIPE_NAME, **options: Any) -> None:
    """Cross-validate a recipe: mean and standard deviation over k folds, and out-of-fold predictions."""
    config = recipe_for_folds(recipe, options)
    folder = options["out"] or cli.default_folder(config.name, "-folds")
    metrics = cross_validate(config, folder, options["folds"])
    show_folds(metrics, folder)
    if options["json"]:
        files = {"predictions": predictions_file(folder), "report": folder / "report.html"}
        print_json({"folder": folder, **files, "metrics": metrics})


# --- labels that are probably wrong ------------------------------------------------------------------

MAX_SUGGESTIONS = 10  # maximum number of suggestions to print


def show_review(result: dict[str, Any], folder: Path) -> None:
    """Print the number of labels that look wrong, and the first suggestions."""
    counts, share = f"{result['suspicious']:,} of {result['n']:,}", percent(result["noise"])
    if result.get("several"):
        print_message(
            f"{counts} examples have a label that looks wrong, or lack one; for each label, an estimated "
            f"{share} of the examples have or lack it wrongly"
        )
    else:
        print_message(f"{counts} labels look wrong; the estimated share of wrong labels is {share}")
    rows = []
    for suggestion in result["suggestions"][:MAX_SUGGESTIONS]:
        cells = [suggestion[key] for key in ("rank", "row", "label", "suggested")]
        probability, text = suggestion["label_probability"], suggestion["text"]
        rows.append([*cells, percent(probability), output.excerpt(text, 60)])
    columns = ("rank", "row", "label", "probably", "P(label)", "text")
    output.show_table("labels most likely to be wrong", columns, rows, right=("rank", "P(label)"))
    num_marked = min(result["suspicious"], result["listed"])
    marks = f"the column 'suspicious' marks the {num_marked:,} that look wrong"
    print_message(
        f"the {result['listed']:,} most suspicious labels, in order; {marks}: {folder / 'review.csv'}"
    )
    table = folder / result["to_correct"]["file"]
    if result["to_correct"]["edited"]:
        print_message(f"{table} has been edited, so it was not overwritten")
    print_message(
        f"correct the labels in {table}, then train on that file: {shlex.join(result['give_back'])}"
    )
    print_note(
        "if you correct labels of test rows as a model suggests, the scores on these rows are too high; to "
        "measure the gain, separate the test rows first (train.csv and test.csv in one folder)"
    )
    if result["judge"]:
        print_note(result["judge"])
    print_message(f"page: {folder / 'review.html'}")


@cli.add_options(OPTIONS)
def review_labels_command(
    recipe: str | None = cli.recipe_argument(
        "Recipe name or .toml file, or the folder of a finished cross-validation.", "RECIPE|FOLDER"
    ),
    top: int = option("N", "Number of suggestions to write.", default=1000),
    **options: Any,
) -> None:
    """Find labels that are probably wrong, by cross-validation and confident learning. Changes no labels."""
    if top < 1:
        raise BadValueError(f"{top} is not a positive number", where="--top", fix="Use 1 or more")
    folder = Path(recipe) if recipe else None
    if folder is not None and folder.is_dir() and not cli.guess_data_option(str(folder)):
        if any(value for name, value in options.items() if name not in ("folds", "json")):
            what = "the options of a finished cross-validation cannot be changed"
            raise ConflictError(what, where=recipe, fix="Give no option except --top")
    else:
        config = recipe_for_folds(recipe, options)
        if config.task in TARGETS.values():
            fix = "Use glassformer cross-validate: predictions.csv has each number next to its prediction"
            what = f"a recipe for {config.task} has numbers, but review-labels needs labels"
            raise NotForThisModelError(what, where="task", fix=fix)
        check_classifies(config, words=True, where=config.name)
        folder = options["out"] or cli.default_folder(config.name, "-folds")
        cross_validate(config, folder, options["folds"])
    from glassformer.study.review import review

    result = review(folder, top)
    show_review(result, folder)
    if options["json"]:
        print_json({"folder": folder, **result})
