"""Images as inputs of runs, commands and the server, and their preprocessing."""

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

from glassformer.checkpoints.catalog import AUTO, CATALOG, IMAGE_ENCODER, IMAGE_SCRATCH, catalog_names
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import is_available, resolve_checkpoint
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.checkpoints.settings import METADATA_FILE
from glassformer.config import suggest
from glassformer.data.checks import is_missing
from glassformer.data.columns import find_column
from glassformer.data.dataset import Dataset
from glassformer.data.findings import DoctorReport
from glassformer.data.image import (
    FORMATS,
    ImageRange,
    check_readable,
    drop_unreadable,
    image_files,
    open_image,
    read_headers,
)
from glassformer.data.image_bounds import check_file
from glassformer.data.image_doctor import examine_images
from glassformer.data.image_sources import IMAGE_COLUMNS, load_image_dataset, resolve_path
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
from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs, Item, RequestTooLargeError, ServedInputs, section_values
from glassformer.inputs.rows import SKIP_HINT, STDIN, InputRequest, Row, read_columns
from glassformer.inputs.start import check_start
from glassformer.process import without_warnings

TRANSFORM_FILE = "preprocessor_config.json"


class ServedImages(ServedInputs):
    """How the server reads images in base64. Threads of ``serve.batcher.ImageDecoder`` decode them."""

    kind = "image"
    field = "image"
    length_field = "image"
    noun = "images"
    default_example = None  # the page draws an image if the recipe has no example
    element_description = "The bytes of an image file in base64"
    decodes_inputs = True
    examples = "example.png", "example.jpg"
    too_long = "Start the server with a larger --explain-tokens"

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits, self.max_length = clf, limits, None
        self.max_tokens = clf.model_.config.embedding.num_tokens

    def estimate_tokens(self, x: Any) -> int:
        return self.max_tokens

    def min_tokens(self, size: int) -> int:
        return self.max_tokens

    def length(self, x: Any) -> int:
        return 0

    def decode_base64(self, contents: Sequence[str], what: str) -> list[tuple[bytes, int]]:
        """The bytes and number of pixels of each base64 image; an error names the position of the image."""
        images = [self.open_base64(content, f"{what}[{i}]") for i, content in enumerate(contents)]
        pixels = sum(pixels for _, pixels in images)
        if pixels > self.limits.request_pixels:
            error = f"{pixels:,} pixels in all images, at most {self.limits.request_pixels:,} in one request"
            raise RequestTooLargeError(error, where=what, fix="Send several requests, or scale them down")
        return images

    def open_base64(self, content: str, where: str) -> tuple[bytes, int]:
        """The bytes and number of pixels of a base64 image, after a check of its size."""
        from PIL import Image

        try:
            data = base64.b64decode("".join(content.split()), validate=True)  # base64 often has line breaks
        except (binascii.Error, ValueError):
            what = "a URL, which is not supported" if ":" in content[:12] else "not base64"
            fix = "Send the file's bytes in base64, without a prefix"
            raise DataError(what, where=where, fix=fix) from None
        try:
            check_file(data, where, self.limits.pixels)
            with (
                without_warnings(r"PIL\."),  # about unusual metadata
                Image.open(io.BytesIO(data), formats=FORMATS) as image,
            ):
                width, height = image.size
        except InputError:
            raise
        except Exception:  # any error of a decoder for an invalid header
            known = ", ".join(FORMATS[:6])
            raise DataError("not an image that can be read", where=where, fix=f"Known: {known}") from None
        if width * height > self.limits.pixels:
            what = f"{width:,} x {height:,} pixels, at most {self.limits.pixels:,} in total"
            raise RequestTooLargeError(what, where=where, fix="Scale it down")
        return data, width * height

    def decode(self, content: Any, where: str) -> Item:
        """Decode the bytes of an image to pixels ``[C, H, W]``, uint8; raise DataError if it is damaged."""
        return Item(self.clf.pixels(content, where), self.max_tokens)

    def dummy_input(self, text: str) -> Item:
        """A black image; ``text`` is ignored."""
        shape = self.clf.transform_.channels, *self.clf.transform_.size
        return Item(np.zeros(shape, np.uint8), self.max_tokens)

    def to_explain(self, x: str) -> tuple[bytes, int]:
        return self.open_base64(x, self.field)[0], self.max_tokens

    def join(self, items: Sequence[Item]) -> PixelTable:
        return PixelTable(np.stack([item.encoded for item in items]))

    def model_fields(self) -> dict[str, Any]:
        return {"size": list(self.clf.transform_.size), "channels": self.clf.transform_.channels}


class Images(Inputs):
    """Inputs with one image per example."""

    noun, shape, placeholder = "images", "pixels [B, channels, height, width]", "IMAGE.png"
    has_images = True
    columns, served = ("image", "img", "picture", "photo"), ServedImages
    packages = ("pillow", "kornia", "safetensors", "scikit-learn")
    doctor_severities = ("warning", "note")
    messages_field = "notes"
    fixture_settings: ClassVar = {"image_size": 8, "patch_size": 4}

    def read(self, recipe: Any, source: str, targets_are_numbers: bool, **options: Any) -> Dataset:
        options.pop("trained", None)  # unused: the column of images is always detected
        columns = section_values(recipe.data, "image_column", "label_column", "label_separator", "broken")
        image_range = recipe.image.image_range
        return load_image_dataset(
            source, image_range=image_range, numbers=targets_are_numbers, **columns, **options
        )

    def skips_unusable(self, data: Any) -> bool:
        return data.broken == "skip"

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Raise DataError for unreadable images before training."""
        check_readable(dict(splits), initial_image_range(recipe.image, recipe.model, folder))

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        return examine_images(replace(dataset, rejected=()), transform=est.transform_)

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        transform = getattr(est, "transform_", None)
        image_range = recipe.image.image_range if transform is None else transform.image_range
        return drop_unreadable(splits, image_range or "full")

    def run_metadata(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        return {"tokens_per_picture": est.model_.config.embedding.num_tokens}

    def example_fixture(self) -> Sequence[Any]:
        return list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))

    def rows(self, request: InputRequest) -> list[Row]:
        """One row per image, from image files, folders of images, and tables of file names."""
        rows: list[Row] = []
        for argument in request.arguments:
            is_table = argument.lower().endswith(tuple(READERS)) and os.path.isfile(argument)
            if is_table:
                rows += read_image_table(Path(argument), request)
            else:
                rows += map(Row, image_paths([argument]))
        return mark_unreadable(rows, saved_range(request.folder)) if request.skip else rows

    def check_cell(self, x: Any, clf: Any) -> None:
        if not isinstance(x, bytes):
            raise MissingValueError("the image is missing")
        open_image(x, image_range=clf.transform_.image_range)

    def examples_of_arguments(self, request: InputRequest, numbers: Sequence[int]) -> list[Any]:
        if numbers:
            fix = "Pass the image paths"
            raise NotForThisModelError("selects rows, but this model reads images", where="--row", fix=fix)
        return image_paths(request.arguments)

    def title(self, x: Any) -> str:
        return x


def mark_unreadable(rows: Sequence[Row], image_range: Any = "full") -> list[Row]:
    """Decode each image, and set ``error`` on rows whose image cannot be decoded."""
    usable = [row for row in rows if row.error is None]
    decode_pixels = True  # not only the headers of the images
    _, errors = read_headers([row.text for row in usable], "IMAGE", None, decode_pixels, image_range)
    for i, error in errors.items():
        usable[i].error = error.what
    return list(rows)


def image_paths(arguments: Sequence[str]) -> list[str]:
    """The image files named by the arguments; a folder is replaced by its images, sorted by name."""
    paths: list[str] = []
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            files = [str(p) for p in image_files(path)]
            if not files:
                what = "there are no images in this folder"
                raise MissingValueError(what, where=argument, fix="Pass the image paths")
            paths += files
        elif path.is_file():
            paths.append(argument)
        else:
            fix = "Check the path: this model reads images"
            if argument == STDIN:
                fix = "Standard input is for texts: name files or folders"
            raise NoSuchFileError("no such image", where=argument or "IMAGE", fix=fix)
    return paths


def read_image_table(path: Path, request: InputRequest) -> list[Row]:
    """One row per image of a table, whose column of paths is relative to the table's folder."""

    def choose(table: Table) -> tuple[str]:
        column = find_column(table, None, IMAGE_COLUMNS, "image")
        if column is None:
            what = f"there is no column of images (columns: {', '.join(table.names)})"
            fix = "This model reads images: give image files, or a table that names them in a column called "
            fix += f"{', '.join(IMAGE_COLUMNS[:-1])} or {IMAGE_COLUMNS[-1]}"
            raise NoSuchColumnError(what, where=str(path), fix=fix)
        return (column,)

    rows = []
    for values, row in read_columns(path, choose, request, ["image_column"]):
        if values and is_missing(values[0]):
            row.error = "the image is missing"
            if not request.skip:
                fix = f"Enter an image path, {SKIP_HINT}"
                raise DataError(row.error, where=f"{path}, row {row.row}", fix=fix)
            values = ()
        if values and not isinstance(values[0], str):
            fix = "For a Parquet table with images, use --out NAME.parquet"
            raise BadImageError(
                "contains image bytes, not image paths", where=f"{path}, row {row.row}", fix=fix
            )
        row.text = resolve_path(values[0], str(path)) if values else ""
        rows.append(row)
    return rows


def initial_image_range(image: Any, model: Any, folder: Path) -> ImageRange:
    """The ``image_range`` (the pixel value of white) when a run in ``folder`` begins.

    It never downloads a checkpoint: then it is the setting of the recipe.
    """
    if not (is_image_architecture(model.model) or Path(model.model).expanduser().is_dir()):
        return image.image_range
    return build_transform(image, model, newest_fingerprint(folder / "checkpoints")).image_range


def is_image_architecture(model: str) -> bool:
    """Whether ``model`` is the name of an architecture, not of a checkpoint."""
    return model in IMAGE_ARCHITECTURES


def has_fixed_features(model: str) -> bool:
    """Whether ``model`` is a linear model on fixed features, which is solved without training steps."""
    return is_image_architecture(model) and family_of(IMAGE_ARCHITECTURES[model]()).model.is_linear


def build_transform(image: Any, model: Any, fingerprint: Mapping[str, Any] | None = None) -> ImageTransform:
    """The transform of the checkpoint or architecture, overridden by the settings.

    An architecture has mean and std 0.5. ``auto`` is dinov2-small if it is stored here, otherwise vit-tiny.

    Args:
        fingerprint: settings of a run to resume, if any. Runs of older versions used the ``image_range``
            "full".
    """
    known_names = [*IMAGE_ARCHITECTURES, *catalog_names("images")]
    name = model.model
    if name == AUTO:
        name = IMAGE_ENCODER if is_available(IMAGE_ENCODER) else IMAGE_SCRATCH
    if name in (*TEXT_ARCHITECTURES, *catalog_names("texts")) and name not in known_names:
        what = f"{name!r} reads texts, and this is a model of images"
        raise NotForThisModelError(what, where="model", fix="Use it with TextClassifier")
    if name not in (*known_names, *CATALOG) and "/" not in name and not Path(name).expanduser().exists():
        raise UnknownModelError(f"there is no model {name!r}", where="model", fix=suggest(name, known_names))
    if is_image_architecture(name):
        channels = image.channels or 3
        size = IMAGE_ARCHITECTURES[name]().embedding.image_size
        base = ImageTransform(size, mean=(0.5,) * channels, std=(0.5,) * channels, channels=channels)
    else:
        check_start(name, "images")
        if image.channels is not None:
            what = "channels can only be set for models trained from scratch"
            raise NotForThisModelError(what, where="channels")
        base = load_transform(resolve_checkpoint(name, model.revision).path)
    # How images get the right size; the recipe's key for the field ``fit`` is ``framing``.
    fit = image.framing or ("crop" if image.resize else base.fit)
    return replace(
        base,
        size=(image.image_size,) * 2 if image.image_size else base.size,
        fit=fit,
        resize_to=_resize_to(image, base, fit),
        interpolation=image.interpolation or base.interpolation,
        mean=tuple(image.mean) or base.mean,
        std=tuple(image.std) or base.std,
        image_range=image.image_range or _default_range(base, fingerprint),
    )


def _resize_to(image: Any, base: ImageTransform, fit: str) -> int:
    """Length of the shorter side before cropping, in pixels; 0: the image size."""
    if image.resize:
        return image.resize
    if fit == "squash" or not base.resize_to:  # no crop
        return 0
    if image.resize is None and image.image_size:  # keep the proportion to the image size
        return round(base.resize_to * image.image_size / base.size[0])
    return base.resize_to


def check_transform(transform: ImageTransform, config: Any, folder: Path) -> None:
    """Raise CheckpointError if a saved transform produces images of another size than the model reads."""
    if (transform.channels, transform.size) != (config.embedding.channels, config.embedding.image_size):
        what = "the image size or channels of the preprocessor differ from those of the model"
        raise CheckpointError(what, where=str(folder))


def saved_range(folder: Path) -> ImageRange:
    """The ``image_range`` of a saved model or a run; ``full`` if it is not an image model."""
    for path in (folder, folder / "model"):
        if (path / TRANSFORM_FILE).is_file():
            default = "full" if (path / METADATA_FILE).is_file() else None  # our older files lack the setting
            return load_transform(path, default=default).image_range
    return "full"


def _default_range(base: ImageTransform, fingerprint: Mapping[str, Any] | None) -> ImageRange:
    """The default ``image_range``: that of the checkpoint, or None (detected) if that is "full".

    Resumed runs of older versions, whose fingerprint lacks the setting, keep "full".
    """
    if fingerprint is not None and "image_range" not in fingerprint:
        return "full"
    return None if base.image_range == "full" else base.image_range


def save_transform(transform: ImageTransform, folder: Path) -> None:
    """Write ``preprocessor_config.json``, in the format of the Hub."""
    text = json_text(transform.to_hub(), indent=2, ascii=True) + "\n"
    (folder / TRANSFORM_FILE).write_text(text, encoding="utf-8")


def load_transform(folder: Path, default: ImageRange = None) -> ImageTransform:
    """Read ``preprocessor_config.json``; ``default`` is the ``image_range`` if the file has none."""
    return ImageTransform.from_hub(read_json(folder / TRANSFORM_FILE), str(folder / TRANSFORM_FILE), default)
