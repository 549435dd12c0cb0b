"""Review of labels by out-of-fold predictions.

It writes review.json, review.csv, a page with a ranked list, and a table in which users correct labels. For
tags of words, the table is ``to_correct.conll``. It has all sentences, those with the most suspicious tags
first. Its columns are the word, the suggested tag, the probability of the present tag, and the present tag,
which users correct. Taggers can read the file, because its first column is the word and its last the tag.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import errors
from glassformer.checkpoints.files import read_json, replace_text
from glassformer.checkpoints.locks import write_lock
from glassformer.config import read_toml
from glassformer.data.checks import is_missing
from glassformer.data.files import reading
from glassformer.data.folders import split_files
from glassformer.data.label_kinds import plain_name
from glassformer.data.label_sets import SEPARATOR, as_sets, indicator, parse_labels
from glassformer.data.spreadsheet import REVIEWED, csv_safe
from glassformer.data.tables import READERS, Table, read_table
from glassformer.data.tagged import TaggedSplit, format_conll
from glassformer.data.tags import IGNORED_TAG, repair_tags
from glassformer.data.text_pairs import SECOND_COLUMN, are_pairs, first_text, second_text
from glassformer.evaluate.label_noise import LabelReview, SetReview, review_label_sets, review_labels
from glassformer.evaluate.predictions import Prediction, read_predictions, table_file
from glassformer.finite import json_text
from glassformer.process import READ_OPTIONS
from glassformer.report.study import write_review_page
from glassformer.study.folds import OUT_OF_FOLD, load_fold_predictions, read_plan
from glassformer.targets import LabelSets, Target, TokenTags, target_in
from glassformer.targets.multiclass import Classes, no_better_than_majority
from glassformer.tasks.catalog import TASKS, known_recipe_of
from glassformer.tasks.run import read_run_recipe

# --- the table to correct -------------------------------------------------------------------------
#
# The table has the columns of the user's table, and the most suspicious rows come first. Users correct the
# label column and pass the file to ``train``, which ignores columns whose names begin with ``review:`` and
# reverts the escaping of formulas.


TO_CORRECT = "to_correct.csv"
SEPARATORS = ("|", ";", "/", "¦", "‖")  # candidates for the separator between labels in a cell
SECTIONS = ("text", "image", "model", "train")  # sections of a recipe that configure training
COLUMNS = ("rank", "suggested", "suspicious", "label_probability")
REVIEW_COLUMNS = tuple(f"{REVIEWED}{name}" for name in COLUMNS)


def write_to_correct(
    folder: Path, data: dict[str, Any], rows: Sequence[Prediction], review: Any, classes: Sequence[str]
) -> tuple[Path, bool]:
    """Write the table to correct, unless the user has edited an earlier one.

    Args:
        data: the section ``data`` of the recipe.
        rows: the out-of-fold predictions, in the order of ``review``'s arrays.
        classes: the texts of labels; ``review.suggested`` has indices of it.

    Returns:
        The file, and whether it was written.
    """
    columns, cells, row_indices = _source_table(data, rows)
    review_cells = {}  # index of a row in the table -> cells of the review; the most suspicious row first
    for rank, i in enumerate(review.order.tolist(), 1):
        suggested, is_suspicious = csv_safe(classes[review.suggested[i]]), review.suspicious[i]
        probability = f"{float(review.quality[i]):.6g}"
        review_cells[row_indices[i]] = [rank, suggested, "yes" if is_suspicious else "no", probability]
    empty = [""] * len(REVIEW_COLUMNS)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*REVIEW_COLUMNS, *map(csv_safe, columns)])
    for i in dict.fromkeys([*review_cells, *range(len(cells))]):  # rows without predictions come last
        writer.writerow([*review_cells.get(i, empty), *map(csv_safe, cells[i])])
    return _write_unless_edited(folder / TO_CORRECT, text.getvalue())


def _write_unless_edited(path: Path, text: str) -> tuple[Path, bool]:
    """Write a file unless the user has edited an earlier one; returns its path and whether it was written."""
    if path.is_file() and path.read_bytes() != text.encode():
        return path, False
    replace_text(path, text)
    return path, True


def training_command(data: dict[str, Any], path: Path) -> list[str]:
    """The command that trains on the corrected table with the same data settings.

    Args:
        data: the section ``data`` of the recipe; for multi-label data, with the separator of the table.
    """
    has_images = "broken" in data  # a key of recipes for images
    command = ["glassformer", "train", "--images" if has_images else "--text", str(path)]
    keys = ["label_separator"]
    if _read_source(data) is not None:  # otherwise the table has default column names, which are detected
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
    """Command-line options for the model and the changed settings of a recipe, except those of the data.

    Args:
        config: the contents of the recipe's TOML file.
    """
    defaults = known_recipe_of(config).defaults
    model = config.get("model", {}).get("model")
    options = ["--model", str(model)] if model else []
    for name in SECTIONS:
        section_defaults = defaults.get(name, {})
        for key, value in config.get(name, {}).items():
            is_changed = key in section_defaults and section_defaults[key] != value
            if is_changed and (name, key) != ("model", "model"):
                text = value if isinstance(value, str) else json_text(value, ascii=True)
                options += ["--set", f"{name}.{key}={text}"]
    return options


def _source_table(
    data: dict[str, Any], rows: Sequence[Prediction]
) -> tuple[list[str], list[list[str]], dict[int, int] | np.ndarray]:
    """The columns and rows of the user's table, and the row index of each prediction."""
    table = _read_source(data)
    if table is not None:
        index = {str(row): i for i, row in enumerate(table.rows)}
        columns = [name for name in table.names if not name.startswith(REVIEWED)]
        values = [table.read(name) for name in columns]
        if all(row.row in index for row in rows) and _has_texts(values, index, rows):
            for name, column in zip(columns, values, strict=True):
                if data.get("label_column") in (None, "", "none", name):
                    _normalize_labels(column, table.class_names.get(name, ()), data, index, rows)
            cells = [[as_text(column[i]) for column in values] for i in range(len(table.rows))]
            return columns, cells, {i: index[row.row] for i, row in enumerate(rows)}
    if are_pairs([row.text for row in rows]):
        cells = [[first_text(row.text), second_text(row.text), row.label] for row in rows]
        return ["text", SECOND_COLUMN, "label"], cells, np.arange(len(rows))
    name = "file" if "broken" in data else "text"  # ``broken`` is a key of recipes for images
    return [name, "label"], [[row.text, row.label] for row in rows], np.arange(len(rows))


def _normalize_labels(
    column: list[Any],
    names: Sequence[str],
    data: dict[str, Any],
    index: dict[str, int],
    rows: Sequence[Prediction],
) -> None:
    """If this is the label column, change its labels in place to the format of suggestions.

    Class indices become names, lists are joined, and ``True`` and ``1.0`` become 1. Otherwise a corrected
    label would be a new class. Merged classes keep their names, because the next training also merges them.
    """
    merged, separator = data.get("merge_labels"), data.get("label_separator") or SEPARATOR.strip()
    merges = merged if isinstance(merged, dict) else {}

    def labels_in(value: Any) -> list[str]:
        if isinstance(value, list | tuple | np.ndarray):
            return sorted({label for element in value for label in labels_in(element)})
        is_whole = isinstance(value, float) and value.is_integer()
        if is_whole or isinstance(value, int | np.integer | np.bool_):
            number = int(value)
            return [names[number] if 0 <= number < len(names) else str(number)]
        return [] if is_missing(value) else [str(value).strip()]

    labels_per_row = [labels_in(value) for value in column]
    has_lists = any(isinstance(value, list | tuple | np.ndarray) for value in column)
    for row in rows:
        written_labels = row.label.split(separator) if has_lists else [row.label]
        row_labels = {plain_name(str(merges.get(label, label))) for label in labels_per_row[index[row.row]]}
        if row_labels - {""} != {plain_name(label) for label in written_labels if label}:
            return
    column[:] = [separator.join(row_labels) for row_labels in labels_per_row]


def separator_for(data: dict[str, Any], classes: Sequence[Any]) -> str:
    """The separator between labels in a cell: the one of the data, or a character that no label contains."""
    unused = (character for character in SEPARATORS if not any(character in str(c) for c in classes))
    return data.get("label_separator") or next(unused, SEPARATORS[0])


def as_text(value: Any) -> str:
    """A value as text for a cell; missing values are empty."""
    return "" if value is None or isinstance(value, bytes) else str(value)


def _read_source(data: dict[str, Any]) -> Table | None:
    """The user's table; None if the examples come from several files or not from a file."""
    path = Path(str(data.get("source", "")))
    with reading(**{key: data.get(key) for key in READ_OPTIONS}):
        try:
            if path.is_dir():
                files = split_files(path).get("train", [])
                path = files[0] if len(files) == 1 else path
            if path.suffix.lower() not in READERS or not path.is_file():
                return None
            return read_table(path, lambda error, row: None)
        except errors.DataError:
            return None


def _has_texts(values: Sequence[Sequence[Any]], index: dict[str, int], rows: Sequence[Prediction]) -> bool:
    """Whether a column of the user's table still has the texts of the predictions."""
    return any(all(column[index[row.row]] == first_text(row.text) for row in rows) for column in values)


# --- the review -----------------------------------------------------------------------------------


MAX_ON_PAGE = 200  # maximum number of suggestions on the page
MAX_TEXT = 1500  # maximum number of characters of a text on the page


@dataclass(frozen=True)
class Suggestion:
    """The review of one label. ``rank`` starts at 1; ``row`` is the row in the user's table, or empty."""

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
        The content of review.json: the number of suspicious labels, the estimated share of wrong labels per
        pair of classes, and the first suggestions.

    Raises:
        ConfigError: the folder is not a finished cross-validation, or ``top`` is below 1.
        DataError: damaged predictions, or only one class.
    """
    folder = Path(folder)
    if top < 1:
        raise errors.BadValueError(f"{top} is not a positive number", where="top", fix="Use 1 or more")
    target = target_in(folder)
    if not (folder / "folds.json").is_file():
        fix = "Run one first: glassformer cross-validate"
        raise errors.NotARunError("no finished cross-validation: no folds.json", where=str(folder), fix=fix)
    if target is None:
        fix = "Run the command of the cross-validation again to continue"
        raise errors.RunInUseError("this cross-validation is not finished", where=str(folder), fix=fix)
    if target.no_review:
        description, fix = target.no_review
        what = f"contains {description}, but only labels can be reviewed"
        raise errors.NotForThisModelError(what, where=str(folder), fix=fix)
    with write_lock(folder):
        return REVIEWS.get(type(target), _review_classes)(folder, top)


def _predictions(folder: Path) -> tuple[list[Prediction], list[str], np.ndarray]:
    """Out-of-fold predictions, classes, and probabilities ``[n, C]``."""
    path = folder / Classes.file
    rows = [row for row in read_predictions(path) if row.split == OUT_OF_FOLD]
    if not rows:
        raise errors.DataError(f"no {OUT_OF_FOLD} predictions", where=str(path))
    return rows, list(rows[0].probabilities), np.array([list(row.probabilities.values()) for row in rows])


def _suggestions(
    review: Any, top: int, describe: Callable[[int], tuple[str, str, str, str]], probability: np.ndarray
) -> list[Suggestion]:
    """Suggestions for the ``top`` most suspicious labels.

    Args:
        describe: index of an example -> its row, text, label and suggested label.
        probability: probabilities ``[n]`` of the suggested labels.
    """
    labeled = [i for i in review.order[:top].tolist() if np.isfinite(review.quality[i])]
    return [
        Suggestion(rank, *describe(i), float(review.quality[i]), float(probability[i]), bool(suspicious))
        for rank, (i, suspicious) in enumerate(zip(labeled, review.suspicious[labeled], strict=True), 1)
    ]


def _example(row: Prediction, suggested: Any) -> tuple[str, str, str, str]:
    return row.row, row.text, row.label, str(suggested)


def _read_config(folder: Path) -> dict[str, Any]:
    """The recipe of a cross-validation; empty if the file does not exist."""
    return read_toml(folder / "config.toml") if (folder / "config.toml").is_file() else {}


def _review_classes(folder: Path, top: int) -> dict[str, Any]:
    rows, classes, p = _predictions(folder)
    review = review_labels(np.array([classes.index(row.label) for row in rows]), p)

    suggested = [classes[k] for k in review.suggested.tolist()]
    probabilities = p[np.arange(len(p)), review.suggested]
    suggestions = _suggestions(review, top, lambda i: _example(rows[i], suggested[i]), probabilities)
    config = _read_config(folder)
    record = _record(config, classes, review, suggestions)
    return _write(folder, config, record, suggestions, rows, review, classes)


def _review_sets(folder: Path, top: int) -> dict[str, Any]:
    """Review multi-label data. Each label of an example is a binary decision: present or absent."""
    rows, classes, p = _predictions(folder)
    config = _read_config(folder)
    labels = [parse_labels(row.label, set(classes)) for row in rows]
    is_present = indicator(labels, classes).astype(bool)
    review = review_label_sets(is_present, p)
    suggested = as_sets(is_present ^ review.flips, classes)
    probabilities = np.where(review.flips.any(1), 1 - review.quality, review.quality)

    suggestions = _suggestions(review, top, lambda i: _example(rows[i], suggested[i]), probabilities)
    separator = separator_for(config.get("data", {}), classes)
    config = config | {"data": config.get("data", {}) | {"label_separator": separator}}
    cells = [separator.join(map(str, label_set)) for label_set in suggested]  # as in the label column
    names = [(f"without {label}", label) for label in classes]  # names of an absent and of a present label
    pairs = [
        _pair(names[k][present], names[k][1 - present], review.joint[k, present, 1 - present], len(rows))
        for k in range(len(classes))
        for present in (1, 0)
    ]
    noise = review.joint[:, [0, 1], [1, 0]].sum(1)
    record = _record(config, classes, review, suggestions, pairs, float(noise.mean())) | {"several": True}
    joined = [replace(row, label=separator.join(names)) for row, names in zip(rows, labels, strict=True)]
    decision = review.quality, np.arange(len(rows)), review.suspicious, review.order
    row_review = LabelReview(*decision, review.joint, probabilities)  # ``suggested`` is an index of ``cells``
    return _write(folder, config, record, suggestions, joined, row_review, cells)


def _write(
    folder: Path,
    config: dict[str, Any],
    record: dict[str, Any],
    suggestions: list[Suggestion],
    rows: list[Prediction],
    review: Any,
    names: Sequence[str],
) -> dict[str, Any]:
    """Write all files of the review; returns the completed record."""
    path, is_new = write_to_correct(folder, config.get("data", {}), rows, review, names)
    record["pictures"] = "broken" in config.get("data", {})  # a key of recipes for images
    record["judge"] = _weak_model_note(folder)
    record["give_back"] = training_command(config.get("data", {}), path) + changed_settings(config)
    return _write_record(folder, record, suggestions, path, is_new)


def _write_record(
    folder: Path, record: dict[str, Any], suggestions: list[Suggestion], to_correct: Path, is_new: bool
) -> dict[str, Any]:
    """Write review.csv, review.json and the page; returns the completed record."""
    _write_csv(folder / "review.csv", suggestions)
    record["to_correct"] = {"file": to_correct.name, "edited": not is_new}
    replace_text(folder / "review.json", json_text(record, indent=1) + "\n")
    write_review_page(folder)
    return record


def _record(
    config: dict[str, Any],
    classes: list[str],
    review: LabelReview | SetReview,
    suggestions: list[Suggestion],
    pairs: list[dict[str, Any]] | None = None,
    noise: float | None = None,
) -> dict[str, Any]:
    """The entries of review.json; ``pairs`` and ``noise`` are only passed for multi-label data."""
    n = int(np.isfinite(review.quality).sum())
    pairs = pairs or [
        _pair(classes[i], classes[j], review.joint[i, j], n)
        for i in range(len(classes))
        for j in range(len(classes))
        if i != j
    ]
    return {
        "kind": "review",
        "name": config.get("name", ""),
        "source": config.get("data", {}).get("source", ""),
        "n": n,
        "suspicious": int(review.suspicious.sum()),
        "noise": float(review.joint.sum() - review.joint.trace()) if noise is None else noise,
        "classes": classes,
        "pairs": sorted(pairs, key=lambda pair: -pair["count"]),
        "listed": len(suggestions),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "suggestions": [vars(s) | {"text": s.text[:MAX_TEXT]} for s in suggestions[:MAX_ON_PAGE]],
    }


def _pair(label: str, suggested: str, share: float, n: int) -> dict[str, Any]:
    """An entry of ``pairs``: how many of ``n`` examples of ``label`` probably belong to ``suggested``."""
    share = float(share)
    return {"label": label, "suggested": suggested, "share": share, "count": round(share * n)}


def _weak_model_note(folder: Path) -> str:
    """A warning if the model is not accurate enough to find label errors; otherwise empty."""
    path = folder / "metrics.json"
    message = no_better_than_majority(read_json(path)["test"]) if path.is_file() else ""
    return message and f"the predictions of the review are {message}: train a better model first"


def _write_csv(path: Path, suggestions: list[Suggestion]) -> None:
    with table_file(path) as writer:
        writer.writerow(field.name for field in fields(Suggestion))
        for s in suggestions:
            probabilities = f"{s.label_probability:.6g}", f"{s.suggested_probability:.6g}"
            texts = csv_safe(s.text), csv_safe(s.label), csv_safe(s.suggested)
            writer.writerow([s.rank, s.row, *texts, *probabilities, "yes" if s.suspicious else "no"])


# --- tags of words --------------------------------------------------------------------------------


TAGS_TO_CORRECT = "to_correct.conll"
CONTEXT = 12  # number of words shown before and after a suspicious word
NO_SUGGESTION = "_"  # cell of a word whose tag is not suspicious


def _review_words(folder: Path, top: int) -> dict[str, Any]:
    train, classes, labels, review = review_tags(folder)
    starts = np.cumsum([0, *map(len, train.words)])

    def describe(word: int) -> tuple[str, str, str, str]:
        """See ``_suggestions``; the text is the sentence, with the word in angle quotes."""
        i = int(np.searchsorted(starts, word, side="right")) - 1
        position, words = word - int(starts[i]), train.words[i]
        before, after = words[max(position - CONTEXT, 0) : position], words[position + 1 :][:CONTEXT]
        text = " ".join([*before, f"\u00ab{words[position]}\u00bb", *after])
        row = "" if train.rows is None else str(train.rows[i])
        return row, text, classes[labels[word]], classes[review.suggested[word]]

    suggestions = _suggestions(review, top, describe, review.max_probability)
    config = _read_config(folder)
    record = _record(config, classes, review, suggestions) | {"pictures": False, "judge": ""}
    path, is_new = write_tags_to_correct(folder, train, classes, review)
    record["give_back"] = ["glassformer", "train", str(folder / "config.toml"), "--set", f"source={path}"]
    for key in ("words_column", "tags_column"):
        record["give_back"] += ["--set", f"{key}=none"] if config.get("data", {}).get(key) else []
    return _write_record(folder, record, suggestions, path, is_new)


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
    fold_numbers = read_plan(folder, len(train))
    if fold_numbers is None:
        what = f"the number of sentences has changed to {len(train)} since the folds were made"
        raise errors.DataChangedError(what, where=str(folder), fix="Choose another --out")
    probabilities: list[Any] = [None] * len(train)
    for k in range(fold_numbers.max() + 1):
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
    is_tagged = np.array([tag != IGNORED_TAG for tag in tags])
    labels = np.array([classes.index(tag) if tag != IGNORED_TAG else -1 for tag in tags])
    return train, classes, labels, _for_all_words(review_labels(labels[is_tagged], p[is_tagged]), is_tagged)


def _for_all_words(review: LabelReview, is_tagged: np.ndarray) -> LabelReview:
    """The review of the tagged words, extended to all words ``[W]``; words without a tag come last."""
    if is_tagged.all():
        return review
    tagged = np.flatnonzero(is_tagged)

    def extend(values: np.ndarray, fill: Any) -> np.ndarray:
        out = np.full(len(is_tagged), fill, np.result_type(values, type(fill)))
        out[tagged] = values
        return out

    decision = extend(review.quality, np.nan), extend(review.suggested, 0), extend(review.suspicious, False)
    order = np.concatenate([tagged[review.order], np.flatnonzero(~is_tagged)])
    return LabelReview(*decision, order, review.joint, extend(review.max_probability, np.nan))


def write_tags_to_correct(
    folder: Path, train: TaggedSplit, classes: list[str], review: LabelReview
) -> tuple[Path, bool]:
    """Write ``to_correct.conll``, unless the user has edited an earlier one.

    Returns:
        The file, and whether it was written.
    """
    spans = [slice(*ends) for ends in pairwise([0, *np.cumsum([*map(len, train.words)]).tolist()])]
    ranks = np.argsort(review.order)
    order = sorted(range(len(train)), key=lambda i: ranks[spans[i]].min())
    pairs = zip(review.suspicious, review.suggested, strict=True)
    suggestions = [classes[k] if is_suspicious else NO_SUGGESTION for is_suspicious, k in pairs]
    probabilities = [NO_SUGGESTION if np.isnan(p) else f"{p:.4f}" for p in review.quality]
    words, tags = train.words, train.tags or []
    rows = [(words[i], suggestions[spans[i]], probabilities[spans[i]], tags[i]) for i in order]
    return _write_unless_edited(folder / TAGS_TO_CORRECT, format_conll(*zip(*rows, strict=True)))


# The review of each kind of target; ``_review_classes`` is the default.
REVIEWS: dict[type[Target], Callable[[Path, int], dict[str, Any]]] = {
    LabelSets: _review_sets,
    TokenTags: _review_words,
}
