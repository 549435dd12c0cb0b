"""The trainings behind lab_questions.py: small models on small parts of CIFAR-10 and IMDb, and which answers were right.

Test parts stay closed: what judges is held out of the training parts, the same for every seed and arm. A seed draws the
examples to learn from and everything that is random in the training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glassformer as gf
from glassformer.data.augment import LEVELS, augment, mix_pairs
from glassformer.data.image import open_image
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.baselines import tfidf_logistic
from glassformer.nn import MultiHeadAttention, encoder

JUDGED_PICTURES, LEARNED_PICTURES = 10_000, 2_000
JUDGED_REVIEWS, LEARNED_REVIEWS = 5_000, 4_000
BACKBONE, HEADS = 10_000, 500  # pictures of classes 0 to 4 for a backbone, of 5 to 9 for a head
MEAN, STD = (0.4913, 0.4821, 0.4465), (0.2452, 0.2428, 0.2606)
Three = tuple[Tensor, Tensor, Tensor]
Rows = Tensor | None
VIT: dict[str, Any] = dict(
    model="vit-tiny", image_size=32, patch_size=4, d_model=96, num_layers=4, num_heads=4, d_ff=192, class_token=True,
    pooling="first", mean=MEAN, std=STD, augment="none", lr=1e-3, schedule="cosine", warmup=0.1, batch_size=64, epochs=12,
)  # fmt: skip
HEAD: dict[str, Any] = dict(head="mlp", head_hidden=96, train_layers=0, lr=3e-3, batch_size=32, epochs=20)
TEXT: dict[str, Any] = dict(
    model="encoder-small", tokenizer="word", clean="html", min_count=2, max_length=128, d_model=128, num_layers=2, num_heads=4,
    d_ff=256, pooling="mean", positions="sinusoidal", optimizer="adam", lr=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0,
    batch_size=32, epochs=3,
)  # fmt: skip
SCRATCH: dict[str, Any] = dict(
    model="encoder-small", clean="html", max_length=128, d_model=256, num_layers=3, num_heads=4, d_ff=1024, positions="learned",
    activation="gelu", pooling="mean", lr=1e-3, schedule="linear", warmup=0.1, batch_size=32,
)  # fmt: skip
TUNED: dict[str, Any] = dict(
    clean="html", max_length=128, pooling="mean", lr=3e-4, layer_decay=0.9, schedule="linear", warmup=0.1, batch_size=32,
)  # fmt: skip
PASSES = {200: 15, 2_000: 5, 20_000: 1}  # epochs by labels


@dataclass(frozen=True)
class Arm:
    """One setting: which kind of training, and what it changes."""

    kind: str  # of FITS
    changes: dict[str, Any] = field(default_factory=dict)


class Undivided(MultiHeadAttention):
    """Scores without the division by the root of K: the queries are multiplied by it first."""

    def project(self, x: Tensor, memory: Rows = None, rows: Rows = None) -> Three:
        q, k, v = super().project(x, memory, rows)
        return q * k.shape[-1] ** 0.5, k, v


class KeysAsValues(MultiHeadAttention):
    """K = V: the values' projection is there and not used."""

    def project(self, x: Tensor, memory: Rows = None, rows: Rows = None) -> Three:
        q, k, _ = super().project(x, memory, rows)
        return q, k, k


ATTENDS = {"": MultiHeadAttention, "undivided": Undivided, "keys as values": KeysAsValues}


def attending(name: str) -> Any:
    """Inside, encoders are built with that attention."""
    return patch.object(encoder, "MultiHeadAttention", ATTENDS[name])


@cache
def pictures() -> tuple[list[Any], np.ndarray]:
    """CIFAR-10's training pictures, not yet decoded, and their classes ``[N]``, in the order of the file."""
    split = load_image_dataset("cifar10", splits=["train"]).splits["train"]
    names = sorted(set(split.labels or ()))
    return split.images, np.array([names.index(label) for label in split.labels or ()])


@cache
def decoded(row: int) -> np.ndarray:
    """One picture ``[32, 32, 3]`` uint8."""
    return np.asarray(open_image(pictures()[0][row]).convert("RGB"))


def halves(order: np.ndarray, judged: int, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """So many rows to learn from, drawn by the seed, and the first ones, which judge."""
    return np.random.default_rng([seed, 1]).permutation(order[judged:])[:count], order[:judged]


def parts(seed: int, count: int, classes: Sequence[int] = range(10)) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, drawn by the seed, and rows that judge, of some classes."""
    y = pictures()[1]
    order = np.random.default_rng(0).permutation(len(y))
    there = np.isin(y[order], classes)
    return halves(order[there], int(there[:JUDGED_PICTURES].sum()), seed, count)


def fitted(clf: Any, rows: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Fit on some pictures; which of others are right ``[n]`` bool."""
    y = pictures()[1]
    clf.fit([decoded(i) for i in rows], [str(c) for c in y[rows]])
    return clf.predict([decoded(i) for i in judged]).astype(str) == y[judged].astype(str)


def vit(
    seed: int, folder: Path, *, count: int = LEARNED_PICTURES, attends: str = "", **changes: Any
) -> np.ndarray:
    rows, judged = parts(seed, count)
    clf = gf.ImageClassifier(**(VIT | changes), keep_best=False, seed=seed, threads=1)
    with attending(attends):
        return fitted(clf, rows, judged)


def tensor(rows: np.ndarray) -> Tensor:
    """Pictures as uint8 ``[B, 3, 32, 32]``."""
    return torch.from_numpy(np.stack([decoded(i) for i in rows])).permute(0, 3, 1, 2)


class SmallCNN(nn.Module):
    """Three convolutions with pools between them and a linear layer, about as many numbers as the ViT."""

    def __init__(self, classes: int = 10):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(512, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """``[B, 3, 32, 32]`` scaled -> logits ``[B, classes]``."""
        return self.layers(x)


def cnn(
    seed: int, folder: Path, treatment: str = "none", epochs: int = 12, count: int = LEARNED_PICTURES
) -> np.ndarray:
    """As ``vit``, with the same pictures, changed in the same ways."""
    torch.manual_seed(seed)
    rows, judged = parts(seed, count)
    y, generator, model = pictures()[1], torch.Generator().manual_seed(seed), SmallCNN()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    pixels, targets = tensor(rows), torch.from_numpy(y[rows])
    steps = epochs * -(-len(rows) // 64)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    level = treatment if treatment in LEVELS else "none"
    for _ in range(epochs):
        for batch in torch.randperm(len(pixels), generator=generator).split(64):
            changed, wanted = augment(pixels[batch], (32, 32), level, generator), targets[batch]
            changed = changed.float() / 255 if changed.dtype == torch.uint8 else changed
            changed = (changed - mean) / std
            if treatment not in LEVELS:
                changed, mixed = mix_pairs(changed, treatment, 1.0, 1.0, generator)
                wanted = wanted if mixed is None else mixed.soften(wanted, 10)
            F.cross_entropy(model(changed), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
    model.eval()
    with torch.no_grad():
        seen = tensor(judged).split(500)
        said = torch.cat([model((part.float() / 255 - mean) / std).argmax(1) for part in seen])
    return said.numpy() == y[judged]


def backbone(folder: Path) -> Path:
    """A ViT that has learned the classes 0 to 4 from other pictures than those that judge; made once."""
    made = folder / "backbone"
    if not (made / "glassformer.json").is_file():
        rows, judged = parts(0, BACKBONE, range(5))
        clf = gf.ImageClassifier(**(VIT | {"augment": "shift"}), keep_best=False, seed=0, threads=1)
        print(f"the backbone knows its five classes: {fitted(clf, rows, judged).mean():.1%}", flush=True)
        clf.save(made)
    return made


def head(seed: int, folder: Path, **changes: Any) -> np.ndarray:
    """A head on the backbone learns the classes 5 to 9."""
    rows, judged = parts(seed, HEADS, range(5, 10))
    settings = HEAD | {"model": str(backbone(folder))} | changes
    clf = gf.ImageClassifier(**settings, keep_best=False, seed=seed, threads=1)
    return fitted(clf, rows, judged)


@cache
def reviews() -> tuple[list[str], np.ndarray]:
    split = load_text_dataset("imdb", splits=["train"]).splits["train"]
    return split.texts, np.array(split.labels)


def review_parts(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of reviews to learn from, drawn by the seed, and rows that judge."""
    return halves(np.random.default_rng(0).permutation(len(reviews()[0])), JUDGED_REVIEWS, seed, count)


def text(
    seed: int,
    folder: Path,
    *,
    labels: int = LEARNED_REVIEWS,
    base: Any = TEXT,
    attends: str = "",
    **changes: Any,
) -> np.ndarray:
    (texts, y), (rows, judged) = reviews(), review_parts(seed, labels)
    clf = gf.TextClassifier(**(base | changes), keep_best=False, seed=seed, threads=1)
    with attending(attends):
        clf.fit([texts[i] for i in rows], y[rows].tolist())
        return np.asarray(clf.predict([texts[i] for i in judged])) == y[judged]


def tfidf(seed: int, folder: Path, *, labels: int = LEARNED_REVIEWS) -> np.ndarray:
    """Logistic regression on TF-IDF, on the reviews that ``text`` learns from."""
    (texts, y), (rows, judged) = reviews(), review_parts(seed, labels)
    names, numbers = np.unique(y, return_inverse=True)
    learned, asked = ([texts[i] for i in part] for part in (rows, judged))
    shares = tfidf_logistic(learned, numbers[rows], asked, num_classes=len(names), seed=seed)
    return shares.argmax(1) == numbers[judged]


def labelled(seed: int, folder: Path, *, labels: int, pretrained: bool) -> np.ndarray:
    """A BERT of three layers that has read IMDb's reviews, or one that has read nothing, on so many labels."""
    linked = folder / "pretrained"  # what the recipe imdb-mlm-given leaves
    model = linked / "model" if (linked / "model").is_dir() else linked
    if not model.exists():
        raise SystemExit(f"no model in {model}: link the model of a run of imdb-mlm-given there")
    scratch = SCRATCH | {"tokenizer": str(model / "tokenizer.json")}
    start = TUNED | {"model": str(model)} if pretrained else scratch
    return text(seed, folder, labels=labels, base=start, epochs=PASSES[labels])


FITS: dict[str, Callable[..., np.ndarray]] = {
    "vit": vit, "cnn": cnn, "head": head, "text": text, "tfidf": tfidf, "labels": labelled,
}  # fmt: skip
