"""``glassformer data show`` of tagged sentences and of scored pairs."""

from __future__ import annotations

from typing import Any

from glassformer.cli.output import excerpt, say, say_json, show_table

# --- tagged sentences -----------------------------------------------------------------------------


SHOWN = 3  # spans of each kind


def left_out(dataset: Any) -> list[str]:
    """That rows cannot be used and are not shown, in a line; none where all can."""
    if not (rejected := getattr(dataset, "rejected", ())):
        return []
    from glassformer.data.rejected import summary

    return [f"{summary(rejected, listed=False)}. All of them: glassformer data doctor"]


def show_tags(name: str, tags_column: str | None, json: bool) -> None:
    """Sizes, spans by kind and first spans of a data set."""
    from glassformer.data.tag_doctor import examine_tagged
    from glassformer.data.tagged import load_tagged
    from glassformer.data.tags import spans_of

    dataset = load_tagged(name, tags_column=tags_column, on_bad_row="skip")
    figures = examine_tagged(dataset).figures
    known = {"name": dataset.name, "description": dataset.description, "licence": dataset.licence}
    if json:
        say_json({**known, "notes": [*dataset.notes, *left_out(dataset)], **figures})
        return
    for line in (
        dataset.description,
        dataset.licence and f"licence: {dataset.licence}",
        *dataset.notes,
        *left_out(dataset),
    ):
        if line:
            say(line)
    rows = [
        [split, f"{s['rows']:,}", f"{s['words']:,}", ", ".join(f"{k}: {n:,}" for k, n in s["spans"].items())]
        for split, s in figures["splits"].items()
    ]
    show_table(dataset.name, ("split", "sentences", "words", "spans"), rows, right=["sentences", "words"])
    split, first = next(iter(dataset.splits.items()))
    examples: dict[str, list[str]] = {}
    for words, tags in zip(first.words, first.tags or (), strict=True):
        for kind, start, end in spans_of(tags, figures["scheme"]):
            if len(shown := examples.setdefault(kind, [])) < SHOWN:
                shown.append(" ".join(words[start:end]))
    listed = [[kind, excerpt(text)] for kind, texts in sorted(examples.items()) for text in texts]
    show_table(f"first spans of {split}", ("kind", "span"), listed)


# --- scored pairs ---------------------------------------------------------------------------------


def show_scored(name: str, json: bool) -> None:
    """Sizes, the range of the scores and the first pairs of a data set.

    Raises:
        DataError: it cannot be read.
    """
    from glassformer.data.scored_pairs import load_scored_pairs

    dataset = load_scored_pairs(name, on_bad_row="skip")
    splits = {
        split: {
            "pairs": len(s),
            "lowest": min(s.scores) if s.scores else None,
            "highest": max(s.scores) if s.scores else None,
            "origin": s.origin,
            "examples": list(zip(s.first, s.second, s.scores or [None] * len(s), strict=True))[:SHOWN],
        }
        for split, s in dataset.splits.items()
    }
    known: dict[str, Any] = {
        "name": dataset.name,
        "description": dataset.description,
        "licence": dataset.licence,
    }
    if json:
        known["notes"] = left_out(dataset)
        say_json(known | {"columns": list(dataset.columns), "splits": splits})
        return
    for line in (dataset.description, dataset.licence and f"licence: {dataset.licence}", *left_out(dataset)):
        if line:
            say(line)
    rows = []
    for split, s in splits.items():
        scores = "none" if s["lowest"] is None else f"{s['lowest']:g} to {s['highest']:g}"
        rows.append([split, f"{s['pairs']:,}", scores, s["origin"]])
    show_table(dataset.name, ("split", "pairs", "scores", "from"), rows, right=["pairs"])
    split, first = next(iter(splits.items()))
    examples = [
        [excerpt(a), excerpt(b), "" if score is None else f"{score:g}"] for a, b, score in first["examples"]
    ]
    show_table(f"first pairs of {split}", (*dataset.columns[:2], dataset.columns[2] or ""), examples)
