"""Results of a study as JSON, CSV and Markdown: metrics, intervals, paired tests, cost and curves.

Everything is read from the run folders (predictions.csv, history.jsonl, metrics.json) of any task that
predicts labels, tags, numbers or cosines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text
from glassformer.config import to_toml
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, DataError, GlassformerError
from glassformer.evaluate.metrics import Share
from glassformer.evaluate.predictions import table_file
from glassformer.finite import json_text
from glassformer.report.metrics import COMPARED, compared_metric, difference_text, is_better, leading_metrics
from glassformer.report.run import read_history
from glassformer.report.wording import NONE, count, decimal, digits_for, headed, how_tested, p_value
from glassformer.study.answers import baseline_runs, examples_differ, read_answers
from glassformer.study.arms import MARKER, Job
from glassformer.study.grid import Arm, Study, baseline_of
from glassformer.study.paired import LEVEL, add_tests, measure_for, spread
from glassformer.targets.target import RunPredictions, read_object

# --- sentences and the Markdown table ---------------------------------------------------------------


def sentences(results: dict[str, Any]) -> dict[str, Any]:
    """``verdict``: the study's result in words; ``sentences``: arm -> its comparison with the baseline."""
    digits, baseline = digits_for(results["n"]), results["baseline"]
    measure = measured(results)
    unit = compared_metric(measure)
    compared = [arm for arm in results["arms"] if arm["name"] != baseline]
    sentence_of = {arm["name"]: _arm_sentence(arm, baseline, digits, measure) for arm in compared}
    differ = [a for a in compared if a["significant"] and a[measure]["difference"]]
    better = [a["name"] for a in differ if is_better(a[measure], unit)]
    worse = [a["name"] for a in differ if not is_better(a[measure], unit)]
    unsettled = [a["name"] for a in compared if _unsettled(a, measure)]
    parts = []
    if better:
        parts.append(f"Significantly better than {baseline}: {'; '.join(better)}.")
    if worse:
        parts.append(f"Significantly worse than {baseline}: {'; '.join(worse)}.")
    if unsettled:
        parts.append(
            f"Undecided compared with {baseline}: {'; '.join(unsettled)}. These trainings differ, but seeds "
            "vary so much that other seeds could reverse the result."
        )
    no_difference = [a["name"] for a in compared if not a["significant"] and a["name"] not in unsettled]
    if len(no_difference) == 1:
        parts.append(f"No significant difference between {no_difference[0]} and {baseline}.")
    elif no_difference:
        subject = (
            f"none of the {len(no_difference)} arms differs"
            if len(no_difference) == len(compared)
            else f"{len(no_difference)} arms do not differ"
        )
        parts.append(f"No significant difference: {subject} from {baseline} beyond chance.")
    parts += _ladder_sentence(results)
    parts += _simple_models_sentence(results, measure, digits)
    if n_missing := len(results["unfinished"]):
        parts.append(f"{n_missing} {'run is' if n_missing == 1 else 'runs are'} missing.")
    if len(results["seeds"]) == 1:
        parts.append("There is one seed per arm, so the variation between seeds is unknown.")
    if len(results["seeds"]) == 2 and len(no_difference) + len(unsettled):
        parts.append(
            "Two seeds per arm estimate the variation between seeds poorly, so only very large differences "
            "are significant; use three or more."
        )
    return {"verdict": " ".join(parts), "sentences": sentence_of}


def _simple_models_sentence(results: dict[str, Any], measure: str, digits: int) -> list[str]:
    """A sentence if no arm reaches the best of the simple models."""
    simple = {name: scores.get(measure) for name, scores in results.get("baselines", {}).items()}
    simple = {name: value for name, value in simple.items() if value is not None}
    if not simple:
        return []
    arms = [arm[measure]["mean"] for arm in results["arms"] if arm[measure]["mean"] is not None]
    if not arms:
        return []
    unit = compared_metric(measure)
    best = (min if unit.lower else max)(simple, key=simple.__getitem__)
    if min(arms) <= simple[best] if unit.lower else max(arms) >= simple[best]:
        return []
    return [f"No arm reaches {best} ({unit.value(simple[best], digits)})."]


def measured(results: dict[str, Any]) -> str:
    """The metric that a study's arms are compared by."""
    return results.get("measure") or "accuracy"


def pair_tests(arm: dict[str, Any], measure: str) -> list[dict[str, Any]]:
    """The tests of each pair of runs with the same seed, for the metric; McNemar's is only for accuracy."""
    return arm.get("permutation") or (measure == "accuracy" and arm.get("mcnemar")) or []


def _unsettled(arm: dict[str, Any], measure: str) -> bool:
    """Whether all pairs of runs differ significantly in the same direction, but the arms do not."""
    tests = pair_tests(arm, measure)
    ways = {test["wins"] > test["losses"] if "wins" in test else test["difference"] > 0 for test in tests}
    consistent = len(tests) > 1 and len(ways) == 1 and all(test["p"] < 0.05 for test in tests)
    return not arm["significant"] and consistent


def _ladder_sentence(results: dict[str, Any]) -> list[str]:
    """A sentence about the first arm of the ladder that is significantly worse than the baseline, or none."""
    measure = measured(results)
    unit = compared_metric(measure)
    arms = {arm["name"]: arm for arm in results["arms"]}
    ladder = [name for name in results.get("ladder", []) if name in arms]
    if len(ladder) < 2:
        return []
    path = f" over {', '.join(ladder[1:-1])}" if ladder[2:] else ""
    start = f"From {ladder[0]}{path} to {ladder[-1]}"
    for name in ladder:
        if arms[name].get("significant") and not is_better(arms[name][measure], unit):
            return [f"{start}, {name} is the first that is shown to be worse than {results['baseline']}."]
    ending = f"none is shown to be worse than {results['baseline']}; they were not tested against each other"
    return [f"{start}, {ending}."]


def _arm_sentence(arm: dict[str, Any], baseline: str, digits: int, measure: str) -> str:
    difference, bounds = arm[measure]["difference"], arm[measure]["difference_interval"]
    direction = "above" if difference > 0 else "below"
    equal = f"as accurate as {baseline}" if measure == "accuracy" else f"as good as {baseline}"
    unit = compared_metric(measure)
    metric_suffix = "" if measure == "accuracy" else f" of {unit.name}"
    size = (
        f"{unit.difference(difference, digits)}{metric_suffix} {direction} {baseline}"
        if difference
        else equal
    )
    low, high = (unit.with_sign(x, digits) for x in bounds)
    evidence = f"95 % interval {low} to {high}, p = {p_value(arm['p_holm'])} after Holm".replace("= <", "<")
    tests = pair_tests(arm, measure)
    if tests and not difference and not any(test.get("wins", 1) or test["losses"] for test in tests):
        return f"No difference: right on the same examples as {baseline}, and wrong on the same."
    if arm["significant"]:
        return f"{size} ({evidence})."
    if _unsettled(arm, measure):
        largest_p = p_value(max(test["p"] for test in tests))
        name = "McNemar" if arm.get("mcnemar") else "permutation"
        return (
            f"Undecided: {size} ({evidence}). Each pair of trainings differs on these examples ({name}, p "
            f"{largest_p if largest_p.startswith('<') else f'at largest_p {largest_p}'}), but other seeds "
            "could reverse the result."
        )
    return f"No significant difference: {size} ({evidence})."


def markdown(results: dict[str, Any]) -> str:
    """The study as Markdown: verdict, a table with one row per arm, and notes."""
    digits, measure = digits_for(results["n"]), measured(results)
    unit, ((first, _), (second, other)) = (
        compared_metric(measure),
        leading_metrics(measure, results["arms"][0]),
    )
    # For classes, the first column is always the accuracy, as in older tables.
    if first == "macro_f1" and second == "accuracy":
        first, second, other = "accuracy", "macro_f1", unit.name
    first_metric, second_metric = compared_metric(first), compared_metric(second)
    header = (
        "Arm",
        "Seeds",
        headed(first_metric.name),
        "SD over seeds",
        "95 % interval",
        headed(other),
        "Log loss",
        "Difference (points)" if measure == "accuracy" else f"Difference ({unit.name}{unit.unit_suffix})",
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
    for arm in results["arms"]:
        scores, cost = arm[first], arm["cost"]
        lines.append(
            _row(
                [
                    arm["name"] + (" (baseline)" if arm["name"] == results["baseline"] else ""),
                    len(arm["seeds"]),
                    first_metric.value(scores["mean"], digits),
                    first_metric.deviation(scores["sd"]),
                    first_metric.interval(scores["interval"], digits, scores["mean"], results["n"]),
                    second_metric.value(arm[second]["mean"], digits),
                    decimal(arm["log_loss"]["mean"], 4),
                    difference_text(arm[measure], digits, unit),
                    p_value(arm.get("p_holm")),
                    decimal(arm["best"]["epoch"], 1),
                    decimal(cost["seconds_per_epoch"], 1),
                    count(cost["parameters"]),
                    f"{count(cost['peak_memory_mb'])} MB" if cost["peak_memory_mb"] else NONE,
                    *(
                        [Share("").value((arm.get("robustness") or {}).get("accuracy"), digits)]
                        if has_robustness
                        else []
                    ),
                ]
            )
        )
    for name, scores in results["baselines"].items():
        cells = [
            name,
            NONE,
            first_metric.value(scores.get(first), digits),
            NONE,
            first_metric.interval(scores.get(f"{first}_interval"), digits, scores.get(first), results["n"]),
            second_metric.value(scores.get(second), digits),
            decimal(scores["log_loss"], 4),
            difference_text(scores, digits, unit),
            *[NONE] * (5 + has_robustness),
        ]
        lines.append(_row(cells))
    lines += ["", notes(results)]
    return "\n".join(lines) + "\n"


def notes(results: dict[str, Any]) -> str:
    """A paragraph on how the numbers were measured."""
    seeds = ", ".join(map(str, results["seeds"]))
    machine = results["machine"].get("gpu") or results["machine"].get("cpu") or "an unnamed machine"
    return (
        f"{results['n']:,} {results['judged']} examples, for every arm the same; seeds {seeds}. "
        f"p: {how_tested(results)}, corrected for {max(len(results['arms']) - 1, 0)} comparisons by Holm's "
        f"method. "
        f"Measured on {machine}, {results['date'][:10]}."
    )


def _row(cells: Any) -> str:
    return "| " + " | ".join(_cell(c) for c in cells) + " |"


def _cell(value: Any) -> str:
    """Escape text for a Markdown table cell."""
    return re.sub(r"([\\|`*_\[\]#])", r"\\\1", " ".join(str(value).split())).replace("<", "&lt;")


# --- results --------------------------------------------------------------------------------------


CURVES = (*COMPARED, "loss")


def collect(
    study: Study,
    planned_arms: Sequence[Arm],
    jobs: Sequence[Job],
    failed: Mapping[str, str] | None = None,
    measure: str | None = None,
) -> dict[str, Any]:
    """The results of the finished jobs, for JSON; ``measure``: as ``requested`` in ``compare_results``.

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
            runs[job.arm][job.seed] = job, read_answers(job.folder)
    if not runs.get(baseline):
        if failed:
            title, reason = next(iter(failed.items()))
            raise GlassformerError(f"no run of the baseline {baseline!r} has finished; {title}: {reason}")
        fix = "Run it first"
        raise DataError(f"the baseline {baseline!r} has no finished run", where=study.name, fix=fix)
    about = {
        "name": study.name,
        "summary": study.summary,
        "recipe": study.recipe,
        "baseline": baseline,
        "ladder": list(study.ladder),
        "set": study.set,
        "seeds": list(study.seeds),
        "unfinished": [j.title for j in jobs if not (j.folder / MARKER).is_file()],
        "failed": dict(failed or {}),
    }
    results = compare_results(runs, about, study.bootstrap, "Give all arms the same data and split", measure)
    for arm in results["arms"]:
        arm["changes"] = changes[arm["name"]]
    return {"judged": study.split} | results


def compare_results(
    runs: Mapping[str, Mapping[int, tuple[Job, RunPredictions]]],
    about: dict[str, Any],
    resamples: int,
    fix: str,
    requested: str | None = None,
) -> dict[str, Any]:
    """Compare finished runs; returns the results for JSON.

    Args:
        runs: arm -> seed -> job and predictions.
        about: further entries of the results; ``baseline`` is the name of an arm with runs.
        fix: the fix in the error message for runs that were evaluated on different examples.
        requested: the metric to compare by; None: the one that selects the best weights in the recipes.

    Raises:
        DataError: a run folder cannot be read.
        ConfigError: two runs were evaluated on different examples, or have no such metric.
    """
    baseline = about["baseline"]
    first_job, first = next(iter(runs[baseline].values()))
    jobs = [job for finished in runs.values() for job, _ in finished.values()]
    for finished in runs.values():
        for job, answers in finished.values():
            if difference := examples_differ((job.folder, first_job.folder), (answers, first)):
                raise ConfigError(f"{job.title} and {first_job.title} {difference}", where="compare", fix=fix)
    arms = [_arm(name, finished) for name, finished in runs.items() if finished]
    measure = measure_for(first, [job.recipe for job in jobs], requested)
    metrics = read_object(first_job.folder / "metrics.json")
    simple_of = next((j for j in jobs if _simple_models(j.folder)), first_job)
    baselines = _simple_models(simple_of.folder)
    scored = [name for name, scores in baselines.items() if scores.get(measure) is not None]
    simple = baseline_runs(simple_of.folder, first, scored)
    differences = add_tests(arms, runs, baseline, first, resamples, measure, simple)
    keys = (*first.target.compared, *first.target.extra_metrics)
    entries = (*keys, *(f"{key}_interval" for key in keys), "log_loss", "seconds")
    results = (
        {"kind": "study"}
        | about
        | {
            "n": first.n,
            "drawn": first.target.unit_name,
            "classes": list(first.classes),
            "level": LEVEL,
            "measure": measure,
            "arms": arms,
            "baselines": {
                k: {name: b.get(name) for name in entries} | differences.get(k, {})
                for k, b in baselines.items()
            },
            "machine": metrics.get("machine", {}),
            "versions": metrics.get("versions", {}),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    if metrics.get("judged"):
        results["judged"] = metrics["judged"]
    return results | sentences(results)


def _simple_models(folder: Path) -> dict[str, Any]:
    """Metrics of a run's baselines; for an embedder including the model before training."""
    metrics = read_object(folder / "metrics.json")
    return metrics.get("baselines") or metrics.get("others") or {}


def _arm(name: str, finished: Mapping[int, tuple[Job, RunPredictions]]) -> dict[str, Any]:
    """The entries of an arm that need no comparison; ``add_tests`` adds the others."""
    folders = [job.folder for job, _ in finished.values()]
    costs = [_cost(folder) for folder in folders]
    histories = [_history(folder) for folder in folders]
    losses = [a.log_loss for _, a in finished.values()]
    best = [b for h in histories if (b := _best(h))]
    return {
        "name": name,
        "seeds": list(finished),
        "runs": [job.place for job, _ in finished.values()],
        "log_loss": spread(losses),
        "cost": {key: _mean([c[key] for c in costs]) for key in costs[0]},
        "best": {key: _mean([b.get(key) for b in best]) for key in ("epoch", *CURVES)},
        "curve": list(_curve(histories)),
        "robustness": _robustness(folders),
        "confusion": np.sum([_confusion(answers) for _, answers in finished.values()], axis=0).tolist(),
    }


def _confusion(judged: RunPredictions) -> np.ndarray:
    """The confusion matrix ``[true][predicted]``; empty unless each example has one class."""
    if not judged.target.is_single_label:
        return np.zeros((0, 0), np.int64)
    size = len(judged.classes)
    cells = judged.truth * size + judged.predicted
    return np.bincount(cells, minlength=size * size).reshape(size, size)


def _mean(values: Sequence[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return float(np.mean(present)) if present else None


# --- reading run folders --------------------------------------------------------------------------


def _history(folder: Path) -> list[dict[str, Any]]:
    return list(read_history(folder / "history.jsonl"))


def _cost(folder: Path) -> dict[str, float | None]:
    """Seconds per epoch (without evaluation), parameters, and peak memory if the run had its own process."""
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
    """Mean over seeds of each evaluation, as far as all seeds have it."""
    evaluations = [[r for r in h if r.get("kind") == "evaluation"] for h in histories]
    for same_step in zip(*evaluations):
        keys = ("step", "epoch", *CURVES, "train_loss", "train_accuracy")
        yield {key: _mean([r.get(key) for r in same_step]) for key in keys}


def _robustness(folders: Sequence[Path]) -> dict[str, Any] | None:
    """Accuracy on changed images: the mean over kinds of change, each kind, and each severity.

    All are means over seeds.
    """
    suites = [
        suite for folder in folders if (suite := read_object(folder / "metrics.json").get("robustness"))
    ]
    if not suites:
        return None
    kinds = {kind: _mean([row["accuracy"] for s in suites for row in s[kind]]) for kind in suites[0]}
    by_severity = {
        kind: [
            {"severity": rows[0]["severity"]}
            | {k: _mean([row.get(k) for row in rows]) for k in ("accuracy", "macro_f1")}
            for rows in zip(*(s[kind] for s in suites), strict=True)
        ]
        for kind in suites[0]
    }
    return {"accuracy": _mean(list(kinds.values())), "kinds": kinds, "each": by_severity}


# --- writing --------------------------------------------------------------------------------------


def table_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of results.csv, one per arm; accuracies are in [0, 1], ``value`` and differences in the unit
    of ``measure``."""
    measure, empty = results.get("measure", "accuracy"), {"interval": [None, None]}
    for arm in results["arms"]:
        accuracy, macro, main = (arm.get(key, empty) for key in ("accuracy", "macro_f1", measure))
        low, high = main.get("difference_interval") or [None, None]
        yield {
            "arm": arm["name"],
            "seeds": len(arm["seeds"]),
            "accuracy": accuracy.get("mean"),
            "accuracy_sd": accuracy.get("sd"),
            "accuracy_low": accuracy["interval"][0],
            "accuracy_high": accuracy["interval"][1],
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
            "value": main.get("mean"),
            "value_sd": main.get("sd"),
            "value_low": main["interval"][0],
            "value_high": main["interval"][1],
        }


def robustness_rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of robustness.csv: one for each arm, kind and severity of changed images."""
    for arm in results["arms"]:
        for kind, rows in ((arm.get("robustness") or {}).get("each") or {}).items():
            yield from ({"arm": arm["name"], "kind": kind} | row for row in rows)


def write_results(folder: Path, study: Study | None, results: dict[str, Any]) -> None:
    """Write study.toml, results.json, results.csv, results.md and, if there is any, robustness.csv; each
    atomically."""
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
