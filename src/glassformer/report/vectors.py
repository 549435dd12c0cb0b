"""Report sections for word vectors."""

from __future__ import annotations

from typing import Any

from glassformer.report import figures
from glassformer.report.metrics import Table
from glassformer.report.page import PageKind, Section, curves, table, tabular
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, duration


def verdict(run: Run) -> str:
    m = run.metrics
    text = f"{m['texts']:,} texts, {m['words']:,} words; {m['vocabulary']:,} words have a vector. "
    for split, n in m.get("excluded", {}).items():
        text += f"Texts that are also in {split}, left out: {count(n)}. "
    return f"{text}Trained in {duration(m['seconds']['train'])}, seed {m['seed']}."


def tests(run: Run) -> Section:
    note = "Word similarity (Spearman's rank correlation with human ratings), and accuracy on analogies."
    data = Table(["test", "result", "basis"], test_rows(run.metrics["tests"]), (), ("result", "basis"), "")
    return Section("tests", "Tests", note, table(data))


def learning_curves(run: Run) -> Section | None:
    if not run.steps:
        return None
    body = curves((figures.loss_curves(run.steps, []), "Loss", ()))
    return Section("learned", "Learning curves", "The loss of each step and its trend.", body)


def norms(run: Run) -> Section | None:
    stages = run.metrics["norms"].items()
    keys = ("mean", "min", "max")
    rows = [[f"{stage} training", *(decimal(n[key]) for key in keys)] for stage, n in stages]
    data = Table(["", "mean", "smallest", "largest"], rows, (), (), "")
    return tabular("lengths", "Norms of the vectors", "Before and after training.", data)


def neighbors(run: Run) -> Section | None:
    return _word_lists("near", "Nearest words", "By cosine similarity.", run.metrics["neighbours"])


def analogies(run: Run) -> Section | None:
    note = "The words nearest to a third word plus the difference of two words."
    return _word_lists("analogies", "Analogies", note, run.metrics["analogies"])


def _word_lists(name: str, title: str, note: str, results: dict[str, Any]) -> Section | None:
    rows = [
        [query, ", ".join(f"{word} {decimal(x)}" for word, x in matches)]
        for query, matches in results.items()
    ]
    return tabular(name, title, note, Table(["query", "nearest"], rows, (), ("nearest",), ""))


def test_rows(tests: dict[str, Any]) -> list[tuple[str, str, str]]:
    """A row per test and section: its name, its result, and the number of evaluated pairs or questions."""
    rows = []
    for name, result in tests.items():
        if result is None:
            rows.append((name, "not measured", "its file is not on this machine"))
        elif "sections" not in result:  # a correlation
            value = result["spearman"]
            text = "none" if value is None else f"{100 * value:.1f}"
            rows.append((name, f"Spearman {text}", f"{result['known']} of {result['pairs']} pairs known"))
        else:
            sections = result["sections"] if len(result["sections"]) > 1 else {}
            for title, r in ({name: result} | {f"  {section}": r for section, r in sections.items()}).items():
                accuracy = f"{100 * r['correct'] / r['known']:.1f} % correct" if r["known"] else "none known"
                rows.append((title, accuracy, f"{r['correct']} of {r['known']}; {r['questions']} questions"))
    return rows


PAGE = PageKind(sections=(tests, learning_curves, norms, neighbors, analogies), verdict=verdict)
