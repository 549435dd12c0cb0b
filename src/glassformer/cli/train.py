"""``glassformer train``: train a recipe, or a model for the user's own data, in a run folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.options import (
    COLUMNS,
    DATA,
    LIMITS,
    MODEL_NAME,
    OUTPUT,
    RECIPE_NAME,
    SETTINGS,
    SOURCE,
    TRAINING,
    check_bad_row,
    column_settings,
    data_option,
    default_folder,
    flag,
    flag_settings,
    option,
    refuse_finished,
    run_to_resume,
    show_keys,
    tell,
    with_columns,
)
from glassformer.cli.output import AS_JSON, as_dict, next_step, note, say, say_json, show_run, stream
from glassformer.cli.own_data import (
    OTHERS,
    Given,
    choose_recipe,
    held_out_line,
    is_set,
    own_task,
    requested_recipe,
    whole_path,
    with_model,
)
from glassformer.data.files import reading_flags
from glassformer.errors import BadValueError
from glassformer.tasks.catalog import recipe_names
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run


def train(
    recipe: Any,
    folder: str | Path,
    *,
    resume: bool = False,
    logs: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Run:
    """Run a recipe in ``folder``, with a progress bar; ``flags``: options that the recipe does not store."""
    from glassformer.checkpoints.native import resume_command
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import GO_ON, Interrupted, Progress
    from glassformer.train.loggers import loggers

    folder = Path(folder)
    calls = [Progress(stream()), *loggers(logs, folder)]
    again = resume_command(folder, *flags, *(f"--log={log}" for log in logs), *reading_flags())
    try:
        return run_task(recipe, folder, resume=resume, log=tell, callbacks=calls, best_so_far=True)
    except KeyboardInterrupt:
        if not (folder / "config.toml").exists():
            raise Interrupted("interrupted; nothing was started, run the same command again") from None
        raise Interrupted(f"interrupted; continue with: {again}") from None
    except Interrupted as stopped:  # the run's recipe holds every setting
        if stopped.run is not None:
            show_run(stopped.run, recipe)
        raise Interrupted(str(stopped).replace(GO_ON, f"continue with: {again}")) from None


EPOCHS: Any = option("N", "Number of epochs (--set epochs=N).", panel=TRAINING)
LR: Any = option("RATE", "Learning rate (--set lr=RATE).", panel=TRAINING)
BATCH_SIZE: Any = option("N", "Batch size (--set batch_size=N).", panel=TRAINING)
MAX_LENGTH: Any = option("TOKENS", "Max tokens per text (--set max_length=N).", panel=LIMITS)
SEED: Any = option("N", "Random seed (--set seed=N).", panel=TRAINING)
TIME: Any = option("10m", "With model=auto: stop trying models after this time (s, m or h).", panel=LIMITS)


def seconds_of(time: str | None) -> float | None:
    """The value of ``--time``, such as 90s, 10m or 1h, in seconds; a plain number means seconds."""
    if time is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip().lower())
    if found is None:
        what = f"{time!r} is not a time"
        raise BadValueError(what, where="--time", fix="Give seconds, minutes or hours: --time 10m")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


TEXT_FILE: Any = option(
    "FILE", "Labeled texts, instead of a recipe: CSV, TSV, JSONL, Parquet or a folder.", panel=DATA
)
IMAGE_FOLDER: Any = option("FOLDER", "Labeled images, instead of a recipe: a folder or a table.", panel=DATA)
BAD_ROW: Any = option(
    "refuse|skip",
    "Stop at an unusable row or image, or skip it; skipped rows are listed in rejected.jsonl.",
    panel=DATA,
)
OUT: Any = option("DIR", "Run folder.", show_default="runs/NAME", panel=OUTPUT)
RESUME: Any = flag("--resume", "Continue the interrupted run in --out, bit for bit.", panel=TRAINING)
DETERMINISTIC: Any = flag(
    "--deterministic", "Identical results on every run, also on a GPU (slower).", panel=TRAINING
)
HELP_KEYS: Any = flag(
    "--help-keys", "List the keys of --set and exit.", panel=TRAINING, callback=show_keys, is_eager=True
)
LOG: Any = option("NAME", "Also log to tensorboard or mlflow; may be repeated.", panel=OUTPUT)
FLAGS = ("epochs", "lr", "batch_size", "max_length", "seed")  # options that set a recipe key


@with_columns(*COLUMNS)
def train_command(
    recipe: str | None = RECIPE_NAME,
    text: str | None = TEXT_FILE,
    images: str | None = IMAGE_FOLDER,
    data: str | None = SOURCE,
    on_bad_row: str | None = BAD_ROW,
    model: str | None = MODEL_NAME,
    settings: list[str] | None = SETTINGS,
    epochs: int | None = EPOCHS,
    lr: float | None = LR,
    batch_size: int | None = BATCH_SIZE,
    seed: int | None = SEED,
    resume: bool = RESUME,
    deterministic: bool = DETERMINISTIC,
    help_keys: bool = HELP_KEYS,
    out: Path | None = OUT,
    log: list[str] | None = LOG,
    max_length: int | None = MAX_LENGTH,
    time: str | None = TIME,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Train and evaluate a model on a recipe, or on your own texts or images; writes a report."""
    if deterministic:
        from glassformer.runtime import be_deterministic

        be_deterministic()
    if resume and not (text or images):
        recipe, out = run_to_resume(recipe, out)
    given = own_task(Given(recipe, text, images, data, settings_of(locals())), "train", OTHERS)
    if not resume and (out or not is_set("name", given.settings)):
        _refuse_taken(given, out, model, alone=data is None)
    chosen = choose_recipe(
        given.recipe,
        given.text,
        images=given.images,
        model=model,
        data=given.data,
        settings=given.settings,
        run_folder=out if resume else None,
        task_chosen=True,
    )
    from glassformer.runtime import world
    from glassformer.tasks.run_folder import NotMainProcess

    _say_held_out(chosen, given, shipped=recipe in recipe_names())
    folder, flags = out or default_folder(chosen.name), ["--deterministic"] * deterministic
    there = os.path.isdir(folder) and bool(os.listdir(folder))  # os.path: False for an invalid name
    if resume and world()[0] == 0 and not there and not os.path.isfile(folder):
        note(f"nothing to resume in {folder}: a new run begins")
    try:
        run = train(chosen, folder, resume=resume, logs=log or (), flags=flags)
    except NotMainProcess:
        return
    show_run(run, chosen)
    say(next_step(run, chosen))
    if json:
        say_json(as_dict(run))


def settings_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that the parameters of ``train_command`` make; --set comes after the other options."""
    bad, recipe = check_bad_row(given["on_bad_row"]), given["recipe"]
    flags = flag_settings(**{key: given[key] for key in FLAGS}, time_limit=seconds_of(given["time"]))
    columns, asked = column_settings(given["columns"]), given["settings"] or ()
    if bad and (given["images"] or (recipe is not None and data_option(recipe) == "--images")):
        return (*flags, *columns, f"broken={bad}", *asked)  # the key for images
    return (*flags, *columns, *flag_settings(on_bad_row=bad), *asked)


def _refuse_taken(given: Given, out: Path | None, model: str | None, alone: bool) -> None:
    """Raise ConfigError if the folder already holds a finished run; wrong settings are reported first."""
    own = given.text or given.images
    if own and not (given.text and given.images) and given.recipe is None and alone:
        cls = Recipe if given.text else ImageRecipe
        requested_recipe(cls, whole_path(own), given.settings, with_model(model))
    own = own or (given.data if alone else None)
    refuse_finished(out or (default_folder(Path(own).stem) if own else None))


def _say_held_out(chosen: Any, given: Given, shipped: bool) -> None:
    """Print what is held out of the user's data."""
    from glassformer.runtime import world

    if world()[0] != 0:
        return
    if given.own and chosen.data.test_size:
        noun = "texts" if hasattr(chosen.data, "text_column") else "images"
        say(f"no test split: some of the {noun} are held out for testing")
    elif (given.data or shipped) and (line := held_out_line(chosen)):
        say(line)
