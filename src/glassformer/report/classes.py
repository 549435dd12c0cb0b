"""Report sections for classifiers, single-label and multi-label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from glassformer.report import figures, maps, pictures, tables, wording
from glassformer.report.metrics import Table, leading, metric_table
from glassformer.report.page import (
    HELD,
    MAX_ROWS,
    TRAIN,
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
    return not target_of(run.scores).joint


def _digits(run: Run) -> int:
    return wording.digits_for(run.scores["n"])


def verdict(run: LabeledRun) -> str:
    still = run.metrics.get("still_learning")
    against = wording.against(run.scores, run.metrics.get("baselines") or {}, run.measure, still)
    said = wording.verdict(run.scores, run.judged, run.noun, run.measure)
    return " ".join(filter(None, (said, against, wording.unfinished(against, still))))


def cards(run: LabeledRun) -> Section:
    classes = 2 if multi_label(run) else len(run.scores["labels"])
    shown = run, run.scores, leading(run.measure, run.scores), _digits(run), multi_label(run)
    return Section("cards", "", "", part("classes", "cards", *shown, wording.guess_loss(classes)))


def simpler(run: LabeledRun) -> Section:
    led, noun = leading(run.measure, run.scores), run.noun
    note = (
        f"All were trained on the same {noun} and evaluated on the same {run.judged} {noun}. A bar is the "
        f"95 % interval of the {led[0][1]} over the draw of those {noun}; variation between seeds comes on "
        "top. Time is that of training and evaluation."
    )
    body = part("classes", "simpler", run, tables.comparison(run), led, _digits(run), multi_label(run))
    return Section("simpler", "Compared with simple models", note, body)


def learned(run: LabeledRun) -> Section:
    """Learning curves, and a table of the splits."""
    metrics, noun = run.metrics, run.noun
    fitted = fitted_at_once(run.steps, run.evaluations)  # so there are no curves
    has_validation = any(e.get("accuracy") is not None for e in run.evaluations)
    splits = {s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.judged: run.scores}
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
    ours = (list(splits).index(run.judged),)
    body = metric_table([*splits.items()], columns, _digits(run), "split", noun, ours=ours, style="")
    drawn = () if fitted else _drawn(run, has_validation)
    below = ""
    if (of := splits.get("train", {}).get("of", 0)) > (n := splits.get("train", {}).get("n", 0)):
        below = f"train: {n:,} of its {of:,} {noun}, evaluated after training."
    return Section(
        "learned", "Learning curves", note, curves(*drawn) + table(body) + part("parts", "small", below)
    )


def _drawn(
    run: LabeledRun, has_validation: bool
) -> Sequence[tuple[Markup | None, str, list[tuple[str, str]]]]:
    """The curves of the loss and of the main metric, each with its name and the keys of its lines."""
    steps, evaluations, judged = run.steps, run.evaluations, run.metrics.get("epochs") or ()
    counted = any(e.get("train_accuracy") for e in evaluations)
    loss = figures.loss_curves(steps, evaluations) if steps or evaluations else None
    keys = [(TRAIN[0], "training, each step and its trend"), *([HELD] if has_validation else [])]
    keys += [("ring", "best evaluation")] if any(e.get("best") for e in evaluations) else []
    share, whose = None, "" if run.measure == "accuracy" else "'s accuracy"
    if any(e.get(key) is not None for e in evaluations for key in ("train_accuracy", "accuracy")):
        share = figures.accuracy_curves(steps, evaluations, run.measure, judged)
    lines = [(TRAIN[0], f"training{whose}, measured during training")] if counted else []
    lines += [HELD] if has_validation else []
    if judged:
        epochs = ", ".join(wording.percent(e["accuracy"], _digits(run)) for e in judged)
        said = f"squares: {run.judged}, weights of each epoch, evaluated after training: {epochs}"
        lines.append(("small", said))
    called = wording.headed(leading(run.measure, run.scores)[0][1])
    return (loss, "Loss", keys), (share, called, lines)


def right(run: LabeledRun) -> Section:
    """The confusion matrix, a calibration chart, and the metrics of each class."""
    scores, matrix = run.scores, tables.confusion(run.scores)
    certainty = None
    if sum(n > 0 for n in run.certainty.total) > 2:  # fewer bins say nothing new
        certainty = figures.calibration_chart(run.certainty.total, run.certainty.right, run.noun)
    note = "Metrics of each class."
    if multi_label(run):
        note = "Multi-label: each label has its own probability and is predicted above its threshold."
    elif matrix:
        note = "Each row of the confusion matrix is a true class, each column a predicted one."
    if certainty:
        note += (
            " The chart shows calibration: above the dashed line the model is right more often than its "
            "probability says, below it less often."
        )
    shown = scores, run.noun, _digits(run), certainty, matrix, tables.confusions(scores), multi_label(run)
    body = part("classes", "right", *shown, run.metrics.get("thresholds") or {}, MAX_ROWS)
    return Section("right", "Confusion matrix and classes", note, body, ("sort.js",))


def calibration(run: LabeledRun) -> Section | None:
    found = run.calibration
    if not found:
        return None
    per_class = isinstance(found["threshold"], list) and not multi_label(run)
    by = f"was fitted on the {wording.cut(found['chosen_by'], 40)} examples (log loss with one pseudo-error)"
    note = f"All logits are divided by one temperature, which {by}"
    if multi_label(run):
        note = f"The logits of each label are divided by a separate temperature, which {by}"
    elif per_class:
        metric = found["metric"].replace("_f1", "-F1").replace("f1", "F1")
        note += (
            f". Each class has a threshold that was chosen there by {metric}: the prediction is the class "
        )
        note += "whose probability divided by its threshold is the largest"
    elif found["threshold"] is not None:
        note += f", as was the threshold on the probability of {found['classes'][1]}"
    if below := found.get("abstain_below"):
        note += f". The model abstains where the probability is below {wording.percent(below)}"
    note += (
        ". They are saved with the model; the other metrics on this page were measured before calibration."
    )
    name, split = list(found["splits"].items())[-1]  # the evaluated one
    drawn = figures.reliability(split["before"]["curve"], split["after"]["curve"], name)
    body = part("classes", "calibration", found, drawn, multi_label(run), per_class, _digits(run), MAX_ROWS)
    return Section("calibration", "Calibration", note, body)


def mistakes(run: LabeledRun) -> Section | None:
    if not run.mistakes or run.pictures.get("mistakes"):
        return None
    note = (
        "The wrong predictions with the highest probability. Some are hard, some show what the model "
        "misses, and some have a wrong label. All predictions are in predictions.csv."
    )
    return Section("mistakes", "Most confident mistakes", note, part("classes", "mistakes", run.mistakes))


def seen(run: LabeledRun) -> Section | None:
    found = pictures.prepare(run.pictures)
    if not any(found.values()):
        return None
    note = "One image per class with its true and its predicted label, and the wrong predictions with the "
    note += "highest probability."
    return Section("seen", "Images", note, part("classes", "seen", found), ("pictures",))


def robustness(run: LabeledRun) -> Section | None:
    rows = tables.robustness(run.metrics.get("robustness") or {})
    if not rows:
        return None
    n = rows[0]["n"]
    on = f"{n:,} of the evaluated images" if n else "the same images"
    note = (
        f"Accuracy on {on} after fixed corruptions, from hardly visible (1) to hard for people too (5). "
        "Some augmentations contain random crops and lighting, so not every corruption is new to all models."
    )
    shares = [
        [row["kind"], *map(wording.percent, (*row["each"], row["accuracy"], row["macro_f1"]))] for row in rows
    ]
    heads = ["corruption", *"12345", "mean", "mean macro-F1"]
    return Section("robustness", "Robustness to image corruption", note, table(Table(heads, shares, ours=())))


def sentences(run: LabeledRun) -> Section | None:
    given = run.metrics.get("sentences")
    return own_inputs(part("classes", "sentences", given[:MAX_ROWS])) if given else None


def looks(run: LabeledRun) -> Section | None:
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
        simpler,
        learned,
        right,
        folds,
        calibration,
        mistakes,
        seen,
        robustness,
        sentences,
        looks,
    ),
    verdict=verdict,
    letters=letters,
    read=read_run,
)
