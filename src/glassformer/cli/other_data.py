"""A recipe on other data than its own: what of it does not suit these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli.output import note
from glassformer.config import parse_settings, read_toml
from glassformer.data.dataset import SPLIT_OF
from glassformer.errors import DataError


def tell_siblings(source: str) -> None:
    """Say that files of other splits stand beside the one that is given alone."""
    path = Path(source)
    if SPLIT_OF.get(path.stem.lower()) != "train" or not path.is_file():
        return
    files = [p for p in sorted(path.parent.iterdir()) if p.suffix == path.suffix]
    beside = [p.name for p in files if SPLIT_OF.get(p.stem.lower()) in ("validation", "test")]
    if beside:
        note(f"{', '.join(beside)} beside {path.name}: to use them, give the folder: {path.parent}")


def without_pairs(recipe: Any, settings: Sequence[str], begun: Path | None) -> Any:
    """A recipe that learns whether segments follow each other does not where texts have one sentence; a run
    that has begun goes on as it is, and what ``settings`` ask for holds."""
    asked = {key.rsplit(".", 1)[-1] for key in parse_settings(settings)}
    if not getattr(getattr(recipe, "text", None), "next_sentence", False) or "next_sentence" in asked:
        return recipe
    if begun is not None and (begun / "config.toml").is_file():
        return (
            recipe
            if read_toml(begun / "config.toml").get("text", {}).get("next_sentence")
            else _alone(recipe)
        )
    from glassformer.data.encodings import reading
    from glassformer.data.masking import PAIRED, share_of_several
    from glassformer.data.sources import load_text_dataset

    try:
        with reading(recipe.data.encoding):
            dataset = load_text_dataset(recipe.data.source, text_column=recipe.data.text_column)
    except DataError:  # said where they are trained on
        return recipe
    texts = next(iter(dataset.splits.values())).texts
    if share_of_several(texts) >= PAIRED:
        return recipe
    note(
        "most texts have one sentence: next_sentence=false (--set next_sentence=true for pairs all the same)"
    )
    return _alone(recipe)


def _alone(recipe: Any) -> Any:
    return replace(recipe, text=replace(recipe.text, next_sentence=False))
