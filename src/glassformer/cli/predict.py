"""``glassformer predict``.

It predicts labels, numbers, tags or answers for texts, pairs of texts or images.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import options as cli
from glassformer.cli import predictions
from glassformer.cli.options import argument, flag, option
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note, progress_bar
from glassformer.cli.predictions import KEEP_TABLE, LEAST_SURE, Kind, Labels, Writer
from glassformer.cli.vectors import is_embedder
from glassformer.data.columns import columns_for_pair_model
from glassformer.errors import BadValueError, DataError, NotForThisModelError, counted
from glassformer.inputs import rows
from glassformer.inputs.rows import SKIP_HINT, check_encodings

if TYPE_CHECKING:
    from glassformer.inputs.inputs import Inputs, RowChunks

# --- inputs -----------------------------------------------------------------------------------------


def build_request(
    run: Path,
    arguments: Sequence[str],
    text_column: str | None = None,
    pair_column: str | None = None,
    skip: bool = False,
) -> rows.InputRequest:
    """The arguments of a command, in the form that ``Inputs.gather`` reads."""
    from glassformer.tasks.run import training_columns

    columns = training_columns(run)
    return rows.InputRequest(arguments, text_column, pair_column, columns, run, skip, cli.print_library_note)


def gather(inputs: Inputs, request: rows.InputRequest) -> RowChunks:
    """Read the input rows; the error about an unusable row has a hint if training skipped such rows."""
    try:
        return inputs.gather(request)
    except DataError as error:
        raise _with_training_hint(error, request.folder) from None


def _with_training_hint(error: DataError, folder: Path) -> DataError:
    """The error, with a hint if it is about an unusable row and training skipped such rows."""
    from glassformer.tasks.run import read_run_recipe

    if SKIP_HINT not in (error.fix or "") or not (folder / "config.toml").is_file():
        return error
    data = read_run_recipe(folder).data
    if "skip" not in (getattr(data, "on_bad_row", None), getattr(data, "broken", None)):
        return error
    return error.replace(fix=f"{error.fix} (this run was trained with it)")


# --- the model ------------------------------------------------------------------------------------


def open_model(folder: Path, precision: str | None, labels: Sequence[str], template: str | None) -> Any:
    """Load a model, as a zero-shot classifier if ``labels`` or ``template`` are given.

    Args:
        folder: folder of a run or a model, or the name of a checkpoint.
        labels: values of ``--labels``, such as ``["sports,politics"]``.
    """
    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.families.image_text import is_image_text_folder
    from glassformer.tasks.load import load_for_predictions

    path = folder if folder.exists() else resolve_checkpoint(str(folder)).path
    names = [label.strip() for argument in labels for label in argument.split(",") if label.strip()]
    is_zero_shot, classifier = bool(labels) or template is not None, None
    if is_zero_shot and is_image_text_folder(path):
        from glassformer.tasks.zero_shot import ZeroShotImageClassifier

        classifier = ZeroShotImageClassifier(path, names, template=template)
    model: Any = load_for_predictions(path, precision) if classifier is None else classifier.classifier
    if precision is not None:
        from glassformer.study.calibration import set_precision

        set_precision(folder, model, precision, print_note)
    if classifier is not None or not is_zero_shot:
        return classifier or model
    from glassformer.tasks.zero_shot import ZeroShotClassifier

    try:
        return ZeroShotClassifier(model, names, template=template)
    except NotForThisModelError as error:
        raise error.replace(where="--labels") from None


def select_inputs(model: Any, pair_column: str | None) -> Inputs:
    """The ``Inputs`` of a model; for pairs of texts if ``--pair-column`` is given."""
    return model.inputs if pair_column is None else model.inputs.as_pairs(model)


def _load_and_gather(
    request: rows.InputRequest, precision: str | None, labels: Sequence[str], template: str | None
) -> tuple[Any, RowChunks]:
    """The model and the input rows. If possible, the rows are read first, because loading takes longer."""
    from glassformer.tasks.load import describe

    is_zero_shot, pair_column, source = bool(labels or template), request.pair_column, None
    inputs = None if is_zero_shot else describe(request.folder).inputs
    if inputs is not None and (pair_column is None or not inputs.may_be_pairs):
        source = gather(inputs, request)
    model = open_model(request.folder, precision, labels, template)
    return model, gather(select_inputs(model, pair_column), request) if source is None else source


def _with_pair_columns(
    user_table: predictions.TableFormat | None, request: rows.InputRequest, has_pairs: bool
) -> predictions.TableFormat | None:
    """The user's table with the names of both text columns, if the model reads pairs."""
    if user_table is None or not has_pairs:
        return user_table
    names = user_table.names, request.text_column, request.pair_column
    *pair, _ = columns_for_pair_model(*names, request.arguments[0], request.training_columns)
    return replace(user_table, pair=tuple(pair))


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
    """Predict for the rows of a Parquet file, and write a Parquet file; ``engine`` is serial or ray."""
    cli.check_folder(run)
    from glassformer.scale.scoring import SHARD_ROWS, score_file

    predictions.prediction_kind(run)
    for path, name in ((data, "--data"), (out, "--out")):
        if path is None or path.suffix.lower() != ".parquet":
            what, where = "--engine reads and writes Parquet files", path or "is missing"
            fix = "Give --data FILE.parquet --out FILE.parquet, or leave --engine out"
            raise BadValueError(what, where=f"{name} {where}", fix=fix)
    assert out is not None
    options: dict[str, Any] = {"column": text_column, "pair": pair_column, "rows": SHARD_ROWS}
    with progress_bar("rows") as progress:
        result = score_file(
            run, data, out, engine=engine, progress=progress, log=cli.print_library_note, **options
        )
    print_message(f"{counted(result['rows'], 'row')}: {out}")
    if result["truncated"]:
        print_note(f"{result['truncated']:,} texts were too long and truncated; see the column 'truncated'")
    if result["failed"]:
        print_note(f"{result['failed']:,} rows have no prediction; the column 'error' has the reason")
    if json:
        print_json({"out": out, **result})


def _check_table(files: Sequence[str], is_given: Mapping[str, bool]) -> None:
    """Raise ConfigError for options that are not supported from Parquet to Parquet."""
    csv = "Give --out a name that ends in .csv"
    unsupported = {
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
    for name, (what, fix) in unsupported.items():
        if is_given[name]:
            raise NotForThisModelError(what, where=name, fix=fix)


# --- the command ------------------------------------------------------------------------------------


def _given_options(parameters: Mapping[str, Any]) -> dict[str, bool]:
    """For some options of ``predict_command``: whether the user has given them."""
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


def _check_kind(kind: type[Kind], is_given: Mapping[str, bool]) -> None:
    """Raise ConfigError for options that this kind of prediction does not support."""
    if kind is predictions.Numbers and is_given[LEAST_SURE]:
        what = "is for classifiers; prediction intervals are equally wide for all numbers"
        raise NotForThisModelError(what, where=LEAST_SURE, fix="Leave it out")
    models = {KEEP_TABLE: "classifiers and regressors", "--coverage": "regressors"}
    for name in (KEEP_TABLE, LEAST_SURE, "--labels", "--template", "--coverage", "--engine"):
        if not issubclass(kind, Labels) and is_given[name]:
            what = f"is for {models.get(name, 'classifiers')}"
            raise NotForThisModelError(what, where=name, fix="Leave it out")


def _write(writer: Writer, source: RowChunks, skip: bool) -> None:
    """Predict for all rows, chunk by chunk, and write the predictions."""
    from glassformer.train.callbacks import Progress

    try:
        with writer.open(), Progress().count(writer.kind.noun, source.num_usable) as progress:
            for chunk in source:
                writer.add(chunk, progress)
    except DataError as error:
        if skip or not error.where or not source.all_at_once:
            raise
        raise error.replace(fix=f"{error.fix or 'Remove it'}, {SKIP_HINT}") from None


INPUTS: Any = argument(
    "TEXT|FILE",
    "Texts or files (CSV, TSV, JSONL, Parquet, .txt: one text per line); images or folders "
    "of them; - is standard input. For pairs: two texts each, or a table with two text "
    "columns. For question answering: alternating questions and contexts.",
)
DATA_FILE: Any = option(
    "FILE",
    "Input file; may also be given as an argument. If input and output are Parquet, files may be "
    "larger than memory, and an interrupted command resumes when rerun.",
    panel=cli.DATA,
)
OUT: Any = option(
    "FILE",
    "Output file: .csv, or .parquet if the input is Parquet. For taggers and question "
    "answering also .jsonl; for taggers also .conll.",
)
OWN_LABELS: Any = option(
    "A,B,C", "Zero-shot labels, for sentence encoders, entailment models, CLIP and SigLIP."
)
TEMPLATE: Any = option("TEXT", "With --labels: sentence with {} for the label, e.g. 'This text is about {}.'")
KEEP: Any = flag(
    KEEP_TABLE,
    "Write your CSV to --out unchanged and append the predictions. Warning: "
    "formulas in your cells are not escaped.",
)
ENGINE: Any = option(
    "NAME", "If input and output are Parquet: serial (this machine) or ray (a cluster).", default="serial"
)
BAD_ROW: Any = option(
    "refuse|skip",
    "For unusable rows or images: stop (refuse), or write the error instead of a label (skip).",
    panel=cli.DATA,
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
    "For regressors: share of true values inside the prediction intervals (0 to 1).",
    show_default="0.9",
)


def predict_command(
    run: Path = cli.RUN,
    given: list[str] | None = INPUTS,
    data: Path | None = DATA_FILE,
    out: Path | None = OUT,
    text_column: str | None = cli.TEXT_COLUMN,
    pair_column: str | None = cli.PAIR_COLUMN,
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
    cli.check_bad_row(on_bad_row)
    is_given = _given_options(locals())
    arguments, skip = cli.collect_inputs(given, data and str(data), "predict"), on_bad_row == "skip"
    is_zero_shot = bool(labels or template)
    if not is_zero_shot or run.exists():
        cli.check_folder(run)
    predicts_labels = is_zero_shot and (not run.exists() or is_embedder(run))
    kind = Labels if predicts_labels else predictions.prediction_kind(run)
    _check_kind(kind, is_given)
    if not skip:
        check_encodings(arguments)
    user_table = predictions.table_format(arguments, out) if keep_table else None
    least_confident = None if least_sure is None else predictions.LeastConfident(least_sure)
    is_table = len(arguments) == 1 and _is_parquet(arguments[0]) and _is_parquet(out)
    if (is_table and issubclass(kind, Labels)) or engine != "serial":
        _check_table(arguments, is_given | {"--labels": is_zero_shot, "--engine": len(arguments) > 1})
        predict_table(run, Path(arguments[0]), out, text_column, engine, pair_column, json)
        return
    if out is not None:
        predictions.check_output(out, kind)
    request = build_request(run, arguments, text_column, pair_column, skip)
    model, source = _load_and_gather(request, precision, labels or (), template)
    user_table = _with_pair_columns(user_table, request, source.layout.pairs)
    writer = Writer(kind(model, source.layout, coverage), out, json, user_table, least_confident)
    _write(writer, source, skip)
    if json:
        print_json(writer.kind.as_dict(writer))
    elif least_confident is not None:
        least_confident.show(model.INPUTS.noun)
    if out is not None:
        print_message(f"{writer.kind.summary(writer)}: {out}")
    print_note(*writer.notes())
    if least_confident is not None and not labels:
        print_note(
            f"to predict no label at low confidence: glassformer calibrate {shlex.quote(str(run))} shows the "
            "effect of several thresholds, and its option --abstain-below P sets one"
        )


def _is_parquet(path: str | Path | None) -> bool:
    return str(path).lower().endswith(".parquet")
