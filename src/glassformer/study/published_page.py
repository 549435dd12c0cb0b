"""The table of published systems as a page of Markdown: each row's published figure beside what was measured."""

from __future__ import annotations

from collections.abc import Callable

from glassformer.study.published import ROWS, Measured, Row, duration

HEAD = """# Published results, and ours

<!-- written by `glassformer reproduce --table --out docs/results.md`; nothing here is typed by hand -->

`glassformer reproduce ROW` runs a row as its document sets it, into `runs/NAME`; stopped, it goes on where it was.
Figures are means over seeds with the range, on the test set, which each run looks at once. **A line without a figure
has not been measured**, and says so. Where the documents differ from us on purpose: [](differences.md).

| Row | System | Data | Published | As the document sets it | Ours at best |
|---|---|---|---|---|---|
"""
LINES = """## Every recipe

| Row | Recipe | Reached | Seeds | Training | Machine | Date | Settings changed | Read from |
|---|---|---|---|---|---|---|---|---|
"""


def page(
    measure: Callable[[str], Measured | None], measure_study: Callable[[str], str | None] = lambda name: None
) -> str:
    """Markdown for all rows.

    Args:
        measure: recipe -> what it reached, or None.
        measure_study: study -> what it found, in words, or None.
    """
    studies = {name: measure_study(name) for row in ROWS for name in row.studies}
    found = {name: measure(name) for row in ROWS for name in row.recipes}
    lines = [_line(row, found, studies) for row in ROWS]
    details = [_detail(row, name, found[name]) for row in ROWS for name in row.recipes]
    count = sum(m is not None for m in found.values())
    notes = [f"- Row {row.number}: {row.missing}." for row in ROWS if row.missing]
    times = [f"{row.number}: {row.hours}" for row in ROWS if row.hours]
    parts = [
        HEAD + "\n".join(lines),
        f"{count} of {len(found)} recipes have been measured so far.",
        "## What could not be done, and what stands for it",
        "\n".join(notes),
        "Time of `glassformer reproduce ROW` on two cores (estimates where no time stands below): row "
        + ", ".join(times)
        + ".",
        LINES + "\n".join(details),
    ]
    return "\n\n".join(parts) + "\n"


def _line(row: Row, found: dict[str, Measured | None], studies: dict[str, str | None]) -> str:
    compared = [f"study `{name}` {studies[name] or 'not measured'}" for name in row.studies]
    best = "<br>".join(compared) if compared and not row.best else _told(row, row.best, found)
    told = _told(row, row.given, found), best
    cells = [row.number, row.system, row.data, row.published, *told]
    return "| " + " | ".join(map(str, cells)) + " |"


def _told(row: Row, names: tuple[str, ...], found: dict[str, Measured | None]) -> str:
    if not names:
        return "figures, see below" if not row.recipes else "none"
    told = []
    for name in names:
        m = found[name]
        if m is not None:
            seeds = f"{m.seeds} seed{'s' * (m.seeds > 1)}"
            told.append(f"`{name}` **{m.score}** ({seeds}, {duration(m.seconds)})")
        else:
            told.append(f"`{name}` not measured")
    return "<br>".join(told)


def _detail(row: Row, name: str, m: Measured | None) -> str:
    if m is None:
        cells = [row.number, f"`{name}`", "not measured", "", "", "", "", "", ""]
    else:
        changed = ", ".join(m.overrides) or "none"
        cells = [
            row.number,
            f"`{name}`",
            m.score,
            m.seeds,
            duration(m.seconds),
            m.machine,
            m.date,
            changed,
            f"`{m.source}`",
        ]
    return "| " + " | ".join(map(str, cells)) + " |"
