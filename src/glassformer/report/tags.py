"""The sections of a tagger's page: errors by kind, and sentences with their spans in color."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glassformer.report import page
from glassformer.report.metrics import Table
from glassformer.report.page import MAX_ROWS, Kind, Section, folds, own_inputs, part, scores_section, table
from glassformer.report.run import Run
from glassformer.report.wording import count, decimal, percent
from glassformer.targets.token_tags import ERRORS

HUES, LINES = 8, 4  # colors of kinds and styles of the line below: kinds beyond 32 look like earlier ones
SHOWN = ("precision", "recall", "entity_f1", "macro_f1", "accuracy", "entity_f1_interval")


def verdict(run: Run) -> str:
    s = run.scores
    if not s:
        return ""
    if not s["entities"]:
        return (
            f"The {s['n']:,} {run.judged} sentences have no spans, so there is no F1; "
            f"{s['errors']['invented']:,} spans were predicted. {percent(s['accuracy'])} of the words have "
            "the right tag."
        )
    return (
        f"Of {s['entities']:,} spans in {s['n']:,} {run.judged} sentences, {percent(s['recall'])} are "
        f"found; of the predicted spans, {percent(s['precision'])} are right. Entity F1 "
        f"{percent(s['entity_f1'])}."
    )


def scores(run: Run) -> Section | None:
    note = (
        "A span counts where its kind, its first and its last word are right, as seqeval counts it. The "
        "interval is of 95 %, from resampled sentences."
    )
    below, repaired = "", run.metrics.get("repaired")
    if repaired:
        below = f"{repaired:,} tags of training were malformed and were read as the spans that they mean."
    return scores_section(run, note, SHOWN, below=part("parts", "small", below)) if run.scores else None


def kinds(run: Run) -> Section | None:
    """How well each kind is found, and its errors."""
    found = run.scores
    if not found:
        return None
    note = (
        "How well each kind is found, and what goes wrong: missed (nothing overlaps it), wrong kind, "
        "wrong border (the kind is right), invented (no span is there)."
    )
    rows = [{"kind": kind, **own} for kind, own in (found.get("by_kind") or {}).items()]
    body = part("tags", "kinds", found, rows, ERRORS, hues(run))
    if confused := found.get("confusions"):
        words = [[wanted, guess, count(n)] for wanted, guess, n in confused]
        body += part("parts", "heading", "Most frequent confusions")
        body += table(Table(["true", "predicted", "spans"], words, ours=(), words=("predicted",), style=""))
    return Section("kinds", "Metrics per entity type", note, body, ("spans.css", "sort.js"))


def calibration(run: Run) -> Section | None:
    found = run.calibration
    if not found.get("splits"):
        return None
    note = (
        "The expected calibration error over words: how far the stated probability is from the share of "
        "words that are right. One temperature divides all logits; no tag changes. The interval is of 95 "
        "%, from resampled sentences."
    )
    after = f"after, temperature {found['temperature']:.3f}"
    rows = []
    for name, split in found["splits"].items():
        for side, called in (("before", "before"), ("after", after)):
            own = split[side]
            low, high = map(percent, own["ece_interval"])
            rows.append([name, called, percent(own["ece"]), f"{low} to {high}", decimal(own["log_loss"], 4)])
    heads = ["words of", "", "error", "interval", "log loss"]
    return Section("calibration", "Calibration", note, table(Table(heads, rows, (), ("",), "")))


def sentences(run: Run) -> Section | None:
    given = run.metrics.get("sentences") or []
    if not given:
        return None
    looks = hues(run)
    told = [s | {"parts": parts(s, looks)} for s in given[:MAX_ROWS]]
    return own_inputs(part("tags", "sentences", told, looks), "sentences", "spans.css")


def spans(run: Run) -> Section | None:
    """Judged sentences with true and predicted spans."""
    examples = run.json("spans.json").get("examples")
    if not examples:
        return None
    looks = hues(run)
    note = (
        "Evaluated sentences, most confident errors first. Filled: found. Not filled: missed. "
        "Framed: wrong, or no span there."
    )
    told = [e | {"pieces": pieces(e, looks)} for e in examples]
    return Section("spans", "Sentences", note, part("tags", "spans", told, looks), ("spans.css",))


def learned(run: Run) -> Section | None:
    more = ", on training and validation data." if run.evaluations else "."
    note = "Training loss of each step with its trend, in nats a word, and the share of words that have the "
    return page.learned(run, f"{note}right tag{more}", "Words right")


def hues(run: Run) -> dict[str, str]:
    """The looks of every kind that the page names."""
    examples = run.json("spans.json").get("examples") or ()
    return looks_of(
        [
            *(run.scores.get("by_kind") or ()),
            *(span[0] for e in examples for span in (*e["true"], *e["predicted"])),
            *(span["kind"] for s in run.metrics.get("sentences") or [] for span in s["spans"]),
        ]
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


PAGE = Kind(
    sections=(scores, kinds, folds, calibration, sentences, spans, learned),
    verdict=verdict,
    about=lambda run: {"tags": run.metrics.get("scheme")},
    letters=lambda run: "N tokens in all, of which each word's first is answered",
)
