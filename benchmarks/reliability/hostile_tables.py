"""Tables by construction that ask for more than they are: bombs, width, depth, length, columns of every odd kind.

Each is read rightly, or refused by a typed error that names the file, within seconds and a bound on memory. Every one
is read in a process of its own, as ``load_text_dataset`` does for training; Parquet also as ``predict --data`` does.
"""

import datetime
import decimal
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.processes import answered, ended, forked, peak_mb, reset_peak, scratch
from glassformer.data.parquet import check_rows, open_parquet, read_batches, to_list
from glassformer.data.sources import load_text_dataset
from glassformer.errors import InputError

MOST_SECONDS, MOST_MB = 30.0, 700  # of one core: other work on the machine does not count
MOST_WAIT = 180.0  # seconds by the clock, so that waiting for a pipe is found
READ, REFUSED = "read", "refused"
GOOD = ["a good film", "a bad film"] * 20
Case = tuple[str, str, Callable[[Path], Any], str]  # name, ending, what writes it, the answer that is right


def _table(**options: Any) -> Callable[..., Callable[[Path], None]]:
    """What writes a Parquet file of these columns with these options."""

    def of(text: Any, label: Any = None, more: dict | None = None) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            n = len(text)
            columns = {"text": text, "label": label if label is not None else [i % 2 for i in range(n)]}
            pq.write_table(pa.table(columns | (more or {})), path, **options)

        return write

    return of


def _repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def _varint(value: int, width: int) -> bytes:
    """A number in Thrift's compact protocol, made ``width`` bytes long by empty ones."""
    value <<= 1
    out = [(value >> (7 * i)) & 127 for i in range(width)]
    return bytes([b | 128 for b in out[:-1]] + out[-1:])


def _false_footer(path: Path) -> None:
    """A page that unpacks to a gigabyte, under a footer that says it is small."""
    plain = _table(compression="zstd", use_dictionary=False, write_statistics=False)
    plain(["a " * 150_000_000, "b", "c", "d"])(path)
    raw = path.read_bytes()
    size = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    width = ((size << 1).bit_length() + 6) // 7
    path.write_bytes(raw.replace(_varint(size, width), _varint(1_000, width)))


def _patched(old: bytes, new: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _table()(GOOD)(path)
        path.write_bytes(path.read_bytes().replace(old, new))

    return write


def _footer(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _table()(GOOD)(path)
        raw = path.read_bytes()
        length = struct.unpack("<I", raw[-8:-4])[0]
        path.write_bytes(raw[: -8 - length] + change(raw[-8 - length : -8]) + raw[-8:])

    return write


def _no_groups(path: Path) -> None:
    with pq.ParquetWriter(path, pa.schema([("text", pa.string()), ("label", pa.int64())])):
        pass


def _text(content: str | bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content) and None


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def cases() -> list[Case]:
    """All of them."""
    good = GOOD
    plain, one = _table(compression="zstd", use_dictionary=False), _table(compression="zstd")
    day = datetime.datetime(2020, 2, 3, 4, 5)
    head, row = "text,label\n", "a film,1\nanother,0\n"
    wide = [f"c{i}" for i in range(60_000)]
    kinds: dict[str, tuple[Any, str]] = {  # what a column of labels may be, and the answer
        "lists": (pa.array([["a"]] * 40), REFUSED),
        "empty lists": (pa.array([[]] * 40, pa.list_(pa.int64())), REFUSED),
        "structs": (pa.array([{"a": 1}] * 40), REFUSED),
        "maps": (pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int64())), REFUSED),
        "NaN": (pa.array([float("nan")] * 40), REFUSED),
        "fractions": (pa.array([0.5] * 40), REFUSED),
        "nulls": (pa.array([None] * 40), REFUSED),
        "timestamps": (pa.array([day] * 40), REFUSED),
        "decimals": (pa.array([decimal.Decimal("1.50")] * 40), REFUSED),
        "binary": (pa.array([b"\xff"] * 40), REFUSED),
        "fixed binary": (pa.array([b"abc"] * 40, pa.binary(3)), REFUSED),
        "durations": (pa.array([datetime.timedelta(1)] * 40), REFUSED),
        "whole floats": (pa.array([0.0, 1.0] * 20), READ),
        "truth values": (pa.array([True, False] * 20), READ),
        "dictionaries": (pa.array(["x", "y"] * 20).dictionary_encode(), READ),
        "small numbers": (pa.array([0, 1] * 20, pa.uint8()), READ),
    }
    texts = {
        "lists": pa.array([["a"]] * 40), "structs": pa.array([{"a": "b"}] * 40), "numbers": pa.array(range(40)),
        "binary": pa.array([b"a film"] * 40), "timestamps": pa.array([day] * 40), "nulls": pa.array([None] * 40),
        "maps": pa.array([[("a", "b")]] * 40, pa.map_(pa.string(), pa.string())),
    }  # fmt: skip
    found: list[Case] = [
        ("one text a thousand times, 1 GB", ".parquet", one(_repeated("a " * 500_000, 1_000)), REFUSED),
        ("one text of 64 MB, five times", ".parquet", one(_repeated("a " * 32_000_000, 5)), REFUSED),
        ("one page after the other, 300 MB", ".parquet", plain(["a " * 1_000_000] * 150), REFUSED),
        ("a footer that says little", ".parquet", _false_footer, REFUSED),
        ("prefixes that repeat, 400 MB", ".parquet", _table(
            use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY", "label": "PLAIN"}
        )(["a " * 200_000] * 1_000), REFUSED),
        ("fifty million labels of one bit", ".parquet", _millions, REFUSED),
        ("a list of thirty million in one row", ".parquet", _long_list, REFUSED),
        ("an unread column of 1 GB", ".parquet", one(good, None, {"junk": _repeated("z" * 25_000_000, 40)}), READ),
        ("an unread nested column", ".parquet", one(good, None, {"junk": pa.array([[["x"]]] * 40)}), READ),
        ("3,002 columns", ".parquet", lambda p: pq.write_table(
            pa.table({"text": good, "label": [0, 1] * 20} | {f"c{i}": [1] * 40 for i in range(3_000)}), p), READ),
        ("20,000 row groups", ".parquet", lambda p: pq.write_table(
            pa.table({"text": good * 50, "label": [0, 1] * 1_000}), p, row_group_size=1), READ),
        ("no row groups", ".parquet", _no_groups, REFUSED),
        ("more rows than pages", ".parquet", _patched(_varint(40, 1), _varint(50, 1)), REFUSED),
        ("encrypted footer", ".parquet", _patched(b"PAR1", b"PARE"), REFUSED),
        ("another magic", ".parquet", _patched(b"PAR1", b"ORC1"), REFUSED),
        ("a footer of zeros", ".parquet", _footer(lambda f: bytes(len(f))), REFUSED),
        ("a footer of ones", ".parquet", _footer(lambda f: b"\xff" * len(f)), REFUSED),
        ("a footer turned round", ".parquet", _footer(lambda f: f[::-1]), REFUSED),
        ("a footer cut in the middle", ".parquet", _footer(lambda f: f[: len(f) // 2] + bytes(len(f) - len(f) // 2)),
         REFUSED),
        ("pages of zeros", ".parquet", lambda p: (_table()(good)(p), p.write_bytes(
            p.read_bytes()[:4] + bytes(60) + p.read_bytes()[64:]))[0], REFUSED),
        ("columns named alike", ".parquet", lambda p: pq.write_table(pa.table(
            [good, good, [0, 1] * 20], names=["text", "text", "label"]), p), REFUSED),
        ("pages of the second version", ".parquet", _table(data_page_version="2.0")(good), READ),
        ("lengths by difference", ".parquet", _table(
            use_dictionary=False, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY", "label": "PLAIN"})(good), READ),
        ("a text of binary that is no UTF-8", ".parquet", _table()(
            pa.StringArray.from_buffers(40, *pa.array([b"a\xff"] * 40, pa.binary()).buffers()[1:])), REFUSED),
        ("CSV of 60,000 columns", ".csv", _text(
            ",".join(["text", "label", *wide]) + "\n" + "".join(
                ",".join([t, str(i % 2), *["1"] * 60_000]) + "\n" for i, t in enumerate(good))), READ),
        ("CSV of 100,000 columns", ".csv", _text(
            ",".join(["text", "label", *map(str, range(100_000))]) + "\n"), REFUSED),
        ("CSV of a million columns", ".csv", _text("a," * 1_000_000 + "\n"), REFUSED),
        ("CSV of 60,000 columns of one name", ".csv", _text(",".join(["text"] * 60_000) + "\n" + "a\n"), REFUSED),
        ("a cell of 70 million characters", ".csv", _text(head + "a" * 70_000_000 + ",1\n"), REFUSED),
        ("a line of 150 MB", ".csv", _text(head + "a" * 150_000_000 + ",1\n"), REFUSED),
        ("a line of 60 million separators", ".csv", _text(head + "," * 60_000_000 + "\n"), REFUSED),
        ("a quote never closed, over 70 MB", ".csv", _text(head + '"' + "a film, long \n" * 5_000_000), REFUSED),
        ("a header of 5,000 characters", ".csv", _text("word " * 1_000 + ",1\n" + row), REFUSED),
        ("a header alone, of 60 MB", ".csv", _text("a" * 60_000_000), REFUSED),
        ("four million short rows", ".csv", _text(head + "a,1\nb,0\n" * 2_000_000), READ),
        ("only line breaks, 10 MB", ".csv", _text("\n" * 10_000_000), REFUSED),
        ("only carriage returns", ".csv", _text(head + "\r" * 5_000_000 + row), READ),
        ("TSV with a cell of 10 MB", ".tsv", _text(
            "text\tlabel\n" + "a " * 5_000_000 + "\t1\nb film\t0\n"), READ),
        ("TSV of 100,000 columns", ".tsv", _text("\t".join(map(str, range(100_000))) + "\n"), REFUSED),
        ("rows of another width", ".csv", _text(head + "a,1,2\n" * 500_000), REFUSED),
        ("NaN as label", ".csv", _text(head + "a,nan\nb,1\n"), REFUSED),
        ("JSON nested 100,000 deep", ".jsonl", _text('{"text": ' + "[" * 100_000), REFUSED),
        ("JSON objects nested 50,000 deep", ".jsonl", _text('{"a":' * 50_000), REFUSED),
        ("JSON array nested deep", ".json", _text('[{"text": ' + "[" * 200_000), REFUSED),
        ("a JSON row of ten million lists", ".jsonl", _text('{"text": [' + "[]," * 10_000_000 + "[]]}\n"), REFUSED),
        ("an array with a row of ten million lists", ".json", _text(
            '[{"text": [' + "[]," * 10_000_000 + "[]]}]"), REFUSED),
        ("a JSON line of 150 MB", ".jsonl", _text('{"text": "' + "a" * 150_000_000 + '"}\n'), REFUSED),
        ("a new key in each of 100,000 rows", ".jsonl", _text(
            "".join(f'{{"text": "a", "label": 1, "k{i}": 1}}\n' for i in range(100_000))), REFUSED),
        ("100,000 keys in a row", ".jsonl", _text(_lines({f"k{i}": 1 for i in range(100_000)})), REFUSED),
        ("200 keys in each row", ".jsonl", _text(_lines(*(
            {"text": t, "label": i % 2} | {f"k{j}": j for j in range(200)} for i, t in enumerate(good)))), READ),
        ("a key of 100,000 characters", ".jsonl", _text(_lines({"text": "a", "label": 1, "k" * 100_000: 1})), REFUSED),
        ("a number of 6,000 digits", ".jsonl", _text('{"text": "a", "label": ' + "9" * 6_000 + "}\n"), REFUSED),
        ("NaN as JSON label", ".jsonl", _text('{"text": "a", "label": NaN}\n'), REFUSED),
        ("Infinity as JSON label", ".jsonl", _text('{"text": "a", "label": Infinity}\n'), REFUSED),
        ("texts that are lists", ".jsonl", _text(_lines({"text": ["a"], "label": 1})), REFUSED),
        ("a million numbers in an array", ".json", _text("[" + "1," * 1_000_000 + "1]"), REFUSED),
        ("an array that is never closed", ".json", _text("[" + '{"text": "a", "label": 1},' * 100_000), REFUSED),
        ("something behind the array", ".json", _text('[{"text": "a", "label": 1}] []'), REFUSED),
        ("two million spaces in front", ".json", _text(
            " " * 2_000_000 + '[{"text": "a b", "label": 1}, {"text": "c", "label": 0}]'), READ),
        ("a line of spaces, 60 MB", ".jsonl", _text(" " * 60_000_000 + "\n" + _lines(
            {"text": "a", "label": 1}, {"text": "b", "label": 0})), READ),
        ("a pipe", ".csv", lambda p: os.mkfifo(p), REFUSED),
        ("a pipe", ".parquet", lambda p: os.mkfifo(p), REFUSED),
        ("a pipe", ".jsonl", lambda p: os.mkfifo(p), REFUSED),
        ("a socket", ".csv", _socket, REFUSED),
        ("a link to a device", ".csv", lambda p: p.symlink_to("/dev/zero"), REFUSED),
        ("a link to a device", ".parquet", lambda p: p.symlink_to("/dev/zero"), REFUSED),
        ("a link to itself", ".csv", lambda p: p.symlink_to(p.name), REFUSED),
        ("a link that leads nowhere", ".jsonl", lambda p: p.symlink_to("gone"), REFUSED),
        ("a sparse file of 20 GB", ".csv", lambda p: (p.touch(), os.truncate(p, 20 << 30))[0], REFUSED),
    ]  # fmt: skip
    for kind, (*made, right) in kinds.items():
        found.append((f"labels: {kind}", ".parquet", _table()(good, *made), right))
    found += [(f"texts: {k}", ".parquet", _table()(column), REFUSED) for k, column in texts.items()]
    return found


def _long_list(path: Path) -> None:
    labels = pa.ListArray.from_arrays([0, 35_000_000, 35_000_001], np.zeros(35_000_001, int))
    pq.write_table(pa.table({"text": ["a", "b"], "label": labels}), path, compression="zstd")


def _millions(path: Path) -> None:
    n, chunk = 50_000_000, 1_000_000
    one = pa.table({"text": _repeated("a film", 1), "label": pa.array([0], pa.int8())})
    many = one.take(pa.array([0] * chunk, pa.int32()))
    with pq.ParquetWriter(path, many.schema, compression="zstd") as writer:
        for _ in range(n // chunk):
            writer.write_table(many)


def stream(path: Path) -> None:
    """The column of texts, a batch at a time, as ``predict --data`` reads it."""
    rows = check_rows(path, open_parquet(path))
    seen = 0
    for batch in read_batches(path, "text"):
        for start in range(0, len(batch), 256):
            seen += len(to_list(batch.slice(start, 256), path, seen))
    assert seen == rows


def load(path: Path) -> None:
    """Texts and labels, as training reads them."""
    dataset = load_text_dataset(path, need_labels=True)
    assert len(dataset.splits["train"].labels or ()) == len(dataset.splits["train"]) > 0


def attempt(path: Path, read: Callable[[Path], None]) -> dict[str, Any]:
    """What reading a file in a process of its own comes to: its answer, seconds, and memory beyond that before."""

    def work() -> dict[str, Any]:
        signal.alarm(int(MOST_WAIT))
        before, started, answer = reset_peak(), time.process_time(), READ
        try:
            read(path)
        except InputError as error:
            short = path.name in str(error) and len(str(error)) < 2_000
            answer = REFUSED if short else f"unnamed: {error}"[:300]
        except BaseException as error:
            answer = repr(error)[:300]
        more = max(0.0, peak_mb() - before)
        return {"answer": answer, "seconds": time.process_time() - started, "mb": more}

    return answered(work)[1] or {"answer": "died", "seconds": 0.0, "mb": 0.0}


def hostile_tables(count: int = 0) -> list[dict]:
    """Every case; the Parquet files also as streams, which only have to end within the bounds."""
    out = []
    for name, suffix, write, right in cases()[: count or None]:
        with scratch() as home:
            path = home / f"table{suffix}"
            # What makes a file must not count as memory of what reads it.
            assert ended(forked(lambda write=write, path=path: (write(path), None)[1])) == 0, name
            for how, read in (("load", load), *((("stream", stream),) if suffix == ".parquet" else ())):
                found = attempt(path, read)
                fine = found["answer"] == right if how == "load" else found["answer"] in (READ, REFUSED)
                fine = fine and found["seconds"] < MOST_SECONDS and found["mb"] < MOST_MB
                out.append({"what": f"{name} ({suffix}, {how})", "passed": fine, "said": found["answer"],
                            "answer": found["answer"] if fine else "failed", "seconds": round(found["seconds"], 2),
                            "mb": round(found["mb"])})  # fmt: skip
    return out
