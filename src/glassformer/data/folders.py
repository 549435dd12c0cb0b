"""Data in folders: one table or folder of shards per split, or one text file per example and one folder per
class; and the folders in which built-in data sets are searched."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from glassformer.config import nearest, read_toml
from glassformer.data.checks import check_class_names, check_texts
from glassformer.data.dataset import SPLIT_OF, SPLITS, TextDataset, TextSplit, choose_splits
from glassformer.data.files import MAX_TEXT, is_system_file, read_utf8
from glassformer.data.image import is_image_name
from glassformer.data.parquet import PARTITION
from glassformer.data.rejected import SKIP, RejectedRow, join_fixes
from glassformer.data.spreadsheet import other_kind, unsupported_message
from glassformer.data.tables import READERS, Table
from glassformer.errors import (
    DataError,
    FileTypeError,
    MissingValueError,
    NoSuchFileError,
    NoSuchSplitError,
    WrongInputError,
    counted,
)

# --- tables in folders ----------------------------------------------------------------------------
# Supported layouts:
# train.csv  test.csv                          one file per split
# train-00000-of-00002.parquet ...             shards of a split, named as on the Hub; also inside data/
# train/part-00000.parquet ...  test/...       one folder of shards per split
# part-00000.parquet  part-00001.parquet       shards of train, without other splits
# label=good/part-0.parquet ...                partitions as written by Spark and Arrow, also inside train/;
#                                              folder names give columns, and split=test/ is a split

SHARD = ".parquet"  # extension of shards
BELOW = "data"  # folder of the shards in a repository of the Hub
_PART = re.compile(r"-\d+-of-\d+$")


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Split -> its table files, sorted by name; empty if the folder has none of these layouts.

    Raises:
        DataError: two files for one split that are not shards.
    """
    found = _named(folder) or _in_folders(folder)
    if not found and (shards := _shards(folder)):
        return {"train": shards}
    if not found and (folder / BELOW).is_dir():
        below = folder / BELOW
        found = _named(below) or _in_folders(below)
    return {split: found[split] for split in SPLITS if split in found}


def files_of(
    path: Path,
    known: Sequence[str],
    endings: Collection[str] = READERS,
    fix: str = "Name them train.csv, validation.csv, test.csv, or end them with .jsonl or .parquet",
    besides: re.Pattern[str] | None = None,
) -> dict[str, list[Path]]:
    """Split -> its files, for a folder or a single file (``train``).

    Args:
        known: names of built-in data sets; if the path does not exist, the error suggests the most similar.
        endings: supported extensions.
        fix: how to name the files of a folder, for an error message.
        besides: allowed suffix of a split's name in a file name; None: the layouts of ``split_files``.
    """
    if path.is_dir():
        found = split_files(path) if besides is None else _named(path, endings, besides)
        if found := {split: files for split, files in found.items() if split != "unsupervised"}:
            return found
        refuse_tables(path)
        raise NoSuchSplitError("no file named train, validation or test", where=str(path), fix=fix)
    if not path.exists() and path.suffix.lower() not in READERS:
        raise not_there(path, known)
    if path.suffix.lower() not in endings:
        raise FileTypeError(unsupported_message(path), where=str(path), fix=other_kind(path.suffix, endings))
    return {"train": [path]}


def not_there(source: str | Path, known: Iterable[str]) -> DataError:
    """The error for a path that does not exist; it suggests the most similar of the ``known`` data sets."""
    what = f"no file, folder or named data set {str(source)!r}"
    return NoSuchFileError(what, fix=f"Check the path. {nearest(str(source), list(known))}")


def tables_in(folder: Path) -> list[Path]:
    """All tables in a folder, sorted by name."""
    found = (p for p in sorted(folder.iterdir()) if p.name[0] not in "._" and p.is_file())
    return [path for path in found if path.suffix.lower() in READERS]


def name_one(paths: Sequence[Path], most: int = 5) -> str:
    """The fix if a folder is given but one of its files is needed."""
    listed = ", ".join(str(path) for path in paths[:most])
    more = f" and {len(paths) - most:,} more" if len(paths) > most else ""
    return f"Name {listed}" if len(paths) == 1 else f"Name one of the files there: {listed}{more}"


def refuse_tables(folder: Path) -> None:
    """Raise DataError for a folder with tables, none of which has the name of a split; it lists them."""
    if tables := tables_in(folder):
        what = "a folder of tables, none of which is called train, validation or test"
        raise WrongInputError(what, where=str(folder), fix=name_one(tables))


def _named(
    folder: Path, endings: Collection[str] = READERS, besides: re.Pattern[str] = _PART
) -> dict[str, list[Path]]:
    """Split -> files with its name: one file, or shards."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(besides.sub("", path.stem).lower())
        if split is not None and path.is_file() and path.suffix.lower() in endings:
            found.setdefault(split, []).append(path)
    return one_or_parts(found, folder)


def one_or_parts(found: dict[str, list[Path]], folder: Path) -> dict[str, list[Path]]:
    """Return ``found`` unchanged after checking that each split has one file, or only shards."""
    for split, paths in found.items():
        if len(paths) > 1 and not all(_PART.search(path.stem) for path in paths):
            what = f"two files for {split}: {paths[0].name} and {paths[1].name}"
            raise DataError(what, where=str(folder), fix="Keep one of them")
    return found


def _in_folders(folder: Path) -> dict[str, list[Path]]:
    """Split -> shards in a folder with its name."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(path.name.lower().removeprefix("split="))
        if split is not None and path.is_dir() and (shards := _shards(path)):
            if split in found:
                what = f"two folders for {split}: {found[split][0].parent.name} and {path.name}"
                raise DataError(what, where=str(folder), fix="Keep one of them")
            found[split] = shards
    return found


def _shards(folder: Path) -> list[Path]:
    """The Parquet files in a folder and in its partitions (``label=good``), except names that begin with a
    dot or an underscore."""
    found = [p for p in sorted(folder.iterdir()) if p.name[0] not in "._"]
    files = [path for path in found if path.suffix.lower() == SHARD and path.is_file()]
    parts = [path for path in found if PARTITION(path.name) and path.is_dir()]
    return files + [file for part in parts for file in _shards(part)]


# --- combining the tables of a split --------------------------------------------------------------


def joined(parts: Sequence[Table], examples: int, labels: int) -> tuple[str, Sequence[int]]:
    """The origin and the row numbers of a split that consists of several tables.

    Raises:
        DataError: some tables have labels, and some have none.
    """
    origin = " + ".join(table.origin for table in parts)
    if labels and labels != examples:
        raise DataError("some parts have labels and some have none", where=origin, fix="Label all or none")
    return origin, parts[0].rows if len(parts) == 1 else range(1, examples + 1)


# --- folders --------------------------------------------------------------------------------------

# A run folder has config.toml and one of the first, a saved model has one of the second.
RUN_FILES = frozenset({"checkpoints", "model", "metrics.json", "history.jsonl", "folds.json"})
MODEL_FILES = frozenset({"config.json", "glassformer.json", "modules.json"})


def text_files(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Split -> class -> its files: ``label/*.txt`` (one split, ``train``) or ``split/label/*.txt``.

    Hidden files and folders are ignored, as are those of other programs (``__MACOSX``). A folder ``unsup``
    among the classes, as in the original IMDb archive, becomes the split ``unsupervised``.

    Raises:
        DataError: the folder has another layout, or a class has no texts.
    """
    refuse_models(folder)
    fix = "Put train.csv there, or one folder of .txt files for each class"
    parts = split_folders(folder, "texts", fix) or {"train": folder}
    layout = {split: _class_files(part, folder) for split, part in parts.items()}
    for split, classes in list(layout.items()):
        for name in [n for n in classes if SPLIT_OF.get(n.lower()) == "unsupervised" and len(classes) > 1]:
            layout.setdefault("unsupervised", {})[f"{split}/{name}"] = classes.pop(name)
    return layout


def split_folders(folder: Path, what: str, fix: str) -> dict[str, Path]:
    """Split -> its folder, if all subfolders have names of splits; otherwise empty: they are classes."""
    below = subfolders(folder)
    if not below:
        refuse_tables(folder)
        found = f"neither tables nor folders of {what}"
        images = sum(map(is_image_name, folder.iterdir()))
        if images and what == "images":
            found = f"{counted(images, 'image')}, but no folders of classes"
            fix = f"Move them into one folder for each class: {folder.name}/CLASS/"
        raise WrongInputError(found, where=str(folder), fix=fix)
    if not all(sub.name.lower() in SPLIT_OF for sub in below):
        return {}
    parts = {SPLIT_OF[sub.name.lower()]: sub for sub in below}
    if len(parts) < len(below):
        names = ", ".join(sub.name for sub in below)
        raise DataError(f"two folders for one split among {names}", where=str(folder), fix="Keep one")
    return parts


def refuse_models(folder: Path) -> None:
    """Raise DataError if a folder is a run or a saved model instead of data."""
    names = {path.name for path in folder.iterdir()}
    if "config.toml" in names and names & RUN_FILES:
        source = read_toml(folder / "config.toml").get("data", {}).get("source")
        data = f"; for its training data: glassformer data doctor {shlex.quote(source)}" if source else ""
    elif names & MODEL_FILES and any(name.endswith((".safetensors", ".onnx")) for name in names):
        data = ""
    else:
        return
    what = "is the folder of a run, not of data" if "config.toml" in names else "is a saved model, not data"
    look = f"To inspect the model: glassformer doctor {shlex.quote(str(folder))}"
    raise WrongInputError(what, where=str(folder), fix=look + data)


def read_texts(
    split: str, classes: dict[str, list[Path]], folder: Path, rejected: list[RejectedRow] | None = None
) -> TextSplit:
    """The texts of a split of ``text_files``, sorted by class and name.

    Args:
        rejected: unusable files are skipped and added to this list; None: the first one raises an error.
    """
    files = [(label, path) for label, paths in classes.items() for path in paths]
    if not files:
        fix = "Put some in, or move that folder elsewhere"
        raise MissingValueError(f"no .txt files for {split}", where=str(folder), fix=fix)
    texts, labels = [], []
    for label, path in files:
        try:
            texts += check_texts([read_utf8(path, MAX_TEXT)])
            labels.append(label)
        except DataError as error:
            if rejected is None:
                fix = join_fixes(error.fix, f"leave such files out with {SKIP}")
                where = error.where if error.where and str(path) in error.where else str(path)
                raise error.but(where=where, fix=fix) from None
            rejected.append(RejectedRow(str(path), 1, error.what))
    if not texts:
        raise DataError(f"no file of {split} can be used", where=str(folder), fix="Fill them")
    return TextSplit(texts, None if split == "unsupervised" or "" in classes else labels, str(folder))


def subfolders(folder: Path) -> list[Path]:
    """The subfolders that are not hidden, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not is_system_file(p))


def _class_files(folder: Path, given: Path) -> dict[str, list[Path]]:
    """Class -> its files sorted by name, without hidden files."""
    classes = {
        sub.name: sorted(p for p in sub.glob("*.txt") if p.is_file() and not is_system_file(p))
        for sub in subfolders(folder)
    }
    check_class_names(list(classes), str(folder))
    if not classes:  # an unlabeled split: the folder has files and no subfolders
        return {"": sorted(p for p in folder.glob("*.txt") if not is_system_file(p))}
    for name, files in classes.items():
        if not files:
            refuse_tables(given)
            if any(map(is_image_name, (folder / name).iterdir())):
                fix = "Give texts (.txt files or a table); images need an image model (--images)"
                raise WrongInputError("contains images, not texts", where=str(given), fix=fix)
            fix = "Rename its files to *.txt, or move the folders of the classes into a separate folder"
            raise MissingValueError(f"class {name!r} has no .txt files", where=str(folder), fix=fix)
    return classes


# --- data folders -----------------------------------------------------------------------------


def data_folders() -> list[Path]:
    """The folders in which built-in data sets are searched, in this order."""
    given = os.environ.get("GLASSFORMER_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer" / "data"
    return [*([Path(given)] if given else []), Path("data"), cache]


def find_in_data(path: str | Path) -> Path | None:
    """A file by its path, or by its path inside a data folder; None if there is none."""
    places = [Path(path).expanduser(), *(root / path for root in data_folders())]
    return next((place for place in places if place.is_file()), None)


def folder_here(name: str) -> Path | None:
    """The folder of a built-in data set; None if no data folder has it."""
    return next((root / name for root in data_folders() if (root / name).is_dir()), None)


def find_folder(name: str, fix: str = "", files: str = "its Parquet files", where: str | None = None) -> Path:
    """The folder of a built-in data set.

    Args:
        fix: the fix in the error message; empty: to put ``files`` into the folder.
    """
    if (found := folder_here(name)) is not None:
        return found
    what = f"the data set {name!r} is not on this machine" + (", and none can be fetched" if not fix else "")
    fix = fix or f"Put {files} into a folder {name!r} and set GLASSFORMER_DATA to its parent folder"
    raise NoSuchFileError(what, where=name if where is None else where, fix=fix)


def load_sentences(source: Any, columns: Any, wanted: Sequence[str] | None) -> TextDataset:
    """The sentences of a built-in data set of tagged words, as texts without labels."""
    splits, files = {}, split_files(find_folder(source.folder))
    for split, paths in choose_splits(files, wanted, source.folder).items():
        tables = list(map(columns.table, paths))
        texts = [" ".join(words) for table in tables for words in table.read("tokens")]
        rows = tables[0].rows if len(tables) == 1 else range(1, len(texts) + 1)
        splits[split] = TextSplit(texts, None, " + ".join(table.origin for table in tables), rows)
    return TextDataset(source.folder, splits, (), source.description, source.licence, source.notes)
