"""The sections of the pages of what writes or restores: translations, masked words, masked patches."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from glassformer.explain.alignment import picture
from glassformer.report import page
from glassformer.report.metrics import Table, metric_table
from glassformer.report.page import HELD, MAX_ROWS, TRAIN, Kind, Section, own_inputs, part, table
from glassformer.report.pictures import data_uri
from glassformer.report.run import Run
from glassformer.report.wording import plain
from glassformer.targets.target_text import TargetText


def translation_scores(run: Run) -> Section:
    """BLEU and chrF of each split and search, and how they were computed."""
    found = run.metrics.get("scores") or {}
    if not found:
        return Section("scores", "Scores", "No pairs were held out, so these translations are not evaluated.")
    note = (
        "Corpus BLEU and chrF from 0 to 100, greedy search and beam search. The lower-cased, tokenized "
        "BLEU stands beside figures of the literature that are computed so; it is not the same quantity "
        "as the first."
    )
    rows = [(split, name, s) for split, searches in found.items() for name, s in searches.items()]
    told = metric_table([(split, s) for split, _, s in rows], ["n", *TargetText.metrics], 2, noun="pairs")
    lines = [
        [split, name, s["width"], *line[1:]] for (split, name, s), line in zip(rows, told.rows, strict=True)
    ]
    last = [i for i, (split, *_) in enumerate(rows) if split == run.metrics.get("judged")][-1:]
    heads = ["split", "search", "width", *told.heads[1:]]
    body = table(Table(heads, lines, last, ("search",)))
    for name, signature in rows[0][2]["signatures"].items():
        body += part("parts", "small", f"{name.replace('_', ' ')}: {signature}")
    return Section("scores", "Scores", note, body)


def masked_words(run: Run) -> Section | None:
    note = (
        "Loss in nats a masked token and the share guessed right, on texts held out of training under "
        "masks drawn once."
    )
    return _values("Masked words", note, run.metrics.get("masked") or {})


def hidden_patches(run: Run) -> Section | None:
    note = (
        "Images held out of training, always the same patches of them hidden. Each patch is scaled to "
        "mean 0 and variance 1: a gray answer has a loss of 1. Explained is 1 - loss."
    )
    found = run.metrics.get("hidden") or {}
    values = {"loss": found["loss"], "explained": found["accuracy"]} if found else {}
    return _values("Hidden patches", note, values)


def _values(title: str, note: str, found: dict[str, Any]) -> Section | None:
    rows = [[name.replace("_", " "), plain(value)] for name, value in found.items()]
    return (
        Section("scores", title, note, table(Table(["figure", "value"], rows, (), (), ""))) if found else None
    )


def painted(run: Run) -> Section | None:
    rows = run.json("paintings.json").get("rows")
    if not rows:
        return None
    note = (
        "Held-out images, as they are, with their patches hidden, and painted. The mean and the "
        "contrast of a hidden patch are taken from the image, as in the loss: what is painted is the "
        "pattern in it."
    )
    uris = [[data_uri(png, "paintings.json") for png in row] for row in rows]
    return Section("painted", "Reconstructions", note, part("sequences", "painted", uris), ("pictures",))


def learned(run: Run) -> Section | None:
    held = any(e.get("accuracy") is not None for e in run.evaluations)
    note = curves_said(run.metrics, run.config, held, bool(run.evaluations))
    return page.learned(run, note, "Accuracy", (TRAIN, HELD) if held else (TRAIN,))


def curves_said(metrics: dict[str, Any], config: dict[str, Any], held: bool, judged: bool) -> str:
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
        out += "; BLEU is about whole translations." if metrics.get("scores") else "."
    parts = ["label smoothing"] * bool((config.get("train") or {}).get("label_smoothing"))
    parts += ["the loss of the next sentence"] * bool((config.get("text") or {}).get("next_sentence"))
    if parts and held:
        out += f" The training loss has {' and '.join(parts)} in it, the validation loss has not."
    return out


def sentences(run: Run) -> Section | None:
    given = run.metrics.get("sentences")
    return own_inputs(part("sequences", "sentences", given[:MAX_ROWS])) if given else None


def looks(run: Run) -> Section | None:
    """Which words of the source each word of a translation was read from."""
    examples = run.json("alignments.json").get("examples")
    if not examples:
        return None
    note = (
        "Cross-attention: a row for each token of the translation, a column for each token of the source, "
        "the mean over the heads of the last layer. It shows where information was read, not why a word "
        "was chosen."
    )
    if not run.metrics.get("scores"):
        note += " The sentences are training pairs: none were held out."
    told = [e | {"picture": Markup(drawn(e))} for e in examples]
    return Section("looks", "Attention", note, part("sequences", "looks", told))


def drawn(example: dict[str, Any]) -> str:
    """The image of one alignment of ``alignments.json``."""
    return picture(example["source"], example["target"], example["weights"], "alignments.json")


TRANSLATION = Kind(
    sections=(translation_scores, learned, sentences, looks),
    source=lambda run: "source tokens [M]",
    letters=lambda run: "V words in the vocabulary, M tokens of the source and N of the target",
)
WORDS = Kind(
    sections=(masked_words, learned, sentences),
    letters=lambda run: "V words in the vocabulary, N tokens in all",
)
PATCHES = Kind(
    sections=(hidden_patches, painted, learned),
    letters=lambda run: "B images, N patches in all",
)
