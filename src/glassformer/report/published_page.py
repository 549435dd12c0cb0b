"""The table of published systems as a Markdown page: each row's published figure and the measured one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from glassformer.report.published import InForm, Measured, duration, published_rows

TEMPLATES = Path(__file__).parent / "templates"


def page(
    measure: Callable[[str], Measured | None],
    measure_study: Callable[[str], str | None] = lambda name: None,
    form: Mapping[str, InForm] | None = None,
) -> str:
    """Markdown for all rows.

    Args:
        measure: recipe -> what it reached, or None.
        measure_study: study -> what it found, in words, or None.
        form: recipe -> its run on random weights, where there is one.
    """
    rows, form = published_rows(), form or {}
    found = {name: measure(name) for row in rows for name in row.recipes}

    def reached(names: Sequence[str]) -> str:
        return "<br>".join(f"`{name}` {_reached(found[name], form.get(name))}" for name in names) or "–"

    markdown = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return markdown.get_template("published.md.j2").render(
        rows=rows,
        found=found,
        form=form,
        reached=reached,
        duration=duration,
        studies={name: measure_study(name) for row in rows for name in row.studies},
    )


def _reached(m: Measured | None, run: InForm | None) -> str:
    """What stands behind a recipe's name in the table."""
    if m is not None:
        return f"**{m.score}** ({m.seeds} seed{'s' * (m.seeds > 1)}, {m.time})"
    if run is not None:
        return (
            f"not measured; in form, on random weights: {run.examples:,} examples, {run.steps:,} steps, "
            f"{duration(run.seconds)}, accuracy {run.accuracy:.1%} where chance is {run.chance:.1%}"
        )
    return "not measured"
