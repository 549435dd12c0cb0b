"""``glassformer data list``, ``data show`` and ``data doctor``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from glassformer.cli import options as cli
from glassformer.cli.options import argument, option
from glassformer.cli.output import (
    AS_JSON,
    NO_ANSWER,
    excerpt,
    print_json,
    print_message,
    print_note,
    show_table,
)
from glassformer.cli.own_data import absolute_path, is_set, model_section, requested_recipe
from glassformer.config import apply_overrides, build
from glassformer.data.answered import QA_SOURCES, load_qa
from glassformer.data.doctor import examine
from glassformer.data.files import reading_flags
from glassformer.data.findings import DoctorReport, Finding
from glassformer.data.folders import find_local_folder
from glassformer.data.image_sources import NAMED_IMAGES, load_image_dataset
from glassformer.data.kinds import detect_kind, is_builtin
from glassformer.data.label_sets import flat_labels
from glassformer.data.pairs import PAIR_SOURCES, SCORED_SOURCES, load_pairs, load_scored_pairs
from glassformer.data.rejected import skip_message
from glassformer.data.sources import NAMED_SOURCES, load_text_dataset
from glassformer.data.splits import make_splits
from glassformer.data.tagged import load_tagged
from glassformer.data.tags import tags_to_spans
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import BadValueError, NotForThisModelError, NothingGivenError, counted
from glassformer.outputs import atomic_write, check_new_file
from glassformer.process import ENCODING_OPTION
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig, ImageRecipe
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.data.dataset import NamedSource, TextDataset


def _tokenizer(model: str) -> Any:
    from glassformer.checkpoints.hub import resolve_checkpoint

    return load_tokenizer(resolve_checkpoint(model).path)


# --- data doctor --set: checks of data as a recipe with these settings reads them ------------------


COLUMN_KEYS = ("text_column", "pair_column", "label_column", "label_separator")


def examine_as_recipe(
    source: str,
    kind: str,
    settings: Sequence[str],
    columns: Sequence[str | None],
    model: str | None,
    max_length: int | None,
) -> tuple[DoctorReport, Any, str]:
    """Run the data doctor on data as a recipe reads them; returns its report, the data and their kind.

    Unless ``settings`` change it, unusable rows are skipped and no examples are held out.

    Args:
        kind: a key of ``KINDS``.
        settings: ``KEY=VALUE`` pairs.
        columns: values for ``COLUMN_KEYS``.
        model, max_length: see ``Texts.examine``.
    """
    from glassformer.tasks.supervised import inputs_and_target

    if KINDS[kind].may_be_regression and is_set("target", settings):
        kind = "texts"  # a regressor reads both texts of a row
    if not KINDS[kind].supports_set:
        what = f"is for texts, images and tagged words, but these data are {kind}"
        raise NotForThisModelError(what, where="--set", fix="Leave it out")
    if isinstance(KINDS[kind], TaggedWords):
        return (*_examine_tags_as_recipe(source, settings, columns[2]), kind)
    is_image = kind == "images"
    names = (None if column == "auto" else column for column in columns)
    defaults = cli.column_settings(dict(zip(COLUMN_KEYS, names, strict=True)))
    defaults.append("broken=skip" if is_image else "on_bad_row=skip")
    cls, path = ImageRecipe if is_image else Recipe, absolute_path(source)
    recipe = requested_recipe(cls, path, [*defaults, *settings], model_section(model))
    task = TASKS[recipe.task]
    splits = task.load(recipe)
    dataset = replace(splits.dataset, splits=splits.parts())
    if not is_image:
        model = recipe.model.model if is_set("model", settings) else model
        max_length = recipe.text.max_length if is_set("max_length", settings) else max_length
    _, target = inputs_and_target(task)
    report = KINDS[kind].examine(target.doctor_input(dataset), model, max_length, recipe)
    report = replace(report, findings=[*report.findings, *target.findings(splits, recipe.train)])
    return report, dataset, kind


def _examine_tags_as_recipe(
    source: str, settings: Sequence[str], tags_column: str | None
) -> tuple[DoctorReport, Any]:
    from glassformer.tasks.token_tagging.recipe import TaggingRecipe

    task = TASKS[TaggingRecipe.task]
    data = {"source": source, "on_bad_row": "skip"} | ({"tags_column": tags_column} if tags_column else {})
    recipe = build(task.recipe, apply_overrides({"data": data}, settings, task.recipe), "--set")
    assert task.read is not None
    dataset = task.read(recipe)
    if "train" in dataset.splits:
        splits = make_splits(dataset, recipe.data, recipe.evaluate.split)
        dataset = replace(dataset, splits=splits.parts())
    return KINDS["tags"].examine(dataset, recipe=recipe), dataset


# --- data show --augment: a grid of augmented images ------------------------------------------------


SHEET_ROWS = 8  # number of images in the grid, one per row


def write_contact_sheet(source: str, level: str | None, out: Path | None) -> None:
    """Write a PNG file with some images of a data set and their augmented versions."""
    from glassformer.data.augment import contact_sheet, sheet_columns

    if level is None or out is None:
        option, missing = ("--out", "--augment LEVEL") if level is None else ("--augment", "--out FILE.png")
        fix = f"Add {missing}"
        raise NothingGivenError("the grid of images needs --augment and --out", where=option, fix=fix)
    columns = sheet_columns(level)
    check_new_file(out)
    if out.suffix.lower() != ".png":
        fix = "Give --out a name that ends in .png"
        raise BadValueError("the grid is written as PNG", where=str(out), fix=fix)
    split = next(iter(load_image_dataset(source).splits.values()))
    indices = np.unique(np.linspace(0, len(split) - 1, SHEET_ROWS).astype(int)).tolist()
    sheet = contact_sheet([split.images[i] for i in indices], level, split.origin)
    with atomic_write(out) as draft:
        sheet.save(draft, "PNG")
    print_message(f"{counted(len(indices), 'image')}, {', '.join(columns)}: {out}")


# --- data list --------------------------------------------------------------------------------------


MAX_EXAMPLES = 3  # maximum number of printed examples per class, and of printed pairs
MAX_QUESTIONS = 5  # maximum number of printed questions
DEFAULT_LENGTH = 256  # number of tokens to which ``train`` truncates texts by default
# Checks whose examples are printed for every finding; other checks print examples only for warnings
CHECKS_WITH_EXAMPLES = ("near-repeats", "quotes", "repeats", "truncation")
app = typer.Typer(help="Inspect data sets: the built-in ones, or your own files.", no_args_is_help=True)

SOURCE: Any = argument("NAME", "Data set name, table or folder.", default=...)
PAIR_COLUMN: Any = option(
    "NAME",
    "Second text column of pairs; auto: detect it, none: read single texts.",
    default="auto",
    panel=cli.DATA,
)


def named_sources() -> dict[str, NamedSource]:
    """The named data sets of all kinds."""
    return {**NAMED_SOURCES, **NAMED_IMAGES, **PAIR_SOURCES, **SCORED_SOURCES, **QA_SOURCES}


def source_locations() -> dict[str, str]:
    """Name -> folder of each named data set, or where to get the data set."""
    locations = {}
    for name, source in named_sources().items():
        if not source.folder:
            locations[name] = "generated, no download needed"
            continue
        location = "not here" if source.load else "not here; set GLASSFORMER_DATA to the folder that has it"
        location += f"; downloaded from {source.hub} on the Hub when first used" if source.hub else ""
        location += f"; available from {source.origin}" if source.origin else ""
        locations[name] = str(find_local_folder(source.folder) or location)
    return locations


@app.command("list")
def list_command(json: bool = AS_JSON) -> None:
    """List the built-in data sets, and where each is on this machine."""
    locations = source_locations()
    rows = [[name, s.description, s.licence, locations[name]] for name, s in named_sources().items()]
    if json:
        keys = ("name", "description", "licence", "where")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    show_table("data sets", ("name", "what", "licence", "where"), rows)


# --- data show ---------------------------------------------------------------------------------


def _general_fields(dataset: Any) -> dict[str, Any]:
    return {"name": dataset.name, "description": dataset.description, "licence": dataset.licence}


def _describe_rejected(dataset: Any) -> list[str]:
    """A line about unusable rows, which are left out; an empty list if there are none."""
    if not dataset.rejected:
        return []
    return [f"{skip_message(dataset.rejected, False)}. To list all: glassformer data doctor"]


@dataclass(frozen=True)
class DataSummary:
    """Output of ``data show``: JSON, a table of splits and a table of examples."""

    fields: dict[str, Any]  # the JSON output
    split_columns: tuple[str, ...]  # all except the first and the last are numeric
    split_rows: list[list[str]]
    notes: Sequence[str] = ()
    noun: str = ""  # of the examples; empty: there is no table of examples
    example_columns: tuple[str, ...] = ()
    examples: Sequence[Sequence[str]] = ()
    text_columns: tuple[str, ...] = ()  # further columns of the table of splits that are not numeric


def _counts(classes: dict[str, int]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in classes.items())


# --- kinds of data --------------------------------------------------------------------------------

# Names of the columns with texts, second texts, and labels or tags; None or "auto": detect the column
Columns = tuple[str | None, str, str | None]


class Texts:
    """Loads, checks and shows labeled texts or pairs of texts. Unusable rows are skipped and listed."""

    supports_set = True  # whether ``--set`` is supported
    may_be_regression = False  # whether ``--set target=number`` reads these data as inputs of a regressor

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        names: dict[str, Any] = dict(zip(COLUMN_KEYS, columns, strict=False))
        options = {"label_separator": separator, "on_bad_row": "skip"}
        return load_text_dataset(name, **names, find_labels=True, **options)

    def examine(
        self, dataset: Any, model: str | None = None, max_length: int | None = None, recipe: Any = None
    ) -> DoctorReport:
        """Run the checks of the data doctor; those of tokens need the name of a ``model``."""
        from glassformer.tasks.build import is_from_scratch

        options: dict[str, Any] = {"max_length": max_length}
        if model is not None and not is_from_scratch(model):
            options["tokenizer"] = _tokenizer(model)
        if recipe is not None:
            data = recipe.data
            holds_out = data.validation_size is not None or data.test_size is not None
            options |= {"clean": recipe.text.clean, "held_out": data.hold_out if holds_out else None}
        return examine(dataset, **options)

    def show(self, dataset: Any, name: str) -> DataSummary:
        """The output of ``data show``, with the first examples of each class."""
        splits, rows, first_examples = {}, [], []
        for split_name, split in dataset.splits.items():
            examples: dict[str, list[str]] = {}
            for text, value in zip(split.texts, split.labels or [""] * len(split), strict=True):
                for label in flat_labels([value]):
                    if len(texts := examples.setdefault(str(label), [])) < MAX_EXAMPLES:
                        texts.append(text)
            counts = Counter(map(str, flat_labels(split.labels)))
            classes = {label: counts[label] for label in dataset.label_names if label in counts}
            sizes = {"texts": len(split), "classes": classes, "origin": split.origin}
            splits[split_name] = sizes | {"examples": examples}
            if not rows:
                first_examples = [
                    [label, excerpt(text)] for label, texts in examples.items() for text in texts
                ]
            rows.append([split_name, f"{len(split):,}", _counts(classes) or "none", split.origin])
        notes = [*dataset.messages, *dataset.notes, *_describe_rejected(dataset)]
        fields = _general_fields(dataset) | {"notes": notes, "splits": splits}
        split_columns, columns = ("split", "texts", "classes", "from"), ("label", "text")
        return DataSummary(
            fields, split_columns, rows, notes, "texts", columns, first_examples, text_columns=("classes",)
        )


class Images(Texts):
    """Images with labels."""

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        return load_image_dataset(name, label_column=columns[2], label_separator=separator, on_bad_row="skip")

    def examine(self, dataset, model=None, max_length=None, recipe=None) -> DoctorReport:
        from glassformer.data.image_doctor import examine_images
        from glassformer.inputs.images import build_transform

        model_config = ImageModelConfig(model=model) if model else ImageModelConfig()
        image_config = ImageConfig()
        if recipe:
            model_config, image_config = recipe.model, recipe.image
        transform = build_transform(image_config, model_config)
        return examine_images(dataset, transform=transform, decode=True)

    def show(self, dataset: Any, name: str) -> DataSummary:
        counts = {split: Counter(map(str, flat_labels(s.labels))) for split, s in dataset.splits.items()}
        splits = {k: {"pictures": len(s), "classes": dict(counts[k])} for k, s in dataset.splits.items()}
        fields = {"name": name, "description": dataset.description, "notes": list(dataset.notes)}
        rows = [
            [k, f"{len(s):,}", _counts(dict(sorted(counts[k].items()))), s.origin]
            for k, s in dataset.splits.items()
        ]
        columns, notes = ("split", "images", "classes", "from"), dataset.notes
        return DataSummary(fields | {"splits": splits}, columns, rows, notes, text_columns=("classes",))


class ParallelTexts(Texts):
    """Texts and their translations."""

    supports_set, may_be_regression = False, True

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        return load_pairs(name, keep_empty=True)

    def examine(self, dataset, model=None, max_length=None, recipe=None) -> DoctorReport:
        from glassformer.data.pair_doctor import examine_pairs

        return examine_pairs(dataset)

    def show(self, dataset: Any, name: str) -> DataSummary:
        splits = {
            split: {
                "pairs": len(s),
                "origin": s.origin,
                "examples": list(zip(s.source, s.target, strict=True))[:MAX_EXAMPLES],
            }
            for split, s in dataset.splits.items()
        }
        fields = {"name": dataset.name, "description": dataset.description, "columns": list(dataset.columns)}
        rows = [[split, f"{s['pairs']:,}", s["origin"]] for split, s in splits.items()]
        examples = [list(map(excerpt, pair)) for pair in next(iter(splits.values()))["examples"]]
        columns, fields = ("split", "pairs", "from"), fields | {"splits": splits}
        return DataSummary(fields, columns, rows, (), "pairs", dataset.columns, examples)


class ScoredPairs(ParallelTexts):
    """Pairs of texts with scores."""

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        return load_scored_pairs(name, on_bad_row="skip")

    def examine(self, dataset, model=None, max_length=None, recipe=None) -> DoctorReport:
        from glassformer.data.pair_doctor import examine_scored

        return examine_scored(dataset)

    def show(self, dataset: Any, name: str) -> DataSummary:
        splits = {
            split: {
                "pairs": len(s),
                "lowest": min(s.scores) if s.scores else None,
                "highest": max(s.scores) if s.scores else None,
                "origin": s.origin,
                "examples": list(zip(s.first, s.second, s.scores or [None] * len(s), strict=True))[
                    :MAX_EXAMPLES
                ],
            }
            for split, s in dataset.splits.items()
        }
        notes, rows = _describe_rejected(dataset), []
        for split, s in splits.items():
            scores = "none" if s["lowest"] is None else f"{s['lowest']:g} to {s['highest']:g}"
            rows.append([split, f"{s['pairs']:,}", scores, s["origin"]])
        examples = [
            [excerpt(a), excerpt(b), "" if score is None else f"{score:g}"]
            for a, b, score in next(iter(splits.values()))["examples"]
        ]
        fields = _general_fields(dataset) | {
            "notes": notes,
            "columns": list(dataset.columns),
            "splits": splits,
        }
        split_columns = ("split", "pairs", "scores", "from")
        columns = tuple(name or "" for name in dataset.columns)
        return DataSummary(
            fields, split_columns, rows, notes, "pairs", columns, examples, text_columns=("scores",)
        )


class Questions(Texts):
    """Questions with contexts and answers."""

    supports_set = False

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        return load_qa(name, on_bad_row="skip")

    def examine(self, dataset, model=None, max_length=None, recipe=None) -> DoctorReport:
        from glassformer.data.answer_doctor import examine_qa
        from glassformer.data.windows import MAX_LENGTH, encode_questions

        if model is None:
            return examine_qa(dataset)
        tokenizer, length = _tokenizer(model), max_length or MAX_LENGTH
        splits = dataset.splits.items()
        windows = {k: encode_questions(tokenizer, split.questions, max_length=length) for k, split in splits}
        return examine_qa(dataset, windows)

    def show(self, dataset: Any, name: str) -> DataSummary:
        statistics = self.examine(dataset).figures
        notes = [*dataset.notes, *_describe_rejected(dataset)]
        rows = [
            [k, *(f"{s[key]:,}" for key in ("rows", "contexts", "unanswerable")), dataset.splits[k].origin]
            for k, s in statistics["splits"].items()
        ]
        first = next(iter(dataset.splits.values()))
        examples = [
            [excerpt(question.question), excerpt(answers.texts[0] if answers.texts else NO_ANSWER)]
            for question, answers in islice(zip(first.questions, first.answers or ()), MAX_QUESTIONS)
        ]
        split_columns = ("split", "questions", "texts", "without answer", "from")
        fields = _general_fields(dataset) | {"notes": notes} | statistics
        return DataSummary(fields, split_columns, rows, notes, "questions", ("question", "answer"), examples)


class TaggedWords(Texts):
    """Sentences with a tag for each word."""

    def load(self, name: str, columns: Columns, separator: str | None) -> Any:
        return load_tagged(name, tags_column=columns[2], on_bad_row="skip")

    def examine(self, dataset, model=None, max_length=None, recipe=None) -> DoctorReport:
        from glassformer.data.tag_doctor import examine_tagged

        return examine_tagged(dataset, recipe.text.scheme if recipe else "auto")

    def show(self, dataset: Any, name: str) -> DataSummary:
        statistics = self.examine(dataset).figures
        notes = [*dataset.notes, *_describe_rejected(dataset)]
        rows = [
            [k, f"{s['rows']:,}", f"{s['words']:,}", _counts(s["spans"])]
            for k, s in statistics["splits"].items()
        ]
        first = next(iter(dataset.splits.values()))
        spans: dict[str, list[str]] = {}
        for words, tags in zip(first.words, first.tags or (), strict=True):
            for kind, start, end in tags_to_spans(tags, statistics["scheme"]):
                if len(texts := spans.setdefault(kind, [])) < MAX_EXAMPLES:
                    texts.append(" ".join(words[start:end]))
        examples = [[kind, excerpt(text)] for kind, texts in sorted(spans.items()) for text in texts]
        fields = _general_fields(dataset) | {"notes": notes} | statistics
        split_columns, columns = ("split", "sentences", "words", "spans"), ("kind", "span")
        return DataSummary(fields, split_columns, rows, notes, "spans", columns, examples)


KINDS: dict[str, Texts] = {  # keys are results of ``detect_kind``
    "texts": Texts(),
    "images": Images(),
    "pairs": ParallelTexts(),
    "scored pairs": ScoredPairs(),
    "answers": Questions(),
    "tags": TaggedWords(),
}


def _note_ambiguous_name(name: str) -> None:
    """Print a note if a name is both a named data set and a file or folder."""
    if is_builtin(name) and Path(name).exists():
        print_note(f"{name!r} is read as the built-in data set; for the local file or folder write ./{name}")


@app.command("show")
def show_command(
    name: str = SOURCE,
    text_column: str | None = cli.TEXT_COLUMN,
    pair_column: str = PAIR_COLUMN,
    label_column: str | None = cli.LABEL_COLUMN,
    label_separator: str | None = cli.LABEL_SEPARATOR,
    json: bool = AS_JSON,
    augment: str | None = option(
        "LEVEL", "For images: augmentation to show: shift, light, medium or strong."
    ),
    out: Path | None = option("FILE.png", "With --augment: file for the grid of augmented images."),
) -> None:
    """Show sizes, classes and first examples of a data set, or a grid of augmented images."""
    if augment is not None or out is not None:
        write_contact_sheet(name, augment, out)
        if json:
            print_json({"out": out})
        return
    _note_ambiguous_name(name)
    kind = "texts" if text_column or pair_column != "auto" else detect_kind(name)
    dataset = KINDS[kind].load(name, (text_column, pair_column, label_column), label_separator)
    summary = KINDS[kind].show(dataset, name)
    if json:
        print_json(summary.fields)
        return
    licence = getattr(dataset, "licence", "")
    for line in (dataset.description, licence and f"licence: {licence}", *summary.notes):
        if line:
            print_message(line)
    title = name if kind == "images" else dataset.name
    right = [column for column in summary.split_columns[1:-1] if column not in summary.text_columns]
    show_table(title, summary.split_columns, summary.split_rows, right=right)
    if summary.noun:
        title = f"first {summary.noun} of {next(iter(dataset.splits))}"
        show_table(title, summary.example_columns, summary.examples)


# --- data doctor -------------------------------------------------------------------------------


def _show_findings(title: str, findings: Sequence[Finding]) -> None:
    """Print a table of findings, and examples of some of them."""
    rows = [[f.severity, f.code, cli.use_column_options(f.sentence)] for f in findings]
    show_table(title, ("", "check", "finding"), rows)
    for f in findings:
        for example in f.examples if f.severity == "warning" or f.code in CHECKS_WITH_EXAMPLES else ():
            print_message(f"{f.code}: {excerpt(example)}")


@app.command("doctor")
def doctor_command(
    name: str = SOURCE,
    model: str | None = option("NAME", "Checkpoint; its tokenizer is used to check the texts."),
    max_length: int | None = option("TOKENS", "Max tokens per text.", min=3, default=DEFAULT_LENGTH),
    text_column: str | None = cli.TEXT_COLUMN,
    pair_column: str = PAIR_COLUMN,
    label_column: str | None = cli.LABEL_COLUMN,
    label_separator: str | None = cli.LABEL_SEPARATOR,
    settings: list[str] | None = option(
        "KEY=VALUE", "Set a recipe key for reading the data, as in 'train'; may be repeated.", "--set"
    ),
    json: bool = AS_JSON,
) -> None:
    """Check a data set: duplicates, leaks between splits, contradictory labels, truncation, unknown words."""
    from glassformer.data.repairs import fixing_options, needed_corrections

    _note_ambiguous_name(name)
    kind = "texts" if text_column or pair_column != "auto" else detect_kind(name)
    columns: Columns = (text_column, pair_column, label_column)
    if settings:
        names = (*columns, label_separator)
        report, dataset, kind = examine_as_recipe(name, kind, settings, names, model, max_length)
    else:
        dataset = KINDS[kind].load(name, columns, label_separator)
        report = KINDS[kind].examine(dataset, model, max_length)
    if json:
        print_json(report.to_dict())
        return
    last_line = ""
    if kind == "texts" and not settings:
        last_line = _suggest_without_labels(name, dataset, _column_options(text_column, pair_column))
        if dataset.pair_column and pair_column == "auto":  # the suggested command must name both columns
            text_column, pair_column = dataset.columns[0], dataset.pair_column
    order = {"warning": 0, "note": 1, "ok": 2}
    findings = sorted(report.findings, key=lambda f: order[f.severity])
    _show_findings(report.name, findings)
    if model is None and kind == "texts":
        print_message("add --model NAME to check truncation and unknown tokens too")
    if kind == "images" and model is None:
        print_message(
            "image sizes and cropping were checked for the default model of `train`; or add --model NAME"
        )
    splits = dataset.splits if kind in ("texts", "images") else {}
    if last_line:
        print_message(last_line)
    elif options := fixing_options(findings, splits) if splits else []:
        if correction := needed_corrections(findings, options, splits):
            print_message(correction)
        arguments = _column_options(text_column, pair_column, label_column)
        arguments += ["--label-separator", label_separator] if label_separator else []
        arguments += [*reading_options(options), *(("--model", model) if model else ())]
        if kind == "texts" and max_length not in (None, DEFAULT_LENGTH):
            arguments += ["--max-length", str(max_length)]
        arguments += [word for setting in settings or () for word in ("--set", setting)]
        data_option = "--images" if kind == "images" else "--text"
        command = ["glassformer", "train", data_option, name, *arguments, *options]
        command += cli.free_out_option(name)
        print_message(f"suggested command: {shlex.join(command)}")


def reading_options(options: Sequence[str] = ()) -> list[str]:
    """The reading options of this process, such as --encoding; empty if ``options`` has --encoding."""
    return [] if ENCODING_OPTION in options else reading_flags()


def _column_options(text: str | None, pair: str, label: str | None = None) -> list[str]:
    """Command-line options for the columns that have a name."""
    pair_name = None if pair == "auto" else pair
    names = {"--text-column": text, "--pair-column": pair_name, "--label-column": label}
    return [word for option, name in names.items() if name for word in (option, name)]


def _suggest_without_labels(name: str, dataset: TextDataset, columns: list[str]) -> str:
    """A suggested command that checks or predicts labels; empty if the data have labels."""
    if any(split.labels for split in dataset.splits.values()):
        return ""
    predict = f"to label these texts, glassformer predict RUN {shlex.join([name, *reading_options()])}"
    if dataset.label_candidates:
        guess, *others = dataset.label_candidates
        options = [*columns, *reading_options(), "--label-column", guess]
        check = shlex.join(["glassformer", "data", "doctor", name, *options])
        if not others:
            return f"no labels were checked: {predict}; to check the labels in {guess!r}, {check}"
        names = ", ".join(map(repr, others))
        return f"no labels were checked; {guess!r} is a guess (or: {names}): {check}"
    if dataset.number_column:
        command = ["glassformer", "train", "--text", name, *columns, *reading_options()]
        command += ["--set", "target=number", "--label-column", dataset.number_column]
        what = f"no column looks like labels; {dataset.number_column!r} has numbers"
        return f"{what} (to check them, add --set target=number): {shlex.join(command)}"
    no_labels = "no labels were checked, because the data have none"
    return f"{'no column looks like labels' if dataset.columns[0] else no_labels}: {predict}"
