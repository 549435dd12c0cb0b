"""Comparison of a study's variants, and of finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import disk_errors
from glassformer.checkpoints.locks import is_empty_folder, write_lock
from glassformer.errors import BadValueError, ConfigError, ExistsError, NothingGivenError
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Comparison
from glassformer.report.study import write_study_report
from glassformer.study.arms import Job, Log, plan_jobs, run_jobs, silent
from glassformer.study.grid import Study, check_split, expand
from glassformer.study.results import (
    Runs,
    collect,
    compare_results,
    read_evaluated_split,
    read_run_predictions,
    write_results,
)
from glassformer.targets.target import RunPredictions
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run import read_run_recipe, relevant_settings


def compare(
    study: Study,
    folder: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    workers: int = 1,
    engine: str = "serial",
    log: Log = silent,
    progress: bool = False,
    split: str | None = None,
    measure: str | None = None,
) -> dict[str, Any]:
    """Run all unfinished jobs of a study (a variant with a seed), and write its results and report.

    Args:
        folder: the study's folder.
        settings: settings of every variant, which override those of the study.
        workers, engine, log: see ``run_jobs``.
        split: ``validation`` or ``test``, the split to evaluate on; None: the study's.
        measure: the metric to compare; None: the one that selects the best weights in the recipes.

    Returns:
        The content of results.json; ``failed`` has the error message of each failed run.

    Raises:
        InputError: the study, its recipes or the data are invalid, or another process runs it in this folder.
        Interrupted: the process received a signal; the state is saved.
    """
    folder = check_study_folder(folder)
    if workers < 0:
        raise BadValueError(f"{workers} processes", where="workers", fix="Use 1 or more, or 0 for none")
    study = replace(study, set=study.set | dict(settings or {}), split=check_split(split) or study.split)
    arms = expand(study)
    with write_lock(folder):
        jobs = plan_jobs(study, arms, folder)
        with disk_errors(folder):
            (folder / "arms").mkdir(parents=True, exist_ok=True)
        log(f"{study.name}: {len(arms)} variants, {len(study.seeds)} seeds, {len(jobs)} runs in {folder}")
        failed = run_jobs(jobs, workers=workers, log=log, progress=progress, engine=engine)
        results = collect(study, arms, jobs, failed, measure)
        write_results(folder, study, results)
        write_study_report(folder)
        return Comparison(results)


def check_study_folder(folder: str | Path) -> Path:
    """Return ``folder`` as a path; raise ConfigError if a study cannot be started or resumed there."""
    folder = Path(folder)
    check_folder_path(folder)
    if folder.is_dir() and not is_empty_folder(folder) and not (folder / "arms").is_dir():
        what = "exists and is not the folder of a study"
        raise ExistsError(what, where=str(folder), fix="Choose another --out")
    return folder


# --- comparing finished runs ----------------------------------------------------------------------


def compare_runs(
    folders: Sequence[str | Path],
    *,
    bootstrap: int = 2000,
    split: str | None = None,
    measure: str | None = None,
) -> dict[str, Any]:
    """Compare finished runs. Runs that differ only in the seed form one variant.

    Args:
        folders: two or more run folders; the variant of the first is the baseline.
        bootstrap: number of resamples for intervals and tests.
        split: the split on which all runs must have been evaluated; None: any.
        measure: the metric to compare; None: the one that selects the best weights in the recipes.

    Returns:
        The content of ``results.json``; the name of a variant is its first folder.

    Raises:
        ConfigError: fewer than two runs, a duplicate run, only one recipe, different examples, a run that was
            not evaluated on ``split``, or no such metric.
        DataError: a folder without labeled predictions.
    """
    check_split(split)
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < len(paths) or len(paths) < 2:
        what = "the same run is named twice" if len(paths) > 1 else "only one run is named"
        raise NothingGivenError(what, where="compare", fix="Name two or more finished runs")
    runs = _group_by_arm(paths)
    for path in paths if split else ():
        if (run_split := read_evaluated_split(path)) not in ("", split):
            what = f"was evaluated on {run_split}, not on {split}"
            fix = "Compare their recipes as variants of a study"
            raise ConfigError(what, where=path.as_posix(), fix=fix)
    if len(runs) < 2:
        what = "all runs are of the same recipe with different seeds, so there is nothing to compare"
        raise NothingGivenError(what, where="compare", fix="Name a run of another recipe too")
    names = list(runs)
    seeds = {seed for finished in runs.values() for seed in finished}
    max_seeds = max(len(finished) for finished in runs.values())
    study = Study(
        name=" and ".join(names) if len(names) == 2 else f"{names[0]} and {len(names) - 1} others",
        split="judged",
        seeds=tuple(sorted(seeds)) if max_seeds > 1 else (0,),
        baseline=names[0],
        bootstrap=bootstrap,
    )
    nouns = {str(path): TASKS[read_run_recipe(path).task].estimator.NOUN for path in paths}
    if len(set(nouns.values())) > 1:
        what = " and ".join(f"{path} reads {noun}" for path, noun in nouns.items())
        raise ConfigError(what, where="compare", fix="Compare runs that read the same kind of input")
    fix = (
        "Train them on the same data with the same split, or evaluate each on one labeled file that none was "
        "trained on: glassformer evaluate RUN --data FILE"
    )
    return Comparison(compare_results(runs, study, fix, measure))


def _group_by_arm(paths: Sequence[Path]) -> Runs:
    """The runs by variant and seed; a variant consists of the runs that differ only in the seed."""
    runs: dict[str, dict[int, tuple[Job, RunPredictions]]] = {}
    names: dict[str, str] = {}  # settings without the seed -> name of the variant
    for path in paths:
        recipe, predictions = read_run_recipe(path), read_run_predictions(path)
        values = relevant_settings(recipe)
        train = {k: v for k, v in values.get("train", {}).items() if k != "seed"}
        evaluate = {k: v for k, v in values.get("evaluate", {}).items() if k != "baselines"}
        key = repr(values | {"name": "", "train": train, "evaluate": evaluate})
        seed = recipe.train.seed
        name = names.setdefault(key, path.as_posix())
        if seed in runs.get(name, {}):  # a second run with the same recipe and seed
            name = path.as_posix()
        runs.setdefault(name, {})[seed] = Job(name, seed, recipe, path, in_study=False), predictions
    return runs
