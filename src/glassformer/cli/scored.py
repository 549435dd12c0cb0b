"""What ``glassformer data show`` says of pairs of texts and their scores."""

from __future__ import annotations

from glassformer.cli.output import excerpt, say, say_json, show_table

SHOWN = 3  # pairs


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
    known = {"name": dataset.name, "description": dataset.description, "licence": dataset.licence}
    if json:
        say_json(known | {"columns": list(dataset.columns), "splits": splits})
        return
    for line in (dataset.description, dataset.licence and f"licence: {dataset.licence}"):
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
