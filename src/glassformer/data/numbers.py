"""Regression targets: checks, scales, outliers, strata, and finding their column in a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from glassformer.config import listed
from glassformer.data.checks import is_missing, place
from glassformer.data.columns import find_column
from glassformer.data.findings import Finding, excerpt
from glassformer.data.in_memory import one_column
from glassformer.data.label_kinds import (
    LIKE_AMOUNT,
    Format,
    ambiguous_values,
    amount,
    amount_setting,
    is_number,
    parse_amount,
)
from glassformer.data.rejected import SKIP, RejectedRow
from glassformer.data.tables import Table
from glassformer.errors import DataError, MissingValueError, NotANumberError, UnclearColumnError

# Usual names of a column of numbers, by precedence.
NUMBER_COLUMNS = "score label target rating value number labels similarity relatedness stars price y".split()
LARGEST = 1e100  # maximum absolute target, so that squares do not overflow
STRATA = 10  # quantile bins that a random split is stratified by
MOST = 0.5  # a column of numbers has more than this share of them
FAR = 6.0  # a number this many interquartile ranges away from the quartiles is an outlier
Scale = Literal["linear", "log"]  # on which numbers are learned and their errors are measured
NO_LOGARITHM = "a number that is not above 0 has no logarithm"
THIS_HAS_NO_LOGARITHM = "{:g} is not above 0 and has no logarithm"
HIGHEST = math.log(LARGEST)
WIDE = 100.0  # minimum ratio of the 95 % and 5 % quantiles to propose logarithms


def check_numbers(
    values: Any, origin: str = "targets", rows: Sequence[int] | None = None, form: Format = "plain"
) -> list[float]:
    """Regression targets as a list of ``float``; text is parsed.

    Args:
        form: format of text. ``plain``: as ``float`` accepts it; ``amount``: also prices with a currency and
            thousands separators, unless they are ambiguous; ``point`` or ``comma``: the decimal mark.

    Raises:
        DataError: a value is missing, not a number, not finite or beyond 1e100; or ``values`` is a table or
            a single text.
    """
    out = []
    for index, value in enumerate(one_column(values, origin, "numbers")):
        if is_missing(value):
            where = place(origin, index, rows)
            raise MissingValueError("the number is missing", where=where, fix="Fill it in or remove the row")
        number = _number(value, form)
        if not abs(number) <= LARGEST:
            raise _not_a_number(value, form, place(origin, index, rows))
        out.append(number)
    return out


def _number(value: Any, form: Format) -> float:
    """The value as a float; NaN if it is not a number."""
    if isinstance(value, str) and form != "plain" and parse_amount(value):
        found = amount(value, form)
        return math.nan if found is None else found
    try:
        return float(value) if is_number(value) and not isinstance(value, bool | np.bool_) else math.nan
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def _not_a_number(value: Any, form: Format, where: str) -> DataError:
    what = f"{str(value)[:40]!r} is not a number that can be learned"
    fix = "Write it as 3.5, without unit and with a point; classes are learned by a classifier"
    if isinstance(value, str) and form == "amount" and (both := ambiguous_values(value)):
        what = f"{value[:40]!r} is not a number that can be learned: it could be {both}"
        fix = "Name the decimal mark: number_format=point or number_format=comma"
    elif isinstance(value, str) and form == "plain" and not is_number(value) and parse_amount(value):
        what = f"{what}; {LIKE_AMOUNT}"
        fix = f"Write it as 3.5, without unit and with a point, or {amount_setting([value])}"
    return NotANumberError(what, where=where, fix=fix)


def on_scale(numbers: Any, scale: Scale) -> np.ndarray:
    """Numbers ``[n]`` on the scale of the model, fp64: unchanged, or their natural logarithms."""
    numbers = np.asarray(numbers, np.float64)
    return np.log(numbers) if scale == "log" else numbers


def off_scale(values: Any, scale: Scale) -> np.ndarray:
    """The inverse of ``on_scale``; results of ``log`` are clipped to 1e-100 ... 1e100."""
    values = np.asarray(values, np.float64)
    return np.exp(np.clip(values, -HIGHEST, HIGHEST)) if scale == "log" else values


def check_positive(numbers: Sequence[float], origin: str, rows: Sequence[int] | None = None) -> None:
    """Raise DataError for the first number that has no logarithm, or is below the range of predictions."""
    for index, number in enumerate(numbers):
        if number >= 1 / LARGEST:
            continue
        what, fix = (
            THIS_HAS_NO_LOGARITHM.format(number),
            "Correct it, or learn the numbers as they are, with number_scale=linear",
        )
        if number > 0:
            what = f"{number:g} is below {1 / LARGEST:g}, the lowest prediction of number_scale=log"
            fix = "Multiply all numbers, or learn their logarithms with number_scale=linear"
        raise NotANumberError(what, where=place(origin, index, rows), fix=fix)


def with_logarithms(dataset: Any, skip: bool) -> Any:
    """The data set without rows whose number has no logarithm.

    Args:
        skip: leave such rows out and list them in ``rejected``; False: raise an error.

    Raises:
        DataError: there is such a row and ``skip`` is False, or there are only such rows.
    """
    splits, rejected = {}, []
    for name, split in dataset.splits.items():
        bad = [i for i, number in enumerate(split.labels or ()) if not number > 0]
        splits[name] = split
        if not bad:
            continue
        if not skip or len(bad) == len(split):
            what = THIS_HAS_NO_LOGARITHM.format(split.labels[bad[0]])
            what += f" ({len(bad) - 1:,} more such row{'s' * (len(bad) > 2)})" if len(bad) > 1 else ""
            fix = f"Correct it, leave such rows out with {SKIP}, or train without number_scale=log"
            raise NotANumberError(what, where=place(split.origin, bad[0], split.rows), fix=fix)
        rows = split.rows or range(1, len(split) + 1)
        rejected += [RejectedRow(split.origin, rows[i], NO_LOGARITHM) for i in bad]
        splits[name] = split.select(sorted({*range(len(split))} - {*bad}))
    return replace(dataset, splits=splits, rejected=(*dataset.rejected, *rejected))


def far_from(values: np.ndarray, numbers: np.ndarray, scale: Scale = "linear") -> np.ndarray:
    """Which of ``values`` are outliers of ``numbers``, bool; none if the quartiles are equal."""
    values, numbers = on_scale(values, scale), on_scale(numbers, scale)
    low, high = np.quantile(numbers, (0.25, 0.75))
    reach = FAR * (high - low)
    return ((values < low - reach) | (values > high + reach)) & (high > low)


def without_far(splits: Any, scale: Scale = "linear") -> Any:
    """Drop training and validation examples whose numbers are outliers of the training numbers, and add a
    message about it; the evaluated split is not changed."""
    numbers, parts, said = np.asarray(splits.train.labels, np.float64), {}, []
    for name, split in (("train", splits.train), ("validation", splits.validation)):
        if split is None or not split.labels or (name == "validation" and split is splits.judged):
            continue
        values = np.asarray(split.labels, np.float64)
        far = far_from(values, numbers, scale)
        parts[name] = split.select(np.flatnonzero(~far).tolist())
        if far.any():
            some = ", ".join(f"{value:.10g}" for value in values[far][:3])
            said.append(f"{far.sum():,} of {len(values):,} {name} numbers ({some})")
    if not said:
        return splits
    dataset, line = splits.dataset, f"far from all others and left out: {', '.join(said)}"
    return replace(splits, dataset=replace(dataset, messages=(*dataset.messages, line)), **parts)


def wide_span(numbers: np.ndarray) -> tuple[float, float] | None:
    """The 5 % and 95 % quantiles of the positive numbers if they span two orders of magnitude; otherwise, or
    if more than 1 % of the numbers are not positive, None."""
    above = numbers[numbers > 0]
    if len(above) < 20 or len(above) < 0.99 * len(numbers):
        return None
    low, high = np.quantile(above, (0.05, 0.95))
    return (float(low), float(high)) if high >= WIDE * low else None


def are_numbers(labels: Sequence[Any] | None) -> bool:
    """Whether targets were read as numbers (``float``); classes are ``str``, ``int`` or sets."""
    return labels is not None and len(labels) > 0 and isinstance(labels[0], float)


def strata_of(numbers: Sequence[float], most: int) -> list[int]:
    """The quantile bin of each number, for stratified splits: ten bins, at most ``most``."""
    parts = max(1, min(STRATA, most))
    ranks = np.argsort(np.argsort(np.asarray(numbers), kind="stable"), kind="stable")
    return (ranks * parts // max(len(ranks), 1)).tolist()


def number_column(table: Table, wanted: str | None, taken: Sequence[str] = (), form: Format = "plain") -> str:
    """Find the column of numbers: ``wanted``, or one with a usual name, or the only column of numbers.

    A few cells without a number do not exclude a column: reading it raises an error, or skips them.

    Raises:
        DataError: no such column, or none or several candidates.
    """
    if (named := find_column(table, wanted, (), "label")) is not None:
        return named
    free = [name for name in table.names if name not in taken]
    cells = {name: [value for value in table.read(name) if not is_missing(value)] for name in free}

    def holding(form: Format) -> list[str]:
        """The columns of numbers that have usual names; if there are none, all columns of numbers."""
        kind = is_number if form == "plain" else (lambda x: is_number(x) or bool(parse_amount(str(x))))
        like = [name for name, values in cells.items() if sum(map(kind, values)) > MOST * len(values)]
        return [c for usual in NUMBER_COLUMNS for c in like if c.lower() == usual] or like

    like = holding(form)
    if not like and (priced := holding("amount")):
        column, values = priced[0], cells[priced[0]]
        first = next(value for value in values if not is_number(value) and parse_amount(str(value)))
        what = f"no column holds plain numbers: {column!r} holds amounts such as {first!r}"
        fix = amount_setting(values)
        raise UnclearColumnError(what, where=table.origin, fix=fix[0].upper() + fix[1:])
    if len(like) == 1 or (like and like[0].lower() in NUMBER_COLUMNS):
        return like[0]
    what = f"several columns hold numbers: {listed(like)}" if like else "no column holds numbers"
    fix = f"Name the column of numbers with label_column: {listed(free)}"
    if not like:
        fix = (
            f"Leave target=number out to learn classes, or name the column with label_column: {listed(free)}"
        )
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def number_findings(
    splits: Mapping[str, Any], examples: Mapping[str, Sequence[str]], scale: Scale = "linear"
) -> Iterable[Finding]:
    """Data doctor checks of regression targets: range, outliers, copies with different numbers.

    Args:
        splits: split -> numbers ``[n]``.
        examples: split -> one key per example; examples with equal keys are copies.
        scale: the scale on which the model will learn the numbers.
    """
    train = np.asarray(splits.get("train", ()), np.float64)
    wide = wide_span(train) if scale == "linear" else None
    for name, numbers in splits.items():
        values = np.asarray(numbers, np.float64)
        said = f"{name}: numbers from {values.min():g} to {values.max():g}, median {np.median(values):g}"
        yield Finding("ok", "numbers", f"{said}, standard deviation {values.std():.4g}")
        if wide and name == "train":
            what = f"{name}: nine of ten numbers lie between {wide[0]:.4g} and {wide[1]:.4g}, "
            what += f"{math.log10(wide[1] / wide[0]):.1f} orders of magnitude"
            few = int((values <= 0).sum())
            fix = "the largest dominate squared errors; --set number_scale=log learns logarithms, so that "
            fix += "errors count as ratios" + (f" (the {few:,} numbers up to 0 have none)" if few else "")
            yield Finding("warning", "orders-of-magnitude", what, len(values), fix=fix)
        far = np.flatnonzero(far_from(values, values, scale))
        if len(far) and not wide:
            few = ", ".join(f"{values[i]:g}" for i in far[:3])
            what = f"{name}: {len(far):,} of {len(values):,} numbers lie far from all others ({few})"
            fix = "they dominate squared errors: check them, leave them out of training and "
            fix += "validation with --set far_numbers=skip"
            if scale == "linear" and (values > 0).all():
                fix += ", or learn logarithms with --set number_scale=log"
            yield Finding("warning", "far-numbers", what, len(far), fix=fix)
    seen: dict[str, set[float]] = {}
    for name, keys in examples.items():
        for key, number in zip(keys, splits.get(name, ()), strict=False):
            seen.setdefault(key, set()).add(number)
    both = [(key, found) for key, found in seen.items() if len(found) > 1]
    if both:
        shown = tuple(f"{' and '.join(f'{x:g}' for x in sorted(f)[:4])}: {excerpt(k)}" for k, f in both[:3])
        what = f"equal examples with different numbers: {len(both):,}"
        yield Finding("note", "contradictions", what, len(both), shown, "give each its mean, or keep one")
