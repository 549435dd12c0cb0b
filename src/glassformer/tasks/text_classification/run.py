"""Runs of text classification and regression.

In addition to the files of every run, they write ``predictions.csv``. Classification also writes
``maps.json`` (attention of some texts), regression ``numbers.json`` (points of plots, and largest errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from glassformer.data.batching import BatchSettings, evaluation_batches, training_batches
from glassformer.data.checks import check_texts
from glassformer.data.files import read_lines
from glassformer.data.sources import find_data_file
from glassformer.data.splits import Splits
from glassformer.data.text_pairs import are_pairs
from glassformer.data.tokenizer_file import count_ids
from glassformer.evaluate.baselines import bag_of_embeddings, tfidf_logistic, word_features
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.nn.attention import choose_branch
from glassformer.nn.maps import padding_share
from glassformer.packing import Packing
from glassformer.runtime import choose_device, choose_dtype
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers, as_baseline, mean_number, tfidf_ridge
from glassformer.tasks.auto import fit_frozen, missing_baselines
from glassformer.tasks.run_steps import main_metric
from glassformer.tasks.supervised import (
    baseline_weights,
    collect_numbers,
    evaluate,
    one_vs_rest_baseline,
    predict_sentences,
    preview_data,
    supervised_task,
)
from glassformer.tasks.task import DataPreview, RunContext
from glassformer.tasks.text_classification.estimator import TextClassifier, TextRegressor
from glassformer.tasks.text_classification.recipe import (
    EvaluateConfig,
    Recipe,
    TextFitConfig,
)
from glassformer.train.config import with_values


def preview_texts(context: RunContext) -> DataPreview:
    """``preview_data``, and a check of the recipe's example sentences."""
    settings = context.recipe.evaluate
    if sentences := own_sentences(settings):
        check_texts(sentences, "evaluate.sentences")
    preview = preview_data(context)
    if not settings.sentences_file or find_data_file(settings.sentences_file) is not None:
        return preview
    line = f"no {settings.sentences_file} in a data folder: its sentences are left out"
    return replace(preview, lines=[*preview.lines, line])


def own_sentences(settings: EvaluateConfig) -> list[str]:
    """The recipe's example sentences, and those of its file if the file exists."""
    file = find_data_file(settings.sentences_file) if settings.sentences_file else None
    return [*settings.sentences, *(read_lines(file)[0] if file else ())]


def evaluate_texts(context: RunContext) -> dict[str, Any]:
    """``evaluate``, the share of padding, and predictions for the recipe's example sentences."""
    out, clf, recipe = evaluate(context), context.estimator, context.recipe
    if clf.reads_tokens:
        lengths = clf.encode(context.data.train.texts).lengths
        padding = attention_padding(lengths, with_values(recipe.train, clf.chosen_), clf.model_)
        out["padding"] = {"linear": 0.0, **padding}
    if sentences := own_sentences(recipe.evaluate):
        out["sentences"] = predict_sentences(clf, sentences)
    if recipe.evaluate.baselines and (absent := missing_baselines(clf)):
        out["baselines_left_out"] = absent
    return out


def attention_padding(lengths: np.ndarray, t: TextFitConfig, model: Any) -> dict[str, float]:
    """The share of padding inside attention, in training and in evaluation.

    Attention needs padding only if no kernel supports the dtype and head size. Linear layers need none.
    """
    c = model.config.encoder if model.has_attention else None
    if c is None or c.attention != "full":
        return {"attention": 0.0, "attention_evaluation": 0.0}
    device = choose_device(t.device)
    dtype = choose_dtype(t.precision, device)
    q = torch.empty(1, c.num_heads, c.d_model // c.num_heads, dtype=dtype, device=device)
    settings = BatchSettings(t.batch_size or 0, t.batch_tokens, t.length_window)
    kinds = {
        "attention": training_batches(lengths, settings, t.seed, 0),
        "attention_evaluation": evaluation_batches(lengths, t.batch_tokens or 8192, device),
    }
    shares = {}
    for kind, batches in kinds.items():
        dropout = c.attention_dropout if kind == "attention" else 0.0
        real = padded = 0.0
        for index in batches:
            packing = Packing(tuple(lengths[index].tolist()))
            branch = choose_branch(q, q, q, packing, packing, False, dropout, False)
            real += packing.total
            if branch == "padded":
                padded += packing.count * packing.max_length
            else:
                padded += packing.total / (1.0 - padding_share(packing) * (branch == "grouped"))
        shares[kind] = 1.0 - real / padded
    return shares


def tfidf(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple:
    """Baseline: logistic regression on TF-IDF."""
    if clf.kind_.is_multilabel:
        results = one_vs_rest_baseline(clf, splits, targets, word_features)
        return ("TF-IDF + logistic regression a label", *results)
    train, split = splits.train.texts, splits.evaluated.texts
    probabilities = tfidf_logistic(
        train,
        targets,
        split,
        num_classes=len(clf.classes_),
        sample_weight=baseline_weights(clf, targets),
        measure=main_metric(recipe),
    )
    of = " of both sides" if are_pairs(train) else ""
    return f"TF-IDF{of} + logistic regression", probabilities


def embeddings(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
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


def frozen(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
    """Baseline: logistic regression on a frozen encoder; None if not downloaded, or the same model."""
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
    return f"{name} + logistic regression a label", p, predicted


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``maps.json``: attention weights for a few texts."""
    examples = attention_examples(context.estimator, context.data, context.recipe.evaluate.maps)
    return {"maps.json": {"examples": examples}}


def attention_examples(clf: TextClassifier, splits: Splits, count: int) -> list[dict[str, Any]]:
    """A few evaluated texts of readable length, with attention weights per layer and head.

    ``maps`` has all weights, ``cls_rows`` those of the tokens that the head reads.
    """
    from glassformer.report.maps import encode as encode_maps

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
        rows = e.maps[:, :, 0] if reads_first else e.maps.mean(2)  # [L, H, T]
        flow = rollout(e.maps)
        examples.append(
            {
                "text": e.text,
                "label": str(split.labels[i]) if split.labels else "",
                "predicted": str(e.label),
                "probability": e.probability,
                "tokens": e.tokens,
                "offsets": [list(o) for o in e.offsets],
                "words": e.numbers.tolist(),
                "cls_rows": np.round(rows, 4).tolist(),
                "rollout": np.round(flow[0] if reads_first else flow.mean(0), 4).tolist(),
                "maps": encode_maps(e.maps),
            }
        )
    return examples


def frozen_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, split: Sequence[Any]
) -> tuple[str, np.ndarray] | None:
    """Baseline: ridge regression on a frozen encoder, ``[m]``; None if not downloaded, or the same model."""
    baseline = fit_frozen(est, train, numbers.tolist())
    return None if baseline is None else (f"{baseline[0]} + ridge", baseline[1].predict(split))


def evaluate_numbers(context: RunContext) -> dict[str, Any]:
    """``evaluate``, and the names of missing baselines."""
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
    baselines=(tfidf, embeddings, frozen),
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
