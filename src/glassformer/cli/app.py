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
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

import typer

from glassformer import __version__
from glassformer.cli import (
    audit,
    calibrate,
    compare,
    data,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    folds,
    predict,
    recipes,
    reproduce,
    serve,
    train,
    translate,
    vectors,
)
from glassformer.cli.options import all_keys, flag, option, suggest_option, use_option_names
from glassformer.cli.output import one_line, print_json, print_text, print_warnings, stdout_for_json
from glassformer.cli.stopping import INTERRUPTED, SignalHandler, install_for_process
from glassformer.errors import GlassformerError, NotEnoughMemoryError
from glassformer.process import OPTION, READING, disable_telemetry, tune_process
from glassformer.sklearn_base import skip_sklearn

# Commands that only run inference
INFERENCE = {"serve", "predict", "explain", "translate", "fill", "embed", "export", "similar", "search"}
# How to continue after an interruption, for commands that do not print their own message
RERUN = "run the same command again"
RESUMABLE = {"cross-validate", "review-labels", "compare", "reproduce"}  # commands that keep finished parts

TABLES = (
    f"For tables: {OPTION} cp1252 if not UTF-8, --header no if the first row is data, "
    "--quoting none if quotes are plain characters. Every command accepts them."
)
EVERYWHERE = "Accepted by every command."
START, TRAIN, EVALUATE = "Start here", "Train and compare", "Evaluate a model"
USE, EXPORT = "Use a model", "Export and serve"  # panels of the help
app = typer.Typer(
    name="glassformer",
    help="Transformers you can see through: train, evaluate, explain and serve them.",
    epilog="Your own table: glassformer data doctor FILE.csv, then glassformer train --text FILE.csv, then "
    "glassformer predict RUN NEW.csv. A folder of images: --images. Every command has --help.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("demo", rich_help_panel=START)(demo.demo_command)
app.add_typer(data.app, name="data", rich_help_panel=START)
app.command("doctor", rich_help_panel=START)(doctor.doctor_command)
app.command("recipes", rich_help_panel=TRAIN)(recipes.recipes_command)
app.command("train", rich_help_panel=TRAIN, epilog=TABLES)(train.train_command)
app.command("new", rich_help_panel=TRAIN)(recipes.new_command)
app.command("cross-validate", rich_help_panel=TRAIN, epilog=TABLES)(folds.cross_validate_command)
app.command("compare", rich_help_panel=TRAIN, epilog=TABLES)(compare.compare_command)
app.command("review-labels", rich_help_panel=TRAIN, epilog=TABLES)(folds.review_labels_command)
app.command("reproduce", rich_help_panel=TRAIN)(reproduce.reproduce_command)
app.command("evaluate", rich_help_panel=EVALUATE, epilog=TABLES)(evaluate.evaluate_command)
app.command("calibrate", rich_help_panel=EVALUATE, epilog=TABLES)(calibrate.calibrate_command)
app.command("audit", rich_help_panel=EVALUATE, epilog=TABLES)(audit.audit_command)
app.command("diff", rich_help_panel=EVALUATE, epilog=TABLES)(audit.diff_command)
app.command("prove", rich_help_panel=EVALUATE)(export.prove_command)
app.command("report", rich_help_panel=EVALUATE)(evaluate.report_command)
app.command("predict", rich_help_panel=USE, epilog=TABLES)(predict.predict_command)
app.command("explain", rich_help_panel=USE, epilog=TABLES)(explain.explain_command)
app.command("embed", rich_help_panel=USE, epilog=TABLES)(vectors.embed_command)
app.command("similar", rich_help_panel=USE, epilog=TABLES)(vectors.similar_command)
app.command("search", rich_help_panel=USE, epilog=TABLES)(vectors.search_command)
app.command("translate", rich_help_panel=USE, epilog=TABLES)(translate.translate_command)
app.command("fill", rich_help_panel=USE)(translate.fill_command)
app.command("vectors", rich_help_panel=USE)(vectors.vectors_command)
app.command("export", rich_help_panel=EXPORT)(export.export_command)
app.command("serve", rich_help_panel=EXPORT)(serve.serve_command)

# click's UsageError; recent versions of typer contain click under a private name
UsageError: Any = typer.BadParameter.__base__
# click's message about a value of the wrong type
WRONG_TYPE = re.compile(r"Invalid value for '?(.+?)'?: Input should be a valid (\w+).*", re.DOTALL)
TYPE_NAMES = {"integer": "a whole number", "number": "a number"}


def _show_version(requested: bool) -> None:
    if requested:
        print_text(f"glassformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = flag("--version", "Print the version and exit.", callback=_show_version, is_eager=True),
    encoding: str | None = option(
        "NAME", f"Text encoding of input tables (default utf-8), e.g. cp1252. {EVERYWHERE}", OPTION
    ),
    quoting: str | None = option(
        "csv|none",
        "For CSV and TSV. csv: quoted cells may contain line breaks; none: quotes are plain characters, one "
        f"row per line. {EVERYWHERE}",
    ),
    header: str | None = option(
        "yes|no", f"For CSV and TSV: whether the first row names the columns. {EVERYWHERE}"
    ),
    debug: bool = flag("--debug", f"Show the traceback of an error. {EVERYWHERE}"),
) -> None:
    """Options before the command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    tune_process()  # before torch is imported
    disable_telemetry(os.environ)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that a terminal cannot show must not raise an error
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # checked above
    stdout_for_json(False)  # parsing the option --json sets it to True
    environment = {variable: os.environ.get(variable) for _, variable in READING.values()}
    arguments, debug = _extract_global_options(list(sys.argv[1:] if argv is None else argv))
    handler = install_for_process() if argv is None else SignalHandler()
    handler.install()
    try:
        code = _command(arguments, debug, argv is None, handler)
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


def _command(arguments: list[str], debug: bool, owns_process: bool, handler: SignalHandler) -> int:
    """Run a command, report its error if there is one, and return its exit code."""
    if owns_process and INFERENCE.intersection(arguments[:1]):
        skip_sklearn()
    try:
        options = _command_options(arguments)
        with print_warnings(lambda message: use_option_names(message, options)):
            code = _commands().main(arguments, prog_name="glassformer", standalone_mode=False)
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
        position = next((i for i, word in enumerate(arguments) if word.partition("=")[0] == name), None)
        value = arguments[position].partition("=")[2] if position is not None else ""
        next_word = "" if position is None else "".join(arguments[position + 1 : position + 2])
        if not value and not next_word.startswith("-"):
            value = next_word
        if suggestion := suggest_option(f"{name}={value}", options, keys):
            return f"No such option: {name}. {suggestion}"
        # Without the dashes, which would make all options similar.
        names = {option.strip("-"): option for option in options}
        close = get_close_matches(name.strip("-"), names, n=3, cutoff=0.55)
        error.possibilities = [names[word] for word in close]
    message = error.format_message().replace("Value error, ", "")
    if match := WRONG_TYPE.fullmatch(message):
        message = f"{match[1]} takes {TYPE_NAMES.get(match[2], match[2])}."
    punctuation = "" if message.endswith("?") else "."
    return f"{message.rstrip('.')}{punctuation} See '{command} --help'"


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or torch (on a CPU or a GPU) ran out of memory."""
    is_memory_error = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_memory_error or "can't allocate memory" in str(error)


def _out_of_memory_error(error: Exception) -> NotEnoughMemoryError:
    """The out-of-memory error, with the size of the failed allocation if ``error`` has it."""
    match = re.search(r"allocate (\d[\d.]*) (bytes|[KMGT]iB)", str(error))
    message = "not enough memory"
    if match:
        size = float(match[1]) * 1024 ** "bKMGT".index(match[2][0])
        unit = min(max(int(math.log10(max(size, 1))) // 3, 1), 4)
        message += f": a single allocation needs {size / 1000**unit:,.1f} {' KMGT'[unit]}B"
    fix = "Use a smaller model (d_model, d_ff, num_layers), shorter inputs or smaller batches"
    return NotEnoughMemoryError(message, fix=fix)


@cache
def _commands() -> Any:
    """The parser of all commands; cached, because a notebook may run several commands."""
    return typer.main.get_command(app)


def _command_options(arguments: Sequence[str]) -> list[str]:
    """The options of the command that is called."""
    command = _commands()
    for word in arguments:
        subcommands = getattr(command, "commands", {})
        if word not in subcommands:
            break
        command = subcommands[word]
    return [option for parameter in command.params for option in parameter.opts]


def _report_interruption(arguments: list[str]) -> None:
    verb = next((a for a in arguments if not a.startswith("-")), "")
    if verb == "serve":  # an interruption is the normal end of a server
        with suppress(OSError):
            print_text("stopped", err=True)
        return
    num_tables = sum(word.lower().endswith(".parquet") for word in arguments)
    resumable = verb in RESUMABLE or (verb == "predict" and num_tables > 1)  # from Parquet to Parquet
    advice = "finished parts are kept, run the same command again to continue" if resumable else RERUN
    error = GlassformerError(f"interrupted; {advice}")
    _report_error(error, arguments, False, "interrupted", exit_code=INTERRUPTED)


def _extract_global_options(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without the options that every command accepts, and whether ``--debug`` was given.

    The position of the options does not matter. The values of ``--encoding NAME`` and the other options of
    ``READING`` are stored in environment variables.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    variables = dict(READING.values())
    remaining, words = [], (word for word in arguments[:end] if word != "--debug")
    for word in words:
        option, sign, value = word.partition("=")
        if option in variables and (value := value if sign else next(words, "")):
            os.environ[variables[option]] = value
        else:
            remaining.append(word)  # typer reports an option without a value
    return remaining + arguments[end:], "--debug" in arguments[:end]


def _report_error(
    error: GlassformerError, arguments: list[str], debug: bool, code: str, exit_code: int | None = None
) -> int:
    """Print an error to stderr, with ``--json`` also to stdout, and return the exit code."""
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
