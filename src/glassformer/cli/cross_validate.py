"""``glassformer cross-validate``: k trainings of a recipe; each example is judged once, unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.options import (
    DATA,
    BadRow,
    ImageColumn,
    LabelColumn,
    LabelSeparator,
    Model,
    PairColumn,
    RecipeName,
    Settings,
    Source,
    TextColumn,
    check_bad_row,
    column_settings,
    columns_of,
    data_option,
    option,
    tell,
)
from glassformer.cli.output import AsJson, note, say, say_json, show, stream
from glassformer.cli.places import default_folder
from glassformer.cli.train import choose_recipe
from glassformer.errors import GlassformerError
from glassformer.outputs import check_folder_path
from glassformer.tasks.recipe import recipe_names


def recipe_for_folds(
    recipe: str | None,
    text: str | None,
    model: str | None,
    data: str | None,
    settings: Sequence[str],
    on_bad_row: str | None = None,
    images: str | None = None,
) -> Any:
    """The recipe that the arguments mean; of texts or pictures of one's own, all go into the folds."""
    own = recipe is not None and recipe not in recipe_names() and data_option(recipe)
    if check_bad_row(on_bad_row) and (text or images or own):
        key = "broken" if images or own == "--images" else "on_bad_row"  # as pictures call it
        settings = [*settings, f"{key}={on_bad_row}"]
    chosen = choose_recipe(
        recipe,
        text,
        images=images,
        model=model,
        data=data,
        settings=settings,
        command="cross-validate",
        others="--text FILE or --images FOLDER",
        whole=True,
    )
    from glassformer.tasks.run_folder import with_bad_rows  # torch comes with it: help needs none

    chosen = with_bad_rows(chosen, on_bad_row, other=True)
    if text or images or own:
        chosen = replace(chosen, data=replace(chosen.data, validation_size=None, test_size=None))
    return chosen


def cross_validate(recipe: Any, folder: Path, folds: int) -> dict[str, Any]:
    """Run the folds in ``folder`` with a progress bar; see ``study.folds.cross_validate``."""
    from glassformer.study.folds import cross_validate
    from glassformer.train.callbacks import Interrupted, Progress

    check_folder_path(folder)
    try:
        calls = [Progress(stream())]
        return cross_validate(recipe, folder, folds, say=tell, callbacks=calls)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted("interrupted; give the same command to go on") from None
    except GlassformerError:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def predictions_of(folder: Path) -> Path:
    """The file of out-of-fold answers."""
    others = (folder / "predictions.conll", folder / "predictions.jsonl", folder / "pairs.csv")
    return next((path for path in others if path.is_file()), folder / "predictions.csv")


def show_folds(metrics: dict[str, Any], folder: Path) -> None:
    """A row a fold, their mean and scatter, and the metrics of all predictions together."""
    from glassformer.report.metrics import cells, fold_table, heads
    from glassformer.targets import target_of
    from glassformer.targets.multiclass import no_better_than_one

    scores = metrics["test"]
    target, n = target_of(scores), scores.get("n", scores.get("pairs"))
    show("out-of-fold", fold_table(metrics, short=True))
    keys, digits = target.told(metrics.get("measure") or "accuracy"), target.digits(n)
    told = zip(heads(keys, target), cells(scores, keys, target, digits), strict=True)
    said = ", ".join(f"{called} {value}" for called, value in told)
    if scores.get(f"{keys[-1]}_interval"):
        said += f", 95 % interval {cells(scores, [f'{keys[-1]}_interval'], target, digits)[0]}"
    say(f"all {n:,} {target.predictions}: {said}")
    if "per_class" in scores and (plain := no_better_than_one(scores)):
        note(f"these answers are {plain}")
    say(f"predictions: {predictions_of(folder)}")
    say(f"report: {folder / 'report.html'}")


Text = Annotated[
    str | None, option("FILE", "Labeled texts, instead of a recipe; all rows go into the folds.", panel=DATA)
]
Images = Annotated[
    str | None,
    option(
        "FOLDER",
        "Labeled images, instead of a recipe: a folder or a table; all go into the folds.",
        panel=DATA,
    ),
]
Data = Source
Out = Annotated[
    Path | None,
    option("DIR", "Output folder; finished folds in it are kept.", show_default="runs/NAME-folds"),
]
Folds = Annotated[int, option("K", "Number of folds.")]


def cross_validate_command(
    recipe: RecipeName = None,
    text: Text = None,
    images: Images = None,
    model: Model = None,
    settings: Settings = None,
    data: Data = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    image_column: ImageColumn = None,
    out: Out = None,
    folds: Folds = 5,
    on_bad_row: BadRow = None,
    json: AsJson = False,
) -> None:
    """Cross-validate a recipe: mean and standard deviation over k folds, and out-of-fold predictions."""
    columns = column_settings(**columns_of(locals()))
    settings = [*columns, *(settings or ())]
    chosen = recipe_for_folds(recipe, text, model, data, settings, on_bad_row, images)
    folder = out or default_folder(chosen.name, "-folds")
    metrics = cross_validate(chosen, folder, folds)
    show_folds(metrics, folder)
    if json:
        files = {"predictions": predictions_of(folder), "report": folder / "report.html"}
        say_json({"folder": folder, **files, "metrics": metrics})
