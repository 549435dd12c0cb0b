"""Pictures looked at before a training: which cannot be read, told from headers and ends where these suffice.

A file whose header is good and whose last bytes are those of its format is taken for whole; any other is
decoded. Thousands of small files a second go through, so that every split is looked at before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassformer.data.image import Brightest, ImageRange, content_of, open_picture, opened, picture_name
from glassformer.errors import DataError

ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}  # the last bytes of a whole file
SKIP = "leave such pictures out with --set broken=skip"
DIM = 64  # of 255: images whose brightest pixel is below it use less than a quarter of the range
SHOWN = 3  # pictures that a message names


@dataclass(frozen=True)
class Header:
    """What a picture's file says before it is decoded."""

    kind: str  # JPEG, PNG ...; "array" of what lies in memory
    mode: str  # Pillow's: RGB, L, CMYK, RGBA, P ...
    size: tuple[int, int]  # width, height
    frames: int = 1
    brightest: int | None = None  # of 255, as a model reads it; None: it was not decoded


def look_at(
    source: Any,
    where: str,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> Header:
    """The header of a picture that can be read.

    Args:
        decode: decode it in any case; else only where its end is not that of a whole file, or where it has
            more than 8 bits per channel.
        image_range, brightest: as in ``open_picture``.

    Raises:
        DataError: it is no picture, cut, damaged, or too large.
    """
    content = content_of(source)
    if content is None:
        image = open_picture(source, where, image_range, brightest)
        return Header("array", image.mode, image.size, brightest=_brightest(image))
    image = opened(content, where)
    kind = image.format or ""
    frames, seen = _frames(image), None
    ending = ENDS.get(kind)
    whole = ending is not None and content[-64:].rstrip(b"\0\r\n").endswith(ending)
    if decode or not whole or image.mode[0] in "IF" or (kind == "PNG" and content[24:25] == b"\x10"):
        seen = _brightest(open_picture(content, where, image_range, brightest))
    return Header(kind, image.mode, image.size, frames, seen)


def _brightest(image: Any) -> int:
    return max(high for _, high in image.getextrema())


def _frames(image: Any) -> int:
    """Of an animation, at least 2: counting them all would decode them."""
    return 2 if getattr(image, "is_animated", False) else 1


def unreadable(
    pictures: Sequence[Any],
    origin: str,
    rows: Sequence[int] | None = None,
    decode: bool = False,
    image_range: ImageRange = "full",
    brightest: Brightest | None = None,
) -> dict[int, DataError]:
    """Place -> why it cannot be read, for every picture that cannot; see ``look_at``."""
    found = {}
    for i, source in enumerate(pictures):
        try:
            look_at(source, picture_name(source, origin, i, rows), decode, image_range, brightest)
        except DataError as error:
            found[i] = error
    return found


def refuse_unreadable(splits: dict[str, Any], image_range: ImageRange = None) -> None:
    """Look at every picture of every split, before anything is trained.

    Args:
        splits: that of training first, whose pictures settle what white is in those of more than 8 bits.
        image_range: what the training begins with; see ``open_picture``.

    Raises:
        DataError: some cannot be read: the first of them, how many more, and how to leave them out.
    """
    bad, learned = {}, Brightest()
    for i, (name, split) in enumerate(splits.items()):
        bad[name] = unreadable(
            split.images, split.origin, split.rows, False, image_range, learned if i == 0 else None
        )
        image_range = learned.settle(image_range) if i == 0 else image_range
    errors = [error for found in bad.values() for error in found.values()]
    if not errors:
        return
    first = errors[0]
    counts = ", ".join(f"{len(found):,} of {name}" for name, found in bad.items() if found)
    what = f"{first.what}; pictures that cannot be read: {counts}" if len(errors) > 1 else first.what
    fix = f"{first.fix or 'Fetch it again or remove it'}, or {SKIP}"
    raise DataError(what, where=first.where, fix=fix)


def without_unreadable(
    split: Any, name: str, decode: bool = True, image_range: ImageRange = "full"
) -> tuple[Any, list[str]]:
    """A split without the pictures that cannot be read, and a sentence on them where there are some.

    Args:
        image_range: as in ``open_picture``.

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
        raise DataError(f"no readable pictures for {name}", where=split.origin, fix="Fetch them again")
    return kept, [f"{len(found)} pictures of {name} left out: {shown}{more}"]


def leave_out(splits: Any, image_range: ImageRange = "full") -> tuple[Any, list[str]]:
    """A run's splits without the pictures that cannot be read, and what was left out of each.

    What is left keeps its split: a run that goes on trains on what it was trained on.

    Args:
        image_range: as in ``open_picture``.

    Raises:
        DataError: a split of which none is left.
    """
    parts, said = {}, []
    for field, name in (("train", "train"), ("validation", "validation"), ("judged", splits.judged_name)):
        split = getattr(splits, field)
        if split is None:
            continue
        if field == "judged" and split is splits.validation:
            parts[field] = parts["validation"]
            continue
        parts[field], lines = without_unreadable(split, name, image_range=image_range)
        said += lines
    return replace(splits, **parts), said
