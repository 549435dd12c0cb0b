"""Checks of tagged sentences: duplicates, leakage, balance, malformed tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from glassformer.data.doctor_checks import counted_texts, duplicates, leakage, run_checks, written_twice
from glassformer.data.findings import Check, DoctorReport, Finding, excerpt, finding_of, percent
from glassformer.data.tagged import TaggedDataset, TaggedSplit
from glassformer.data.tags import (
    NOT_TAGGED,
    OUTSIDE,
    Scheme,
    malformed_positions,
    read_tags,
    tag_kind,
    tags_to_spans,
)
from glassformer.errors import DataError

RARE = 10  # with fewer training spans, a kind of span is hard to learn


def examine_tagged(dataset: TaggedDataset, scheme: str | Sequence[str] = "auto") -> DoctorReport:
    """Run every check on sentences with tags; ``scheme``: see ``read_tags``.

    Raises:
        ConfigError: unknown scheme.
    """
    splits = {name: split for name, split in dataset.splits.items() if split.tags is not None}
    given = [tags for split in splits.values() for tags in split.tags or ()]
    try:
        reading = read_tags(given, scheme)
        scheme_findings = [Finding("note", "tag-scheme", reading.message)] if reading.message else []
    except DataError as error:  # then the tags are counted without reading them as spans
        reading = read_tags(given, "plain")
        scheme_findings = [Finding("warning", "tag-scheme", error.what, fix=error.fix or "")]
    tags, scheme = iter(reading.tags), reading.scheme
    splits = {name: replace(split, tags=[next(tags) for _ in split.words]) for name, split in splits.items()}
    every = dataset.splits | splits
    counts = counted_texts(every)
    figures: dict[str, Any] = {
        "scheme": scheme,
        "splits": {name: _figures(split, counts[name], scheme) for name, split in every.items()},
    }

    def of_tags(check: Callable[[Mapping[str, TaggedSplit], Scheme], Iterable[Finding]]) -> Check:
        return lambda _splits, _figures: check(splits, scheme)  # only the splits with tags

    unended = (
        Finding("warning", "one-sentence", what, 1, fix="put an empty line after each sentence")
        for what in dataset.unended
    )
    notes = [*(Finding("note", "columns", line) for line in dataset.messages), *unended, *scheme_findings]
    checks = [
        lambda _splits, _figures: notes,
        *map(of_tags, (_twin_kinds, _not_tagged)),
        _with_fix("leave repeats out", partial(duplicates, say_rows=False)),
        _with_fix("leave them out of training", leakage),
        *map(of_tags, (_malformed, _balance, _known_entities, _contradictions)),
    ]
    return run_checks(dataset.name, every, checks, dataset.rejected, figures)


def _with_fix(fix: str, check: Check) -> Check:
    """The same check with another fix, since tagging recipes lack the setting that it proposes."""
    return lambda splits, figures: (
        replace(one, fix=fix) if one.fix else one for one in check(splits, figures)
    )


def _figures(split: TaggedSplit, counts: Counter[str], scheme: Scheme) -> dict[str, Any]:
    kinds = Counter(span.kind for tags in split.tags or () for span in tags_to_spans(tags, scheme))
    return {
        "rows": len(split),
        "distinct": len(counts),
        "words": sum(map(len, split.words)),
        "longest": max(map(len, split.words)),
        "spans": dict(sorted(kinds.items())),
    }


def _twin_kinds(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    kinds = {tag_kind(tag, scheme) for split in splits.values() for own in split.tags or () for tag in own}
    twins = [" and ".join(map(repr, names)) for names in written_twice(kinds)]
    message = f"kinds whose names differ only in case or white space: {'; '.join(twins[:3])}"
    fix = "they are learned as different kinds: use one spelling"
    yield from finding_of("warning", "twin-kinds", twins, message, fix, shown=twins[:10])


def _not_tagged(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    for name, split in splits.items():
        if count := sum(own.count(NOT_TAGGED) for own in split.tags or ()):
            what = f"{name}: {count:,} words have the tag {NOT_TAGGED}; no loss and no metric includes them"
            yield Finding("note", "not-tagged", what, count)


def _malformed(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    for name, split in splits.items():
        examples, count = [], 0
        for words, tags in zip(split.words, split.tags or (), strict=True):
            places = malformed_positions(tags, scheme)
            count += len(places)
            for i in places[: 3 - len(examples)]:
                before = f"{words[i - 1]}/{tags[i - 1]} " if i else ""
                examples.append(f"{before}{words[i]}/{tags[i]}")
        if count:
            message = f"{name}: malformed {scheme} tags: {count:,}; they are repaired when spans are read"
            yield Finding("warning", "malformed-tags", message, count, tuple(examples))
        elif scheme != "plain":
            yield Finding("ok", "malformed-tags", f"{name}: every sequence of tags is well-formed {scheme}")


def _balance(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    train = splits.get("train")
    if train is None:
        return
    tags = Counter(tag for own in train.tags or () for tag in own if tag != NOT_TAGGED)
    kinds = Counter(span.kind for own in train.tags or () for span in tags_to_spans(own, scheme))
    if scheme != "plain" or OUTSIDE in tags:
        inside = tags.total() - tags[OUTSIDE]
        share = percent(inside, tags.total())
        empty = sum(set(own) <= {OUTSIDE, NOT_TAGGED} for own in train.tags or ())
        message = f"train: {share} of {tags.total():,} words are in a span; {empty:,} sentences have none"
        yield Finding("note", "tag-balance", message, inside)
    rare = [f"{kind} {n}" for kind, n in sorted(kinds.items()) if n < RARE]
    message = f"train: kinds of fewer than {RARE} spans: {', '.join(rare)}"
    yield from finding_of(
        "warning", "rare-kinds", rare, message, "few examples are hard to learn from", shown=()
    )
    for name, split in splits.items():
        own_kinds = {tag_kind(tag, scheme) for own in split.tags or () for tag in own} - {""}
        strange = sorted(own_kinds - kinds.keys())
        message = f"{name}: kinds that train does not have: {', '.join(strange)}"
        yield from finding_of("warning", "unseen-kinds", strange, message, "no model can find them", shown=())


def _known_entities(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    """The share of spans in other splits that also occur in training; the rest needs context to be found."""
    train = splits.get("train")
    if train is None:
        return
    known = set(_surfaces(train, scheme))
    for name, split in splits.items():
        if name == "train" or not (spans := list(_surfaces(split, scheme))):
            continue
        same = sum(one in known for one in spans)
        message = f"{name}: {percent(same, len(spans))} of {len(spans):,} spans are in train word for word"
        yield Finding("note", "known-spans", message, same)


def _surfaces(split: TaggedSplit, scheme: Scheme) -> Iterable[tuple[str, str]]:
    for words, tags in zip(split.words, split.tags or (), strict=True):
        for kind, start, end in tags_to_spans(tags, scheme):
            yield " ".join(words[start:end]).casefold(), kind


def _contradictions(splits: Mapping[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    """Equal sentences with different tags."""
    seen: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for split in splits.values():
        for words, tags in zip(split.words, split.tags or (), strict=True):
            seen[tuple(words)].add(tuple(tags))
    twice = [" ".join(words) for words, tags in seen.items() if len(tags) > 1]
    message = f"sentences that occur with different tags: {len(twice):,}"
    shown, ok = map(excerpt, twice[:3]), "no sentence occurs with different tags"
    fix = "give each one set of tags"
    yield from finding_of("warning", "contradictions", twice, message, fix, shown=shown, ok=ok)
