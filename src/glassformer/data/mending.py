"""Faults of a data set that a recipe may have mended: classes written in two ways, repeated examples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from glassformer.config import listed, nearest
from glassformer.data.checks import place
from glassformer.data.copies import digest, same_but_for_case
from glassformer.data.dataset import names_of
from glassformer.data.findings import Finding, listed_in_part
from glassformer.data.label_kinds import BETWEEN, NUMBER, plain_name
from glassformer.data.label_sets import NONE, LabelSet, are_sets, each
from glassformer.errors import BadValueError, NotForThisModelError

REST = "*"  # in a table of names: all that it does not name
SHOWN = 3  # examples in a sentence
KEPT_FIRST = ("test", "validation")  # what stands in these is left out of the others


def mended(
    dataset: Any, merge_labels: str | Mapping[str, Any], drop_duplicates: bool
) -> tuple[Any, list[str]]:
    """A data set of texts or images with what was asked for mended, and a sentence on each change.

    Args:
        merge_labels: ``none``; ``spelling``: classes whose names differ in case or white space only become
            one, under the name that most examples have; or old name -> new name, empty: left out. In such a
            table ``{"*" = "spelling", ...}`` merges by spelling what the others do not name. Of several
            labels an example ``{"(none)" = ""}`` leaves out the examples that have none.
        drop_duplicates: an example that stands in a split again is left out, and out of the training split
            one that also stands in another. Texts count as equal when case and spaces do not matter.

    Raises:
        ConfigError: another word for ``merge_labels``, or a name in it that no class has.
    """
    said: list[str] = []
    if merge_labels != "none":
        dataset = _merged(dataset, merge_labels, said)
    if drop_duplicates:
        dataset = _without_repeats(dataset, said)
    return dataset, said


def _merged(dataset: Any, how: str | Mapping[str, Any], said: list[str]) -> Any:
    classes = {label for split in dataset.splits.values() for label in each(split.labels)}
    if isinstance(how, Mapping) and how.get(NONE) == "" and NONE not in classes:
        dataset = _without_empty(dataset, said)
        how = {old: name for old, name in how.items() if old != NONE}
        if not how:
            return dataset
    if isinstance(how, Mapping):
        rest, how = how.get(REST), {old: name for old, name in how.items() if old != REST}
        if rest not in (None, "spelling"):
            fix = f'Write {{"{REST}" = "spelling"}}, or leave it out'
            raise BadValueError(f"{rest!r} does not say how to merge the rest", where="merge_labels", fix=fix)
        by_text = {str(label): label for label in classes}
        unknown = next((name for name in how if name not in by_text and name not in how.values()), None)
        if unknown is not None and not classes & {*how.values()}:
            raise BadValueError(
                f"no class {unknown!r}", where="merge_labels", fix=nearest(unknown, [*by_text])
            )
        new = {label: how.get(str(label), label) for label in classes}
        if rest:
            new |= commonest(dataset.splits, [label for label in classes if str(label) not in how])
    elif how == "spelling":
        new = commonest(dataset.splits)
    else:
        fix = 'Use spelling, or a table such as {"Good" = "good"}'
        raise BadValueError(f"{how!r} does not say what to merge", where="merge_labels", fix=fix)
    changed = {old: name for old, name in new.items() if old != name}
    if not changed:
        return dataset
    merged = sorted(
        f"{old!r} is {name!r}" if name != "" else f"{old!r} is left out" for old, name in changed.items()
    )
    shown = listed_in_part(merged, 10)
    said.append(f"merge_labels: {shown}; {len({*new.values()} - {''}):,} classes")
    splits = {name: _renamed(split, new) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits, label_names=names_of(splits))


def _without_empty(dataset: Any, said: list[str]) -> Any:
    """The examples that have a label, of data with several of them an example."""
    if not any(are_sets(split.labels) for split in dataset.splits.values()):
        what = f"{NONE!r} means examples without a label, of several labels per example"
        raise NotForThisModelError(what, where="merge_labels", fix="Leave it out")
    kept = {}
    for name, split in dataset.splits.items():
        places = [i for i, own in enumerate(split.labels or ()) if own]
        kept[name] = split.select(places) if are_sets(split.labels) and len(places) < len(split) else split
        if kept[name] is not split:
            of = f"{len(split) - len(places):,} of {len(split):,} of {name}"
            said.append(f"merge_labels: {of} left out, which have no label")
    return replace(dataset, splits=kept)


def _renamed(split: Any, new: Mapping[Any, Any]) -> Any:
    """A split under new names; examples whose new name is empty are left out, of several labels that one."""
    if split.labels is None:
        return split
    if are_sets(split.labels):
        sets = [LabelSet(sorted({new[x] for x in given} - {""})) for given in split.labels]
        return replace(split, labels=sets)
    split = replace(split, labels=[new[label] for label in split.labels])
    places = [i for i, label in enumerate(split.labels) if label != ""]
    return split if len(places) == len(split) else split.select(places)


def commonest(splits: Mapping[str, Any], only: Collection[Any] | None = None) -> dict[Any, Any]:
    """Each label -> the way in which most examples write it, case and white space left aside.

    Args:
        only: labels that count; None: all.
    """
    labels = (label for split in splits.values() for label in each(split.labels))
    counts = Counter(label for label in labels if only is None or label in only)
    ways: dict[str, list[str]] = {}
    for label in counts:
        if isinstance(label, str):
            ways.setdefault(plain_name(label), []).append(label)
    best = {plain: min(names, key=lambda name: (-counts[name], name)) for plain, names in ways.items()}
    return {label: best[plain_name(label)] if isinstance(label, str) else label for label in counts}


def _without_repeats(dataset: Any, said: list[str]) -> Any:
    order = [name for name in KEPT_FIRST if name in dataset.splits]
    order += [name for name in dataset.splits if name not in order]
    elsewhere: dict[str, tuple[str, int]] = {}  # key -> split and place of the copy that is kept
    kept: dict[str, Any] = {}
    for name in order:
        split = dataset.splits[name]
        seen, places, torn = dict(elsewhere), [], []
        for i, key in enumerate(_keys(split)):
            if key not in seen:
                seen[key] = name, i
                places.append(i)
            elif None not in (both := [_label(dataset, name, i), _label(dataset, *seen[key])]):
                torn += [(i, seen[key])] if both[0] != both[1] else []
        kept[name] = split.select(places) if len(places) < len(split) else split
        if len(places) < len(split):
            out = f"drop_duplicates: {len(split) - len(places):,} of {len(split):,} of {name} left out"
            said.append(out + (f"; {_contradicted(dataset, name, torn)}" if torn else ""))
        if name != "unsupervised":
            elsewhere |= seen
    return replace(dataset, splits={name: kept[name] for name in dataset.splits})


def _label(dataset: Any, split: str, i: int) -> Any:
    """The label of an example; None: it has none, and contradicts nothing."""
    labels = dataset.splits[split].labels
    return None if not labels else labels[i]


def _contradicted(dataset: Any, name: str, torn: Sequence[tuple[int, tuple[str, int]]]) -> str:
    """Copies that were left out and had another label than the one that is kept, with examples."""
    shown = []
    for i, (split, first) in torn[:SHOWN]:
        left, kept = _where(dataset.splits[name], i), _where(dataset.splits[split], first)
        kept += f" of {split}" if split != name else ""
        labels = str(_label(dataset, name, i)), str(_label(dataset, split, first))
        shown.append(f"{left} {labels[0]!r}, kept: {kept} {labels[1]!r}")
    more = f" and {len(torn) - SHOWN:,} more" if len(torn) > SHOWN else ""
    within = all(split == name for _, (split, _) in torn)
    which = "the first was kept" if within else "the first was kept, of validation and test before train"
    return f"{len(torn):,} of them had another label: {which} ({'; '.join(shown)}{more})"


def _where(split: Any, i: int) -> str:
    """Which example it is: its row, else its place; of an image its name."""
    if hasattr(split, "images"):
        return split.names()[i]
    return place(split.origin, i, split.rows) if split.rows is None else f"row {split.rows[i]}"


def _keys(split: Any) -> Sequence[str]:
    if hasattr(split, "images"):
        return list(map(digest, split.images))
    return list(map(same_but_for_case, split.texts))


# --- what the data doctor found, as one command ---------------------------------------------------
# Every warning that an option of ``train`` answers.

ANSWERS = {  # check -> options
    "bad-rows": ("--on-bad-row", "skip"),
    "duplicates": ("--set", "drop_duplicates=true"),
    "leaks": ("--set", "drop_duplicates=true"),
    "known-sides": ("--set", "copies=sides"),
    "balance": ("--set", "class_weight=balanced", "--set", "monitor=macro_f1"),
    "orders-of-magnitude": ("--set", "number_scale=log"),
    "unreadable": ("--set", "broken=skip"),  # of images, as the next
    "leak": ("--set", "drop_duplicates=true"),
}
ENCODING = re.compile(r"(--encoding) ([\w-]+)").search  # which rows that are not UTF-8 show
WHITE = re.compile(r"image_range=(\d+)").search  # the likely one, of images of more than 8 bits
FIRST = (
    "examples with several labels: correct them first, since drop_duplicates=true keeps the label of the "
    "first copy"
)


def remedy(findings: Sequence[Finding], splits: Mapping[str, Any]) -> list[str]:
    """The options that answer the warnings, in words of the command line; empty where no option helps."""
    warned = [f.code for f in findings if f.severity == "warning"]
    pictures = any(hasattr(split, "images") for split in splits.values())
    answers = ANSWERS | ({"bad-rows": ANSWERS["unreadable"]} if pictures else {})
    rows = next((f for f in findings if f.code == "bad-rows"), None)
    other = ENCODING(rows.fix) if rows else None
    alone = "(row " if rows and rows.count == 1 else f"({rows.count if rows else 0:,}: "
    if rows and other and f"not UTF-8 {alone}" in rows.message:  # all of them are read so
        del answers["bad-rows"]
    chosen: list[tuple[str, ...]] = [(other[1], other[2])] if other else []
    kind = next((f for f in findings if f.code == "label-kind"), None)
    chosen += dict.fromkeys(answers[code] for code in warned if code in answers)
    if whites := [int(found[1]) for f in findings if (found := WHITE(f.fix))]:
        chosen.append(("--set", f"image_range={max(whites)}"))
    if kind and (between := BETWEEN(kind.fix)):
        chosen.append(("--label-separator", between[1]))
    elif kind and NUMBER in kind.fix:
        chosen.append(tuple(NUMBER.split()))
    elif not kind and "twin-classes" in warned:
        chosen.append(("--set", "merge_labels=spelling"))  # never what leaves a label or a class out
    return [word for options in chosen for word in options]


def correct_first(findings: Sequence[Finding], options: Sequence[str], splits: Mapping[str, Any]) -> str:
    """What has to be corrected before the command is used; empty: nothing."""
    warned = {f.code: f for f in findings if f.severity == "warning"}
    first = [FIRST] if "contradictions" in warned and "drop_duplicates=true" in options else []
    sets = any(are_sets(split.labels) for split in splits.values())
    if "lone-classes" in warned and not sets and not {"validation", "test"} <= splits.keys():
        labels = splits["train"].labels
        merged = commonest(splits) if "merge_labels=spelling" in options else {x: x for x in labels}
        lone = [str(label) for label, n in Counter(merged[x] for x in labels).items() if n == 1]
        if lone and options:
            said = f"classes with one example ({listed(sorted(lone))})"
            first.append(f"{said}: add examples first, a random split needs two")
    return "; ".join(first)
