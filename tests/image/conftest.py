"""Small pictures whose class can be seen: where the bright quarter lies."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

SETTINGS = {
    "image_size": 8, "patch_size": 4, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 23, "epochs": 12,
    "lr": 5e-3, "batch_size": 16, "precision": "fp32",
}  # fmt: skip
NAMES = ("bottom", "left", "right", "top")


def quarters(count: int, seed: int, side: int = 11) -> tuple[list[np.ndarray], list[str]]:
    """Noise with one bright corner, as uint8 ``[side, side, 3]``, and the corner's name."""
    rng = np.random.default_rng(seed)
    half, pictures, labels = side // 2, [], []
    for i in range(count):
        picture = rng.integers(0, 120, (side, side, 3), np.uint8)
        top, left = divmod(i % 4, 2)
        picture[top * half : top * half + half, left * half : left * half + half] += 130
        pictures.append(picture)
        labels.append(NAMES[i % 4])
    return pictures, labels


def fill(folder: Path, count: int, seed: int, name: str = "{}.png") -> Path:
    """``quarters`` as files, in a folder for each class."""
    for i, (picture, label) in enumerate(zip(*quarters(count, seed), strict=True)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / label / name.format(i))
    return folder


def encoded(picture: Any, kind: str = "PNG", **options: Any) -> bytes:
    """The file of an image or of its pixels."""
    file = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(file, kind, **options)
    return file.getvalue()


def sets(**values: Any) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="session")
def fitted():
    from glassformer.tasks.image_classification.estimator import ImageClassifier

    return ImageClassifier(**SETTINGS).fit(*quarters(64, 3), validation=quarters(24, 5))
