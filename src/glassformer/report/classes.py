"""Report sections for classifiers, single-label and multi-label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from glassformer.report import figures, maps, pictures, tables, wording
from glassformer.report.metrics import Table, leading, metric_table
from glassformer.report.page import (
    MAX_ROWS,
    TRAIN,
    VALIDATION,
    Kind,
    Section,
    curves,
    folds,
    own_inputs,
    part,
    reads_features,
    table,
)
from glassformer.report.run import LabeledRun, Run, read_run
from glassformer.targets import target_of


def multi_label(run: Run) -> bool:
    """Whether the run is multi-label."""
    return not target_of(run.scores).single_label


def _digits(run: Run) -> int:
    return wording.digits_for(run.scores["n"])


def verdict(run: LabeledRun) -> str:
    still_learning = run.metrics.get("still_learning")
    comparison = wording.compare_with_baselines(
        run.scores, run.metrics.get("baselines") or {}, run.measure, still_learning
    )
    result = wording.verdict(run.scores, run.split, run.noun, run.measure)
    return " ".join(filter(None, (result, comparison, wording.ended_too_early(comparison, still_learning))))


def cards(run: LabeledRun) -> Section:
    classes = 2 if multi_label(run) else len(run.scores["labels"])
    arguments = run, run.scores, leading(run.measure, run.scores), _digits(run), multi_label(run)
    return Section("cards", "", "", part("classes", "cards", *arguments, wording.guess_loss(classes)))


def baseline_comparison(run: LabeledRun) -> Section:
    main_metrics, noun = leading(run.measure, run.scores), run.noun
    note = (
        f"All were trained on the same {noun} and evaluated on the same {run.split} {noun}. A bar is the "
        f"95 % interval of the {main_metrics[0][1]} over the draw of those {noun}; variation between seeds "
        "adds to it. Time includes training and evaluation."
    )
    body = part(
        "classes", "simpler", run, tables.comparison(run), main_metrics, _digits(run), multi_label(run)
    )
    return Section("simpler", "Compared with simple models", note, body)


def learning_curves(run: LabeledRun) -> Section:
    """Learning curves, and a table of the splits."""
    metrics, noun = run.metrics, run.noun
    fitted = fitted_at_once(run.steps, run.evaluations)  # so there are no curves
    has_validation = any(e.get("accuracy") is not None for e in run.evaluations)
    splits = {s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.split: run.scores}
    note = "There was no validation split: the curves show training alone."
    if fitted:
        note = (
            f"The weights were fitted at once, not trained in steps. Cross-validation on the training {noun} "
            "chose the regularization and the temperature."
        )
    elif has_validation:
        note = (
            "Where the validation loss rises while the training loss still falls, the model has begun to "
            "overfit."
        )
    if len(splits) > 1:
        note += " The gap between the splits below shows how much it overfits."
    columns = ["n", *dict(leading(run.measure, run.scores)), "log_loss"]
    highlighted = (list(splits).index(run.split),)
    body = metric_table(
        [*splits.items()], columns, _digits(run), "split", noun, highlighted=highlighted, style=""
    )
    charts = () if fitted else _charts(run, has_validation)
    footnote = ""
    if (total := splits.get("train", {}).get("of", 0)) > (n := splits.get("train", {}).get("n", 0)):
        footnote = f"train: {n:,} of its {total:,} {noun}, evaluated after training."
    return Section(
        "learned", "Learning curves", note, curves(*charts) + table(body) + part("parts", "small", footnote)
    )


def _charts(
    run: LabeledRun, has_validation: bool
) -> Sequence[tuple[Markup | None, str, list[tuple[str, str]]]]:
    """The curves of the loss and of the main metric, each with its name and the keys of its lines."""
    steps, evaluations, epochs_evaluated = run.steps, run.evaluations, run.metrics.get("epochs") or ()
    has_training_accuracy = any(e.get("train_accuracy") for e in evaluations)
    loss = figures.loss_curves(steps, evaluations) if steps or evaluations else None
    keys = [(TRAIN[0], "training, each step and its trend"), *([VALIDATION] if has_validation else [])]
    keys += [("ring", "best evaluation")] if any(e.get("best") for e in evaluations) else []
    accuracy, suffix = None, "" if run.measure == "accuracy" else "'s accuracy"
    if any(e.get(key) is not None for e in evaluations for key in ("train_accuracy", "accuracy")):
        accuracy = figures.accuracy_curves(steps, evaluations, run.measure, epochs_evaluated)
    lines = [(TRAIN[0], f"training{suffix}, measured during training")] if has_training_accuracy else []
    lines += [VALIDATION] if has_validation else []
    if epochs_evaluated:
        epochs = ", ".join(wording.percent(e["accuracy"], _digits(run)) for e in epochs_evaluated)
        description = f"squares: {run.split}, weights of each epoch, evaluated after training: {epochs}"
        lines.append(("small", description))
    metric_name = wording.headed(leading(run.measure, run.scores)[0][1])
    return (loss, "Loss", keys), (accuracy, metric_name, lines)


def class_metrics(run: LabeledRun) -> Section:
    """The confusion matrix, a calibration chart, and the metrics of each class."""
    scores, matrix = run.scores, tables.confusion(run.scores)
    chart = None
    if sum(n > 0 for n in run.calibration_bins.total) > 2:  # fewer bins say nothing new
        chart = figures.calibration_chart(run.calibration_bins.total, run.calibration_bins.correct, run.noun)
    note = "Metrics of each class."
    if multi_label(run):
        note = "Multi-label: each label has its own probability and is predicted above its threshold."
    elif matrix:
        note = "Each row of the confusion matrix is a true class, each column a predicted one."
    if chart:
        note += (
            " The chart shows calibration: above the dashed line the model is right more often than its "
            "probability says, below it less often."
        )
    arguments = scores, run.noun, _digits(run), chart, matrix, tables.confusions(scores), multi_label(run)
    body = part("classes", "right", *arguments, run.metrics.get("thresholds") or {}, MAX_ROWS)
    return Section("right", "Confusion matrix and classes", note, body, ("sort.js",))


def calibration(run: LabeledRun) -> Section | None:
    result = run.calibration
    if not result:
        return None
    per_class = isinstance(result["threshold"], list) and not multi_label(run)
    origin = (
        f"was fitted on the {wording.cut(result['chosen_by'], 40)} examples (log loss with one pseudo-error)"
    )
    note = f"All logits are divided by one temperature, which {origin}"
    if multi_label(run):
        note = f"The logits of each label are divided by a separate temperature, which {origin}"
    elif per_class:
        metric = result["metric"].replace("_f1", "-F1").replace("f1", "F1")
        note += (
            f". Each class has a threshold that was chosen there by {metric}: the prediction is the class "
        )
        note += "whose probability divided by its threshold is the largest"
    elif result["threshold"] is not None:
        note += f", as was the threshold on the probability of {result['classes'][1]}"
    if limit := result.get("abstain_below"):
        note += f". The model abstains where the probability is below {wording.percent(limit)}"
    note += (
        ". They are saved with the model; the other metrics on this page were measured before calibration."
    )
    name, split = list(result["splits"].items())[-1]  # the evaluated one
    chart = figures.reliability(split["before"]["curve"], split["after"]["curve"], name)
    body = part("classes", "calibration", result, chart, multi_label(run), per_class, _digits(run), MAX_ROWS)
    return Section("calibration", "Calibration", note, body)


def mistakes(run: LabeledRun) -> Section | None:
    if not run.mistakes or run.pictures.get("mistakes"):
        return None
    note = (
        "The wrong predictions with the highest probability. Some are hard, some show what the model "
        "misses, and some have a wrong label. All predictions are in predictions.csv."
    )
    return Section("mistakes", "Most confident mistakes", note, part("classes", "mistakes", run.mistakes))


def example_images(run: LabeledRun) -> Section | None:
    images = pictures.prepare(run.pictures)
    if not any(images.values()):
        return None
    note = "One image per class with its true and its predicted label, and the wrong predictions with the "
    note += "highest probability."
    return Section("seen", "Images", note, part("classes", "seen", images), ("pictures",))


def robustness(run: LabeledRun) -> Section | None:
    rows = tables.robustness(run.metrics.get("robustness") or {})
    if not rows:
        return None
    n = rows[0]["n"]
    images = f"{n:,} of the evaluated images" if n else "the same images"
    note = (
        f"Accuracy on {images} after fixed corruptions, from hardly visible (1) to hard for people too (5). "
        "Some augmentations contain random crops and lighting, so not every corruption is new to all models."
    )
    cells = [
        [row["kind"], *map(wording.percent, (*row["each"], row["accuracy"], row["macro_f1"]))] for row in rows
    ]
    heads = ["corruption", *"12345", "mean", "mean macro-F1"]
    return Section(
        "robustness", "Robustness to image corruption", note, table(Table(heads, cells, highlighted=()))
    )


def sentences(run: LabeledRun) -> Section | None:
    user_sentences = run.metrics.get("sentences")
    return own_inputs(part("classes", "sentences", user_sentences[:MAX_ROWS])) if user_sentences else None


def attention_maps(run: LabeledRun) -> Section | None:
    """Attention maps of some examples."""
    examples, left_out = maps.prepare(run.maps)
    if not examples:
        return None
    note = part("classes", "looks_note", run.known.has_images).strip()
    needs = ["attention.js", *(["pictures"] if any(view.picture for view in examples) else [])]
    body = part("classes", "looks", examples, run.known.has_images, left_out)
    return Section("looks", "Attention", note, body, needs)


def letters(run: Run) -> str:
    return part("classes", "letters", run.known, reads_features(run.metrics)).strip()


def fitted_at_once(steps: Sequence[Any], evaluations: Sequence[Any]) -> bool:
    """Whether a run's history has one record only: the weights were fitted at once, not in steps."""
    return len(steps) == 1 == len(evaluations) and steps[0].get("lr") == 0.0 and not steps[0].get("tokens")


PAGE = Kind(
    sections=(
        cards,
        baseline_comparison,
        learning_curves,
        class_metrics,
        folds,
        calibration,
        mistakes,
        example_images,
        robustness,
        sentences,
        attention_maps,
    ),
    verdict=verdict,
    letters=letters,
    read=read_run,
)
