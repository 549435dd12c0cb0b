"""Results of studies as JSON, CSV and Markdown, with paired tests.

The results come from the files of the run folders. The tasks must predict labels, tags, numbers, answers or
cosines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text
from glassformer.config import suggest, to_toml
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import BadValueError, ConfigError, DataError, GlassformerError, NotForThisModelError
from glassformer.evaluate.compare import bootstrap_means, bootstrap_p, bounds, holm
from glassformer.evaluate.metrics import percent
from glassformer.evaluate.predictions import (
    BASELINES_FILE,
    has_numbers,
    read_baselines,
    read_numbers,
    read_predictions,
    table_file,
)
from glassformer.finite import json_text
from glassformer.report.metrics import COMPARED, compared_metric, difference_text, is_better, leading_metrics
from glassformer.report.run import read_history
from glassformer.report.wording import (
    EMPTY_CELL,
    capitalized,
    count,
    decimal,
    digits_for,
    how_tested,
    p_value,
)
from glassformer.study.arms import MARKER, Job
from glassformer.study.grid import Arm, Study, baseline_of
from glassformer.targets import target_in
from glassformer.targets.target import RunPredictions, read_object

Runs = Mapping[str, Mapping[int, tuple[Job, RunPredictions]]]  # name of the variant -> seed -> run
SIGNIFICANCE_LEVEL = 0.05  # for corrected p-values

# --- sentences and the Markdown table ---------------------------------------------------------------


def sentences(results: dict[str, Any]) -> dict[str, Any]:
    """The results of a study in words.

    Returns:
        ``verdict``, the conclusion; and ``sentences``, the comparison of each variant with the baseline.
    """
    digits, baseline = digits_for(results["n"]), results["baseline"]
    measure = _measure(results)
    metric = compared_metric(measure)
    compared = [arm for arm in results["arms"] if arm["name"] != baseline]
    arm_sentences = {arm["name"]: _arm_sentence(arm, baseline, digits, measure) for arm in compared}
    significant = [a for a in compared if a["significant"] and a[measure]["difference"]]
    better = [a["name"] for a in significant if is_better(a[measure], metric)]
    worse = [a["name"] for a in significant if not is_better(a[measure], metric)]
    undecided = [a["name"] for a in compared if _is_undecided(a, measure)]
    parts = []
    if better:
        parts.append(f"Significantly better than {baseline}: {'; '.join(better)}.")
    if worse:
        parts.append(f"Significantly worse than {baseline}: {'; '.join(worse)}.")
    if undecided:
        parts.append(
            f"Inconclusive compared with {baseline}: {'; '.join(undecided)}. These trainings differ, but "
            "seeds vary so much that other seeds could reverse the result."
        )
    no_difference = [a["name"] for a in compared if not a["significant"] and a["name"] not in undecided]
    if len(no_difference) == 1:
        parts.append(f"No significant difference between {no_difference[0]} and {baseline}.")
    elif no_difference:
        is_all = len(no_difference) == len(compared)
        variants = f"{'any of the' if is_all else 'the other'} {len(no_difference)} variants"
        parts.append(f"No significant difference from {baseline} for {variants}.")
    parts += _ladder_sentence(results)
    parts += _baselines_sentence(results, measure, digits)
    if num_missing := len(results["unfinished"]):
        parts.append(f"{num_missing} {'run is' if num_missing == 1 else 'runs are'} missing.")
    if len(results["seeds"]) == 1:
        parts.append("There is one seed per variant, so the variation between seeds is unknown.")
    if len(results["seeds"]) == 2 and len(no_difference) + len(undecided):
        parts.append(
            "Two seeds per variant estimate the variation between seeds poorly, so only very large "
            "differences are significant; use three or more."
        )
    return {"verdict": " ".join(parts), "sentences": arm_sentences}


def _baselines_sentence(results: dict[str, Any], measure: str, digits: int) -> list[str]:
    values = {name: scores.get(measure) for name, scores in results.get("baselines", {}).items()}
    values = {name: value for name, value in values.items() if value is not None}
    if not values:
        return []
    means = [arm[measure]["mean"] for arm in results["arms"] if arm[measure]["mean"] is not None]
    if not means:
        return []
    metric = compared_metric(measure)
    best = (min if metric.lower else max)(values, key=values.__getitem__)
    if min(means) <= values[best] if metric.lower else max(means) >= values[best]:
        return []
    return [f"No variant reaches {best} ({metric.value(values[best], digits)})."]


def _measure(results: dict[str, Any]) -> str:
    """The metric by which a study compares its variants."""
    return results.get("measure") or "accuracy"


def _pair_tests(arm: dict[str, Any], measure: str) -> list[dict[str, Any]]:
    """The test results of each pair of runs with the same seed; McNemar's test is only for accuracy."""
    return arm.get("permutation") or (measure == "accuracy" and arm.get("mcnemar")) or []


def _is_undecided(arm: dict[str, Any], measure: str) -> bool:
    """Whether all pairs of runs differ significantly in the same direction, but not the variants."""
    tests = _pair_tests(arm, measure)
    is_positive = {t["wins"] > t["losses"] if "wins" in t else t["difference"] > 0 for t in tests}
    is_consistent = len(tests) > 1 and len(is_positive) == 1 and all(t["p"] < 0.05 for t in tests)
    return not arm["significant"] and is_consistent


def _ladder_sentence(results: dict[str, Any]) -> list[str]:
    """A sentence about the first variant of the ladder that is significantly worse than the baseline."""
    metric = compared_metric(measure := _measure(results))
    arms = {arm["name"]: arm for arm in results["arms"]}
    ladder = [name for name in results.get("ladder", []) if name in arms]
    if len(ladder) < 2:
        return []
    start = f"In the order {', '.join(ladder)}"
    for name in ladder:
        if arms[name].get("significant") and not is_better(arms[name][measure], metric):
            return [f"{start}, {name} is the first that is significantly worse than {results['baseline']}."]
    ending = f"none is significantly worse than {results['baseline']}"
    return [f"{start}, {ending}; these variants were not tested against each other."]


def _arm_sentence(arm: dict[str, Any], baseline: str, digits: int, measure: str) -> str:
    difference, bounds = arm[measure]["difference"], arm[measure]["difference_interval"]
    metric = compared_metric(measure)
    size = f"as accurate as {baseline}" if measure == "accuracy" else f"as good as {baseline}"
    if difference:
        size = metric.difference(difference, digits) + ("" if measure == "accuracy" else f" of {metric.name}")
        size += f" {'above' if difference > 0 else 'below'} {baseline}"
    low, high = (metric.with_sign(x, digits) for x in bounds)
    evidence = f"95 % interval {low} to {high}, p = {p_value(arm['p_holm'])} after Holm".replace("= <", "<")
    tests = _pair_tests(arm, measure)
    if tests and not difference and not any(test.get("wins", 1) or test["losses"] for test in tests):
        return f"No difference: right on the same examples as {baseline}, and wrong on the same."
    if arm["significant"]:
        return f"{size} ({evidence})."
    if _is_undecided(arm, measure):
        largest_p = p_value(max(test["p"] for test in tests))
        name = "McNemar" if arm.get("mcnemar") else "permutation"
        return (
            f"Inconclusive: {size} ({evidence}). Each pair of trainings differs on these examples ({name}, p "
            f"{largest_p if largest_p.startswith('<') else f'at most {largest_p}'}), but other seeds "
            "could reverse the result."
        )
    return f"No significant difference: {size} ({evidence})."


def markdown(results: dict[str, Any]) -> str:
    """The study as Markdown: verdict, a table with one row per variant, and notes."""
    digits, measure = digits_for(results["n"]), _measure(results)
    metric = compared_metric(measure)
    (first, _), (second, second_name) = leading_metrics(measure, results["arms"][0])
    # For classes, the first column is always the accuracy, as in older tables.
    if first == "macro_f1" and second == "accuracy":
        first, second, second_name = "accuracy", "macro_f1", metric.name
    first_metric, second_metric = compared_metric(first), compared_metric(second)
    header = (
        "Variant",
        "Seeds",
        capitalized(first_metric.name),
        "SD over seeds",
        "95 % interval",
        capitalized(second_name),
        "Log loss",
        "Difference (points)" if measure == "accuracy" else f"Difference ({metric.name}{metric.unit_suffix})",
        "p (Holm)",
        "Best epoch",
        "s/epoch",
        "Parameters",
        "Peak memory",
    )
    has_robustness = any(arm.get("robustness") for arm in results["arms"])
    header += ("Changed images",) if has_robustness else ()
    lines = [
        f"# {_cell(results['name'])}",
        "",
        _cell(results["summary"]),
        "",
        results["verdict"].replace("|", "\\|"),
        "",
    ]
    lines += [_row(header), "|" + "---|" * len(header)]
    keys = {first, second, measure}
    baselines = (_as_arm(name, scores, keys) for name, scores in results["baselines"].items())
    for arm in (*results["arms"], *baselines):
        scores, cost = arm[first], arm["cost"]
        cells = [
            arm["name"] + (" (baseline)" if arm["name"] == results["baseline"] else ""),
            len(arm["seeds"]) or EMPTY_CELL,
            first_metric.value(scores["mean"], digits),
            first_metric.deviation(scores["sd"]),
            first_metric.interval(scores["interval"], digits, scores["mean"], results["n"]),
            second_metric.value(arm[second]["mean"], digits),
            decimal(arm["log_loss"]["mean"], 4),
            difference_text(arm[measure], digits, metric),
            p_value(arm.get("p_holm")),
            decimal(arm["best"]["epoch"], 1),
            decimal(cost["seconds_per_epoch"], 1),
            count(cost["parameters"]),
            f"{count(cost['peak_memory_mb'])} MB" if cost["peak_memory_mb"] else EMPTY_CELL,
        ]
        if has_robustness:
            cells.append(percent((arm.get("robustness") or {}).get("accuracy"), digits))
        lines.append(_row(cells))
    lines += ["", notes(results)]
    return "\n".join(lines) + "\n"


def _as_arm(name: str, scores: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A baseline model in the form of a variant without seeds, for the Markdown table."""
    metrics = {
        k: scores | {"mean": scores.get(k), "sd": None, "interval": scores.get(f"{k}_interval")} for k in keys
    }
    cost = dict.fromkeys(("seconds_per_epoch", "parameters", "peak_memory_mb"))
    others = {"log_loss": {"mean": scores["log_loss"]}, "best": {"epoch": None}, "cost": cost}
    return {"name": name, "seeds": [], **others, **metrics}


def notes(results: dict[str, Any]) -> str:
    """A paragraph on how the results were measured."""
    seeds = ", ".join(map(str, results["seeds"]))
    machine = results["machine"].get("gpu") or results["machine"].get("cpu") or "an unnamed machine"
    return (
        f"{results['n']:,} {results['judged']} examples, the same for every variant; seeds {seeds}. "
        f"p: {how_tested(results)}, corrected for {max(len(results['arms']) - 1, 0)} comparisons by Holm's "
        f"method. Measured on {machine}, {results['date'][:10]}."
    )


def _row(cells: Any) -> str:
    return "| " + " | ".join(_cell(c) for c in cells) + " |"


def _cell(value: Any) -> str:
    """Escape text for a Markdown table cell."""
    return re.sub(r"([\\|`*_\[\]#])", r"\\\1", " ".join(str(value).split())).replace("<", "&lt;")


# --- results --------------------------------------------------------------------------------------


CURVE_KEYS = (*COMPARED, "loss")


def collect(
    study: Study,
    planned_arms: Sequence[Arm],
    jobs: Sequence[Job],
    failed: Mapping[str, str] | None = None,
    measure: str | None = None,
) -> dict[str, Any]:
    """The results of the finished jobs, for JSON; ``measure`` as in ``compare_results``.

    Raises:
        GlassformerError: no run of the baseline is finished.
        DataError: a run folder cannot be read.
        ConfigError: two runs were evaluated on different examples.
    """
    baseline, changes = baseline_of(study, planned_arms), {arm.name: arm.changes for arm in planned_arms}
    runs: dict[str, dict[int, tuple[Job, RunPredictions]]] = {}
    for job in jobs:
        runs.setdefault(job.arm, {})
        if (job.folder / MARKER).is_file():
            runs[job.arm][job.seed] = job, read_run_predictions(job.folder)
    if not runs.get(baseline):
        if failed:
            title, reason = next(iter(failed.items()))
            raise GlassformerError(f"no run of the baseline {baseline!r} has finished; {title}: {reason}")
        what = f"the baseline {baseline!r} has no finished run"
        raise DataError(what, where=study.name, fix="Run it first")
    unfinished = [j.title for j in jobs if not (j.folder / MARKER).is_file()]
    entries = {"unfinished": unfinished, "failed": dict(failed or {})}
    fix = "Give all arms the same data and split"
    return compare_results(runs, replace(study, baseline=baseline), fix, measure, changes, **entries)


def compare_results(
    runs: Runs,
    study: Study,
    fix: str,
    measure: str | None = None,
    changes: Mapping[str, Any] | None = None,
    **entries: Any,
) -> dict[str, Any]:
    """Compare finished runs; returns the results for JSON.

    Args:
        runs: variant -> seed -> job and predictions.
        study: its ``baseline`` is the name of a variant with runs.
        fix: the fix in the error message for runs that were evaluated on different examples.
        measure: the metric to compare; None: the one that selects the best weights in the recipes.
        changes: variant -> its changes to the base recipe.
        entries: further entries of the results.

    Raises:
        DataError: a run folder cannot be read.
        ConfigError: two runs were evaluated on different examples, or have no such metric.
    """
    first_job, first = next(iter(runs[study.baseline].values()))
    jobs_and_predictions = [pair for finished in runs.values() for pair in finished.values()]
    jobs = [job for job, _ in jobs_and_predictions]
    for job, predictions in jobs_and_predictions:
        _check_comparable(job, predictions, first_job, first, fix)
    arms = [_arm_entries(name, finished) for name, finished in runs.items() if finished]
    measure = measure_for(first, [job.recipe for job in jobs], measure)
    metrics = read_object(first_job.folder / "metrics.json")
    baselines_folder = next((j.folder for j in jobs if _baselines(j.folder)), first_job.folder)
    baselines = _baselines(baselines_folder)
    scored = [name for name, scores in baselines.items() if scores.get(measure) is not None]
    baseline_predictions = read_baseline_predictions(baselines_folder, first, scored)
    resamples = study.bootstrap
    differences = add_tests(arms, runs, study.baseline, first, resamples, measure, baseline_predictions)
    keys = [*first.target.compared, *first.target.extra_metrics]
    keys += [*(f"{key}_interval" for key in keys), "log_loss", "seconds"]
    for arm in arms:
        arm["changes"] = (changes or {}).get(arm["name"], {})
    results = {
        "judged": metrics.get("judged") or study.split,
        "kind": "study",
        **{key: getattr(study, key) for key in ("name", "summary", "recipe", "baseline")},
        "ladder": list(study.ladder),
        "set": study.set,
        "seeds": list(study.seeds),
        "unfinished": [],
        "failed": {},
        **entries,
        "n": first.n,
        "drawn": first.target.unit_name,
        "classes": list(first.classes),
        "level": SIGNIFICANCE_LEVEL,
        "measure": measure,
        "arms": arms,
        "baselines": {
            name: {key: scores.get(key) for key in keys} | differences.get(name, {})
            for name, scores in baselines.items()
        },
        "machine": metrics.get("machine", {}),
        "versions": metrics.get("versions", {}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return results | sentences(results)


def _check_comparable(job: Job, run: RunPredictions, first_job: Job, first: RunPredictions, fix: str) -> None:
    """Raise ConfigError if two runs have different kinds of predictions or different examples."""
    kinds = [a.target.comparison_kind for a in (run, first)]
    if kinds[0] != kinds[1]:
        what = f"{job.title} {kinds[0]}, and {first_job.title} {kinds[1]}"
        wrong_kind = "Compare runs that predict the same kind of label"
        raise NotForThisModelError(what, where="compare", fix=wrong_kind)
    if difference := describe_difference((job.folder, first_job.folder), (run, first)):
        raise ConfigError(f"{job.title} and {first_job.title} {difference}", where="compare", fix=fix)


def _baselines(folder: Path) -> dict[str, Any]:
    """Metrics of a run's baselines; for an embedder, also those of the model before training."""
    metrics = read_object(folder / "metrics.json")
    return metrics.get("baselines") or metrics.get("others") or {}


def _arm_entries(name: str, finished: Mapping[int, tuple[Job, RunPredictions]]) -> dict[str, Any]:
    """The entries of a variant, except the comparisons, which ``add_tests`` adds."""
    folders = [job.folder for job, _ in finished.values()]
    predictions = [run_predictions for _, run_predictions in finished.values()]
    costs = [_cost(folder) for folder in folders]
    histories = [_history(folder) for folder in folders]
    best = [b for h in histories if (b := _best(h))]
    return {
        "name": name,
        "seeds": list(finished),
        "runs": [job.relative_folder for job, _ in finished.values()],
        "log_loss": summary_statistics([p.log_loss for p in predictions]),
        "cost": {key: _mean([c[key] for c in costs]) for key in costs[0]},
        "best": {key: _mean([b.get(key) for b in best]) for key in ("epoch", *CURVE_KEYS)},
        "curve": list(_curve(histories)),
        "robustness": _robustness(folders),
        "confusion": np.sum([_confusion(p) for p in predictions], axis=0).tolist(),
    }


def _confusion(run: RunPredictions) -> np.ndarray:
    """The confusion matrix ``[true][predicted]``; empty unless each example has one class."""
    if not run.target.is_single_label:
        return np.zeros((0, 0), np.int64)
    size = len(run.classes)
    cells = run.truth * size + run.predicted
    return np.bincount(cells, minlength=size * size).reshape(size, size)


def _mean(values: Sequence[float | None]) -> float | None:
    return summary_statistics(values)["mean"]


# --- paired tests -------------------------------------------------------------------------------


def measure_for(first: RunPredictions, recipes: Sequence[Any], requested: str | None = None) -> str:
    """The metric for comparisons: ``requested``, or the one that selects the best weights in the recipes."""
    metrics = first.target.compared
    if requested is None:
        return first.target.measure_for({recipe.train.monitor for recipe in recipes})
    if requested not in metrics:
        raise BadValueError(
            f"these runs have no metric {requested!r}", where="measure", fix=suggest(requested, metrics)
        )
    return requested


def add_tests(
    arms: list[dict[str, Any]],
    runs: Runs,
    baseline: str,
    first: RunPredictions,
    resamples: int,
    measure: str,
    simple_models: Mapping[str, RunPredictions] | None = None,
) -> dict[str, dict[str, Any]]:
    """Add all metrics with intervals to the variants, and tests of ``measure`` against the baseline variant.

    A bootstrap resample has the same examples for every variant.

    Returns:
        For each simple model, its ``difference`` from the baseline variant in ``measure``, with an interval.
        Simple models are not tested, because the correction for multiple comparisons is for the variants.
    """
    baseline_index = next(i for i, arm in enumerate(arms) if arm["name"] == baseline)
    predictions = [[run for _, run in runs[arm["name"]].values()] for arm in arms]
    predictions += [[run] for run in (simple_models or {}).values()]
    target, n, differences = first.target, first.num_units, {}
    all_statistics = [target.statistics(model) for model in predictions]
    for key in target.compared:
        statistics = [model[key] for model in all_statistics]
        resampled_means = bootstrap_means(statistics, n, resamples=resamples)
        means = [np.asarray(s(np.ones((1, n), np.float32)), float)[:, 0] for s in statistics]
        for i, arm in enumerate(arms):
            mean = float(means[i].mean())
            interval = target.interval(key, predictions[i], mean, bounds(resampled_means[i]), resamples)
            arm[key] = summary_statistics(means[i].tolist()) | {"interval": interval}
        for i, values in enumerate(means):
            if i == baseline_index:
                continue
            resampled = resampled_means[i] - resampled_means[baseline_index]
            entry: dict[str, Any] = {"difference": float(values.mean() - means[baseline_index].mean())}
            entry["difference_interval"] = bounds(resampled)
            if i < len(arms):
                arms[i][key] |= entry | {"bootstrap_p": bootstrap_p(resampled)}
            elif key == measure:
                differences[list(simple_models or {})[i - len(arms)]] = entry
    _add_corrected_tests(arms, runs, baseline, first, resamples, measure)
    return differences


def _add_corrected_tests(
    arms: list[dict[str, Any]], runs: Runs, baseline: str, first: RunPredictions, resamples: int, measure: str
) -> None:
    """Test each variant against the baseline, and correct the p-values for multiple comparisons (Holm).

    With one seed per variant, the test is the one of the target, such as McNemar's, if there is one for the
    metric. Otherwise it is the bootstrap, which includes the variation between seeds.
    """
    baseline_runs, compared = runs[baseline], [arm for arm in arms if arm["name"] != baseline]
    for arm in compared:
        arm_runs = runs[arm["name"]]
        shared_seeds = [s for s in arm_runs if s in baseline_runs]
        pairs = [(arm_runs[s][1], baseline_runs[s][1]) for s in shared_seeds]
        name, results, is_of_measure = first.target.tests(measure, pairs, resamples)
        tests = [{"seed": seed} | test for seed, test in zip(shared_seeds, results, strict=bool(results))]
        arm |= {"mcnemar": [], name: tests}
        uses_test = len(arm_runs) == len(baseline_runs) == len(shared_seeds) == 1 and is_of_measure
        arm["test"] = name if uses_test else "bootstrap"
        arm["p"] = tests[0]["p"] if uses_test else arm[measure]["bootstrap_p"]
    for arm, corrected in zip(compared, holm([arm["p"] for arm in compared]), strict=True):
        arm["p_holm"] = corrected
        arm["significant"] = corrected < SIGNIFICANCE_LEVEL


def summary_statistics(values: Sequence[float | None]) -> dict[str, Any]:
    """The values of all seeds that have one, and their mean, standard deviation, minimum and maximum."""
    present = [v for v in values if v is not None]
    if not present:
        return {"values": [], "mean": None, "sd": None, "min": None, "max": None}
    return {
        "values": present,
        "mean": float(np.mean(present)),
        "sd": float(np.std(present, ddof=1)) if len(present) > 1 else None,
        "min": float(np.min(present)),
        "max": float(np.max(present)),
    }


# --- reading run folders --------------------------------------------------------------------------


def _history(folder: Path) -> list[dict[str, Any]]:
    return list(read_history(folder / "history.jsonl"))


def _cost(folder: Path) -> dict[str, float | None]:
    """The cost of a run: time, parameters, and peak memory if it had a separate process."""
    metrics, marker = read_object(folder / "metrics.json"), read_object(folder / MARKER)
    steps = [r for r in _history(folder) if r.get("kind") == "step"]
    seconds = steps[-1]["seconds"] / (steps[-1]["epoch"] + 1) if steps else None
    return {
        "seconds_per_epoch": seconds,
        "train_seconds": (metrics.get("seconds") or {}).get("train"),
        "parameters": metrics.get("parameters"),
        "peak_memory_mb": metrics.get("peak_memory_mb") if marker.get("own_process") else None,
    }


def _best(history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The evaluation of the best weights; epochs are counted from 1."""
    best = [r for r in history if r.get("kind") == "evaluation" and r.get("best")]
    return best[-1] | {"epoch": best[-1]["epoch"] + 1} if best else None


def _curve(histories: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the means over seeds of each evaluation that all seeds have."""
    evaluations = [[r for r in h if r.get("kind") == "evaluation"] for h in histories]
    for records in zip(*evaluations):
        keys = ("step", "epoch", *CURVE_KEYS, "train_loss", "train_accuracy")
        yield {key: _mean([r.get(key) for r in records]) for key in keys}


def _robustness(folders: Sequence[Path]) -> dict[str, Any] | None:
    """Mean accuracy on corrupted images over the seeds: total, per kind of corruption, and per severity."""
    seeds = [read_object(folder / "metrics.json").get("robustness") for folder in folders]
    seeds = [seed for seed in seeds if seed]
    if not seeds:
        return None
    kinds = {kind: _mean([row["accuracy"] for seed in seeds for row in seed[kind]]) for kind in seeds[0]}
    by_severity = {
        kind: [
            {"severity": rows[0]["severity"]}
            | {k: _mean([row.get(k) for row in rows]) for k in ("accuracy", "macro_f1")}
            for rows in zip(*(seed[kind] for seed in seeds), strict=True)
        ]
        for kind in seeds[0]
    }
    return {"accuracy": _mean(list(kinds.values())), "kinds": kinds, "each": by_severity}


def read_run_predictions(folder: Path) -> RunPredictions:
    if (target := target_in(folder)) is None:
        what = "has no predictions that can be compared"
        fix = "Name finished runs whose models give labels, tags, numbers or cosines"
        raise DataError(what, where=str(folder), fix=fix)
    return target.read_run(folder)


def _rows(folder: Path) -> Iterator[Any]:
    """Yield the rows of a run's predictions.csv; nothing if its predictions are in another file."""
    path = folder / "predictions.csv"
    if path.is_file():
        yield from (read_numbers if has_numbers(path) else read_predictions)(path)


def read_evaluated_split(folder: Path) -> str:
    """The split that a run was evaluated on, from its predictions or metrics; empty if unknown."""
    if not (folder / "predictions.csv").is_file():
        return str(read_object(folder / "metrics.json").get("judged") or "")
    splits = {row.split for row in _rows(folder)}
    return splits.pop() if len(splits) == 1 else ""


def describe_difference(folders: tuple[Path, Path], runs: tuple[RunPredictions, RunPredictions]) -> str:
    """A phrase on how the evaluated examples of two runs differ; empty if they are the same."""
    a, b = runs
    if (a.examples, a.classes) == (b.examples, b.classes):
        return ""
    if a.examples == b.examples:
        labels = sorted(set(a.classes) ^ set(b.classes))
        suffix = f": {', '.join(labels[:3])} in only one of them" if labels else " in another order"
        return f"have different labels{suffix}"
    message = "were evaluated on different examples: "
    split_a, split_b = map(read_evaluated_split, folders)
    if split_a != split_b and split_a and split_b:
        return message + f"{a.n:,} of {split_a}, {b.n:,} of {split_b}"
    message += f"{a.n:,} and {b.n:,}"
    rows_a, rows_b = ({(row.text, row.label) for row in _rows(folder)} for folder in folders)
    return message + (f", {len(rows_a & rows_b):,} of them the same" if rows_a and rows_b else "")


def read_baseline_predictions(
    folder: Path, run: RunPredictions, names: Sequence[str]
) -> dict[str, RunPredictions]:
    """The saved predictions of a run's baselines with these names."""
    out = {}
    for name, cells in read_baselines(folder / BASELINES_FILE).items():
        if name not in names or len(cells) != run.n:
            continue
        try:
            predicted = run.target.parse_cells(cells, run.classes)
        except (KeyError, ValueError):  # labels that the run does not have
            continue
        if predicted is not None:
            out[name] = replace(run, predicted=predicted, log_loss=None)
    return out


# --- writing --------------------------------------------------------------------------------------


def table_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of results.csv, one per variant."""
    measure = results.get("measure", "accuracy")
    for arm in results["arms"]:
        macro, main = arm.get("macro_f1", {}), arm.get(measure, {})
        low, high = main.get("difference_interval") or [None, None]
        yield {
            "arm": arm["name"],
            "seeds": len(arm["seeds"]),
            **_statistics("accuracy", arm.get("accuracy", {})),
            "macro_f1": macro.get("mean"),
            "macro_f1_sd": macro.get("sd"),
            "log_loss": arm["log_loss"]["mean"],
            "difference": main.get("difference"),
            "difference_low": low,
            "difference_high": high,
            "p": arm.get("p"),
            "p_holm": arm.get("p_holm"),
            "test": arm.get("test"),
            "best_epoch": arm["best"]["epoch"],
            **{key: arm["cost"][key] for key in ("seconds_per_epoch", "parameters", "peak_memory_mb")},
            "robustness": (arm.get("robustness") or {}).get("accuracy"),
            "measure": measure,
            **_statistics("value", main),
        }


def _statistics(column: str, scores: dict[str, Any]) -> dict[str, Any]:
    low, high = scores.get("interval") or [None, None]
    mean_and_sd = {column: scores.get("mean"), f"{column}_sd": scores.get("sd")}
    return mean_and_sd | {f"{column}_low": low, f"{column}_high": high}


def robustness_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of robustness.csv, one per variant, kind and severity of corruption."""
    for arm in results["arms"]:
        for kind, rows in ((arm.get("robustness") or {}).get("each") or {}).items():
            yield from ({"arm": arm["name"], "kind": kind} | row for row in rows)


def write_results(folder: Path, study: Study | None, results: dict[str, Any]) -> None:
    """Write study.toml, results.json, results.csv, results.md and, for corrupted images, robustness.csv."""
    if study is not None:
        replace_text(folder / "study.toml", to_toml(study))
    replace_text(folder / "results.json", json_text(results, indent=1) + "\n")
    replace_text(folder / "results.md", markdown(results))
    _write_csv(folder / "results.csv", list(table_rows(results)))
    if robustness := list(robustness_rows(results)):
        _write_csv(folder / "robustness.csv", robustness)


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with table_file(path) as writer:
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([csv_safe(f"{v:.6g}" if isinstance(v, float) else v) for v in row.values()])
