"""Decode images to upright 8-bit RGB, and find unreadable images.

An image is a path, the bytes of a file, an open file (``open(path, "rb")``, ``BytesIO``, an upload), a
``PIL.Image``, a uint8 array ``[H, W]`` or ``[H, W, C]``, a uint8 tensor ``[C, H, W]``, or a mapping with
``bytes`` or ``path`` (as in Parquet files of the ``datasets`` library).
"""

from __future__ import annotations

import inspect
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glassformer.data.checks import is_missing, location
from glassformer.data.files import is_system_file
from glassformer.data.image_bounds import MAX_PIXELS, check_file, check_slow_values, check_tiff_tags
from glassformer.data.image_range import (
    MAX_UNCLEAR,
    RangeError,
    few_bits_error,
    resolve_white,
    scale_to_uint8,
    to_eight_bits,
)
from glassformer.data.in_memory import read_rows, table_of
from glassformer.data.rejected import join_fixes
from glassformer.errors import (
    BadImageError,
    CannotReadError,
    DataError,
    FileTypeError,
    MissingValueError,
    NoSuchFileError,
    TooLargeError,
    counted,
    with_article,
)
from glassformer.process import without_warnings

if TYPE_CHECKING:
    from PIL.Image import Image


ImageRange = float | Literal["full"] | None
OnUnclear = Callable[[int], None] | None  # called with the brightest pixel of an image of unknown white level
MAX_WEBP_PIXELS = 30_000_000  # fewer than MAX_PIXELS, since the decoder of WebP needs four copies
MAX_BYTES = 256 * 2**20  # maximum size of a file
MAX_SIDE_RATIO = 64  # maximum ratio of the sides; a narrower image is expensive to scale
SUFFIXES = ".jpg .jpeg .png .gif .bmp .webp .tif .tiff .ppm .pgm .jfif .jpe .apng .pbm .pnm .tga".split()
# Extensions of unsupported image formats. Such files count as unreadable images, so users learn about them.
UNSUPPORTED_SUFFIXES = ".heic .heif .hif .avif .jp2 .j2k .jpx .jxl .psd .svg .ico .dcm .dng".split()
UNSUPPORTED_SUFFIXES += ".cr2 .cr3 .nef .arw .orf .raf .rw2".split()
# Formats that Pillow decodes itself; for EPS and others it would start another program. Pillow decodes ICO on
# opening, before its size can be checked.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA")
WHITE = (255, 255, 255)  # background of transparent pixels
ORIENTATION = 0x0112  # EXIF tag
TRANSPOSES = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # tag value -> Pillow's ``Transpose`` that undoes it


class BrightestPixel:
    """Records the brightest pixel among images of more than 8 bits whose white level is unknown."""

    def __init__(self) -> None:
        self.pixel, self.num_images, self.where = 0, 0, ""  # no such image yet

    def record(self, pixel: int, where: str) -> None:
        """Record an image with its brightest pixel."""
        self.num_images += 1
        if pixel > self.pixel:
            self.pixel, self.where = pixel, where

    def resolve_range(self, image_range: ImageRange) -> ImageRange:
        """The ``image_range`` for a model trained on these images: ``full`` if it is unset and needed.

        Raises:
            DataError: the brightest pixel would be nearly black, so the white level must be set.
        """
        if image_range is not None or not self.pixel:
            return image_range
        if self.pixel <= MAX_UNCLEAR:
            what, fix = few_bits_error(self.pixel)
            raise BadImageError(f"{what} ({self.num_images:,} such images)", where=self.where, fix=fix)
        return "full"


def open_image(
    source: Any,
    where: str = "picture",
    image_range: ImageRange = "full",
    brightest: BrightestPixel | None = None,
) -> Image:
    """Open any image as an upright ``PIL.Image`` in mode RGB.

    EXIF orientation is applied, transparent pixels become white, only the first frame of an animation is
    used, and CMYK, palettes and gray become RGB.

    Args:
        image_range: the value of white for images of more than 8 bits that do not state it: a number; "full":
            65,535; None: 65,535, and an error for an image that would be nearly black.
        brightest: records images whose white level is unknown; None: such images may raise an error.

    Raises:
        DataError: not an image, truncated, damaged, too large to decode safely, or in an unsupported format.
    """
    from PIL import Image

    source = unwrap_record(read_stream(source, where))
    if isinstance(source, str | os.PathLike):
        where = where if where != "picture" else str(source)
        source = _read_file(Path(source).expanduser())
    on_unclear = None if brightest is None else partial(brightest.record, where=where)
    if isinstance(source, Image.Image):
        _check_size(source.size, where)
        with decoder_errors(where):
            rgb = _to_rgb(source, b"", where, image_range, on_unclear)
        return rgb.copy() if rgb is source else rgb
    if isinstance(source, bytes | bytearray | memoryview):
        content = bytes(source)
        with decoder_errors(where):
            return _to_rgb(open_file(content, where), content, where, image_range, on_unclear)
    if hasattr(source, "detach") or isinstance(source, np.ndarray):
        return Image.fromarray(_array_to_rgb(source, where, image_range, on_unclear))
    if is_missing(source):
        raise MissingValueError("the image is missing", where=where, fix="Remove the row")
    fix = "Give a path, an open file, a PIL image, a uint8 array [H, W, C] or a uint8 tensor [C, H, W]"
    raise BadImageError(f"{with_article(type(source).__name__)} is not an image", where=where, fix=fix)


def image_files(folder: Path) -> list[Path]:
    """All files in a folder tree with the extension of an image, sorted by name.

    Unreadable images (HEIC, broken links) are included; they raise an error when they are opened. Hidden
    files and the files of other programs (``._x.png``, ``__MACOSX``) are not included.

    Raises:
        DataError: no permission to read a folder.
    """
    return [path for path in files_below(folder) if is_image_name(path)]


def is_image_name(path: str | Path) -> bool:
    """Whether a file has the extension of an image, supported or not."""
    return str(path).lower().endswith((*SUFFIXES, *UNSUPPORTED_SUFFIXES))


def files_below(folder: Path) -> list[Path]:
    """All files in a folder tree, including linked folders, sorted by name, without hidden files."""

    def raise_error(error: OSError) -> None:
        what = f"the folder cannot be read: {error.strerror}"
        raise CannotReadError(what, where=str(error.filename), fix="Check its permissions")

    paths, visited = [], set()
    for name, folders, files in os.walk(folder, onerror=raise_error, followlinks=True):
        folder_path = Path(name)
        visited.add(os.path.realpath(folder_path))  # links may form a cycle
        paths += [path for path in map(folder_path.joinpath, files) if not is_system_file(path)]
        subfolders = [sub for sub in folders if not is_system_file(folder_path / sub)]
        folders[:] = [sub for sub in subfolders if os.path.realpath(folder_path / sub) not in visited]
    return sorted(path for path in paths if path.is_file() or path.is_symlink())


def check_images(images: Iterable[Any], origin: str = "images") -> list[Any]:
    """The images as a list, not decoded; arrays of images are split into images, and open files are read.

    Raises:
        DataError: there are no images; a single path or image instead of a list; or a file cannot be read.
    """
    from PIL import Image

    is_single = isinstance(images, str | bytes | os.PathLike | Image.Image) or hasattr(images, "read")
    if is_single or is_record(images):
        raise DataError("one image where a list is expected", where=origin, fix="Put the image into a list")
    shape = None if table_of(images) is not None else getattr(images, "shape", None)
    if shape is not None and len(shape) in (2, 3) and str(getattr(images, "dtype", "")) != "object":
        is_array = isinstance(images, np.ndarray)
        if not (is_array and len(shape) == 3 and shape[2] not in (1, 3, 4)):
            what = f"an array {tuple(shape)} is read as one image where a list is expected"
            fix = f"Give {'[n, H, W] or [n, H, W, C]' if is_array else '[n, C, H, W]'}"
            fix += "; if each row is an image, X.reshape(-1, H, W)" if len(shape) == 2 else ""
            raise BadImageError(what, where=origin, fix=fix)
    sources = read_rows(images, origin, "images", is_example=is_record)
    checked = [read_stream(source, location(origin, i, None)) for i, source in enumerate(sources)]
    if not checked:
        raise MissingValueError("there are no images", where=origin, fix="Give at least one image")
    return checked


def read_stream(source: Any, where: str) -> Any:
    """Read an open file into a mapping of its bytes and its name; return any other source unchanged.

    The whole file is read, from its start. It stays open at its previous position.

    Raises:
        DataError: the file is closed, opened as text, empty, too large, or cannot be read.
    """
    if not hasattr(source, "read"):
        return source
    stream = source.file if inspect.iscoroutinefunction(source.read) else source  # FastAPI's UploadFile
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    name = os.fspath(name) if isinstance(name, str | os.PathLike) else None
    where = name or where
    try:
        position = stream.tell()
        stream.seek(0)
    except (OSError, AttributeError, NotImplementedError):  # a pipe is read from its current position
        position = None
    except ValueError:
        fix = "Open it again, or give its path"
        raise BadImageError("the file is closed", where=where, fix=fix) from None
    try:
        content = _read_all(stream)
    except (OSError, ValueError) as error:  # text that cannot be decoded is a ValueError
        fix = "Open it with mode 'rb', or give its path"
        raise CannotReadError(f"cannot be read ({error})", where=where, fix=fix) from None
    finally:
        if position is not None:
            stream.seek(position)
    if not isinstance(content, bytes):
        raise BadImageError("the file is open as text", where=where, fix="Open it with mode 'rb'")
    if not content:
        raise BadImageError("the image has no bytes", where=where, fix="Remove it or download it again")
    if len(content) > MAX_BYTES:
        raise _too_many_bytes_error(where)
    return {"bytes": content, "path": name}


def _read_all(stream: Any) -> Any:
    """Read up to one byte more than an image may have; an unbuffered file returns its content in pieces."""
    pieces, remaining = [], MAX_BYTES + 1
    while remaining > 0 and (piece := stream.read(remaining)):
        if isinstance(piece, str):
            return piece
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


def unwrap_record(source: Any) -> Any:
    """The bytes or the path in a record (``is_record``); any other source unchanged."""
    if not isinstance(source, Mapping):
        return source
    content = source.get("bytes")
    return source.get("path") if content is None else content


def is_record(row: Any) -> bool:
    """Whether ``row`` is a dict with the bytes or the path of an image, as in the ``datasets`` library."""
    return isinstance(row, Mapping) and bool(row) and row.keys() <= {"bytes", "path"}


def image_name(source: Any, origin: str, index: int, rows: Sequence[int] | None = None) -> str:
    """The name of an image in messages and tables: its file, or its position."""
    if isinstance(source, Mapping) and source.get("path"):
        source = str(source["path"])
    if isinstance(source, str | os.PathLike):
        return str(source)
    return location(origin, index, rows)


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _too_many_bytes_error(str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise _missing_file_error(path) from None
    except OSError as error:
        fix = "Name a file" if path.is_dir() else "Check the path and its permissions"
        raise CannotReadError(error.strerror or "cannot be read", where=str(path), fix=fix) from None


def _missing_file_error(path: Path) -> DataError:
    name = str(path)
    if path.is_symlink():
        fix = f"Put the image at {os.readlink(path)}, or remove the link"
        return NoSuchFileError("a broken link", where=name, fix=fix)
    if re.match(r"[a-z]{2,}:/", name):
        fix = "Download the image and name its file"
        return CannotReadError("a URL, which is not supported", where=name, fix=fix)
    if " " in name and not path.suffix:
        fix = "Give paths of images, arrays or PIL images. For texts use TextClassifier (--text)"
        return NoSuchFileError("no such image file", where=repr(name[:80]), fix=fix)
    fix = "Check the path"
    if "\\" in name:
        fix = "It is a Windows path: give the path of the file relative to the folder of the table"
    return NoSuchFileError("no such file", where=name, fix=fix)


def open_file(content: bytes, where: str) -> Image:
    """Open the file of an image and check its size and headers, without decoding it.

    Raises:
        DataError: no bytes, not an image, or an image that is too expensive to decode.
    """
    from PIL import Image

    if not content:
        raise BadImageError("the image has no bytes", where=where, fix="Remove it or download it again")
    check_file(content, where)
    with decoder_errors(where):
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        _check_size(image.size, where, MAX_WEBP_PIXELS if image.format == "WEBP" else MAX_PIXELS)
        check_slow_values(image, content, where)
        return image


@contextmanager
def decoder_errors(where: str) -> Iterator[None]:
    """Turn any exception of a decoder into a ``DataError``, and suppress its warnings."""
    from PIL import Image, UnidentifiedImageError

    with without_warnings(r"PIL\."):  # about odd metadata, and about the size, which this module checks
        try:
            yield
        except UnidentifiedImageError:
            *formats, last_format = FORMATS[:7]
            fix = f"Save it as {', '.join(formats)} or {last_format}"
            if where.lower().endswith((".txt", ".md", ".html")):
                fix = "Give images; for texts, name a text model"
            raise FileTypeError("is not an image that can be read", where=where, fix=fix) from None
        except Image.DecompressionBombError:
            raise _too_large_error("it has", where) from None
        except RangeError as error:
            raise BadImageError(error.what, where=where, fix=error.fix) from None
        except DataError:
            raise
        except Exception as error:  # decoders raise OSError, struct.error, SyntaxError ...
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            what = f"the image is damaged ({reason})"
            raise BadImageError(what, where=where, fix="Download it again or remove it") from None


def read_content(source: Any) -> bytes | None:
    """The bytes of an image's file, in memory or on disk; None for arrays and decoded images.

    Raises:
        DataError: the file cannot be read.
    """
    source = unwrap_record(read_stream(source, "picture"))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source).expanduser())
    return bytes(source) if isinstance(source, bytes | bytearray | memoryview) else None


def _to_rgb(
    image: Image, content: bytes, where: str, image_range: ImageRange, on_unclear: OnUnclear
) -> Image:
    """Decode an opened image to upright RGB."""
    from PIL import Image

    image.load()
    upright = _apply_exif_orientation(image, where)
    upright = to_eight_bits(upright, image, content, image_range, on_unclear)
    mode, is_transparent = upright.mode, "transparency" in upright.info
    if is_transparent or mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        rgba = upright if mode == "RGBA" and not is_transparent else upright.convert("RGBA")
        opaque = Image.new("RGB", rgba.size, WHITE)
        opaque.paste(rgba, mask=rgba.getchannel("A"))
        return opaque
    return upright if mode == "RGB" else upright.convert("RGB")


def _apply_exif_orientation(image: Image, where: str) -> Image:
    from PIL import Image

    exif = image.info.get("exif") or _exif_from_text(image.info.get("Raw profile type exif"))
    if isinstance(exif, bytes):
        check_tiff_tags(exif, where)
    try:
        transpose = TRANSPOSES.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata; the pixels are usable
        return image
    if transpose is None:
        return image
    upright = image.transpose(Image.Transpose(transpose))
    for name in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):
        upright.info.pop(name, None)  # otherwise the orientation would be applied again
    return upright


def _exif_from_text(text: Any) -> bytes | None:
    """The EXIF that some programs write into a text chunk of a PNG: three lines, then hexadecimal bytes."""
    try:
        return bytes.fromhex("".join(text.split("\n")[3:])) if isinstance(text, str) else None
    except ValueError:
        return None


def _array_to_rgb(source: Any, where: str, image_range: ImageRange, on_unclear: OnUnclear) -> np.ndarray:
    """Convert an array ``[H, W, C]`` or a tensor ``[C, H, W]`` to uint8 ``[H, W, 3]``.

    Its pixels have 8 or 16 bits; if ``image_range`` is a number, they may have any type.
    """
    is_tensor = hasattr(source, "detach")
    array = source.detach().cpu().numpy() if is_tensor else source
    if array.ndim == 2:
        array = array[None] if is_tensor else array[:, :, None]
    if array.ndim != 3:
        layout = "[C, H, W]" if is_tensor else "[H, W, C]"
        raise BadImageError(f"an array {array.shape} is not an image", where=where, fix=f"Give {layout}")
    if is_tensor:
        array = array.transpose(1, 2, 0)
    has_range = isinstance(image_range, int | float) and array.dtype.kind in "iuf"
    if array.dtype != np.uint8 and not has_range and array.dtype != np.uint16:
        what = f"pixels are {array.dtype} where uint8 from 0 to 255 is expected"
        fix = "Set image_range to the value of white, 1.0 for numbers from 0 to 1; or convert them"
        raise BadImageError(what, where=where, fix=fix)
    _check_size((array.shape[1], array.shape[0]), where)
    channels = array.shape[2]
    if channels not in (1, 3, 4):
        what = f"{channels} channels where 1, 3 or 4 are expected"
        raise BadImageError(what, where=where, fix="Arrays are [H, W, C], tensors [C, H, W]")
    if array.dtype != np.uint8:
        with decoder_errors(where):
            array = scale_to_uint8(array, resolve_white(array, image_range, on_unclear))
    if channels == 1:
        return np.repeat(array, 3, axis=2)
    if channels == 4:
        alpha = array[:, :, 3:].astype(np.float32) / 255
        return np.rint(array[:, :, :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return np.ascontiguousarray(array)


def _check_size(size: tuple[int, int], where: str, max_pixels: int = MAX_PIXELS) -> None:
    width, height = size
    if min(size) < 1:
        raise BadImageError("the image has no pixels", where=where, fix="Remove it")
    if width * height > max_pixels:
        raise _too_large_error(f"{width:,} x {height:,} pixels are", where, max_pixels)
    if max(size) > MAX_SIDE_RATIO * min(size) and max(size) > 1024:
        what = f"of {width} x {height} pixels, one side is more than {MAX_SIDE_RATIO} times the other"
        raise BadImageError(what, where=where, fix="Crop it or remove it")


def _too_large_error(clause: str, where: str, max_pixels: int = MAX_PIXELS) -> DataError:
    what = f"{clause} more than the maximum of {max_pixels // 1_000_000} million pixels"
    return TooLargeError(what, where=where, fix="Scale it down or remove it")


def _too_many_bytes_error(where: str) -> DataError:
    return TooLargeError(f"larger than {MAX_BYTES >> 20} MiB", where=where, fix="Scale it down")


# --- checking all images before training --------------------------------------------------------
# A file counts as complete if it has a valid header and ends with the last bytes of its format. Other files
# are decoded. A check of a small file takes less than a millisecond, so all splits are checked.

# Format -> the last bytes of a complete file.
FILE_ENDINGS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
SKIP_HINT = "leave such images out with --set broken=skip"
DARK_LEVEL = (
    64  # gray level (0 to 255); an image without a brighter pixel uses at most a quarter of the range
)
MAX_SHOWN = 3  # maximum number of images that a message names


@dataclass(frozen=True)
class ImageHeader:
    """The header of an image's file."""

    kind: str  # file format such as JPEG or PNG; "array" for images in memory
    mode: str  # Pillow's mode: RGB, L, CMYK, RGBA, P ...
    size: tuple[int, int]  # width, height
    frames: int = 1  # 2 for animations of any length
    brightest: int | None = None  # brightest pixel (0 to 255) after decoding; None: not decoded


def read_header(
    source: Any,
    where: str,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: BrightestPixel | None = None,
) -> ImageHeader:
    """Check whether an image is readable, and return its header.

    Args:
        decode: always decode the image; otherwise only if its file seems incomplete, or if it has more than 8
            bits per channel.
        image_range, brightest: see ``open_image``.

    Raises:
        DataError: not an image, or truncated, damaged, or too large.
    """
    content = read_content(source)
    if content is None:
        image = open_image(source, where, image_range, brightest)
        return ImageHeader("array", image.mode, image.size, brightest=_brightest(image))
    image = open_file(content, where)
    kind, pixel_max = image.format or "", None
    frames = 2 if getattr(image, "is_animated", False) else 1  # counting all frames would decode them
    ending = FILE_ENDINGS.get(kind)
    is_complete = ending is not None and content[-64:].rstrip(b"\0\r\n").endswith(ending)
    if decode or not is_complete or image.mode[0] in "IF" or (kind == "PNG" and content[24:25] == b"\x10"):
        pixel_max = _brightest(open_image(content, where, image_range, brightest))
    return ImageHeader(kind, image.mode, image.size, frames, pixel_max)


def _brightest(image: Any) -> int:
    return max(high for _, high in image.getextrema())


def read_headers(
    images: Sequence[Any], origin: str, rows: Sequence[int] | None = None, *options: Any
) -> tuple[dict[int, ImageHeader], dict[int, DataError]]:
    """Position -> header of each readable image, and position -> error of each unreadable image.

    Args:
        options: the arguments of ``read_header`` from ``decode`` on.
    """
    headers, errors = {}, {}
    for i, source in enumerate(images):
        try:
            headers[i] = read_header(source, image_name(source, origin, i, rows), *options)
        except DataError as error:
            errors[i] = error
    return headers, errors


def check_readable(splits: dict[str, Any], image_range: ImageRange = None) -> None:
    """Raise an error before training if an image of any split is unreadable.

    Args:
        splits: the first is the training split, which determines the white level of images of more than 8
            bits.
        image_range: the setting; see ``open_image``.

    Raises:
        DataError: images are unreadable; the message has the first, their number, and how to skip them.
    """
    errors, counts = [], []
    for i, (name, split) in enumerate(splits.items()):
        brightest = BrightestPixel() if i == 0 else None
        _, unreadable = read_headers(split.images, split.origin, split.rows, False, image_range, brightest)
        errors += unreadable.values()
        counts += [f"{len(unreadable):,} of {name}"] if unreadable else []
        image_range = image_range if brightest is None else brightest.resolve_range(image_range)
    if not errors:
        return
    first = errors[0]
    what = f"{first.what}; images that cannot be read: {', '.join(counts)}" if len(errors) > 1 else first.what
    fix = join_fixes(first.fix or "Fetch it again or remove it", SKIP_HINT)
    raise first.replace(what=what, fix=fix)


def remove_unreadable(split: Any, name: str, image_range: ImageRange = "full") -> tuple[Any, list[str]]:
    """A split without its unreadable images, and a list with a message about them (empty: none)."""
    readable, errors = read_headers(split.images, split.origin, split.rows, True, image_range)
    if not errors:
        return split, []
    shown = "; ".join(str(error) for error in list(errors.values())[:MAX_SHOWN])
    more = f" and {len(errors) - MAX_SHOWN} more" if len(errors) > MAX_SHOWN else ""
    if not readable:
        what = f"there are no readable images for {name}"
        raise BadImageError(what, where=split.origin, fix="Download them again")
    return split.select([*readable]), [f"{counted(len(errors), 'image')} of {name} left out: {shown}{more}"]


def drop_unreadable(splits: Any, image_range: ImageRange = "full") -> tuple[Any, list[str]]:
    """The splits of a run without unreadable images, and messages about these images.

    Images are removed after splitting, so a resumed run has the same splits.

    Raises:
        DataError: a split has no readable image.
    """
    changed, messages = {}, []
    names = {"train": "train", "validation": "validation", "evaluated": splits.evaluated_split}
    for field, name in names.items():
        split = getattr(splits, field)
        if field == "evaluated" and split is splits.validation:
            changed[field] = changed.get("validation")
        elif split is not None:
            changed[field], lines = remove_unreadable(split, name, image_range)
            messages += lines
    return replace(splits, **changed), messages
