"""Data doctor checks that several kinds of data share.

The doctor of each kind lists its checks: see ``doctor.py``, ``image_doctor.py``, ``pair_doctor.py``.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.checks import row_location
from glassformer.data.dataset import Dataset
from glassformer.data.duplicates import case_insensitive_key, conflicts, group_by
from glassformer.data.findings import (
    Check,
    DoctorReport,
    Finding,
    Findings,
    Stats,
    excerpt,
    listed_in_part,
    percent,
    row_examples,
)
from glassformer.data.label_kinds import (
    NUMBER_OPTION,
    SEPARATOR_FIX,
    drop_class_hint,
    find_label_problem,
    find_missing_labels,
    plain_name,
    too_many_classes,
)
from glassformer.data.label_sets import NONE, LabelSet, are_sets, flat_labels, label_pairs
from glassformer.data.rejected import RejectedRow, encoding_hint, group_reasons
from glassformer.data.tables import OPEN_QUOTE
from glassformer.data.text import clean_text


def run_checks(dataset: Dataset, checks: Sequence[Check], stats: Stats) -> DoctorReport:
    """Run ``checks`` on the splits of a data set, and return a report that also lists the skipped rows.

    Args:
        stats: statistics of the report; the checks may add more.
    """
    findings = [*bad_rows(dataset.rejected)]
    findings += (finding for check in checks for finding in check(dataset.splits, stats))
    return DoctorReport(dataset.name, merge_label_fixes(drop_class_findings(findings)), stats)


def each_split(*checks: Callable[[str, Any], Findings]) -> Check:
    """A check of a data set that runs every one of ``checks`` on every split."""

    def check(splits: Mapping[str, Any], stats: Stats) -> Findings:
        for (name, split), check_split in itertools.product(splits.items(), checks):
            yield from check_split(name, split)

    return check


# --- rows -----------------------------------------------------------------------------------------

has_doubled_quotes = re.compile(
    r'\A\s*".*"\s*\Z|\w""|""\w', re.DOTALL
).search  # '"a text"', 'a ""quoted"" text'
MAX_LISTED_ROWS = 10  # maximum number of bad rows that are listed
SKIP_FIX = ", or train without them: --on-bad-row skip"


def bad_rows(rejected: Sequence[RejectedRow]) -> Findings:
    """Rows that cannot be used for training, by reason."""
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    examples = [f"{row_location(row.file, row.row)}: {row.reason}" for row in rejected[:MAX_LISTED_ROWS]]
    if (more := len(rejected) - MAX_LISTED_ROWS) > 0:
        examples.append(f"and {more:,} more")
    fix = f"correct them{SKIP_FIX}"
    if any(row.reason.startswith(OPEN_QUOTE) for row in rejected):
        hint = "set how quotes are read: --quoting none (each line is a row) or csv (line breaks in cells)"
        fix = f"{hint}; {fix}"
    if hint_encoding := encoding_hint(rejected):
        fix = f"{hint_encoding}; {fix}"
    message = f"{rows} cannot be used: {group_reasons(rejected)}"
    yield from Finding.if_any("warning", "bad-rows", rejected, message, fix, shown=examples)


def without_skip_fix(report: DoctorReport) -> DoctorReport:
    """The report without the advice to skip bad rows, for a run that has already skipped them."""
    findings = [replace(f, fix=f.fix.removesuffix(SKIP_FIX)) for f in report.findings]
    return replace(report, findings=findings)


def format_rows(split: Any, positions: Sequence[int], limit: int = 3) -> str:
    """The row numbers of examples, such as ``rows 3, 8, 9 ...``; without row numbers, their positions."""
    rows = [i if split.rows is None else split.rows[i] for i in positions[:limit]]
    shown = ", ".join(map(str, rows)) + (" ..." if len(positions) > limit else "")
    noun = "place" if split.rows is None else "row"
    return f"{noun}{'s' * (len(positions) > 1)} {shown}"


def count_texts(splits: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """How often each text occurs in each split."""
    return {name: Counter(split.texts) for name, split in splits.items()}


def duplicates(splits: Mapping[str, Any], stats: Stats, *, with_rows: bool = True) -> Findings:
    """Texts that occur more than once in a split; if ``with_rows``, the examples name their rows."""
    for name, counts in count_texts(splits).items():
        total, num_repeated = counts.total(), counts.total() - len(counts)
        by_key = group_by(counts, case_insensitive_key)
        num_dropped = total - len(by_key)  # the number of rows that drop_duplicates removes
        if not num_dropped:
            yield Finding("ok", "duplicates", f"{name}: no text occurs twice")
            continue
        examples = []
        for text, n in counts.most_common(3):
            texts = splits[name].texts if with_rows and n > 1 else []
            positions = [i for i, other in enumerate(texts) if other == text]
            rows = f" ({format_rows(splits[name], positions)})" if positions else ""
            examples += [f"{n} times{rows}: {excerpt(text)}"] if n > 1 else []
        similar = [texts for texts in by_key.values() if len(texts) > 1]
        for texts in similar[: 3 - len(examples)]:
            examples.append(" ~ ".join(excerpt(text, 60) for text in texts[:2]))
        severity = "warning" if num_dropped > 0.01 * total else "note"
        message = f"{name}: {num_repeated:,} of {total:,} texts ({percent(num_repeated, total)}) repeat an "
        message += "earlier one"
        if num_dropped > num_repeated:
            message += f", {num_dropped:,} ({percent(num_dropped, total)}) when case and spaces do not count"
        fix = "leave duplicates out with --set drop_duplicates=true"
        yield Finding(severity, "duplicates", message, num_repeated or num_dropped, tuple(examples), fix)


def leakage(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Texts in two splits that are equal, or differ only in case, punctuation, markup and white space."""
    counts = count_texts(splits)
    by_words: dict[str, dict[str, str]] = {  # split -> words of a text -> text
        name: {words: text for text in count if (words := _words(text))} for name, count in counts.items()
    }
    stats["leaks"] = {}
    ignoring = "when case, punctuation and markup do not count"
    for a, b in itertools.combinations(splits, 2):
        shared = [text for text in counts[a] if text in counts[b]]
        similar = sorted(by_words[a].keys() & by_words[b].keys())
        num_similar = len(similar) + sum(not _words(text) for text in shared)
        stats["leaks"][f"{a}/{b}"] = {"distinct": len(shared), "alike": num_similar}
        if not shared and not similar:
            yield Finding("ok", "leaks", f"no text is in both {a} and {b}")
            continue
        rows = sum(counts[b][text] for text in shared)
        examples = [excerpt(text) for text in shared[:3]]
        message = f"texts in both {a} and {b} {ignoring}: {len(similar):,}"
        if shared:
            message = f"distinct texts in both {a} and {b}: {len(shared):,} ({rows:,} rows of {b})"
            message += f"; {num_similar:,} {ignoring}" if num_similar > len(shared) else ""
        variants = [(by_words[a][words], by_words[b][words]) for words in similar]
        differing = [(x, y) for x, y in variants if x != y]
        examples += [f"{excerpt(x, 60)} ~ {excerpt(y, 60)}" for x, y in differing[: 3 - len(examples)]]
        if "unsupervised" in (a, b):
            message += "; leave them out when pre-training on unsupervised"
            yield Finding("note", "leaks", message, len(shared), tuple(examples))
            continue
        fix = f"drop them from {a} with --set drop_duplicates=true"
        fix += "" if shared else " (only texts that differ in case and spaces)"
        yield Finding("warning", "leaks", message, len(shared) or len(similar), tuple(examples), fix)


def _words(text: str) -> str:
    """A text without case, punctuation and markup; empty if it has no words."""
    return clean_text(text, "words").casefold()


def doubled_quotes(splits: Mapping[str, Any], stats: Stats, texts: str = "texts") -> Findings:
    """Texts in which the quotation marks are still doubled after a table is read.

    Args:
        texts: name of the split's attribute with the texts.
    """
    for name, split in splits.items():
        values = getattr(split, texts)
        rows = [i for i, text in enumerate(values) if has_doubled_quotes(text) is not None]
        shown = row_examples(split, rows, lambda i, values=values: excerpt(values[i], 80))
        message = f"{name}: texts in quotation marks, or with doubled quotes: {len(rows):,} of "
        message += f"{len(values):,}"
        fix = "if the table was exported twice, export it once from its original source"
        yield from Finding.if_any("note", "quotes", rows, message, fix, shown=shown)


# --- labels ---------------------------------------------------------------------------------------

MAX_DROPPED = 5  # maximum number of classes in a proposed setting that drops classes
find_dropped_names = re.compile(r'("(?:[^"\\]|\\.)*") = ""').findall  # '"n/a"' in a fix with {"n/a" = ""}


def contradictions(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Equal texts with different labels."""
    labeled = [split for split in splits.values() if split.labels]
    examples = (example for split in labeled for example in zip(split.texts, split.labels))
    conflicting = [*conflicts(examples).items()]
    examples = [
        f"{' and '.join(sorted(map(str, labels)))} ({_rows_in_splits(text, splits)}): {excerpt(text)}"
        for text, labels in conflicting[:3]
    ]
    is_multilabel = any(isinstance(label, LabelSet) for _, labels in conflicting[:1] for label in labels)
    message = f"texts that occur with different labels: {len(conflicting):,}"
    fix = "keep one label per text; 'glassformer review-labels' lists suspicious labels"
    fix = "give equal texts the same labels" if is_multilabel else fix
    ok = "equal texts have equal labels" if labeled else ""
    yield from Finding.if_any("warning", "contradictions", conflicting, message, fix, shown=examples, ok=ok)


def _rows_in_splits(text: str, splits: Mapping[str, Any]) -> str:
    """The rows of a text in each split."""
    parts = []
    for name, split in splits.items():
        if positions := [i for i, other in enumerate(split.texts) if other == text]:
            prefix = "" if len(splits) == 1 else f"{name}, "
            parts.append(f"{prefix}{format_rows(split, positions)}")
    return "; ".join(parts)


def label_problems(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Labels that are not classes: numbers for regression, or multi-label cells."""
    labels = [x for split in splits.values() if not are_sets(split.labels) for x in split.labels or ()]
    if problem := find_label_problem(labels):
        what, fix = problem
        yield Finding("warning", "label-kind", what, len(set(map(str, labels))), fix=fix)


def missing_names(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Classes whose names look like a missing label."""
    labels = [x for split in splits.values() for x in flat_labels(split.labels)]
    if not (names := find_missing_labels(labels)):
        return
    counts = Counter(map(str, labels))
    shown = ", ".join(f"{name!r} ({counts[name]:,})" for name in names[:5])
    subject = "a class looks" if len(names) == 1 else "classes look"
    message = f"{subject} like a missing label, which a model would learn to predict: {shown}"
    count = sum(counts[name] for name in names)
    yield Finding("warning", "no-label", message, count, fix=drop_class_hint(*names))


def balance(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """How balanced the classes are."""
    for name, split in splits.items():
        ranked = [] if are_sets(split.labels) else Counter(split.labels or ()).most_common()
        if not ranked:
            continue
        (most, n_most), (least, n_least) = ranked[0], ranked[-1]
        if len(ranked) == 1:
            yield Finding("warning", "balance", f"{name}: one class only ({most!r})", n_most)
            continue
        ratio = n_most / n_least
        severity = "warning" if ratio >= 10 else "note" if ratio >= 1.5 else "ok"
        message = f"{name}: {len(ranked)} classes, {n_most:,} of {most!r} to {n_least:,} of {least!r}"
        fix = ""
        if severity != "ok":
            message += f"; always predicting {most!r} scores {percent(n_most, len(split))}"
            fix = "weight the classes with --set class_weight=balanced" if name == "train" else ""
        yield Finding(severity, "balance", message, n_most - n_least, fix=fix)


def single_example_classes(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Classes with one example, which cannot be in both training and evaluation."""
    labels = splits["train"].labels if "train" in splits else None
    counts = Counter(flat_labels(labels))
    single = sorted(str(label) for label, n in counts.items() if n == 1)
    message = f"train: classes with one example: {len(single):,} ({listed_in_part([*map(repr, single)])})"
    fix = "add examples: a random split needs two of every class"
    if len(counts) - len(single) >= 2:  # at least two classes remain
        fix += f"; or {drop_class_hint(*single[:MAX_DROPPED])}"
    if too_many_classes(flat_labels(labels)):
        message += f"; {len(counts):,} classes in {len(labels or ()):,} rows"
        fix = "are these the labels? Name the column of classes with label_column"
    yield from Finding.if_any("warning", "lone-classes", single, message, fix, shown=single[:10])


def missing_classes(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Classes that are missing in a split."""
    labeled = {name: split for name, split in splits.items() if split.labels is not None}
    classes = {name: set(flat_labels(split.labels)) for name, split in labeled.items()}
    if len(classes) < 2:
        return
    all_classes = set().union(*classes.values())
    lacking = {name: sorted(map(str, all_classes - present)) for name, present in classes.items()}
    for name, missing in lacking.items():
        severity, fix = "note", ""
        if name == "train" and missing:
            hint = f"give it examples ({', '.join(map(repr, missing[:3]))})"
            severity, reason = "warning", "since a class without training examples is never predicted"
            fix = f"{hint}, {reason}; or {drop_class_hint(missing[0])}"
        message = f"{name} lacks {len(missing)} of {len(all_classes)} classes"
        yield from Finding.if_any(severity, "missing-classes", missing, message, fix, shown=missing[:10])
    if not any(lacking.values()):
        yield Finding("ok", "missing-classes", "every split has every class")


def twin_classes(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Classes whose names are different spellings of one name."""
    names = {x for split in splits.values() for x in flat_labels(split.labels) if isinstance(x, str)}
    groups = group_spellings(names)
    message = "classes whose names differ only in case, white space, invisible characters, the encoding "
    shown = listed_in_part(groups, 3, "; ")
    message += f"of accents or the way a number is written: {len(groups):,} ({shown})"
    fix = "merge them with --set merge_labels=spelling"
    ok = "near-duplicate class names: none" if names else ""
    yield from Finding.if_any("warning", "twin-classes", groups, message, fix, shown=groups[:10], ok=ok)


def group_spellings(names: Collection[str]) -> list[str]:
    """Groups of names that are spellings of one name (see ``plain_name``), such as "'Yes' and 'yes'"."""
    groups = sorted(group for group in group_by(sorted(names), plain_name).values() if len(group) > 1)
    return [" and ".join(map(repr, group)) for group in groups]


def drop_class_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Drop the findings about classes if another finding says that the labels are not classes."""
    fixes = [f.fix for f in findings if f.code == "label-kind"]
    if not any(part in fix for fix in fixes for part in (NUMBER_OPTION, SEPARATOR_FIX)):
        return list(findings)
    about_classes = ("balance", "lone-classes", "missing-classes", "twin-classes")
    return [f for f in findings if f.code not in about_classes]


def merge_label_fixes(findings: Sequence[Finding]) -> list[Finding]:
    """Combine the fixes that merge spellings and drop classes, since both set ``merge_labels``."""
    dropped = [name for f in findings if f.code == "no-label" for name in find_dropped_names(f.fix)]
    if not dropped or not any(f.code == "twin-classes" and f.severity == "warning" for f in findings):
        return list(findings)
    table = ", ".join(['"*" = "spelling"', *(f'{name} = ""' for name in dropped)])
    fix = f"merge and leave out with --set 'merge_labels={{{table}}}'"
    both = ("no-label", "twin-classes")
    return [replace(f, fix=fix) if f.code in both and f.fix else f for f in findings]


# --- multi-label data -----------------------------------------------------------------------------

MIN_EXAMPLES = 20  # with fewer examples of a label, its metrics are unreliable
EMPTY_FIX = "if an empty cell means that the label is unknown, leave these examples out with "
EMPTY_FIX += f'--set \'merge_labels={{"{NONE}" = ""}}\''
REDUNDANT_SHARE = 0.95  # if two labels share this fraction of their examples, one of them is redundant


def multilabel(splits: Mapping[str, Any], stats: Stats) -> Findings:
    """Labels per example, rare labels and frequent pairs of labels; yields nothing unless multi-label.

    Adds ``labels`` (split -> labels per example) and ``together`` (frequent pairs of labels) to ``stats``.
    """
    sets = {name: split for name, split in splits.items() if are_sets(split.labels)}
    if not sets:
        return
    stats["labels"] = {}
    for name, split in sets.items():
        sizes, counts = Counter(map(len, split.labels)), Counter(flat_labels(split.labels))
        n = len(split.labels)
        mean = counts.total() / n
        stats["labels"][name] = {"an example": round(mean, 3), "none": sizes[0]}
        num_several = sum(count for size, count in sizes.items() if size > 1)
        message = f"{name}: {mean:.2f} labels per example, more than one on {percent(num_several, n)}"
        yield Finding("ok", "label-sets", message, num_several)
        if message := unlabeled_message(name, split.labels):
            texts = split.names() if hasattr(split, "images") else split.texts
            shown = tuple(excerpt(x) for x, labels in zip(texts, split.labels, strict=True) if not labels)
            yield Finding("note", "empty-sets", message, sizes[0], shown[:3], EMPTY_FIX)
        yield from _label_counts(name, counts, n)
    name, split = next(iter(sets.items()))
    pairs = label_pairs(split.labels)
    stats["together"], shown = {}, []
    for pair in pairs:
        both, n, lift = " + ".join(pair["labels"]), pair["count"], pair["lift"]
        stats["together"][both] = {"examples": n, "lift": round(lift, 1)}
        shown.append(f"{both}: {n:,} examples, {lift:.1f} times as often as by chance")
    if pairs:
        (a, b), n = pairs[0]["labels"], pairs[0]["count"]
        message = f"{name}: the labels that most often occur together are {a!r} and {b!r} ({n:,})"
        yield Finding("note", "co-occurrence", message, n, tuple(shown))
    redundant = [pair for pair in pairs if min(pair["of_first"], pair["of_second"]) >= REDUNDANT_SHARE]
    redundant = [pair for pair in redundant if pair["count"] > 2]
    names = "; ".join(" and ".join(map(repr, pair["labels"])) for pair in redundant[:3])
    message = f"{name}: labels that almost always occur together: {len(redundant)} ({names})"
    fix = "merge them with merge_labels, unless they differ in the data that the model will read"
    yield from Finding.if_any("warning", "tied-labels", redundant, message, fix, shown=())


def unlabeled_message(name: str, labels: Sequence[Any] | None) -> str:
    """A message with the number of examples without a label; empty if all examples have labels."""
    num_empty = sum(not label_set for label_set in labels or ()) if are_sets(labels) else 0
    if not num_empty:
        return ""
    count = f"{num_empty:,} of {len(labels or ()):,}"
    return f"{name}: examples without a label: {count}, learned and evaluated as 'none of these'"


def _label_counts(name: str, counts: Counter[Any], n: int) -> Findings:
    if not counts:
        yield Finding("warning", "balance", f"{name}: no example has a label", n)
        return
    (most, n_most), (least, n_least) = counts.most_common()[0], counts.most_common()[-1]
    severity = "note" if n_most / n_least >= 10 else "ok"
    message = f"{name}: {len(counts)} labels, {n_most:,} examples with {most!r} to {n_least:,} with {least!r}"
    fix = "weight positive examples of rare labels with --set pos_weight=root" if severity == "note" else ""
    yield Finding(severity, "balance", message, n_most - n_least, fix=fix)
    rare = sorted(str(label) for label, count in counts.items() if count < MIN_EXAMPLES)
    shown = listed_in_part([*map(repr, rare)])
    message = f"{name}: labels on fewer than {MIN_EXAMPLES} examples: {len(rare):,} ({shown})"
    fix = "add examples of these labels, or drop the labels: their metrics are unreliable"
    yield from Finding.if_any("note", "rare-labels", rare, message, fix, shown=rare[:10])


# The checks of the labels of texts, in the order of the report.
LABEL_CHECKS: list[Check] = [contradictions, label_problems, missing_names, balance]
LABEL_CHECKS += [multilabel, single_example_classes, missing_classes, twin_classes]
