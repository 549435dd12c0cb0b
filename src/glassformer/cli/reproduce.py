"""``glassformer reproduce``: run the recipes of published systems and compare the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.catalog import CATALOG
from glassformer.cli.options import RUNS, SETTINGS, argument, flag, option
from glassformer.cli.output import AS_JSON, as_dict, say, say_json, show_table, stream
from glassformer.errors import BadValueError, CheckpointError, ConflictError, OutputPathError
from glassformer.outputs import write_text
from glassformer.report.published import (
    RecipeResults,
    Row,
    check,
    find_row,
    headline,
    published_rows,
    read_finding,
    read_recipe_results,
    read_study_result,
    runs_on_random_weights,
)
from glassformer.study.grid import load_study
from glassformer.tasks.catalog import load_recipe, recipe_names

RESULTS = Path("benchmarks") / "results"


def _from_hub(model: str | None) -> bool:
    """Whether a model's weights are only on the Hub, not in a package."""
    return model in CATALOG and CATALOG[model].package is None


def stand_ins(row: Row) -> list[str]:
    """Commands that run substitutes for a system, without weights from the Hub."""
    studies = [
        f"glassformer compare {n}" for n in row.studies if not _from_hub(load_study(n).set.get("model"))
    ]
    recipes = [
        n for n in row.recipes if n not in row.original_recipes and f"{n}-given" not in row.original_recipes
    ]
    recipes = [
        n for n in recipes if not _from_hub(getattr(getattr(load_recipe(n), "model", None), "model", None))
    ]
    return studies or [f"glassformer train {name}" for name in recipes]


def measure(name: str) -> RecipeResults | None:
    """The results of a recipe in result files and run folders below the current folder."""
    return read_recipe_results(name, RESULTS, RUNS)


def show_rows() -> list[dict[str, Any]]:
    """Print every system with its published result and our recipes' results; returns the same for JSON."""
    lines: list[list[object]] = []
    rows: list[dict[str, Any]] = []
    for row in published_rows():
        about = ", ".join(filter(None, (row.data, row.hours)))
        lines.append([row.number, f"{row.system} ({about})", f"published: {row.published}"])
        reached = {}
        for name in row.recipes:
            result = measure(name)
            reached[name] = result.score if result else load_recipe(name).expect
            lines.append(["", name, reached[name]])
        facts = {"row": row.number, "system": row.system, "data": row.data, "published": row.published}
        rows.append({**facts, "reached": reached, "missing": row.requirement})
        if not row.recipes:
            lines.append(["", "", row.requirement])
    show_table("published systems", ("row", "system and recipes", "reached"), lines)
    return rows


def write_page(path: Path) -> None:
    """Write the table as Markdown, and one page per system in a folder of the same name next to it."""
    from glassformer.report.published_page import pages

    if path.suffix != ".md" or not path.parent.is_dir():
        fix = "Use x.md"
        raise BadValueError("the table is a Markdown file in a folder that exists", where=str(path), fix=fix)
    folder = path.with_suffix("")
    if (
        path.is_dir()
        or (path.is_symlink() and not path.exists())
        or (folder.exists() and not folder.is_dir())
    ):
        raise OutputPathError(
            "is not a path that a file can be written to", where=str(path), fix="Choose another --out"
        )
    files = recipe_names()
    texts = pages(
        measure,
        lambda name: read_study_result(name, RESULTS),
        runs_on_random_weights(RESULTS),
        lambda name: files[name].read_text(encoding="utf-8").strip(),
        path.stem,
        lambda name: read_finding(name, RESULTS),
    )
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_text(path.parent / name, text)
    say(f"table: {path}, pages of the systems: {folder}")


def reproduce_command(
    row: str | None = argument("SYSTEM", "Number of a model from a paper (--table lists the numbers)."),
    table: bool = flag("--table", "List published results and ours; run nothing."),
    settings: list[str] | None = SETTINGS,
    out: Path | None = option(
        "DIR",
        "Run folder, or parent folder if the model has several recipes; unfinished runs there are "
        "resumed. With --table: output file (.md); pages of the models go into a folder named like the file.",
        show_default="runs/NAME",
    ),
    check_it: bool = flag(
        "--check", "Report whether each metric agrees with the published one (needs the original weights)."
    ),
    json: bool = AS_JSON,
) -> None:
    """Run the recipes of a model from a paper, and compare their results with the published ones."""
    if table or row is None:
        if row is not None or settings or check_it:
            raise ConflictError("--table runs nothing", where="reproduce", fix="Give a ROW, or --table alone")
        rows = show_rows()
        if out is not None:
            write_page(out)
        if json:
            say_json({"rows": rows, "out": out})
        return
    result = run_row(find_row(row), settings or (), out, check_it)
    if json:
        say_json(result)


def run_row(
    row: Row, settings: Sequence[str] = (), out: Path | None = None, verdict: bool = False
) -> dict[str, Any]:
    """Run the recipes of a system one after the other; unfinished runs are resumed, finished ones kept."""
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import Progress

    # report a wrong key before hours of training
    recipes = {name: load_recipe(name, settings) for name in row.original_recipes}
    say(f"row {row.number}, {row.system} on {row.data}: {', '.join(recipes)}; about {row.hours} on two cores")
    if verdict:
        for recipe in recipes.values():
            check_weights(recipe, row)
    reached, reports, verdicts, runs = [], [], [], {}
    for name, recipe in recipes.items():
        check_weights(recipe, row)
        folder = RUNS / name if out is None else out / name if len(recipes) > 1 else out
        has_started = (folder / "config.toml").is_file()
        if len(recipes) > 1:
            say(f"== {name}")
        run = run_task(recipe, folder, resume=has_started, log=say, callbacks=[Progress(stream())])
        score = headline(run.metrics, name)
        score_text = score[1].format(score[0]) if score else "see the report"
        reached.append(f"{name} {score_text}" if len(recipes) > 1 else score_text)
        reports.append(str(run.report))
        runs[name] = {"reached": score_text, **as_dict(run)}
        verdicts += [f"{name}: {line}" for line in check(run.metrics, row.accuracies.get(name))]
    say(f"row {row.number}, {row.system} on {row.data}")
    say(f"published: {row.published}")
    say(f"here: {', '.join(reached)}" + (", with your own settings" if settings else ""))
    if verdict and settings:
        say("no verdict: the row was run with your own settings")
    for line in verdicts if verdict and not settings else ():
        say(line)
    say(f"report: {', '.join(reports)}")
    return {
        "row": row.number,
        "system": row.system,
        "published": row.published,
        "runs": runs,
        "verdicts": verdicts if verdict and not settings else [],
    }


def check_weights(recipe: Any, row: Row) -> None:
    """Raise CheckpointError if a recipe's weights are not available; the message names substitutes."""
    from glassformer.checkpoints.hub import fetch_if_checkpoint

    try:
        fetch_if_checkpoint(recipe)
    except CheckpointError as error:
        substitutes = " or ".join(stand_ins(row))
        fix = f"{error.fix}; in its place: {substitutes}" if substitutes else error.fix
        raise error.but(what=f"{recipe.name}: {error.what}", fix=fix) from None
