"""``glassformer predict``: predictions for texts, pairs of texts or images, typed or in files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.options import (
    DATA,
    PAIR_COLUMN,
    RUN,
    TEXT_COLUMN,
    argument,
    check_bad_row,
    check_folder,
    flag,
    note_columns,
    option,
    with_data,
)
from glassformer.cli.output import AS_JSON, note, progress_bar, say, say_json
from glassformer.cli.predictions import (
    KEEP_TABLE,
    LEAST_SURE,
    Answers,
    Kind,
    Labels,
    LeastSure,
    Numbers,
    Tags,
    Writer,
    check_output,
    kind_in,
    table_format,
)
from glassformer.cli.similar import is_embedder
from glassformer.data.columns import columns_for_pair_model
from glassformer.errors import BadValueError, DataError, NotForThisModelError, counted
from glassformer.inputs import rows
from glassformer.inputs.rows import SKIP_HINT, check_encodings

if TYPE_CHECKING:
    from glassformer.inputs.inputs import Inputs, RowChunks

# --- what is given --------------------------------------------------------------------------------


def input_rows(
    run: Path,
    arguments: Sequence[str],
    text_column: str | None = None,
    pair_column: str | None = None,
    skip: bool = False,
) -> rows.InputRequest:
    """The arguments of a command, as the ``Inputs`` of a run's model read them."""
    from glassformer.tasks.run_folder import trained_columns

    return rows.InputRequest(
        arguments, text_column, pair_column, trained_columns(run), run, skip, note_columns
    )


def gather(inputs: Inputs, given: rows.InputRequest) -> RowChunks:
    """Read the input rows; an error about a bad row also says if training skipped such rows."""
    try:
        return inputs.gather(given)
    except DataError as error:
        raise _with_training_hint(error, given.folder) from None


def _with_training_hint(error: DataError, folder: Path) -> DataError:
    """The error for a bad row, with a hint if the training skipped such rows."""
    from glassformer.tasks.run_folder import read_run_recipe

    if SKIP_HINT not in (error.fix or "") or not (folder / "config.toml").is_file():
        return error
    data = read_run_recipe(folder).data
    if "skip" not in (getattr(data, "on_bad_row", None), getattr(data, "broken", None)):
        return error
    return error.but(fix=f"{error.fix} (this run was trained with it)")


# --- the model ------------------------------------------------------------------------------------


def open_model(folder: Path, precision: str | None, labels: Sequence[str], template: str | None) -> Any:
    """The model in a folder."""
    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.families.image_text import has_both_halves
    from glassformer.tasks.load import load

    # A model that compares with the names of labels may be given by its name.
    path = folder if folder.exists() else resolve_checkpoint(str(folder)).path
    names = [label.strip() for argument in labels for label in argument.split(",") if label.strip()]
    zero_shot = bool(labels) or template is not None
    if zero_shot and has_both_halves(path):
        from glassformer.tasks.image_classification.zero_shot import ZeroShotImageClassifier

        chooser = ZeroShotImageClassifier(path, names, template=template)
        model: Any = chooser.classifier
    else:
        chooser, model = None, load(path)
    if precision is not None:
        from glassformer.study.calibration import set_precision

        set_precision(folder, model, precision, note)
    if chooser is not None or not zero_shot:
        return chooser or model
    from glassformer.tasks.text_classification.zero_shot import ZeroShotClassifier

    try:
        return ZeroShotClassifier(model, names, template=template)
    except NotForThisModelError as error:  # labels were given for another kind of model
        raise error.but(where="--labels") from None


def _progress_bar(kind: Kind, total: int) -> AbstractContextManager[Any]:
    """A progress bar on a terminal while predictions are made."""
    from glassformer.train.callbacks import Progress

    return Progress().count(kind.noun, total)


# --- from Parquet to Parquet ----------------------------------------------------------------------


def predict_table(
    run: Path,
    data: Path,
    out: Path | None,
    text_column: str | None,
    engine: str = "serial",
    pair_column: str | None = None,
    json: bool = False,
) -> None:
    """Predict a Parquet file into another, with a progress bar on a terminal; engines: ``scale.engines``."""
    check_folder(run)
    from glassformer.scale.scoring import SHARD_ROWS, score_file

    kind_in(run)
    for path, name in ((data, "--data"), (out, "--out")):
        if path is None or path.suffix.lower() != ".parquet":
            what, where = "a large table is read from Parquet and written as Parquet", path or "is missing"
            fix = "Give --data FILE.parquet --out FILE.parquet, or leave --engine out"
            raise BadValueError(what, where=f"{name} {where}", fix=fix)
    assert out is not None
    with progress_bar("rows") as progress:
        result = score_file(
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
    say(f"{counted(result['rows'], 'row')}: {out}")
    if result["truncated"]:
        note(f"{result['truncated']:,} texts were too long and truncated; see the column 'truncated'")
    if result["failed"]:
        note(f"{result['failed']:,} rows have no prediction; the column 'error' has the reason")
    if json:
        say_json({"out": out, **result})


def _check_table(files: Sequence[str], given_options: Mapping[str, bool]) -> None:
    """Raise ConfigError for options that are not supported from Parquet to Parquet."""
    csv = "Give --out a name that ends in .csv"
    refused = {
        "--precision": (
            "from Parquet to Parquet, the precision is the one that the model was saved with",
            "Leave it out, or give --out a name that ends in .csv",
        ),
        LEAST_SURE: ("tables from Parquet to Parquet are written, not printed", f"{csv}, or none"),
        "--labels": ("zero-shot labels are not supported from Parquet to Parquet", csv),
        "--engine": (f"{len(files)} files", "Give one Parquet file at a time"),
        "--coverage": ("intervals from Parquet to Parquet cover 90 %", f"Leave it out. {csv}"),
        "--on-bad-row": (
            "from Parquet to Parquet a row that cannot be used is written with the reason",
            f"Leave it out. {csv}",
        ),
    }
    for name, (what, fix) in refused.items():
        if given_options[name]:
            raise NotForThisModelError(what, where=name, fix=fix)


# --- the verb -------------------------------------------------------------------------------------


def _given_options(parameters: Mapping[str, Any]) -> dict[str, bool]:
    """Option of ``predict_command`` -> whether it is given."""
    return {
        KEEP_TABLE: parameters["keep_table"],
        LEAST_SURE: parameters["least_sure"] is not None,
        "--labels": bool(parameters["labels"]),
        "--template": bool(parameters["template"]),
        "--coverage": parameters["coverage"] is not None,
        "--engine": parameters["engine"] != "serial",
        "--precision": parameters["precision"] is not None,
        "--on-bad-row": parameters["on_bad_row"] == "refuse",
    }


def _check_kind(kind: type[Kind], given_options: Mapping[str, bool]) -> None:
    """Raise ConfigError for options that do not fit the kind of prediction."""
    if kind is Numbers and given_options[LEAST_SURE]:
        what = "is for classifiers: the intervals of a regressor are equally wide for all numbers"
        raise NotForThisModelError(what, where=LEAST_SURE, fix="Leave it out")
    kinds = {KEEP_TABLE: "labels and of numbers", "--coverage": "numbers"}
    for name in (KEEP_TABLE, LEAST_SURE, "--labels", "--template", "--coverage", "--engine"):
        if kind in (Tags, Answers) and given_options[name]:
            what = f"is for models of {kinds.get(name, 'labels')}"
            raise NotForThisModelError(what, where=name, fix="Leave it out")


def inputs_of(model: Any, pair_column: str | None) -> Inputs:
    """The ``Inputs`` of a model."""
    return model.inputs if pair_column is None else model.inputs.as_pairs(model)


def _write(writer: Writer, source: RowChunks, skip: bool) -> None:
    """Predict for all rows, piece by piece."""
    try:
        with writer.opened(), _progress_bar(writer.kind, source.num_usable) as progress:
            for piece in source:
                writer.add(piece, progress)
    except DataError as error:
        if skip or not error.where or not source.all_at_once:
            raise
        raise error.but(fix=f"{error.fix or 'Remove it'}, {SKIP_HINT}") from None


INPUTS: Any = argument(
    "TEXT|FILE",
    "Texts or files (CSV, TSV, JSONL, Parquet, .txt: one text per line); images or folders "
    "of them; - is standard input. For pairs: two texts each, or a table with two text "
    "columns. For question answering: alternating questions and contexts.",
)
DATA_FILE: Any = option(
    "FILE",
    "Input file (same as the positional argument). With Parquet in and out, streams files "
    "larger than memory and resumes if rerun.",
    panel=DATA,
)
OUT: Any = option(
    "FILE",
    "Output file: .csv, or .parquet if the input is Parquet. For taggers and question "
    "answering also .jsonl; for taggers also .conll.",
)
OWN_LABELS: Any = option(
    "A,B,C", "For sentence encoders, entailment models and CLIP: the labels to choose from (zero-shot)."
)
TEMPLATE: Any = option("TEXT", "With --labels: sentence for each label, e.g. 'This text is about {}.'")
KEEP: Any = flag(
    KEEP_TABLE,
    "Write your CSV to --out unchanged and append the predictions. Warning: "
    "formulas in your cells are not escaped.",
)
ENGINE: Any = option(
    "NAME", "With Parquet in and out: serial (this machine) or ray (a cluster).", default="serial"
)
BAD_ROW: Any = option(
    "refuse|skip",
    "Stop at an unusable row or image, or skip it; skipped inputs get no label but an error message.",
    panel=DATA,
)
N_LEAST_SURE: Any = option(
    "N", "List the N predictions with the lowest confidence and their two most probable labels."
)
PRECISION: Any = option(
    "auto|fp32|bf16|int8",
    "Compute precision. int8 is used only if at least 99.5 % of validation predictions equal those of fp32.",
    show_default="as trained",
)
COVERAGE: Any = option(
    "SHARE",
    "For regressors: share of true values that prediction intervals contain (0 to 1).",
    show_default="0.9",
)


def predict_command(
    run: Path = RUN,
    given: list[str] | None = INPUTS,
    data: Path | None = DATA_FILE,
    out: Path | None = OUT,
    text_column: str | None = TEXT_COLUMN,
    pair_column: str | None = PAIR_COLUMN,
    labels: list[str] | None = OWN_LABELS,
    template: str | None = TEMPLATE,
    keep_table: bool = KEEP,
    engine: str = ENGINE,
    on_bad_row: str | None = BAD_ROW,
    least_sure: int | None = N_LEAST_SURE,
    precision: str | None = PRECISION,
    coverage: float | None = COVERAGE,
    json: bool = AS_JSON,
) -> None:
    """Predict labels for texts or images: one line per input with label, probability, and the text or file.

    For regressors, a line has the number and its prediction interval.
    """
    check_bad_row(on_bad_row)
    given, skip = with_data(given, None if data is None else str(data), "predict"), on_bad_row == "skip"
    zero_shot = bool(labels or template)
    if not zero_shot or run.exists():
        check_folder(run)
    kind = Labels if zero_shot and (not run.exists() or is_embedder(run)) else kind_in(run)
    given_options = _given_options(locals())
    _check_kind(kind, given_options)
    if not skip:
        check_encodings(given)
    kept_table = table_format(given, out) if keep_table else None
    least_sure_list = None if least_sure is None else LeastSure(least_sure)
    table = len(given) == 1 and _is_parquet(given[0]) and _is_parquet(out) and issubclass(kind, Labels)
    if table or engine != "serial":
        _check_table(given, given_options | {"--labels": zero_shot, "--engine": len(given) > 1})
        predict_table(run, Path(given[0]), out, text_column, engine, pair_column, json)
        return
    if out is not None:
        check_output(out, kind)
    from glassformer.tasks.load import describe

    row_source, source = input_rows(run, given, text_column, pair_column, skip), None
    saved_inputs = None if zero_shot else describe(run).inputs
    if saved_inputs is not None and (pair_column is None or not saved_inputs.may_be_pairs):
        source = gather(saved_inputs, row_source)  # before the model, which loads slowly
    model = open_model(run, precision, labels or (), template)
    if source is None:
        source = gather(inputs_of(model, pair_column), row_source)
    if kept_table is not None and source.layout.pairs:
        sides = columns_for_pair_model(
            kept_table.names, text_column, pair_column, given[0], row_source.training_columns
        )
        kept_table = kept_table.with_pairs(sides)
    writer = Writer(kind(model, source.layout, coverage), out, json, kept_table, least_sure_list)
    _write(writer, source, skip)
    if json:
        say_json(writer.as_dict())
    elif least_sure_list is not None:
        least_sure_list.show(model.INPUTS.noun)
    if out is not None:
        say(writer.summary())
    hints = least_sure_list.notes(shlex.quote(str(run))) if least_sure_list and not labels else ()
    for line in (*writer.notes(), *hints):
        note(line)


def _is_parquet(path: str | Path | None) -> bool:
    return str(path).lower().endswith(".parquet")
