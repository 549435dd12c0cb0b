"""Word vectors in the format of word2vec, text and binary, as gensim and others read and write it.

Text: a line ``words dim``, then a line a word: the word and its numbers. Binary: the same first line, then
for each word its name, a space and little-endian fp32 numbers, with or without a line end behind them.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import numpy as np

from glassformer.checkpoints.files import disk_errors, missing_run, temporary_name
from glassformer.errors import CheckpointError, ConfigError, IncompleteError, NoSuchModelError, PickleError

PACKED = (".gz", ".bz2", ".xz", ".zip")  # by such a name others unpack
LONGEST = 1_000_000  # bytes of a word or of the first line: more is another kind of file
TRIED = 100  # lines that are looked at to tell text from binary
_FORMAT = "Expected: a first line of two numbers (words and dim), then a word and its numbers a line"


def write_word2vec_format(
    path: str | Path, words: Sequence[str], vectors: np.ndarray, binary: bool | None = None
) -> Path:
    """Write ``[V, D]`` vectors; a file that stands there, or that a link leads to, is replaced in one step.

    Args:
        binary: None: by the name, ``.bin`` is binary.

    Raises:
        CheckpointError: a word with white space or half a character in it, which the format cannot hold; a
            name of a packed file; or what stands there is no file.
    """
    path = Path(path)
    if path.suffix in PACKED:
        raise CheckpointError(
            "is not packed here", where=str(path), fix="Name it .txt or .bin, and pack it then"
        )
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise NoSuchModelError("there is no file to replace", where=str(path), fix="Name another path")
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
                    else:  # the shortest decimals that give the same fp32 number back
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
    """Words and their vectors ``[V, D]`` fp32.

    Args:
        binary: None: looked for in the file itself.
        limit: the first so many words at most; None: all.

    Raises:
        CheckpointError: no such file, another format (GloVe's, a packed file, gensim's own: with the way to
            convert it), a cut file, a line with too few numbers, a word twice; the line is named.
        ConfigError: a limit below 1.
    """
    path = Path(path)
    if limit is not None and (not isinstance(limit, int | np.integer) or limit < 1):
        raise ConfigError(f"{limit!r} words", where="limit", fix="Use 1 or more, or None for all")
    try:
        data = np.fromfile(path, np.uint8).tobytes() if path.is_file() else None
    except OSError as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
    if data is None:
        raise NoSuchModelError("no such file", where=str(path), fix=missing_run(path))
    data = data.removeprefix(codecs.BOM_UTF8)
    _refuse_packed(data, path)
    head, _, _ = data[:LONGEST].partition(b"\n")
    count, dim = _first_line(head, data, path)
    body = len(head) + 1
    if binary is None:
        binary = _looks_binary(data, body, dim)
    read = _read_binary if binary else _read_text
    words, vectors = read(data, body, count, dim, path, count if limit is None else min(limit, count))
    unit, first = ("word", 1) if binary else ("line", 2)  # and the number of the first
    fix = "Download it again" if binary else "Remove the line, and count one word less in the first"
    if len(set(words)) != len(words):
        rows: dict[str, int] = {}
        again = next(i for i, word in enumerate(words) if rows.setdefault(word, i) != i)
        what = f"the word {words[again]!r} occurs twice, first at {rows[words[again]] + first}"
        raise CheckpointError(what, where=f"{path}, {unit} {again + first}", fix=fix)
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(1)))
        what = f"the vector of {words[row]!r} holds something that is not a number"
        raise CheckpointError(what, where=f"{path}, {unit} {row + first}", fix=fix)
    return tuple(words), vectors


def _refuse_packed(data: bytes, path: Path) -> None:
    """Kinds of file that are met under such names, with what makes one of ours of them."""
    if data.startswith(b"\x1f\x8b"):
        out = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".unpacked")
        fix = f"Unpack it: gunzip -c {quote(str(path))} > {quote(str(out))}"
        raise CheckpointError("is packed by gzip", where=str(path), fix=fix)
    if data.startswith(b"PK\x03\x04"):
        fix = f"Unpack it: unzip {quote(str(path))}"
        raise CheckpointError("is a zip archive", where=str(path), fix=fix)
    if data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5"):  # pickle and its protocol
        code = (
            f"from gensim.models import KeyedVectors as K; m = K.load({str(path)!r}); "
            f"getattr(m, 'wv', m).save_word2vec_format({_beside(path)!r})"
        )
        what = "is a pickle, gensim's own format perhaps: opening one can run any code"
        fix = f"Where you trust it, convert it with gensim: python -c {quote(code)}"
        raise PickleError(what, where=str(path), fix=fix)


def _beside(path: Path) -> str:
    """Where a converted copy may go."""
    return str(path.with_name(path.stem + ".word2vec.txt"))


def _first_line(head: bytes, data: bytes, path: Path) -> tuple[int, int]:
    parts = head.split()
    if len(parts) != 2 or not all(p.isdigit() and len(p) < 19 for p in parts):
        fix = _FORMAT
        if len(parts) > 2 and _are_numbers(parts[1:]):
            words = data.rstrip().count(b"\n") + 1  # whether or not a line end is behind the last
            line = f"{words} {len(parts) - 1}"
            fix = f"GloVe's files lack the first line; put '{line}' there: "
            fix += f"(echo '{line}'; cat {quote(str(path))}) > {quote(_beside(path))}"
        raise CheckpointError("is not in word2vec's format", where=f"{path}, line 1", fix=fix)
    count, dim = map(int, parts)
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
    """No line is a word and its numbers, and some bytes are in no text: one bad line makes no binary file."""
    sample = data[body : body + LONGEST]
    for line in sample.split(b"\n", TRIED)[:TRIED]:
        fields = line.split()
        if len(fields) == dim + 1 and _are_numbers(fields[1:]):
            return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # the last letter may be cut
    except UnicodeDecodeError:
        return True
    return re.search(rb"[\x00-\x08\x0e-\x1f]", sample) is not None


def _read_text(
    data: bytes, body: int, count: int, dim: int, path: Path, wanted: int
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

    def wrong(i: int, what: str) -> CheckpointError:
        word, where = lines[i].split(" ", 1)[0][:40], f"{path}, line {i + 2}"
        fix = "Correct the line, one blank before each number, or the count of numbers in the first line"
        if i == len(lines) - 1 < count - 1:
            fix = "The file ends here before its time: download it again"
        return CheckpointError(f"{what} behind {word!r}, expected {dim} numbers", where=where, fix=fix)

    for i, line in enumerate(lines):  # before room is made for what a wrong first line promises
        if (found := line.rstrip().count(" ")) != dim:
            raise wrong(i, f"{found} numbers")
    if len(lines) != count:
        fix = "Download it again, or correct the first line"
        raise CheckpointError(
            f"{len(lines):,} words, the first line says {count:,}", where=str(path), fix=fix
        )
    words, vectors = [], np.empty((wanted, dim), np.float32)
    for i, line in enumerate(lines[:wanted]):
        word, _, numbers = line.rstrip().partition(" ")
        try:
            if "_" in numbers:  # which Python's numbers may have
                raise ValueError
            vectors[i] = numbers.split(" ")
        except ValueError:
            raise wrong(i, "something that is not a number") from None
        if not word:
            raise CheckpointError(
                "no word before the numbers", where=f"{path}, line {i + 2}", fix="Write it there"
            )
        words.append(word)
    return words, vectors


def _read_binary(
    data: bytes, body: int, count: int, dim: int, path: Path, wanted: int
) -> tuple[list[str], np.ndarray]:
    size = 4 * dim
    if (len(data) - body) // (size + 2) < count:  # before room is made for what a wrong first line promises
        raise IncompleteError(
            f"is too short for {count:,} words of {dim} numbers", where=str(path), fix="Download it again"
        )
    words, vectors = [], np.empty((wanted, dim), np.float32)
    place = body
    for i in range(wanted):
        space = data.find(b" ", place, place + LONGEST)
        if space < 0 or space + 1 + size > len(data):
            raise IncompleteError(
                f"ends in word {i + 1:,} of {count:,}", where=str(path), fix="Download it again"
            )
        try:
            words.append(data[place:space].lstrip(b"\n").decode("utf-8"))
        except UnicodeDecodeError:
            raise CheckpointError(
                f"word {i + 1:,} is not UTF-8",
                where=str(path),
                fix="Check that it is word2vec's binary format",
            ) from None
        vectors[i] = np.frombuffer(data, "<f4", dim, space + 1)
        place = space + 1 + size
    # So that another kind of file is not read as nonsense.
    if wanted == count and data[place : place + LONGEST].strip():
        what = f"goes on behind the {count:,} words of {dim} numbers that the first line promises"
        raise CheckpointError(what, where=str(path), fix="Check that it is word2vec's binary format")
    return words, vectors
