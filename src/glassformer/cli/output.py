"""What the verbs print: lines, tables and scores. Results go to stdout, notes and errors to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

EXCERPT = 100  # characters of a text in a table


def one_line(text: Any) -> str:
    """Text from data or files as one line that cannot steer the terminal."""
    line = " ".join(str(text).split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def excerpt(text: str, size: int = EXCERPT) -> str:
    """The beginning of a text as one line."""
    line = one_line(text[: 4 * size])
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"


def say(line: str = "") -> None:
    """One line on stdout, at once, so that a log shows where a long run is."""
    print(one_line(line), flush=True)


def note(line: str) -> None:
    """One line on stderr: worth knowing, not part of the result."""
    print(f"note: {one_line(line)}", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """A value for other programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A table on stdout; the columns named in ``right`` hold numbers. Nothing in a cell is markup."""
    table = Table(title=Text(one_line(title)), title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        justify = "right" if column in right else "left"
        table.add_column(Text(column), justify=justify, no_wrap=column in right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    Console(file=sys.stdout).print(table)


def scores_row(name: str, scores: dict[str, Any], seconds: float | None = None) -> list[str]:
    """One line of a table of scores: name, accuracy, its 95 % interval, macro-F1, ROC-AUC, log loss, time."""
    from glassformer.report.wording import bounds, decimal, digits_for, duration, percent

    digits = digits_for(scores["n"])
    return [
        name,
        percent(scores["accuracy"], digits),
        bounds(scores, "accuracy"),
        percent(scores["macro_f1"], digits),
        decimal(scores["roc_auc"], 4),
        decimal(scores["log_loss"], 4),
        duration(seconds),
    ]


SCORE_COLUMNS = ("", "accuracy", "95 % interval", "macro-F1", "ROC-AUC", "log loss", "time")


def show_scores(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Rows of ``scores_row`` as a table; columns that say nothing in any row are left out."""
    from glassformer.report.wording import NONE

    keep = [i for i in range(len(SCORE_COLUMNS)) if any(row[i] != NONE for row in rows)]
    columns = [SCORE_COLUMNS[i] for i in keep]
    show_table(title, columns, [[row[i] for i in keep] for row in rows], right=columns[1:])


def show_classes(scores: dict[str, Any]) -> None:
    """Precision, recall and F1 of every class."""
    from glassformer.report.wording import count, digits_for, percent

    digits = digits_for(scores["n"])
    columns = ("class", "precision", "recall", "F1", "texts")
    rows = [
        [c["label"], *(percent(c[key], digits) for key in ("precision", "recall", "f1")), count(c["support"])]
        for c in scores["per_class"]
    ]
    show_table("per class", columns, rows, right=columns[1:])
