"""Load labeled images by name, from folders and tables.

Names are those of built-in data sets (``cifar10``, ``digits``). A folder has ``label/*.jpg`` (one split,
``train``) or ``split/label/*.jpg``; hidden folders are ignored. A table is Parquet with a column of images,
or CSV, TSV or JSONL with a column of file names relative to the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from glassformer.config import join_names
from glassformer.data import folders
from glassformer.data.checks import check_class_names
from glassformer.data.columns import LABEL_COLUMNS, find_column, find_label_column, with_label_sets
from glassformer.data.dataset import SPLIT_OF, Dataset, NamedSource, Split, choose_splits
from glassformer.data.files import is_system_file
from glassformer.data.image import files_below, image_name, is_image_name, remove_unreadable
from glassformer.data.label_kinds import unify_spelling
from glassformer.data.label_sets import flat_labels
from glassformer.data.numbers import are_numbers, find_number_column
from glassformer.data.rejected import (
    RejectedRow,
    check_filled,
    check_source,
    keep_usable_rows,
    lenient_table,
    skip_message,
)
from glassformer.data.sources import LabelReader
from glassformer.data.splits import limit_examples, stratified_split
from glassformer.data.tables import READERS, Table
from glassformer.errors import DataError, MissingValueError, NoSuchColumnError, WrongInputError

FIX_NUMBERS = "Give a table with a column of images or file names, and one of numbers"
MAX_SHOWN = 3  # maximum number of files or extensions that a message names
IMAGE_COLUMNS = ("image", "img", "picture", "photo", "file_name", "file", "path")


@dataclass(frozen=True)
class ImageSplit(Split):
    """Images, not yet decoded, with their labels."""

    STRATIFIED = True

    images: list[Any]
    labels: list[Any] | None  # None: unlabeled
    origin: str  # file or folder, for messages
    rows: Sequence[int] | None = None  # row of each image in the file

    def names(self) -> list[str]:
        """A name for each image."""
        return [image_name(x, self.origin, i, self.rows) for i, x in enumerate(self.images)]


def load_image_dataset(
    source: str | Path,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    splits: Sequence[str] | None = None,
    broken: str = "refuse",
    on_bad_row: str = "refuse",
    label_separator: str | None = None,
    numbers: bool = False,
    need_labels: bool = False,
    image_range: float | None = None,
) -> Dataset:
    """Load a data set by name or path; see the top of this file.

    Args:
        image_column, label_column: columns of a table; None: detect them by usual names, or by content.
        limit: maximum number of images per split: a random sample, stratified by class, in file order.
        seed: seed of this sample.
        splits: load only these splits; other splits are not read.
        broken: ``refuse``: an unreadable image raises an error when it is used; ``skip``: unreadable images,
            and table rows with an unusable label, are skipped while loading, and listed in the notes.
        on_bad_row: for tables: ``skip`` skips and lists ragged rows and rows with an unusable label.
        label_separator: for tables: separator between labels in a multi-label cell.
        numbers: read the labels as ``float`` (tables only).
        need_labels: raise an error for a table without a column of labels.
        image_range: with ``broken=skip``: the value of white in images of more than 8 bits; see
            ``open_image``.

    Raises:
        DataError: the data are unusable; the message has the file, the row and a fix.
    """
    check_source(source or ".", limit)
    named = NAMED_IMAGES.get(str(source))
    if named is not None and numbers:
        raise WrongInputError(f"the images of {str(source)!r} have classes, not numbers", fix=FIX_NUMBERS)
    if named is not None:
        dataset = named.describe(named.load(named, splits))
    else:
        rejected: list[RejectedRow] | None = [] if "skip" in (broken, on_bad_row) else None
        columns = image_column, label_column, need_labels, rejected
        dataset = _load_path(source, _TableReader(label_separator, numbers, "plain", *columns), splits)
        if rejected:
            note = skip_message(rejected, is_listed=False)
            dataset = replace(dataset, rejected=tuple(rejected), notes=(*dataset.notes, note))
    notes, dataset_splits = [*dataset.notes], dict(dataset.splits)
    for name, split in dataset_splits.items() if broken == "skip" else ():
        dataset_splits[name], messages = remove_unreadable(split, name, image_range or "full")
        notes += messages
    dataset = limit_examples(replace(dataset, splits=dataset_splits), limit, seed)
    return replace(dataset, notes=(*notes, *missing_classes(dataset.splits)))


def missing_classes(splits: Mapping[str, ImageSplit]) -> list[str]:
    """One message for each split that lacks classes of the training split."""
    train = set(flat_labels(splits["train"].labels)) if "train" in splits else set()
    messages = []
    for name, split in splits.items():
        if name == "train" or not split.labels or are_numbers(split.labels):
            continue
        if missing := train - set(flat_labels(split.labels)):
            shown = ", ".join(sorted(map(str, missing))[:6])
            messages.append(f"no image of {shown} in {name}: its metrics say nothing about these classes")
    return messages


# --- paths ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TableReader(LabelReader):
    """Finds and reads the columns of a table of images."""

    image: str | None = None
    label: str | None = None
    need_labels: bool = False
    rejected: list[RejectedRow] | None = None  # skipped rows; None: an unusable row raises an error

    def find(self, table: Table) -> tuple[Table, str, str | None]:
        """The table, and its columns of images and labels; 0/1 columns of labels become a column of lists."""
        image = find_column(table, self.image, IMAGE_COLUMNS, "image")
        if image is None:
            what = f"there is no column of images (columns: {join_names(list(table.names))})"
            fix = "For texts use a text model (--text); otherwise name the column with image_column"
            raise NoSuchColumnError(what, where=table.origin, fix=fix)
        if self.numbers:
            return table, image, find_number_column(table, self.label, [image])
        table, label, _ = with_label_sets(table, self.label, [image], guess=self.separator is None)
        label = find_column(table, label, LABEL_COLUMNS, "label")
        return table, image, label or find_label_column(table, [image], self.need_labels)


def _load_path(source: str | Path, reader: _TableReader, requested: Sequence[str] | None) -> Dataset:
    path = Path(source).expanduser()
    if path.is_dir():
        files = folders.split_files(path)
        if not files and reader.numbers:
            raise WrongInputError("folders name classes, not numbers", where=str(path), fix=FIX_NUMBERS)
        if not files:
            return load_image_folder(path, requested)
    elif str(source) and (path.exists() or path.suffix.lower() in READERS):
        files = {"train": [path]}
    else:
        raise folders.no_source_error(source, NAMED_IMAGES)
    files_of_split = choose_splits(files, requested, str(path))
    splits, class_names, notes = {}, (), {}
    for split, paths in files_of_split.items():
        images: list[Any] = []
        labels: list[Any] = []
        tables = [lenient_table(path, reader.rejected) for path in paths]
        for i, table in enumerate(tables):
            table, column, label = reader.find(table)
            check_filled(table, {"label_column": label} | ({} if table.typed else {"image_column": column}))
            if reader.rejected is not None and label is not None:
                checks = reader.checks(table, label)
                table = tables[i] = keep_usable_rows(table, column, label, reader.rejected, checks)
            images += [resolve_path(x, table.origin) for x in table.read(column)]
            if label not in (None, reader.label) and label.lower() not in LABEL_COLUMNS:
                notes[f"detected by content: labels in {label!r}; or set label_column"] = 1
            if label is not None:
                class_names = table.class_names.get(label, class_names)
                labels += reader.read(table, label, class_names)
        origin = folders.combined_origin(tables, len(images), len(labels))
        splits[split] = ImageSplit(images, labels or None, *origin)
    splits = splits if reader.numbers else unify_spelling(splits)
    names = () if reader.numbers else tuple(map(str, class_names)) or _class_names(splits)
    return Dataset(path.name if path.is_dir() else path.stem, splits, names, notes=tuple(notes))


def resolve_path(value: Any, origin: str) -> Any:
    """Resolve a file name in a table, relative to the table's folder.

    ``\\`` is read as ``/`` if only the result is an existing file. URLs and values that are not strings are
    unchanged.
    """
    if not isinstance(value, str) or re.match(r"[a-z]{2,}://", value):
        return value
    path = Path(origin).parent / value
    if "\\" in value and not path.exists():
        path = min(path, Path(origin).parent / value.replace("\\", "/"), key=lambda p: not p.exists())
    return str(path)


def load_image_folder(folder: Path, requested: Sequence[str] | None = None) -> Dataset:
    """Load ``label/*.jpg`` or ``split/label/*.jpg``, sorted by name; the notes count ignored files.

    Raises:
        DataError: the folder does not exist, or a class has no images.
    """
    ignored: list[Path] = []
    split_folders = folders.split_folders(folder, "images", "Put one folder of images for each class there")
    children = [] if split_folders else folders.subfolders(folder)
    splits = [sub.name for sub in children if sub.name.lower() in SPLIT_OF and folders.subfolders(sub)]
    if splits:  # there are also other folders, so all folders would be read as classes
        others = [sub.name for sub in children if sub.name not in splits]
        what = f"{', '.join(splits)} look like splits, but {', '.join(others[:3])} does not"
        fix = "Keep only train, validation and test in it, or move their classes up into the folder"
        raise DataError(what, where=str(folder), fix=fix)
    split_folders = split_folders or {"train": folder}
    layout = {split: _class_files(path, folder, ignored) for split, path in split_folders.items()}
    image_splits = {}
    for split, classes in choose_splits(layout, requested, str(folder)).items():
        labels = [label for label, paths in classes.items() for _ in paths]
        image_splits[split] = ImageSplit([*map(str, chain(*classes.values()))], labels, str(folder))
    notes = tuple(ignored_files_messages(folder, ignored))
    return Dataset(folder.name, image_splits, _class_names(image_splits), notes=notes)


def ignored_files_messages(folder: Path, ignored: Sequence[Path]) -> Iterable[str]:
    """Messages about images outside the class folders, and about files inside that are not images."""
    outside = [str(p.relative_to(folder)) for p in ignored if is_image_name(p)]
    if outside:
        shown = ", ".join(outside[:MAX_SHOWN]) + (", ..." if len(outside) > MAX_SHOWN else "")
        yield f"images outside of the class folders, which are ignored: {len(outside):,} ({shown})"
    if other_files := [p for p in ignored if not is_image_name(p)]:
        yield f"files without the extension of an image, which are ignored: {_count_extensions(other_files)}"


def _count_extensions(files: Iterable[Path]) -> str:
    """The number of files with each extension, such as ``3 .txt, 1 .csv``."""
    counts = Counter(p.suffix.lower() or "without an extension" for p in files)
    more = ", ..." if len(counts) > MAX_SHOWN else ""
    return ", ".join(f"{n:,} {ending}" for ending, n in counts.most_common(MAX_SHOWN)) + more


def _class_files(folder: Path, root: Path, ignored: list[Path]) -> dict[str, list[Path]]:
    """Class -> its images. Images outside of the classes, and other files, are added to ``ignored``."""
    by_class = {sub.name: files_below(sub) for sub in folders.subfolders(folder)}
    if not by_class:
        raise MissingValueError("no folders of images", where=str(folder), fix="Create one folder per class")
    check_class_names(list(by_class), str(folder))
    for name, files in by_class.items():
        if not any(map(is_image_name, files)):
            folders.check_no_tables(root)
            what = f"class {name!r} has no images" + (f", only {_count_extensions(files)}" if files else "")
            raise MissingValueError(what, where=str(folder), fix="Put images there, or remove the folder")
    outside = (p for p in folder.iterdir() if not p.is_dir() and not is_system_file(p))
    ignored += [
        *sorted(filter(is_image_name, outside)),
        *(path for files in by_class.values() for path in files if not is_image_name(path)),
    ]
    return {name: [path for path in files if is_image_name(path)] for name, files in by_class.items()}


def _class_names(splits: Mapping[str, ImageSplit]) -> tuple[str, ...]:
    return tuple(map(str, sorted({x for s in splits.values() for x in flat_labels(s.labels)}, key=str)))


# --- named sources ----------------------------------------------------------------------------


def _load_stored(source: NamedSource, requested: Sequence[str] | None) -> Dataset:
    fix = (
        f"Get it from {source.origin}, put its Parquet files (train.parquet ...) or images "
        f"(train/CLASS/*.jpg) into DIR/{source.folder}, and set GLASSFORMER_DATA=DIR"
    )
    return _load_path(folders.find_folder(source.folder, fix, where=""), _TableReader(), requested)


def _load_digits(source: NamedSource, requested: Sequence[str] | None) -> Dataset:
    """scikit-learn's digits, scaled to 0-255; one random fifth each is the validation and the test split."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # [1797, 8, 8]
    labels = [str(label) for label in digits.target.tolist()]
    rest, test = stratified_split(labels, 360, 0)
    train, validation = stratified_split([labels[i] for i in rest], 287, 0)
    images = ImageSplit([*pixels], labels, "digits", range(len(labels)))
    rows = {"train": rest[train], "validation": rest[validation], "test": test}
    splits = {k: replace(images.select(v.tolist()), origin=f"digits/{k}") for k, v in rows.items()}
    return Dataset("digits", choose_splits(splits, requested, "digits"), tuple(map(str, range(10))))


NAMED_IMAGES = {
    "digits": NamedSource(
        description="1,797 handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak, 1998), in scikit-learn",
        licence="CC BY 4.0",
        load=_load_digits,
    ),
    "cifar10": NamedSource(
        description="CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 images of 32 x 32 pixels in ten classes",
        licence="no formal license",
        load=_load_stored,
        folder="cifar10",
        origin="uoft-cs/cifar10 on the Hugging Face Hub",
        notes=("re-encoded as JPEG: close to the original, but not the same",),
    ),
    "flowers": NamedSource(
        description="flower_photos (The TensorFlow Team, 2019): daisy, dandelion, roses, sunflowers, tulips",
        licence="CC BY 2.0, photographers in LICENSE.txt",
        load=_load_stored,
        folder="flowers",
        origin="https://github.com/Oldpel/flower_photos",
        notes=("one image is a rose and a tulip; a few near-duplicates are in train and test",),
    ),
    "hotdog": NamedSource(
        description="Hotdog / Not hotdog: 200 images to train and 50 to validate",
        licence="AGPL-3.0",
        load=_load_stored,
        folder="hotdog",
        origin="https://github.com/truepositive/hotdog_nothotdog",
        notes=("no test split: scores are on 50 images, so their intervals are about 10 points wide",),
    ),
}
