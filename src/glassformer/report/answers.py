"""report.html of runs that answer from a text: exact match and F1, errors by kind, and contexts with the
answers in color.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe, read_toml
from glassformer.errors import DataError
from glassformer.evaluate.answers import ERRORS
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import architecture, templates
from glassformer.report.run import read_history, read_json, shown


def write_answer_report(folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
    """Write ``report.html`` into a run folder and return its path; an old one is replaced in one move.

    Raises:
        DataError: no metrics.json, or a damaged file, which is named.
    """
    folder = Path(folder)
    path = folder / "report.html"
    replace_text(path, render(folder, known))
    return path


def render(folder: Path, known: KnownRecipe = NOTHING_KNOWN) -> str:
    """The page's HTML."""
    if not (folder / "metrics.json").is_file():
        raise DataError("no metrics.json", where=str(folder), fix="Is it a run folder, and did the run end?")
    metrics = shown(read_json(folder / "metrics.json", dict))
    config = shown(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {}
    history = list(read_history(folder / "history.jsonl"))
    steps = [h for h in history if h.get("kind") == "step"]
    evaluations = [h for h in history if h.get("kind") == "evaluation"]
    examples = shown(read_json(folder / "answers.json", dict)).get("examples", [])
    doctor = shown(read_json(folder / "doctor.json", dict))
    css = asset("page.css") + asset("spans.css")
    return (
        templates()
        .get_template("answers.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, ""),
            metrics=metrics,
            scores=metrics.get("test") or metrics.get("validation") or {},
            judged=metrics.get("judged") if metrics.get("test") else "validation",
            config=config,
            title=config.get("name") or folder.resolve().name,
            errors=ERRORS,
            findings=[f for f in doctor.get("findings", []) if f.get("severity") != "ok"],
            examples=[e | {"pieces": pieces(e)} for e in examples],
            questions=[q | {"pieces": pieces(_own(q))} for q in metrics.get("questions") or []],
            loss=Markup(figures.loss_curves(steps, evaluations)) if steps else None,
            accuracy=Markup(figures.accuracy_curves(steps, evaluations)) if evaluations else None,
            settings=tables.settings(config, known.defaults),
            expectation=tables.expectation(config, known.shipped, known.defaults),
            facts=tables.facts(metrics),
            times=tables.times(metrics.get("seconds") or {}),
            architecture=architecture(metrics, "tokens [N]"),
        )
    )


def _own(question: dict[str, Any]) -> dict[str, Any]:
    spans = [(question["start"], question["end"])] if question["answer"] else []
    return {"context": question["context"], "true_spans": spans, "spans": spans}


def pieces(example: dict[str, Any]) -> list[dict[str, Any]]:
    """A context in runs of characters, each with ``true`` and ``given``: whether such an answer covers it.

    A run ends where an answer begins or ends, so that a true and a given one can overlap.
    """
    text = example["context"]
    spans = {"true": example["true_spans"], "given": example["spans"]}
    ends = sorted({0, len(text), *(end for own in spans.values() for span in own for end in span)})
    return [
        {"text": text[a:b], **{kind: any(x <= a and b <= y for x, y in own) for kind, own in spans.items()}}
        for a, b in pairwise(ends)
    ]
