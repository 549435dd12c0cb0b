"""Options, arguments and folders that several commands share."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
import os
import re
import shlex
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer

from glassformer import errors
from glassformer.checkpoints.catalog import is_catalog_name
from glassformer.checkpoints.files import list_models_below
from glassformer.checkpoints.locks import check_unlocked
from glassformer.cli.output import print_message, print_note, show_table
from glassformer.config import allows_none, choices_in, meaning_of, suggest
from glassformer.config.synonyms import TABLE_OPTIONS, as_key, matching_key
from glassformer.data.image import is_image_name
from glassformer.data.tables import READERS
from glassformer.finite import json_text
from glassformer.inputs.rows import SKIP_HINT, STDIN, read_stdin
from glassformer.tasks.catalog import DEFAULT_TASK, TASKS, recipe_names, study_names

# --- run folders ------------------------------------------------------------------------------------

RUNS = Path("runs")  # default parent folder of runs
MAX_SEARCHED = 1_000  # maximum number of folders to compare with a wrong name


def check_folder(run: str | Path) -> Path:
    """Return the path of a run or a saved model; raise ConfigError if it is missing or an ONNX export."""
    folder = Path(run)
    if not folder.is_dir():
        raise no_run_error(folder)
    if (folder / "onnx.json").is_file() and (folder / "run.py").is_file():
        what, script = "is an ONNX export, which runs without glassformer", str(folder / "run.py")
        fix = f"Run it with: python {shlex.quote(script)} A TEXT; or name the run that was exported"
        raise errors.NotARunError(what, where=str(folder), fix=fix)
    return folder


def no_run_error(folder: Path) -> errors.ConfigError:
    """The error for a folder that is missing or not a run, with a suggestion."""
    fix = "Name a folder that 'glassformer train' wrote, its --out"
    if folder.is_dir():
        if (folder.resolve().parent / "config.toml").is_file():
            run_folder = folder.parent if folder.parent.name else folder.resolve().parent
            fix = f"This is the model in a run: name the run, {run_folder}"
        elif (folder / "glassformer.json").is_file():
            fix = "This is a saved model without its run: predict, explain, serve and export accept it"
        elif run_below := list_models_below(folder, "config.toml"):
            fix = f"Give one of its sub-folders: {run_below}"
        return errors.NotARunError("is not a run folder: it has no config.toml", where=str(folder), fix=fix)
    if is_catalog_name(folder):
        what = "is a pre-trained model, and this command needs a run"
        fix = f"Fine-tune it: glassformer train --text FILE --model {folder} (for images: --images FOLDER)"
        return errors.NotARunError(what, where=str(folder), fix=fix)
    if folder.is_file():
        what = "is a file, and this command needs a run folder"
        return errors.NotARunError(
            what, where=str(folder), fix="Name the folder that 'glassformer train' wrote"
        )
    with suppress(OSError):
        siblings = [
            path.name
            for _, path in zip(range(MAX_SEARCHED), folder.parent.iterdir(), strict=False)
            if path.is_dir()
        ]
        if close := difflib.get_close_matches(folder.name, siblings, n=1):
            fix = f"Did you mean {str(folder.parent / close[0])!r}?"
    return errors.NotARunError("no such run folder", where=str(folder), fix=fix)


def check_not_finished(folder: Path | None) -> None:
    """Raise ConfigError if the folder already contains a finished run."""
    if folder is None:
        return
    with suppress(OSError):  # creating the folder will report an invalid name
        if not ((folder / "metrics.json").is_file() and (folder / "config.toml").is_file()):
            return
        check_unlocked(folder)  # if a process is writing there, report that first
        fix = f"Choose another: --out {unused_path(folder)}. (--resume only continues an interrupted run)"
        raise errors.ExistsError("the output folder contains a finished run", where=str(folder), fix=fix)


def free_out_option(source: str) -> list[str]:
    """The arguments ``--out DIR`` with an unused name if the default folder exists; otherwise empty."""
    folder = default_folder(Path(source).stem)
    return ["--out", str(unused_path(folder))] if folder.exists() else []


def unused_path(folder: Path) -> Path:
    """The path ``folder``; if it exists, the first of ``folder-2``, ``folder-3``, ... that does not."""
    number, path = 2, folder
    while path.exists():
        path, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return path


def default_folder(name: str, suffix: str = "") -> Path:
    """The folder ``runs/NAME``; raises ConfigError if the name is not a plain name."""
    if re.search(r"[/\\\0]", name) or name in (".", ".."):
        fix = "Use letters, or give --out"
        raise errors.ConfigError(f"{name!r} cannot be a folder's name", where="name", fix=fix)
    return RUNS / f"{name or 'run'}{suffix}"


# --- shell completion -----------------------------------------------------------------------------


MAX_FOLDERS = 200  # maximum number of suggested folders
MODEL_FILES = ("config.toml", "glassformer.json", "config.json")  # in a run, a saved model, a checkpoint


def complete_recipes(incomplete: str) -> list[str]:
    """Names of shipped recipes that begin with ``incomplete``."""
    return [name for name in recipe_names() if name.startswith(incomplete)]


def complete_studies(incomplete: str) -> list[str]:
    """Names of shipped studies that begin with ``incomplete``, and paths of runs."""
    return [name for name in study_names() if name.startswith(incomplete)] + complete_runs(incomplete)


def complete_runs(incomplete: str) -> list[str]:
    """Folders whose path begins with ``incomplete``; those that are not runs or models end in a slash."""
    parent, prefix = os.path.split(incomplete)
    out = []
    try:
        with os.scandir(parent or ".") as entries:
            for _, entry in zip(range(50 * MAX_FOLDERS), entries, strict=False):
                is_hidden = entry.name.startswith(".") and not prefix.startswith(".")
                if entry.name.startswith(prefix) and not is_hidden and entry.is_dir():
                    path = os.path.join(parent, entry.name)
                    is_model = any((Path(path) / name).is_file() for name in MODEL_FILES)
                    out.append(path if is_model else path + os.sep)
    except OSError:
        return []
    return sorted(out)[:MAX_FOLDERS]


# --- options --------------------------------------------------------------------------------------


DATA, MODEL, TRAINING, OUTPUT, LIMITS = "Data", "Model", "Training", "Output", "Limits"  # titles in --help


def option(
    metavar: str | None, help: str, *names: str, default: Any = None, panel: str = "", **extra: Any
) -> Any:
    """A command-line option; ``names`` defaults to the name of the parameter, ``default=...`` is required."""
    return typer.Option(default, *names, metavar=metavar, help=help, rich_help_panel=panel or None, **extra)


def argument(metavar: str, help: str, *, default: Any = None, **extra: Any) -> Any:
    """A positional argument; ``default=...`` means required."""
    return typer.Argument(default, metavar=metavar, help=help, **extra)


def flag(name: str, help: str, **extra: Any) -> Any:
    """A boolean option, without a value."""
    return option(None, help, name, default=False, **extra)


def run_argument(help: str = "Run folder or saved model.", metavar: str = "RUN", default: Any = ...) -> Any:
    """A positional argument for a run folder, with shell completion."""
    return argument(metavar, help, default=default, autocompletion=complete_runs)


def recipe_argument(help: str, metavar: str = "RECIPE") -> Any:
    """A positional argument for a recipe, with shell completion."""
    return argument(metavar, help, autocompletion=complete_recipes)


def _column_option(help: str) -> Any:
    return option("NAME", f"{help}; detected by default.", panel=DATA)


RUN: Any = run_argument()
RUN_FOLDER: Any = run_argument("Run folder.")
RECIPE_NAME: Any = recipe_argument(
    "Recipe name or .toml file (see: glassformer recipes). Omit it with --text or --images."
)
MODEL_NAME: Any = option("NAME", "Checkpoint or architecture, instead of the recipe's.", panel=MODEL)
SOURCE: Any = option("PATH", "Data set or path, instead of the recipe's.", panel=DATA)
SETTINGS: Any = option(
    "KEY=VALUE",
    "Set a recipe key; may be repeated (keys: glassformer train --help-keys).",
    "--set",
    panel=TRAINING,
)
DATA_FILE: Any = option("FILE", "Input file; may also be given as an argument.", "--data", panel=DATA)
OTHER_DATA: Any = argument("PATH", "Short for --data PATH.", show_default=False)
TEXT_COLUMN: Any = _column_option("Text column")
PAIR_COLUMN: Any = _column_option("Second text column of pairs")
LABEL_COLUMN: Any = option(
    "NAME", "Label column; detected by default. Multi-label: 0/1 columns, e.g. A,B,C.", panel=DATA
)
LABEL_SEPARATOR: Any = option("TEXT", "Separator of several labels in one cell, e.g. '|'.", panel=DATA)
IMAGE_COLUMN: Any = _column_option("Column with images or image paths")
SOURCE_COLUMN: Any = _column_option("Source text column")
TARGET_COLUMN: Any = _column_option("Translation column")
COLUMNS = {  # options for columns of tables, by recipe key
    "text_column": TEXT_COLUMN,
    "pair_column": PAIR_COLUMN,
    "label_column": LABEL_COLUMN,
    "label_separator": LABEL_SEPARATOR,
    "image_column": IMAGE_COLUMN,
    "source_column": SOURCE_COLUMN,
    "target_column": TARGET_COLUMN,
}
LABELED_COLUMNS = tuple(COLUMNS)[:5]  # keys for labeled examples
TRANSLATION_COLUMNS = tuple(COLUMNS)[5:]  # keys for pairs of sentences
BAD_ROW: Any = option(
    "refuse|skip", "For unusable rows or images: stop (refuse), or skip and list them (skip).", panel=DATA
)
BAD_ROWS = ("refuse", "skip")  # values of --on-bad-row


def check_bad_row(choice: str | None) -> str | None:
    """Return ``choice``; raise ConfigError if it is not a value of ``--on-bad-row``."""
    return check_choice("--on-bad-row", choice, BAD_ROWS)


def check_choice(option: str, choice: str | None, choices: tuple[str, ...]) -> str | None:
    """Return ``choice``; raise ConfigError, with the most similar value, if it is not in ``choices``."""
    if choice not in (None, *choices):
        raise errors.BadValueError(f"{choice!r} is not a choice", where=option, fix=suggest(choice, choices))
    return choice


def add_options(options: Mapping[str, tuple[Any, Any]]) -> Callable[[Any], Any]:
    """A decorator that replaces the ``**options`` of a command by the options in a dict.

    Args:
        options: name of the parameter -> its type, and the result of ``option``.
    """

    def decorate(command: Any) -> Any:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=hint)
            for name, (hint, info) in options.items()
        ]
        *other_parameters, _ = signature.parameters.values()  # the last one is **options
        command.__signature__ = signature.replace(parameters=[*other_parameters, *parameters])
        return command

    return decorate


def with_columns(*keys: str, hidden: Iterable[str] = ()) -> Callable[[Any], Any]:
    """A decorator that replaces the ``**columns`` of a command by the options of these columns.

    Args:
        hidden: further columns, whose options are accepted but not shown in the help.
    """
    options = {key: (str | None, COLUMNS[key]) for key in keys}
    for key in hidden:
        info = copy.copy(COLUMNS[key])
        info.hidden = True
        options[key] = (str | None, info)
    return add_options(options)


def column_settings(columns: Mapping[str, str | None]) -> list[str]:
    """``KEY=VALUE`` settings for the columns that have a name."""
    return [f"{key}={json_text(name)}" for key, name in columns.items() if name is not None]


# --- inputs ---------------------------------------------------------------------------------------


def collect_inputs(arguments: Iterable[str] | None, data: str | None, command: str) -> list[str]:
    """The arguments of a command, or the file of ``--data``; raises ConfigError for both or none."""
    inputs = list(arguments or ())
    if inputs and data is not None:
        raise errors.ConflictError("texts and --data at once", where=command, fix="Give one of them")
    if not inputs and data is None:
        fix = "Give a TEXT, a FILE, --data FILE, or - for standard input"
        raise errors.NothingGivenError("there is nothing to read", where=command, fix=fix)
    return inputs or [str(data)]


def choose_data(path: str | None, data: str | None, command: str) -> str | None:
    """The argument PATH or the value of ``--data``; raises ConfigError if both are given."""
    if path is not None and data is not None:
        raise errors.ConflictError(f"{path} and --data {data} at once", where=command, fix="Give one of them")
    return path if data is None else data


def as_settings(**values: Any) -> list[str]:
    """``KEY=VALUE`` settings for the keys that have a value."""
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def guess_data_option(argument: str) -> str | None:
    """``--text`` or ``--images`` if an argument is a path of labeled data; None for names, runs and recipes.

    A folder is for ``--images`` if most of its first 100 files are images.
    """
    from glassformer.data.tagged import CONLL

    path = Path(argument).expanduser()
    if argument.lower().endswith(tuple(READERS)) or (argument.lower().endswith(CONLL) and path.is_file()):
        return "--text"
    try:
        if not path.is_dir() or (path / "config.toml").is_file():
            return None
        files = (file for file in path.rglob("*") if file.is_file())
        sample = [file for _, file in zip(range(100), files, strict=False)]
    except OSError:
        return None
    if not sample:
        return None
    num_images = sum(map(is_image_name, sample))
    return "--images" if 2 * num_images > len(sample) else "--text"


def expand_stdin(arguments: Iterable[str]) -> list[str]:
    """The arguments; a dash is replaced by the lines of standard input."""
    return [text for word in arguments for text in (read_stdin()[0] if word == STDIN else [word])]


def suggest_option(word: str, options: Iterable[str], keys: Mapping[str, Any]) -> str | None:
    """A suggestion for an unknown option, such as "Write --set dropout=0.1"; None if nothing is similar."""
    name, _, value = word.partition("=")
    key = as_key(name)
    if key in TABLE_OPTIONS and "--text" in options:
        return f"For a table of texts write --text {value or 'FILE'}"
    match = key if key in keys else matching_key(key, [*keys, *map(as_key, options)])
    if match is None:
        return None
    flag = "--" + match.replace("_", "-")
    if flag in options:
        return f"Write {flag} {value or 'VALUE'}"
    return f"Write --set {match}={value or 'VALUE'}" if keys else None


def use_option_names(message: str, options: Iterable[str], arguments: Sequence[str] = ()) -> str:
    """Replace keys by command-line options in a message, such as ``text_column`` by ``--text-column``.

    Args:
        options: the options of the command.
        arguments: those of the command; a key at the start of the message becomes an option if it is here.
    """
    available = set(options)
    # "lr = -1: must be positive" becomes "--lr = -1: ..."
    if match := re.match(r"(\w+)(?=: | = )", message):
        option = "--" + match[1].replace("_", "-")
        if option in available and any(word.partition("=")[0] == option for word in arguments):
            message = option + message[match.end() :]
    if match := re.match(r"--set: unknown key '(\w+)'\. ", message):
        option = "--" + match[1].replace("_", "-")
        if option in available and match[1] in COLUMNS:
            return f"{option}: these data have no such column. Leave it out"
        if option in available:
            return f"--set: {match[1]!r} is not a recipe key. Use the option {option}"
    if "--on-bad-row" in available:
        message = message.replace("with on_bad_row=skip", "with --on-bad-row skip")
        message = message.replace("with --set broken=skip", "with --on-bad-row skip")
    else:
        message = message.replace(f", {SKIP_HINT}", "")
        if "--set" in available:
            message = message.replace("with on_bad_row=skip", "with --set on_bad_row=skip")
        else:  # the command cannot skip rows: remove ", or leave such rows out with on_bad_row=skip"
            message = re.sub(r"(, or|(?<=\?) Or) leave such \w+ out with on_bad_row=skip", "", message)
            for key in re.findall(r"--set (\w+)=", message):
                if f"--{key}" in available:
                    message = message.replace(f"--set {key}=", f"--{key} ")
    number_options = {"--number-format": "--number-format ", "--set": "--set number_format="}
    if number_option := next((text for name, text in number_options.items() if name in available), ""):
        message = re.sub(r"(?<!--set )\bnumber_format=", number_option, message)
    for key in COLUMNS:
        option = "--" + key.replace("_", "-")
        if option in available:
            message = re.sub(rf"(?<!['\"\w=-]){key}(?!['\"\w=])", option, message)
        elif "--set" not in available:
            message = re.sub(rf", or name another column with {key}: .*", "", message, flags=re.DOTALL)
    return message


def use_column_options(message: str) -> str:
    """Replace the keys of columns by command-line options, such as ``text_column`` by ``--text-column``."""
    return use_option_names(message, ["--" + key.replace("_", "-") for key in COLUMNS])


def print_library_note(note: str) -> None:
    """Print a note of the library, with the command-line options of columns."""
    print_note(use_column_options(note))


def print_library_message(message: str) -> None:
    """Print a message of the library, with the command-line options of columns."""
    print_message(use_column_options(message))


def columns_for_data(columns: Mapping[str, str | None], data: str | None) -> dict[str, str]:
    """The columns that have a name; raises ConfigError if a column is named without ``--data``."""
    names = {key: name for key, name in columns.items() if name is not None}
    if names and data is None:
        option = "--" + next(iter(names)).replace("_", "-")
        fix = "Leave it out, because the run has stored its columns"
        raise errors.ConflictError("has an effect only with --data", where=option, fix=fix)
    return names


def is_run(name: str | Path) -> bool:
    """Whether a path is the folder of a run, finished or not."""
    return (Path(name) / "config.toml").is_file()


def run_to_resume(recipe: str | None, out: Path | None) -> tuple[str | None, Path | None]:
    """The recipe and the run folder for ``train --resume``; ``recipe`` may also be a run folder."""
    if recipe is None and out is None:
        fix = "Name the run to resume: glassformer train --resume --out RUN"
        raise errors.NothingGivenError("no run is named", where="--resume", fix=fix)
    if recipe is None or not is_run(recipe):
        return recipe, out
    if out is not None and out.resolve() != Path(recipe).resolve():
        what = f"two different runs are named, {recipe} and {out}"
        raise errors.ConflictError(what, where="--resume", fix="Name one of them")
    return None, Path(recipe)


# --- keys of --set --------------------------------------------------------------------------------


class Key(NamedTuple):
    """A recipe key, which ``--set NAME=VALUE`` sets."""

    section: str  # "" for keys outside of sections
    name: str
    default: str  # in TOML syntax; for None: "none" if --set accepts none, otherwise ""
    meaning: str


def recipe_keys(task: str = DEFAULT_TASK) -> Iterator[Key]:
    """Yield the keys of a task's recipes, section by section."""
    recipe_class = TASKS.recipe(task)
    sections: dict[str, Any] = {"": recipe_class}
    hints = typing.get_type_hints(recipe_class)
    sections |= {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    for section, cls in sections.items():
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(hints[field.name]):
                continue
            default = json_text(field.default, ascii=True)
            if field.default is None:
                default = "none" if allows_none(recipe_class, field.name) else ""
            field_type = hints[field.name]
            choices = [str(choice) for choice in choices_in([field_type, *typing.get_args(field_type)])]
            parts = [meaning_of(field), f"({' | '.join(choices)})" if choices else ""]
            yield Key(section, field.name, default, " ".join(filter(None, parts)))


def all_keys() -> dict[str, Key]:
    """The recipe keys of all tasks, by name."""
    return {key.name: key for task in TASKS for key in recipe_keys(task)}


def show_keys(requested: bool) -> None:
    """Print the recipe keys of all tasks, then exit."""
    if not requested:
        return
    for task in TASKS:
        sections: dict[str, list[tuple[str, str, str]]] = {}
        for key in recipe_keys(task):
            sections.setdefault(key.section, []).append((key.name, key.default, key.meaning))
        print_message(f"{task}:")
        for section, rows in sections.items():
            show_table(f"[{section}]" if section else "at the top", ("key", "default", "meaning"), rows)
    print_message("--set KEY=none resets a key whose default is none.")
    raise typer.Exit
