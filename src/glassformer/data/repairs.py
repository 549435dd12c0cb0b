"""Repairs of a data set: merge labels, and drop duplicates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import join_names, suggest
from glassformer.data.checks import location
from glassformer.data.dataset import label_names
from glassformer.data.duplicates import case_insensitive_key, group_by, image_digest
from glassformer.data.findings import Finding, listed_in_part
from glassformer.data.label_kinds import NUMBER_OPTION, find_proposed_separator, plain_name
from glassformer.data.label_sets import NONE, LabelSet, are_sets, flat_labels
from glassformer.errors import BadValueError, NotForThisModelError

OTHER_LABELS = "*"  # key of a ``merge_labels`` table: all labels that the table does not name
MAX_SHOWN = 3  # examples in a sentence
SPLIT_PRIORITY = ("test", "validation")  # a duplicate stays in these splits and is dropped from other splits


def apply_repairs(
    dataset: Any, merge_labels: str | Mapping[str, Any], drop_duplicates: bool
) -> tuple[Any, list[str]]:
    """Apply the requested repairs to a data set of texts or images.

    Args:
        merge_labels: ``none``; ``spelling``: merge classes whose names differ only in case or white space,
            and use the most frequent name; or a table old name -> new name, in which an empty new name drops
            the class. In such a table ``"*" = "spelling"`` merges the other classes by spelling. For
            multi-label data ``{"(none)" = ""}`` drops the examples without a label.
        drop_duplicates: whether to drop repeated examples within a split, and training examples that are also
            in another split. Texts are compared without case and spaces.

    Returns:
        The repaired data set, and one sentence per change.

    Raises:
        ConfigError: ``merge_labels`` is invalid, or names only unknown classes.
    """
    messages: list[str] = []
    if merge_labels != "none":
        dataset = _merge_labels(dataset, merge_labels, messages)
    if drop_duplicates:
        dataset = _drop_duplicates(dataset, messages)
    return dataset, messages


def _merge_labels(dataset: Any, merges: str | Mapping[str, Any], messages: list[str]) -> Any:
    classes = {label for split in dataset.splits.values() for label in flat_labels(split.labels)}
    if isinstance(merges, Mapping) and merges.get(NONE) == "" and NONE not in classes:
        dataset = _drop_unlabeled(dataset, messages)
        merges = {old: name for old, name in merges.items() if old != NONE}
        if not merges:
            return dataset
    merges = {OTHER_LABELS: merges} if merges == "spelling" else merges
    if not isinstance(merges, Mapping):
        fix = 'Use spelling, or a table such as {"Good" = "good"}'
        raise BadValueError(f"merge_labels = {merges!r} is not supported", where="merge_labels", fix=fix)
    others = merges.get(OTHER_LABELS)
    merges = {old: name for old, name in merges.items() if old != OTHER_LABELS}
    if others not in (None, "spelling"):
        fix = f'Write {{"{OTHER_LABELS}" = "spelling"}}, or leave it out'
        what = f'"{OTHER_LABELS}" = {others!r} is not supported'
        raise BadValueError(what, where="merge_labels", fix=fix)
    names = [str(label) for label in classes]
    unknown = next((name for name in merges if name not in (*names, *merges.values())), None)
    if unknown is not None and not classes & {*merges.values()}:
        fix = suggest(unknown, names)
        raise BadValueError(f"there is no class {unknown!r}", where="merge_labels", fix=fix)
    new_names = {label: merges.get(str(label), label) for label in classes}
    if others:
        new_names |= usual_spelling(dataset.splits, {x for x in classes if str(x) not in merges})
    changed = {old: name for old, name in new_names.items() if old != name}
    if not changed:
        return dataset
    becomes = {name: f"becomes {name!r}" if name != "" else "is left out" for name in changed.values()}
    shown = listed_in_part(sorted(f"{old!r} {becomes[name]}" for old, name in changed.items()), 10)
    messages.append(f"merge_labels: {shown}; {len({*new_names.values()} - {''}):,} classes")
    splits = {name: _rename_labels(split, new_names) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits, label_names=label_names(splits))


def _drop_unlabeled(dataset: Any, messages: list[str]) -> Any:
    """Drop the examples without a label from multi-label data."""
    if not any(are_sets(split.labels) for split in dataset.splits.values()):
        what = f"{NONE!r} means examples without a label, which only multi-label data have"
        raise NotForThisModelError(what, where="merge_labels", fix="Leave it out")
    splits = dict(dataset.splits)
    for name, split in dataset.splits.items():
        labeled = [i for i, labels in enumerate(split.labels or ()) if labels]
        if are_sets(split.labels) and len(labeled) < len(split):
            splits[name] = split.select(labeled)
            count = f"{len(split) - len(labeled):,} of {len(split):,} of {name}"
            messages.append(f"merge_labels: {count} left out because they have no label")
    return replace(dataset, splits=splits)


def _rename_labels(split: Any, new_names: Mapping[Any, Any]) -> Any:
    """Rename the labels of a split; an empty new name drops the example (or the label, if multi-label)."""
    if split.labels is None:
        return split
    if are_sets(split.labels):
        sets = [LabelSet(sorted({new_names[x] for x in label_set} - {""})) for label_set in split.labels]
        return replace(split, labels=sets)
    split = replace(split, labels=[new_names[label] for label in split.labels])
    remaining = [i for i, label in enumerate(split.labels) if label != ""]
    return split if len(remaining) == len(split) else split.select(remaining)


def usual_spelling(splits: Mapping[str, Any], only: Collection[Any] | None = None) -> dict[Any, Any]:
    """Map each label to the most frequent label that differs from it only in case and white space.

    Args:
        only: labels to map; None: all.
    """
    labels = (label for split in splits.values() for label in flat_labels(split.labels))
    counts = Counter(label for label in labels if only is None or label in only)
    spellings = group_by((label for label in counts if isinstance(label, str)), plain_name)
    best = {plain: min(names, key=lambda name: (-counts[name], name)) for plain, names in spellings.items()}
    return {label: best[plain_name(label)] if isinstance(label, str) else label for label in counts}


def _drop_duplicates(dataset: Any, messages: list[str]) -> Any:
    order = [name for name in SPLIT_PRIORITY if name in dataset.splits]
    order += [name for name in dataset.splits if name not in order]
    known: dict[str, tuple[str, int]] = {}  # key -> split and position of the first example with this key
    splits = dict(dataset.splits)
    for name in order:
        split = splits[name]
        first_positions, unique, conflicting = dict(known), [], []
        for i, key in enumerate(_keys(split)):
            if key not in first_positions:
                first_positions[key] = name, i
                unique.append(i)
                continue
            label, first_label = _label(dataset, name, i), _label(dataset, *first_positions[key])
            if label is not None and first_label is not None and label != first_label:
                conflicting.append((i, first_positions[key]))
        if len(unique) < len(split):
            splits[name] = split.select(unique)
            message = f"drop_duplicates: {len(split) - len(unique):,} of {len(split):,} of {name} left out"
            message += f"; {_conflicts_message(dataset, name, conflicting)}" if conflicting else ""
            messages.append(message)
        if name != "unsupervised":
            known = first_positions
    return replace(dataset, splits=splits)


def _label(dataset: Any, split: str, i: int) -> Any:
    """The label of an example; None if the split has no labels."""
    labels = dataset.splits[split].labels
    return None if not labels else labels[i]


def _conflicts_message(dataset: Any, name: str, conflicting: Sequence[tuple[int, tuple[str, int]]]) -> str:
    """A message about dropped duplicates whose label differs from that of the remaining example."""
    shown = []
    for i, (split, first) in conflicting[:MAX_SHOWN]:
        duplicate = _example_name(dataset.splits[name], i)
        original = _example_name(dataset.splits[split], first) + (f" of {split}" if split != name else "")
        labels = str(_label(dataset, name, i)), str(_label(dataset, split, first))
        shown.append(f"{duplicate} {labels[0]!r}, kept: {original} {labels[1]!r}")
    more = f" and {len(conflicting) - MAX_SHOWN:,} more" if len(conflicting) > MAX_SHOWN else ""
    which = "the copy in test or validation was kept, else the first"
    which = "the first was kept" if all(split == name for _, (split, _) in conflicting) else which
    return f"{len(conflicting):,} of them had another label: {which} ({'; '.join(shown)}{more})"


def _example_name(split: Any, i: int) -> str:
    """The name of an image, the row of a text in its file, or its index in the split."""
    if hasattr(split, "images"):
        return split.names()[i]
    return location(split.origin, i, split.rows) if split.rows is None else f"row {split.rows[i]}"


def _keys(split: Any) -> Sequence[str]:
    if hasattr(split, "images"):
        return list(map(image_digest, split.images))
    return list(map(case_insensitive_key, split.texts))


# --- options that fix the findings of the data doctor ---------------------------------------------

FIXING_OPTIONS = {  # code of a finding -> options of ``train``
    "bad-rows": ("--on-bad-row", "skip"),
    "duplicates": ("--set", "drop_duplicates=true"),
    "leaks": ("--set", "drop_duplicates=true"),
    "known-sides": ("--set", "copies=sides"),  # a text of a pair is in training
    "balance": ("--set", "class_weight=balanced", "--set", "monitor=macro_f1"),
    "orders-of-magnitude": ("--set", "number_scale=log"),
    "unreadable": ("--set", "broken=skip"),  # images
    "leak": ("--set", "drop_duplicates=true"),  # images
}
find_encoding_option = re.compile(r"(--encoding) ([\w-]+)").search  # in the fix for rows that are not UTF-8
find_white_level = re.compile(r"image_range=(\d+)").search  # in the fix for images of more than 8 bits
LABELS_FIRST = "copies with different labels: correct them first, since drop_duplicates=true keeps the label "
LABELS_FIRST += "of the first copy"


def fixing_options(findings: Sequence[Finding], splits: Mapping[str, Any]) -> list[str]:
    """The command-line options that fix what the warnings report."""
    warnings = [f.code for f in findings if f.severity == "warning"]
    are_images = any(hasattr(split, "images") for split in splits.values())
    option_of = FIXING_OPTIONS | ({"bad-rows": FIXING_OPTIONS["unreadable"]} if are_images else {})
    bad_rows = next((f for f in findings if f.code == "bad-rows"), None)
    encoding = find_encoding_option(bad_rows.fix) if bad_rows else None
    if bad_rows and encoding:
        all_rows = "(row " if bad_rows.count == 1 else f"({bad_rows.count:,}: "
        if f"not UTF-8 {all_rows}" in bad_rows.message:  # the proposed encoding reads all bad rows
            del option_of["bad-rows"]
    options: list[tuple[str, ...]] = [(encoding[1], encoding[2])] if encoding else []
    options += dict.fromkeys(option_of[code] for code in warnings if code in option_of)
    if white_levels := [int(match[1]) for f in findings if (match := find_white_level(f.fix))]:
        options.append(("--set", f"image_range={max(white_levels)}"))
    label_kind = next((f for f in findings if f.code == "label-kind"), None)
    if label_kind and (separator := find_proposed_separator(label_kind.fix)):
        options.append(("--label-separator", separator[1]))
    elif label_kind and NUMBER_OPTION in label_kind.fix:
        options.append(tuple(NUMBER_OPTION.split()))
    elif not label_kind and "twin-classes" in warnings:
        options.append(("--set", "merge_labels=spelling"))  # never a table that drops labels or classes
    return [word for option in options for word in option]


def needed_corrections(findings: Sequence[Finding], options: Sequence[str], splits: Mapping[str, Any]) -> str:
    """Corrections of the data that training with ``options`` needs first, as text; empty if none."""
    warnings = {f.code for f in findings if f.severity == "warning"}
    corrections = []
    if "contradictions" in warnings and "drop_duplicates=true" in options:
        corrections.append(LABELS_FIRST)
    are_multilabel = any(are_sets(split.labels) for split in splits.values())
    if "lone-classes" in warnings and not are_multilabel and not {"validation", "test"} <= splits.keys():
        labels = splits["train"].labels
        merged = usual_spelling(splits) if "merge_labels=spelling" in options else {x: x for x in labels}
        single = [str(label) for label, n in Counter(merged[x] for x in labels).items() if n == 1]
        if single and options:
            classes = f"classes with one example ({join_names(sorted(single))})"
            corrections.append(f"{classes}: add examples first, since a random split needs two per class")
    return "; ".join(corrections)
