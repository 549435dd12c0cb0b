"""``glassformer report``: write the page of a run, a study, a cross-validation or a label review anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from glassformer.cli.options import a_run
from glassformer.cli.output import AsJson, say, say_json
from glassformer.errors import ConfigError


def report(folder: str | Path) -> list[Path]:
    """The pages that the folder has the figures for, written anew from its files.

    Raises:
        ConfigError: there is nothing to report.
        DataError: a damaged file, which is named.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(
            "no such folder", where=str(folder), fix="Name the --out of train, compare or cross-validate"
        )
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
        fix = "Is it a run, and did it end?"
        raise ConfigError(f"nothing to report: none of {', '.join(kinds)}", where=str(folder), fix=fix)
    return pages


def _write_run_page(folder: Path) -> Path:
    """The page that a run of this task gets."""
    from glassformer.tasks.catalog import known_recipe, task_of

    return task_of(folder).render_report(folder, known_recipe(folder))


def report_command(
    folder: Annotated[
        Path, a_run("Folder of a run, a study, a cross-validation or a label review.", "RUN|STUDY")
    ],
    json: AsJson = False,
) -> None:
    """Write report.html again, from the files of a run, a study, a cross-validation or a label review."""
    pages = report(folder)
    for page in pages:
        say(f"report: {page}")
    if json:
        say_json({"pages": pages})
