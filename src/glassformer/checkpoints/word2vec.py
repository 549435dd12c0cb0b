"""Word vectors in the format of word2vec, text and binary, as gensim and others read and write it.

Text: a line ``words dim``, then a line a word: the word and its numbers. Binary: the same first line, then for
each word its name, a space and little-endian fp32 numbers, with or without a line end behind them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.checkpoints.files import disk_errors, temporary_name
from glassformer.errors import CheckpointError

LONGEST = 1_000_000  # bytes of a word or of the first line: more is another kind of file
_FORMAT = "Wanted: a first line of two numbers (words and dim), then a word and its numbers a line"


def write_word2vec_format(
    path: str | Path, words: Sequence[str], vectors: np.ndarray, binary: bool | None = None
) -> Path:
    """Write ``[V, D]`` vectors; a file that stands there is replaced in one step.

    Args:
        binary: None: by the name, ``.bin`` is binary.

    Raises:
        CheckpointError: a word with white space in it, which the format cannot hold.
    """
    path = Path(path)
    for word in words:
        if not word or any(c.isspace() for c in word):
            raise CheckpointError(
                f"the word {word!r} cannot stand in this format", where=str(path),
                fix="Use save(), or join the word with '_'",
            )  # fmt: skip
    vectors = np.ascontiguousarray(vectors, dtype="<f4")
    draft = temporary_name(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def read_word2vec_format(path: str | Path, binary: bool | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """Words and their vectors ``[V, D]`` fp32.

    Args:
        binary: None: looked for in the file itself.

    Raises:
        CheckpointError: no such file, another format (GloVe's has no first line), a cut file, a line with too
            few numbers, a word that stands there twice; the line is named.
    """
    path = Path(path)
    try:
        data = np.fromfile(path, np.uint8).tobytes() if path.is_file() else None
    except OSError as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
    if data is None:
        raise CheckpointError("no such file", where=str(path), fix="Check the path")
    head, _, _ = data[:LONGEST].partition(b"\n")
    count, dim = _first_line(head, path)
    body = len(head) + 1
    if binary is None:
        binary = _looks_binary(data, body, dim)
    read = _read_binary if binary else _read_text
    words, vectors = read(data, body, count, dim, path)
    if len(set(words)) != len(words):
        seen: set[str] = set()
        twice = next(w for w in words if w in seen or seen.add(w))  # type: ignore[func-returns-value]
        raise CheckpointError(f"the word {twice!r} stands there twice", where=str(path))
    if not np.isfinite(vectors).all():
        word = words[int(np.argmin(np.isfinite(vectors).all(1)))]
        raise CheckpointError(f"the vector of {word!r} holds something that is no number", where=str(path))
    return tuple(words), vectors


def _first_line(head: bytes, path: Path) -> tuple[int, int]:
    parts = head.split()
    if len(parts) != 2 or not all(p.isdigit() for p in parts):
        fix = _FORMAT
        if len(parts) > 2:
            fix = f"GloVe's files lack the first line; put '{{words}} {len(parts) - 1}' there. {_FORMAT}"
        raise CheckpointError("is not in word2vec's format", where=f"{path}, line 1", fix=fix)
    count, dim = map(int, parts)
    if not 1 <= dim <= 100_000 or count < 1:
        raise CheckpointError(f"{count} words of {dim} numbers", where=f"{path}, line 1", fix=_FORMAT)
    return count, dim


def _looks_binary(data: bytes, body: int, dim: int) -> bool:
    line = data[body : body + LONGEST].partition(b"\n")[0].split()
    try:
        return len(line) != dim + 1 or not [float(x) for x in line[1:]]
    except ValueError:
        return True


def _read_text(data: bytes, body: int, count: int, dim: int, path: Path) -> tuple[list[str], np.ndarray]:
    try:
        lines = data[body:].decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"not UTF-8 ({error})", where=str(path), fix=_FORMAT) from None
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) != count:
        raise CheckpointError(
            f"{len(lines):,} words, the first line says {count:,}", where=str(path), fix="Fetch it anew"
        )
    words, vectors = [], np.empty((count, dim), np.float32)
    for i, line in enumerate(lines):
        word, *numbers = line.rstrip().split(" ")
        try:
            if len(numbers) != dim:  # numpy would repeat a single one
                raise ValueError
            vectors[i] = numbers
        except ValueError:
            what = f"{len(numbers)} numbers" if len(numbers) != dim else "something that is no number"
            raise CheckpointError(
                f"{what} behind {word[:40]!r}, wanted {dim} numbers", where=f"{path}, line {i + 2}"
            ) from None
        words.append(word)
    return words, vectors


def _read_binary(data: bytes, body: int, count: int, dim: int, path: Path) -> tuple[list[str], np.ndarray]:
    size = 4 * dim
    if (len(data) - body) // (size + 2) < count:  # before room is made for what a wrong first line promises
        raise CheckpointError(
            f"is too short for {count:,} words of {dim} numbers", where=str(path), fix="Fetch it anew"
        )
    words, vectors = [], np.empty((count, dim), np.float32)
    place = body
    for i in range(count):
        space = data.find(b" ", place, place + LONGEST)
        if space < 0 or space + 1 + size > len(data):
            raise CheckpointError(
                f"ends in word {i + 1:,} of {count:,}", where=str(path), fix="Fetch it anew"
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
    return words, vectors
