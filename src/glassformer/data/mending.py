"""Repairs of a data set that a recipe can request: merging labels and dropping duplicates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import listed, nearest
from glassformer.data.checks import place
from glassformer.data.copies import case_insensitive_key, digest
from glassformer.data.dataset import names_of
from glassformer.data.findings import Finding, listed_in_part
from glassformer.data.label_kinds import NUMBER_OPTION, find_proposed_separator, plain_name
from glassformer.data.label_sets import NONE, LabelSet, are_sets, flat_labels
from glassformer.errors import BadValueError, NotForThisModelError

REST = "*"  # key of a ``merge_labels`` table: stands for all labels that the table does not name
SHOWN = 3  # examples in a sentence
KEPT_FIRST = ("test", "validation")  # a duplicate is kept in these splits and dropped from other splits


def apply_repairs(
    dataset: Any, merge_labels: str | Mapping[str, Any], drop_duplicates: bool
) -> tuple[Any, list[str]]:
    """Apply the requested repairs to a data set of texts or images.

    Args:
        merge_labels: ``none``; ``spelling``: merge classes whose names differ only in case or white space,
            under the most frequent name; or a table old name -> new name, where an empty name drops the
            class. In such a table ``"*" = "spelling"`` merges the other classes by spelling. For
            multi-label data ``{"(none)" = ""}`` drops the examples without a label.
        drop_duplicates: drop repeated examples within a split, and training examples that are also in another
            split. Texts are compared without case and spaces.

    Returns:
        The repaired data set, and one sentence per change.

    Raises:
        ConfigError: ``merge_labels`` is invalid, or none of its names is a class.
    """
    messages: list[str] = []
    if merge_labels != "none":
        dataset = _merge_labels(dataset, merge_labels, messages)
    if drop_duplicates:
        dataset = _drop_duplicates(dataset, messages)
    return dataset, messages


def _merge_labels(dataset: Any, how: str | Mapping[str, Any], messages: list[str]) -> Any:
    classes = {label for split in dataset.splits.values() for label in flat_labels(split.labels)}
    if isinstance(how, Mapping) and how.get(NONE) == "" and NONE not in classes:
        dataset = _drop_unlabeled(dataset, messages)
        how = {old: name for old, name in how.items() if old != NONE}
        if not how:
            return dataset
    if isinstance(how, Mapping):
        rest, how = how.get(REST), {old: name for old, name in how.items() if old != REST}
        if rest not in (None, "spelling"):
            fix = f'Write {{"{REST}" = "spelling"}}, or leave it out'
            what = f"{rest!r} is not a way to merge the other labels"
            raise BadValueError(what, where="merge_labels", fix=fix)
        by_text = {str(label): label for label in classes}
        unknown = next((name for name in how if name not in by_text and name not in how.values()), None)
        if unknown is not None and not classes & {*how.values()}:
            raise BadValueError(
                f"there is no class {unknown!r}", where="merge_labels", fix=nearest(unknown, [*by_text])
            )
        new_names = {label: how.get(str(label), label) for label in classes}
        if rest:
            new_names |= usual_spelling(dataset.splits, [label for label in classes if str(label) not in how])
    elif how == "spelling":
        new_names = usual_spelling(dataset.splits)
    else:
        fix = 'Use spelling, or a table such as {"Good" = "good"}'
        raise BadValueError(f"{how!r} is not a way to merge labels", where="merge_labels", fix=fix)
    changed = {old: name for old, name in new_names.items() if old != name}
    if not changed:
        return dataset
    merged = sorted(
        f"{old!r} becomes {name!r}" if name != "" else f"{old!r} is left out" for old, name in changed.items()
    )
    shown = listed_in_part(merged, 10)
    messages.append(f"merge_labels: {shown}; {len({*new_names.values()} - {''}):,} classes")
    splits = {name: _rename_labels(split, new_names) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits, label_names=names_of(splits))


def _drop_unlabeled(dataset: Any, messages: list[str]) -> Any:
    """Drop the examples without a label from multi-label data."""
    if not any(are_sets(split.labels) for split in dataset.splits.values()):
        what = f"{NONE!r} means examples without a label, which only multi-label data have"
        raise NotForThisModelError(what, where="merge_labels", fix="Leave it out")
    parts = {}
    for name, split in dataset.splits.items():
        labeled = [i for i, labels in enumerate(split.labels or ()) if labels]
        parts[name] = split.select(labeled) if are_sets(split.labels) and len(labeled) < len(split) else split
        if parts[name] is not split:
            count = f"{len(split) - len(labeled):,} of {len(split):,} of {name}"
            messages.append(f"merge_labels: {count} left out, which have no label")
    return replace(dataset, splits=parts)


def _rename_labels(split: Any, new: Mapping[Any, Any]) -> Any:
    """Rename the labels of a split; an empty new name drops the example (or the label, if multi-label)."""
    if split.labels is None:
        return split
    if are_sets(split.labels):
        sets = [LabelSet(sorted({new[x] for x in label_set} - {""})) for label_set in split.labels]
        return replace(split, labels=sets)
    split = replace(split, labels=[new[label] for label in split.labels])
    kept = [i for i, label in enumerate(split.labels) if label != ""]
    return split if len(kept) == len(split) else split.select(kept)


def usual_spelling(splits: Mapping[str, Any], only: Collection[Any] | None = None) -> dict[Any, Any]:
    """Map each label to the most frequent label that differs from it only in case and white space.

    Args:
        only: labels to map; None: all.
    """
    labels = (label for split in splits.values() for label in flat_labels(split.labels))
    counts = Counter(label for label in labels if only is None or label in only)
    spellings: dict[str, list[str]] = {}
    for label in counts:
        if isinstance(label, str):
            spellings.setdefault(plain_name(label), []).append(label)
    best = {plain: min(names, key=lambda name: (-counts[name], name)) for plain, names in spellings.items()}
    return {label: best[plain_name(label)] if isinstance(label, str) else label for label in counts}


def _drop_duplicates(dataset: Any, messages: list[str]) -> Any:
    order = [name for name in KEPT_FIRST if name in dataset.splits]
    order += [name for name in dataset.splits if name not in order]
    kept_copies: dict[str, tuple[str, int]] = {}  # key -> split and position of the copy that is kept
    parts: dict[str, Any] = {}
    for name in order:
        split = dataset.splits[name]
        seen, kept, conflicting = dict(kept_copies), [], []
        for i, key in enumerate(_keys(split)):
            if key not in seen:
                seen[key] = name, i
                kept.append(i)
            elif None not in (both := [_label(dataset, name, i), _label(dataset, *seen[key])]):
                conflicting += [(i, seen[key])] if both[0] != both[1] else []
        parts[name] = split.select(kept) if len(kept) < len(split) else split
        if len(kept) < len(split):
            out = f"drop_duplicates: {len(split) - len(kept):,} of {len(split):,} of {name} left out"
            messages.append(
                out + (f"; {_conflicts_message(dataset, name, conflicting)}" if conflicting else "")
            )
        if name != "unsupervised":
            kept_copies |= seen
    return replace(dataset, splits={name: parts[name] for name in dataset.splits})


def _label(dataset: Any, split: str, i: int) -> Any:
    """The label of an example; None if the split has no labels."""
    labels = dataset.splits[split].labels
    return None if not labels else labels[i]


def _conflicts_message(dataset: Any, name: str, conflicting: Sequence[tuple[int, tuple[str, int]]]) -> str:
    """A message about dropped copies whose label differs from the label of the kept copy."""
    shown = []
    for i, (split, first) in conflicting[:SHOWN]:
        dropped, kept = _where(dataset.splits[name], i), _where(dataset.splits[split], first)
        kept += f" of {split}" if split != name else ""
        labels = str(_label(dataset, name, i)), str(_label(dataset, split, first))
        shown.append(f"{dropped} {labels[0]!r}, kept: {kept} {labels[1]!r}")
    more = f" and {len(conflicting) - SHOWN:,} more" if len(conflicting) > SHOWN else ""
    within = all(split == name for _, (split, _) in conflicting)
    which = "the first was kept" if within else "the copy in test or validation was kept, else the first"
    return f"{len(conflicting):,} of them had another label: {which} ({'; '.join(shown)}{more})"


def _where(split: Any, i: int) -> str:
    """The row of an example in its file, or its index in the split if the row is unknown; an image's name."""
    if hasattr(split, "images"):
        return split.names()[i]
    return place(split.origin, i, split.rows) if split.rows is None else f"row {split.rows[i]}"


def _keys(split: Any) -> Sequence[str]:
    if hasattr(split, "images"):
        return list(map(digest, split.images))
    return list(map(case_insensitive_key, split.texts))


# --- options that fix what the data doctor found --------------------------------------------------

FIXING_OPTIONS = {  # check -> options of ``train``
    "bad-rows": ("--on-bad-row", "skip"),
    "duplicates": ("--set", "drop_duplicates=true"),
    "leaks": ("--set", "drop_duplicates=true"),
    "known-sides": ("--set", "copies=sides"),  # a text of a pair is also in training
    "balance": ("--set", "class_weight=balanced", "--set", "monitor=macro_f1"),
    "orders-of-magnitude": ("--set", "number_scale=log"),
    "unreadable": ("--set", "broken=skip"),  # images
    "leak": ("--set", "drop_duplicates=true"),  # images
}
find_encoding_option = re.compile(r"(--encoding) ([\w-]+)").search  # proposed for rows that are not UTF-8
find_white_level = re.compile(r"image_range=(\d+)").search  # proposed for images of more than 8 bits
LABELS_FIRST = (
    "copies with different labels: correct them first, since drop_duplicates=true keeps the label of the "
    "first copy"
)


def fixing_options(findings: Sequence[Finding], splits: Mapping[str, Any]) -> list[str]:
    """The command-line options that fix what the warnings report; empty if no option does."""
    warned = [f.code for f in findings if f.severity == "warning"]
    are_images = any(hasattr(split, "images") for split in splits.values())
    fixing = FIXING_OPTIONS | ({"bad-rows": FIXING_OPTIONS["unreadable"]} if are_images else {})
    bad_rows = next((f for f in findings if f.code == "bad-rows"), None)
    encoding = find_encoding_option(bad_rows.fix) if bad_rows else None
    if bad_rows and encoding:
        all_rows = "(row " if bad_rows.count == 1 else f"({bad_rows.count:,}: "
        if f"not UTF-8 {all_rows}" in bad_rows.message:  # the proposed encoding reads all bad rows
            del fixing["bad-rows"]
    chosen: list[tuple[str, ...]] = [(encoding[1], encoding[2])] if encoding else []
    kind = next((f for f in findings if f.code == "label-kind"), None)
    chosen += dict.fromkeys(fixing[code] for code in warned if code in fixing)
    if white_levels := [int(match[1]) for f in findings if (match := find_white_level(f.fix))]:
        chosen.append(("--set", f"image_range={max(white_levels)}"))
    if kind and (separator := find_proposed_separator(kind.fix)):
        chosen.append(("--label-separator", separator[1]))
    elif kind and NUMBER_OPTION in kind.fix:
        chosen.append(tuple(NUMBER_OPTION.split()))
    elif not kind and "twin-classes" in warned:
        chosen.append(("--set", "merge_labels=spelling"))  # never a table that drops labels or classes
    return [word for options in chosen for word in options]


def needed_corrections(findings: Sequence[Finding], options: Sequence[str], splits: Mapping[str, Any]) -> str:
    """What must be corrected before training with ``options``; empty if nothing must be."""
    warned = {f.code: f for f in findings if f.severity == "warning"}
    corrections = [LABELS_FIRST] if "contradictions" in warned and "drop_duplicates=true" in options else []
    sets = any(are_sets(split.labels) for split in splits.values())
    if "lone-classes" in warned and not sets and not {"validation", "test"} <= splits.keys():
        labels = splits["train"].labels
        merged = usual_spelling(splits) if "merge_labels=spelling" in options else {x: x for x in labels}
        lone = [str(label) for label, n in Counter(merged[x] for x in labels).items() if n == 1]
        if lone and options:
            classes = f"classes with one example ({listed(sorted(lone))})"
            corrections.append(f"{classes}: add examples first, since a random split needs two per class")
    return "; ".join(corrections)
