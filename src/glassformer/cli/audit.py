"""``glassformer audit`` and ``diff``.

``audit`` checks a model on labeled data. ``diff`` compares two models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from glassformer.audit import TITLES
from glassformer.cli import options as cli
from glassformer.cli.options import argument, flag, option
from glassformer.cli.output import AS_JSON, print_json, print_message, show_metric_table, show_table
from glassformer.cli.vectors import check_html_or_json
from glassformer.errors import BadValueError, ExistsError, NotForThisModelError
from glassformer.outputs import write_text

WORSE = 3  # exit code if the command succeeds, but the model fails the check
MAX_FLIPS = 5  # maximum number of changed predictions to print

CHECK: Any = option("NAME", f"Run only this check; may be repeated: {', '.join(TITLES)}.")
DATA_FILE: Any = option("PATH", "Labeled data: a data set name, table or folder.", panel=cli.DATA)


@cli.with_columns(*cli.LABELED_COLUMNS, hidden=cli.TRANSLATION_COLUMNS)
def diff_command(
    model: Path = argument(
        "MODEL", "Model in use: a run, a saved model, or a classifier from the Hub.", default=...
    ),
    new_model: Path = argument("NEW_MODEL", "Model that may replace it.", default=...),
    path: str | None = cli.OTHER_DATA,
    data: str | None = DATA_FILE,
    on_bad_row: str | None = cli.BAD_ROW,
    alpha: float = option(
        "P", "Significance level: probability of a false alarm if nothing has changed.", default=0.05
    ),
    out: Path | None = option("FILE.html", "Write the comparison as an HTML report."),
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Compare two models on the same examples: predictions that change, slices that get worse, and why.

    Both must read the same kind of input and predict the same labels. Exits with code 3 if the metric over
    all examples, or over a slice, is significantly worse.
    """
    data = cli.choose_data(path, data, "diff")
    cli.check_bad_row(on_bad_row)
    if not 0 < alpha < 1:
        raise BadValueError(f"{alpha:g} is not between 0 and 1", where="--alpha", fix="Use 0.05")
    if out is not None:
        check_html_or_json(out)
    column_names = cli.columns_for_data(columns, data)
    from glassformer.audit.diff import diff
    from glassformer.audit.page import diff_page, diff_sentences, slice_table
    from glassformer.audit.predictions import predict_all
    from glassformer.train.callbacks import Progress

    options: dict[str, Any] = {
        "columns": column_names,
        "on_bad_row": on_bad_row,
        "log": cli.print_library_message,
    }
    old, new = predict_all((model, new_model), data, count=Progress().count, **options)
    comparison = diff(old, new, alpha=alpha)

    if out is not None:
        write_text(out, diff_page(comparison))
    if json:
        print_json(comparison | {"page": out})
    else:
        print_message(*diff_sentences(comparison))
        for key, title in (("slices", "worse"), ("improved", "better")):
            if comparison[key]:
                show_metric_table(title, slice_table(comparison["metric"], comparison[key]))
        _show_flips(comparison)
        if out is not None:
            print_message(f"page: {out}")
    if comparison["is_worse"]:
        raise typer.Exit(WORSE)


def _show_flips(comparison: dict[str, Any]) -> None:
    """Print the first predictions that got worse, with the words whose scores changed most."""
    rows = []
    for flip in comparison["flips"][:MAX_FLIPS]:
        words = ", ".join(word["part"] for word in flip.get("why") or ())
        rows.append([flip["example"], flip["label"], flip["a"], flip["b"], words])
    if rows:
        columns = ("example", "label", "before", "now", "words with changed scores")
        show_table("predictions that got worse", columns, rows)


# --- audit --------------------------------------------------------------------------------------------


@cli.with_columns(*cli.LABELED_COLUMNS, hidden=cli.TRANSLATION_COLUMNS)
def audit_command(
    model: Path = argument("MODEL", "A run, a saved model, or a classifier from the Hub.", default=...),
    path: str | None = cli.OTHER_DATA,
    data: str | None = DATA_FILE,
    on_bad_row: str | None = cli.BAD_ROW,
    out: Path | None = option("DIR", "Output folder.", show_default="runs/MODEL-audit"),
    check: list[str] | None = CHECK,
    fail_under: float | None = option(
        "SHARE", "Exit with code 3 if the main metric (usually the accuracy) is below SHARE (0 to 1)."
    ),
    fail_on_warning: bool = flag("--fail-on-warning", "Exit with code 3 if there is any warning."),
    json: bool = AS_JSON,
    **columns: str | None,
) -> None:
    """Audit a classifier or regressor on labeled data: slices, leaks, wrong labels, robustness, shortcuts.

    Trains nothing; writes an HTML report, audit.json and a table of all predictions.
    """
    data = cli.choose_data(path, data, "audit")
    cli.check_bad_row(on_bad_row)
    for name in check or ():
        cli.check_choice("--check", name, tuple(TITLES))
    if fail_under is not None and not 0 <= fail_under <= 1:
        fix = "Use 0 to 1, such as 0.9"
        raise BadValueError(f"{fail_under:g} is not between 0 and 1", where="--fail-under", fix=fix)
    folder = out or cli.default_folder(model.resolve().name, "-audit")
    if folder.exists():
        fix = f"Choose another: --out {cli.unused_path(folder)}"
        raise ExistsError("the output folder exists", where=str(folder), fix=fix)
    column_names = cli.columns_for_data(columns, data)
    from glassformer.audit.audit import audit
    from glassformer.audit.page import write_audit
    from glassformer.audit.predictions import predict
    from glassformer.train.callbacks import Progress

    count = Progress().count
    options: dict[str, Any] = {"on_bad_row": on_bad_row, "log": cli.print_library_message, "count": count}
    predicted = predict(model, data, columns=column_names, **options)
    if fail_under is not None and predicted.predicts_numbers:
        what = "is for classifiers; the metric of a regressor is its mean absolute error"
        fix = "Leave it out, and read the error from audit.json"
        raise NotForThisModelError(what, where="--fail-under", fix=fix)
    result = audit(predicted, checks=check, count=count, log=cli.print_library_message)
    write_audit(folder, result, predicted)
    if json:
        print_json(result | {"folder": folder})
    else:
        for number, line in enumerate(result["sentences"], 1):
            print_message(f"{number}. {line}")
        print_message(f"page: {folder / 'audit.html'}")
    value = result["checks"][0].get("values", {}).get("value")
    is_too_low = fail_under is not None and (value is None or value < fail_under)
    if is_too_low or (fail_on_warning and result["warnings"]):
        raise typer.Exit(WORSE)
