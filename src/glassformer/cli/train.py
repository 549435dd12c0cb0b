"""``glassformer train``.

It trains a recipe, or a model for the user's own data, in a run folder.
"""

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
    as_settings,
    check_bad_row,
    check_not_finished,
    column_settings,
    default_folder,
    flag,
    guess_data_option,
    option,
    run_to_resume,
    say_with_options,
    show_keys,
    with_columns,
)
from glassformer.cli.output import (
    AS_JSON,
    next_step,
    note,
    output_stream,
    run_as_dict,
    say,
    say_json,
    show_run,
)
from glassformer.cli.own_data import (
    ALTERNATIVES,
    RecipeRequest,
    absolute_path,
    choose_recipe,
    describe_held_out,
    is_set,
    model_section,
    requested_recipe,
    resolve_request,
)
from glassformer.data.files import reading_flags
from glassformer.errors import BadValueError
from glassformer.tasks.catalog import recipe_names
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run import Run


def train(
    recipe: Any,
    folder: str | Path,
    *,
    resume: bool = False,
    logs: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Run:
    """Run a recipe in ``folder``, with a progress bar.

    Args:
        logs: names of loggers.
        flags: options of the command that the recipe does not store, for the command that resumes the run.
    """
    from glassformer.checkpoints.native import resume_command
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import RESUME_HINT, Interrupted, Progress
    from glassformer.train.loggers import loggers

    folder = Path(folder)
    callbacks = [Progress(output_stream()), *loggers(logs, folder)]
    command = resume_command(folder, *flags, *(f"--log={log}" for log in logs), *reading_flags())
    options: dict[str, Any] = {"log": say_with_options, "callbacks": callbacks, "best_so_far": True}
    try:
        return run_task(recipe, folder, resume=resume, **options)
    except KeyboardInterrupt:
        if not (folder / "config.toml").exists():
            raise Interrupted("interrupted; nothing was started, run the same command again") from None
        raise Interrupted(f"interrupted; continue with: {command}") from None
    except Interrupted as error:
        if error.run is not None:
            show_run(error.run, recipe)
        raise Interrupted(str(error).replace(RESUME_HINT, f"continue with: {command}")) from None


EPOCHS: Any = option("N", "Number of epochs (--set epochs=N).", panel=TRAINING)
LR: Any = option("RATE", "Learning rate (--set lr=RATE).", panel=TRAINING)
BATCH_SIZE: Any = option("N", "Batch size (--set batch_size=N).", panel=TRAINING)
MAX_LENGTH: Any = option("TOKENS", "Max tokens per text (--set max_length=N).", panel=LIMITS)
SEED: Any = option("N", "Random seed (--set seed=N).", panel=TRAINING)
TIME: Any = option("10m", "With model=auto: stop trying models after this time (s, m or h).", panel=LIMITS)


def parse_seconds(time: str | None) -> float | None:
    """The seconds of a value of ``--time``, such as 90, 90s, 10m or 1h."""
    if time is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip().lower())
    if match is None:
        what = f"{time!r} is not a time"
        raise BadValueError(what, where="--time", fix="Give seconds, minutes or hours: --time 10m")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


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
    request = RecipeRequest(recipe, text, images, data, collect_settings(locals()))
    request = resolve_request(request, "train", ALTERNATIVES)
    if not resume and (out or not is_set("name", request.settings)):
        _refuse_finished_folder(request, out, model, no_other_data=data is None)
    config = choose_recipe(
        request.recipe,
        request.text,
        images=request.images,
        model=model,
        data=request.data,
        settings=request.settings,
        run_folder=out if resume else None,
        task_chosen=True,
    )
    from glassformer.runtime import world
    from glassformer.tasks.run import NotMainProcess

    _say_held_out(config, request, shipped=recipe in recipe_names())
    folder, flags = out or default_folder(config.name), ["--deterministic"] * deterministic
    has_files = os.path.isdir(folder) and bool(os.listdir(folder))  # unlike Path, accepts invalid names
    if resume and world()[0] == 0 and not has_files and not os.path.isfile(folder):
        note(f"nothing to resume in {folder}: a new run begins")
    try:
        run = train(config, folder, resume=resume, logs=log or (), flags=flags)
    except NotMainProcess:
        return
    show_run(run, config)
    say(next_step(run, config))
    if json:
        say_json(run_as_dict(run))


def collect_settings(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings for the parameters of ``train_command``; --set has precedence over other options."""
    bad_row_choice, recipe = check_bad_row(parameters["on_bad_row"]), parameters["recipe"]
    values = {key: parameters[key] for key in FLAGS} | {"time_limit": parse_seconds(parameters["time"])}
    is_image = parameters["images"] or (recipe is not None and guess_data_option(recipe) == "--images")
    bad_row = as_settings(**{"broken" if is_image else "on_bad_row": bad_row_choice})
    columns, set_values = column_settings(parameters["columns"]), parameters["settings"] or ()
    return (*as_settings(**values), *columns, *bad_row, *set_values)


def _refuse_finished_folder(
    request: RecipeRequest, out: Path | None, model: str | None, no_other_data: bool
) -> None:
    """Raise ConfigError if the folder already contains a finished run."""
    source = request.text or request.images
    if source and not (request.text and request.images) and request.recipe is None and no_other_data:
        # Wrong settings have precedence.
        cls = Recipe if request.text else ImageRecipe
        requested_recipe(cls, absolute_path(source), request.settings, model_section(model))
    source = source or (request.data if no_other_data else None)
    check_not_finished(out or (default_folder(Path(source).stem) if source else None))


def _say_held_out(config: Any, request: RecipeRequest, shipped: bool) -> None:
    """Print which examples of the user's data are held out."""
    from glassformer.runtime import world

    if world()[0] != 0:
        return
    if request.own_data and config.data.test_size:
        noun = "texts" if hasattr(config.data, "text_column") else "images"
        say(f"no test split: some of the {noun} are held out for testing")
    elif (request.data or shipped) and (line := describe_held_out(config)):
        say(line)
