"""Data sets in folders.

A folder has one table or one folder of shards per split, or one subfolder per class. This module also
locates the folders of built-in data sets.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from glassformer.config import read_toml, suggest
from glassformer.data.dataset import SPLIT_OF, SPLITS
from glassformer.data.files import is_system_file, missing_file_fix
from glassformer.data.image import is_image_name
from glassformer.data.parquet import match_partition
from glassformer.data.spreadsheet import file_type_error
from glassformer.data.tables import READERS, Table
from glassformer.errors import DataError, NoSuchFileError, NoSuchSplitError, WrongInputError, counted

# --- tables in folders ----------------------------------------------------------------------------
# Supported layouts:
# train.csv  test.csv                          one file per split
# train-00000-of-00002.parquet ...             shards of a split, named as on the Hub; also inside data/
# train/part-00000.parquet ...  test/...       one folder of shards per split
# part-00000.parquet  part-00001.parquet       shards of train, without other splits
# label=good/part-0.parquet ...                partitions as written by Spark and Arrow, also inside train/;
#                                              a folder's name gives the value of a column, or the split

SHARD = ".parquet"  # extension of shards
HUB_FOLDER = "data"  # folder of the shards in a repository of the Hub
_SHARD_SUFFIX = re.compile(r"-\d+-of-\d+$")


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Split -> its table files, sorted by name; empty if the folder has another layout."""
    files = _files_by_name(folder) or _shards_in_subfolders(folder)
    if not files and (shards := _shards(folder)):
        return {"train": shards}
    if not files and (folder / HUB_FOLDER).is_dir():
        files = _files_by_name(folder / HUB_FOLDER) or _shards_in_subfolders(folder / HUB_FOLDER)
    return {split: files[split] for split in SPLITS if split in files}


def find_split_files(
    path: Path,
    known: Sequence[str],
    extensions: Collection[str] = READERS,
    fix: str = "Name them train.csv, validation.csv, test.csv, or end them with .jsonl or .parquet",
    suffix: re.Pattern[str] | None = None,
) -> dict[str, list[Path]]:
    """Split -> its files, for a folder or a single file (``train``).

    Args:
        known: names of built-in data sets, to suggest one if the path does not exist.
        extensions: supported extensions.
        fix: how to name the files of a folder, for an error message.
        suffix: pattern of what may follow a split's name in a file name; None: use ``split_files``.
    """
    if path.is_dir():
        files = split_files(path) if suffix is None else _files_by_name(path, extensions, suffix)
        if files := {split: paths for split, paths in files.items() if split != "unsupervised"}:
            return files
        check_no_tables(path)
        raise NoSuchSplitError("no file named train, validation or test", where=str(path), fix=fix)
    if not path.exists() and path.suffix.lower() not in READERS:
        raise no_source_error(path, known)
    if path.suffix.lower() not in extensions:
        raise file_type_error(path, extensions)
    return {"train": [path]}


def no_source_error(source: str | Path, known: Iterable[str]) -> DataError:
    """The error for a path that does not exist; it suggests the most similar of the ``known`` data sets."""
    what = f"no file, folder or named data set {str(source)!r}"
    file_hint, name_hint = missing_file_fix(Path(source)), suggest(str(source), list(known))
    if name_hint.endswith("?") or not file_hint.endswith("?"):
        return NoSuchFileError(what, fix=f"Check the path. {name_hint}")
    return NoSuchFileError(what, fix=file_hint)


def tables_in(folder: Path) -> list[Path]:
    """All tables in a folder, sorted by name."""
    files = (p for p in sorted(folder.iterdir()) if p.name[0] not in "._" and p.is_file())
    return [path for path in files if path.suffix.lower() in READERS]


def name_file_fix(paths: Sequence[Path], max_shown: int = 5) -> str:
    """The fix for a folder that is given instead of one of its files."""
    listed = ", ".join(str(path) for path in paths[:max_shown])
    more = f" and {len(paths) - max_shown:,} more" if len(paths) > max_shown else ""
    return f"Name {listed}" if len(paths) == 1 else f"Name one of the files there: {listed}{more}"


def check_no_tables(folder: Path) -> None:
    """Raise DataError if a folder has tables; the caller knows that none has the name of a split."""
    if tables := tables_in(folder):
        what = "a folder of tables, none of which is called train, validation or test"
        raise WrongInputError(what, where=str(folder), fix=name_file_fix(tables))


def _files_by_name(
    folder: Path, extensions: Collection[str] = READERS, suffix: re.Pattern[str] = _SHARD_SUFFIX
) -> dict[str, list[Path]]:
    """Split -> the files with its name: one file, or shards."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(suffix.sub("", path.stem).lower())
        if split is not None and path.is_file() and path.suffix.lower() in extensions:
            files.setdefault(split, []).append(path)
    return check_one_file_or_shards(files, folder)


def check_one_file_or_shards(files: dict[str, list[Path]], folder: Path) -> dict[str, list[Path]]:
    """Return ``files`` unchanged after checking that each split has one file, or only shards."""
    for split, paths in files.items():
        if len(paths) > 1 and not all(_SHARD_SUFFIX.search(path.stem) for path in paths):
            what = f"two files for {split}: {paths[0].name} and {paths[1].name}"
            raise DataError(what, where=str(folder), fix="Keep one of them")
    return files


def _shards_in_subfolders(folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(path.name.lower().removeprefix("split="))
        if split is not None and path.is_dir() and (shards := _shards(path)):
            if split in files:
                what = f"two folders for {split}: {files[split][0].parent.name} and {path.name}"
                raise DataError(what, where=str(folder), fix="Keep one of them")
            files[split] = shards
    return files


def _shards(folder: Path) -> list[Path]:
    """The Parquet files in a folder and in its partitions (``label=good``).

    Names that begin with a dot or an underscore are ignored.
    """
    paths = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._"]
    files = [path for path in paths if path.suffix.lower() == SHARD and path.is_file()]
    partitions = [path for path in paths if match_partition(path.name) and path.is_dir()]
    return files + [file for partition in partitions for file in _shards(partition)]


# --- combining the tables of a split --------------------------------------------------------------


def combined_origin(tables: Sequence[Table], examples: int, labels: int) -> tuple[str, Sequence[int]]:
    """The origin and the row numbers of a split that consists of several tables."""
    origin = " + ".join(table.origin for table in tables)
    if labels and labels != examples:
        raise DataError("some files have labels and some have none", where=origin, fix="Label all or none")
    return origin, tables[0].rows if len(tables) == 1 else range(1, examples + 1)


# --- subfolders of splits and classes -------------------------------------------------------------

# A run folder has config.toml and one of ``RUN_FILES``. A saved model has one of ``MODEL_FILES``.
RUN_FILES = frozenset({"checkpoints", "model", "metrics.json", "history.jsonl", "folds.json"})
MODEL_FILES = frozenset({"config.json", "glassformer.json", "modules.json"})


def split_folders(folder: Path, noun: str, fix: str) -> dict[str, Path]:
    """Split -> its folder, if all subfolders have names of splits; otherwise empty.

    Args:
        noun: what the folder should have, "texts" or "images", for an error message.
    """
    check_not_model(folder)
    children = subfolders(folder)
    if not children:
        check_no_tables(folder)
        what = f"neither tables nor folders of {noun}"
        images = sum(map(is_image_name, folder.iterdir()))
        if images and noun == "images":
            what = f"{counted(images, 'image')}, but no folders of classes"
            fix = f"Move them into one folder for each class: {folder.name}/CLASS/"
        raise WrongInputError(what, where=str(folder), fix=fix)
    if not all(sub.name.lower() in SPLIT_OF for sub in children):
        return {}
    by_split = {SPLIT_OF[sub.name.lower()]: sub for sub in children}
    if len(by_split) < len(children):
        names = ", ".join(sub.name for sub in children)
        raise DataError(f"two folders for one split among {names}", where=str(folder), fix="Keep one")
    return by_split


def check_not_model(folder: Path) -> None:
    """Raise DataError if a folder is a run or a saved model instead of data."""
    names = {path.name for path in folder.iterdir()}
    fix = f"To inspect the model: glassformer doctor {shlex.quote(str(folder))}"
    if "config.toml" in names and names & RUN_FILES:
        if source := read_toml(folder / "config.toml").get("data", {}).get("source"):
            fix += f"; for its training data: glassformer data doctor {shlex.quote(source)}"
    elif not names & MODEL_FILES or not any(name.endswith((".safetensors", ".onnx")) for name in names):
        return
    what = "is the folder of a run, not of data" if "config.toml" in names else "is a saved model, not data"
    raise WrongInputError(what, where=str(folder), fix=fix)


def subfolders(folder: Path) -> list[Path]:
    """The subfolders that are not hidden, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not is_system_file(p))


# --- data folders -----------------------------------------------------------------------------


def data_folders() -> list[Path]:
    """The folders that may have built-in data sets, in the order in which they are searched."""
    setting = os.environ.get("GLASSFORMER_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer" / "data"
    return [*([Path(setting)] if setting else []), Path("data"), cache]


def find_data_file(path: str | Path) -> Path | None:
    """The file at ``path``, or at ``path`` inside a data folder; None if neither exists."""
    candidates = [Path(path).expanduser(), *(root / path for root in data_folders())]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def find_local_folder(name: str) -> Path | None:
    """The folder of a built-in data set; None if no data folder has it."""
    return next((root / name for root in data_folders() if (root / name).is_dir()), None)


def find_folder(name: str, fix: str = "", files: str = "its Parquet files", where: str | None = None) -> Path:
    """The folder of a built-in data set.

    Args:
        fix: the fix in the error message; empty: put ``files`` into the folder.
    """
    if (folder := find_local_folder(name)) is not None:
        return folder
    what = f"the data set {name!r} is not on this machine" + (", and cannot be downloaded" if not fix else "")
    fix = fix or f"Put {files} into a folder {name!r} and set GLASSFORMER_DATA to its parent folder"
    raise NoSuchFileError(what, where=name if where is None else where, fix=fix)
