"""``glassformer cross-validate``: k trainings of a recipe; each example is judged once, unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.answered import show_answer_folds
from glassformer.cli.evaluate import BadRow, check_bad_row
from glassformer.cli.given import (
    ImageColumn,
    LabelColumn,
    LabelSeparator,
    PairColumn,
    TextColumn,
    column_settings,
    data_option,
    tell,
)
from glassformer.cli.numbers import show_number_folds
from glassformer.cli.output import AsJson, note, say, say_json, show_table, stream
from glassformer.cli.places import RECIPE_HELP, default_folder, recipes
from glassformer.cli.shown import show_pair_folds
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
    """A row a fold, their mean and scatter, and the figures of all answers together."""
    from glassformer.evaluate.metrics import no_better_than_one
    from glassformer.report.metrics import leading
    from glassformer.report.wording import bounds, count, decimal, digits_for, duration, percent

    scores, digits = metrics["test"], digits_for(metrics["test"]["n"])
    measures = leading(metrics.get("measure", "accuracy"), scores)
    columns = ("fold", "examples", *(called for _, called in measures), "log loss", "time")
    rows = [
        [
            f["fold"] + 1,
            count(f["n"]),
            *(percent(f[key], digits) for key, _ in measures),
            decimal(f["log_loss"], 4),
            duration(f["seconds"]),
        ]
        for f in metrics["folds"]
    ]
    over = metrics["over_folds"]
    spread = [f"{percent(over[key]['mean'], 2)} ({100 * over[key]['sd']:.2f})" for key, _ in measures]
    rows.append(["mean (SD)", "", *spread, decimal(over["log_loss"]["mean"], 4), ""])
    first, called = measures[0]
    show_table("out-of-fold", columns, rows, right=columns[1:])
    say(
        f"all {scores['n']:,} answers: {called} {percent(scores[first], digits)}, "
        f"95 % interval {bounds(scores, first)}"
    )
    if plain := no_better_than_one(scores):
        note(f"these answers are {plain}")
    say(f"predictions: {predictions_of(folder)}")
    say(f"report: {folder / 'report.html'}")


Recipe = Annotated[
    str | None,
    typer.Argument(
        autocompletion=recipes, metavar="RECIPE", help=f"{RECIPE_HELP} {', '.join(recipe_names())}."
    ),
]
Text = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Labelled texts instead of a recipe; all go into the folds."),
]
Images = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Labelled pictures instead of a recipe: a folder or a table; all go in."
    ),
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help="Weights or architecture instead of the recipe's.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any key of the recipe; may be repeated."),
]
Data = Annotated[
    str | None, typer.Option(metavar="PATH", help="A named data set or path instead of the recipe's.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The folder; a finished fold in it is kept.", show_default="runs/NAME-folds"
    ),
]
Folds = Annotated[int, typer.Option(metavar="K", help="Number of folds.")]


def cross_validate_command(
    recipe: Recipe = None,
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
    """Train and judge a recipe k times on parts of its training data: mean, spread, out-of-fold answers."""
    columns = column_settings(
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        label_separator=label_separator,
        image_column=image_column,
    )
    settings = [*columns, *(settings or ())]
    chosen = recipe_for_folds(recipe, text, model, data, settings, on_bad_row, images)
    folder = out or default_folder(chosen.name, "-folds")
    metrics = cross_validate(chosen, folder, folds)
    show = show_number_folds if "numbers" in metrics else show_folds
    show = show_answer_folds if "answers" in metrics else show
    show = show_pair_folds if "similarity" in metrics else show
    show(metrics, folder)
    if json:
        files = {"predictions": predictions_of(folder), "report": folder / "report.html"}
        say_json({"folder": folder, **files, "metrics": metrics})
