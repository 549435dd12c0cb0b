"""``glassformer translate`` and ``fill``.

``translate`` translates texts. ``fill`` predicts masked words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import options as cli
from glassformer.cli.options import argument, option
from glassformer.cli.output import AS_JSON, one_line, print_json, print_message, print_note, print_text
from glassformer.cli.predictions import check_output, write_table
from glassformer.data.pairs import SOURCE_COLUMNS
from glassformer.data.tables import TXT
from glassformer.data.vocabulary import MASK
from glassformer.errors import ConfigError, ConflictError, NotForThisModelError, counted, with_article
from glassformer.inputs.rows import (
    InputRequest,
    Row,
    copied_columns,
    detect_layout,
    gather_rows,
    usable_inputs,
)
from glassformer.outputs import check_new_file
from glassformer.tasks.catalog import TASKS

if TYPE_CHECKING:
    from glassformer.explain.alignment import Alignment


MAX_TEXTS = 20  # maximum number of texts for --align


def translate(
    folder: str | Path, arguments: list[str], *, beam: int = 5, text_column: str | None = None
) -> list[tuple[Row, str]]:
    """Translate texts and the texts in files; empty lines of a single ``.txt`` file stay empty.

    Returns:
        Each row of the input with its translation.
    """
    translator, rows = _load_with_rows(folder, arguments, text_column)
    readable = [row for row in rows if row.error is None]
    location: dict[str, Any] = {"origin": "TEXT"}  # for error messages
    if len(arguments) == 1 and readable[0].row is not None:
        location = {"origin": readable[0].file, "rows": [row.row for row in readable]}
    translations = iter(translator.translate([row.text for row in readable], beam, **location))
    if not arguments[0].lower().endswith(TXT) or len(arguments) > 1:
        rows = readable
    return [(row, "" if row.error is not None else next(translations)) for row in rows]


def align(
    folder: str | Path, arguments: list[str], path: Path, *, beam: int = 5, text_column: str | None = None
) -> list[Alignment]:
    """Translate a few texts, and write the alignments of their words to ``path`` (.html or .json)."""
    from glassformer.explain.alignment import save_alignments
    from glassformer.outputs import check_page_path

    check_page_path(path)
    check_new_file(path, "--align")
    translator, rows = _load_with_rows(folder, arguments, text_column)
    texts = usable_inputs(rows)
    if len(texts) > MAX_TEXTS:
        what = f"{len(texts)} texts are too many for one file (at most {MAX_TEXTS})"
        raise ConfigError(what, where="--align", fix="Give fewer texts")
    alignments = [translator.align(text, beam) for text in texts]
    save_alignments(alignments, path)
    return alignments


def _load_with_rows(
    folder: str | Path, arguments: list[str], text_column: str | None
) -> tuple[Any, list[Row]]:
    """The translator in a folder, and the input rows."""
    cli.check_folder(folder)
    from glassformer.tasks.run import training_column

    columns = training_column(folder), *SOURCE_COLUMNS
    rows = gather_rows(
        InputRequest(arguments, text_column, training_columns=columns, log=cli.print_library_note)
    )
    usable_inputs(rows)
    return load_for_command(folder, "translate"), rows


def load_for_command(folder: str | Path, verb: str) -> Any:
    """Load a model for a command, such as "similar"; raises ConfigError for models of other tasks."""
    from glassformer.tasks.load import load

    model, estimators = load(folder), [task.estimator for task in TASKS.values() if task.verb == verb]
    if not isinstance(model, tuple(estimators)):
        action = {"similar": "compare texts"}.get(verb, verb)
        what = f"contains {with_article(type(model).__name__)}, which cannot {action}"
        fix = f"Name a run of {with_article(estimators[0].__name__)}"
        raise NotForThisModelError(what, where=str(folder), fix=fix)
    return model


def translate_command(
    run: Path = cli.run_argument("Run folder or saved translator.", default=...),
    given: list[str] | None = argument(
        "TEXT|FILE",
        "Texts or files (CSV, TSV, JSONL, Parquet, .txt: one text per line; a single .txt keeps "
        "its empty lines); - is standard input.",
    ),
    data: str | None = cli.DATA_FILE,
    beam: int = option("N", "Beam size; 1 is greedy search.", default=5),
    out: Path | None = option("FILE.csv", "Output table."),
    text_column: str | None = cli.TEXT_COLUMN,
    align_: Path | None = option(
        "FILE",
        "Write which source words each target word is aligned with, as .html or .json.",
        "--align",
    ),
    json: bool = AS_JSON,
) -> None:
    """Translate texts: one output line per text, in order; for a .txt file, line n translates line n."""
    arguments = cli.collect_inputs(given, data, "translate")
    if out is not None:
        check_output(out)
    if out is not None and align_ is not None:
        raise ConflictError("both --out and --align are given", where="translate", fix="Give one of them")
    if align_ is not None:
        alignments = align(run, arguments, align_, beam=beam, text_column=text_column)
        print_note(f"alignments: {align_}")
        _show([(alignment.text, alignment.translation) for alignment in alignments], json, align=align_)
        return
    translations = translate(run, arguments, beam=beam, text_column=text_column)
    if out is None:
        _show([(row.text, translation) for row, translation in translations], json)
        return
    layout = detect_layout([row for row, _ in translations] if len(arguments) == 1 else [])
    other_columns = copied_columns(layout, ("text", "translation"))
    rows = (
        [row.text, translation, *(cell(row) for cell in other_columns.values())]
        for row, translation in translations
    )
    write_table(out, ["text", "translation", *other_columns], rows)
    print_message(f"{counted(len(translations), 'text')}: {out}")
    if json:
        print_json({"texts": len(translations), "out": out})


def _show(pairs: Sequence[tuple[str, str]], json: bool, **extra: Any) -> None:
    """Print translations, one per line; with ``--json``, print texts and translations."""
    if json:
        rows = [{"text": text, "translation": translation} for text, translation in pairs]
        print_json({"translations": rows, **extra})
        return
    for _, translation in pairs:
        print_text(one_line(translation))


# --- masked words -----------------------------------------------------------------------------------


def fill_command(
    run: Path = cli.run_argument(
        "Run folder or masked language model (glassformer's or the Hub's).", default=...
    ),
    given: list[str] = argument(
        "TEXT", f"Texts with {MASK} for each missing word; - is standard input.", default=...
    ),
    top: int = option("N", f"Words per {MASK}.", default=5),
    json: bool = AS_JSON,
) -> None:
    """Fill in masked words: one line for each mask, with words and probabilities."""
    texts = cli.expand_stdin(given)
    model = load_for_command(cli.check_folder(run), "fill")
    fills = [model.fill_each(text, top) for text in texts]
    if json:
        fields = ("word", "probability")
        out = []
        for text, masks in zip(texts, fills, strict=True):
            words_per_mask = [[dict(zip(fields, word, strict=True)) for word in words] for words in masks]
            out.append({"text": text, "masks": words_per_mask})
        print_json(out)
        return
    for text, masks in zip(texts, fills, strict=True):
        print_text(one_line(text))
        for words in masks:
            print_text("  " + "  ".join(f"{one_line(word)} {probability:.4f}" for word, probability in words))
