"""report.html of runs that tag words: entity figures, errors by kind, and sentences with their spans in
color.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe, read_toml
from glassformer.errors import DataError
from glassformer.evaluate.tags import ERRORS
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import architecture, templates
from glassformer.report.run import read_history, read_json, shown

HUES, LINES = 8, 4  # colors of kinds and styles of the line below: kinds beyond 32 look like earlier ones
SHOWN = ("precision", "recall", "entity_f1", "macro_f1", "accuracy")


def write_tag_report(folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
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
    examples = shown(read_json(folder / "spans.json", dict)).get("examples", [])
    doctor = shown(read_json(folder / "doctor.json", dict))
    calibration = shown(read_json(folder / "calibration.json", dict))
    scores = metrics.get("test") or metrics.get("validation") or {}
    sentences = metrics.get("sentences") or []
    hues = looks_of(
        [
            *(scores.get("by_kind") or ()),
            *(span[0] for e in examples for span in (*e["true"], *e["predicted"])),
            *(span["kind"] for s in sentences for span in s["spans"]),
        ]
    )
    css, script = asset("page.css") + asset("spans.css"), asset("sort.js")
    return (
        templates()
        .get_template("tags.html.j2")
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=policy(css, script),
            metrics=metrics,
            scores=scores,
            judged=metrics.get("judged") if metrics.get("test") else "validation",
            config=config,
            title=config.get("name") or folder.resolve().name,
            hues=hues,
            kinds=[{"kind": kind, **own} for kind, own in (scores.get("by_kind") or {}).items()],
            errors=ERRORS,
            columns=SHOWN,
            calibration=calibration if calibration.get("splits") else None,
            findings=[f for f in doctor.get("findings", []) if f.get("severity") != "ok"],
            examples=[e | {"pieces": pieces(e, hues)} for e in examples],
            sentences=[s | {"parts": parts(s, hues)} for s in sentences],
            loss=Markup(figures.loss_curves(steps, evaluations)) if steps else None,
            accuracy=Markup(figures.accuracy_curves(steps, evaluations)) if evaluations else None,
            settings=tables.settings(config, known.defaults),
            expectation=tables.expectation(config, known.shipped, known.defaults),
            facts=tables.facts(metrics),
            times=tables.times(metrics.get("seconds") or {}),
            architecture=architecture(metrics, "tokens [N]"),
        )
    )


def looks_of(kinds: Iterable[str]) -> dict[str, str]:
    """The classes of each kind's color and line; up to 32 kinds look different."""
    return {kind: f"k{i % HUES} l{i // HUES % LINES}" for i, kind in enumerate(sorted(set(kinds)))}


def pieces(example: dict[str, Any], hues: dict[str, str]) -> list[dict[str, Any]]:
    """Runs of words of a judged sentence: ``text``, the true and the predicted kind (with class), how sure.

    A run ends where a true or a predicted span begins or ends, so that both can be drawn one above the other.
    """
    words = example["words"]
    true = {i: (n, kind) for n, (kind, a, b) in enumerate(example["true"]) for i in range(a, b)}
    found = {i: (n, kind, p) for n, (kind, a, b, p) in enumerate(example["predicted"]) for i in range(a, b)}
    out: list[dict[str, Any]] = []
    last: Any = None
    for i, word in enumerate(words):
        own = (true.get(i), found.get(i))
        if out and own == last:
            out[-1]["text"] += f" {word}"
            continue
        (_, wanted), (_, guess, p) = own[0] or (0, ""), own[1] or (0, "", None)
        out.append(
            {
                "text": word,
                "true": wanted,
                "guess": guess,
                "hue": hues.get(guess or wanted, ""),
                "probability": p,
                "right": wanted == guess,
            }
        )
        last = own
    return out


def parts(sentence: dict[str, Any], hues: dict[str, str]) -> list[dict[str, Any]]:
    """A text in spans and what stands between them."""
    out, end = [], 0
    for span in sentence["spans"]:
        if span["start"] > end:
            out.append({"text": sentence["text"][end : span["start"]], "kind": ""})
        out.append({**span, "hue": hues[span["kind"]]})
        end = span["end"]
    return [*out, {"text": sentence["text"][end:], "kind": ""}] if end < len(sentence["text"]) else out
