"""Numbers as people write prices: a currency, marks between thousands, a comma or a point before the cents.

``1.234`` and ``1,234`` can mean two numbers each; they are read only where it is said which mark is which.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from glassformer.data.label_kinds import is_number

Format = Literal["plain", "amount", "point", "comma"]
CODES = re.compile(
    "AED|AUD|BGN|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RON|"
    "RSD|RUB|SAR|SEK|SGD|THB|TRY|UAH|USD|VND|ZAR"
)
SIGNS = {"€": "EUR", "£": "GBP", "₹": "INR", "₩": "KRW", "₫": "VND", "₪": "ILS", "₺": "TRY", "₴": "UAH"}
WORDS = {"EURO": "EUR", "EUROS": "EUR", "KR": "KR", "ZŁ": "PLN", "KČ": "CZK", "FT": "HUF", "FR": "CHF"}
SPACED = re.compile(r"[1-9]\d{0,2}(?:[\s'’]\d{3})+(?=[.,]|$)")  # thousands apart by a blank or an apostrophe
ROUND = re.compile(r"[.,][-–—]{1,2}$")  # "5,-"
BODY = re.compile(
    r"(?P<before>[^\d.,+−-]*)(?P<sign>[+−-]?)(?P<mid>[^\d.,]*?)(?P<body>[.,]?\d.*?)(?P<after>[^\d.,]*)"
)
WITH_POINT = re.compile(r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+").fullmatch
WITH_COMMA = re.compile(r"(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d+)?|,\d+").fullmatch
LOOKS = "it looks like an amount"


def readings(text: str) -> tuple[str | None, float | None, float | None] | None:
    """The currency of an amount (None: it names none) and what it is with a point, and with a comma, before
    the decimals (None: it cannot be that); None: no amount."""
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
    return (
        WORDS.get(name)
        or SIGNS.get(name)
        or (name if len(name) == 1 and unicodedata.category(name) == "Sc" else None)
    )


def amount(text: str, form: Format = "amount") -> float | None:
    """What an amount is; None: it is none, or could be two (``doubtful``)."""
    found = readings(text)
    if found is None:
        return None
    _, point, comma = found
    if form != "amount":
        return point if form == "point" else comma
    return None if doubtful(text) else point if comma is None else comma


def doubtful(text: str) -> str | None:
    """Both numbers that an amount could be, in words; None: it is one at most."""
    _, point, comma = readings(text) or (None, None, None)
    return None if point is None or comma is None or point == comma else f"{comma:g} or {point:g}"


def how_to_read(values: Iterable[Any]) -> str:
    """The setting that reads a column's amounts as numbers, in words; where each could be two, the choice."""
    texts = [value for value in values if isinstance(value, str) and not is_number(value)]
    found = [read for value in texts if (read := readings(value)) is not None]
    unclear = next((value for value in texts if doubtful(value)), None)
    points, commas = (all(read[side] is not None for read in found) for side in (1, 2))
    if unclear is not None and points == commas:
        choice = "say with number_format=comma or number_format=point what stands before the decimals"
        return f"{unclear!r} could be {doubtful(unclear)}: {choice}"
    form = "amount" if points == commas else "point" if points else "comma"
    return f"read amounts with number_format={form}"


def said_of_amounts(values: Iterable[Any], form: Format) -> str:
    """How many cells are read as amounts, with two of them, and their currencies where there are several."""
    given = [value for value in values if isinstance(value, str)]
    read = [
        value for value in given if not is_number(value) or amount(value, form) not in (None, float(value))
    ]
    if not read:
        return ""
    some = ", ".join(f"{value!r} as {amount(value, form):g}" for value in list(dict.fromkeys(read))[:2])
    found = Counter(name for value in read if (name := (readings(value) or (None,))[0]))
    mixed = f"; several currencies are read as one: {', '.join(sorted(found))}" if len(found) > 1 else ""
    return f"{len(read):,} cells are read as amounts ({some}){mixed}"


def said_of_left_out(reasons: Iterable[str]) -> str:
    """How many of the rows that are left out look like amounts, and what reads them; empty: none."""
    reasons = list(reasons)
    alike = [reason.partition(" is no number")[0] for reason in reasons if LOOKS in reason]
    if not alike:
        return ""
    some = ", ".join(list(dict.fromkeys(alike))[:3])
    what = f"{len(alike):,} of {len(reasons):,} rows left out look like amounts ({some})"
    return f"{what}: --set number_format=amount reads them"
