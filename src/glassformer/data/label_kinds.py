"""Detect labels that are not class names: numbers, amounts of money, several labels in one cell."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from glassformer.config import listed
from glassformer.finite import json_text

SEPARATED = re.compile(r"\s*[|;,/]\s*")
WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(?:\.0+)?").fullmatch
MANY = 20  # if there are more distinct numbers, a number that occurs once is not a class
MOSTLY = 0.9  # minimum share of numbers; the rest of a column of prices may be "n/a", or "11,00"
FEW = 10  # if classes have fewer examples on average, numbers are measurements, not classes
TRUTH = {"false": 0, "true": 1}
NUMBER_OPTION = "--set target=number"
CUT = (
    f"Learn the numbers themselves with {NUMBER_OPTION} (in Python: TextRegressor, ImageRegressor), "
    "or bin them into a few classes first (such as low, middle, high)"
)
SEVERAL = "Name the separator with label_separator"
find_proposed_separator = re.compile(r"label[-_]separator '(.)'").search  # in a proposed fix

NO_LABEL = frozenset(  # spellings of a missing label, lower case: those of pandas and other common spellings
    (
        "n/a na <na> #n/a #na nan -nan 1.#ind -1.#ind 1.#qnan -1.#qnan null none nil n.a. missing unknown "
        "tbd undefined - -- ? ??"
    ).split()
) | {"#n/a n/a", "not available", "not labelled", "not labeled", "no label"}


def missing_names(labels: Iterable[Any]) -> list[str]:
    """Sorted classes whose names look like a missing label ("n/a", "?").

    Empty if fewer than two other classes remain, since such a name may then be a real class. ``-`` is a real
    class next to ``+``.
    """
    names = {str(label) for label in labels}
    missing = sorted(name for name in names if " ".join(name.casefold().split()) in NO_LABEL)
    if {name.strip() for name in names} & {"+", "++"}:
        missing = [name for name in missing if name.strip() not in ("-", "--")]
    return missing if len(names) - len(missing) >= 2 else []


def what_labels_are(labels: Sequence[Any]) -> tuple[str, str] | None:
    """If labels do not look like classes: a description of them and a fix. Otherwise None."""
    nonmissing = [label for label in labels if label is not None]
    if not nonmissing:
        return None
    counts = Counter(str(label).strip() for label in nonmissing)
    pairs = {("[", "]"), ("{", "}"), ("(", ")")}
    if lists := [text for text in counts if len(text) > 1 and (text[0], text[-1]) in pairs]:
        what = f"these look like lists, several labels per example ({_shown(lists)})"
        return what, _separator_fix(lists)
    numbers = [label for label in nonmissing if is_number(label)]
    mostly = len(numbers) >= MOSTLY * len(nonmissing) and len(nonmissing) < FEW * len(counts)
    if mostly and _are_measurements(numbers, Counter(str(label).strip() for label in numbers)):
        return f"these look like numbers, not classes ({_shown(list(counts))})", CUT
    combined = _combined_labels(counts)
    if combined:
        return f"these look like several labels per example ({_shown(combined)})", _separator_fix(combined)
    return None


def too_many_classes(labels: Iterable[Any]) -> bool:
    """Whether there are so many labels, with so few examples each, that the column is probably wrong."""
    counts = Counter(labels)
    return len(counts) > MANY and counts.total() < FEW * len(counts)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a text that ``float`` accepts."""
    if not isinstance(value, str):
        return hasattr(value, "__float__")
    try:
        float(value)
    except ValueError:
        return False
    return True


def about_labels(labels: Sequence[Any], what: str, fix: str) -> tuple[str, str]:
    """The problem ``what`` and its ``fix``; both are more specific if the labels do not look like classes."""
    odd = what_labels_are(labels)
    return (f"{what}; {odd[0]}", odd[1]) if odd else (what, fix)


def drop_class_hint(*labels: Any) -> str:
    """A clause with the setting that drops the classes ``labels``."""
    names = [json_text(str(label)) for label in labels]
    what = "the class" if len(names) == 1 else "the classes"
    table = ", ".join(name + ' = ""' for name in names)
    return f"leave {what} out with --set 'merge_labels={{{table}}}'"


def whole_number(label: Any) -> int | None:
    """The integer that a label is or spells (``1``, ``1.0``); otherwise None."""
    if isinstance(label, int):
        return int(label)
    match = WHOLE(label) if isinstance(label, str) else None
    return int(match[1]) if match else None


def plain_name(label: str) -> str:
    """Normalize a class name: case-folded, NFKC, single spaces, no invisible characters (zero-width space,
    byte order mark); an integer without ``.0``."""
    number = whole_number(label)
    if number is not None:
        return str(number)
    text = unicodedata.normalize("NFKC", label).casefold()
    if not text.isascii():
        text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return " ".join(text.split())


def match_known_labels(labels: Sequence[Any], known: Iterable[Any], *, spelling: bool = False) -> list[Any]:
    """Replace labels by the known labels with the same meaning.

    ``1``, ``"1"`` and ``"1.0"`` are the same class, unless two of them are known. If the known labels are two
    booleans, ``"TRUE"``, ``"true"`` and 1 are the same (``check_labels`` turns True into 1).

    Args:
        spelling: whether to replace also names that differ from a known name only in case or white space.
    """

    def key(label: Any) -> Any:
        number = whole_number(label)
        return plain_name(label) if number is None and spelling and isinstance(label, str) else number

    names = list(dict.fromkeys(known))
    counts = Counter(map(key, names))
    by_key = {k: name for name in names if (k := key(name)) is not None and counts[k] == 1}
    by_flag: dict[bool | None, Any] = {
        flag: name for name in names if (flag := _as_boolean(name)) is not None
    }
    if len(names) != 2 or len(by_flag) != 2:
        by_flag = {}
    known_set = set(names)
    return [x if x in known_set else by_key.get(key(x), by_flag.get(_as_boolean(x), x)) for x in labels]


def _as_boolean(label: Any) -> bool | None:
    """The boolean that a label is or spells (``1``, ``"FALSE"``); otherwise None."""
    number = whole_number(label)
    value = TRUTH.get(plain_name(label)) if number is None and isinstance(label, str) else number
    return bool(value) if value in (0, 1) else None


def other_spellings(labels: Sequence[Any], classes: Sequence[Any]) -> str:
    """A message about labels that are read as a class with another spelling; empty if there are none."""
    return respelled_message(labels, match_known_labels(labels, classes, spelling=True))


def respelled_message(labels: Sequence[Any], read: Sequence[Any]) -> str:
    """A message about the labels that were replaced, with counts; empty if there are none."""
    meant = Counter((label, known) for label, known in zip(labels, read, strict=True) if label != known)
    pairs = sorted(meant.items(), key=lambda item: (-item[1], str(item[0])))
    shown = listed([f"{label!r} as {known!r} ({n:,})" for (label, known), n in pairs])
    return f"labels in another spelling than the model's: {shown}" if meant else ""


def unify_spelling(splits: dict[str, Any]) -> dict[str, Any]:
    """The splits of a data set, with integer labels written as in the training split."""
    known = splits["train"].labels if "train" in splits else None
    if not known:
        return splits
    labeled = {name: split for name, split in splits.items() if split.labels}
    return splits | {k: replace(v, labels=match_known_labels(v.labels, known)) for k, v in labeled.items()}


def _are_measurements(labels: Sequence[Any], counts: Counter[str]) -> bool:
    """Whether numbers are measurements: some have fractions, or most numbers occur once, or many differ."""
    fractions = any(float(label) != int(float(label)) for label in labels if abs(float(label)) < 2**53)
    lone = len(counts) > MANY and min(counts.values()) == 1
    return len(counts) > 2 and (fractions or lone or len(counts) > len(labels) / 2)


def _combined_labels(counts: Counter[str]) -> list[str]:
    """Labels composed of other labels: every part occurs in another label, and some part is itself a
    label."""
    parts = {text: [part for part in SEPARATED.split(text) if part] for text in counts}
    uses = Counter(part for found in parts.values() for part in set(found))

    def joins(found: list[str]) -> bool:
        return len(found) > 1 and all(uses[x] > 1 for x in found) and any(x in counts for x in found)

    return [text for text, found in parts.items() if joins(found)]


def _separator_fix(texts: Sequence[str]) -> str:
    """The fix for cells with several labels: the separator that most cells have."""
    counts = Counter(mark for text in texts for mark in {*text} & {*"|;,/"})
    separator = f" '{counts.most_common(1)[0][0]}'" if counts else ""
    return f"{SEVERAL}{separator}: an example may have several labels"


def _shown(texts: Sequence[str], most: int = 3) -> str:
    return ", ".join(repr(text[:40]) for text in sorted(texts)[:most])


# --- amounts --------------------------------------------------------------------------------------
# Numbers written as prices: with a currency, thousands separators, and a comma or a point as decimal mark.
# ``1.234`` and ``1,234`` are ambiguous; they are read only if ``number_format`` names the decimal mark.

Format = Literal["plain", "amount", "point", "comma"]
CODES = re.compile(
    "AED|AUD|BGN|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RON|"
    "RSD|RUB|SAR|SEK|SGD|THB|TRY|UAH|USD|VND|ZAR"
)
SIGNS = {"€": "EUR", "£": "GBP", "₹": "INR", "₩": "KRW", "₫": "VND", "₪": "ILS", "₺": "TRY", "₴": "UAH"}
WORDS = {"EURO": "EUR", "EUROS": "EUR", "KR": "KR", "ZŁ": "PLN", "KČ": "CZK", "FT": "HUF", "FR": "CHF"}
SPACED = re.compile(r"[1-9]\d{0,2}(?:[\s'’]\d{3})+(?=[.,]|$)")  # thousands separated by blank or apostrophe
ROUND = re.compile(r"[.,][-–—]{1,2}$")  # "5,-"
BODY = re.compile(
    r"(?P<before>[^\d.,+−-]*)(?P<sign>[+−-]?)(?P<mid>[^\d.,]*?)(?P<body>[.,]?\d.*?)(?P<after>[^\d.,]*)"
)
WITH_POINT = re.compile(r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+").fullmatch
WITH_COMMA = re.compile(r"(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d+)?|,\d+").fullmatch
LIKE_AMOUNT = "it looks like an amount"


def parse_amount(text: str) -> tuple[str | None, float | None, float | None] | None:
    """Parse an amount: its currency (None: not stated), its value if the decimal mark is a point, and its
    value if it is a comma (None: impossible). None if the text is not an amount."""
    match = BODY.fullmatch(ROUND.sub("", text.strip()))
    if match is None:
        return None
    named = [part for name in ("before", "mid", "after") if (part := match[name].strip())]
    currency = _currency(named[0]) if len(named) == 1 else None
    if len(named) > 1 or (named and currency is None):
        return None
    body = SPACED.sub(lambda found: re.sub(r"\D", "", found[0]), match["body"])
    minus = -1.0 if match["sign"] in ("-", "−") else 1.0
    point = minus * float(body.replace(",", "")) if WITH_POINT(body) else None
    comma = minus * float(body.replace(".", "").replace(",", ".")) if WITH_COMMA(body) else None
    return None if point is None and comma is None else (currency, point, comma)


def _currency(text: str) -> str | None:
    name = text.upper()
    if CODES.fullmatch(name):
        return name
    if name.startswith("$") and len(name) == 3 and name[1:].isalpha():  # $US, as French Canada writes it
        name = f"{name[1:]}$"
    if len(name.rstrip("$")) <= 2 and name.endswith("$") and name.count("$") == 1:  # $, US$, A$
        return "USD" if name in ("$", "US$") else name
    sign = name if len(name) == 1 and unicodedata.category(name) == "Sc" else None
    return WORDS.get(name) or SIGNS.get(name) or sign


def amount(text: str, form: Format = "amount") -> float | None:
    """The value of an amount; None if it is not an amount or ambiguous (``ambiguous_values``)."""
    parsed = parse_amount(text)
    if parsed is None:
        return None
    _, point, comma = parsed
    if form != "amount":
        return point if form == "point" else comma
    return None if ambiguous_values(text) else point if comma is None else comma


def ambiguous_values(text: str) -> str | None:
    """Both possible values of an ambiguous amount, in words; None if it is not ambiguous."""
    _, point, comma = parse_amount(text) or (None, None, None)
    return None if point is None or comma is None or point == comma else f"{comma:g} or {point:g}"


def amount_setting(values: Iterable[Any]) -> str:
    """A clause with the setting that reads a column of amounts; with both settings if all are ambiguous."""
    texts = [value for value in values if isinstance(value, str) and not is_number(value)]
    parsed = [read for value in texts if (read := parse_amount(value)) is not None]
    ambiguous = next((value for value in texts if ambiguous_values(value)), None)
    points, commas = (all(read[side] is not None for read in parsed) for side in (1, 2))
    if ambiguous is not None and points == commas:
        choice = "name the decimal mark with number_format=comma or number_format=point"
        return f"{ambiguous!r} could be {ambiguous_values(ambiguous)}: {choice}"
    form = "amount" if points == commas else "point" if points else "comma"
    return f"read amounts with number_format={form}"


def amounts_message(values: Iterable[Any], form: Format) -> str:
    """A message about the cells that are read as amounts, with two examples and, if there are several, the
    currencies; empty if there are no such cells."""
    if form == "plain":
        return ""
    texts = [value for value in values if isinstance(value, str)]
    read = [x for x in texts if not is_number(x) or amount(x, form) not in (None, float(x))]
    if not read:
        return ""
    examples = ", ".join(f"{value!r} as {amount(value, form):g}" for value in list(dict.fromkeys(read))[:2])
    names = Counter(name for value in read if (name := (parse_amount(value) or (None,))[0]))
    mixed = f"; several currencies are read as one: {', '.join(sorted(names))}" if len(names) > 1 else ""
    return f"{len(read):,} cells are read as amounts ({examples}){mixed}"


def skipped_amounts_message(reasons: Iterable[str]) -> str:
    """A message if skipped rows look like amounts, with the setting that reads them; otherwise empty."""
    reasons = list(reasons)
    amounts = [reason.partition(" is not a number")[0] for reason in reasons if LIKE_AMOUNT in reason]
    if not amounts:
        return ""
    examples = ", ".join(list(dict.fromkeys(amounts))[:3])
    what = f"{len(amounts):,} of {len(reasons):,} rows left out look like amounts ({examples})"
    return f"{what}: --set number_format=amount reads them"
