"""``glassformer data show`` of sentences whose words have tags."""

from __future__ import annotations

from typing import Any

from glassformer.cli.output import excerpt, say, say_json, show_table

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
