"""``glassformer train``: a recipe, or a file of one's own, becomes a run folder."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.keys import recipe_keys
from glassformer.cli.output import excerpt, note, say, show_scores, show_table, show_translation_scores
from glassformer.cli.places import default_folder
from glassformer.cli.vectors import show_vectors_run
from glassformer.config import apply_overrides, build, parse_settings
from glassformer.errors import ConfigError, FewStepsWarning
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.recipe import recipe_names
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run_folder import Run

HELD_OUT = 0.1  # of a file without splits
EXAMPLES = ("sentences", "neighbours", "analogies")  # keys of a recipe that only suit its own data


def train(recipe: Any, folder: str | Path, *, resume: bool = False) -> Run:
    """Run a recipe in ``folder``, with a progress bar; one left without a run by input errors is removed.

    Raises:
        InputError: see ``run_task``.
        Interrupted: on Ctrl-C, SIGTERM or SIGHUP; the message says how to go on.
    """
    from glassformer.tasks.run import run_task
    from glassformer.train.callbacks import Interrupted, Progress

    folder = Path(folder)
    try:
        with said_plainly():
            return run_task(recipe, folder, resume=resume, say=say, callbacks=[Progress(sys.stdout)])
    except KeyboardInterrupt:
        if not (folder / "config.toml").exists():
            raise Interrupted("interrupted; nothing was begun, give the same command again") from None
        go_on = f"glassformer train --resume --out {shlex.quote(str(folder))}"
        raise Interrupted(f"interrupted; go on with: {go_on}") from None


@contextmanager
def said_plainly() -> Iterator[None]:
    """Warnings about settings are one line of their own, without a place in the source."""

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, FewStepsWarning):
            note(str(message))
        else:
            before(message, category, *place)

    with warnings.catch_warnings():
        before, warnings.showwarning = warnings.showwarning, show
        yield


def choose_recipe(
    name: str | None,
    text: str | None = None,
    *,
    images: str | None = None,
    model: str | None = None,
    data: str | None = None,
    settings: Sequence[str] = (),
    begun: Path | None = None,
    command: str = "train",
    others: str = "--text FILE or --images FOLDER",
) -> Any:
    """The recipe that the arguments of ``glassformer train`` and its kin mean.

    Args:
        name: of a recipe that ships with the package, or a TOML file.
        text, images: a file or folder of labelled texts or pictures, instead of a recipe.
        model, data: instead of the recipe's own.
        settings: ``KEY=VALUE``, laid over everything else.
        begun: a run folder whose own recipe is taken where no recipe and no data are given.
        command, others: for messages: which command this is, and what it takes instead of a recipe.

    Raises:
        ConfigError: no recipe or two of them, or an unknown key (with the nearest name).
        DataError: ``text`` cannot be read.
    """
    own = {"a recipe": name, "--text": text, "--images": images}
    given = [what for what, value in own.items() if value]
    if len(given) > 1:
        raise ConfigError(f"both {given[0]} and {given[1]} are given", where=command, fix="Give one of them")
    chosen = {"model": {"model": model}} if model else {}
    if text or images:
        if data:
            raise ConfigError(f"both {given[0]} and --data are given", where=command, fix="Give one of them")
        return text_recipe(text, settings, chosen) if text else image_recipe(images or "", settings, chosen)
    if name is None:
        if begun is None or not (begun / "config.toml").is_file():
            fix = f"Name one of {', '.join(recipe_names())}, or give {others}"
            raise ConfigError("no recipe is given", where=command, fix=fix)
        name = str(begun / "config.toml")
    from glassformer.tasks.catalog import load_recipe

    recipe = load_recipe(name, settings)
    if model and not hasattr(recipe, "model"):
        raise ConfigError(f"a recipe of {recipe.task} has no model", where="--model", fix="Leave it out")
    if model:
        recipe = replace(recipe, model=replace(recipe.model, model=model))
    if data and _whole_path(data) != _whole_path(recipe.data.source):
        recipe = on_other_data(recipe, _whole_path(data), name in recipe_names(), settings)
    return recipe


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


def text_recipe(source: str, settings: Sequence[str] = (), chosen: dict[str, Any] | None = None) -> Recipe:
    """A recipe around labelled texts of one's own; rate, epochs and batches are left for the fit to choose.

    A tenth each is held out for validation and for the figures where the source has no such split.

    Args:
        source: a table, a folder of tables or of texts, or a named data set.
        settings: ``KEY=VALUE``, laid over the rest.
        chosen: section -> key -> value, laid over the defaults.

    Raises:
        DataError: the texts cannot be read.
        ConfigError: an unknown key or a value of the wrong type.
    """
    from glassformer.data.sources import load_text_dataset

    where = _whole_path(source)
    values: dict[str, Any] = {"name": Path(where).stem, "summary": f"a classifier of {Path(where).name}"}
    values |= {"data": {"source": where}} | (chosen or {})
    asked = build(Recipe, apply_overrides(values, settings, Recipe), "train")
    d = asked.data
    dataset = load_text_dataset(
        d.source,
        text_column=d.text_column,
        label_column=d.label_column,
        limit=d.limit,
        seed=d.split_seed,
        need_labels=True,
        on_bad_row=d.on_bad_row,
    )
    labels = dataset.splits["train"].labels if "train" in dataset.splits else None
    texts = len(labels or ())
    smallest = len(set(labels or ()))  # every class needs a place
    held = HELD_OUT if round(HELD_OUT * texts) >= smallest else smallest
    for split in ("validation", "test"):
        if split not in dataset.splits:
            values["data"][f"{split}_size"] = held
    return build(Recipe, apply_overrides(values, settings, Recipe), "train")


def image_recipe(
    source: str, settings: Sequence[str] = (), chosen: dict[str, Any] | None = None
) -> ImageRecipe:
    """A recipe around labelled pictures of one's own; see ``text_recipe``."""
    from glassformer.data.image_sources import load_image_dataset
    from glassformer.tasks.image_classification.build import is_image_architecture

    where = _whole_path(source)
    values: dict[str, Any] = {"name": Path(where).stem, "summary": f"a classifier of {Path(where).name}"}
    values |= {"task": ImageRecipe.task, "data": {"source": where}} | (chosen or {})
    asked = build(ImageRecipe, apply_overrides(values, settings, ImageRecipe), "train")
    d = asked.data
    dataset = load_image_dataset(
        d.source, image_column=d.image_column, label_column=d.label_column, limit=d.limit, seed=d.split_seed
    )
    labels = dataset.splits["train"].labels if "train" in dataset.splits else None
    pictures, classes = len(labels or ()), len(set(labels or ()))
    held = HELD_OUT if round(HELD_OUT * pictures) >= classes else classes
    for split in ("validation", "test"):
        if split not in dataset.splits:
            values["data"][f"{split}_size"] = held
    if is_image_architecture(asked.model.model):
        values["train"] = {"weight_decay": 0.05, "schedule": "cosine"}
        values["image"] = {"augment": "shift" if (asked.image.image_size or 32) <= 64 else "light"}
    else:
        values["image"] = {"augment": "light"}
    return build(ImageRecipe, apply_overrides(values, settings, ImageRecipe), "train")


def _whole_path(source: str) -> str:
    """An existing path from the root, so that the run can be judged again from any folder."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source


def show_run(run: Run, recipe: Any) -> None:
    """A finished run on the terminal: its figures, by what they are of, and where it lies."""
    show = {"baselines": show_labels_run, "tests": show_vectors_run}
    next((show[key] for key in show if key in run.metrics), show_sequence_run)(run, recipe)
    say(f"model: {run.folder / 'model'}")
    say(f"report: {run.report}")


def show_labels_run(run: Run, recipe: Any) -> None:
    """A finished classifier on the terminal: scores beside the baselines, cut texts, own sentences."""
    from glassformer.evaluate.metrics import MEASURES
    from glassformer.tasks.catalog import TASKS

    metrics, noun = run.metrics, TASKS[recipe.task].estimator.NOUN
    measure = metrics.get("measure", "accuracy")
    scores, seconds = metrics["test"] or metrics["validation"], metrics["seconds"]
    judged = metrics["judged"] if metrics["test"] else "validation"
    if scores is not None:
        rows = [(recipe.model.model, scores, seconds["train"])]
        rows += [(name, b, b.get("seconds")) for name, b in metrics["baselines"].items()]
        say()
        title = f"{recipe.name}: {scores['n']:,} {judged} {noun}, {seconds['total']:.0f} s in all"
        show_scores(title, rows, measure)
        if any(b.get("class_weight") is not None for b in metrics["baselines"].values()):
            say("the simple models were trained with the same class weights")
    if metrics["test"] and judged != "validation" and metrics["validation"]:
        say(f"validation {MEASURES[measure]}: {metrics['validation'][measure]:.2%}")
    for split, (cut, total) in metrics.get("truncated", {}).items():
        if cut:
            length = recipe.text.max_length
            say(f"{cut:,} of {total:,} {split} texts are longer than {length} tokens and were cut there")
    for kind, rows in metrics.get("robustness", {}).items():
        say(
            f"{kind}: accuracy {', '.join(format(row['accuracy'], '.1%') for row in rows)} at severity 1 to 5"
            + (f" ({rows[0]['n']:,} pictures)" if rows and "n" in rows[0] else "")
        )
    if metrics.get("sentences"):
        rows = [[excerpt(s["text"]), s["label"], f"{s['probability']:.1%}"] for s in metrics["sentences"]]
        show_table("own sentences", ("text", "label", "probability"), rows, right=["probability"])


def show_sequence_run(run: Run, recipe: Any) -> None:
    """A finished translator or masked language model on the terminal."""
    metrics = run.metrics
    seconds = metrics["seconds"]["total"]
    if metrics.get("scores"):
        show_translation_scores(f"{recipe.name}: {seconds:.0f} s in all", metrics["scores"])
    if metrics.get("masked"):
        rows = [[name.replace("_", " "), f"{value:.4f}"] for name, value in metrics["masked"].items()]
        show_table(
            f"{recipe.name}: {seconds:.0f} s in all", ("masked words", "value"), rows, right=("value",)
        )
    for sentence in metrics.get("sentences") or []:
        say(
            f"{sentence['text']} → {sentence['translation']}"
            if "translation" in sentence
            else sentence["text"]
        )
        for words in sentence.get("fills") or []:
            say("  " + ", ".join(f"{w['token']} {w['probability']:.1%}" for w in words))


def _show_keys(wanted: bool) -> None:
    if not wanted:
        return
    from glassformer.tasks.catalog import TASKS

    for task in TASKS:
        sections: dict[str, list[tuple[str, str, str]]] = {}
        for key in recipe_keys(task):
            sections.setdefault(key.section, []).append((key.name, key.default, key.meaning))
        say(f"{task}:")
        for section, rows in sections.items():
            show_table(f"[{section}]" if section else "at the top", ("key", "default", "meaning"), rows)
    say("--set KEY=none empties a key whose default is none.")
    raise typer.Exit


def train_command(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help=f"A TOML file or one of: {', '.join(recipe_names())}."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Labelled texts instead of a recipe: CSV, TSV, JSONL, Parquet or a folder."
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Labelled pictures instead of a recipe: a folder or a table."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Weights or architecture instead of the recipe's.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change any key of the recipe; may be repeated."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="A named data set or path instead of the recipe's.")
    ] = None,
    on_bad_row: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|skip", help="Texts: skip lists rows that cannot be used in rejected.jsonl."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder.", show_default="runs/NAME")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was begun there, to the same bits.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="On a GPU too: the same bits each time, if slower.")
    ] = False,
    help_keys: Annotated[
        bool,
        typer.Option(
            "--help-keys", callback=_show_keys, is_eager=True, help="List what --set can change, and leave."
        ),
    ] = False,
) -> None:
    """Train, judge and report, as a recipe says or on texts or pictures of your own."""
    if deterministic:
        from glassformer.runtime import be_deterministic

        be_deterministic()
    if on_bad_row and images:
        raise ConfigError(
            "pictures have no rows to refuse", where="--on-bad-row", fix="Use --set broken=skip for pictures"
        )
    begun = out if resume else None
    settings = [*(settings or ()), *([f"on_bad_row={on_bad_row}"] if on_bad_row else ())]
    chosen = choose_recipe(
        recipe, text, images=images, model=model, data=data, settings=settings, begun=begun
    )
    folder = out or default_folder(chosen.name)
    from glassformer.tasks.run_folder import Helped
    from glassformer.train.distributed import world

    if (text or images) and chosen.data.test_size and world()[0] == 0:
        noun = "texts" if text else "pictures"
        say(f"no test split: a part of the {noun} is held out for the figures")
    try:
        run = train(chosen, folder, resume=resume)
    except Helped:
        return
    show_run(run, chosen)
