"""Review of the tags of words.

The review comes from out-of-fold predictions. ``to_correct.conll`` has all sentences, starting with the most
suspicious tags. Its columns are the word, the suggested tag, the probability of the given tag, and the given
tag, which users correct. Taggers can read the file, since the first column is the word and the last the tag.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import read_json, replace_text
from glassformer.data.tagged import TaggedSplit, format_conll
from glassformer.data.tags import NOT_TAGGED, repair_tags
from glassformer.errors import DataChangedError
from glassformer.evaluate.label_noise import LabelReview, review_labels
from glassformer.study.folds import load_fold_predictions
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run import read_run_recipe

NAME = "to_correct.conll"
CONTEXT = 12  # number of words shown on each side of a suspicious word
NO_SUGGESTION = "_"


def review_tags(folder: Path) -> tuple[TaggedSplit, list[str], np.ndarray, LabelReview]:
    """Review the tags of a cross-validation.

    Returns:
        The sentences, the names of the tags, the tag index of each word ``[W]``, and the review.
    """
    recipe, metrics = read_run_recipe(folder), read_json(folder / "metrics.json")
    task = TASKS[recipe.task]
    splits = task.load(recipe)
    assert task.folds is not None
    train, out = splits.train, task.folds(recipe, splits, task.estimator)
    plan = json.loads((folder / "folds.json").read_text(encoding="utf-8"))
    fold_numbers = np.array(plan["assignment"], np.int64)
    if len(fold_numbers) != len(train):
        what = f"{len(train)} sentences, and the folds were of {len(fold_numbers)}"
        raise DataChangedError(what, where=str(folder), fix="Choose another --out")
    probabilities: list[Any] = [None] * len(train)
    for k in range(plan["folds"]):
        held_out = np.flatnonzero(fold_numbers == k)
        predictions = load_fold_predictions(out, folder / f"fold-{k}", held_out)
        for i, sentence in zip(held_out.tolist(), predictions, strict=True):
            probabilities[i] = sentence
    columns: list[str] = metrics["label_names"]
    tags = [tag for sentence in train.tags or [] for tag in repair_tags(sentence, metrics["scheme"])]
    occurring = {*tags}
    classes = [tag for tag in columns if tag in occurring]  # tags that do not occur cannot be wrong
    p = np.concatenate(probabilities)[:, [columns.index(tag) for tag in classes]].astype(np.float64)
    p /= np.maximum(p.sum(1, keepdims=True), 1e-12)
    is_tagged = np.array([tag != NOT_TAGGED for tag in tags])
    labels = np.array([classes.index(tag) if tag != NOT_TAGGED else -1 for tag in tags])
    return train, classes, labels, _for_all_words(review_labels(labels[is_tagged], p[is_tagged]), is_tagged)


def _for_all_words(review: LabelReview, is_tagged: np.ndarray) -> LabelReview:
    """The review of the tagged words, extended to all words ``[W]``; words without a tag come last."""
    if is_tagged.all():
        return review
    rows = np.flatnonzero(is_tagged)

    def extend(values: np.ndarray, fill: Any) -> np.ndarray:
        out = np.full(len(is_tagged), fill, np.result_type(values, type(fill)))
        out[rows] = values
        return out

    return LabelReview(
        extend(review.quality, np.nan),
        extend(review.suggested, 0),
        extend(review.suspicious, False),
        np.concatenate([rows[review.order], np.flatnonzero(~is_tagged)]),
        review.joint,
        extend(review.max_probability, np.nan),
    )


def tag_suggestions(
    train: TaggedSplit, classes: list[str], labels: np.ndarray, review: LabelReview, top: int
) -> list[dict[str, Any]]:
    """The most suspicious words, each in its sentence between angle quotes."""
    starts = np.cumsum([0, *map(len, train.words)])
    out = []
    for rank, word in enumerate([w for w in review.order[:top].tolist() if labels[w] >= 0], 1):
        i = int(np.searchsorted(starts, word, side="right")) - 1
        position, words = word - int(starts[i]), train.words[i]
        before, after = words[max(position - CONTEXT, 0) : position], words[position + 1 :][:CONTEXT]
        out.append(
            {
                "rank": rank,
                "row": "" if train.rows is None else str(train.rows[i]),
                "text": " ".join([*before, f"\u00ab{words[position]}\u00bb", *after]),
                "label": classes[labels[word]],
                "suggested": classes[review.suggested[word]],
                "label_probability": float(review.quality[word]),
                "suggested_probability": float(review.max_probability[word]),
                "suspicious": bool(review.suspicious[word]),
            }
        )
    return out


def write_tags_to_correct(
    folder: Path, train: TaggedSplit, classes: list[str], labels: np.ndarray, review: LabelReview
) -> tuple[Path, bool]:
    """Write ``to_correct.conll``, unless the user has edited an earlier one.

    Returns:
        The file, and whether it was written.
    """
    spans = [slice(*ends) for ends in pairwise([0, *np.cumsum([*map(len, train.words)]).tolist()])]
    ranks = np.empty(len(labels), np.int64)
    ranks[review.order] = np.arange(len(labels))
    order = sorted(range(len(train)), key=lambda i: ranks[spans[i]].min())
    pairs = zip(review.suspicious, review.suggested, strict=True)
    suggestions = [classes[k] if is_suspicious else NO_SUGGESTION for is_suspicious, k in pairs]
    probabilities = [NO_SUGGESTION if np.isnan(p) else f"{p:.4f}" for p in review.quality]
    words, tags = train.words, train.tags or []
    rows = [(words[i], suggestions[spans[i]], probabilities[spans[i]], tags[i]) for i in order]
    path, text = folder / NAME, format_conll(*zip(*rows, strict=True))
    if path.is_file() and path.read_bytes() != text.encode():
        return path, False
    replace_text(path, text)
    return path, True
