"""Result files as tables in Markdown: what all tables of the pages share."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from benchmarks.harness.results import RESULTS

Table = Callable[..., str]


def read(name: str) -> dict[str, Any] | None:
    """A result file; None where it was not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def read_all(*patterns: str) -> list[dict[str, Any]]:
    """The result files of these patterns, each in the order of their names."""
    paths = [path for pattern in patterns for path in sorted(RESULTS.glob(f"{pattern}.json"))]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def of(name: str, command: str) -> Callable[[Table], Table]:
    """Make a table of one result file; ``ending`` asks for the file of a level of processors."""

    def decorate(make: Table) -> Table:
        @wraps(make)
        def told(*args: Any, ending: str = "") -> str:
            result = read(name.format(*args) + ending)
            return missing(command.format(*args)) if result is None else make(result, *args)

        return told

    return decorate


def missing(command: str) -> str:
    return f"Not measured yet: `{command}`."


def table(head: str, rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table; ``head`` has a bar between its columns."""
    lines = [f"| {head} |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    return [*lines, *(f"| {' | '.join(map(str, cells))} |" for cells in rows)]


def text(lines: Sequence[str], *paragraphs: str) -> str:
    """A table and what is said below it."""
    return "\n".join([*lines, *(line for told in paragraphs if told for line in ("", told))])


def spread(figures: dict[str, float], form: str = ",.0f") -> str:
    """A median with its range."""
    return f"{figures['median']:{form}} ({figures['min']:{form}} to {figures['max']:{form}})"


def span(low: float, high: float, form: str = "") -> str:
    """An interval."""
    return f"({low:{form}} to {high:{form}})"


def times(ratio: dict[str, float] | None, digits: int = 1) -> str:
    """A ratio with its range."""
    if not ratio:
        return ""
    low, high = (f"{ratio[end]:.{digits}f}" for end in ("min", "max"))
    return f"{ratio['median']:.{digits}f} × ({low} to {high})"


def measured(result: dict[str, Any]) -> str:
    """On which machine, with how many threads, when."""
    m = result["machine"]
    return (
        f"Measured on {m['cpu']}, {result['threads']} thread{'s' * (result['threads'] > 1)}, load average before "
        f"{m['load_before'][0]:.1f}; torch {result['versions']['torch']}, {result['date'][:10]}."
    )
