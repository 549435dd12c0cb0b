"""The data doctor on labels: contradictions, balance, missing classes, one class under two names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.dataset import TextSplit
from glassformer.data.doctor_rows import rows_of
from glassformer.data.findings import Finding, Severity, excerpt, percent
from glassformer.data.label_kinds import (
    NUMBER,
    SEVERAL,
    hardly_classes,
    missing_names,
    plain_name,
    what_labels_are,
    without_class,
)
from glassformer.data.label_sets import LabelSet, are_sets, each

LISTED = 5  # classes that one setting leaves out; with more it would be longer than anybody reads
LEFT_OUT = re.compile(r'("(?:[^"\\]|\\.)*") = ""').findall  # names, as a table in TOML has them


def contradictions(splits: Mapping[str, TextSplit]) -> Iterable[Finding]:
    """Equal texts under several labels."""
    seen: dict[str, set] = {}
    for split in splits.values():
        for text, label in zip(split.texts, split.labels or ()):
            seen.setdefault(text, set()).add(label)
    if not seen:
        return
    both = [(text, labels) for text, labels in seen.items() if len(labels) > 1]
    if both:
        examples = tuple(
            f"{' and '.join(sorted(map(str, lab)))} ({_places(text, splits)}): {excerpt(text)}"
            for text, lab in both[:3]
        )
        several = any(isinstance(label, LabelSet) for label in both[0][1])
        message = (
            f"distinct texts with {'different labels' if several else 'more than one label'}: {len(both):,}"
        )
        fix = "keep one label of each; glassformer review-labels says which is doubtful"
        fix = "label them alike" if several else fix
        yield Finding("warning", "contradictions", message, len(both), examples, fix)
    else:
        yield Finding("ok", "contradictions", "equal texts have equal labels")


def _places(text: str, splits: Mapping[str, TextSplit]) -> str:
    """The rows of a text, split by split."""
    found = {name: [i for i, own in enumerate(s.texts) if own == text] for name, s in splits.items()}
    alone = len(splits) == 1
    return "; ".join(
        f"{'' if alone else f'{name}, '}{rows_of(splits[name], at)}" for name, at in found.items() if at
    )


def odd_labels(splits: Mapping[str, Any]) -> Iterable[Finding]:
    """Labels that are no classes: numbers to be predicted, several in one cell."""
    labels = [x for split in splits.values() if not are_sets(split.labels) for x in split.labels or ()]
    if odd := what_labels_are(labels):
        yield Finding("warning", "label-kind", f"labels: {odd[0]}", len(set(map(str, labels))), fix=odd[1])


def no_labels(labels: Sequence[Any]) -> Iterable[Finding]:
    """Classes whose names mean that an example has no label."""
    if not (found := missing_names(labels)):
        return
    counts = Counter(map(str, labels))
    listed = ", ".join(f"{name!r} ({counts[name]:,})" for name in found[:5])
    what = "a class looks" if len(found) == 1 else "classes look"
    message = f"{what} like a missing label, which a model would learn to answer: {listed}"
    yield Finding(
        "warning", "no-label", message, sum(counts[name] for name in found), fix=without_class(*found)
    )


def balance(splits: Mapping[str, TextSplit]) -> Iterable[Finding]:
    """How even the classes are."""
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
        if severity != "ok":
            message += f"; always answering {most!r} scores {percent(n_most, len(split))}"
        fix = (
            ""
            if severity == "ok" or name != "train"
            else "weigh the classes with --set class_weight=balanced"
        )
        yield Finding(severity, "balance", message, n_most - n_least, fix=fix)


def lone_classes(splits: Mapping[str, TextSplit]) -> Iterable[Finding]:
    """Classes with one example, which cannot be learnt and judged."""
    labels = splits["train"].labels if "train" in splits else None
    lone = sorted(str(label) for label, n in Counter(each(labels)).items() if n == 1)
    if lone:
        listed = ", ".join(map(repr, lone[:3])) + (f" and {len(lone) - 3:,} more" if len(lone) > 3 else "")
        message = f"train: classes with one example: {len(lone):,} ({listed})"
        fix = f"add examples of it: a random split needs two; or {without_class(*lone[:LISTED])}"
        if hardly_classes(each(labels)):
            message += f"; {len(set(each(labels))):,} classes in {len(labels or ()):,} rows"
            fix = "are these the labels? Name the column of classes with label_column"
        yield Finding("warning", "lone-classes", message, len(lone), tuple(lone[:10]), fix)


def missing_classes(splits: Mapping[str, TextSplit]) -> Iterable[Finding]:
    """Classes that a split lacks."""
    classes = {name: set(each(split.labels)) for name, split in splits.items() if split.labels is not None}
    if len(classes) < 2:
        return
    everything = set().union(*classes.values())
    lacking = {name: sorted(map(str, everything - found)) for name, found in classes.items()}
    for name, missing in lacking.items():
        if missing:
            severity: Severity = "warning" if name == "train" else "note"
            message = f"{name} lacks {len(missing)} of {len(everything)} classes"
            given = (
                f"give it examples ({', '.join(map(repr, missing[:3]))}), for what is not learned is never "
            )
            fix = f"{given}answered; or {without_class(missing[0])}" if name == "train" else ""
            yield Finding(severity, "missing-classes", message, len(missing), tuple(missing[:10]), fix)
    if not any(lacking.values()):
        yield Finding("ok", "missing-classes", "every split has every class")


def twin_classes(splits: Mapping[str, TextSplit]) -> Iterable[Finding]:
    """Classes whose names are one name, written in two ways."""
    known = {x for split in splits.values() for x in each(split.labels) if isinstance(x, str)}
    twins = [" and ".join(map(repr, names)) for names in written_twice(known)]
    if twins:
        listed = "; ".join(twins[:3]) + (f" and {len(twins) - 3:,} more" if len(twins) > 3 else "")
        message = "classes whose names differ only in case, white space, invisible characters, the encoding "
        message += f"of accents or the way a number is written: {len(twins):,} ({listed})"
        fix = "make one of them with --set merge_labels=spelling"
        yield Finding("warning", "twin-classes", message, len(twins), tuple(twins[:10]), fix)
    elif known:
        yield Finding("ok", "twin-classes", "no class is written in two ways")


def written_twice(names: Iterable[str]) -> list[list[str]]:
    """The names that are one name, written in several ways, see ``plain_name``."""
    spellings: dict[str, set[str]] = {}
    for name in names:
        spellings.setdefault(plain_name(name), set()).add(name)
    return sorted(sorted(same) for same in spellings.values() if len(same) > 1)


def without_classes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, less what is said of classes where the labels look like numbers, or like several each."""
    if not any(f.code == "label-kind" and (NUMBER in f.fix or SEVERAL in f.fix) for f in findings):
        return list(findings)
    of_classes = ("balance", "lone-classes", "missing-classes", "twin-classes")
    return [f for f in findings if f.code not in of_classes]


def in_one_table(findings: Sequence[Finding]) -> list[Finding]:
    """Findings whose ways out do not undo each other: ``merge_labels`` can be given once, so that merging by
    spelling and leaving classes out are put into one table, which both findings then name."""
    out = [name for f in findings if f.code == "no-label" for name in LEFT_OUT(f.fix)]
    if not out or not any(f.code == "twin-classes" and f.severity == "warning" for f in findings):
        return list(findings)
    table = ", ".join(['"*" = "spelling"', *(f'{name} = ""' for name in out)])
    fix = f"merge and leave out with --set 'merge_labels={{{table}}}'"
    both = ("no-label", "twin-classes")
    return [replace(f, fix=fix) if f.code in both and f.fix else f for f in findings]
