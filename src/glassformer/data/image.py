"""Decode images of any source to upright 8-bit RGB, and find unreadable images.

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

from glassformer.data.checks import is_missing, place
from glassformer.data.files import is_clutter
from glassformer.data.image_bounds import MAX_PIXELS, check_file, check_slow, check_tiff_tags
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
MAX_WEBP = 30_000_000  # pixels of a WebP, whose decoder needs four copies
MAX_BYTES = 256 * 2**20  # maximum size of a file
MAX_RATIO = 64  # maximum ratio of the sides; more is a line, which is expensive to scale
SUFFIXES = ".jpg .jpeg .png .gif .bmp .webp .tif .tiff .ppm .pgm .jfif .jpe .apng .pbm .pnm .tga".split()
# Extensions of unsupported image formats: such files count as unreadable images and are not silently ignored.
NOT_READ = (
    ".heic .heif .hif .avif .jp2 .j2k .jpx .jxl .psd .svg .ico .dcm .dng .cr2 .cr3 .nef .arw .orf .raf .rw2"
).split()
# Formats that Pillow decodes itself; EPS and others would start another program. ICO is excluded because it
# is decoded on opening, before its size can be checked.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA")
WHITE = (255, 255, 255)  # background of transparent pixels
ORIENTATION = 0x0112  # EXIF tag
TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # tag value -> Pillow's ``Transpose`` that undoes it


@dataclass(frozen=True)
class _Reading:
    """Settings for converting the pixels of one image to 8 bits."""

    where: str
    image_range: ImageRange
    brightest: Brightest | None

    @property
    def white(self) -> tuple[ImageRange, Callable[[int], None] | None]:
        """The arguments ``image_range`` and ``note`` of ``image_range.eight_bits`` and ``white_of``."""
        note = None if self.brightest is None else partial(self.brightest.note, where=self.where)
        return self.image_range, note


class Brightest:
    """Records the brightest pixel of images of more than 8 bits with unknown white; 0: no such images."""

    def __init__(self) -> None:
        self.pixel, self.images, self.where = 0, 0, ""

    def note(self, pixel: int, where: str) -> None:
        """Record an image."""
        self.images += 1
        if pixel > self.pixel:
            self.pixel, self.where = pixel, where

    def settle(self, image_range: ImageRange) -> ImageRange:
        """The ``image_range`` for a model trained on these images: ``full`` if a pixel is bright enough."""
        if image_range is not None or not self.pixel:
            return image_range
        if self.pixel <= MAX_UNCLEAR:
            what, fix = few_bits_error(self.pixel)
            raise BadImageError(f"{what} ({self.images:,} such images)", where=self.where, fix=fix)
        return "full"


def open_image(
    source: Any, where: str = "picture", image_range: ImageRange = "full", brightest: Brightest | None = None
) -> Image:
    """Open any image as an upright ``PIL.Image`` in mode RGB.

    EXIF orientation is applied, transparent pixels become white, only the first frame of an animation is
    used, and CMYK, palettes and gray become RGB.

    Args:
        image_range: the value of white for images of more than 8 bits that do not state it: a number; "full":
            65,535; None: 65,535, and an error for an image that would be nearly black.
        brightest: records images whose white level is unknown; then such an image is not an error.

    Raises:
        DataError: not an image, truncated, damaged, too large to decode safely, or in an unsupported format.
    """
    from PIL import Image

    reading = _Reading(where, image_range, brightest)
    if isinstance(source, Image.Image):
        _check_size(source.size, where)
        with decoding(where):
            decoded = _decoded(source, reading)
        return decoded.copy() if decoded is source else decoded
    source = file_of(in_memory(source, where))
    if isinstance(source, str | os.PathLike):
        where = where if where != "picture" else str(source)
        reading = replace(reading, where=where)
        source = _read_file(Path(source).expanduser())
    if isinstance(source, bytes | bytearray | memoryview):
        with decoding(where):
            return _decoded(opened(bytes(source), where), reading, bytes(source))
    if hasattr(source, "detach") or isinstance(source, np.ndarray):
        return Image.fromarray(_from_array(source, reading))
    if is_missing(source):
        raise MissingValueError("the image is missing", where=where, fix="Remove the row")
    fix = "Give a path, an open file, a PIL image, a uint8 array [H, W, C] or a uint8 tensor [C, H, W]"
    raise BadImageError(f"{with_article(type(source).__name__)} is not an image", where=where, fix=fix)


def image_files(folder: Path) -> list[Path]:
    """All files in a folder tree with the extension of an image, sorted by name.

    This includes unreadable images (HEIC, broken links), which raise an error in use, but not hidden files
    and files that other programs leave among data (``._x.png``, ``__MACOSX``).

    Raises:
        DataError: no permission to read a folder.
    """
    return [path for path in files_below(folder) if is_image_name(path)]


def is_image_name(path: str | Path) -> bool:
    """Whether a file has the extension of an image, supported or not."""
    return str(path).lower().endswith((*SUFFIXES, *NOT_READ))


def files_below(folder: Path) -> list[Path]:
    """All files in a folder tree, including linked folders, sorted by name, without hidden files."""

    def refuse(error: OSError) -> None:
        what = f"the folder cannot be read: {error.strerror}"
        raise CannotReadError(what, where=str(error.filename), fix="Check its permissions")

    paths, seen = [], set()
    for name, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folder_path = Path(name)
        seen.add(os.path.realpath(folder_path))  # links may form a cycle
        paths += [path for path in map(folder_path.joinpath, files) if not is_clutter(path)]
        inner = [sub for sub in folders if not is_clutter(folder_path / sub)]
        folders[:] = [sub for sub in inner if os.path.realpath(folder_path / sub) not in seen]
    return sorted(path for path in paths if path.is_file() or path.is_symlink())


def check_images(
    images: Iterable[Any], origin: str = "images", rows: Sequence[int] | None = None
) -> list[Any]:
    """The images as a list, not decoded; an array or tensor of images is split, open files are read.

    Raises:
        DataError: there are no images; a single path or image instead of a list; or a file cannot be read.
    """
    from PIL import Image

    is_single = isinstance(images, str | bytes | os.PathLike | Image.Image) or hasattr(images, "read")
    if is_single or is_record(images):
        raise DataError("one image where a list is expected", where=origin, fix="Put the image into a list")
    shape = None if table_of(images) is not None else getattr(images, "shape", None)
    if shape is not None and len(shape) in (2, 3) and str(getattr(images, "dtype", "")) != "object":
        array = isinstance(images, np.ndarray)
        if not (array and len(shape) == 3 and shape[2] not in (1, 3, 4)):
            what = f"{tuple(shape)} is one image where a list is expected"
            raise BadImageError(what, where=origin, fix=f"Give {'[n, H, W, C]' if array else '[n, C, H, W]'}")
    given = read_rows(images, origin, "images", whole=is_record)
    checked = [in_memory(picture, place(origin, i, rows)) for i, picture in enumerate(given)]
    if not checked:
        raise MissingValueError("there are no images", where=origin, fix="Give at least one image")
    return checked


def in_memory(source: Any, where: str) -> Any:
    """Read an open file into a mapping of its bytes and its name; return anything else unchanged.

    The whole file is read, from its start; it stays open at its previous position.

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
        raise BadImageError(
            "the file is closed", where=where, fix="Open it again, or give its path"
        ) from None
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
        raise _too_many_bytes(where)
    return {"bytes": content, "path": name}


def _read_all(stream: Any) -> Any:
    """Read up to one byte more than an image may have; an unbuffered file returns it in several parts."""
    parts, left = [], MAX_BYTES + 1
    while left > 0 and (part := stream.read(left)):
        if isinstance(part, str):
            return part
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def file_of(source: Any) -> Any:
    """The bytes or the path in a mapping; anything else unchanged."""
    if not isinstance(source, Mapping):
        return source
    content = source.get("bytes")
    return source.get("path") if content is None else content


def is_record(row: Any) -> bool:
    """Whether ``row`` is an image as a dict, as in ``datasets``, with its bytes, its path, or both."""
    return isinstance(row, Mapping) and bool(row) and row.keys() <= {"bytes", "path"}


def image_name(source: Any, origin: str, index: int, rows: Sequence[int] | None = None) -> str:
    """The name of an image in messages and tables: its file, or its position."""
    if isinstance(source, Mapping) and source.get("path"):
        source = str(source["path"])
    if isinstance(source, str | os.PathLike):
        return str(source)
    return place(origin, index, rows)


def _read_file(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _too_many_bytes(str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise _missing_file_error(path) from None
    except OSError as error:
        fix = "Name a file" if path.is_dir() else "Check the path and its permissions"
        raise CannotReadError(error.strerror or "cannot be read", where=str(path), fix=fix) from None


def _missing_file_error(path: Path) -> DataError:
    """The error for a missing file, with its probable cause."""
    name = str(path)
    if path.is_symlink():
        fix = f"Put the image at {os.readlink(path)}, or remove the link"
        return NoSuchFileError("a broken link", where=name, fix=fix)
    if re.match(r"[a-z]{2,}:/", name):
        return CannotReadError(
            "a URL, which is not supported", where=name, fix="Download the image and name its file"
        )
    if " " in name and not path.suffix:
        fix = "Give paths of images, arrays or PIL images. For texts use TextClassifier (--text)"
        return NoSuchFileError("no such image file", where=repr(name[:80]), fix=fix)
    windows = "It is a Windows path: give the path of the file relative to the folder of the table"
    return NoSuchFileError("no such file", where=name, fix=windows if "\\" in name else "Check the path")


def opened(content: bytes, where: str) -> Image:
    """Open the file of an image and check its size and headers, without decoding it.

    Raises:
        DataError: no bytes, not an image, or an image that is too expensive to decode.
    """
    from PIL import Image

    if not content:
        raise BadImageError("the image has no bytes", where=where, fix="Remove it or download it again")
    check_file(content, where)
    with decoding(where):
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        _check_size(image.size, where, MAX_WEBP if image.format == "WEBP" else MAX_PIXELS)
        check_slow(image, content, where)
        return image


@contextmanager
def decoding(where: str) -> Iterator[None]:
    """Turn any exception of a decoder into a ``DataError``, and suppress its warnings."""
    from PIL import Image, UnidentifiedImageError

    with without_warnings(r"PIL\."):  # about the size, which is checked here, and odd metadata
        try:
            yield
        except UnidentifiedImageError:
            *known, last = FORMATS[:7]
            fix = f"Save it as {', '.join(known)} or {last}"
            raise FileTypeError("is not an image that can be read", where=where, fix=fix) from None
        except Image.DecompressionBombError:
            raise _too_large("it has", where) from None
        except RangeError as error:
            raise BadImageError(error.what, where=where, fix=error.fix) from None
        except DataError:
            raise
        except Exception as error:  # decoders raise OSError, struct.error, SyntaxError ...
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            what = f"the image is damaged ({reason})"
            raise BadImageError(what, where=where, fix="Download it again or remove it") from None


def content_of(source: Any) -> bytes | None:
    """The bytes of an image's file, in memory or on disk; None for arrays and decoded images.

    Raises:
        DataError: the file cannot be read.
    """
    source = file_of(in_memory(source, "picture"))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source).expanduser())
    return bytes(source) if isinstance(source, bytes | bytearray | memoryview) else None


def _decoded(image: Image, reading: _Reading, content: bytes = b"") -> Image:
    """Decode an opened image to upright RGB."""
    from PIL import Image

    image.load()
    upright = to_eight_bits(_upright(image, reading.where), image, content, *reading.white)
    mode, transparent = upright.mode, "transparency" in upright.info
    if transparent or mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        rgba = upright if mode == "RGBA" and not transparent else upright.convert("RGBA")
        white = Image.new("RGB", rgba.size, WHITE)
        white.paste(rgba, mask=rgba.getchannel("A"))
        return white
    return upright if mode == "RGB" else upright.convert("RGB")


def _upright(image: Image, where: str) -> Image:
    """Apply the EXIF orientation."""
    from PIL import Image

    info = image.info
    if isinstance(block := info.get("exif") or _exif_in_text(info.get("Raw profile type exif")), bytes):
        check_tiff_tags(block, where)
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata; the pixels are usable
        return image
    if turn is None:
        return image
    turned = image.transpose(Image.Transpose(turn))
    for name in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):  # so it is not applied again
        turned.info.pop(name, None)
    return turned


def _exif_in_text(text: Any) -> bytes | None:
    """EXIF in a text chunk of a PNG, as some programs write it: three lines, then hexadecimal bytes."""
    try:
        return bytes.fromhex("".join(text.split("\n")[3:])) if isinstance(text, str) else None
    except ValueError:
        return None


def _from_array(source: Any, reading: _Reading) -> np.ndarray:
    """Convert an array ``[H, W, C]`` or a tensor ``[C, H, W]`` to uint8 ``[H, W, 3]``; it has 8 or 16 bits,
    or with ``image_range`` any numbers."""
    is_tensor, where = hasattr(source, "detach"), reading.where
    array = source.detach().cpu().numpy() if is_tensor else source
    if array.ndim == 2:
        array = array[None] if is_tensor else array[:, :, None]
    if array.ndim != 3:
        layout = "[C, H, W]" if is_tensor else "[H, W, C]"
        raise BadImageError(f"an array {array.shape} is not an image", where=where, fix=f"Give {layout}")
    if is_tensor:
        array = array.transpose(1, 2, 0)
    has_range = isinstance(reading.image_range, int | float) and array.dtype.kind in "iuf"
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
        with decoding(where):
            array = scale_to_uint8(array, resolve_white(array, *reading.white))
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
        raise _too_large(f"{width:,} x {height:,} pixels are", where, max_pixels)
    if max(size) > MAX_RATIO * min(size) and max(size) > 1024:
        what = f"{width} x {height} pixels is more a line than an image"
        raise BadImageError(what, where=where, fix="Crop it or remove it")


def _too_large(shown: str, where: str, max_pixels: int = MAX_PIXELS) -> DataError:
    what = f"{shown} more than the {max_pixels // 1_000_000} million pixels that are decoded"
    return TooLargeError(what, where=where, fix="Scale it down or remove it")


def _too_many_bytes(where: str) -> DataError:
    return TooLargeError(f"larger than {MAX_BYTES >> 20} MiB", where=where, fix="Scale it down")


# --- checking all images before training --------------------------------------------------------
# A file with a valid header and the last bytes of its format counts as complete; any other file is decoded.
# That takes less than a millisecond for small files, so all splits are checked before the first step.

ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}  # the last bytes of a complete file
SKIP = "leave such images out with --set broken=skip"
DIM = 64  # of 255; images whose brightest pixel is below this use less than a quarter of the range
SHOWN = 3  # maximum number of images that a message names


@dataclass(frozen=True)
class Header:
    """The header of an image's file."""

    kind: str  # JPEG, PNG ...; "array" for images in memory
    mode: str  # Pillow's mode: RGB, L, CMYK, RGBA, P ...
    size: tuple[int, int]  # width, height
    frames: int = 1  # 2 for animations of any length
    brightest: int | None = None  # brightest value of 0 to 255 after decoding; None: not decoded


def read_header(
    source: Any,
    where: str,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> Header:
    """Check whether an image is readable, and return its header.

    Args:
        decode: always decode the image; otherwise only if its file seems incomplete, or has more than 8 bits
            per channel.
        image_range, brightest: see ``open_image``.

    Raises:
        DataError: not an image, or truncated, damaged, or too large.
    """
    content = content_of(source)
    if content is None:
        image = open_image(source, where, image_range, brightest)
        return Header("array", image.mode, image.size, brightest=_brightest(image))
    image = opened(content, where)
    kind, seen = image.format or "", None
    frames = 2 if getattr(image, "is_animated", False) else 1  # counting all frames would decode them
    ending = ENDS.get(kind)
    complete = ending is not None and content[-64:].rstrip(b"\0\r\n").endswith(ending)
    if decode or not complete or image.mode[0] in "IF" or (kind == "PNG" and content[24:25] == b"\x10"):
        seen = _brightest(open_image(content, where, image_range, brightest))
    return Header(kind, image.mode, image.size, frames, seen)


def _brightest(image: Any) -> int:
    return max(high for _, high in image.getextrema())


def unreadable(
    images: Sequence[Any],
    origin: str,
    rows: Sequence[int] | None = None,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> dict[int, DataError]:
    """Position -> error, for every unreadable image; see ``read_header``."""
    errors = {}
    for i, source in enumerate(images):
        try:
            read_header(source, image_name(source, origin, i, rows), decode, image_range, brightest)
        except DataError as error:
            errors[i] = error
    return errors


def refuse_unreadable(splits: dict[str, Any], image_range: ImageRange = None) -> None:
    """Raise an error before training if an image of any split is unreadable.

    Args:
        splits: the training split first; its images determine the white level of images of more than 8 bits.
        image_range: the initial setting; see ``open_image``.

    Raises:
        DataError: images are unreadable; the message has the first, their number, and how to skip them.
    """
    errors_by_split, brightest = {}, Brightest()
    for name, split in splits.items():
        note = None if errors_by_split else brightest
        errors_by_split[name] = unreadable(split.images, split.origin, split.rows, False, image_range, note)
        image_range = brightest.settle(image_range) if len(errors_by_split) == 1 else image_range
    errors = [error for failed in errors_by_split.values() for error in failed.values()]
    if not errors:
        return
    first = errors[0]
    counts = ", ".join(f"{len(failed):,} of {name}" for name, failed in errors_by_split.items() if failed)
    what = f"{first.what}; images that cannot be read: {counts}" if len(errors) > 1 else first.what
    fix = join_fixes(first.fix or "Fetch it again or remove it", SKIP)
    raise first.but(what=what, fix=fix)


def without_unreadable(
    split: Any, name: str, decode: bool = True, image_range: ImageRange = "full"
) -> tuple[Any, list[str]]:
    """A split without its unreadable images, and a list with one message about these images, or empty."""
    errors = unreadable(split.images, split.origin, split.rows, decode, image_range)
    if not errors:
        return split, []
    shown = "; ".join(str(error) for error in list(errors.values())[:SHOWN])
    more = f" and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    kept = split.select([i for i in range(len(split)) if i not in errors])
    if not len(kept):
        raise BadImageError(
            f"there are no readable images for {name}", where=split.origin, fix="Download them again"
        )
    return kept, [f"{counted(len(errors), 'image')} of {name} left out: {shown}{more}"]


def drop_unreadable(splits: Any, image_range: ImageRange = "full") -> tuple[Any, list[str]]:
    """The splits of a run without unreadable images, and messages about these images.

    Images are removed after splitting, so that a resumed run has the same splits.

    Raises:
        DataError: a split has no readable image.
    """
    parts, messages = {}, []
    for field, name in (("train", "train"), ("validation", "validation"), ("judged", splits.judged_name)):
        split = getattr(splits, field)
        if field == "judged" and split is splits.validation:
            parts[field] = parts.get("validation")
        elif split is not None:
            parts[field], lines = without_unreadable(split, name, image_range=image_range)
            messages += lines
    return replace(splits, **parts), messages
