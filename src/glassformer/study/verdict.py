"""A study's results in words: a sentence for each arm and for the whole, and the Markdown table."""

from __future__ import annotations

import re
from typing import Any

from glassformer.report.units import Share, better, leading_of, signed, unit_of
from glassformer.report.wording import NONE, count, decimal, digits_for, headed, how_tested, p_value


def sentences(results: dict[str, Any]) -> dict[str, Any]:
    """``verdict`` for the study and ``sentences``: arm -> what can be said of it beside the baseline."""
    digits, baseline = digits_for(results["n"]), results["baseline"]
    measure = measured(results)
    unit = unit_of(measure)
    others = [arm for arm in results["arms"] if arm["name"] != baseline]
    told = {arm["name"]: _arm(arm, baseline, digits, measure) for arm in others}
    differ = [a for a in others if a["significant"] and a[measure]["difference"]]
    above = [a["name"] for a in differ if better(a[measure], unit)]
    worse = [a["name"] for a in differ if not better(a[measure], unit)]
    unsettled = [a["name"] for a in others if _unsettled(a, measure)]
    parts = []
    if above:
        parts.append(f"Significantly better than {baseline}: {'; '.join(above)}.")
    if worse:
        parts.append(f"Significantly worse than {baseline}: {'; '.join(worse)}.")
    if unsettled:
        parts.append(
            f"Undecided beside {baseline}: {'; '.join(unsettled)}. These trainings differ, but their seeds "
            f"scatter so that others could turn it."
        )
    rest = [a["name"] for a in others if not a["significant"] and a["name"] not in unsettled]
    if len(rest) == 1:
        parts.append(f"No significant difference between {rest[0]} and {baseline}.")
    elif rest:
        which = (
            f"none of the {len(rest)} arms differs"
            if len(rest) == len(others)
            else f"{len(rest)} arms do not differ"
        )
        parts.append(f"No significant difference: {which} from {baseline} beyond chance.")
    parts += _along_ladder(results)
    parts += _simple_models(results, measure, digits)
    if missing := len(results["unfinished"]):
        parts.append(f"{missing} {'run is' if missing == 1 else 'runs are'} missing.")
    if len(results["seeds"]) == 1:
        parts.append("One seed an arm: what another seed would change is not known.")
    if len(results["seeds"]) == 2 and len(rest) + len(unsettled):
        parts.append(
            "Two seeds an arm hardly say how far seeds scatter, so only a difference of many times that "
            "scatter counts: with three or more, smaller ones do."
        )
    return {"verdict": " ".join(parts), "sentences": told}


def _simple_models(results: dict[str, Any], measure: str, digits: int) -> list[str]:
    """That no arm reaches the best of the simple models, where none does."""
    simple = {name: figures.get(measure) for name, figures in results.get("baselines", {}).items()}
    simple = {name: value for name, value in simple.items() if value is not None}
    if not simple:
        return []
    arms = [arm[measure]["mean"] for arm in results["arms"] if arm[measure]["mean"] is not None]
    if not arms:
        return []
    unit = unit_of(measure)
    best = (min if unit.lower else max)(simple, key=simple.__getitem__)
    if min(arms) <= simple[best] if unit.lower else max(arms) >= simple[best]:
        return []
    return [f"No arm reaches {best} ({unit.value(simple[best], digits)})."]


def measured(results: dict[str, Any]) -> str:
    """The figure that a study's arms are compared by."""
    return results.get("measure") or "accuracy"


def pair_tests(arm: dict[str, Any], measure: str) -> list[dict[str, Any]]:
    """The tests of each pair of trainings with one seed, of the measure: McNemar's is one of accuracies."""
    return arm.get("permutation") or (measure == "accuracy" and arm.get("mcnemar")) or []


def _unsettled(arm: dict[str, Any], measure: str) -> bool:
    """Whether each pair of trainings differs, one way all of them, and the arms do not for all that."""
    tests = pair_tests(arm, measure)
    ways = {test["wins"] > test["losses"] if "wins" in test else test["difference"] > 0 for test in tests}
    alike = len(tests) > 1 and len(ways) == 1 and all(test["p"] < 0.05 for test in tests)
    return not arm["significant"] and alike


def _along_ladder(results: dict[str, Any]) -> list[str]:
    """Of arms in a stated order, the first that is shown to be worse than the baseline; else: none is."""
    measure = measured(results)
    unit = unit_of(measure)
    arms = {arm["name"]: arm for arm in results["arms"]}
    ladder = [name for name in results.get("ladder", []) if name in arms]
    if len(ladder) < 2:
        return []
    over = f" over {', '.join(ladder[1:-1])}" if ladder[2:] else ""
    way = f"From {ladder[0]}{over} to {ladder[-1]}"
    for name in ladder:
        if arms[name].get("significant") and not better(arms[name][measure], unit):
            return [f"{way}, {name} is the first that is shown to be worse than {results['baseline']}."]
    told = f"none is shown to be worse than {results['baseline']}; they were not tested against each other"
    return [f"{way}, {told}."]


def _arm(arm: dict[str, Any], baseline: str, digits: int, measure: str) -> str:
    apart, between = arm[measure]["difference"], arm[measure]["difference_interval"]
    side = "above" if apart > 0 else "below"
    same = f"as accurate as {baseline}" if measure == "accuracy" else f"as good as {baseline}"
    unit = unit_of(measure)
    of = "" if measure == "accuracy" else f" of {unit.called}"
    size = f"{unit.apart(apart, digits)}{of} {side} {baseline}" if apart else same
    low, high = (unit.with_sign(x, digits) for x in between)
    evidence = f"95 % interval {low} to {high}, p = {p_value(arm['p_holm'])} after Holm".replace("= <", "<")
    tests = pair_tests(arm, measure)
    if tests and not apart and not any(test.get("wins", 1) or test["losses"] for test in tests):
        return f"No difference: right on the same examples as {baseline}, and wrong on the same."
    if arm["significant"]:
        return f"{size} ({evidence})."
    if _unsettled(arm, measure):
        most = p_value(max(test["p"] for test in tests))
        name = "McNemar" if arm.get("mcnemar") else "permutation"
        return (
            f"Undecided: {size} ({evidence}). Each pair of trainings differs on these examples ({name}, p "
            f"{most if most.startswith('<') else f'at most {most}'}), yet seeds that scatter so far could "
            "turn it."
        )
    return f"No significant difference: {size} ({evidence})."


def markdown(results: dict[str, Any]) -> str:
    """The study as Markdown: the verdict, one row an arm, and how to read it."""
    digits, by = digits_for(results["n"]), measured(results)
    unit, ((first, _), (second, other)) = unit_of(by), leading_of(by, results["arms"][0])
    # Accuracy leads the table of classes whatever is compared: readers of older tables look there.
    if first == "macro_f1" and second == "accuracy":
        first, second, other = "accuracy", "macro_f1", unit.called
    led, then = unit_of(first), unit_of(second)
    header = (
        "Arm",
        "Seeds",
        headed(led.called),
        "SD over seeds",
        "95 % interval",
        headed(other),
        "Log loss",
        "Difference (points)" if by == "accuracy" else f"Difference ({unit.called}{unit.of_difference})",
        "p (Holm)",
        "Best epoch",
        "s/epoch",
        "Parameters",
        "Peak memory",
    )
    changed = any(arm.get("robustness") for arm in results["arms"])
    header += ("Changed pictures",) if changed else ()
    lines = [
        f"# {_cell(results['name'])}",
        "",
        _cell(results["summary"]),
        "",
        results["verdict"].replace("|", "\\|"),
        "",
    ]
    lines += [_row(header), "|" + "---|" * len(header)]
    for arm in results["arms"]:
        figures, cost = arm[first], arm["cost"]
        lines.append(
            _row(
                [
                    arm["name"] + (" (baseline)" if arm["name"] == results["baseline"] else ""),
                    len(arm["seeds"]),
                    led.value(figures["mean"], digits),
                    led.scatter(figures["sd"]),
                    led.between(figures["interval"], digits, figures["mean"], results["n"]),
                    then.value(arm[second]["mean"], digits),
                    decimal(arm["log_loss"]["mean"], 4),
                    signed(arm[by], digits, unit),
                    p_value(arm.get("p_holm")),
                    decimal(arm["best"]["epoch"], 1),
                    decimal(cost["seconds_per_epoch"], 1),
                    count(cost["parameters"]),
                    f"{count(cost['peak_memory_mb'])} MB" if cost["peak_memory_mb"] else NONE,
                    *(
                        [Share("").value((arm.get("robustness") or {}).get("accuracy"), digits)]
                        if changed
                        else []
                    ),
                ]
            )
        )
    for name, figures in results["baselines"].items():
        shown = [
            name,
            NONE,
            led.value(figures.get(first), digits),
            NONE,
            led.between(figures.get(f"{first}_interval"), digits, figures.get(first), results["n"]),
            then.value(figures.get(second), digits),
            decimal(figures["log_loss"], 4),
            signed(figures, digits, unit),
            *[NONE] * (5 + changed),
        ]
        lines.append(_row(shown))
    lines += ["", notes(results)]
    return "\n".join(lines) + "\n"


def notes(results: dict[str, Any]) -> str:
    """How the figures came about, in one paragraph."""
    seeds = ", ".join(map(str, results["seeds"]))
    machine = results["machine"].get("gpu") or results["machine"].get("cpu") or "an unnamed machine"
    return (
        f"{results['n']:,} {results['judged']} examples, for every arm the same; seeds {seeds}. "
        f"p: {how_tested(results)}, corrected for {max(len(results['arms']) - 1, 0)} comparisons by Holm's "
        f"method. "
        f"Measured on {machine}, {results['date'][:10]}."
    )


def _row(cells: Any) -> str:
    return "| " + " | ".join(_cell(c) for c in cells) + " |"


def _cell(value: Any) -> str:
    """Text from data as a table's cell: nothing in it is markup."""
    return re.sub(r"([\\|`*_\[\]#])", r"\\\1", " ".join(str(value).split())).replace("<", "&lt;")
