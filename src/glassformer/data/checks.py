"""Checks of texts and labels, for files and for the arguments of estimators.

Every error names the invalid value: ``reviews.csv, row 17`` in a file, ``texts[16]`` in a list.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from glassformer.data.in_memory import one_column, read_rows
from glassformer.data.label_kinds import MAX_DISTINCT_NUMBERS, explain_label_error, find_label_problem
from glassformer.errors import (
    CheckpointError,
    DataError,
    MissingValueError,
    OneClassError,
    UnclearColumnError,
    UnequalLengthsError,
    WrongInputError,
    counted,
)

MAX_LABEL = 1_000  # characters
MAX_EXACT = 2**53  # floats above it cannot represent every integer
FIT_LABELS = "labels"  # origin of labels that were passed to ``fit``
ONE_CLASS_FIX = "A classifier needs examples of at least two classes: check label_column"
NO_TEXT = "the text is not a string"
CONLL_EXTENSIONS = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes")  # CoNLL files: one word per line


def location(origin: str, index: int, rows: Sequence[int] | None) -> str:
    """The location of example ``index`` for messages: a row of a file (from 1) or a list index (from 0)."""
    return f"{origin}[{index}]" if rows is None else row_location(origin, rows[index])


def row_location(file: str, row: int) -> str:
    """The location of a row of a file for messages; in CoNLL files, ``row`` is the number of a line."""
    return f"{file}, {'line' if file.lower().endswith(CONLL_EXTENSIONS) else 'row'} {row}"


def check_texts(texts: Iterable[Any], origin: str = "texts", rows: Sequence[int] | None = None) -> list[str]:
    """The texts as a list of ``str``.

    Args:
        rows: row number of each text in its file; None: the texts are not from a file.

    Raises:
        DataError: there are no texts; a text is missing, empty, not a string, or has a NUL character or a
            lone surrogate; or ``texts`` is a set, a dict, or a table of several columns.
    """
    if rows is None:
        check_not_numbers(texts, origin)
    checked = list(read_rows(texts, origin, "texts") if rows is None else texts)
    if not checked:
        raise MissingValueError("there are no texts", where=origin, fix="Give at least one text")
    for index, text in enumerate(checked):
        if not isinstance(text, str) or not text or text.isspace() or "\0" in text:
            raise _text_error(text, location(origin, index, rows))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise _text_error(text, location(origin, index, rows)) from None
    return checked


def check_not_numbers(
    X: Any, origin: str, fix: str = "Give a list of texts, or one column of a table"
) -> None:
    """Raise WrongInputError for an array of numbers, such as features or images, where texts belong.

    Args:
        fix: what to give instead.
    """
    if getattr(getattr(X, "dtype", None), "kind", "") not in tuple("biufc") or not getattr(X, "ndim", 0):
        return
    what = f"an array {list(X.shape)} of numbers where texts are expected"
    fix = "For images use ImageClassifier" if X.ndim > 2 else f"{fix}; for numeric features use scikit-learn"
    raise WrongInputError(what, where=origin, fix=fix)


def check_cells(values: Sequence[Any]) -> list[str]:
    """``check_texts`` for the cells of a table; the caller adds the row to the message."""
    return check_texts(values, rows=range(len(values)))


def _text_error(text: Any, where: str) -> DataError:
    if not isinstance(text, str) and is_missing(text):
        return MissingValueError("the text is missing", where=where, fix="Fill it in or remove the row")
    if not isinstance(text, str):
        kind, fix = type(text).__name__, "Name the column of texts"
        if isinstance(text, dict | list):
            keys = ", ".join(repr(str(key)[:20]) for key in [*text][:3]) if isinstance(text, dict) else ""
            kind = f"an object ({keys})" if isinstance(text, dict) else "a list"
            fix = "Write the text instead, or name another column of texts"
        if isinstance(text, bytes | bytearray):
            fix = "Decode it: text.decode()"
        elif len(shape := getattr(text, "shape", ())) > 1:
            kind, fix = f"an array of shape {tuple(shape)}", "For images use ImageClassifier"
        elif type(text).__module__.startswith("PIL."):
            kind, fix = "an image", "For images use ImageClassifier"
        return MissingValueError(f"{NO_TEXT} but {kind}", where=where, fix=fix)
    if not text.strip():
        return MissingValueError("the text is empty", where=where, fix="Fill it in or remove the row")
    if "\0" in text:
        return MissingValueError("the text contains a NUL character", where=where, fix="Remove the character")
    return DataError("the text contains a lone surrogate", where=where, fix="Save it as valid Unicode")


def check_labels(
    labels: Iterable[Any], origin: str = "labels", rows: Sequence[int] | None = None
) -> list[str] | list[int]:
    """The labels as a list of ``str`` or a list of ``int``; integral floats and booleans become ``int``.

    Raises:
        DataError: an unusable label (see ``check_label``); labels of different types (text, numbers,
            booleans); or ``labels`` is a set, a dict, or a table of several columns.
    """
    labels = list(one_column(labels, origin))
    checked: list[Any] = []
    first_type = ""
    for index, label in enumerate(labels):
        try:
            value = check_label(label, "")
        except DataError as error:
            what, fix = explain_label_error(labels, error.what, error.fix or "")
            raise error.replace(what=what, where=location(origin, index, rows), fix=fix) from None
        label_type = _type_name(label)
        first_type = first_type or label_type
        if label_type != first_type:
            shown = label if BOOLEAN in (first_type, label_type) else value
            what = f"label {shown!r} is {label_type} where the first is {first_type}"
            fix = "Write all labels as text, or all labels as whole numbers"
            raise DataError(what, where=location(origin, index, rows), fix=fix)
        checked.append(value)
    return checked


def check_label(label: Any, where: str = "label") -> str | int:
    """One label as ``str`` or ``int``; an integral float or a boolean becomes ``int``.

    A valid label can be written to any file with labels and read back unchanged.

    Raises:
        DataError: the label is missing (None, NaN, empty); a text with a control character (other than tab
            and line break), with a lone surrogate, or of more than 1,000 characters; a number with a
            fraction, an integer beyond 64 bits, a float beyond 2**53; or of another type.
    """
    if isinstance(label, str):
        text = str(label)  # converts numpy's strings
        if is_missing(text):
            raise MissingValueError("the label is missing", where=where, fix="Fill it in or remove the row")
        if (what := _text_problem(text)) is not None:
            raise MissingValueError(what, where=where, fix="Write it as plain text")
        return text
    if isinstance(label, bool | np.bool_ | int | np.integer):
        if not -(2**63) <= int(label) < 2**63:
            raise DataError("the label is a number beyond 64 bits", where=where, fix="Write it as text")
        return int(label)
    if is_missing(label):
        raise MissingValueError("the label is missing", where=where, fix="Fill it in or remove the row")
    if isinstance(label, Decimal) and label.is_finite() and label == int(label):  # from a database
        return check_label(int(label), where)
    if isinstance(label, float | np.floating | Decimal):
        if not math.isfinite(label) or label != int(label):
            raise DataError(f"label {label} is a fraction", where=where, fix="Use names or whole numbers")
        if abs(label) > MAX_EXACT:
            what = f"label {label} is a float too large to be exact"
            raise DataError(what, where=where, fix="Write it as a whole number or as text")
        return int(label)
    what = f"the label is neither text nor a whole number but {type(label).__name__}"
    raise MissingValueError(what, where=where, fix="Name the column of labels")


def check_class_names(names: Sequence[Any], where: str) -> list[str]:
    """Check the class names of a file or folder, and return them as a list.

    Raises:
        DataError: a name is not a text, not a valid label (see ``check_label``), or occurs twice.
    """
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"the name of a class is not a text but {type(name).__name__}", where=where)
        if check_label(name, where) in seen:
            raise DataError(f"two classes are called {name!r}", where=where, fix="Rename one")
        seen.add(name)
    return list(names)


def _text_problem(text: str) -> str | None:
    """The reason why a text cannot be a label; otherwise None."""
    if len(text) > MAX_LABEL:
        return f"the label has {len(text):,} characters, but at most {MAX_LABEL:,} can be read"
    if "\0" in text:
        return "the label contains a NUL character"
    if not text.isprintable():
        if any("\ud800" <= c <= "\udfff" for c in text):
            return "the label contains a lone surrogate"
        if control := next((c for c in text if unicodedata.category(c) == "Cc" and c not in "\t\n\r"), None):
            return f"the label contains the control character U+{ord(control):04X}"
    return None


BOOLEAN = "a truth value"


def _type_name(label: Any) -> str:
    if isinstance(label, str):
        return "text"
    return BOOLEAN if isinstance(label, bool | np.bool_) else "a number"


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, pandas' NA, or a text without content (empty, blank, ``nan``)."""
    if isinstance(value, str):
        return not value.strip() or value.strip().lower() == "nan"
    if isinstance(value, float | np.floating | Decimal):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def check_classes(labels: Sequence[Any], origin: str = "labels") -> list[Any]:
    """The sorted classes.

    Raises:
        DataError: fewer than two classes, or so many different numbers that they are not classes.
    """
    classes = sorted(set(labels))
    if MAX_DISTINCT_NUMBERS < len(classes) > len(labels) / 2 and (problem := find_label_problem(labels)):
        what = f"{len(classes):,} different labels in {len(labels):,} examples; {problem[0]}"
        raise UnclearColumnError(what, where=origin, fix=problem[1])
    if len(classes) < 2:
        what = f"one class only ({classes[0]!r})" if classes else "there are no labels"
        fix = ONE_CLASS_FIX
        if origin == FIT_LABELS:  # there is no column to check
            fix = "A classifier needs examples of at least two classes: check the second argument of fit"
        raise OneClassError(what, where=origin, fix=fix)
    return classes


def check_pairs(
    X: Any,
    y: Any,
    where: str,
    texts: str,
    labels: str,
    check: Callable[..., list[Any]] = check_texts,
    read: Callable[..., Sequence[Any]] = check_labels,
) -> tuple[list[Any], list[Any]]:
    """The checked examples and targets of ``fit``.

    Args:
        texts, labels: names of ``X`` and ``y`` in messages.
        check, read: functions that check ``X`` and ``y``.

    Raises:
        DataError: see ``check_texts`` and ``check_labels``; also if ``X`` and ``y`` differ in length.
    """
    if y is None:
        fix = "Give one label or number for each example"
        what = "requires y to be passed, but the target y is None"  # scikit-learn's words
        raise DataError(what, where=where, fix=fix)
    checked, targets = check(X, texts), read(y, labels)
    if len(checked) != len(targets):
        noun = texts.split()[-1].removesuffix("s")
        what = f"{counted(len(checked), noun)} but {counted(len(targets), 'label')}"
        fix = "Give lists of equal length: one label for each example"
        raise UnequalLengthsError(what, where=where, fix=fix)
    return checked, list(targets)


def check_validation(validation: Any, expected: str) -> tuple[Any, Any]:
    """The two elements of ``validation``, a tuple such as (texts, labels).

    Raises:
        DataError: ``validation`` is something else, such as a list of pairs.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise DataError(f"expected ({expected})", where="validation", fix="Give two lists in a tuple")
    return validation[0], validation[1]


def check_weights(weights: Sequence[float], n: int) -> np.ndarray:
    """Sample weights as fp32 with mean 1.

    Raises:
        DataError: ``weights`` are not ``n`` non-negative finite numbers, or all are 0.
    """
    array = np.asarray(one_column(weights, "sample_weight", "numbers"), dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise DataError(f"sample_weight must be {n} non-negative finite numbers, not all 0", where="fit")
    if not 1e-100 < array.max() < 1e100:  # the sum could overflow, or the mean could become 0
        array = array / array.max()
    return (array / array.mean()).astype(np.float32)


def check_saved_labels(labels: list[Any], key: str, where: str) -> list[Any]:
    """The labels of a saved model, checked like those of a table.

    Raises:
        CheckpointError: a label is invalid or occurs twice.
    """
    try:
        checked = check_labels(labels, key)
    except DataError as error:
        raise CheckpointError(f"{error.where}: {error.what}", where=where) from None
    if len(set(checked)) < len(checked):
        raise CheckpointError(f"{key!r} has a label twice", where=where)
    return list(checked)
