"""``data doctor --set KEY=VALUE``: a data set as a recipe with these settings reads it, examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli.given import column_settings
from glassformer.cli.own_data import is_set
from glassformer.data.findings import DoctorReport
from glassformer.errors import ConfigError

COLUMNS = ("text_column", "pair_column", "label_column", "label_separator")


def read_as(
    source: str,
    kind: str,
    settings: Sequence[str],
    columns: Sequence[str | None],
    model: str | None,
    max_length: int | None,
) -> tuple[DoctorReport, Any, str]:
    """Every check of the data doctor on the data as a recipe has them, these data, and what they are read as.

    Args:
        kind: what the data are, as ``kind_of`` of ``data/kinds.py`` says it.
        settings: ``KEY=VALUE`` of a recipe; rows that cannot be used are left out unless they say otherwise,
            and nothing is held out unless they say so.
        columns: what ``COLUMNS`` are called; None or ``auto``: they are found.
        model: whose tokenizer looks at texts, where no setting names one; None: tokens are not looked at.
        max_length: at which texts are cut, where no setting says it.

    Raises:
        ConfigError: an unknown key, or data that are not texts, images or words with labels, numbers or tags.
        DataError: data that cannot be read so.
    """
    from glassformer.cli.ahead import asked_of
    from glassformer.data.copies import groups_of
    from glassformer.tasks.catalog import TASKS
    from glassformer.tasks.image_classification.recipe import ImageRecipe
    from glassformer.tasks.number_runs import findings, without_labels
    from glassformer.tasks.text_classification.recipe import Recipe

    if kind in ("pairs", "scored pairs") and is_set("target", settings):
        kind = "texts"  # whose numbers are learned from both texts of a row
    if kind == "tags":
        return (*_of_tags(source, settings, columns[2]), kind)
    if kind not in ("texts", "pictures"):
        what = f"belongs to texts, images and tagged words, and these are {kind}"
        raise ConfigError(what, where="--set", fix="Leave it out")
    pictures = kind == "pictures"
    named = column_settings(**dict(zip(COLUMNS, (None if c == "auto" else c for c in columns), strict=True)))
    usual = ["broken=skip" if pictures else "on_bad_row=skip", *named]
    path = Path(source).expanduser()
    where = str(path.resolve()) if path.exists() else source
    chosen = {"model": {"model": model}} if model else None
    recipe = asked_of(ImageRecipe if pictures else Recipe, where, [*usual, *settings], chosen)
    splits = TASKS[recipe.task].load(recipe)
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    used = replace(splits.dataset, splits={name: part for name, part in parts.items() if part is not None})
    numbers = hasattr(recipe.train, "number_scale")
    shown = without_labels(used, splits) if numbers else used
    if pictures:
        report = _of_pictures(recipe, shown)
    else:
        model = recipe.model.model if is_set("model", settings) else model
        max_length = recipe.text.max_length if is_set("max_length", settings) else max_length
        report = _of_texts(recipe, shown, model, max_length)
    if numbers:
        own = findings(splits, groups_of, recipe.train.number_scale)
        report = replace(report, findings=[*report.findings, *own])
    return report, used, kind


def _of_tags(source: str, settings: Sequence[str], tags_column: str | None) -> tuple[DoctorReport, Any]:
    from glassformer.config import apply_overrides, build
    from glassformer.data.tag_doctor import examine_tagged
    from glassformer.data.tagged import load_tagged
    from glassformer.tasks.token_tagging.recipe import TaggingRecipe
    from glassformer.tasks.token_tagging.run import split_up

    data = {"source": source, "on_bad_row": "skip"} | ({"tags_column": tags_column} if tags_column else {})
    recipe = build(TaggingRecipe, apply_overrides({"data": data}, settings, TaggingRecipe), "--set")
    d = recipe.data
    columns = {"words_column": d.words_column, "tags_column": d.tags_column}
    dataset = load_tagged(source, **columns, limit=d.limit, seed=d.split_seed, on_bad_row=d.on_bad_row)
    if "train" in dataset.splits:
        splits = split_up(dataset, d, recipe.evaluate.split)
        parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
        dataset = replace(dataset, splits={name: part for name, part in parts.items() if part is not None})
    return examine_tagged(dataset, recipe.text.scheme), dataset


def _of_texts(recipe: Any, dataset: Any, model: str | None, max_length: int | None) -> DoctorReport:
    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.data.doctor import examine
    from glassformer.data.tokenizer_file import load_tokenizer
    from glassformer.tasks.build import is_from_scratch

    tokenizer = None
    if model is not None and not is_from_scratch(model):
        tokenizer = load_tokenizer(resolve_checkpoint(model).path)
    held = recipe.data.validation_size is not None or recipe.data.test_size is not None
    return examine(
        dataset,
        tokenizer=tokenizer,
        max_length=max_length,
        clean=recipe.text.clean,
        held_out=recipe.data.hold_out if held else None,
    )


def _of_pictures(recipe: Any, dataset: Any) -> DoctorReport:
    from glassformer.data.doctor_checks import bad_rows
    from glassformer.data.image_doctor import examine_pictures
    from glassformer.tasks.image_classification.build import build_transform

    transform = build_transform(recipe.image, recipe.model)
    report = examine_pictures(dataset.name, dataset.splits, dataset.notes, transform=transform, decode=True)
    return replace(report, findings=[*bad_rows(dataset.rejected), *report.findings])
