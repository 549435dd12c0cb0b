"""The sections of a classifier's page, for one label an example or several."""

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


def several(run: Run) -> bool:
    """Whether an example may have several labels."""
    return not target_of(run.scores).joint


def _digits(run: Run) -> int:
    return wording.digits_for(run.scores["n"])


def verdict(run: LabeledRun) -> str:
    still = run.metrics.get("still_learning")
    against = wording.against(run.scores, run.metrics.get("baselines") or {}, run.measure, still)
    said = wording.verdict(run.scores, run.judged, run.noun, run.measure)
    return " ".join(filter(None, (said, against, wording.unfinished(against, still))))


def cards(run: LabeledRun) -> Section:
    classes = 2 if several(run) else len(run.scores["labels"])
    shown = run, run.scores, leading(run.measure, run.scores), _digits(run), several(run)
    return Section("cards", "", "", part("classes", "cards", *shown, wording.guess_loss(classes)))


def simpler(run: LabeledRun) -> Section:
    led, noun = leading(run.measure, run.scores), run.noun
    note = (
        f"All trained on the same {noun} and judged on the same {run.judged} {noun}. A bar is the 95 % "
        f"interval of the {led[0][1]} over the draw of those {noun}; what another seed would change comes "
        "on top. The time is that to train and to judge."
    )
    body = part("classes", "simpler", run, tables.comparison(run), led, _digits(run), several(run))
    return Section("simpler", "Beside simpler models", note, body)


def learned(run: LabeledRun) -> Section:
    """The curves, and the splits beside each other."""
    metrics, noun = run.metrics, run.noun
    solved = solved_at_once(run.steps, run.evaluations)  # there is no curve
    held = any(e.get("accuracy") is not None for e in run.evaluations)
    splits = {s: metrics[s] for s in ("train", "validation") if metrics.get(s)} | {run.judged: run.scores}
    note = "Nothing was held out to judge along the way: the curves are those of the training alone."
    if solved:
        note = (
            f"The weights were solved at once, not trained in steps. Cross-validation on the training {noun} "
            "chose how small they are kept and how sure the probabilities are."
        )
    elif held:
        note = (
            "Where the validation loss turns up while the training loss still falls, the model has begun to "
            f"learn its {noun} by heart."
        )
    if len(splits) > 1:
        note += f" The gap between the splits below says how far it has learned its {noun} by heart."
    columns = ["n", *dict(leading(run.measure, run.scores)), "log_loss"]
    ours = (list(splits).index(run.judged),)
    body = metric_table([*splits.items()], columns, _digits(run), "split", noun, ours=ours, style="")
    drawn = () if solved else _drawn(run, held)
    below = ""
    if (of := splits.get("train", {}).get("of", 0)) > (n := splits.get("train", {}).get("n", 0)):
        below = f"train: {n:,} of its {of:,} {noun}, judged like the others once training was over."
    return Section(
        "learned", "How it learned", note, curves(*drawn) + table(body) + part("parts", "small", below)
    )


def _drawn(run: LabeledRun, held: bool) -> Sequence[tuple[Markup | None, str, list[tuple[str, str]]]]:
    """The curves of the loss and of the leading metric, each with its name and its lines."""
    steps, evaluations, judged = run.steps, run.evaluations, run.metrics.get("epochs") or ()
    counted = any(e.get("train_accuracy") for e in evaluations)
    loss = figures.loss_curves(steps, evaluations) if steps or evaluations else None
    keys = [(TRAIN[0], "training, each step and its trend"), *([HELD] if held else [])]
    keys += [("ring", "best evaluation")] if any(e.get("best") for e in evaluations) else []
    share, whose = None, "" if run.measure == "accuracy" else "'s accuracy"
    if any(e.get(key) is not None for e in evaluations for key in ("train_accuracy", "accuracy")):
        share = figures.accuracy_curves(steps, evaluations, run.measure, judged)
    lines = [(TRAIN[0], f"training{whose}, counted while the weights moved")] if counted else []
    lines += [HELD] if held else []
    if judged:
        epochs = ", ".join(wording.percent(e["accuracy"], _digits(run)) for e in judged)
        said = f"squares: {run.judged}, each epoch's weights, judged when all was over: {epochs}"
        lines.append(("small", said))
    called = wording.headed(leading(run.measure, run.scores)[0][1])
    return (loss, "Loss", keys), (share, called, lines)


def right(run: LabeledRun) -> Section:
    """The confusion matrix, how far probabilities can be trusted, and the classes."""
    scores, matrix = run.scores, tables.confusion(run.scores)
    certainty = None
    if sum(n > 0 for n in run.certainty.total) > 2:  # fewer say nothing that the charts above do not
        certainty = figures.certainty_chart(run.certainty.total, run.certainty.right, run.noun)
    note = "How right the model is class by class."
    if several(run):
        note = "Each label is a yes or no of its own, given from a threshold on."
    elif matrix:
        note = "Each row of the confusion matrix is a true class; its cells say what the model made of it."
    if certainty:
        note += (
            " The chart shows how far its stated probability can be trusted: above the dashed line it is "
            "right more often than it says, below it less often."
        )
    shown = scores, run.noun, _digits(run), certainty, matrix, tables.confusions(scores), several(run)
    body = part("classes", "right", *shown, run.metrics.get("thresholds") or {}, MAX_ROWS)
    return Section("right", "Right and wrong", note, body, ("sort.js",))


def calibration(run: LabeledRun) -> Section | None:
    found = run.calibration
    if not found:
        return None
    a_class = isinstance(found["threshold"], list) and not several(run)
    by = (
        f"the {wording.cut(found['chosen_by'], 40)} examples chose by their log loss and one imagined mistake"
    )
    note = f"All logits are divided by one temperature, which {by}"
    if several(run):
        note = f"The logits of each label are divided by a temperature of its own, which {by}"
    elif a_class:
        metric = found["metric"].replace("_f1", "-F1").replace("f1", "F1")
        note += f", and so did they a threshold a class by {metric}: the answer is the class whose "
        note += "probability is the largest multiple of its own threshold"
    elif found["threshold"] is not None:
        note += f", and so did they the threshold on the probability of {found['classes'][1]}"
    if below := found.get("abstain_below"):
        note += f". No label is given whose probability is below {wording.percent(below)}"
    note += ". Both are saved with the model; the other figures on this page are from before."
    name, split = list(found["splits"].items())[-1]  # the judged one
    drawn = figures.reliability(split["before"]["curve"], split["after"]["curve"], name)
    body = part("classes", "calibration", found, drawn, several(run), a_class, _digits(run), MAX_ROWS)
    return Section("calibration", "As sure as it should be", note, body)


def mistakes(run: LabeledRun) -> Section | None:
    if not run.mistakes or run.pictures.get("mistakes"):
        return None
    note = (
        "The wrong answers given with the highest probability. Some are hard, some show what the model "
        "misses, and some have a wrong label. All answers are in predictions.csv."
    )
    return Section("mistakes", "Surest mistakes", note, part("classes", "mistakes", run.mistakes))


def seen(run: LabeledRun) -> Section | None:
    found = pictures.prepare(run.pictures)
    if not any(found.values()):
        return None
    note = "One picture a class with its true and its predicted label, and the wrong answers given with the "
    note += "highest probability."
    return Section("seen", "Pictures", note, part("classes", "seen", found), ("pictures",))


def robustness(run: LabeledRun) -> Section | None:
    rows = tables.robustness(run.metrics.get("robustness") or {})
    if not rows:
        return None
    n = rows[0]["n"]
    on = f"{n:,} of the judged pictures" if n else "the same pictures"
    note = (
        f"Accuracy on {on} after fixed changes, from hardly visible (1) to hard for people too (5). Random "
        "crops and lighting are part of some augmentations too, so not every change is new to every model."
    )
    shares = [
        [row["kind"], *map(wording.percent, (*row["each"], row["accuracy"], row["macro_f1"]))] for row in rows
    ]
    heads = ["change", *"12345", "mean", "mean macro-F1"]
    return Section("robustness", "When pictures get worse", note, table(Table(heads, shares, ours=())))


def sentences(run: LabeledRun) -> Section | None:
    given = run.metrics.get("sentences")
    return own_inputs(part("classes", "sentences", given[:MAX_ROWS])) if given else None


def looks(run: LabeledRun) -> Section | None:
    """Where the attention of some examples goes."""
    examples, left_out = maps.prepare(run.maps)
    if not examples:
        return None
    note = part("classes", "looks_note", run.noun).strip()
    needs = ["attention.js", *(["pictures"] if any(view.picture for view in examples) else [])]
    body = part("classes", "looks", examples, run.noun, left_out)
    return Section("looks", "Where it looks", note, body, needs)


def letters(run: Run) -> str:
    return part("classes", "letters", run.noun, reads_features(run.metrics)).strip()


def solved_at_once(steps: Sequence[Any], evaluations: Sequence[Any]) -> bool:
    """Whether a run's history is the one record of weights that were solved, not trained in steps."""
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
