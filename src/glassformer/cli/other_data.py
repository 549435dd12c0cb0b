"""A recipe on other data than its own: what of it does not suit these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli.output import note
from glassformer.cli.own_data import HELD_OUT, is_set
from glassformer.config import parse_settings, read_toml
from glassformer.data.dataset import SPLIT_OF
from glassformer.data.shards import split_files, tables_in
from glassformer.errors import DataError

FEWEST = 3  # distinct sentences or texts: one each for training, validation and test
EXAMPLES = ("sentences", "questions", "neighbours", "analogies")  # that only suit a recipe's own data


def tell_siblings(source: str) -> None:
    """Say that files of other splits stand beside the one that is given alone, and which tables of a folder
    are of no split."""
    path = Path(source)
    if path.is_dir() and (used := {file for files in split_files(path).values() for file in files}):
        if others := [p.name for p in tables_in(path) if p not in used]:
            what = f"{', '.join(others)} in {path}: not read"
            note(f"{what}; tables of a folder are called train, validation (dev) or test")
        return
    if SPLIT_OF.get(path.stem.lower()) != "train" or not path.is_file():
        return
    files = [p for p in sorted(path.parent.iterdir()) if p.suffix == path.suffix]
    beside = [p.name for p in files if SPLIT_OF.get(p.stem.lower()) in ("validation", "test")]
    if beside:
        note(f"{', '.join(beside)} beside {path.name}: to use them, give the folder: {path.parent}")


def with_held_out(recipe: Any, settings: Sequence[str], begun: Path | None) -> Any:
    """A recipe of tags or of answers that holds out a tenth for each split that the data lack, as tables do.

    Copies of a sentence and the questions on one text stay on one side; sizes that are asked for hold. Of
    fewer than ten distinct ones a split gets one; of fewer than three nothing is held out.
    """
    sizes = [f"{split}_size" for split in ("validation", "test")]
    open_ = [key for key in sizes if not is_set(key, settings) and getattr(recipe.data, key, 0) is None]
    if _held_apart(recipe) is None or not open_:
        return recipe
    if begun is not None and (begun / "config.toml").is_file():  # goes on as it began
        data = read_toml(begun / "config.toml").get("data", {})
        return replace(recipe, data=replace(recipe.data, **{key: data.get(key) for key in open_}))
    from glassformer.data.copies import alike
    from glassformer.data.files import reading_as

    try:
        with reading_as(recipe.data):
            splits = _dataset(recipe).splits
    except DataError:  # said where they are trained on
        return recipe
    count = len({alike(text) for text in set(splits["train"].texts)}) if "train" in splits else 0
    if count < FEWEST:
        return recipe
    held = HELD_OUT if HELD_OUT * count >= 1 else 1
    sizes_of = {key: held for key in open_ if key.removesuffix("_size") not in splits}
    return replace(recipe, data=replace(recipe.data, **sizes_of))


def _held_apart(recipe: Any) -> str | None:
    """What is held out where examples are words or questions; None: the task has its own way."""
    from glassformer.tasks.catalog import TASKS

    task = TASKS[recipe.task]
    return "sentences" if task.each_word else "questions, by their texts" if task.each_answer else None


def _dataset(recipe: Any) -> Any:
    from glassformer.data.answered import load_answered
    from glassformer.data.tagged import load_tagged
    from glassformer.tasks.catalog import TASKS

    d = recipe.data
    common = {"limit": d.limit, "seed": d.split_seed, "on_bad_row": d.on_bad_row}
    if TASKS[recipe.task].each_word:
        return load_tagged(d.source, words_column=d.words_column, tags_column=d.tags_column, **common)
    columns = {key: getattr(d, key) for key in ("question_column", "context_column", "answer_column")}
    return load_answered(d.source, **columns, **common)


def held_out_line(recipe: Any) -> str | None:
    """What is held out of words with tags or questions of one's own; None: nothing."""
    noun, sizes = _held_apart(recipe), []
    for split in ("validation", "test"):
        size = getattr(recipe.data, f"{split}_size", None)
        sizes += [f"{size:.0%} for {split}" if size < 1 else f"{size:g} for {split}"] if size else []
    if noun is None or not sizes:
        return None
    return f"held out of the {noun}: {' and '.join(sizes)} (--set validation_size=..., test_size=...)"


def without_pairs(recipe: Any, settings: Sequence[str], begun: Path | None) -> Any:
    """A recipe that learns whether segments follow each other does not where texts have one sentence; a run
    that has begun goes on as it is, and what ``settings`` ask for holds."""
    asked = is_set("next_sentence", settings)
    if asked or not getattr(getattr(recipe, "text", None), "next_sentence", False):
        return recipe
    if begun is not None and (begun / "config.toml").is_file():
        return (
            recipe
            if read_toml(begun / "config.toml").get("text", {}).get("next_sentence")
            else _alone(recipe)
        )
    from glassformer.data.files import reading_as
    from glassformer.data.masking import PAIRED, share_of_several
    from glassformer.data.sources import load_text_dataset

    try:
        with reading_as(recipe.data):
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


def on_other_data(recipe: Any, source: str, shipped: bool, settings: Sequence[str] = ()) -> Any:
    """A recipe on other data than its own: nothing in it speaks of those, but what ``settings`` ask for.

    Args:
        source: a named data set, or a path from the root.
        shipped: the recipe came with the package, its examples (sentences, words with neighbors) too.
    """
    asked = {key.rsplit(".", 1)[-1] for key in parse_settings(settings)}
    said = {"summary": f"as {recipe.name}, on {Path(source).name}", "expect": ""}
    changes: dict[str, Any] = {key: text for key, text in said.items() if key not in asked}
    for section in ("evaluate", "judge") if shipped else ():
        config: Any = getattr(recipe, section, None)
        examples = {k: () for k in EXAMPLES if hasattr(config, k) and k not in asked}
        if hasattr(config, "tests") and "tests" not in asked:  # the analogies of a corpus go with it
            examples["tests"] = tuple(test for test in config.tests if test != recipe.data.source)
        changes |= {section: replace(config, **examples)} if examples else {}
    data = replace(recipe.data, source=source)
    if hasattr(data, "source_column"):
        from glassformer.data.files import reading_as

        with reading_as(data):
            data = _other_columns(data, asked)
    return replace(recipe, data=data, **changes)


def _other_columns(data: Any, asked: set[str]) -> Any:
    """Pairs under other names than the recipe's: the run's config gets the names found, for later verbs."""
    from glassformer.data.pairs import fitting_columns

    keys = ("source_column", "target_column")
    found = fitting_columns(
        data.source,
        (data.source_column, data.target_column),
        [getattr(data, key) for key in keys if key in asked],
    )
    return replace(data, **dict(zip(keys, found, strict=True)))
