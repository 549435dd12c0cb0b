"""``glassformer review-labels``: which labels are probably wrong?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.cross_validate import (
    Data,
    Folds,
    Images,
    Model,
    Out,
    Settings,
    Text,
    cross_validate,
    recipe_for_folds,
)
from glassformer.cli.options import (
    BadRow,
    ImageColumn,
    LabelColumn,
    LabelSeparator,
    PairColumn,
    TextColumn,
    a_recipe,
    column_settings,
    columns_of,
    data_option,
    option,
)
from glassformer.cli.output import AsJson, excerpt, note, say, say_json, show_table
from glassformer.cli.places import default_folder
from glassformer.errors import ConfigError

SHOWN = 10  # suggestions on the terminal


def show_review(found: dict[str, Any], folder: Path) -> None:
    """How many labels look wrong, and the first of them."""
    from glassformer.report.wording import percent

    if found.get("several"):
        say(
            f"{found['suspicious']:,} of {found['n']:,} examples have a label that looks wrong, or lack one; "
            f"of each label, {percent(found['noise'])} of the examples have or lack it wrongly by estimate"
        )
    else:
        say(
            f"{found['suspicious']:,} of {found['n']:,} labels look wrong; "
            f"the estimated share of wrong labels is {percent(found['noise'])}"
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
        for s in found["suggestions"][:SHOWN]
    ]
    columns = ("rank", "row", "label", "probably", "P(label)", "text")
    show_table("the most doubtful labels", columns, rows, right=("rank", "P(label)"))
    marked = min(found["suspicious"], found["listed"])
    marks = f"the column 'suspicious' marks those that look wrong, {marked:,} of them"
    say(f"the {found['listed']:,} most doubtful, in that order; {marks}: {folder / 'review.csv'}")
    table = folder / found["to_correct"]["file"]
    if found["to_correct"]["edited"]:
        say(f"{table} has been edited and stays as it is")
    say(f"correct the labels in {table} and give it back: {shlex.join(found['give_back'])}")
    note(
        "labels of test rows that you correct as a model suggests flatter the figures on them; to see what "
        "correcting gains, put test rows aside first (train.csv and test.csv in one folder)"
    )
    if found["judge"]:
        note(found["judge"])
    say(f"page: {folder / 'review.html'}")


def review_labels_command(
    recipe: Annotated[
        str | None,
        a_recipe("Recipe name or .toml file, or the folder of a finished cross-validation.", "RECIPE|FOLDER"),
    ] = None,
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
    top: Annotated[int, option("N", "Number of suggestions to write.")] = 1000,
    on_bad_row: BadRow = None,
    json: AsJson = False,
) -> None:
    """Find labels that are probably wrong, by cross-validation and confident learning. You decide."""
    from glassformer.tasks.catalog import TARGETS, check_classifies

    if top < 1:
        raise ConfigError(f"{top} suggestions", where="--top", fix="Use 1 or more")
    columns = column_settings(**columns_of(locals()))
    folder = Path(recipe) if recipe else None
    if folder is not None and folder.is_dir() and not data_option(str(folder)):
        if text or images or model or data or settings or columns or out or on_bad_row:
            raise ConfigError(
                "a finished cross-validation takes no other setting", where=recipe, fix="Give --top alone"
            )
    else:
        settings = [*columns, *(settings or ())]
        chosen = recipe_for_folds(recipe, text, model, data, settings, on_bad_row, images)
        if chosen.task in TARGETS.values():  # known before folds are trained
            fix = "Use glassformer cross-validate: predictions.csv has each number beside its prediction"
            raise ConfigError(f"{chosen.task} has numbers, and labels are ranked", where="task", fix=fix)
        check_classifies(chosen, words=True)
        folder = out or default_folder(chosen.name, "-folds")
        cross_validate(chosen, folder, folds)
    from glassformer.study.review import review

    found = review(folder, top)
    show_review(found, folder)
    if json:
        say_json({"folder": folder, **found})
