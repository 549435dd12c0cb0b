"""``glassformer evaluate`` and ``report``.

``evaluate`` evaluates a trained model again. ``report`` writes its report again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import read_json
from glassformer.cli import options as cli
from glassformer.cli import output
from glassformer.cli.options import flag, option
from glassformer.cli.output import AS_JSON, print_json, print_message
from glassformer.data.files import missing_file_fix
from glassformer.errors import NotARunError, NotForThisModelError
from glassformer.report.wording import share_interval, verdict_of
from glassformer.tasks.catalog import TASKS, known_recipe, task_of

# --- option --by ----------------------------------------------------------------------------------


MAX_VALUE_WIDTH = 30  # maximum number of characters of a value


def show_slices(slices: Mapping[str, Any], measure: str) -> None:
    """Print a table with a row per value of a column: number of examples and main metrics."""
    from glassformer.report.metrics import cells, column_names
    from glassformer.targets import target_of

    target = target_of(slices["groups"][0])
    keys = target.narrow_columns(measure, slices["groups"][0])
    groups = slices["groups"]
    rows = [[_group_name(g), *cells(g, ["n", *keys], target, target.digits(g["n"]))] for g in groups]
    column = output.excerpt(output.one_line(slices["column"]), MAX_VALUE_WIDTH)
    # ``right`` identifies columns by name: a trailing space makes the name of the user's column unique.
    columns = (f"{column} ", *column_names(["n", *keys], target, short=True))
    output.show_table(f"by {column}", columns, rows, right=columns[1:])


def _group_name(group: Mapping[str, Any]) -> str:
    if group["value"] is None:
        return f"({group['values']:,} rarer values)"
    return output.excerpt(group["value"], MAX_VALUE_WIDTH) or "(empty)"


# --- evaluate ---------------------------------------------------------------------------------------


FORMATS = ("plain", "amount", "point", "comma")  # the values of ``NumberFormat`` in ``data/numbers.py``


def check_run(folder: str | Path) -> Path:
    """Return the folder of a finished run; raise ConfigError for other folders."""
    folder = cli.check_folder(folder)
    if not (folder / "config.toml").is_file():
        raise cli.no_run_error(folder)
    from glassformer.checkpoints.native import check_finished

    check_finished(folder)
    return folder


@cli.with_columns(*cli.COLUMNS)
def evaluate_command(
    run: Path = cli.RUN_FOLDER,
    path: str | None = cli.OTHER_DATA,
    data: str | None = option(
        "PATH", "Other labeled data: a data set name, table or folder.", panel=cli.DATA
    ),
    on_bad_row: str | None = cli.BAD_ROW,
    number_format: str | None = option(
        "|".join(FORMATS),
        "For regressors: how numbers in --data are written: 1234.5 (plain), $1,500 (amount), 1,500.5 "
        "(point) or 1.500,5 (comma).",
        show_default="the run's",
        panel=cli.DATA,
    ),
    by: str | None = option(
        "COLUMN", "Also report metrics for each value of this column of the data, e.g. --by shop."
    ),
    json: bool = AS_JSON,
    every_epoch: bool = flag(
        "--every-epoch", "Evaluate the weights of each epoch; for runs trained with --set keep_epochs=true."
    ),
    **columns: str | None,
) -> None:
    """Evaluate a trained model: its metrics with confidence intervals, overall and per class."""
    data = cli.choose_data(path, data, "evaluate")
    cli.check_choice("--number-format", number_format, FORMATS)
    column_names = cli.columns_for_data(columns | {"number_format": number_format}, data)
    if by and every_epoch:
        what, fix = "cannot be combined with --every-epoch", "Leave --by or --every-epoch out"
        raise NotForThisModelError(what, where="--by", fix=fix)
    cli.check_bad_row(on_bad_row)
    check_run(run)
    from glassformer.tasks.run import evaluate_task
    from glassformer.train.callbacks import Progress

    options: dict[str, Any] = {"columns": column_names, "on_bad_row": on_bad_row, "by": by}
    options |= {"count": Progress().count, "every_epoch": every_epoch}
    metrics = evaluate_task(run, data, cli.print_library_message, **options)
    verdict = "" if every_epoch else _verdict(run, metrics, data)
    if json:
        print_json(metrics | ({"verdict": verdict} if verdict else {}))
        return
    if every_epoch:
        show_epochs(str(run), metrics["epochs"])
        return
    _show(run, metrics, verdict)
    if by:
        show_slices(metrics["by"], _main_metric(run, metrics))


def _show(run: Path, metrics: dict[str, Any], verdict: str) -> None:
    """Print the metrics; their keys tell the kind of the model."""
    from glassformer.report.metrics import numbers_in
    from glassformer.targets import target_of

    def show_similarity(title: str, metrics: dict[str, Any]) -> None:
        output.show_similarity(title, {"": metrics})

    printers = {"numbers": output.show_regression_metrics, "similarity": show_similarity}
    printer = show_similarity if "found" in metrics else printers.get(target_of(metrics).terminal_layout)
    if "greedy" in metrics:
        output.show_translation_scores(str(run), {"": metrics})
    elif "masked" in metrics:
        rows = [[name.replace("_", " "), f"{value:.4f}"] for name, value in metrics["masked"].items()]
        output.show_table(str(run), ("", "value"), rows, right=("value",))
    elif printer is not None:
        printer(str(run), metrics)
    elif "per_class" in metrics:
        output.show_metrics(str(run), metrics, _main_metric(run, metrics))
        print_message(verdict)
        if abstention := metrics.get("abstention"):
            print_message(output.abstention_line(abstention))
    elif all(_is_word_vector_test(test) for test in metrics.values()):
        output.show_tests(str(run), metrics)
    else:
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}"]
            for name, value in numbers_in(metrics)
        ]
        output.show_table(str(run), ("", "value"), rows, right=("value",))


def _is_word_vector_test(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and bool({"spearman", "sections"} & value.keys()))


def _verdict(run: Path, scores: dict[str, Any], data: str | None) -> str:
    """A sentence that compares a classifier with the baselines of its run; empty for other models."""
    from glassformer.targets import target_of
    from glassformer.tasks.run import read_run_recipe

    if not target_of(scores).predicts_labels or "per_class" not in scores:
        return ""
    noun = TASKS[read_run_recipe(run).task].estimator.NOUN
    facts = {"test": scores, "judged": "other", "measure": _main_metric(run, scores)}
    if data is None and (run / "metrics.json").is_file():
        metrics = read_json(run / "metrics.json")
        run_scores = metrics.get("test") or metrics.get("validation") or {}
        split = metrics.get("judged", "test") if metrics.get("test") else "validation"
        baselines = metrics.get("baselines") or {}
        if run_scores.get("accuracy") != scores["accuracy"]:
            # The model has changed since training: the stored paired differences are not valid.
            baselines = {
                name: {k: v for k, v in baseline.items() if k != "difference"}
                for name, baseline in baselines.items()
            }
        facts |= {"judged": split, "baselines": baselines}
    return verdict_of(facts, noun)


def _main_metric(run: Path, metrics: dict[str, Any]) -> str:
    """The main metric of a run: macro-F1 for multi-label, otherwise the metric for model selection."""
    from glassformer.targets import target_of
    from glassformer.tasks.run import read_run_recipe
    from glassformer.tasks.task import main_metric

    return target_of(metrics).measure or main_metric(read_run_recipe(run))


def show_epochs(title: str, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a row per epoch."""
    rows = []
    for epoch in epochs:
        loss = "" if epoch["batch_loss"] is None else f"{epoch['batch_loss']:.4f}"
        accuracy, bounds = epoch["accuracy"], epoch["accuracy_interval"]
        interval = share_interval(accuracy, bounds, epoch["n"], 2) if bounds else ""
        rows.append([epoch["epoch"], loss, f"{accuracy:.2%}", interval])
    columns = ("epoch", "mean batch loss", "accuracy", "95 % interval")
    output.show_table(title, columns, rows, right=("epoch", "accuracy"))


# --- report -----------------------------------------------------------------------------------------


def report(folder: str | Path) -> list[Path]:
    """Write the report pages of a folder again, from its files; returns their paths."""
    folder = Path(folder)
    if not folder.is_dir():
        fix = missing_file_fix(folder)
        if not fix.endswith("?"):  # not "Did you mean ...?"
            fix = "Name the --out of train, compare or cross-validate"
        raise NotARunError("no such folder", where=str(folder), fix=fix)
    from glassformer.checkpoints.native import check_finished
    from glassformer.report.study import write_review_page, write_study_report

    writers = {
        "results.json": write_study_report,
        "metrics.json": lambda run: task_of(run).render_report(run, known_recipe(run)),
        "review.json": write_review_page,
    }
    pages = [write(folder) for name, write in writers.items() if (folder / name).is_file()]
    if not pages:
        check_finished(folder)
        what = f"there is nothing to report: the folder has none of {', '.join(writers)}"
        fix = "Name the folder of a finished run, study, cross-validation or label review"
        raise NotARunError(what, where=str(folder), fix=fix)
    return pages


def report_command(
    folder: Path = cli.run_argument(
        "Folder of a run, a study, a cross-validation or a label review.", "RUN|STUDY", default=...
    ),
    json: bool = AS_JSON,
) -> None:
    """Write report.html again, from the files of a run, a study, a cross-validation or a label review."""
    pages = report(folder)
    for page in pages:
        print_message(f"report: {page}")
    if json:
        print_json({"pages": pages})
