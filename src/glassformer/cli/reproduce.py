"""``glassformer reproduce``: the published systems, the recipes that stand for them, and what they reach."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.output import say, show_table
from glassformer.errors import ConfigError
from glassformer.recipe import load_recipe, recipe_names

RUNS = Path("runs")


@dataclass(frozen=True)
class Row:
    """One published system. The first recipe is as published, the others are ours for the same model."""

    number: int
    system: str
    data: str
    published: str
    recipes: tuple[str, ...] = ()  # names; those that are not there yet are left out


ROWS = (
    Row(1, "BERT fine-tuning for sentiment", "IMDb", "test accuracy 0.8941", ("imdb-bert", "imdb-minilm")),
    Row(2, "ViT fine-tuning", "CIFAR-10 at 224 px", "0.9740, 0.9780, 0.9796 after each epoch",
        ("cifar10-vit-base", "cifar10-vit", "cifar10-vit-stem")),
    Row(3, "text classification table", "NTC-SCV", "encoder 82.55, BERT 85.52, RNN 80.92, TextCNN 88.78",
        ("ntc-encoder", "ntc-lstm", "ntc-textcnn")),
    Row(4, "BERT pre-training", "any text", "the objective itself",
        ("imdb-mlm", "imdb-mlm-minilm", "europe-mlm")),
    Row(5, "ViT from scratch and pre-trained", "Flowers", "none", ("flowers-vit", "flowers-best")),
    Row(6, "sequence to sequence", "Multi30k", "none; the literature 35 to 38 BLEU",
        ("multi30k-transformer", "multi30k-rnn", "multi30k-rnn-dot", "multi30k-rnn-multiplicative",
         "multi30k-rnn-additive")),
    Row(7, "Word2Vec", "countries and capitals", "analogies and neighbours",
        ("countries-word2vec", "countries-word2vec-adam")),
    Row(8, "mini-Transformer classifier", "countries and capitals", "curves and maps",
        ("europe-frozen", "europe-trained", "europe-frozen-learned", "europe")),
    Row(9, "ViT head study", "Hotdog", "curves, confusion matrix, macro-F1", ("hotdog-head",)),
    Row(10, "augmentation ladder", "Hotdog", "accuracy, macro-F1, seconds an epoch, robustness",
        ("hotdog-baseline", "hotdog-light", "hotdog-medium", "hotdog-strong", "hotdog-mix")),
    Row(11, "explaining a ViT", "Hotdog", "figures"),
    Row(12, "encoder from scratch, small", "IMDb", "left blank", ("imdb-encoder-small", "imdb-encoder-small-best")),
    Row(13, "encoder from scratch, base width", "IMDb, 15k/10k", "62.38 %; pre-trained 82.66 %",
        ("imdb-encoder-base", "imdb-encoder-base-best")),
)  # fmt: skip


def find_row(text: str) -> Row:
    """The row of that number.

    Raises:
        ConfigError: there is none, or no recipe for it yet.
    """
    row = next((row for row in ROWS if str(row.number) == text.strip()), None)
    if row is None:
        raise ConfigError(
            f"no row {text!r}", where="reproduce", fix=f"Rows are 1 to {len(ROWS)}: see --table"
        )
    if not recipes_of(row):
        raise ConfigError(
            f"row {row.number} ({row.system}) has no recipe yet", where="reproduce", fix="See --table"
        )
    return row


def recipes_of(row: Row) -> list[str]:
    """The row's recipes that this version has."""
    return [name for name in row.recipes if name in recipe_names()]


def show_rows() -> None:
    """Every row with its published result and what our recipes reach."""
    lines = []
    for row in ROWS:
        names = recipes_of(row) or [""]
        for i, name in enumerate(names):
            known = load_recipe(name).expect if name else "no recipe yet"
            lines.append(
                [row.number, row.system, row.data, row.published, name, known]
                if i == 0
                else ["", "", "", "", name, known]
            )
    show_table("published systems", ("row", "system", "data", "published", "recipe", "expect"), lines)


def reproduce_command(
    row: Annotated[
        str | None, typer.Argument(metavar="ROW", help="The number of a published system.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="List all rows, published results and ours; run nothing.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change any key of the recipe; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The run folder; what was begun there goes on.", show_default="runs/NAME"
        ),
    ] = None,
) -> None:
    """Run the recipe that stands for a published system, and put its result beside the published one."""
    if table or row is None:
        if row is not None or settings or out:
            raise ConfigError("--table runs nothing", where="reproduce", fix="Give a ROW, or --table alone")
        show_rows()
        return
    from glassformer.study.tasks import run_task
    from glassformer.train.callbacks import Progress

    chosen = find_row(row)
    name = recipes_of(chosen)[0]
    recipe = load_recipe(name, settings or ())
    folder = out or RUNS / name
    begun = (folder / "config.toml").is_file()
    run = run_task(recipe, folder, resume=begun, say=say, callbacks=[Progress(sys.stdout)])
    scores = run.metrics.get("test") or run.metrics.get("validation") or {}
    found = (
        f"{run.metrics.get('judged')} accuracy {scores['accuracy']:.2%}"
        if "accuracy" in scores
        else "see the report"
    )
    say(f"row {chosen.number}, {chosen.system} on {chosen.data}")
    say(f"published: {chosen.published}")
    say(f"here: {found}" + (", with settings of your own" if settings else ""))
    say(f"report: {run.report}")
