"""Data doctor for labeled texts."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from glassformer.config import join_names
from glassformer.data import doctor_checks
from glassformer.data.checks import location
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.duplicates import case_insensitive_key, copy_keys
from glassformer.data.findings import DoctorReport, Finding, Findings, Stats, excerpt, percent, row_examples
from glassformer.data.label_sets import flat_labels
from glassformer.data.splits import grouped_split
from glassformer.data.text import Clean, clean_text, unknown_id
from glassformer.data.text_pairs import SIDES, TextPair, are_pairs, encode_inputs
from glassformer.errors import DataError

Splits = Mapping[str, TextSplit]

# --- neighbors ------------------------------------------------------------------------------------
# Neighboring rows may be related (reviews of one film, comments of one author). Then the rows of a random
# held-out split are related to training rows, and the score of this split is too high.

CHUNK_SIZE = 25  # neighboring rows in one chunk of the sample
NUM_CHUNKS = 120
RARE_SHARE = 0.01  # a rare word is in at most this share of the sampled texts, or in at most 20 texts
MIN_NEIGHBORS = 100  # minimum number of pairs of neighbors; with fewer, nothing is reported


@dataclass(frozen=True)
class Similarity:
    """Mean number of rare words that two rows of one class share."""

    near: float  # for neighboring rows
    far: float  # for rows far apart
    pairs: int  # number of pairs in each mean

    @property
    def ratio(self) -> float:
        """``near`` / ``far``, smoothed; about 1 if the order of the rows is random."""
        return (self.near * self.pairs + 1.0) / (self.far * self.pairs + 1.0)  # add-one smoothing


def neighbor_similarity(texts: Sequence[str], labels: Sequence[Any] | None = None) -> Similarity | None:
    """Compare the similarity of neighboring rows with that of rows far apart; None if rows are too few.

    The comparison uses a sample of chunks of neighboring rows, without duplicates.

    Args:
        labels: one label per text. Only rows of the same class are compared, since tables are often sorted by
            class.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    rows, starts = _sampled_rows(texts, labels)
    if len(rows) - len(starts) < MIN_NEIGHBORS:
        return None
    max_texts = max(20, round(RARE_SHARE * len(rows)))
    counter = CountVectorizer(binary=True, min_df=2, max_df=max_texts, token_pattern=r"(?u)\w+")
    try:
        words: Any = counter.fit_transform([texts[i] for i in rows])
    except ValueError:  # no word is in two texts, or no word is rare
        return None
    second = np.setdiff1d(np.arange(len(rows)), starts)  # rows whose neighbor is the previous row
    label = np.asarray([str(labels[i]) for i in rows] if labels is not None else [""] * len(rows))
    second = second[label[second] == label[second - 1]]
    if len(second) < MIN_NEIGHBORS:
        return None
    # Rows far apart: each row is paired with a row of another chunk of the same class.
    by_class = [second[label[second] == name] for name in np.unique(label)]
    shifted = np.concatenate([np.roll(group, len(group) // 2) for group in by_class])

    def mean_shared_words(a: np.ndarray, b: np.ndarray) -> float:
        return float(words[a].multiply(words[b]).sum() / len(a))

    near, far = mean_shared_words(second, second - 1), mean_shared_words(np.concatenate(by_class), shifted)
    return Similarity(near, far, len(second))


def _sampled_rows(texts: Sequence[str], labels: Sequence[str | int] | None) -> tuple[list[int], np.ndarray]:
    """The rows of the sample, and the positions in the sample at which a chunk begins.

    The rows are grouped by class first, since some tables mix classes but keep the order within each class.
    """
    order = [*range(len(texts))]
    if labels is not None:
        order.sort(key=lambda i: str(labels[i]))  # stable: the order within a class does not change
    seen: set[str] = set()
    order = [i for i in order if not (texts[i] in seen or seen.add(texts[i]))]
    if len(order) <= CHUNK_SIZE * NUM_CHUNKS:
        return order, np.array([0])
    starts = np.linspace(0, len(order) - CHUNK_SIZE, NUM_CHUNKS).astype(int)
    rows = [order[start + k] for start in starts.tolist() for k in range(CHUNK_SIZE)]
    return rows, np.arange(NUM_CHUNKS) * CHUNK_SIZE


# --- pairs of texts -------------------------------------------------------------------------------
# Checks of texts that occur in several pairs, and of pairs that also occur swapped.

HELD_OUT_SHARE = 0.1  # share of the rows that ``train`` holds out of a table without splits
MAX_SHARED = 0.5  # warn if a larger share of a split's pairs shares a text with a training pair


def _text_pairs(splits: Splits, stats: Stats) -> Findings:
    """Checks of pairs of texts; yields nothing if the texts are not pairs."""
    if not any(are_pairs(split.texts) for split in splits.values()):
        return
    stats["sides"] = {"splits": {}, "leaks": {}}
    keys = {name: [_pair_key(text) for text in split.texts] for name, split in splits.items()}
    for name, split in splits.items():
        yield from _check_pairs_of_split(name, split, keys[name], stats["sides"]["splits"])
    for a, b in itertools.combinations(splits, 2):
        yield from _check_shared_texts(a, b, splits, keys, stats["sides"]["leaks"])
    if [*splits] == ["train"]:
        yield from _check_random_split(splits["train"], keys["train"], stats["sides"])


def _pair_key(text: str) -> tuple[str, str]:
    first, second = text.sides if isinstance(text, TextPair) else (text, "")
    return case_insensitive_key(first), case_insensitive_key(second)


def _check_pairs_of_split(name: str, split: TextSplit, keys: list[tuple[str, str]], stats: Stats) -> Findings:
    same, all_keys = [i for i, (a, b) in enumerate(keys) if a == b], set(keys)
    swapped = [i for i, (a, b) in enumerate(keys) if a < b and (b, a) in all_keys]
    distinct = {f"distinct_{which}": len({*side}) for which, side in zip(SIDES, zip(*keys))}
    stats[name] = distinct | {"same": len(same), "swapped": len(swapped)}
    message = f"{name}: pairs whose two texts are the same: {len(same):,}"
    examples = [excerpt(split.texts[i].split("\n")[0]) for i in same[:3]]
    yield from Finding.if_any("note", "same-sides", same, message, shown=examples)
    message = f"{name}: pairs that also occur swapped: {len(swapped):,}"
    fix = "a random split keeps swapped pairs together, like copies"
    yield from Finding.if_any("note", "swapped", swapped, message, fix, shown=_texts_at(split, swapped))
    if not same and not swapped:
        yield Finding(
            "ok", "swapped", f"{name}: no pair also occurs swapped, and no pair has the same text twice"
        )


def _texts_at(split: TextSplit, rows: Sequence[int]) -> list[str]:
    return [excerpt(split.texts[i]) for i in rows[:3]]


def _check_random_split(split: TextSplit, keys: list[tuple[str, str]], stats: Stats) -> Findings:
    """Hold out a random test split, and count its pairs that share a text with a training pair."""
    try:
        labels = split.labels or [0] * len(split)
        train, held_out = grouped_split(labels, copy_keys(split), HELD_OUT_SHARE, seed=0)
    except DataError:  # a class has too few examples; training reports this
        return
    train_texts = {text for i in train.tolist() for text in keys[i]}
    shared = [i for i in held_out.tolist() if train_texts & {*keys[i]}]
    groups = Counter(copy_keys(split, linked=True))
    largest = max(groups.values())
    sizes = {"rows": len(held_out), "shared": len(shared), "families": len(groups), "largest": largest}
    stats["held_out"] = sizes
    if len(shared) <= MAX_SHARED * len(held_out):
        return
    share = f"{len(shared):,} of {len(held_out):,} ({percent(len(shared), len(held_out))})"
    message = f"rows of a random held-out test split that share a text with a training pair: {share}; "
    message += "the scores would not be valid for new texts"
    severity, code, fix = ("warning", "known-sides", "split by shared texts with --set copies=sides")
    if largest > MAX_SHARED * len(split):
        severity, code = "note", "side-leaks"
        fix = f"{largest:,} of {len(split):,} pairs are linked by shared texts, so copies=sides cannot "
        fix += "separate them: evaluate on new texts, in a file test.csv next to train.csv"
    yield from Finding.if_any(severity, code, shared, message, fix, shown=_texts_at(split, shared))


def _check_shared_texts(a: str, b: str, splits: Splits, keys: Mapping[str, list], stats: Stats) -> Findings:
    texts, pairs = {text for pair in keys[a] for text in pair}, set(keys[a])
    first, second = ([i for i, pair in enumerate(keys[b]) if pair[side] in texts] for side in (0, 1))
    counts = dict(zip(SIDES, (len(first), len(second)), strict=True))
    shared, both_sides = sorted({*first, *second}), {*first} & {*second}
    swapped = [i for i, (x, y) in enumerate(keys[b]) if x != y and (y, x) in pairs]
    stats[f"{a}/{b}"] = {"rows": len(shared), **counts, "both": len(both_sides), "swapped": len(swapped)}
    message = f"pairs of {b} that are also in {a}, swapped: {len(swapped):,}"
    fix = "remove them from one of the splits"
    shown = _texts_at(splits[b], swapped)
    yield from Finding.if_any("warning", "swapped", swapped, message, fix, shown=shown)
    severity = "warning" if len(shared) > MAX_SHARED * len(keys[b]) else "note"
    details = ", ".join(f"the {which} {count:,}" for which, count in counts.items())
    message = f"rows of {b} that share a text with a pair of {a}: {len(shared):,} "
    message += f"({percent(len(shared), len(keys[b]))}; {details}, both {len(both_sides):,})"
    fix = "the scores may not be valid for new texts; with copies = 'sides' a random split shares no texts"
    shown, ok = _texts_at(splits[b], shared), f"no text of {b} is in a pair of {a}"
    yield from Finding.if_any(severity, "side-leaks", shared, message, fix, shown=shown, ok=ok)


# --- the report -----------------------------------------------------------------------------------

SAMPLE_SIZE = 5_000  # number of texts that are tokenized
MAX_CAUSES = 3  # maximum number of rows that a message names as the cause of truncation
MIN_CAUSE_SHARE = 0.5  # minimum share of the truncated tokens that are in these rows
RELATED_RATIO = 3.0  # neighbors are related if they share this many times as many rare words as other rows
MIN_WORDS = 3  # a text with fewer words is very short
JOINED = re.compile(r"[^\W\d_]_[^\W\d_]")  # "nhà_hàng": word segmenters for Vietnamese join syllables by "_"
VIETNAMESE = re.compile("[ăđơưĂĐƠƯ\u1ea0-\u1ef9]")  # letters that occur only in Vietnamese
MENTIONS_AND_URLS = re.compile(r"[@#]\w+|\w+://\S+|www\.\S+")
HoldOut = Literal["rows", "blocks"]


def examine(
    dataset: TextDataset,
    *,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    clean: Clean = "none",
    held_out: HoldOut | None = None,
) -> DoctorReport:
    """Run every check on ``dataset``.

    Args:
        tokenizer: tokenizer for the checks of tokens, on a sample of the texts; None: skip these checks.
        max_length: number of tokens to which texts will be truncated, including special tokens.
        clean: how the texts will be cleaned before they are tokenized.
        held_out: how splits were held out of ``train`` (recipe key ``hold_out``); None: they were not.
    """
    splits = dataset.splits
    # The messages about columns come before those about bad rows, which ``run_checks`` would put first.
    checks: list[Any] = [lambda *_: (*_columns(dataset), *doctor_checks.bad_rows(dataset.rejected))]
    checks += [doctor_checks.duplicates, doctor_checks.leakage, _text_pairs, *doctor_checks.LABEL_CHECKS]
    checks += [partial(_neighbors, held_out=held_out), doctor_checks.each_split(_short_texts)]
    checks += [partial(_markup, clean=clean), doctor_checks.doubled_quotes]
    checks += [partial(_segmentation, tokenizer=tokenizer, clean=clean)]
    if tokenizer is not None:
        positions = {k: _sample_positions(len(v), SAMPLE_SIZE // len(splits)) for k, v in splits.items()}
        samples = {name: [splits[name].texts[i] for i in index] for name, index in positions.items()}
        sample = _Sample(samples, positions, tokenizer, clean)
        checks += [partial(_tokens, sample=sample, max_length=max_length), partial(_accents, sample=sample)]
    stats = {"splits": {name: _split_stats(split) for name, split in splits.items()}}
    return doctor_checks.run_checks(replace(dataset, rejected=()), checks, stats)


def _columns(dataset: TextDataset) -> Findings:
    """Which columns were used; a warning if it is unclear which column has the labels."""
    is_unclear = dataset.label_candidates and not any(split.labels for split in dataset.splits.values())
    for line in dataset.messages:
        message = f"no labels were checked: {line}" if is_unclear else line
        yield Finding("warning" if is_unclear else "note", "columns", message)


# --- texts ------------------------------------------------------------------------------------


def _split_stats(split: TextSplit) -> dict[str, Any]:
    words = np.fromiter((len(text.split()) for text in split.texts), np.int64)
    classes = {str(k): n for k, n in sorted(Counter(flat_labels(split.labels)).items())}
    sizes = {"rows": len(split), "distinct": len({*split.texts})}
    return sizes | {"classes": classes, "words": _quantiles(words)}


def _quantiles(values: np.ndarray) -> dict[str, int]:
    low, median, high = np.percentile(values, [5, 50, 95])
    return {"p5": int(low), "median": int(median), "p95": int(high), "max": int(values.max())}


def _neighbors(splits: Splits, stats: Stats, held_out: HoldOut | None) -> Findings:
    """Whether neighboring rows are related, so that the score of a random held-out split is too high."""
    train = splits.get("train")
    similarity = neighbor_similarity(train.texts, train.labels) if train is not None else None
    if similarity is None:
        return
    stats["neighbours"] = asdict(similarity) | {"ratio": similarity.ratio}
    if similarity.ratio < RELATED_RATIO:
        message = "train: rows next to each other are no more alike than rows far apart"
        yield Finding("ok", "neighbours", message)
        return
    message = f"train: neighboring rows share rare words {similarity.ratio:.0f} times as often as rows far "
    message += "apart: they probably belong together (reviews of one film, texts of one author)"
    severity = "warning" if held_out == "rows" else "note"
    fix = '. Set hold_out = "blocks", since random rows have related rows in training'
    if held_out == "blocks":
        severity, fix = "ok", "; they were held out in blocks"
    yield Finding(severity, "neighbours", message + fix, similarity.pairs)


def _short_texts(name: str, split: TextSplit) -> Findings:
    has_letter = re.compile(r"[^\W_]").search
    blank = [i for i, text in enumerate(split.texts) if not has_letter(text)]
    short = [x for x in split.texts if len(x.split(None, MIN_WORDS)) < MIN_WORDS and has_letter(x)]
    rows = doctor_checks.format_rows(split, blank)
    message = f"{name}: texts without a letter or digit: {len(blank):,} ({rows})"
    shown = row_examples(split, blank, lambda i: excerpt(split.texts[i]))
    fix = "write what was meant, or take the rows out of the table: their label cannot be learned"
    yield from Finding.if_any("warning", "blank-texts", blank, message, fix, shown=shown)
    message = f"{name}: texts of fewer than {MIN_WORDS} words: {len(short):,}"
    ok = "" if blank else f"{name}: every text has {MIN_WORDS} words or more"
    yield from Finding.if_any("note", "short-texts", short, message, shown=map(excerpt, short[:3]), ok=ok)


def _markup(splits: Splits, stats: Stats, clean: Clean) -> Findings:
    texts = [text for split in splits.values() for text in split.texts]
    has_tag = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*\s*/?>").search
    num_tagged = sum("<" in text and has_tag(text) is not None for text in texts)
    if num_tagged and clean == "none":
        share = percent(num_tagged, len(texts))
        message = f"{share} of the texts contain HTML tags; clean = 'html' removes them"
        yield Finding("note", "markup", message, num_tagged)
    elif not num_tagged:
        yield Finding("ok", "markup", "no text contains HTML tags")
    if num_decomposed := sum(not unicodedata.is_normalized("NFC", text) for text in texts):
        what = "texts not in Unicode's composed form (NFC), where equal letters differ in bytes"
        yield Finding("note", "unicode", f"{what}: {num_decomposed:,}", num_decomposed)


def _segmentation(splits: Splits, stats: Stats, tokenizer: Tokenizer | None, clean: Clean) -> Findings:
    """Vietnamese texts in which only some words are joined by underscores."""
    shares = {}
    for name, split in splits.items():
        texts = (split.texts[i] for i in _sample_positions(len(split), SAMPLE_SIZE))
        if sample := [text for text in texts if not text.isascii()]:
            shares[name] = sum(map(_is_segmented, sample)) / len(sample)
    if not shares or max(shares.values()) < 0.1 or clean in ("words", "syllables"):
        return
    shares_text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    severity = "warning"
    if max(shares.values()) - min(shares.values()) > 0.5:
        what = "for the model these are different words: clean = 'syllables' makes them equal"
    elif tokenizer is not None and len(tokenizer.encode("nhà_hàng", add_special_tokens=False).ids) > 2:
        what = "this tokenizer splits the words at '_': clean = 'syllables' removes the '_'"
    else:
        severity, what = "note", "set clean = 'syllables' so that the model also reads plain text"
    yield Finding(severity, "segmentation", f"texts with words joined by '_': {shares_text}; {what}")


def _is_segmented(text: str) -> bool:
    """Whether a text is Vietnamese and has syllables joined by '_', except in mentions (@a_b) and URLs."""
    match = JOINED.search(MENTIONS_AND_URLS.sub(" ", text))
    return match is not None and VIETNAMESE.search(unicodedata.normalize("NFC", text)) is not None


# --- tokens -----------------------------------------------------------------------------------


def _sample_positions(count: int, size: int) -> list[int]:
    if count <= size:
        return list(range(count))
    return np.sort(np.random.default_rng(0).choice(count, size, replace=False)).tolist()


def _most_truncated(
    num_cut: np.ndarray, positions: Sequence[int], split: TextSplit
) -> tuple[str, tuple[str, ...]]:
    """The rows with most of the truncated tokens, as a clause for the message and as examples.

    Both are empty if more than ``MAX_CAUSES`` rows have these tokens.
    """
    ranked = np.argsort(-num_cut, kind="stable")[:MAX_CAUSES]
    share = np.cumsum(num_cut[ranked]) / max(num_cut.sum(), 1)
    count = int(np.searchsorted(share, MIN_CAUSE_SHARE)) + 1
    if count > MAX_CAUSES or not num_cut.any():
        return "", ()
    rows = [int(i) for i in ranked[:count] if num_cut[i]]
    places = [location(split.origin, positions[i], split.rows) for i in rows]
    short = [f"row {split.rows[positions[i]]}" for i in rows] if split.rows else places
    summary = f", {share[count - 1]:.0%} of them in {join_names(short)}"
    return summary, tuple(
        f"{where}: {num_cut[i]:,} tokens cut: {excerpt(split.texts[positions[i]], 60)}"
        for i, where in zip(rows, places, strict=True)
    )


class _Sample(NamedTuple):
    """Sampled texts of each split, and how they are tokenized."""

    texts: dict[str, list[str]]
    positions: dict[str, list[int]]  # of the texts in their split
    tokenizer: Tokenizer
    clean: Clean


def _tokens(splits: Splits, stats: Stats, sample: _Sample, max_length: int | None) -> Findings:
    unk_id = unknown_id(sample.tokenizer)
    options = {"clean": sample.clean, "add_special_tokens": False, "unk_id": unk_id or 0}
    stats["tokens"] = {}
    for name, texts in sample.texts.items():
        table = encode_inputs(sample.tokenizer, texts, max_length=1 << 30, **options)
        lengths = table.lengths + sample.tokenizer.num_special_tokens_to_add(are_pairs(texts))
        split_stats = stats["tokens"][name] = {"sampled": len(texts), "lengths": _quantiles(lengths)}
        num_texts = f"{len(texts):,} {'' if len(texts) == len(splits[name]) else 'sampled '}texts"
        if unk_id is not None:
            num_unknown = int((table.ids == unk_id).sum())
            share = split_stats["unknown_share"] = num_unknown / len(table.ids)
            severity = "warning" if share > 0.05 else "note" if share > 0.005 else "ok"
            message = f"{name}: {share:.2%} of the tokens are unknown ({num_texts})"
            yield Finding(severity, "unknown", message, num_unknown)
        if max_length is not None:
            num_long = int((lengths > max_length).sum())
            share = split_stats["truncated_share"] = num_long / len(texts)
            num_cut = np.maximum(lengths - max_length, 0)
            cut_share = split_stats["lost_share"] = float(num_cut.sum() / lengths.sum())
            causes, examples = _most_truncated(num_cut, sample.positions[name], splits[name])
            severity = "warning" if share > 0.5 else "note" if num_long else "ok"
            message = f"{name}: {share:.1%} of {num_texts} exceed {max_length} tokens; "
            message += f"{cut_share:.1%} of the tokens are cut"
            yield Finding(severity, "truncation", message + causes, num_long, examples)


def _accents(splits: Splits, stats: Stats, sample: _Sample) -> Findings:
    """Words whose accents the tokenizer's normalizer strips."""
    find_words = re.compile(r"[^\W\d_]+").findall
    total, accented = 0, Counter[str]()
    for text in itertools.chain.from_iterable(sample.texts.values()):
        words = find_words(unicodedata.normalize("NFC", clean_text(text, sample.clean)))
        total += len(words)
        accented.update(word for word in words if not word.isascii() and _num_accents(word))
    normalizer: Any = sample.tokenizer.normalizer
    normalized = {w: normalizer.normalize_str(w) if normalizer is not None else w for w in accented}
    stripped = {w: n for w, n in accented.items() if _num_accents(normalized[w]) < _num_accents(w)}
    share = sum(stripped.values()) / max(total, 1)
    stats["accents"] = {"accented_share": accented.total() / max(total, 1), "lost_share": share}
    if not stripped:
        yield Finding("ok", "accents", "the tokenizer keeps accents")
        return
    most_frequent = sorted(stripped, key=lambda w: (-stripped[w], w))[:5]
    examples = tuple(f"{w} -> {normalized[w]}" for w in most_frequent)
    message = f"the tokenizer strips accents from {share:.2%} of the words"
    if share > 0.01:
        message += "; words that differ only in accents become the same"
    fix = "choose a model whose tokenizer keeps accents; where strip_accents=true is set, leave it out"
    severity = "warning" if share > 0.01 else "note"
    yield Finding(severity, "accents", message, sum(stripped.values()), examples, fix)


def _num_accents(word: str) -> int:
    return sum(unicodedata.combining(c) > 0 for c in unicodedata.normalize("NFD", word))
