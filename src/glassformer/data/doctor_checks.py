"""Runs checks on a data set, and the checks shared by several kinds of data.

Each kind of data has a list of checks: see ``doctor.py``, ``image_doctor.py``, ``pair_doctor.py``.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.copies import case_insensitive_key
from glassformer.data.findings import (
    Check,
    DoctorReport,
    Finding,
    Severity,
    at_rows,
    excerpt,
    finding_of,
    listed_in_part,
    percent,
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
from glassformer.data.rejected import RejectedRow, encoding_hint, reasons_in_words
from glassformer.data.tables import OPEN_QUOTE
from glassformer.data.text import clean_text


def run_checks(
    name: str,
    splits: Mapping[str, Any],
    checks: Sequence[Check],
    rejected: Sequence[RejectedRow] = (),
    figures: dict[str, Any] | None = None,
) -> DoctorReport:
    """The report of all ``checks`` on the splits of a data set, in order.

    Args:
        rejected: skipped rows; they become the first finding.
        figures: metrics of the report, to which the checks add theirs.
    """
    figures = {} if figures is None else figures
    findings = [*bad_rows(rejected), *(finding for check in checks for finding in check(splits, figures))]
    return DoctorReport(name, in_one_table(without_classes(findings)), figures)


def each_split(*checks: Callable[[str, Any], Iterable[Finding]]) -> Check:
    """A check that runs checks of one split, ``check(name, split)``, on every split."""

    def check(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
        for (name, split), check_split in itertools.product(splits.items(), checks):
            yield from check_split(name, split)

    return check


# --- rows -----------------------------------------------------------------------------------------

DOUBLED = re.compile(r'\A\s*".*"\s*\Z|\w""|""\w', re.DOTALL).search
SHOWN = 10  # maximum number of bad rows that are listed
SKIP_THEM = ", or leave them out with --on-bad-row skip"


def bad_rows(rejected: Sequence[RejectedRow]) -> Iterable[Finding]:
    """Rows that cannot be used for training, by kind."""
    if not rejected:
        return
    rows = "1 row" if len(rejected) == 1 else f"{len(rejected):,} rows"
    examples = [f"{row.file}, row {row.row}: {row.reason}" for row in rejected[:SHOWN]]
    fix = f"correct them{SKIP_THEM}"
    if any(row.reason.startswith(OPEN_QUOTE) for row in rejected):
        hint = "set how quotes are read: --quoting none (each line is a row) or csv (line breaks in cells)"
        fix = f"{hint}; {fix}"
    if hint_encoding := encoding_hint(rejected):
        fix = f"{hint_encoding}; {fix}"
    message = f"{rows} cannot be used: {reasons_in_words(rejected)}"
    yield from finding_of("warning", "bad-rows", rejected, message, fix, shown=examples)


def without_advice_to_skip(report: DoctorReport) -> DoctorReport:
    """The report of a run, which lists bad rows only if it has skipped them already."""
    findings = [replace(f, fix=f.fix.removesuffix(SKIP_THEM)) for f in report.findings]
    return replace(report, findings=findings)


def rows_of(split: Any, places: Sequence[int], limit: int = 3) -> str:
    """Row numbers of examples, ``rows 3, 8, 9 ...``; positions if the split has no row numbers."""
    rows = [i if split.rows is None else split.rows[i] for i in places[:limit]]
    shown = ", ".join(map(str, rows)) + (" ..." if len(places) > limit else "")
    noun = "place" if split.rows is None else "row"
    return f"{noun}{'s' * (len(places) > 1)} {shown}"


def counted_texts(splits: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """How often each text occurs in each split."""
    return {name: Counter(split.texts) for name, split in splits.items()}


def duplicates(
    splits: Mapping[str, Any], figures: dict[str, Any], *, say_rows: bool = True
) -> Iterable[Finding]:
    """Texts that occur in a split more than once; with ``say_rows`` also their rows."""
    for name, count in counted_texts(splits).items():
        total, num_repeated = count.total(), count.total() - len(count)
        by_key: dict[str, list[str]] = {}
        for text in count:
            by_key.setdefault(case_insensitive_key(text), []).append(text)
        num_dropped = total - len(by_key)  # the number of rows that drop_duplicates removes
        if not num_dropped:
            yield Finding("ok", "duplicates", f"{name}: no text occurs twice")
            continue
        examples = []
        for text, n in count.most_common(3):
            texts = splits[name].texts if say_rows and n > 1 else []
            places = [i for i, other in enumerate(texts) if other == text]
            at = f" ({rows_of(splits[name], places)})" if places else ""
            examples += [f"{n} times{at}: {excerpt(text)}"] if n > 1 else []
        pairs = [texts for texts in by_key.values() if len(texts) > 1]
        for texts in pairs[: 3 - len(examples)]:
            examples.append(" ~ ".join(excerpt(text, 60) for text in texts[:2]))
        severity: Severity = "warning" if num_dropped > 0.01 * total else "note"
        message = f"{name}: {num_repeated:,} of {total:,} texts ({percent(num_repeated, total)}) repeat an "
        message += "earlier one"
        if num_dropped > num_repeated:
            message += f", {num_dropped:,} ({percent(num_dropped, total)}) when case and spaces do not count"
        fix = "leave repeats out with --set drop_duplicates=true"
        yield Finding(severity, "duplicates", message, num_repeated or num_dropped, tuple(examples), fix)


def leakage(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Texts in two splits, equal or differing only in case, punctuation, markup and white space."""
    counts = counted_texts(splits)
    tables: dict[str, dict[str, str]] = {
        name: {_words(text): text for text in count} for name, count in counts.items()
    }
    for table in tables.values():
        table.pop("", None)
    figures["leaks"] = {}
    ignoring = "when case, punctuation and markup do not count"
    for a, b in itertools.combinations(splits, 2):
        shared = [text for text in counts[a] if text in counts[b]]
        similar = sorted(tables[a].keys() & tables[b].keys())
        num_similar = len(similar) + sum(not _words(text) for text in shared)
        figures["leaks"][f"{a}/{b}"] = {"distinct": len(shared), "alike": num_similar}
        if not shared and not similar:
            yield Finding("ok", "leaks", f"no text is in both {a} and {b}")
            continue
        rows = sum(counts[b][text] for text in shared)
        examples = [excerpt(text) for text in shared[:3]]
        message = f"texts in both {a} and {b} {ignoring}: {len(similar):,}"
        if shared:
            message = f"distinct texts in both {a} and {b}: {len(shared):,} ({rows:,} rows of {b})"
            message += f"; {num_similar:,} {ignoring}" if num_similar > len(shared) else ""
        differing = [(tables[a][key], tables[b][key]) for key in similar if tables[a][key] != tables[b][key]]
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


def doubled_quotes(
    splits: Mapping[str, Any], figures: dict[str, Any], texts: str = "texts"
) -> Iterable[Finding]:
    """Quotation marks that a table format has doubled and that are still doubled after reading.

    Args:
        texts: name of the split's attribute with the texts.
    """
    for name, split in splits.items():
        values = getattr(split, texts)
        rows = [i for i, text in enumerate(values) if DOUBLED(text) is not None]
        shown = at_rows(split, rows, lambda i, values=values: excerpt(values[i], 80))
        message = f"{name}: texts in quotation marks, or with doubled quotes: {len(rows):,} of "
        message += f"{len(values):,}"
        fix = "if the table was exported twice, export it once from its original source"
        yield from finding_of("note", "quotes", rows, message, fix, shown=shown)


# --- labels ---------------------------------------------------------------------------------------

LISTED = 5  # maximum number of classes in a proposed setting that drops classes; more would be unreadable
LEFT_OUT = re.compile(r'("(?:[^"\\]|\\.)*") = ""').findall  # names of dropped classes in a TOML table


def contradictions(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Equal texts with different labels."""
    seen: dict[str, set] = {}
    for split in splits.values():
        for text, label in zip(split.texts, split.labels or ()):
            seen.setdefault(text, set()).add(label)
    if not seen:
        return
    conflicting = [(text, labels) for text, labels in seen.items() if len(labels) > 1]
    rows = ((text, " and ".join(sorted(map(str, labels)))) for text, labels in conflicting[:3])
    examples = [f"{names} ({_places(text, splits)}): {excerpt(text)}" for text, names in rows]
    multi_label = any(isinstance(label, LabelSet) for _, labels in conflicting[:1] for label in labels)
    message = f"texts that occur with different labels: {len(conflicting):,}"
    fix = "keep one label per text; 'glassformer review-labels' lists suspicious labels"
    fix = "give equal texts the same labels" if multi_label else fix
    ok = "equal texts have equal labels"
    yield from finding_of("warning", "contradictions", conflicting, message, fix, shown=examples, ok=ok)


def _places(text: str, splits: Mapping[str, Any]) -> str:
    """The rows of a text in each split."""
    places = {name: [i for i, other in enumerate(s.texts) if other == text] for name, s in splits.items()}
    single = len(splits) == 1
    return "; ".join(
        f"{'' if single else f'{name}, '}{rows_of(splits[name], at)}" for name, at in places.items() if at
    )


def odd_labels(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Labels that are not classes: numbers for regression, or multi-label cells."""
    labels = [x for split in splits.values() if not are_sets(split.labels) for x in split.labels or ()]
    if odd := find_label_problem(labels):
        yield Finding("warning", "label-kind", f"labels: {odd[0]}", len(set(map(str, labels))), fix=odd[1])


def unlabeled_names(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Classes whose names look like a missing label."""
    labels = [x for split in splits.values() for x in flat_labels(split.labels)]
    if not (names := find_missing_labels(labels)):
        return
    counts = Counter(map(str, labels))
    shown = ", ".join(f"{name!r} ({counts[name]:,})" for name in names[:5])
    what = "a class looks" if len(names) == 1 else "classes look"
    message = f"{what} like a missing label, which a model would learn to predict: {shown}"
    count = sum(counts[name] for name in names)
    yield Finding("warning", "no-label", message, count, fix=drop_class_hint(*names))


def balance(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
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
        severity: Severity = "warning" if ratio >= 10 else "note" if ratio >= 1.5 else "ok"
        message = f"{name}: {len(ranked)} classes, {n_most:,} of {most!r} to {n_least:,} of {least!r}"
        fix = ""
        if severity != "ok":
            message += f"; always predicting {most!r} scores {percent(n_most, len(split))}"
            fix = "weight the classes with --set class_weight=balanced" if name == "train" else ""
        yield Finding(severity, "balance", message, n_most - n_least, fix=fix)


def single_example_classes(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Classes with one example, which cannot be both trained and evaluated."""
    labels = splits["train"].labels if "train" in splits else None
    counts = Counter(flat_labels(labels))
    lone = sorted(str(label) for label, n in counts.items() if n == 1)
    if not lone:
        return
    message = f"train: classes with one example: {len(lone):,} ({listed_in_part([*map(repr, lone)])})"
    fix = "add examples: a random split needs two of every class"
    if len(counts) - len(lone) >= 2:  # dropping the classes leaves at least two
        fix += f"; or {drop_class_hint(*lone[:LISTED])}"
    if too_many_classes(flat_labels(labels)):
        message += f"; {len(set(flat_labels(labels))):,} classes in {len(labels or ()):,} rows"
        fix = "are these the labels? Name the column of classes with label_column"
    yield from finding_of("warning", "lone-classes", lone, message, fix, shown=lone[:10])


def missing_classes(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Classes that are missing in a split."""
    classes = {
        name: set(flat_labels(split.labels)) for name, split in splits.items() if split.labels is not None
    }
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
        yield from finding_of(severity, "missing-classes", missing, message, fix, shown=missing[:10])
    if not any(lacking.values()):
        yield Finding("ok", "missing-classes", "every split has every class")


def twin_classes(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Classes whose names are two spellings of one name."""
    known = {x for split in splits.values() for x in flat_labels(split.labels) if isinstance(x, str)}
    twins = [" and ".join(map(repr, names)) for names in written_twice(known)]
    message = "classes whose names differ only in case, white space, invisible characters, the encoding "
    message += f"of accents or the way a number is written: {len(twins):,} ({listed_in_part(twins, 3, '; ')})"
    fix = "merge them with --set merge_labels=spelling"
    ok = "near-duplicate class names: none" if known else ""
    yield from finding_of("warning", "twin-classes", twins, message, fix, shown=twins[:10], ok=ok)


def written_twice(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that are spellings of one name, see ``plain_name``."""
    spellings: dict[str, set[str]] = {}
    for name in names:
        spellings.setdefault(plain_name(name), set()).add(name)
    return sorted(sorted(same) for same in spellings.values() if len(same) > 1)


def without_classes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those about classes if the labels look like numbers or multi-label."""
    if not any(
        f.code == "label-kind" and (NUMBER_OPTION in f.fix or SEPARATOR_FIX in f.fix) for f in findings
    ):
        return list(findings)
    of_classes = ("balance", "lone-classes", "missing-classes", "twin-classes")
    return [f for f in findings if f.code not in of_classes]


def in_one_table(findings: Sequence[Finding]) -> list[Finding]:
    """Combine the fixes of findings: ``merge_labels`` can be given only once, so merging spellings and
    dropping classes are combined in one table, which both findings then propose."""
    dropped = [name for f in findings if f.code == "no-label" for name in LEFT_OUT(f.fix)]
    if not dropped or not any(f.code == "twin-classes" and f.severity == "warning" for f in findings):
        return list(findings)
    table = ", ".join(['"*" = "spelling"', *(f'{name} = ""' for name in dropped)])
    fix = f"merge and leave out with --set 'merge_labels={{{table}}}'"
    both = ("no-label", "twin-classes")
    return [replace(f, fix=fix) if f.code in both and f.fix else f for f in findings]


# --- sets of labels -------------------------------------------------------------------------------

RARE = 20  # with fewer examples of a label, its metrics are unreliable
LEAVE_EMPTY = (
    "where an empty cell means that the label is unknown, leave them out with "
    f'--set \'merge_labels={{"{NONE}" = ""}}\''
)
TIED = 0.95  # if two labels share this fraction of their examples, one of them is redundant


def multi_labels(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Labels per example, rare labels and frequent pairs of labels; yields nothing unless multi-label.

    Adds ``labels`` to ``figures``: split -> labels per example and pairs (``label_sets.together``).
    """
    sets = {name: split for name, split in splits.items() if are_sets(split.labels)}
    if not sets:
        return
    figures["labels"] = {}
    for name, split in sets.items():
        sizes, counts = Counter(map(len, split.labels)), Counter(flat_labels(split.labels))
        n = len(split.labels)
        mean = counts.total() / n
        figures["labels"][name] = {"an example": round(mean, 3), "none": sizes[0]}
        several = sum(count for size, count in sizes.items() if size > 1)
        message = f"{name}: {mean:.2f} labels per example, more than one on {percent(several, n)}"
        yield Finding("ok", "label-sets", message, several)
        if said := unlabeled_message(name, split.labels):
            texts = split.names() if hasattr(split, "images") else split.texts
            shown = tuple(excerpt(text) for text, own in zip(texts, split.labels, strict=True) if not own)
            yield Finding("note", "empty-sets", said, sizes[0], shown[:3], LEAVE_EMPTY)
        yield from _counts(name, counts, n)
    name, split = next(iter(sets.items()))
    pairs = label_pairs(split.labels)
    figures["together"], shown = {}, []
    for pair in pairs:
        both, n, lift = " + ".join(pair["labels"]), pair["count"], pair["lift"]
        figures["together"][both] = {"examples": n, "lift": round(lift, 1)}
        shown.append(f"{both}: {n:,} examples, {lift:.1f} times as often as by chance")
    if pairs:
        (a, b), n = pairs[0]["labels"], pairs[0]["count"]
        message = f"{name}: the labels that most often occur together are {a!r} and {b!r} ({n:,})"
        yield Finding("note", "co-occurrence", message, n, tuple(shown))
    tied = [pair for pair in pairs if min(pair["of_first"], pair["of_second"]) >= TIED and pair["count"] > 2]
    names = "; ".join(" and ".join(map(repr, pair["labels"])) for pair in tied[:3])
    message = f"{name}: labels that almost always occur together: {len(tied)} ({names})"
    fix = "merge them with merge_labels, unless they differ in the data that the model will read"
    yield from finding_of("warning", "tied-labels", tied, message, fix, shown=())


def unlabeled_message(name: str, labels: Sequence[Any] | None) -> str:
    """A message with the number of examples without a label; empty if all have labels."""
    empty = sum(not label_set for label_set in labels or ()) if are_sets(labels) else 0
    if not empty:
        return ""
    count = f"{empty:,} of {len(labels or ()):,}"
    return f"{name}: examples without a label: {count}, learned and evaluated as 'none of these'"


def _counts(name: str, counts: Counter[Any], n: int) -> Iterable[Finding]:
    if not counts:
        yield Finding("warning", "balance", f"{name}: no example has a label", n)
        return
    (most, n_most), (least, n_least) = counts.most_common()[0], counts.most_common()[-1]
    severity: Severity = "note" if n_most / n_least >= 10 else "ok"
    message = f"{name}: {len(counts)} labels, {n_most:,} examples with {most!r} to {n_least:,} with {least!r}"
    fix = "weight positive examples of rare labels with --set pos_weight=root" if severity == "note" else ""
    yield Finding(severity, "balance", message, n_most - n_least, fix=fix)
    rare = sorted(str(label) for label, count in counts.items() if count < RARE)
    shown = listed_in_part([*map(repr, rare)])
    message = f"{name}: labels on fewer than {RARE} examples: {len(rare):,} ({shown})"
    fix = "add examples of these labels, or drop the labels: their metrics are unreliable"
    yield from finding_of("note", "rare-labels", rare, message, fix, shown=rare[:10])


# The checks of the labels of texts, in the order of the report.
LABELS: list[Check] = [contradictions, odd_labels, unlabeled_names, balance]
LABELS += [multi_labels, single_example_classes, missing_classes, twin_classes]
