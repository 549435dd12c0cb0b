"""A corpus of sentences as word ids, for training word vectors.

The corpus is in memory, or in a folder with the memory-mapped files ``ids.npy``, ``starts.npy`` and
``words.json``. Sentence i is ``ids[starts[i] : starts[i + 1]]``. Rare words are left out.
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

from glassformer.data.checks import check_not_numbers
from glassformer.data.in_memory import check_ordered, open_table, take_columns
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
from glassformer.outputs import atomic_write, write_text
from glassformer.reading import NotRegularError, open_regular

CHUNK_SENTENCES = 10_000  # number of sentences that are converted to ids at a time
CHECKED_IDS = 1_000_000  # number of ids that are checked at a time
# A longer sentence is split. Training updates the learning rate, and divides work among threads, by sentence.
MAX_SENTENCE_WORDS = 10_000
MAX_FILE_NAME = 255  # maximum length of file names on common file systems; a longer string is a text
RARE = -1  # marks a rare word in ``id_map``
Sentences = str | Path | Iterable[str] | Iterable[Sequence[str]]


@dataclass(frozen=True)
class Corpus:
    """Sentences as word ids; the most frequent word has the id 0.

    Raises:
        DataError: the arrays have wrong types or are inconsistent.
    """

    ids: np.ndarray  # int32 [N], possibly memory-mapped
    starts: np.ndarray  # int64 [n + 1], the first word of each of n sentences in ``ids``, and N
    words: tuple[str, ...]  # [V]
    counts: np.ndarray  # int64 [V], occurrences of each word in the corpus
    raw_words: int  # number of words including rare words; training speed refers to this number

    def __post_init__(self) -> None:
        if len(self.words) != len(self.counts) or not _are_consistent(self.ids, self.starts, self.counts):
            what = "its ids, sentences, words and counts are inconsistent"
            raise DataError(what, where="corpus", fix="Make it with read_corpus")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def digest(self) -> str:
        """SHA-256 of everything that training uses."""
        joined = "\n".join(self.words)
        if joined.count("\n") >= len(self.words):  # a word contains a line break
            joined = json_text(self.words, ascii=True)
        digest = sha256(joined.encode())
        for array in (self.starts, self.ids):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @staticmethod
    def open(folder: str | Path) -> Corpus:
        """Open a corpus written by ``read_corpus``, with memory-mapped ids, and check all ids once.

        Raises:
            DataError: there is no corpus, or it is damaged.
        """
        folder = Path(folder)
        try:
            for name in ("ids.npy", "starts.npy", "words.json"):
                open_regular(folder / name).close()
            ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
            starts = np.load(folder / "starts.npy", allow_pickle=False)
            description = json.loads((folder / "words.json").read_text(encoding="utf-8"))
            words, counts = tuple(description["words"]), np.asarray(description["counts"], np.int64)
            return Corpus(ids, starts, words, counts, int(description["raw_words"]))
        except DataError:
            what = "its files are inconsistent"
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"not a complete corpus ({error})"
        raise DataError(what, where=str(folder), fix="Make it again with read_corpus")


def _are_consistent(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> bool:
    """Whether ids, sentences and counts are consistent; training uses the ids as indices without checks."""
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in (ids, starts, counts)):
        return False
    if ids.dtype != np.int32 or starts.dtype != np.int64:
        return False
    if not len(starts) or starts[0] != 0 or starts[-1] != len(ids) or (np.diff(starts) < 0).any():
        return False
    counted = np.zeros(len(counts), np.int64)
    for i in range(0, len(ids), CHECKED_IDS):
        chunk = np.asarray(ids[i : i + CHECKED_IDS])
        if chunk.min() < 0 or chunk.max() >= len(counts):
            return False
        counted += np.bincount(chunk, minlength=len(counts))
    return bool((counted == counts).all())


def read_corpus(
    sentences: Sentences, *, min_count: int = 5, max_words: int = 0, folder: str | Path | None = None
) -> Corpus:
    """Read sentences and convert them to word ids, in the order of frequency.

    Args:
        sentences: the path of a text file with one sentence per line, or an iterable of strings, of lists of
            words, or of arrays of words; it is iterated once. Lines and strings are split at white space. A
            sentence of more than ``MAX_SENTENCE_WORDS`` words is split. Words are normalized to NFC.
        min_count: words that occur less often are left out.
        max_words: maximum number of different words; the most frequent words are used; 0: all words.
        folder: write the ids to this folder and memory-map them, for a corpus larger than memory.

    Raises:
        ConfigError: an invalid count, or ``folder`` is a file or empty.
        DataError: there is no sentence, fewer than two words are frequent enough, a sentence is not a text,
            or the file cannot be read.
    """
    for name, value in (("min_count", min_count), ("max_words", max_words)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ConfigError(f"{value!r} is not a number of words", where=name, fix="Use 0 or more")
    if not (folder is None or isinstance(folder, str | Path)) or folder == "":
        raise ConfigError(f"{folder!r} is not a path", where="folder", fix="Name a folder, or leave it unset")
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise ExistsError("there is a file of that name", where=str(folder), fix="Name a folder")
    if not isinstance(sentences, str | Path | Iterator):
        check_not_numbers(sentences, "sentences", "Give lists of words")
        table = open_table(sentences, "sentences", is_sentence)
        if table is not None:
            sentences = take_columns(table, "sentences", "sentences")
        check_ordered(sentences, "sentences", "sentences")
    with _ArrayQueue(folder) as queue:
        return _build_corpus(sentences, queue, int(min_count), int(max_words), folder)


def _build_corpus(
    sentences: Sentences, queue: _ArrayQueue, min_count: int, max_words: int, folder: str | Path | None
) -> Corpus:
    """The result of ``read_corpus``; ``queue`` takes the provisional ids, by order of first occurrence."""
    first_words, raw_counts, lengths = _provisional_ids(sentences, queue)
    try:
        "\n".join(first_words).encode()
    except UnicodeEncodeError as error:  # such a word could not be written to a file
        what = f"a lone surrogate ({error.object[error.start]!a}), which is half a character"
        fix = "Decode the text again, with errors='replace' if it is damaged"
        raise DataError(what, where="sentences", fix=fix) from None
    normalized = [word if word.isascii() else normalize("NFC", word) for word in first_words]
    counter: Counter[str] = Counter()
    for word, n in zip(normalized, raw_counts.tolist()):
        counter[word] += n
    ranked = sorted(((n, w) for w, n in counter.items() if n >= min_count), key=lambda x: (-x[0], x[1]))
    ranked = ranked[:max_words] if max_words else ranked
    if not counter:
        raise DataError("no sentence has a word", where="sentences", fix="Give sentences of words")
    if max_words == 1:
        fix = "Use 2 or more, or 0 for no limit"
        raise TooFewExamplesError("one word has no neighbors", where="max_words", fix=fix)
    if len(counter) < 2:
        what = f"the only word is {next(iter(counter))!r}, and one word has no neighbors"
        raise TooFewExamplesError(what, where="sentences", fix="Give sentences of different words")
    if len(ranked) < 2:
        what = f"fewer than two of {len(counter):,} words occur {min_count} times"
        enough = counter.most_common(2)[1][1]  # keeps two words
        fix = f"Lower min_count to {enough} or less, or give more sentences"
        raise TooFewExamplesError(what, where="min_count", fix=fix)
    words = tuple(w for _, w in ranked)
    counts = np.array([n for n, _ in ranked], np.int64)
    ids_of_words = {w: i for i, w in enumerate(words)}
    id_map = np.array([ids_of_words.get(word, RARE) for word in normalized], np.int32)  # provisional id -> id
    with _writable_ids(int(counts.sum()), folder) as ids:
        position = 0
        for i, provisional in enumerate(queue):
            is_frequent = id_map[provisional] != RARE
            frequent_ids = id_map[provisional][is_frequent]
            ids[position : position + len(frequent_ids)] = frequent_ids
            position += len(frequent_ids)
            ends = np.cumsum(lengths[i])
            lengths[i] = np.diff(np.concatenate([[0], np.cumsum(is_frequent)])[ends], prepend=0)
    sentence_lengths = _split_long(np.concatenate(lengths))
    starts = np.concatenate([[0], np.cumsum(sentence_lengths[sentence_lengths > 0])]).astype(np.int64)
    num_raw_words = counter.total()
    if folder is None:
        return Corpus(ids, starts, words, counts, num_raw_words)
    folder = Path(folder)
    with atomic_write(folder / "starts.npy") as draft, draft.open("wb") as file:
        np.save(file, starts, allow_pickle=False)
    description = {"words": words, "counts": counts.tolist(), "raw_words": num_raw_words}
    write_text(folder / "words.json", json_text(description) + "\n")
    return Corpus.open(folder)


def _split_long(lengths: np.ndarray) -> np.ndarray:
    """Lengths of sentences after splitting those of more than ``MAX_SENTENCE_WORDS`` words."""
    if lengths.max(initial=0) <= MAX_SENTENCE_WORDS:
        return lengths
    counts_and_rests = (divmod(n, MAX_SENTENCE_WORDS) for n in lengths.tolist())
    lists = ([MAX_SENTENCE_WORDS] * count + [rest] for count, rest in counts_and_rests)
    return np.fromiter(chain.from_iterable(lists), np.int64)


@contextmanager
def _writable_ids(size: int, folder: str | Path | None) -> Iterator[np.ndarray]:
    """An array to be filled: in memory, or in a temporary file that replaces ids.npy afterwards.

    An existing ids.npy is not overwritten, since another process may have memory-mapped it.
    """
    if folder is None:
        yield np.empty(size, np.int32)
        return
    with atomic_write(Path(folder) / "ids.npy") as draft:
        array = np.lib.format.open_memmap(draft, "w+", np.int32, (size,))
        if hasattr(os, "posix_fallocate"):  # otherwise writing to the map on a full disk kills the process
            with open(draft, "rb+") as file:
                os.posix_fallocate(file.fileno(), 0, draft.stat().st_size)
        yield array
        array.flush()


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a CannotWriteError."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError.of(path, error) from error


def split_sentences(sentences: Sentences) -> Iterator[Sequence[str]]:
    """Yield the words of each sentence; the words of lists are not checked.

    Raises:
        DataError: a sentence is neither a string nor a list, or the file is missing or not UTF-8.
    """
    lines = _file_lines(Path(sentences)) if isinstance(sentences, str | Path) else sentences
    for i, sentence in enumerate(lines, 1):
        if isinstance(sentence, str):
            yield normalize("NFC", sentence).split()
        elif isinstance(sentence, Sequence):
            yield sentence
        elif isinstance(sentence, np.ndarray) and sentence.ndim == 1:  # lists in Parquet files
            yield sentence.tolist()
        else:
            raise _sentence_error(i)


class _ProvisionalIds(dict[str, int]):
    """Word -> provisional id, in the order of first occurrence; a lookup of a new word assigns an id."""

    def __missing__(self, word: object) -> int:
        if not isinstance(word, str):
            raise TypeError
        self[word] = number = len(self)
        return number


class _ArrayQueue:
    """A queue of int32 arrays that can be iterated once: in memory, or in an unnamed file in ``folder``."""

    def __init__(self, folder: str | Path | None):
        self.arrays: deque[np.ndarray] = deque()
        self.sizes: list[int] = []
        self.file = None
        if folder is not None:
            with _disk_errors(Path(folder)):
                Path(folder).mkdir(parents=True, exist_ok=True)
                self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- it outlives this call
                self.folder = Path(folder)

    def __enter__(self) -> _ArrayQueue:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, array: np.ndarray) -> None:
        if self.file is None:
            self.arrays.append(array)
            return
        self.sizes.append(array.nbytes)
        with _disk_errors(self.folder):
            self.file.write(array.data)

    def __iter__(self) -> Iterator[np.ndarray]:
        if self.file is None:
            while self.arrays:
                yield self.arrays.popleft()  # its memory is freed when the next array is requested
            return
        with _disk_errors(self.folder):
            self.file.seek(0)
            for size in self.sizes:
                yield np.frombuffer(self.file.read(size), np.int32)


def _provisional_ids(
    sentences: Sentences, queue: _ArrayQueue
) -> tuple[_ProvisionalIds, np.ndarray, list[np.ndarray]]:
    """Write the provisional ids of all words to the queue, one array per chunk of sentences.

    Returns:
        The words; their counts, int64 ``[V]``; for each chunk, the lengths of its sentences.
    """
    ids_of_words, counts, lengths = _ProvisionalIds(), np.zeros(0, np.int64), []
    stream = split_sentences(sentences)
    while chunk := list(islice(stream, CHUNK_SENTENCES)):
        sizes = np.fromiter(map(len, chunk), np.int64, len(chunk))
        ids = map(ids_of_words.__getitem__, chain.from_iterable(chunk))
        try:
            chunk_ids = np.fromiter(ids, np.int32, int(sizes.sum()))
        except TypeError:  # a word is not a string, or not hashable
            num_before = len(lengths) * CHUNK_SENTENCES
            invalid = (i for i, words in enumerate(chunk, 1) if not all(isinstance(w, str) for w in words))
            raise _sentence_error(num_before + next(invalid, 1)) from None
        new_counts = np.bincount(chunk_ids, minlength=len(ids_of_words))
        new_counts[: len(counts)] += counts
        counts = new_counts
        lengths.append(sizes)
        queue.add(chunk_ids)
    return ids_of_words, counts, lengths


def _sentence_error(i: int) -> DataError:
    fix = 'Give ["a text", ...] or [["a", "text"], ...]'
    return DataError(f"sentence {i} is neither a text nor a list of words", where="sentences", fix=fix)


def _file_lines(path: Path) -> Iterator[str]:
    name = str(path)
    if max(map(len, path.parts), default=0) > MAX_FILE_NAME or ("\n" in name and not path.exists()):
        what = f"a text of {len(name):,} characters where the path of a file of sentences is expected"
        raise NoSuchFileError(what, where=repr(name[:40]), fix="Put a single text into a list: [text]")
    fix = "Give the path of a text file, or a list"
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig") as file:
            yield from file
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchFileError("no such file of sentences", where=name, fix=fix) from None
    except NotRegularError as error:  # the file is read twice, which is impossible with a pipe
        raise NoSuchFileError(f"no such file of sentences: {error.strerror}", where=name, fix=fix) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=name, fix="Check its permissions") from None
    except UnicodeDecodeError as error:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                fix = f"Unpack it: gunzip -c {quote(name)} > {quote(name.removesuffix('.gz') + '.unpacked')}"
                raise FileTypeError("is compressed with gzip", where=name, fix=fix) from None
        raise NotUtf8Error(f"not UTF-8 ({error})", where=str(path), fix="Save it as UTF-8") from None
