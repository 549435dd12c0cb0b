"""A corpus of sentences as word numbers, for word vectors: in memory or mapped from disk, of any size.

    ids.npy  starts.npy  words.json                    sentence i is ids[starts[i]:starts[i + 1]]

Words seen too seldom are left out; they take no place in a window.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from unicodedata import normalize

import numpy as np

from glassformer.data.in_memory import open_table, refuse_unordered, take_columns
from glassformer.data.tags import is_sentence
from glassformer.errors import (
    CannotReadError,
    CannotWriteError,
    ConfigError,
    DataError,
    ExistsError,
    FileTypeError,
    NoSuchFileError,
    NotUtf8Error,
    TooFewExamplesError,
)
from glassformer.finite import json_text
from glassformer.outputs import write_text_whole, written_whole
from glassformer.reading import NotRegularError, open_regular

CHUNK = 10_000  # sentences turned into numbers at a time
READ = 1_000_000  # ids looked at at a time
# A longer sentence is cut: the rate falls, and threads share the work, by sentences.
LONGEST = 10_000  # words
LONGEST_NAME = 255  # characters of a file's name on any usual file system; what is longer is a text
LEFT_OUT = -1  # the number of a word that is seen too seldom
Sentences = str | Path | Iterable[str] | Iterable[Sequence[str]]


@dataclass(frozen=True)
class Corpus:
    """Sentences as numbers of words; the most frequent word is 0.

    Raises:
        DataError: the arrays have other types, or ids, sentences, words and counts are not of one corpus.
    """

    ids: np.ndarray  # int32 [N], perhaps mapped from a file
    starts: np.ndarray  # int64 [n + 1]
    words: tuple[str, ...]  # [V]
    counts: np.ndarray  # int64 [V], in this corpus
    raw_words: int  # those left out counted too: what speeds are stated in

    def __post_init__(self) -> None:
        if len(self.words) != len(self.counts) or not _belong_together(self.ids, self.starts, self.counts):
            what = "its ids, sentences, words and counts do not belong together"
            raise DataError(what, where="corpus", fix="Make it with read_corpus")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def digest(self) -> str:
        """A check sum of everything that training reads."""
        joined = "\n".join(self.words)
        if joined.count("\n") >= len(self.words):  # a word has one itself
            joined = json_text(self.words, ascii=True)
        digest = sha256(joined.encode())
        for array in (self.starts, self.ids):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @staticmethod
    def open(folder: str | Path) -> Corpus:
        """A corpus that ``read_corpus`` wrote, its ids mapped; all are looked at once.

        Raises:
            DataError: there is none, or it is damaged.
        """
        folder = Path(folder)
        try:
            for name in ("ids.npy", "starts.npy", "words.json"):
                open_regular(folder / name).close()
            ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
            starts = np.load(folder / "starts.npy", allow_pickle=False)
            about = json.loads((folder / "words.json").read_text(encoding="utf-8"))
            words, counts = tuple(about["words"]), np.asarray(about["counts"], np.int64)
            return Corpus(ids, starts, words, counts, int(about["raw_words"]))
        except DataError:
            what = "its files do not belong together"
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"no whole corpus ({error})"
        raise DataError(what, where=str(folder), fix="Make it again with read_corpus")


def _belong_together(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> bool:
    """Whether ids, sentences and counts are of one corpus: training writes where the ids say."""
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in (ids, starts, counts)):
        return False
    if ids.dtype != np.int32 or starts.dtype != np.int64:
        return False
    if not len(starts) or starts[0] != 0 or starts[-1] != len(ids) or (np.diff(starts) < 0).any():
        return False
    seen = np.zeros(len(counts), np.int64)
    for i in range(0, len(ids), READ):
        part = np.asarray(ids[i : i + READ])
        if part.min() < 0 or part.max() >= len(counts):
            return False
        seen += np.bincount(part, minlength=len(counts))
    return bool((seen == counts).all())


def read_corpus(
    sentences: Sentences,
    *,
    min_count: int = 5,
    max_words: int = 0,
    folder: str | Path | None = None,
) -> Corpus:
    """Number the words and count them, then number them by how often they are seen.

    Args:
        sentences: a text file with one sentence a line, or strings (both cut at white space), or lists of
            words, or arrays of them. They are gone through once. A string by itself is a path. A sentence of
            more than ``LONGEST`` words, as where a whole text is one line, is cut into several.
        min_count: a word seen less often is left out; an accent by itself is joined to its letter (NFC).
        max_words: words kept at most, the most frequent ones; 0: all.
        folder: write the ids there and map them from the disk, for a corpus larger than memory.

    Raises:
        ConfigError: a count that is none, or ``folder`` is a file or names none.
        DataError: no sentence, fewer than two words frequent enough, something that is no text, or a file
            that cannot be read.
    """
    for name, value in (("min_count", min_count), ("max_words", max_words)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ConfigError(f"{value!r} is not a number of words", where=name, fix="Use 0 or more")
    if not (folder is None or isinstance(folder, str | Path)) or folder == "":
        raise ConfigError(f"{folder!r} is not a path", where="folder", fix="Name a folder, or leave it unset")
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise ExistsError("there is a file of that name", where=str(folder), fix="Name a folder")
    if not isinstance(sentences, str | Path | Iterator):
        table = open_table(sentences, "sentences", is_sentence)
        if table is not None:
            sentences = take_columns(table, "sentences", "sentences")
        refuse_unordered(sentences, "sentences", "sentences")
    with _Store(folder) as store:
        return _numbered(sentences, store, int(min_count), int(max_words), folder)


def _numbered(
    sentences: Sentences, store: _Store, min_count: int, max_words: int, folder: str | Path | None
) -> Corpus:
    """What ``read_corpus`` gives, with room in ``store`` for each word's first number."""
    given, seen, lengths = _first_numbers(sentences, store)
    try:
        "\n".join(given).encode()
    except UnicodeEncodeError as error:  # which no file and no check sum can hold
        what = f"half a character ({error.object[error.start]!a}), which stands for none"
        fix = "Decode the text anew, with errors='replace' where it is damaged"
        raise DataError(what, where="sentences", fix=fix) from None
    joined = [word if word.isascii() else normalize("NFC", word) for word in given]
    counter: Counter[str] = Counter()
    for word, n in zip(joined, seen.tolist()):
        counter[word] += n
    ranked = sorted(((n, w) for w, n in counter.items() if n >= min_count), key=lambda x: (-x[0], x[1]))
    ranked = ranked[:max_words] if max_words else ranked
    if not counter:
        raise DataError("no sentence holds a word", where="sentences", fix="Give sentences of words")
    if max_words == 1:
        fix = "Use 2 or more, or 0 for no limit"
        raise TooFewExamplesError("one word has no neighbors", where="max_words", fix=fix)
    if len(counter) < 2:
        what = f"the only word is {next(iter(counter))!r}, and one word has no neighbors"
        raise TooFewExamplesError(what, where="sentences", fix="Give sentences of different words")
    if len(ranked) < 2:
        what = f"of {len(counter):,} words fewer than two are seen {min_count} times"
        enough = counter.most_common(2)[1][1]  # with which two words are left
        fix = f"Lower min_count to {enough} or less, or give more sentences"
        raise TooFewExamplesError(what, where="min_count", fix=fix)
    words = tuple(w for _, w in ranked)
    counts = np.array([n for n, _ in ranked], np.int64)
    number = {w: i for i, w in enumerate(words)}
    final = np.array([number.get(word, LEFT_OUT) for word in joined], np.int32)  # of each first number
    with _room(int(counts.sum()), folder) as ids:
        place = 0
        for i, first in enumerate(store):
            kept = final[first] != LEFT_OUT
            numbers = final[first][kept]
            ids[place : place + len(numbers)] = numbers
            place += len(numbers)
            ends = np.cumsum(lengths[i])
            lengths[i] = np.diff(np.concatenate([[0], np.cumsum(kept)])[ends], prepend=0)
    left = _cut(np.concatenate(lengths))
    starts = np.concatenate([[0], np.cumsum(left[left > 0])]).astype(np.int64)
    raw = counter.total()
    if folder is None:
        return Corpus(ids, starts, words, counts, raw)
    folder = Path(folder)
    with written_whole(folder / "starts.npy") as draft, draft.open("wb") as file:
        np.save(file, starts, allow_pickle=False)
    about = {"words": words, "counts": counts.tolist(), "raw_words": raw}
    write_text_whole(folder / "words.json", json_text(about) + "\n")
    return Corpus.open(folder)


def _cut(lengths: np.ndarray) -> np.ndarray:
    """Lengths of sentences, those above ``LONGEST`` as several."""
    if lengths.max(initial=0) <= LONGEST:
        return lengths
    parts = ([LONGEST] * (n // LONGEST) + [n % LONGEST] for n in lengths.tolist())
    return np.fromiter(chain.from_iterable(parts), np.int64)


@contextmanager
def _room(size: int, folder: str | Path | None) -> Iterator[np.ndarray]:
    """Numbers to be filled: in memory, or in a file that takes its place when they are.

    A corpus that stands in the folder may be mapped: its file is replaced and never written to.
    """
    if folder is None:
        yield np.empty(size, np.int32)
        return
    with written_whole(Path(folder) / "ids.npy") as draft:
        made = np.lib.format.open_memmap(draft, "w+", np.int32, (size,))
        if hasattr(os, "posix_fallocate"):  # else a full disk would end the process at a write into the map
            with open(draft, "rb+") as opened:
                os.posix_fallocate(opened.fileno(), 0, draft.stat().st_size)
        yield made
        made.flush()


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """One line where the disk is full or does not let us write."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError.of(path, error) from error


def split_sentences(sentences: Sentences) -> Iterator[Sequence[str]]:
    """The words of each sentence; those of lists as they are given, each of which is not looked at here.

    Raises:
        DataError: a sentence is neither a string nor a list, or the file is missing or not UTF-8.
    """
    lines = _lines(Path(sentences)) if isinstance(sentences, str | Path) else sentences
    for i, sentence in enumerate(lines, 1):
        if isinstance(sentence, str):
            yield normalize("NFC", sentence).split()
        elif isinstance(sentence, Sequence):
            yield sentence
        elif isinstance(sentence, np.ndarray) and sentence.ndim == 1:  # so Parquet's lists are read
            yield sentence.tolist()
        else:
            raise _no_sentence(i)


class _FirstNumbers(dict[str, int]):
    """Words in the order in which they are first seen, each of which is looked at once."""

    def __missing__(self, word: object) -> int:
        if not isinstance(word, str):
            raise TypeError
        self[word] = number = len(self)
        return number


class _Store:
    """Arrays of numbers, int32, that are taken out once: in memory, or in a nameless file in ``folder``."""

    def __init__(self, folder: str | Path | None):
        self.parts: deque[np.ndarray] = deque()
        self.sizes: list[int] = []
        self.file = None
        if folder is not None:
            with _disk(Path(folder)):
                Path(folder).mkdir(parents=True, exist_ok=True)
                self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- it outlives this call
                self.folder = Path(folder)

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, part: np.ndarray) -> None:
        if self.file is None:
            self.parts.append(part)
            return
        self.sizes.append(part.nbytes)
        with _disk(self.folder):
            self.file.write(part.data)

    def __iter__(self) -> Iterator[np.ndarray]:
        if self.file is None:
            while self.parts:
                yield self.parts.popleft()  # its memory is free when the next one is asked for
            return
        with _disk(self.folder):
            self.file.seek(0)
            for size in self.sizes:
                yield np.frombuffer(self.file.read(size), np.int32)


def _first_numbers(sentences: Sentences, store: _Store) -> tuple[_FirstNumbers, np.ndarray, list[np.ndarray]]:
    """Put each word's first number into the store.

    Returns:
        The words; how often each is seen, int64 ``[V]``; the lengths of the sentences of each part.

    Raises:
        DataError: something that is no text.
    """
    numbers, seen, lengths = _FirstNumbers(), np.zeros(0, np.int64), []
    stream = split_sentences(sentences)
    while chunk := list(islice(stream, CHUNK)):
        size = np.fromiter(map(len, chunk), np.int64, len(chunk))
        found = map(numbers.__getitem__, chain.from_iterable(chunk))
        try:
            part = np.fromiter(found, np.int32, int(size.sum()))
        except TypeError:  # a word that is no text, or has no hash, such as a list
            before = len(lengths) * CHUNK
            wrong = (i for i, words in enumerate(chunk, 1) if not all(isinstance(w, str) for w in words))
            raise _no_sentence(before + next(wrong, 1)) from None
        counted = np.bincount(part, minlength=len(numbers))
        counted[: len(seen)] += seen
        seen = counted
        lengths.append(size)
        store.add(part)
    return numbers, seen, lengths


def _no_sentence(i: int) -> DataError:
    fix = 'Give ["a text", ...] or [["a", "text"], ...]'
    return DataError(f"sentence {i} is neither a text nor a list of words", where="sentences", fix=fix)


def _lines(path: Path) -> Iterator[str]:
    name = str(path)
    if max(map(len, path.parts), default=0) > LONGEST_NAME or ("\n" in name and not path.exists()):
        what = f"no such file of sentences, but a text of {len(name):,} characters"
        raise NoSuchFileError(what, where=repr(name[:40]), fix="A text of its own goes into a list: [text]")
    fix = "Give the path of a text file, or a list"
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig") as file:
            yield from file
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchFileError("no such file of sentences", where=name, fix=fix) from None
    except NotRegularError as error:  # it is read twice, which a pipe does not allow
        raise NoSuchFileError(f"no such file of sentences: {error.strerror}", where=name, fix=fix) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=name, fix="Check its rights") from None
    except UnicodeDecodeError as error:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                fix = f"Unpack it: gunzip -c {quote(name)} > {quote(name.removesuffix('.gz') + '.unpacked')}"
                raise FileTypeError("is packed by gzip", where=name, fix=fix) from None
        raise NotUtf8Error(f"not UTF-8 ({error})", where=str(path), fix="Save it as UTF-8") from None
