"""Metrics: what each is called, which way is better, how it is written, and tables of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.evaluate.metrics import CALLED, MEASURES, OF_SETS, measures_of
from glassformer.evaluate.number_compare import LOWER_IS_BETTER
from glassformer.evaluate.number_compare import MEASURES as OF_NUMBERS
from glassformer.evaluate.numbers import FIGURES
from glassformer.report.wording import NONE, count, digits_for, duration, percent, share_interval


@dataclass(frozen=True)
class Share:
    """A share of examples, or a mean of such."""

    called: str
    short: str = ""  # where there is little room; empty: as it is called
    lower: bool = False  # whether less of it is better
    from_baseline = "points from baseline"
    of_difference = ", points"

    def value(self, x: float | None, digits: int) -> str:
        return percent(x, digits)

    def between(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        """The interval of a share of ``n``; of 0 or 1, how far from there it may be."""
        return share_interval(share, bounds, n, digits) if bounds else NONE

    def apart(self, x: float, digits: int) -> str:
        """A difference without its sign."""
        return f"{100 * abs(x):.{digits}f} points"

    def with_sign(self, x: float, digits: int) -> str:
        return f"{100 * x:+.{digits}f}"

    def scatter(self, sd: float | None) -> str:
        """A standard deviation."""
        return NONE if sd is None else f"{100 * sd:.2f}"


@dataclass(frozen=True)
class Plain(Share):
    """A number that is no share: a correlation, R², an error in the numbers' own unit."""

    form: str = ""  # how it is written; empty: four digits of an error, else digits behind the point
    bounds: str = ""  # how the ends of its interval are; empty: likewise
    from_baseline = "from baseline"
    of_difference = ""

    def value(self, x: float | None, digits: int) -> str:
        usual = "#.4g" if self.lower else f".{digits + 2}f"
        return NONE if x is None else f"{x:{self.form or usual}}"

    def between(self, bounds: Sequence[float] | None, digits: int, share: float | None, n: int) -> str:
        if not bounds:
            return NONE
        form = self.bounds or self.form
        low, high = (f"{x:{form}}" if form else self.value(x, digits) for x in bounds)
        return f"{low} to {high}"

    def apart(self, x: float, digits: int) -> str:
        return self.value(abs(x), digits)

    def with_sign(self, x: float, digits: int) -> str:
        return f"{x:+#.4g}" if self.lower else f"{x:+.{digits + 2}f}"

    def scatter(self, sd: float | None) -> str:
        usual = ".2g" if self.lower else ".4f"
        return NONE if sd is None else f"{sd:{self.form or usual}}"


LOSS = {"log_loss": Plain("log loss", lower=True, form=".4f")}
SHORT = {"mse": "MSE", "mae": "MAE"}
RANKED = {"spearman": "Spearman", "pearson": "Pearson"}
PARTNERS = {
    "found": Plain("Partner is the nearest", "found", form=".4f"),
    "reciprocal_rank": Plain("Mean of 1 / its rank", "1 / rank", form=".4f"),
}
OF_LABELS = {
    "weighted_f1": Share("weighted F1"),
    "roc_auc": Plain("ROC-AUC", form=".4f"),
    "average_precision": Plain("average precision", form=".4f"),
    **LOSS,
}
# Kind of predictions -> key in metrics.json -> the metric.
METRICS: dict[str, dict[str, Share]] = {
    "classes": {key: Share(called) for key, called in MEASURES.items()} | OF_LABELS,
    "labels": {key: Share(called) for key, called in OF_SETS.items()} | OF_LABELS,
    "tags": {
        "precision": Share("precision"),
        "recall": Share("recall"),
        "entity_f1": Share("entity F1"),
        "macro_f1": Share("macro-F1"),
        "accuracy": Share("words right"),
        **LOSS,
    },
    "answers": {"exact_match": Share("exact match"), "f1": Share("F1")},
    "numbers": {
        key: Plain(called, SHORT.get(key, ""), lower=key in SHORT, form=".4g")
        for key, called in FIGURES.items()
    },
    "similarity": {key: Plain(called, form=".4f", bounds=".3f") for key, called in RANKED.items()} | PARTNERS,
    "translation": {
        "bleu": Plain("BLEU", form=".2f"),
        "chrf": Plain("chrF", form=".2f"),
        "bleu_tokenised": Plain("BLEU, tokenised", form=".2f"),
        "length_ratio": Plain("length", form=".3f"),
        "sentences_per_second": Plain("sentences/s", form=".1f"),
    },
}


NOUNS = {"answers": "questions", "similarity": "pairs"}  # what is counted, where it is no example


def kind_of(scores: Mapping[str, Any]) -> str:
    """Which of ``METRICS`` these scores are of."""
    first = {"entity_f1": "tags", "exact_match": "answers", "r2": "numbers", "bleu": "translation"}
    first |= {"pairs": "similarity"}
    kind = "labels" if scores.get("kind") == "labels" else "classes"
    return next((kind for key, kind in first.items() if key in scores), kind)


def counted(scores: Mapping[str, Any]) -> int:
    """How many a share is of: texts that were asked about, spans, else examples."""
    return scores.get("contexts", scores.get("entities", scores.get("n", 0)))


@dataclass(frozen=True)
class Table:
    """A table for a page or a terminal."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]  # cells in words; the first names the row
    ours: Collection[int] = (0,)  # rows that are set off
    words: Collection[str] = ()  # columns of words, beside the first; the others hold numbers
    style: str = "compare"


def heads(columns: Sequence[str], kind: str, noun: str = "", short: bool = False) -> list[str]:
    """The heads of columns: of ``f1`` its title, of ``f1_interval`` that of its interval.

    Args:
        kind: one of ``METRICS``.
        noun: what examples are called, which the column ``n`` counts; empty: as its kind has it.
        short: where little room is.
    """
    out: list[str] = []
    for column in columns:
        key = column.removesuffix("_interval").removesuffix("_within")
        if key in ("n", "seconds"):
            out.append("time" if key == "seconds" else noun or NOUNS.get(kind, "examples"))
            continue
        metric = METRICS[kind][key]
        title = (short and metric.short) or metric.called
        if column.endswith("_interval"):
            alone = out[-1:] == [title] and "95 % interval" not in out
            title = "95 % interval" if alone else f"95 % interval of {title.removeprefix('entity ')}"
        out.append(title)
    return out


def cells(scores: Mapping[str, Any], columns: Sequence[str], kind: str, digits: int) -> list[str]:
    """The cells of one model: of ``f1`` its value, of ``f1_interval`` its interval, of ``f1_within`` both,
    of ``n`` how many examples there were, of ``seconds`` how long it took.

    Args:
        digits: behind the point of a percentage.
    """
    out = []
    for column in columns:
        key = column.removesuffix("_interval").removesuffix("_within")
        if key in ("n", "seconds"):
            n = scores.get("n", scores.get("pairs"))
            out.append(duration(scores.get("seconds")) if key == "seconds" else count(n))
            continue
        metric, value, bounds = METRICS[kind][key], scores.get(key), scores.get(f"{key}_interval")
        said, interval = metric.value(value, digits), metric.between(bounds, digits, value, counted(scores))
        if column.endswith("_interval"):
            said = interval
        elif column.endswith("_within") and bounds:
            said += f" ({interval})"
        out.append(said)
    return out


def metric_table(
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    columns: Sequence[str],
    digits: int,
    first: str = "model",
    noun: str = "",
    short: bool = False,
    **about: Any,
) -> Table:
    """A row for each (name, scores); ``columns`` as in ``cells``, the rest as in ``heads`` and ``Table``."""
    kind = kind_of(rows[0][1])
    lines = [[name, *cells(scores, columns, kind, digits)] for name, scores in rows]
    return Table([first, *heads(columns, kind, noun, short)], lines, **about)


def value_table(scores: Mapping[str, Any], keys: Sequence[str], digits: int) -> Table:
    """A row for each metric of one model: its value and its interval."""
    kind = kind_of(scores)
    rows = []
    for key in keys:
        value, between = cells(scores, [key, f"{key}_interval"], kind, digits)
        rows.append([METRICS[kind][key].called, value, between if scores.get(f"{key}_interval") else ""])
    return Table(["", "value", "95 % interval"], rows, words=("95 % interval",))


def fold_table(metrics: Mapping[str, Any], short: bool = False) -> Table:
    """A row for each fold, and their mean and standard deviation.

    Args:
        short: where little room is.
    """
    scores, over, folds = metrics["test"], metrics["over_folds"], metrics["folds"]
    kind = kind_of(scores)
    known = METRICS[kind]
    keys = [key for key in (dict(leading(metrics.get("measure") or "", scores)) | known) if key in over]
    keys = list(known) if kind == "answers" else keys
    if kind == "tags":
        keys = [key for key in keys if key not in ("precision", "recall")]
    took = [] if short and kind == "numbers" else ["seconds"]
    digits = 2 if kind == "answers" else digits_for(scores.get("n", 0))
    trained = [] if short else ["trained on"]
    lines = [
        [
            str(f["fold"] + 1),
            *(count(f.get("trained_on")) for _ in trained),
            *cells(f, ["n", *keys, *took], kind, digits),
        ]
        for f in folds
    ]
    spread = [known[key].value(over[key]["mean"], 2) for key in keys]
    for i, key in enumerate(keys):
        if key != "log_loss" or not short:
            spread[i] += f" ({known[key].scatter(over[key]['sd'])})"
    lines.append(["mean (SD)", *("" for _ in trained), "", *spread, *("" for _ in took)])
    columns = ["fold", *trained, *heads(["n", *keys, *took], kind, short=short and kind == "numbers")]
    return Table(columns, lines, ours=(len(folds),))


def leading(measure: str, scores: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    """The shares of a table of such scores, the chosen one first: key and what it is called."""
    return sorted(measures_of(scores or {}).items(), key=lambda item: item[0] != measure)


# --- comparisons ------------------------------------------------------------------------------------------


def unit_of(measure: str) -> Share:
    """How a measure that models are compared by is written; an unknown one counts as accuracy."""
    if measure in OF_NUMBERS:
        return Plain(OF_NUMBERS[measure], lower=measure in LOWER_IS_BETTER)
    return Share(CALLED.get(measure, CALLED["accuracy"]))


def signed(figures: dict[str, Any], digits: int, unit: Share) -> str:
    """A difference from the baseline with its interval, "+1.2 (+0.3 to +2.1)"."""
    between = figures.get("difference_interval")
    if between is None:
        return NONE
    low, high = (unit.with_sign(x, digits) for x in between)
    return f"{unit.with_sign(figures['difference'], digits)} ({low} to {high})"


def better(figures: dict[str, Any], unit: Share) -> bool:
    """Whether an arm's figure is the better one beside the baseline's."""
    return figures["difference"] < 0 if unit.lower else figures["difference"] > 0


def leading_of(measure: str, scores: dict[str, Any]) -> list[tuple[str, str]]:
    """The two figures of a table of such scores, the chosen one first: key and what it is called."""
    if measure not in OF_NUMBERS:
        return leading(measure, scores)
    second = next(key for key in ("pearson", "mae", "spearman") if key != measure and key in scores)
    return [(measure, OF_NUMBERS[measure]), (second, OF_NUMBERS[second])]
