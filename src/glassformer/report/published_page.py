"""Markdown pages that compare our results with published ones.

There is an overview table, one page per published system, and a page of dry runs, which are runs on random
weights.
"""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glassformer.report.charts import curves, learning_curves
from glassformer.report.published import (
    RecipeResults,
    Row,
    duration,
    headline,
    machine_name,
    published_rows,
    shared_gpu_note,
)

TEMPLATES = Path(__file__).parent / "templates"
MIN_SEEDS = 3  # with fewer seeds, the table shows their number
SCORES = {"macro_f1": "Macro-F1", "log_loss": "Log loss"}  # other metrics of the evaluated split

ReadResults = Callable[[str], RecipeResults | None]
ReadStudy = Callable[[str], str | None]
ReadFinding = Callable[[str], dict[str, Any] | None]


def pages(
    read_results: ReadResults,
    read_study: ReadStudy = lambda name: None,
    dry_runs: Mapping[str, Any] | None = None,
    settings: Callable[[str], str] = lambda name: "",
    stem: str = "results",
    read_finding: ReadFinding = lambda name: None,
) -> dict[str, str]:
    """The content of every page and chart by its path: ``STEM.md`` is the table, the rest is in ``STEM/``.

    Args:
        read_results, read_study, read_finding: name -> result, or None if it was not measured.
        dry_runs: recipe -> its run on random weights, if there is one.
        settings: recipe -> text of its file.
    """
    dry_runs, templates = dry_runs or {}, _templates()
    rendered = {f"{stem}.md": page(read_results, read_study, dry_runs, stem)}
    for row in published_rows():
        results = {name: r for name in row.recipes if (r := read_results(name)) is not None}
        findings = {name: read_finding(name) for name in row.findings}
        charts = {name: chart for name, r in results.items() if (chart := recipe_chart(r))}
        charts |= {name: finding_chart(f) for name, f in findings.items() if f is not None and f.get("curve")}
        texts = {name: settings(name) for name in row.recipes}
        rendered[f"{stem}/row-{row.number:02d}.md"] = templates.get_template("published_row.md.j2").render(
            row=row,
            results=results,
            dry_runs=dry_runs,
            charts=charts,
            has_range=any("(" in r.score for r in results.values()),
            settings=texts,
            sources=differing_sources(texts),
            studies={name: read_study(name) for name in row.studies},
            findings=findings,
            script=finding_script,
            machine=machine_name,
            seeds=seed_rows,
            epochs=epoch_rows,
            baselines=baseline_accuracies,
            role=recipe_role,
            stem=stem,
        )
        rendered |= {f"{stem}/{name}.svg": chart for name, chart in charts.items()}
    if dry_runs:
        runs = [(row, dry_runs[name]) for row in published_rows() for name in row.recipes if name in dry_runs]
        rendered[f"{stem}/in-form.md"] = templates.get_template("published_form.md.j2").render(
            runs=runs,
            duration=duration,
            machine=machine_name,
            substituted=substituted_architectures(dry_runs, settings),
        )
    return rendered


def page(
    read_results: ReadResults,
    read_study: ReadStudy = lambda name: None,
    dry_runs: Mapping[str, Any] | None = None,
    stem: str = "results",
) -> str:
    """The table of all rows; arguments as in ``pages``."""
    rows = published_rows()
    results = {name: read_results(name) for row in rows for name in row.recipes}
    template = _templates().get_template("published.md.j2")
    return template.render(
        rows=rows,
        results=results,
        dry_runs=dry_runs or {},
        original=lambda row: _cell(row.original_recipes, results) if row.recipes else "–",
        ours=lambda row: _ours(row, results, read_study),
        baseline=lambda row: _best_baseline(results[row.best]) if row.best else "",
        stem=stem,
    )


def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _cell(names: Sequence[str], results: Mapping[str, RecipeResults | None]) -> str:
    """The results of some recipes for the table, labeled by the differing parts of their names."""
    if not any(results[name] for name in names):
        return "not measured"
    means = [_mean(results[name]) for name in names]
    if len(names) == 1:
        return means[0]
    return "<br>".join(f"{name}: {mean}" for name, mean in zip(_short_names(names), means, strict=True))


def _mean(result: RecipeResults | None) -> str:
    """A recipe's mean, with the number of seeds if there are few."""
    if result is None:
        return "not measured"
    few_seeds = f" ({result.seeds} seed{'s' * (result.seeds > 1)})" if result.seeds < MIN_SEEDS else ""
    return result.mean + few_seeds


def _best_baseline(result: RecipeResults | None) -> str:
    """The best baseline of a recipe, as the end of a note; empty without baselines."""
    accuracies = {
        n: b["accuracy"] for n, b in (_baselines(result) if result else {}).items() if "accuracy" in b
    }
    if not accuracies:
        return ""
    best = max(accuracies, key=lambda name: (accuracies[name], name))
    return f"; plain: {best} {accuracies[best]:.2%}"


def _ours(row: Row, results: Mapping[str, RecipeResults | None], read_study: ReadStudy) -> str:
    """Our best result for a row: of a recipe, or the ranges of its studies."""
    if row.best:
        return _cell([row.best], results)
    ranges = [
        match[1] for name in row.studies if (match := re.match(r"\*\*(.*?)\*\*", read_study(name) or ""))
    ]
    if ranges:
        return f"{'study' if len(ranges) == 1 else 'studies'}: " + ", ".join(ranges)
    return "not measured" if row.recipes else "–"


def _short_names(names: Sequence[str]) -> list[str]:
    """Names without their common prefix and without the suffix ``-given``."""
    parts = [name.removesuffix("-given").split("-") for name in names]
    num_common = 0
    while all(len(p) > num_common + 1 for p in parts) and len({p[num_common] for p in parts}) == 1:
        num_common += 1
    return ["-".join(p[num_common:]) for p in parts]


def recipe_role(row: Row, name: str) -> str:
    if name in row.original_recipes:
        return "exercise's settings, our best" if name == row.best else "exercise's settings"
    return "our best" if name == row.best else "our recipe"


def differing_sources(settings: Mapping[str, str]) -> dict[str, str]:
    """The data source of each recipe; empty if all recipes of a row have the same source.

    The page names different sources, since metrics on different data are not comparable.
    """
    sources = {name: tomllib.loads(text).get("data", {}).get("source", "") for name, text in settings.items()}
    return sources if len(set(sources.values())) > 1 else {}


def substituted_architectures(dry_runs: Mapping[str, Any], settings: Callable[[str], str]) -> dict[str, str]:
    """The checkpoint of each recipe that ran with another architecture."""
    models = {name: tomllib.loads(settings(name)).get("model", {}).get("model", "") for name in dry_runs}
    return {
        name: checkpoint
        for name, checkpoint in models.items()
        if checkpoint and checkpoint != dry_runs[name]["layout"]
    }


def seed_rows(result: RecipeResults) -> list[dict[str, str]]:
    """One row per seed, as column -> cell."""
    rows = []
    for record in result.runs:
        score = headline(record, result.recipe)
        row = {"Seed": str(record.get("seed", "–")), "Score": score[1].format(score[0]) if score else "–"}
        metrics = record.get("test") or record.get("validation") or {}
        row |= {title: f"{metrics[key]:.4f}" for key, title in SCORES.items() if key in metrics}
        row |= _translation_cells((record.get("scores") or {}).get(record.get("judged", "")) or {})
        if tokens := (record.get("masked") or {}).get("masked_tokens"):
            row["Words asked"] = f"{tokens:,}"
        if seconds := record.get("seconds", {}).get("train"):
            row["Training"] = duration(seconds) + shared_gpu_note([record])
        if memory := record.get("peak_memory_mb"):
            row["Memory"] = f"{memory / 1000:.1f} GB"
        if (pairs := (record.get("masked") or {}).get("next_sentence_accuracy")) is not None:
            row["Next sentence"] = f"{pairs:.1%} of held-out pairs (chance 50%)"
        rows.append(row)
    return rows


def baseline_accuracies(result: RecipeResults) -> dict[str, str]:
    """The accuracy of each baseline in the first run."""
    return {name: f"{b['accuracy']:.2%}" for name, b in _baselines(result).items() if "accuracy" in b}


def _baselines(result: RecipeResults) -> dict[str, Any]:
    baselines: dict[str, Any] = result.runs[0].get("baselines") or {}
    return {name: b for name, b in baselines.items() if b}


def _translation_cells(searches: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """BLEU for each decoding method, and for lower-cased, tokenized text as in many papers."""
    cells = {}
    for search, scores in searches.items():
        title = "Greedy" if search == "greedy" else f"Beam of {scores.get('width', 5)}"
        cells[title] = f"{scores['bleu']:.1f} BLEU"
        if (tokenized := scores.get("bleu_tokenised")) is not None:
            cells[title] += f", tokenized {tokenized:.1f}"
    return cells


def epoch_rows(result: RecipeResults) -> list[dict[str, str]]:
    """One row per evaluated epoch, over the seeds, as column -> cell."""
    runs = [run["epochs"] for run in result.runs if run.get("epochs")]
    rows = []
    for records in zip(*runs, strict=True) if runs else ():
        accuracy = [r["accuracy"] for r in records]
        low, high = min(accuracy), max(accuracy)
        spread = f" ({low:.2%} to {high:.2%})" if low != high else ""
        losses = [r["batch_loss"] for r in records if r.get("batch_loss") is not None]
        rows.append(
            {
                "Epoch": str(records[0]["epoch"]),
                "Mean batch loss": f"{statistics.fmean(losses):.4f}" if losses else "–",
                "Test accuracy": f"{statistics.fmean(accuracy):.2%}{spread}",
            }
        )
    return rows


def finding_script(finding: str) -> str:
    """The script in ``benchmarks/quality`` that reproduces a finding, with its argument."""
    kind, _, recipe = finding.partition("-")
    return f"precision.py {recipe}" if kind == "precision" else finding.replace("-", "_") + ".py"


def finding_chart(finding: dict[str, Any]) -> str:
    first_label, last_label = finding["curve"]["ends"]
    return curves(finding["curve"]["panels"], end_labels=(first_label, last_label))


def recipe_chart(result: RecipeResults) -> str:
    """Loss and accuracy over the epochs of the first seed; empty if fewer than two were evaluated."""
    return learning_curves(result.runs[0].get("evaluations") or (), result.runs[0].get("epochs") or ())
