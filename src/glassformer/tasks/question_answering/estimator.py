"""``QuestionAnswerer``: extractive question answering.

model = gf.QuestionAnswerer().fit([("Where was Ada born?", "Ada was born in Hanoi.")], ["Hanoi"])
model.predict([("Where was Bo born?", "Bo was born in Rome.")]); model.answers(...); model.explain(...)

In addition to the files of every run, its runs write ``predictions.jsonl`` (one line per evaluated
question) and ``answers.json`` (the questions shown in the report).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.files import replace_text
from glassformer.checkpoints.settings import METADATA_FILE
from glassformer.data.answer_doctor import examine_qa
from glassformer.data.answered import QASplit, load_qa
from glassformer.data.batching import BatchSettings
from glassformer.data.checks import check_validation, location
from glassformer.data.dataset import Dataset
from glassformer.data.duplicates import comparison_key
from glassformer.data.questions import (
    CONTEXT,
    QUESTION,
    Answers,
    Question,
    check_answers,
    check_questions,
    is_example,
)
from glassformer.data.splits import Splits, evaluation_splits, make_splits, random_split
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.windows import MAX_LENGTH, QuestionWindows, encode_questions
from glassformer.errors import CheckpointError, DataError, InputError
from glassformer.evaluate.predict import predict_tokens
from glassformer.explain.mixin import ExplainMixin
from glassformer.explain.token_subjects import answer_subject
from glassformer.families.pretrained import Checkpoint, load_pretrained
from glassformer.finite import finite, json_text
from glassformer.inputs.questions import Questions
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.runtime import runs_isolated
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.answer_span import (
    MAIN_METRIC,
    METRICS,
    NUM_SPANS,
    AnswerSpan,
    Candidates,
    TextAnswer,
    answer_metrics,
    answer_scores,
    baselines,
    best_threshold,
    candidates,
    error_kind,
)
from glassformer.tasks.build import (
    as_classifier_sections,
    build_model,
    build_tokenizer,
    check_embedding_table,
    cover_vocabulary,
    is_from_scratch,
    save_tokenizer,
)
from glassformer.tasks.estimator import Estimator, FitState, fitted_attribute, with_settings
from glassformer.tasks.question_answering.recipe import (
    AnswererFitConfig,
    AnswererModelConfig,
    AnswererTextConfig,
    QuestionAnsweringRecipe,
)
from glassformer.tasks.task import (
    OUT_OF_FOLD,
    TINY,
    DataPreview,
    OutOfFold,
    RunContext,
    Task,
    export,
    read_source,
)
from glassformer.train.callbacks import Callback
from glassformer.train.config import auto_values_for
from glassformer.train.loop import TextStream
from glassformer.train.objectives import AnswerSpans
from glassformer.train.state import Training

DEFAULT_BATCH_TOKENS = 8192  # maximum number of tokens per batch in prediction
CHUNK = 1024  # number of questions that are encoded at a time, to limit memory


def answer_texts(
    questions: Sequence[Question], candidates: Sequence[Candidates], threshold: float | None
) -> list[str]:
    """The text of the predicted answer to each question; empty: no answer."""
    out = []
    for question, spans in zip(questions, candidates, strict=True):
        text = "" if not spans.spans else question.context[spans.spans[0].start : spans.spans[0].end]
        out.append("" if spans.predicts_no_answer(threshold) else text)
    return out


def window_metrics(logits: np.ndarray, windows: QuestionWindows, targets: np.ndarray) -> tuple[float, float]:
    """Mean loss per window in nats, and the share of windows with the right start and end.

    Args:
        logits: start and end logits ``[N, 2]`` of the N tokens of all windows.
        targets: ``[W, 2]`` first and last token of the answer in each window, counted from its start.
    """
    losses, correct = [], []
    for window, (start, stop) in enumerate(zip(windows.table.starts, windows.table.starts[1:], strict=False)):
        window_logits = logits[start:stop].astype(np.float64)
        window_logits -= window_logits.max(0)  # prevents an overflow
        # The start logit of the first token of the answer, and the end logit of the last token.
        true_logits = window_logits[targets[window], [0, 1]]
        losses.append(-(true_logits - np.log(np.exp(window_logits).sum(0))).mean())
        correct.append(bool((window_logits.argmax(0) == targets[window]).all()))
    return float(np.mean(losses)), float(np.mean(correct))


class QuestionSet(NamedTuple):
    """Questions and their answers."""

    questions: list[Question]
    answers: list[Answers]


@with_settings
class QuestionAnswerer(ExplainMixin, Estimator, AnswererTextConfig, AnswererModelConfig, AnswererFitConfig):
    """A Transformer that finds the span of a text that answers a question.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. Fitted attributes in addition to ``Estimator``'s: ``tokenizer_``, ``length_`` (tokens per
    window) and ``threshold_``, which is tuned on validation questions. If the score of no answer exceeds
    that of the best span by more than the threshold, no answer is predicted. The threshold is None if all
    training questions have an answer; then the model always predicts one.
    """

    RECIPE, INPUTS = QuestionAnsweringRecipe, Questions()
    MAX_COLUMNS, is_example = 2, staticmethod(is_example)
    SAVED_AS = "TextAnswerer"
    SAVED_STATE = (*Estimator.SAVED_STATE, "length", "threshold")

    tokenizer_: Tokenizer = fitted_attribute()
    length_: int = fitted_attribute()
    threshold_: float | None = fitted_attribute()

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> QuestionAnswerer:
        """Train on questions, contexts and the positions of answers in them.

        Args:
            X: pairs (question, context), or dicts with these keys.
            y: for each question ``{"text": [...], "answer_start": [...]}``, or a text that occurs once in the
                context, or None for no answer. Of several answers, training uses the first, and evaluation
                accepts all.
            validation: ``(X, y)``, evaluated after each epoch to select the best weights. If it has questions
                without an answer, it also determines the threshold.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: a question, context or answer cannot be used, or no question has an answer.
            ConfigError, CheckpointError: see ``TextClassifier.fit``.
        """
        return self._fit((X, y, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: FitState, *data: Any) -> tuple[QuestionSet, QuestionSet | None]:
        X, y, validation = data
        questions = check_questions(self.training_examples(X, names=(QUESTION, CONTEXT)))
        validation_set = None
        self.n_features_in_ = 2
        answers = check_answers(y, questions)
        if not any(answer.texts for answer in answers):
            fix = "Fill in the answers, or name their column with --set answer_column=NAME"
            raise DataError("no question has an answer", where="answers", fix=fix)
        if validation is not None:
            X, y = check_validation(validation, "questions, answers")
            validation_questions = check_questions(X, "validation questions")
            validation_answers = check_answers(y, validation_questions, "validation answers")
            validation_set = QuestionSet(validation_questions, validation_answers)
        elif fit.train.validation_fraction:
            groups = [comparison_key(q.context) for q in questions]  # each context is in one split only
            splits = random_split([questions, answers], fit.train.validation_fraction, fit.train.seed, groups)
            (questions, answers), validation_data = splits
            validation_set = QuestionSet(*validation_data)
        return QuestionSet(questions, answers), validation_set

    def _prepare(self, fit: FitState) -> tuple[QuestionWindows, QuestionWindows | None]:
        text, model = self._sections(fit)
        texts = dict.fromkeys(text for question in fit.examples.questions for text in question)
        self.tokenizer_ = build_tokenizer(text, model, list(texts))
        self.length_ = text.max_length
        validation_table = None if fit.validation is None else self.encode(fit.validation.questions)
        return self.encode(fit.examples.questions), validation_table

    @staticmethod
    def _sections(fit: FitState) -> tuple[Any, Any]:
        """The sections ``text`` and ``model`` as the functions of ``build.py`` take them.

        They must name a pooling, although the span head does not use it.
        """
        return as_classifier_sections(fit.configs, MAX_LENGTH, "mean")

    def encode(self, questions: Sequence[Question]) -> QuestionWindows:
        """Tokenize checked questions into windows with token type ids (see ``drop_unused_segments``)."""
        return encode_questions(
            self.tokenizer_,
            questions,
            max_length=self.length_,
            stride=self.doc_stride,
            max_question=self.max_question,
        )

    def _resolve_defaults(self, fit: FitState) -> dict[str, Any]:
        return auto_values_for(fit.train, fit.network, is_from_scratch(self.model), len(fit.table.table))

    def _build(self, fit: FitState) -> Any:
        text, model = self._sections(fit)
        table, seed = fit.table.table, fit.train.seed
        return build_model(model, text, self.tokenizer_, 2, table, seed, pairs=True, head="spans")

    def _loop(self, fit: FitState) -> tuple[TextStream, AnswerSpans, Callable[[], dict[str, float]] | None]:
        train: AnswererFitConfig = fit.train
        windows: QuestionWindows = fit.table
        settings = BatchSettings(train.batch_size or 0, train.batch_tokens, train.length_window)
        table = self.drop_unused_segments(windows, fit.network).table
        stream = TextStream(table, settings, train.accumulate, train.seed, fit.device)
        objective = AnswerSpans(windows.targets(fit.examples.answers))
        return stream, objective, None if fit.validation is None else self._evaluator(fit)

    def _evaluator(self, fit: FitState) -> Callable[[], dict[str, float]]:
        examples, windows = fit.validation, self.drop_unused_segments(fit.validation_table, fit.network)
        targets = windows.targets(examples.answers)

        def evaluate() -> dict[str, float]:
            logits = self.token_logits(fit.network, windows, fit.device)
            loss, accuracy = window_metrics(logits, windows, targets)
            spans = self.span_candidates(logits, windows)
            texts = answer_texts(examples.questions, spans, self._threshold(fit, examples, spans))
            scores = np.mean([answer_scores(*pair) for pair in zip(texts, examples.answers, strict=True)], 0)
            return {"loss": loss, "accuracy": accuracy, **dict(zip(METRICS, scores.tolist(), strict=True))}

        return evaluate

    def _threshold(
        self, fit: FitState, validation_set: QuestionSet, candidates: Sequence[Any]
    ) -> float | None:
        """Tune the threshold for no answer on the validation questions.

        It is None if every training question has an answer, and 0 if all or no validation questions have one.
        """
        if all(answer.texts for answer in fit.examples.answers):
            return None
        has_answer = [bool(answer.texts) for answer in validation_set.answers]
        if all(has_answer) or not any(has_answer):
            return 0.0
        texts = answer_texts(validation_set.questions, candidates, None)
        f1 = [answer_scores(*pair)[1] for pair in zip(texts, validation_set.answers, strict=True)]
        f1_without_answer = [0.0 if has else 1.0 for has in has_answer]
        return best_threshold([c.null_margin for c in candidates], f1, f1_without_answer)

    def _finish_fit(self, fit: FitState, training: Training) -> None:
        super()._finish_fit(fit, training)
        self.threshold_ = None if all(answer.texts for answer in fit.examples.answers) else 0.0
        if self.threshold_ is not None and fit.validation is not None:
            windows = self.drop_unused_segments(fit.validation_table, self.model_)
            candidates = self.span_candidates(self.token_logits(self.model_, windows, fit.device), windows)
            self.threshold_ = self._threshold(fit, fit.validation, candidates)

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        arrays: list[np.ndarray | None] = []
        for windows, examples in ((fit.table, fit.examples), (fit.validation_table, fit.validation)):
            if windows is not None:
                arrays += [
                    windows.table.ids,
                    windows.table.starts,
                    windows.question_of_window,
                    windows.targets(examples.answers),
                ]
        return arrays

    # --- prediction ------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Number of tokens per batch in prediction."""
        return max(self.batch_tokens or DEFAULT_BATCH_TOKENS, self.length_)

    def drop_unused_segments(self, windows: QuestionWindows, model: Any) -> QuestionWindows:
        """The windows, without token type ids if the model does not use them."""
        if model.config.embedding.segments > 1 or windows.table.segments is None:
            return windows
        return replace(windows, table=replace(windows.table, segments=None))

    def token_logits(
        self,
        model: Any,
        windows: QuestionWindows,
        device: torch.device,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Start and end logits of each token, ``[N, 2]`` fp32."""
        windows = self.drop_unused_segments(windows, model)
        # Progress counts the first window of each question.
        is_first = np.diff(windows.question_of_window, prepend=-1) > 0
        count = None if progress is None else lambda index: progress(int(is_first[index].sum()))
        budget = self.budget
        return predict_tokens(model, windows.table, 2, batch_tokens=budget, device=device, progress=count)

    def span_candidates(self, logits: np.ndarray, windows: QuestionWindows) -> list[Candidates]:
        """The candidates of each question, from the logits ``[N, 2]`` of its tokens."""
        return candidates(logits, windows, self.max_answer_length)

    @runs_isolated
    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[Candidates]:
        """The best spans for each question, and the score of no answer."""
        check_is_fitted(self, "model_")
        questions, model = check_questions(X), self.predictor()
        device = next(model.parameters()).device
        out: list[Candidates] = []
        for start in range(0, len(questions), CHUNK):
            windows = self.encode(questions[start : start + CHUNK])
            logits = self.token_logits(model, windows, device, progress)
            out += self.span_candidates(finite(logits, "logits"), windows)
        return out

    def predict(self, X: Sequence[Any]) -> list[str]:
        """The answer to each question, as a part of its context; empty: no answer."""
        questions = check_questions(X)
        return answer_texts(questions, self.outputs(questions), self.threshold_)

    def answers(
        self, X: Sequence[Any], n_best: int = 1, outputs: Sequence[Candidates] | None = None
    ) -> list[list[TextAnswer]]:
        """The best answers to each question, the predicted answer first.

        Args:
            n_best: number of answers, from 1 to 20; there may be fewer spans.
            outputs: the result of the method ``outputs``, if known.

        Raises:
            InputError: ``n_best`` is out of range, or a question cannot be used.
        """
        if isinstance(n_best, bool) or not isinstance(n_best, int) or not 1 <= n_best <= NUM_SPANS:
            raise InputError(
                f"n_best = {n_best!r} is out of range", where="answers", fix=f"Give 1 to {NUM_SPANS}"
            )
        questions = check_questions(X)
        outputs = self.outputs(questions) if outputs is None else outputs
        return [
            best.best_answers(question, self.threshold_, n_best)
            for question, best in zip(questions, outputs, strict=True)
        ]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """SQuAD's F1, from 0 to 1."""
        return self.judge(X, y, bootstrap=0)[MAIN_METRIC]

    def judge(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        bootstrap: int = 1000,
        predictions: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Evaluate the model on questions: all metrics of ``targets.answer_span.answer_metrics``.

        Args:
            bootstrap: number of resamples for the intervals; 0: no intervals.
            predictions: the result of ``predict``, if known.
        """
        questions = check_questions(X)
        truth = check_answers(y, questions)
        predictions = self.predict(questions) if predictions is None else predictions
        return answer_metrics(truth, predictions, [q.context for q in questions], bootstrap=bootstrap)

    def explain(self, x: Any, *, method: str = "integrated_gradients", **options: Any) -> Any:
        """Explain an answer by scores for the words of question and context.

        Args:
            x: a pair (question, context), or a dict with these keys.
            method: one of ``glassformer.explain.methods``, which explains the sum of start and end logit.
            options: ``target`` ("answer" or "no answer"; None: as predicted), ``trust``, and options of the
                method.

        Raises:
            InputError: the question cannot be used, or there is no such method, option or target.
        """
        check_is_fitted(self, "model_")
        return self._explained(check_questions([x], "question"), None, {**options, "method": method})[0]

    def explain_target(self, question: Question) -> Any:
        """The ``Subject`` of an explanation: the model as a function of tokens, and its predicted answer."""
        return answer_subject(self, question)

    def check_examples(self, X: Sequence[Any]) -> list[Question]:
        """Check questions, and return them as a list."""
        return check_questions(X)

    def export_outputs(self) -> Any:
        from glassformer.export.outputs import TextSpans

        return TextSpans(self)

    # --- files -----------------------------------------------------------------------------------

    def write_parts(self, folder: Path) -> dict[str, Any]:
        segments = self.model_.config.embedding.segments
        save_tokenizer(self.tokenizer_, folder, self.length_, segments=segments, pairs=True)
        return {}

    def saved_num_inputs(self, metadata: dict[str, Any]) -> int | None:
        return 2

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.tokenizer_ = load_tokenizer(folder)
        where, threshold = str(folder / METADATA_FILE), self.threshold_
        is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if threshold is not None and not (is_number and abs(threshold) < np.inf):
            raise CheckpointError(f"threshold = {threshold!r} is not a number", where=where)
        if isinstance(self.length_, bool) or not isinstance(self.length_, int) or self.length_ < 3:
            raise CheckpointError(f"length = {self.length_!r} is not a number of tokens", where=where)

    def check_parts(self, folder: Path) -> None:
        config = self.model_.config
        check_embedding_table(self.tokenizer_, config, str(folder))
        if getattr(config, "head", None) != "spans":
            raise CheckpointError("has no head that predicts start and end of an answer", where=str(folder))
        if self.length_ > config.embedding.max_positions:
            what = (
                f"windows of {self.length_} tokens, the model has {config.embedding.max_positions} positions"
            )
            raise CheckpointError(what, where=str(folder))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> QuestionAnswerer:
        """The estimator for a transformers checkpoint.

        It predicts an answer to every question, because the threshold for no answer is unknown.

        Raises:
            CheckpointError: the tokenizer does not match the model.
        """
        folder = checkpoint.folder
        tokenizer = load_tokenizer(folder)
        model = load_pretrained(cover_vocabulary(checkpoint, tokenizer, str(folder)))
        length = min(MAX_LENGTH, model.config.embedding.max_positions)
        state = {"tokenizer": tokenizer, "length": length, "threshold": None}
        return cls.from_parts({"model": str(folder)}, model, **state)


TextAnswerer = QuestionAnswerer  # alias: its name before version 0.2


PREDICTIONS = "predictions.jsonl"
MARGIN = 400  # number of characters of a long context in the report before and after an answer
SEPARATOR = " | "  # between question and context in the questions of a recipe


def read(recipe: QuestionAnsweringRecipe, source: str | None = None) -> Dataset:
    """Read all questions of a recipe, or of another source."""
    columns = ("question_column", "context_column", "answer_column")
    return read_source(load_qa, recipe, source, *columns)


def load(recipe: QuestionAnsweringRecipe, source: str | None = None) -> Splits:
    """Load the questions of a recipe and split them, or load another source without splitting it."""
    dataset = read(recipe, source)
    if source is not None:
        return evaluation_splits(dataset)
    # Questions on the same context stay in one split unless the recipe has ``copies = "apart"``.
    return make_splits(dataset, recipe.data, recipe.evaluate.split, copies_allowed_for=("apart",))


def example_questions(recipe: QuestionAnsweringRecipe) -> list[Question]:
    """The example questions of the recipe, which are answered at the end of a run."""
    partitions = [text.partition(SEPARATOR) for text in recipe.evaluate.questions]
    for i, (_, separator, context) in enumerate(partitions):
        if not separator or not context.strip():
            fix = f"Write question{SEPARATOR}context"
            raise DataError("a question without its context", where=f"evaluate.questions[{i}]", fix=fix)
    pairs = [(question, context) for question, _, context in partitions]
    return check_questions(pairs, "evaluate.questions") if pairs else []


def preview_data(context: RunContext) -> DataPreview:
    """Describe the questions; the data doctor also checks their windows."""
    splits = context.data
    example_questions(context.recipe)
    count = sum(not true.texts for true in splits.train.answers or ())
    note = (
        f"{count:,} training questions have no answer" if count else "every training question has an answer"
    )
    lines = [f"{splits.dataset.name}: {splits.sizes()} questions; {note}"]
    lines += context.held_out_warning("questions", "answers")
    dataset = replace(splits.dataset, splits=splits.parts())

    def doctor() -> Any:
        windows = {name: context.estimator.encode(split.questions) for name, split in dataset.splits.items()}
        return examine_qa(dataset, windows)

    return DataPreview(lines, splits.dataset.rejected, doctor)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the splits and of the baselines; also write the predictions."""
    started = time.perf_counter()
    context.log("evaluating")
    model, recipe, splits = context.estimator, context.recipe, context.data
    out, evaluated = context.evaluate_splits(_evaluate_split, MAIN_METRIC), splits.evaluated
    out["threshold"] = model.threshold_
    out["answers"] = {"max_length": model.length_, "max_answer_length": model.max_answer_length}
    if out["test"] is not None:
        if recipe.evaluate.baselines:
            out["baselines"] = baselines(splits.train, evaluated, recipe.evaluate.bootstrap)
        write_answers(
            context.folder / PREDICTIONS, model, evaluated, context.predictions, splits.evaluated_split
        )
    if questions := example_questions(recipe):
        out["questions"] = predict_records(model, questions)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def _evaluate_split(
    model: QuestionAnswerer, split: QASplit, bootstrap: int, progress: Any = None
) -> tuple[dict[str, Any], list[Candidates]]:
    outputs = model.outputs(split.questions, progress=progress)
    answers = answer_texts(split.questions, outputs, model.threshold_)
    return model.judge(
        split.questions, split.answers or [], bootstrap=bootstrap, predictions=answers
    ), outputs


def write_answers(
    path: Path, model: QuestionAnswerer, split: QASplit, candidates: Sequence[Candidates], name: str
) -> None:
    """Write one line per question: predicted and true answers, and both metrics."""
    best = [answers[0].to_dict() for answers in model.answers(split.questions, outputs=candidates)]
    extra = [{key: x for key, x in answer.items() if key != "text"} for answer in best]
    ids = split.ids or [""] * len(split)
    _write_lines(path, split, name, [answer["text"] for answer in best], extra, ids)


def _write_lines(
    path: Path,
    split: QASplit,
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

    PREDICTIONS_FILE = "given.json"
    NOUN, EXAMPLE, GROUPS = "questions", "question", "texts"
    METRICS = METRICS
    target, measure = AnswerSpan(), MAIN_METRIC

    def evaluate(self, model: QuestionAnswerer, split: QASplit) -> tuple[int, dict[str, Any], list[str]]:
        predicted = model.predict(split.questions)
        scores = answer_metrics(split.answers or [], predicted, split.texts, bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS}
        return scores["n"], {**metrics, "threshold": model.threshold_}, predicted

    def pooled_metrics(
        self, folder: Path, predictions: list[Any], fold: np.ndarray, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        train = self.train
        _write_lines(folder / PREDICTIONS, train, OUT_OF_FOLD, predictions)
        test = answer_metrics(
            train.answers or [], predictions, train.texts, bootstrap=self.recipe.evaluate.bootstrap
        )
        return {
            "task": self.recipe.task,
            "test": test,
            "measure": MAIN_METRIC,
            "threshold": None,
            "answers": {},
        }


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its own test split, or on other data."""
    split = context.split_to_evaluate(source, load, "questions", "split with answers")
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
    """The contents of ``answers.json``: questions with true and predicted answers, confident errors first."""
    split, model = context.data.evaluated, context.estimator
    if split is None or context.predictions is None:
        return {}
    best = [answers[0] for answers in model.answers(split.questions, outputs=context.predictions)]
    errors = [error_kind(answer.text, truth.texts) for answer, truth in zip(best, split.answers, strict=True)]
    order = sorted(range(len(split)), key=lambda i: (not errors[i], -best[i].probability))
    limit = context.recipe.evaluate.shown
    max_errors = max(limit - limit // 4, 0)  # three quarters, so that the report also shows right answers
    wrong = [i for i in order if errors[i]][:max_errors]
    correct = [i for i in order if not errors[i]][: limit - len(wrong)]
    examples = [_example(split, i, best[i], errors[i]) for i in (*wrong, *correct)]
    return {"answers.json": {"examples": examples}}


def _example(split: QASplit, i: int, answer: Any, error: str) -> dict[str, Any]:
    """An evaluated question. A long context is cut to the text around the answers."""
    question, truth = split.questions[i], split.answers[i] if split.answers else Answers()
    spans = [(a, a + len(text)) for text, a in zip(truth.texts[:1], truth.starts, strict=False)]
    predicted = [(answer.start, answer.end)] if answer.text else []
    ends = [position for span in (*spans, *predicted) for position in span] or [0]
    low, high = max(0, min(ends) - MARGIN), min(len(question.context), max(ends) + MARGIN)
    if high - low > 4 * MARGIN:  # the true and the predicted answer are far apart: show the true one
        low, high = max(0, ends[0] - MARGIN), min(len(question.context), ends[0] + MARGIN)
    true_spans, predicted_spans = (
        [(max(a, low) - low, min(b, high) - low) for a, b in answer_spans if a < high and b > low]
        for answer_spans in (spans, predicted)
    )
    return {
        "where": location(split.origin, i, split.rows),
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
    questions, answers = [], []
    for text in TINY_TEXTS:
        words = text.split()
        animal = next((word for word in words if word in ("dog", "cat")), "")
        questions.append(("which animal", text))
        answers.append({"text": [animal], "answer_start": [text.index(animal)]})
    return QuestionAnswerer("encoder-mini", **TINY, max_length=16, min_count=1), (questions, answers)


TASK = Task(
    estimator=QuestionAnswerer,
    output_kind="answers",
    load=load,
    preview_data=preview_data,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="answers",
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    predict_records=predict_records,
    target=AnswerSpan(),
    read=read,
    folds=AnswersOutOfFold,
    export=export,
    checkpoint_heads=("spans",),
)
