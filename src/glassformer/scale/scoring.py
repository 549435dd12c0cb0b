"""Labels for Parquet files of any size: shard by shard, each of which may be asked for again at any time.

A shard is some rows of one file. ``score_shard`` writes its answers to a file of its own, whole or not at
all, and does nothing where that file already holds the answers of the same model for the same rows. Whoever
maps it, in one process or on many machines, may therefore be stopped and started again; ``score_file`` does
so in this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import MANIFEST, disk_errors, file_sha256, replacing
from glassformer.checkpoints.locks import writing
from glassformer.config import listed, nearest
from glassformer.data.columns import trained_sides
from glassformer.data.files import check_file
from glassformer.data.parquet import ANY_SIZE, batches, check_rows, open_parquet, to_list
from glassformer.errors import (
    CheckpointError,
    DataError,
    ExistsError,
    InputError,
    MissingValueError,
    NoSuchColumnError,
    NotForThisModelError,
    UnclearColumnError,
    with_article,
)
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs
from glassformer.outputs import check_new_file
from glassformer.reading import Unchanged
from glassformer.scale.engines import mapped, needs
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run_folder import trained_column, trained_columns

# --- shards ---------------------------------------------------------------------------------------
#
# A shard of a Parquet file, and its rows in portions that fit in memory.


AT_ONCE = 64 << 20  # bytes of inputs that are answered in one call
PIECE = 256  # rows that become Python's at a time


@dataclass(frozen=True)
class Shard:
    """Rows ``first`` to ``first + rows`` (from 0) of one column, and the file that their answers go to.

    ``pair`` is the column of the second texts, of pairs.
    """

    source: str
    column: str
    first: int
    rows: int
    target: str
    pair: str = ""


def in_portions(inputs: Iterator[Any]) -> Iterator[list[Any]]:
    """The inputs in lists that take no more than ``AT_ONCE`` bytes together, or hold a single one."""
    portion: list[Any] = []
    taken = 0
    for one in inputs:
        parts = one if isinstance(one, tuple) else (one,)
        size = sum(len(part) for part in parts if isinstance(part, str | bytes))
        if portion and taken + size > AT_ONCE:
            yield portion
            portion, taken = [], 0
        portion.append(one)
        taken += size
    if portion:
        yield portion


def read_rows(shard: Shard) -> Iterator[Any]:
    """A shard's values: texts, two of them where they are pairs, or the bytes of images.

    Only the row groups that hold them are read.
    """
    if shard.pair:
        sides = (replace(shard, column=name, pair="") for name in (shard.column, shard.pair))
        yield from zip(*map(read_rows, sides), strict=True)
        return
    file = open_parquet(shard.source)
    if shard.column not in file.schema_arrow.names:
        raise NoSuchColumnError(f"no column {shard.column!r}", where=shard.source)
    groups, before = [], 0
    start, end, row = shard.first, shard.first + shard.rows, 0
    for number in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        if row < end and row + count > start:
            groups.append(number)
        elif row + count <= start:
            before = row + count
        row += count
    row = before
    for batch in batches(shard.source, shard.column, groups):
        if row + len(batch) > start:
            part = batch.slice(max(0, start - row), end - max(row, start))
            for piece in range(0, len(part), PIECE):
                values = to_list(part.slice(piece, PIECE), shard.source, max(row, start) + piece)
                yield from (_bytes_of(value) for value in values)
        row += len(batch)
        if row >= end:
            return


def _bytes_of(value: Any) -> Any:
    """An image in the form of the ``datasets`` library as its bytes; paths in a file are not followed."""
    return value.get("bytes") if isinstance(value, dict) else value


# --- scoring --------------------------------------------------------------------------------------


SHARD_ROWS = 4096
FORMAT = 2  # of a shard's answers: 2 has the column ``truncated``
NOTE = b"glassformer"  # key of the Parquet schema's metadata


def shards_of(
    source: str | Path, folder: str | Path, column: str, rows: int = SHARD_ROWS, pair: str = ""
) -> list[Shard]:
    """A Parquet file in shards, whose answers are to lie in ``folder``: ``part-000000.parquet`` and so on."""
    total, files = check_rows(source, open_parquet(source)), Path(folder)
    return [
        Shard(str(source), column, first, min(rows, total - first), str(files / f"part-{i:06}.parquet"), pair)
        for i, first in enumerate(range(0, total, rows))
    ]


def score_shard(model: str | Path, shard: Shard) -> int:
    """Score one shard, unless its file has these answers already; the number of rows without an answer.

    A row gives ``row`` (in the source, from 1), ``label``, ``probability`` (of that label), one column
    ``p:CLASS`` for each class, for texts ``truncated`` (longer than the model reads, and cut), and ``error``:
    why a row without an answer has none (no text, a damaged image), else null.

    Args:
        model: folder of a run or of a saved classifier.

    Raises:
        InputError: no such classifier, no such column, a damaged file.
        GlassformerError: the disk refused.
    """
    import pyarrow.parquet as pq

    check_file(Path(shard.source), ANY_SIZE)
    target = Path(shard.target)
    wanted = _note(model, shard)
    if (found := _answered(target, wanted)) is not None:
        return found
    table = _table(load_once(model), shard, wanted)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as fresh:
        pq.write_table(table, fresh, compression="zstd")
    return table.column("error").length() - table.column("error").null_count


def score_file(
    model: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    column: str | None = None,
    rows: int = SHARD_ROWS,
    engine: str = "serial",
    progress: Callable[[int, int], None] | None = None,
    pair: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, int]:
    """Score a Parquet file into another; a call that was stopped is gone on with by the same call.

    What is done lies in ``OUT.parts`` until the whole is there. Memory holds one shard.

    Args:
        column: of texts or images; None finds it by its usual names.
        engine: ``serial``, or ``ray``: shards are tasks of a cluster that sees the files at the same paths.
        progress: called after each shard, those of an earlier call too, with its rows and all rows.
        pair: column of the second texts, for a model of pairs; None: likewise.
        say: called with a line where columns of pairs are not found by the names of the training.

    Returns:
        ``rows``, ``failed`` (rows without an answer) and ``truncated`` (texts that were cut).

    Raises:
        InputError: as ``score_shard``; ``out`` exists, has no folder to lie in, or another process writes it;
            the model or the file has changed since the call began.
    """
    out = Path(out)
    check_new_file(out)
    unchanged, state = Unchanged(source), _state(model)

    def check() -> None:
        unchanged.check()
        if _state(model) != state:
            what = "the model has changed while it answered; what is finished is not joined"
            raise CheckpointError(what, where=str(model), fix="Give the same command again")

    parts = out.with_name(f"{out.name}.parts")
    if pair is not None or getattr(load_once(model), "reads_pairs", False):
        names = open_parquet(source).schema_arrow.names
        sides = trained_sides(names, column, pair, str(source), trained_columns(model))
        column, pair = sides.first, sides.second
        if sides.said:
            say(sides.said)
    else:
        column = find_column(source, load_once(model).inputs, column, trained_column(model))
    shards = shards_of(Path(source).resolve(), parts.resolve(), column, rows, pair or "")
    if not shards:
        raise MissingValueError("the file has no rows", where=str(source), fix="Give at least one example")
    total, failed, clf = sum(shard.rows for shard in shards), 0, load_once(model)
    work = partial(score_shard, str(Path(model).resolve()))
    with writing(parts):
        if out.exists():  # another process has just come to its end
            raise ExistsError("the output file exists", where=str(out), fix="Choose another --out")
        for shard, without in mapped(engine, work, shards, **needs(clf.threads, clf.device)):
            check()
            failed += without
            if progress is not None:
                progress(shard.rows, total)
        check()
        join_parts([shard.target for shard in shards], out)
        for shard in shards:
            Path(shard.target).unlink(missing_ok=True)
    with suppress(OSError):  # something else lies in it, or the next one has begun
        parts.rmdir()
    return {"rows": total, "failed": failed, "truncated": _cut(out)}


def _cut(out: Path) -> int:
    """How many texts of an answered file were cut."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if "truncated" not in pq.read_schema(out).names:  # images
        return 0
    column = pq.read_table(out, columns=["truncated"])["truncated"]
    return pc.sum(column).as_py() or 0  # type: ignore[attr-defined]  # made at run time


def join_parts(parts: Sequence[str | Path], out: str | Path) -> None:
    """The answers of all shards in one file, in their order; one shard is in memory at a time."""
    import pyarrow.parquet as pq

    with replacing(Path(out)) as fresh:
        schema = pq.read_schema(parts[0]).remove_metadata()
        with pq.ParquetWriter(fresh, schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pq.read_table(part).replace_schema_metadata(None))


def find_column(
    source: str | Path, inputs: Inputs, wanted: str | None = None, trained: str | None = None
) -> str:
    """The column of texts or images: the wanted one, the training's if it is there, or by usual names.

    Raises:
        DataError: no such column, one of numbers, or several that could be it.
    """
    import pyarrow as pa

    schema = open_parquet(source).schema_arrow
    names = schema.names
    if wanted is not None and wanted not in names:
        raise NoSuchColumnError(f"no column {wanted!r}", where=str(source), fix=nearest(wanted, names))
    if wanted is None and trained in names:
        wanted = trained
    usual, noun = inputs.columns, inputs.noun
    found = [wanted] if wanted is not None else names[:1] if len(names) == 1 else []
    found = found or [name for name in names if name.lower() in usual]
    found = found or inputs.likely_columns(source, schema)
    chosen = [name for name in found if name.lower() == usual[0]] or found
    if len(chosen) != 1:
        several = ", ".join(found)
        what = f"several columns could be the {noun}: {several}" if found else f"no column of {noun}"
        raise UnclearColumnError(what, where=str(source), fix=f"Name it with --text-column: {listed(names)}")
    kind = schema.field(chosen[0]).type
    lists = pa.types.is_nested(kind) and not pa.types.is_struct(kind)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or lists:  # numbers, truth values, dates
        what = f"column {chosen[0]!r} holds {kind}, not {noun}"
        raise UnclearColumnError(
            what, where=str(source), fix=f"Name another with --text-column: {listed(names)}"
        )
    return chosen[0]


def load_once(model: str | Path) -> Any:
    """A saved classifier, loaded once a process, and again when another was saved in its place.

    Raises:
        InputError: no such folder, a damaged one, or no classifier.
    """
    return _loaded(str(Path(model).resolve()), _state(model))


@lru_cache(maxsize=1)
def _loaded(model: str, checksum: str) -> Any:
    from glassformer.tasks.load import load

    clf = load(model)
    if TASKS[clf.RECIPE.task].answer is None:
        raise NotForThisModelError(
            f"holds {with_article(type(clf).__name__)}, which gives no labels", where=str(model)
        )
    return clf


# --- scoring one ----------------------------------------------------------------------------------


def _state(model: str | Path) -> str:
    """What tells a saved model from another: its manifest, or sizes and times of the files that others wrote.

    Empty where there is no model: loading says what is wrong.
    """
    for folder in (Path(model), Path(model) / "model"):
        if (folder / MANIFEST).is_file():
            return file_sha256(folder / MANIFEST)
    if not (Path(model) / "config.json").is_file():
        return ""
    files = sorted(file for file in Path(model).iterdir() if file.is_file())
    return json_text(
        [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files], ascii=True
    )


def _note(model: str | Path, shard: Shard) -> str:
    """What must agree for a shard's file to be taken as it is."""
    source, state = os.stat(shard.source), _state(model)
    if not state:
        raise CheckpointError("no saved model", where=str(model), fix="Name a run folder or its model")
    return json_text(
        {
            "model": state,
            "bytes": source.st_size,
            "modified": source.st_mtime_ns,
            "column": shard.column,
            "first": shard.first,
            "rows": shard.rows,
            "format": FORMAT,
            **({"pair": shard.pair} if shard.pair else {}),
        },
        ascii=True,
    )


def _answered(target: Path, wanted: str) -> int | None:
    """The number of rows without an answer in a shard's file; None: not there, damaged or another shard's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if ((pq.read_schema(target).metadata or {}).get(NOTE, b"")).decode() != wanted:
            return None
        errors = pq.read_table(target).column("error")
    except (OSError, pa.ArrowException):
        return None
    return errors.length() - errors.null_count


def _table(clf: Any, shard: Shard, note: str) -> Any:
    import pyarrow as pa

    classes, answer = clf.classes_.tolist(), TASKS[clf.RECIPE.task].answer
    assert answer is not None, "only what gives labels is loaded"
    rows = np.full((shard.rows, len(classes)), np.nan)
    labels: list[Any] = [None] * shard.rows
    shares: list[float | None] = [None] * shard.rows
    cut: list[bool | None] = [None] * shard.rows
    errors: list[str | None] = [None] * shard.rows
    seen = 0
    for inputs in in_portions(read_rows(shard)):
        if seen + len(inputs) > shard.rows:
            break
        found, answers = _answers(clf, inputs)
        errors[seen : seen + len(inputs)] = found
        good = [i for i, error in enumerate(found) if error is None]
        if good:
            chosen = [inputs[i] for i in good]
            places = [seen + i for i in good]
            rows[places] = answers
            if clf.inputs.can_be_cut:
                for i, truncated in zip(places, clf.truncated(chosen).tolist(), strict=True):
                    cut[i] = truncated
            for i, label, share in zip(places, *answer(clf, answers), strict=True):
                labels[i], shares[i] = label, share
        seen += len(inputs)
    if seen != shard.rows:
        raise DataError(f"{seen} of {shard.rows} rows were read", where=shard.source)
    label_type: Any = pa.int64() if isinstance(classes[0], int) else pa.string()
    if clf.kind_.binary:
        label_type, labels = pa.list_(label_type), [None if x is None else list(x) for x in labels]
    if clf.kind_.labels_given:
        given = {"label": pa.array(labels, label_type), "probability": pa.array(shares, pa.float64())}
        given |= {
            f"p:{c}": pa.array(rows[:, k], pa.float64(), from_pandas=True) for k, c in enumerate(classes)
        }
    else:
        given = {"number": pa.array(rows[:, 0], pa.float64(), from_pandas=True)}
        if (bounds := bounds_of(clf, rows[:, 0])) is not None:
            for name, bound in zip(("low", "high"), bounds.T, strict=True):
                given[name] = pa.array(bound, pa.float64(), from_pandas=True)
    columns = {
        "row": pa.array(np.arange(shard.first + 1, shard.first + shard.rows + 1), pa.int64()),
        **given,
        **({"truncated": pa.array(cut, pa.bool_())} if clf.inputs.can_be_cut else {}),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).replace_schema_metadata({NOTE: note.encode()})


def _problem(clf: Any, x: Any) -> str | None:
    """Why this input cannot be scored, None where it can."""
    try:
        clf.inputs.check_cell(x, clf)
    except InputError as error:
        return error.what
    return None


def _answers(clf: Any, inputs: list[Any]) -> tuple[list[str | None], Any]:
    """What is wrong with each input (None: nothing), and the probabilities of those that can be answered."""
    errors = [_problem(clf, x) for x in inputs]
    good = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    if not good:
        return errors, None
    try:
        return errors, clf.outputs(good)
    except DataError:
        if not clf.inputs.can_be_cut:
            raise
    errors = _encodable(clf, inputs, errors)  # one text that cannot be tokenized ends no shard
    good = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    return errors, clf.outputs(good) if good else None


def _encodable(clf: Any, texts: list[Any], errors: list[str | None]) -> list[str | None]:
    """The same errors, and those of the texts that the tokenizer fails on or finds nothing in."""

    def fails(text: str) -> str | None:
        try:
            clf.encode(clf.check([text]))
        except DataError as error:
            return error.what
        return None

    return [fails(text) if error is None else error for text, error in zip(texts, errors, strict=True)]
