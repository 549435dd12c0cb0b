"""Choice of the recipe that a command trains.

It is a shipped recipe, a TOML file, or a new recipe for the user's data.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from glassformer import errors
from glassformer.checkpoints.catalog import AUTO, CATALOG, catalog_names
from glassformer.cli.options import guess_data_option, is_run, no_run_error
from glassformer.cli.output import print_note
from glassformer.config import apply_overrides, build, check_heads, parse_settings, read_toml, suggest
from glassformer.data.answered import QUESTION_COLUMNS
from glassformer.data.column_contents import LABEL_COLUMNS, TEXT_COLUMNS
from glassformer.data.columns import parse_columns
from glassformer.data.dataset import SPLIT_OF
from glassformer.data.duplicates import comparison_key
from glassformer.data.files import missing_file_fix, reading, reading_as, reading_settings
from glassformer.data.folders import split_files, tables_in
from glassformer.data.kinds import detect_kind
from glassformer.data.label_sets import are_sets
from glassformer.data.numbers import are_numbers
from glassformer.data.pairs import SOURCE_COLUMNS, TARGET_COLUMNS, column_names, columns_of_other_data
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import READERS, read_column_names
from glassformer.finite import json_text
from glassformer.inputs.texts import Texts
from glassformer.process import READ_OPTIONS
from glassformer.tasks.catalog import TASKS, load_recipe, recipe_names, task_with_target
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.text_classification.recipe import Recipe
from glassformer.train.config import class_weight_error

HELD_OUT = 0.1  # share of the examples that is held out for validation, and the same share for test


def is_set(key: str, settings: Sequence[str]) -> bool:
    """Whether ``settings`` (``KEY=VALUE``) set this key, in any section."""
    return key in {name.rsplit(".", 1)[-1] for name in parse_settings(settings)}


def recipe_values(
    cls: Any, source: str, settings: Sequence[str], sections: dict[str, Any] | None
) -> tuple[dict[str, Any], Any]:
    """The values and the class of a recipe for the user's data.

    The setting ``target=number`` replaces the class of a classifier, ``cls``, by the one of a regressor.
    """
    task = task_with_target(cls.task, {}, settings)
    model = "a classifier" if task == cls.task else "a regressor"
    values: dict[str, Any] = {"name": Path(source).stem, "summary": f"{model} of {Path(source).name}"}
    values |= {"task": task, "data": {"source": source}} | (sections or {})
    return values, TASKS.recipe(task)


# --- checks before the data are read ---------------------------------------------------------------


COLUMN_KEYS = ("text_column", "label_column", "image_column", "pair_column")
NO_COLUMN = ("auto", "none")  # values of pair_column that do not name a column


def requested_recipe(cls: Any, source: str, settings: Sequence[str], sections: dict[str, Any] | None) -> Any:
    """The recipe for the user's data, without the defaults that depend on the data."""
    values, cls = recipe_values(cls, source, settings, sections)
    recipe = build(cls, apply_overrides(values, settings, cls), "--set")
    check_values(recipe)
    check_columns(recipe.data)
    return recipe


def check_values(recipe: Any) -> None:
    """Raise ConfigError for values that training would only reject later."""
    weight = getattr(getattr(recipe, "train", None), "class_weight", None)
    if isinstance(weight, str) and weight != "balanced":
        raise class_weight_error(weight)
    model = getattr(recipe, "model", None)
    if (d_model := getattr(model, "d_model", None)) and (heads := getattr(model, "num_heads", None)):
        check_heads(d_model, heads)
    merge = getattr(recipe.data, "merge_labels", "none")
    if isinstance(merge, str) and merge not in ("none", "spelling"):
        fix = 'Use spelling, or a table such as {"Good" = "good"}'
        raise errors.BadValueError(f"{merge!r} is not a way to merge labels", where="merge_labels", fix=fix)
    check_model(recipe)


def check_model(recipe: Any) -> None:
    """Raise ConfigError if the model is not an architecture, path or Hub id; suggests a similar name."""
    name = getattr(getattr(recipe, "model", None), "model", None)
    is_image = hasattr(recipe, "image")
    if not name or name == AUTO or name in CATALOG or "/" in name or Path(name).expanduser().exists():
        return
    if not is_image and not hasattr(recipe, "text"):  # a task with its own models
        return
    from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES

    architectures = IMAGE_ARCHITECTURES if is_image else TEXT_ARCHITECTURES
    names = [*architectures, *catalog_names("images" if is_image else "texts")]
    if name in (TEXT_ARCHITECTURES if is_image else IMAGE_ARCHITECTURES):
        model_input, data_kind = ("texts", "images") if is_image else ("images", "texts")
        what = f"{name!r} reads {model_input}, but the data are {data_kind}"
        fix = f"Use a model for {data_kind}, or leave --model out"
        raise errors.NotForThisModelError(what, where="model", fix=fix)
    if name not in names:
        raise errors.UnknownModelError(f"no model {name!r}", where="model", fix=suggest(name, names))


def check_columns(data: Any) -> None:
    """Raise DataError if the table lacks a column that the recipe names; reads only the header."""
    columns = [name for key in COLUMN_KEYS if (name := getattr(data, key, None)) and name not in NO_COLUMN]
    if not columns:
        return
    with reading_as(data):
        names = read_column_names(Path(data.source).expanduser())
    for name in columns:
        if names is not None and name not in names and not parse_columns(names, name):
            raise errors.NoSuchColumnError(f"no column {name!r}", where=data.source, fix=suggest(name, names))


# --- sizes of held-out splits, and the recipe for the kind of data ----------------------------------


def set_split_sizes(values: dict[str, Any], dataset: Any) -> None:
    """Set ``validation_size`` and ``test_size`` in ``values["data"]`` for the splits that are missing.

    The size is a tenth of the data, or one example per class if that is more.
    """
    labels = dataset.splits["train"].labels if "train" in dataset.splits else None
    num_classes = 1 if are_sets(labels) or are_numbers(labels) else len(set(labels or ()))
    size = HELD_OUT if round(HELD_OUT * len(labels or ())) >= num_classes else num_classes
    for split in ("validation", "test"):
        if split not in dataset.splits:
            values["data"][f"{split}_size"] = size


@dataclass(frozen=True)
class RecipeRequest:
    """What a command trains on: a recipe, or the user's texts or images."""

    recipe: str | None = None
    text: str | None = None
    images: str | None = None
    data: str | None = None  # replaces the data of the recipe
    settings: tuple[str, ...] = ()  # KEY=VALUE
    own_data: bool = False  # whether the user has given labeled texts or images, also without an option


def resolve_request(request: RecipeRequest, command: str, alternatives: str) -> RecipeRequest:
    """Correct the arguments of a command if they are misplaced.

    If the recipe is a path of data, it becomes ``text`` or ``images``. If ``text`` does not contain labeled
    texts but, for example, tagged words, the result has the recipe for these data.

    Args:
        command, alternatives: for messages: the command's name, and what it accepts instead of a recipe.
    """
    recipe, has_data = request.recipe, bool(request.text or request.images)
    if recipe is not None and not has_data and recipe not in recipe_names():
        name, text, images = classify_argument(recipe, command, alternatives)
        request = replace(request, recipe=name, text=text, images=images)
    request = replace(request, own_data=bool(request.text or request.images))
    if request.text is None or request.recipe or request.images or request.data:
        return request
    kind, description = _detect_other_kind(request.text, request.settings)
    if kind == "images":
        print_note(f"{request.text} contains images: read as --images {shlex.quote(request.text)}")
        return replace(request, text=None, images=request.text)
    if kind is None:
        return request
    recipe = RECIPES_BY_KIND[kind].recipe
    arguments = f"{recipe} --data {shlex.quote(request.text)}"
    print_note(f"{request.text} contains {description}: running glassformer {command} {arguments}")
    defaults = {"name": json_text(Path(request.text).stem)}
    if RECIPES_BY_KIND[kind].pairs:
        defaults |= dict.fromkeys(("validation_size", "test_size"), str(HELD_OUT))
    settings = [f"{key}={value}" for key, value in defaults.items() if not is_set(key, request.settings)]
    settings = (*request.settings, *settings)
    return replace(request, recipe=recipe, text=None, data=request.text, settings=settings, own_data=False)


class KindRecipe(NamedTuple):
    """The recipe for a kind of data other than labeled texts."""

    recipe: str  # its name
    description: str  # of the data, for messages
    pairs: bool = False  # whether the data are pairs of texts; their recipes hold out nothing by default
    alternative: str = ""  # another possible kind of these data, unless columns have names of languages


RECIPES_BY_KIND = {
    "tags": KindRecipe("wnut17-minilm", "words with tags"),
    "answers": KindRecipe("facts-minilm", "questions with answers in texts"),
    "scored pairs": KindRecipe("stsb-minilm", "pairs of texts with a score", True),
    "pairs": KindRecipe("multi30k-transformer", "texts with their translations", True, "scored pairs"),
}


def _detect_other_kind(source: str, settings: Sequence[str]) -> tuple[str | None, str]:
    """The kind of the data (a result of ``detect_kind``) and its description; None for labeled texts."""
    if any(is_set(key, settings) for key in ("target", "text_column", "pair_column", "label_column")):
        return None, ""
    names = {name.lower() for name in read_column_names(Path(source).expanduser()) or ()}
    if names & {*TEXT_COLUMNS} and names & {*LABEL_COLUMNS} and not names & {*QUESTION_COLUMNS}:
        return None, ""
    values = {key.rpartition(".")[2]: value for key, value in parse_settings(settings).items()}
    with reading(**{key: str(values[key]) for key in READ_OPTIONS if values.get(key)}):
        kind = detect_kind(source)
        entry = RECIPES_BY_KIND.get(kind)
        if entry is not None and entry.alternative and not _names_languages(source):
            translate, compare = (
                f"glassformer train {candidate.recipe} --data {shlex.quote(source)}"
                for candidate in (entry, RECIPES_BY_KIND[entry.alternative])
            )
            what = "the table has two columns of texts and no labels"
            fix = f"To train a translator: {translate}; to train an embedder: {compare}"
            raise errors.ConfigError(what, where=source, fix=fix)
    return (None, "") if kind == "texts" else (kind, kind if entry is None else entry.description)


def _names_languages(source: str) -> bool:
    """Whether the columns or files of pairs have names of languages, such as ``en`` and ``de``."""
    names = column_names(source)
    return names is None or bool({*SOURCE_COLUMNS} & names and {*TARGET_COLUMNS} & names)


def store_reading_options(recipe: Any) -> Any:
    """Store ``--encoding``, ``--quoting`` and ``--header`` in the recipe, for later commands on the run."""
    options = {k: value for k, value in reading_settings().items() if getattr(recipe.data, k) is None}
    return replace(recipe, data=replace(recipe.data, **options)) if options else recipe


def classify_argument(
    name: str, command: str, alternatives: str
) -> tuple[str | None, str | None, str | None]:
    """The recipe, the texts or the images that an argument names; two of the three values are None."""
    if is_run(name):
        fix = f"To resume it: glassformer train --resume --out {shlex.quote(name)}"
        raise errors.WrongArgumentError("is a run folder, not a recipe", where=name, fix=fix)
    option = guess_data_option(name)
    if option is None:
        return name, None, None
    if option not in alternatives:
        fix = f"Give {alternatives}"
        raise errors.WrongArgumentError(
            f"looks like data for {option} and is not a recipe", where=name, fix=fix
        )
    print_note(f"{name} is not a recipe: read as data, {option} {shlex.quote(name)}")
    return (None, name, None) if option == "--text" else (None, None, name)


# --- choosing the recipe ----------------------------------------------------------------------------


ALTERNATIVES = "--text FILE or --images FOLDER"  # the options of ``train`` that replace a recipe


def choose_recipe(
    name: str | None = None,
    text: str | None = None,
    *,
    images: str | None = None,
    model: str | None = None,
    data: str | None = None,
    settings: Sequence[str] = (),
    run_folder: Path | None = None,
    command: str = "train",
    alternatives: str = ALTERNATIVES,
    all_in_folds: bool = False,
    request: RecipeRequest | None = None,
) -> Any:
    """The recipe for the arguments of ``glassformer train`` and similar commands.

    Args:
        name: name of a shipped recipe, or a TOML file.
        text, images: a file or folder of labeled texts or images, instead of a recipe.
        model, data: replace the model and the data of the recipe.
        settings: ``KEY=VALUE`` pairs, applied last.
        run_folder: a run whose recipe is used if no recipe and no data are given.
        command, alternatives: for messages: the command's name, and what it accepts instead of a recipe.
        all_in_folds: hold out nothing from tagged words and questions, because all go into folds.
        request: the result of ``resolve_request``, instead of the arguments above.
    """
    if request is None:
        request = RecipeRequest(name, text, images, data, tuple(settings))
        request = resolve_request(request, command, alternatives)
    _check_one_source(request, command)
    name, data, settings = request.recipe, request.data, request.settings
    if request.text or request.images:
        cls, source = (Recipe, request.text) if request.text else (ImageRecipe, request.images or "")
        return store_reading_options(recipe_for_data(cls, source, settings, model_section(model)))
    name = _recipe_of_run(run_folder, command, alternatives) if name is None else name
    recipe = load_recipe(name, settings)
    if model and not hasattr(recipe, "model"):
        fix = "Leave it out"
        what = f"a recipe for {recipe.task} has no model"
        raise errors.NotForThisModelError(what, where="--model", fix=fix)
    if model:
        recipe = replace(recipe, model=replace(recipe.model, model=model))
    if not data and name not in recipe_names() and not is_set("source", settings):
        _check_source(recipe, name, run_folder)
    if run_folder is None and isinstance(recipe, Recipe | ImageRecipe):
        check_values(recipe)
    if data and absolute_path(data) != absolute_path(recipe.data.source):
        recipe = replace_data(recipe, absolute_path(data), name in recipe_names(), settings)
        recipe = disable_next_sentence(recipe, settings, run_folder)
        recipe = recipe if all_in_folds else add_held_out(recipe, settings, run_folder)
    elif not all_in_folds and name in recipe_names() and is_set("source", settings):
        recipe = add_held_out(recipe, settings, run_folder)
    return store_reading_options(recipe)


def _check_source(recipe: Any, name: str, run_folder: Path | None) -> None:
    """Raise DataError if the table that a recipe names is missing."""
    path = Path(recipe.data.source).expanduser()
    if path.suffix.lower() in READERS and not path.exists():
        what, fix = f"{recipe.data.source!r} does not exist", missing_file_fix(path)
        if run_folder is not None:
            fix = "Put it back, or start a new run with another --out"
        raise errors.NoSuchFileError(what, where=f"{name}, [data] source", fix=fix)


def _check_one_source(request: RecipeRequest, command: str) -> None:
    """Raise ConfigError if both a recipe and data, or two kinds of data, are given."""
    name, data = request.recipe, None if request.recipe else request.data
    sources = {"a recipe": name, "--text": request.text, "--images": request.images, "--data": data}
    names = [source for source, value in sources.items() if value]
    if len(names) > 1:
        fix = "Give one of them"
        if name and "=" in name:  # a setting without --set
            fix = f"Give one of them; a setting needs --set: --set {shlex.quote(name)}"
        what = f"both {names[0]}{f' ({name})' if name else ''} and {names[1]} are given"
        raise errors.ConflictError(what, where=command, fix=fix)


def model_section(model: str | None) -> dict[str, Any]:
    """Values of a recipe for the option ``--model``: section -> key -> value."""
    return {"model": {"model": model}} if model else {}


def _recipe_of_run(run_folder: Path | None, command: str, alternatives: str) -> str:
    """The recipe file of a run folder; raises ConfigError if there is none."""
    if run_folder is not None and not (run_folder / "config.toml").is_file():
        raise no_run_error(run_folder)
    if run_folder is None:
        fix = f"Name a recipe such as europe ('glassformer recipes' lists them), or give {alternatives}"
        raise errors.NothingGivenError("no recipe is given", where=command, fix=fix)
    return str(run_folder / "config.toml")


def recipe_for_data(
    cls: type, source: str, settings: Sequence[str] = (), sections: dict[str, Any] | None = None
) -> Any:
    """A recipe for the user's labeled texts or images.

    It holds out a tenth of the examples for each missing split (validation, test). Learning rate, epochs and
    batch size have no value: ``fit`` chooses them.
    """
    location = absolute_path(source)
    values, recipe_class = recipe_values(cls, location, settings, sections)
    requested = requested_recipe(cls, location, settings, sections)
    data: Any = requested.data
    options = {"limit": data.limit, "seed": data.split_seed}
    reader: Any = Texts()
    if cls is ImageRecipe:
        from glassformer.inputs.images import Images

        reader, options["need_labels"] = Images(), True
        values |= _image_defaults(requested)
    with reading_as(data):
        dataset = reader.read(requested, location, hasattr(data, "target"), **options)
    if cls is not ImageRecipe:
        note_siblings(location)
    set_split_sizes(values, dataset)
    return build(recipe_class, apply_overrides(values, settings, recipe_class), "--set")


def _image_defaults(recipe: Any) -> dict[str, Any]:
    """Values of a recipe that depend on the image model: section -> key -> value."""
    from glassformer.inputs.images import has_fixed_features, is_image_architecture
    from glassformer.tasks.auto import SCRATCH, needs_encoder

    name, values = recipe.model.model, {}
    if name == AUTO and needs_encoder(TASKS[recipe.task].estimator.from_recipe(recipe)):
        name = SCRATCH.name
        values["model"] = {"model": name}
    if has_fixed_features(name):
        return values
    if is_image_architecture(name):
        values["train"] = {"weight_decay": 0.05, "schedule": "cosine"}
        values["image"] = {"augment": "shift" if (recipe.image.image_size or 32) <= 64 else "light"}
    elif name != AUTO:
        values["image"] = {"augment": "light"}
    return values


def absolute_path(source: str) -> str:
    """An existing path as an absolute path, which is valid in any working directory; other names as is."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source


# --- a recipe with other data ------------------------------------------------------------------------


MIN_DISTINCT = 3  # distinct texts needed: one for training, one for validation, one for test
EXAMPLE_KEYS = ("sentences", "questions", "neighbours", "analogies")  # examples that suit the recipe's data


def note_siblings(source: str) -> None:
    """Print a note about tables in the same folder that are not read."""
    path = Path(source)
    if path.is_dir() and (split_paths := {file for files in split_files(path).values() for file in files}):
        if unread := [p.name for p in tables_in(path) if p not in split_paths]:
            what = f"{', '.join(unread)} in {path}: not read"
            print_note(f"{what}; tables in a folder must be named train, validation (dev) or test")
        return
    if SPLIT_OF.get(path.stem.lower()) != "train" or not path.is_file():
        return
    files = [p for p in sorted(path.parent.iterdir()) if p.suffix == path.suffix]
    siblings = [p.name for p in files if SPLIT_OF.get(p.stem.lower()) in ("validation", "test")]
    if siblings:
        print_note(f"{', '.join(siblings)} next to {path.name}: to use them, give the folder: {path.parent}")


def add_held_out(recipe: Any, settings: Sequence[str], run_folder: Path | None) -> Any:
    """A recipe for tagging or question answering, with sizes for the missing splits.

    The size is a tenth, one text for fewer than ten distinct texts, or zero for fewer than three. Sizes that
    the user has set do not change.
    """
    read, sizes = TASKS[recipe.task].read, [f"{split}_size" for split in ("validation", "test")]
    missing = [key for key in sizes if not is_set(key, settings) and getattr(recipe.data, key, 0) is None]
    if read is None or not missing:
        return recipe
    if run_folder is not None and (run_folder / "config.toml").is_file():  # use the sizes of the run
        data = read_toml(run_folder / "config.toml").get("data", {})
        return replace(recipe, data=replace(recipe.data, **{key: data.get(key) for key in missing}))
    try:
        with reading_as(recipe.data):
            splits = read(recipe).splits
    except errors.DataError:  # training will report the error
        return recipe
    texts = set(splits["train"].texts) if "train" in splits else ()
    num_distinct = len(set(map(comparison_key, texts)))
    if num_distinct < MIN_DISTINCT:
        return recipe
    size = HELD_OUT if HELD_OUT * num_distinct >= 1 else 1
    new_sizes = {key: size for key in missing if key.removesuffix("_size") not in splits}
    return replace(recipe, data=replace(recipe.data, **new_sizes))


def describe_held_out(recipe: Any) -> str | None:
    """A line on how many tagged sentences or questions are held out; None if none are."""
    noun, sizes = TASKS[recipe.task].target.split_units, []
    for split in ("validation", "test"):
        size = getattr(recipe.data, f"{split}_size", None)
        sizes += [f"{size:.0%} for {split}" if size < 1 else f"{size:g} for {split}"] if size else []
    if not noun or not sizes:
        return None
    return f"held out of the {noun}: {' and '.join(sizes)} (--set validation_size=..., test_size=...)"


def disable_next_sentence(recipe: Any, settings: Sequence[str], run_folder: Path | None) -> Any:
    """The recipe, without next-sentence prediction if most texts have only one sentence.

    A value in ``settings`` or in a resumed run has precedence.
    """
    is_explicit = is_set("next_sentence", settings)
    if is_explicit or not getattr(getattr(recipe, "text", None), "next_sentence", False):
        return recipe
    if run_folder is not None and (run_folder / "config.toml").is_file():
        keep = read_toml(run_folder / "config.toml").get("text", {}).get("next_sentence")
    else:
        keep = _mostly_several_sentences(recipe.data)
        if not keep:
            print_note(
                "most texts have one sentence: next_sentence=false (--set next_sentence=true to keep it)"
            )
    return recipe if keep else replace(recipe, text=replace(recipe.text, next_sentence=False))


def _mostly_several_sentences(data: Any) -> bool:
    from glassformer.data.masking import NEXT_SENTENCE_SHARE, multi_sentence_share

    try:
        with reading_as(data):
            dataset = load_text_dataset(data.source, text_column=data.text_column)
    except errors.DataError:  # training will report the error
        return True
    return multi_sentence_share(next(iter(dataset.splits.values())).texts) >= NEXT_SENTENCE_SHARE


def replace_data(recipe: Any, source: str, is_shipped: bool, settings: Sequence[str] = ()) -> Any:
    """The recipe with other data, and without the description and examples of its old data."""
    set_keys = {key.rsplit(".", 1)[-1] for key in parse_settings(settings)}
    texts = {"summary": f"as {recipe.name}, on {Path(source).name}", "expect": ""}
    changes: dict[str, Any] = {key: text for key, text in texts.items() if key not in set_keys}
    for section in ("evaluate", "judge") if is_shipped else ():
        config: Any = getattr(recipe, section, None)
        examples = {k: () for k in EXAMPLE_KEYS if hasattr(config, k) and k not in set_keys}
        if hasattr(config, "tests") and "tests" not in set_keys:  # remove the analogies of the old corpus
            examples["tests"] = tuple(test for test in config.tests if test != recipe.data.source)
        changes |= {section: replace(config, **examples)} if examples else {}
    data = replace(recipe.data, source=source)
    if hasattr(data, "source_column"):
        with reading_as(data):
            data = _detect_pair_columns(data, set_keys)
    return replace(recipe, data=data, **changes)


def _detect_pair_columns(data: Any, set_keys: set[str]) -> Any:
    """The data section with the detected names of the columns, for later commands."""
    keys = ("source_column", "target_column")
    set_names = [getattr(data, key) for key in keys if key in set_keys]
    columns = columns_of_other_data(data.source, (data.source_column, data.target_column), set_names)
    return replace(data, **dict(zip(keys, columns, strict=True)))
