"""Load translation pairs, and pairs of texts with similarity scores.

The source is a built-in data set (translations: ``multi30k``; similar texts: ``stsb``) or a path. A path is a
table (CSV, TSV, JSONL, Parquet), which becomes the split ``train``, or a folder with one table per split.
Translations may also be two plain files with one sentence per line. The source is then the stem that both
files share: ``corpus`` for ``corpus.en`` and ``corpus.de``, or a folder with ``train.en`` and ``train.de``. A
similarity score is a number on any scale. Pairs without scores are all positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from glassformer.config import join_names, suggest
from glassformer.data.checks import check_cells, check_texts, is_missing
from glassformer.data.column_contents import mean_text_length
from glassformer.data.columns import COMPARED_COLUMNS
from glassformer.data.dataset import SPLIT_OF, SPLITS, Dataset, NamedSource, Split, choose_splits
from glassformer.data.files import read_utf8, split_lines
from glassformer.data.folders import check_one_file_or_shards, find_folder, find_split_files, split_files
from glassformer.data.label_kinds import is_number
from glassformer.data.rejected import (
    RejectedRow,
    Row,
    check_filled,
    check_source,
    lenient_table,
    read_examples,
)
from glassformer.data.splits import limit_examples
from glassformer.data.tables import READERS, Table, ignore_error, read_table
from glassformer.errors import (
    DataError,
    MissingValueError,
    NoSuchColumnError,
    NotANumberError,
    UnclearColumnError,
    UnequalLengthsError,
)

EmptySides = Literal["refuse", "keep", "skip"]  # what to do if one of the two texts is missing
SOURCE_NAMES, TARGET_NAMES = ("source", "src"), ("target", "tgt", "translation")  # usual names of columns
SOURCE_COLUMNS = (*SOURCE_NAMES, "en", "english")
TARGET_COLUMNS = (*TARGET_NAMES, "de", "german")


@dataclass(frozen=True)
class PairSplit(Split):
    """Texts and their translations, in file order."""

    SHUFFLED = True

    source: list[str]
    target: list[str]
    origin: str  # file, for messages
    rows: Sequence[int] | None = None


PAIR_SOURCES = {
    "multi30k": NamedSource(
        "Multi30k (Elliott et al., 2016): 29,000 + 1,014 + 1,000 captions of images in English, German, "
        "French and Czech; the test split is test_2016_flickr",
        "no license file; research use with citation",
        folder="multi30k",
        columns=("en", "de", "fr", "cs"),
    )
}


def check_translations(
    source: Sequence[str], target: Sequence[str], where: str = "fit"
) -> tuple[list[str], list[str]]:
    """The source texts and their translations as lists of strings.

    Raises:
        DataError: a text is missing, empty or not a string (the error has its index), or the lengths differ.
    """
    if target is None:
        raise MissingValueError("the target is missing", where=where, fix="Give source and target texts")
    sources, targets = check_texts(source, "source"), check_texts(target, "target")
    if len(sources) != len(targets):
        what = f"{len(sources)} source texts but {len(targets)} target texts"
        fix = "Give one target text for each source text, in the same order"
        raise UnequalLengthsError(what, where=where, fix=fix)
    return sources, targets


def load_pairs(
    source: str | Path,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    keep_empty: bool = False,
    on_bad_row: str = "refuse",
) -> Dataset:
    """Load a data set of translations by name or path (see the module docstring).

    Args:
        source_column, target_column: columns of a table; None: detect them by usual names, otherwise use the
            only two columns of texts.
        limit: maximum number of pairs per split: a random sample with ``seed``, in file order.
        keep_empty: for the data doctor: keep a missing text as an empty text, and list ragged rows, instead
            of raising an error.
        on_bad_row: ``skip`` leaves out and lists unusable pairs; ``refuse`` raises an error.

    Raises:
        DataError: the data set, file or column does not exist; a text is missing; or files differ in length.
    """
    check_source(source, limit, f"Give a path or: {', '.join(PAIR_SOURCES)}", "pairs")
    named = PAIR_SOURCES.get(str(source))
    path = _folder_of_source(named) if named else Path(source).expanduser()
    empty_sides: EmptySides = "skip" if on_bad_row == "skip" else "keep" if keep_empty else "refuse"
    rejected: list[RejectedRow] = []
    columns = source_column or "en", target_column or "de"
    files = find_parallel_files(path, *columns)
    is_parallel = bool(files)
    if not is_parallel and path.is_file() and path.suffix.lower() not in READERS:
        raise DataError("is not a table of pairs", where=str(path), fix=_fix_parallel_files(path))
    files = files or find_split_files(path, [*PAIR_SOURCES])

    def read(file: Path) -> Iterable[Row]:
        nonlocal columns
        if is_parallel:
            return _line_pairs(file, columns, empty_sides)
        table = lenient_table(file, None if empty_sides == "refuse" else rejected)
        columns = find_translation_columns(table, source_column, target_column)
        if not keep_empty:
            check_filled(table, dict(zip(("source_column", "target_column"), columns, strict=True)))
        return _table_pairs(table, columns, empty_sides)

    splits: dict[str, PairSplit] = {}
    for name, paths in choose_splits(files, None, str(path)).items():
        pairs, origin, rows = read_examples(paths, read, rejected if empty_sides == "skip" else None, "pair")
        sources, targets = map(list, zip(*pairs, strict=True))
        splits[name] = PairSplit(sources, targets, origin, rows if len(paths) == 1 else None)
    name, description = (str(source), named.description) if named else (path.stem, "")
    dataset = Dataset(name, splits, description=description, rejected=tuple(rejected), columns=columns)
    return limit_examples(dataset, limit, seed)


def _folder_of_source(named: NamedSource) -> Path:
    columns = f" with columns {', '.join(named.columns)}" if named.columns else ""
    return find_folder(named.folder, files=f"train.parquet, validation.parquet and test.parquet{columns}")


def _table_pairs(table: Table, columns: tuple[str, str], empty_sides: EmptySides) -> Iterable[Row]:
    prefixes = [f"column {column!r}: " for column in columns]
    for *sides, row in zip(*map(table.read, columns), table.rows, strict=True):
        where = f"{table.origin}, row {row}"
        yield partial(_check_pair, [*zip(sides, prefixes, (where, where), strict=True)], empty_sides), row


def _check_pair(sides: Sequence[tuple[Any, str, str]], empty_sides: EmptySides) -> list[str]:
    """Check both texts of a pair, and return them.

    Args:
        sides: for each text: the text, a prefix for error messages, and its location.
    """
    texts = []
    for text, prefix, where in sides:
        is_empty = text is None or text == "" or str(text).isspace()
        if is_empty and empty_sides == "skip":
            raise MissingValueError("a text of the pair is empty", fix="Give both texts of each pair")
        try:
            texts.append("" if is_empty and empty_sides == "keep" else check_cells([text])[0])
        except DataError as error:
            what = error.what if empty_sides == "skip" else f"{prefix}{error.what}"
            raise error.replace(what=what, where=where) from None
    return texts


def _fix_parallel_files(path: Path) -> str:
    """The fix if ``path`` is a plain text file: how to name it together with the file of its translations."""
    suffix = path.suffix.lstrip(".") or "en"
    stem = path.with_suffix("")
    others = [p.suffix.lstrip(".") for p in sorted(path.parent.glob(f"{stem.name}.*")) if p != path]
    other = "en" if suffix == "de" else "de"
    if len(others) == 1 and others[0]:
        other = others[0]
    source, target = (other, suffix) if suffix == "de" else (suffix, other)
    is_default = (source, target) == ("en", "de")
    settings = "" if is_default else f" with source_column={source} and target_column={target}"
    files = f"{stem.name}.{source} and {stem.name}.{target}"
    fix = f"For two plain files with one sentence per line, {files}, give the common stem {stem}{settings}"
    return f"{fix}; or give a table with two columns: {', '.join(READERS)}"


def find_translation_columns(table: Table, source: str | None, target: str | None) -> tuple[str, str]:
    """The columns of source and target texts.

    Raises:
        DataError: a column does not exist, or cannot be detected.
    """
    table.check_columns(source or None, target or None)
    if source is not None and source == target:
        what = f"{source!r} is named both as the source and as the target column"
        raise UnclearColumnError(what, where=table.origin, fix="Name two columns")
    if len(table.names) == 2 and source is None and target is None:
        first, second = table.names
        is_reversed = first.lower() in TARGET_NAMES or second.lower() in SOURCE_NAMES
        return (second, first) if is_reversed else (first, second)
    candidates = [name for name in table.names if name not in (source, target)]
    columns = []
    for requested, usual in ((source, SOURCE_COLUMNS), (target, TARGET_COLUMNS)):
        matches = [name for name in candidates if name.lower() in usual]
        columns.append(requested or (matches[0] if len(matches) == 1 else None))
    unmatched = [name for name in candidates if name not in columns]
    if len(unmatched) != columns.count(None):
        unmatched = [name for name in unmatched if None in columns and any(map(_is_text, table.read(name)))]
    if len(unmatched) == columns.count(None):  # no other columns are possible
        columns = [name or unmatched.pop(0) for name in columns]
    if len(table.names) == 1:
        what = f"the second text is missing: {table.names[0]!r} is the only column"
        raise UnclearColumnError(what, where=table.origin, fix="Put text and translation into two columns")
    if columns[0] is None or columns[1] is None:
        fix = f"Name them with source_column and target_column: {join_names(table.names)}"
        what = "two columns are expected, a text and its translation"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    return columns[0], columns[1]


def column_names(source: str | Path) -> set[str] | None:
    """The lower-case column names of a table, or of the first table in a folder; None for plain files."""
    file = _first_table(Path(source).expanduser())
    return {name.lower() for name in read_table(file, ignore_error).names} if file.is_file() else None


def _first_table(path: Path) -> Path:
    """The first table in a folder; any other path unchanged."""
    return next((files[0] for files in split_files(path).values()), path) if path.is_dir() else path


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and bool(cell.strip()) and not is_number(cell)


def columns_of_other_data(
    source: str | Path, columns: tuple[str | None, str | None], explicit: Sequence[str | None] = ()
) -> tuple[str | None, str | None]:
    """The source and target columns of data that are not the recipe's own.

    If the data lack a column of the recipe, the column is detected. For plain files and missing files
    ``columns`` are returned unchanged, and ``load_pairs`` reports the problem.

    Args:
        columns: the columns of the recipe.
        explicit: names of columns that the user has set; they are not replaced.

    Raises:
        DataError: see ``find_translation_columns``.
    """
    named = PAIR_SOURCES.get(str(source))
    file = _first_table(_folder_of_source(named) if named else Path(source).expanduser())
    if file.suffix.lower() not in READERS or not file.is_file():
        return columns
    table = read_table(file)
    source_column, target_column = [n if n in table.names or n in explicit else None for n in columns]
    return find_translation_columns(table, source_column, target_column)


# --- plain files ------------------------------------------------------------------------------


def find_parallel_files(path: Path, left: str = "en", right: str = "de") -> dict[str, list[Path]]:
    """Split -> a list with ``NAME.en``, if ``NAME.de`` exists, too; empty if there are no such files.

    Args:
        left, right: the extensions of the source and target files, without a dot.

    Raises:
        DataError: only one of the two files exists, or there are two pairs of files for one split.
    """
    stems = {"train": path}
    if path.is_dir():
        names = {p.stem for p in path.glob(f"*.{left}")} | {p.stem for p in path.glob(f"*.{right}")}
        by_split: dict[str, list[Path]] = {}
        for name in sorted(names):
            if split := SPLIT_OF.get(name.lower()):
                by_split.setdefault(split, []).append(path / name)
        check_one_file_or_shards(by_split, path)
        stems = {name: by_split[name][0] for name in SPLITS if name in by_split}
    left_files = {}
    for split, stem in stems.items():
        files = [stem.with_name(f"{stem.name}.{end}") for end in (left, right)]
        missing = [file for file in files if not file.is_file()]
        if len(missing) == 2:
            return {}
        if missing:
            existing = files[1] if missing[0] == files[0] else files[0]
            what = f"the second file of the pair, {missing[0].name}, is missing"
            raise DataError(what, where=str(existing), fix="Put both files into the same folder")
        left_files[split] = files[:1]
    return left_files


def _line_pairs(left: Path, suffixes: tuple[str, str], empty_sides: EmptySides) -> Iterable[Row]:
    right = left.with_name(left.name.removesuffix(suffixes[0]) + suffixes[1])
    sides = [split_lines(read_utf8(file)) for file in (left, right)]
    if len(sides[0]) != len(sides[1]):
        fix = "Each line must be the translation of the same line in the other file"
        what = f"{len(sides[0])} lines, but {right.name} has {len(sides[1])}"
        raise UnequalLengthsError(what, where=str(left), fix=fix)
    for row, (a, b) in enumerate(zip(*sides, strict=True), 1):
        pair = [(a, "", f"{left}, row {row}"), (b, "", f"{right}, row {row}")]
        yield partial(_check_pair, pair, empty_sides), row


SCORE_COLUMNS = ("score", "similarity", "relatedness", "similarity_score", "is_duplicate", "label")
AUTO = "auto"  # detect the column of scores by its name, or by its numbers
SCORED_SETTINGS = ("--set first=NAME", "--set second=NAME", "--set score=NAME")
NO_SCORES = "none"  # None in a recipe, since TOML has no null


@dataclass(frozen=True)
class ScoredSplit(Split):
    """Pairs in file order; ``scores`` is None if all pairs are positive."""

    SHUFFLED = True

    first: list[str]
    second: list[str]
    scores: list[float] | None
    origin: str  # file, for messages
    rows: Sequence[int] | None = None

    @property
    def source(self) -> list[str]:
        """The first texts, by which ``copy_keys`` recognizes copies."""
        return self.first


SCORED_SOURCES = {
    "stsb": NamedSource(
        "STS Benchmark (Cer et al., 2017): 5,749 + 1,500 + 1,379 pairs of English sentences with a "
        "similarity from 0 to 5",
        "CC BY-SA 4.0 and others, see its page",
        folder="stsb",
    )
}


def load_scored_pairs(
    source: str | Path,
    *,
    first: str | None = None,
    second: str | None = None,
    score: str | None = AUTO,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "refuse",
) -> Dataset:
    """Load a data set of text pairs with similarity scores, by name or path (see the module docstring).

    Args:
        first, second: columns of a table; None: detect them by usual names, or as the two columns of texts.
        score: column of the scores; ``"auto"`` detects it; None or ``"none"``: all pairs are positive.
        limit: maximum number of pairs per split: a random sample with ``seed``, in file order.
        on_bad_row: ``skip`` leaves out and lists unusable rows; ``refuse`` raises an error.

    Raises:
        DataError: the data set, file or column does not exist, or a row is unusable.
    """
    check_source(source, limit, f"Give a path or: {', '.join(SCORED_SOURCES)}", "pairs")
    score = None if score == NO_SCORES else score
    named = SCORED_SOURCES.get(str(source))
    path = _folder_of_source(named) if named else Path(source).expanduser()
    rejected: list[RejectedRow] | None = [] if on_bad_row == "skip" else None
    columns: tuple[str, str, str | None] | None = None

    def read(file: Path) -> Iterator[Row]:
        nonlocal columns
        table = lenient_table(file, rejected)
        columns = columns or find_scored_columns(table, first, second, score)
        check_filled(table, dict(zip(SCORED_SETTINGS, columns, strict=True)))
        return _scored_pairs(table, columns)

    splits: dict[str, ScoredSplit] = {}
    for name, files in choose_splits(find_split_files(path, [*SCORED_SOURCES]), None, str(path)).items():
        pairs, origin, rows = read_examples(files, read, rejected, "pair")
        a, b, scores = map(list, zip(*pairs, strict=True))
        has_scores = columns is not None and columns[2] is not None
        rows = rows if len(files) == 1 else None
        splits[name] = ScoredSplit(a, b, scores if has_scores else None, origin, rows)
    dataset = Dataset(path.stem, splits, rejected=tuple(rejected or ()), columns=columns or ())
    return limit_examples(named.describe(dataset) if named else dataset, limit, seed)


def _scored_pairs(table: Table, columns: tuple[str, str, str | None]) -> Iterator[Row]:
    if missing := [name for name in columns if name is not None and name not in table.names]:
        what = f"no column {missing[0]!r}, which the first table has"
        raise NoSuchColumnError(what, where=table.origin, fix=suggest(missing[0], table.names))
    values = [[None] * len(table.rows) if name is None else table.read(name) for name in columns]

    def pair(first: Any, second: Any, score: Any, row: int) -> tuple[str, str, float | None]:
        a, b = (check_texts([text], table.origin, [row])[0] for text in (first, second))
        return a, b, None if columns[2] is None else _check_score(score, f"{table.origin}, row {row}")

    for *cells, row in zip(*values, table.rows, strict=True):
        yield partial(pair, *cells, row), row


def find_scored_columns(
    table: Table, first: str | None, second: str | None, score: str | None
) -> tuple[str, str, str | None]:
    """The columns of both texts and of the score.

    Raises:
        DataError: a column does not exist or cannot be detected.
    """
    table.check_columns(first, second, None if score == AUTO else score)
    if first is None or second is None:
        first, second = _detect_text_columns(table, first, second)
    if first == second:
        what = f"column {first!r} is used both as the first text and as the second"
        raise UnclearColumnError(what, where=table.origin, fix=_fix_text_columns(table))
    if score in (first, second):
        what = f"column {score!r} is used both as a text and as the score"
        fix = "Name another column with --set score=NAME, or use --set score=none"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    return first, second, _detect_score(table, first, second) if score == AUTO else score


def _detect_text_columns(table: Table, first: str | None, second: str | None) -> tuple[str, str]:
    by_name = {name.lower(): name for name in reversed(table.names)}
    for a, b in COMPARED_COLUMNS:
        if a in by_name and b in by_name:
            pair = first or by_name[a], second or by_name[b]
            if pair[0] != pair[1]:
                return pair
    candidates = [name for name in table.names if name not in (first, second)]
    texts = [name for name in candidates if mean_text_length(table.read(name)) is not None]
    missing = (first is None) + (second is None)
    if len(texts) != missing:
        number = f"{len(texts)} columns have texts" if len(texts) != 1 else f"only {texts[0]!r} has texts"
        what = f"two columns of texts are expected, but {number}"
        raise UnclearColumnError(what, where=table.origin, fix=_fix_text_columns(table))
    return first or texts.pop(0), second or texts.pop(0)


def _fix_text_columns(table: Table) -> str:
    if len(table.names) < 2:
        return "Add a column with the second text of each row"
    return f"Name two columns with --set first=NAME --set second=NAME: {join_names(table.names)}"


def _detect_score(table: Table, first: str, second: str) -> str | None:
    candidates = [name for name in table.names if name not in (first, second)]
    by_name = next((name for usual in SCORE_COLUMNS for name in candidates if name.lower() == usual), None)
    if by_name is not None:
        return by_name
    cells = {name: [v for v in table.read(name) if not is_missing(v)] for name in candidates}
    numbers = [name for name, values in cells.items() if values and all(map(is_number, values))]
    if len(numbers) > 1:
        what = f"several columns could be the score: {join_names(numbers)}"
        fix = "Name it with --set score=NAME, or use score=none"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    return numbers[0] if numbers else None


def _check_score(value: Any, where: str) -> float:
    """The score as a number; raise DataError if it is missing, infinite or not a number."""
    number = float(value) if is_number(value) else math.nan
    if not math.isfinite(number):
        shown = "is missing" if is_missing(value) else f"{str(value)[:40]!r} is not a number"
        fix = "Give one number for each pair: how similar its texts are, on any scale"
        raise NotANumberError(f"the score {shown}", where=where, fix=fix)
    return number
