"""``glassformer train``: a recipe, or a file of one's own, becomes a run folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glassformer.checkpoints.catalog import AUTO
from glassformer.cli.finished import as_dict, next_step, show_run
from glassformer.cli.options import (
    DATA,
    LIMITS,
    OUTPUT,
    TRAINING,
    ImageColumn,
    LabelColumn,
    LabelSeparator,
    Model,
    PairColumn,
    RecipeName,
    Settings,
    Source,
    SourceColumn,
    TargetColumn,
    TextColumn,
    check_bad_row,
    column_settings,
    columns_of,
    data_option,
    flag,
    flag_settings,
    option,
    run_to_resume,
    show_keys,
    tell,
)
from glassformer.cli.output import AsJson, say, say_json, stream
from glassformer.cli.own_data import (
    Given,
    around,
    as_the_command_reads,
    asked_of,
    check_values,
    held_out_line,
    hold_out,
    is_set,
    on_other_data,
    own_task,
    tell_siblings,
    with_held_out,
    without_pairs,
)
from glassformer.cli.places import default_folder, no_run, refuse_finished
from glassformer.config import apply_overrides, build
from glassformer.errors import ConfigError
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.recipe import recipe_names
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run

OTHERS = "--text FILE or --images FOLDER"  # instead of a recipe


def train(
    recipe: Any,
    folder: str | Path,
    *,
    resume: bool = False,
    logs: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Run:
    """Run a recipe in ``folder``, with a progress bar; one left without a run by input errors is removed.

    Args:
        logs: what else is logged to: ``tensorboard`` (in the run's folder), ``mlflow``.
        flags: options of the command that no recipe holds, for the command that goes on.

    Raises:
        InputError: see ``run_task``.
        Interrupted: on Ctrl-C, SIGTERM or SIGHUP; the message says how to go on.
    """
    from glassformer.checkpoints.native import go_on
    from glassformer.data.files import reading_flags
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import GO_ON, Interrupted, Progress
    from glassformer.train.loggers import loggers

    folder = Path(folder)
    calls = [Progress(stream()), *loggers(logs, folder)]
    again = go_on(folder, *flags, *(f"--log={log}" for log in logs), *reading_flags())
    try:
        return run_task(recipe, folder, resume=resume, log=tell, callbacks=calls, best_so_far=True)
    except KeyboardInterrupt:
        if not (folder / "config.toml").exists():
            raise Interrupted("interrupted; nothing was begun, give the same command again") from None
        raise Interrupted(f"interrupted; go on with: {again}") from None
    except Interrupted as stopped:  # the run's own recipe holds every setting that was given
        if stopped.run is not None:
            show_run(stopped.run, recipe)
        raise Interrupted(str(stopped).replace(GO_ON, f"go on with: {again}")) from None


def choose_recipe(
    name: str | None,
    text: str | None = None,
    *,
    images: str | None = None,
    model: str | None = None,
    data: str | None = None,
    settings: Sequence[str] = (),
    begun: Path | None = None,
    command: str = "train",
    others: str = OTHERS,
    whole: bool = False,
    settled: bool = False,
) -> Any:
    """The recipe that the arguments of ``glassformer train`` and its kin mean.

    Args:
        name: of a recipe that ships with the package, or a TOML file.
        text, images: a file or folder of labelled texts or pictures, instead of a recipe.
        model, data: instead of the recipe's own.
        settings: ``KEY=VALUE``, laid over everything else.
        begun: a run folder whose own recipe is taken where no recipe and no data are given.
        command, others: for messages: which command this is, and what it takes instead of a recipe.
        whole: nothing is held out of words with tags or questions of one's own: all go into folds.
        settled: ``own_task`` has been asked.

    Raises:
        ConfigError: no recipe or two of them, or an unknown key (with the nearest name).
        DataError: ``text`` cannot be read.
    """
    given = Given(name, text, images, data, tuple(settings))
    if not settled:
        given = own_task(given, command, others)
    _check_one_source(given, command)
    name, data, settings = given.recipe, given.data, given.settings
    if given.text or given.images:
        own, chosen = text_recipe if given.text else image_recipe, _with_model(model)
        return as_the_command_reads(own(given.text or given.images or "", settings, chosen))
    name = _begun_with(begun, command, others) if name is None else name
    from glassformer.tasks.catalog import load_recipe

    recipe = load_recipe(name, settings)
    if model and not hasattr(recipe, "model"):
        raise ConfigError(f"a recipe of {recipe.task} has no model", where="--model", fix="Leave it out")
    if model:
        recipe = replace(recipe, model=replace(recipe.model, model=model))
    if begun is None and isinstance(recipe, Recipe | ImageRecipe):
        check_values(recipe)
    if data and _whole_path(data) != _whole_path(recipe.data.source):
        recipe = on_other_data(recipe, _whole_path(data), name in recipe_names(), settings)
        recipe = without_pairs(recipe, settings, begun)
        recipe = recipe if whole else with_held_out(recipe, settings, begun)
    elif not whole and name in recipe_names() and is_set("source", settings):
        recipe = with_held_out(recipe, settings, begun)
    return as_the_command_reads(recipe)


def _check_one_source(given: Given, command: str) -> None:
    """Raises ConfigError where a recipe and data, or two kinds of data, are given."""
    name = given.recipe
    sources = {"a recipe": name, "--text": given.text, "--images": given.images}
    several = [what for what, value in sources.items() if value]
    if len(several) > 1:
        fix = "Give one of them"
        if name and "=" in name:  # a setting without its option
            fix = f"Give one of them; a setting stands behind --set: --set {shlex.quote(name)}"
        what = f"both {several[0]}{f' ({name})' if name else ''} and {several[1]} are given"
        raise ConfigError(what, where=command, fix=fix)
    if given.data and not name and several:
        what = f"both {several[0]} and --data are given"
        raise ConfigError(what, where=command, fix="Give one of them")


def _with_model(model: str | None) -> dict[str, Any]:
    return {"model": {"model": model}} if model else {}


def _begun_with(begun: Path | None, command: str, others: str) -> str:
    """The recipe of a run folder; raises ConfigError where there is none."""
    if begun is not None and not (begun / "config.toml").is_file():
        raise no_run(begun)
    if begun is None:
        fix = f"Name a recipe such as europe ('glassformer recipes' lists them), or give {others}"
        raise ConfigError("no recipe is given", where=command, fix=fix)
    return str(begun / "config.toml")


def text_recipe(source: str, settings: Sequence[str] = (), chosen: dict[str, Any] | None = None) -> Any:
    """A recipe around labelled texts of one's own; rate, epochs and batches are left for the fit to choose.

    A tenth each is held out for validation and for the figures where the source has no such split.

    Args:
        source: a table, a folder of tables or of texts, or a named data set.
        settings: ``KEY=VALUE``, laid over the rest.
        chosen: section -> key -> value, laid over the defaults.

    Raises:
        DataError: the texts cannot be read.
        ConfigError: an unknown key or a value of the wrong type.
    """
    from glassformer.data.files import reading_as
    from glassformer.data.sources import load_text_dataset

    where = _whole_path(source)
    values, cls = around(Recipe, where, settings, chosen)
    d: Any = asked_of(Recipe, where, settings, chosen).data
    with reading_as(d):
        dataset = load_text_dataset(
            d.source,
            text_column=d.text_column,
            pair_column=d.pair_column,
            label_column=d.label_column,
            label_separator=getattr(d, "label_separator", None),
            limit=d.limit,
            seed=d.split_seed,
            need_labels=True,
            on_bad_row=d.on_bad_row,
            numbers=hasattr(d, "target"),
            number_format=getattr(d, "number_format", "plain"),
        )
    tell_siblings(where)
    hold_out(values, dataset)
    return build(cls, apply_overrides(values, settings, cls), "--set")


def image_recipe(source: str, settings: Sequence[str] = (), chosen: dict[str, Any] | None = None) -> Any:
    """A recipe around labelled pictures of one's own; see ``text_recipe``."""
    from glassformer.data.files import reading_as
    from glassformer.data.image_sources import load_image_dataset
    from glassformer.inputs.images import has_fixed_features, is_image_architecture
    from glassformer.tasks.auto import SCRATCH, asks_for_encoder
    from glassformer.tasks.catalog import TASKS

    where = _whole_path(source)
    values, cls = around(ImageRecipe, where, settings, chosen)
    asked = asked_of(ImageRecipe, where, settings, chosen)
    d: Any = asked.data
    with reading_as(d):
        dataset = load_image_dataset(
            d.source,
            image_column=d.image_column,
            label_column=d.label_column,
            label_separator=getattr(d, "label_separator", None),
            numbers=hasattr(d, "target"),
            limit=d.limit,
            seed=d.split_seed,
            broken=d.broken,  # what is left out of the training counts for no split either
            need_labels=True,
        )
    hold_out(values, dataset)
    name = asked.model.model
    if name == AUTO and asks_for_encoder(TASKS[values["task"]].estimator.from_recipe(asked)):
        name = SCRATCH.name
        values["model"] = {"model": name}
    if has_fixed_features(name):
        pass
    elif is_image_architecture(name):
        values["train"] = {"weight_decay": 0.05, "schedule": "cosine"}
        values["image"] = {"augment": "shift" if (asked.image.image_size or 32) <= 64 else "light"}
    elif name != AUTO:
        values["image"] = {"augment": "light"}
    return build(cls, apply_overrides(values, settings, cls), "--set")


def _whole_path(source: str) -> str:
    """An existing path from the root, so that the run can be judged again from any folder."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source


Epochs = Annotated[int | None, option("N", "Number of epochs (--set epochs=N).", panel=TRAINING)]
Lr = Annotated[float | None, option("RATE", "Learning rate (--set lr=RATE).", panel=TRAINING)]
BatchSize = Annotated[int | None, option("N", "Batch size (--set batch_size=N).", panel=TRAINING)]
MaxLength = Annotated[int | None, option("TOKENS", "Max tokens per text (--set max_length=N).", panel=LIMITS)]
Seed = Annotated[int | None, option("N", "Random seed (--set seed=N).", panel=TRAINING)]
Time = Annotated[
    str | None,
    option("10m", "With model=auto: stop trying models after this time (s, m or h).", panel=LIMITS),
]


def seconds_of(time: str | None) -> float | None:
    """What ``--time`` says, such as 90s, 10m or 1h, in seconds; a bare number counts seconds.

    Raises:
        ConfigError: anything else.
    """
    if time is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip().lower())
    if found is None:
        what = f"{time!r} is not a time"
        raise ConfigError(what, where="--time", fix="Give seconds, minutes or hours: --time 10m")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


TextFile = Annotated[
    str | None,
    option("FILE", "Labeled texts, instead of a recipe: CSV, TSV, JSONL, Parquet or a folder.", panel=DATA),
]
ImageFolder = Annotated[
    str | None, option("FOLDER", "Labeled images, instead of a recipe: a folder or a table.", panel=DATA)
]
BadRow = Annotated[
    str | None,
    option(
        "refuse|skip",
        "Stop at an unusable row or image, or skip it and list it in rejected.jsonl.",
        panel=DATA,
    ),
]
Out = Annotated[Path | None, option("DIR", "Run folder.", show_default="runs/NAME", panel=OUTPUT)]
Resume = Annotated[
    bool,
    flag(
        "--resume",
        "Continue the interrupted run in --out, bit for bit.",
        panel=TRAINING,
    ),
]
Deterministic = Annotated[
    bool, flag("--deterministic", "Same bits on every run, on a GPU too (slower).", panel=TRAINING)
]
HelpKeys = Annotated[
    bool,
    flag(
        "--help-keys",
        "List the keys of --set and exit.",
        panel=TRAINING,
        callback=show_keys,
        is_eager=True,
    ),
]
Log = Annotated[
    list[str] | None, option("NAME", "Also log to tensorboard or mlflow; may be repeated.", panel=OUTPUT)
]
FLAGS = ("epochs", "lr", "batch_size", "max_length", "seed")  # options that are settings


def train_command(
    recipe: RecipeName = None,
    text: TextFile = None,
    images: ImageFolder = None,
    data: Source = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    image_column: ImageColumn = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    on_bad_row: BadRow = None,
    model: Model = None,
    settings: Settings = None,
    epochs: Epochs = None,
    lr: Lr = None,
    batch_size: BatchSize = None,
    seed: Seed = None,
    resume: Resume = False,
    deterministic: Deterministic = False,
    help_keys: HelpKeys = False,
    out: Out = None,
    log: Log = None,
    max_length: MaxLength = None,
    time: Time = None,
    json: AsJson = False,
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
        begun=out if resume else None,
        settled=True,
    )
    from glassformer.tasks.run_folder import Helped

    _say_held_out(chosen, given, shipped=recipe in recipe_names())
    folder, flags = out or default_folder(chosen.name), ["--deterministic"] * deterministic
    try:
        run = train(chosen, folder, resume=resume, logs=log or (), flags=flags)
    except Helped:
        return
    show_run(run, chosen)
    say(next_step(run, chosen))
    if json:
        say_json(as_dict(run))


def settings_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What the parameters of ``train_command`` set in a recipe; --set stands behind the options."""
    bad, recipe = check_bad_row(given["on_bad_row"]), given["recipe"]
    flags = flag_settings(**{key: given[key] for key in FLAGS}, time_limit=seconds_of(given["time"]))
    columns, asked = column_settings(**columns_of(given)), given["settings"] or ()
    if bad and (given["images"] or (recipe is not None and data_option(recipe) == "--images")):
        return (*flags, *columns, f"broken={bad}", *asked)  # as pictures call it
    return (*flags, *columns, *flag_settings(on_bad_row=bad), *asked)


def _refuse_taken(given: Given, out: Path | None, model: str | None, alone: bool) -> None:
    """Raises ConfigError where a finished run stands in the place of the new one; slips are said first.

    Args:
        alone: no --data is given next to a recipe.
    """
    own = given.text or given.images
    if own and not (given.text and given.images) and given.recipe is None and alone:
        cls = Recipe if given.text else ImageRecipe
        asked_of(cls, _whole_path(own), given.settings, _with_model(model))
    own = own or (given.data if alone else None)
    refuse_finished(out or (default_folder(Path(own).stem) if own else None))


def _say_held_out(chosen: Any, given: Given, shipped: bool) -> None:
    """What is held out of data of one's own."""
    from glassformer.runtime import world

    if world()[0] != 0:
        return
    if given.own and chosen.data.test_size:
        noun = "texts" if hasattr(chosen.data, "text_column") else "pictures"
        say(f"no test split: a part of the {noun} is held out for the figures")
    elif (given.data or shipped) and (line := held_out_line(chosen)):
        say(line)
