"""Checks of labeled texts: duplicates, leakage, truncation, unknown words, related neighboring rows."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from glassformer.config import listed
from glassformer.data.checks import place
from glassformer.data.copies import case_insensitive_key, copy_keys
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor_checks import (
    LABELS,
    bad_rows,
    doubled_quotes,
    duplicates,
    each_split,
    leakage,
    rows_of,
    run_checks,
)
from glassformer.data.findings import (
    Check,
    DoctorReport,
    Finding,
    Severity,
    at_rows,
    excerpt,
    finding_of,
    percent,
)
from glassformer.data.label_sets import flat_labels
from glassformer.data.splits import grouped_split
from glassformer.data.text import Clean, clean_text, unknown_id
from glassformer.data.text_pairs import SIDES, TextPair, are_pairs, encode_inputs
from glassformer.errors import DataError

# --- neighbors ------------------------------------------------------------------------------------
# Neighboring rows may belong together (reviews of one film, comments of one author). Then a random held-out
# split has related rows in training, and its score is too high.

CHUNK = 25  # neighboring rows in one chunk of the sample
CHUNKS = 120  # number of chunks
# a word in more than this share of the sampled texts (or in more than 20) is too common to show a relation
RARE = 0.01
MIN_NEIGHBORS = 100  # with fewer pairs of neighbors, nothing is reported


@dataclass(frozen=True)
class NeighborSimilarity:
    """Mean number of rare words that two rows of a class share: neighboring rows, and rows far apart."""

    near: float
    far: float
    pairs: int

    @property
    def ratio(self) -> float:
        """How many times as often neighbors share a rare word as rows far apart; 1: in random order."""
        return (self.near * self.pairs + 1.0) / (self.far * self.pairs + 1.0)  # add-one smoothing


def neighbor_similarity(
    texts: Sequence[str], labels: Sequence[Any] | None = None
) -> NeighborSimilarity | None:
    """Compare neighbors with rows far apart, on sampled chunks of neighboring rows without duplicates.

    Args:
        labels: one per text; only rows of the same class are compared: tables are often sorted by class.

    Returns:
        None if there are too few rows.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    rows, starts = _sampled_rows(texts, labels)
    if len(rows) - len(starts) < MIN_NEIGHBORS:
        return None
    max_texts = max(20, round(RARE * len(rows)))
    counter = CountVectorizer(binary=True, min_df=2, max_df=max_texts, token_pattern=r"(?u)\w+")
    try:
        words: Any = counter.fit_transform([texts[i] for i in rows])
    except ValueError:  # no word occurs in two texts, or none is rare
        return None
    first = np.setdiff1d(np.arange(len(rows)), starts)  # rows whose neighbor is the row before them
    label = np.asarray([str(labels[i]) for i in rows] if labels is not None else [""] * len(rows))
    first = first[label[first] == label[first - 1]]
    if len(first) < MIN_NEIGHBORS:
        return None
    # Rows far apart: the same rows, paired with rows of another chunk of the same class, in a fixed order.
    classes = [first[label[first] == name] for name in np.unique(label)]
    far = np.concatenate(classes), np.concatenate([np.roll(group, len(group) // 2) for group in classes])
    near, distant = (float(words[a].multiply(words[b]).sum() / len(a)) for a, b in ((first, first - 1), far))
    return NeighborSimilarity(near, distant, len(first))


def _sampled_rows(texts: Sequence[str], labels: Sequence[str | int] | None) -> tuple[list[int], np.ndarray]:
    """Rows of the sample, and the positions in it at which a chunk begins. Rows of a class count as neighbors
    even if rows of other classes are between them: some tables mix classes but keep the order within each."""
    order = [*range(len(texts))]
    if labels is not None:
        order.sort(key=lambda i: str(labels[i]))  # stable: the order within a class stays
    seen: set[str] = set()
    order = [i for i in order if not (texts[i] in seen or seen.add(texts[i]))]
    if len(order) <= CHUNK * CHUNKS:
        return order, np.array([0])
    begins = np.linspace(0, len(order) - CHUNK, CHUNKS).astype(int)
    rows = [order[b + k] for b in begins.tolist() for k in range(CHUNK)]
    return rows, np.arange(CHUNKS) * CHUNK


# --- pairs ----------------------------------------------------------------------------------------
# Texts that are in pairs of two splits, on either side, and swapped pairs.

HELD_OUT = 0.1  # share that ``train`` holds out of a table without splits
MANY = 0.5  # warn if a larger share of a split's rows has a text of training: its score is not for new texts


def sides(splits: Mapping[str, TextSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """Checks of pairs of texts; yields nothing if the texts are not pairs."""
    if not any(are_pairs(split.texts) for split in splits.values()):
        return
    figures["sides"] = {"splits": {}, "leaks": {}}
    keys = {name: [_keys(text) for text in split.texts] for name, split in splits.items()}
    for name, split in splits.items():
        yield from _check_sides(name, split, keys[name], figures["sides"]["splits"])
    for a, b in itertools.combinations(splits, 2):
        yield from _shared_sides(a, b, splits, keys, figures["sides"]["leaks"])
    if [*splits] == ["train"]:
        yield from _split_sides(splits["train"], keys["train"], figures["sides"])


def _keys(text: str) -> tuple[str, str]:
    first, second = text.sides if isinstance(text, TextPair) else (text, "")
    return case_insensitive_key(first), case_insensitive_key(second)


def _check_sides(
    name: str, split: TextSplit, keys: list[tuple[str, str]], figures: dict[str, Any]
) -> Iterable[Finding]:
    same, all_keys = [i for i, (a, b) in enumerate(keys) if a == b], set(keys)
    swapped = [i for i, (a, b) in enumerate(keys) if a < b and (b, a) in all_keys]
    figures[name] = {
        "distinct_first": len({a for a, _ in keys}),
        "distinct_second": len({b for _, b in keys}),
        "same": len(same),
        "swapped": len(swapped),
    }
    message = f"{name}: pairs whose two texts are the same: {len(same):,}"
    examples = [excerpt(split.texts[i].split("\n")[0]) for i in same[:3]]
    yield from finding_of("note", "same-sides", same, message, shown=examples)
    message = f"{name}: pairs that also occur swapped: {len(swapped):,}"
    fix = "a random split keeps swapped pairs together, like copies"
    yield from finding_of("note", "swapped", swapped, message, fix, shown=_texts_at(split, swapped))
    if not same and not swapped:
        yield Finding(
            "ok", "swapped", f"{name}: no pair also occurs swapped, and no pair has the same text twice"
        )


def _texts_at(split: TextSplit, rows: Sequence[int]) -> list[str]:
    return [excerpt(split.texts[i]) for i in rows[:3]]


def _split_sides(split: TextSplit, keys: list[tuple[str, str]], figures: dict[str, Any]) -> Iterable[Finding]:
    """The rows of a random held-out test split (without copies) that share a text with training."""
    try:
        train, held = grouped_split(split.labels or [0] * len(split), copy_keys(split), HELD_OUT, 0)
    except DataError:  # a class has too few examples; training reports it
        return
    train_texts = {side for i in train.tolist() for side in keys[i]}
    shared = [i for i in held.tolist() if train_texts & {*keys[i]}]
    families = Counter(copy_keys(split, sides=True))
    sizes = {"rows": len(held), "shared": len(shared), "families": len(families)}
    largest = max(families.values())
    figures["held_out"] = sizes | {"largest": largest}
    if len(shared) <= MANY * len(held):
        return
    share = f"{len(shared):,} of {len(held):,} ({percent(len(shared), len(held))})"
    message = f"rows of a random held-out test split that share a text with a training pair: {share}; "
    message += "the scores would not hold for new texts"
    severity, code, fix = ("warning", "known-sides", "split by shared texts with --set copies=sides")
    if largest > MANY * len(split):
        severity, code = "note", "side-leaks"
        fix = f"{largest:,} of {len(split):,} pairs are linked by shared texts, so copies=sides cannot "
        fix += "separate them: evaluate on new texts, in a file test.csv next to train.csv"
    yield from finding_of(severity, code, shared, message, fix, shown=_texts_at(split, shared))


def _shared_sides(
    a: str, b: str, splits: Mapping[str, TextSplit], keys: Mapping[str, list], figures: dict[str, Any]
) -> Iterable[Finding]:
    texts, pairs = {side for pair in keys[a] for side in pair}, set(keys[a])
    first, second = ([i for i, pair in enumerate(keys[b]) if pair[side] in texts] for side in (0, 1))
    rows = dict(zip(SIDES, (first, second), strict=True))
    shared, both_sides = sorted({*first, *second}), {*first} & {*second}
    swapped = [i for i, (x, y) in enumerate(keys[b]) if x != y and (y, x) in pairs]
    figures[f"{a}/{b}"] = {
        "rows": len(shared),
        **{which: len(side_rows) for which, side_rows in rows.items()},
        "both": len(both_sides),
        "swapped": len(swapped),
    }
    message = f"pairs of {b} that are also in {a}, swapped: {len(swapped):,}"
    fix = "remove them from one of the splits"
    yield from finding_of("warning", "swapped", swapped, message, fix, shown=_texts_at(splits[b], swapped))
    severity: Severity = "warning" if len(shared) > MANY * len(keys[b]) else "note"
    counts = ", ".join(f"the {which} {len(side_rows):,}" for which, side_rows in rows.items())
    message = (
        f"rows of {b} that share a text with a pair of {a}: {len(shared):,} "
        f"({percent(len(shared), len(keys[b]))}; {counts}, both {len(both_sides):,})"
    )
    fix = "the scores may not hold for new texts; with copies = 'sides' a random split shares no texts"
    shown, ok = _texts_at(splits[b], shared), f"no text of {b} is in a pair of {a}"
    yield from finding_of(severity, "side-leaks", shared, message, fix, shown=shown, ok=ok)


# --- the examination ------------------------------------------------------------------------------

SAMPLE = 5_000  # number of texts that are tokenized
MAX_NAMED = 3  # maximum number of rows that are named as the cause of truncation,
MIN_SHARE = 0.5  # and minimum share of the truncated tokens that these rows must have
RELATED = 3.0  # if neighbors share this many times as many rare words as other rows, they belong together
SHORT = 3  # a text with fewer words is very short
JOINED = re.compile(r"[^\W\d_]_[^\W\d_]")  # joined syllables, as word segmenters for Vietnamese write them
VIETNAMESE = re.compile("[ăđơưĂĐƠƯ\u1ea0-\u1ef9]")
NAMES = re.compile(r"[@#]\w+|\w+://\S+|www\.\S+")
HeldOut = Literal["rows", "blocks"]


def examine(
    dataset: TextDataset,
    *,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    clean: Clean = "none",
    held_out: HeldOut | None = None,
) -> DoctorReport:
    """Run every check on ``dataset``; the checks of tokens need a tokenizer and use a sample of the texts.

    Args:
        max_length: number of tokens to which texts will be truncated, special ones included.
        clean: how the texts will be cleaned before they are tokenized.
        held_out: how splits were held out of ``train``, a value of the key ``hold_out``; None: no split was.
    """
    splits = dataset.splits
    checks: list[Check] = [
        lambda splits, figures: (*_columns(dataset), *bad_rows(dataset.rejected)),
        duplicates,
        leakage,
        sides,
        *LABELS,
        partial(_neighbors, held_out=held_out),
        each_split(_short_texts),
        partial(_markup, clean=clean),
        doubled_quotes,
        partial(_segmentation, tokenizer=tokenizer, clean=clean),
    ]
    if tokenizer is not None:
        positions = {name: _sampled(len(split), SAMPLE // len(splits)) for name, split in splits.items()}
        samples = {name: [splits[name].texts[i] for i in index] for name, index in positions.items()}
        sample = _Sample(samples, positions, tokenizer, clean)
        checks += [partial(_tokens, sample=sample, max_length=max_length), partial(_accents, sample=sample)]
    figures = {"splits": {name: _split_figures(split) for name, split in splits.items()}}
    return run_checks(dataset.name, splits, checks, figures=figures)


def _columns(dataset: TextDataset) -> Iterable[Finding]:
    """Which columns were used; a warning if labels were not checked because several columns may hold them."""
    unseen = dataset.label_candidates and not any(split.labels for split in dataset.splits.values())
    for line in dataset.messages:
        message = f"no labels were checked: {line}" if unseen else line
        yield Finding("warning" if unseen else "note", "columns", message)


# --- texts ------------------------------------------------------------------------------------


def _split_figures(split: TextSplit) -> dict[str, Any]:
    words = np.fromiter((len(text.split()) for text in split.texts), np.int64)
    return {
        "rows": len(split),
        "distinct": len({*split.texts}),
        "classes": {str(k): n for k, n in sorted(Counter(flat_labels(split.labels)).items())},
        "words": _spread(words),
    }


def _spread(values: np.ndarray) -> dict[str, int]:
    low, median, high = np.percentile(values, [5, 50, 95])
    return {"p5": int(low), "median": int(median), "p95": int(high), "max": int(values.max())}


def _neighbors(
    splits: Mapping[str, TextSplit], figures: dict[str, Any], held_out: HeldOut | None
) -> Iterable[Finding]:
    """Whether neighboring rows belong together, so that the score of a random held-out split is too high."""
    train = splits.get("train")
    near = neighbor_similarity(train.texts, train.labels) if train is not None else None
    if near is None:
        return
    figures["neighbours"] = asdict(near) | {"ratio": near.ratio}
    if near.ratio < RELATED:
        message = "train: rows next to each other are no more alike than rows far apart"
        yield Finding("ok", "neighbours", message)
        return
    message = f"train: neighboring rows share rare words {near.ratio:.0f} times as often as rows far apart: "
    message += "they probably belong together (reviews of one film, texts of one author)"
    severity: Severity = "warning" if held_out == "rows" else "note"
    fix = '. Set hold_out = "blocks", since random rows have related rows in training'
    if held_out == "blocks":
        severity, fix = "ok", "; they were held out in blocks"
    yield Finding(severity, "neighbours", message + fix, near.pairs)


def _short_texts(name: str, split: TextSplit) -> Iterable[Finding]:
    letter = re.compile(r"[^\W_]").search
    blank = [i for i, text in enumerate(split.texts) if not letter(text)]
    short = [text for text in split.texts if len(text.split(None, SHORT)) < SHORT and letter(text)]
    message = f"{name}: texts without a letter or digit: {len(blank):,} ({rows_of(split, blank)})"
    shown = at_rows(split, blank, lambda i: excerpt(split.texts[i]))
    fix = "write what was meant, or take the rows out of the table: their label cannot be learned"
    yield from finding_of("warning", "blank-texts", blank, message, fix, shown=shown)
    message = f"{name}: texts of fewer than {SHORT} words: {len(short):,}"
    ok = "" if blank else f"{name}: every text has {SHORT} words or more"
    yield from finding_of("note", "short-texts", short, message, shown=map(excerpt, short[:3]), ok=ok)


def _markup(splits: Mapping[str, TextSplit], figures: dict[str, Any], clean: Clean) -> Iterable[Finding]:
    texts = [text for split in splits.values() for text in split.texts]
    tag = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*\s*/?>").search
    tagged = sum("<" in text and tag(text) is not None for text in texts)
    if tagged and clean == "none":
        message = f"{percent(tagged, len(texts))} of the texts hold HTML tags; clean = 'html' takes them out"
        yield Finding("note", "markup", message, tagged)
    elif not tagged:
        yield Finding("ok", "markup", "no text holds HTML tags")
    if loose := sum(not unicodedata.is_normalized("NFC", text) for text in texts):
        what = "texts not in Unicode's composed form (NFC), where equal letters differ in bytes"
        yield Finding("note", "unicode", f"{what}: {loose:,}", loose)


def _segmentation(
    splits: Mapping[str, TextSplit], figures: dict[str, Any], tokenizer: Tokenizer | None, clean: Clean
) -> Iterable[Finding]:
    """Vietnamese texts in which only some words are joined by underscores."""
    shares = {}
    for name, split in splits.items():
        texts = (split.texts[i] for i in _sampled(len(split), SAMPLE))
        if sample := [text for text in texts if not text.isascii()]:
            shares[name] = sum(map(_is_segmented, sample)) / len(sample)
    if not shares or max(shares.values()) < 0.1 or clean in ("words", "syllables"):
        return
    shares_text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    severity: Severity = "warning"
    if max(shares.values()) - min(shares.values()) > 0.5:
        what = "for the model these are different words: clean = 'syllables' makes them equal"
    elif tokenizer is not None and len(tokenizer.encode("nhà_hàng", add_special_tokens=False).ids) > 2:
        what = "this tokenizer splits the words at '_': clean = 'syllables' removes the '_'"
    else:
        severity, what = "note", "set clean = 'syllables' so that the model also reads plain text"
    yield Finding(severity, "segmentation", f"texts with words joined by '_': {shares_text}; {what}")


def _is_segmented(text: str) -> bool:
    """Whether a Vietnamese text has words joined by '_', except in names such as @a_b and in addresses."""
    match = JOINED.search(NAMES.sub(" ", text))
    return match is not None and VIETNAMESE.search(unicodedata.normalize("NFC", text)) is not None


# --- tokens -----------------------------------------------------------------------------------


def _sampled(count: int, size: int) -> list[int]:
    """Sorted positions of the texts of a sample."""
    if count <= size:
        return list(range(count))
    return np.sort(np.random.default_rng(0).choice(count, size, replace=False)).tolist()


def _most_truncated(lost: np.ndarray, index: Sequence[int], split: TextSplit) -> tuple[str, tuple[str, ...]]:
    """The few rows with most of the truncated tokens, in words and as examples; empty if there are many."""
    ranked = np.argsort(-lost, kind="stable")[:MAX_NAMED]
    share = np.cumsum(lost[ranked]) / max(lost.sum(), 1)
    count = int(np.searchsorted(share, MIN_SHARE)) + 1
    if count > MAX_NAMED or (lost > 0).sum() == 0:
        return "", ()
    rows = [int(i) for i in ranked[:count] if lost[i]]
    places = [place(split.origin, index[i], split.rows) for i in rows]
    short = [f"row {split.rows[index[i]]}" for i in rows] if split.rows else places
    summary = f", {share[count - 1]:.0%} of them in {listed(short)}"
    return summary, tuple(
        f"{where}: {lost[i]:,} tokens cut: {excerpt(split.texts[index[i]], 60)}"
        for i, where in zip(rows, places, strict=True)
    )


class _Sample(NamedTuple):
    """Sampled texts of each split, their positions in the split, and how they are tokenized."""

    texts: dict[str, list[str]]
    places: dict[str, list[int]]
    tokenizer: Tokenizer
    clean: Clean


def _tokens(
    splits: Mapping[str, TextSplit], figures: dict[str, Any], sample: _Sample, max_length: int | None
) -> Iterable[Finding]:
    unknown = unknown_id(sample.tokenizer)
    options = {"clean": sample.clean, "add_special_tokens": False, "unk_id": unknown or 0}
    figures["tokens"] = {}
    for name, texts in sample.texts.items():
        table = encode_inputs(sample.tokenizer, texts, max_length=1 << 30, **options)
        lengths = table.lengths + sample.tokenizer.num_special_tokens_to_add(are_pairs(texts))
        figure: dict[str, Any] = {"sampled": len(texts), "lengths": _spread(lengths)}
        figures["tokens"][name] = figure
        texts_of = f"{len(texts):,} {'' if len(texts) == len(splits[name]) else 'sampled '}texts"
        if unknown is not None:
            num_unknown = int((table.ids == unknown).sum())
            share = figure["unknown_share"] = num_unknown / len(table.ids)
            severity: Severity = "warning" if share > 0.05 else "note" if share > 0.005 else "ok"
            message = f"{name}: {share:.2%} of the tokens are unknown ({texts_of})"
            yield Finding(severity, "unknown", message, num_unknown)
        if max_length is not None:
            cut = int((lengths > max_length).sum())
            share = figure["truncated_share"] = cut / len(texts)
            excess = np.maximum(lengths - max_length, 0)
            lost = figure["lost_share"] = float(excess.sum() / lengths.sum())
            where, examples = _most_truncated(excess, sample.places[name], splits[name])
            severity = "warning" if share > 0.5 else "note" if cut else "ok"
            message = f"{name}: {share:.1%} of {texts_of} exceed {max_length} tokens; "
            message += f"{lost:.1%} of the tokens are cut"
            yield Finding(severity, "truncation", message + where, cut, examples)


def _accents(splits: Mapping[str, TextSplit], figures: dict[str, Any], sample: _Sample) -> Iterable[Finding]:
    """Words whose accents the tokenizer's normalizer strips."""
    find_words = re.compile(r"[^\W\d_]+").findall
    total, accented = 0, Counter[str]()
    for text in itertools.chain.from_iterable(sample.texts.values()):
        words = find_words(unicodedata.normalize("NFC", clean_text(text, sample.clean)))
        total += len(words)
        accented.update(word for word in words if not word.isascii() and _marks(word))
    normalizer: Any = sample.tokenizer.normalizer
    normalized = {w: normalizer.normalize_str(w) if normalizer is not None else w for w in accented}
    lost = {w: n for w, n in accented.items() if _marks(normalized[w]) < _marks(w)}
    share = sum(lost.values()) / max(total, 1)
    figures["accents"] = {"accented_share": accented.total() / max(total, 1), "lost_share": share}
    if not lost:
        yield Finding("ok", "accents", "the tokenizer keeps accents")
        return
    examples = tuple(f"{w} -> {normalized[w]}" for w in sorted(lost, key=lambda w: (-lost[w], w))[:5])
    message = f"the tokenizer strips accents from {share:.2%} of the words"
    if share > 0.01:
        message += "; words that differ only in accents become the same"
    fix = "choose a model whose tokenizer keeps accents; where strip_accents=true is set, leave it out"
    severity: Severity = "warning" if share > 0.01 else "note"
    yield Finding(severity, "accents", message, sum(lost.values()), examples, fix)


def _marks(word: str) -> int:
    return sum(unicodedata.combining(c) > 0 for c in unicodedata.normalize("NFD", word))
