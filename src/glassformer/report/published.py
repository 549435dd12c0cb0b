"""Published systems, their recipes and our results."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.config import build
from glassformer.errors import ConfigError, NoSuchRecipeError

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
    requirement: str = ""  # what its runs need that is not available everywhere
    note: str = ""  # note in the table
    studies: tuple[str, ...] = ()  # studies of the same question with available data
    findings: tuple[str, ...] = ()  # result files about the same question
    gallery_heading: str = ""  # heading of its images in the gallery
    accuracies: dict = field(default_factory=dict)  # recipe -> published accuracy, or one per epoch

    @property
    def recipes(self) -> tuple[str, ...]:
        """All recipes of the row, without repetition."""
        best = [self.best] if self.best else []
        return tuple(dict.fromkeys((*self.original_recipes, *best, *self.other_recipes)))


@cache
def published_rows() -> tuple[Row, ...]:
    """The table that ships with the recipes, in its order."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    return tuple(build(Row, row, TABLE.name) for row in rows)


def find_row(text: str) -> Row:
    """The row with this number.

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


LEVEL = 0.05  # significance level, after correction
SEED_DIFFERENCE = 0.005  # typical difference in accuracy between two seeds of a fine-tuning


def check(metrics: dict[str, Any], published: float | Sequence[float] | None) -> list[str]:
    """Lines that compare a run's accuracy with the published one: one line, or one per epoch.

    Two accuracies agree if they differ by at most 1.96 standard errors of a difference of two shares, plus
    ``SEED_DIFFERENCE``.
    """
    scores = metrics.get("test") or metrics.get("validation") or {}
    if published is None or "accuracy" not in scores:
        return ["the document has no accuracy to compare with"]
    n = scores["n"]
    if isinstance(published, int | float):
        return [_verdict("", scores["accuracy"], published, n)]
    epochs = [e["accuracy"] for e in metrics.get("epochs") or ()]
    if len(epochs) != len(published):
        return [f"{len(epochs)} epochs were evaluated, the document has {len(published)}: no verdict"]
    pairs = enumerate(zip(epochs, published, strict=True), 1)
    return [_verdict(f"epoch {i}: ", accuracy, float(reference), n) for i, (accuracy, reference) in pairs]


def _verdict(prefix: str, accuracy: float, reference: float, n: int) -> str:
    tolerance = 1.96 * ((accuracy * (1 - accuracy) + reference * (1 - reference)) / n) ** 0.5
    tolerance += SEED_DIFFERENCE
    verdict = "above it" if accuracy > reference else "not reached"
    if abs(accuracy - reference) <= tolerance:
        verdict = "confirmed"
    numbers = f"{accuracy:.2%} here, {reference:.2%} published, {tolerance:.2%} is chance on {n:,}"
    return f"{prefix}{numbers}: {verdict}"


IRRELEVANT = ("seed", "verbose", "threads", "baselines")  # settings that do not change weights


@dataclass(frozen=True)
class RecipeResults:
    """The results of all finished runs of a recipe."""

    recipe: str
    mean: str  # such as 78.15 %
    score: str  # mean and range, such as 78.15 % (76.56 to 79.75)
    overrides: Sequence[str]
    source: str  # name of the result file, or pattern of the run folders
    runs: Sequence[dict[str, Any]]  # the metrics of each seed

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def machine(self) -> str:
        return "; ".join(dict.fromkeys(machine_name(r.get("machine", {})) for r in self.runs))

    @property
    def date(self) -> str:
        """The dates of the first and the last run."""
        dates = sorted(str(r.get("date", ""))[:10] for r in self.runs)
        return " to ".join(dict.fromkeys((dates[0], dates[-1])))

    @property
    def time(self) -> str:
        """The training time as text: a range if runs differ by more than a tenth."""
        unshared = without_shared_gpu(self.runs)
        seeds_note = f" ({len(unshared)} of {len(self.runs)} seeds)" if len(unshared) < len(self.runs) else ""
        seconds = [r.get("seconds", {}).get("train", 0.0) for r in unshared]
        time = duration_range(min(seconds), max(seconds), statistics.mean(seconds))
        return time + shared_gpu_note(unshared) + seeds_note

    @property
    def changed_settings(self) -> str:
        """The changed settings that affect the weights."""
        return ", ".join(o for o in self.overrides if o.split("=")[0].split(".")[-1] not in IRRELEVANT)


def without_shared_gpu(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that did not share a GPU with other training runs; all runs if there are none."""
    return [r for r in records if not r.get("beside")] or list(records)


def shared_gpu_note(records: Sequence[dict[str, Any]]) -> str:
    """A note on a time: the maximum number of other training runs on the GPU; empty without others."""
    num_others = max((r.get("beside") or 0 for r in records), default=0)
    return f", with up to {num_others} other trainings on the GPU" if num_others else ""


def runs_on_random_weights(results: Path) -> dict[str, dict[str, Any]]:
    """The record of each recipe's run on random weights, written by ``benchmarks/quality/in_form.py``."""
    file = results / "in-form.json"
    records = json.loads(file.read_text(encoding="utf-8"))["recipes"] if file.is_file() else []
    return {record["recipe"]: record for record in records}


def machine_name(machine: dict[str, Any]) -> str:
    """The GPU, or the CPU with its number of threads."""
    cpu = f"{machine.get('cpu', 'unknown')}, threads: {machine.get('threads', '?')}"
    return str(machine.get("gpu") or cpu)


def read_recipe_results(recipe: str, results: Path, runs: Path) -> RecipeResults | None:
    """The results of a recipe from its result file or its run folders; None: no finished run."""
    file = results / f"recipe-{recipe}.json"
    overrides: Sequence[str] = ()
    if file.is_file():
        content = json.loads(file.read_text(encoding="utf-8"))
        records, overrides, source = content["runs"], content.get("overrides", ()), file.name
    else:
        names = (recipe, *(f"{recipe}-seed{i}" for i in range(100)))
        files = sorted(f for f in runs.glob(f"{recipe}*/metrics.json") if f.parent.name in names)
        records = [json.loads(f.read_text(encoding="utf-8")) for f in files]
        source = f"{recipe}*/metrics.json"
    scores = [score for r in records if (score := headline(r, recipe)) is not None]
    if not scores or len(scores) < len(records):
        return None
    unit, values = scores[0][1], [value for value, _ in scores]
    mean = unit.format(statistics.mean(values))
    number_format = unit[: unit.index("}") + 1]  # without the text after the number
    low, high = (number_format.format(f(values)) for f in (min, max))
    spread = f" ({low} to {high})" if low != high else ""
    return RecipeResults(recipe, mean, mean + spread, overrides, source, records)


def read_study_result(name: str, results: Path) -> str | None:
    """The result of a study as Markdown; None: the study has not been run."""
    file = results / f"study-{name}.json"
    if not file.is_file():
        return _read_fold_result(results / f"folds-{name}.json")
    summary = json.loads(file.read_text(encoding="utf-8"))
    means = [arm["accuracy"]["mean"] for arm in summary["arms"]]
    counts = (
        f"{len(means)} arms, {len(summary['seeds'])} seeds, {summary['n']:,} {summary['judged']} examples"
    )
    names = [arm["name"] for arm in summary["arms"]]
    verdict = _quote_names(str(summary["verdict"]).rstrip("."), names)
    return f"**{min(means):.1%} to {max(means):.1%}** ({counts}). {verdict} ({STUDIES})"


def _quote_names(verdict: str, names: Iterable[str]) -> str:
    """The verdict of a study with names of arms as code, since a name may contain a comma."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.sub(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)", r"`\1`", verdict)


def _read_fold_result(file: Path) -> str | None:
    """The result of a study by cross-validation as Markdown; None: the file does not exist."""
    if not file.is_file():
        return None
    results = json.loads(file.read_text(encoding="utf-8"))
    means = {name: statistics.fmean(arm["accuracy"]) for name, arm in results["arms"].items()}
    counts = (
        f"{len(means)} arms, {len(results['seeds'])} seeds, {results['n']:,} examples, "
        f"each evaluated once by {results['folds']}-fold cross-validation"
    )
    differences = results["differences"]
    significant = [name for name, difference in differences.items() if difference["p_holm"] < LEVEL]
    baseline = results["baseline"]
    verdict = f"No significant difference from {baseline} for any of the {len(means) - 1} arms"
    if significant:
        verdict = f"Different from {baseline} after correction: {'; '.join(significant)}"
    half_width = max((d["interval"][1] - d["interval"][0]) / 2 for d in differences.values())
    verdict += f". The 95 % intervals of the differences are at most ± {half_width:.0f} points wide"
    verdict = _quote_names(verdict, means)
    return f"**{min(means.values()):.1%} to {max(means.values()):.1%}** ({counts}). {verdict} ({STUDIES})"


def read_finding(name: str, results: Path) -> dict[str, Any] | None:
    """The finding in ``NAME.json`` (title, verdict, tables, ...); None: the file does not exist."""
    file = results / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def headline(metrics: dict[str, Any], recipe: str = "") -> tuple[float, str] | None:
    """The main metric of a run and its format; None if there is none.

    For translators, it is BLEU of beam search, or of greedy search for recipes ``*-given``.
    """
    test = metrics.get("test") or {}
    for marker, key, unit in (
        ("micro_f1", "macro_f1", "{:.2%} macro-F1"),  # multi-label
        ("entity_f1", "entity_f1", "{:.2%} entity F1"),
        ("exact_match", "f1", "{:.2%} F1 of answers"),
        ("accuracy", "accuracy", "{:.2%}"),
    ):
        if test.get(marker) is not None:
            return test[key], unit
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
    for key, unit in (("spearman", "{:.4f} Spearman"), ("found", "{:.1%} of partners found")):
        if key in scores:
            return scores[key], unit
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
