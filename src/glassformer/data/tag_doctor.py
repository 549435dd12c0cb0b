"""Data doctor for tagged sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from glassformer.data.doctor_checks import duplicates, group_spellings, leakage, run_checks
from glassformer.data.duplicates import conflicts
from glassformer.data.findings import Check, DoctorReport, Finding, Findings, Stats, excerpt, percent
from glassformer.data.tagged import TaggedDataset, TaggedSplit
from glassformer.data.tags import (
    IGNORED_TAG,
    OUTSIDE,
    Scheme,
    malformed_positions,
    read_tags,
    tag_kind,
    tags_to_spans,
)
from glassformer.errors import DataError

MIN_SPANS = 10  # a warning if training has fewer spans of a kind


def examine_tagged(dataset: TaggedDataset, scheme: str | Sequence[str] = "auto") -> DoctorReport:
    """Run every check on sentences with tagged words.

    Args:
        scheme: see ``read_tags``.

    Raises:
        ConfigError: unknown scheme.
    """
    splits = {name: split for name, split in dataset.splits.items() if split.tags is not None}
    raw_tags = [tags for split in splits.values() for tags in split.tags or ()]
    try:
        reading = read_tags(raw_tags, scheme)
        scheme_findings = [Finding("note", "tag-scheme", reading.message)] if reading.message else []
    except DataError as error:  # the tags cannot be read as spans, so each tag is one kind
        reading = read_tags(raw_tags, "plain")
        scheme_findings = [Finding("warning", "tag-scheme", error.what, fix=error.fix or "")]
    tags, scheme = iter(reading.tags), reading.scheme
    splits = {name: replace(split, tags=[next(tags) for _ in split.words]) for name, split in splits.items()}
    all_splits = dataset.splits | splits
    stats: Stats = {
        "scheme": scheme,
        "splits": {name: _split_stats(split, scheme) for name, split in all_splits.items()},
    }

    def on_tags(check: Callable[[Mapping[str, TaggedSplit], Scheme], Findings]) -> Check:
        return lambda _splits, _stats: check(splits, scheme)  # ``splits`` has only the splits with tags

    notes = [Finding("note", "columns", line) for line in dataset.messages]
    fix = "put an empty line after each sentence"
    notes += [Finding("warning", "one-sentence", x, 1, fix=fix) for x in dataset.files_without_empty_lines]
    notes += scheme_findings
    checks = [
        lambda _splits, _stats: notes,
        *map(on_tags, (_similar_kind_names, _not_tagged)),
        _with_fix("remove the duplicates from the file", partial(duplicates, with_rows=False)),
        _with_fix("remove them from the training file", leakage),
        *map(on_tags, (_malformed, _balance, _known_spans, _contradictory_sentences)),
    ]
    return run_checks(replace(dataset, splits=all_splits), checks, stats)


def _with_fix(fix: str, check: Check) -> Check:
    """Replace the fix of a check that names a setting which recipes for tagging do not have."""

    def replaced(splits: Any, stats: Stats) -> Findings:
        return (replace(finding, fix=finding.fix and fix) for finding in check(splits, stats))

    return replaced


def _split_stats(split: TaggedSplit, scheme: Scheme) -> dict[str, Any]:
    kinds = Counter(span.kind for tags in split.tags or () for span in tags_to_spans(tags, scheme))
    return {
        "rows": len(split),
        "distinct": len({*split.texts}),
        "words": sum(map(len, split.words)),
        "longest": max(map(len, split.words)),
        "spans": dict(sorted(kinds.items())),
    }


def _similar_kind_names(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    all_tags = (tag for split in splits.values() for tags in split.tags or () for tag in tags)
    groups = group_spellings({tag_kind(tag, scheme) for tag in all_tags})
    message = f"kinds whose names differ only in case or white space: {'; '.join(groups[:3])}"
    fix = "use one spelling: a model learns them as different kinds"
    yield from Finding.if_any("warning", "twin-kinds", groups, message, fix, shown=groups[:10])


def _not_tagged(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    for name, split in splits.items():
        if count := sum(tags.count(IGNORED_TAG) for tags in split.tags or ()):
            what = f"{name}: {count:,} words have the tag {IGNORED_TAG}; no loss and no metric includes them"
            yield Finding("note", "not-tagged", what, count)


def _malformed(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    for name, split in splits.items():
        examples, count = [], 0
        for words, tags in zip(split.words, split.tags or (), strict=True):
            positions = malformed_positions(tags, scheme)
            count += len(positions)
            for i in positions[: 3 - len(examples)]:
                before = f"{words[i - 1]}/{tags[i - 1]} " if i else ""
                examples.append(f"{before}{words[i]}/{tags[i]}")
        if count:
            message = f"{name}: malformed {scheme} tags: {count:,}; they are repaired when spans are read"
            yield Finding("warning", "malformed-tags", message, count, tuple(examples))
        elif scheme != "plain":
            yield Finding("ok", "malformed-tags", f"{name}: every sequence of tags is well-formed {scheme}")


def _balance(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    train = splits.get("train")
    if train is None:
        return
    tag_counts = Counter(tag for tags in train.tags or () for tag in tags if tag != IGNORED_TAG)
    kinds = Counter(span.kind for tags in train.tags or () for span in tags_to_spans(tags, scheme))
    if scheme != "plain" or OUTSIDE in tag_counts:
        total = tag_counts.total()
        num_inside = total - tag_counts[OUTSIDE]
        num_empty = sum(set(tags) <= {OUTSIDE, IGNORED_TAG} for tags in train.tags or ())
        message = f"train: {percent(num_inside, total)} of {total:,} words are in a span; "
        message += f"{num_empty:,} sentences have none"
        yield Finding("note", "tag-balance", message, num_inside)
    rare = [f"{kind} {n}" for kind, n in sorted(kinds.items()) if n < MIN_SPANS]
    message = f"train: kinds with fewer than {MIN_SPANS} spans: {', '.join(rare)}"
    fix = "few examples are hard to learn from"
    yield from Finding.if_any("warning", "rare-kinds", rare, message, fix, shown=())
    for name, split in splits.items():
        split_kinds = {tag_kind(tag, scheme) for tags in split.tags or () for tag in tags} - {""}
        unseen = sorted(split_kinds - kinds.keys())
        message = f"{name}: kinds that train does not have: {', '.join(unseen)}"
        fix = "no model can find them"
        yield from Finding.if_any("warning", "unseen-kinds", unseen, message, fix, shown=())


def _known_spans(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    """The share of the spans of each other split that also occur in training.

    A model can find the other spans only by their context.
    """
    train = splits.get("train")
    if train is None:
        return
    known = set(_span_texts(train, scheme))
    for name, split in splits.items():
        if name == "train" or not (spans := list(_span_texts(split, scheme))):
            continue
        num_known = sum(span in known for span in spans)
        share = percent(num_known, len(spans))
        message = f"{name}: {share} of {len(spans):,} spans also occur in train"
        yield Finding("note", "known-spans", message, num_known)


def _span_texts(split: TaggedSplit, scheme: Scheme) -> Iterable[tuple[str, str]]:
    """The words and the kind of each span."""
    for words, tags in zip(split.words, split.tags or (), strict=True):
        for kind, start, end in tags_to_spans(tags, scheme):
            yield " ".join(words[start:end]).casefold(), kind


def _contradictory_sentences(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Findings:
    tagged = (zip(map(tuple, split.words), map(tuple, split.tags or ())) for split in splits.values())
    conflicting = [" ".join(words) for words in conflicts(chain.from_iterable(tagged))]
    message = f"sentences that occur with different tags: {len(conflicting):,}"
    shown, ok = map(excerpt, conflicting[:3]), "no sentence occurs with different tags"
    fix = "give equal sentences the same tags"
    yield from Finding.if_any("warning", "contradictions", conflicting, message, fix, shown=shown, ok=ok)
