"""``glassformer reproduce``: the published systems, the recipes that stand for them, and what they reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.output import say, show_table
from glassformer.cli.places import RUNS
from glassformer.errors import ConfigError, InputError
from glassformer.recipe import load_recipe
from glassformer.study.published import (
    ROWS,
    Measured,
    find_row,
    headline,
    in_form,
    measured,
    measured_study,
    recipes_of,
)

RESULTS = Path("benchmarks") / "results"


def measure(name: str) -> Measured | None:
    """What the result files and run folders below the current folder say about a recipe."""
    return measured(name, RESULTS, RUNS)


def show_rows() -> None:
    """Every row with its published result and what our recipes reach."""
    lines = []
    for row in ROWS:
        for i, name in enumerate(recipes_of(row) or [""]):
            found = measure(name) if name else None
            known = found.score if found else load_recipe(name).expect if name else row.missing
            told = [row.number, row.system, row.data, row.published] if i == 0 else [""] * 4
            lines.append([*told, name, known])
    show_table("published systems", ("row", "system", "data", "published", "recipe", "reached"), lines)


def write_page(path: Path) -> None:
    """The table as Markdown.

    Raises:
        InputError: no such folder.
    """
    from glassformer.study.published_page import page

    if path.suffix != ".md" or not path.parent.is_dir():
        raise InputError(
            "the table is a Markdown file in a folder that exists", where=str(path), fix="Use x.md"
        )
    text = page(measure, lambda name: measured_study(name, RESULTS), in_form(RESULTS))
    path.write_text(text, encoding="utf-8")
    say(f"table: {path}")


def reproduce_command(
    row: Annotated[
        str | None, typer.Argument(metavar="ROW", help="The number of a published system.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="List all rows, published results and ours; run nothing.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change any key of the recipe; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The run folder; what was begun there goes on. With --table: the .md file that is written.",
            show_default="runs/NAME",
        ),
    ] = None,
) -> None:
    """Run the recipe that stands for a published system, and put its result beside the published one."""
    if table or row is None:
        if row is not None or settings:
            raise ConfigError("--table runs nothing", where="reproduce", fix="Give a ROW, or --table alone")
        show_rows()
        if out is not None:
            write_page(out)
        return
    from glassformer.study.tasks import run_task
    from glassformer.train.callbacks import Progress

    chosen = find_row(row)
    name = recipes_of(chosen)[0]
    recipe = load_recipe(name, settings or ())
    folder = out or RUNS / name
    begun = (folder / "config.toml").is_file()
    run = run_task(recipe, folder, resume=begun, say=say, callbacks=[Progress(sys.stdout)])
    score = headline(run.metrics)
    found = score[1].format(score[0]) if score else "see the report"
    say(f"row {chosen.number}, {chosen.system} on {chosen.data}")
    say(f"published: {chosen.published}")
    say(f"here: {found}" + (", with settings of your own" if settings else ""))
    say(f"report: {run.report}")
