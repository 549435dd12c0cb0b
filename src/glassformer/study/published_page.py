"""The table of published systems as a page of Markdown: each row's published figure beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glassformer.study.published import ROWS, InForm, Measured, Row, duration

HEAD = """# Published results, and ours

<!-- written by `glassformer reproduce --table --out docs/results.md`; nothing here is typed by hand -->

`glassformer reproduce ROW` runs a row as its document sets it, each recipe into `runs/NAME`; stopped, it goes on.
Figures are means over seeds with the range, on the test set, which each run looks at once. **A line without a figure
has not been measured**, and says so. Where the documents differ from us on purpose: [](differences.md).

| Row | System | Data | Published | As the document sets it | Ours at its best | Others of ours |
|---|---|---|---|---|---|---|
"""
LINES = """## Every recipe of these rows

| Row | Recipe | Reached | Seeds | Training | Machine | Date | Settings changed | Read from |
|---|---|---|---|---|---|---|---|---|
"""
FORM = """## Run in form, on random weights

Where pre-trained weights could not be had, `benchmarks/in_form.py` wrote random ones of the same size, in the same files as the
Hub's, and ran the recipe on them from the raw data to the report. That shows that the way works and what it costs. **The
accuracy says nothing about the recipe**: chance (always naming the most frequent class) is about all that random weights can reach.

| Row | Recipe | In the layout of | Parameters | Training examples | Steps | Data to report | Accuracy | Chance | Settings changed | What came out | Machine | Date |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


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
    form = form or {}
    studies = {name: measure_study(name) for row in ROWS for name in row.studies}
    found = {name: measure(name) for row in ROWS for name in row.recipes}
    lines = [_line(row, found, studies, form) for row in ROWS]
    details = [_detail(row, name, found[name], name in form) for row in ROWS for name in row.recipes]
    formal = [_form(row, form[name]) for row in ROWS for name in row.recipes if name in form]
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
        *([FORM + "\n".join(formal)] if formal else []),
        LINES + "\n".join(details),
    ]
    return "\n\n".join(parts) + "\n"


def _line(
    row: Row, found: dict[str, Measured | None], studies: dict[str, str | None], form: Mapping[str, InForm]
) -> str:
    compared = [f"study `{name}` {studies[name] or 'not measured'}" for name in row.studies]
    best = _told((row.best,) if row.best else (), found, form)
    others = "<br>".join(compared) or _told(row.others, found, form)
    given = _told(row.given, found, form) if row.recipes else "figures, see below"
    cells = [row.number, row.system, row.data, row.published, given, best, others]
    return "| " + " | ".join(map(str, cells)) + " |"


def _told(names: tuple[str, ...], found: dict[str, Measured | None], form: Mapping[str, InForm]) -> str:
    if not names:
        return "–"
    told = []
    for name in names:
        m = found[name]
        if m is not None:
            seeds = f"{m.seeds} seed{'s' * (m.seeds > 1)}"
            told.append(f"`{name}` **{m.score}** ({seeds}, {m.time})")
        elif (run := form.get(name)) is not None:
            told.append(
                f"`{name}` not measured; in form, on random weights: {run.examples:,} examples, {run.steps:,} steps, "
                f"{duration(run.seconds)}, accuracy {run.accuracy:.1%} where chance is {run.chance:.1%}"
            )
        else:
            told.append(f"`{name}` not measured")
    return "<br>".join(told)


def _form(row: Row, run: InForm) -> str:
    """A line of the table of runs on random weights."""
    files = ", ".join(f"`{file}`" for file in run.files)
    if run.grid is not None:
        files += f"; the grid has {run.grid[0]} × {run.grid[1]} places, a picture a class, true and predicted label"
    judged = f"{run.accuracy:.1%} of {run.judged:,}"
    cells = [
        row.number, f"`{run.recipe}`", f"`{run.layout}`", f"{run.parameters:,}", f"{run.examples:,}", f"{run.steps:,}",
        duration(run.seconds), judged, f"{run.chance:.1%}", ", ".join(run.overrides), files, run.machine, run.date,
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _detail(row: Row, name: str, m: Measured | None, in_form: bool) -> str:
    if m is None:
        what = "not measured" + ("; run in form, see above" if in_form else "")
        cells = [row.number, f"`{name}`", what, "", "", "", "", "", ""]
    else:
        changed = ", ".join(m.overrides) or "none"
        cells = [
            row.number,
            f"`{name}`",
            m.score,
            m.seeds,
            m.time,
            m.machine,
            m.date,
            changed,
            f"`{m.source}`",
        ]
    return "| " + " | ".join(map(str, cells)) + " |"
