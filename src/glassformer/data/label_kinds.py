"""Detection of labels that are not class names."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import join_names
from glassformer.finite import json_text

LABEL_SEPARATOR = re.compile(r"\s*[|;,/]\s*")
match_integer = re.compile(r"(0|-?[1-9][0-9]{0,17})(?:\.0+)?").fullmatch
MAX_DISTINCT_NUMBERS = 20  # with more distinct numbers, a number that occurs once is not a class
MIN_NUMBER_SHARE = 0.9  # minimum share of numbers in a column of measurements; others may be "n/a" or "11,00"
MIN_CLASS_EXAMPLES = 10  # if classes have fewer examples on average, numbers are measurements
BOOLEANS = {"false": 0, "true": 1}
NUMBER_OPTION = "--set target=number"
NUMBERS_FIX = f"Learn the numbers themselves with {NUMBER_OPTION} (in Python: TextRegressor, ImageRegressor)"
NUMBERS_FIX += ", or bin them into a few classes first (such as low, middle, high)"
LOOKS_LIKE_AMOUNT = "it looks like an amount"
SEPARATOR_FIX = "Name the separator with label_separator"
find_proposed_separator = re.compile(r"label[-_]separator '(.)'").search  # in the text of a fix

# Spellings of a missing label in lower case, including those of pandas.
MISSING_LABELS = ["#n/a n/a", "not available", "not labelled", "not labeled", "no label"]
MISSING_LABELS += "n/a na <na> #n/a #na nan -nan 1.#ind -1.#ind 1.#qnan -1.#qnan null none nil n.a.".split()
MISSING_LABELS += "missing unknown tbd undefined - -- ? ??".split()


def find_missing_labels(labels: Iterable[Any]) -> list[str]:
    """The sorted classes whose names look like a missing label ("n/a", "?").

    If fewer than two other classes remain, the result is empty, since such a name may then be a real class.
    If there is a class ``+``, ``-`` is also a real class.
    """
    names = {str(label) for label in labels}
    missing = sorted(name for name in names if " ".join(name.casefold().split()) in MISSING_LABELS)
    if {name.strip() for name in names} & {"+", "++"}:
        missing = [name for name in missing if name.strip() not in ("-", "--")]
    return missing if len(names) - len(missing) >= 2 else []


def find_label_problem(labels: Sequence[Any]) -> tuple[str, str] | None:
    """A description of labels that do not look like classes, and a fix; None if they look like classes."""
    nonmissing = [label for label in labels if label is not None]
    if not nonmissing:
        return None
    counts = Counter(str(label).strip() for label in nonmissing)
    brackets = {("[", "]"), ("{", "}"), ("(", ")")}
    if lists := [text for text in counts if len(text) > 1 and (text[0], text[-1]) in brackets]:
        what = f"the labels look like lists, several labels per example ({_examples(lists)})"
        return what, _separator_fix(lists)
    numbers = [label for label in nonmissing if is_number(label)]
    few_examples = len(nonmissing) < MIN_CLASS_EXAMPLES * len(counts)
    if few_examples and len(numbers) >= MIN_NUMBER_SHARE * len(nonmissing) and _are_measurements(numbers):
        return f"the labels look like numbers, not classes ({_examples(list(counts))})", NUMBERS_FIX
    if combined := _combined_labels(counts):
        what = f"the labels look like several labels per example ({_examples(combined)})"
        return what, _separator_fix(combined)
    return None


def too_many_classes(labels: Iterable[Any]) -> bool:
    """Whether so many classes have so few examples that the column is probably wrong."""
    counts = Counter(labels)
    return len(counts) > MAX_DISTINCT_NUMBERS and counts.total() < MIN_CLASS_EXAMPLES * len(counts)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a text that ``float`` accepts."""
    if not isinstance(value, str):
        return hasattr(value, "__float__")
    try:
        float(value)
    except ValueError:
        return False
    return True


def explain_label_error(labels: Sequence[Any], what: str, fix: str) -> tuple[str, str]:
    """``what`` and ``fix`` of an error, more specific if the labels do not look like classes."""
    problem = find_label_problem(labels)
    return (f"{what}; {problem[0]}", problem[1]) if problem else (what, fix)


def drop_class_hint(*labels: Any) -> str:
    """A clause with the setting that drops the classes ``labels``."""
    names = [json_text(str(label)) for label in labels]
    what = "the class" if len(names) == 1 else "the classes"
    table = ", ".join(name + ' = ""' for name in names)
    return f"leave {what} out with --set 'merge_labels={{{table}}}'"


def whole_number(label: Any) -> int | None:
    """The integer that a label denotes (``1``, ``"1"``, ``"1.0"``); otherwise None."""
    if isinstance(label, int):
        return int(label)
    match = match_integer(label) if isinstance(label, str) else None
    return int(match[1]) if match else None


def plain_name(label: str) -> str:
    """Normalize a class name: case, white space, Unicode form (NFKC) and the ``.0`` of integers.

    Invisible characters such as a zero-width space or a byte order mark are removed.
    """
    number = whole_number(label)
    if number is not None:
        return str(number)
    text = unicodedata.normalize("NFKC", label).casefold()
    if not text.isascii():
        text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return " ".join(text.split())


def match_known_labels(
    labels: Sequence[Any], known: Iterable[Any], *, ignore_spelling: bool = False
) -> list[Any]:
    """Replace labels by the known labels with the same meaning.

    ``1``, ``"1"`` and ``"1.0"`` are the same class, unless ``known`` has two of these labels. If the known
    labels are two booleans, ``"TRUE"``, ``"true"`` and 1 are the same (``check_labels`` turns True into 1).

    Args:
        ignore_spelling: also replace names that differ from a known name only in case or white space.
    """

    def key(label: Any) -> Any:
        number = whole_number(label)
        return plain_name(label) if number is None and ignore_spelling and isinstance(label, str) else number

    names = list(dict.fromkeys(known))
    counts = Counter(map(key, names))
    by_key = {k: name for name in names if (k := key(name)) is not None and counts[k] == 1}
    by_boolean = {_as_boolean(name): name for name in names}
    if len(names) != 2 or by_boolean.keys() != {True, False}:
        by_boolean = {}
    known_set = set(names)
    return [x if x in known_set else by_key.get(key(x), by_boolean.get(_as_boolean(x), x)) for x in labels]


def _as_boolean(label: Any) -> bool | None:
    """The boolean that a label denotes (``1``, ``"FALSE"``); otherwise None."""
    number = whole_number(label)
    value = BOOLEANS.get(plain_name(label)) if number is None and isinstance(label, str) else number
    return bool(value) if value in (0, 1) else None


def other_spellings(labels: Sequence[Any], classes: Sequence[Any]) -> str:
    """A message about labels that are another spelling of a class; otherwise empty."""
    return respelled_message(labels, match_known_labels(labels, classes, ignore_spelling=True))


def respelled_message(labels: Sequence[Any], known_labels: Sequence[Any]) -> str:
    """A message about the labels that were replaced by known labels, with counts; otherwise empty."""
    replaced = Counter((a, b) for a, b in zip(labels, known_labels, strict=True) if a != b)
    pairs = sorted(replaced.items(), key=lambda item: (-item[1], str(item[0])))
    shown = join_names([f"{label!r} as {known!r} ({n:,})" for (label, known), n in pairs])
    return f"labels in another spelling than the model's: {shown}" if replaced else ""


def unify_spelling(splits: dict[str, Any]) -> dict[str, Any]:
    """The splits of a data set, with integer labels written as in the training split."""
    known = splits["train"].labels if "train" in splits else None
    if not known:
        return splits
    labeled = {name: split for name, split in splits.items() if split.labels}
    return splits | {k: replace(v, labels=match_known_labels(v.labels, known)) for k, v in labeled.items()}


def _are_measurements(numbers: Sequence[Any]) -> bool:
    """Whether numbers are measurements: some have fractions, or many numbers occur only once."""
    counts = Counter(str(number).strip() for number in numbers)
    has_fractions = any(float(x) != int(float(x)) for x in numbers if abs(float(x)) < 2**53)
    has_unique = len(counts) > MAX_DISTINCT_NUMBERS and min(counts.values()) == 1
    return len(counts) > 2 and (has_fractions or has_unique or len(counts) > len(numbers) / 2)


def _combined_labels(counts: Counter[str]) -> list[str]:
    """Labels such as ``joy|anger``: each part is also in another label, and one or more is a label."""
    parts = {label: [part for part in LABEL_SEPARATOR.split(label) if part] for label in counts}
    uses = Counter(part for names in parts.values() for part in set(names))
    return [
        label
        for label, names in parts.items()
        if len(names) > 1 and all(uses[part] > 1 for part in names) and any(part in counts for part in names)
    ]


def _separator_fix(texts: Sequence[str]) -> str:
    """The fix for cells with several labels, with the separator that most cells have."""
    counts = Counter(mark for text in texts for mark in {*text} & {*"|;,/"})
    separator = f" '{counts.most_common(1)[0][0]}'" if counts else ""
    return f"{SEPARATOR_FIX}{separator}: an example may have several labels"


def _examples(texts: Sequence[str]) -> str:
    return ", ".join(repr(text[:40]) for text in sorted(texts)[:3])
