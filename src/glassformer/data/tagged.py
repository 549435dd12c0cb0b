"""Load sentences with tagged words: CoNLL files, JSON Lines or Parquet with lists, or by name (``wnut17``).

A path is one file (it becomes ``train``) or a folder with one file per split: ``train.conll``, ``dev.jsonl``.

CoNLL has one word per line, with columns separated by tabs or blanks, and an empty line after each sentence.
The first column is the word and the last the tag, unless other column numbers (from 1) are given. If the
first column counts the words, the second is the word; if there are then ten columns, the fourth is the tag
(CoNLL-U). In a file with tabs, a line that has the right number of columns only when split at blanks, and a
BIO or BIOES tag, is split at blanks. ``-DOCSTART-`` and lines such as ``# text = ...`` are ignored.

Tables have a list of words and a list of tags per row, or a text and a list of character spans
(``[[0, 4, "PER"]]``); class names in a Parquet schema replace numbers.
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

from glassformer.config import listed
from glassformer.data.checks import check_class_names
from glassformer.data.dataset import Dataset, Split, choose_splits
from glassformer.data.files import check_utf8, text_lines
from glassformer.data.folders import files_of, find_folder
from glassformer.data.rejected import RejectedRow, Row, check_request, column_of, lenient_table, read_rows
from glassformer.data.sources import NAMED_SOURCES
from glassformer.data.splits import with_limit
from glassformer.data.tables import READERS
from glassformer.data.tags import check_tags, check_words, has_character_spans, tags_from_character_spans
from glassformer.errors import (
    BadTagsError,
    MalformedFileError,
    NoSuchColumnError,
    UnclearColumnError,
)

WORD_COLUMNS = ("tokens", "words", "sentence", "text")
TAG_COLUMNS = ("tags", "ner_tags", "labels", "pos_tags", "upos", "chunk_tags", "ner", "label")
CONLL = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".txt")
UNIVERSAL = ".conllu"  # Universal Dependencies: ten columns, of which the fourth is UPOS
UNIVERSAL_COLUMNS = 10
PARTS = re.compile(r"[0-9]+[-.][0-9]+\s")  # lines of CoNLL-U for multiword tokens and for empty nodes
ENDINGS = (*CONLL, *READERS)
NAMES = "Name them train.conll, validation.conll, test.conll, or end them with .jsonl or .parquet"
BESIDES = re.compile(r"-\d+-of-\d+$")
COMMENT = re.compile(r"#\s?(\S+\s=\s|newdoc|newpar)")
DOCUMENT = "-DOCSTART-"
LOOKED_AT = 1_000  # first lines, by which CoNLL is detected
LONG = 50  # a file with this many words is probably not one sentence
MARKED = re.compile(r"O|[BIESLU](-.+)?")  # a tag of BIO or BIOES, which is hardly ever a word


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
        """The sentences as text, words joined by blanks."""
        return list(map(" ".join, self.words))


@dataclass(frozen=True)
class TaggedDataset(Dataset):
    """Sentences with tagged words; ``columns`` are those of words and of tags."""

    unended: tuple[str, ...] = ()  # CoNLL files in which no empty line ends a sentence


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
        words_column, tags_column: columns of a table; for CoNLL their numbers from 1 (for tags also from the
            end, as -1). None: detect them by usual names, or as the only columns of lists.
        limit: use at most this many sentences of every split, drawn with ``seed``, in file order.
        on_bad_row: ``skip`` leaves out and lists unusable sentences; ``refuse`` raises an error.
        need_tags: False: do not read the tags.

    Raises:
        DataError: no such file, column or name; an unusable sentence (the message has its row).
    """
    check_request(source, limit, "Give the path of a file or folder, or wnut17", "sentences")
    tagged = {name: known for name, known in NAMED_SOURCES.items() if known.tagged}
    known = tagged.get(str(source))
    path = find_folder(known.folder) if known is not None else Path(source).expanduser()
    reader = _Reader(words_column, tags_column, need_tags, [] if on_bad_row == "skip" else None)
    files = choose_splits(files_of(path, [*tagged], ENDINGS, NAMES, BESIDES), None, str(source))
    splits = {split: reader.split(own) for split, own in files.items()}
    about = {"messages": reader.messages(), "unended": tuple(reader.unended), "columns": reader.columns}
    name = path.stem if known is None else str(source)
    dataset = TaggedDataset(name, splits, rejected=tuple(reader.rejected or ()), **about)
    return with_limit(dataset if known is None else known.described(dataset), limit, seed)


@dataclass
class _Reader:
    """Reads files; ``rejected`` lists skipped rows (None: the first unusable row raises an error)."""

    words_column: str | None
    tags_column: str | None
    need_tags: bool
    rejected: list[RejectedRow] | None
    columns: tuple[str | None, str | None] = (None, None)
    blanks: list[int] = field(default_factory=list)  # lines that were split at blanks instead of tabs
    reading: str = ""  # message about how columns were converted or chosen
    unended: list[str] = field(default_factory=list)

    def messages(self) -> tuple[str, ...]:
        """Messages to the user about how the files were read."""
        reading = (self.reading,) if self.reading else ()
        if not (count := len(self.blanks)):
            return reading
        lines, rows = ("1 line", "row") if count == 1 else (f"{count:,} lines", "rows")
        some = ", ".join(map(str, self.blanks[:3])) + " ..." * (count > 3)
        return (*reading, f"{lines} with a blank in place of the tab were split at blanks ({rows} {some})")

    def split(self, files: Sequence[Path]) -> TaggedSplit:
        def read(file: Path) -> Iterator[Row]:
            return self._conll(file) if file.suffix.lower() in CONLL else self._table(file)

        found, origin, rows = read_rows(files, read, self.rejected, "sentence")
        words, tags = map(list, zip(*found, strict=True))
        return TaggedSplit(words, tags if self.need_tags else None, origin, rows)

    # --- tables ----------------------------------------------------------------------------------

    def _table(self, file: Path) -> Iterator[Row]:
        table = lenient_table(file, self.rejected)
        wanted = self.words_column, WORD_COLUMNS, "words", "words_column"
        word_column = column_of(table, *wanted, lists=table.names)
        tag_column, own = None, [None] * len(table.rows)
        if self.need_tags:
            free = [name for name in table.names if name != word_column]
            tag_column = column_of(table, self.tags_column, TAG_COLUMNS, "tags", "tags_column", lists=free)
            own = table.read(tag_column)
        self.columns = word_column, tag_column
        every = table.read(word_column)
        names = table.class_names.get(tag_column or "", ())
        if names:
            check_class_names(names, table.origin)
        characters = has_character_spans(own) and any(isinstance(text, str) for text in every)
        if characters:
            how = "has character spans, read as BIO tags of whole words"
            self.reading = f"{file.name}: {tag_column} {how}"

        def sentence(text: Any, given: Any, row: int) -> tuple[list[str], list[str]]:
            if characters:
                text, given = tags_from_character_spans(text, given, f"{table.origin}, row {row}")
            (words,) = check_words([text], table.origin, [row])
            return words, self._tags(given, words, names, table.origin, row) if tag_column else []

        for text, given, row in zip(every, own, table.rows, strict=True):
            yield partial(sentence, text, given, row), row

    def _tags(self, tags: Any, words: list[str], names: Sequence[str], origin: str, row: int) -> list[str]:
        if names and isinstance(tags, list):
            for tag in tags:
                if not isinstance(tag, int) or not 0 <= tag < len(names):
                    fix = f"The file names 0 to {len(names) - 1}: {listed(names)}"
                    raise BadTagsError(f"tag {tag!r} has no name", where=f"{origin}, row {row}", fix=fix)
            tags = [names[tag] for tag in tags]
        return check_tags([tags], [words], origin, [row])[0]

    # --- CoNLL -----------------------------------------------------------------------------------

    def _conll(self, file: Path) -> Iterator[Row]:
        check_utf8(file)
        usual = _word_and_tag(file)
        if self.words_column is None:
            _refuse_swapped(file, *usual)
        word_at, tag_at = self._numbers(*usual)
        counted = usual[0] == 2
        if counted and self.words_column is None and (usual[1] != 4 or file.suffix.lower() != UNIVERSAL):
            tags = "the last one" if tag_at == -1 else f"column {tag_at + 1}"
            self.reading = f"{file.name}: column 1 counts the words, so words are column 2 and tags {tags}"
        self.columns = str(word_at + 1), str(tag_at + 1 if tag_at >= 0 else tag_at)
        sentences, words_read = 0, 0
        for lines, rows in _sentences(file, counted):
            sentences, words_read = sentences + 1, words_read + len(lines)
            tab = "\t" if "\t" in lines[0] else None
            cells = [line.split(tab) for line in lines]
            for i, row in enumerate(rows if tab else ()):
                by_blanks = lines[i].split()
                short = len(cells[i]) < len(cells[0]) == len(by_blanks)
                if short and MARKED.fullmatch("".join(by_blanks[tag_at:][:1])):
                    cells[i] = by_blanks
                    self.blanks.append(row)
            yield partial(self._sentence, cells, rows, word_at, tag_at, str(file)), rows[0]
        if sentences == 1 and words_read >= LONG:
            what = f"all {words_read:,} words are one sentence, for no empty line ends one"
            self.unended.append(f"{file.name}: {what}")

    def _sentence(
        self, cells: list[list[str]], rows: Sequence[int], word_at: int, tag_at: int, origin: str
    ) -> tuple[list[str], list[str]]:
        wanted = tag_at if self.need_tags else None
        for line, row in zip(cells, rows, strict=True):
            _check_line(line, len(cells[0]), word_at, wanted, f"{origin}, row {row}")
        (words,) = check_words([[line[word_at].strip() for line in cells]], origin, [rows[0]])
        own = [line[tag_at] for line in cells] if self.need_tags else []
        return words, check_tags([own], [words], origin, [rows[0]])[0] if self.need_tags else []

    def _numbers(self, word: int, tag: int) -> tuple[int, int]:
        """The column indices of words and tags in CoNLL, from 0; negative ones count from the end."""
        out = []
        for key, usual in (("words_column", word), ("tags_column", tag)):
            given = getattr(self, key)
            try:
                number = usual if given is None else int(given)
            except ValueError:
                what = f"{given!r} is not a number, and columns of CoNLL have no names"
                raise NoSuchColumnError(
                    what, where=key, fix="Count them from 1, or from the end as -1"
                ) from None
            if number == 0:
                raise NoSuchColumnError(
                    "columns are counted from 1", where=key, fix="Use 1, or -1 for the last"
                )
            out.append(number - 1 if number > 0 else number)
        return out[0], out[1]


def _check_line(line: list[str], width: int, word_at: int, tag_at: int | None, where: str) -> None:
    """Raise DataError for a line of CoNLL with another number of columns, or too few."""
    if len(line) != width:
        what = f"{len(line)} columns where the sentence's first word has {width}"
        fix = "Give every word all columns, and end a sentence with an empty line"
        raise MalformedFileError(what, where=where, fix=fix)
    wanted = [at if at >= 0 else -at - 1 for at in (word_at, tag_at) if at is not None]
    if max(wanted) >= width or (tag_at is not None and width < 2):
        what = "a word without a tag" if width < 2 else f"only {width} columns, fewer than the one named"
        raise MalformedFileError(what, where=where, fix="Write the word, a tab and its tag")


def _word_and_tag(file: Path) -> tuple[int, int]:
    """Detect the columns of words and tags of a CoNLL file by content: numbers from 1, or from the end."""
    some = _first_cells(file)
    width = len(some[0][0]) if some else 0
    universal = file.suffix.lower() == UNIVERSAL
    if universal and width == UNIVERSAL_COLUMNS:
        return 2, 4
    counted = sum(_counts([line[0] for line in cells]) for cells in some)
    if width < 3 or (max(map(len, some)) < 2 and not universal) or counted < 0.95 * len(some):
        return 1, -1
    last = [line[-1] for cells in some for line in cells]
    spans = all(map(MARKED.fullmatch, last)) and any("-" in tag for tag in last)
    return (2, 4) if width == UNIVERSAL_COLUMNS and not spans else (2, -1)


def _refuse_swapped(file: Path, word: int, tag: int) -> None:
    """Raise DataError if the column of words (from 1) has BIO or BIOES tags, and that of tags has none."""
    lines = [line for cells in _first_cells(file) for line in cells if len(line) > word]
    if not lines:
        return
    tags = [line[word - 1] for line in lines]
    others = [line[tag if tag < 0 else tag - 1] for line in lines]
    marked, usual = (sum(map(bool, map(MARKED.fullmatch, column))) for column in (tags, others))
    if marked < 0.95 * len(lines) or usual > 0.5 * len(lines) or not any("-" in tag for tag in tags):
        return
    width = min(map(len, lines))
    place = max(range(word, width), key=lambda i: len({line[i] for line in lines})) + 1
    what = f"column {word} has tags ({listed(sorted({*tags}))}) where words belong"
    fix = f"Set words_column={place} and tags_column={word} (for predict, --text-column {place})"
    raise UnclearColumnError(what, where=str(file), fix=fix)


def _first_cells(file: Path) -> list[list[list[str]]]:
    """The cells of each line of the first sentences."""
    some = []
    for lines, _ in islice(_sentences(file), LOOKED_AT // 10):
        tab = "\t" if any("\t" in line for line in lines) else None
        some.append([line.split(tab) for line in lines if not PARTS.match(line) and line[0] != "#"])
    return [cells for cells in some if cells]


def _counts(cells: Sequence[str]) -> bool:
    """Whether the first column of a sentence counts up by one, from any start; it may restart at 0 or 1 if an
    empty line is missing."""
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in cells):
        return False
    numbers = list(map(int, cells))
    again = [b for a, b in pairwise(numbers) if b != a + 1]
    return {*again} <= {numbers[0]} & {0, 1} and 2 * len(again) <= len(numbers)


def _sentences(file: Path, counted: bool = False) -> Iterator[tuple[list[str], array]]:
    """The lines of each sentence and their numbers from 1.

    Args:
        counted: the first column counts the words; lines for multiword tokens and empty nodes are ignored,
            and a sentence also ends if the count restarts.
    """
    lines: list[str] = []
    rows = array("q")
    for row, line in enumerate(text_lines(file), 1):
        line = line.rstrip("\r\n")
        if counted and (PARTS.match(line) or line[:1] == "#"):
            continue
        ends = not line.strip() or line.startswith(DOCUMENT)
        again = counted and lines and not ends and line.split(None, 1)[0] == lines[0].split(None, 1)[0]
        if lines and (ends or again):
            yield lines, rows
            lines, rows = [], array("q")
        if not ends and (lines or again or not COMMENT.match(line)):
            lines.append(line)
            rows.append(row)
    if lines:
        yield lines, rows


def looks_tagged(path: Path) -> bool:
    """Whether a ``.txt`` file is CoNLL: each line has a word and a BIO or BIOES tag."""
    if path.suffix.lower() != ".txt":
        return False
    lines = filter(str.strip, text_lines(path, errors="replace"))
    cells = [line.split() for line in islice(lines, LOOKED_AT) if not line.startswith((DOCUMENT, "#"))]
    width = len(cells[0]) if cells else 0
    tags = [line[-1] for line in cells if len(line) == width]
    tagged = width > 1 and len(tags) >= 0.95 * len(cells) and all(map(MARKED.fullmatch, tags))
    if tagged and any("-" in tag for tag in tags):
        return True
    return width == UNIVERSAL_COLUMNS and _word_and_tag(path) == (2, 4)


def list_words(path: str, words_column: str | None = None, skip: bool = False) -> TaggedDataset | None:
    """The sentences of a CoNLL file or of a table with lists of words; None for another file, or for a text.

    Raises:
        DataError: the file cannot be read, or (without ``skip``) has an unusable sentence.
    """
    file = Path(path)
    ending = file.suffix.lower()
    if ending not in ENDINGS or ending == ".txt" or not file.is_file():
        return None
    if ending in READERS:
        table = lenient_table(file, [] if skip else None)
        names = [words_column] if words_column else [n for n in table.names if n.lower() in WORD_COLUMNS]
        first = next((table.read(name) for name in names if name in table.names), [None])
        if not isinstance(next(iter(first), None), list):
            return None
    bad = "skip" if skip else "refuse"
    return load_tagged(file, words_column=words_column, on_bad_row=bad, need_tags=False)


# --- writing --------------------------------------------------------------------------------------


def conll(words: Sequence[Sequence[str]], *columns: Sequence[Sequence[str]]) -> str:
    """Sentences in CoNLL format with tabs between columns; white space inside a word becomes a blank."""
    parts = []
    for i, sentence in enumerate(words):
        clean = (" ".join(word.split()) for word in sentence)
        lines = zip(clean, *(column[i] for column in columns), strict=True)
        parts.append("".join("\t".join(line) + "\n" for line in lines))
    return "\n".join(parts)
