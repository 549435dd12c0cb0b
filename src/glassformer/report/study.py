"""The pages of a study, from results.json, and of a label review, from review.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from glassformer.errors import DataError
from glassformer.evaluate.metrics import CALLED
from glassformer.evaluate.number_compare import MEASURES
from glassformer.report import comparison, tables
from glassformer.report.html import render_page, write_page
from glassformer.report.run import MAX_BYTES, shown
from glassformer.report.units import leading_of, signed, unit_of
from glassformer.report.wording import digits_for, headed, how_tested

MAX_CURVES = 12  # arms whose curves are drawn; more cannot be told apart


def write_study_report(folder: str | Path) -> Path:
    """Write ``report.html`` into a study's folder and return its path.

    Raises:
        DataError: no results.json, or a damaged one.
    """
    folder = Path(folder)
    results = read_study(folder)
    return write_page(folder / "report.html", render_study(results, run_pages(results, folder)))


def run_pages(results: dict[str, Any], folder: Path) -> dict[str, list[tuple[Any, str]]]:
    """Arm -> the seed and the address, as seen from the study's page, of every run page that is there."""
    home, pages = folder.resolve(), {}
    for arm in results["arms"]:
        runs = zip(arm.get("seeds") or [], arm.get("runs") or [], strict=False)
        there = [(seed, (home / str(run) / "report.html").resolve()) for seed, run in runs]
        found = [(s, p.relative_to(home)) for s, p in there if p.is_file() and p.is_relative_to(home)]
        pages[arm["name"]] = [(seed, quote(path.as_posix())) for seed, path in found]
    return pages


def read_study(folder: Path) -> dict[str, Any]:
    """The results of a study; strings hold nothing that HTML cannot show."""
    return read_results(folder / "results.json", "study")


def read_results(path: Path, kind: str) -> dict[str, Any]:
    """A JSON file that says of itself what it is.

    Raises:
        DataError: it is not there, too large, damaged or of another kind.
    """
    if not path.is_file():
        raise DataError(f"no {path.name}", where=str(path.parent), fix="Did it run to its end?")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path))
    try:
        found = shown(json.loads(path.read_bytes().decode("utf-8"), parse_constant=lambda _: None))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not valid JSON ({error})", where=str(path)) from None
    if not isinstance(found, dict) or found.get("kind") != kind:
        raise DataError(f"holds no {kind}", where=str(path))
    return found


def confusions(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Each arm's confusion matrix over all its seeds, with many classes also the most frequent confusions."""
    told = []
    for arm in results["arms"]:
        if arm.get("confusion"):
            scores = {"labels": results["classes"], "confusion": arm["confusion"]}
            told.append(
                {"name": arm["name"], "matrix": tables.confusion(scores), "pairs": tables.confusions(scores)}
            )
    return told


def render_study(results: dict[str, Any], pages: Mapping[str, list[tuple[Any, str]]] | None = None) -> str:
    """The page's HTML; ``pages``: see ``run_pages``."""
    arms, baseline = results["arms"], results["baseline"]
    known = CALLED.keys() | MEASURES.keys()
    measure = results["measure"] if results.get("measure") in known else "accuracy"
    figures = {"bars": Markup(comparison.bars(arms, baseline, measure))}
    if len(arms) > 1:
        figures["differences"] = Markup(comparison.differences(arms, baseline, measure))
    curves = [arm for arm in arms if len(arm["curve"]) > 1][:MAX_CURVES]
    for key in (measure, "loss"):
        drawable = [a for a in curves if all(point.get(key) is not None for point in a["curve"])]
        if len(drawable) > 1:
            figures[key] = Markup(comparison.curves(drawable, key))
    return render_page(
        "study.html.j2",
        results=results,
        figures=figures,
        digits=digits_for(results["n"]),
        spread=comparison.spread_in_words(arms, measure),
        pages=pages or {},
        confusions=confusions(results),
        leading=leading_of(measure, arms[0]),
        unit=unit_of(measure),
        second=unit_of(leading_of(measure, arms[0])[1][0]),
        signed=signed,
        tested=headed(how_tested(results)),
    )


# --- the page of a label review -------------------------------------------------------------------


def write_review_page(folder: str | Path) -> Path:
    """Write ``review.html`` beside review.json and return its path.

    Raises:
        DataError: no review.json, or a damaged one.
    """
    folder = Path(folder)
    found = read_results(folder / "review.json", "review")
    return write_page(folder / "review.html", render_page("review.html.j2", found=found))
