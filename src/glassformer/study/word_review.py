"""Find tags that are probably wrong, from the out-of-fold predictions for words.

Writes review.json, review.csv and a page, as for labels, and ``to_correct.conll``: all sentences, those with
the most suspicious tags first. Its columns are the word, the suggested tag, the probability of the given tag,
and the given tag, which is the one to correct. A tagger can read the file: the first column is the word, the
last one the tag.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import read_json, replace_text
from glassformer.data.tagged import TaggedSplit, format_conll
from glassformer.data.tags import NOT_TAGGED, repair_tags
from glassformer.errors import DataChangedError
from glassformer.evaluate.label_noise import LabelReview, review_labels
from glassformer.study.folds import answers_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run_folder import read_run_recipe

NAME = "to_correct.conll"
AROUND = 12  # context words on each side of a suspicious one
NOTHING = "_"  # no suggestion


def reviewed_words(folder: Path) -> tuple[TaggedSplit, list[str], np.ndarray, LabelReview]:
    """The sentences of a tagger's cross-validation, the names of the tags, the tag index of all words
    ``[W]``, and their review."""
    recipe, metrics = read_run_recipe(folder), read_json(folder / "metrics.json")
    task = TASKS[recipe.task]
    splits = task.load(recipe)
    assert task.folds is not None
    train, out = splits.train, task.folds(recipe, splits, task.estimator)
    plan = json.loads((folder / "folds.json").read_text(encoding="utf-8"))
    numbers = np.array(plan["assignment"], np.int64)
    if len(numbers) != len(train):
        what = f"{len(train)} sentences, and the folds were of {len(numbers)}"
        raise DataChangedError(what, where=str(folder), fix="Choose another --out")
    answers: list[Any] = [None] * len(train)
    for k in range(plan["folds"]):
        held = np.flatnonzero(numbers == k)
        for i, own in zip(held.tolist(), answers_of(out, folder / f"fold-{k}", held), strict=True):
            answers[i] = own
    every: list[str] = metrics["label_names"]
    tags = [tag for own in train.tags or [] for tag in repair_tags(own, metrics["scheme"])]
    given = {*tags}
    classes = [tag for tag in every if tag in given]  # tags that do not occur cannot be wrong
    p = np.concatenate(answers)[:, [every.index(tag) for tag in classes]].astype(np.float64)
    p /= np.maximum(p.sum(1, keepdims=True), 1e-12)
    known = np.array([tag != NOT_TAGGED for tag in tags])
    labels = np.array([classes.index(tag) if tag != NOT_TAGGED else -1 for tag in tags])
    return train, classes, labels, _among_all(review_labels(labels[known], p[known]), known)


def _among_all(judged: LabelReview, known: np.ndarray) -> LabelReview:
    """Extend the review of the words that count (``known``) to all words ``[W]``; the others come last."""
    if known.all():
        return judged
    rows = np.flatnonzero(known)

    def spread(values: np.ndarray, other: Any) -> np.ndarray:
        out = np.full(len(known), other, np.result_type(values, type(other)))
        out[rows] = values
        return out

    return LabelReview(
        spread(judged.quality, np.nan),
        spread(judged.suggested, 0),
        spread(judged.suspicious, False),
        np.concatenate([rows[judged.order], np.flatnonzero(~known)]),
        judged.joint,
        spread(judged.max_probability, np.nan),
    )


def suggestions(
    train: TaggedSplit, classes: list[str], labels: np.ndarray, judged: LabelReview, top: int
) -> list[dict[str, Any]]:
    """The most suspicious words, each in its sentence between angle quotes."""
    starts = np.cumsum([0, *map(len, train.words)])
    out = []
    for rank, word in enumerate([w for w in judged.order[:top].tolist() if labels[w] >= 0], 1):
        i = int(np.searchsorted(starts, word, side="right")) - 1
        at, words = word - int(starts[i]), train.words[i]
        before, behind = words[max(at - AROUND, 0) : at], words[at + 1 : at + 1 + AROUND]
        out.append(
            {
                "rank": rank,
                "row": "" if train.rows is None else str(train.rows[i]),
                "text": " ".join([*before, f"\u00ab{words[at]}\u00bb", *behind]),
                "label": classes[labels[word]],
                "suggested": classes[judged.suggested[word]],
                "label_probability": float(judged.quality[word]),
                "suggested_probability": float(judged.max_probability[word]),
                "suspicious": bool(judged.suspicious[word]),
            }
        )
    return out


def write_to_correct(
    folder: Path, train: TaggedSplit, classes: list[str], labels: np.ndarray, judged: LabelReview
) -> tuple[Path, bool]:
    """Write ``to_correct.conll``, unless the user has edited an earlier one.

    Returns:
        The file, and whether it was written.
    """
    cuts = np.cumsum(list(map(len, train.words)))[:-1]
    place = np.empty(len(labels), np.int64)
    place[judged.order] = np.arange(len(labels))
    first_rank = [int(own.min()) for own in np.split(place, cuts)]
    suspicious, suggested = np.split(judged.suspicious, cuts), np.split(judged.suggested, cuts)
    order = sorted(range(len(train)), key=first_rank.__getitem__)
    probabilities = np.split(judged.quality, cuts)
    tags = train.tags or []
    columns = [
        [
            [classes[g] if s else NOTHING for s, g in zip(suspicious[i], suggested[i], strict=True)]
            for i in order
        ],
        [[NOTHING if np.isnan(p) else f"{p:.4f}" for p in probabilities[i]] for i in order],
        [tags[i] for i in order],
    ]
    path, text = folder / NAME, format_conll([train.words[i] for i in order], *columns)
    if path.is_file() and path.read_bytes() != text.encode():
        return path, False
    replace_text(path, text)
    return path, True
