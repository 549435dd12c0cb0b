"""``TextClassifier`` and ``TextRegressor``.

In addition to the files of every run, their runs write ``predictions.csv``. Classification also writes
``maps.json`` (attention of some texts), regression ``numbers.json`` (points of plots, and largest errors).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.checkpoints.catalog import AUTO, CATALOG
from glassformer.checkpoints.ngrams import FILE as NGRAMS
from glassformer.checkpoints.ngrams import read_ngrams, write_ngrams
from glassformer.checkpoints.sentences import write_sentences
from glassformer.checkpoints.settings import METADATA_FILE
from glassformer.data.batching import BatchSettings, evaluation_batches, training_batches
from glassformer.data.checks import check_texts
from glassformer.data.duplicates import comparison_key
from glassformer.data.files import read_lines
from glassformer.data.folders import find_data_file
from glassformer.data.ngrams import Ngrams
from glassformer.data.splits import Splits
from glassformer.data.text import TokenTable, Windows, clean_text, encode_windows
from glassformer.data.text_pairs import (
    SIDES,
    are_pairs,
    check_inputs,
    encode_inputs,
    with_separate_sides,
    without_segments,
)
from glassformer.data.tokenizer_file import count_ids, load_tokenizer, model_inputs
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    NotForThisModelError,
    ShortModelWarning,
    WrongInputError,
)
from glassformer.evaluate.baselines import bag_of_embeddings, tfidf_logistic, word_features
from glassformer.evaluate.predict import compute_logits, compute_pooled, predict_windows
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.families.pretrained import checkpoint_max_positions
from glassformer.inputs.inputs import Inputs
from glassformer.inputs.texts import TextPairs, Texts
from glassformer.models.sentences import EmbeddingSettings
from glassformer.nn.attention import choose_branch
from glassformer.nn.maps import padding_share
from glassformer.nn.pairs import distinguishes_texts
from glassformer.packing import Packing
from glassformer.runtime import choose_device, choose_dtype, isolated_torch, own_generator, runs_isolated
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers, as_baseline, mean_number, tfidf_ridge
from glassformer.tasks.auto import fit_frozen, missing_baselines
from glassformer.tasks.build import (
    build_model,
    build_tokenizer,
    check_embedding_table,
    check_features,
    has_segments,
    is_from_scratch,
    is_linear,
    save_tokenizer,
    warn_of_language,
)
from glassformer.tasks.classifier import Classifier, Regressor, Supervised
from glassformer.tasks.estimator import FitState, with_settings
from glassformer.tasks.supervised import (
    baseline_weights,
    collect_numbers,
    evaluate,
    one_vs_rest_baseline,
    predict_sentences,
    preview_data,
    supervised_task,
)
from glassformer.tasks.task import DataPreview, RunContext, main_metric
from glassformer.tasks.text_classification.recipe import (
    EvaluateConfig,
    ModelConfig,
    Recipe,
    TextConfig,
    TextFitConfig,
    TextNumberFitConfig,
    TextNumberRecipe,
)
from glassformer.train.config import TokenBatches, with_values
from glassformer.train.features import can_be_cached, classify_rows, feature_training, text_features
from glassformer.train.loop import TextStream
from glassformer.train.objectives import Classification, input_masking

ENTAILS = "entail"  # the beginning of the name of an entailment class


class TextModel(Supervised, TextConfig, ModelConfig, TokenBatches):
    """Base class of classifiers and regressors of texts or pairs of texts.

    Fitted attributes in addition to ``Supervised``'s: ``tokenizer_``, ``truncated_`` (number of truncated
    training texts), ``pairs_`` (whether the model reads pairs; None: a transformers checkpoint, which reads
    both).
    """

    INPUTS, CHUNK, MAX_COLUMNS = Texts(), 16_384, 2

    tokenizer_: Any  # a tokenizers.Tokenizer; for a linear model its Ngrams
    truncated_: int
    pairs_: bool | None = False
    segments_: bool | None = None  # whether inputs have token type ids; None: only if ``model_`` uses them

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    @property
    def reads_tokens(self) -> bool:
        """Whether the model reads tokens; a linear model reads n-grams of the whole text."""
        model = getattr(self, "tokenizer_", None)
        return not (is_linear(self.model) if model is None else isinstance(model, Ngrams))

    @property
    def learns_in_steps(self) -> bool:
        return self.reads_tokens if self.model == AUTO else not is_linear(self.model)

    @property
    def idle_settings(self) -> list[str]:
        """The settings that have no effect on this model."""
        from glassformer.tasks.text_classification.tfidf import idle_settings

        return [] if self.learns_in_steps else idle_settings(self)

    @property
    def reads_pairs(self) -> bool:
        """Whether inputs are pairs; False for transformers checkpoints."""
        return bool(self.pairs_)

    @property
    def inputs(self) -> Inputs:
        return TextPairs() if self.reads_pairs else self.INPUTS

    # --- texts -----------------------------------------------------------------------------------

    @staticmethod
    def check(X: Any, origin: str = "texts") -> list[str]:
        return check_inputs(X, origin)

    @staticmethod
    def _num_inputs(examples: Sequence[str]) -> int:
        return 1 + are_pairs(examples)

    def saved_num_inputs(self, metadata: Mapping[str, Any]) -> int | None:
        pairs = metadata.get("pairs", False)
        return None if pairs is None else 1 + bool(pairs)

    @staticmethod
    def copy_keys(examples: Sequence[str]) -> list[str]:
        return list(map(comparison_key, examples))

    @staticmethod
    def count_tokens(examples: Sequence[str]) -> int:
        return sum(len(str(x).split()) for x in examples)

    def _fit(self, data: Any, callbacks: Any, checkpoints: Any, resume: bool) -> Any:
        if not is_linear(self.model):
            return super()._fit(data, callbacks, checkpoints, resume)
        from glassformer.tasks.text_classification.tfidf import fit_tfidf

        with self._rollback():
            return fit_tfidf(self, data, callbacks, checkpoints, resume)

    def _build_preprocessor(self, fit: FitState) -> None:
        self.pairs_ = are_pairs(fit.examples.X)
        is_bi_encoder = self.pairs_ and self.pairs == "apart"
        self.segments_ = self.pairs_ and (is_bi_encoder or has_segments(fit.configs["model"]))
        if is_bi_encoder and not self.add_special_tokens:
            what = "pairs = apart adds special tokens to each text of a pair"
            raise NotForThisModelError(what, where="add_special_tokens", fix="Use add_special_tokens = true")
        if self.pairs_ and self.long_texts != "cut":
            what = f"long_texts = {self.long_texts} reads one text in windows, and these are pairs"
            raise NotForThisModelError(
                what, where="long_texts", fix="Use cut: the longer text of a pair is truncated first"
            )
        self.tokenizer_ = build_tokenizer(fit.configs["text"], fit.configs["model"], fit.examples.X)
        if is_bi_encoder:
            self.tokenizer_ = with_separate_sides(self.tokenizer_)
        warn_of_language(fit.configs["model"].model, self.tokenizer_, fit.examples.X)
        self._limit_max_length(fit)

    def _limit_max_length(self, fit: FitState) -> None:
        """Reduce the default ``max_length`` if the model has fewer position embeddings."""
        text, name = fit.configs["text"], fit.configs["model"].model
        if self.max_length != TextConfig().max_length or self._is_from_scratch() or name.lower() in CATALOG:
            return
        limit = checkpoint_max_positions(name, fit.configs["model"].revision)
        if limit is not None and limit < self.max_length:
            what = f"{name} has positions for {limit} tokens: max_length = {limit}, and longer texts are cut"
            warnings.warn(what, ShortModelWarning, stacklevel=2)
            self.max_length = limit
            fit.configs["text"] = replace(text, max_length=limit)

    def encode(self, examples: Sequence[str]) -> TokenTable:
        """Tokenize checked texts.

        Raises:
            DataError: the texts are pairs and the model reads single texts, or the reverse.
        """
        self.check_number_of_texts(examples)
        if not self.reads_tokens:
            return self.tokenizer_.table(examples)
        table = encode_inputs(
            self.tokenizer_,
            examples,
            max_length=self.max_length,
            clean=self.clean,
            add_special_tokens=self.add_special_tokens,
        )
        has_segments = self.segments_
        if has_segments is None:
            has_segments = distinguishes_texts(self.any_model.config)
        return table if has_segments else without_segments(table)

    def check_number_of_texts(self, examples: Sequence[str]) -> None:
        """Raise DataError if the texts are pairs and the model reads single texts, or the reverse."""
        if self.pairs_ is None or not examples or are_pairs(examples) == self.pairs_:
            return
        what, fix = "this model reads one text, not pairs", "Give one text each"
        if self.pairs_:
            what, fix = "this model reads pairs of texts", "Give two texts for each: (first, second)"
        raise WrongInputError(what, where=self.NOUN, fix=fix)

    def evaluation_table(self, examples: Sequence[str]) -> Windows:
        """Tokenize texts for prediction. Long texts are truncated or split into windows."""
        if self.long_texts == "cut" or are_pairs(examples) or not self.reads_tokens:
            return Windows(self.encode(examples), len(examples))
        return encode_windows(
            self.tokenizer_,
            examples,
            max_length=self.max_length,
            stride=self.window_stride,
            clean=self.clean,  # type: ignore[arg-type]  # checked by fit
            add_special_tokens=self.add_special_tokens,
        )

    def truncated(self, X: Sequence[str]) -> np.ndarray:
        """Which texts are truncated to ``max_length`` tokens, ``[n]`` bool; with windows, none.

        Raises:
            DataError: a text cannot be used.
        """
        check_is_fitted(self, "model_")
        texts, size = self.check_examples(X), self.CHUNK
        chunks = [self.evaluation_table(texts[i : i + size]) for i in range(0, len(texts), size)]
        return np.concatenate([chunk.truncated for chunk in chunks])

    def _training_table(self, examples: Sequence[str]) -> TokenTable:
        table = self.encode(examples)
        self.truncated_ = int(table.truncated.sum())
        return table

    def _is_from_scratch(self) -> bool:
        return is_from_scratch(self.model)

    def _build(self, fit: FitState) -> Any:
        model, text = fit.configs["model"], fit.configs["text"]
        return build_model(
            model,
            text,
            self.tokenizer_,
            len(self.classes_),
            fit.table,
            fit.train.seed,
            bool(self.pairs_),
            solved=fit.train.head_start == "solved",
        )

    def _stream(self, fit: FitState) -> TextStream:
        train: TextFitConfig = fit.train
        settings = BatchSettings(train.batch_size or 0, train.batch_tokens, train.length_window)
        return TextStream(fit.table, settings, train.accumulate, train.seed, fit.device)

    def _objective(self, fit: FitState) -> Classification:
        train: TextFitConfig = fit.train
        masking = input_masking(train, self.tokenizer_, mask_first=not self.add_special_tokens)
        targets, weights = fit.examples.targets, self._weights(fit.examples)
        criterion = self.kind_.criterion(targets, self.classes_.tolist(), train)
        return Classification(targets, weights, getattr(train, "label_smoothing", 0.0), masking, criterion)

    def _vectors(self, fit: FitState, model: Any) -> Tensor:
        return text_features(model, fit.table, self.token_budget(), fit.device)

    def _cache_frozen_features(
        self, fit: FitState, stream: Any, objective: Any, table: Any, logits: Any
    ) -> tuple:
        if not can_be_cached(fit.network, fit.train.word_dropout, fit.train.maskable):
            return stream, objective, logits
        model, options = fit.network, {"batch_tokens": self.token_budget(), "device": fit.device}
        features_of, classify = partial(text_features, model, **options), partial(classify_rows, model)
        return feature_training(stream, objective, features_of, classify, table, how=self.long_texts)

    def token_budget(self) -> int:
        """Number of tokens per batch in prediction."""
        return max(self.batch_tokens, self.max_length) or 8192

    def table_outputs(
        self,
        model: Any,
        table: Windows,
        output: str,
        device: torch.device,
        progress: Callable | None = None,
    ) -> np.ndarray:
        compute = {"logits": compute_logits, "pooled": compute_pooled}[output]
        return predict_windows(
            model,
            table,
            compute,
            pooling=self.long_texts,
            batch_tokens=self.token_budget(),
            device=device,
            progress=progress,
        )

    @runs_isolated
    def embed(
        self,
        X: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        head: bool = False,
    ) -> np.ndarray:
        """Embed each text, ``[n, D]``, fp32.

        If the model was built from a folder of sentence-transformers, these are sentence embeddings with the
        current weights and this model's ``clean``. Pooling, maximum length, normalization and prompts are
        those of the folder's ``modules.json``. Otherwise, these are the pooled vectors, which the head reads.

        Args:
            prompt_name, prompt: the name of a prompt of the folder, or a prompt, to prepend to the texts.
            head: whether to return the input of the head, even for a folder of sentence-transformers.

        Raises:
            ConfigError: there is no prompt of that name, or the model has no ``modules.json``.
            CheckpointError: ``modules.json`` has an unknown module.
        """
        model = self.predictor()
        if not self.reads_tokens:
            what = "a linear model has no vectors of texts"
            fix = "Use an encoder instead of it, such as all-minilm-l6-v2"
            raise NotForThisModelError(what, where="embed", fix=fix)
        if head or self.pairs_ or getattr(model, "sentences", None) is None:
            if prompt_name is not None or prompt is not None:
                what = "prompts belong to models from folders with a modules.json"
                raise ConfigError(what, where="embed", fix="Put the words before the texts yourself")
            return super().embed(X)
        rows = self.prediction_examples(X)
        X = [clean_text(text, self.clean) if isinstance(text, str) else text for text in rows]  # type: ignore[arg-type]  # checked by fit
        options = {"prompt_name": prompt_name, "prompt": prompt, "batch_tokens": self.token_budget()}
        return model.embed_texts(X, tokenizer=self.tokenizer_, **options)

    def _table_arrays(self, table: TokenTable | Windows) -> list[np.ndarray]:
        table = table.table if isinstance(table, Windows) else table
        return [table.ids, table.starts, *([] if table.segments is None else [table.segments])]

    def export_outputs(self) -> Any:
        from glassformer.export.outputs import NgramLabels, TextLabels

        return TextLabels(self) if self.reads_tokens else NgramLabels(self)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        pairs = {"pairs": self.pairs_} if self.pairs_ is not False else {}
        if not self.reads_tokens:
            write_ngrams(self.tokenizer_, folder)
            return {"truncated": 0} | pairs
        without_ids = self.pairs_ is None and self.segments_ is False
        segments = 0 if without_ids else self.model_.config.embedding.segments
        if getattr(self.model_.config, "sides", None):
            segments = len(SIDES)
        save_tokenizer(
            self.tokenizer_, folder, self.max_length, segments=segments, pairs=self.pairs_ is not False
        )
        if isinstance(sentences := getattr(self.model_, "sentences", None), EmbeddingSettings):
            write_sentences(sentences, folder, self.model_.config)
        return {"truncated": self.truncated_} | pairs

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.tokenizer_ = read_ngrams(folder) if (folder / NGRAMS).is_file() else load_tokenizer(folder)
        self.truncated_ = metadata.get("truncated", 0)
        self.pairs_, self.segments_ = metadata.get("pairs", False) if metadata else None, None
        if self.pairs_ is None and "token_type_ids" not in model_inputs(folder):
            self.segments_ = False  # the model was trained without token type ids

    def check_parts(self, folder: Path) -> None:
        super().check_parts(folder)
        if not self.reads_tokens or self.model_.kind == "linear":
            check_features(self.tokenizer_, self.model_, folder)
            return
        check_embedding_table(self.tokenizer_, self.model_.config, str(folder))
        config = self.model_.config
        longest = config.embedding.longest if hasattr(config, "encoder") else None  # None: no limit
        if longest is not None and self.max_length > longest:
            what = f"max_length = {self.max_length} is more than the model's {longest} positions"
            raise CheckpointError(what, where=str(folder / METADATA_FILE))


@with_settings
class TextClassifier(TextModel, Classifier, TextFitConfig):
    """A Transformer that classifies texts, or pairs of texts.

    A pair is a tuple of two texts: ``fit([(premise, claim), ...], y)``. A model that was fitted on pairs
    predicts pairs.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. ``TextModel`` has the fitted attributes.
    """

    RECIPE = Recipe

    def _fit(self, data: Any, callbacks: Any, checkpoints: Any, resume: bool) -> TextClassifier:
        if self.method != "few-shot" or self.model == AUTO:
            return super()._fit(data, callbacks, checkpoints, resume)
        from glassformer.tasks.text_classification.few_shot import fit_few_shot

        train = self.configs()["train"]
        with own_generator(), isolated_torch(train.threads, gradients=True), self._rollback():
            return fit_few_shot(self, data, callbacks, checkpoints, resume)

    @property
    def reads_pairs(self) -> bool:
        """Whether inputs are pairs. For a transformers checkpoint: whether it has an entailment class."""
        if self.pairs_ is not None:
            return self.pairs_
        return any(str(label).lower().startswith(ENTAILS) for label in self.classes_.tolist())


@with_settings
class TextRegressor(Regressor, TextModel, TextNumberFitConfig):
    """A Transformer that predicts numbers for texts, or pairs of texts.

    A pair is a tuple of two texts: ``fit([(first, second), ...], y)``.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``; ``recipe.py``
    explains them. Targets are standardized for training; predictions have the unit of ``y``. ``score`` is R².
    ``TextModel`` and ``Regressor`` have the fitted attributes.
    """

    RECIPE = TextNumberRecipe


def preview_texts(context: RunContext) -> DataPreview:
    """The result of ``preview_data``, after a check of the recipe's example sentences."""
    settings = context.recipe.evaluate
    if sentences := example_sentences(settings):
        check_texts(sentences, "evaluate.sentences")
    preview = preview_data(context)
    if not settings.sentences_file or find_data_file(settings.sentences_file) is not None:
        return preview
    line = f"no {settings.sentences_file} in a data folder: its sentences are left out"
    return replace(preview, lines=[*preview.lines, line])


def example_sentences(settings: EvaluateConfig) -> list[str]:
    """The recipe's example sentences, and those of its file if the file exists."""
    file = find_data_file(settings.sentences_file) if settings.sentences_file else None
    return [*settings.sentences, *(read_lines(file)[0] if file else ())]


def evaluate_texts(context: RunContext) -> dict[str, Any]:
    """The metrics of ``evaluate``, the share of padding, and predictions for the recipe's sentences."""
    out, clf, recipe = evaluate(context), context.estimator, context.recipe
    if clf.reads_tokens:
        lengths = clf.encode(context.data.train.texts).lengths
        padding = attention_padding(lengths, with_values(recipe.train, clf.chosen_), clf.model_)
        out["padding"] = {"linear": 0.0, **padding}
    if sentences := example_sentences(recipe.evaluate):
        out["sentences"] = predict_sentences(clf, sentences)
    if recipe.evaluate.baselines and (missing := missing_baselines(clf)):
        out["baselines_left_out"] = missing
    return out


def attention_padding(lengths: np.ndarray, train: TextFitConfig, model: Any) -> dict[str, float]:
    """The share of padding inside attention, in training and in evaluation.

    Attention needs padding only if no kernel supports the dtype and head size. Linear layers need none.
    """
    encoder = model.config.encoder if model.has_attention else None
    if encoder is None or encoder.attention != "full":
        return {"attention": 0.0, "attention_evaluation": 0.0}
    device = choose_device(train.device)
    dtype = choose_dtype(train.precision, device)
    heads = encoder.num_heads, encoder.d_model // encoder.num_heads
    q = torch.empty(1, *heads, dtype=dtype, device=device)  # [1, H, K]
    settings = BatchSettings(train.batch_size or 0, train.batch_tokens, train.length_window)
    batches_by_key = {
        "attention": training_batches(lengths, settings, train.seed, 0),
        "attention_evaluation": evaluation_batches(lengths, train.batch_tokens or 8192, device),
    }
    shares = {}
    for key, batches in batches_by_key.items():
        dropout = encoder.attention_dropout if key == "attention" else 0.0
        num_tokens = num_positions = 0.0
        for index in batches:
            packing = Packing(tuple(lengths[index].tolist()))
            branch = choose_branch(q, q, q, packing, packing, False, dropout, False)
            num_tokens += packing.total
            if branch == "padded":
                num_positions += packing.count * packing.max_length
            else:
                num_positions += packing.total / (1.0 - padding_share(packing) * (branch == "grouped"))
        shares[key] = 1.0 - num_tokens / num_positions
    return shares


def tfidf_baseline(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple:
    """Baseline: logistic regression on TF-IDF."""
    if clf.kind_.is_multilabel:
        results = one_vs_rest_baseline(clf, splits, targets, word_features)
        return ("TF-IDF + logistic regression per label", *results)
    train, split = splits.train.texts, splits.evaluated.texts
    probabilities = tfidf_logistic(
        train,
        targets,
        split,
        num_classes=len(clf.classes_),
        sample_weight=baseline_weights(clf, targets),
        measure=main_metric(recipe),
    )
    suffix = " of both sides" if are_pairs(train) else ""
    return f"TF-IDF{suffix} + logistic regression", probabilities


def embedding_baseline(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
    """Baseline: mean of learned word embeddings; not for multi-label."""
    if clf.kind_.is_multilabel or not clf.reads_tokens:
        return None
    probabilities = bag_of_embeddings(
        clf.encode(splits.train.texts),
        targets,
        clf.encode(splits.evaluated.texts),
        vocab_size=count_ids(clf.tokenizer_),
        num_classes=len(clf.classes_),
        seed=recipe.train.seed,
        sample_weight=baseline_weights(clf, targets),
    )
    return "mean bag of embeddings", probabilities


def frozen_baseline(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
    """Baseline: logistic regression on a frozen encoder; None if it is not downloaded, or the same model."""
    train, val = splits.train, splits.validation
    multilabel = clf.kind_.is_multilabel
    validation = None
    if multilabel and val is not None and val.labels is not None:  # to tune thresholds
        validation = val.examples, val.labels
    baseline = fit_frozen(clf, train.examples, train.labels, baseline_weights(clf, targets), validation)
    if baseline is None:
        return None
    name, model = baseline
    columns = [clf.classes_.tolist().index(label) for label in model.classes_.tolist()]
    outputs = model.outputs(splits.evaluated.examples)
    p = np.zeros((len(outputs), len(clf.classes_)))
    p[:, columns] = outputs
    if not multilabel:
        return f"{name} + logistic regression", p
    predicted = np.zeros(p.shape, bool)
    predicted[:, columns] = model.predicted_index(outputs)
    return f"{name} + logistic regression per label", p, predicted


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """The contents of ``maps.json``: attention weights for a few texts."""
    examples = attention_examples(context.estimator, context.data, context.recipe.evaluate.maps)
    return {"maps.json": {"examples": examples}}


def attention_examples(clf: TextClassifier, splits: Splits, count: int) -> list[dict[str, Any]]:
    """A few evaluated texts of readable length, with attention weights per layer and head.

    ``maps`` has all weights, ``cls_rows`` those of the tokens that the head reads.
    """
    from glassformer.report.images import encode as encode_maps

    split = splits.evaluated or splits.train
    count = count if getattr(clf.model_, "has_attention", True) else 0
    if not count:
        return []
    lengths = clf.encode(split.texts[:2000]).lengths
    examples = []
    for i in np.argsort(np.abs(lengths - 60), kind="stable")[:count].tolist():
        e = explain_input(clf, split.texts[i], method="attention")
        assert e.maps is not None
        reads_first = bool(getattr(clf.model_.pooling, "reads_first_row_only", False))
        reads_first = reads_first and e.maps.shape[-1] > 1
        head_rows = e.maps[:, :, 0] if reads_first else e.maps.mean(2)  # [L, H, T]
        flow = rollout(e.maps)  # [T, T]
        examples.append(
            {
                "text": e.text,
                "label": str(split.labels[i]) if split.labels else "",
                "predicted": str(e.label),
                "probability": e.probability,
                "tokens": e.tokens,
                "offsets": [list(o) for o in e.offsets],
                "words": e.numbers.tolist(),
                "cls_rows": np.round(head_rows, 4).tolist(),
                "rollout": np.round(flow[0] if reads_first else flow.mean(0), 4).tolist(),
                "maps": encode_maps(e.maps),
            }
        )
    return examples


def frozen_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, split: Sequence[Any]
) -> tuple[str, np.ndarray] | None:
    """Baseline: ridge regression on a frozen encoder; None if it is not downloaded, or the same model."""
    baseline = fit_frozen(est, train, numbers.tolist())
    return None if baseline is None else (f"{baseline[0]} + ridge", baseline[1].predict(split))


def evaluate_numbers(context: RunContext) -> dict[str, Any]:
    """The metrics of ``evaluate``, and the names of missing baselines."""
    missing = missing_baselines(context.estimator) if context.recipe.evaluate.baselines else {}
    return evaluate(context) | ({"baselines_left_out": missing} if missing else {})


TASK = supervised_task(
    TextClassifier,
    Classes(),
    label_of=lambda text: int("dog" in text),
    report="classes",
    preview_data=preview_texts,
    evaluate=evaluate_texts,
    collect_artifacts=collect_artifacts,
    baselines=(tfidf_baseline, embedding_baseline, frozen_baseline),
)

REGRESSION = supervised_task(
    TextRegressor,
    Numbers(),
    label_of=lambda text: float(len(text)),
    report="numbers",
    evaluate=evaluate_numbers,
    collect_artifacts=collect_numbers,
    baselines=(mean_number, as_baseline(tfidf_ridge), as_baseline(frozen_ridge)),
)
