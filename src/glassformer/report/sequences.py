"""Report sections for translators, masked language models and masked autoencoders."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from glassformer.explain.alignment import picture
from glassformer.report import page
from glassformer.report.images import data_uri
from glassformer.report.metrics import Table, metric_table
from glassformer.report.page import PageKind, Section, render_macro, table
from glassformer.report.run import Run
from glassformer.report.wording import plain
from glassformer.targets.target_text import TargetText


def translation_scores(run: Run) -> Section:
    splits = run.metrics.get("scores") or {}
    if not splits:
        return Section("scores", "Scores", "No pairs were held out, so these translations are not evaluated.")
    note = (
        "Corpus BLEU and chrF from 0 to 100, for greedy search and beam search. The BLEU of lower-cased, "
        "tokenized text is for comparison with papers that report it; it is not comparable with the "
        "first BLEU."
    )
    rows = [(split, name, s) for split, searches in splits.items() for name, s in searches.items()]
    values = metric_table([(split, s) for split, _, s in rows], ["n", *TargetText.metrics], 2, noun="pairs")
    pairs = zip(rows, values.rows, strict=True)
    lines = [[split, name, s["width"], *line[1:]] for (split, name, s), line in pairs]
    highlighted = [i for i, (split, *_) in enumerate(rows) if split == run.metrics.get("judged")][-1:]
    columns = ["split", "search", "width", *values.columns[1:]]
    body = table(Table(columns, lines, highlighted, ("search",)))
    for name, signature in rows[0][2]["signatures"].items():
        body += render_macro("parts", "small", f"{name.replace('_', ' ')}: {signature}")
    return Section("scores", "Scores", note, body)


def masked_words(run: Run) -> Section | None:
    note = (
        "Loss in nats per masked token, and the share of masked tokens predicted right, on validation "
        "texts with fixed masks."
    )
    return _values("Masked words", note, run.metrics.get("masked") or {})


def hidden_patches(run: Run) -> Section | None:
    note = (
        "Validation images with fixed masks. Each patch is scaled to mean 0 and variance 1, so that a "
        "uniform gray prediction has a loss of 1. Explained is 1 - loss."
    )
    scores = run.metrics.get("hidden") or {}
    values = {"loss": scores["loss"], "explained": scores["accuracy"]} if scores else {}
    return _values("Hidden patches", note, values)


def _values(title: str, note: str, values: dict[str, Any]) -> Section | None:
    rows = [[name.replace("_", " "), plain(value)] for name, value in values.items()]
    return page.tabular("scores", title, note, Table(["metric", "value"], rows, (), (), ""))


def reconstructions(run: Run) -> Section | None:
    rows = run.json("paintings.json").get("rows") or []
    note = (
        "Validation images: original, masked, and reconstructed. Mean and contrast of a masked patch are "
        "taken from the image, as in the loss; the model only predicts the pattern."
    )
    uris = [[data_uri(png, "paintings.json") for png in row] for row in rows]
    macro = "sequences.reconstructions"
    return page.listing("painted", "Reconstructions", note, macro, uris, assets=("images",))


def learning_curves(run: Run) -> Section | None:
    has_validation = any(e.get("accuracy") is not None for e in run.evaluations)
    note = describe_curves(run.metrics, run.config, has_validation, bool(run.evaluations))
    return page.learning_curves(
        run, note, "Accuracy", (page.TRAIN, page.VALIDATION) if has_validation else (page.TRAIN,)
    )


def describe_curves(
    metrics: dict[str, Any], config: dict[str, Any], has_validation: bool, has_accuracy: bool
) -> str:
    """A description of the learning curves.

    Args:
        has_validation: whether the validation loss is drawn.
        has_accuracy: whether the accuracy is drawn.
    """
    out = f"Training loss of each step with its trend{', and the validation loss' * has_validation}."
    if has_accuracy and metrics.get("masked"):
        out += " Accuracy is the share of masked tokens predicted right."
    elif has_accuracy and metrics.get("hidden"):
        out += " Accuracy is the share of the masked patches' variance that is explained."
    elif has_accuracy:
        out += " Accuracy is the share of reference tokens predicted right, given the tokens before them"
        out += "; BLEU is about whole translations." if metrics.get("scores") else "."
    terms = ["label smoothing"] * bool((config.get("train") or {}).get("label_smoothing"))
    terms += ["the next-sentence loss"] * bool((config.get("text") or {}).get("next_sentence"))
    if terms and has_validation:
        out += f" The training loss includes {' and '.join(terms)}, the validation loss does not."
    return out


def sentences(run: Run) -> Section | None:
    return page.user_inputs("sequences.sentences", run.metrics.get("sentences") or [])


def attention_maps(run: Run) -> Section | None:
    examples = run.json("alignments.json").get("examples") or []
    note = (
        "Cross-attention of the last layer, mean over the heads: one row per token of the translation, one "
        "column per token of the source. It shows where information was read, not why a word was chosen."
    )
    if not run.metrics.get("scores"):
        note += " The sentences are training pairs: none were held out."
    rows = [
        e | {"diagram": Markup(picture(e["source"], e["target"], e["weights"], "alignments.json"))}
        for e in examples
    ]
    return page.listing("looks", "Attention", note, "sequences.alignments", rows)


TRANSLATION = PageKind(
    sections=(translation_scores, learning_curves, sentences, attention_maps),
    model_input=lambda run: "source tokens [M]",
    shape_letters=lambda run: "V words in the vocabulary, M tokens of the source and N of the target",
)
WORDS = PageKind(
    sections=(masked_words, learning_curves, sentences),
    shape_letters=lambda run: "V words in the vocabulary, N tokens in all",
)
PATCHES = PageKind(
    sections=(hidden_patches, reconstructions, learning_curves),
    shape_letters=lambda run: "B images, N patches in all",
)
