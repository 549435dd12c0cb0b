"""report.html of runs without classes: translation (scores, alignments), masked words (loss, fills) and
masked patches (loss, paintings).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from glassformer.checkpoints.files import replace_text
from glassformer.config import NOTHING_KNOWN, KnownRecipe, read_toml
from glassformer.errors import DataError
from glassformer.explain.alignment import picture
from glassformer.explain.render import asset, policy
from glassformer.report import figures, tables
from glassformer.report.html import architecture, templates
from glassformer.report.pictures import data_uri
from glassformer.report.run import read_history, read_json, shown


def write_sequence_report(folder: str | Path, known: KnownRecipe = NOTHING_KNOWN) -> Path:
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
    metrics = read_json(folder / "metrics.json", dict)
    config = shown(read_toml(folder / "config.toml")) if (folder / "config.toml").is_file() else {}
    history = list(read_history(folder / "history.jsonl"))
    steps = [h for h in history if h.get("kind") == "step"]
    evaluations = [h for h in history if h.get("kind") == "evaluation"]
    examples = read_json(folder / "alignments.json", dict).get("examples", [])
    painted = read_json(folder / "paintings.json", dict).get("rows", [])
    css = asset("page.css")
    settings = tables.settings(config, known.defaults)
    held = any(e.get("accuracy") is not None for e in evaluations)
    return (
        templates()
        .get_template("sequences.html.j2")
        .render(
            css=Markup(css),
            policy=policy(css, ""),
            metrics=metrics,
            config=config,
            title=config.get("name") or folder.resolve().name,
            loss=Markup(figures.loss_curves(steps, evaluations)) if steps else None,
            accuracy=Markup(figures.accuracy_curves(steps, evaluations)) if evaluations else None,
            held=held,
            curves=curves(metrics, config, held, bool(evaluations)),
            paintings=[[data_uri(png, "paintings.json") for png in row] for row in painted],
            examples=[e | {"picture": Markup(drawn(e))} for e in examples],
            settings=settings,
            expectation=tables.expectation(config, known.shipped, known.defaults),
            facts=tables.facts(metrics),
            times=tables.times(metrics.get("seconds") or {}),
            architecture=architecture(metrics, "source tokens [M]" if "scores" in metrics else "tokens [N]"),
        )
    )


def curves(metrics: dict[str, Any], config: dict[str, Any], held: bool, judged: bool) -> str:
    """What the curves of a training show, in words.

    Args:
        held: whether the loss of held-out data is among them.
        judged: whether those of accuracy are drawn.
    """
    out = f"Training loss of each step with its trend{', and what held-out data gave' * held}."
    if judged and metrics.get("masked"):
        out += " Accuracy is the share of masked tokens guessed right."
    elif judged and metrics.get("hidden"):
        out += " Accuracy is the share of the hidden patches' variance that is explained."
    elif judged:
        out += " Accuracy is the share of the reference's tokens guessed right, those before each given"
        out += "; BLEU judges whole translations." if metrics.get("scores") else "."
    parts = ["label smoothing"] * bool((config.get("train") or {}).get("label_smoothing"))
    parts += ["the loss of the next sentence"] * bool((config.get("text") or {}).get("next_sentence"))
    if parts and held:
        out += f" The training loss has {' and '.join(parts)} in it, the validation loss has not."
    return out


def drawn(example: dict[str, Any]) -> str:
    """The picture of one alignment of ``alignments.json``."""
    return picture(example["source"], example["target"], example["weights"], "alignments.json")
