"""The page of a label review: ``review.html`` from review.json."""

from __future__ import annotations

from pathlib import Path

from glassformer.report.html import render_page, write_page
from glassformer.report.study import read_results


def write_review_page(folder: str | Path) -> Path:
    """Write ``review.html`` beside review.json and return its path.

    Raises:
        DataError: no review.json, or a damaged one.
    """
    folder = Path(folder)
    found = read_results(folder / "review.json", "review")
    return write_page(folder / "review.html", render_page("review.html.j2", found=found))
