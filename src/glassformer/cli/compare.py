"""``glassformer compare``.

It compares the variants of a study, several models on one table, or finished runs. All are evaluated on the
same examples; the result has paired tests and the cost of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer import errors
from glassformer.checkpoints.files import disk_errors, replace_text
from glassformer.cli import options as cli
from glassformer.cli.evaluate import check_run
from glassformer.cli.options import argument, option
from glassformer.cli.output import AS_JSON, print_json, print_message, show_table
from glassformer.cli.own_data import choose_recipe
from glassformer.config import parse_settings, to_toml
from glassformer.outputs import check_folder_path
from glassformer.report.wording import EMPTY_CELL, duration
from glassformer.scale.engines import check_engine
from glassformer.study.grid import Study, expand, folder_name, load_study
from glassformer.tasks.catalog import study_names

MAX_SEEDS = 100


def models_study(
    models: Sequence[str],
    folder: Path,
    *,
    text: str | None = None,
    images: str | None = None,
    settings: Sequence[str] = (),
    seeds: int = 1,
) -> Any:
    """A study of several models on one table, with the recipes that ``glassformer train`` would use.

    The recipes are written to the study's folder, so that the study can be resumed.
    """
    from glassformer.study.compare import check_study_folder

    if len(models) < 2 or len(set(models)) < len(models):
        what = "only one model is named" if models else "no model is named"
        what = f"{models[0]!r} is named twice" if len(models) > 1 else what
        fix = "Name two or more models: --model encoder-mini textcnn"
        raise errors.NothingGivenError(what, where="--model", fix=fix)
    if not 1 <= seeds <= MAX_SEEDS:
        raise errors.BadValueError(f"{seeds} seeds", where="--seeds", fix=f"Use 1 to {MAX_SEEDS}")
    recipes = {m: choose_recipe(None, text, images=images, model=m, settings=settings) for m in models}
    check_study_folder(folder)
    with disk_errors(folder):
        (folder / "arms").mkdir(parents=True, exist_ok=True)
    files = {m: folder / f"recipe-{folder_name(m)}.toml" for m in models}
    for model, file in files.items():
        replace_text(file, to_toml(recipes[model]))
    study = Study(
        name=folder.name,
        summary=f"several models on {recipes[models[0]].data.source}",
        recipe=str(files[models[0]].resolve()),
        seeds=tuple(range(seeds)),
        arms={m: {"recipe": str(file.resolve())} for m, file in files.items()},
    )
    expand(study)
    return study


def compare_finished(runs: Sequence[str], out: Path | None, **options: Any) -> dict[str, Any]:
    """Compare finished runs (see ``compare_runs``); with ``out``, also write tables and a report."""
    folders = [check_run(run) for run in runs]
    from glassformer.report.study import write_study_report
    from glassformer.study.compare import compare_runs
    from glassformer.study.results import write_results

    results = compare_runs(folders, **options)
    if out is not None:
        check_folder_path(out)
        if (out / "config.toml").exists() or (out / "arms").exists():
            raise errors.ExistsError("contains a run or a study", where=str(out), fix="Choose another --out")
        with disk_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        write_results(out, None, results)
        write_study_report(out)
    return results


def show_study(results: dict[str, Any], folder: Path | None) -> None:
    """Print a study: a table row and a sentence per variant, the verdict, and the paths of the files."""
    from glassformer.report.metrics import study_rows

    metric_columns, rows = study_rows(results)
    epoch_times = [duration(arm["cost"]["seconds_per_epoch"]) for arm in results["arms"]]
    epoch_times += [EMPTY_CELL] * len(results["baselines"])
    rows = [[*row, time] for row, time in zip(rows, epoch_times, strict=True)]
    columns = ("variant", *metric_columns, "time per epoch")
    print_message("")
    num_seeds = len(results["seeds"])
    seeds = f"{num_seeds} seeds" if num_seeds > 1 else "one seed"
    title = f"{results['name']}: {results['n']:,} {results['judged']} examples, {seeds}"
    show_table(title, columns, rows, right=columns[1:])
    print_message(results["verdict"])
    for name, sentence in results["sentences"].items():
        print_message(f"{name}: {sentence}")
    if folder is None:
        print_message("to write a report and tables: --out DIR")
        return
    print_message(f"tables: {folder / 'results.csv'}, {folder / 'results.md'}")
    print_message(f"report: {folder / 'report.html'}")


STUDY_OR_RUNS: Any = argument(
    "STUDY|RUN...",
    f"A study (a .toml file, or one of: {', '.join(study_names())}; 'ladder': augmentation of increasing "
    "strength), or two or more finished run folders.",
    autocompletion=cli.complete_studies,
)
TEXT: Any = option("FILE", "Labeled texts to compare models on.", panel=cli.DATA)
IMAGES: Any = option("FOLDER", "Labeled images to compare models on.", panel=cli.DATA)
MODELS: Any = option("NAME...", "With --text or --images: two or more models.")
SEEDS: Any = option("N", "With --text or --images: trainings per model.", default=1)
SETTINGS: Any = option("KEY=VALUE", "Set a recipe key in every compared recipe; may be repeated.", "--set")
OUT: Any = option("DIR", "Output folder of the study.", show_default="runs/NAME")
WORKERS: Any = option(
    "N", "Number of runs to train in parallel, one process per run; 0: all in this process.", default=1
)
SPLIT: Any = option(
    "validation|test",
    "Split to evaluate on. Use test only for a final report, not to choose a model.",
    show_default="as in the study; else validation",
)
MEASURE: Any = option(
    "NAME",
    "Metric: accuracy, macro_f1; for tags entity_f1; for regression r2, pearson, spearman, "
    "mae; for similarity spearman, pearson.",
    show_default="the metric used for model selection",
)
ENGINE: Any = option(
    "NAME", "Where the runs are computed: serial (this machine) or ray (a cluster).", default="serial"
)


@cli.with_columns(*cli.LABELED_COLUMNS)
def compare_command(
    study: list[str] | None = STUDY_OR_RUNS,
    text: str | None = TEXT,
    images: str | None = IMAGES,
    model: list[str] | None = MODELS,
    seeds: int = SEEDS,
    settings: list[str] | None = SETTINGS,
    on_bad_row: str | None = cli.BAD_ROW,
    split: str | None = SPLIT,
    measure: str | None = MEASURE,
    out: Path | None = OUT,
    workers: int = WORKERS,
    engine: str = ENGINE,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Compare recipes, models or runs on the same examples with paired tests. Resumes unfinished studies."""
    check_engine(engine)
    evaluation: dict[str, Any] = {"split": split, "measure": measure}
    suffix = "-test" if split == "test" else ""  # each split has a separate folder
    arguments = list(study or ())
    bad_row_key = "broken" if images else "on_bad_row"
    bad_row_settings = cli.as_settings(**{bad_row_key: cli.check_bad_row(on_bad_row)})
    settings = [*bad_row_settings, *cli.column_settings(columns), *(settings or ())]
    if text or images:
        if text and images:
            raise errors.ConflictError(
                "both --text and --images are given", where="compare", fix="Give one of them"
            )
        folder = out or cli.default_folder(Path(text or images or "").stem, f"-models{suffix}")
        models, overrides = [*(model or ()), *arguments], {}
        loaded = models_study(models, folder, text=text, images=images, settings=settings, seeds=seeds)
    elif len(arguments) != 1 or (Path(arguments[0]) / "config.toml").is_file():
        _check_finished_arguments(arguments, settings, model)
        results = compare_finished(arguments, out, **evaluation)
        show_study(results, out)
        if json:
            print_json({"folder": out, **results})
        return
    else:
        if data_option := cli.guess_data_option(arguments[0]):
            fix = (
                f"To compare models on it: glassformer compare {data_option} {arguments[0]} --model NAME NAME"
            )
            raise errors.WrongArgumentError(f"{arguments[0]} is data, not a study", where="compare", fix=fix)
        loaded, overrides = load_study(arguments[0]), parse_settings(settings)
        folder = out or cli.default_folder(loaded.name, suffix if split != loaded.split else "")
    from glassformer.study.compare import compare

    options: dict[str, Any] = {"workers": workers, "log": print_message, "progress": True, "engine": engine}
    results = compare(loaded, folder, settings=overrides, **options, **evaluation)
    show_study(results, folder)
    if json:
        print_json({"folder": folder, **results})
    for title, reason in list(results["failed"].items())[:1]:
        what = f"{len(results['failed'])} of the runs failed, such as {title}: {reason}"
        raise errors.GlassformerError(f"{what}. Run the same command again to retry them")


def _check_finished_arguments(
    arguments: Sequence[str], settings: Sequence[str] | None, model: Sequence[str] | None
) -> None:
    """Raise ConfigError if no runs are named, or for options that have no effect on finished runs."""
    if not arguments:
        fix = "Name a study or two run folders, or give --text FILE --model NAME NAME"
        raise errors.NothingGivenError("there is nothing to compare", where="compare", fix=fix)
    for name, value in {"--set": settings, "--model": model}.items():
        if value:
            raise errors.ConfigError("has no effect on finished runs", where=name, fix="Leave it out")
