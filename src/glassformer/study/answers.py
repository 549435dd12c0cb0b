"""What a finished run and its simple models said about the judged examples, from their tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.label_sets import indicator, labels_in
from glassformer.data.spreadsheet import csv_dicts
from glassformer.data.tagged import load_tagged
from glassformer.data.tags import kind_of_tag, scheme_of, tagged_places
from glassformer.errors import DataError
from glassformer.evaluate.predictions import (
    SIMPLE,
    holds_numbers,
    read_numbers,
    read_predictions,
    read_simple,
)
from glassformer.evaluate.tags import counted_pairs, span_counts

TAGGED, ANSWERED, PAIRED = "predictions.conll", "predictions.jsonl", "pairs.csv"
TINY = 1e-6  # probabilities are written with six digits


@dataclass(frozen=True)
class Spans:
    """What a run of tags found in each of the n judged sentences."""

    true: np.ndarray  # [n, K] spans of each kind
    made: np.ndarray  # [n, K] those predicted
    exact: np.ndarray  # [n, K] those that are both
    right: np.ndarray  # [n] words with the right tag
    words: np.ndarray  # [n]


@dataclass(frozen=True)
class Answers:
    """What one run said about the judged examples."""

    examples: str  # digest of the examples and their labels: equal digests, same examples
    classes: tuple[str, ...]
    targets: np.ndarray  # [n]; of several labels [n, K] bool
    predicted: np.ndarray  # likewise
    log_loss: float | None
    shares: np.ndarray | None = None  # [n, 2] of answers from texts: exact match and F1; right (0): exact
    contexts: np.ndarray | None = None  # [n] of these the text of each question, numbers from 0
    spans: Spans | None = None  # of tags; then an example is a sentence, right (0) where all its tags are
    numbers: bool = False  # whether targets and predicted are numbers
    cosines: bool = False  # numbers whose scales differ: scores of pairs, and cosines

    @property
    def drawn(self) -> int:
        """How many there are of what is resampled: the judged examples, of answers from texts the texts."""
        return len(self.targets) if self.contexts is None else int(self.contexts.max()) + 1


def read_answers_split(folder: Path) -> str:
    """The split that a run was judged on; empty where neither its predictions nor its metrics say one."""
    path = folder / "predictions.csv"
    if not path.is_file():
        return str(read_object(folder / "metrics.json").get("judged") or "")
    read = read_numbers if holds_numbers(path) else read_predictions
    splits = {row.split for row in read(path)}
    return splits.pop() if len(splits) == 1 else ""


def unlike(folders: tuple[Path, Path], judged: tuple[Answers, Answers]) -> str:
    """How the examples differ that two runs were judged on; empty where they do not."""
    ours, theirs = judged
    if (ours.examples, ours.classes) == (theirs.examples, theirs.classes):
        return ""
    if ours.examples == theirs.examples:
        apart = sorted(set(ours.classes) ^ set(theirs.classes))
        return "know other labels" + (f": {', '.join(apart[:3])} only one of them" if apart else " in order")
    splits, counts = [read_answers_split(f) for f in folders], [len(answers.targets) for answers in judged]
    what = "were judged on different examples: "
    if splits[0] != splits[1] and all(splits):
        return what + f"{counts[0]:,} of {splits[0]}, {counts[1]:,} of {splits[1]}"
    what += f"{counts[0]:,} and {counts[1]:,}"
    first, second = (_texts(folder) for folder in folders)
    if first is None or second is None:
        return what
    return what + f", {len(first & second):,} of them the same"


def _texts(folder: Path) -> set[Any] | None:
    """The judged texts (or names of pictures) with their labels; None: they lie in no predictions.csv."""
    path = folder / "predictions.csv"
    if not path.is_file():
        return None
    read = read_numbers if holds_numbers(path) else read_predictions
    return {(row.text, row.label) for row in read(path)}


def read_answers(folder: Path) -> Answers:
    """A run's predictions.csv.

    Raises:
        DataError: there is none, it is damaged, or its examples have no labels.
    """
    if (folder / TAGGED).is_file():
        return _of_words(folder)
    if (folder / ANSWERED).is_file():
        return _of_questions(folder)
    if (folder / PAIRED).is_file():
        return _of_pairs(folder / PAIRED)
    path = folder / "predictions.csv"
    if not path.is_file():
        what = "has no answers that can be compared"
        fix = "Name finished runs whose models give labels, tags, numbers or cosines"
        raise DataError(what, where=str(folder), fix=fix)
    if holds_numbers(path):
        return _of_numbers(path)
    digest, labels, predicted, chances = hashlib.sha256(), [], [], []
    chances_of: list[list[float]] = []
    classes: tuple[str, ...] = ()
    for row in read_predictions(path):
        digest.update(repr((row.split, row.row, row.text, row.label)).encode("utf-8", "backslashreplace"))
        classes = tuple(row.probabilities)
        labels.append(row.label)
        predicted.append(row.predicted)
        chances.append(row.probabilities.get(row.label, 0.0))
        chances_of.append(list(row.probabilities.values()))
    numbers = {name: i for i, name in enumerate(classes)}
    if labels and (read_object(folder / "metrics.json").get("test") or {}).get("kind") == "labels":
        return _of_sets(digest.hexdigest(), classes, labels, predicted, chances_of)
    if not labels or any(label not in numbers for label in labels):
        raise DataError(
            "no labelled predictions to compare", where=str(path), fix="Judge on a split that has labels"
        )
    loss = float(-np.log(np.clip(chances, TINY, 1.0)).mean())
    targets, guesses = (np.array([numbers[x] for x in column]) for column in (labels, predicted))
    return Answers(digest.hexdigest(), classes, targets, guesses, loss)


def _of_numbers(path: Path) -> Answers:
    """Answers of a regressor: true and predicted numbers."""
    digest, targets, predicted = hashlib.sha256(), [], []
    for row in read_numbers(path):
        digest.update(repr((row.split, row.row, row.text, row.label)).encode("utf-8", "backslashreplace"))
        targets.append(row.label)
        predicted.append(row.predicted)
    if not targets or any(x is None for x in (*targets, *predicted)):
        fix = "Judge on a split that has numbers"
        raise DataError("no true numbers to compare", where=str(path), fix=fix)
    true, found = np.array(targets, np.float64), np.array(predicted, np.float64)
    return Answers(digest.hexdigest(), (), true, found, None, numbers=True)


def _of_pairs(path: Path) -> Answers:
    """Answers of an embedder: the score of each judged pair, and its cosine."""
    digest, scores, cosines = hashlib.sha256(), [], []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv_dicts(file), 2):
            digest.update(repr((row.get("first"), row.get("second"), row.get("score"))).encode("utf-8"))
            try:
                scores.append(float(row["score"]) if row["score"] else None)
                cosines.append(float(row["cosine"]))
            except (KeyError, TypeError, ValueError):
                what, fix = "a score or cosine is no number", "Judge the run again"
                raise DataError(what, where=f"{path}, row {number}", fix=fix) from None
    if not scores or None in scores:
        what, fix = "its pairs have no scores to compare cosines by", "Judge on pairs that have scores"
        raise DataError(what, where=str(path), fix=fix)
    true, found = np.array(scores, np.float64), np.array(cosines, np.float64)
    return Answers(digest.hexdigest(), (), true, found, None, numbers=True, cosines=True)


def read_simple_answers(folder: Path, first: Answers, names: Sequence[str]) -> dict[str, Answers]:
    """What a run's simple models answered, of those ``names`` whose answers were kept.

    Args:
        first: answers to the same examples.
    """
    out, places = {}, {name: i for i, name in enumerate(first.classes)}
    for name, cells in read_simple(folder / SIMPLE).items():
        if name not in names or len(cells) != len(first.targets) or first.spans is not None:
            continue
        try:
            if first.numbers:
                guess = np.array(cells, np.float64)
            elif first.targets.ndim == 2:
                guess = _sets(cells, first.classes)
            else:
                guess = np.array([places[cell] for cell in cells])
        except (KeyError, ValueError):  # written by other labels than the run's: there is no comparing
            continue
        out[name] = replace(first, predicted=guess, log_loss=None)
    return out


def _sets(cells: Sequence[str], classes: tuple[str, ...]) -> np.ndarray:
    """Cells of joined labels as ``[n, K]`` bool."""
    known = set(classes)
    return indicator([labels_in(cell, known) for cell in cells], classes).astype(bool)


def _of_words(folder: Path) -> Answers:
    """Answers of tags, from a run's predictions.conll: word, true tag, predicted tag."""
    path, metrics = folder / TAGGED, read_object(folder / "metrics.json")
    truth = load_tagged(path, tags_column="2").splits["train"]
    made = load_tagged(path, tags_column="3").splits["train"].tags or []
    tags, scheme = truth.tags or [], metrics.get("scheme") or scheme_of(truth.tags or [])
    kinds = sorted({kind_of_tag(tag, scheme) for own in (*tags, *made) for tag in own} - {""})
    right = np.array(
        [
            sum(a == b for a, b in zip(t, p, strict=True))
            for t, p in zip(*counted_pairs(tags, made), strict=True)
        ]
    )
    words = np.array([len(tagged_places(own)) for own in tags])
    digest = hashlib.sha256(repr([*zip(truth.words, tags, strict=True)]).encode("utf-8", "backslashreplace"))
    wrong = (right < words).astype(np.int64)
    found = Spans(*span_counts(tags, made, scheme, kinds), right, words)
    loss = (metrics.get("test") or {}).get("log_loss")
    # kinds differ between runs that find other ones: the sentences and their tags say what was judged
    return Answers(digest.hexdigest(), (), np.zeros(len(words), np.int64), wrong, loss, spans=found)


def _of_questions(folder: Path) -> Answers:
    """Answers from texts, from a run's predictions.jsonl."""
    path, digest, shares = folder / ANSWERED, hashlib.sha256(), []
    contexts: dict[str, int] = {}
    places: list[int] = []
    if not (text := path.read_text(encoding="utf-8").rstrip("\n")):
        raise DataError("no answers to compare", where=str(path), fix="Judge on a split that has some")
    for line in text.split("\n"):  # U+2028 in a text ends no line
        try:
            row = json.loads(line)
            shares.append((float(row["exact_match"]), float(row["f1"])))
            known = (row["question"], row["context"], row["answers"])
        except (ValueError, KeyError, TypeError) as error:
            what = f"a line that is no answer ({type(error).__name__} {error})"
            raise DataError(what, where=str(path), fix="Judge the run again") from None
        digest.update(repr(known).encode("utf-8", "backslashreplace"))
        places.append(contexts.setdefault(str(row["context"]), len(contexts)))
    found = np.array(shares)
    wrong, zeros = (found[:, 0] < 1).astype(np.int64), np.zeros(len(found), np.int64)
    return Answers(digest.hexdigest(), (), zeros, wrong, None, found, np.array(places))


def _of_sets(
    digest: str, classes: tuple[str, ...], labels: list[str], predicted: list[str], chances: list[list[float]]
) -> Answers:
    """Answers of several labels an example: ``targets`` and ``predicted`` are ``[n, K]`` bool."""
    y, guess = _sets(labels, classes), _sets(predicted, classes)
    likely = np.where(y, chances, 1 - np.array(chances)).clip(TINY)
    return Answers(digest, classes, y, guess, float(-np.log(likely).mean()))


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"not valid JSON ({error})", where=str(path)) from None
