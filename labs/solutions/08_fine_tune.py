"""Solutions of lab 8."""

from math import isclose, sqrt


def wilson(right: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The shares p with |right / n - p| at most z standard deviations sqrt(p (1 - p) / n): a quadratic equation."""
    share = right / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return middle - half, middle + half


def only_one_right(first: list[str], second: list[str], truth: list[str]) -> tuple[int, int]:
    """Where both are right or both wrong, they do not differ; McNemar's test compares these two counts."""
    hits = [(a == t, b == t) for a, b, t in zip(first, second, truth, strict=True)]
    return hits.count((True, False)), hits.count((False, True))


def macro_f1(truth: list[str], predicted: list[str]) -> float:
    """A class that is never right has an F1 of 0 and counts like any other."""
    classes = sorted(set(truth))
    right = {c: sum(t == p == c for t, p in zip(truth, predicted, strict=True)) for c in classes}
    return sum(2 * right[c] / (truth.count(c) + predicted.count(c)) for c in classes) / len(classes)


def test() -> None:
    low, high = wilson(8, 10)
    assert isclose(low, 0.4902, abs_tol=1e-3)
    assert isclose(high, 0.9433, abs_tol=1e-3)
    assert wilson(10, 10)[0] < 1
    assert only_one_right(["a", "b", "a"], ["a", "a", "b"], ["a", "a", "a"]) == (1, 1)
    assert isclose(macro_f1(["a", "a", "a", "b"], ["a", "a", "a", "a"]), (6 / 7) / 2)
