"""``glassformer translate``: translations of texts from the command line or from files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.output import one_line, say
from glassformer.cli.predict import Texts, check_output, gather
from glassformer.errors import ConfigError


def translate(
    folder: str | Path, given: list[str], *, beam: int = 5, text_column: str | None = None
) -> tuple[Texts, list[str]]:
    """Translate texts and the texts in files.

    Args:
        folder: of a run or of a saved translator.
        given: texts, and names of files; see ``predict.gather``. Of a single ``.txt`` file empty lines are kept, so
            that line n of what comes out belongs to line n of the file; among several arguments they are left out.

    Raises:
        InputError: no such model, one that does not translate, a file that cannot be read, a text that is too long.
    """
    if not Path(folder).is_dir():
        raise ConfigError(
            "no such run folder", where=str(folder), fix="Name the --out of 'glassformer train'"
        )
    from glassformer.data.pairs import SOURCE_COLUMNS
    from glassformer.data.tables import PLAIN, count_lines
    from glassformer.study.run_folder import trained_column

    found = gather(given, text_column, (trained_column(folder), *SOURCE_COLUMNS))
    translator = load_kind(folder, "Translator", "translate")
    origin = given[0] if found.rows is not None else "TEXT"
    said = translator.translate(found.texts, beam, rows=found.rows, origin=origin)
    if found.rows is None or Path(origin).suffix.lower() != PLAIN:
        return found, said
    count = count_lines(Path(origin))
    texts = Texts(spread(found.texts, found.rows, count), list(range(1, count + 1)))
    return texts, spread(said, found.rows, count)


def spread(texts: Sequence[str], rows: Sequence[int], count: int) -> list[str]:
    """``count`` lines with the texts at their rows, counted from 1; the others are empty."""
    lines = [""] * count
    for row, text in zip(rows, texts, strict=True):
        lines[row - 1] = text
    return lines


def load_kind(folder: str | Path, kind: str, verb: str) -> Any:
    """The model in a folder, of the kind that the verb needs.

    Raises:
        ConfigError: it is of another kind.
    """
    from glassformer.saving import load

    found = load(folder)
    if type(found).__name__ != kind:
        raise ConfigError(
            f"holds a {type(found).__name__}, which cannot {verb}",
            where=str(folder),
            fix=f"Name a run of a {kind}",
        )
    return found


def translate_command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or the folder of a saved translator.")
    ],
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT|FILE...",
            help="Texts, or files: CSV, TSV, JSONL, Parquet, or .txt with one text a line; "
            "empty lines of a single .txt stay empty lines.",
        ),
    ],
    beam: Annotated[
        int, typer.Option(metavar="N", help="Hypotheses kept at each place; 1 is greedy search.")
    ] = 5,
    out: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write a table there instead.")] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of texts, where it is not found by itself.")
    ] = None,
) -> None:
    """Translate texts: one line each, in their order; line n belongs to line n of a single .txt file."""
    if out is not None:
        check_output(out)
    found, translations = translate(run, given, beam=beam, text_column=text_column)
    if out is None:
        for line in translations:
            typer.echo(one_line(line))
        return
    from glassformer.evaluate.predictions import csv_safe

    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "translation"])
        writer.writerows([csv_safe(t), csv_safe(s)] for t, s in zip(found.texts, translations, strict=True))
    say(f"{len(translations):,} texts: {out}")
