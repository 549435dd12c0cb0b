"""Checks on texts and labels, shared by the file readers and by the estimator.

Every error names the place: ``reviews.csv, row 17`` for a file, ``texts[16]`` for a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from glassformer.errors import DataError


def place(origin: str, index: int, rows: Sequence[int] | None) -> str:
    """Where example ``index`` stands: a row of a file (from 1) or a position in a list (from 0)."""
    return f"{origin}[{index}]" if rows is None else f"{origin}, row {rows[index]}"


def check_texts(texts: Iterable[Any], origin: str = "texts", rows: Sequence[int] | None = None) -> list[str]:
    """The texts as a list of ``str``.

    Raises:
        DataError: no texts at all, or one that is missing, not a string, empty, or holds a NUL
            character or half of a surrogate pair.
    """
    if isinstance(texts, str | bytes):
        raise DataError("one string where a list of texts is wanted", where=origin, fix="Put it into a list")
    if hasattr(texts, "columns"):  # a data frame would give the names of its columns
        raise DataError("a table where a list of texts is wanted", where=origin, fix="Give one column of it")
    checked = list(texts)
    if not checked:
        raise DataError("no texts", where=origin, fix="Give at least one")
    for index, text in enumerate(checked):
        if not isinstance(text, str) or not text or text.isspace() or "\0" in text:
            raise _text_error(text, place(origin, index, rows))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise _text_error(text, place(origin, index, rows)) from None
    return checked


def _text_error(text: Any, where: str) -> DataError:
    if not isinstance(text, str) and is_missing(text):
        return DataError("the text is missing", where=where, fix="Fill it in or remove the row")
    if not isinstance(text, str):
        kind = type(text).__name__
        return DataError(f"the text is not a string but {kind}", where=where, fix="Name the column of texts")
    if not text.strip():
        return DataError("the text is empty", where=where, fix="Fill it in or remove the row")
    if "\0" in text:
        return DataError("the text holds a NUL character", where=where, fix="Remove it")
    return DataError("the text holds half of a surrogate pair", where=where, fix="Save it as valid Unicode")


def check_labels(
    labels: Iterable[Any], origin: str = "labels", rows: Sequence[int] | None = None
) -> list[str] | list[int]:
    """The labels as a list of ``str`` or a list of ``int``; whole floats and booleans become ``int``.

    Raises:
        DataError: a label that is missing (None, NaN, empty), a fraction or of another type, or
            text and numbers side by side.
    """
    checked = []
    for index, label in enumerate(labels):
        value: Any = None
        if isinstance(label, str):
            value = str(label)  # numpy's strings too
        elif isinstance(label, int | np.integer | np.bool_) or _is_whole(label):
            value = int(label)
        if value is None or is_missing(value):
            raise _label_error(label, place(origin, index, rows))
        if checked and type(value) is not type(checked[0]):
            raise DataError(
                f"label {value!r} is {_kind(value)} where the first is {_kind(checked[0])}",
                where=place(origin, index, rows),
                fix="Write all labels as text or all as whole numbers",
            )
        checked.append(value)
    return checked


def _is_whole(label: Any) -> bool:
    return isinstance(label, float | np.floating) and bool(np.isfinite(label)) and label == int(label)


def _label_error(label: Any, where: str) -> DataError:
    if is_missing(label):
        return DataError("the label is missing", where=where, fix="Fill it in or remove the row")
    if isinstance(label, float | np.floating):
        return DataError(f"label {label} is a fraction", where=where, fix="Use names or whole numbers")
    kind = type(label).__name__
    return DataError(
        f"the label is neither text nor a whole number but {kind}",
        where=where,
        fix="Name the column of labels",
    )


def _kind(label: str | int) -> str:
    return "text" if isinstance(label, str) else "a number"


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA, or text that stands for nothing (empty, blank, ``nan``)."""
    if isinstance(value, str):
        return not value.strip() or value.strip().lower() == "nan"
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def check_classes(labels: Sequence[Any], origin: str = "labels") -> list[Any]:
    """The sorted classes.

    Raises:
        DataError: fewer than two.
    """
    classes = sorted(Counter(labels))
    if len(classes) < 2:
        what = f"one class only ({classes[0]!r})" if classes else "no labels"
        raise DataError(what, where=origin, fix="A classifier needs examples of at least two classes")
    return classes


def check_pairs(
    X: Any, y: Any, where: str, texts: str, labels: str, check: Callable[..., list[Any]] = check_texts
) -> tuple[list[Any], list[Any]]:
    """Texts (or whatever ``check`` checks) and their labels; ``texts`` and ``labels`` name them in messages.

    Raises:
        DataError: see ``check_texts`` and ``check_labels``; also different numbers of them.
    """
    if y is None:
        raise DataError("requires y to be passed, but the target y is None", where=where)
    checked, targets = check(X, texts), check_labels(y, labels)
    if len(checked) != len(targets):
        raise DataError(f"{len(checked)} {texts.split()[-1]} but {len(targets)} labels", where=where)
    return checked, list(targets)


def check_two(validation: Any, wanted: str) -> tuple[Any, Any]:
    """The two parts of what is held out.

    Raises:
        DataError: something else, such as a list of pairs.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise DataError(f"wanted ({wanted})", where="validation", fix="Give two lists in a tuple")
    return validation[0], validation[1]


def check_weights(weights: Sequence[float], n: int) -> np.ndarray:
    """Sample weights as fp32 with mean 1.

    Raises:
        DataError: not ``n`` non-negative finite numbers, or all of them 0.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise DataError(f"sample_weight must be {n} non-negative finite numbers, not all 0", where="fit")
    if not 1e-100 < array.max() < 1e100:  # so that no sum overflows, and no mean becomes 0
        array = array / array.max()
    return (array / array.mean()).astype(np.float32)
