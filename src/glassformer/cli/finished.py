"""A finished run on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.output import (
    excerpt,
    note,
    one_line,
    say,
    show,
    show_table,
    show_translation_scores,
)
from glassformer.cli.predictions import NO_ANSWER
from glassformer.cli.vectors import show_vectors_run

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run

HANDFUL = 30  # validation examples, below which a share is told as a count
GAP = 0.05  # between mean probability and accuracy, from which it is told
ENOUGH = 50  # validation examples that a temperature may rest on


def show_run(run: Run, recipe: Any) -> None:
    """A finished run on the terminal: its metrics, by what they are of, and where it lies."""
    metrics = run.metrics
    if tried := metrics.get("tried"):
        show_tried(tried)
    shown = {"similarity": show_similarity_run, "baselines": show_judged_run, "tests": show_vectors_run}
    next((shown[key] for key in shown if key in metrics), show_sequence_run)(run, recipe)
    say(f"model: {run.folder / 'model'}")
    say(f"report: {run.report}")


def as_dict(run: Run) -> dict[str, Any]:
    """A finished run for other programs: where it lies, and its figures."""
    return {
        "folder": run.folder,
        "model": run.folder / "model",
        "report": run.report,
        "metrics": run.metrics,
        **({"verdict": said} if (said := _verdict(run)) else {}),
    }


def _verdict(run: Run) -> str:
    """What a classifier's run comes to, in words; of other kinds nothing."""
    from glassformer.report.wording import verdict_of
    from glassformer.tasks.catalog import TASKS
    from glassformer.tasks.run_folder import read_run_recipe

    if "baselines" not in run.metrics or {"scheme", "answers", "numbers", "similarity"} & run.metrics.keys():
        return ""
    return verdict_of(run.metrics, TASKS[read_run_recipe(run.folder).task].estimator.NOUN)


def next_step(run: Run, recipe: Any) -> str:
    """The one command that a finished training is good for."""
    from glassformer.tasks.catalog import TASKS
    from glassformer.tasks.load import describe

    task = TASKS[recipe.task]
    reads = getattr(task.estimator, "NOUN", "texts")
    if task.verb == "evaluate":
        return f"next: glassformer evaluate {shlex.quote(str(run.folder))}"
    if task.verb == "similar":
        return f'next: glassformer similar "ONE TEXT" "ANOTHER" --model {shlex.quote(str(run.folder))}'
    if reads == "questions":
        return (
            f'next: glassformer predict {shlex.quote(str(run.folder))} "A QUESTION" "A TEXT WITH ITS ANSWER"'
        )
    given = {"vectors": "WORD", "fill": repr_of(recipe, "A TEXT WITH A MASK")}.get(task.verb)
    if given is None and describe(run.folder).pairs:
        given = '"A TEXT OF YOUR OWN" "ITS SECOND TEXT"'
    given = given or ("PICTURE.png" if reads == "pictures" else repr_of(recipe, "A TEXT OF YOUR OWN"))
    table = ", or a table: FILE.csv --out ANSWERS.csv" if task.verb == "predict" and reads == "texts" else ""
    return f"next: glassformer {task.verb} {shlex.quote(str(run.folder))} {given}{table}"


def repr_of(recipe: Any, otherwise: str) -> str:
    """A text to try a model on, as a shell takes it: the recipe's own first sentence, where it has one."""
    sentences = getattr(getattr(recipe, "evaluate", None), "sentences", ())
    return shlex.quote(one_line(sentences[0])) if sentences else f'"{otherwise}"'


def show_judged_run(run: Run, recipe: Any) -> None:
    """A finished run that predicts labels, tags, answers or numbers: its scores beside the baselines'."""
    from glassformer.report.metrics import metric_table
    from glassformer.report.wording import model_name
    from glassformer.targets import target_of
    from glassformer.tasks.catalog import TASKS

    metrics, noun = run.metrics, TASKS[recipe.task].estimator.NOUN
    scores, measure = metrics["test"] or metrics["validation"], metrics.get("measure", "accuracy")
    judged = metrics["judged"] if metrics["test"] else "validation"
    if scores is not None:
        target = target_of(scores)
        name = model_name(metrics, recipe.model.model)
        ours = scores | {"seconds": metrics["seconds"].get("train")}
        parts = [(f"of these {scores[p]['n']:,} {p}", scores[p]) for p in PARTS if p in scores]
        rows = [(name, ours), *parts, *metrics["baselines"].items()]
        digits, columns = target.digits(scores["n"]), columns_of(scores, measure)
        say()
        counted = f"{scores['n']:,} {judged} {noun}{target.sized(scores)}"
        title = f"{recipe.name}: {counted}, {metrics['seconds']['total']:.0f} s in all"
        first = "" if target.labels_given else "model"
        show(title, metric_table(rows, columns, digits, first, short=True))
        for line in BELOW.get(type(target).__name__, said_of_labels)(run, name, noun):
            say(line)
    for line in said_of_intervals(metrics.get("intervals") or []):
        say(line)
    if metrics["test"] and judged != "validation" and metrics["validation"]:
        say(_of_validation(metrics["validation"], measure))
    if doubt := unsure(run.folder, metrics):
        say(doubt)
    if (threshold := metrics.get("threshold")) is not None:
        say(f"no answer is given where it leads by more than {threshold:.3f}")
    if far := (metrics.get("numbers") or {}).get("far"):
        note(chosen_by(far))
    for split, (cut, total) in metrics.get("truncated", {}).items():
        if cut:
            length = metrics.get("max_length", recipe.text.max_length)
            say(f"{cut:,} of {total:,} {split} texts are longer than {length} tokens and were cut there")
    for kind, changed in metrics.get("robustness", {}).items():
        of = f" ({changed[0]['n']:,} pictures)" if changed and "n" in changed[0] else ""
        shares = ", ".join(f"{row['accuracy']:.1%}" for row in changed)
        say(f"{kind}: accuracy {shares} at severity 1 to 5{of}")
    if warned := _warnings(run.folder):
        note(f"{warned} about the data: above, and in the report")
    show_own(metrics)


def columns_of(scores: dict[str, Any], measure: str) -> Sequence[str]:
    """The columns of a table of such scores, which fit a terminal."""
    from glassformer.targets import target_of

    target = target_of(scores)
    return target.in_terminal or [*target.narrow(measure, scores), "seconds"]


def said_of_labels(run: Run, name: str, noun: str) -> Iterator[str]:
    from glassformer.report.wording import verdict_of
    from glassformer.targets.multiclass import no_better_than_one

    metrics = run.metrics
    if plain := no_better_than_one(metrics["test"] or metrics["validation"]):
        note(f"{name} is {plain}")
    yield verdict_of(metrics, noun)
    if any(b.get("class_weight") is not None for b in metrics["baselines"].values()):
        yield "the simple models were trained with the same class weights"


def said_of_tags(run: Run, name: str, noun: str) -> Iterator[str]:
    """No line; a table of the kinds with their errors."""
    from glassformer.report.wording import percent
    from glassformer.targets.token_tags import ERRORS

    scores = run.metrics["test"] or run.metrics["validation"]
    wrong = scores["errors_by_kind"]
    rows = [
        [kind, f"{s['support']:,}", percent(s["f1"], 2), *(f"{wrong[kind][error]:,}" for error in ERRORS)]
        for kind, s in scores["by_kind"].items()
    ]
    heads = ("kind", "spans", "F1", *(error.replace("_", " ") for error in ERRORS))
    show_table("by kind, with its errors", heads, rows, right=heads[1:])
    yield from ()


def said_of_answers(run: Run, name: str, noun: str) -> Iterator[str]:
    found = (run.metrics["test"] or run.metrics["validation"])["errors"]
    yield "errors: " + (", ".join(f"{n:,} {e.replace('_', ' ')}" for e, n in found.items() if n) or "none")


def said_of_numbers(run: Run, name: str, noun: str) -> Iterator[str]:
    from glassformer.report.metrics import cells
    from glassformer.targets.regression import Numbers

    scores = run.metrics["test"] or run.metrics["validation"]
    if scores["r2_interval"]:
        yield f"95 % interval of R²: {cells(scores, ['r2_interval'], Numbers(), 2)[0]}"
    if line := in_ratios(scores):
        yield line


PARTS = ("unanswerable", "answerable")  # of the judged questions
BELOW = {"TokenTags": said_of_tags, "AnswerSpan": said_of_answers, "Numbers": said_of_numbers}


def show_own(metrics: dict[str, Any]) -> None:
    """Predictions for texts and questions of one's own."""
    from glassformer.report.wording import percent

    given = metrics.get("sentences") or []
    for one in given:
        if "spans" in one:
            found = ", ".join(f"{s['text']} ({s['kind']} {percent(s['probability'])})" for s in one["spans"])
            say(f"{excerpt(one['text'])}: {found or 'no span'}")
    if rows := [[excerpt(s["text"]), s["label"], percent(s["probability"])] for s in given if "label" in s]:
        show_table("own sentences", ("text", "label", "probability"), rows, right=["probability"])
    for one in metrics.get("questions") or []:
        say(f"{excerpt(one['question'])}: {one['answer'] or NO_ANSWER} {percent(one['probability'])}")


def show_tried(tried: Sequence[dict[str, Any]]) -> None:
    """What ``model = auto`` has tried, on the terminal."""
    scored = [t for t in tried if "score" in t]
    title = f"tried: {scored[0]['metric']} on {scored[0]['examples']:,} examples by {scored[0]['by']}"
    rows = [
        [t["model"], *((f"{t['score']:.4f}", f"{t['seconds']:.0f}") if "score" in t else ("", "")), end]
        for t in tried
        for end in ("chosen" if t.get("chosen") else f"left out: {t['left out']}" if "left out" in t else "",)
    ]
    show_table(title, ("model", scored[0]["metric"], "seconds", ""), rows, right=["seconds"])


def _of_validation(scores: dict[str, Any], measure: str) -> str:
    """The metric of the validation examples; of a few of them how many are right, which says more."""
    from glassformer.targets import target_of

    n, target = scores["n"], target_of(scores)
    metric = target.metrics[measure]
    right = scores["accuracy"] * n if measure == "accuracy" else 0.0
    if n < HANDFUL and measure == "accuracy" and abs(right - round(right)) < 1e-6:
        return f"validation {metric.called}: {round(right)} of {n}"
    of = f" (of {n} examples)" if n < HANDFUL and target.labels_given else ""
    return f"validation {metric.called}: {metric.value(scores[measure], target.digits(n))}{of}"


def unsure(folder: Path, metrics: dict[str, Any]) -> str:
    """A sentence where a classifier is surer than it is right on the judged split, or less sure, by more than
    chance; with ``calibrate`` where the validation examples can mend it. Empty: neither."""
    judged, held = metrics.get("test"), metrics.get("validation")
    if not judged or judged.get("confidence") is None or judged.get("accuracy") is None:
        return ""
    gap, right = judged["confidence"] - judged["accuracy"], judged["accuracy"]
    if abs(gap) < max(GAP, 2 * (right * (1 - right) / judged["n"]) ** 0.5):
        return ""
    side = "low" if gap < 0 else "high"
    said = (
        f"its probabilities are too {side}: {judged['confidence']:.2f} on average, "
        f"and {right:.2f} of the answers are right"
    )
    name = shlex.quote(str(folder))
    count = held["n"] if held else 0
    if held is None or count < ENOUGH:
        few = (
            f"the {count:,} validation examples are too few to scale them by"
            if count
            else "no validation examples scale them"
        )
        return f"{said}; {few}: glassformer calibrate {name} --data MORE.csv takes other labeled examples"
    own = held["confidence"] - held["accuracy"] if held.get("confidence") is not None else 0.0
    return (
        f"{said}: glassformer calibrate {name} scales them" if own * gap > 0 and abs(own) >= GAP / 2 else ""
    )


def _warnings(folder: Path) -> str:
    """How many lines of warnings the data doctor said of a run's data; empty: none."""
    from glassformer.checkpoints.files import read_json
    from glassformer.data.findings import warnings_said

    path = folder / "doctor.json"
    count = warnings_said(read_json(path)["findings"]) if path.is_file() else 0
    return "" if not count else "1 warning" if count == 1 else f"{count:,} warnings"


def show_sequence_run(run: Run, recipe: Any) -> None:
    """A finished translator or masked language model on the terminal."""
    from glassformer.report.wording import percent

    metrics = run.metrics
    seconds = metrics["seconds"]["total"]
    if metrics.get("scores"):
        show_translation_scores(f"{recipe.name}: {seconds:.0f} s in all", metrics["scores"])
    if metrics.get("masked"):
        rows = [[name.replace("_", " "), f"{value:.4f}"] for name, value in metrics["masked"].items()]
        show_table(
            f"{recipe.name}: {seconds:.0f} s in all", ("masked words", "value"), rows, right=("value",)
        )
    for sentence in metrics.get("sentences") or []:
        say(
            f"{sentence['text']} → {sentence['translation']}"
            if "translation" in sentence
            else sentence["text"]
        )
        for words in sentence.get("fills") or []:
            say("  " + ", ".join(f"{w['token']} {percent(w['probability'])}" for w in words))


def show_similarity_run(run: Run, recipe: Any) -> None:
    """A finished embedder on the terminal: how far its cosines agree with the scores, beside baselines."""
    metrics = run.metrics
    judged = metrics["judged"]
    found = {f"{recipe.model.model}, {split}": values for split, values in metrics["similarity"].items()}
    found |= {f"{name}, {judged}": values for name, values in metrics["others"].items()}
    if found:
        show_similarity(f"{recipe.name}: {metrics['seconds']['total']:.0f} s in all", found)


def show_similarity(title: str, found: dict[str, dict[str, Any]]) -> None:
    """A line for each model: correlations with their intervals, or how well partners are found."""
    from glassformer.report.metrics import metric_table
    from glassformer.targets.similarity import Similarity

    keys = [key for key in Similarity.metrics if any(key in values for values in found.values())]
    show(
        title, metric_table([*found.items()], ["n", keys[0], f"{keys[0]}_interval", *keys[1:]], 2, short=True)
    )


# --- numbers --------------------------------------------------------------------------------------


def chosen_by(far: dict[str, Any]) -> str:
    """That the epoch hangs on validation numbers far from all others, and the way out."""
    some, one = ", ".join(f"{value:.10g}" for value in far["first"]), far["count"] == 1
    epoch = "the epoch" if far["best_epoch"] is None else f"epoch {far['best_epoch']}"
    by = "a validation number" if one else f"{far['count']:,} validation numbers"
    share = f"{far['share_of_loss']:.0%} of the validation loss"
    fix = f"correct {'it' if one else 'them'}, or train again with --set far_numbers=skip"
    if far.get("wide"):
        fix = "the numbers span orders of magnitude, of which --set number_scale=log learns the logarithm"
    return f"{epoch} was chosen by {by} far from all others ({some}), {share}: {fix}"


def said_of_intervals(levels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each coverage: how many numbers lie in their intervals, and how wide these are."""
    for level in levels:
        asked = f"{level['asked']:.0%} intervals"
        if level["covered"] is None:
            yield f"{asked}: take {level['needed']} validation examples or more"
        else:
            width = f"width {level['width']:.4g}"
            if "factor" in level:
                width = f"from 1/{level['factor']:.3g} to {level['factor']:.3g} times the predicted one"
            yield f"{asked}: {level['covered']:.1%} of the true numbers inside, {width}"


def in_ratios(scores: dict[str, Any]) -> str:
    """Where logarithms are learned, how far off predictions are as ratios; else empty."""
    found = scores.get("ratios") or {}
    if (factor := found.get("median_factor")) is None:
        return ""
    said = f"half of the predictions are within a factor of {factor:.3g}"
    return f"{said}; R² of the logarithms: {found['r2']:.4g}" if found["r2"] is not None else said


def show_number_figures(title: str, scores: dict[str, Any]) -> None:
    """Every metric of one regressor, with its interval."""
    from glassformer.report.metrics import value_table
    from glassformer.targets.regression import Numbers

    show(title, value_table(scores, [*Numbers.metrics], 2))
    if line := in_ratios(scores):
        say(line)
    for line in said_of_intervals(scores.get("intervals") or []):
        say(line)
