"""Pairs of texts: a sentence and its translation, by name (``multi30k``) or from any file of two columns.

A path is a table (CSV, TSV, JSONL, Parquet), a folder with one table a split, or a pair of plain files of one
sentence a line, named by what they share: ``corpus`` with ``corpus.en`` and ``corpus.de`` beside it, or
a folder with ``train.en`` and ``train.de``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer.config import listed, nearest
from glassformer.data.checks import check_cells, check_texts
from glassformer.data.dataset import SPLIT_OF, SPLITS, Split, choose_splits
from glassformer.data.files import pass_over, read_utf8, split_lines
from glassformer.data.folders import one_or_parts, refuse_tables
from glassformer.data.rejected import RejectedRow, lenient_table
from glassformer.data.sources import data_folders, split_files
from glassformer.data.splits import limited
from glassformer.data.tables import READERS, Table, read_table
from glassformer.errors import DataError

# --- one side of pairs ----------------------------------------------------------------------------
#
# Its texts checked, kept with gaps, or what cannot be used marked to be left out.


Gaps = Literal["refuse", "keep", "skip"]


class Unusable(str):
    """An empty text in the place of one that cannot be used, and why."""

    reason: str

    @staticmethod
    def of(text: Any) -> str:
        """The text, or its place where it is none."""
        try:
            return check_cells([text])[0]
        except DataError as error:
            place = Unusable()
            place.reason = error.what
            return place


def checked_side(texts: Sequence[Any], origin: str, rows: Sequence[int], gaps: Gaps) -> list[str]:
    """The texts of a side.

    Args:
        gaps: ``keep``: what is empty becomes an empty text; ``skip``: so does all that cannot be used.

    Raises:
        DataError: a text that cannot be used; with ``keep`` one that is not empty.
    """
    if gaps == "refuse":
        return check_texts(texts, origin, rows)
    texts = ["" if text is None or text == "" or str(text).isspace() else text for text in texts]
    if gaps == "skip":
        return [text if text == "" else Unusable.of(text) for text in texts]
    there = [i for i, text in enumerate(texts) if text != ""]
    if there:
        check_texts([texts[i] for i in there], origin, [rows[i] for i in there])
    return texts


# --- splits of pairs ------------------------------------------------------------------------------


SOURCE_NAMES, TARGET_NAMES = ("source", "src"), ("target", "tgt", "translation")  # they say which side it is
SOURCE_COLUMNS = (*SOURCE_NAMES, "en", "english")
TARGET_COLUMNS = (*TARGET_NAMES, "de", "german")


@dataclass(frozen=True)
class PairSplit(Split):
    """Texts and their translations in file order."""

    SHUFFLED = True

    source: list[str]
    target: list[str]
    origin: str  # file, for messages
    rows: Sequence[int] | None = None


@dataclass(frozen=True)
class PairDataset:
    """The splits of one data set, among ``train``, ``validation`` and ``test``, and its columns' names."""

    name: str
    splits: dict[str, PairSplit]
    columns: tuple[str, str]
    description: str = ""
    rejected: tuple[RejectedRow, ...] = ()  # rows left out


@dataclass(frozen=True)
class PairSource:
    """A named data set of pairs."""

    description: str
    licence: str
    folder: str  # below a data folder
    columns: tuple[str, ...]  # the languages that it has


PAIR_SOURCES = {
    "multi30k": PairSource(
        "Multi30k (Elliott et al., 2016): 29,000 + 1,014 + 1,000 captions of pictures in English, German, "
        "French and Czech; the test split is test_2016_flickr",
        "no licence file; research use with citation",
        "multi30k",
        ("en", "de", "fr", "cs"),
    ),
}


def check_both(
    source: Sequence[str], target: Sequence[str], where: str = "fit"
) -> tuple[list[str], list[str]]:
    """Both sides as lists of strings.

    Raises:
        DataError: a missing, empty or wrongly typed text on a side (place named), or unequal numbers.
    """
    if target is None:
        raise DataError("the target side is missing", where=where, fix="Give source and target texts")
    left, right = check_texts(source, "source"), check_texts(target, "target")
    if len(left) != len(right):
        raise DataError(
            f"{len(left)} source texts but {len(right)} target texts",
            where=where,
            fix="Text i of one side is the translation of text i of the other",
        )
    return left, right


def load_pairs(
    source: str | Path,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    keep_empty: bool = False,
    on_bad_row: str = "refuse",
) -> PairDataset:
    """A data set of pairs by name or path (see the top of this file).

    Args:
        source_column, target_column: columns of a table; None finds them by their usual names, or takes the
            first and the second of two that hold texts.
        limit: at most this many pairs of every split, drawn with ``seed``, file order kept.
        keep_empty: a missing or empty side is kept as an empty text instead of refused, to be looked at;
            rows that are ragged are listed, not refused.
        on_bad_row: ``skip`` leaves out and lists pairs that cannot be used; ``refuse`` ends at the first.

    Raises:
        DataError: no such data set, file or column, a missing side (file and row named), unequal files.
    """
    if limit is not None and limit < 1:
        raise DataError(f"{limit} pairs a split", where="limit", fix="Give 1 or more")
    if not str(source):
        raise DataError(
            "no data set is named", where="source", fix=f"Give a path or: {', '.join(PAIR_SOURCES)}"
        )
    description = ""
    if str(source) in PAIR_SOURCES:
        known = PAIR_SOURCES[str(source)]
        path, description = _named_folder(known), known.description
    else:
        path = Path(source).expanduser()
    gaps: Gaps = "skip" if on_bad_row == "skip" else "keep" if keep_empty else "refuse"
    rejected: list[RejectedRow] = []
    plain = plain_files(path, source_column, target_column, gaps)
    if plain is not None:
        splits, columns = plain
    else:
        splits, columns = _from_tables(path, source_column, target_column, gaps, rejected)
    if on_bad_row == "skip":
        splits = {name: _whole(split, rejected) for name, split in splits.items()}
    if limit is not None:
        splits = {name: limited(split, limit, seed) for name, split in splits.items()}
    name = str(source) if description else path.stem
    return PairDataset(name, splits, columns, description, tuple(rejected))


def _whole(split: PairSplit, rejected: list[RejectedRow]) -> PairSplit:
    """The pairs with two sides; the others are added to ``rejected``.

    Raises:
        DataError: none is left.
    """
    good = [i for i, sides in enumerate(zip(split.source, split.target, strict=True)) if all(sides)]
    bad = {}
    for i in sorted({*range(len(split))} - {*good}):
        sides = split.source[i], split.target[i]
        bad[i] = next((side.reason for side in sides if isinstance(side, Unusable)), "a side is empty")
    if not good:
        what = f"no pair can be used; the first: {next(iter(bad.values()), 'there is none')}"
        raise DataError(what, where=split.origin, fix="Give both sides of each")
    for i, reason in bad.items():
        row = i + 1 if split.rows is None else split.rows[i]
        rejected.append(RejectedRow(split.origin, row, reason))
    return split if len(good) == len(split) else split.select(good)


def _named_folder(known: PairSource) -> Path:
    for root in data_folders():
        if (root / known.folder).is_dir():
            return root / known.folder
    raise DataError(
        f"the data set {known.folder!r} is not on this machine",
        where=known.folder,
        fix=f"Put train.parquet, validation.parquet and test.parquet with columns {', '.join(known.columns)} "
        f"into a folder {known.folder!r} and set GLASSFORMER_DATA to the folder around it",
    )


# --- tables -----------------------------------------------------------------------------------


def _from_tables(
    path: Path,
    source_column: str | None,
    target_column: str | None,
    gaps: Gaps,
    rejected: list[RejectedRow],
) -> tuple[dict[str, PairSplit], tuple[str, str]]:
    if path.is_dir():
        files = split_files(path)
        if not files:
            refuse_tables(path)
            raise DataError("no table named train, validation or test", where=str(path))
    elif path.suffix.lower() in READERS:
        files = {"train": [path]}
    elif path.exists():
        raise DataError("is no table of pairs", where=str(path), fix=_both_sides(path))
    else:
        hint = nearest(str(path), list(PAIR_SOURCES))
        raise DataError(
            f"no file, folder or named data set of pairs {str(path)!r}", fix=f"Check the path. {hint}"
        )
    splits, columns = {}, ("", "")
    for name, parts in choose_splits(files, None, str(path)).items():
        left: list[str] = []
        right: list[str] = []
        tables = [lenient_table(part, None if gaps == "refuse" else rejected) for part in parts]
        for table in tables:
            columns = find_columns(table, source_column, target_column)
            left += _side(table, columns[0], gaps)
            right += _side(table, columns[1], gaps)
        rows = tables[0].rows if len(tables) == 1 else None
        splits[name] = PairSplit(left, right, " + ".join(t.origin for t in tables), rows)
    return splits, columns


def _both_sides(path: Path) -> str:
    """How a file of one side is named together with the other."""
    end = path.suffix.lstrip(".") or "en"
    stem = path.with_suffix("")
    there = [p.suffix.lstrip(".") for p in sorted(path.parent.glob(f"{stem.name}.*")) if p != path]
    other = there[0] if len(there) == 1 and there[0] else "de" if end != "de" else "en"
    left, right = (other, end) if end == "de" else (end, other)
    how = "" if (left, right) == ("en", "de") else f", with source_column={left} and target_column={right}"
    return (
        f"Of two plain files of one sentence a line, name what both share: {stem}{how}, for "
        f"{stem.name}.{left} and {stem.name}.{right}; or a table with a column for each side: "
        f"{', '.join(READERS)}"
    )


def _side(table: Table, column: str, gaps: Gaps) -> list[str]:
    try:
        return checked_side(table.read(column), table.origin, table.rows, gaps)
    except DataError as error:
        fix = f"{error.fix or 'Correct it'}, or leave such rows out with on_bad_row=skip"
        raise DataError(f"column {column!r}: {error.what}", where=error.where, fix=fix) from None


def find_columns(table: Table, source: str | None, target: str | None) -> tuple[str, str]:
    """The two columns of a table.

    Raises:
        DataError: a column that is not there, one column only, or more of them and none with a usual name.
    """
    for wanted in filter(None, (source, target)):
        if wanted not in table.names:
            raise DataError(f"no column {wanted!r}", where=table.origin, fix=nearest(wanted, table.names))
    if source is not None and source == target:
        raise DataError(f"{source!r} is both sides", where=table.origin, fix="Name two columns")
    if len(table.names) == 2 and source is None and target is None:
        first, second = table.names  # as they stand, unless the names say which is which: a language does not
        turned = first.lower() in TARGET_NAMES or second.lower() in SOURCE_NAMES
        return (second, first) if turned else (first, second)
    free = [name for name in table.names if name not in (source, target)]
    found = []
    for wanted, usual in ((source, SOURCE_COLUMNS), (target, TARGET_COLUMNS)):
        by_name = [name for name in free if name.lower() in usual]
        found.append(wanted or (by_name[0] if len(by_name) == 1 else None))
    rest = [name for name in free if name not in found]
    if len(rest) != found.count(None):
        rest = [name for name in rest if _holds_texts(table, name)] if None in found else []
    if len(rest) == found.count(None):  # the only ones that it can be, in their order
        found = [name or rest.pop(0) for name in found]
    if len(table.names) == 1:
        what = f"a side is missing: {table.names[0]!r} is the only column"
        raise DataError(what, where=table.origin, fix="Put text and translation into two columns")
    if found[0] is None or found[1] is None:
        raise DataError(
            "two columns are wanted, a text and its translation",
            where=table.origin,
            fix=f"Name them with source_column and target_column: {listed(table.names)}",
        )
    return found[0], found[1]


def columns_in(source: str | Path) -> set[str] | None:
    """The names of the columns of a table, or of the first of a folder, in lower case; None: plain files."""
    path = Path(source).expanduser()
    if path.is_dir():
        path = next((parts[0] for parts in split_files(path).values()), path)
    return {name.lower() for name in read_table(path, pass_over).names} if path.is_file() else None


def _holds_texts(table: Table, column: str) -> bool:
    """Whether a column holds something else than numbers and gaps."""
    return any(isinstance(x, str) and x.strip() and not _is_number(x) for x in table.read(column))


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def fitting_columns(
    source: str | Path, columns: tuple[str | None, str | None], asked: Sequence[str | None] = ()
) -> tuple[str | None, str | None]:
    """The columns of other pairs than a recipe's own: a name that these lack gives way to what is found.

    Args:
        columns: as the recipe names them.
        asked: names among these that the user gave, which therefore stay.

    Returns:
        ``columns`` as they are for plain files and for what is not there: ``load_pairs`` says what is wrong.

    Raises:
        DataError: see ``find_columns``.
    """
    path = Path(source).expanduser()
    if str(source) in PAIR_SOURCES:
        path = _named_folder(PAIR_SOURCES[str(source)])
    file = path
    if path.is_dir():
        file = next((parts[0] for parts in split_files(path).values()), path)
    if file.suffix.lower() not in READERS or not file.is_file():
        return columns
    table = read_table(file)
    source_column, target_column = [n if n in table.names or n in asked else None for n in columns]
    return find_columns(table, source_column, target_column)


# --- plain files ------------------------------------------------------------------------------


def plain_files(
    path: Path, source_column: str | None = None, target_column: str | None = None, gaps: Gaps = "refuse"
) -> tuple[dict[str, PairSplit], tuple[str, str]] | None:
    """``NAME.en`` beside ``NAME.de``: one sentence a line. None: there are no such files."""
    left, right = source_column or "en", target_column or "de"
    stems = {"train": path}
    if path.is_dir():
        names = {p.stem for p in path.glob(f"*.{left}")} | {p.stem for p in path.glob(f"*.{right}")}
        found: dict[str, list[Path]] = {}
        for name in sorted(names):
            if split := SPLIT_OF.get(name.lower()):
                found.setdefault(split, []).append(path / name)
        one_or_parts(found, path)
        stems = {name: found[name][0] for name in SPLITS if name in found}
    splits = {}
    for name, stem in stems.items():
        files = [stem.with_name(f"{stem.name}.{end}") for end in (left, right)]
        there = [file for file in files if file.is_file()]
        if not there:
            return None
        if len(there) == 1:
            missing = next(file for file in files if file not in there)
            raise DataError(
                f"a side is missing: no {missing.name}", where=str(there[0]), fix="Put both files there"
            )
        splits[name] = _line_by_line(files[0], files[1], gaps)
    return (splits, (left, right)) if splits else None


def _line_by_line(left: Path, right: Path, gaps: Gaps) -> PairSplit:
    sides = []
    for file in (left, right):
        sides.append(split_lines(read_utf8(file)))
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{len(sides[0])} lines, but {right.name} has {len(sides[1])}",
            where=str(left),
            fix="Line i of one file is the translation of line i of the other",
        )
    rows = range(1, len(sides[0]) + 1)
    texts = [
        checked_side(side, str(file), rows, gaps) for side, file in zip(sides, (left, right), strict=True)
    ]
    return PairSplit(texts[0], texts[1], str(left), rows)
