"""Which files of a folder of tables are which split, in one piece each or in shards.

train.csv  test.csv                          a file a split
train-00000-of-00002.parquet ...             shards of a split, as the Hub names them; also below data/
train/part-00000.parquet ...  test/...       a folder of shards a split
part-00000.parquet  part-00001.parquet       shards of train alone
label=good/part-0.parquet ...                partitions, as Spark and Arrow write them, also below train/; the
                                             column is read from the folder's name, and split=test/ is a split
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from glassformer.data.dataset import SPLIT_OF, SPLITS
from glassformer.data.parquet import PARTITION
from glassformer.data.tables import READERS, Table
from glassformer.errors import DataError

SHARD = ".parquet"  # what a table in shards is written as
BELOW = "data"  # where a repository of the Hub has them
_PART = re.compile(r"-\d+-of-\d+$")


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Split -> its table files, in the order of their names; empty where the folder holds no tables so.

    Raises:
        DataError: two whole files for one split.
    """
    found = _named(folder) or _in_folders(folder)
    if not found and (shards := _shards(folder)):
        return {"train": shards}
    if not found and (folder / BELOW).is_dir():
        below = folder / BELOW
        found = _named(below) or _in_folders(below)
    return {split: found[split] for split in SPLITS if split in found}


def tables_in(folder: Path) -> list[Path]:
    """The tables that lie in a folder, in the order of their names, whatever they are called."""
    found = (p for p in sorted(folder.iterdir()) if p.name[0] not in "._" and p.is_file())
    return [path for path in found if path.suffix.lower() in READERS]


def name_one(paths: Sequence[Path], most: int = 5) -> str:
    """How one of some files is named in the place of their folder."""
    listed = ", ".join(str(path) for path in paths[:most])
    more = f" and {len(paths) - most:,} more" if len(paths) > most else ""
    return f"Name {listed}" if len(paths) == 1 else f"Name one of the files there: {listed}{more}"


def refuse_tables(folder: Path) -> None:
    """Raises DataError for a folder of tables of which none is called as a split; it names them."""
    if tables := tables_in(folder):
        what = "a folder of tables, none of which is called train, validation or test"
        raise DataError(what, where=str(folder), fix=name_one(tables))


def _named(folder: Path) -> dict[str, list[Path]]:
    """Files that are called as a split, whole or a part of it."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(_PART.sub("", path.stem).lower())
        if split is not None and path.is_file() and path.suffix.lower() in READERS:
            found.setdefault(split, []).append(path)
    return one_or_parts(found, folder)


def one_or_parts(found: dict[str, list[Path]], folder: Path) -> dict[str, list[Path]]:
    """The same, if each split is one file or all of its files are parts of it.

    Raises:
        DataError: two whole files for one split.
    """
    for split, paths in found.items():
        if len(paths) > 1 and not all(_PART.search(path.stem) for path in paths):
            what = f"two files for {split}: {paths[0].name} and {paths[1].name}"
            raise DataError(what, where=str(folder), fix="Keep one of them")
    return found


def _in_folders(folder: Path) -> dict[str, list[Path]]:
    """Folders that are called as a split and hold shards."""
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
    """The Parquet files in a folder and in its partitions (``label=good``); what other tools leave there
    begins with a dot or an underscore."""
    found = [p for p in sorted(folder.iterdir()) if p.name[0] not in "._"]
    files = [path for path in found if path.suffix.lower() == SHARD and path.is_file()]
    parts = [path for path in found if PARTITION(path.name) and path.is_dir()]
    return files + [file for part in parts for file in _shards(part)]


# --- the parts of a split -------------------------------------------------------------------------
#
# Where their rows stand, and what their labels are called.


def joined(parts: Sequence[Table], examples: int, labels: int) -> tuple[str, Sequence[int]]:
    """The origin and the rows of a split that several tables make up.

    Raises:
        DataError: some of them have labels, and some have none.
    """
    origin = " + ".join(table.origin for table in parts)
    if labels and labels != examples:
        raise DataError("some parts have labels and some have none", where=origin, fix="Label all or none")
    return origin, parts[0].rows if len(parts) == 1 else range(1, examples + 1)
