"""``glassformer train``.

It trains a recipe, or a model for the user's own data, in a run folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import options as cli
from glassformer.cli import output, own_data
from glassformer.cli.options import flag, option
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note
from glassformer.cli.own_data import RecipeRequest
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
        flags: options that the recipe does not store; the command to resume an interrupted run repeats them.
    """
    from glassformer.checkpoints.native import resume_command
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import RESUME_HINT, Interrupted, Progress
    from glassformer.train.loggers import loggers

    folder = Path(folder)
    callbacks = [Progress(output.output_stream()), *loggers(logs, folder)]
    command = resume_command(folder, *flags, *(f"--log={log}" for log in logs), *reading_flags())
    options: dict[str, Any] = {"log": cli.print_library_message, "callbacks": callbacks, "best_so_far": True}
    try:
        return run_task(recipe, folder, resume=resume, **options)
    except KeyboardInterrupt:
        if not (folder / "config.toml").exists():
            raise Interrupted("interrupted; nothing was started, run the same command again") from None
        raise Interrupted(f"interrupted; continue with: {command}") from None
    except Interrupted as error:
        if error.run is not None:
            output.show_run(error.run, recipe)
        raise Interrupted(str(error).replace(RESUME_HINT, f"continue with: {command}")) from None


EPOCHS: Any = option("N", "Number of epochs (--set epochs=N).", panel=cli.TRAINING)
LR: Any = option("RATE", "Learning rate (--set lr=RATE).", panel=cli.TRAINING)
BATCH_SIZE: Any = option("N", "Batch size (--set batch_size=N).", panel=cli.TRAINING)
MAX_LENGTH: Any = option("TOKENS", "Max tokens per text (--set max_length=N).", panel=cli.LIMITS)
SEED: Any = option("N", "Random seed (--set seed=N).", panel=cli.TRAINING)
TIME: Any = option(
    "10m", "With model=auto: start no further model after this time (90s, 10m, 1h).", panel=cli.LIMITS
)


def parse_seconds(time: str | None) -> float | None:
    """Convert a value of ``--time``, such as 90, 90s, 10m or 1h, to seconds."""
    if time is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip().lower())
    if match is None:
        what = f"{time!r} is not a time"
        raise BadValueError(what, where="--time", fix="Give seconds, minutes or hours: --time 10m")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


TEXT_FILE: Any = option(
    "FILE", "Labeled texts, instead of a recipe: CSV, TSV, JSONL, Parquet or a folder.", panel=cli.DATA
)
IMAGE_FOLDER: Any = option(
    "FOLDER", "Labeled images, instead of a recipe: a folder or a table.", panel=cli.DATA
)
BAD_ROW: Any = option(
    "refuse|skip",
    "Stop at an unusable row or image (refuse), or skip it and list it in rejected.jsonl (skip).",
    panel=cli.DATA,
)
OUT: Any = option("DIR", "Run folder.", show_default="runs/NAME", panel=cli.OUTPUT)
RESUME: Any = flag("--resume", "Continue the interrupted run in --out, bit for bit.", panel=cli.TRAINING)
DETERMINISTIC: Any = flag(
    "--deterministic", "Identical results on every run, also on a GPU (slower).", panel=cli.TRAINING
)
HELP_KEYS: Any = flag(
    "--help-keys",
    "List the keys of --set and exit.",
    panel=cli.TRAINING,
    callback=cli.show_keys,
    is_eager=True,
)
LOG: Any = option("NAME", "Also log to tensorboard or mlflow; may be repeated.", panel=cli.OUTPUT)
KEY_OPTIONS = ("epochs", "lr", "batch_size", "max_length", "seed")  # each sets the recipe key of its name


@cli.with_columns(*cli.COLUMNS)
def train_command(
    recipe: str | None = cli.RECIPE_NAME,
    text: str | None = TEXT_FILE,
    images: str | None = IMAGE_FOLDER,
    data: str | None = cli.SOURCE,
    on_bad_row: str | None = BAD_ROW,
    model: str | None = cli.MODEL_NAME,
    settings: list[str] | None = cli.SETTINGS,
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
    """Train and evaluate a model, from a recipe or on your own texts or images; writes a report.

    A recipe is a file with data, model and settings.
    """
    if deterministic:
        from glassformer.runtime import be_deterministic

        be_deterministic()
    if resume and not (text or images):
        recipe, out = cli.run_to_resume(recipe, out)
    request = RecipeRequest(recipe, text, images, data, collect_settings(locals()))
    request = own_data.resolve_request(request, "train", own_data.ALTERNATIVES)
    if not resume and (out or not own_data.is_set("name", request.settings)):
        _check_not_finished(request, out, model, without_data_option=data is None)
    config = own_data.choose_recipe(request=request, model=model, run_folder=out if resume else None)
    from glassformer.runtime import world
    from glassformer.tasks.run import NotMainProcess

    _print_held_out(config, request, is_shipped=recipe in recipe_names())
    folder, flags = out or cli.default_folder(config.name), ["--deterministic"] * deterministic
    has_files = os.path.isdir(folder) and bool(os.listdir(folder))  # unlike Path, os accepts invalid names
    if resume and world()[0] == 0 and not has_files and not os.path.isfile(folder):
        print_note(f"nothing to resume in {folder}: a new run begins")
    try:
        run = train(config, folder, resume=resume, logs=log or (), flags=flags)
    except NotMainProcess:
        return
    output.show_run(run, config)
    print_message(output.next_step(run, config))
    if json:
        print_json(output.run_as_dict(run))


def collect_settings(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """``KEY=VALUE`` settings for the parameters of ``train_command``; the values of ``--set`` come last."""
    bad_row_choice, recipe = cli.check_bad_row(parameters["on_bad_row"]), parameters["recipe"]
    values = {key: parameters[key] for key in KEY_OPTIONS} | {"time_limit": parse_seconds(parameters["time"])}
    is_image = parameters["images"] or (recipe is not None and cli.guess_data_option(recipe) == "--images")
    bad_row = cli.as_settings(**{"broken" if is_image else "on_bad_row": bad_row_choice})
    columns, set_values = cli.column_settings(parameters["columns"]), parameters["settings"] or ()
    return (*cli.as_settings(**values), *columns, *bad_row, *set_values)


def _check_not_finished(
    request: RecipeRequest, out: Path | None, model: str | None, without_data_option: bool
) -> None:
    """Raise ConfigError if the folder already contains a finished run."""
    source = request.text or request.images
    if source and not (request.text and request.images) and request.recipe is None and without_data_option:
        # Report wrong settings first.
        cls = Recipe if request.text else ImageRecipe
        own_data.requested_recipe(
            cls, own_data.absolute_path(source), request.settings, own_data.model_section(model)
        )
    source = source or (request.data if without_data_option else None)
    cli.check_not_finished(out or (cli.default_folder(Path(source).stem) if source else None))


def _print_held_out(config: Any, request: RecipeRequest, is_shipped: bool) -> None:
    """Print which examples of the user's data are held out."""
    from glassformer.runtime import world

    if world()[0] != 0:
        return
    if request.own_data and config.data.test_size:
        noun = "texts" if hasattr(config.data, "text_column") else "images"
        print_message(f"no test split: some of the {noun} are held out for testing")
    elif (request.data or is_shipped) and (line := own_data.describe_held_out(config)):
        print_message(line)
