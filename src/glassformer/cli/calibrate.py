"""``glassformer calibrate``: calibrate the probabilities of a run's model, and tune its threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.cli.evaluate import check_run
from glassformer.cli.options import (
    BAD_ROW,
    DATA,
    LABELED,
    OTHER_DATA,
    RUN_FOLDER,
    check_bad_row,
    one_data,
    option,
    refuse_columns,
    tell,
    with_columns,
)
from glassformer.cli.output import AS_JSON, abstention_line, note, say, say_json, show_table
from glassformer.config import nearest
from glassformer.errors import BadValueError
from glassformer.report.wording import decimal, digits_for, interval, percent, share_interval

FEW = 100  # with fewer examples, a note warns about the temperature
FEW_MISTAKES = 5
METRICS = ("accuracy", "macro_f1", "f1")
THRESHOLD: Any = option(
    "METRIC", f"Also tune the decision threshold(s) to maximize METRIC: {', '.join(METRICS)}."
)
# Python code that undoes a calibration
UNDO = (
    "clf = glassformer.load('{run}'); clf.temperature_ = 1.0{decision}; "
    "clf.save('{run}/model', overwrite=True)"
)


def show_calibration(found: dict[str, Any], run: Path) -> None:
    """Print the temperature, and the metrics before and after calibration on each split."""
    from glassformer.targets import target_of

    target = target_of(found["splits"][found["chosen_by"]]["before"])
    second = next(key for key in target.leads if key != "accuracy")
    called = [target.metrics[key].name for key in ("accuracy", second)]
    columns = ("", "calib. error", "95 % interval", "log loss", *called)  # within 80 characters
    per_label = isinstance(found["temperature"], list)
    if per_label:
        say("one temperature per label; calib. error: the expected calibration error over all labels")
    else:
        say(f"temperature {found['temperature']:.4f}; calib. error: the expected calibration error")
    for name, split in found["splits"].items():
        digits = digits_for(split["before"]["n"])
        rows = []
        for side in ("before", "after"):
            s = split[side]
            rows.append(
                [
                    side,
                    percent(s["ece"], 2),
                    interval(s["ece_interval"], 2),
                    decimal(s["log_loss"], 4),
                    percent(s["accuracy"], digits),
                    percent(s[second], digits),
                ]
            )
        show_table(name, columns, rows, right=columns[1:])
    if per_label:
        show_labels(found)
    else:
        show_decision(found)
    seen = found["splits"][found["chosen_by"]]["before"]["n"]
    if seen < FEW:
        what = f"{seen} {'words' if target.word_labels else 'examples'}"
        note(f"chosen by {what} only: with fewer than {FEW} the temperature is little more than a guess")
    for line in (*few_mistakes(found), *no_check(found)):
        note(line)
    if found["at_bound"]:
        note(
            "the temperature is at the end of the searched range: the model is far from calibrated, or "
            "the examples are few"
        )
    say(f"saved with the model: {run / 'model'}")
    if not isinstance(found["temperature"], list):
        changed = [name for name in ("threshold", "abstain_below") if found.get(name) is not None]
        decision = "".join(f"; clf.{name}_ = None" for name in changed)
        say(f"to undo it, in Python: {UNDO.format(run=run, decision=decision)}")
    say(f"report: {run / 'report.html'}")


def few_mistakes(found: dict[str, Any]) -> Iterator[str]:
    """Yield notes if the calibration examples have few or no mistakes."""
    n, made = found["splits"][found["chosen_by"]]["before"]["n"], found["mistakes"]
    caution = "the temperature is fitted with one pseudo-error (Platt, 1999) and may not fit harder examples"
    if isinstance(made, list):
        clean = [label for label, count in zip(found["classes"], made, strict=True) if not count]
        if clean:
            what = ", ".join(clean[:FEW_MISTAKES]) + (", …" if len(clean) > FEW_MISTAKES else "")
            yield f"no mistake among the {n:,} for {len(clean):,} of {len(made):,} labels ({what}): {caution}"
    elif not made:
        yield f"no mistake among the {n:,}: {caution}"
    elif made < FEW_MISTAKES:
        mistakes = "1 mistake" if made == 1 else f"{made} mistakes"
        yield f"only {mistakes} among the {n:,}: the temperature is little more than a guess"


def no_check(found: dict[str, Any]) -> Iterator[str]:
    """Yield notes if calibration examples are also in the run's own splits."""
    n = found["splits"][found["chosen_by"]]["before"]["n"]
    for split, count in found.get("seen", {}).items():
        if not count:
            continue
        message = (
            f"{count:,} of the {n:,} examples that chose, or copies of them, are the run's {split} examples"
        )
        if split == "train":
            yield f"{message}: on training examples a model is more confident, so the temperature is too low"
        else:
            yield f"{message}: its {split} metrics after calibration are no longer an independent check"


def show_limits(found: dict[str, Any]) -> None:
    """Print how many of the calibration examples would get a label with each abstention threshold."""
    rows = []
    for left in found["abstaining"]:
        n, share = left["answered"], left["accuracy"]
        known = share_interval(share, left["accuracy_interval"], n, digits_for(n)) if n else ""
        answered = percent(n / left["n"], digits_for(left["n"]))
        rows.append([f"{left['below']:g}", answered, percent(share, digits_for(n)), known])
    columns = ("below", "answered", "right of these", "95 % interval")
    show_table("no label", columns, rows, right=columns)
    say(f"choose one with --abstain-below P; measured on the {found['chosen_by']} examples")


def show_decision(found: dict[str, Any]) -> None:
    """Print the decision threshold, or one per class, and the effect of abstention."""
    from glassformer.report.metrics import unit_of

    threshold, called = found["threshold"], unit_of(found["metric"] or "f1").name
    if isinstance(threshold, list):
        rows = [[name, f"{t:.4f}", f"{-math.log(t * len(threshold)):+.3f}"] for name, t in _by_class(found)]
        columns = ("class", "threshold", "offset of log p")
        show_table(f"thresholds for the best {called}", columns, rows, right=columns[1:])
    elif threshold is not None:
        say(f"threshold on {found['classes'][1]!r}: {threshold:.4f}, for the best {found['metric']}")
    if threshold is not None and (unseen := found.get("unseen")):
        message = f"{called} on {found['chosen_by']} with thresholds chosen by 5-fold cross-validation"
        say(f"{message}: {decimal(unseen['before'], 4)} becomes {decimal(unseen['after'], 4)}")
    for name, split in found["splits"].items():
        if left := split["after"].get("abstention"):
            say(f"{name}: {abstention_line(left)}")
    if found.get("abstaining") and found.get("abstain_below") is None:
        show_limits(found)


def _by_class(found: dict[str, Any]) -> list[tuple[str, float]]:
    """Classes and their thresholds."""
    return list(zip(found["classes"], found["threshold"], strict=True))


def show_labels(found: dict[str, Any]) -> None:
    """Temperature, threshold and calibration error of each label."""
    split = list(found["splits"].values())[-1]
    rows = [
        [
            label,
            f"{found['temperature'][k]:.3f}",
            "0.5" if found["threshold"] is None else f"{found['threshold'][k]:.3f}",
            *(f"{100 * split[side]['ece_per_label'][k]:.2f} %" for side in ("before", "after")),
        ]
        for k, label in enumerate(found["classes"])
    ]
    columns = ("label", "temperature", "threshold", "error before", "error after")
    show_table(list(found["splits"])[-1], columns, rows, right=columns[1:])


@with_columns(*LABELED)
def calibrate_command(
    run: Path = RUN_FOLDER,
    path: str | None = OTHER_DATA,
    data: str | None = option(
        "PATH", "Labeled data to calibrate on, instead of the run's validation split.", panel=DATA
    ),
    threshold: str | None = THRESHOLD,
    abstain_below: float | None = option("P", "Predict no label below this probability (0 to 1)."),
    on_bad_row: str | None = BAD_ROW,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Choose temperature and threshold on validation data, and save them with the model."""
    if threshold is not None and threshold not in METRICS:
        raise BadValueError(f"no metric {threshold!r}", where="--threshold", fix=nearest(threshold, METRICS))
    folder, data = check_run(run), one_data(path, data, "calibrate")
    from glassformer.study.calibration import calibrate_run

    named, bad = refuse_columns(columns, data), check_bad_row(on_bad_row)
    chosen: dict[str, Any] = {"abstain_below": abstain_below, "columns": named, "on_bad_row": bad}
    found = calibrate_run(folder, data, threshold, say=tell, **chosen)
    if json:
        say_json(found)
    else:
        show_calibration(found, folder)
