"""One image, from whatever it comes as, to upright 8-bit RGB; what cannot be read is refused by name.

An image is a path, the bytes of a file, an open file (``open(path, "rb")``, ``BytesIO``, an upload), a
``PIL.Image``, a uint8 array ``[H, W]`` or ``[H, W, C]``, a uint8 tensor ``[C, H, W]``, or a mapping with
``bytes`` or ``path`` (the way Parquet files of the ``datasets`` library hold it).
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
from glassformer.data.image_bounds import MAX_PIXELS, check_file, check_slow, check_tags
from glassformer.data.image_range import FEW, RangeError, eight_bits, few_bits, scaled, white_of
from glassformer.data.in_memory import read_rows, table_of
from glassformer.data.rejected import or_else
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
MAX_WEBP = 30_000_000  # pixels of a WebP, whose decoder holds four copies
MAX_BYTES = 256 * 2**20  # of one file
MAX_RATIO = 64  # of the long side to the short one: more is a line, and costs a lot to scale
SUFFIXES = ".jpg .jpeg .png .gif .bmp .webp .tif .tiff .ppm .pgm .jfif .jpe .apng .pbm .pnm .tga".split()
# Of images that are not decoded: they count as images that cannot be read, so that none is dropped silently.
NOT_READ = (
    ".heic .heif .hif .avif .jp2 .j2k .jpx .jxl .psd .svg .ico .dcm .dng .cr2 .cr3 .nef .arw .orf .raf .rw2"
).split()
# What Pillow decodes by itself; EPS and the like would start other programs. An ICO is decoded as soon as it
# is opened, before its size can be looked at.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA")
WHITE = (255, 255, 255)  # what shows through transparent pixels
ORIENTATION = 0x0112  # in EXIF: 2 to 8, and what Pillow calls the way back
TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


@dataclass(frozen=True)
class _Reading:
    """How the pixels of one image become bytes."""

    where: str
    image_range: ImageRange
    brightest: Brightest | None

    @property
    def white(self) -> tuple[ImageRange, Callable[[int], None] | None]:
        """What ``image_range.eight_bits`` and ``white_of`` ask about it."""
        note = None if self.brightest is None else partial(self.brightest.note, where=self.where)
        return self.image_range, note


class Brightest:
    """The brightest pixel of images of more than 8 bits in which white is not known; 0: there are none."""

    def __init__(self) -> None:
        self.pixel, self.images, self.where = 0, 0, ""

    def note(self, pixel: int, where: str) -> None:
        """Count an image."""
        self.images += 1
        if pixel > self.pixel:
            self.pixel, self.where = pixel, where

    def settle(self, image_range: ImageRange) -> ImageRange:
        """What a model trained on these images reads others with: ``full`` if they leave no doubt.

        Raises:
            DataError: they would be nearly black.
        """
        if image_range is not None or not self.pixel:
            return image_range
        if self.pixel <= FEW:
            what, fix = few_bits(self.pixel)
            raise BadImageError(f"{what} ({self.images:,} such images)", where=self.where, fix=fix)
        return "full"


def open_picture(
    source: Any,
    where: str = "picture",
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> Image:
    """Any image as an upright ``PIL.Image`` in mode RGB.

    EXIF orientation is applied, transparency shows white, of an animation the first frame is read, and CMYK,
    palettes and gray become RGB.

    Args:
        image_range: the value of white of images of more than 8 bits that do not state it: a number; "full":
            65,535; None: 65,535, and an error for an image that would be nearly black.
        brightest: takes note of an image in which white is not known, in the place of that error.

    Raises:
        DataError: not an image, cut or damaged, too large to decode safely, or of a kind that is not read.
    """
    from PIL import Image

    reading = _Reading(where, image_range, brightest)
    if isinstance(source, Image.Image):
        _check_size(source.size, where)
        with decoding(where):
            found = _decoded(source, reading)
        return found.copy() if found is source else found
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


def picture_files(folder: Path) -> list[Path]:
    """Every file below a folder whose name says that it is an image, in order of name.

    Images that cannot be read (HEIC, links that lead nowhere) are among them, and an error when they are
    used. Hidden files and those that other programs leave (``._x.png``, ``__MACOSX``) are not.

    Raises:
        DataError: a folder that may not be read.
    """
    return [path for path in files_below(folder) if is_image_name(path)]


def is_image_name(path: str | Path) -> bool:
    """Whether a file is named as images are, those that cannot be read among them."""
    return str(path).lower().endswith((*SUFFIXES, *NOT_READ))


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder and the folders that it links to, in order of name, without clutter.

    Raises:
        DataError: a folder that may not be read.
    """

    def refuse(error: OSError) -> None:
        what = f"the folder cannot be read: {error.strerror}"
        raise CannotReadError(what, where=str(error.filename), fix="Check who may read it")

    found, seen = [], set()
    for name, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        here = Path(name)
        seen.add(os.path.realpath(here))  # a link may lead back to where it is
        found += [path for path in map(here.joinpath, files) if not is_clutter(path)]
        inner = [sub for sub in folders if not is_clutter(here / sub)]
        folders[:] = [sub for sub in inner if os.path.realpath(here / sub) not in seen]
    return sorted(path for path in found if path.is_file() or path.is_symlink())


def check_pictures(
    pictures: Iterable[Any], origin: str = "images", rows: Sequence[int] | None = None
) -> list[Any]:
    """The images as a list, not yet decoded; a whole array or tensor of them is taken apart, open files are
    read.

    Raises:
        DataError: none at all, one path or image where a list is wanted, or a file that cannot be read.
    """
    from PIL import Image

    one = isinstance(pictures, str | bytes | os.PathLike | Image.Image) or hasattr(pictures, "read")
    if one or is_record(pictures):
        raise DataError("one image where a list is expected", where=origin, fix="Put it into a list")
    shape = None if table_of(pictures) is not None else getattr(pictures, "shape", None)
    if shape is not None and len(shape) in (2, 3) and str(getattr(pictures, "dtype", "")) != "object":
        array = isinstance(pictures, np.ndarray)
        if not (array and len(shape) == 3 and shape[2] not in (1, 3, 4)):
            what = f"{tuple(shape)} is one image where a list is expected"
            raise BadImageError(what, where=origin, fix=f"Give {'[n, H, W, C]' if array else '[n, C, H, W]'}")
    given = read_rows(pictures, origin, "images", whole=is_record)
    found = [in_memory(picture, place(origin, i, rows)) for i, picture in enumerate(given)]
    if not found:
        raise MissingValueError("no images", where=origin, fix="Give at least one")
    return found


def in_memory(source: Any, where: str) -> Any:
    """What an open file holds, as a mapping of its bytes and its name; anything else as it is.

    The whole file is read, wherever it stands; it stays open and goes back to where it was.

    Raises:
        DataError: closed, opened as text, empty, too large, or it cannot be read.
    """
    if not hasattr(source, "read"):
        return source
    stream = source.file if inspect.iscoroutinefunction(source.read) else source  # FastAPI's UploadFile
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    name = os.fspath(name) if isinstance(name, str | os.PathLike) else None
    where = name or where
    try:
        before = stream.tell()
        stream.seek(0)
    except (OSError, AttributeError, NotImplementedError):  # a pipe, which is read from where it stands
        before = None
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
        if before is not None:
            stream.seek(before)
    if not isinstance(content, bytes):
        raise BadImageError("the file is open as text", where=where, fix="Open it with mode 'rb'")
    if not content:
        raise BadImageError("the image has no bytes", where=where, fix="Remove it or download it again")
    if len(content) > MAX_BYTES:
        raise _too_many_bytes(where)
    return {"bytes": content, "path": name}


def _read_all(stream: Any) -> Any:
    """Up to one byte more than an image may have; what is not buffered gives less at a time."""
    parts, left = [], MAX_BYTES + 1
    while left > 0 and (part := stream.read(left)):
        if isinstance(part, str):
            return part
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def file_of(source: Any) -> Any:
    """The bytes or the path of a mapping; anything else as it is."""
    if not isinstance(source, Mapping):
        return source
    content = source.get("bytes")
    return source.get("path") if content is None else content


def is_record(row: Any) -> bool:
    """Whether a dict is one image, as ``datasets`` writes them: its content, its path, or both."""
    return isinstance(row, Mapping) and bool(row) and row.keys() <= {"bytes", "path"}


def picture_name(source: Any, origin: str, index: int, rows: Sequence[int] | None = None) -> str:
    """What to call an image in messages and tables: its file, or its place."""
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
        raise _absent(path) from None
    except OSError as error:
        fix = "Name a file" if path.is_dir() else "Check the path and who may read it"
        raise CannotReadError(error.strerror or "cannot be read", where=str(path), fix=fix) from None


def _absent(path: Path) -> DataError:
    """Why there is no file of that name."""
    name = str(path)
    if path.is_symlink():
        fix = f"Put the image at {os.readlink(path)}, or remove the link"
        return NoSuchFileError("a link that leads nowhere", where=name, fix=fix)
    if re.match(r"[a-z]{2,}:/", name):
        return CannotReadError(
            "a URL, which is not opened", where=name, fix="Download the image and name its file"
        )
    if " " in name and not path.suffix:
        fix = "Give paths of images, arrays or PIL images. For texts use TextClassifier (--text)"
        return NoSuchFileError("no such image file", where=repr(name[:80]), fix=fix)
    windows = "It is a path of Windows: name the file by its path from the folder of the table"
    return NoSuchFileError("no such file", where=name, fix=windows if "\\" in name else "Check the path")


def opened(content: bytes, where: str) -> Image:
    """An image's file, its header read and its size within bounds; nothing is decoded.

    Raises:
        DataError: no bytes, no image, or one that asks for too much work.
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
    """Whatever a decoder raises becomes a ``DataError``; its warnings are not said."""
    from PIL import Image, UnidentifiedImageError

    with without_warnings(r"PIL\."):  # on size, which is checked here, and on odd metadata
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
        except Exception as error:  # every decoder has its own: OSError, struct.error, SyntaxError ...
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            what = f"the image is damaged ({reason})"
            raise BadImageError(what, where=where, fix="Download it again or remove it") from None


def content_of(source: Any) -> bytes | None:
    """The bytes of an image that lies in a file, in memory or on disk; None: it is none of a file's.

    Raises:
        DataError: the file cannot be read.
    """
    source = file_of(in_memory(source, "picture"))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source).expanduser())
    return bytes(source) if isinstance(source, bytes | bytearray | memoryview) else None


def _decoded(image: Image, reading: _Reading, content: bytes = b"") -> Image:
    """Pixels read, upright, RGB."""
    from PIL import Image

    image.load()
    upright = eight_bits(_upright(image, reading.where), image, content, *reading.white)
    mode, clear = upright.mode, "transparency" in upright.info
    if clear or mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        seen = upright if mode == "RGBA" and not clear else upright.convert("RGBA")
        white = Image.new("RGB", seen.size, WHITE)
        white.paste(seen, mask=seen.getchannel("A"))
        return white
    return upright if mode == "RGB" else upright.convert("RGB")


def _upright(image: Image, where: str) -> Image:
    """Turned as its camera says."""
    from PIL import Image

    info = image.info
    if isinstance(block := info.get("exif") or _exif_in_text(info.get("Raw profile type exif")), bytes):
        check_tags(block, where)
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata: the pixels are still good
        return image
    if turn is None:
        return image
    turned = image.transpose(Image.Transpose(turn))
    for name in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):  # else it is turned again
        turned.info.pop(name, None)
    return turned


def _exif_in_text(text: Any) -> bytes | None:
    """EXIF as some programs write it into a PNG: three lines, then the bytes in hexadecimal."""
    try:
        return bytes.fromhex("".join(text.split("\n")[3:])) if isinstance(text, str) else None
    except ValueError:
        return None


def _from_array(source: Any, reading: _Reading) -> np.ndarray:
    """A uint8 array ``[H, W, C]`` or tensor ``[C, H, W]`` as ``[H, W, 3]``; also one of 16 bits, and with
    ``image_range`` one of any numbers."""
    is_tensor, where = hasattr(source, "detach"), reading.where
    array = source.detach().cpu().numpy() if is_tensor else source
    if array.ndim == 2:
        array = array[None] if is_tensor else array[:, :, None]
    if array.ndim != 3:
        wanted = "[C, H, W]" if is_tensor else "[H, W, C]"
        raise BadImageError(f"an array {array.shape} is not an image", where=where, fix=f"Give {wanted}")
    if is_tensor:
        array = array.transpose(1, 2, 0)
    given = isinstance(reading.image_range, int | float) and array.dtype.kind in "iuf"
    if array.dtype != np.uint8 and not given and array.dtype != np.uint16:
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
            array = scaled(array, white_of(array, *reading.white))
    if channels == 1:
        return np.repeat(array, 3, axis=2)
    if channels == 4:
        alpha = array[:, :, 3:].astype(np.float32) / 255
        return np.rint(array[:, :, :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return np.ascontiguousarray(array)


def _check_size(size: tuple[int, int], where: str, most: int = MAX_PIXELS) -> None:
    width, height = size
    if min(size) < 1:
        raise BadImageError("the image has no pixels", where=where, fix="Remove it")
    if width * height > most:
        raise _too_large(f"{width:,} x {height:,} pixels are", where, most)
    if max(size) > MAX_RATIO * min(size) and max(size) > 1024:
        what = f"{width} x {height} pixels is more a line than an image"
        raise BadImageError(what, where=where, fix="Cut it or remove it")


def _too_large(shown: str, where: str, most: int = MAX_PIXELS) -> DataError:
    what = f"{shown} more than the {most // 1_000_000} million pixels that are decoded"
    return TooLargeError(what, where=where, fix="Scale it down or remove it")


def _too_many_bytes(where: str) -> DataError:
    return TooLargeError(f"larger than {MAX_BYTES >> 20} MiB", where=where, fix="Scale it down")


# --- images looked at before a training ---------------------------------------------------------
# A file whose header is good and whose last bytes are those of its format is taken for whole; any other is
# decoded. Thousands of small files a second go through, so that every split is looked at before the first
# step.

ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}  # the last bytes of a whole file
SKIP = "leave such images out with --set broken=skip"
DIM = 64  # of 255: images whose brightest pixel is below it use less than a quarter of the range
SHOWN = 3  # images that a message names


@dataclass(frozen=True)
class Header:
    """What an image's file says before it is decoded."""

    kind: str  # JPEG, PNG ...; "array" of what lies in memory
    mode: str  # Pillow's: RGB, L, CMYK, RGBA, P ...
    size: tuple[int, int]  # width, height
    frames: int = 1  # of an animation 2, however many it has
    brightest: int | None = None  # of 255, as a model reads it; None: it was not decoded


def look_at(
    source: Any,
    where: str,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> Header:
    """The header of an image that can be read.

    Args:
        decode: decode it in any case; else only where its end is not that of a whole file, or where it has
            more than 8 bits per channel.
        image_range, brightest: as in ``open_picture``.

    Raises:
        DataError: it is no image, cut, damaged, or too large.
    """
    content = content_of(source)
    if content is None:
        image = open_picture(source, where, image_range, brightest)
        return Header("array", image.mode, image.size, brightest=_brightest(image))
    image = opened(content, where)
    kind, seen = image.format or "", None
    frames = 2 if getattr(image, "is_animated", False) else 1  # counting them all would decode them
    ending = ENDS.get(kind)
    whole = ending is not None and content[-64:].rstrip(b"\0\r\n").endswith(ending)
    if decode or not whole or image.mode[0] in "IF" or (kind == "PNG" and content[24:25] == b"\x10"):
        seen = _brightest(open_picture(content, where, image_range, brightest))
    return Header(kind, image.mode, image.size, frames, seen)


def _brightest(image: Any) -> int:
    return max(high for _, high in image.getextrema())


def unreadable(
    pictures: Sequence[Any],
    origin: str,
    rows: Sequence[int] | None = None,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> dict[int, DataError]:
    """Place -> why it cannot be read, for every image that cannot; see ``look_at``."""
    found = {}
    for i, source in enumerate(pictures):
        try:
            look_at(source, picture_name(source, origin, i, rows), decode, image_range, brightest)
        except DataError as error:
            found[i] = error
    return found


def refuse_unreadable(splits: dict[str, Any], image_range: ImageRange = None) -> None:
    """Look at every image of every split, before anything is trained.

    Args:
        splits: that of training first, whose images settle what white is in those of more than 8 bits.
        image_range: what the training begins with; see ``open_picture``.

    Raises:
        DataError: some cannot be read: the first of them, how many more, and how to leave them out.
    """
    bad, learned = {}, Brightest()
    for name, split in splits.items():
        note = None if bad else learned
        bad[name] = unreadable(split.images, split.origin, split.rows, False, image_range, note)
        image_range = learned.settle(image_range) if len(bad) == 1 else image_range
    errors = [error for found in bad.values() for error in found.values()]
    if not errors:
        return
    first = errors[0]
    counts = ", ".join(f"{len(found):,} of {name}" for name, found in bad.items() if found)
    what = f"{first.what}; images that cannot be read: {counts}" if len(errors) > 1 else first.what
    fix = or_else(first.fix or "Fetch it again or remove it", SKIP)
    raise first.but(what=what, fix=fix)


def without_unreadable(
    split: Any, name: str, decode: bool = True, image_range: ImageRange = "full"
) -> tuple[Any, list[str]]:
    """A split without the images that cannot be read, and a sentence on them where there are some.

    Raises:
        DataError: none is left.
    """
    found = unreadable(split.images, split.origin, split.rows, decode, image_range)
    if not found:
        return split, []
    shown = "; ".join(str(error) for error in list(found.values())[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    kept = split.select([i for i in range(len(split)) if i not in found])
    if not len(kept):
        raise BadImageError(f"no readable images for {name}", where=split.origin, fix="Download them again")
    return kept, [f"{counted(len(found), 'image')} of {name} left out: {shown}{more}"]


def leave_out(splits: Any, image_range: ImageRange = "full") -> tuple[Any, list[str]]:
    """A run's splits without the images that cannot be read, and what was left out of each.

    What is left keeps its split: a run that goes on trains on what it was trained on.

    Raises:
        DataError: a split of which none is left.
    """
    parts, said = {}, []
    for field, name in (("train", "train"), ("validation", "validation"), ("judged", splits.judged_name)):
        split = getattr(splits, field)
        if field == "judged" and split is splits.validation:
            parts[field] = parts.get("validation")
        elif split is not None:
            parts[field], lines = without_unreadable(split, name, image_range=image_range)
            said += lines
    return replace(splits, **parts), said
