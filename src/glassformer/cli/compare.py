"""``glassformer compare``: a study's arms, each with every seed, on the same examples, with
tests and cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.output import say, show_table
from glassformer.cli.places import default_folder
from glassformer.config import parse_settings
from glassformer.errors import GlassformerError
from glassformer.tasks.recipe import study_names


def show_study(results: dict[str, Any], folder: Path) -> None:
    """A study on the terminal: a row an arm, the verdict, a sentence each, and where it lies."""
    from glassformer.report.wording import NONE, digits_for, duration, p_value, percent
    from glassformer.study.verdict import signed

    digits = digits_for(results["n"])
    columns = ("arm", "accuracy", "SD", "points from baseline", "p (Holm)", "an epoch")
    rows = []
    for arm in results["arms"]:
        accuracy = arm["accuracy"]
        sd = NONE if accuracy["sd"] is None else f"{100 * accuracy['sd']:.2f}"
        apart, p = signed(accuracy, digits), p_value(arm.get("p_holm"))
        epoch = duration(arm["cost"]["seconds_per_epoch"])
        rows.append([arm["name"], percent(accuracy["mean"], digits), sd, apart, p, epoch])
    for name, figures in results["baselines"].items():
        rows.append([name, percent(figures["accuracy"], digits), *[NONE] * 4])
    say()
    title = f"{results['name']}: {results['n']:,} {results['judged']} examples, {len(results['seeds'])} seeds"
    show_table(title, columns, rows, right=columns[1:])
    say(results["verdict"])
    for name, sentence in results["sentences"].items():
        say(f"{name}: {sentence}")
    say(f"tables: {folder / 'results.csv'}, {folder / 'results.md'}")
    say(f"report: {folder / 'report.html'}")


def compare_command(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help=f"A TOML file or one of: {', '.join(study_names())}.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change any key in every arm; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The study's folder.", show_default="runs/NAME")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(metavar="N", help="Runs at a time, each in a process of its own; 0: all in this one."),
    ] = 1,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="serial, or ray: each run a task on a cluster.")
    ] = "serial",
) -> None:
    """Compare recipes fairly: same examples, several seeds, paired tests. Resumes what is not finished."""
    from glassformer.scale.engines import check_engine
    from glassformer.study.compare import compare
    from glassformer.study.grid import load_study

    check_engine(engine)
    asked = load_study(study)
    folder = out or default_folder(asked.name)
    results = compare(
        asked,
        folder,
        settings=parse_settings(settings or ()),
        workers=workers,
        say=say,
        progress=True,
        engine=engine,
    )
    show_study(results, folder)
    if results["failed"]:
        title, reason = next(iter(results["failed"].items()))
        raise GlassformerError(
            f"{len(results['failed'])} of the runs failed, such as {title}: {reason}. Try again with the "
            "same command"
        )
