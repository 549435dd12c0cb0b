"""Checks of images: unreadable ones, repeats, leaks, balance, sizes, and what a transform does to them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.data.copies import Thumbs, digest, near_repeats
from glassformer.data.doctor_checks import no_labels, odd_labels, run_checks, several_labels, twin_classes
from glassformer.data.findings import DoctorReport, Finding, found
from glassformer.data.image import DIM, SKIP, Brightest, Header, look_at
from glassformer.data.image_range import FEW, FULL, likely_white
from glassformer.data.image_sources import ImageSplit, absent_classes
from glassformer.data.label_sets import are_sets, each
from glassformer.data.rejected import RejectedRow
from glassformer.errors import DataError

UNBALANCED = 3.0  # the largest class is this many times the smallest: said
DOMINANT = 0.9  # of the images in one class: a warning
UNUSUAL = ("CMYK", "P", "PA", "LA", "La", "RGBA", "RGBa", "I;16", "I", "F", "1", "L", "YCbCr", "LAB", "HSV")
TURNED = {
    "CMYK": "turned into RGB",
    "RGBA": "transparency shows white",
    "LA": "transparency shows white",
    "P": "palette turned into RGB",
    "L": "gray, as three equal channels",
}
CUT = 0.25  # of an image's pixels: with more cut away, it is said
STRETCHED = 1.5  # times wider or higher than it was: said
UPSCALED = 2.0  # times larger than it was: said


def examine_pictures(
    name: str,
    splits: Mapping[str, ImageSplit],
    notes: Sequence[str] = (),
    rejected: Sequence[RejectedRow] = (),
    *,
    transform: Any = None,
    decode: bool = False,
) -> DoctorReport:
    """Every check on images; equal images are those of equal bytes.

    Args:
        rejected: rows of a table that were left out.
        transform: how a model reads them (``ImageTransform``): what it cuts away is said.
        decode: decode each of them, which finds all that cannot be read, and those that nearly repeat
            another; else headers and ends are looked at.

    ``figures`` of the report has ``splits``: split -> images, distinct, unreadable, classes, modes,
    formats, width and height (least, median, most).
    """
    said = dict.fromkeys([*notes, *absent_classes(splits)])
    seen: dict[str, dict[str, list[int]]] = {}

    def within(splits: Mapping[str, ImageSplit], figures: dict[str, Any]) -> Iterable[Finding]:
        yield from (Finding("note", "source", note) for note in said)
        figures["splits"] = {}
        for split, pictures in splits.items():
            seen[split] = _places(pictures)
            yield from _of_a_split(split, pictures, seen[split], transform, decode, figures["splits"])

    def between(splits: Mapping[str, ImageSplit], figures: dict[str, Any]) -> Iterable[Finding]:
        white = (transform and transform.image_range) or "full"
        firsts = {split: [index[0] for index in places.values()] for split, places in seen.items()}
        thumbs = {k: Thumbs.of(v.images, firsts[k], white) for k, v in splits.items()} if decode else {}
        leaks = [*_leaks(splits, seen), *_near(splits, thumbs)]
        yield from leaks
        if not any(finding.code in ("leak", "near-leak") for finding in leaks):
            yield Finding("ok", "leak", "no image is in two splits")

    checks = [within, several_labels, odd_labels, twin_classes, no_labels, between]
    return run_checks(name, splits, checks, rejected)


def _places(pictures: ImageSplit) -> dict[str, list[int]]:
    """Where each image stands; what is missing is no copy of what is missing."""
    places: dict[str, list[int]] = {}
    for i, picture in enumerate(pictures.images):
        if key := digest(picture):
            places.setdefault(key, []).append(i)
    return places


def _of_a_split(
    name: str,
    pictures: ImageSplit,
    places: Mapping[str, list[int]],
    transform: Any,
    decode: bool,
    figures: Any,
) -> Iterable[Finding]:
    brightest, white = Brightest(), transform and transform.image_range
    headers: dict[int, Header] = {}  # what each image's file says, and why those that cannot be read cannot
    refused: dict[int, DataError] = {}
    for i, (picture, file) in enumerate(zip(pictures.images, pictures.names(), strict=True)):
        try:
            headers[i] = look_at(picture, file, decode, white, brightest)
        except DataError as error:
            refused[i] = error
    counts = Counter(map(str, each(pictures.labels)))
    figures[name] = {"pictures": len(pictures), "distinct": len(places), "unreadable": len(refused)}
    figures[name] |= _figures(headers) | counts
    yield from _unreadable(name, pictures, refused)
    yield from _repeats(name, pictures, places)
    yield from () if are_sets(pictures.labels) else _balance(name, counts)
    yield from _shapes(name, pictures, headers, transform)
    yield from _range(name, headers, brightest)


def _figures(headers: Mapping[int, Header]) -> dict[str, Any]:
    if not headers:
        return {}
    sizes = np.array([header.size for header in headers.values()])
    spread = [[int(x) for x in (side.min(), np.median(side), side.max())] for side in sizes.T]
    return {
        "modes": dict(Counter(header.mode for header in headers.values()).most_common()),
        "formats": dict(Counter(header.kind for header in headers.values()).most_common()),
        "width": spread[0],
        "height": spread[1],
    }


def _unreadable(split: str, pictures: ImageSplit, refused: Mapping[int, DataError]) -> Iterable[Finding]:
    if not refused:
        return
    kinds = Counter(error.what for error in refused.values())
    listed = "; ".join(f"{n:,}: {what}" for what, n in kinds.most_common(5))
    more = f"; {len(kinds) - 5} more kinds" if len(kinds) > 5 else ""
    message = f"{len(refused):,} of {len(pictures):,} images of {split} cannot be read ({listed}{more})"
    examples = tuple(f"{error.where}: {error.what}" for error in list(refused.values())[:10])
    usual = next(error.fix for error in refused.values() if error.what == kinds.most_common(1)[0][0])
    fix = f"{usual[:1].lower()}{usual[1:]}, or {SKIP}" if usual else f"remove them, or {SKIP}"
    yield Finding("warning", "unreadable", message, len(refused), examples, fix)


def _repeats(split: str, pictures: ImageSplit, places: Mapping[str, list[int]]) -> Iterable[Finding]:
    repeated = [index for index in places.values() if len(index) > 1]
    labels, names = pictures.labels, pictures.names() if repeated else []
    torn = [index for index in repeated if labels and len({labels[i] for i in index}) > 1]
    examples = [_both(names, labels, index) for index in torn[:3]]
    message = f"images of {split} with several labels: {len(torn):,}"
    fix = "keep each in the folder of one class"
    yield from found("warning", "contradictions", torn, message, fix, shown=examples)
    examples = [_both(names, labels, index) for index in repeated[:3]]
    message = f"repeated images of {split}: {sum(len(index) - 1 for index in repeated):,}"
    fix, ok = "leave repeats out with --set drop_duplicates=true", f"{split}: no image occurs twice"
    yield from found("note", "repeats", repeated, message, fix, shown=examples, ok=ok)


def _both(names: Sequence[str], labels: Sequence[Any] | None, index: Sequence[int]) -> str:
    """The first two of some equal images, with their labels."""
    return " = ".join(f"{names[i]} ({labels[i]})" if labels else names[i] for i in index[:2])


def _balance(split: str, counts: Counter[str]) -> Iterable[Finding]:
    if len(counts) == 1:
        (only,) = counts
        yield Finding("warning", "balance", f"{split}: one class only ({only})", counts[only])
    if not counts or max(counts.values()) <= UNBALANCED * min(counts.values()):
        return
    (most, n), (least, m) = counts.most_common()[0], counts.most_common()[-1]
    message = f"{split} is unbalanced: {n:,} of {most}, {m:,} of {least}; class_weight = balanced may help"
    severe = n > DOMINANT * counts.total()
    message += f"; always answering {most} scores {n / counts.total():.1%}" if severe else ""
    yield Finding("warning" if severe else "note", "balance", message, n - m)


def _leaks(splits: Mapping[str, ImageSplit], seen: Mapping[str, dict[str, list[int]]]) -> Iterable[Finding]:
    for first, second in itertools.combinations(splits, 2):
        both = sorted(seen[first].keys() & seen[second].keys())
        names = splits[second].names() if both else []
        shown = [names[seen[second][key][0]] for key in both[:3]]
        message = f"images in both {first} and {second}: {len(both):,}; the score would be too good"
        fix = f"leave them out of {first} with --set drop_duplicates=true"
        yield from found("warning", "leak", both, message, fix, shown=shown)


# --- what the images look like --------------------------------------------------------------


def _shapes(
    split: str, pictures: ImageSplit, headers: Mapping[int, Header], transform: Any
) -> Iterable[Finding]:
    """Sizes, modes, animations, and what becomes of them on the way to the model."""
    if not headers:
        return
    names, sizes = pictures.names(), np.array([header.size for header in headers.values()])
    low, high = sizes.min(0), sizes.max(0)
    if (low != high).any():
        usual = np.median(sizes, 0).astype(int)
        message = f"{split}: images of {low[0]:,} x {low[1]:,} to {high[0]:,} x {high[1]:,} pixels, "
        message += f"usually about {usual[0]:,} x {usual[1]:,}"
        yield Finding("ok", "sizes", message, len(np.unique(sizes, axis=0)))
    modes = Counter(header.mode for header in headers.values() if header.kind != "array")
    if odd := {mode: n for mode, n in modes.items() if mode in UNUSUAL}:
        told = [f"{n:,} {m}" + (f" ({TURNED[m]})" if m in TURNED else "") for m, n in sorted(odd.items())]
        one = [names[i] for i, header in headers.items() if header.mode in odd]
        message = f"{split}: not all are RGB: {', '.join(told)}"
        yield Finding("note", "modes", message, sum(odd.values()), tuple(one[:3]))
    moving = [names[i] for i, header in headers.items() if header.frames > 1]
    message = f"{split}: {len(moving):,} have several frames or pages; the first is read"
    yield from found("note", "animations", moving, message)
    if transform is not None:
        yield from _through(split, sizes, transform)


def _range(split: str, headers: Mapping[int, Header], brightest: Brightest) -> Iterable[Finding]:
    """A brightest pixel far below white: white is not known, or all images are dark."""
    n, shown = brightest.images, (brightest.where,) if brightest.where else ()
    wide = f"{split}: the brightest pixel of {n:,} images of 16 or 32 bits is {brightest.pixel:,} of {FULL:,}"
    fix = f"say what white is, with --set image_range={likely_white(brightest.pixel)}"
    if 0 < brightest.pixel <= FEW:
        yield Finding("warning", "range", f"{wide}: training refuses what would be black", n, shown, fix)
        return
    seen = [header.brightest for header in headers.values() if header.brightest is not None]
    if len(seen) < len(headers) or not seen or max(seen) >= DIM:
        return
    if brightest.pixel and brightest.images == len(headers):
        yield Finding("warning", "range", f"{wide}: a model sees little but black", n, shown, fix)
    else:
        message = f"{split}: the brightest pixel is {max(seen)} of 255: a model sees little but black"
        fix = "save the images with white at 255"
        yield Finding("warning", "range", message, len(seen), fix=fix)


def _through(split: str, sizes: np.ndarray, transform: Any) -> Iterable[Finding]:
    """What a transform cuts away, stretches or blows up."""
    height, width = transform.size
    ratio = np.maximum(sizes[:, 0] / sizes[:, 1] * height / width, sizes[:, 1] / sizes[:, 0] * width / height)
    if transform.fit == "crop":
        inside = (max(height, width) / (transform.shorter or max(height, width))) ** 2
        lost = 1 - inside / ratio
        n = int((lost > CUT).sum())
        message = f"{split}: the cut to {width} x {height} pixels takes away {np.median(lost):.0%} of an "
        message += f"image as a rule, {lost.max():.0%} at most; "
        message += f"more than {CUT:.0%} of {n:,} of {len(sizes):,}"
        if n:
            fix = "--set framing=squash keeps all of an image, and changes its shape"
            yield Finding("note", "cut-away", message, n, fix=fix)
    elif (n := int((ratio > STRETCHED).sum())) > 0:
        message = f"{split}: {n:,} of {len(sizes):,} are stretched more than {STRETCHED:g} times to be "
        message += f"{width} x {height} pixels, {ratio.max():.1f} times at most"
        yield Finding("note", "stretched", message, n, fix="--set framing=crop cuts out the middle instead")
    scale = np.minimum(width / sizes[:, 0], height / sizes[:, 1])
    if (n := int((scale > UPSCALED).sum())) > 0:
        size = f"{width} x {height} pixels"
        message = f"{split}: {n:,} of {len(sizes):,} are smaller than {size} by half or more"
        fix = "a smaller --set image_size=PIXELS costs less and loses nothing"
        yield Finding("note", "blown-up", message, n, fix=fix)


def _near(splits: Mapping[str, ImageSplit], thumbs: Mapping[str, Thumbs]) -> Iterable[Finding]:
    """Images that look alike and differ in their bytes: saved anew, scaled, a little brighter."""
    if not thumbs:
        return
    names = {name: split.names() for name, split in splits.items()}
    for (first, second), pairs in near_repeats(thumbs).items():
        shown = [f"{names[first][i]} ~ {names[second][j]}" for i, j in pairs[:3]]
        if first != second:
            message = f"images of {first} that look nearly the same as one of {second}: {len(pairs):,}"
            fix = f"remove them from {first}: the score would be too good"
            yield Finding("warning", "near-leak", message, len(pairs), tuple(shown), fix)
            continue
        message = f"pairs of images of {first} that look nearly the same: {len(pairs):,}"
        yield Finding("note", "near-repeats", message, len(pairs), tuple(shown))
        labels, own = splits[first].labels or [], names[first]
        torn = [(i, j) for i, j in pairs if labels and labels[i] != labels[j]]
        shown = [f"{own[i]} ({labels[i]}) ~ {own[j]} ({labels[j]})" for i, j in torn[:3]]
        message = (
            f"pairs of images of {first} that look nearly the same and have different labels: {len(torn):,}"
        )
        fix = "keep the right label of each"
        yield from found("warning", "near-contradictions", torn, message, fix, shown=shown)
