"""Published systems, their recipes, our results, and Markdown pages that compare them.

There is an overview table, one page per published system, and a page about runs with random weights.
"""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.config import build
from glassformer.errors import ConfigError, NoSuchRecipeError
from glassformer.report.charts import curves, learning_curves

STUDIES = "[Studies, measured](studies.md)"  # GitHub shows a link without a text as blank
TABLE = Path(__file__).parents[1] / "recipes" / "published.json"


@dataclass(frozen=True)
class Row:
    """One published system: a row of ``recipes/published.json``."""

    number: int
    system: str
    data: str
    published: str
    # Recipes with the settings of the publication; ``reproduce`` runs them in turn.
    original_recipes: tuple[str, ...] = ()
    best: str = ""  # our recipe with the best result on the same task
    other_recipes: tuple[str, ...] = ()  # our other recipes
    hours: str = ""  # training time of all ``original_recipes`` on two cores; an estimate until measured
    requirement: str = ""  # data or weights that are not available everywhere
    note: str = ""  # for the table
    studies: tuple[str, ...] = ()  # names of studies of the same question with available data
    findings: tuple[str, ...] = ()  # names of result files about the same question
    gallery_heading: str = ""  # heading of its images in the gallery
    accuracies: dict = field(default_factory=dict)  # recipe -> published accuracy, or one per epoch

    @property
    def recipes(self) -> tuple[str, ...]:
        """All recipes of the row, without repetition."""
        best = [self.best] if self.best else []
        return tuple(dict.fromkeys((*self.original_recipes, *best, *self.other_recipes)))


@cache
def published_rows() -> tuple[Row, ...]:
    """The rows of ``recipes/published.json``, in their order."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    return tuple(build(Row, row, TABLE.name) for row in rows)


def find_row(text: str) -> Row:
    """The row with the number ``text``.

    Raises:
        ConfigError: there is no such row, or it has no recipe.
    """
    rows = published_rows()
    row = next((row for row in rows if str(row.number) == text.strip()), None)
    if row is None:
        fix = f"Give a number from 1 to {len(rows)}; 'glassformer reproduce --table' lists them"
        raise NoSuchRecipeError(f"there is no system {text!r}", where="reproduce", fix=fix)
    if not row.recipes:
        what = f"row {row.number} ({row.system}) has no recipe"
        raise ConfigError(what, where="reproduce", fix=row.requirement)
    return row


SIGNIFICANCE_LEVEL = 0.05  # for corrected p-values
SEED_DIFFERENCE = 0.005  # typical difference in accuracy between two fine-tunings with other seeds


def check(metrics: dict[str, Any], published: float | Sequence[float] | None) -> list[str]:
    """Lines that compare a run's accuracy with the published one: one line, or one per epoch.

    Two accuracies agree if their difference is at most 1.96 times its standard error plus
    ``SEED_DIFFERENCE``.
    """
    scores = metrics.get("test") or metrics.get("validation") or {}
    if published is None or "accuracy" not in scores:
        return ["no accuracy was published, so there is nothing to compare with"]
    n = scores["n"]
    if isinstance(published, int | float):
        return [_verdict("", scores["accuracy"], published, n)]
    epochs = [e["accuracy"] for e in metrics.get("epochs") or ()]
    if len(epochs) != len(published):
        return [f"no verdict: {len(epochs)} epochs were evaluated, but the publication has {len(published)}"]
    pairs = enumerate(zip(epochs, published, strict=True), 1)
    return [_verdict(f"epoch {i}: ", accuracy, float(reference), n) for i, (accuracy, reference) in pairs]


def _verdict(prefix: str, accuracy: float, reference: float, n: int) -> str:
    tolerance = 1.96 * ((accuracy * (1 - accuracy) + reference * (1 - reference)) / n) ** 0.5
    tolerance += SEED_DIFFERENCE
    verdict = "above it" if accuracy > reference else "not reached"
    if abs(accuracy - reference) <= tolerance:
        verdict = "confirmed"
    numbers = f"{accuracy:.2%} here, {reference:.2%} published, tolerance {tolerance:.2%} (n = {n:,})"
    return f"{prefix}{numbers}: {verdict}"


IRRELEVANT = ("seed", "verbose", "threads", "baselines")  # settings that do not change weights


@dataclass(frozen=True)
class RecipeResults:
    """The results of all finished runs of a recipe."""

    recipe: str
    mean: str  # such as 78.15 %
    score: str  # mean and range, such as 78.15 % (76.56 to 79.75)
    overrides: Sequence[str]
    source: str  # name of the result file, or a glob pattern of the run folders
    runs: Sequence[dict[str, Any]]  # the metrics of each seed

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def machine(self) -> str:
        return "; ".join(dict.fromkeys(machine_name(r.get("machine", {})) for r in self.runs))

    @property
    def date(self) -> str:
        """The dates of the first and the last run, such as "2026-11-01 to 2026-11-03"."""
        dates = sorted(str(r.get("date", ""))[:10] for r in self.runs)
        return " to ".join(dict.fromkeys((dates[0], dates[-1])))

    @property
    def time(self) -> str:
        """The training time as text; a range if it differs between runs by more than a tenth."""
        unshared = without_shared_gpu(self.runs)
        seeds_note = f" ({len(unshared)} of {len(self.runs)} seeds)" if len(unshared) < len(self.runs) else ""
        seconds = [r.get("seconds", {}).get("train", 0.0) for r in unshared]
        time = duration_range(min(seconds), max(seconds), statistics.mean(seconds))
        return time + shared_gpu_note(unshared) + seeds_note

    @property
    def changed_settings(self) -> str:
        """The changed settings that affect the weights, as text."""
        return ", ".join(o for o in self.overrides if o.split("=")[0].split(".")[-1] not in IRRELEVANT)


def without_shared_gpu(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that did not share a GPU with other training runs; all runs if there are none."""
    return [r for r in records if not r.get("beside")] or list(records)


def shared_gpu_note(records: Sequence[dict[str, Any]]) -> str:
    """A note on a time: the maximum number of other training runs on the GPU; empty without others."""
    num_others = max((r.get("beside") or 0 for r in records), default=0)
    return f", with up to {num_others} other trainings on the GPU" if num_others else ""


def runs_on_random_weights(results: Path) -> dict[str, dict[str, Any]]:
    """Recipe -> record of its run with random weights, from ``benchmarks/quality/in_form.py``."""
    content = _read_json(results / "in-form.json") or {"recipes": []}
    return {record["recipe"]: record for record in content["recipes"]}


def _read_json(file: Path) -> Any:
    """The content of a JSON file; None if the file does not exist."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def machine_name(machine: dict[str, Any]) -> str:
    """The GPU, or the CPU with its number of threads."""
    cpu = f"{machine.get('cpu', 'unknown')}, threads: {machine.get('threads', '?')}"
    return str(machine.get("gpu") or cpu)


def read_recipe_results(recipe: str, results: Path, runs: Path) -> RecipeResults | None:
    """The results of a recipe from its result file or its run folders; None without a finished run."""
    file = results / f"recipe-{recipe}.json"
    overrides: Sequence[str] = ()
    if content := _read_json(file):
        records, overrides, source = content["runs"], content.get("overrides", ()), file.name
    else:
        names = (recipe, *(f"{recipe}-seed{i}" for i in range(100)))
        files = sorted(f for f in runs.glob(f"{recipe}*/metrics.json") if f.parent.name in names)
        records = [_read_json(f) for f in files]
        source = f"{recipe}*/metrics.json"
    scores = [score for r in records if (score := headline(r, recipe)) is not None]
    if not scores or len(scores) < len(records):
        return None
    metric_format, values = scores[0][1], [value for value, _ in scores]  # such as "{:.2%} macro-F1"
    mean = metric_format.format(statistics.mean(values))
    number_format = metric_format[: metric_format.index("}") + 1]  # such as "{:.2%}"
    low, high = (number_format.format(f(values)) for f in (min, max))
    spread = f" ({low} to {high})" if low != high else ""
    return RecipeResults(recipe, mean, mean + spread, overrides, source, records)


def read_study_result(name: str, results: Path) -> str | None:
    """The result of a study as Markdown; None if the study has not been run."""
    if (summary := _read_json(results / f"study-{name}.json")) is None:
        return _read_fold_result(results / f"folds-{name}.json")
    means = [arm["accuracy"]["mean"] for arm in summary["arms"]]
    seeds = len(summary["seeds"])
    counts = f"{len(means)} arms, {seeds} seeds, {summary['n']:,} {summary['judged']} examples"
    names = [arm["name"] for arm in summary["arms"]]
    verdict = _quote_names(str(summary["verdict"]).rstrip("."), names)
    return f"**{min(means):.1%} to {max(means):.1%}** ({counts}). {verdict} ({STUDIES})"


def _quote_names(verdict: str, names: Iterable[str]) -> str:
    """The verdict of a study, with the names of variants as code, because a name may contain a comma."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.sub(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)", r"`\1`", verdict)


def _read_fold_result(file: Path) -> str | None:
    """The result of a study by cross-validation as Markdown; None if the file does not exist."""
    if (results := _read_json(file)) is None:
        return None
    means = {name: statistics.fmean(arm["accuracy"]) for name, arm in results["arms"].items()}
    counts = (
        f"{len(means)} arms, {len(results['seeds'])} seeds, {results['n']:,} examples, "
        f"each evaluated once by {results['folds']}-fold cross-validation"
    )
    differences = results["differences"]
    significant = [
        name for name, difference in differences.items() if difference["p_holm"] < SIGNIFICANCE_LEVEL
    ]
    baseline = results["baseline"]
    verdict = f"No significant difference from {baseline} for any of the {len(means) - 1} arms"
    if significant:
        verdict = f"Different from {baseline} after correction: {'; '.join(significant)}"
    half_width = max((d["interval"][1] - d["interval"][0]) / 2 for d in differences.values())
    verdict += f". The 95 % intervals of the differences are at most ± {half_width:.0f} points wide"
    verdict = _quote_names(verdict, means)
    return f"**{min(means.values()):.1%} to {max(means.values()):.1%}** ({counts}). {verdict} ({STUDIES})"


def read_finding(name: str, results: Path) -> dict[str, Any] | None:
    """The finding in ``NAME.json`` (title, verdict, tables, ...); None if the file does not exist."""
    return _read_json(results / f"{name}.json")


def headline(metrics: dict[str, Any], recipe: str = "") -> tuple[float, str] | None:
    """The main metric of a run and its format, such as ``(0.91, "{:.2%} macro-F1")``; None if it has none.

    For translators, it is BLEU of beam search, or of greedy search for recipes ``*-given``.
    """
    test = metrics.get("test") or {}
    for marker, key, metric_format in (  # ``marker`` is a metric that only this kind of model has
        ("micro_f1", "macro_f1", "{:.2%} macro-F1"),  # multi-label
        ("entity_f1", "entity_f1", "{:.2%} entity F1"),
        ("exact_match", "f1", "{:.2%} F1 of answers"),
        ("accuracy", "accuracy", "{:.2%}"),
    ):
        if test.get(marker) is not None:
            return test[key], metric_format
    translated = (metrics.get("scores") or {}).get(metrics.get("judged", ""), {})
    for search in ("greedy", "beam") if recipe.endswith("-given") else ("beam", "greedy"):
        if (bleu := translated.get(search, {}).get("bleu")) is not None:
            return bleu, "{:.1f} BLEU" + ", greedy" * (search == "greedy")
    if tests := metrics.get("tests"):
        scores = next((t for t in tests.values() if t and t.get("accuracy") is not None), None)
        return None if scores is None else (scores["accuracy"], "{:.1%} of analogies")
    if masked := metrics.get("masked"):
        return masked["accuracy"], "{:.1%} of masked words"
    scores = (metrics.get("similarity") or {}).get(metrics.get("judged", "")) or {}
    for key, metric_format in (("spearman", "{:.4f} Spearman"), ("found", "{:.1%} of pairs found")):
        if key in scores:
            return scores[key], metric_format
    if (accuracy := (metrics.get("validation") or {}).get("accuracy")) is not None:
        return accuracy, "{:.2%} (validation)"
    return None


def duration(seconds: float) -> str:
    """A duration such as 1 h 18 min, 12 min or 23 s."""
    if seconds >= 5400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def duration_range(fastest: float, slowest: float, mean: float) -> str:
    """A range such as 12 to 31 min if times differ by more than a tenth, otherwise the mean."""
    low, high = duration(fastest), duration(slowest)
    if slowest <= 1.1 * fastest or low == high:
        return duration(mean)
    number, unit = low.rsplit(" ", 1)
    same_unit = high.split()[1:] == [unit]  # not in "78 min to 1 h 40 min"
    return f"{number if same_unit else low} to {high}"


TEMPLATES = Path(__file__).parent / "templates"
# --- pages ----------------------------------------------------------------------------------------

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
    """The pages and charts: path -> content. ``STEM.md`` has the table, the other files are in ``STEM/``.

    Args:
        read_results, read_study, read_finding: name -> result, or None if it was not measured.
        dry_runs: recipe -> its run with random weights, if there is one.
        settings: recipe -> text of its file.
    """
    dry_runs, templates = dry_runs or {}, _templates()
    rendered = {f"{stem}.md": page(read_results, read_study, dry_runs, stem)}
    for row in published_rows():
        results = {name: result for name in row.recipes if (result := read_results(name)) is not None}
        findings = {name: read_finding(name) for name in row.findings}
        charts = {name: chart for name, result in results.items() if (chart := recipe_chart(result))}
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
    """The page with the table of all rows; the arguments are those of ``pages``."""
    rows = published_rows()
    results = {name: read_results(name) for row in rows for name in row.recipes}
    template = _templates().get_template("published.md.j2")
    return template.render(
        rows=rows,
        results=results,
        dry_runs=dry_runs or {},
        original=lambda row: _cell(row.original_recipes, results) if row.recipes else "–",
        ours=lambda row: _our_result(row, results, read_study),
        baseline=lambda row: _best_baseline(results[row.best]) if row.best else "",
        stem=stem,
    )


def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _cell(names: Sequence[str], results: Mapping[str, RecipeResults | None]) -> str:
    """A table cell with the results of some recipes, labeled by the parts of their names that differ."""
    if not any(results[name] for name in names):
        return "not measured"
    means = [_mean(results[name]) for name in names]
    if len(names) == 1:
        return means[0]
    return "<br>".join(f"{name}: {mean}" for name, mean in zip(_short_names(names), means, strict=True))


def _mean(result: RecipeResults | None) -> str:
    """The mean of a recipe's score, with the number of seeds if there are few."""
    if result is None:
        return "not measured"
    few_seeds = f" ({result.seeds} seed{'s' * (result.seeds > 1)})" if result.seeds < MIN_SEEDS else ""
    return result.mean + few_seeds


def _best_baseline(result: RecipeResults | None) -> str:
    """The best baseline of a recipe, as the end of a note; empty without baselines."""
    baselines = _baselines(result) if result else {}
    accuracies = {name: b["accuracy"] for name, b in baselines.items() if "accuracy" in b}
    if not accuracies:
        return ""
    best = max(accuracies, key=lambda name: (accuracies[name], name))
    return f"; plain: {best} {accuracies[best]:.2%}"


def _our_result(row: Row, results: Mapping[str, RecipeResults | None], read_study: ReadStudy) -> str:
    """Our result for a row: the score of the best recipe, or the ranges of its studies."""
    if row.best:
        return _cell([row.best], results)
    texts = [read_study(name) or "" for name in row.studies]
    ranges = [match[1] for text in texts if (match := re.match(r"\*\*(.*?)\*\*", text))]
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
    """Recipe -> data source; empty if all recipes of a row have the same source.

    Metrics on different data are not comparable, so the page names the sources if they differ.
    """
    sources = {name: tomllib.loads(text).get("data", {}).get("source", "") for name, text in settings.items()}
    return sources if len(set(sources.values())) > 1 else {}


def substituted_architectures(dry_runs: Mapping[str, Any], settings: Callable[[str], str]) -> dict[str, str]:
    """Recipe -> checkpoint, for each recipe that ran with another architecture than its checkpoint's."""
    models = {name: tomllib.loads(settings(name)).get("model", {}).get("model", "") for name in dry_runs}
    return {
        name: checkpoint
        for name, checkpoint in models.items()
        if checkpoint and checkpoint != dry_runs[name]["layout"]
    }


def seed_rows(result: RecipeResults) -> list[dict[str, str]]:
    """Table rows, one per seed: column -> cell."""
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
    """Cells with the BLEU of each search method, also for lower-cased, tokenized text as in many papers."""
    cells = {}
    for search, scores in searches.items():
        title = "Greedy" if search == "greedy" else f"Beam of {scores.get('width', 5)}"
        cells[title] = f"{scores['bleu']:.1f} BLEU"
        if (tokenized := scores.get("bleu_tokenised")) is not None:
            cells[title] += f", tokenized {tokenized:.1f}"
    return cells


def epoch_rows(result: RecipeResults) -> list[dict[str, str]]:
    """Table rows, one per evaluated epoch, with means and ranges over the seeds: column -> cell."""
    runs = [run["epochs"] for run in result.runs if run.get("epochs")]
    rows = []
    for records in zip(*runs, strict=True) if runs else ():
        accuracy = [r["accuracy"] for r in records]
        low, high = min(accuracy), max(accuracy)
        spread = f" ({low:.2%} to {high:.2%})" if low != high else ""
        losses = [r["batch_loss"] for r in records if r.get("batch_loss") is not None]
        loss = f"{statistics.fmean(losses):.4f}" if losses else "–"
        row = {"Epoch": str(records[0]["epoch"]), "Mean batch loss": loss}
        rows.append(row | {"Test accuracy": f"{statistics.fmean(accuracy):.2%}{spread}"})
    return rows


def finding_script(finding: str) -> str:
    """The script in ``benchmarks/quality`` that measures a finding, with its argument."""
    kind, _, recipe = finding.partition("-")
    return f"precision.py {recipe}" if kind == "precision" else finding.replace("-", "_") + ".py"


def finding_chart(finding: dict[str, Any]) -> str:
    first_label, last_label = finding["curve"]["ends"]
    return curves(finding["curve"]["panels"], end_labels=(first_label, last_label))


def recipe_chart(result: RecipeResults) -> str:
    """Loss and accuracy over the epochs of the first seed; empty if fewer than two were evaluated."""
    return learning_curves(result.runs[0].get("evaluations") or (), result.runs[0].get("epochs") or ())
