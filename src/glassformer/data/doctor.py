"""What is wrong with a data set, before a model learns it: repeats, leaks, cuts, unknown words."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from glassformer.config import listed
from glassformer.data.checks import place
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor_labels import (
    balance,
    contradictions,
    in_one_table,
    lone_classes,
    missing_classes,
    no_labels,
    odd_labels,
    twin_classes,
    without_classes,
)
from glassformer.data.doctor_rows import bad_rows, doubled_quotes, leaks, repeats, rows_of
from glassformer.data.doctor_sets import several_labels
from glassformer.data.doctor_sides import sides
from glassformer.data.findings import DoctorReport, Finding, Severity, excerpt, percent
from glassformer.data.label_sets import each
from glassformer.data.neighbors import kinship
from glassformer.data.pair_tokens import encode_inputs
from glassformer.data.text import Clean, clean_text, unknown_id
from glassformer.data.text_pairs import are_pairs

SAMPLE = 5_000  # texts for whatever needs the tokenizer
FEW = 3  # texts that are named, where they make
MOST = 0.5  # of the tokens that are cut, or more
KIN = 3.0  # times as many rare words shared with a neighbour: the order of the rows means something
SHORT = 3  # words; fewer make a text very short
JOINED = re.compile(r"[^\W\d_]_[^\W\d_]")  # syllables of one word, as segmenters of Vietnamese write them
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
    """Every check on ``dataset``; those on tokens need a tokenizer and look at a sample.

    Args:
        max_length: tokens at which texts are going to be cut, special ones included.
        clean: as the texts are going to be cleaned before they are tokenized.
        held_out: how parts were taken out of ``train``, as the key ``hold_out`` has it; None: none was.
    """
    splits = dataset.splits
    counts = {name: Counter(split.texts) for name, split in splits.items()}
    figures: dict[str, Any] = {"splits": {n: _split_figures(s, len(counts[n])) for n, s in splits.items()}}
    findings = [
        *_columns(dataset),
        *bad_rows(dataset.rejected),
        *repeats(counts, splits),
        *leaks(splits, counts, figures),
        *sides(splits, figures),
        *contradictions(splits),
        *odd_labels(splits),
        *no_labels([x for split in splits.values() for x in each(split.labels)]),
        *balance(splits),
        *several_labels(splits, figures),
        *lone_classes(splits),
        *missing_classes(splits),
        *twin_classes(splits),
        *_neighbors(splits, figures, held_out),
        *_short_texts(splits),
        *_markup(splits, clean),
        *doubled_quotes(splits),
        *_segmentation(splits, tokenizer, clean),
    ]
    if tokenizer is not None:
        chosen = {name: _chosen(len(split), SAMPLE // len(splits)) for name, split in splits.items()}
        samples = {name: [splits[name].texts[i] for i in index] for name, index in chosen.items()}
        findings += [
            *_tokens(samples, splits, chosen, tokenizer, max_length, clean, figures),
            *_accents(samples, tokenizer, clean, figures),
        ]
    return DoctorReport(dataset.name, in_one_table(without_classes(findings)), figures)


def _columns(dataset: TextDataset) -> Iterable[Finding]:
    """Which columns were taken; that there are no labels to look at, where several columns may hold them."""
    labels = any(split.labels for split in dataset.splits.values())
    for sentence in dataset.said:
        if labels or not dataset.label_candidates:
            yield Finding("note", "columns", sentence)
            continue
        yield Finding("warning", "columns", f"no labels were looked at: {sentence}")


# --- texts ------------------------------------------------------------------------------------


def _split_figures(split: TextSplit, distinct: int) -> dict[str, Any]:
    words = np.fromiter((len(text.split()) for text in split.texts), np.int64)
    return {
        "rows": len(split),
        "distinct": distinct,
        "classes": {str(k): n for k, n in sorted(Counter(each(split.labels)).items())},
        "words": _spread(words),
    }


def _spread(values: np.ndarray) -> dict[str, int]:
    low, median, high = np.percentile(values, [5, 50, 95])
    return {"p5": int(low), "median": int(median), "p95": int(high), "max": int(values.max())}


def _neighbors(
    splits: dict[str, TextSplit], figures: dict[str, Any], held_out: HeldOut | None
) -> Iterable[Finding]:
    """Whether rows that belong together stand together, so that a random held-out part would flatter."""
    train = splits.get("train")
    found = kinship(train.texts, train.labels) if train is not None else None
    if found is None:
        return
    figures["neighbours"] = asdict(found) | {"ratio": found.ratio}
    if found.ratio < KIN:
        yield Finding(
            "ok", "neighbours", "train: rows next to each other are no more alike than rows far apart"
        )
        return
    message = (
        f"train: neighbouring rows share rare words {found.ratio:.0f} times as often as rows far apart: rows "
        "that belong together (of one film, one author) stand together"
    )
    if held_out == "blocks":
        yield Finding("ok", "neighbours", f"{message}; they were held out in blocks", found.pairs)
        return
    advice = '. Hold out with hold_out = "blocks", since random rows have relatives in training'
    severity: Severity = "warning" if held_out == "rows" else "note"
    yield Finding(severity, "neighbours", message + advice, found.pairs)


def _short_texts(splits: dict[str, TextSplit]) -> Iterable[Finding]:
    letter = re.compile(r"[^\W_]").search
    for name, split in splits.items():
        blank = [i for i, text in enumerate(split.texts) if not letter(text)]
        short = [text for text in split.texts if len(text.split(None, SHORT)) < SHORT and letter(text)]
        if blank:
            message = f"{name}: texts without a letter or digit: {len(blank):,} ({rows_of(split, blank)})"
            shown = tuple(
                f"{place(split.origin, i, split.rows)}: {excerpt(split.texts[i])}" for i in blank[:3]
            )
            fix = "write what was meant, or take the rows out of the table: their label cannot be learned"
            yield Finding("warning", "blank-texts", message, len(blank), shown, fix)
        if short:
            message = f"{name}: texts of fewer than {SHORT} words: {len(short):,}"
            yield Finding("note", "short-texts", message, len(short), tuple(map(excerpt, short[:3])))
        if not blank and not short:
            yield Finding("ok", "short-texts", f"{name}: every text has {SHORT} words or more")


def _markup(splits: dict[str, TextSplit], clean: Clean) -> Iterable[Finding]:
    total = sum(map(len, splits.values()))
    tag = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*\s*/?>").search
    tagged = [text for split in splits.values() for text in split.texts if "<" in text and tag(text)]
    if tagged and clean == "none":
        message = f"{percent(len(tagged), total)} of the texts hold HTML tags; clean = 'html' takes them out"
        yield Finding("note", "markup", message, len(tagged))
    elif not tagged:
        yield Finding("ok", "markup", "no text holds HTML tags")
    loose = sum(not unicodedata.is_normalized("NFC", t) for split in splits.values() for t in split.texts)
    if loose:
        message = (
            f"texts not in Unicode's composed form (NFC), where equal letters differ in bytes: {loose:,}"
        )
        yield Finding("note", "unicode", message, loose)


def _segmentation(
    splits: dict[str, TextSplit], tokenizer: Tokenizer | None, clean: Clean
) -> Iterable[Finding]:
    """Vietnamese whose words are joined by underscores in one place and not in another."""
    shares = {}
    for name, split in splits.items():
        sample = [text for text in _sample(split.texts, SAMPLE) if not text.isascii()]
        if sample:
            shares[name] = sum(map(_is_segmented, sample)) / len(sample)
    if not shares or max(shares.values()) < 0.1 or clean in ("words", "syllables"):
        return
    stated = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    message = f"texts with words joined by '_': {stated}"
    if max(shares.values()) - min(shares.values()) > 0.5:
        message += "; to the model these are other words: clean = 'syllables' makes them alike"
        yield Finding("warning", "segmentation", message)
        return
    if tokenizer is not None and len(tokenizer.encode("nhà_hàng", add_special_tokens=False).ids) > 2:
        message += "; this tokenizer takes the words apart at '_': clean = 'syllables' removes it"
        yield Finding("warning", "segmentation", message)
        return
    message += "; plain text is read well only with clean = 'syllables'"
    yield Finding("note", "segmentation", message)


def _is_segmented(text: str) -> bool:
    """Whether a Vietnamese text has words joined by '_', other than in names such as @a_b and addresses."""
    found = JOINED.search(NAMES.sub(" ", text))
    return found is not None and VIETNAMESE.search(unicodedata.normalize("NFC", text)) is not None


# --- tokens -----------------------------------------------------------------------------------


def _sample(texts: list[str], size: int) -> list[str]:
    return [texts[i] for i in _chosen(len(texts), size)]


def _chosen(count: int, size: int) -> list[int]:
    """Where the texts of a sample stand, in their order."""
    if count <= size:
        return list(range(count))
    return np.sort(np.random.default_rng(0).choice(count, size, replace=False)).tolist()


def _most_cut(lost: np.ndarray, chosen: Sequence[int], split: TextSplit) -> tuple[str, tuple[str, ...]]:
    """The few rows that make most of what is cut, as a sentence and as examples; empty where many do."""
    ranked = np.argsort(-lost, kind="stable")[:FEW]
    share = np.cumsum(lost[ranked]) / max(lost.sum(), 1)
    enough = int(np.searchsorted(share, MOST)) + 1
    if enough > FEW or (lost > 0).sum() == 0:
        return "", ()
    rows = [int(i) for i in ranked[:enough] if lost[i]]
    places = [place(split.origin, chosen[i], split.rows) for i in rows]
    short = [
        f"row {split.rows[chosen[i]]}" if split.rows else where for i, where in zip(rows, places, strict=True)
    ]
    said = f", {share[enough - 1]:.0%} of them in {listed(short)}"
    return said, tuple(
        f"{where}: {lost[i]:,} tokens cut: {excerpt(split.texts[chosen[i]], 60)}"
        for i, where in zip(rows, places, strict=True)
    )


def _of(sample: Sequence[str], split: TextSplit) -> str:
    whole = len(sample) == len(split)
    return f"{len(split):,} texts" if whole else f"{len(sample):,} sampled texts"


def _tokens(
    samples: dict[str, list[str]],
    splits: dict[str, TextSplit],
    chosen: dict[str, list[int]],
    tokenizer: Tokenizer,
    max_length: int | None,
    clean: Clean,
    figures: dict[str, Any],
) -> Iterable[Finding]:
    unknown = unknown_id(tokenizer)
    figures["tokens"] = {}
    for name, sample in samples.items():
        table = encode_inputs(
            tokenizer, sample, max_length=1 << 30, clean=clean, add_special_tokens=False, unk_id=unknown or 0
        )
        lengths = table.lengths + tokenizer.num_special_tokens_to_add(are_pairs(sample))
        figure: dict[str, Any] = {"sampled": len(sample), "lengths": _spread(lengths)}
        figures["tokens"][name] = figure
        of = _of(sample, splits[name])
        if unknown is not None:
            strange = int((table.ids == unknown).sum())
            share = figure["unknown_share"] = strange / len(table.ids)
            severity: Severity = "warning" if share > 0.05 else "note" if share > 0.005 else "ok"
            message = f"{name}: {share:.2%} of the tokens are unknown ({of})"
            yield Finding(severity, "unknown", message, strange)
        if max_length is not None:
            cut = int((lengths > max_length).sum())
            share = figure["truncated_share"] = cut / len(sample)
            over = np.maximum(lengths - max_length, 0)
            lost = figure["lost_share"] = float(over.sum() / lengths.sum())
            where, examples = _most_cut(over, chosen[name], splits[name])
            severity = "warning" if share > 0.5 else "note" if cut else "ok"
            message = (
                f"{name}: {share:.1%} of {of} exceed {max_length} tokens; {lost:.1%} of the tokens are cut"
            )
            yield Finding(severity, "truncation", message + where, cut, examples)


def _accents(
    samples: dict[str, list[str]], tokenizer: Tokenizer, clean: Clean, figures: dict[str, Any]
) -> Iterable[Finding]:
    """Words whose accents the tokenizer's normaliser takes away."""
    find_words = re.compile(r"[^\W\d_]+").findall
    total, accented = 0, Counter[str]()
    for text in itertools.chain.from_iterable(samples.values()):
        words = find_words(unicodedata.normalize("NFC", clean_text(text, clean)))
        total += len(words)
        accented.update(word for word in words if not word.isascii() and _marks(word))
    normalizer: Any = tokenizer.normalizer
    plain = {w: normalizer.normalize_str(w) if normalizer is not None else w for w in accented}
    lost = {w: n for w, n in accented.items() if _marks(plain[w]) < _marks(w)}
    share = sum(lost.values()) / max(total, 1)
    figures["accents"] = {"accented_share": accented.total() / max(total, 1), "lost_share": share}
    if not lost:
        yield Finding("ok", "accents", "the tokenizer keeps accents")
        return
    examples = tuple(f"{w} -> {plain[w]}" for w in sorted(lost, key=lambda w: (-lost[w], w))[:5])
    message = f"the tokenizer takes the accents from {share:.2%} of the words"
    if share > 0.01:
        message += "; words that differ in accents only become one"
    fix = "choose a model whose tokenizer keeps accents; where strip_accents=true is set, leave it out"
    severity: Severity = "warning" if share > 0.01 else "note"
    yield Finding(severity, "accents", message, sum(lost.values()), examples, fix)


def _marks(word: str) -> int:
    return sum(unicodedata.combining(c) > 0 for c in unicodedata.normalize("NFD", word))
