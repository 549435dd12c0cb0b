"""Questions on the command line (two arguments, a line with a tab, a file), their answers."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.cli.given import STDIN
from glassformer.cli.output import emit, excerpt, note, one_line, say, say_json
from glassformer.cli.rows import WAY_OUT, Row, counted, others_of, read_columns, usable, without_answer
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, DataError
from glassformer.finite import json_text
from glassformer.outputs import check_new_file, write_text_whole

ENDS = (".jsonl", ".csv")
HEADER = ("row", "question", "answer", "start", "end", "probability", "context", "error")
NONE = "(no answer)"
SIDES = ("question", "text")


def gather_questions(
    given: Sequence[str],
    question_column: str | None = None,
    context_column: str | None = None,
    skip: bool = False,
) -> list[Row]:
    """The questions of the arguments, in their order, as pairs of texts.

    Args:
        given: question and context, two for each, and names of files: SQuAD's JSON, tables with columns
            question and context; ``.txt`` files and ``-`` for standard input have both in a line, a tab
            between them.
        question_column, context_column: of tables; None finds them by their usual names.
        skip: a row that cannot be used is marked; else it ends the reading.

    Raises:
        DataError: a question without its context, a file that cannot be read, a row that cannot be used.
    """
    from glassformer.cli.inputs import gather_pairs, is_picture, names_a_file
    from glassformer.data.tables import PLAIN

    found: list[Row] = []
    texts: list[str] = []
    for number, argument in enumerate(given, 1):
        table = names_a_file(argument) and not is_picture(argument) and not argument.lower().endswith(PLAIN)
        if argument != STDIN and not table:
            texts.append(argument)
            continue
        if texts:
            found += gather_pairs(texts, skip=skip, sides=SIDES, start=number - len(texts))
            texts = []
        if argument == STDIN:
            found += gather_pairs([argument], skip=skip)
        else:
            found += counted(partial(_of_file, Path(argument), question_column, context_column), skip)
    start = len(given) - len(texts) + 1
    return [*found, *(gather_pairs(texts, skip=skip, sides=SIDES, start=start) if texts else [])]


def _of_file(path: Path, question: str | None, context: str | None, skip: bool) -> list[Row]:
    from glassformer.data.answered import columns_of, is_nested, load_answered
    from glassformer.data.text_pairs import TextPair, join_sides

    if path.is_file() and is_nested(path):
        data = load_answered(path, on_bad_row="skip" if skip else "refuse", need_answers=False)
        (split,) = data.splits.values()
        rows = split.rows or range(1, len(split) + 1)
        good = [Row(TextPair(*q), row, str(path)) for q, row in zip(split.questions, rows, strict=True)]
        bad = [Row(TextPair("", ""), row.row, str(path), error=row.reason) for row in data.rejected]
        return sorted([*good, *bad], key=lambda row: row.row or 0)
    found = []
    for values, row in read_columns(path, lambda table: columns_of(table, question, context), skip):
        if row.error is None:
            try:
                (row.text,) = join_sides([values[0]], [values[1]])
            except DataError as error:
                if not skip:
                    where, fix = f"{path}, row {row.row}", f"{error.fix or 'Correct it'}, {WAY_OUT}"
                    raise DataError(error.what, where=where, fix=fix) from None
                row.text, row.error = TextPair("", ""), error.what
        found.append(row)
    return found


def answer_command(
    tell: Any,
    model: Any,
    given: Sequence[str],
    out: Path | None,
    columns: tuple[str | None, str | None],
    on_bad_row: str | None,
    as_json: bool,
) -> None:
    """Answers to questions: a line each (answer, probability, question), or in a .jsonl or .csv file."""
    if out is not None:
        check_new_file(out)
        if out.suffix.lower() not in ENDS:
            what = "answers are written as JSON Lines or CSV"
            raise ConfigError(what, where=str(out), fix=f"End --out with {' or '.join(ENDS)}")
    rows = gather_questions(given, *columns, skip=on_bad_row == "skip")
    told = iter(tell(model, usable(rows)))
    found = [{"row": row.row, "error": row.error} | (next(told) if row.error is None else {}) for row in rows]
    others = others_of(rows, HEADER)
    found = [one | {name: values[i] for name, values in others.items()} for i, one in enumerate(found)]
    if out is not None:
        write_text_whole(out, _file(out.suffix.lower(), found, (*HEADER, *others)))
        say(f"{len(found):,} questions: {out}")
    elif not as_json:
        for one in found:
            if one["error"] is None:
                question = one["question"]
                question = excerpt(question) if sys.stdout.isatty() else one_line(question)
                emit(f"{one_line(one['answer']) or NONE}\t{one['probability']:.4f}\t{question}")
            else:
                emit("\t\t")
    if as_json:
        say_json(found if out is None else {"questions": len(found), "out": out})
    if missing := without_answer(rows):
        note(missing)


def _file(ending: str, found: Sequence[dict[str, Any]], header: Sequence[str]) -> str:
    if ending == ".jsonl":
        return "".join(json_text(one) + "\n" for one in found)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_safe(name) for name in header])
    for one in found:
        writer.writerow([csv_safe(one.get(key, "")) for key in header])
    return out.getvalue()
