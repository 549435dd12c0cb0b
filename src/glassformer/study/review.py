"""Labels that are probably wrong, from out-of-fold predictions: review.json, review.csv and a ranked page."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.checkpoints.files import read_json, replace_text, replacing
from glassformer.checkpoints.locks import writing
from glassformer.config import read_toml
from glassformer.data.label_sets import as_sets, indicator, labels_in
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.label_noise import LabelReview, SetReview, review_label_sets, review_labels
from glassformer.evaluate.metrics import no_better_than_one
from glassformer.evaluate.predictions import Prediction, read_predictions
from glassformer.finite import json_text
from glassformer.report.review import write_review_page
from glassformer.study.answers import ANSWERED, PAIRED, TAGGED, read_object
from glassformer.study.corrected import give_back, given_settings, separator_for, write_corrected
from glassformer.study.fold import NAME
from glassformer.study.word_review import judged_words, write_to_correct
from glassformer.study.word_review import suggestions as suggestions_of

COLUMNS = (
    "rank",
    "row",
    "text",
    "label",
    "suggested",
    "label_probability",
    "suggested_probability",
    "suspicious",
)
ON_PAGE = 200  # suggestions that a page can carry
TEXT = 1500  # characters of one on the page


@dataclass(frozen=True)
class Suggestion:
    """One label, judged. ``rank`` counts from 1; ``row`` is that of the source file, where there is one."""

    rank: int
    row: str
    text: str
    label: str
    suggested: str
    label_probability: float
    suggested_probability: float
    suspicious: bool


def review(folder: str | Path, top: int = 1000) -> dict[str, Any]:
    """Rank the labels of a cross-validation's examples, the most doubtful first.

    Args:
        folder: that ``cross_validate`` has filled.
        top: suggestions to write into review.csv.

    Returns:
        What review.json holds: how many labels look wrong, estimated noise by class pair, first suggestions.

    Raises:
        ConfigError: not a cross-validation's folder, or nothing to list.
        DataError: damaged predictions, or one class only.
    """
    folder = Path(folder)
    if top < 1:
        raise ConfigError(f"{top} suggestions", where="top", fix="Use 1 or more")
    path, tagged = folder / "predictions.csv", folder / TAGGED
    if not (folder / "folds.json").is_file():
        fix = "Make one with: glassformer cross-validate"
        raise ConfigError("no finished cross-validation: no folds.json", where=str(folder), fix=fix)
    if (folder / ANSWERED).is_file():
        fix = f"Look at {ANSWERED}: it has each answer beside the true ones"
        raise ConfigError("holds answers from texts, and labels are ranked", where=str(folder), fix=fix)
    if (folder / PAIRED).is_file():
        fix = f"Look at {PAIRED}, which has the cosine and the score of each pair"
        raise ConfigError("holds cosines of pairs, and labels are ranked", where=str(folder), fix=fix)
    if not (path.is_file() or tagged.is_file()):
        fix = "Give the command of the cross-validation again: it goes on"
        raise ConfigError("this cross-validation has not ended", where=str(folder), fix=fix)
    with writing(folder):
        return _review_words(folder, top) if tagged.is_file() else _review(folder, path, top)


def _review(folder: Path, path: Path, top: int) -> dict[str, Any]:
    rows = [row for row in read_predictions(path) if row.split == NAME]
    if not rows:
        raise DataError(f"no {NAME} predictions", where=str(path))
    classes = list(rows[0].probabilities)
    p = np.array([list(row.probabilities.values()) for row in rows])
    if (read_object(folder / "metrics.json").get("test") or {}).get("kind") == "labels":
        return _review_sets(folder, rows, classes, p, top)
    labels = np.array([classes.index(row.label) for row in rows])
    judged = review_labels(labels, p)
    chosen = judged.order[:top]
    suggestions = [
        Suggestion(
            rank,
            rows[i].row,
            rows[i].text,
            rows[i].label,
            classes[judged.suggested[i]],
            float(judged.quality[i]),
            float(p[i, judged.suggested[i]]),
            bool(judged.suspicious[i]),
        )
        for rank, i in enumerate(chosen.tolist(), 1)
    ]
    config = read_toml(folder / "config.toml") if (folder / "config.toml").is_file() else {}
    found = _found(config, classes, judged, suggestions)
    return _written(folder, config, found, suggestions, rows, judged, classes)


def _review_sets(
    folder: Path, rows: list[Prediction], classes: list[str], p: np.ndarray, top: int
) -> dict[str, Any]:
    """The same of several labels an example: each label that is given or missing is a yes or no."""
    config = read_toml(folder / "config.toml") if (folder / "config.toml").is_file() else {}
    known = set(classes)
    given = [labels_in(row.label, known) for row in rows]
    has = indicator(given, classes).astype(bool)
    judged = review_label_sets(has, p)
    sets = as_sets(has ^ judged.flips, classes)
    changed = np.asarray(judged.flips.any(1))
    suggestions = [
        Suggestion(
            rank,
            rows[i].row,
            rows[i].text,
            rows[i].label,
            str(sets[i]),
            float(judged.quality[i]),
            float(1 - judged.quality[i] if changed[i] else judged.quality[i]),
            bool(judged.suspicious[i]),
        )
        for rank, i in enumerate(judged.order[:top].tolist(), 1)
    ]
    separator = separator_for(config.get("data", {}), classes)
    config = config | {"data": config.get("data", {}) | {"label_separator": separator}}
    cells = [separator.join(map(str, own)) for own in sets]  # as the table's own column has them
    each = [(k, has_it) for k in range(len(classes)) for has_it in (1, 0)]
    pairs = [
        {
            "label": classes[k] if has_it else f"without {classes[k]}",
            "suggested": f"without {classes[k]}" if has_it else classes[k],
            "share": float(judged.joint[k, has_it, 1 - has_it]),
            "count": round(float(judged.joint[k, has_it, 1 - has_it]) * len(rows)),
        }
        for k, has_it in each
    ]
    apart = judged.joint[:, [0, 1], [1, 0]].sum(1)
    found = _found(config, classes, judged, suggestions, pairs, float(apart.mean())) | {"several": True}
    marked = _Marked(judged.quality, np.arange(len(rows)), judged.suspicious, judged.order)
    plain = [replace(row, label=separator.join(own)) for row, own in zip(rows, given, strict=True)]
    return _written(folder, config, found, suggestions, plain, marked, cells)


class _Marked(NamedTuple):
    """What a table to correct says of each example."""

    quality: np.ndarray
    suggested: np.ndarray  # places in a list of suggestions
    suspicious: np.ndarray
    order: np.ndarray


def _written(
    folder: Path,
    config: dict[str, Any],
    found: dict[str, Any],
    suggestions: list[Suggestion],
    rows: list[Prediction],
    judged: Any,
    names: Sequence[str],
) -> dict[str, Any]:
    """What was found, once its files are written."""
    _write_csv(folder / "review.csv", suggestions)
    path, fresh = write_corrected(folder, config.get("data", {}), rows, judged, names)
    found["pictures"] = "broken" in config.get("data", {})  # a key of pictures
    found["judge"] = _judge(folder)
    found["give_back"] = give_back(config.get("data", {}), path) + given_settings(config)
    found["to_correct"] = {"file": path.name, "edited": not fresh}
    replace_text(folder / "review.json", json_text(found, indent=1) + "\n")
    write_review_page(folder)
    return found


def _review_words(folder: Path, top: int) -> dict[str, Any]:
    """The same of the tags of words."""
    train, classes, labels, judged = judged_words(folder)
    listed = [Suggestion(**s) for s in suggestions_of(train, classes, labels, judged, top)]
    config = read_toml(folder / "config.toml")
    found = _found(config, classes, judged, listed)
    _write_csv(folder / "review.csv", listed)
    path, fresh = write_to_correct(folder, train, classes, labels, judged)
    found |= {"pictures": False, "judge": "", "to_correct": {"file": path.name, "edited": not fresh}}
    found["give_back"] = ["glassformer", "train", str(folder / "config.toml"), "--set", f"source={path}"]
    found["give_back"] += [
        w
        for key in ("words_column", "tags_column")
        if config.get("data", {}).get(key)
        for w in ("--set", f"{key}=none")
    ]
    replace_text(folder / "review.json", json_text(found, indent=1) + "\n")
    write_review_page(folder)
    return found


def _found(
    config: dict[str, Any],
    classes: list[str],
    judged: LabelReview | SetReview,
    suggestions: list[Suggestion],
    pairs: list[dict[str, Any]] | None = None,
    noise: float | None = None,
) -> dict[str, Any]:
    """What review.json says of labels, of examples or of words; ``pairs`` and ``noise``: of sets."""
    n = int(np.isfinite(judged.quality).sum())
    pairs = pairs or [
        {
            "label": classes[i],
            "suggested": classes[j],
            "share": float(judged.joint[i, j]),
            "count": round(float(judged.joint[i, j]) * n),
        }
        for i in range(len(classes))
        for j in range(len(classes))
        if i != j
    ]
    return {
        "kind": "review",
        "name": config.get("name", ""),
        "source": config.get("data", {}).get("source", ""),
        "n": n,
        "suspicious": int(judged.suspicious.sum()),
        "noise": float(judged.joint.sum() - judged.joint.trace()) if noise is None else noise,
        "classes": classes,
        "pairs": sorted(pairs, key=lambda pair: -pair["count"]),
        "listed": len(suggestions),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "suggestions": [vars(s) | {"text": s.text[:TEXT]} for s in suggestions[:ON_PAGE]],
    }


def _judge(folder: Path) -> str:
    """What is to be said of the answers that labels are doubted by; empty where they are good enough."""
    path = folder / "metrics.json"
    plain = no_better_than_one(read_json(path)["test"]) if path.is_file() else ""
    return (
        f"the answers that these labels are doubted by are {plain}: train a better model first"
        if plain
        else ""
    )


def _write_csv(path: Path, suggestions: list[Suggestion]) -> None:
    with (
        replacing(path) as fresh,
        open(fresh, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for s in suggestions:
            shares = f"{s.label_probability:.6g}", f"{s.suggested_probability:.6g}"
            texts = csv_safe(s.text), csv_safe(s.label), csv_safe(s.suggested)
            writer.writerow([s.rank, s.row, *texts, *shares, "yes" if s.suspicious else "no"])
