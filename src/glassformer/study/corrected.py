"""The table that a label review gives to be corrected: the user's own columns, the most doubtful first.

Correct the column of labels and give the file back to ``train``: columns whose names begin with ``review:``
are passed over, and the guards against formulas are taken off as the file is read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text
from glassformer.data.checks import is_missing
from glassformer.data.files import reading
from glassformer.data.label_kinds import plain_name
from glassformer.data.label_sets import JOIN
from glassformer.data.sources import split_files
from glassformer.data.spreadsheet import REVIEWED, csv_safe
from glassformer.data.tables import READERS, Table, read_table
from glassformer.data.text_pairs import SECOND_CELL, are_pairs, first_of, second_of
from glassformer.errors import DataError
from glassformer.evaluate.predictions import Prediction
from glassformer.finite import json_text
from glassformer.process import READING
from glassformer.tasks.catalog import known_recipe_of

NAME = "to_correct.csv"
SEPARATORS = ("|", ";", "/", "¦", "‖")
SECTIONS = ("text", "image", "model", "train")  # of a recipe: what a training does, beside its data
ADDED = tuple(f"{REVIEWED}{name}" for name in ("rank", "suggested", "suspicious", "label_probability"))


def write_corrected(
    folder: Path, data: dict[str, Any], rows: Sequence[Prediction], judged: Any, classes: Sequence[str]
) -> tuple[Path, bool]:
    """Write the table; one that has been edited since stays as it is.

    Args:
        data: the section ``data`` of the recipe.
        rows: the out-of-fold predictions, in the order that ``judged`` numbers them.

    Returns:
        The file, and whether it is the one that was written now.
    """
    columns, cells, places = _own(data, rows)
    order = [places[i] for i in judged.order.tolist()]
    seen = set(order)
    marks = {places[i]: _mark(rank, i, judged, classes) for rank, i in enumerate(judged.order.tolist(), 1)}
    order += [i for i in range(len(cells)) if i not in seen]  # rows that no fold has judged
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*ADDED, *map(csv_safe, columns)])
    writer.writerows([*marks.get(i, [""] * len(ADDED)), *map(csv_safe, cells[i])] for i in order)
    path, content = folder / NAME, text.getvalue()
    if path.is_file() and path.read_bytes() != content.encode():
        return path, False
    replace_text(path, content)
    return path, True


def give_back(data: dict[str, Any], path: Path) -> list[str]:
    """The command that trains on a corrected table, with the settings of the data that it was made with.

    Args:
        data: the section ``data`` of the recipe; of lists of labels with what joins them in the table.
    """
    pictures = "broken" in data  # a key of pictures
    words = ["glassformer", "train", "--images" if pictures else "--text", str(path)]
    keys = ["label_separator"]
    if _source(data) is not None:  # else the columns have names of ours
        keys = ["text_column", "pair_column", "image_column", "label_column", *keys]
    for key in keys:
        named = data.get(key) not in (None, "", "none")
        words += ["--" + key.replace("_", "-"), data[key]] if named else []
    skip = data.get("on_bad_row") == "skip"
    words += ["--on-bad-row", "skip"] if skip and not pictures else []
    if data.get("drop_duplicates"):
        words += ["--set", "drop_duplicates=true"]
    merged = data.get("merge_labels", "none")
    if isinstance(merged, dict):
        pairs = (f"{json_text(a)} = {json_text(b)}" for a, b in merged.items())
        merged = "{" + ", ".join(pairs) + "}"
    return words + (["--set", f"merge_labels={merged}"] if merged != "none" else [])


def given_settings(config: dict[str, Any]) -> list[str]:
    """The options that give another run a recipe's model and all settings beside its data's that differ from
    the defaults.

    Args:
        config: the recipe as TOML holds it.
    """
    defaults = known_recipe_of(config).defaults
    model = config.get("model", {}).get("model")
    words = ["--model", str(model)] if model else []
    for name in SECTIONS:
        before = defaults.get(name, {})
        for key, value in config.get(name, {}).items():
            if key not in before or before[key] == value or (name, key) == ("model", "model"):
                continue
            words += [
                "--set",
                f"{name}.{key}={value if isinstance(value, str) else json_text(value, ascii=True)}",
            ]
    return words


def _mark(rank: int, i: int, judged: Any, classes: Sequence[str]) -> list[Any]:
    share, suggested = f"{float(judged.quality[i]):.6g}", classes[judged.suggested[i]]
    return [rank, csv_safe(suggested), "yes" if judged.suspicious[i] else "no", share]


def _own(
    data: dict[str, Any], rows: Sequence[Prediction]
) -> tuple[list[str], list[list[str]], dict[int, int] | np.ndarray]:
    """The columns and rows of the user's table, and where in it each prediction stands."""
    table = _source(data)
    if table is not None:
        place = {str(row): i for i, row in enumerate(table.rows)}
        columns = [name for name in table.names if not name.startswith(REVIEWED)]
        values = [table.read(name) for name in columns]
        if all(row.row in place for row in rows) and _same(values, place, rows):
            for name, column in zip(columns, values, strict=True):
                if data.get("label_column") in (None, "", "none", name):
                    _spell(column, table.class_names.get(name, ()), data, place, rows)
            cells = [[as_text(column[i]) for column in values] for i in range(len(table.rows))]
            return columns, cells, {i: place[row.row] for i, row in enumerate(rows)}
    if are_pairs([row.text for row in rows]):
        cells = [[first_of(row.text), second_of(row.text), row.label] for row in rows]
        return ["text", SECOND_CELL, "label"], cells, np.arange(len(rows))
    name = "file" if "broken" in data else "text"  # a key of pictures
    return [name, "label"], [[row.text, row.label] for row in rows], np.arange(len(rows))


def _spell(
    column: list[Any],
    names: Sequence[str],
    data: dict[str, Any],
    place: dict[str, int],
    rows: Sequence[Prediction],
) -> None:
    """Where a column holds the labels that were judged, write each in place as suggestions are written.

    Numbers of classes become their names, lists are joined, ``True`` and ``1.0`` become 1: what is corrected
    by a suggestion is then no further class beside them. Classes that were merged keep their own names, for
    the next training merges them again.
    """
    merged, separator = data.get("merge_labels"), data.get("label_separator") or JOIN.strip()
    into = merged if isinstance(merged, dict) else {}

    def parts(value: Any) -> list[str]:
        if isinstance(value, list | tuple | np.ndarray):
            return sorted({part for one in value for part in parts(one)})
        whole = isinstance(value, float) and value.is_integer()
        if whole or isinstance(value, int | np.integer | np.bool_):
            number = int(value)
            return [names[number] if 0 <= number < len(names) else str(number)]
        return [] if is_missing(value) else [str(value).strip()]

    known = [parts(value) for value in column]
    several = any(isinstance(value, list | tuple | np.ndarray) for value in column)
    for row in rows:
        judged = row.label.split(separator) if several else [row.label]
        own = {plain_name(str(into.get(part, part))) for part in known[place[row.row]]}
        if own - {""} != {plain_name(label) for label in judged if label}:
            return
    column[:] = [separator.join(own) for own in known]


def separator_for(data: dict[str, Any], classes: Sequence[Any]) -> str:
    """What stands between the labels of a cell: what the data have, else a sign that no label holds."""
    free = (sign for sign in SEPARATORS if not any(sign in str(label) for label in classes))
    return data.get("label_separator") or next(free, SEPARATORS[0])


def as_text(value: Any) -> str:
    """A value as a cell; what is missing is empty."""
    return "" if value is None or isinstance(value, bytes) else str(value)


def _source(data: dict[str, Any]) -> Table | None:
    """The table that the folds were made of; None where they come from several files, or from none."""
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


def _same(values: Sequence[Sequence[Any]], place: dict[str, int], rows: Sequence[Prediction]) -> bool:
    """Whether the file still holds the texts that were judged, in whichever column."""
    return any(all(column[place[row.row]] == first_of(row.text) for row in rows) for column in values)
