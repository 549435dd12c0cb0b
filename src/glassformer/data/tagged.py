"""Load sentences with tagged words.

The source is a CoNLL file, a JSON Lines or Parquet file with lists, or a name (``wnut17``). A path is one
file (the split ``train``) or a folder with one file per split: ``train.conll``, ``dev.jsonl``.

CoNLL has one word per line, with columns separated by tabs or blanks, and an empty line after each sentence.
By default the first column has the words and the last has the tags. If the first column counts the words, the
second has the words; if there are ten columns (CoNLL-U), the fourth has the tags. A line without tabs in a
file with tabs is split at blanks if this gives the right number of columns and a BIO or BIOES tag.
``-DOCSTART-`` and lines such as ``# text = ...`` are ignored.

Tables have a list of words and a list of tags per row, or a text and a list of character spans
(``[[0, 4, "PER"]]``). Class names in a Parquet schema replace numbers.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from glassformer.config import join_names
from glassformer.data.checks import check_class_names, row_location
from glassformer.data.dataset import Dataset, Split, choose_splits
from glassformer.data.files import check_utf8, text_lines
from glassformer.data.folders import find_folder, find_split_files
from glassformer.data.rejected import (
    RejectedRow,
    Row,
    check_filled,
    check_source,
    find_named_column,
    lenient_table,
    read_examples,
)
from glassformer.data.sources import NAMED_SOURCES
from glassformer.data.splits import limit_examples
from glassformer.data.tables import READERS
from glassformer.data.tags import check_tags, check_words, has_character_spans, tags_from_character_spans
from glassformer.errors import BadTagsError, MalformedFileError, NoSuchColumnError, UnclearColumnError

WORD_COLUMNS = ("tokens", "words", "sentence", "text")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "pos_tags", "upos", "chunk_tags", "ner", "label")
CONLL = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".txt")
CONLLU = ".conllu"  # Universal Dependencies: ten columns, of which the fourth has the UPOS tags
CONLLU_COLUMNS = 10
TOKEN_RANGES = re.compile(r"[0-9]+[-.][0-9]+\s")  # CoNLL-U: "1-2" for multiword tokens, "8.1" for empty nodes
SUFFIXES = (*CONLL, *READERS)
FIX_NAMES = "Name them train.conll, validation.conll, test.conll, or end them with .jsonl or .parquet"
SHARD_ENDING = re.compile(r"-\d+-of-\d+$")
COMMENT = re.compile(r"#\s?(\S+\s=\s|newdoc|newpar)")  # "# text = ..."
DOCUMENT = "-DOCSTART-"
LINES_TO_DETECT = 1_000  # number of first lines from which CoNLL is detected
MANY_WORDS = 50  # a file with this many words is probably not one sentence
BIO_TAG = re.compile(r"O|[BIESLU](-.+)?")  # a tag of BIO or BIOES; words rarely look like this


@dataclass(frozen=True)
class TaggedSplit(Split):
    """Sentences in file order: lists of words, and one tag per word."""

    words: list[list[str]]
    tags: list[list[str]] | None  # None: untagged
    origin: str  # file, for messages
    rows: Sequence[int] | None = None  # row of each sentence in the file; in CoNLL the line of its first word

    @property
    def labels(self) -> list[list[str]] | None:
        """The targets: the tags."""
        return self.tags

    @property
    def texts(self) -> list[str]:
        """The sentences as texts: words joined by blanks."""
        return list(map(" ".join, self.words))


@dataclass(frozen=True)
class TaggedDataset(Dataset):
    """Sentences with tagged words; ``columns`` names the columns of words and of tags."""

    files_without_empty_lines: tuple[str, ...] = ()  # messages about long CoNLL files with only one sentence


def load_tagged(
    source: str | Path,
    *,
    words_column: str | None = None,
    tags_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "refuse",
    need_tags: bool = True,
) -> TaggedDataset:
    """Load sentences with tags by name or path (see the top of this file).

    Args:
        words_column, tags_column: columns of a table; for CoNLL numbers from 1, or from the end, as -1.
            None: detect them by usual names, or as the only columns of lists.
        limit: maximum number of sentences per split: a random sample with ``seed``, in file order.
        on_bad_row: ``skip`` leaves out and lists unusable sentences; ``refuse`` raises an error.
        need_tags: whether to read the tags.

    Raises:
        DataError: the file, column or data set does not exist, or a sentence is unusable.
    """
    check_source(source, limit, "Give the path of a file or folder, or wnut17", "sentences")
    named_sources = {name: named for name, named in NAMED_SOURCES.items() if named.tagged}
    named = named_sources.get(str(source))
    path = find_folder(named.folder) if named is not None else Path(source).expanduser()
    reader = _Reader(words_column, tags_column, need_tags, [] if on_bad_row == "skip" else None)
    files = find_split_files(path, [*named_sources], SUFFIXES, FIX_NAMES, SHARD_ENDING)
    files = choose_splits(files, None, str(source))
    dataset = TaggedDataset(
        path.stem if named is None else str(source),
        {split: reader.read_split(paths) for split, paths in files.items()},
        rejected=tuple(reader.rejected or ()),
        messages=reader.messages(),
        files_without_empty_lines=tuple(reader.files_without_empty_lines),
        columns=reader.columns,
    )
    return limit_examples(dataset if named is None else named.describe(dataset), limit, seed)


@dataclass
class _Reader:
    """Reads the files of a data set, and collects messages about them."""

    words_column: str | None
    tags_column: str | None
    need_tags: bool
    rejected: list[RejectedRow] | None  # skipped rows; None: an unusable row raises an error
    columns: tuple[str | None, str | None] = (None, None)
    lines_at_blanks: list[int] = field(default_factory=list)  # lines that were split at blanks, not tabs
    column_message: str = ""  # how columns were detected or converted
    files_without_empty_lines: list[str] = field(default_factory=list)

    def messages(self) -> tuple[str, ...]:
        """Messages to the user about how the files were read."""
        messages = (self.column_message,) if self.column_message else ()
        if not (count := len(self.lines_at_blanks)):
            return messages
        lines, rows = ("1 line", "row") if count == 1 else (f"{count:,} lines", "rows")
        shown = ", ".join(map(str, self.lines_at_blanks[:3])) + " ..." * (count > 3)
        return (*messages, f"{lines} with a blank in place of the tab were split at blanks ({rows} {shown})")

    def read_split(self, files: Sequence[Path]) -> TaggedSplit:
        def read(file: Path) -> Iterator[Row]:
            return self._read_conll(file) if file.suffix.lower() in CONLL else self._read_table(file)

        sentences, origin, rows = read_examples(files, read, self.rejected, "sentence")
        words, tags = map(list, zip(*sentences, strict=True))
        return TaggedSplit(words, tags if self.need_tags else None, origin, rows)

    # --- tables ----------------------------------------------------------------------------------

    def _read_table(self, file: Path) -> Iterator[Row]:
        table = lenient_table(file, self.rejected)
        options = WORD_COLUMNS, "words", "words_column"
        word_column = find_named_column(table, self.words_column, *options, lists=table.names)
        tag_column, tag_lists = None, [None] * len(table.rows)
        if self.need_tags:
            others = [name for name in table.names if name != word_column]
            options = TAG_COLUMNS, "tags", "tags_column"
            tag_column = find_named_column(table, self.tags_column, *options, lists=others)
            tag_lists = table.read(tag_column)
        self.columns = word_column, tag_column
        check_filled(table, {"words_column": word_column, "tags_column": tag_column})
        texts = table.read(word_column)
        class_names = table.class_names.get(tag_column or "", ())
        if class_names:
            check_class_names(class_names, table.origin)
        has_spans = has_character_spans(tag_lists) and any(isinstance(text, str) for text in texts)
        if has_spans:
            how = "has character spans, read as BIO tags of whole words"
            self.column_message = f"{file.name}: {tag_column} {how}"

        def parse_row(text: Any, tags: Any, row: int) -> tuple[list[str], list[str]]:
            where = f"{table.origin}, row {row}"
            if has_spans:
                text, tags = tags_from_character_spans(text, tags, where)
            (words,) = check_words([text], table.origin, [row])
            if not tag_column:
                return words, []
            if class_names and isinstance(tags, list):
                for tag in tags:
                    if not isinstance(tag, int) or not 0 <= tag < len(class_names):
                        fix = f"The file has names for 0 to {len(class_names) - 1}: {join_names(class_names)}"
                        raise BadTagsError(f"tag {tag!r} has no name", where=where, fix=fix)
                tags = [class_names[tag] for tag in tags]
            return words, check_tags([tags], [words], table.origin, [row])[0]

        for text, tags, row in zip(texts, tag_lists, table.rows, strict=True):
            yield partial(parse_row, text, tags, row), row

    # --- CoNLL -----------------------------------------------------------------------------------

    def _read_conll(self, file: Path) -> Iterator[Row]:
        check_utf8(file)
        detected = _detect_columns(file)
        if self.words_column is None:
            _check_not_swapped(file, *detected)
        word_index = _column_index(self.words_column, detected[0], "words_column")
        tag_index = _column_index(self.tags_column, detected[1], "tags_column")
        is_counted = detected[0] == 2
        if is_counted and self.words_column is None and (detected[1] != 4 or file.suffix.lower() != CONLLU):
            tags = "the last one" if tag_index == -1 else f"column {tag_index + 1}"
            what = f"column 1 counts the words, so words are column 2 and tags {tags}"
            self.column_message = f"{file.name}: {what}"
        self.columns = str(word_index + 1), str(tag_index + 1 if tag_index >= 0 else tag_index)
        num_sentences, num_words = 0, 0
        for lines, rows in _split_sentences(file, is_counted):
            num_sentences += 1
            num_words += len(lines)
            tab = "\t" if "\t" in lines[0] else None
            cells = [line.split(tab) for line in lines]
            for i, row in enumerate(rows if tab else ()):
                by_blanks = lines[i].split()
                lacks_tabs = len(cells[i]) < len(cells[0]) == len(by_blanks)
                if lacks_tabs and BIO_TAG.fullmatch("".join(by_blanks[tag_index:][:1])):
                    cells[i] = by_blanks
                    self.lines_at_blanks.append(row)
            yield partial(self._parse_sentence, cells, rows, word_index, tag_index, str(file)), rows[0]
        if num_sentences == 1 and num_words >= MANY_WORDS:
            what = f"all {num_words:,} words are one sentence, since no empty line ends a sentence"
            self.files_without_empty_lines.append(f"{file.name}: {what}")

    def _parse_sentence(
        self, cells: list[list[str]], rows: Sequence[int], word_index: int, tag_index: int, origin: str
    ) -> tuple[list[str], list[str]]:
        for line, row in zip(cells, rows, strict=True):
            indices = (word_index, tag_index) if self.need_tags else (word_index,)
            _check_line(line, len(cells[0]), indices, row_location(origin, row))
        (words,) = check_words([[line[word_index].strip() for line in cells]], origin, [rows[0]])
        if not self.need_tags:
            return words, []
        return words, check_tags([[line[tag_index] for line in cells]], [words], origin, [rows[0]])[0]


def _column_index(setting: str | None, detected: int, key: str) -> int:
    """The index of a CoNLL column, from 0; a negative index counts from the end."""
    try:
        number = detected if setting is None else int(setting)
    except ValueError:
        what = f"{setting!r} is not a number, and columns of CoNLL have no names"
        fix = "Count them from 1, or from the end as -1"
        raise NoSuchColumnError(what, where=key, fix=fix) from None
    if number == 0:
        raise NoSuchColumnError("columns are counted from 1", where=key, fix="Use 1, or -1 for the last")
    return number - 1 if number > 0 else number


def _check_line(line: list[str], width: int, indices: Sequence[int], where: str) -> None:
    """Raise DataError if a line of CoNLL does not have ``width`` columns, or lacks one of ``indices``."""
    if len(line) != width:
        count = "1 column" if len(line) == 1 else f"{len(line)} columns"
        what = f"{count} where the sentence's first word has {width}"
        fix = "Give every word all columns, and end a sentence with an empty line"
        raise MalformedFileError(what, where=where, fix=fix)
    if max(i if i >= 0 else -i - 1 for i in indices) >= width or (len(indices) > 1 and width < 2):
        what = (
            "a word without a tag"
            if width < 2
            else f"only {width} columns; a column setting names a later one"
        )
        raise MalformedFileError(what, where=where, fix="Write the word, a tab and its tag")


def _detect_columns(file: Path) -> tuple[int, int]:
    """The columns of words and tags of a CoNLL file, detected by content: numbers from 1, or from the end."""
    sentences = _read_first_sentences(file)
    width = len(sentences[0][0]) if sentences else 0
    is_conllu = file.suffix.lower() == CONLLU
    if is_conllu and width == CONLLU_COLUMNS:
        return 2, 4
    num_counted = sum(_counts_words([line[0] for line in cells]) for cells in sentences)
    has_long = is_conllu or max(map(len, sentences), default=0) > 1
    if width < 3 or not has_long or num_counted < 0.95 * len(sentences):
        return 1, -1
    last = [line[-1] for cells in sentences for line in cells]
    has_bio_tags = all(map(BIO_TAG.fullmatch, last)) and any("-" in tag for tag in last)
    return (2, 4) if width == CONLLU_COLUMNS and not has_bio_tags else (2, -1)


def _check_not_swapped(file: Path, word: int, tag: int) -> None:
    """Raise DataError if the column of words has BIO or BIOES tags, and the column of tags has other values.

    Args:
        word, tag: the column numbers, from 1 or from the end.
    """
    lines = [line for cells in _read_first_sentences(file) for line in cells if len(line) > word]
    if not lines:
        return
    words = [line[word - 1] for line in lines]
    tags = [line[tag if tag < 0 else tag - 1] for line in lines]
    num_words, num_tags = (len([*filter(BIO_TAG.fullmatch, column)]) for column in (words, tags))
    if num_words < 0.95 * len(lines) or num_tags > 0.5 * len(lines) or not any("-" in cell for cell in words):
        return
    width = min(map(len, lines))
    most_varied = max(range(word, width), key=lambda i: len({line[i] for line in lines})) + 1
    what = f"column {word} has tags ({join_names(sorted({*words}))}) where words belong"
    fix = f"Set words_column={most_varied} and tags_column={word} (for predict, --text-column {most_varied})"
    raise UnclearColumnError(what, where=str(file), fix=fix)


def _read_first_sentences(file: Path) -> list[list[list[str]]]:
    """The cells of each line of the first sentences."""
    sentences = []
    for lines, _ in islice(_split_sentences(file), LINES_TO_DETECT // 10):
        tab = "\t" if any("\t" in line for line in lines) else None
        sentences.append([line.split(tab) for line in lines if not _is_ignored(line)])
    return [cells for cells in sentences if cells]


def _is_ignored(line: str) -> bool:
    """Whether a line of CoNLL-U is a comment, a multiword token or an empty node."""
    return TOKEN_RANGES.match(line) is not None or line[:1] == "#"


def _counts_words(cells: Sequence[str]) -> bool:
    """Whether the cells count up by one, from any number.

    The count may restart at 0 or 1, because the empty line between two sentences may be missing.
    """
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in cells):
        return False
    numbers = list(map(int, cells))
    restarts = [b for a, b in pairwise(numbers) if b != a + 1]
    return {*restarts} <= {numbers[0]} & {0, 1} and 2 * len(restarts) <= len(numbers)


def _split_sentences(file: Path, is_counted: bool = False) -> Iterator[tuple[list[str], array]]:
    """Yield the lines of each sentence and their numbers from 1.

    Args:
        is_counted: whether the first column counts the words; then a sentence also ends where it restarts.
    """
    lines: list[str] = []
    rows = array("q")
    for row, line in enumerate(text_lines(file), 1):
        line = line.rstrip("\r\n")
        if is_counted and _is_ignored(line):
            continue
        ends = not line.strip() or line.startswith(DOCUMENT)
        restarts = is_counted and lines and not ends and line.split(None, 1)[0] == lines[0].split(None, 1)[0]
        if lines and (ends or restarts):
            yield lines, rows
            lines, rows = [], array("q")
        if not ends and (lines or restarts or not COMMENT.match(line)):
            lines.append(line)
            rows.append(row)
    if lines:
        yield lines, rows


def looks_tagged(path: Path) -> bool:
    """Whether a ``.txt`` file is CoNLL: each line has a word and a BIO or BIOES tag."""
    if path.suffix.lower() != ".txt":
        return False
    lines = filter(str.strip, text_lines(path, errors="replace"))
    cells = [line.split() for line in islice(lines, LINES_TO_DETECT) if not line.startswith((DOCUMENT, "#"))]
    width = len(cells[0]) if cells else 0
    tags = [line[-1] for line in cells if len(line) == width]
    has_tags = width > 1 and len(tags) >= 0.95 * len(cells) and all(map(BIO_TAG.fullmatch, tags))
    if has_tags and any("-" in tag for tag in tags):
        return True
    return width == CONLLU_COLUMNS and _detect_columns(path) == (2, 4)


def load_words(path: str, words_column: str | None = None, skip: bool = False) -> TaggedDataset | None:
    """The sentences of a CoNLL file or of a table with lists of words; None for any other file or text.

    Raises:
        DataError: the file cannot be read, or (without ``skip``) has an unusable sentence.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES or suffix == ".txt" or not file.is_file():
        return None
    if suffix in READERS:
        table = lenient_table(file, [] if skip else None)
        names = [words_column] if words_column else [n for n in table.names if n.lower() in WORD_COLUMNS]
        column = next((table.read(name) for name in names if name in table.names), [None])
        if not isinstance(next(iter(column), None), list):
            return None
    on_bad_row = "skip" if skip else "refuse"
    return load_tagged(file, words_column=words_column, on_bad_row=on_bad_row, need_tags=False)


# --- writing --------------------------------------------------------------------------------------


def format_conll(words: Sequence[Sequence[str]], *columns: Sequence[Sequence[str]]) -> str:
    """Sentences in CoNLL format with tabs between columns; white space inside a word becomes a blank."""
    sentences = []
    for i, sentence in enumerate(words):
        clean_words = (" ".join(word.split()) for word in sentence)
        lines = zip(clean_words, *(column[i] for column in columns), strict=True)
        sentences.append("".join("\t".join(line) + "\n" for line in lines))
    return "\n".join(sentences)
