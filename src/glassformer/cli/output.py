"""What the verbs print: lines, tables and scores. Results go to stdout, notes and errors to stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassformer import errors
from glassformer.finite import json_text
from glassformer.outputs import printable

if TYPE_CHECKING:
    from glassformer.report.metrics import Table as Metrics

EXCERPT = 100  # characters of a text in a table
STATES = {"missing": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}  # in a first column


_BESIDE = [False]  # whether lines and tables go to stderr, because stdout is for JSON alone


def stdout_for_json(wanted: bool) -> bool:
    """Until the next command lines and tables go to stderr, and stdout gets ``say_json`` alone."""
    _BESIDE[0] = wanted
    return wanted


def stream() -> TextIO:
    """Where lines and tables go."""
    return sys.stderr if _BESIDE[0] else sys.stdout


AsJson = Annotated[
    bool,
    typer.Option("--json", callback=stdout_for_json, is_eager=True, help="Print JSON instead of text."),
]


def one_line(text: Any) -> str:
    """Text from data or files as one line that cannot steer the terminal."""
    return printable(" ".join(str(text).split()))


def excerpt(text: str, size: int = EXCERPT) -> str:
    """The beginning of a text as one line."""
    line = one_line(text[: 4 * size])
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"


def emit(text: str, err: bool = False) -> None:
    """Print lines; of control characters only tabs and line breaks reach the terminal.

    Every verb prints through here.
    """
    typer.echo(printable(text, keep="\t\n"), err=err)


def say(line: str = "") -> None:
    """One line on stdout, at once, so that a log shows where a long run is; on stderr beside JSON."""
    emit(one_line(line), err=_BESIDE[0])


def note(line: str) -> None:
    """One line on stderr: worth knowing, not part of the result."""
    emit(f"note: {one_line(line)}", err=True)


def say_json(value: Any) -> None:
    """A value for other programs; what a terminal would obey is written as JSON's escapes, and reads back."""
    text = json_text(value, indent=2, default=_plain)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json_text(c, ascii=True)[1:-1] for c in text)
    emit(text)


def _plain(value: Any) -> Any:
    """What JSON has no word for: paths as text, numbers and arrays of numpy as numbers and lists."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar on stderr, if that is a terminal and several are to do; call what it gives with (done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    hidden = total == 1 or not sys.stderr.isatty()
    with Progress(*columns, transient=True, disable=hidden, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total=total: bar.update(task, advance=done, total=total)


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = ()
) -> None:
    """A table on stdout; the columns named in ``right`` hold numbers. Nothing in a cell is markup."""
    table = Table(title=Text(one_line(title)), title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        justify = "right" if column in right else "left"
        table.add_column(Text(one_line(column)), justify=justify, no_wrap=column in right, overflow="fold")
    for row in rows:
        cells = [one_line(cell) for cell in row]
        table.add_row(
            *(Text(cell, style=STATES.get(cell, "") if i == 0 else "") for i, cell in enumerate(cells))
        )
    Console(file=stream()).print(table)


def show(title: str, table: Metrics) -> None:
    """A table of metrics on stdout."""
    show_table(title, table.heads, table.rows, [head for head in table.heads[1:] if head not in table.words])


def show_figures(title: str, scores: dict[str, Any], measure: str = "accuracy") -> None:
    """Every metric of one classifier, ``measure`` first, and precision, recall and F1 of every class."""
    from glassformer.report.metrics import leading, value_table
    from glassformer.report.wording import count, digits_for, percent
    from glassformer.targets.multiclass import OF_LABELS

    digits = digits_for(scores["n"])
    show(title, value_table(scores, [*dict(leading(measure, scores)), *OF_LABELS], digits))
    columns = ("class", "precision", "recall", "F1", "examples")
    rows = [
        [c["label"], *(percent(c[key], digits) for key in ("precision", "recall", "f1")), count(c["support"])]
        for c in scores["per_class"]
    ]
    show_table("per class", columns, rows, right=columns[1:])


def abstention_line(found: dict[str, Any]) -> str:
    """What abstaining below a probability leaves, in a sentence."""
    from glassformer.report.wording import digits_for, percent, share_interval

    said = f"abstaining below {found['below']:g} answers {found['answered']:,} of {found['n']:,}"
    if not found["answered"]:
        return said
    digits = digits_for(found["answered"])
    share, n = found["accuracy"], found["answered"]
    known = f"95 % interval: {share_interval(share, found['accuracy_interval'], n, digits)}"
    return f"{said}, and {percent(share, digits)} of these right ({known})"


def show_translation_scores(title: str, splits: dict[str, dict[str, Any]]) -> None:
    """A line for each split and search, and how the metrics were computed."""
    from glassformer.report.metrics import metric_table

    found = [(split, name, s) for split, searches in splits.items() for name, s in searches.items()]
    columns = ("bleu", "chrf", "bleu_tokenised", "sentences_per_second")
    table = metric_table([(split, s) for split, _, s in found], columns, 2, first="")
    rows = [
        [line[0], f"{name} ({s['width']})", *line[1:]]
        for (_, name, s), line in zip(found, table.rows, strict=True)
    ]
    show_table(title, ("", "search", *table.heads[1:]), rows, right=table.heads[1:])
    for name, signature in found[0][2]["signatures"].items():
        say(f"{name.replace('_', ' ')}: {signature}")


@contextmanager
def said_plainly() -> Iterator[None]:
    """Our own warnings are one line each, said once, without a place in the source."""
    told: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if category.__module__ != errors.__name__:
            before(message, category, *place)
        elif str(message) not in told:
            told.add(str(message))
            note(str(message))

    with warnings.catch_warnings():
        before, warnings.showwarning = warnings.showwarning, show
        yield
