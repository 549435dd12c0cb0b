"""Number formats and sentences of reports."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from glassformer.evaluate.metrics import (
    EMPTY_CELL,
    NARROW_SPACE,
    digits_for,
    interval,
    percent,
    share_interval,
)

_BREAK = re.compile(r"(?<=[_/.:-])(?=\w)")  # positions where a long name can be broken, as in "a_|b/|c"
_CAPITAL_INSIDE = re.compile(r"[a-z]+[A-Z]")  # for example "chrF"
_TAG = re.compile(r"(</?[A-Za-z][^<>]{0,80}>)")  # for example "<br />"


def count(value: float | None) -> str:
    """A whole number with thousands separators, or "–" for None."""
    return EMPTY_CELL if value is None else f"{value:,.0f}"


def decimal(value: float | None, digits: int = 3) -> str:
    return EMPTY_CELL if value is None else f"{value:.{digits}f}"


def p_value(p: float | None) -> str:
    """A p-value as "0.031", or "< 0.001"."""
    return EMPTY_CELL if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as "0.4 s", "38 s", "19 min 3 s" or "2 h 5 min"."""
    if seconds is None:
        return EMPTY_CELL
    if seconds < 9.95:
        return f"{seconds:.1f}{NARROW_SPACE}s"
    minutes, whole_seconds = divmod(round(seconds), 60)
    if not minutes:
        return f"{whole_seconds}{NARROW_SPACE}s"
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min")] if hours else [(minutes, "min"), (whole_seconds, "s")]
    return " ".join(f"{number}{NARROW_SPACE}{unit}" for number, unit in parts if number)


def plain(value: Any) -> str:
    """A setting or a fact as text, such as "yes", "0.0001" or "a, b"."""
    if value is None or value == [] or value == "":
        return EMPTY_CELL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {plain(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return str(value)


def cut(text: str, size: int) -> str:
    """The first ``size`` characters of a text, with an ellipsis if it is longer."""
    return text if len(text) <= size else text[:size].rstrip() + " \u2026"


def breakable(name: Any) -> Markup:
    """The escaped name with optional line breaks after ``_``, ``/``, ``.``, ``:`` and ``-``."""
    return Markup("<wbr>").join(_BREAK.split(str(name)))


def faint_tags(text: str) -> Markup:
    """Escaped text, in which tags such as ``<br />`` are dimmed."""
    parts = _TAG.split(text)  # texts and tags alternate
    faint = Markup('<span class="tag">{}</span>')
    return Markup("").join(faint.format(part) if i % 2 else escape(part) for i, part in enumerate(parts))


def capitalized(text: str) -> str:
    """A name with a capital first letter, for a heading; names such as chrF are unchanged."""
    return text if _CAPITAL_INSIDE.match(text) else text[:1].upper() + text[1:]


def model_name(metrics: Mapping[str, Any], default: Any) -> Any:
    """The name of the chosen model if several were tried, otherwise ``default``; the last part of a path."""
    name = next((model["model"] for model in metrics.get("tried") or () if model.get("chosen")), default)
    return Path(name).name if isinstance(name, str) and name.startswith(("/", "./", "../", "~")) else name


def bounds(scores: dict[str, Any], key: str) -> str:
    """The 95 % interval of a metric such as ``accuracy`` or ``macro_f1``, as text."""
    ends, digits = scores.get(f"{key}_interval"), digits_for(scores["n"])
    return share_interval(scores.get(key, scores["accuracy"]), ends, scores["n"], digits)


def verdict(scores: dict[str, Any], split: str, noun: str = "texts", measure: str = "accuracy") -> str:
    """A sentence with the scores of a classifier, the metric ``measure`` first."""
    from glassformer.targets import target_of  # imports torch, which would delay the start of commands

    n, digits = scores["n"], digits_for(scores["n"])
    n_correct = round(scores["accuracy"] * n)
    seen, accuracy = _seen_in_training(split, scores), percent(scores["accuracy"], digits)
    if not target_of(scores).is_single_label and n_correct < n:
        ends = scores.get("macro_f1_interval")
        tail = f" (95{NARROW_SPACE}% interval {interval(ends, digits)})" if ends else ""
        return (
            f"Macro-F1 on {count(n)} {split} {noun}{seen}: {percent(scores['macro_f1'], digits)}{tail}; "
            f"micro-F1 {percent(scores['micro_f1'], digits)}. {count(n_correct)} of them got exactly their "
            f"labels: {accuracy}."
        )
    if measure != "accuracy" and n_correct < n:
        ends, metric = scores.get(f"{measure}_interval"), target_of(scores).metrics[measure]
        tail = f" (95{NARROW_SPACE}% interval {metric.interval(ends, digits, None, n)})" if ends else ""
        return (
            f"{capitalized(metric.name)} on {count(n)} {split} {noun}{seen}: "
            f"{metric.value(scores[measure], digits)}{tail}. {count(n_correct)} of them were labeled "
            f"correctly: {accuracy}."
        )
    texts = f"{split} {noun}{seen}{',' if seen else ''} were labeled correctly"
    ends = scores.get("accuracy_interval")
    if n_correct == n:
        bound = share_interval(1, ends, n, digits)
        confidence = f"with 95{NARROW_SPACE}% confidence"
        return f"All {count(n)} {texts}: {confidence}, the accuracy on such {noun} is {bound}."
    tail = f" (95{NARROW_SPACE}% interval {interval(ends, digits)})" if ends else ""
    return f"{count(n_correct)} of {count(n)} {texts}: {accuracy}{tail}."


def _seen_in_training(split: str, scores: Mapping[str, Any]) -> str:
    """Part of a sentence: how many examples were also training examples; empty if unknown."""
    n = scores["n"]
    seen = scores.get("seen_in_training", n if split == "train" else 0)
    if seen is None:
        return ""
    return f", {'' if seen == n else 'not ' if not seen else f'{count(seen)} of them '}seen in training"


def compare_with_baselines(
    scores: dict[str, Any],
    baselines: dict[str, dict[str, Any]],
    measure: str = "accuracy",
    still_learning: Mapping[str, Any] | None = None,
) -> str:
    """A sentence that compares the metric ``measure`` with the best baseline, and says if it is significant.

    Args:
        still_learning: facts about a training that ended too early, if it did.
    """
    from glassformer.targets import target_of

    better = "a simpler and faster model is better here"
    if still_learning:
        better = f"{_falling_loss(still_learning)}, and {_longer_training(still_learning)}"
    comparable = {name: b for name, b in baselines.items() if b.get(measure) is not None}
    if not comparable or scores.get(measure) is None:
        return ""
    name, best = max(comparable.items(), key=lambda item: item[1][measure])
    gap, metric = scores[measure] - best[measure], target_of(scores).metrics[measure]
    points = metric.difference(gap, digits_for(scores["n"]))
    if not float(points.split()[0]):
        equal = "makes no error either" if scores["accuracy"] == 1 else "does as well"
        return f"The best simple model, {name}, {equal}."
    subject = "That is" if measure == "accuracy" else f"Its {metric.name} is"
    text = f"{subject} {points} {'above' if gap > 0 else 'below'} the best simple model, {name}"
    if best.get("class_weight") is not None:
        text += ", trained with the same class weights"
    difference = best.get("difference") or {}
    if difference.get("measure") == measure:
        low, high = (100 * bound for bound in difference["interval"])
        digits = digits_for(scores["n"])
        evidence = f"95{NARROW_SPACE}% interval of the difference on the same examples: "
        evidence += f"{low:+.{digits}f} to {high:+.{digits}f} points"
        if low <= 0 <= high:
            return f"{text}; the difference is not significant ({evidence})."
        if gap > 0:
            return f"{text}, a significant difference ({evidence})."
        return f"{text}: {better} ({evidence})."
    a, b = scores.get(f"{measure}_interval"), best.get(f"{measure}_interval")
    if a and b and max(a[0], b[0]) <= min(a[1], b[1]):
        return f"{text}; their intervals overlap, so this run alone does not settle which is better."
    return f"{text}." if gap > 0 else f"{text}: {better}."


def _falling_loss(still_learning: Mapping[str, Any]) -> str:
    loss = f"from {still_learning['before']:.3f} to {still_learning['after']:.3f}"
    return f"the last epoch still lowered the validation loss {loss}"


def _longer_training(still_learning: Mapping[str, Any]) -> str:
    """Part of a sentence: the settings to try if training ended too early."""
    rate = f"--set lr={2 * still_learning['lr']:.2g}" if still_learning.get("lr") else "a higher lr"
    return f"--set epochs={2 * still_learning['epochs']} or {rate} may give a better model"


def ended_too_early(text: str, still_learning: Mapping[str, Any] | None) -> str:
    """A sentence that training ended too early; empty if it did not, or if ``text`` already says it."""
    if not still_learning or _longer_training(still_learning) in text:
        return ""
    text = f"{_falling_loss(still_learning)}: {_longer_training(still_learning)}."
    return text[0].upper() + text[1:]


def full_verdict(metrics: dict[str, Any], scores: dict[str, Any], split: str, noun: str, measure: str) -> str:
    """Sentences: the scores, a comparison with the baselines, and whether training ended too early."""
    still_learning = metrics.get("still_learning")
    comparison = compare_with_baselines(scores, metrics.get("baselines") or {}, measure, still_learning)
    parts = verdict(scores, split, noun, measure), comparison, ended_too_early(comparison, still_learning)
    return " ".join(filter(None, parts))


def verdict_of(metrics: dict[str, Any], noun: str = "texts") -> str:
    """``full_verdict`` for the content of ``metrics.json``; empty if no examples were evaluated."""
    scores, measure = metrics.get("test") or metrics.get("validation"), metrics.get("measure", "accuracy")
    split = metrics.get("judged", "test") if metrics.get("test") else "validation"
    return full_verdict(metrics, scores, split, noun, measure).replace(NARROW_SPACE, " ") if scores else ""


def how_tested(results: dict[str, Any]) -> str:
    """The statistical test of a study's p-values, such as "paired bootstrap over examples"."""
    unit, tests = results.get("drawn", "examples"), {arm.get("test") for arm in results["arms"]}
    if len(results["seeds"]) > 1:
        return f"paired bootstrap over {unit} with the variation between seeds as Student's t"
    if "permutation" in tests:
        return f"paired permutation test over {unit}"
    return f"McNemar's test on the same {unit}" if "mcnemar" in tests else f"paired bootstrap over {unit}"


def guess_loss(classes: int) -> str:
    """The log loss of equal probabilities for all classes."""
    return f"{math.log(max(classes, 1)):.3f}"
