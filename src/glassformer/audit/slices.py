"""Slices: groups of examples on which a model may be worse.

Many slices are tested at once. Slices that are too small for a significant result are not tested, and do not
count in the correction (Tarone, 1990). The p-values of the tested slices are corrected (Holm, 1979): the
probability of any false finding is at most ``alpha``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.audit.predictions import Predictions
from glassformer.data.image import open_image
from glassformer.data.label_sets import flat_labels
from glassformer.data.text_pairs import TextPair
from glassformer.evaluate.compare import holm

MIN_EXAMPLES = 15  # minimum number of examples per slice
MAX_VALUES = 30  # columns with more distinct values have slices by quartiles if they are numeric
MAX_WORDS = 400  # maximum number of words with a slice, the most frequent first
MAX_WORD_SHARE = 0.6  # words in a larger share of examples have no slice
ALPHA = 0.05  # significance level, for corrected p-values
NEW_EFFECT_P, MORE_EVENTS_P = 0.05, 0.01  # maximum p-values; see ``significant``
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # for example "don't"
EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
LINK = re.compile(r"https?://|www\.", re.IGNORECASE)

# Rows of a slice -> one-sided p-value, and the smallest p-value that a slice of this size can have
Test = Callable[[np.ndarray], tuple[float, float]]


@dataclass(frozen=True)
class Slice:
    """A named group of examples.

    Attributes:
        kind: ``label``, ``length``, ``column``, ``word``, ``text``, ``image``, or ``label and length``.
        rows: whether each example is in the slice, ``[n]``.
    """

    kind: str
    name: str
    rows: np.ndarray

    @property
    def n(self) -> int:
        return int(self.rows.sum())


@dataclass(frozen=True)
class SignificantSlice:
    """A significant slice, with its corrected p-value."""

    slice: Slice
    p: float


def example_text(example: Any) -> str:
    """The text of an example; for pairs, both texts."""
    return " ".join(example.sides) if isinstance(example, TextPair) else str(example)


def words_in(text: str) -> set[str]:
    """The distinct words of a text, case-folded."""
    return {word.casefold() for word in WORD.findall(text)}


def find_slices(predicted: Predictions) -> list[Slice]:
    """All distinct slices that have at least ``MIN_EXAMPLES`` examples, and not all examples."""
    slices: dict[bytes, Slice] = {}
    for candidate in _candidates(predicted):
        if MIN_EXAMPLES <= candidate.n < len(predicted):
            slices.setdefault(np.packbits(candidate.rows).tobytes(), candidate)
    return list(slices.values())


def _candidates(predicted: Predictions) -> Iterator[Slice]:
    split = predicted.split
    labels = list(_label_slices(predicted))
    yield from labels
    for name, values in predicted.columns.items():
        yield from _column_slices(name, values)
    if predicted.has_images:
        for name, measured in _image_facts(predicted).items():
            yield from quarters("image", name, measured)
        return
    texts = [example_text(x) for x in split.examples]
    lengths = quarters("length", "words", [len(text.split()) for text in texts])
    yield from lengths
    for label in labels:
        for length in lengths:
            in_both = label.rows & length.rows
            yield Slice("label and length", f"{label.name}, {length.name}", in_both)
    yield from _text_slices(texts)
    yield from _word_slices(texts)


def _label_slices(predicted: Predictions) -> Iterator[Slice]:
    if predicted.predicts_numbers:
        yield from quarters("label", "true number", np.asarray(predicted.targets, float))
        return
    label_sets = [set(flat_labels([label])) for label in predicted.split.labels]
    for label in predicted.clf.classes_.tolist():
        has_label = np.array([str(label) in set(map(str, labels)) for labels in label_sets])
        yield Slice("label", f"label {label}", has_label)


def _column_slices(name: str, values: Sequence[str]) -> Iterator[Slice]:
    counts = Counter(values)
    if len(counts) > MAX_VALUES:
        with suppress(ValueError):  # texts, not numbers
            yield from quarters("column", name, [float(value or "nan") for value in values])
        return
    for value in counts:
        yield Slice("column", f"{name} = {value or '(empty)'}", np.array([own == value for own in values]))


def quarters(kind: str, name: str, values: Sequence[float] | np.ndarray) -> list[Slice]:
    """Slices by the quartiles of a number: four, or fewer if values repeat."""
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
        slice_name = f"{bounds_text} {name}" if name == "words" else f"{name} {bounds_text}"
        slices.append(Slice(kind, slice_name, rows))
        low = high
    return slices


def _text_slices(texts: Sequence[str]) -> Iterator[Slice]:
    predicates: dict[str, Callable[[str], bool]] = {
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
    for name, predicate in predicates.items():
        yield Slice("text", name, np.array([predicate(text) for text in texts]))


def _word_slices(texts: Sequence[str]) -> Iterator[Slice]:
    words_per_text = [words_in(text) for text in texts]
    counts = Counter(word for words in words_per_text for word in words)
    frequent = [word for word, n in counts.most_common() if MIN_EXAMPLES <= n <= MAX_WORD_SHARE * len(texts)]
    for word in frequent[:MAX_WORDS]:
        yield Slice("word", f"with {word!r}", np.array([word in words for words in words_per_text]))


def _image_facts(predicted: Predictions) -> Mapping[str, list[float]]:
    facts: dict[str, list[float]] = {}
    for image in predicted.split.examples:
        opened = open_image(image)
        gray = np.asarray(opened.convert("L").resize((64, 64)), float) / 255
        values = {
            "brightness": round(float(gray.mean()), 3),
            "contrast": round(float(gray.std()), 3),
            "width in pixels": opened.width,
            "width : height": round(opened.width / opened.height, 2),
        }
        for name, value in values.items():
            facts.setdefault(name, []).append(value)
    return facts


# --- tests ----------------------------------------------------------------------------------------


def more_errors_test(wrong: np.ndarray) -> Test:
    """Fisher's exact test, one-sided: does a slice have more errors than the other examples?

    Args:
        wrong: whether each prediction is wrong, ``[n]``.
    """
    from scipy.stats import hypergeom

    n, errors = len(wrong), int(wrong.sum())

    def test(rows: np.ndarray) -> tuple[float, float]:
        size = int(rows.sum())
        distribution = hypergeom(n, errors, size)
        p = float(distribution.sf(int(wrong[rows].sum()) - 1))
        return p, float(distribution.sf(min(size, errors) - 1))

    return test


def more_losses_test(losses: np.ndarray, gains: np.ndarray) -> Test:
    """McNemar's exact test, one-sided: is the new model worse on more examples of a slice than better?

    Args:
        losses, gains: whether the new model is worse, and whether it is better, on each example ``[n]``.
    """
    from scipy.stats import binom

    def test(rows: np.ndarray) -> tuple[float, float]:
        num_losses, num_changes = int(losses[rows].sum()), int((losses | gains)[rows].sum())
        return float(binom.sf(num_losses - 1, num_changes, 0.5)), 0.5**num_changes

    return test


def significant(
    slices: Sequence[Slice], test: Test, events: np.ndarray, alpha: float = ALPHA
) -> list[SignificantSlice]:
    """The significant slices, the smallest p first, without slices that earlier slices explain.

    Earlier slices explain a slice if both of these conditions are true:

    - Its examples outside of the earlier slices do not have the effect (p > 0.05).
    - Its examples in the earlier slices do not have more events than the others there (Fisher, p > 0.01).

    Args:
        events: whether each example ``[n]`` has an event that the test counts (an error, or a loss).
    """
    tested = [(part, *test(part.rows)) for part in slices]
    smallest_p = np.sort([lowest for _, _, lowest in tested])
    counts = range(1, len(tested) + 1)
    num_tests = next((k for k in counts if (smallest_p <= alpha / k).sum() <= k), len(tested))
    testable = [(part, p) for part, p, lowest in tested if lowest <= alpha / num_tests]
    corrected_p = holm([p for _, p in testable]) if testable else []
    findings: list[SignificantSlice] = []
    covered = np.zeros(len(events), bool)
    for i in np.argsort(corrected_p, kind="stable").tolist():
        part = testable[i][0]
        if corrected_p[i] > alpha:
            break
        uncovered = part.rows & ~covered
        inside = part.rows[covered]
        if (
            not findings
            or (uncovered.any() and test(uncovered)[0] <= NEW_EFFECT_P)
            or (inside.any() and more_errors_test(events[covered])(inside)[0] <= MORE_EVENTS_P)
        ):
            findings.append(SignificantSlice(part, corrected_p[i]))
            covered |= part.rows
    return findings
