"""Predict labels for Parquet files of any size, shard by shard.

A shard is a range of rows of one file. ``score_shard`` writes its predictions to a separate file, atomically,
and does nothing if that file already has the predictions of the same model for the same rows. So scoring can
be stopped and restarted at any time. ``score_file`` scores all shards and joins the results.
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
from glassformer.data.columns import columns_for_pair_model
from glassformer.data.files import check_file
from glassformer.data.parquet import ANY_SIZE, check_rows, open_parquet, read_batches, to_list
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
from glassformer.reading import ChangeDetector
from glassformer.scale.engines import mapped, needs
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run_folder import trained_column, trained_columns

# --- shards ---------------------------------------------------------------------------------------


AT_ONCE = 64 << 20  # maximum size of the inputs of one prediction call, in bytes
PIECE = 256  # rows converted to Python objects at a time


@dataclass(frozen=True)
class Shard:
    """Rows ``first`` to ``first + rows`` (from 0) of one column, and the file for their predictions.

    ``pair`` is the column of the second texts of pairs.
    """

    source: str
    column: str
    first: int
    rows: int
    target: str
    pair: str = ""


def in_portions(inputs: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield lists of inputs of at most ``AT_ONCE`` bytes (a larger input gets its own list)."""
    portion: list[Any] = []
    n_taken = 0
    for x in inputs:
        parts = x if isinstance(x, tuple) else (x,)
        size = sum(len(part) for part in parts if isinstance(part, str | bytes))
        if portion and n_taken + size > AT_ONCE:
            yield portion
            portion, n_taken = [], 0
        portion.append(x)
        n_taken += size
    if portion:
        yield portion


def read_rows(shard: Shard) -> Iterator[Any]:
    """Yield a shard's inputs: texts, pairs of texts, or the bytes of images.

    Reads only the row groups that contain them.
    """
    if shard.pair:
        shards = (replace(shard, column=name, pair="") for name in (shard.column, shard.pair))
        yield from zip(*map(read_rows, shards), strict=True)
        return
    file = open_parquet(shard.source)
    if shard.column not in file.schema_arrow.names:
        raise NoSuchColumnError(f"no column {shard.column!r}", where=shard.source)
    groups, group_start = [], 0
    start, end, row = shard.first, shard.first + shard.rows, 0
    for number in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        if row < end and row + count > start:
            groups.append(number)
        elif row + count <= start:
            group_start = row + count
        row += count
    row = group_start
    for batch in read_batches(shard.source, shard.column, groups):
        if row + len(batch) > start:
            part = batch.slice(max(0, start - row), end - max(row, start))
            for piece in range(0, len(part), PIECE):
                values = to_list(part.slice(piece, PIECE), shard.source, max(row, start) + piece)
                yield from (_bytes_of(value) for value in values)
        row += len(batch)
        if row >= end:
            return


def _bytes_of(value: Any) -> Any:
    """The bytes of an image in the format of the ``datasets`` library; paths are not followed."""
    return value.get("bytes") if isinstance(value, dict) else value


# --- scoring --------------------------------------------------------------------------------------


SHARD_ROWS = 4096
FORMAT = 2  # format version of a shard's file; since 2 there is a column ``truncated``
NOTE = b"glassformer"  # key in the metadata of the Parquet schema


def shards_of(
    source: str | Path, folder: str | Path, column: str, rows: int = SHARD_ROWS, pair: str = ""
) -> list[Shard]:
    """Divide a Parquet file into shards; predictions go to ``folder`` as ``part-000000.parquet`` ..."""
    total, files = check_rows(source, open_parquet(source)), Path(folder)
    return [
        Shard(str(source), column, first, min(rows, total - first), str(files / f"part-{i:06}.parquet"), pair)
        for i, first in enumerate(range(0, total, rows))
    ]


def score_shard(model: str | Path, shard: Shard) -> int:
    """Score one shard unless its file already has these predictions; returns the number of failed rows.

    Columns of the result: ``row`` (in the source, from 1), ``label``, ``probability`` (of that label),
    ``p:CLASS`` for each class, for texts ``truncated`` (longer than the maximum length), and ``error``: why a
    row has no prediction (no text, a damaged image), otherwise null.

    Args:
        model: folder of a run or of a saved classifier.

    Raises:
        InputError: no such classifier or column, or a damaged file.
        GlassformerError: the file could not be written.
    """
    import pyarrow.parquet as pq

    check_file(Path(shard.source), ANY_SIZE)
    target = Path(shard.target)
    note = _note(model, shard)
    if (failed := _already_scored(target, note)) is not None:
        return failed
    table = _table(load_once(model), shard, note)
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
    """Score a Parquet file into another. Repeat a call that was stopped to resume it.

    Finished shards are in the folder ``OUT.parts`` until all are joined. Only one shard is in memory.

    Args:
        column: column of texts or images; None: detected.
        engine: ``serial``, or ``ray``: shards are tasks of a cluster, which sees the files at the same paths.
        progress: called after each shard, also those of an earlier call, with its rows and all rows.
        pair: column of the second texts, for a model of pairs; None: detected.
        say: called with a message if columns of pairs do not have the names of the training.

    Returns:
        ``rows``, ``failed`` (rows without a prediction) and ``truncated`` (truncated texts).

    Raises:
        InputError: as in ``score_shard``; ``out`` exists, its folder does not, or another process writes it;
            the model or the file has changed during the call.
    """
    out = Path(out)
    check_new_file(out)
    unchanged, state = ChangeDetector(source), _state(model)

    def check() -> None:
        unchanged.check()
        if _state(model) != state:
            message = "the model has changed while it answered; what is finished is not joined"
            raise CheckpointError(message, where=str(model), fix="Give the same command again")

    parts = out.with_name(f"{out.name}.parts")
    if pair is not None or getattr(load_once(model), "reads_pairs", False):
        names = open_parquet(source).schema_arrow.names
        sides = columns_for_pair_model(names, column, pair, str(source), trained_columns(model))
        column, pair = sides.first, sides.second
        if sides.message:
            say(sides.message)
    else:
        column = find_column(source, load_once(model).inputs, column, trained_column(model))
    shards = shards_of(Path(source).resolve(), parts.resolve(), column, rows, pair or "")
    if not shards:
        raise MissingValueError("the file has no rows", where=str(source), fix="Give at least one example")
    total, failed, clf = sum(shard.rows for shard in shards), 0, load_once(model)
    work = partial(score_shard, str(Path(model).resolve()))
    with writing(parts):
        if out.exists():  # written by another process meanwhile
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
    with suppress(OSError):  # it has other files, or another process uses it again
        parts.rmdir()
    return {"rows": total, "failed": failed, "truncated": _count_truncated(out)}


def _count_truncated(out: Path) -> int:
    """Number of truncated texts in a scored file."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if "truncated" not in pq.read_schema(out).names:  # images
        return 0
    column = pq.read_table(out, columns=["truncated"])["truncated"]
    return pc.sum(column).as_py() or 0  # type: ignore[attr-defined]  # made at run time


def join_parts(parts: Sequence[str | Path], out: str | Path) -> None:
    """Join the files of all shards in order; only one shard is in memory at a time."""
    import pyarrow.parquet as pq

    with replacing(Path(out)) as fresh:
        schema = pq.read_schema(parts[0]).remove_metadata()
        with pq.ParquetWriter(fresh, schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pq.read_table(part).replace_schema_metadata(None))


def find_column(
    source: str | Path, inputs: Inputs, requested: str | None = None, trained: str | None = None
) -> str:
    """The column of texts or images: ``requested``, else the one used in training, else by common names.

    Raises:
        DataError: no such column, a column of another type, or several candidates.
    """
    import pyarrow as pa

    schema = open_parquet(source).schema_arrow
    names = schema.names
    if requested is not None and requested not in names:
        raise NoSuchColumnError(f"no column {requested!r}", where=str(source), fix=nearest(requested, names))
    if requested is None and trained in names:
        requested = trained
    usual_names, noun = inputs.columns, inputs.noun
    candidates = [requested] if requested is not None else names[:1] if len(names) == 1 else []
    candidates = candidates or [name for name in names if name.lower() in usual_names]
    candidates = candidates or inputs.likely_columns(source, schema)
    by_name = [name for name in candidates if name.lower() == usual_names[0]] or candidates
    if len(by_name) != 1:
        several = ", ".join(candidates)
        what = f"several columns could be the {noun}: {several}" if candidates else f"no column of {noun}"
        raise UnclearColumnError(what, where=str(source), fix=f"Name it with --text-column: {listed(names)}")
    kind = schema.field(by_name[0]).type
    lists = pa.types.is_nested(kind) and not pa.types.is_struct(kind)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or lists:  # numbers, truth values, dates
        what = f"column {by_name[0]!r} holds {kind}, not {noun}"
        fix = f"Name another with --text-column: {listed(names)}"
        raise UnclearColumnError(what, where=str(source), fix=fix)
    return by_name[0]


def load_once(model: str | Path) -> Any:
    """Load a saved classifier; cached in this process until another is saved in the same folder.

    Raises:
        InputError: no such folder, a damaged one, or not a classifier.
    """
    return _loaded(str(Path(model).resolve()), _state(model))


@lru_cache(maxsize=1)
def _loaded(model: str, checksum: str) -> Any:
    from glassformer.tasks.load import load

    clf = load(model)
    if TASKS[clf.RECIPE.task].answer is None:
        message = f"holds {with_article(type(clf).__name__)}, which gives no labels"
        raise NotForThisModelError(message, where=str(model))
    return clf


# --- scoring one shard ----------------------------------------------------------------------------


def _state(model: str | Path) -> str:
    """A key that identifies a saved model: the checksum of its manifest, or for other libraries' folders the
    sizes and times of the files. Empty if there is no model; loading it raises an error.
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
    """The metadata that must match for a shard's existing file to be reused."""
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


def _already_scored(target: Path, note: str) -> int | None:
    """The number of rows without a prediction in a shard's file; None: missing, damaged or outdated."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if ((pq.read_schema(target).metadata or {}).get(NOTE, b"")).decode() != note:
            return None
        errors = pq.read_table(target).column("error")
    except (OSError, pa.ArrowException):
        return None
    return errors.length() - errors.null_count


def _table(clf: Any, shard: Shard, note: str) -> Any:
    import pyarrow as pa

    classes, answer = clf.classes_.tolist(), TASKS[clf.RECIPE.task].answer
    assert answer is not None, "``_loaded`` checks this"
    rows = np.full((shard.rows, len(classes)), np.nan)
    labels: list[Any] = [None] * shard.rows
    probabilities: list[float | None] = [None] * shard.rows
    truncated: list[bool | None] = [None] * shard.rows
    errors: list[str | None] = [None] * shard.rows
    n_rows = 0
    for inputs in in_portions(read_rows(shard)):
        if n_rows + len(inputs) > shard.rows:
            break
        problems, outputs = _outputs(clf, inputs)
        errors[n_rows : n_rows + len(inputs)] = problems
        usable = [i for i, error in enumerate(problems) if error is None]
        if usable:
            valid = [inputs[i] for i in usable]
            places = [n_rows + i for i in usable]
            rows[places] = outputs
            if clf.inputs.can_be_cut:
                for i, was_cut in zip(places, clf.truncated(valid).tolist(), strict=True):
                    truncated[i] = was_cut
            for i, label, probability in zip(places, *answer(clf, outputs), strict=True):
                labels[i], probabilities[i] = label, probability
        n_rows += len(inputs)
    if n_rows != shard.rows:
        raise DataError(f"{n_rows} of {shard.rows} rows were read", where=shard.source)
    label_type: Any = pa.int64() if isinstance(classes[0], int) else pa.string()
    if clf.kind_.is_multilabel:
        label_type, labels = pa.list_(label_type), [None if x is None else list(x) for x in labels]
    if clf.kind_.predicts_labels:
        predictions = {
            "label": pa.array(labels, label_type),
            "probability": pa.array(probabilities, pa.float64()),
        }
        predictions |= {
            f"p:{c}": pa.array(rows[:, k], pa.float64(), from_pandas=True) for k, c in enumerate(classes)
        }
    else:
        predictions = {"number": pa.array(rows[:, 0], pa.float64(), from_pandas=True)}
        if (bounds := bounds_of(clf, rows[:, 0])) is not None:
            for name, bound in zip(("low", "high"), bounds.T, strict=True):
                predictions[name] = pa.array(bound, pa.float64(), from_pandas=True)
    columns = {
        "row": pa.array(np.arange(shard.first + 1, shard.first + shard.rows + 1), pa.int64()),
        **predictions,
        **({"truncated": pa.array(truncated, pa.bool_())} if clf.inputs.can_be_cut else {}),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).replace_schema_metadata({NOTE: note.encode()})


def _problem(clf: Any, x: Any) -> str | None:
    """Why this input cannot be scored; None if it can."""
    try:
        clf.inputs.check_cell(x, clf)
    except InputError as error:
        return error.what
    return None


def _outputs(clf: Any, inputs: list[Any]) -> tuple[list[str | None], Any]:
    """The error of each input (None if it is valid), and the probabilities of the valid ones."""
    errors = [_problem(clf, x) for x in inputs]
    usable = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    if not usable:
        return errors, None
    try:
        return errors, clf.outputs(usable)
    except DataError:
        if not clf.inputs.can_be_cut:
            raise
    errors = _with_tokenizer_errors(clf, inputs, errors)  # one bad text must not fail the whole shard
    usable = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    return errors, clf.outputs(usable) if usable else None


def _with_tokenizer_errors(clf: Any, texts: list[Any], errors: list[str | None]) -> list[str | None]:
    """Add errors for texts that the tokenizer fails on, or in which it finds no token."""

    def fails(text: str) -> str | None:
        try:
            clf.encode(clf.check([text]))
        except DataError as error:
            return error.what
        return None

    return [fails(text) if error is None else error for text, error in zip(texts, errors, strict=True)]
