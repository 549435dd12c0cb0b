"""Images as inputs of runs, commands and the server; the preprocessing of a model."""

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
    CheckpointError,
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
from glassformer.inputs.inputs import Inputs, Item, RequestTooLargeError, Served, options
from glassformer.inputs.rows import SKIP_HINT, STDIN, Given, Row, read_columns
from glassformer.inputs.start import check_start
from glassformer.process import without_warnings

TRANSFORM_FILE = "preprocessor_config.json"


class ServedImages(Served):
    """Images in base64; each is opened and decoded in the threads of ``serve.decoding.Decoding``."""

    kind = field = long_field = "image"
    noun = "images"
    neutral = None  # the page draws an image if the run has none
    element_description = "The bytes of an image file, in base64"
    decoded = True
    examples = "example.png", "example.jpg"
    too_long = "Start the server with a larger --explain-tokens"

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits, self.max_length = clf, limits, None
        self.most = clf.model_.config.embedding.num_tokens

    def guess(self, x: Any) -> int:
        return self.most

    def least(self, size: int) -> int:
        return self.most

    def length(self, x: Any) -> int:
        return 0

    def decode_base64(self, contents: Sequence[str], what: str) -> list[tuple[bytes, int]]:
        """Decode the base64 of every image and check its size; the error for an unusable image has its
        position."""
        opened = [self.opened(content, f"{what}[{i}]") for i, content in enumerate(contents)]
        pixels = sum(pixels for _, pixels in opened)
        if pixels > self.limits.request_pixels:
            most = f"{pixels:,} pixels together, {self.limits.request_pixels:,} at most"
            raise RequestTooLargeError(most, where=what, fix="Send several requests, or scale them down")
        return opened

    def opened(self, content: str, where: str) -> tuple[bytes, int]:
        """Decode base64 to the bytes of an image, and check its number of pixels, which is also returned."""
        from PIL import Image

        try:
            found = base64.b64decode("".join(content.split()), validate=True)  # base64 often has line breaks
        except (binascii.Error, ValueError):
            what = "a URL, which is not supported" if ":" in content[:12] else "not base64"
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
        except Exception:  # any error of a decoder for an invalid header
            known = ", ".join(FORMATS[:6])
            raise DataError("not an image that can be read", where=where, fix=f"Known: {known}") from None
        if width * height > self.limits.pixels:
            most = f"{width:,} x {height:,} pixels, at most {self.limits.pixels:,} in total"
            raise RequestTooLargeError(most, where=where, fix="Scale it down")
        return found, width * height

    def decode(self, content: Any, where: str) -> Item:
        """Decode the bytes of an image to pixels ``[C, H, W]``, uint8; raise DataError if it is damaged."""
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
    """Inputs with one image per example."""

    noun, shape, placeholder = "images", "pixels [B, channels, height, width]", "IMAGE.png"
    has_images = True
    columns, served = ("image", "img", "picture", "photo"), ServedImages
    packages = ("pillow", "kornia", "safetensors", "scikit-learn")
    severities = ("warning", "note")
    notes = "notes"
    fixture_settings: ClassVar = {"image_size": 8, "patch_size": 4}

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> Dataset:
        part.pop("trained", None)  # columns in training: unused, the column of images is always detected
        known = options(recipe.data, "image_column", "label_column", "label_separator", "broken")
        image_range = recipe.image.image_range
        return load_image_dataset(source, image_range=image_range, numbers=numbers, **known, **part)

    def skips(self, d: Any) -> bool:
        return d.broken == "skip"

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Raise DataError for unreadable images before training."""
        refuse_unreadable(dict(splits), initial_image_range(recipe.image, recipe.model, folder))

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
        """Image files, folders of images, and tables of file names."""
        found: list[Row] = []
        for word in given.words:
            named = word.lower().endswith(tuple(READERS)) and os.path.isfile(word)
            found += table_of_pictures(Path(word), given) if named else map(Row, pictures([word]))
        return flag_unreadable(found, saved_range(given.folder)) if given.skip else found

    def check_cell(self, x: Any, clf: Any) -> None:
        if not isinstance(x, bytes):
            raise MissingValueError("the image is missing")
        open_picture(x, image_range=clf.transform_.image_range)

    def explained(self, given: Given, numbers: Sequence[int]) -> list[Any]:
        if numbers:
            fix = "Pass the image paths"
            raise NotForThisModelError("selects rows of texts", where="--row", fix=fix)
        return pictures(given.words)

    def title(self, x: Any) -> str:
        return x


def flag_unreadable(rows: Sequence[Row], image_range: Any = "full") -> list[Row]:
    """Set ``error`` on rows whose image cannot be decoded."""
    read = [row for row in rows if row.error is None]
    texts = [row.text for row in read]
    for i, error in unreadable(texts, "IMAGE", decode=True, image_range=image_range).items():
        read[i].error = error.what
    return list(rows)


def pictures(words: Sequence[str]) -> list[str]:
    """The image files of the arguments; a folder is replaced by its images, sorted by name."""
    found: list[str] = []
    for argument in words:
        path = Path(argument)
        if path.is_dir():
            files = [str(p) for p in picture_files(path)]
            if not files:
                raise MissingValueError(
                    "no images in this folder", where=argument, fix="Pass the image paths"
                )
            found += files
        elif path.is_file():
            found.append(argument)
        else:
            fix = "Check the path: this model reads images"
            fix = "Standard input is for texts: name files or folders" if argument == STDIN else fix
            raise NoSuchFileError("no such image", where=argument or "IMAGE", fix=fix)
    return found


def table_of_pictures(path: Path, given: Given) -> list[Row]:
    """Read a table with a column of image files, relative to the table's folder."""

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
            row.error = "the image is missing"
            if not given.skip:
                fix = f"Enter an image path, {SKIP_HINT}"
                raise DataError(row.error, where=f"{path}, row {row.row}", fix=fix)
            values = ()
        if values and not isinstance(values[0], str):
            fix = "Predict such tables from Parquet to Parquet: use --out NAME.parquet"
            raise BadImageError("holds image bytes, not image paths", where=f"{path}, row {row.row}", fix=fix)
        row.text = beside(values[0], str(path)) if values else ""
        found.append(row)
    return found


def initial_image_range(image: Any, model: Any, folder: Path) -> ImageRange:
    """The ``image_range`` (value of white) at the start of a training run in ``folder``; does not download a
    model."""
    if not (is_image_architecture(model.model) or Path(model.model).expanduser().is_dir()):
        return image.image_range
    return build_transform(image, model, newest_fingerprint(folder / "checkpoints")).image_range


def is_image_architecture(model: str) -> bool:
    """Whether ``model`` is the name of an architecture, not of a checkpoint."""
    return model in IMAGE_ARCHITECTURES


def has_fixed_features(model: str) -> bool:
    """Whether ``model`` is an architecture with fixed features: a linear model, which is solved directly."""
    return is_image_architecture(model) and family_of(IMAGE_ARCHITECTURES[model]()).model.fixed


def build_transform(image: Any, model: Any, begun: Mapping[str, Any] | None = None) -> ImageTransform:
    """The transform of the checkpoint or architecture (mean and std 0.5), overridden by the settings.
    ``auto``: dinov2-small if that needs no download, else vit-tiny. ``begun``: fingerprint of a resumed run;
    runs of older versions used the ``image_range`` "full"."""
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
            raise NotForThisModelError(
                "channels can only be set for models trained from scratch", where="channels"
            )
        base = load_transform(resolve_checkpoint(name, model.revision).path)
    size = (image.image_size,) * 2 if image.image_size else base.size
    resize_mode = image.framing or ("crop" if image.resize else base.fit)
    shorter = image.resize or (base.shorter if resize_mode != "squash" else 0)
    if resize_mode != "squash" and image.resize is None and image.image_size:
        shorter = 0 if not base.shorter else round(base.shorter * image.image_size / base.size[0])
    return replace(
        base,
        size=size,
        fit=resize_mode,
        shorter=shorter,
        interpolation=image.interpolation or base.interpolation,
        mean=tuple(image.mean) or base.mean,
        std=tuple(image.std) or base.std,
        image_range=image.image_range or _range(base, begun),
    )


def check_transform(transform: ImageTransform, config: Any, folder: Path) -> None:
    """Raise CheckpointError if a saved transform gives other images than the model of that config reads."""
    if (transform.channels, transform.size) != (config.embedding.channels, config.embedding.image_size):
        what = "the preprocessor gives other images than the model reads"
        raise CheckpointError(what, where=str(folder))


def saved_range(folder: Path) -> ImageRange:
    """The ``image_range`` of a saved model or a run; ``full`` if it is not an image model."""
    for place in (folder, folder / "model"):
        if (place / TRANSFORM_FILE).is_file():
            return load_transform(place, before="full" if (place / ABOUT).is_file() else None).image_range
    return "full"


def _range(base: ImageTransform, begun: Mapping[str, Any] | None) -> ImageRange:
    """The default ``image_range``: that of the checkpoint, or None if that is "full"."""
    if begun is not None and "image_range" not in begun:
        return "full"
    return None if base.image_range == "full" else base.image_range


def save_transform(transform: ImageTransform, folder: Path) -> None:
    """Write ``preprocessor_config.json``, in the format of the Hub."""
    text = json_text(transform.to_hub(), indent=2, ascii=True) + "\n"
    (folder / TRANSFORM_FILE).write_text(text, encoding="utf-8")


def load_transform(folder: Path, before: ImageRange = None) -> ImageTransform:
    """Read ``preprocessor_config.json``; ``before``: ``image_range`` if the file does not have it."""
    return ImageTransform.from_hub(read_json(folder / TRANSFORM_FILE), str(folder / TRANSFORM_FILE), before)
