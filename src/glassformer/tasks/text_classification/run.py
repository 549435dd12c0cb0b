"""Labels of texts: what is particular to their runs.

A run leaves ``predictions.csv`` and ``maps.json`` beside what every run leaves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from glassformer.data.batching import BatchSettings, evaluation_batches, training_batches
from glassformer.data.checks import check_texts
from glassformer.data.files import read_lines
from glassformer.data.sources import find_in_data
from glassformer.data.splits import Splits
from glassformer.data.text_pairs import are_pairs
from glassformer.data.tokenizer_file import id_count
from glassformer.evaluate.baselines import bag_of_embeddings, tfidf_logistic, word_features
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.nn.attention import choose_branch
from glassformer.nn.maps import padding_share
from glassformer.packing import Packing
from glassformer.runtime import choose_device, choose_dtype
from glassformer.targets.multiclass import Classes
from glassformer.tasks.frozen import fit_frozen, left_out
from glassformer.tasks.judging import measure_of
from glassformer.tasks.labelled import (
    a_regression_a_label,
    baseline_weights,
    evaluate,
    judge_sentences,
    labelled,
    preview_data,
)
from glassformer.tasks.task import DataPreview, RunContext
from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.tasks.text_classification.recipe import EvaluateConfig, Recipe, TextFitConfig
from glassformer.train.config import settled


def look_at_texts(context: RunContext) -> DataPreview:
    """As ``look``; sentences of the recipe's own that cannot be read are found too."""
    wanted = context.recipe.evaluate
    if sentences := own_sentences(wanted):
        check_texts(sentences, "evaluate.sentences")
    found = preview_data(context)
    if not wanted.sentences_file or find_in_data(wanted.sentences_file) is not None:
        return found
    line = f"no {wanted.sentences_file} in a data folder: its sentences are left out"
    return replace(found, lines=[*found.lines, line])


def own_sentences(wanted: EvaluateConfig) -> list[str]:
    """The recipe's own sentences, and those of its file where that is at hand.

    Raises:
        DataError: a file that is no text.
    """
    file = find_in_data(wanted.sentences_file) if wanted.sentences_file else None
    return [*wanted.sentences, *(read_lines(file)[0] if file else ())]


def judge_texts(context: RunContext) -> dict[str, Any]:
    """As ``judge``, with the share of padding and the recipe's own sentences."""
    out, clf, recipe = evaluate(context), context.estimator, context.recipe
    if clf.reads_tokens:
        lengths = clf.encode(context.data.train.texts).lengths
        padding = attention_padding(lengths, settled(recipe.train, clf.chosen_), clf.model_)
        out["padding"] = {"linear": 0.0, **padding}
    if asked := own_sentences(recipe.evaluate):
        out["sentences"] = judge_sentences(clf, asked)
    if recipe.evaluate.baselines and (absent := left_out(clf)):
        out["baselines_left_out"] = absent
    return out


def attention_padding(lengths: np.ndarray, t: TextFitConfig, model: Any) -> dict[str, float]:
    """The share of padded rows inside attention in training and in evaluation; linear layers have none.

    Of the branches of full attention ``grouped`` and ``padded`` pad: where no kernel has format and heads.
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
    """Counted words."""
    if clf.kind_.binary:
        found = a_regression_a_label(clf, splits, targets, word_features)
        return ("TF-IDF + logistic regression a label", *found)
    train, judged = splits.train.texts, splits.judged.texts
    found = tfidf_logistic(
        train,
        targets,
        judged,
        num_classes=len(clf.classes_),
        sample_weight=baseline_weights(clf, targets),
        measure=measure_of(recipe),
    )
    of = " of both sides" if are_pairs(train) else ""
    return f"TF-IDF{of} + logistic regression", found


def embeddings(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
    """The mean of learned vectors, of one class an example."""
    if clf.kind_.binary or not clf.reads_tokens:
        return None
    found = bag_of_embeddings(
        clf.encode(splits.train.texts),
        targets,
        clf.encode(splits.judged.texts),
        vocab_size=id_count(clf.tokenizer_),
        num_classes=len(clf.classes_),
        seed=recipe.train.seed,
        sample_weight=baseline_weights(clf, targets),
    )
    return "mean bag of embeddings", found


def frozen(clf: Any, recipe: Recipe, splits: Any, targets: np.ndarray) -> tuple | None:
    """The vectors of a frozen encoder, where its weights are at hand and the model is not this one."""
    train, held = splits.train, splits.validation
    sets = clf.kind_.binary
    by = (held.examples, held.labels) if sets and held is not None and held.labels is not None else None
    fitted = fit_frozen(clf, train.examples, train.labels, baseline_weights(clf, targets), by)
    if fitted is None:
        return None
    name, model = fitted
    place = [clf.classes_.tolist().index(label) for label in model.classes_.tolist()]
    found = model.outputs(splits.judged.examples)
    p = np.zeros((len(found), len(clf.classes_)))
    p[:, place] = found
    if not sets:
        return f"{name} + logistic regression", p
    chosen = np.zeros(p.shape, bool)
    chosen[:, place] = model.chosen(found)
    return f"{name} + logistic regression a label", p, chosen


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """Where the model looks in a few texts."""
    found = attention_examples(context.estimator, context.data, context.recipe.evaluate.maps)
    return {"maps.json": {"examples": found}}


def attention_examples(clf: TextClassifier, splits: Splits, count: int) -> list[dict[str, Any]]:
    """A few judged texts of readable length with their maps: the rows the head reads, per layer and head."""
    from glassformer.report.maps import encode as encode_maps

    split = splits.judged or splits.train
    count = count if getattr(clf.model_, "has_attention", True) else 0
    if not count:
        return []
    lengths = clf.encode(split.texts[:2000]).lengths
    chosen = np.argsort(np.abs(lengths - 60), kind="stable")[:count].tolist()
    examples = []
    for i in chosen:
        e = explain_input(clf, split.texts[i])
        assert e.maps is not None
        first = e.maps.shape[-1] > 1 and bool(getattr(clf.model_.pooling, "reads_first_row_only", False))
        rows = e.maps[:, :, 0] if first else e.maps.mean(2)  # [L, H, T]
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
                "rollout": np.round(flow[0] if first else flow.mean(0), 4).tolist(),
                "maps": encode_maps(e.maps),
            }
        )
    return examples


TASK = labelled(
    "text-classification",
    Recipe,
    TextClassifier,
    Classes(),
    label_of=lambda text: int("dog" in text),  # does it name a dog?
    report="classes",
    preview_data=look_at_texts,
    evaluate=judge_texts,
    collect_artifacts=collect_artifacts,
    baselines=(tfidf, embeddings, frozen),
)
