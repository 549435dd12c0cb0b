"""Report sections for classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from glassformer.report import figures, images, page, tables, wording
from glassformer.report.metrics import Table, leading_metrics, metric_table
from glassformer.report.page import PageKind, Section, render_macro, table
from glassformer.report.run import LabeledRun, Run, read_run
from glassformer.targets import target_of


def is_multilabel(run: Run) -> bool:
    return not target_of(run.scores).is_single_label


def _digits(run: Run) -> int:
    return wording.digits_for(run.scores["n"])


def verdict(run: LabeledRun) -> str:
    return wording.full_verdict(run.metrics, run.scores, run.split, run.noun, run.measure)


def cards(run: LabeledRun) -> Section:
    classes = 2 if is_multilabel(run) else len(run.scores["labels"])
    main_metrics = leading_metrics(run.measure, run.scores)
    arguments = run, run.scores, main_metrics, _digits(run), is_multilabel(run)
    return Section("cards", "", "", render_macro("classes", "cards", *arguments, wording.guess_loss(classes)))


def baseline_comparison(run: LabeledRun) -> Section:
    main_metrics, noun = leading_metrics(run.measure, run.scores), run.noun
    note = (
        f"All were trained on the same {noun} and evaluated on the same {run.split} {noun}. A bar is the "
        f"95 % interval of the {main_metrics[0][1]} over the draw of those {noun}; variation between seeds "
        "adds to it. Time includes training and evaluation."
    )
    arguments = run, tables.comparison(run), main_metrics, _digits(run), is_multilabel(run)
    body = render_macro("classes", "baseline_comparison", *arguments)
    return Section("simpler", "Compared with simple models", note, body)


def learning_curves(run: LabeledRun) -> Section:
    """A section with learning curves and a table of the splits."""
    metrics, noun = run.metrics, run.noun
    is_solved = is_fitted_by_solver(run.steps, run.evaluations)
    has_validation = any(e.get("accuracy") is not None for e in run.evaluations)
    splits = {s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.split: run.scores}
    note = "There was no validation split: the curves show training alone."
    if is_solved:
        note = (
            "The weights were computed by a solver, not trained in steps. Cross-validation on the training "
        )
        note += f"{noun} chose the regularization and the temperature."
    elif has_validation:
        note = "Where the validation loss rises while the training loss still falls, the model has begun to "
        note += "overfit."
    if len(splits) > 1:
        note += " The gap between the splits below shows how much it overfits."
    columns = ["n", *dict(leading_metrics(run.measure, run.scores)), "log_loss"]
    options: dict[str, Any] = {"highlighted": (list(splits).index(run.split),), "style": ""}
    split_table = metric_table([*splits.items()], columns, _digits(run), "split", noun, **options)
    footnote = ""
    if (total := splits.get("train", {}).get("of", 0)) > (n := splits.get("train", {}).get("n", 0)):
        footnote = f"train: {n:,} of its {total:,} {noun}, evaluated after training."
    charts = () if is_solved else _charts(run, has_validation)
    body = page.curves(*charts) + table(split_table) + render_macro("parts", "small", footnote)
    return Section("learned", "Learning curves", note, body)


def _charts(
    run: LabeledRun, has_validation: bool
) -> Sequence[tuple[Markup | None, str, list[tuple[str, str]]]]:
    """The arguments of ``page.curves`` for the loss and the main metric."""
    steps, evaluations, epochs_evaluated = run.steps, run.evaluations, run.metrics.get("epochs") or ()
    has_training_accuracy = any(e.get("train_accuracy") for e in evaluations)
    loss = figures.loss_curves(steps, evaluations) if steps or evaluations else None
    keys = [
        (page.TRAIN[0], "training, each step and its trend"),
        *([page.VALIDATION] if has_validation else []),
    ]
    keys += [("ring", "best evaluation")] if any(e.get("best") for e in evaluations) else []
    accuracy, suffix = None, "" if run.measure == "accuracy" else "'s accuracy"
    if any(e.get(key) is not None for e in evaluations for key in ("train_accuracy", "accuracy")):
        accuracy = figures.accuracy_curves(steps, evaluations, run.measure, epochs_evaluated)
    metric_keys = (
        [(page.TRAIN[0], f"training{suffix}, measured during training")] if has_training_accuracy else []
    )
    metric_keys += [page.VALIDATION] if has_validation else []
    if epochs_evaluated:
        epochs = ", ".join(wording.percent(e["accuracy"], _digits(run)) for e in epochs_evaluated)
        description = f"squares: {run.split}, weights of each epoch, evaluated after training: {epochs}"
        metric_keys.append(("small", description))
    metric_name = wording.capitalized(leading_metrics(run.measure, run.scores)[0][1])
    return (loss, "Loss", keys), (accuracy, metric_name, metric_keys)


def class_metrics(run: LabeledRun) -> Section:
    """A section with the confusion matrix, a calibration chart, and the metrics of each class."""
    scores, matrix = run.scores, tables.confusion(run.scores)
    chart = None
    if sum(n > 0 for n in run.calibration_bins.total) > 2:  # a chart of fewer bins is not informative
        chart = figures.calibration_chart(run.calibration_bins.total, run.calibration_bins.correct, run.noun)
    note = "Metrics of each class."
    if is_multilabel(run):
        note = "Multi-label: each label has its own probability and is predicted above its threshold."
    elif matrix:
        note = "Each row of the confusion matrix is a true class, each column a predicted one."
    if chart:
        note += " The chart shows calibration: above the dashed line the model is right more often than its "
        note += "probability says, below it less often."
    arguments = scores, run.noun, _digits(run), chart, matrix, tables.confusions(scores), is_multilabel(run)
    thresholds = run.metrics.get("thresholds") or {}
    body = render_macro("classes", "class_metrics", *arguments, thresholds, page.MAX_ROWS)
    return Section("right", "Confusion matrix and classes", note, body, ("sort.js",))


def calibration(run: LabeledRun) -> Section | None:
    result = run.calibration
    if not result:
        return None
    per_class = isinstance(result["threshold"], list) and not is_multilabel(run)
    split = wording.cut(result["chosen_by"], 40)
    origin = f"was fitted on the {split} examples (log loss with one pseudo-error)"
    note = f"All logits are divided by one temperature, which {origin}"
    if is_multilabel(run):
        note = f"The logits of each label are divided by a separate temperature, which {origin}"
    elif per_class:
        metric = result["metric"].replace("_f1", "-F1").replace("f1", "F1")
        note += f". Each class has a threshold that was chosen there by {metric}: the prediction is the "
        note += "class whose probability divided by its threshold is the largest"
    elif result["threshold"] is not None:
        note += f", as was the threshold on the probability of {result['classes'][1]}"
    if limit := result.get("abstain_below"):
        note += f". The model abstains where the probability is below {wording.percent(limit)}"
    note += ". They are saved with the model; the other metrics on this page were measured before "
    note += "calibration."
    name, scores = list(result["splits"].items())[-1]  # the evaluated split
    chart = figures.reliability(scores["before"]["curve"], scores["after"]["curve"], name)
    arguments = result, chart, is_multilabel(run), per_class, _digits(run), page.MAX_ROWS
    body = render_macro("classes", "calibration", *arguments)
    return Section("calibration", "Calibration", note, body)


def mistakes(run: LabeledRun) -> Section | None:
    note = (
        "The wrong predictions with the highest probability. Some are hard, some show what the model "
        "misses, and some have a wrong label. All predictions are in predictions.csv."
    )
    rows = [] if run.images.get("mistakes") else run.mistakes
    return page.listing("mistakes", "Most confident mistakes", note, "classes.mistakes", rows)


def example_images(run: LabeledRun) -> Section | None:
    groups = images.with_data_uris(run.images)
    if not any(groups.values()):
        return None
    note = "One image per class with its true and its predicted label, and the wrong predictions with the "
    note += "highest probability."
    return Section("seen", "Images", note, render_macro("classes", "example_images", groups), ("images",))


def robustness(run: LabeledRun) -> Section | None:
    rows = tables.robustness(run.metrics.get("robustness") or {})
    if not rows:
        return None
    n = rows[0]["n"]
    same_images = f"{n:,} of the evaluated images" if n else "the same images"
    note = (
        f"Accuracy on {same_images} after fixed corruptions, from hardly visible (1) to hard for people too "
        "(5). Some augmentations contain random crops and lighting, so not every corruption is new to all "
        "models."
    )
    cells = [
        [row["kind"], *map(wording.percent, (*row["each"], row["accuracy"], row["macro_f1"]))] for row in rows
    ]
    body = table(Table(["corruption", *"12345", "mean", "mean macro-F1"], cells, highlighted=()))
    return Section("robustness", "Robustness to image corruption", note, body)


def sentences(run: LabeledRun) -> Section | None:
    return page.user_inputs("classes.sentences", run.metrics.get("sentences") or [])


def attention_maps(run: LabeledRun) -> Section | None:
    views, num_hidden = images.attention_views(run.maps)
    if not views:
        return None
    note = render_macro("classes", "attention_note", run.known.has_images).strip()
    assets = ["attention.js", *(["images"] if any(view.picture for view in views) else [])]
    body = render_macro("classes", "attention_maps", views, run.known.has_images, num_hidden)
    return Section("looks", "Attention", note, body, assets)


def shape_letters(run: Run) -> str:
    return render_macro("classes", "shape_letters", run.known, page.reads_features(run.metrics)).strip()


def is_fitted_by_solver(steps: Sequence[Any], evaluations: Sequence[Any]) -> bool:
    """Whether the weights were computed by a solver, not in steps; the history then has a single record."""
    return len(steps) == 1 == len(evaluations) and steps[0].get("lr") == 0.0 and not steps[0].get("tokens")


PAGE = PageKind(
    sections=(
        cards,
        baseline_comparison,
        learning_curves,
        class_metrics,
        page.folds,
        calibration,
        mistakes,
        example_images,
        robustness,
        sentences,
        attention_maps,
    ),
    verdict=verdict,
    shape_letters=shape_letters,
    read=read_run,
)
