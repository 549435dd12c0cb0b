"""Runs of question answering.

In addition to the files of every run, they write ``predictions.jsonl`` (one line per evaluated question) and
``answers.json`` (the questions shown in the report).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import replace_text
from glassformer.data.answer_doctor import examine_answered
from glassformer.data.answered import AnsweredSplit, load_answered
from glassformer.data.checks import place
from glassformer.data.dataset import Dataset
from glassformer.data.questions import Answers, Question, check_questions
from glassformer.data.splits import Splits, evaluation_splits, make_splits
from glassformer.errors import DataError
from glassformer.finite import json_text
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.targets.answer_span import (
    MEASURE,
    METRICS,
    AnswerSpan,
    Candidates,
    answer_metrics,
    answer_scores,
    baselines,
    error_kind,
)
from glassformer.tasks.card import export
from glassformer.tasks.folds import NAME, FoldPredictions, OutOfFold
from glassformer.tasks.question_answering.estimator import QuestionAnswerer, best_answers
from glassformer.tasks.question_answering.recipe import AnsweringRecipe
from glassformer.tasks.run_steps import (
    evaluate_splits,
    fit,
    read_source,
    split_to_evaluate,
    warn_if_nothing_held_out,
)
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_renderer

PREDICTIONS = "predictions.jsonl"
MARGIN = 400  # characters of a long context that are shown before and after an answer
SEPARATOR = " | "  # between question and context in the questions of a recipe


def read(recipe: AnsweringRecipe, source: str | None = None) -> Dataset:
    """Read all questions of a recipe, or of another source."""
    columns = ("question_column", "context_column", "answer_column")
    return read_source(load_answered, recipe, source, *columns)


def load(recipe: AnsweringRecipe, source: str | None = None) -> Splits:
    """Load the questions of a recipe and split them, or load another source without splitting it."""
    dataset = read(recipe, source)
    if source is not None:
        return evaluation_splits(dataset)
    return make_splits(dataset, recipe.data, recipe.evaluate.split, ungrouped=("apart",))


def own_questions(recipe: AnsweringRecipe) -> list[Question]:
    """The example questions of the recipe, which are answered at the end of a run."""
    pairs = [text.partition(SEPARATOR) for text in recipe.evaluate.questions]
    for i, (_, bar, context) in enumerate(pairs):
        if not bar or not context.strip():
            fix = f"Write question{SEPARATOR}context"
            raise DataError("a question without its context", where=f"evaluate.questions[{i}]", fix=fix)
    return check_questions([(a, b) for a, _, b in pairs], "evaluate.questions") if pairs else []


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the questions; the data doctor checks the windows too."""
    splits = context.data
    own_questions(context.recipe)
    count = sum(not true.texts for true in splits.train.answers or ())
    note = (
        f"{count:,} training questions have no answer" if count else "every training question has an answer"
    )
    lines = [f"{splits.dataset.name}: {splits.sizes()} questions; {note}"]
    lines += warn_if_nothing_held_out(splits, "questions", "answers")
    dataset = replace(splits.dataset, splits=splits.parts())

    def doctor() -> Any:
        windows = {name: context.estimator.encode(split.questions) for name, split in dataset.splits.items()}
        return examine_answered(dataset, windows)

    return DataPreview(lines, splits.dataset.rejected, doctor)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the splits and of the baselines; also write the predictions."""
    started = time.perf_counter()
    context.log("evaluating")
    model, recipe, splits = context.estimator, context.recipe, context.data
    out, evaluated = evaluate_splits(context, _evaluate_split, MEASURE), splits.evaluated
    out["threshold"] = model.threshold_
    out["answers"] = {"max_length": model.length_, "max_answer_length": model.max_answer_length}
    if out["test"] is not None:
        if recipe.evaluate.baselines:
            out["baselines"] = baselines(splits.train, evaluated, recipe.evaluate.bootstrap)
        write_answers(
            context.folder / PREDICTIONS, model, evaluated, context.predictions, splits.evaluated_split
        )
    if questions := own_questions(recipe):
        out["questions"] = predict_records(model, questions)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def _evaluate_split(
    model: QuestionAnswerer, split: AnsweredSplit, bootstrap: int, progress: Any = None
) -> tuple[dict[str, Any], list[Candidates]]:
    outputs = model.outputs(split.questions, progress=progress)
    answers = best_answers(split.questions, outputs, model.threshold_)
    return model.judge(split.questions, split.answers or [], bootstrap=bootstrap, given=answers), outputs


def write_answers(
    path: Path, model: QuestionAnswerer, split: AnsweredSplit, candidates: Sequence[Candidates], name: str
) -> None:
    """Write one line per question: predicted and true answers, and both metrics."""
    best = [answers[0].to_dict() for answers in model.answers(split.questions, found=candidates)]
    extra = [{key: x for key, x in answer.items() if key != "text"} for answer in best]
    ids = split.ids or [""] * len(split)
    _write_lines(path, split, name, [answer["text"] for answer in best], extra, ids)


def _write_lines(
    path: Path,
    split: AnsweredSplit,
    name: str,
    predicted: Sequence[str],
    extra: Sequence[dict[str, Any]] = (),
    ids: Sequence[str] = (),
) -> None:
    lines = []
    for i, (question, text) in enumerate(zip(split.questions, predicted, strict=True)):
        truth = split.answers[i] if split.answers else Answers()
        line: dict[str, Any] = {"split": name, "row": None if split.rows is None else split.rows[i]}
        line |= {"id": ids[i]} if ids else {}
        line |= {"question": question.question, "context": question.context, **(extra[i] if extra else {})}
        line |= {"answer": text, "answers": truth.to_dict()}
        line |= dict(zip(METRICS, answer_scores(text, truth), strict=True))
        lines.append(json_text(line) + "\n")
    replace_text(path, "".join(lines))


class AnswersOutOfFold(OutOfFold):
    """Cross-validation of question answering. All questions on the same context share a fold."""

    NOUN, PREDICTIONS_FILE, METRICS = "questions", "given.json", METRICS
    EXAMPLE, GROUPS = "question", "texts"
    target, measure = AnswerSpan(), MEASURE

    def evaluate(
        self, model: QuestionAnswerer, split: AnsweredSplit
    ) -> tuple[int, dict[str, Any], list[str]]:
        predicted = model.predict(split.questions)
        scores = answer_metrics(split.answers or [], predicted, split.texts, bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS}
        return scores["n"], {**metrics, "threshold": model.threshold_}, predicted

    def pooled_metrics(
        self, folder: Path, predictions: FoldPredictions, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        train, predicted = self.train, [""] * len(self.train)
        for rows, texts in predictions:
            for i, text in zip(rows.tolist(), texts, strict=True):
                predicted[i] = text
        _write_lines(folder / PREDICTIONS, train, NAME, predicted)
        test = answer_metrics(
            train.answers or [], predicted, train.texts, bootstrap=self.recipe.evaluate.bootstrap
        )
        return {"task": self.recipe.task, "test": test, "measure": MEASURE, "threshold": None, "answers": {}}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its own test split, or on other data."""
    split = split_to_evaluate(context, source, load, "questions", "split with answers")
    with context.count("evaluating", len(split)) as progress:
        return _evaluate_split(context.estimator, split, context.recipe.evaluate.bootstrap, progress)[0]


def predict_records(model: QuestionAnswerer, X: Sequence[Any], n_best: int = 3) -> list[dict[str, Any]]:
    """One record per question: its answer, and up to ``n_best - 1`` other answers."""
    questions = check_questions(X)
    out = []
    for question, ranked in zip(questions, model.answers(questions, n_best), strict=True):
        best, *further = (answer.to_dict() for answer in ranked)
        best["answer"] = best.pop("text")
        out.append({"question": question.question, "context": question.context, **best, "others": further})
    return out


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``answers.json``: questions with true and predicted answers, the most confident errors first."""
    split, model = context.data.evaluated, context.estimator
    if split is None or context.predictions is None:
        return {}
    best = [answers[0] for answers in model.answers(split.questions, found=context.predictions)]
    errors = [error_kind(answer.text, truth.texts) for answer, truth in zip(best, split.answers, strict=True)]
    order = sorted(range(len(split)), key=lambda i: (not errors[i], -best[i].probability))
    limit = context.recipe.evaluate.shown
    wrong = [i for i in order if errors[i]][: max(limit - limit // 4, 0)]
    numbers = [*wrong, *[i for i in order if not errors[i]][: limit - len(wrong)]]
    return {"answers.json": {"examples": [_example(split, i, best[i], errors[i]) for i in numbers]}}


def _example(split: AnsweredSplit, i: int, answer: Any, error: str) -> dict[str, Any]:
    """An evaluated question. A long context is cut to the text around the answers."""
    question, truth = split.questions[i], split.answers[i] if split.answers else Answers()
    spans = [(a, a + len(text)) for text, a in zip(truth.texts[:1], truth.starts, strict=False)]
    predicted = [(answer.start, answer.end)] if answer.text else []
    ends = [position for span in (*spans, *predicted) for position in span] or [0]
    low, high = max(0, min(ends) - MARGIN), min(len(question.context), max(ends) + MARGIN)
    if high - low > 4 * MARGIN:  # the two answers are far from each other: show the true one
        low, high = max(0, ends[0] - MARGIN), min(len(question.context), ends[0] + MARGIN)
    true_spans, predicted_spans = (
        [(max(a, low) - low, min(b, high) - low) for a, b in spans_here if a < high and b > low]
        for spans_here in (spans, predicted)
    )
    return {
        "where": place(split.origin, i, split.rows),
        "question": question.question,
        "context": question.context[low:high],
        "cut": [low > 0, high < len(question.context)],
        "true": list(truth.texts),
        "true_spans": true_spans,
        "answer": answer.text,
        "spans": predicted_spans,
        "probability": round(answer.probability, 4),
        "error": error,
    }


def example_fixture() -> tuple[QuestionAnswerer, tuple]:
    """A minimal estimator and a few questions."""
    settings: dict[str, Any] = {**TINY, "max_length": 16, "min_count": 1}
    questions, answers = [], []
    for text in TINY_TEXTS:
        words = text.split()
        animal = next((word for word in words if word in ("dog", "cat")), "")
        questions.append(("which animal", text))
        answers.append({"text": [animal], "answer_start": [text.index(animal)]})
    return QuestionAnswerer("encoder-mini", **settings), (questions, answers)


TASK = Task(
    estimator=QuestionAnswerer,
    gives="answers",
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("answers"),
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    predict_records=predict_records,
    target=AnswerSpan(),
    read=read,
    folds=AnswersOutOfFold,
    export=export,
    opens=("spans",),
)
