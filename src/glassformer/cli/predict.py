"""``glassformer predict``: labels for texts from the command line or from files, or for pictures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.answers import KEEP_TABLE, LEAST_SURE, LargeFile, LeastSure, kept_table, large_file
from glassformer.cli.evaluate import check_bad_row
from glassformer.cli.given import PairColumn, with_data
from glassformer.cli.inputs import (
    check_encodings,
    gather_pairs,
    gather_pictures,
    gather_rows,
    note_columns,
    reads_pairs,
    sides_in,
    zero_shot,
)
from glassformer.cli.numbers import answers_of
from glassformer.cli.output import AsJson, note, progress_bar, say, say_json
from glassformer.cli.places import check_folder, run_folders
from glassformer.cli.rows import WAY_OUT, Row, layout_of, usable
from glassformer.cli.tell import refuse_other, tell_command, teller
from glassformer.errors import ConfigError, DataError
from glassformer.outputs import check_new_file


def predict(
    folder: str | Path,
    given: Sequence[str],
    text_column: str | None = None,
    on_bad_row: str | None = None,
    pair_column: str | None = None,
    labels: Sequence[str] = (),
    template: str | None = None,
    precision: str | None = None,
) -> tuple[Any, list[Row], Any]:
    """Label texts and the texts in files, row for row.

    Args:
        folder: of a run or of a saved model.
        given: texts, and names of files; what is a file, or is named as one is, is taken for a file.
        text_column: of tables; None takes the one of the training, or finds it.
        pair_column: of the second texts, for a model of pairs; None: likewise.
        labels, template: to choose from, and the sentence of each, where the model is one of entailment: see
            ``ZeroShotClassifier``.
        precision: to compute in; None: as the model was saved with.
        on_bad_row: ``skip`` marks rows and pictures that cannot be used; else they end the reading.

    Returns:
        The classifier, the rows [n], and the probabilities ``[m, K]`` of those without an ``error``.

    Raises:
        InputError: no such model, a damaged one, or a file that cannot be read.
    """
    skip, kind = on_bad_row == "skip", None if labels or template else inputs_of(check_folder(folder))
    rows: list[Row] | None = None
    if kind is not None and (kind == "pairs" or pair_column is None):  # before the model, which takes longer
        refuse_other(Path(folder))
        rows = _gathered(kind, given, text_column, pair_column, folder, skip)
    clf = opened(folder, precision)
    if labels or template:
        clf = zero_shot(clf, labels, template)
    if rows is None:
        kind = "pairs" if clf.NOUN != "pictures" and reads_pairs(clf, pair_column) else clf.NOUN
        rows = _gathered(kind, given, text_column, pair_column, folder, skip)
    texts = usable(rows)
    try:
        with _counted(clf, len(texts)) as told:
            return clf, rows, clf.outputs(texts, progress=told)
    except DataError as error:
        if skip or not error.where:
            raise
        raise DataError(error.what, where=error.where, fix=f"{error.fix or 'Remove it'}, {WAY_OUT}") from None


def inputs_of(folder: Path) -> str | None:
    """What a saved classifier reads (texts, pairs, pictures), by its folder; None: the model must tell."""
    from glassformer.checkpoints.files import read_json
    from glassformer.checkpoints.settings import ABOUT
    from glassformer.tasks.catalog import task_making

    about = next((f for f in (folder / ABOUT, folder / "model" / ABOUT) if f.is_file()), None)
    found = read_json(about) if about else {}
    task = task_making(found["kind"]) if isinstance(found.get("kind"), str) else None
    if task is None or task.answer is None:
        return None
    return "pairs" if found.get("pairs") else task.estimator.NOUN


def _gathered(
    kind: str,
    given: Sequence[str],
    text_column: str | None,
    pair_column: str | None,
    folder: str | Path,
    skip: bool,
) -> list[Row]:
    """The rows of what is given; of a run that was trained without such rows, a refusal says that too."""
    from glassformer.tasks.image_classification.build import saved_range

    try:
        if kind == "pictures":
            return gather_pictures(given, skip, saved_range(Path(folder)))
        if kind == "pairs":
            return gather_pairs(given, text_column, pair_column, folder, skip)
        return gather_rows(given, text_column, [_trained_column(folder)], skip)
    except DataError as error:
        raise _as_trained(error, folder) from None


def _as_trained(error: DataError, folder: str | Path) -> DataError:
    """A row that is refused, where the training has left such rows out."""
    from glassformer.tasks.run_folder import read_run_recipe

    if WAY_OUT not in (error.fix or "") or not (Path(folder) / "config.toml").is_file():
        return error
    data = read_run_recipe(Path(folder)).data
    if "skip" not in (getattr(data, "on_bad_row", None), getattr(data, "broken", None)):
        return error
    return DataError(error.what, where=error.where, fix=f"{error.fix} (so this run was trained)")


def opened(folder: str | Path, precision: str | None = None) -> Any:
    """The classifier in a folder, which predicts in ``precision`` (None: as it was saved with).

    Raises:
        ConfigError: there is none, or a model whose answers are no labels; a precision that cannot be.
    """
    folder = check_folder(folder)
    from glassformer.tasks.load import load

    refuse_other(folder)
    clf = load(folder)
    if precision is not None:
        from glassformer.study.calibration import set_precision

        set_precision(folder, clf, precision, note)
    return clf


def _trained_column(folder: str | Path) -> str | None:
    from glassformer.tasks.run_folder import trained_column

    return trained_column(folder)


def _counted(clf: Any, total: int) -> Any:
    """A bar on a terminal while examples are answered."""
    from glassformer.train.callbacks import Progress

    return Progress().count(clf.NOUN, total)


def check_output(path: Path) -> None:
    """Raises ConfigError where ``path`` exists, has no folder to lie in, or is not a CSV file's name."""
    check_new_file(path)
    if path.suffix.lower() != ".csv":
        fix = "Give --out a name that ends in .csv"
        raise ConfigError("predictions are written as CSV", where=str(path), fix=fix)


def predict_table(
    run: Path,
    data: Path,
    out: Path | None,
    text_column: str | None,
    engine: str = "serial",
    pair_column: str | None = None,
) -> dict[str, Any]:
    """Score a Parquet file into another, with a bar on a terminal; engines: ``study.engines``.

    Returns:
        What was done: rows, and how many were cut or have no answer.
    """
    check_folder(run)
    from glassformer.scale.scoring import SHARD_ROWS, score_file

    refuse_other(run)
    for path, name in ((data, "--data"), (out, "--out")):
        if path is None or path.suffix.lower() != ".parquet":
            what, where = "a large table is read from Parquet and written as Parquet", path or "is missing"
            fix = "Give --data FILE.parquet --out FILE.parquet, or leave --engine out"
            raise ConfigError(what, where=f"{name} {where}", fix=fix)
    assert out is not None
    with progress_bar("rows") as progress:
        done = score_file(
            run,
            data,
            out,
            column=text_column,
            pair=pair_column,
            rows=SHARD_ROWS,
            engine=engine,
            progress=progress,
            say=note_columns,
        )
    say(f"{done['rows']:,} rows: {out}")
    if done["truncated"]:
        note(f"{done['truncated']:,} texts are longer than the model reads and were cut; column 'truncated'")
    if done["failed"]:
        note(f"{done['failed']:,} rows have no answer; their column 'error' says why")
    return done


def predict_command(
    run: Annotated[
        Path,
        typer.Argument(
            autocompletion=run_folders, metavar="RUN", help="A run folder, or the folder of a saved model."
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT|FILE",
            help="Texts, or files: CSV, TSV, JSONL, Parquet, .txt with one text a line; pictures, folders of "
            "them; - is standard input. For a model of pairs two texts each, or tables of two columns; "
            "for one of answers a question and its text each.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file, as without --data. From Parquet to Parquet: a table of any size, read piece by "
            "piece; the same call goes on later.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a table there: .csv, of a .parquet file .parquet too; of spans .jsonl or .conll too.",
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of texts, where it is not found by itself.")
    ] = None,
    pair_column: PairColumn = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,C", help="Of a model of entailment: the labels to choose from, without training."
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With --labels: their sentence, such as 'This text is about {}.'"),
    ] = None,
    keep_table: Annotated[
        bool,
        typer.Option(
            "--keep-table",
            help="Write your own CSV to --out as it is, with columns predicted and probability behind. "
            "Cells that begin with = or @ stay so: a spreadsheet takes them for formulas.",
        ),
    ] = False,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="From Parquet to Parquet: serial, or ray for a cluster.")
    ] = "serial",
    on_bad_row: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|skip",
            help="skip: a row or picture that cannot be used gets no label, and says why.",
        ),
    ] = None,
    least_sure: Annotated[
        int | None,
        typer.Option(metavar="N", help="List the N answers to look at first: their two likeliest labels."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="auto|fp32|bf16|int8",
            help="To compute in; int8: products of 8 bits, once held to the run's validation labels.",
            show_default="as trained",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Of a regressor: the share of true numbers that intervals hold.",
            show_default="0.9",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Label texts or pictures: one line each with label, probability, and the text or the file.

    Of a regressor a line has the number and the interval around it.
    """
    check_bad_row(on_bad_row)
    given = with_data(given, None if data is None else str(data), "predict")
    telling = run.is_dir() and teller(run) is not None
    if run.is_dir() and not telling:
        refuse_other(run)  # before it says what is wrong with what was given
    if on_bad_row != "skip":
        check_encodings(given)
    kept = kept_table(given, out) if keep_table else None
    least = None if least_sure is None else LeastSure(least_sure, ())
    if telling:
        if kept is not None:
            what = "belongs to models of labels and of numbers"
            raise ConfigError(what, where=KEEP_TABLE, fix="Leave it out")
        given_too = ((LEAST_SURE, least), ("--labels", labels), ("--template", template))
        for option, value in (*given_too, ("--coverage", coverage), ("--engine", engine != "serial")):
            if value:
                whose = "numbers" if option == "--coverage" else "labels"
                raise ConfigError(f"belongs to models of {whose}", where=option, fix="Leave it out")
        tell_command(run, given, out, text_column, on_bad_row, pair_column, json, precision)
        return
    table = len(given) == 1 and all(str(path).lower().endswith(".parquet") for path in (given[0], out))
    if precision is not None and (table or engine != "serial"):
        what = "tables from Parquet to Parquet are answered in the precision that the model was saved with"
        raise ConfigError(
            what, where="--precision", fix="Leave it out, or give --out a name that ends in .csv"
        )
    if table or engine != "serial":
        if least is not None:
            what = "tables from Parquet to Parquet are only written"
            raise ConfigError(what, where=LEAST_SURE, fix="Give --out a name that ends in .csv, or none")
        if labels or template:
            what = "labels of one's own are not for tables from Parquet to Parquet"
            raise ConfigError(what, where="--labels", fix="Give --out a name that ends in .csv")
        _as_written(given, coverage, on_bad_row)
        done = predict_table(run, Path(given[0]), out, text_column, engine, pair_column)
        if json:
            say_json({"out": out, **done})
        return
    if out is not None:
        check_output(out)
    skip, large = on_bad_row == "skip", None if labels or template else large_file(given)
    early = large is not None and pair_column is None and inputs_of(check_folder(run)) == "texts"
    column = [_trained_column(run)] if large is not None else []
    rows = LargeFile(large, text_column, column, skip) if early and large is not None else None
    clf: Any = opened(run, precision) if large is not None else None
    if large is not None and clf.NOUN == "texts" and not reads_pairs(clf, pair_column):
        rows = rows or LargeFile(large, text_column, column, skip)
        answers = answers_of(clf, out, rows.layout, json, coverage)
        answers.kept, answers.least = kept, _least_of(least, clf)
        with answers.written(), _counted(clf, rows.good) as told:
            for piece in rows:
                texts = [row.text for row in piece if row.error is None]
                answers.add(piece, clf.outputs(texts, progress=told) if texts else ())
    else:
        clf, found, probabilities = predict(
            run, given, text_column, on_bad_row, pair_column, labels or (), template, precision
        )
        answers = answers_of(clf, out, layout_of(found), json, coverage)
        if kept is not None and answers.layout.pairs:
            sides = sides_in(kept.names, text_column, pair_column, run, given[0])
            kept = replace(kept, pair=(sides.first, sides.second))
        answers.kept, answers.least = kept, _least_of(least, clf)
        with answers.written():
            answers.add(found, probabilities)
    if json:
        say_json(answers.to_dict())
    elif answers.least is not None:
        answers.least.show(clf.NOUN)
    if out is not None:
        say(f"{answers.count:,} {clf.NOUN}: {out}")
    for line in answers.notes():
        note(line)
    if answers.least is not None and not labels:
        for line in answers.least.notes(shlex.quote(str(run))):
            note(line)


def _least_of(least: LeastSure | None, clf: Any) -> LeastSure | None:
    """The same, for the labels of a classifier; ConfigError where its answers are numbers."""
    if least is None:
        return None
    if hasattr(clf, "interval"):
        what = "belongs to models of labels: an interval of a regressor is as wide for every number"
        raise ConfigError(what, where=LEAST_SURE, fix="Leave it out")
    return LeastSure(least.count, clf.classes_.tolist())


def _as_written(given: Sequence[str], coverage: float | None, on_bad_row: str | None) -> None:
    """Raises ConfigError for what tables from Parquet to Parquet are not asked."""
    csv = "Give --out a name that ends in .csv"
    if len(given) > 1:
        raise ConfigError(f"{len(given)} files", where="--engine", fix="Give one Parquet file at a time")
    if coverage is not None:
        what = "intervals from Parquet to Parquet cover 90 %"
        raise ConfigError(what, where="--coverage", fix=f"Leave it out. {csv}")
    if on_bad_row == "refuse":
        what = "from Parquet to Parquet a row that cannot be used is written with the reason"
        raise ConfigError(what, where="--on-bad-row", fix=f"Leave it out. {csv}")
