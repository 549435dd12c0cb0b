"""What is wrong with tagged sentences before a model learns them: repeats, leaks, balance, broken tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.doctor_checks import bad_rows, leaks, repeats, written_twice
from glassformer.data.findings import DoctorReport, Finding, excerpt, percent
from glassformer.data.tagged import TaggedDataset, TaggedSplit
from glassformer.data.tags import NOT_TAGGED, OUTSIDE, Scheme, kind_of_tag, malformed, read_tags, spans_of
from glassformer.errors import DataError

RARE = 10  # spans of a kind in training; fewer are hard to learn from


def examine_tagged(dataset: TaggedDataset, scheme: str | Sequence[str] = "auto") -> DoctorReport:
    """Every check on sentences with tags; ``scheme``: see ``read_tags``.

    Raises:
        ConfigError: no such scheme.
    """
    splits = {name: split for name, split in dataset.splits.items() if split.tags is not None}
    spelling: list[Finding] = []
    try:
        reading = read_tags([tags for split in splits.values() for tags in split.tags or ()], scheme)
        spelling += [Finding("note", "tag-scheme", reading.said)] if reading.said else []
    except DataError as error:  # figures are those of the tags as they are spelled
        reading = read_tags([tags for split in splits.values() for tags in split.tags or ()], "plain")
        spelling.append(Finding("warning", "tag-scheme", error.what, fix=error.fix or ""))
    tags, scheme = iter(reading.tags), reading.scheme
    splits = {name: replace(split, tags=[next(tags) for _ in split.words]) for name, split in splits.items()}
    dataset = replace(dataset, splits=dataset.splits | splits)
    counts = {name: Counter(split.texts) for name, split in dataset.splits.items()}
    figures: dict[str, Any] = {
        "scheme": scheme,
        "splits": {name: _figures(split, counts[name], scheme) for name, split in dataset.splits.items()},
    }
    findings = [
        *bad_rows(dataset.rejected),
        *(Finding("note", "columns", said) for said in dataset.said),
        *_one_sentence(dataset),
        *spelling,
        *_twin_kinds(splits, scheme),
        *_not_tagged(splits),
        *(_without_the_setting(f) for f in repeats(counts)),
        *(_without_the_setting(f) for f in leaks(dataset.splits, counts, figures)),  # type: ignore[arg-type]  # texts
        *_malformed(splits, scheme),
        *_balance(splits, scheme),
        *_known_entities(splits, scheme),
        *_contradictions(splits, scheme),
    ]
    return DoctorReport(dataset.name, findings, figures)


def _without_the_setting(finding: Finding) -> Finding:
    """The same without the advice to set what recipes of tags do not have."""
    if not finding.fix:
        return finding
    fix = "leave repeats out" if finding.code == "duplicates" else "leave them out of training"
    return Finding(finding.severity, finding.code, finding.message, finding.count, finding.examples, fix)


def _figures(split: TaggedSplit, counts: Counter[str], scheme: Scheme) -> dict[str, Any]:
    kinds = Counter(span.kind for tags in split.tags or () for span in spans_of(tags, scheme))
    return {
        "rows": len(split),
        "distinct": len(counts),
        "words": sum(map(len, split.words)),
        "longest": max(map(len, split.words)),
        "spans": dict(sorted(kinds.items())),
    }


def _one_sentence(dataset: TaggedDataset) -> Iterable[Finding]:
    for what in dataset.unended:
        yield Finding("warning", "one-sentence", what, 1, fix="put an empty line behind each sentence")


def _twin_kinds(splits: dict[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    kinds = {kind_of_tag(tag, scheme) for split in splits.values() for own in split.tags or () for tag in own}
    if twins := written_twice(kinds):
        pairs = [" and ".join(map(repr, names)) for names in twins]
        message = f"kinds whose names differ only in case or white space: {'; '.join(pairs[:3])}"
        fix = "they are learned as different ones: write each in one way"
        yield Finding("warning", "twin-kinds", message, len(twins), tuple(pairs[:10]), fix)


def _not_tagged(splits: dict[str, TaggedSplit]) -> Iterable[Finding]:
    for name, split in splits.items():
        if count := sum(own.count(NOT_TAGGED) for own in split.tags or ()):
            what = f"{name}: {count:,} words have the tag {NOT_TAGGED}; they count in no loss and no metric"
            yield Finding("note", "not-tagged", what, count)


def _malformed(splits: dict[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    for name, split in splits.items():
        examples, count = [], 0
        for words, tags in zip(split.words, split.tags or (), strict=True):
            places = malformed(tags, scheme)
            count += len(places)
            for i in places[: 3 - len(examples)]:
                before = f"{words[i - 1]}/{tags[i - 1]} " if i else ""
                examples.append(f"{before}{words[i]}/{tags[i]}")
        if count:
            message = f"{name}: tags that are malformed {scheme}: {count:,}; read as the spans that they mean"
            yield Finding("warning", "malformed-tags", message, count, tuple(examples))
        elif scheme != "plain":
            yield Finding("ok", "malformed-tags", f"{name}: every sequence of tags is well-formed {scheme}")


def _balance(splits: dict[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    train = splits.get("train")
    if train is None:
        return
    tags = Counter(tag for own in train.tags or () for tag in own if tag != NOT_TAGGED)
    kinds = Counter(span.kind for own in train.tags or () for span in spans_of(own, scheme))
    if scheme != "plain" or OUTSIDE in tags:
        inside = tags.total() - tags[OUTSIDE]
        share = percent(inside, tags.total())
        empty = sum(set(own) <= {OUTSIDE, NOT_TAGGED} for own in train.tags or ())
        message = f"train: {share} of {tags.total():,} words stand in a span; {empty:,} sentences have none"
        yield Finding("note", "tag-balance", message, inside)
    rare = [f"{kind} {n}" for kind, n in sorted(kinds.items()) if n < RARE]
    if rare:
        message = f"train: kinds of fewer than {RARE} spans: {', '.join(rare)}"
        yield Finding("warning", "rare-kinds", message, len(rare), fix="few examples are hard to learn from")
    for name, split in splits.items():
        found = {kind_of_tag(tag, scheme) for own in split.tags or () for tag in own} - {""}
        if strange := sorted(found - kinds.keys()):
            message = f"{name}: kinds that train does not have: {', '.join(strange)}"
            yield Finding("warning", "unseen-kinds", message, len(strange), fix="no model can find them")


def _known_entities(splits: dict[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    """How many spans of the other splits were seen in training word for word: the rest must be told by
    context.
    """
    train = splits.get("train")
    if train is None:
        return
    known = set(_surfaces(train, scheme))
    for name, split in splits.items():
        if name == "train" or not (found := list(_surfaces(split, scheme))):
            continue
        same = sum(one in known for one in found)
        message = f"{name}: {percent(same, len(found))} of {len(found):,} spans stand in train word for word"
        yield Finding("note", "known-spans", message, same)


def _surfaces(split: TaggedSplit, scheme: Scheme) -> Iterable[tuple[str, str]]:
    for words, tags in zip(split.words, split.tags or (), strict=True):
        for kind, start, end in spans_of(tags, scheme):
            yield " ".join(words[start:end]).casefold(), kind


def _contradictions(splits: dict[str, TaggedSplit], scheme: Scheme) -> Iterable[Finding]:
    """Equal sentences with different tags."""
    seen: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for split in splits.values():
        for words, tags in zip(split.words, split.tags or (), strict=True):
            seen[tuple(words)].add(tuple(tags))
    twice = [" ".join(words) for words, tags in seen.items() if len(tags) > 1]
    if twice:
        message = f"sentences that stand there with different tags: {len(twice):,}"
        fix = "give each one set of tags"
        yield Finding("warning", "contradictions", message, len(twice), tuple(map(excerpt, twice[:3])), fix)
    else:
        yield Finding("ok", "contradictions", "no sentence stands there with different tags")
