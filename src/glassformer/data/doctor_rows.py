"""The data doctor on rows: those that cannot be used, texts that stand there twice, texts in two splits."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glassformer.data.checks import place
from glassformer.data.copies import same_but_for_case
from glassformer.data.dataset import TextSplit
from glassformer.data.doubtful import OPENS
from glassformer.data.findings import Finding, Severity, excerpt, percent
from glassformer.data.rejected import RejectedRow, by_kind, other_reading
from glassformer.data.text import clean_text

DOUBLED = re.compile(r'\A\s*".*"\s*\Z|\w""|""\w', re.DOTALL).search
SHOWN = 10  # bad rows that are listed


def bad_rows(rejected: Sequence[RejectedRow]) -> Iterable[Finding]:
    """Rows that no training can use, by kind."""
    if not rejected:
        return
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    message = f"{rows} cannot be used: {by_kind(rejected)}"
    examples = tuple(f"{row.file}, row {row.row}: {row.reason}" for row in rejected[:SHOWN])
    fix = "correct them, or leave them out with --on-bad-row skip"
    if any(row.reason.startswith(OPENS) for row in rejected):
        fix = (
            f"say what quotes mean with --quoting none (each line is a row) or csv (cells have lines); {fix}"
        )
    if other := other_reading(rejected):
        fix = f"{other}; {fix}"
    yield Finding("warning", "bad-rows", message, len(rejected), examples, fix)


def rows_of(split: Any, found: Sequence[int], most: int = 3) -> str:
    """Where some examples of a split stand: ``rows 3, 8, 9 ...``; their places where it has no rows."""
    rows = [i if split.rows is None else split.rows[i] for i in found[:most]]
    shown = ", ".join(map(str, rows)) + (" ..." if len(found) > most else "")
    noun = "place" if split.rows is None else "row"
    return f"{noun}{'s' * (len(found) > 1)} {shown}"


def repeats(counts: Mapping[str, Counter[str]], splits: Mapping[str, Any] | None = None) -> Iterable[Finding]:
    """Texts that stand in a split more than once.

    Args:
        splits: where their rows are looked up; None: the examples are the texts alone.
    """
    for name, count in counts.items():
        total, again = count.total(), count.total() - len(count)
        loose: dict[str, list[str]] = {}
        for text in count:
            loose.setdefault(same_but_for_case(text), []).append(text)
        alike = total - len(loose)  # what drop_duplicates leaves out
        if not alike:
            yield Finding("ok", "duplicates", f"{name}: no text occurs twice")
            continue
        often = []
        for text, n in count.most_common(3):
            split = splits[name] if splits else None
            found = [i for i, own in enumerate(split.texts) if own == text] if split and n > 1 else []
            at = f" ({rows_of(split, found)})" if found else ""
            often += [f"{n} times{at}: {excerpt(text)}"] if n > 1 else []
        pairs = [texts for texts in loose.values() if len(texts) > 1]
        often += [" ~ ".join(excerpt(text, 60) for text in texts[:2]) for texts in pairs[: 3 - len(often)]]
        severity: Severity = "warning" if alike > 0.01 * total else "note"
        message = f"{name}: {again:,} of {total:,} texts ({percent(again, total)}) repeat an earlier one"
        if alike > again:
            message += f", {alike:,} ({percent(alike, total)}) when case and spaces do not count"
        fix = "leave repeats out with --set drop_duplicates=true"
        yield Finding(severity, "duplicates", message, again or alike, tuple(often), fix)


def leaks(
    splits: Mapping[str, TextSplit], counts: Mapping[str, Counter[str]], figures: dict[str, Any]
) -> Iterable[Finding]:
    """Texts in two splits: equal ones, and equal but for case, punctuation, markup and white space."""
    loose: dict[str, dict[str, str]] = {
        name: {_words(text): text for text in count} for name, count in counts.items()
    }
    for table in loose.values():
        table.pop("", None)
    figures["leaks"] = {}
    for a, b in itertools.combinations(splits, 2):
        shared = [text for text in counts[a] if text in counts[b]]
        alike = sorted(loose[a].keys() & loose[b].keys())
        loosely = len(alike) + sum(not _words(text) for text in shared)
        figures["leaks"][f"{a}/{b}"] = {"distinct": len(shared), "alike": loosely}
        if not shared and not alike:
            yield Finding("ok", "leaks", f"no text stands in both {a} and {b}")
            continue
        rows = sum(counts[b][text] for text in shared)
        examples = [excerpt(text) for text in shared[:3]]
        if shared:
            message = f"distinct texts in both {a} and {b}: {len(shared):,} ({rows:,} rows of {b})"
            more = f"; {loosely:,} when case, punctuation and markup do not count"
            message += more if loosely > len(shared) else ""
        else:
            so = "when case, punctuation and markup do not count"
            message = f"texts in both {a} and {b} {so}: {len(alike):,}"
        other = [(loose[a][key], loose[b][key]) for key in alike if loose[a][key] != loose[b][key]]
        examples += [f"{excerpt(x, 60)} ~ {excerpt(y, 60)}" for x, y in other[: 3 - len(examples)]]
        if "unsupervised" in (a, b):
            message += "; leave them out when pre-training on unsupervised"
            yield Finding("note", "leaks", message, len(shared), tuple(examples))
            continue
        fix = f"leave them out of {a} with --set drop_duplicates=true"
        fix += "" if shared else " (those that differ in case and spaces only)"
        yield Finding("warning", "leaks", message, len(shared) or len(alike), tuple(examples), fix)


def _words(text: str) -> str:
    """A text without case, punctuation and markup; empty where it has no word."""
    return clean_text(text, "words").casefold()


def doubled_quotes(splits: Mapping[str, Any], texts: str = "texts") -> Iterable[Finding]:
    """Quotation marks that a table's format has doubled, and that reading it once did not take away.

    Args:
        texts: the attribute of a split that holds them.
    """
    for name, split in splits.items():
        values = getattr(split, texts)
        rows = [i for i, text in enumerate(values) if DOUBLED(text) is not None]
        if not rows:
            continue
        shown = tuple(f"{place(split.origin, i, split.rows)}: {excerpt(values[i], 80)}" for i in rows[:3])
        message = f"{name}: texts in quotation marks, or with doubled ones: {len(rows):,} of {len(values):,}"
        fix = "if the table was exported twice, export it once from where the texts come from"
        yield Finding("note", "quotes", message, len(rows), shown, fix)
