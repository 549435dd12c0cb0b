"""``glassformer predict`` of models whose answer to a text is no label: what they find in it."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli.answered import answer_command
from glassformer.cli.output import emit, excerpt, note, one_line, say, say_json
from glassformer.cli.rows import Row, usable, without_answer
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, with_article
from glassformer.finite import json_text
from glassformer.outputs import check_new_file, write_text_whole

ENDS = (".jsonl", ".csv", ".conll")
HEADER = ("row", "text", "kind", "start", "end", "first", "last", "probability", "sentence", "error")


def teller(folder: Path) -> Any:
    """How the task of what is saved tells its answers; None: it gives labels, or nothing to a text."""
    from glassformer.tasks.load import task_in

    task = task_in(folder)
    return None if task is None else task.tell


def tell_command(
    run: Path,
    given: Sequence[str],
    out: Path | None,
    text_column: str | None,
    on_bad_row: str | None,
    pair_column: str | None = None,
    as_json: bool = False,
    precision: str | None = None,
) -> None:
    """Spans of texts and files: a line each, or in a .jsonl, .csv (a row a span) or .conll file.

    A row that cannot be used says why; a .conll file leaves it out.
    Of a model that answers questions: see ``answer_command``.
    """
    from glassformer.cli.inputs import gather_rows, refuse_unreadable
    from glassformer.data.tagged import conll, list_words
    from glassformer.tasks.load import load

    tell, skip = teller(run), on_bad_row == "skip"
    refuse_unreadable(given, skip)  # before the model, which takes longer
    model = load(run)
    if precision is not None:
        from glassformer.study.calibration import set_precision

        set_precision(run, model, precision, note)
    if model.NOUN == "questions":
        answer_command(tell, model, given, out, (text_column, pair_column), on_bad_row, as_json)
        return
    if out is not None:
        check_new_file(out)
        if out.suffix.lower() not in ENDS:
            what = "spans are written as JSON Lines, CSV or CoNLL"
            raise ConfigError(what, where=str(out), fix=f"End --out with {', '.join(ENDS)}")
    rows: list[Row] = []
    inputs: list[Any] = []
    for number, argument in enumerate(given, 1):
        sentences = list_words(argument, text_column, skip)
        if sentences is None:
            own = gather_rows([argument], text_column, (), skip, number)
            inputs += [row.text for row in own if row.error is None]
        else:
            own = _rows_of(argument, sentences)
            inputs += sentences.splits["train"].words
        rows += own
    usable(rows)
    told = iter(tell(model, inputs))
    several = len({row.file for row in rows}) > 1
    found = [
        {"row": row.row, "error": row.error, **({"file": row.file} if several else {})}
        | (next(told) if row.error is None else {})
        for row in rows
    ]
    good = [one for one in found if one["error"] is None]
    spans = sum(len(one["spans"]) for one in good)
    if out is not None:
        write_text_whole(out, _file(out.suffix.lower(), found, conll))
        say(f"{len(good):,} {model.NOUN}, {spans:,} spans: {out}")
    elif not as_json:
        for one in found:
            emit(_line(one))
    if as_json:
        say_json(found if out is None else {model.NOUN: len(good), "spans": spans, "out": out})
    if missing := without_answer(rows):
        note(missing)


def _rows_of(path: str, data: Any) -> list[Row]:
    """The sentences of a file in their order, and those that are left out."""
    split = data.splits["train"]
    places = split.rows or range(1, len(split) + 1)
    good = [Row(" ".join(words), row, path) for words, row in zip(split.words, places, strict=True)]
    bad = [Row("", row.row, path, error=row.reason) for row in data.rejected]
    return sorted([*good, *bad], key=lambda row: row.row or 0)


def _line(told: dict[str, Any]) -> str:
    if told["error"] is not None:
        return "\t"
    spans = (f"{one_line(s['text'])} ({s['kind']} {s['probability']:.4f})" for s in told["spans"])
    return f"{', '.join(spans)}\t{(excerpt if sys.stdout.isatty() else one_line)(told['text'])}"


def _file(ending: str, found: Sequence[dict[str, Any]], conll: Any) -> str:
    if ending == ".conll":
        good = [told for told in found if told["error"] is None]
        return conll([told["words"] for told in good], [told["tags"] for told in good])
    if ending == ".jsonl":
        return "".join(json_text(told) + "\n" for told in found)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*HEADER, *(["file"] if found and "file" in found[0] else [])])
    for number, told in enumerate(found, 1):
        row, cells = told["row"] or number, HEADER[1:-2]
        file = [told["file"]] if "file" in told else []
        if told["error"] is not None:
            writer.writerow(map(csv_safe, [row, *("" for _ in cells), "", told["error"], *file]))
        for span in told.get("spans", ()):
            writer.writerow(map(csv_safe, [row, *(span[key] for key in cells), told["text"], "", *file]))
    return out.getvalue()


def asked_by(task: Any) -> str:
    """How a model is asked whose answers are no labels."""
    return (
        "Open it in Python with glassformer.load"
        if task.verb == "predict"
        else f"Use glassformer {task.verb}"
    )


def refuse_other(folder: Path) -> None:
    """Raises ConfigError where what is saved gives no labels; it names the command that does."""
    from glassformer.tasks.load import task_in

    task = task_in(folder)
    if task is not None and task.answer is None:
        what = f"holds {with_article(task.estimator.__name__)}, which gives no labels"
        raise ConfigError(what, where=str(folder), fix=asked_by(task))
