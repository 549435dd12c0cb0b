"""An audit: may this model be used on such data? Every check of ``checks.py``, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from glassformer.audit.checks import CHECKS, Checked
from glassformer.audit.predicted import Predicted
from glassformer.evaluate.metrics import interval, percent
from glassformer.runtime import machine_facts, versions
from glassformer.train.callbacks import Count, uncounted


def audit(
    predicted: Predicted,
    *,
    checks: Sequence[str] | None = None,
    count: Count = uncounted,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """All checks of a model's predictions on labeled examples, without any training; for JSON.

    Args:
        checks: keys of ``CHECKS``; None: all. The others are "not measured".

    Returns:
        ``model``, ``data``, ``n``, ``date``, ``sentences`` (five, the most important first), the number of
        ``warnings``, ``checks`` (see ``Checked.to_dict``), ``about`` the model, ``seconds``, ``machine`` and
        ``versions``.
    """
    started, made = time.perf_counter(), []
    for name, check in CHECKS.items():
        if checks is not None and name not in checks:
            made.append(Checked(name, TITLES[name], not_measured="it was not asked for"))
            continue
        began = time.perf_counter()
        made.append(check(predicted, count))
        log(f"{made[-1].title}: {line_of(made[-1])} ({time.perf_counter() - began:.0f} s)")
    return {
        "model": predicted.name,
        "data": str(predicted.split.origin),
        "n": len(predicted),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sentences": sentences({one.name: one for one in made}, predicted),
        "warnings": sum(f.severity == "warning" for one in made for f in one.findings),
        "checks": [one.to_dict() for one in made],
        "about": about(predicted),
        "seconds": round(time.perf_counter() - started, 1),
        "machine": machine_facts(),
        "versions": versions(),
    }


TITLES = {
    "performance": "Performance",
    "data": "Data",
    "leaks": "Leaks from training",
    "calibration": "Calibration",
    "slices": "Slices",
    "robustness": "Robustness",
    "shortcuts": "Shortcuts",
    "faithfulness": "Explanations",
}


def line_of(checked: Checked) -> str:
    """A check's outcome in a few words."""
    if checked.not_measured:
        return f"not measured: {checked.not_measured}"
    warned = sum(f.severity == "warning" for f in checked.findings)
    if warned:
        return f"{warned} warning{'s' * (warned > 1)}"
    return "nothing to warn of"


def sentences(found: Mapping[str, Checked], predicted: Predicted) -> list[str]:
    """Five sentences: how good, on what, where weak, what decides, how far to trust it."""
    return [
        _how_good(found["performance"]),
        _told(found, ("data", "leaks"), "No copies, leaks or doubtful labels were found in the data"),
        _told(found, ("slices",), "No group of examples has far more errors than the others"),
        _told(
            found,
            ("robustness", "shortcuts"),
            "No change that leaves the meaning, and no single word or region, decides its predictions",
        ),
        _trust(found["calibration"], found["faithfulness"]),
    ]


def _how_good(checked: Checked) -> str:
    if checked.not_measured:
        return f"Performance: not measured ({checked.not_measured})."
    f = checked.values
    low, high = f["interval"]
    if f["metric"] == "mean absolute error":
        said = f"{f['metric']} {f['value']:.4g} (95 % interval {low:.4g} to {high:.4g})"
        said += f" on {f['n']:,} examples; always predicting the median gives {f['constant']:.4g}"
    else:
        said = f"{f['metric']} {percent(f['value'])} (95 % interval {interval(f['interval'])}) on {f['n']:,} "
        said += f"examples; always predicting the same gives {percent(f['constant'])}"
    warned = [one.message for one in checked.findings if one.severity == "warning"]
    return f"{said[0].upper()}{said[1:]}{': but ' + warned[0] if warned else ''}."


def _told(found: Mapping[str, Checked], names: Sequence[str], fine: str) -> str:
    """The warnings of some checks, the first in full; ``fine`` where there are none."""
    checks = [found[name] for name in names]
    warned = [one.message for check in checks for one in check.findings if one.severity == "warning"]
    left = [f"{check.title.lower()} not measured" for check in checks if check.not_measured]
    if warned:
        more = f" (and {len(warned) - 1} more)" if len(warned) > 1 else ""
        return f"{warned[0][0].upper()}{warned[0][1:]}{more}."
    if len(left) == len(checks):
        return f"{left[0][0].upper()}{left[0][1:]}: {checks[0].not_measured}."
    return f"{fine}{'; ' + ', '.join(left) if left else ''}."


def _trust(calibration: Checked, faithfulness: Checked) -> str:
    warned = [one.message for one in calibration.findings]
    if calibration.not_measured:
        first = "Calibration was not measured"
    elif warned:
        first = f"{warned[0][0].upper()}{warned[0][1:]}"
    else:
        error = calibration.values["calibration_error"]
        first = f"No miscalibration beyond chance (calibration error {error:.3f})"
    if faithfulness.not_measured:
        return f"{first}; explanations were not tested."
    table = faithfulness.values["operators"]
    passes = sum(own["passes"] for own in table.values())
    tests = sum(own["n"] for own in table.values())
    return f"{first}; explanations pass {passes} of {tests} faithfulness tests."


def about(predicted: Predicted) -> dict[str, Any]:
    """What a technical documentation asks of the model; None: not known here."""
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
