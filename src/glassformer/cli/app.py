"""The ``glassformer`` program.

It reports each failure in one line. Exit codes: 0 done, 1 the run failed, 2 the input or the command line is
wrong, 130 interrupted by Ctrl-C, SIGTERM or SIGHUP (see ``stopping.py``).
"""

from __future__ import annotations

import math
import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

import typer

from glassformer import __version__
from glassformer.cli.options import all_keys, flag, option, suggest_option, use_option_names
from glassformer.cli.output import one_line, print_json, print_text, print_warnings, stdout_for_json
from glassformer.cli.stopping import INTERRUPTED, SignalHandler, install_for_process
from glassformer.errors import GlassformerError, NotEnoughMemoryError
from glassformer.process import ENCODING_OPTION, READ_OPTIONS, disable_telemetry, tune_process
from glassformer.sklearn_base import skip_sklearn

# Commands that never import scikit-learn, because they only run inference
INFERENCE_COMMANDS = {
    *("serve", "predict", "explain", "translate", "fill", "embed", "export", "similar", "search"),
}
RESUMABLE_COMMANDS = {"cross-validate", "review-labels", "compare", "reproduce"}  # these keep finished parts

TABLE_HELP = (
    f"For tables: {ENCODING_OPTION} cp1252 if not UTF-8, --header no if the first row is data, "
    "--quoting none if quotes are plain characters. Every command accepts these options."
)
EVERY_COMMAND = "Accepted by every command."

# Title in the help -> command -> its module, and its summary, which is the first line of its docstring. A
# module is only imported when its command runs, because importing all takes longer than most commands.
COMMANDS = {
    "Start here": {
        "demo": (
            "demo",
            "Train, evaluate and explain a text and an image classifier, in ./demo-run and ./demo-digits.",
        ),
        "data": ("data", "Inspect data sets: the built-in ones, or your own files."),
        "doctor": ("doctor", "Check this machine (packages, dtypes, data sets, weights), or a model."),
    },
    "Train and compare": {
        "recipes": (
            "recipes",
            "List the recipes accepted by `train`, `cross-validate` and `new`: name, task and description.",
        ),
        "train": (
            "train",
            "Train and evaluate a model, from a recipe or on your own texts or images; writes a report.",
        ),
        "new": ("recipes", "Write a new recipe file: every key with its meaning, ready to train."),
        "cross-validate": (
            "folds",
            "Cross-validate a recipe: mean and standard deviation over k folds, and out-of-fold predictions.",
        ),
        "compare": (
            "compare",
            "Compare recipes, models or runs on the same examples with paired tests. Resumes "
            "unfinished studies.",
        ),
        "review-labels": (
            "folds",
            "Find labels that are probably wrong, by cross-validation and confident learning. "
            "Changes no labels.",
        ),
        "reproduce": (
            "reproduce",
            "Run the recipes of a model from a paper, and compare their results with the published ones.",
        ),
    },
    "Evaluate a model": {
        "evaluate": (
            "evaluate",
            "Evaluate a trained model: its metrics with confidence intervals, overall and per class.",
        ),
        "calibrate": (
            "calibrate",
            "Fit temperature and threshold of a classifier on validation data, and save them with the model.",
        ),
        "audit": (
            "audit",
            "Audit a classifier or regressor on labeled data: slices, leaks, wrong labels, "
            "robustness, shortcuts.",
        ),
        "diff": (
            "audit",
            "Compare two models on the same examples: predictions that change, slices that get "
            "worse, and why.",
        ),
        "prove": (
            "export",
            "Compare a checkpoint's outputs with those of transformers, and write a certificate.",
        ),
        "report": (
            "evaluate",
            "Write report.html again, from the files of a run, a study, a cross-validation or a "
            "label review.",
        ),
    },
    "Use a model": {
        "predict": (
            "predict",
            "Predict labels for texts or images: one line per input with label, probability, and the "
            "text or file.",
        ),
        "explain": (
            "explain",
            "Explain a prediction: the words or image regions it depends on, and a test of the explanation.",
        ),
        "embed": (
            "vectors",
            "Write embeddings of texts or images, one row for each, to a NumPy file (.npy).",
        ),
        "similar": (
            "vectors",
            "Semantic similarity of two texts, or of each row of a table: the cosine of their embeddings.",
        ),
        "search": (
            "vectors",
            "Semantic search: the texts of a table that are nearest in meaning to a query.",
        ),
        "translate": (
            "translate",
            "Translate texts: one output line per text, in order; for a .txt file, line n translates line n.",
        ),
        "fill": ("translate", "Fill in masked words: one line for each mask, with words and probabilities."),
        "vectors": (
            "vectors",
            "Word vectors: nearest words, cosines, analogies, and conversion of word2vec files.",
        ),
    },
    "Export and serve": {
        "export": (
            "export",
            "Export the model to transformers or ONNX; stops if the predictions would differ.",
        ),
        "serve": (
            "serve",
            "Serve models over HTTP: a page at /, predictions at /v1/predict, the API at /openapi.json.",
        ),
    },
}
COMMANDS_WITHOUT_TABLES = (
    "demo data doctor recipes new reproduce prove report fill vectors export serve".split()
)

# click's UsageError, found through typer: recent versions of typer contain click under a private name
UsageError: Any = typer.BadParameter.__base__
# click's message about a value of the wrong type, such as
# "Invalid value for '--epochs': Input should be a valid integer, unable to parse ..."
WRONG_TYPE = re.compile(r"Invalid value for '?(.+?)'?: Input should be a valid (\w+).*", re.DOTALL)
COMPLETION_VARIABLE = "_GLASSFORMER_COMPLETE"  # environment variable, set by a shell that completes a command
TYPE_NAMES = {"integer": "a whole number", "number": "a number"}


def _show_version(requested: bool) -> None:
    if requested:
        print_text(f"glassformer {__version__}")
        raise typer.Exit


def _global_options(
    version: bool = flag("--version", "Print the version and exit.", callback=_show_version, is_eager=True),
    encoding: str | None = option(
        "NAME",
        f"Text encoding of input tables (default utf-8), e.g. cp1252. {EVERY_COMMAND}",
        ENCODING_OPTION,
    ),
    quoting: str | None = option(
        "csv|none",
        "For CSV and TSV. csv: quoted cells may contain line breaks; none: quotes are plain characters, one "
        f"row per line. {EVERY_COMMAND}",
    ),
    header: str | None = option(
        "yes|no", f"For CSV and TSV: whether the first row names the columns. {EVERY_COMMAND}"
    ),
    debug: bool = flag("--debug", f"Show the traceback of an error. {EVERY_COMMAND}"),
) -> None:
    """The options of all commands. ``_extract_global_options`` removes most of them before typer parses."""


def build_app(imported: Collection[str] | None = None) -> typer.Typer:
    """The program. Commands that are not in ``imported`` are listed but cannot run; None: import all."""
    app = typer.Typer(
        name="glassformer",
        help="Transformers you can see through: train, evaluate, explain and serve them.",
        epilog="Your own table: glassformer data doctor FILE.csv, then glassformer train --text FILE.csv, "
        "then glassformer predict RUN NEW.csv. A folder of images: --images. Every command has --help.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_global_options)
    for panel, commands in COMMANDS.items():
        for name, (module, summary) in commands.items():
            if imported is not None and name not in imported:
                app.command(name, help=summary, rich_help_panel=panel)(_not_imported)
                continue
            command_module = import_module(f"glassformer.cli.{module}")
            if name == "data":
                app.add_typer(command_module.app, name=name, rich_help_panel=panel)
                continue
            epilog = None if name in COMMANDS_WITHOUT_TABLES else TABLE_HELP
            function = getattr(command_module, f"{name.replace('-', '_')}_command")
            app.command(name, rich_help_panel=panel, epilog=epilog)(function)
    return app


def _not_imported() -> None:
    raise AssertionError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``argv`` defaults to the arguments of this process."""
    tune_process()  # before torch is imported
    disable_telemetry(os.environ)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that a terminal cannot show must not raise an error
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # checked above
    stdout_for_json(False)  # until the option --json is parsed
    environment = {variable: os.environ.get(variable) for _, variable in READ_OPTIONS.values()}
    arguments, debug = _extract_global_options(list(sys.argv[1:] if argv is None else argv))
    handler = install_for_process() if argv is None else SignalHandler()
    handler.install()
    try:
        code = _run_command(arguments, debug, argv is None, handler)
        handler.code = code
    except KeyboardInterrupt:
        handler.code = code = INTERRUPTED
        _report_interruption(arguments)
    finally:
        if argv is not None:
            handler.uninstall()
            for variable, value in environment.items():
                os.environ.pop(variable, None)
                if value is not None:
                    os.environ[variable] = value
    return code


def _run_command(arguments: list[str], debug: bool, owns_process: bool, handler: SignalHandler) -> int:
    """Run a command, report its error if there is one, and return its exit code.

    ``owns_process`` is True if the process runs only this command, and False in a notebook.
    """
    if owns_process and INFERENCE_COMMANDS.intersection(arguments[:1]):
        skip_sklearn()
    try:
        options = _command_options(arguments)
        with print_warnings(lambda message: use_option_names(message, options)):
            code = _commands(arguments).main(arguments, prog_name="glassformer", standalone_mode=False)
    except UsageError as error:
        usage_error = GlassformerError(_usage_message(error, arguments))
        return _report_error(usage_error, arguments, debug, "usage", exit_code=2)
    except GlassformerError as error:
        return _report_error(error, arguments, debug, error.code)
    except typer.Abort:
        code = INTERRUPTED
    except SystemExit:  # raised by another library's signal handler
        if not handler.is_interrupted:
            raise
        code = INTERRUPTED
    except Exception as error:
        if handler.is_interrupted:  # a library turned the interruption into this error
            raise KeyboardInterrupt from error
        if _is_out_of_memory(error):
            memory_error = _out_of_memory_error(error)
            return _report_error(memory_error, arguments, debug, memory_error.code)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "" if debug else " (run with --debug for the traceback)"
        return _report_error(GlassformerError(f"{what}{hint}"), arguments, debug, "unexpected")
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _usage_message(error: Any, arguments: list[str]) -> str:
    """The error message for a wrong command line, with a fix."""
    command = error.ctx.command_path if error.ctx else "glassformer"
    name = getattr(error, "option_name", None)
    if name is not None:
        options, keys = _command_options(arguments), {}
        if "--set" in options and arguments[:1] != ["explain"]:
            keys = all_keys()
        value = _given_value(arguments, name)
        value = "" if value.startswith("-") else value
        if suggestion := suggest_option(f"{name}={value}", options, keys):
            return f"No such option: {name}. {suggestion}"
        # Compare the names without dashes, because the dashes would make all options similar.
        names = {option.strip("-"): option for option in options}
        close = get_close_matches(name.strip("-"), names, n=3, cutoff=0.55)
        error.possibilities = [names[word] for word in close]  # click suggests them in its message
    message = error.format_message().replace("Value error, ", "")
    if match := WRONG_TYPE.fullmatch(message):
        value = _given_value(arguments, match[1])
        hint = f". Write {value.replace(',', '.')}" if re.fullmatch(r"\d+,\d+", value) else ""
        message = f"{match[1]} takes {TYPE_NAMES.get(match[2], match[2])}, got {value!r}{hint}"
    punctuation = "" if message.endswith("?") else "."
    return f"{message.rstrip('.')}{punctuation} See '{command} --help'"


def _given_value(arguments: Sequence[str], option: str) -> str:
    """The value of an option on the command line: after the sign ``=``, or else the next word."""
    position = next(
        (i for i, word in enumerate(arguments) if word.partition("=")[0] == option), len(arguments)
    )
    word, next_word = [*arguments[position : position + 2], "", ""][:2]
    return word.partition("=")[2] or next_word


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or torch (on a CPU or a GPU) ran out of memory."""
    is_memory_error = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_memory_error or "can't allocate memory" in str(error)


def _out_of_memory_error(error: Exception) -> NotEnoughMemoryError:
    """The out-of-memory error, with the size of the failed allocation if ``error`` has it."""
    match = re.search(r"allocate (\d[\d.]*) (bytes|[KMGT]iB)", str(error))
    message = "not enough memory"
    if match:  # for example "2.50 GiB": 2.50 * 1024**3 bytes, printed as "2.7 GB"
        size = float(match[1]) * 1024 ** "bKMGT".index(match[2][0])
        unit = min(max(int(math.log10(max(size, 1))) // 3, 1), 4)  # the power of 1000
        message += f": a single allocation needs {size / 1000**unit:,.1f} {' KMGT'[unit]}B"
    fix = "Use a smaller model (d_model, d_ff, num_layers), shorter inputs or smaller batches"
    return NotEnoughMemoryError(message, fix=fix)


def _commands(arguments: Sequence[str]) -> Any:
    """The parser for these arguments; it imports only the command that they name, and lists the others."""
    name = next((word for word in arguments if not word.startswith("-")), "")
    return _parser(None if COMPLETION_VARIABLE in os.environ else name)


@cache
def _parser(name: str | None) -> Any:
    """The parser with one command, or with all for None; cached, as a notebook may run several commands."""
    return typer.main.get_command(build_app(None if name is None else {name}))


def _command_options(arguments: Sequence[str]) -> list[str]:
    """The options of the command in ``arguments``; words are followed down to the last sub-command."""
    command = _commands(arguments)
    for word in arguments:
        subcommands = getattr(command, "commands", {})
        if word not in subcommands:
            break
        command = subcommands[word]
    return [option for parameter in command.params for option in parameter.opts]


def _report_interruption(arguments: list[str]) -> None:
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command == "serve":  # an interruption is the normal end of a server
        with suppress(OSError):
            print_text("stopped", err=True)
        return
    from_parquet_to_parquet = sum(word.lower().endswith(".parquet") for word in arguments) > 1
    advice = "run the same command again"
    if command in RESUMABLE_COMMANDS or (command == "predict" and from_parquet_to_parquet):
        advice = f"finished parts are kept, {advice} to continue"
    error = GlassformerError(f"interrupted; {advice}")
    _report_error(error, arguments, False, "interrupted", exit_code=INTERRUPTED)


def _extract_global_options(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without ``--debug`` and the reading options, and whether ``--debug`` was given.

    The reading options, such as ``--encoding NAME``, may be anywhere in the arguments. Their values are
    stored in the environment variables of ``READ_OPTIONS``.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    variables = dict(READ_OPTIONS.values())
    remaining, words = [], (word for word in arguments[:end] if word != "--debug")
    for word in words:
        option, equals_sign, value = word.partition("=")
        if option in variables and not equals_sign:
            value = next(words, "")
        if option in variables and value:
            os.environ[variables[option]] = value
        else:
            remaining.append(word)  # typer reports an option without a value
    return remaining + arguments[end:], "--debug" in arguments[:end]


def _report_error(
    error: GlassformerError, arguments: list[str], debug: bool, code: str, exit_code: int | None = None
) -> int:
    """Print an error to stderr, and with ``--json`` also to stdout. Returns the exit code."""
    if debug:
        print_text(traceback.format_exc().rstrip(), err=True)
    exit_code = error.exit_code if exit_code is None else exit_code
    rank = os.environ.get("RANK", "0") if os.environ.get("WORLD_SIZE", "1") != "1" else "0"
    process = "" if rank == "0" else f"process {rank}: "
    suffix = "" if exit_code == INTERRUPTED else f" [{code}]"
    with suppress(OSError):  # the terminal may be closed
        line = one_line(use_option_names(str(error), _command_options(arguments), arguments))
        print_text(f"error: {process}{line}{suffix}", err=True)
        if "--json" in arguments and rank == "0":
            print_json({"error": error.to_dict() | {"code": code}})
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
