"""Audits of models on labeled data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from glassformer.audit.checks import CHECKS, CheckResult
from glassformer.audit.predictions import Predictions
from glassformer.evaluate.metrics import interval, percent
from glassformer.runtime import machine_facts, versions
from glassformer.train.callbacks import Count, no_progress


def audit(
    predicted: Predictions,
    *,
    checks: Sequence[str] | None = None,
    count: Count = no_progress,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the checks of ``checks.py`` on a model's predictions; trains nothing.

    Args:
        checks: keys of ``CHECKS``; None: all. The remaining checks are "not measured".

    Returns:
        Values for JSON: ``model``, ``data``, ``n``, ``date``, ``sentences`` (the summary), ``warnings``
        (their number), ``checks`` (see ``CheckResult.to_dict``), ``about`` (the model), ``seconds``,
        ``machine`` and ``versions``.
    """
    audit_start, results = time.perf_counter(), []
    for name, check in CHECKS.items():
        if checks is not None and name not in checks:
            results.append(CheckResult(name, not_measured="it was not selected"))
            continue
        start = time.perf_counter()
        results.append(check(predicted, count))
        log(f"{results[-1].title}: {summary_line(results[-1])} ({time.perf_counter() - start:.0f} s)")
    return {
        "model": predicted.name,
        "data": str(predicted.split.origin),
        "n": len(predicted),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sentences": sentences({one.name: one for one in results}, predicted),
        "warnings": sum(f.severity == "warning" for one in results for f in one.findings),
        "checks": [one.to_dict() for one in results],
        "about": about(predicted),
        "seconds": round(time.perf_counter() - audit_start, 1),
        "machine": machine_facts(),
        "versions": versions(),
    }


def summary_line(checked: CheckResult) -> str:
    """The result of a check in a few words."""
    if checked.not_measured:
        return f"not measured: {checked.not_measured}"
    n_warnings = sum(f.severity == "warning" for f in checked.findings)
    if n_warnings:
        return f"{n_warnings} warning{'s' * (n_warnings > 1)}"
    return "no warnings"


def sentences(checks: Mapping[str, CheckResult], predicted: Predictions) -> list[str]:
    """A summary in five sentences: performance, data, weak slices, robustness and shortcuts, calibration."""
    no_data_warnings = "No copies, leaks or suspicious labels were found in the data"
    no_slices = "No group of examples has far more errors than the others"
    is_robust = "No meaning-preserving change and no single word or region decides its predictions"
    return [
        _performance_sentence(checks["performance"]),
        _warning_sentence(checks, ("data", "leaks"), no_data_warnings),
        _warning_sentence(checks, ("slices",), no_slices),
        _warning_sentence(checks, ("robustness", "shortcuts"), is_robust),
        _calibration_sentence(checks["calibration"], checks["faithfulness"]),
    ]


def _performance_sentence(checked: CheckResult) -> str:
    if checked.not_measured:
        return f"Performance: not measured ({checked.not_measured})."
    f = checked.values
    low, high = f["interval"]
    if f["metric"] == "mean absolute error":
        text = f"{f['metric']} {f['value']:.4g} (95 % interval {low:.4g} to {high:.4g})"
        text += f" on {f['n']:,} examples; always predicting the median gives {f['constant']:.4g}"
    else:
        text = f"{f['metric']} {percent(f['value'])} (95 % interval {interval(f['interval'])}) on {f['n']:,} "
        text += f"examples; always predicting the same gives {percent(f['constant'])}"
    messages = [one.message for one in checked.findings if one.severity == "warning"]
    return f"{text[0].upper()}{text[1:]}{': but ' + messages[0] if messages else ''}."


def _warning_sentence(results: Mapping[str, CheckResult], names: Sequence[str], no_warnings: str) -> str:
    """A sentence with the first warning of some checks; ``no_warnings`` if there are no warnings."""
    checks = [results[name] for name in names]
    warnings = [f.message for check in checks for f in check.findings if f.severity == "warning"]
    not_measured = [f"{check.title.lower()} not measured" for check in checks if check.not_measured]
    if warnings:
        more = f" (warnings not shown: {len(warnings) - 1})" if len(warnings) > 1 else ""
        return f"{warnings[0][0].upper()}{warnings[0][1:]}{more}."
    if len(not_measured) == len(checks):
        return f"{not_measured[0][0].upper()}{not_measured[0][1:]}: {checks[0].not_measured}."
    return f"{no_warnings}{'; ' + ', '.join(not_measured) if not_measured else ''}."


def _calibration_sentence(calibration: CheckResult, faithfulness: CheckResult) -> str:
    messages = [one.message for one in calibration.findings]
    if calibration.not_measured:
        first = "Calibration was not measured"
    elif messages:
        first = f"{messages[0][0].upper()}{messages[0][1:]}"
    else:
        error = calibration.values["calibration_error"]
        first = f"No miscalibration beyond chance (calibration error {error:.3f})"
    if faithfulness.not_measured:
        return f"{first}; explanations were not tested."
    table = faithfulness.values["operators"]
    passes = sum(counts["passes"] for counts in table.values())
    tests = sum(counts["n"] for counts in table.values())
    return f"{first}; explanations pass {passes} of {tests} faithfulness tests."


def about(predicted: Predictions) -> dict[str, Any]:
    """Facts about the model for technical documentation; unknown facts are None."""
    clf = predicted.clf
    labels = None if predicted.predicts_numbers else list(map(str, clf.classes_.tolist()))
    return {
        "model": predicted.name,
        "kind": type(clf).__name__,
        "architecture": str(clf.model),
        "parameters": sum(p.numel() for p in clf.model_.parameters()),
        "weights": getattr(clf, "weights_source_", None),
        "reads": clf.inputs.noun,
        "predicts": labels or "a number",
        "training_examples": None if predicted.train is None else len(predicted.train),
        "training_data": None if predicted.train is None else str(predicted.train.origin),
        "intended_use": None,
        "human_oversight": None,
        "monitoring": None,
    }
