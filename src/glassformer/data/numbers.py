"""Regression targets: column, format, checks, scale and outliers."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from glassformer.config import join_names
from glassformer.data.checks import is_missing, location
from glassformer.data.duplicates import conflicts
from glassformer.data.findings import Finding, excerpt
from glassformer.data.in_memory import one_column
from glassformer.data.label_kinds import LOOKS_LIKE_AMOUNT, is_number
from glassformer.data.rejected import SKIP, RejectedRow, empty_column_error
from glassformer.data.tables import Table
from glassformer.errors import DataError, MissingValueError, NotANumberError, UnclearColumnError

# --- amounts --------------------------------------------------------------------------------------
# Amounts have a currency, thousands separators, and a comma or a point as decimal mark. ``1.234`` and
# ``1,234`` are ambiguous; they are read only if ``number_format`` names the decimal mark.

NumberFormat = Literal["plain", "amount", "point", "comma"]
CURRENCY_CODES = "AED AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR ISK JPY KRW MXN".split()
CURRENCY_CODES += "MYR NOK NZD PHP PLN RON RSD RUB SAR SEK SGD THB TRY UAH USD VND ZAR".split()
CURRENCY_SIGNS = dict(zip("€£₹₩₫₪₺₴", "EUR GBP INR KRW VND ILS TRY UAH".split(), strict=True))
CURRENCIES = {"EURO": "EUR", "EUROS": "EUR", "KR": "KR", "ZŁ": "PLN", "KČ": "CZK", "FT": "HUF", "FR": "CHF"}
# "1 234 567" or "1'234'567"
SPACED_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:[\s'’]\d{3})+(?=[.,]|$)")
NO_CENTS = re.compile(r"[.,][-–—]{1,2}$")  # "5,-"
AMOUNT = re.compile(  # "-$1,234.50", "1.234,50 EUR"
    r"(?P<before>[^\d.,+−-]*)(?P<sign>[+−-]?)(?P<mid>[^\d.,]*?)(?P<body>[.,]?\d.*?)(?P<after>[^\d.,]*)"
)
has_decimal_point = re.compile(r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+").fullmatch
has_decimal_comma = re.compile(r"(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d+)?|,\d+").fullmatch


def parse_amount(text: str) -> tuple[str | None, float | None, float | None] | None:
    """Parse an amount of money; None if the text is not an amount.

    Returns:
        The currency (None: not stated), the value if the decimal mark is a point, and the value if it is a
        comma. A value is None if the text cannot have that decimal mark.
    """
    match = AMOUNT.fullmatch(NO_CENTS.sub("", text.strip()))
    if match is None:
        return None
    words = [part for name in ("before", "mid", "after") if (part := match[name].strip())]
    currency = _currency(words[0]) if len(words) == 1 else None
    if len(words) > 1 or (words and currency is None):
        return None
    digits = SPACED_THOUSANDS.sub(lambda thousands: re.sub(r"\D", "", thousands[0]), match["body"])
    sign = -1.0 if match["sign"] in ("-", "−") else 1.0
    point = sign * float(digits.replace(",", "")) if has_decimal_point(digits) else None
    comma = sign * float(digits.replace(".", "").replace(",", ".")) if has_decimal_comma(digits) else None
    return None if point is None and comma is None else (currency, point, comma)


def _currency(text: str) -> str | None:
    name = text.upper()
    if name in CURRENCY_CODES:
        return name
    if name.startswith("$") and len(name) == 3 and name[1:].isalpha():  # $US, as French Canada writes it
        name = f"{name[1:]}$"
    if len(name.rstrip("$")) <= 2 and name.endswith("$") and name.count("$") == 1:  # $, US$, A$
        return "USD" if name in ("$", "US$") else name
    sign = name if len(name) == 1 and unicodedata.category(name) == "Sc" else None
    return CURRENCIES.get(name) or CURRENCY_SIGNS.get(name) or sign


def amount_value(text: str, number_format: NumberFormat = "amount") -> float | None:
    """The value of an amount; None if the text is not an amount, or is ambiguous (``ambiguous_values``)."""
    parsed = parse_amount(text)
    if parsed is None:
        return None
    _, point, comma = parsed
    if number_format != "amount":
        return point if number_format == "point" else comma
    return None if ambiguous_values(text) else point if comma is None else comma


def ambiguous_values(text: str) -> str | None:
    """Both possible values of an ambiguous amount, such as "1.234 or 1234"; None if it is not ambiguous."""
    _, point, comma = parse_amount(text) or (None, None, None)
    return None if point is None or comma is None or point == comma else f"{comma:g} or {point:g}"


def amount_setting(values: Iterable[Any]) -> str:
    """A clause with the setting that reads a column of amounts, or with both settings if it is ambiguous."""
    texts = [value for value in values if isinstance(value, str) and not is_number(value)]
    parsed = [amount for value in texts if (amount := parse_amount(value)) is not None]
    ambiguous = next((value for value in texts if ambiguous_values(value)), None)
    all_points, all_commas = (all(amount[i] is not None for amount in parsed) for i in (1, 2))
    if ambiguous is not None and all_points == all_commas:
        choice = "name the decimal mark with number_format=comma or number_format=point"
        return f"{ambiguous!r} could be {ambiguous_values(ambiguous)}: {choice}"
    number_format = "amount" if all_points == all_commas else "point" if all_points else "comma"
    return f"read amounts with number_format={number_format}"


def amounts_message(values: Iterable[Any], number_format: NumberFormat) -> str:
    """A message about the cells that are read as amounts, with examples; empty if there are none."""
    if number_format == "plain":
        return ""
    counts = Counter(value for value in values if isinstance(value, str))
    numbers = {text: amount_value(text, number_format) for text in counts}
    amounts = [x for x, number in numbers.items() if not is_number(x) or number not in (None, float(x))]
    if not amounts:
        return ""
    count = sum(counts[text] for text in amounts)
    examples = ", ".join(f"{value!r} as {numbers[value]:g}" for value in amounts[:2])
    names = {name for value in amounts if (name := (parse_amount(value) or (None,))[0])}
    mixed = f"; several currencies are read as one: {', '.join(sorted(names))}" if len(names) > 1 else ""
    return f"{count:,} cells are read as amounts ({examples}){mixed}"


def skipped_amounts_message(reasons: Iterable[str]) -> str:
    """A message about skipped rows that look like amounts, with the setting that reads them; or empty."""
    reasons = list(reasons)
    amounts = [reason.partition(" is not a number")[0] for reason in reasons if LOOKS_LIKE_AMOUNT in reason]
    if not amounts:
        return ""
    examples = ", ".join(list(dict.fromkeys(amounts))[:3])
    what = f"{len(amounts):,} of {len(reasons):,} rows left out look like amounts ({examples})"
    return f"{what}: --set number_format=amount reads them"


# --- numbers ---------------------------------------------------------------------------------------

# Usual names of a column of numbers, by priority.
NUMBER_COLUMNS = "score label target rating value number labels similarity relatedness stars price y".split()
MAX_NUMBER = 1e100  # maximum absolute target, so that squares do not overflow
MAX_LOGARITHM = math.log(MAX_NUMBER)
NUM_BINS = 10  # quantile bins by which a random split is stratified
MIN_NUMBER_SHARE = 0.5  # a column of numbers has a larger share of numbers
OUTLIER_RANGES = 6.0  # an outlier is more than this many interquartile ranges away from the quartiles
WIDE_RATIO = 100.0  # minimum ratio of the 95 % and 5 % quantiles to propose logarithms
Scale = Literal["linear", "log"]  # the scale on which the model learns numbers and errors are measured
NO_LOGARITHM = "a number that is not above 0 has no logarithm"
VALUE_HAS_NO_LOGARITHM = "{:g} is not above 0 and has no logarithm"


def check_numbers(
    values: Any, origin: str = "targets", rows: Sequence[int] | None = None, form: NumberFormat = "plain"
) -> list[float]:
    """Regression targets as a list of ``float``; text is parsed.

    Args:
        form: format of text. ``plain``: as ``float`` accepts it; ``amount``: also prices with a currency and
            thousands separators, unless they are ambiguous; ``point`` or ``comma``: the decimal mark.

    Raises:
        DataError: a value is missing, not a number, not finite or beyond 1e100; or ``values`` is a table
            with several columns or a single text.
    """
    out = []
    for index, value in enumerate(one_column(values, origin, "numbers")):
        if is_missing(value):
            where = location(origin, index, rows)
            raise MissingValueError("the number is missing", where=where, fix="Fill it in or remove the row")
        number = _parse_number(value, form)
        if not abs(number) <= MAX_NUMBER:
            raise _not_a_number_error(value, form, location(origin, index, rows))
        out.append(number)
    return out


def _parse_number(value: Any, form: NumberFormat) -> float:
    """The value as a float; NaN if it is not a number."""
    if isinstance(value, str) and form != "plain" and parse_amount(value):
        number = amount_value(value, form)
        return math.nan if number is None else number
    try:
        return float(value) if is_number(value) and not isinstance(value, bool | np.bool_) else math.nan
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def _not_a_number_error(value: Any, form: NumberFormat, where: str) -> DataError:
    what = f"{str(value)[:40]!r} is not a number that can be learned"
    fix = "Write it as 3.5, without unit and with a point; classes are learned by a classifier"
    if isinstance(value, str) and form == "amount" and (both := ambiguous_values(value)):
        what = f"{value[:40]!r} is not a number that can be learned: it could be {both}"
        fix = "Name the decimal mark: number_format=point or number_format=comma"
    elif isinstance(value, str) and form == "plain" and not is_number(value) and parse_amount(value):
        what = f"{what}; {LOOKS_LIKE_AMOUNT}"
        fix = f"Write it as 3.5, without unit and with a point, or {amount_setting([value])}"
    return NotANumberError(what, where=where, fix=fix)


def to_scale(numbers: Any, scale: Scale) -> np.ndarray:
    """Numbers ``[n]`` on the scale of the model, fp64: unchanged, or their natural logarithms."""
    numbers = np.asarray(numbers, np.float64)
    return np.log(numbers) if scale == "log" else numbers


def from_scale(values: Any, scale: Scale) -> np.ndarray:
    """The inverse of ``to_scale``; with ``log`` the results are clipped to 1e-100 ... 1e100."""
    values = np.asarray(values, np.float64)
    return np.exp(np.clip(values, -MAX_LOGARITHM, MAX_LOGARITHM)) if scale == "log" else values


def check_positive(numbers: Sequence[float], origin: str, rows: Sequence[int] | None = None) -> None:
    """Raise DataError for the first number that is not positive, or is below the range of predictions."""
    for index, number in enumerate(numbers):
        if number >= 1 / MAX_NUMBER:
            continue
        what = VALUE_HAS_NO_LOGARITHM.format(number)
        fix = "Correct it, or learn the numbers as they are, with number_scale=linear"
        if number > 0:
            what = f"{number:g} is below {1 / MAX_NUMBER:g}, the lowest prediction of number_scale=log"
            fix = "Multiply all numbers, or learn their logarithms with number_scale=linear"
        raise NotANumberError(what, where=location(origin, index, rows), fix=fix)


def drop_nonpositive(dataset: Any, skip: bool) -> Any:
    """The data set without the rows whose number is not positive, so that it has no logarithm.

    Args:
        skip: whether to leave such rows out and list them in ``rejected``; False: raise an error.

    Raises:
        DataError: ``skip`` is False and there are such rows, or a split has only such rows.
    """
    splits, rejected = {}, []
    for name, split in dataset.splits.items():
        bad = [i for i, number in enumerate(split.labels or ()) if not number > 0]
        splits[name] = split
        if not bad:
            continue
        if not skip or len(bad) == len(split):
            what = VALUE_HAS_NO_LOGARITHM.format(split.labels[bad[0]])
            what += f" ({len(bad) - 1:,} more such row{'s' * (len(bad) > 2)})" if len(bad) > 1 else ""
            fix = f"Correct it, leave such rows out with {SKIP}, or train without number_scale=log"
            raise NotANumberError(what, where=location(split.origin, bad[0], split.rows), fix=fix)
        rows = split.rows or range(1, len(split) + 1)
        rejected += [RejectedRow(split.origin, rows[i], NO_LOGARITHM) for i in bad]
        splits[name] = split.select(sorted({*range(len(split))} - {*bad}))
    return replace(dataset, splits=splits, rejected=(*dataset.rejected, *rejected))


def are_outliers(values: np.ndarray, numbers: np.ndarray, scale: Scale = "linear") -> np.ndarray:
    """Whether each value is an outlier of ``numbers``, bool ``[n]``; all False if the quartiles are equal."""
    values, numbers = to_scale(values, scale), to_scale(numbers, scale)
    low, high = np.quantile(numbers, (0.25, 0.75))
    margin = OUTLIER_RANGES * (high - low)
    return ((values < low - margin) | (values > high + margin)) & (high > low)


def drop_outliers(splits: Any, scale: Scale = "linear") -> Any:
    """Drop training and validation examples whose numbers are outliers of the training numbers.

    The returned splits have a message about the dropped examples. The evaluated split is not changed.
    """
    numbers, changed, dropped = np.asarray(splits.train.labels, np.float64), {}, []
    for name, split in (("train", splits.train), ("validation", splits.validation)):
        if split is None or not split.labels or (name == "validation" and split is splits.evaluated):
            continue
        values = np.asarray(split.labels, np.float64)
        is_outlier = are_outliers(values, numbers, scale)
        changed[name] = split.select(np.flatnonzero(~is_outlier).tolist())
        if is_outlier.any():
            examples = ", ".join(f"{value:.10g}" for value in values[is_outlier][:3])
            dropped.append(f"{is_outlier.sum():,} of {len(values):,} {name} numbers ({examples})")
    if not dropped:
        return splits
    dataset, line = splits.dataset, f"far from all others and left out: {', '.join(dropped)}"
    return replace(splits, dataset=replace(dataset, messages=(*dataset.messages, line)), **changed)


def wide_range(numbers: np.ndarray) -> tuple[float, float] | None:
    """The 5 % and 95 % quantiles of the positive numbers if they span two orders of magnitude.

    The result is None if the range is smaller, or if more than 1 % of the numbers are not positive.
    """
    positive = numbers[numbers > 0]
    if len(positive) < 20 or len(positive) < 0.99 * len(numbers):
        return None
    low, high = np.quantile(positive, (0.05, 0.95))
    return (float(low), float(high)) if high >= WIDE_RATIO * low else None


def are_numbers(labels: Sequence[Any] | None) -> bool:
    """Whether targets were read as numbers (``float``); classes are ``str``, ``int`` or sets."""
    return labels is not None and len(labels) > 0 and isinstance(labels[0], float)


def quantile_bins(numbers: Sequence[float], max_bins: int) -> list[int]:
    """The quantile bin of each number, for stratified splits; there are at most ten bins."""
    bins = max(1, min(NUM_BINS, max_bins))
    ranks = np.argsort(np.argsort(np.asarray(numbers), kind="stable"), kind="stable")
    return (ranks * bins // max(len(ranks), 1)).tolist()


LEARN_CLASSES = "or leave target=number out to learn classes"  # end of a fix; other commands remove it


def find_number_column(
    table: Table, requested: str | None, used: Sequence[str] = (), form: NumberFormat = "plain"
) -> str:
    """Find the column of numbers: ``requested``, else one with a usual name, else the only candidate.

    A few cells without a number do not exclude a column. They raise an error or are skipped when the column
    is read.
    """
    if requested is not None:
        table.check_columns(requested)
        return requested
    unused = [name for name in table.names if name not in used]
    cells = {name: [value for value in table.read(name) if not is_missing(value)] for name in unused}

    def number_columns(form: NumberFormat) -> list[str]:
        """The columns of numbers that have usual names, else all columns of numbers."""
        matches = is_number if form == "plain" else (lambda x: is_number(x) or bool(parse_amount(str(x))))
        counts = {name: sum(map(matches, values)) for name, values in cells.items()}
        columns = [name for name, count in counts.items() if count > MIN_NUMBER_SHARE * len(cells[name])]
        return [name for usual in NUMBER_COLUMNS for name in columns if name.lower() == usual] or columns

    columns = number_columns(form)
    if not columns and (amount_columns := number_columns("amount")):
        column, values = amount_columns[0], cells[amount_columns[0]]
        first = next(value for value in values if not is_number(value) and parse_amount(str(value)))
        what = f"no column contains plain numbers: {column!r} contains amounts such as {first!r}"
        fix = amount_setting(values)
        raise UnclearColumnError(what, where=table.origin, fix=fix[0].upper() + fix[1:])
    if len(columns) == 1 or (columns and columns[0].lower() in NUMBER_COLUMNS):
        return columns[0]
    what = (
        f"several columns contain numbers: {join_names(columns)}" if columns else "no column contains numbers"
    )
    fix = f"Name the column of numbers with label_column: {join_names(unused)}"
    if not columns:
        if len(empty := [name for name in unused if not cells[name]]) == 1:
            raise empty_column_error(table, empty[0], "label_column", used)
        what += f" (columns: {join_names(table.names)})"
        fix = f"Add a column of numbers, name it with label_column, {LEARN_CLASSES}"
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def number_findings(
    splits: Mapping[str, Any], examples: Mapping[str, Sequence[str]], scale: Scale = "linear"
) -> Iterable[Finding]:
    """Data doctor checks of regression targets: range, outliers, duplicates with different numbers.

    Args:
        splits: split -> numbers ``[n]``.
        examples: split -> one key per example; duplicates have equal keys.
        scale: the scale on which the model will learn the numbers.
    """
    wide = wide_range(np.asarray(splits.get("train", ()), np.float64)) if scale == "linear" else None
    for name, numbers in splits.items():
        values = np.asarray(numbers, np.float64)
        what = f"{name}: numbers from {values.min():g} to {values.max():g}, median {np.median(values):g}"
        yield Finding("ok", "numbers", f"{what}, standard deviation {values.std():.4g}")
        if wide and name == "train":
            what = f"{name}: nine of ten numbers are between {wide[0]:.4g} and {wide[1]:.4g}, "
            what += f"{math.log10(wide[1] / wide[0]):.1f} orders of magnitude"
            no_log = int((values <= 0).sum())
            fix = "the largest dominate squared errors; --set number_scale=log learns logarithms, so that "
            fix += "errors count as ratios"
            fix += f" (the {no_log:,} numbers up to 0 have no logarithm)" if no_log else ""
            yield Finding("warning", "orders-of-magnitude", what, len(values), fix=fix)
        outliers = values[are_outliers(values, values, scale)]
        if len(outliers) and not wide:
            shown = ", ".join(f"{value:g}" for value in outliers[:3])
            what = f"{name}: {len(outliers):,} of {len(values):,} numbers are far from all others ({shown})"
            fix = "they dominate squared errors: check them, leave them out of training and "
            fix += "validation with --set far_numbers=skip"
            if scale == "linear" and (values > 0).all():
                fix += ", or learn logarithms with --set number_scale=log"
            yield Finding("warning", "far-numbers", what, len(outliers), fix=fix)
    pairs = (pair for name, keys in examples.items() for pair in zip(keys, splits.get(name, ())))
    conflicting = [*conflicts(pairs).items()]
    shown = [
        f"{' and '.join(f'{x:g}' for x in sorted(numbers)[:4])}: {excerpt(key)}"
        for key, numbers in conflicting[:3]
    ]
    what = f"equal examples with different numbers: {len(conflicting):,}"
    fix = "give equal examples their mean, or keep one of them"
    yield from Finding.if_any("note", "contradictions", conflicting, what, fix, shown=shown)
