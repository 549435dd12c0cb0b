"""What a run of a text classifier is made of.

It leaves ``predictions.csv`` and ``maps.json`` beside what every run leaves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from glassformer.data.batching import BatchSettings, evaluation_batches, training_batches
from glassformer.data.checks import check_texts
from glassformer.data.doctor import DoctorReport, HeldOut, examine
from glassformer.data.doctor_checks import LEAVE_EMPTY, said_of_empty
from glassformer.data.files import read_lines
from glassformer.data.mending import mended
from glassformer.data.sources import TextDataset, find_in_data, load_text_dataset
from glassformer.data.splits import Splits, as_they_are, split_up
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
from glassformer.tasks.export import export
from glassformer.tasks.folds import LabelsOutOfFold
from glassformer.tasks.frozen import fit_frozen, left_out
from glassformer.tasks.labelled import (
    a_regression_a_label,
    answers,
    baseline_weights,
    check_unseen,
    cut_texts,
    fit,
    judge_again,
    judge_sentences,
    judge_splits,
    measure_of,
)
from glassformer.tasks.task import TINY, TINY_TEXTS, Look, Task, Work, page_of
from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.tasks.text_classification.recipe import EvaluateConfig, Recipe, TextFitConfig
from glassformer.train.config import settled


def load(recipe: Recipe, source: str | None = None, trained: Sequence[str] | None = None) -> Splits:
    """The texts of a recipe, split as it says; or those of another source, as they are.

    Args:
        trained: columns of texts, for another source; see ``load_text_dataset``.

    Raises:
        DataError: no such source, no training split, no labels.
    """
    d = recipe.data
    part: dict[str, Any] = {"limit": d.limit, "seed": d.split_seed} if source is None else {}
    dataset = load_text_dataset(
        d.source if source is None else source,
        text_column=d.text_column,
        label_column=d.label_column,
        label_separator=d.label_separator,
        pair_column=d.pair_column,
        need_labels=True,
        on_bad_row=d.on_bad_row,
        trained=trained,
        **part,
    )
    dataset, said = mended(dataset, d.merge_labels, d.drop_duplicates and source is None)
    dataset = replace(dataset, said=(*dataset.said, *said))
    return as_they_are(dataset) if source is not None else split_up(dataset, d, recipe.evaluate.split)


def look(work: Work) -> Look:
    """Labels that training would not show and unreadable sentences are found before it, not after it."""
    wanted = work.recipe.evaluate
    work.data, unknown = check_unseen(work.data, work.recipe.data.on_bad_row == "skip")
    splits = work.data
    if sentences := own_sentences(wanted):
        check_texts(sentences, "evaluate.sentences")
    lines = [*splits.dataset.said, f"{splits.dataset.name}: {splits.sizes()}"]
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    empty = [said_of_empty(name, split.labels) for name, split in parts.items() if split is not None]
    if any(empty):
        lines += [*filter(None, empty), LEAVE_EMPTY]
    if wanted.sentences_file and find_in_data(wanted.sentences_file) is None:
        lines.append(f"no {wanted.sentences_file} in a data folder: its sentences are left out")
    return Look(lines, (*splits.dataset.rejected, *unknown), lambda: _examine(work))


def own_sentences(wanted: EvaluateConfig) -> list[str]:
    """The recipe's own sentences, and those of its file where that is at hand.

    Raises:
        DataError: a file that is no text.
    """
    file = find_in_data(wanted.sentences_file) if wanted.sentences_file else None
    return [*wanted.sentences, *(read_lines(file)[0] if file else ())]


def _examine(work: Work) -> DoctorReport:
    """The data as they are trained on, with the tokenizer that reads them."""
    return examine(
        _as_split(work.data),
        tokenizer=work.estimator.tokenizer_ if work.estimator.reads_tokens else None,
        max_length=work.estimator.max_length,
        clean=work.recipe.text.clean,
        held_out=_how_held_out(work.recipe, work.data),
    )


def _how_held_out(recipe: Recipe, splits: Splits) -> HeldOut | None:
    """How parts were taken out of the source's training rows; None: the source has them all."""
    d = recipe.data
    taken = d.validation_size is not None or (d.test_size is not None and "test" not in splits.dataset.splits)
    return d.hold_out if taken else None


def _as_split(splits: Splits) -> TextDataset:
    """The data as this run uses them, for the doctor."""
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    others = {k: v for k, v in splits.dataset.splits.items() if k not in parts}
    return replace(splits.dataset, splits={k: v for k, v in parts.items() if v is not None} | others)


def judge(work: Work) -> dict[str, Any]:
    """Figures of the splits beside the baselines, what was cut and padded, and the recipe's own sentences."""
    started = time.perf_counter()
    work.say("judging")
    clf, recipe = work.estimator, work.recipe
    of_tokens = padded_and_cut(work) if clf.reads_tokens else {}
    sentences = judge_sentences(clf, asked) if (asked := own_sentences(recipe.evaluate)) else []
    out = judge_splits(work) | of_tokens
    if recipe.evaluate.baselines and (absent := left_out(clf)):
        out["baselines_left_out"] = absent
    if clf.max_length != recipe.text.max_length:  # the model has fewer positions
        out["max_length"] = clf.max_length
    if sentences:
        out["sentences"] = sentences
    if clf.tried_:
        out["tried"] = list(clf.tried_)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def padded_and_cut(work: Work) -> dict[str, Any]:
    """Which share of the rows is padding, and how many texts of each split were cut."""
    clf, recipe, splits = work.estimator, work.recipe, work.data
    lengths = clf.encode(splits.train.texts).lengths
    padding = attention_padding(lengths, settled(recipe.train, clf.chosen_), clf.model_)
    return {"padding": {"linear": 0.0, **padding}, "truncated": cut_texts(clf, splits)}


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


def show(work: Work) -> dict[str, Any]:
    """Where the model looks in a few texts."""
    found = attention_examples(work.estimator, work.data, work.recipe.evaluate.maps)
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


def tiny() -> tuple[TextClassifier, tuple]:
    """Does a text name a dog?"""
    settings: dict[str, Any] = {**TINY, "max_length": 16, "min_count": 1}
    return TextClassifier("encoder-mini", **settings), (TINY_TEXTS, [int("dog" in t) for t in TINY_TEXTS])


TASK = Task(
    name="text-classification",
    recipe=Recipe,
    estimator=TextClassifier,
    gives="labels",
    target=Classes(),
    load=load,
    look=look,
    fit=fit,
    judge=judge,
    again=judge_again,
    page=page_of("classes"),
    tiny=tiny,
    show=show,
    baselines=(tfidf, embeddings, frozen),
    answer=answers,
    folds=LabelsOutOfFold,
    export=export,
    packages=("tokenizers", "safetensors", "scikit-learn"),
)
