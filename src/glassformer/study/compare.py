"""A whole study: run what is missing, collect what is there, write results, report. May be called again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import disk_errors
from glassformer.checkpoints.locks import holds_nothing, writing
from glassformer.errors import ConfigError
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Comparison
from glassformer.report.study import write_study_report
from glassformer.study.arms import Job, Say, jobs_of, run_jobs, silent
from glassformer.study.grid import Arm, Study, check_split, expand
from glassformer.study.results import collect, write_results


def compare(
    study: Study,
    folder: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    workers: int = 1,
    engine: str = "serial",
    say: Say = silent,
    progress: bool = False,
    split: str | None = None,
    measure: str | None = None,
) -> dict[str, Any]:
    """Run every arm with every seed that is not finished yet, and write what came out.

    Args:
        folder: of the study; what is finished there is kept.
        settings: key -> value, laid over every arm.
        workers: processes at a time, 0: all in this one. engine, say: see ``run_jobs``.
        split: ``validation`` or ``test``, that the arms are judged on; None: as the study says.
        measure: that they are compared by; None: what their recipes choose their best weights by.

    Returns:
        The results, as in results.json; ``failed`` names the runs that did not end, with the reason.

    Raises:
        InputError: whatever is wrong with the study, its recipes or the data; another process runs it there.
        Interrupted: on a signal, with everything saved.
    """
    folder = check_study_folder(folder)
    if workers < 0:
        raise ConfigError(
            f"{workers} processes", where="workers", fix="Use 1 or more, or 0 for none of their own"
        )
    study = replace(study, set=study.set | dict(settings or {}), split=check_split(split) or study.split)
    arms = expand(study)
    with writing(folder):
        jobs = jobs_of(study, arms, folder)
        failed = _run(study, arms, jobs, folder, workers, engine, say, progress)
        results = collect(study, arms, jobs, failed, measure)
        write_results(folder, study, results)
        write_study_report(folder)
        return Comparison(results)


def check_study_folder(folder: str | Path) -> Path:
    """Raises ConfigError where no study can be begun, or gone on with."""
    folder = Path(folder)
    check_folder_path(folder)
    if folder.is_dir() and not holds_nothing(folder) and not (folder / "arms").is_dir():
        raise ConfigError("exists and is no study of ours", where=str(folder), fix="Choose another --out")
    return folder


def _run(
    study: Study,
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    engine: str,
    say: Say,
    progress: bool,
) -> dict[str, str]:
    """Run what is missing; the reason of each run that failed."""
    with disk_errors(folder):
        (folder / "arms").mkdir(parents=True, exist_ok=True)
    say(f"{study.name}: {len(arms)} arms, {len(study.seeds)} seeds, {len(jobs)} runs in {folder}")
    return run_jobs(jobs, workers=workers, say=say, progress=progress, engine=engine)
