"""Tiny fitted classifiers of several builds."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.commands import values

import glassformer as gf

TEXTS = [f"a {('warm and wise', 'dull')[i % 2]} film , number {i} of many" for i in range(40)]
LABELS = ["good", "bad"] * 20
TINY = values(
    "d_model=14 num_heads=2 d_ff=22 num_layers=2 max_length=19 epochs=2 lr=1e-2 min_count=1 dropout=0.0"
)
TINY |= values("precision=fp32 threads=1")
BUILDS: dict[str, dict[str, Any]] = {
    name: values(f"model=encoder-{settings}")
    for name, settings in {
        "mean, pre-norm, sinusoidal": "mini pooling=mean",
        "unit-mean": "mini pooling=unit-mean",
        "repeats damped": "mini pooling=mean damp_repeats=0.5",
        "attention, learned, post-norm": "base pooling=attention head=mlp head_hidden=9",
        "encoder-base, auto": "base",
        "encoder-base, pooler": "base pooling=pooler",
        "max, frozen narrow words": "mini pooling=max vectors=word2vec embedding_dim=5 freeze_vectors=True",
        "no special tokens": "small add_special_tokens=False pooling=first clean=words",
        "local attention": "mini pooling=mean attention=local attention_window=2",
        "linear attention": "small pooling=first attention=linear",
    }.items()
}
# Models without attention, which have no layers of the Transformer's sizes.
PLAIN_BUILDS: dict[str, dict[str, Any]] = {
    "textcnn": values("model=textcnn d_model=7 embedding_dim=5"),
    "lstm, two layers": values("model=lstm d_model=7 embedding_dim=5 num_layers=2"),
    "gru, attention": values("model=gru d_model=5 embedding_dim=3 pooling=attention"),
    "lstm, one way, mean": values("model=lstm d_model=5 bidirectional=False pooling=mean"),
}
PICTURES = np.random.default_rng(0).integers(0, 256, (20, 13, 11, 3), np.uint8)
PICTURE_BUILDS: dict[str, dict[str, Any]] = {
    "class token": dict(),
    "stem, mean, no class token": dict(stem=6, pooling="mean", class_token=False, positions="sinusoidal"),
}


def build(name: str, **changes: Any) -> Any:
    """The fitted classifier of that name."""
    if name in PLAIN_BUILDS:
        shared = {
            key: TINY[key] for key in ("max_length", "epochs", "lr", "min_count", "precision", "threads")
        }
        return gf.TextClassifier(**shared, **PLAIN_BUILDS[name]).fit(TEXTS, LABELS)
    if name in BUILDS:
        settings = dict(TINY) | BUILDS[name]
        return gf.TextClassifier(**settings).fit(TEXTS, LABELS)
    shared = {key: value for key, value in TINY.items() if key not in ("max_length", "min_count", "dropout")}
    settings = shared | {"image_size": 12, "patch_size": 4} | PICTURE_BUILDS[name] | changes
    return gf.ImageClassifier("vit-tiny", **settings).fit(PICTURES, ["a", "b"] * 10)


def alone(folder: Path, *words: object) -> str:
    """What an exported folder's script says of words or files, in a process of its own."""
    command = [sys.executable, str(folder / "run.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout


@pytest.fixture(scope="session")
def exporting() -> None:
    """Skips where graphs can be neither made nor run."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


@pytest.fixture(scope="package")
def text_model() -> Any:
    return build("mean, pre-norm, sinusoidal")


@pytest.fixture(scope="package")
def picture_model() -> Any:
    return build("class token")


def odd_pictures(folder: Path) -> list[str]:
    """Files that are not plain: transparent, 16 bits, turned. What runs without us must read them as we do."""
    rng = np.random.default_rng(3)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned by a quarter
    Image.fromarray(rng.integers(0, 256, (17, 13, 4), np.uint8)).save(folder / "see-through.png")
    Image.fromarray(rng.integers(0, 65_536, (17, 13), np.uint16)).save(folder / "deep.png")
    Image.fromarray(rng.integers(0, 256, (17, 13, 3), np.uint8)).save(folder / "turned.png", exif=exif)
    clear = rng.integers(0, 3, (17, 13)).astype(np.uint16) * 30_000
    Image.fromarray(clear).save(folder / "clear.png", transparency=30_000)
    return [str(folder / name) for name in ("see-through.png", "deep.png", "turned.png", "clear.png")]
