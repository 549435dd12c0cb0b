"""A finished run on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.answered import show_answers_run
from glassformer.cli.numbers import show_numbers_run
from glassformer.cli.output import (
    excerpt,
    note,
    one_line,
    say,
    show_scores,
    show_table,
    show_translation_scores,
)
from glassformer.cli.vectors import show_vectors_run

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run

HANDFUL = 30  # validation examples, below which a share is told as a count
GAP = 0.05  # between mean probability and accuracy, from which it is told
ENOUGH = 50  # validation examples that a temperature may rest on


def show_run(run: Run, recipe: Any) -> None:
    """A finished run on the terminal: its figures, by what they are of, and where it lies."""
    show = {
        "scheme": show_tags_run,
        "answers": show_answers_run,
        "numbers": show_numbers_run,
        "similarity": show_similarity_run,
        "baselines": show_labels_run,
        "tests": show_vectors_run,
    }
    if tried := run.metrics.get("tried"):
        show_tried(tried)
    next((show[key] for key in show if key in run.metrics), show_sequence_run)(run, recipe)
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
    if given is None and _reads_pairs(run):
        given = '"A TEXT OF YOUR OWN" "ITS SECOND TEXT"'
    given = given or ("PICTURE.png" if reads == "pictures" else repr_of(recipe, "A TEXT OF YOUR OWN"))
    table = ", or a table: FILE.csv --out ANSWERS.csv" if task.verb == "predict" and reads == "texts" else ""
    return f"next: glassformer {task.verb} {shlex.quote(str(run.folder))} {given}{table}"


def _reads_pairs(run: Run) -> bool:
    from glassformer.checkpoints.files import read_json
    from glassformer.checkpoints.settings import ABOUT

    about = run.folder / "model" / ABOUT
    return about.is_file() and read_json(about).get("pairs") is True


def repr_of(recipe: Any, otherwise: str) -> str:
    """A text to try a model on, as a shell takes it: the recipe's own first sentence, where it has one."""
    sentences = getattr(getattr(recipe, "evaluate", None), "sentences", ())
    return shlex.quote(one_line(sentences[0])) if sentences else f'"{otherwise}"'


def show_labels_run(run: Run, recipe: Any) -> None:
    """A finished classifier on the terminal: scores beside the baselines, cut texts, own sentences."""
    from glassformer.evaluate.metrics import no_better_than_one
    from glassformer.report.wording import model_name, percent, verdict_of
    from glassformer.tasks.catalog import TASKS

    metrics, noun = run.metrics, TASKS[recipe.task].estimator.NOUN
    measure = metrics.get("measure", "accuracy")
    scores, seconds = metrics["test"] or metrics["validation"], metrics["seconds"]
    judged = metrics["judged"] if metrics["test"] else "validation"
    if scores is not None:
        rows = [(model_name(metrics, recipe.model.model), scores, seconds["train"])]
        rows += [(name, b, b.get("seconds")) for name, b in metrics["baselines"].items()]
        say()
        title = f"{recipe.name}: {scores['n']:,} {judged} {noun}, {seconds['total']:.0f} s in all"
        show_scores(title, rows, measure)
        if plain := no_better_than_one(scores):
            note(f"{rows[0][0]} is {plain}")
        say(verdict_of(metrics, noun))
        if any(b.get("class_weight") is not None for b in metrics["baselines"].values()):
            say("the simple models were trained with the same class weights")
    if metrics["test"] and judged != "validation" and metrics["validation"]:
        say(_of_validation(metrics["validation"], measure))
    if doubt := unsure(run.folder, metrics):
        say(doubt)
    for split, (cut, total) in metrics.get("truncated", {}).items():
        if cut:
            length = metrics.get("max_length", recipe.text.max_length)
            say(f"{cut:,} of {total:,} {split} texts are longer than {length} tokens and were cut there")
    for kind, rows in metrics.get("robustness", {}).items():
        say(
            f"{kind}: accuracy {', '.join(format(row['accuracy'], '.1%') for row in rows)} at severity 1 to 5"
            + (f" ({rows[0]['n']:,} pictures)" if rows and "n" in rows[0] else "")
        )
    if warned := _warnings(run.folder):
        note(f"{warned} about the data: above, and in the report")
    if metrics.get("sentences"):
        rows = [[excerpt(s["text"]), s["label"], percent(s["probability"])] for s in metrics["sentences"]]
        show_table("own sentences", ("text", "label", "probability"), rows, right=["probability"])


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
    """The figure of the validation examples; of a few of them how many are right, which says more."""
    from glassformer.evaluate.metrics import measures_of
    from glassformer.report.wording import digits_for, percent

    n, called = scores["n"], measures_of(scores)[measure]
    right = scores["accuracy"] * n
    if n < HANDFUL and measure == "accuracy" and abs(right - round(right)) < 1e-6:
        return f"validation {called}: {round(right)} of {n}"
    of = f" (of {n} examples)" if n < HANDFUL else ""
    return f"validation {called}: {percent(scores[measure], digits_for(n))}{of}"


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


def show_tags_run(run: Run, recipe: Any) -> None:
    """A finished tagger on the terminal: entity figures beside the baseline's, kinds with their errors."""
    from glassformer.evaluate.tags import ERRORS
    from glassformer.report.wording import percent

    metrics = run.metrics
    scores, seconds = metrics["test"] or metrics["validation"], metrics["seconds"]
    judged = metrics["judged"] if metrics["test"] else "validation"
    if scores is not None:
        rows = [(recipe.model.model, scores), *metrics["baselines"].items()]
        columns = ("precision", "recall", "entity_f1", "accuracy")
        cells = [[name, *(f"{s[key]:.2%}" for key in columns), between(s)] for name, s in rows]
        title = f"{recipe.name}: {scores['n']:,} {judged} sentences, {scores['entities']:,} spans, "
        heads = ("model", "precision", "recall", "entity F1", "words right", "95 % interval of F1")
        say()
        show_table(f"{title}{seconds['total']:.0f} s in all", heads, cells, right=heads[1:])
        cells = [
            [
                kind,
                f"{s['support']:,}",
                f"{s['f1']:.2%}",
                *(f"{scores['errors_by_kind'][kind][e]:,}" for e in ERRORS),
            ]
            for kind, s in scores["by_kind"].items()
        ]
        heads = ("kind", "spans", "F1", *(error.replace("_", " ") for error in ERRORS))
        show_table("by kind, with its errors", heads, cells, right=heads[1:])
    if metrics["test"] and judged != "validation" and metrics["validation"]:
        say(f"validation entity F1: {metrics['validation']['entity_f1']:.2%}")
    for sentence in metrics.get("sentences") or []:
        found = ", ".join(f"{s['text']} ({s['kind']} {percent(s['probability'])})" for s in sentence["spans"])
        say(f"{excerpt(sentence['text'])}: {found or 'no span'}")


def between(scores: dict[str, Any]) -> str:
    """The interval of an entity F1, where there is one."""
    from glassformer.report.wording import share_interval

    known = scores.get("entity_f1_interval")
    return share_interval(scores["entity_f1"], known, scores["entities"], 2) if known else ""


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
    names = {"spearman": "Spearman", "pearson": "Pearson", "found": "found", "reciprocal_rank": "1 / rank"}
    keys = [key for key in names if any(key in values for values in found.values())]

    def cell(values: dict[str, Any], key: str) -> str:
        if key not in values:
            return ""
        bounds = values.get(f"{key}_interval")
        return f"{values[key]:.4f}" + ("" if bounds is None else f" ({bounds[0]:.3f} to {bounds[1]:.3f})")

    rows = [[name, f"{v['pairs']:,}", *(cell(v, key) for key in keys)] for name, v in found.items()]
    show_table(title, ("model", "pairs", *(names[key] for key in keys)), rows, right=["pairs"])
