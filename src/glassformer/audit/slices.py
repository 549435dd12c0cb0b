"""Slices: named groups of examples, and tests for those on which a model is worse.

Many slices are tested at once. Those too small for any significant result are not tested and do not count
(Tarone, 1990); p-values of the others are corrected (Holm, 1979), so that the probability of any false
finding is at most ``alpha``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.audit.predicted import Predicted
from glassformer.data.image import open_image
from glassformer.data.label_sets import flat_labels
from glassformer.data.text_pairs import TextPair
from glassformer.evaluate.compare import holm

LEAST = 15  # examples per slice
VALUES = 30  # distinct values of a column, each a slice; numeric columns with more are split into quarters
WORDS = 400  # most frequent words, each a slice
OFTEN = 0.6  # words in a larger share of examples are ignored
ALPHA = 0.05
APART, DENSER = 0.05, 0.01  # p-values below which a slice adds to earlier ones; see ``significant``
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
LINK = re.compile(r"https?://|www\.", re.IGNORECASE)

# rows of a slice -> one-sided p, and the smallest p that is possible for its size
Test = Callable[[np.ndarray], tuple[float, float]]


@dataclass(frozen=True)
class Slice:
    """A named group of examples.

    Attributes:
        kind: ``label``, ``length``, ``column``, ``word``, ``text``, ``image``, or ``label and length``.
        rows: ``[n]`` bool.
    """

    kind: str
    name: str
    rows: np.ndarray

    @property
    def n(self) -> int:
        return int(self.rows.sum())


@dataclass(frozen=True)
class Found:
    """A significant slice; ``p`` is corrected for all slices."""

    slice: Slice
    p: float


def text_of(example: Any) -> str:
    """The text of an example; for pairs, both texts."""
    return " ".join(example.sides) if isinstance(example, TextPair) else str(example)


def words_in(text: str) -> set[str]:
    """The distinct words of a text, case-folded."""
    return {word.casefold() for word in WORD.findall(text)}


def slices_of(predicted: Predicted) -> list[Slice]:
    """All distinct slices with at least ``LEAST`` examples, but not all examples."""
    slices, seen_rows = [], set()
    for part in _candidates(predicted):
        key = np.packbits(part.rows).tobytes()
        if LEAST <= part.n < len(predicted) and key not in seen_rows:
            seen_rows.add(key)
            slices.append(part)
    return slices


def _candidates(predicted: Predicted) -> Iterator[Slice]:
    split = predicted.split
    labels = list(_labels(predicted))
    yield from labels
    for name, values in predicted.columns.items():
        yield from _of_column(name, values)
    if predicted.has_images:
        for name, measured in _image_facts(predicted).items():
            yield from quarters("image", name, measured)
        return
    texts = [text_of(x) for x in split.examples]
    lengths = quarters("length", "words", [len(text.split()) for text in texts])
    yield from lengths
    for label in labels:
        for length in lengths:
            in_both = label.rows & length.rows
            yield Slice("label and length", f"{label.name}, {length.name}", in_both)
    yield from _of_texts(texts)
    yield from _of_words(texts)


def _labels(predicted: Predicted) -> Iterator[Slice]:
    if predicted.gives_numbers:
        yield from quarters("label", "true number", np.asarray(predicted.targets, float))
        return
    label_sets = [set(flat_labels([label])) for label in predicted.split.labels]
    for label in predicted.clf.classes_.tolist():
        yield Slice(
            "label",
            f"label {label}",
            np.array([str(label) in set(map(str, labels)) for labels in label_sets]),
        )


def _of_column(name: str, values: Sequence[str]) -> Iterator[Slice]:
    counts = Counter(values)
    if len(counts) > VALUES:
        with suppress(ValueError):  # texts, not numbers
            yield from quarters("column", name, [float(value or "nan") for value in values])
        return
    for value in counts:
        yield Slice("column", f"{name} = {value or '(empty)'}", np.array([own == value for own in values]))


def quarters(kind: str, name: str, values: Sequence[float] | np.ndarray) -> list[Slice]:
    """Four slices by quartiles of a number; fewer if numbers repeat."""
    x = np.asarray(values, float)
    is_known = np.isfinite(x)
    if not is_known.any():
        return []
    edges = np.unique(np.quantile(x[is_known], [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf"))
    slices, low = [], -np.inf
    for high in edges[1:] if len(edges) > 1 else edges:
        rows = is_known & (x > low) & (x <= high)
        bounds = [x[rows].min(), x[rows].max()] if rows.any() else [high, high]
        bounds_text = " to ".join(f"{bound:.4g}" for bound in dict.fromkeys(bounds))
        slices.append(
            Slice(kind, f"{bounds_text} {name}" if name == "words" else f"{name} {bounds_text}", rows)
        )
        low = high
    return slices


def _of_texts(texts: Sequence[str]) -> Iterator[Slice]:
    marks: dict[str, Callable[[str], bool]] = {
        "with a number": lambda text: any(c.isdigit() for c in text),
        "with a link": lambda text: bool(LINK.search(text)),
        "with a question mark": lambda text: "?" in text,
        "with an exclamation mark": lambda text: "!" in text,
        "with a hashtag": lambda text: bool(re.search(r"#\w", text)),
        "with an emoji": lambda text: bool(EMOJI.search(text)),
        "in capitals": lambda text: text.isupper(),
        "without capitals": lambda text: text.islower(),
        "with letters other than a to z": lambda text: any(c.isalpha() and not c.isascii() for c in text),
    }
    for name, has in marks.items():
        yield Slice("text", name, np.array([has(text) for text in texts]))


def _of_words(texts: Sequence[str]) -> Iterator[Slice]:
    words_per_text = [words_in(text) for text in texts]
    counts = Counter(word for words in words_per_text for word in words)
    often = [word for word, n in counts.most_common() if LEAST <= n <= OFTEN * len(texts)]
    for word in often[:WORDS]:
        yield Slice("word", f"with {word!r}", np.array([word in words for words in words_per_text]))


def _image_facts(predicted: Predicted) -> Mapping[str, list[float]]:
    facts: dict[str, list[float]] = {}
    for image in predicted.split.examples:
        opened = open_image(image)
        gray = np.asarray(opened.convert("L").resize((64, 64)), float) / 255
        found = {
            "brightness": round(float(gray.mean()), 3),
            "contrast": round(float(gray.std()), 3),
            "width in pixels": opened.width,
            "width : height": round(opened.width / opened.height, 2),
        }
        for name, value in found.items():
            facts.setdefault(name, []).append(value)
    return facts


# --- tests ----------------------------------------------------------------------------------------


def more_errors(wrong: np.ndarray) -> Test:
    """Fisher's exact test, one-sided: does the slice have more errors than the other examples?

    Args:
        wrong: ``[n]`` bool.
    """
    from scipy.stats import hypergeom

    n, errors = len(wrong), int(wrong.sum())

    def test(rows: np.ndarray) -> tuple[float, float]:
        size = int(rows.sum())
        law = hypergeom(n, errors, size)
        return float(law.sf(int(wrong[rows].sum()) - 1)), float(law.sf(min(size, errors) - 1))

    return test


def more_losses(losses: np.ndarray, gains: np.ndarray) -> Test:
    """The exact sign (McNemar) test, one-sided: does a model get worse on more examples than better?

    Args:
        losses, gains: ``[n]`` bool, examples on which the model is worse, and better, than the other.
    """
    from scipy.stats import binom

    def test(rows: np.ndarray) -> tuple[float, float]:
        lost, apart = int(losses[rows].sum()), int((losses | gains)[rows].sum())
        return float(binom.sf(lost - 1, apart, 0.5)), 0.5**apart

    return test


def significant(slices: Sequence[Slice], test: Test, events: np.ndarray, alpha: float = ALPHA) -> list[Found]:
    """The significant slices, the smallest p first, without those that earlier ones explain.

    A slice is explained if its examples outside of the earlier slices do not show the effect (p > 0.05),
    and it does not have more events than expected inside of them (Fisher's test, p > 0.01).

    Args:
        events: ``[n]`` bool, the events that the test counts: errors, or losses.
    """
    tested = [(part, *test(part.rows)) for part in slices]
    floors = np.sort([floor for _, _, floor in tested])
    among = next((k for k in range(1, len(tested) + 1) if (floors <= alpha / k).sum() <= k), len(tested))
    testable = [(part, p) for part, p, floor in tested if floor <= alpha / among]
    corrected_p = holm([p for _, p in testable]) if testable else []
    findings: list[Found] = []
    covered = np.zeros(len(events), bool)
    for i in np.argsort(corrected_p, kind="stable").tolist():
        part = testable[i][0]
        if corrected_p[i] > alpha:
            break
        uncovered = part.rows & ~covered
        inside = part.rows[covered]
        if (
            not findings
            or (uncovered.any() and test(uncovered)[0] <= APART)
            or (inside.any() and more_errors(events[covered])(inside)[0] <= DENSER)
        ):
            findings.append(Found(part, corrected_p[i]))
            covered |= part.rows
    return findings
