"""What is wrong with a set of pictures, before a model learns it: repeats, leaks, balance, absent classes."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.doctor import DoctorReport, Finding
from glassformer.data.image_sources import ImageSplit, absent_classes

UNBALANCED = 3.0  # the largest class is this many times the smallest: said


def examine_pictures(name: str, splits: Mapping[str, ImageSplit], notes: Sequence[str] = ()) -> DoctorReport:
    """Every check that needs no decoding; equal pictures are those of equal bytes."""
    said = dict.fromkeys([*notes, *absent_classes(splits)])
    findings = [Finding("note", "source", note) for note in said]
    figures: dict[str, Any] = {}
    seen: dict[str, dict[str, list[int]]] = {}
    for split, pictures in splits.items():
        places: dict[str, list[int]] = {}
        for i, picture in enumerate(pictures.images):
            places.setdefault(_digest(picture), []).append(i)
        seen[split] = places
        counts = Counter(map(str, pictures.labels or ()))
        figures[split] = {"pictures": len(pictures), "distinct": len(places), **counts}
        findings += _repeats(split, pictures, places)
        if counts and max(counts.values()) > UNBALANCED * min(counts.values()):
            (most, n), (least, m) = counts.most_common()[0], counts.most_common()[-1]
            message = (
                f"{split} is unbalanced: {n:,} of {most}, {m:,} of {least}; class_weight = balanced may help"
            )
            findings.append(Finding("note", "balance", message))
    findings += _leaks(splits, seen)
    if all(finding.severity == "note" for finding in findings):
        findings.append(Finding("ok", "repeats", "no picture stands in two splits"))
    return DoctorReport(name, findings, {"splits": figures})


def _repeats(split: str, pictures: ImageSplit, places: dict[str, list[int]]) -> list[Finding]:
    repeated = [index for index in places.values() if len(index) > 1]
    labels = pictures.labels
    torn = [index for index in repeated if labels and len({labels[i] for i in index}) > 1]
    names, out = pictures.names(), []
    if torn:
        examples = tuple(names[index[0]] for index in torn[:3])
        message = f"{len(torn):,} pictures of {split} stand there with several labels"
        out.append(Finding("warning", "contradictions", message, len(torn), examples))
    if repeated:
        message = f"{sum(len(index) - 1 for index in repeated):,} pictures of {split} are repeats"
        out.append(Finding("note", "repeats", message, len(repeated)))
    return out


def _leaks(splits: Mapping[str, ImageSplit], seen: Mapping[str, dict[str, list[int]]]) -> list[Finding]:
    out = []
    names = list(splits)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            both = seen[first].keys() & seen[second].keys()
            if both:
                shown = tuple(splits[second].names()[seen[second][digest][0]] for digest in sorted(both)[:3])
                message = (
                    f"{len(both):,} pictures stand in {first} and in {second}: the score would be too good"
                )
                out.append(Finding("warning", "leak", message, len(both), shown))
    return out


def _digest(picture: Any) -> str:
    """Of the bytes that a picture lies in, or of its pixels."""
    if isinstance(picture, Mapping):
        picture = picture.get("bytes") or picture.get("path")
    if isinstance(picture, str | os.PathLike):
        try:
            picture = Path(picture).read_bytes()
        except OSError:
            picture = str(picture).encode()
    if not isinstance(picture, bytes):
        array = np.ascontiguousarray(np.asarray(picture))
        picture = str(array.shape).encode() + array.tobytes()
    return hashlib.sha256(picture).hexdigest()
