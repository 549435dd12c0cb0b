"""Prediction of labels for Parquet files of any size.

A file is divided into shards, which are ranges of rows. ``score_shard`` atomically writes the predictions of
a shard to a separate file, unless this file already has the predictions of the same model for the same rows.
Scoring can therefore be stopped and resumed at any time. ``score_file`` scores all shards, and joins the
results.
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

from glassformer.checkpoints.files import MANIFEST, atomic_replace, disk_errors, file_sha256
from glassformer.checkpoints.locks import write_lock
from glassformer.config import join_names, suggest
from glassformer.data.columns import columns_for_pair_model
from glassformer.data.files import check_file
from glassformer.data.parquet import NO_SIZE_LIMIT, check_rows, open_parquet, read_batches, to_list
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
from glassformer.scale.engines import map_items, required_resources
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run import training_column, training_columns

# --- shards ---------------------------------------------------------------------------------------


MAX_BATCH_BYTES = 64 << 20  # maximum size of the inputs that are predicted together
CHUNK_ROWS = 256  # number of rows that are converted to Python objects at a time


@dataclass(frozen=True)
class Shard:
    """A range of rows of a column, and the file for their predictions (``target``)."""

    source: str
    column: str
    first: int  # first row, counted from 0
    rows: int  # number of rows
    target: str
    pair: str = ""  # column of the second texts, for pairs


def split_by_size(inputs: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield lists of inputs with at most ``MAX_BATCH_BYTES``; a larger input is alone in its list."""
    batch: list[Any] = []
    batch_bytes = 0
    for x in inputs:
        parts = x if isinstance(x, tuple) else (x,)
        size = sum(len(part) for part in parts if isinstance(part, str | bytes))
        if batch and batch_bytes + size > MAX_BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(x)
        batch_bytes += size
    if batch:
        yield batch


def read_rows(shard: Shard) -> Iterator[Any]:
    """Yield the inputs of a shard: texts, pairs of texts, or the bytes of images."""
    if shard.pair:
        shards = (replace(shard, column=name, pair="") for name in (shard.column, shard.pair))
        yield from zip(*map(read_rows, shards), strict=True)
        return
    file = open_parquet(shard.source)
    if shard.column not in file.schema_arrow.names:
        raise NoSuchColumnError(f"no column {shard.column!r}", where=shard.source)
    groups, group_start = [], 0  # row groups to read, and the first row of the first one
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
            for i in range(0, len(part), CHUNK_ROWS):
                values = to_list(part.slice(i, CHUNK_ROWS), shard.source, max(row, start) + i)
                # the ``datasets`` library stores images as dictionaries
                yield from (value.get("bytes") if isinstance(value, dict) else value for value in values)
        row += len(batch)
        if row >= end:
            return


# --- scoring --------------------------------------------------------------------------------------


SHARD_ROWS = 4096  # number of rows of a shard
FORMAT = 2  # version of the format of a shard's file; version 2 added the column ``truncated``
FINGERPRINT_KEY = b"glassformer"  # key in the metadata of the Parquet schema


def make_shards(
    source: str | Path, folder: str | Path, column: str, rows: int = SHARD_ROWS, pair: str = ""
) -> list[Shard]:
    """Divide a Parquet file into shards, whose predictions go to ``folder/part-000000.parquet`` and so on."""
    total, files = check_rows(source, open_parquet(source)), Path(folder)
    return [
        Shard(str(source), column, first, min(rows, total - first), str(files / f"part-{i:06}.parquet"), pair)
        for i, first in enumerate(range(0, total, rows))
    ]


def score_shard(model: str | Path, shard: Shard) -> int:
    """Score a shard, unless its file already has these predictions; returns the number of failed rows.

    Columns of the file: ``row`` (in the source, from 1), ``label``, ``probability`` (of this label),
    ``p:CLASS`` for each class, ``truncated`` (for texts: whether the text was too long), and ``error`` (the
    reason why a row has no prediction; otherwise null).

    Args:
        model: folder of a run or of a saved classifier.

    Raises:
        InputError: the classifier or the column is missing, or a file is damaged.
        GlassformerError: the file cannot be written.
    """
    import pyarrow.parquet as pq

    check_file(Path(shard.source), NO_SIZE_LIMIT)
    target = Path(shard.target)
    fingerprint = _fingerprint(model, shard)
    if (num_failed := _already_scored(target, fingerprint)) is not None:
        return num_failed
    table = _table(load_cached(model), shard, fingerprint)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replace(target) as draft:
        pq.write_table(table, draft, compression="zstd")
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
    log: Callable[[str], None] = lambda message: None,
) -> dict[str, int]:
    """Predict for all rows of a Parquet file, and write a new file. The same call resumes a stopped call.

    The folder ``OUT.parts`` has the finished shards until they are joined. Only one shard is in memory.

    Args:
        column: column of texts or images; None: detect it.
        engine: ``serial``, or ``ray`` for tasks of a cluster whose machines have the files at the same paths.
        progress: called after each shard, with the number of its rows and of all rows.
        pair: column of the second texts, for a model of pairs; None: detect it.
        log: called with a message if the columns of pairs have other names than in training.

    Returns:
        ``rows``, ``failed`` (number of rows without a prediction) and ``truncated`` (number of texts).

    Raises:
        InputError: as in ``score_shard``; or ``out`` exists, its folder is missing, another process writes
            it, or the model or the file has changed during the call.
    """
    out = Path(out)
    check_new_file(out)
    change_detector, model_key = ChangeDetector(source), _model_key(model)

    def check_unchanged() -> None:
        change_detector.check()
        if _model_key(model) != model_key:
            what = "the model has changed during prediction, so the finished parts were not joined"
            raise CheckpointError(what, where=str(model), fix="Run the same command again")

    parts = out.with_name(f"{out.name}.parts")
    if pair is not None or getattr(load_cached(model), "reads_pairs", False):
        names = open_parquet(source).schema_arrow.names
        trained = training_columns(model)
        column, pair, message = columns_for_pair_model(names, column, pair, str(source), trained)
        if message:
            log(message)
    else:
        column = find_column(source, load_cached(model).inputs, column, training_column(model))
    shards = make_shards(Path(source).resolve(), parts.resolve(), column, rows, pair or "")
    if not shards:
        raise MissingValueError("the file has no rows", where=str(source), fix="Give at least one example")
    total_rows, total_failed, clf = sum(shard.rows for shard in shards), 0, load_cached(model)
    work = partial(score_shard, str(Path(model).resolve()))
    with write_lock(parts):
        if out.exists():  # another process has written it
            raise ExistsError("the output file exists", where=str(out), fix="Choose another --out")
        resources = required_resources(clf.threads, clf.device)
        for shard, num_failed in map_items(engine, work, shards, **resources):
            check_unchanged()
            total_failed += num_failed
            if progress is not None:
                progress(shard.rows, total_rows)
        check_unchanged()
        join_parts([shard.target for shard in shards], out)
        for shard in shards:
            Path(shard.target).unlink(missing_ok=True)
    with suppress(OSError):  # the folder has other files, or is used by another process
        parts.rmdir()
    return {"rows": total_rows, "failed": total_failed, "truncated": _count_truncated(out)}


def _count_truncated(out: Path) -> int:
    """The number of truncated texts in a scored file."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if "truncated" not in pq.read_schema(out).names:  # images
        return 0
    column = pq.read_table(out, columns=["truncated"])["truncated"]
    return pc.sum(column).as_py() or 0  # type: ignore[attr-defined]  # made at run time


def join_parts(parts: Sequence[str | Path], out: str | Path) -> None:
    """Write the contents of all shards' files to one file, in order; only one shard is in memory."""
    import pyarrow.parquet as pq

    with atomic_replace(Path(out)) as draft:
        schema = pq.read_schema(parts[0]).remove_metadata()
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pq.read_table(part).replace_schema_metadata(None))


def find_column(
    source: str | Path, inputs: Inputs, requested: str | None = None, trained: str | None = None
) -> str:
    """The column of texts or images: ``requested``, the column in training, or a column with a common name.

    Raises:
        DataError: the column is missing or has another type, or there are several candidates.
    """
    import pyarrow as pa

    schema = open_parquet(source).schema_arrow
    names = schema.names
    if requested is not None and requested not in names:
        raise NoSuchColumnError(f"no column {requested!r}", where=str(source), fix=suggest(requested, names))
    if requested is None and trained in names:
        requested = trained
    common_names, noun = inputs.columns, inputs.noun
    candidates = [requested] if requested is not None else names[:1] if len(names) == 1 else []
    candidates = candidates or [name for name in names if name.lower() in common_names]
    candidates = candidates or inputs.likely_columns(source, schema)
    by_name = [name for name in candidates if name.lower() == common_names[0]] or candidates
    if len(by_name) != 1:
        what = f"no column of {noun}"
        if candidates:
            what = f"several columns could be the {noun}: {', '.join(candidates)}"
        raise UnclearColumnError(
            what, where=str(source), fix=f"Name it with --text-column: {join_names(names)}"
        )
    kind = schema.field(by_name[0]).type
    is_list = pa.types.is_nested(kind) and not pa.types.is_struct(kind)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or is_list:
        what = f"column {by_name[0]!r} contains {kind} values, not {noun}"
        fix = f"Name another column with --text-column: {join_names(names)}"
        raise UnclearColumnError(what, where=str(source), fix=fix)
    return by_name[0]


def load_cached(model: str | Path) -> Any:
    """Load a saved classifier. The last one is cached, until another one is saved in its folder.

    Raises:
        InputError: the folder is missing or damaged, or does not have a classifier.
    """
    return _load(str(Path(model).resolve()), _model_key(model))


@lru_cache(maxsize=1)
def _load(model: str, model_key: str) -> Any:
    from glassformer.tasks.load import load

    clf = load(model)
    if TASKS[clf.RECIPE.task].answer is None:
        what = f"contains {with_article(type(clf).__name__)}, which predicts no labels"
        raise NotForThisModelError(what, where=str(model))
    return clf


# --- scoring one shard ----------------------------------------------------------------------------


def _model_key(model: str | Path) -> str:
    """A key that changes when a model is saved again; empty if there is no model.

    It is the checksum of the manifest; for folders of other libraries, it has the sizes and times of files.
    """
    for folder in (Path(model), Path(model) / "model"):
        if (folder / MANIFEST).is_file():
            return file_sha256(folder / MANIFEST)
    if not (Path(model) / "config.json").is_file():
        return ""
    files = {file: file.stat() for file in sorted(Path(model).iterdir()) if file.is_file()}
    return json_text([[file.name, s.st_size, s.st_mtime_ns] for file, s in files.items()], ascii=True)


def _fingerprint(model: str | Path, shard: Shard) -> str:
    """A text that changes if the model, the source or the rows of a shard change."""
    source, model_key = os.stat(shard.source), _model_key(model)
    if not model_key:
        raise CheckpointError("no saved model", where=str(model), fix="Name a run folder or its model")
    values = {"model": model_key, "bytes": source.st_size, "modified": source.st_mtime_ns}
    values |= {"column": shard.column, "first": shard.first, "rows": shard.rows, "format": FORMAT}
    return json_text(values | ({"pair": shard.pair} if shard.pair else {}), ascii=True)


def _already_scored(target: Path, fingerprint: str) -> int | None:
    """The number of failed rows in a shard's file; None if it is missing, damaged or outdated."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if ((pq.read_schema(target).metadata or {}).get(FINGERPRINT_KEY, b"")).decode() != fingerprint:
            return None
        errors = pq.read_table(target).column("error")
    except (OSError, pa.ArrowException):
        return None
    return errors.length() - errors.null_count


def _table(clf: Any, shard: Shard, fingerprint: str) -> Any:
    """The predictions of a shard as a pyarrow table."""
    import pyarrow as pa

    classes, answer = clf.classes_.tolist(), TASKS[clf.RECIPE.task].answer
    assert answer is not None, "``_load`` checks this"
    all_outputs = np.full((shard.rows, len(classes)), np.nan)
    labels: list[Any] = [None] * shard.rows
    probabilities: list[float | None] = [None] * shard.rows
    truncated: list[bool | None] = [None] * shard.rows
    errors: list[str | None] = [None] * shard.rows
    num_rows = 0
    for inputs in split_by_size(read_rows(shard)):
        if num_rows + len(inputs) > shard.rows:
            break
        new_errors, outputs = _outputs(clf, inputs)
        errors[num_rows : num_rows + len(inputs)] = new_errors
        usable = [i for i, error in enumerate(new_errors) if error is None]
        if usable:
            valid = [inputs[i] for i in usable]
            indices = [num_rows + i for i in usable]
            all_outputs[indices] = outputs
            if clf.inputs.can_be_cut:
                for i, is_truncated in zip(indices, clf.truncated(valid).tolist(), strict=True):
                    truncated[i] = is_truncated
            for i, label, probability in zip(indices, *answer(clf, outputs), strict=True):
                labels[i], probabilities[i] = label, probability
        num_rows += len(inputs)
    if num_rows != shard.rows:
        raise DataError(f"{num_rows} of {shard.rows} rows were read", where=shard.source)
    label_type: Any = pa.int64() if isinstance(classes[0], int) else pa.string()
    if clf.kind_.is_multilabel:
        label_type, labels = pa.list_(label_type), [None if x is None else list(x) for x in labels]
    numbers = partial(pa.array, type=pa.float64(), from_pandas=True)  # NaN becomes null
    if clf.kind_.predicts_labels:
        predictions = {"label": pa.array(labels, label_type), "probability": numbers(probabilities)}
        predictions |= {f"p:{c}": numbers(all_outputs[:, k]) for k, c in enumerate(classes)}
    else:
        predictions = {"number": numbers(all_outputs[:, 0])}
        if (bounds := bounds_of(clf, all_outputs[:, 0])) is not None:
            predictions |= {"low": numbers(bounds[:, 0]), "high": numbers(bounds[:, 1])}
    columns = {
        "row": pa.array(np.arange(shard.first + 1, shard.first + shard.rows + 1), pa.int64()),
        **predictions,
        **({"truncated": pa.array(truncated, pa.bool_())} if clf.inputs.can_be_cut else {}),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).replace_schema_metadata({FINGERPRINT_KEY: fingerprint.encode()})


def _find_error(check: Callable[..., Any], *arguments: Any) -> str | None:
    """The message of the error that ``check(*arguments)`` raises; None without an error."""
    try:
        check(*arguments)
    except InputError as error:
        return error.what
    return None


def _outputs(clf: Any, inputs: list[Any]) -> tuple[list[str | None], Any]:
    """The error of each input (None for usable inputs), and the probabilities of the usable inputs."""
    errors = [_find_error(clf.inputs.check_cell, x, clf) for x in inputs]
    usable = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    try:
        return errors, clf.outputs(usable) if usable else None
    except DataError:  # the tokenizer cannot encode a text, or finds no token in it
        if not clf.inputs.can_be_cut:
            raise
    pairs = zip(inputs, errors, strict=True)
    errors = [error or _find_error(lambda x: clf.encode(clf.check([x])), x) for x, error in pairs]
    usable = [x for x, error in zip(inputs, errors, strict=True) if error is None]
    return errors, clf.outputs(usable) if usable else None
