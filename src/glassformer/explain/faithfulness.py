"""Faithfulness of explanations.

An explanation is faithful if masking the tokens with high scores changes the prediction. Its metrics are
compared with those of random orders of the same tokens. Means over inputs have 95 % bootstrap intervals. The
tests apply to every attribution method, for texts and images.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.explain.subject import Subject

# Shares of the tokens that are masked or shown in the curves. Comprehensiveness and sufficiency are means
# over the shares in SMALL_SHARES (DeYoung et al., 2020).
SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
SMALL_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
METRICS = ("deletion", "insertion", "comprehensiveness", "sufficiency")
MIN_DIFFERENCE = 0.005  # smaller differences of probability are ignored
MIN_PARTS = 4  # minimum number of maskable tokens or patches; their 4! = 24 orders are more than DRAWS
DRAWS = 19  # number of random orders; the probability of beating all of them by chance is 1/20
MIN_INPUTS = 20  # minimum number of inputs for an interval
# Ways of masking -> how messages name them.
MASKING_NAMES = {
    "mask": "masked",
    "delete": "deleted",
    "unknown": "set to the unknown token",
    "random": "replaced at random",
    "mean": "made the mean color",
    "blur": "blurred",
    "shuffle": "replaced by other patches",
    "pad": "padded",
    "zero": "set to zero",
}
SIGNS = {"deletion": -1, "insertion": 1, "comprehensiveness": 1, "sufficiency": -1}  # 1: higher is better


@dataclass(frozen=True)
class Curves:
    """Deletion and insertion curves: probabilities of the label when the top tokens are masked or shown."""

    shares: np.ndarray  # [P] shares of the tokens that may be masked
    deletion: np.ndarray  # [P] probabilities with the top tokens masked
    insertion: np.ndarray  # [P] probabilities with only the top tokens shown

    @property
    def gap(self) -> float:
        """Area under the insertion curve minus area under the deletion curve; higher is more faithful."""
        return float(np.trapezoid(self.insertion - self.deletion, self.shares))

    def metrics(self) -> dict[str, float]:
        """The metrics in ``METRICS``: areas under both curves, comprehensiveness and sufficiency."""
        is_small = np.isin(self.shares, SMALL_SHARES)
        unmasked = self.deletion[0]
        return {
            "deletion": float(np.trapezoid(self.deletion, self.shares)),
            "insertion": float(np.trapezoid(self.insertion, self.shares)),
            "comprehensiveness": float((unmasked - self.deletion[is_small]).mean()),
            "sufficiency": float((unmasked - self.insertion[is_small]).mean()),
        }


def curves(subject: Subject, scores: np.ndarray, target: int, by: str = "mask") -> Curves:
    """Deletion and insertion curves (Petsiuk, Das and Saenko, 2018), with one point for each of ``SHARES``.

    Args:
        scores: ``[T]``, or a patch grid; tokens are masked or shown in descending order.
        by: replacement of masked tokens, as in ``Subject.logits``.
    """
    return _curves(subject, [rank_tokens(subject, scores)], target, by)[0]


def rank_tokens(subject: Subject, scores: np.ndarray) -> np.ndarray:
    """Indices of the tokens that may be masked, by descending score; ties in input order."""
    scores = np.asarray(scores, np.float64)
    flat = scores.ravel() if subject.grid is not None else scores[subject.maskable_indices]
    return subject.maskable_indices[np.argsort(-flat, kind="stable")]


def _curves(subject: Subject, orders: Sequence[np.ndarray], target: int, by: str) -> list[Curves]:
    n = len(subject.maskable_indices)
    if n == 0:
        raise InputError("nothing in this input can be hidden", where="faithfulness", fix="Give a longer one")
    shares = np.array(SHARES)
    counts = np.where(shares > 0, np.maximum(1, np.rint(shares * n)), 0).astype(int)
    keep = np.ones((len(orders), 2, len(shares), len(subject)), bool)
    for row, order in zip(keep, orders, strict=True):
        for p, count in enumerate(counts):
            row[0, p, order[:count]] = False
            row[1, p, order[count:]] = False
    variants, inverse = np.unique(keep.reshape(-1, len(subject)), axis=0, return_inverse=True)
    probabilities = subject.logits_to_probabilities(subject.logits(variants, by))[:, target]
    values = probabilities[inverse.reshape(-1)].reshape(keep.shape[:3])
    return [Curves(shares, deletion, insertion) for deletion, insertion in values]


def compare_with_random(
    subject: Subject,
    scores: dict[str, np.ndarray],
    *,
    target: int | None = None,
    draws: int = 5,
    seed: int = 0,
    by: str = "mask",
) -> dict[str, dict[str, float]]:
    """Metrics of several methods' scores for one input; the key ``random`` has means over random orders."""
    target = subject.target if target is None else target
    rng = np.random.default_rng(seed)
    orders = [rank_tokens(subject, s) for s in scores.values()]
    orders += [rng.permutation(subject.maskable_indices) for _ in range(draws)]
    metrics = [c.metrics() for c in _curves(subject, orders, target, by)]
    random = metrics[len(scores) :]
    out = dict(zip(scores, metrics, strict=False))
    out["random"] = {name: float(np.mean([values[name] for values in random])) for name in METRICS}
    return out


def check_faithfulness(
    subject: Subject,
    scores: np.ndarray,
    *,
    target: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    by: str | None = None,
) -> dict[str, Any]:
    """Test one explanation of one input against random orders, for each way of masking ("operator").

    This is a randomization test (after ICE, arXiv 2603.18579). The explanation passes for an operator if the
    gap between its insertion and deletion curves is larger than the gap of every random order. With 19 random
    orders, a random explanation passes in one of 20 cases.

    Args:
        draws: number of random orders, the same for each operator. Each order needs about 16 variants of the
            input.
        by: the operator to test; None: all of ``subject.operators``.

    Returns:
        Plain values for JSON.

        - ``hidden_by``: the first operator; the following curves belong to it.
        - ``shares``: ``[P]`` shares of masked or shown tokens.
        - ``deletion``, ``insertion``: ``[P]`` probabilities, or numbers if ``number`` is True.
        - ``figures``: the metrics of these curves.
        - ``random``: curves and metrics, as means over ``draws`` random orders.
        - ``operators``: for each operator ``gap``, ``random`` (mean gap of random orders), ``wins`` (number
          of random orders with a smaller gap) and ``passes`` (None: all orders have about the same gap).
        - ``verdict``: a text.
    """
    target = subject.target if target is None else target
    rng = np.random.default_rng(seed)
    explained_order, num_parts = rank_tokens(subject, scores), len(subject.maskable_indices)
    random_orders = (rng.permutation(subject.maskable_indices) for _ in itertools.count())
    if num_parts >= MIN_PARTS:
        random_orders = (order for order in random_orders if (order != explained_order).any())
    orders = [explained_order, *itertools.islice(random_orders, draws)]
    names = subject.operators if by is None else (by,)
    by_operator = {name: _curves(subject, orders, target, name) for name in names}
    by, (explained, *random_curves) = names[0], by_operator[names[0]]
    min_difference = MIN_DIFFERENCE * (1.0 if subject.scale is None else subject.scale)
    operators = {
        name: _test_operator(curves, min_difference, num_parts) for name, curves in by_operator.items()
    }
    mean = Curves(
        explained.shares,
        np.mean([c.deletion for c in random_curves], axis=0),
        np.mean([c.insertion for c in random_curves], axis=0),
    )
    metrics, random = explained.metrics(), mean.metrics()  # means of areas are areas of means
    return {
        "hidden_by": by,
        "draws": draws,
        **({} if subject.scale is None else {"number": True}),
        "shares": explained.shares.tolist(),
        **_rounded_curves(explained),
        "figures": metrics,
        "random": {**_rounded_curves(mean), "figures": random},
        "operators": operators,
        "verdict": verdict_on_one(operators, metrics, random, draws, num_parts, subject.scale),
    }


def _test_operator(curves: Sequence[Curves], min_difference: float, num_parts: int) -> dict[str, Any]:
    """The entry of one operator; the first curve is the explanation's, the rest are random."""
    gap, *random_gaps = (c.gap for c in curves)
    difference = max(gap, *random_gaps) - min(gap, *random_gaps)
    is_decidable = num_parts >= MIN_PARTS and difference >= min_difference
    wins = sum(gap > random_gap for random_gap in random_gaps)
    passes = wins == len(random_gaps) if is_decidable else None
    return {
        "gap": round(gap, 6),
        "random": round(float(np.mean(random_gaps)), 6),
        "wins": wins,
        "passes": passes,
    }


def _rounded_curves(curves: Curves) -> dict[str, list[float]]:
    return {name: np.round(getattr(curves, name), 6).tolist() for name in ("deletion", "insertion")}


def interval(values: np.ndarray, *, draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of ``[n]`` values."""
    values = np.asarray(values, np.float64)
    resampled = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    low, high = np.quantile(values[resampled].mean(1), [0.025, 0.975])
    return float(low), float(high)


def summary(values: np.ndarray) -> dict[str, Any]:
    """The mean, 95 % interval and number of ``[n]`` values."""
    low, high = interval(values)
    return {"mean": float(np.mean(values)), "interval": [low, high], "n": len(values)}


def table(results: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Means of the metrics of every method, from the results of ``compare_with_random`` for several inputs.

    ``better`` is the paired difference to the random orders of the same input; positive means more faithful.
    The first result must have every method; other results may lack some.
    """
    out: dict[str, dict[str, Any]] = {}
    for method in results[0]:
        out[method] = {}
        measured = [result for result in results if method in result]
        for name in METRICS:
            values = np.array([result[method][name] for result in measured])
            random = np.array([result["random"][name] for result in measured])
            out[method][name] = summary(values)
            if method != "random":
                out[method][name]["better"] = summary(SIGNS[name] * (values - random))
    return out


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation of two score vectors; 0 if one of them is constant."""
    a, b = _ranks(a), _ranks(b)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, group, counts = np.unique(np.ravel(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def overlap(a: np.ndarray, b: np.ndarray, share: float = 0.2) -> float:
    """The overlap of the top ``share`` of two score vectors, from 0 to 1."""
    count = max(1, round(share * a.size))
    first, second = (set(np.argsort(-np.ravel(x), kind="stable")[:count].tolist()) for x in (a, b))
    return len(first & second) / count


def agreement(scores: dict[str, np.ndarray], tokens: np.ndarray | None = None) -> dict[str, dict[str, float]]:
    """Rank correlation of all pairs of methods on one input, over the indices ``tokens`` (None: all)."""
    selected = {name: np.ravel(s) if tokens is None else np.ravel(s)[tokens] for name, s in scores.items()}
    return {a: {b: spearman(selected[a], selected[b]) for b in selected} for a in selected}


# --- verdicts -------------------------------------------------------------------------------------


def verdict(row: dict[str, Any], randomized: float | None = None) -> str:
    """The verdict on one method, from its row of ``table``.

    Args:
        randomized: mean correlation with scores under shuffled weights (``sanity.py``); None: not tested.
    """
    wins = [name for name in METRICS if row[name]["better"]["interval"][0] > 0]
    losses = [name for name in METRICS if row[name]["better"]["interval"][1] < 0]
    gain = row["comprehensiveness"]["better"]
    low, high = gain["interval"]
    evidence = (
        f"hiding the top-ranked tokens lowers the probability by {abs(gain['mean']):.3f} "
        f"{'less' if gain['mean'] < 0 else 'more'} than hiding random tokens "
        f"(95 % interval {low:+.3f} to {high:+.3f}, {gain['n']} inputs)"
    )
    if gain["n"] < MIN_INPUTS:
        return f"Too few inputs to say: {evidence}."
    if randomized is not None and randomized >= 0.5:
        reason = f"it hardly changes when the weights are noise (rank correlation {randomized:.2f})"
        return f"Fails the faithfulness test: {reason}, so it cannot show what the model learned; {evidence}."
    if len(wins) == len(METRICS):
        return f"Passes the faithfulness test: better than random in all four metrics; {evidence}."
    if losses and not wins:
        return f"Fails the faithfulness test: worse than random in {' and '.join(losses)}; {evidence}."
    if wins:
        others = [name for name in METRICS if name not in wins]
        comparison = f"better than random in {', '.join(wins)}, not in {', '.join(others)}"
        return f"Passes the faithfulness test in part: {comparison}; {evidence}."
    return f"Fails the faithfulness test: not better than random in any metric; {evidence}."


def verdict_on_one(
    operators: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float],
    random: Mapping[str, float],
    draws: int,
    num_parts: int,
    scale: float | None = None,
) -> str:
    """The verdict on one explanation of one input.

    Args:
        operators: see ``check_faithfulness``.
        metrics, random: metrics of the explanation and of random orders, for the first operator.
        draws, num_parts: number of random orders, and of parts that may be masked.
        scale: for regression, see ``Subject``; None: probabilities.
    """
    what = "probability" if scale is None else "number"
    decided = {name: test for name, test in operators.items() if test["passes"] is not None}
    if num_parts < MIN_PARTS:
        return f"The test cannot tell: {num_parts} tokens or patches can be hidden, {MIN_PARTS} are needed."
    if not decided:
        min_difference = MIN_DIFFERENCE * (1.0 if scale is None else scale)
        return (
            f"The test cannot tell: the {what} stays the same within {min_difference:.3g}, whether the "
            "top-ranked parts or random parts are hidden."
        )
    passed = [MASKING_NAMES[name] for name, test in decided.items() if test["passes"]]
    losses = [MASKING_NAMES[name] for name, test in decided.items() if not test["wins"]]
    if len(passed) == len(decided):
        outcome = f"passes the faithfulness test under {len(passed)} of {len(decided)} ways of hiding parts"
    elif passed:
        outcome = f"passes the faithfulness test only when parts are {' or '.join(passed)}"
    elif len(losses) == len(decided):
        outcome = "fails the faithfulness test and is worse than random"
    else:
        outcome = "fails the faithfulness test"
    drops = (metrics["comprehensiveness"], random["comprehensiveness"])
    change, random_change = (f"{abs(x):.3f}" if scale is None else f"{abs(x):.4g}" for x in drops)
    verb, random_verb = ("lowers" if x >= 0 else "raises" for x in drops)
    random_effect = f"by {random_change}" if verb == random_verb else f"{random_verb} it by {random_change}"
    beaten = ", ".join(f"{test['wins']} ({MASKING_NAMES[name]})" for name, test in decided.items())
    return (
        f"This explanation {outcome}: hiding the parts that it ranks first {verb} the {what} "
        f"by {change}, hiding random parts {random_effect}; of {draws} random orders it beats {beaten}."
    )
