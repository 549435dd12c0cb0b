"""Images: how a run, a command and a server read them, and the transform between a file and pixel values."""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.checkpoints.catalog import AUTO, CATALOG, IMAGE_ENCODER, IMAGE_SCRATCH
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import is_available, resolve_checkpoint
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.checkpoints.settings import ABOUT
from glassformer.config import nearest
from glassformer.data.checks import is_missing
from glassformer.data.columns import find_column
from glassformer.data.dataset import Dataset
from glassformer.data.findings import DoctorReport
from glassformer.data.image import (
    FORMATS,
    ImageRange,
    leave_out,
    open_picture,
    picture_files,
    refuse_unreadable,
    unreadable,
)
from glassformer.data.image_bounds import check_file
from glassformer.data.image_doctor import examine_pictures
from glassformer.data.image_sources import IMAGE_COLUMNS, beside, load_image_dataset
from glassformer.data.tables import READERS, Table
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.errors import (
    BadImageError,
    DataError,
    InputError,
    MissingValueError,
    NoSuchColumnError,
    NoSuchFileError,
    NotForThisModelError,
    UnknownModelError,
)
from glassformer.families import IMAGE_ARCHITECTURES, family_of
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs, options
from glassformer.inputs.rows import STDIN, WAY_OUT, Given, Row, read_columns
from glassformer.inputs.served import Item, RequestTooLargeError, Served
from glassformer.inputs.start import check_start
from glassformer.process import without_warnings

TRANSFORM_FILE = "preprocessor_config.json"


class ServedImages(Served):
    """Images in base64; each is opened, then decoded, in the threads of ``Decoding``."""

    kind, field, long_field, neutral, noun = "image", "image", "image", None, "images"
    element_is, decoded = "The bytes of an image file, in base64", True
    examples = "example.png", "example.jpg"
    too_long = "It takes a server with a larger --explain-tokens"

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits, self.max_length = clf, limits, None
        self.most = clf.model_.config.embedding.num_tokens

    def guess(self, x: Any) -> int:
        return self.most

    def least(self, size: int) -> int:
        return self.most

    def length(self, x: Any) -> int:
        return 0

    def open_all(self, contents: Sequence[str], what: str) -> list[tuple[bytes, int]]:
        """Each image as ``opened`` gives it.

        Raises:
            DataError: one that cannot be used; it is named. Also, images that are too large together.
        """
        opened = [self.opened(content, f"{what}[{i}]") for i, content in enumerate(contents)]
        pixels = sum(pixels for _, pixels in opened)
        if pixels > self.limits.request_pixels:
            most = f"{pixels:,} pixels together, {self.limits.request_pixels:,} at most"
            raise RequestTooLargeError(most, where=what, fix="Send several requests, or scale them down")
        return opened

    def opened(self, content: str, where: str) -> tuple[bytes, int]:
        """Base64 as the bytes of an image, and the pixels that its header speaks of: few enough."""
        from PIL import Image

        try:
            found = base64.b64decode("".join(content.split()), validate=True)  # in lines, as base64 writes it
        except (binascii.Error, ValueError):
            what = "a URL, which is not opened" if ":" in content[:12] else "not base64"
            fix = "Send the file's bytes in base64, without a prefix"
            raise DataError(what, where=where, fix=fix) from None
        try:
            check_file(found, where, self.limits.pixels)
            with (
                without_warnings(r"PIL\."),  # on odd metadata
                Image.open(io.BytesIO(found), formats=FORMATS) as image,
            ):
                width, height = image.size
        except InputError:
            raise
        except Exception:  # whatever a decoder says of a header that it cannot read
            known = ", ".join(FORMATS[:6])
            raise DataError("not an image that can be read", where=where, fix=f"Known: {known}") from None
        if width * height > self.limits.pixels:
            most = f"{width:,} x {height:,} pixels, {self.limits.pixels:,} in all at most"
            raise RequestTooLargeError(most, where=where, fix="Scale it down")
        return found, width * height

    def decode(self, content: Any, where: str) -> Item:
        """The bytes of an image as pixels ``[C, H, W]`` uint8; raises DataError for a damaged one."""
        return Item(self.clf.pixels(content, where), self.most)

    def trial(self, text: str) -> Item:
        shape = self.clf.transform_.channels, *self.clf.transform_.size
        return Item(np.zeros(shape, np.uint8), self.most)

    def to_explain(self, x: str) -> tuple[bytes, int]:
        return self.opened(x, self.field)[0], self.most

    def join(self, items: Sequence[Item]) -> PixelTable:
        return PixelTable(np.stack([item.encoded for item in items]))

    def about(self) -> dict[str, Any]:
        return {"size": list(self.clf.transform_.size), "channels": self.clf.transform_.channels}


class Images(Inputs):
    """One image an example."""

    noun, shape, placeholder = "images", "pixels [B, channels, height, width]", "IMAGE.png"
    has_images = True
    columns, served = ("image", "img", "picture", "photo"), ServedImages
    packages = ("pillow", "kornia", "safetensors", "scikit-learn")
    severities = ("warning", "note")
    notes = "notes"
    fixture_settings: ClassVar = {"image_size": 8, "patch_size": 4}

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> Dataset:
        part.pop("trained", None)  # images are found by themselves
        known = options(recipe.data, "image_column", "label_column", "label_separator", "broken")
        image_range = recipe.image.image_range
        return load_image_dataset(source, image_range=image_range, numbers=numbers, **known, **part)

    def skips(self, d: Any) -> bool:
        return d.broken == "skip"

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Those that cannot be read are found before the training, not after it."""
        refuse_unreadable(dict(splits), first_range(recipe.image, recipe.model, folder))

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        return examine_pictures(dataset.name, dataset.splits, dataset.notes, transform=est.transform_)

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        transform = getattr(est, "transform_", None)
        image_range = recipe.image.image_range if transform is None else transform.image_range
        return leave_out(splits, image_range or "full")

    def facts(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        return {"tokens_per_picture": est.model_.config.embedding.num_tokens}

    def example_fixture(self) -> Sequence[Any]:
        return list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))

    def rows(self, given: Given) -> list[Row]:
        """Files, folders of them, and tables that name files."""
        found: list[Row] = []
        for word in given.words:
            named = word.lower().endswith(tuple(READERS)) and os.path.isfile(word)
            found += table_of_pictures(Path(word), given) if named else map(Row, pictures([word]))
        return marked_pictures(found, saved_range(given.folder)) if given.skip else found

    def check_cell(self, x: Any, clf: Any) -> None:
        if not isinstance(x, bytes):
            raise MissingValueError("the image is missing")
        open_picture(x, image_range=clf.transform_.image_range)

    def explained(self, given: Given, numbers: Sequence[int]) -> list[Any]:
        if numbers:
            raise NotForThisModelError(
                "is about rows of texts", where="--row", fix="Name the images themselves"
            )
        return pictures(given.words)

    def title(self, x: Any) -> str:
        return x


def marked_pictures(rows: Sequence[Row], image_range: Any = "full") -> list[Row]:
    """Rows of images, those that cannot be read marked."""
    read = [row for row in rows if row.error is None]
    texts = [row.text for row in read]
    for i, error in unreadable(texts, "IMAGE", decode=True, image_range=image_range).items():
        read[i].error = error.what
    return list(rows)


def pictures(words: Sequence[str]) -> list[str]:
    """The image files of the arguments; a folder stands for all in it, in order of name.

    Raises:
        DataError: no such file, or a folder without images.
    """
    found: list[str] = []
    for argument in words:
        path = Path(argument)
        if path.is_dir():
            files = [str(p) for p in picture_files(path)]
            if not files:
                raise MissingValueError("no images in this folder", where=argument, fix="Name their files")
            found += files
        elif path.is_file():
            found.append(argument)
        else:
            fix = "Check the path: this model reads images"
            fix = "Standard input is read for texts: name files or folders" if argument == STDIN else fix
            raise NoSuchFileError("no such image", where=argument or "IMAGE", fix=fix)
    return found


def table_of_pictures(path: Path, given: Given) -> list[Row]:
    """Read a table whose column names image files; the files are looked for beside the table.

    Raises:
        DataError: no such column, or it holds images themselves.
    """

    def choose(table: Table) -> tuple[str]:
        column = find_column(table, None, IMAGE_COLUMNS, "image")
        if column is None:
            what = f"no column of images (columns: {', '.join(table.names)})"
            fix = "This model reads images: give image files, or a table that names them in a column called "
            fix += f"{', '.join(IMAGE_COLUMNS[:-1])} or {IMAGE_COLUMNS[-1]}"
            raise NoSuchColumnError(what, where=str(path), fix=fix)
        return (column,)

    found = []
    for values, row in read_columns(path, choose, given):
        if values and is_missing(values[0]):
            row.error = "no image is named"
            if not given.skip:
                fix = f"Name one, {WAY_OUT}"
                raise DataError(row.error, where=f"{path}, row {row.row}", fix=fix)
            values = ()
        if values and not isinstance(values[0], str):
            fix = "Give --out a name that ends in .parquet"
            raise BadImageError("holds images, not names of files", where=f"{path}, row {row.row}", fix=fix)
        row.text = beside(values[0], str(path)) if values else ""
        found.append(row)
    return found


def first_range(image: Any, model: Any, folder: Path) -> ImageRange:
    """``image_range`` that a training in a run's folder begins with, told before a model is fetched.

    Args:
        image, model: sections of a recipe.
    """
    if not (is_image_architecture(model.model) or Path(model.model).expanduser().is_dir()):
        return image.image_range
    return build_transform(image, model, newest_fingerprint(folder / "checkpoints")).image_range


def is_image_architecture(model: str) -> bool:
    """Whether the name means an architecture rather than a checkpoint."""
    return model in IMAGE_ARCHITECTURES


def has_fixed_features(model: str) -> bool:
    """Whether the name means an architecture without random weights: a linear model, which is solved."""
    return is_image_architecture(model) and family_of(IMAGE_ARCHITECTURES[model]()).model.fixed


def build_transform(image: Any, model: Any, begun: Mapping[str, Any] | None = None) -> ImageTransform:
    """The checkpoint's transform, or the architecture's size and plain statistics, with the settings over it.

    Before a fit has chosen, ``auto`` means its encoder where that is at hand: nothing is fetched.

    Args:
        begun: the fingerprint of a training that goes on; one from before there was ``image_range`` has
            taken the range of 16 bits as full.

    Raises:
        ConfigError: no such model, or settings that do not fit each other.
    """
    known = [*IMAGE_ARCHITECTURES, *CATALOG]
    name = model.model
    if name == AUTO:
        name = IMAGE_ENCODER if is_available(IMAGE_ENCODER) else IMAGE_SCRATCH
    if name not in known and "/" not in name and not Path(name).expanduser().exists():
        raise UnknownModelError(f"no model {name!r}", where="model", fix=nearest(name, known))
    if is_image_architecture(name):
        channels = image.channels or 3
        size = IMAGE_ARCHITECTURES[name]().embedding.image_size
        base = ImageTransform(size, mean=(0.5,) * channels, std=(0.5,) * channels, channels=channels)
    else:
        check_start(name, "images")
        if image.channels is not None:
            raise NotForThisModelError("channels belong to from-scratch models", where="channels")
        base = load_transform(resolve_checkpoint(name, model.revision).path)
    size = (image.image_size,) * 2 if image.image_size else base.size
    fit = image.framing or ("crop" if image.resize else base.fit)
    shorter = image.resize or (base.shorter if fit == "crop" else 0)
    if fit == "crop" and image.resize is None and image.image_size:
        shorter = 0 if not base.shorter else round(base.shorter * image.image_size / base.size[0])
    return replace(
        base,
        size=size,
        fit=fit,
        shorter=shorter,
        interpolation=image.interpolation or base.interpolation,
        mean=tuple(image.mean) or base.mean,
        std=tuple(image.std) or base.std,
        image_range=image.image_range or _range(base, begun),
    )


def saved_range(folder: Path) -> ImageRange:
    """``image_range`` of a saved model, or of a run's; ``full`` where there is none of images."""
    for place in (folder, folder / "model"):
        if (place / TRANSFORM_FILE).is_file():
            return load_transform(place, before="full" if (place / ABOUT).is_file() else None).image_range
    return "full"


def _range(base: ImageTransform, begun: Mapping[str, Any] | None) -> ImageRange:
    """``image_range`` where none is given: the checkpoint's if that is a number."""
    if begun is not None and "image_range" not in begun:
        return "full"
    return None if base.image_range == "full" else base.image_range


def save_transform(transform: ImageTransform, folder: Path) -> None:
    """``preprocessor_config.json``, as the Hub has it."""
    text = json_text(transform.to_hub(), indent=2, ascii=True) + "\n"
    (folder / TRANSFORM_FILE).write_text(text, encoding="utf-8")


def load_transform(folder: Path, before: ImageRange = None) -> ImageTransform:
    """The reverse.

    Args:
        before: ``image_range`` where the file is from before there was such a setting.

    Raises:
        CheckpointError: no such file, or it is damaged.
        ConfigError: a step that we do not have.
    """
    return ImageTransform.from_hub(read_json(folder / TRANSFORM_FILE), str(folder / TRANSFORM_FILE), before)
