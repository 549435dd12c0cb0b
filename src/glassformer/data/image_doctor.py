"""Data doctor for images."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import label_problems, missing_names, multilabel, run_checks, twin_classes
from glassformer.data.duplicates import Thumbnails, image_digest, near_duplicates, positions_by_key
from glassformer.data.findings import DoctorReport, Finding, Findings, Stats
from glassformer.data.image import DARK_LEVEL, SKIP_HINT, BrightestPixel, ImageHeader, read_headers
from glassformer.data.image_range import MAX_UNCLEAR, WHITE_16, likely_white
from glassformer.data.image_sources import ImageSplit, missing_classes
from glassformer.data.label_sets import are_sets, flat_labels
from glassformer.errors import DataError

MAX_CLASS_RATIO = 3.0  # a note if the largest class has more than this many times the images of the smallest
MAX_CLASS_SHARE = 0.9  # a warning if one class has more than this share of the images
UNUSUAL_MODES = "CMYK P PA LA La RGBA RGBa I;16 I F 1 L YCbCr LAB HSV".split()  # Pillow's modes except RGB
CONVERSIONS = {  # mode -> how it is converted to RGB
    "CMYK": "converted to RGB",
    "RGBA": "transparency shows white",
    "LA": "transparency shows white",
    "P": "palette converted to RGB",
    "L": "gray, repeated in three channels",
}
MAX_CROP = 0.25  # a note if more than this share of an image's pixels is cropped
MAX_STRETCH = 1.5  # a note if the aspect ratio changes by more than this factor
MAX_UPSCALE = 2.0  # a note if an image is enlarged by more than this factor


def examine_images(dataset: Dataset, *, transform: Any = None, decode: bool = False) -> DoctorReport:
    """Run every check on labeled images; two images are equal if their bytes are equal.

    Args:
        transform: the ``ImageTransform`` of a model; the report then states how much it crops.
        decode: whether to decode every image, to find all unreadable images and near duplicates; otherwise
            only the beginning and the end of each file are checked.

    ``figures`` of the report has ``splits``: split -> the numbers of all, distinct and unreadable images and
    of the images of each class; modes, formats, width and height (both: minimum, median, maximum).
    """
    messages = dict.fromkeys([*dataset.notes, *missing_classes(dataset.splits)])
    positions: dict[str, dict[str, list[int]]] = {}  # split -> digest -> positions of the images

    def check_splits(splits: Mapping[str, ImageSplit], stats: Stats) -> Findings:
        yield from (Finding("note", "source", note) for note in messages)
        stats["splits"] = {}
        for name, split in splits.items():
            positions[name] = positions_by_key(list(map(image_digest, split.images)))
            positions[name].pop("", None)  # missing images are not duplicates of each other
            brightest, image_range = BrightestPixel(), transform and transform.image_range
            headers, errors = read_headers(
                split.images, split.origin, split.rows, decode, image_range, brightest
            )
            counts, distinct = Counter(map(str, flat_labels(split.labels))), len(positions[name])
            stats["splits"][name] = {"pictures": len(split), "distinct": distinct, "unreadable": len(errors)}
            stats["splits"][name] |= _header_stats(headers) | counts
            yield from _unreadable(name, split, errors)
            yield from _duplicates(name, split, positions[name])
            if not are_sets(split.labels):
                yield from _balance(name, counts)
            yield from _shapes(name, split, headers, transform)
            yield from _range(name, headers, brightest)

    def compare_splits(splits: Mapping[str, ImageSplit], stats: Stats) -> Findings:
        image_range = (transform and transform.image_range) or "full"
        thumbnails = {}
        for name, split in splits.items() if decode else ():
            firsts = [index[0] for index in positions[name].values()]
            thumbnails[name] = Thumbnails.of(split.images, firsts, image_range)
        leaks = [*_leakage(splits, positions), *_near_duplicates(splits, thumbnails)]
        yield from leaks
        if not any(finding.code in ("leak", "near-leak") for finding in leaks):
            yield Finding("ok", "leak", "no image is in two splits")

    checks = [check_splits, multilabel, label_problems, twin_classes, missing_names, compare_splits]
    return run_checks(dataset, checks, {})


def _header_stats(headers: Mapping[int, ImageHeader]) -> dict[str, Any]:
    if not headers:
        return {}
    sizes = np.array([header.size for header in headers.values()])
    width, height = ([int(x) for x in (side.min(), np.median(side), side.max())] for side in sizes.T)
    modes = dict(Counter(header.mode for header in headers.values()).most_common())
    formats = dict(Counter(header.kind for header in headers.values()).most_common())
    return {"modes": modes, "formats": formats, "width": width, "height": height}


def _unreadable(name: str, split: ImageSplit, errors: Mapping[int, DataError]) -> Findings:
    if not errors:
        return
    reasons = Counter(error.what for error in errors.values())
    listed = "; ".join(f"{n:,}: {what}" for what, n in reasons.most_common(5))
    more = f"; {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
    message = f"{len(errors):,} of {len(split):,} images of {name} cannot be read ({listed}{more})"
    examples = tuple(f"{error.where}: {error.what}" for error in list(errors.values())[:10])
    fix = next(error.fix for error in errors.values() if error.what == reasons.most_common(1)[0][0])
    fix = f"{fix[:1].lower()}{fix[1:]}, or {SKIP_HINT}" if fix else f"remove them, or {SKIP_HINT}"
    yield Finding("warning", "unreadable", message, len(errors), examples, fix)


def _duplicates(name: str, split: ImageSplit, positions: Mapping[str, list[int]]) -> Findings:
    repeated = [index for index in positions.values() if len(index) > 1]
    labels, names = split.labels, split.names() if repeated else []
    conflicting = [index for index in repeated if labels and len({labels[i] for i in index}) > 1]
    examples = [_two_names(names, labels, index) for index in conflicting[:3]]
    message = f"images of {name} that occur with different labels: {len(conflicting):,}"
    fix = "keep every image in the folder of only one class"
    yield from Finding.if_any("warning", "contradictions", conflicting, message, fix, shown=examples)
    examples = [_two_names(names, labels, index) for index in repeated[:3]]
    message = f"duplicate images of {name}: {sum(len(index) - 1 for index in repeated):,}"
    fix, ok = "leave duplicates out with --set drop_duplicates=true", f"{name}: no image occurs twice"
    yield from Finding.if_any("note", "repeats", repeated, message, fix, shown=examples, ok=ok)


def _two_names(names: Sequence[str], labels: Sequence[Any] | None, index: Sequence[int]) -> str:
    """The names and labels of the first two of several equal images."""
    return " = ".join(f"{names[i]} ({labels[i]})" if labels else names[i] for i in index[:2])


def _balance(name: str, counts: Counter[str]) -> Findings:
    if len(counts) == 1:
        (only,) = counts
        yield Finding("warning", "balance", f"{name}: one class only ({only})", counts[only])
    if not counts or max(counts.values()) <= MAX_CLASS_RATIO * min(counts.values()):
        return
    (most, n_most), (least, n_least) = counts.most_common()[0], counts.most_common()[-1]
    message = f"{name} is unbalanced: {n_most:,} of {most}, {n_least:,} of {least}; "
    message += "class_weight = balanced may help"
    is_severe = n_most > MAX_CLASS_SHARE * counts.total()
    message += f"; always predicting {most} scores {n_most / counts.total():.1%}" if is_severe else ""
    yield Finding("warning" if is_severe else "note", "balance", message, n_most - n_least)


def _leakage(splits: Mapping[str, ImageSplit], positions: Mapping[str, dict[str, list[int]]]) -> Findings:
    for first, second in itertools.combinations(splits, 2):
        shared = sorted(positions[first].keys() & positions[second].keys())
        names = splits[second].names() if shared else []
        shown = [names[positions[second][key][0]] for key in shared[:3]]
        message = f"images in both {first} and {second}: {len(shared):,}; the score would be too high"
        fix = f"drop them from {first} with --set drop_duplicates=true"
        yield from Finding.if_any("warning", "leak", shared, message, fix, shown=shown)


# --- sizes, colors and near duplicates --------------------------------------------------------


def _shapes(name: str, split: ImageSplit, headers: Mapping[int, ImageHeader], transform: Any) -> Findings:
    """Sizes, color modes, animations, and the effect of the transform."""
    if not headers:
        return
    names, sizes = split.names(), np.array([header.size for header in headers.values()])
    low, high = sizes.min(0), sizes.max(0)
    if (low != high).any():
        median = np.median(sizes, 0).astype(int)
        message = f"{name}: images of {low[0]:,} x {low[1]:,} to {high[0]:,} x {high[1]:,} pixels, "
        message += f"usually about {median[0]:,} x {median[1]:,}"
        yield Finding("ok", "sizes", message, len(np.unique(sizes, axis=0)))
    modes = Counter(header.mode for header in headers.values() if header.kind != "array")
    if unusual := {mode: n for mode, n in modes.items() if mode in UNUSUAL_MODES}:
        counts = [
            f"{n:,} {mode}" + (f" ({CONVERSIONS[mode]})" if mode in CONVERSIONS else "")
            for mode, n in sorted(unusual.items())
        ]
        examples = [names[i] for i, header in headers.items() if header.mode in unusual]
        message = f"{name}: not all images are RGB: {', '.join(counts)}"
        yield Finding("note", "modes", message, sum(unusual.values()), tuple(examples[:3]))
    animated = [names[i] for i, header in headers.items() if header.frames > 1]
    message = f"{name}: {len(animated):,} images have several frames or pages; only the first is read"
    yield from Finding.if_any("note", "animations", animated, message)
    if transform is not None:
        yield from _transform_effects(name, sizes, transform)


def _range(name: str, headers: Mapping[int, ImageHeader], brightest: BrightestPixel) -> Findings:
    """Warn if the brightest pixel is far below white: the white level is unknown, or all images are dark."""
    n, shown = brightest.num_images, (brightest.where,) if brightest.where else ()
    many_bits = f"{name}: the brightest pixel of {n:,} images of 16 or 32 bits is "
    many_bits += f"{brightest.pixel:,} of {WHITE_16:,}"
    fix = f"give the value of white with --set image_range={likely_white(brightest.pixel)}"
    pixels = [header.brightest for header in headers.values() if header.brightest is not None]
    almost_black = "for a model the images are almost black"
    if 0 < brightest.pixel <= MAX_UNCLEAR:
        message = f"{many_bits}: training would raise an error, since the images are almost black"
    elif len(pixels) < len(headers) or not pixels or max(pixels) >= DARK_LEVEL:
        return
    elif brightest.pixel and n == len(headers):
        message = f"{many_bits}: {almost_black}"
    else:
        message = f"{name}: the brightest pixel is {max(pixels)} of 255: {almost_black}"
        n, shown, fix = len(pixels), (), "save the images with white at 255"
    yield Finding("warning", "range", message, n, shown, fix)


def _transform_effects(name: str, sizes: np.ndarray, transform: Any) -> Findings:
    """The share of the images that a transform crops, and how many it stretches or enlarges."""
    height, width = transform.size
    stretch = np.maximum(
        sizes[:, 0] / sizes[:, 1] * height / width, sizes[:, 1] / sizes[:, 0] * width / height
    )
    if transform.fit == "crop":
        visible = (max(height, width) / (transform.resize_to or max(height, width))) ** 2
        cropped = 1 - visible / stretch
        n = int((cropped > MAX_CROP).sum())
        message = f"{name}: the crop to {width} x {height} pixels removes {np.median(cropped):.0%} of an "
        message += f"image (median; {cropped.max():.0%} at most), "
        message += f"and more than {MAX_CROP:.0%} of {n:,} of {len(sizes):,} images"
        if n:
            fix = "--set framing=squash keeps the whole image but changes its aspect ratio"
            yield Finding("note", "cut-away", message, n, fix=fix)
    elif (n := int((stretch > MAX_STRETCH).sum())) > 0:
        message = f"{name}: {n:,} of {len(sizes):,} are stretched more than {MAX_STRETCH:g} times to fit "
        message += f"{width} x {height} pixels, {stretch.max():.1f} times at most"
        yield Finding("note", "stretched", message, n, fix="--set framing=crop crops the middle instead")
    scale = np.minimum(width / sizes[:, 0], height / sizes[:, 1])
    if (n := int((scale > MAX_UPSCALE).sum())) > 0:
        size = f"{width} x {height} pixels"
        message = f"{name}: {n:,} of {len(sizes):,} are smaller than {size} by half or more"
        fix = "a smaller --set image_size=PIXELS is faster and loses nothing"
        yield Finding("note", "blown-up", message, n, fix=fix)


def _near_duplicates(splits: Mapping[str, ImageSplit], thumbnails: Mapping[str, Thumbnails]) -> Findings:
    """Near duplicates: images that look alike but differ in their bytes (saved again, scaled, brightened)."""
    if not thumbnails:
        return
    names = {name: split.names() for name, split in splits.items()}
    for (first, second), pairs in near_duplicates(thumbnails).items():
        shown = [f"{names[first][i]} ~ {names[second][j]}" for i, j in pairs[:3]]
        if first != second:
            message = f"images of {first} that look nearly the same as one of {second}: {len(pairs):,}"
            fix = f"remove them from {first}: the score would be too high"
            yield Finding("warning", "near-leak", message, len(pairs), tuple(shown), fix)
            continue
        message = f"pairs of images of {first} that look nearly the same: {len(pairs):,}"
        yield Finding("note", "near-repeats", message, len(pairs), tuple(shown))
        labels = splits[first].labels or []
        conflicting = [(i, j) for i, j in pairs if labels and labels[i] != labels[j]]
        named = [f"{image} ({label})" for image, label in zip(names[first], labels)]
        shown = [f"{named[i]} ~ {named[j]}" for i, j in conflicting[:3]]
        message = f"pairs of images of {first} that look nearly the same and have different labels: "
        message += f"{len(conflicting):,}"
        fix = "keep the correct label of each image"
        yield from Finding.if_any("warning", "near-contradictions", conflicting, message, fix, shown=shown)
