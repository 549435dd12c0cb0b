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
MANY = 20  # with more distinct numbers, a number that occurs once is not a class
MOSTLY = 0.9  # minimum share of numbers; the rest of a column of prices may be "n/a", or "11,00"
FEW = 10  # with fewer examples per class on average, numbers are measurements rather than classes
TRUTH = {"false": 0, "true": 1}
NUMBER = "--set target=number"
CUT = (
    f"Learn the numbers themselves with {NUMBER} (in Python: TextRegressor, ImageRegressor), "
    "or bin them into a few classes first (such as low, middle, high)"
)
SEVERAL = "Name the separator with label_separator"
BETWEEN = re.compile(r"label[-_]separator '(.)'").search  # in a proposed fix

NO_LABEL = frozenset(  # spellings of a missing label: those of pandas and other common ones; lower case
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
    found = sorted(name for name in names if " ".join(name.casefold().split()) in NO_LABEL)
    if {name.strip() for name in names} & {"+", "++"}:
        found = [name for name in found if name.strip() not in ("-", "--")]
    return found if len(names) - len(found) >= 2 else []


def what_labels_are(labels: Sequence[Any]) -> tuple[str, str] | None:
    """If labels do not look like classes: a description of them and a fix. Otherwise None."""
    there = [label for label in labels if label is not None]
    if not there:
        return None
    counts = Counter(str(label).strip() for label in there)
    pairs = {("[", "]"), ("{", "}"), ("(", ")")}
    if lists := [text for text in counts if len(text) > 1 and (text[0], text[-1]) in pairs]:
        what = f"these look like lists, several labels per example ({_shown(lists)})"
        return what, _separated(lists)
    numbers = [label for label in there if is_number(label)]
    mostly = len(numbers) >= MOSTLY * len(there) and len(there) < FEW * len(counts)
    if mostly and _measured(numbers, Counter(str(label).strip() for label in numbers)):
        return f"these look like numbers, not classes ({_shown(list(counts))})", CUT
    several = _several(counts)
    if several:
        return f"these look like several labels per example ({_shown(several)})", _separated(several)
    return None


def hardly_classes(labels: Iterable[Any]) -> bool:
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
    """The problem ``what`` and its ``fix``, more specific if the labels do not look like classes."""
    odd = what_labels_are(labels)
    return (f"{what}; {odd[0]}", odd[1]) if odd else (what, fix)


def without_class(*labels: Any) -> str:
    """A sentence with the setting that leaves classes out."""
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


def as_known(labels: Sequence[Any], known: Iterable[Any], *, spelling: bool = False) -> list[Any]:
    """Replace labels by the known labels that mean the same.

    ``1``, ``"1"`` and ``"1.0"`` are the same class, unless two of them are known. If the known labels are two
    booleans, ``"TRUE"``, ``"true"`` and 1 are the same (``check_labels`` turns True into 1).

    Args:
        spelling: also replace names that differ from a known one only in case or white space.
    """

    def key(label: Any) -> Any:
        number = whole_number(label)
        return plain_name(label) if number is None and spelling and isinstance(label, str) else number

    names = list(dict.fromkeys(known))
    counts = Counter(map(key, names))
    by_key = {k: name for name in names if (k := key(name)) is not None and counts[k] == 1}
    by_truth: dict[bool | None, Any] = {truth: name for name in names if (truth := _truth(name)) is not None}
    if len(names) != 2 or len(by_truth) != 2:
        by_truth = {}
    there = set(names)
    return [x if x in there else by_key.get(key(x), by_truth.get(_truth(x), x)) for x in labels]


def _truth(label: Any) -> bool | None:
    """The boolean that a label is or spells (``1``, ``"FALSE"``); otherwise None."""
    number = whole_number(label)
    known = TRUTH.get(plain_name(label)) if number is None and isinstance(label, str) else number
    return bool(known) if known in (0, 1) else None


def other_spellings(labels: Sequence[Any], classes: Sequence[Any]) -> str:
    """A message about labels that are read as a class with another spelling; empty if there are none."""
    return said_as(labels, as_known(labels, classes, spelling=True))


def said_as(labels: Sequence[Any], read: Sequence[Any]) -> str:
    """A message about the labels that were replaced, with counts; empty if there are none."""
    meant = Counter((label, known) for label, known in zip(labels, read, strict=True) if label != known)
    pairs = sorted(meant.items(), key=lambda item: (-item[1], str(item[0])))
    shown = listed([f"{label!r} as {known!r} ({n:,})" for (label, known), n in pairs])
    return f"labels in another spelling than the model's: {shown}" if meant else ""


def one_spelling(splits: dict[str, Any]) -> dict[str, Any]:
    """The splits of a data set, with integer labels spelled as in the training split."""
    known = splits["train"].labels if "train" in splits else None
    if not known:
        return splits
    labeled = {name: split for name, split in splits.items() if split.labels}
    return splits | {k: replace(v, labels=as_known(v.labels, known)) for k, v in labeled.items()}


def _measured(labels: Sequence[Any], counts: Counter[str]) -> bool:
    """Whether numbers are measurements: they have fractions, or most occur once, or many differ."""
    fractions = any(float(label) != int(float(label)) for label in labels if abs(float(label)) < 2**53)
    lone = len(counts) > MANY and min(counts.values()) == 1
    return len(counts) > 2 and (fractions or lone or len(counts) > len(labels) / 2)


def _several(counts: Counter[str]) -> list[str]:
    """Labels composed of others: each part also occurs in another label, and at least one part alone."""
    parts = {text: [part for part in SEPARATED.split(text) if part] for text in counts}
    within = Counter(part for found in parts.values() for part in set(found))

    def joins(found: list[str]) -> bool:
        return len(found) > 1 and all(within[x] > 1 for x in found) and any(x in counts for x in found)

    return [text for text, found in parts.items() if joins(found)]


def _separated(texts: Sequence[str]) -> str:
    """The fix for cells with several labels: the separator that most of them have."""
    shown = Counter(mark for text in texts for mark in {*text} & {*"|;,/"})
    named = f" '{shown.most_common(1)[0][0]}'" if shown else ""
    return f"{SEVERAL}{named}: an example may have several labels"


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
LOOKS = "it looks like an amount"


def readings(text: str) -> tuple[str | None, float | None, float | None] | None:
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
    """The value of an amount; None if it is not an amount or ambiguous (``doubtful``)."""
    found = readings(text)
    if found is None:
        return None
    _, point, comma = found
    if form != "amount":
        return point if form == "point" else comma
    return None if doubtful(text) else point if comma is None else comma


def doubtful(text: str) -> str | None:
    """Both values of an ambiguous amount, in words; None if it is not ambiguous."""
    _, point, comma = readings(text) or (None, None, None)
    return None if point is None or comma is None or point == comma else f"{comma:g} or {point:g}"


def how_to_read(values: Iterable[Any]) -> str:
    """A sentence with the setting that reads a column of amounts, or with the choice if all are ambiguous."""
    texts = [value for value in values if isinstance(value, str) and not is_number(value)]
    found = [read for value in texts if (read := readings(value)) is not None]
    unclear = next((value for value in texts if doubtful(value)), None)
    points, commas = (all(read[side] is not None for read in found) for side in (1, 2))
    if unclear is not None and points == commas:
        choice = "name the decimal mark with number_format=comma or number_format=point"
        return f"{unclear!r} could be {doubtful(unclear)}: {choice}"
    form = "amount" if points == commas else "point" if points else "comma"
    return f"read amounts with number_format={form}"


def said_of_amounts(values: Iterable[Any], form: Format) -> str:
    """A message about cells that are read as amounts, with two examples, and with the currencies if there are
    several; empty if there are no such cells."""
    if form == "plain":
        return ""
    given = [value for value in values if isinstance(value, str)]
    read = [x for x in given if not is_number(x) or amount(x, form) not in (None, float(x))]
    if not read:
        return ""
    some = ", ".join(f"{value!r} as {amount(value, form):g}" for value in list(dict.fromkeys(read))[:2])
    found = Counter(name for value in read if (name := (readings(value) or (None,))[0]))
    mixed = f"; several currencies are read as one: {', '.join(sorted(found))}" if len(found) > 1 else ""
    return f"{len(read):,} cells are read as amounts ({some}){mixed}"


def said_of_left_out(reasons: Iterable[str]) -> str:
    """A message if skipped rows look like amounts, with the setting that reads them; otherwise empty."""
    reasons = list(reasons)
    alike = [reason.partition(" is not a number")[0] for reason in reasons if LOOKS in reason]
    if not alike:
        return ""
    some = ", ".join(list(dict.fromkeys(alike))[:3])
    what = f"{len(alike):,} of {len(reasons):,} rows left out look like amounts ({some})"
    return f"{what}: --set number_format=amount reads them"
