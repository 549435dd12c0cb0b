"""Read and write word vectors in word2vec's text and binary formats, which gensim also uses.

Both formats begin with a line with two numbers: the number of words, and their dimension. In the text format,
each line has a word and its numbers. In the binary format, each word is followed by a space, little-endian
fp32 numbers and perhaps a line break.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import numpy as np

from glassformer.checkpoints.files import disk_errors, missing_run_hint, temporary_name
from glassformer.errors import CheckpointError, ConfigError, IncompleteError, NoSuchModelError, PickleError

COMPRESSED = (".gz", ".bz2", ".xz", ".zip")  # other programs would try to unpack files with these names
MAX_BYTES = 1_000_000  # maximum size of a word or of the first line; other kinds of files may exceed it
SAMPLE_LINES = 100  # number of lines from which the format is detected
_FORMAT = "Expected: a first line of two numbers (words and dim), then one line per word with its numbers"


def write_word2vec_format(
    path: str | Path, words: Sequence[str], vectors: np.ndarray, binary: bool | None = None
) -> Path:
    """Write vectors ``[V, D]``; an existing file, or the target of a link, is replaced atomically.

    Args:
        binary: whether to use the binary format; None: if the name ends with ``.bin``.

    Raises:
        CheckpointError: a word has white space or a lone surrogate, the path is not a file, or its name ends
            like that of a compressed file.
    """
    path = Path(path)
    if path.suffix in COMPRESSED:
        raise CheckpointError(
            "compressed files are not supported",
            where=str(path),
            fix="Name it .txt or .bin, and compress it later",
        )
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise NoSuchModelError("is not a file", where=str(path), fix="Name another path")
    for word in words:
        if not word or any(c.isspace() or "\ud800" <= c <= "\udfff" for c in word):
            raise CheckpointError(
                f"the word {word!r} cannot be in this format",
                where=str(path),
                fix="Use save(), or join the word with '_'",
            )
    vectors = np.ascontiguousarray(vectors, dtype="<f4")
    draft = temporary_name(target)
    with disk_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
                for word, row in zip(words, vectors, strict=True):
                    name = word.encode()
                    if path.suffix == ".bin" if binary is None else binary:
                        file.write(name + b" " + row.tobytes() + b"\n")
                    else:  # as the shortest decimals that represent the same fp32 numbers
                        file.write(name + b" " + " ".join(map(str, row)).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    return path


def read_word2vec_format(
    path: str | Path, binary: bool | None = None, limit: int | None = None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Read words and their vectors ``[V, D]`` in fp32.

    Args:
        binary: whether the file has the binary format; None: detect the format.
        limit: maximum number of words to read; None: all.

    Raises:
        CheckpointError: the file is missing, has another format, is truncated, or has an invalid line or a
            repeated word. For GloVe, compressed files and gensim's own format, the error has a command that
            converts the file.
        ConfigError: ``limit`` is below 1.
    """
    path = Path(path)
    if limit is not None and (not isinstance(limit, int | np.integer) or limit < 1):
        raise ConfigError(f"{limit!r} words", where="limit", fix="Use 1 or more, or None for all")
    try:
        data = np.fromfile(path, np.uint8).tobytes() if path.is_file() else None
    except OSError as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
    if data is None:
        raise NoSuchModelError("no such file", where=str(path), fix=missing_run_hint(path))
    data = data.removeprefix(codecs.BOM_UTF8)
    _check_not_compressed(data, path)
    head, _, _ = data[:MAX_BYTES].partition(b"\n")
    count, dim = _parse_first_line(head, data, path)
    body = len(head) + 1  # first byte after the first line
    if binary is None:
        binary = _looks_binary(data, body, dim)
    read = _read_binary if binary else _read_text
    words, vectors = read(data, body, count, dim, path, count if limit is None else min(limit, count))
    unit, first = ("word", 1) if binary else ("line", 2)  # how messages number the vectors
    fix = "Remove the line, and reduce the number of words in the first line by one"
    fix = "Download it again" if binary else fix
    if len(set(words)) != len(words):
        rows: dict[str, int] = {}
        duplicate = next(i for i, word in enumerate(words) if rows.setdefault(word, i) != i)
        what = f"the word {words[duplicate]!r} occurs twice, first at {rows[words[duplicate]] + first}"
        raise CheckpointError(what, where=f"{path}, {unit} {duplicate + first}", fix=fix)
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(1)))
        what = f"the vector of {words[row]!r} contains NaN or infinity"
        raise CheckpointError(what, where=f"{path}, {unit} {row + first}", fix=fix)
    return tuple(words), vectors


def _check_not_compressed(data: bytes, path: Path) -> None:
    """Raise an error for compressed files and pickles, with a command that converts them."""
    if data.startswith(b"\x1f\x8b"):
        out = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".unpacked")
        fix = f"Unpack it: gunzip -c {quote(str(path))} > {quote(str(out))}"
        raise CheckpointError("is compressed with gzip", where=str(path), fix=fix)
    if data.startswith(b"PK\x03\x04"):
        fix = f"Unpack it: unzip {quote(str(path))}"
        raise CheckpointError("is a zip archive", where=str(path), fix=fix)
    if data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5"):  # a pickle and its protocol
        code = (
            f"from gensim.models import KeyedVectors as K; m = K.load({str(path)!r}); "
            f"getattr(m, 'wv', m).save_word2vec_format({_converted_path(path)!r})"
        )
        what = "is a pickle, perhaps of gensim; it is not read, because it could run any code"
        fix = f"If you trust it, convert it with gensim: python -c {quote(code)}"
        raise PickleError(what, where=str(path), fix=fix)


def _converted_path(path: Path) -> str:
    return str(path.with_name(path.stem + ".word2vec.txt"))


def _parse_first_line(head: bytes, data: bytes, path: Path) -> tuple[int, int]:
    """The number of words and their dimension."""
    fields = head.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 19 for field in fields):
        fix = _FORMAT
        if len(fields) > 2 and _are_numbers(fields[1:]):
            words = data.rstrip().count(b"\n") + 1
            line = f"{words} {len(fields) - 1}"
            fix = f"GloVe files lack the first line; add '{line}': "
            fix += f"(echo '{line}'; cat {quote(str(path))}) > {quote(_converted_path(path))}"
        raise CheckpointError("is not in word2vec's format", where=f"{path}, line 1", fix=fix)
    count, dim = map(int, fields)
    if not 1 <= dim <= 100_000 or count < 1:
        raise CheckpointError(f"{count} words of {dim} numbers", where=f"{path}, line 1", fix=_FORMAT)
    return count, dim


def _are_numbers(fields: Sequence[bytes]) -> bool:
    try:
        _ = [float(field) for field in fields]
    except ValueError:
        return False
    return True


def _looks_binary(data: bytes, body: int, dim: int) -> bool:
    """Whether no line of a sample is a word with its numbers, and some bytes cannot be text."""
    sample = data[body : body + MAX_BYTES]
    for line in sample.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]:
        fields = line.split()
        if len(fields) == dim + 1 and _are_numbers(fields[1:]):
            return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # accepts a truncated last character
    except UnicodeDecodeError:
        return True
    return re.search(rb"[\x00-\x08\x0e-\x1f]", sample) is not None


def _read_text(
    data: bytes, body: int, count: int, dim: int, path: Path, limit: int
) -> tuple[list[str], np.ndarray]:
    try:
        lines = data[body:].decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, body + error.start) + 1
        raise CheckpointError(
            f"not UTF-8 ({error.reason})", where=f"{path}, line {line}", fix="Save it as UTF-8"
        ) from None
    while lines and not lines[-1].strip():
        lines.pop()

    def error_at(i: int, what: str) -> CheckpointError:
        word, where = lines[i].split(" ", 1)[0][:40], f"{path}, line {i + 2}"
        fix = "Correct the line (one space before each number), or the dim in the first line"
        if i == len(lines) - 1 < count - 1:
            fix = "The file is truncated here: download it again"
        return CheckpointError(f"{what} after {word!r}, expected {dim} numbers", where=where, fix=fix)

    for i, line in enumerate(lines):  # check before allocating memory, because the first line may be wrong
        if (num_numbers := line.rstrip().count(" ")) != dim:
            raise error_at(i, f"{num_numbers} numbers")
    if len(lines) != count:
        fix = "Download it again, or correct the first line"
        raise CheckpointError(
            f"{len(lines):,} words, but the first line gives {count:,}", where=str(path), fix=fix
        )
    words, vectors = [], np.empty((limit, dim), np.float32)
    for i, line in enumerate(lines[:limit]):
        word, _, numbers = line.rstrip().partition(" ")
        try:
            if "_" in numbers:  # Python accepts 1_000, the format does not
                raise ValueError
            vectors[i] = numbers.split(" ")
        except ValueError:
            raise error_at(i, "a value that is not a number") from None
        if not word:
            raise CheckpointError(
                "there is no word before the numbers", where=f"{path}, line {i + 2}", fix="Add the word"
            )
        words.append(word)
    return words, vectors


def _read_binary(
    data: bytes, body: int, count: int, dim: int, path: Path, limit: int
) -> tuple[list[str], np.ndarray]:
    size = 4 * dim
    if (len(data) - body) // (size + 2) < count:  # check before allocating memory, as above
        raise IncompleteError(
            f"is too short for {count:,} words of {dim} numbers", where=str(path), fix="Download it again"
        )
    words, vectors = [], np.empty((limit, dim), np.float32)
    position = body
    for i in range(limit):
        space = data.find(b" ", position, position + MAX_BYTES)
        if space < 0 or space + 1 + size > len(data):
            raise IncompleteError(
                f"ends in word {i + 1:,} of {count:,}", where=str(path), fix="Download it again"
            )
        try:
            words.append(data[position:space].lstrip(b"\n").decode("utf-8"))
        except UnicodeDecodeError:
            raise CheckpointError(
                f"word {i + 1:,} is not UTF-8",
                where=str(path),
                fix="Check that it is word2vec's binary format",
            ) from None
        vectors[i] = np.frombuffer(data, "<f4", dim, space + 1)
        position = space + 1 + size
    if limit == count and data[position : position + MAX_BYTES].strip():  # another kind of file
        what = f"continues after the {count:,} words of {dim} numbers in the first line"
        raise CheckpointError(what, where=str(path), fix="Check that it is word2vec's binary format")
    return words, vectors
