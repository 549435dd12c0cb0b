"""``glassformer evaluate`` and ``report``: evaluate a trained model again, and rewrite its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import read_json
from glassformer.cli.options import (
    BAD_ROW,
    COLUMNS,
    DATA,
    OTHER_DATA,
    RUN_FOLDER,
    a_run,
    check_bad_row,
    check_choice,
    check_folder,
    flag,
    no_run,
    one_data,
    option,
    refuse_columns,
    tell,
    with_columns,
)
from glassformer.cli.output import (
    AS_JSON,
    abstention_line,
    excerpt,
    one_line,
    say,
    say_json,
    show_figures,
    show_number_figures,
    show_similarity,
    show_table,
    show_tests,
    show_translation_scores,
)
from glassformer.errors import NotARunError, NotForThisModelError
from glassformer.report.wording import share_interval, verdict_of
from glassformer.tasks.catalog import TASKS, known_recipe, task_of

# --- --by COLUMN ----------------------------------------------------------------------------------


MAX_VALUE_WIDTH = 30  # characters


def show_slices(found: Mapping[str, Any], measure: str) -> None:
    """Print one line per value of the column, the most frequent first: the number of examples and the main
    metrics, within 80 characters."""
    from glassformer.report.metrics import cells, heads
    from glassformer.targets import target_of

    target = target_of(found["groups"][0])
    keys = target.narrow(measure, found["groups"][0])
    rows = [[named(g), *cells(g, ["n", *keys], target, target.digits(g["n"]))] for g in found["groups"]]
    column = excerpt(one_line(found["column"]), MAX_VALUE_WIDTH)
    # The trailing space keeps a user's column name apart from our own names, which are right-aligned.
    columns = (f"{column} ", *heads(["n", *keys], target, short=True))
    show_table(f"by {column}", columns, rows, right=columns[1:])


def named(group: Mapping[str, Any]) -> str:
    """Name of a group in the table."""
    if group["value"] is None:
        return f"({group['values']:,} rarer values)"
    return excerpt(group["value"], MAX_VALUE_WIDTH) or "(empty)"


# --- the verb -------------------------------------------------------------------------------------


FORMATS = ("plain", "amount", "point", "comma")  # as ``Format`` of ``data/label_kinds.py``


def evaluate(
    folder: str | Path,
    data: str | None = None,
    tell: Callable[[str], None] = tell,
    on_bad_row: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    every_epoch: bool = False,
    by: str | None = None,
) -> dict[str, Any]:
    """The metrics of a run's model; see ``ClassificationMeter.result``."""
    check_bad_row(on_bad_row)
    folder = check_run(folder)
    from glassformer.tasks.run import evaluate_task
    from glassformer.train.callbacks import Progress

    options: dict[str, Any] = {"columns": columns, "on_bad_row": on_bad_row, "by": by}
    return evaluate_task(folder, data, tell, count=Progress().count, every_epoch=every_epoch, **options)


def check_run(folder: str | Path) -> Path:
    """The folder, if it holds a finished run."""
    folder = check_folder(folder)
    if not (folder / "config.toml").is_file():
        raise no_run(folder)
    from glassformer.checkpoints.native import refuse_unfinished

    refuse_unfinished(folder)
    return folder


@with_columns(*COLUMNS)
def evaluate_command(
    run: Path = RUN_FOLDER,
    path: str | None = OTHER_DATA,
    data: str | None = option("PATH", "Other labeled data: a data set name, table or folder.", panel=DATA),
    on_bad_row: str | None = BAD_ROW,
    number_format: str | None = option(
        "|".join(FORMATS),
        "For regressors: how numbers in --data are written: 1234.5 (plain), $1,500 (amount), 1,500.5 "
        "(point) or 1.500,5 (comma).",
        show_default="the run's",
        panel=DATA,
    ),
    by: str | None = option("COLUMN", "Also report metrics for each value of COLUMN, e.g. --by shop."),
    json: bool = AS_JSON,
    every_epoch: bool = flag("--every-epoch", "Evaluate the weights of each epoch (needs keep_epochs)."),
    **columns: str | None,
) -> None:
    """Evaluate a trained model: its metrics with confidence intervals, overall and per class."""
    data = one_data(path, data, "evaluate")
    check_choice("--number-format", number_format, FORMATS)
    named = refuse_columns(columns | {"number_format": number_format}, data)
    if by and every_epoch:
        raise NotForThisModelError("evaluates one model", where="--by", fix="Leave --by or --every-epoch out")
    figures = evaluate(run, data, on_bad_row=on_bad_row, columns=named, every_epoch=every_epoch, by=by)
    verdict = "" if every_epoch else _verdict(run, figures, data)
    if json:
        say_json(figures | ({"verdict": verdict} if verdict else {}))
        return
    if every_epoch:
        show_epochs(str(run), figures["epochs"])
        return
    _show(run, figures, verdict)
    if by:
        show_slices(figures["by"], _measure(run, figures))


def _show(run: Path, figures: dict[str, Any], verdict: str) -> None:
    """Print the metrics, in the form for the kind of model."""
    from glassformer.targets import target_of

    tables = {"numbers": show_number_figures, "similarity": show_similarities}
    show = show_similarities if "found" in figures else tables.get(target_of(figures).told_as)
    if "greedy" in figures:
        show_translation_scores(str(run), {"": figures})
    elif "masked" in figures:
        rows = [[name.replace("_", " "), f"{value:.4f}"] for name, value in figures["masked"].items()]
        show_table(str(run), ("", "value"), rows, right=("value",))
    elif show is not None:
        show(str(run), figures)
    elif "per_class" in figures:
        show_figures(str(run), figures, _measure(run, figures))
        say(verdict)
        if found := figures.get("abstention"):
            say(abstention_line(found))
    elif all(
        t is None or {"spearman", "sections"} & {*(t if isinstance(t, dict) else ())}
        for t in figures.values()
    ):
        show_tests(str(run), figures)
    else:
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}"]
            for name, value in numbers_in(figures)
        ]
        show_table(str(run), ("", "value"), rows, right=("value",))


def show_similarities(title: str, figures: dict[str, Any]) -> None:
    """Print the metrics of an embedder."""
    show_similarity(title, {"": figures})


def _verdict(run: Path, figures: dict[str, Any], data: str | None) -> str:
    """A classifier's metrics in words, on its own split next to the baselines; empty for other kinds."""
    from glassformer.targets import target_of
    from glassformer.tasks.run_folder import read_run_recipe

    if not target_of(figures).labels_given or "per_class" not in figures:
        return ""
    noun = TASKS[read_run_recipe(run).task].estimator.NOUN
    known = {"test": figures, "judged": "other", "measure": _measure(run, figures)}
    if data is None and (run / "metrics.json").is_file():
        metrics = read_json(run / "metrics.json")
        own = metrics.get("test") or metrics.get("validation") or {}
        split = metrics.get("judged", "test") if metrics.get("test") else "validation"
        known |= {"judged": split, "baselines": metrics.get("baselines") or {}}
        if own.get("accuracy") != figures["accuracy"]:  # its paired differences belong to other predictions
            drop = {"difference"}
            known["baselines"] = {
                name: {k: v for k, v in b.items() if k not in drop} for name, b in known["baselines"].items()
            }
    return verdict_of(known, noun)


def _measure(run: Path, figures: dict[str, Any]) -> str:
    """Main metric of the run: macro-F1 for multi-label, otherwise the one that selected its weights."""
    from glassformer.targets import target_of
    from glassformer.tasks.judging import measure_of
    from glassformer.tasks.run_folder import read_run_recipe

    return target_of(figures).measure or measure_of(read_run_recipe(run))


def show_epochs(title: str, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per epoch."""
    rows = [
        [
            e["epoch"],
            "" if e["batch_loss"] is None else f"{e['batch_loss']:.4f}",
            f"{e['accuracy']:.2%}",
            _of_epoch(e),
        ]
        for e in epochs
    ]
    show_table(
        title, ("epoch", "mean batch loss", "accuracy", "95 % interval"), rows, right=("epoch", "accuracy")
    )


def _of_epoch(epoch: Mapping[str, Any]) -> str:
    """The interval of an epoch's accuracy; empty if there is none."""
    known = epoch["accuracy_interval"]
    return share_interval(epoch["accuracy"], known, epoch["n"], 2) if known else ""


def numbers_in(figures: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Every number in nested metrics, named by its path."""
    for name, value in figures.items():
        path = f"{above} {name.replace('_', ' ')}".strip()
        if isinstance(value, Mapping):
            yield from numbers_in(value, path)
        elif isinstance(value, int | float):
            yield path, value


# --- the page ---------------------------------------------------------------------------------------


def report(folder: str | Path) -> list[Path]:
    """Rewrite the report pages of a folder from its files; returns their paths."""
    folder = Path(folder)
    if not folder.is_dir():
        fix = "Name the --out of train, compare or cross-validate"
        raise NotARunError("no such folder", where=str(folder), fix=fix)
    from glassformer.checkpoints.native import refuse_unfinished
    from glassformer.report.study import write_review_page, write_study_report

    kinds = {
        "results.json": write_study_report,
        "metrics.json": _write_run_page,
        "review.json": write_review_page,
    }
    pages = [write(folder) for name, write in kinds.items() if (folder / name).is_file()]
    if not pages:
        refuse_unfinished(folder)
        fix = "Name the folder of a finished run, study, cross-validation or label review"
        raise NotARunError(f"nothing to report: none of {', '.join(kinds)}", where=str(folder), fix=fix)
    return pages


def _write_run_page(folder: Path) -> Path:
    """Write the report page of a run."""
    return task_of(folder).render_report(folder, known_recipe(folder))


def report_command(
    folder: Path = a_run(
        "Folder of a run, a study, a cross-validation or a label review.", "RUN|STUDY", default=...
    ),
    json: bool = AS_JSON,
) -> None:
    """Write report.html again, from the files of a run, a study, a cross-validation or a label review."""
    pages = report(folder)
    for page in pages:
        say(f"report: {page}")
    if json:
        say_json({"pages": pages})
