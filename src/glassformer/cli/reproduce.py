"""``glassformer reproduce``.

It runs the recipes of published systems, and compares their results with the published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.catalog import CATALOG
from glassformer.cli.options import RUNS, SETTINGS, argument, flag, option
from glassformer.cli.output import AS_JSON, output_stream, print_json, print_message, run_as_dict, show_table
from glassformer.errors import BadValueError, CheckpointError, ConflictError, OutputPathError
from glassformer.outputs import write_text
from glassformer.report import published
from glassformer.report.published import Row
from glassformer.study.grid import load_study
from glassformer.tasks.catalog import load_recipe, recipe_names

RESULTS = Path("benchmarks") / "results"


def _from_hub(model: str | None) -> bool:
    """Whether a model's weights are only available from the Hub."""
    return model in CATALOG and CATALOG[model].package is None


def substitute_commands(row: Row) -> list[str]:
    """Commands for similar models that need no weights from the Hub."""
    studies = [name for name in row.studies if not _from_hub(load_study(name).set.get("model"))]
    if studies:
        return [f"glassformer compare {name}" for name in studies]
    recipes = {
        name: load_recipe(name)
        for name in row.recipes
        if name not in row.original_recipes and f"{name}-given" not in row.original_recipes
    }
    models = {name: getattr(recipe, "model", None) for name, recipe in recipes.items()}
    return [
        f"glassformer train {name}"
        for name, model in models.items()
        if not _from_hub(getattr(model, "model", None))
    ]


def find_results(name: str) -> published.RecipeResults | None:
    """The results of a recipe, read from result files and run folders in the working directory."""
    return published.read_recipe_results(name, RESULTS, RUNS)


def show_rows() -> list[dict[str, Any]]:
    """Print each published system with its result and ours; returns the same for JSON."""
    table_rows: list[list[object]] = []
    json_rows: list[dict[str, Any]] = []
    for row in published.published_rows():
        details = ", ".join(filter(None, (row.data, row.hours)))
        table_rows.append([row.number, f"{row.system} ({details})", f"published: {row.published}"])
        reached = {}
        for name in row.recipes:
            result = find_results(name)
            reached[name] = result.score if result else load_recipe(name).expect
            table_rows.append(["", name, reached[name]])
        facts = {"row": row.number, "system": row.system, "data": row.data, "published": row.published}
        json_rows.append({**facts, "reached": reached, "requirement": row.requirement})
        if not row.recipes:
            table_rows.append(["", "", row.requirement])
    show_table("published systems", ("row", "system and recipes", "reached"), table_rows)
    return json_rows


def write_page(path: Path) -> None:
    """Write the table as Markdown, and a page per system to a folder with the same name."""
    if path.suffix != ".md" or not path.parent.is_dir():
        what = "the table is written as Markdown to an existing folder"
        raise BadValueError(what, where=str(path), fix="Use a name such as results.md")
    folder = path.with_suffix("")
    is_broken_link = path.is_symlink() and not path.exists()
    if path.is_dir() or is_broken_link or (folder.exists() and not folder.is_dir()):
        what = "is not a path that a file can be written to"
        raise OutputPathError(what, where=str(path), fix="Choose another --out")
    recipe_files = recipe_names()
    texts = published.pages(
        find_results,
        lambda name: published.read_study_result(name, RESULTS),
        published.runs_on_random_weights(RESULTS),
        lambda name: recipe_files[name].read_text(encoding="utf-8").strip(),
        path.stem,
        lambda name: published.read_finding(name, RESULTS),
    )
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_text(path.parent / name, text)
    print_message(f"table: {path}, pages of the systems: {folder}")


def reproduce_command(
    row: str | None = argument("ROW", "Row number in the table of published results (--table lists them)."),
    table: bool = flag("--table", "List published results and ours; run nothing."),
    settings: list[str] | None = SETTINGS,
    out: Path | None = option(
        "DIR",
        "Run folder, or the parent folder if the model has several recipes; unfinished runs there are "
        "resumed. With --table: output file (.md); a folder of the same name gets a page per model.",
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
            print_json({"rows": rows, "out": out})
        return
    result = run_row(published.find_row(row), settings or (), out, check_it)
    if json:
        print_json(result)


def run_row(
    row: Row, settings: Sequence[str] = (), out: Path | None = None, with_verdict: bool = False
) -> dict[str, Any]:
    """Run the recipes of a system. Unfinished runs are resumed, and finished runs are not repeated.

    ``with_verdict``: print whether each result agrees with the published one.
    """
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import Progress

    recipes = {name: load_recipe(name, settings) for name in row.original_recipes}
    print_message(
        f"row {row.number}, {row.system} on {row.data}: {', '.join(recipes)}; about {row.hours} on two cores"
    )
    if with_verdict:
        for recipe in recipes.values():
            check_weights(recipe, row)
    reached, reports, verdicts, runs = [], [], [], {}
    for name, recipe in recipes.items():
        check_weights(recipe, row)
        folder = RUNS / name if out is None else out / name if len(recipes) > 1 else out
        resume = (folder / "config.toml").is_file()
        if len(recipes) > 1:
            print_message(f"== {name}")
        run = run_task(
            recipe, folder, resume=resume, log=print_message, callbacks=[Progress(output_stream())]
        )
        score = published.headline(run.metrics, name)
        score_text = score[1].format(score[0]) if score else "see the report"
        reached.append(f"{name} {score_text}" if len(recipes) > 1 else score_text)
        reports.append(str(run.report))
        runs[name] = {"reached": score_text, **run_as_dict(run)}
        verdicts += [f"{name}: {line}" for line in published.check(run.metrics, row.accuracies.get(name))]
    print_message(f"row {row.number}, {row.system} on {row.data}")
    print_message(f"published: {row.published}")
    print_message(f"here: {', '.join(reached)}" + (", with your own settings" if settings else ""))
    if with_verdict and settings:
        print_message("no verdict: the row was run with your own settings")
    verdicts = verdicts if with_verdict and not settings else []
    print_message(*verdicts)
    print_message(f"report: {', '.join(reports)}")
    facts = {"row": row.number, "system": row.system, "published": row.published}
    return facts | {"runs": runs, "verdicts": verdicts}


def check_weights(recipe: Any, row: Row) -> None:
    """Raise CheckpointError if the weights of a recipe are not available; suggests similar models."""
    from glassformer.checkpoints.hub import fetch_if_checkpoint

    try:
        fetch_if_checkpoint(recipe)
    except CheckpointError as error:
        substitutes = " or ".join(substitute_commands(row))
        fix = f"{error.fix}; or run a similar model: {substitutes}" if substitutes else error.fix
        raise error.replace(what=f"{recipe.name}: {error.what}", fix=fix) from None
