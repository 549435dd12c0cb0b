"""How good answers from a text are: exact match and F1 as SQuAD's script counts them, and the errors by kind.

Rajpurkar et al. (2016, 2018): case, punctuation, articles and white space do not count; F1 is of words; of
several true answers the nearest counts; where there is none, only "none" is right. ``tests/evaluate`` holds
the figures to torchmetrics' own.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.data.questions import Answers
from glassformer.evaluate.intervals import share_interval

MEASURE = "f1"
FIGURES = ("exact_match", MEASURE)
# What is wrong with an answer: none where there is one; one where there is none; all of a true one and more;
# a part of a true one; other words that share some with it; words that share none.
ERRORS = ("missed", "invented", "too_long", "too_short", "overlapping", "elsewhere")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """A text without case, punctuation, articles and double spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(text: str, truth: Sequence[str]) -> float:
    """1 where the text is one of the true ones (no true one: where it is empty), else 0."""
    own = normalize(text)
    return float(any(own == normalize(one) for one in truth) if truth else own == "")


def word_f1(text: str, truth: Sequence[str]) -> float:
    """The F1 of the words that it shares with the nearest true answer."""
    return max((_f1(text, one) for one in truth), default=float(normalize(text) == ""))


def _f1(text: str, truth: str) -> float:
    given, wanted = normalize(text).split(), normalize(truth).split()
    if not given or not wanted:
        return float(given == wanted)
    same = (Counter(given) & Counter(wanted)).total()
    return 2 * same / (len(given) + len(wanted)) if same else 0.0


def error_of(text: str, truth: Sequence[str]) -> str:
    """One of ``ERRORS``; empty where the answer is right."""
    if exact_match(text, truth):
        return ""
    if not truth:
        return "invented"
    own = normalize(text)
    if not own:
        return "missed"
    wanted = [f" {normalize(one)} " for one in truth]
    if any(one in f" {own} " for one in wanted if one.strip()):
        return "too_long"
    if any(f" {own} " in one for one in wanted):
        return "too_short"
    return "overlapping" if word_f1(text, truth) else "elsewhere"


def answer_figures(
    truth: Sequence[Answers],
    given: Sequence[str],
    contexts: Sequence[str],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Figures of given answers against the true ones, shares from 0 to 1.

    Args:
        given: empty: none.
        contexts: questions on one context are resampled together.
        bootstrap: resamples of contexts for the 95 % intervals; 0: none.

    Returns:
        ``n`` questions, ``contexts``, ``exact_match``, ``f1``, their ``_interval``s, ``answerable`` and
        ``unanswerable`` (``n`` and both figures of each kind that there is), ``errors`` (see ``ERRORS``).
    """
    scores = np.array([scores_of(text, own) for text, own in zip(given, truth, strict=True)])  # [n, 2]
    there = np.array([bool(own.texts) for own in truth])
    numbers = {context: i for i, context in enumerate(sorted(set(contexts)))}
    groups = np.array([numbers[context] for context in contexts], np.int64)
    errors = Counter(error_of(text, own.texts) for text, own in zip(given, truth, strict=True))
    out: dict[str, Any] = {"n": len(truth), "contexts": int(groups.max(initial=-1)) + 1}
    out |= dict(zip(FIGURES, scores.mean(0).tolist(), strict=True))
    if bootstrap:
        ends = _intervals(scores, groups, bootstrap, seed)
        out |= {f"{name}_interval": own for name, own in zip(FIGURES, ends, strict=True)}
    for name, chosen in (("answerable", there), ("unanswerable", ~there)):
        if chosen.any() and not there.all():
            means = scores[chosen].mean(0).tolist()
            out[name] = {"n": int(chosen.sum()), **dict(zip(FIGURES, means, strict=True))}
    return out | {"errors": {error: errors[error] for error in ERRORS}}


def scores_of(text: str, truth: Answers) -> tuple[float, float]:
    """Exact match and F1 of one answer."""
    return exact_match(text, truth.texts), word_f1(text, truth.texts)


def _intervals(scores: np.ndarray, groups: np.ndarray, draws: int, seed: int) -> list[list[float]]:
    """95 % intervals of both means from resampled groups."""
    count = int(groups.max()) + 1
    sums = np.stack([np.bincount(groups, scores[:, k], count) for k in range(2)], 1)  # [G, 2]
    sizes = np.bincount(groups, minlength=count)
    rng = np.random.default_rng(seed)
    found = np.empty((draws, 2))
    for i in range(draws):
        chosen = rng.integers(0, count, count)
        found[i] = sums[chosen].sum(0) / sizes[chosen].sum()
    ends = np.quantile(found, [0.025, 0.975], axis=0).T.tolist()
    return [share_interval(share, count, own) for share, own in zip(scores.mean(0), ends, strict=True)]
