"""Load texts and labels.

The source is a built-in data set (``imdb``, ``europe``) or one of these paths:
- a CSV, TSV, JSONL or Parquet file, which becomes the split ``train``
- a folder with one such file per split (``train.csv``, ``test.csv``) or with shards (``data/folders.py``)
- a folder of texts: ``label/*.txt`` or ``split/label/*.txt``
- for unlabeled texts, a ``.txt`` file with one text per line
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from glassformer.config import join_names
from glassformer.data import corpus, country_corpus, folders
from glassformer.data.checks import check_class_names, check_labels, check_texts
from glassformer.data.columns import (
    LABEL_COLUMNS,
    NONE,
    Columns,
    columns_for_pair_model,
    find_columns,
    find_columns_of_pairs,
    parse_columns,
    with_label_sets,
)
from glassformer.data.dataset import SPLIT_OF, NamedSource, TextDataset, TextSplit, choose_splits, label_names
from glassformer.data.files import MAX_TEXT, is_system_file, read_lines, read_utf8
from glassformer.data.image import is_image_name
from glassformer.data.label_kinds import find_label_problem, unify_spelling, whole_number
from glassformer.data.label_sets import LabelSet, check_sets, flat_labels, is_multilabel, split_column
from glassformer.data.network import unreachable
from glassformer.data.numbers import NumberFormat, amounts_message, check_numbers, find_number_column
from glassformer.data.rejected import (
    SKIP,
    RejectedRow,
    check_filled,
    check_source,
    hint_to_skip,
    join_fixes,
    keep_usable_rows,
    lenient_table,
)
from glassformer.data.splits import limit_examples
from glassformer.data.tables import READERS, Table, is_plain
from glassformer.errors import (
    DataError,
    MissingValueError,
    NoSuchColumnError,
    NoSuchFileError,
    UnclearColumnError,
    WrongInputError,
)


def load_text_dataset(
    source: str | Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    splits: Sequence[str] | None = None,
    need_labels: bool = False,
    on_bad_row: str = "refuse",
    find_labels: bool = False,
    labels: bool = True,
    pair_column: str = NONE,
    label_separator: str | None = None,
    numbers: bool = False,
    number_format: NumberFormat = "plain",
    trained: Sequence[str] | None = None,
) -> TextDataset:
    """Load a data set by name or path.

    Args:
        source: a key of ``NAMED_SOURCES`` or a path (see the top of this file).
        text_column, label_column: columns of a table; None: detect them by usual names, or by content
            (``find_columns`` of ``data/columns.py``).
        limit: maximum number of examples per split: a random sample, stratified by class, in file order.
        seed: seed of this sample.
        splits: load only these splits; other splits are not read.
        need_labels: raise an error for a table without a column of labels.
        on_bad_row: ``refuse`` raises an error for an unusable row; ``skip`` leaves it out and lists it.
        find_labels: whether to detect labels by content even if they are not needed.
        labels: whether to read the labels of tables; False: rows without a label are usable.
        pair_column: column of second texts; the rows become pairs. ``auto``: detect two columns of
            texts (``find_pair_columns`` of ``data/columns.py``). ``none``: a row has one text.
        label_separator: separator between labels in a multi-label cell; None: a cell is one label.
        numbers: whether to read the labels as ``float``; their column is detected by name or content.
        number_format: format of these numbers, see ``check_numbers``.
        trained: the text column (for pairs, both columns) on which a model was trained. It is used if the
            table has it and ``text_column`` is None; for pairs see ``columns_for_pair_model``. Empty: the
            model does not know the columns; None: the data are for training.

    Labels keep the type of the file: ``int`` if all are integers, otherwise ``str``; class names in a Parquet
    schema replace the numbers. Lists, and cells split at ``label_separator``, become ``LabelSet``.

    Raises:
        DataError: the data are unusable; the message has the file, the row and a fix.
    """
    check_source(source, limit, f"Give a path or one of: {', '.join(NAMED_SOURCES)}")
    rejected: list[RejectedRow] = []
    reader = _TextReader(
        text=text_column,
        label=label_column,
        need_labels=need_labels,
        rejected=rejected if on_bad_row == "skip" else None,
        find_labels=find_labels or need_labels,
        read_labels=labels,
        pair=pair_column,
        separator=label_separator,
        numbers=numbers,
        form=number_format,
        training_columns=None if trained is None else tuple(trained),
    )
    named_source = NAMED_SOURCES.get(str(source))
    if named_source is not None:
        dataset = named_source.load(named_source, reader, splits)
    else:
        dataset = _load_path(Path(source), reader, splits)
    if rejected:
        dataset = replace(dataset, rejected=tuple(rejected))
    return limit_examples(dataset, limit, seed)


Requested = Sequence[str] | None  # names of the splits to load; None: all


# --- labels -----------------------------------------------------------------------------------

is_canonical_integer = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch  # "12", "-3"; not "012", "+3", "3.0"


@dataclass(frozen=True)
class LabelReader:
    """Reads the labels in a column of a table."""

    separator: str | None = None  # between labels in a multi-label cell; None: a cell is one label or a list
    numbers: bool = False
    form: NumberFormat = "plain"  # format of numbers

    def checks(self, table: Table, label: str) -> dict[str, Callable]:
        """Column of labels -> function that raises an error for an invalid value."""
        if self.numbers:
            return {label: partial(check_numbers, form=self.form)}
        values, names = table.read(label), table.class_names.get(label, ())
        if self.separator is not None or is_multilabel(values):
            return {label: lambda values: check_sets(split_column(values, self.separator))}
        if not names or all(value == -1 for value in values):
            return {label: check_labels}
        return {label: lambda cells: [_class_name(item, names, table, 0) for item in check_labels(cells)]}

    def read(self, table: Table, label: str, class_names: Sequence[str] = ()) -> Sequence[Any]:
        """The labels of a table; numbers are replaced by class names if there are class names.

        If all numbers of a file with class names are -1, it is unlabeled, and the result is empty.

        Args:
            class_names: the class names of an earlier file, for a file without class names.
        """
        values, file_names = table.read(label), table.class_names.get(label, ())
        if self.numbers:
            return check_numbers(values, table.origin, table.rows, self.form)
        if self.separator is not None or is_multilabel(values):
            labels = check_sets(split_column(values, self.separator, label), table.origin, table.rows)
        elif file_names and all(value == -1 for value in values):
            return []
        else:
            labels = _single_labels(values if table.typed else [value.strip() for value in values], table)
        if file_names:
            return _named_labels(labels, file_names, table)
        return _name_classes(labels, class_names, table)


def _single_labels(values: Sequence[Any], table: Table) -> Sequence[Any]:
    """Check one label per row; errors also say if the labels do not look like classes."""
    try:
        return check_labels(values, table.origin, table.rows)
    except DataError as error:
        problem = find_label_problem(values)
        if problem is None or problem[0] in error.what:
            raise
        raise error.replace(what=f"{error.what}: {problem[0]}", fix=problem[1]) from None


def _name_classes(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> Sequence[Any]:
    """Replace the numbers in a file by the class names of an earlier file; names are returned unchanged.

    Raises:
        DataError: a number has no class name, or names and numbers are mixed; the message names the row.
    """
    all_labels = flat_labels(labels)
    numbers = {label: whole_number(label) for label in all_labels if label not in class_names}
    if not class_names or all(number is None for number in numbers.values()):
        return labels
    if {*numbers.values()} == {-1} and len(numbers) == len({*all_labels}):
        return []
    if all(whole_number(label) is not None for label in all_labels):
        numbers = {label: whole_number(label) for label in all_labels}
    return _named_labels(labels, class_names, table, numbers)


def _named_labels(
    labels: Sequence[Any], class_names: Sequence[str], table: Table, numbers: Mapping[Any, Any] | None = None
) -> list[Any]:
    """Replace numeric labels by class names.

    Args:
        numbers: label -> its number, for labels that are not integers.

    Raises:
        DataError: a number without a class name, or a class name that is invalid or occurs twice.
    """
    check_class_names(class_names, table.origin)

    def name(label: Any, row: int) -> str:
        return _class_name((numbers or {}).get(label, label), class_names, table, row)

    label_of_row = zip(table.rows, labels, strict=True)
    if is_multilabel(labels):
        return [LabelSet(sorted(name(label, row) for label in label_set)) for row, label_set in label_of_row]
    return [name(label, row) for row, label in label_of_row]


def _class_name(label: Any, class_names: Sequence[str], table: Table, row: int) -> str:
    if not isinstance(label, int) or not 0 <= label < len(class_names):
        fix = f"The file has class names for 0 to {len(class_names) - 1}: {', '.join(class_names)}"
        raise DataError(f"label {label!r} has no name", where=f"{table.origin}, row {row}", fix=fix)
    return class_names[label]


def _with_integer_labels(splits: Mapping[str, Any], untyped: set[str]) -> dict[str, Any]:
    """Convert labels of ``untyped`` splits (CSV files) to ``int`` if every text label is an integer."""
    out = dict(splits)
    for name, split in splits.items():
        texts = [label for label in flat_labels(split.labels) if isinstance(label, str)]
        if texts and (name not in untyped or not all(map(is_canonical_integer, texts))):
            return out
    for name in untyped & splits.keys():
        if (labels := splits[name].labels) is not None:
            multilabel = is_multilabel(labels)
            integers = [LabelSet(sorted({*map(int, x)})) if multilabel else int(x) for x in labels]
            out[name] = replace(splits[name], labels=integers)
    return out


# --- paths ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _TextReader(LabelReader):
    """Finds and reads the columns of a table; its fields are arguments of ``load_text_dataset``."""

    text: str | None
    label: str | None
    need_labels: bool
    rejected: list[RejectedRow] | None  # skipped rows; None: an unusable row raises an error
    find_labels: bool  # whether to detect labels by content
    read_labels: bool
    pair: str
    training_columns: tuple[str, ...] | None  # text columns in training

    def tables(self, paths: Sequence[Path]) -> list[Table]:
        """Read files, without ragged rows if skipping was requested."""
        return [lenient_table(path, self.rejected) for path in paths]

    def find_columns(self, table: Table, split: str, first: Columns | None) -> tuple[Table, Columns]:
        """A split's table and its columns; labels in several 0/1 columns become one column of lists.

        Columns are detected in the first split, usually ``train``. Later splits use the same columns.
        """
        if split == "unsupervised" and (first is None or first.pair is None):
            text = self.text or (first.text if first and first.text in table.names else None)
            names = tuple(n for n in table.names if n != self.label and n.lower() not in LABEL_COLUMNS)
            return table, find_columns(replace(table, names=names or table.names), text, None, labels=False)
        text, label, pair, pair_message = self.text, self.label, self.pair, ""
        if first is not None:
            text = text or (first.text if first.text in table.names else None)
            has_label = first.label in table.names or parse_columns(table.names, first.label)
            label = label or (first.label if has_label else None)
            pair = NONE if first.pair is None else first.pair
        elif self.training_columns is not None and len(self.training_columns) == 2:
            trained = self.training_columns
            text, pair, pair_message = columns_for_pair_model(table.names, text, pair, table.origin, trained)
        elif text is None and pair == NONE:
            text = next((name for name in self.training_columns or () if name in table.names), None)
        if self.numbers and split != "unsupervised" and label not in table.names:
            used = [name for name in (text, pair) if name is not None]
            label = find_number_column(table, self.label, used, self.form)
        options = {"labels": self.find_labels, "need_labels": self.need_labels}
        guess = any(options.values()) and not self.numbers and self.separator is None
        table, label, label_message = with_label_sets(table, label, (text, pair), guess=guess)
        columns = find_columns_of_pairs(table, text, label, pair, **options)
        columns = columns or find_columns(table, text, label, pairs=self.training_columns is None, **options)
        message = "; ".join(filter(None, (pair_message, label_message, columns.message)))
        return table, replace(columns, message=message, label=columns.label if self.read_labels else None)

    def usable_rows(self, table: Table, columns: Columns, rejected: list[RejectedRow]) -> Table:
        """The usable rows of a table; unusable rows are added to ``rejected``."""
        checks = columns.checks() | (self.checks(table, columns.label) if columns.label else {})
        return keep_usable_rows(table, columns.text, columns.label, rejected, checks)

    def missing_label_error(
        self, error: DataError, split: str, first: Columns | None, tables: dict[str, list[Table]]
    ) -> DataError:
        """A specific error if an earlier split has labels but this split has none; otherwise ``error``."""
        missing = tuple(f"there is no column {name!r}" for name in ("label", self.label) if name)
        first_split, first_tables = next(iter(tables.items()))
        if first is None or first.label is None or not self.need_labels:
            return error
        if first_split == split or not error.what.startswith(missing):
            return error
        is_one_file = len(first_tables) == 1
        training_files = first_tables[0].origin if is_one_file else f"the files of {first_split!r}"
        what = f"the split {split!r} has no labels: it lacks the column {first.label!r} of {first_split!r}"
        fix = f"Use only {training_files}, or move this file out of the folder, or add its labels"
        return NoSuchColumnError(what, where=error.where, fix=fix)


def _load_path(path: Path, reader: _TextReader, requested: Requested) -> TextDataset:
    path = path.expanduser()
    name, tables = path.stem, {"train": [path]}
    if path.is_dir():
        name, tables = path.name, folders.split_files(path)
    elif not path.exists() and path.suffix.lower() not in READERS:
        raise folders.no_source_error(path, NAMED_SOURCES)
    chosen: dict[str, Any] = choose_splits(tables or _find_text_files(path), requested, str(path))
    if not tables:
        splits = {name: _read_texts(name, files, path, reader.rejected) for name, files in chosen.items()}
    elif path.is_file() and is_plain(path):
        if reader.need_labels:
            fix = "Give a table (CSV, TSV, JSONL, Parquet), or write a text, a tab and its label "
            fix += "in every line"
            raise UnclearColumnError("the file has texts without labels", where=str(path), fix=fix)
        lines, rows = read_lines(path)
        checked = check_texts(lines, str(path), rows)
        splits = {split: TextSplit(checked, None, str(path), rows) for split in chosen}
    else:
        return _from_tables(name, chosen, reader)
    return TextDataset(name, splits, label_names(splits))


def _from_tables(name: str, files: dict[str, list[Path]], reader: _TextReader) -> TextDataset:
    tables = {split: reader.tables(paths) for split, paths in files.items()}
    splits: dict[str, TextSplit] = {}
    class_names: tuple[str, ...] = ()
    notes, first, amounts = [], None, []
    for split, split_tables in tables.items():
        texts: list[str] = []
        labels: list[Any] = []
        for i, table in enumerate(split_tables):
            try:
                table, columns = reader.find_columns(table, split, first)
            except DataError as error:
                raise reader.missing_label_error(error, split, first, tables) from None
            split_tables[i] = table
            first = first or (columns if split != "unsupervised" else None)
            filled = {"text_column": columns.text, "pair_column": columns.pair}
            if reader.separator is None:  # otherwise an empty cell means that no label applies
                filled["label_column"] = columns.label
            check_filled(table, filled)
            if reader.rejected is not None:
                table = split_tables[i] = reader.usable_rows(table, columns, reader.rejected)
            with hint_to_skip(reader.rejected, partial(reader.usable_rows, table, columns)):
                texts += columns.read(table)
                if columns.label is not None:
                    class_names = table.class_names.get(columns.label, class_names)
                    labels += reader.read(table, columns.label, class_names)
            if columns.label is None and split != "unsupervised":
                notes.append(f"{table.origin} has no labels (columns: {join_names(table.names)})")
            if columns.label is not None and reader.numbers:
                amounts.append(amounts_message(table.read(columns.label), reader.form))
        origin = folders.combined_origin(split_tables, len(texts), len(labels))
        splits[split] = TextSplit(texts, labels or None, *origin)
    untyped = {split for split, group in tables.items() if not any(table.typed for table in group)}
    if not reader.numbers:
        splits = _with_integer_labels(unify_spelling(splits), untyped)
    names = () if reader.numbers else class_names or label_names(splits)
    table_messages = dict.fromkeys(table.message for group in tables.values() for table in group)
    messages = tuple(filter(None, (*table_messages, first.message if first else "", *amounts)))
    dataset = TextDataset(name, splits, names, notes=tuple(notes), messages=messages)
    if first is None:
        return dataset
    dataset = replace(dataset, columns=(first.text, first.label), pair_column=first.pair)
    return replace(dataset, label_candidates=first.candidates, number_column=first.numbers)


# --- folders of texts -------------------------------------------------------------------------


def _find_text_files(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Split -> class -> its files: ``label/*.txt`` (one split, ``train``) or ``split/label/*.txt``.

    Hidden files and folders and those of other programs (``__MACOSX``) are ignored. A folder ``unsup`` among
    the classes, as in the original IMDb archive, becomes the split ``unsupervised``.
    """
    fix = "Put train.csv there, or one folder of .txt files for each class"
    split_paths = folders.split_folders(folder, "texts", fix) or {"train": folder}
    layout = {split: _class_files(path, folder) for split, path in split_paths.items()}
    for split, classes in list(layout.items()):
        for name in [n for n in classes if SPLIT_OF.get(n.lower()) == "unsupervised" and len(classes) > 1]:
            layout.setdefault("unsupervised", {})[f"{split}/{name}"] = classes.pop(name)
    return layout


def _read_texts(
    split: str, classes: dict[str, list[Path]], folder: Path, rejected: list[RejectedRow] | None = None
) -> TextSplit:
    """The texts of a split of ``_find_text_files``, sorted by class and name.

    Args:
        rejected: list to which skipped files are added; None: unusable files raise an error.
    """
    files = [(label, path) for label, paths in classes.items() for path in paths]
    if not files:
        fix = "Add .txt files, or move that folder elsewhere"
        raise MissingValueError(f"no .txt files for {split}", where=str(folder), fix=fix)
    texts, labels = [], []
    for label, path in files:
        try:
            texts += check_texts([read_utf8(path, MAX_TEXT)])
            labels.append(label)
        except DataError as error:
            if rejected is None:
                fix = join_fixes(error.fix, f"leave such files out with {SKIP}")
                where = error.where if error.where and str(path) in error.where else str(path)
                raise error.replace(where=where, fix=fix) from None
            rejected.append(RejectedRow(str(path), 1, error.what))
    if not texts:
        raise DataError(f"no file of {split} can be used", where=str(folder), fix="Correct the files")
    return TextSplit(texts, None if split == "unsupervised" or "" in classes else labels, str(folder))


def _class_files(folder: Path, data_folder: Path) -> dict[str, list[Path]]:
    """Class -> its .txt files, sorted by name; the only class of an unlabeled split is ``""``."""
    classes = {
        sub.name: sorted(p for p in sub.glob("*.txt") if p.is_file() and not is_system_file(p))
        for sub in folders.subfolders(folder)
    }
    check_class_names(list(classes), str(folder))
    if not classes:
        return {"": sorted(p for p in folder.glob("*.txt") if not is_system_file(p))}
    for name, files in classes.items():
        if not files:
            folders.check_no_tables(data_folder)
            if any(map(is_image_name, (folder / name).iterdir())):
                fix = "Give texts (.txt files or a table); images need an image model (--images)"
                raise WrongInputError("contains images, not texts", where=str(data_folder), fix=fix)
            fix = "Rename its files to *.txt, or move the folders of the classes into a separate folder"
            raise MissingValueError(f"class {name!r} has no .txt files", where=str(folder), fix=fix)
    return classes


# --- built-in data sets -----------------------------------------------------------------------


def _load_downloadable(source: NamedSource, reader: _TextReader, requested: Requested) -> TextDataset:
    folder = folders.find_local_folder(source.folder) if source.hub else folders.find_folder(source.folder)
    if folder is not None:
        files = folders.split_files(folder)
        if "train" not in files:
            fix = "Complete the folder, or set GLASSFORMER_DATA to another folder"
            raise DataError("there is no train.parquet", where=str(folder), fix=fix)
    else:
        remote = choose_splits(dict(source.files), requested, source.folder)
        files = {split: [_download(source, path)] for split, path in remote.items()}
    chosen = choose_splits(files, requested, source.folder)
    return source.describe(_from_tables(source.folder, chosen, reader))


def _download(source: NamedSource, path: str) -> Path:
    from huggingface_hub import constants, hf_hub_download

    offline_reason = None if constants.HF_HUB_OFFLINE else unreachable(constants.ENDPOINT)
    # Offline, the library would retry for half a minute.
    options: dict[str, Any] = {"local_files_only": True} if offline_reason else {}
    options |= {"repo_type": "dataset", "revision": source.revision}
    try:
        return Path(hf_hub_download(source.hub, path, **options))
    except Exception as error:  # network, proxy, disk and Hub errors have different exception types
        reason = offline_reason or (str(error).splitlines() or [type(error).__name__])[0]
        what = f"the data set {source.folder!r} is not on this machine and was not downloaded ({reason})"
        fix = f"Put its Parquet files into a folder {source.folder!r} and set GLASSFORMER_DATA to the parent "
        fix += "folder, or go online"
        raise NoSuchFileError(what, where=f"{source.hub} on the Hugging Face Hub", fix=fix) from error


def _load_sentences(source: NamedSource, reader: _TextReader, requested: Requested) -> TextDataset:
    """The sentences of a built-in data set of tagged words, as texts without labels."""
    splits, files = {}, folders.split_files(folders.find_folder(source.folder))
    for split, paths in choose_splits(files, requested, source.folder).items():
        tables = reader.tables(paths)
        texts = [" ".join(words) for table in tables for words in table.read("tokens")]
        splits[split] = TextSplit(texts, None, *folders.combined_origin(tables, len(texts), 0))
    return TextDataset(source.folder, splits, (), source.description, source.licence, source.notes)


def _load_composed(source: NamedSource, reader: _TextReader, requested: Requested) -> TextDataset:
    """Like ``_load_downloadable``, with texts in Unicode's composed form (NFC)."""
    dataset = _load_downloadable(source, reader, requested)
    splits = {k: replace(v, texts=[normalize("NFC", t) for t in v.texts]) for k, v in dataset.splits.items()}
    return replace(dataset, splits=splits)


def _generated(make: Callable[[], TextDataset]):
    """The loader of a data set that is generated by ``make``."""

    def load(source: NamedSource, reader: _TextReader, requested: Requested) -> TextDataset:
        dataset = make()
        splits = choose_splits(dataset.splits, requested, dataset.name)
        return source.describe(replace(dataset, splits=splits))

    return load


NAMED_SOURCES = {
    "europe": NamedSource(
        description="20,000 generated sentences on countries, capitals, currencies and families: "
        "does the sentence name France, Germany, Italy, Spain or the UK?",
        licence="as this package",
        load=_generated(corpus.europe),
        notes=("split by distinct sentence: no sentence is in two splits",),
        language="en",
    ),
    "messages": NamedSource(
        description="396 messages to an online shop, written for this project, in six intents: 8 of each for "
        "training, 348 for testing",
        licence="as this package",
        load=_generated(corpus.messages),
        language="en",
    ),
    "countries": NamedSource(
        description="20,000 generated sentences on ten countries, drawn uniformly, with capitals, currencies "
        "and families: for word vectors, without labels",
        licence="as this package",
        load=_generated(corpus.countries),
        notes=("every sentence is true; there are no traps",),
        language="en",
    ),
    "countries-given": NamedSource(
        description="20,000 sentences on ten countries from a course, or a generated substitute: does a "
        "sentence name france, germany, italy, spain or uk (1) or not (0)?",
        licence="the file: none stated; the substitute: as this package",
        load=_generated(lambda: country_corpus.corpus(folders.find_data_file(country_corpus.FILE))),
        notes=("split by distinct sentence: no sentence is in two splits",),
        language="en",
    ),
    "imdb": NamedSource(
        description="Large Movie Review Dataset (Maas et al. 2011): 25,000 + 25,000 film reviews, "
        "positive or negative, and 50,000 unlabeled ones",
        licence="no formal license; free to use with citation, the reviews remain their authors'",
        load=_load_downloadable,
        notes=("sorted by class", "123 distinct texts are in train and in test"),
        folder="imdb",
        hub="stanfordnlp/imdb",
        revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
        files=(
            ("train", "plain_text/train-00000-of-00001.parquet"),
            ("test", "plain_text/test-00000-of-00001.parquet"),
            ("unsupervised", "plain_text/unsupervised-00000-of-00001.parquet"),
        ),
        language="en",
    ),
    "sick": NamedSource(
        description="SICK (Marelli et al. 2014): 4,500 + 500 + 4,927 pairs of sentences: does the second "
        "follow from the first, contradict it, or neither?",
        licence="CC BY-NC-SA 3.0: for evaluation only",
        load=_load_downloadable,
        notes=("most sentences are in several pairs, and in several splits", "sorted by sentence"),
        folder="sick",
    ),
    "ntc-scv": NamedSource(
        description="NTC-SCV: 30,000 + 10,000 + 10,000 Vietnamese restaurant reviews, negative (0) or "
        "positive (1)",
        licence="Apache-2.0 (congnghia0609/ntc-scv)",
        load=_load_composed,
        notes=(
            "word-segmented: the syllables of a word are joined by '_'; clean = 'syllables' separates them, "
            "so that the model also reads plain text",
            "every text is converted to Unicode's composed form (NFC)",
            "16 distinct texts are in two splits",
        ),
        folder="ntc-scv",
        language="vi",
    ),
    "goemotions": NamedSource(
        description="GoEmotions (Demszky et al. 2020): 43,410 + 5,426 + 5,427 comments from Reddit with "
        "one or several of 27 emotions, or neutral",
        licence="Apache-2.0",
        load=_load_downloadable,
        notes=("multi-label", "83 distinct texts are in two splits"),
        folder="goemotions",
        hub="google-research-datasets/go_emotions",
        revision="add492243ff905527e67aeb8b80c082af02207c3",
        files=(
            ("train", "simplified/train-00000-of-00001.parquet"),
            ("validation", "simplified/validation-00000-of-00001.parquet"),
            ("test", "simplified/test-00000-of-00001.parquet"),
        ),
    ),
    "wnut17": NamedSource(
        description="WNUT 2017 (Derczynski et al.): 3,394 + 1,009 + 1,287 posts and comments whose words are "
        "tagged with persons, locations, corporations, products, creative works and groups",
        licence="CC BY 4.0",
        load=_load_sentences,
        notes=("training, validation and test are from different years and places, to test new names",),
        folder="wnut17",
        tagged=True,
    ),
}
