"""``glassformer calibrate``.

It fits a temperature and, optionally, a decision threshold on validation data, and saves both with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.cli import options as cli
from glassformer.cli.evaluate import check_run
from glassformer.cli.options import option
from glassformer.cli.output import AS_JSON, abstention_line, print_json, print_message, print_note, show_table
from glassformer.config import suggest
from glassformer.errors import BadValueError
from glassformer.report.wording import decimal, digits_for, interval, percent, share_interval

FEW_EXAMPLES = 100  # with fewer examples, a note says that the temperature is unreliable
FEW_MISTAKES = 5  # with fewer wrong predictions, a note says the same
METRICS = ("accuracy", "macro_f1", "f1")
# Python code that removes a calibration
UNDO_CODE = (
    "clf = glassformer.load('{run}'); clf.temperature_ = 1.0{decision}; "
    "clf.save('{run}/model', overwrite=True)"
)


def show_calibration(result: dict[str, Any], run: Path) -> None:
    """Print the temperature, and the metrics before and after calibration on each split."""
    from glassformer.targets import target_of

    target = target_of(result["splits"][result["chosen_by"]]["before"])
    second = next(key for key in target.main_metrics if key != "accuracy")
    metric_names = [target.metrics[key].name for key in ("accuracy", second)]
    columns = ("", "calib. error", "95 % interval", "log loss", *metric_names)  # within 80 characters
    per_label = isinstance(result["temperature"], list)
    if per_label:
        print_message(
            "one temperature per label; calib. error: the expected calibration error over all labels"
        )
    else:
        print_message(
            f"temperature {result['temperature']:.4f}; calib. error: the expected calibration error"
        )
    for name, split in result["splits"].items():
        digits = digits_for(split["before"]["n"])
        rows = []
        for stage in ("before", "after"):
            scores = split[stage]
            calibration_error = percent(scores["ece"], 2), interval(scores["ece_interval"], 2)
            metrics = percent(scores["accuracy"], digits), percent(scores[second], digits)
            rows.append([stage, *calibration_error, decimal(scores["log_loss"], 4), *metrics])
        show_table(name, columns, rows, right=columns[1:])
    if per_label:
        show_labels(result)
    else:
        show_decision(result)
    count = result["splits"][result["chosen_by"]]["before"]["n"]
    if count < FEW_EXAMPLES:
        examples = f"{count} {'words' if target.has_word_labels else 'examples'}"
        print_note(
            f"only {examples} for calibration: with fewer than {FEW_EXAMPLES}, the temperature is unreliable"
        )
    print_note(*few_mistakes(result), *overlap_notes(result))
    if result["at_bound"]:
        print_note(
            "the temperature is at the limit of the searched range: the model is far from calibrated, or "
            "there are few examples"
        )
    print_message(f"saved with the model: {run / 'model'}")
    if not isinstance(result["temperature"], list):
        settings = [name for name in ("threshold", "abstain_below") if result.get(name) is not None]
        decision = "".join(f"; clf.{name}_ = None" for name in settings)
        print_message(f"to undo it, in Python: {UNDO_CODE.format(run=run, decision=decision)}")
    print_message(f"report: {run / 'report.html'}")


def few_mistakes(result: dict[str, Any]) -> Iterator[str]:
    """Yield notes if few or none of the calibration examples are predicted wrongly."""
    n, counts = result["splits"][result["chosen_by"]]["before"]["n"], result["mistakes"]
    caution = "the temperature is fitted with one pseudo-error (Platt, 1999) and may not fit harder examples"
    if isinstance(counts, list):
        labels = [label for label, count in zip(result["classes"], counts, strict=True) if not count]
        if labels:
            names = ", ".join(labels[:FEW_MISTAKES]) + (", …" if len(labels) > FEW_MISTAKES else "")
            count = f"{len(labels):,} of {len(counts):,} labels ({names})"
            yield f"no wrong prediction in {n:,} examples for {count}: {caution}"
    elif not counts:
        yield f"no wrong prediction in the {n:,} examples: {caution}"
    elif counts < FEW_MISTAKES:
        mistakes = "1 wrong prediction" if counts == 1 else f"{counts} wrong predictions"
        yield f"only {mistakes} in the {n:,} examples: the temperature is unreliable"


def overlap_notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield notes if calibration examples are also in the splits of the run."""
    n = result["splits"][result["chosen_by"]]["before"]["n"]
    for split, count in result.get("seen", {}).items():
        if not count:
            continue
        message = (
            f"{count:,} of the {n:,} calibration examples are {split} examples of the run, or copies of them"
        )
        if split == "train":
            yield f"{message}: on training examples a model is more confident, so the temperature is too low"
        else:
            yield f"{message}: the {split} metrics after calibration are no longer an independent check"


def show_abstention(result: dict[str, Any]) -> None:
    """Print, for several abstention thresholds, how many calibration examples would get a label."""
    rows = []
    for entry in result["abstaining"]:
        n, accuracy = entry["answered"], entry["accuracy"]
        bounds = share_interval(accuracy, entry["accuracy_interval"], n, digits_for(n)) if n else ""
        answered = percent(n / entry["n"], digits_for(entry["n"]))
        rows.append([f"{entry['below']:g}", answered, percent(accuracy, digits_for(n)), bounds])
    columns = ("below", "share with label", "accuracy of these", "95 % interval")
    show_table("no label", columns, rows, right=columns)
    print_message(f"set the threshold with --abstain-below P; measured on the {result['chosen_by']} examples")


def show_decision(result: dict[str, Any]) -> None:
    """Print the decision threshold, or one per class, and the effect of abstention."""
    from glassformer.report.metrics import compared_metric

    threshold, metric_name = result["threshold"], compared_metric(result["metric"] or "f1").name
    if isinstance(threshold, list):
        pairs = zip(result["classes"], threshold, strict=True)
        rows = [[name, f"{t:.4f}", f"{-math.log(t * len(threshold)):+.3f}"] for name, t in pairs]
        columns = ("class", "threshold", "offset of log p")
        show_table(f"thresholds for the best {metric_name}", columns, rows, right=columns[1:])
    elif threshold is not None:
        print_message(
            f"threshold on {result['classes'][1]!r}: {threshold:.4f}, for the best {result['metric']}"
        )
    if threshold is not None and (unseen := result.get("unseen")):
        message = f"{metric_name} on {result['chosen_by']} with thresholds chosen by 5-fold cross-validation"
        print_message(f"{message}: {decimal(unseen['before'], 4)} becomes {decimal(unseen['after'], 4)}")
    for name, split in result["splits"].items():
        if abstention := split["after"].get("abstention"):
            print_message(f"{name}: {abstention_line(abstention)}")
    if result.get("abstaining") and result.get("abstain_below") is None:
        show_abstention(result)


def show_labels(result: dict[str, Any]) -> None:
    """Print temperature, threshold and calibration error of each label."""
    split = list(result["splits"].values())[-1]
    rows = [
        [
            label,
            f"{result['temperature'][k]:.3f}",
            "0.5" if result["threshold"] is None else f"{result['threshold'][k]:.3f}",
            *(f"{100 * split[stage]['ece_per_label'][k]:.2f} %" for stage in ("before", "after")),
        ]
        for k, label in enumerate(result["classes"])
    ]
    columns = ("label", "temperature", "threshold", "error before", "error after")
    show_table(list(result["splits"])[-1], columns, rows, right=columns[1:])


@cli.with_columns(*cli.LABELED_COLUMNS)
def calibrate_command(
    run: Path = cli.RUN_FOLDER,
    path: str | None = cli.OTHER_DATA,
    data: str | None = option(
        "PATH", "Labeled data to calibrate on, instead of the run's validation split.", panel=cli.DATA
    ),
    threshold: str | None = option(
        "METRIC", f"Also tune the decision threshold(s) to maximize METRIC: {', '.join(METRICS)}."
    ),
    abstain_below: float | None = option("P", "Predict no label below this probability (0 to 1)."),
    on_bad_row: str | None = cli.BAD_ROW,
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Fit temperature and threshold of a classifier on validation data, and save them with the model.

    Regressors have prediction intervals instead: `predict --coverage`.
    """
    if threshold is not None and threshold not in METRICS:
        what = f"unknown metric {threshold!r}"
        raise BadValueError(what, where="--threshold", fix=suggest(threshold, METRICS))
    folder, data = check_run(run), cli.choose_data(path, data, "calibrate")
    from glassformer.study.calibration import calibrate_run

    options: dict[str, Any] = {"abstain_below": abstain_below, "log": cli.print_library_message}
    options |= {"columns": cli.columns_for_data(columns, data), "on_bad_row": cli.check_bad_row(on_bad_row)}
    result = calibrate_run(folder, data, threshold, **options)
    if json:
        print_json(result)
    else:
        show_calibration(result, folder)
