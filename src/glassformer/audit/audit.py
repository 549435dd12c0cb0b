"""Audit of a model on labeled data: runs the checks of ``checks.py`` and summarizes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from glassformer.audit.checks import CHECKS, Checked
from glassformer.audit.predicted import Predicted
from glassformer.evaluate.metrics import interval, percent
from glassformer.runtime import machine_facts, versions
from glassformer.train.callbacks import Count, no_progress


def audit(
    predicted: Predicted,
    *,
    checks: Sequence[str] | None = None,
    count: Count = no_progress,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run all checks of a model's predictions on labeled examples; trains nothing.

    Args:
        checks: keys of ``CHECKS``; None: all. The others are "not measured".

    Returns:
        For JSON: ``model``, ``data``, ``n``, ``date``, ``sentences`` (a summary in five), the number of
        ``warnings``, ``checks`` (see ``Checked.to_dict``), ``about`` the model, ``seconds``, ``machine`` and
        ``versions``.
    """
    started, results = time.perf_counter(), []
    for name, check in CHECKS.items():
        if checks is not None and name not in checks:
            results.append(Checked(name, not_measured="it was not selected"))
            continue
        began = time.perf_counter()
        results.append(check(predicted, count))
        log(f"{results[-1].title}: {line_of(results[-1])} ({time.perf_counter() - began:.0f} s)")
    return {
        "model": predicted.name,
        "data": str(predicted.split.origin),
        "n": len(predicted),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sentences": sentences({one.name: one for one in results}, predicted),
        "warnings": sum(f.severity == "warning" for one in results for f in one.findings),
        "checks": [one.to_dict() for one in results],
        "about": about(predicted),
        "seconds": round(time.perf_counter() - started, 1),
        "machine": machine_facts(),
        "versions": versions(),
    }


def line_of(checked: Checked) -> str:
    """The result of a check in a few words."""
    if checked.not_measured:
        return f"not measured: {checked.not_measured}"
    n_warnings = sum(f.severity == "warning" for f in checked.findings)
    if n_warnings:
        return f"{n_warnings} warning{'s' * (n_warnings > 1)}"
    return "no warnings"


def sentences(checks: Mapping[str, Checked], predicted: Predicted) -> list[str]:
    """A summary in five sentences: performance, data, weak slices, robustness and shortcuts, calibration."""
    return [
        _performance(checks["performance"]),
        _warnings_of(
            checks, ("data", "leaks"), "No copies, leaks or suspicious labels were found in the data"
        ),
        _warnings_of(checks, ("slices",), "No group of examples has far more errors than the others"),
        _warnings_of(
            checks,
            ("robustness", "shortcuts"),
            "No meaning-preserving change and no single word or region decides its predictions",
        ),
        _calibration(checks["calibration"], checks["faithfulness"]),
    ]


def _performance(checked: Checked) -> str:
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


def _warnings_of(found: Mapping[str, Checked], names: Sequence[str], fine: str) -> str:
    """A sentence on the warnings of some checks, with the first in full; ``fine`` if there are none."""
    checks = [found[name] for name in names]
    warned = [one.message for check in checks for one in check.findings if one.severity == "warning"]
    left = [f"{check.title.lower()} not measured" for check in checks if check.not_measured]
    if warned:
        more = f" (warnings not shown: {len(warned) - 1})" if len(warned) > 1 else ""
        return f"{warned[0][0].upper()}{warned[0][1:]}{more}."
    if len(left) == len(checks):
        return f"{left[0][0].upper()}{left[0][1:]}: {checks[0].not_measured}."
    return f"{fine}{'; ' + ', '.join(left) if left else ''}."


def _calibration(calibration: Checked, faithfulness: Checked) -> str:
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


def about(predicted: Predicted) -> dict[str, Any]:
    """Facts about the model for technical documentation; None: unknown."""
    clf = predicted.clf
    labels = None if predicted.gives_numbers else list(map(str, clf.classes_.tolist()))
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
