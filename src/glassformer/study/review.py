"""Find labels that are probably wrong, from out-of-fold predictions.

Writes review.json, review.csv, a table to correct, and a page with a ranked list.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.checkpoints.files import read_json, replace_text
from glassformer.checkpoints.locks import writing
from glassformer.config import read_toml
from glassformer.data.checks import is_missing
from glassformer.data.files import reading
from glassformer.data.label_kinds import plain_name
from glassformer.data.label_sets import SEPARATOR, as_sets, indicator, parse_labels
from glassformer.data.sources import split_files
from glassformer.data.spreadsheet import REVIEWED, csv_safe
from glassformer.data.tables import READERS, Table, read_table
from glassformer.data.text_pairs import SECOND_CELL, are_pairs, first_of, second_of
from glassformer.errors import BadValueError, DataError, NotARunError, NotForThisModelError, RunInUseError
from glassformer.evaluate.label_noise import LabelReview, SetReview, review_label_sets, review_labels
from glassformer.evaluate.predictions import Prediction, read_predictions, table_file
from glassformer.finite import json_text
from glassformer.process import READING
from glassformer.report.study import write_review_page
from glassformer.study.folds import NAME
from glassformer.study.word_review import reviewed_words, write_to_correct
from glassformer.study.word_review import suggestions as suggestions_of
from glassformer.targets import LabelSets, Target, TokenTags, target_in
from glassformer.targets.multiclass import Classes, no_better_than_majority
from glassformer.tasks.catalog import known_recipe_of

# --- the table to correct -------------------------------------------------------------------------
#
# It has the user's own columns, with the most suspicious rows first. Users correct the label column and pass
# the file to ``train``, which ignores columns whose names begin with ``review:`` and undoes the escaping of
# formulas.


TO_CORRECT = "to_correct.csv"
SEPARATORS = ("|", ";", "/", "¦", "‖")
SECTIONS = ("text", "image", "model", "train")  # sections of a recipe that configure training
REVIEW_COLUMNS = tuple(
    f"{REVIEWED}{name}" for name in ("rank", "suggested", "suspicious", "label_probability")
)


def write_corrected(
    folder: Path, data: dict[str, Any], rows: Sequence[Prediction], label_review: Any, classes: Sequence[str]
) -> tuple[Path, bool]:
    """Write the table, unless the user has edited an earlier one.

    Args:
        data: the section ``data`` of the recipe.
        rows: the out-of-fold predictions; ``label_review`` has their indices.

    Returns:
        The file, and whether it was written.
    """
    columns, cells, places = _source_table(data, rows)
    order = [places[i] for i in label_review.order.tolist()]
    reviewed = set(order)
    marks = {
        places[i]: _mark(rank, i, label_review, classes)
        for rank, i in enumerate(label_review.order.tolist(), 1)
    }
    order += [i for i in range(len(cells)) if i not in reviewed]  # rows without predictions
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*REVIEW_COLUMNS, *map(csv_safe, columns)])
    writer.writerows([*marks.get(i, [""] * len(REVIEW_COLUMNS)), *map(csv_safe, cells[i])] for i in order)
    path, content = folder / TO_CORRECT, text.getvalue()
    if path.is_file() and path.read_bytes() != content.encode():
        return path, False
    replace_text(path, content)
    return path, True


def training_command(data: dict[str, Any], path: Path) -> list[str]:
    """The command that trains on the corrected table, with the same settings of the data.

    Args:
        data: the section ``data`` of the recipe; for multi-label with the separator used in the table.
    """
    has_images = "broken" in data  # a key of tasks on images
    command = ["glassformer", "train", "--images" if has_images else "--text", str(path)]
    keys = ["label_separator"]
    if _source(data) is not None:  # otherwise the table has our column names, which are detected
        keys = ["text_column", "pair_column", "image_column", "label_column", *keys]
    for key in keys:
        is_named = data.get(key) not in (None, "", "none")
        command += ["--" + key.replace("_", "-"), data[key]] if is_named else []
    skip = data.get("on_bad_row") == "skip"
    command += ["--on-bad-row", "skip"] if skip and not has_images else []
    if data.get("drop_duplicates"):
        command += ["--set", "drop_duplicates=true"]
    command += ["--set", f"target={data['target']}"] if data.get("target") else []
    merged = data.get("merge_labels", "none")
    if isinstance(merged, dict):
        pairs = (f"{json_text(a)} = {json_text(b)}" for a, b in merged.items())
        merged = "{" + ", ".join(pairs) + "}"
    return command + (["--set", f"merge_labels={merged}"] if merged != "none" else [])


def changed_settings(config: dict[str, Any]) -> list[str]:
    """Options for a new run with a recipe's model and all its settings that differ from the defaults, except
    those of the data.

    Args:
        config: the contents of the recipe's TOML file.
    """
    defaults = known_recipe_of(config).defaults
    model = config.get("model", {}).get("model")
    options = ["--model", str(model)] if model else []
    for name in SECTIONS:
        section_defaults = defaults.get(name, {})
        for key, value in config.get(name, {}).items():
            if (
                key not in section_defaults
                or section_defaults[key] == value
                or (name, key) == ("model", "model")
            ):
                continue
            options += [
                "--set",
                f"{name}.{key}={value if isinstance(value, str) else json_text(value, ascii=True)}",
            ]
    return options


def _mark(rank: int, i: int, label_review: Any, classes: Sequence[str]) -> list[Any]:
    probability, suggested = f"{float(label_review.quality[i]):.6g}", classes[label_review.suggested[i]]
    return [rank, csv_safe(suggested), "yes" if label_review.suspicious[i] else "no", probability]


def _source_table(
    data: dict[str, Any], rows: Sequence[Prediction]
) -> tuple[list[str], list[list[str]], dict[int, int] | np.ndarray]:
    """Columns and rows of the user's table, and the row index of each prediction."""
    table = _source(data)
    if table is not None:
        place = {str(row): i for i, row in enumerate(table.rows)}
        columns = [name for name in table.names if not name.startswith(REVIEWED)]
        values = [table.read(name) for name in columns]
        if all(row.row in place for row in rows) and _matches(values, place, rows):
            for name, column in zip(columns, values, strict=True):
                if data.get("label_column") in (None, "", "none", name):
                    _spell(column, table.class_names.get(name, ()), data, place, rows)
            cells = [[as_text(column[i]) for column in values] for i in range(len(table.rows))]
            return columns, cells, {i: place[row.row] for i, row in enumerate(rows)}
    if are_pairs([row.text for row in rows]):
        cells = [[first_of(row.text), second_of(row.text), row.label] for row in rows]
        return ["text", SECOND_CELL, "label"], cells, np.arange(len(rows))
    name = "file" if "broken" in data else "text"  # ``broken`` is a key of tasks on images
    return [name, "label"], [[row.text, row.label] for row in rows], np.arange(len(rows))


def _spell(
    column: list[Any],
    names: Sequence[str],
    data: dict[str, Any],
    place: dict[str, int],
    rows: Sequence[Prediction],
) -> None:
    """If this is the column of the labels, write all its labels as suggestions are written, in place.

    Class indices become names, lists are joined, ``True`` and ``1.0`` become 1, so that a corrected label is
    not a new class. Merged classes keep their own names, since the next training merges them again.
    """
    merged, separator = data.get("merge_labels"), data.get("label_separator") or SEPARATOR.strip()
    merges = merged if isinstance(merged, dict) else {}

    def parts(value: Any) -> list[str]:
        if isinstance(value, list | tuple | np.ndarray):
            return sorted({part for element in value for part in parts(element)})
        is_whole = isinstance(value, float) and value.is_integer()
        if is_whole or isinstance(value, int | np.integer | np.bool_):
            number = int(value)
            return [names[number] if 0 <= number < len(names) else str(number)]
        return [] if is_missing(value) else [str(value).strip()]

    labels_per_row = [parts(value) for value in column]
    has_lists = any(isinstance(value, list | tuple | np.ndarray) for value in column)
    for row in rows:
        written_labels = row.label.split(separator) if has_lists else [row.label]
        row_labels = {plain_name(str(merges.get(part, part))) for part in labels_per_row[place[row.row]]}
        if row_labels - {""} != {plain_name(label) for label in written_labels if label}:
            return
    column[:] = [separator.join(row_labels) for row_labels in labels_per_row]


def separator_for(data: dict[str, Any], classes: Sequence[Any]) -> str:
    """The separator between labels in a cell: the data's own, or a character that no label contains."""
    unused = (sign for sign in SEPARATORS if not any(sign in str(label) for label in classes))
    return data.get("label_separator") or next(unused, SEPARATORS[0])


def as_text(value: Any) -> str:
    """A value as text for a cell; missing values are empty."""
    return "" if value is None or isinstance(value, bytes) else str(value)


def _source(data: dict[str, Any]) -> Table | None:
    """The table that the folds were made from; None if they come from several files, or not from a file."""
    with reading(**{key: data.get(key) for key in READING}):
        return _table(Path(str(data.get("source", ""))))


def _table(path: Path) -> Table | None:
    try:
        if path.is_dir():
            parts = split_files(path).get("train", [])
            path = parts[0] if len(parts) == 1 else path
        if path.suffix.lower() not in READERS or not path.is_file():
            return None
        return read_table(path, lambda error, row: None)
    except DataError:
        return None


def _matches(values: Sequence[Sequence[Any]], place: dict[str, int], rows: Sequence[Prediction]) -> bool:
    """Whether a column of the file still has the texts of the predictions."""
    return any(all(column[place[row.row]] == first_of(row.text) for row in rows) for column in values)


# --- the review -----------------------------------------------------------------------------------


ON_PAGE = 200  # maximum number of suggestions on the page
TEXT = 1500  # maximum number of characters of a text on the page


@dataclass(frozen=True)
class Suggestion:
    """The review of one label. ``rank`` counts from 1; ``row`` is the row in the source file, if any."""

    rank: int
    row: str
    text: str
    label: str
    suggested: str
    label_probability: float
    suggested_probability: float
    suspicious: bool


def review(folder: str | Path, top: int = 1000) -> dict[str, Any]:
    """Rank the labels of a cross-validation's examples, the most suspicious first.

    Args:
        folder: the folder of a finished ``cross_validate``.
        top: number of suggestions in review.csv.

    Returns:
        The contents of review.json: number of suspicious labels, estimated noise per pair of classes, and the
        first suggestions.

    Raises:
        ConfigError: the folder is not a finished cross-validation, or ``top`` is below 1.
        DataError: damaged predictions, or only one class.
    """
    folder = Path(folder)
    if top < 1:
        raise BadValueError(f"{top} suggestions", where="top", fix="Use 1 or more")
    target = target_in(folder)
    if not (folder / "folds.json").is_file():
        fix = "Make one with: glassformer cross-validate"
        raise NotARunError("no finished cross-validation: no folds.json", where=str(folder), fix=fix)
    if target is None:
        fix = "Give the command of the cross-validation again: it goes on"
        raise RunInUseError("this cross-validation has not ended", where=str(folder), fix=fix)
    if target.no_review:
        what, fix = target.no_review
        raise NotForThisModelError(f"holds {what}, and labels are ranked", where=str(folder), fix=fix)
    with writing(folder):
        return REVIEWS.get(type(target), _review)(folder, top)


def _predictions(folder: Path) -> tuple[list[Prediction], list[str], np.ndarray]:
    """Out-of-fold predictions, classes, and probabilities ``[n, C]``."""
    path = folder / Classes.file
    rows = [row for row in read_predictions(path) if row.split == NAME]
    if not rows:
        raise DataError(f"no {NAME} predictions", where=str(path))
    return rows, list(rows[0].probabilities), np.array([list(row.probabilities.values()) for row in rows])


def _suggestions(
    rows: Sequence[Prediction], judged: Any, top: int, suggested: Sequence[str], probability: np.ndarray
) -> list[Suggestion]:
    """The most suspicious labels; ``suggested`` and its ``probability`` are those of each example."""
    return [
        Suggestion(
            rank,
            rows[i].row,
            rows[i].text,
            rows[i].label,
            str(suggested[i]),
            float(judged.quality[i]),
            float(probability[i]),
            bool(judged.suspicious[i]),
        )
        for rank, i in enumerate(judged.order[:top].tolist(), 1)
    ]


def _config(folder: Path) -> dict[str, Any]:
    """The recipe of a cross-validation; empty if its file is gone."""
    return read_toml(folder / "config.toml") if (folder / "config.toml").is_file() else {}


def _review(folder: Path, top: int) -> dict[str, Any]:
    rows, classes, p = _predictions(folder)
    judged = review_labels(np.array([classes.index(row.label) for row in rows]), p)
    suggested = [classes[k] for k in judged.suggested.tolist()]
    suggestions = _suggestions(rows, judged, top, suggested, p[np.arange(len(p)), judged.suggested])
    config = _config(folder)
    record = _record(config, classes, judged, suggestions)
    return _write(folder, config, record, suggestions, rows, judged, classes)


def _review_sets(folder: Path, top: int) -> dict[str, Any]:
    """Review of multi-label data; each label of an example is a binary decision, given or missing."""
    rows, classes, p = _predictions(folder)
    config = _config(folder)
    given = [parse_labels(row.label, set(classes)) for row in rows]
    has = indicator(given, classes).astype(bool)
    judged = review_label_sets(has, p)
    sets = as_sets(has ^ judged.flips, classes)
    changed = np.where(judged.flips.any(1), 1 - judged.quality, judged.quality)
    suggestions = _suggestions(rows, judged, top, [str(own) for own in sets], changed)
    separator = separator_for(config.get("data", {}), classes)
    config = config | {"data": config.get("data", {}) | {"label_separator": separator}}
    cells = [separator.join(map(str, own)) for own in sets]  # the format of the table's label column
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
    noise = judged.joint[:, [0, 1], [1, 0]].sum(1)
    record = _record(config, classes, judged, suggestions, pairs, float(noise.mean())) | {"several": True}
    marked = _Marked(judged.quality, np.arange(len(rows)), judged.suspicious, judged.order)
    plain = [replace(row, label=separator.join(own)) for row, own in zip(rows, given, strict=True)]
    return _write(folder, config, record, suggestions, plain, marked, cells)


class _Marked(NamedTuple):
    """The entries of each example in the table to correct."""

    quality: np.ndarray
    suggested: np.ndarray  # indices into a list of suggestions
    suspicious: np.ndarray
    order: np.ndarray


def _write(
    folder: Path,
    config: dict[str, Any],
    record: dict[str, Any],
    suggestions: list[Suggestion],
    rows: list[Prediction],
    judged: Any,
    names: Sequence[str],
) -> dict[str, Any]:
    """Write all files of the review; returns the completed record."""
    _write_csv(folder / "review.csv", suggestions)
    path, fresh = write_corrected(folder, config.get("data", {}), rows, judged, names)
    record["pictures"] = "broken" in config.get("data", {})  # a key of tasks on images
    record["judge"] = _weak_model_note(folder)
    record["give_back"] = training_command(config.get("data", {}), path) + changed_settings(config)
    record["to_correct"] = {"file": path.name, "edited": not fresh}
    replace_text(folder / "review.json", json_text(record, indent=1) + "\n")
    write_review_page(folder)
    return record


def _review_words(folder: Path, top: int) -> dict[str, Any]:
    """Review of the tags of words."""
    train, classes, labels, judged = reviewed_words(folder)
    listed = [Suggestion(**s) for s in suggestions_of(train, classes, labels, judged, top)]
    config = _config(folder)
    record = _record(config, classes, judged, listed)
    _write_csv(folder / "review.csv", listed)
    path, fresh = write_to_correct(folder, train, classes, labels, judged)
    record |= {"pictures": False, "judge": "", "to_correct": {"file": path.name, "edited": not fresh}}
    record["give_back"] = ["glassformer", "train", str(folder / "config.toml"), "--set", f"source={path}"]
    for key in ("words_column", "tags_column"):
        record["give_back"] += ["--set", f"{key}=none"] if config.get("data", {}).get(key) else []
    replace_text(folder / "review.json", json_text(record, indent=1) + "\n")
    write_review_page(folder)
    return record


# Kind of target -> its review; for all others ``_review``, for one class per example.
REVIEWS: dict[type[Target], Callable[[Path, int], dict[str, Any]]] = {
    LabelSets: _review_sets,
    TokenTags: _review_words,
}


def _record(
    config: dict[str, Any],
    classes: list[str],
    judged: LabelReview | SetReview,
    suggestions: list[Suggestion],
    pairs: list[dict[str, Any]] | None = None,
    noise: float | None = None,
) -> dict[str, Any]:
    """The entries of review.json; ``pairs`` and ``noise`` are given for multi-label data."""
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


def _weak_model_note(folder: Path) -> str:
    """A warning if the model is too weak to find label errors; otherwise empty."""
    path = folder / "metrics.json"
    plain = no_better_than_majority(read_json(path)["test"]) if path.is_file() else ""
    return plain and f"the answers that these labels are doubted by are {plain}: train a better model first"


def _write_csv(path: Path, suggestions: list[Suggestion]) -> None:
    with table_file(path) as writer:
        writer.writerow(field.name for field in fields(Suggestion))
        for s in suggestions:
            shares = f"{s.label_probability:.6g}", f"{s.suggested_probability:.6g}"
            texts = csv_safe(s.text), csv_safe(s.label), csv_safe(s.suggested)
            writer.writerow([s.rank, s.row, *texts, *shares, "yes" if s.suspicious else "no"])
