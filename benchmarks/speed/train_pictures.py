"""Training a ViT on pictures: glassformer against a plain loop over transformers' ViTForImageClassification.

    make bench-train_pictures ARGS='--size small'      (or: --size base)

``small`` is the model of the recipe cifar10-vit (8 layers, 192 wide, patches of 4 x 4 pixels) on CIFAR-10;
``base`` is ViT-B/16 on the same pictures scaled up to 224 pixels. Unlike in the recipe PatchDropout is off,
since it makes less work, and [CLS] stands before the patches and is read, since transformers' model cannot do
without it.

Contenders, timed in turn on the same batches, from the same random weights: transformers in fp32, under bf16
autocast, and with bf16 weights (less exact: small updates are lost in such weights), the latter two where the
processor has bf16, each with the faster of transformers' attentions, tried on the warm-up's pictures; and
glassformer, with the loop, the objective and the optimiser of ``ImageClassifier``: bf16 where the machine has
it, with fp32 masters.

No dropout anywhere; all use fused AdamW, clip the gradient's norm at 1, keep one model over all windows, and
tell the memory allocator to keep freed blocks. Decoding is not timed; forward, backward and update are.
glassformer also normalises its 8-bit pixels inside the clock; the peers find theirs ready in their number
format.
"""

import logging
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import half, result_file
from benchmarks.harness.rounds import Contender, Window, compared, glassformer_epoch, in_own_process
from benchmarks.speed.hf_trainer import be_quiet, choose_attention, precision_of, train_on
from glassformer.data.image_batching import AugmentSettings, ImageStream
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.transform import ImageTransform, PixelTable, read_images
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.inputs.images import build_transform
from glassformer.models.image import ImageEncoder as ViT
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_device, choose_dtype, set_seed
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.image_classification.estimator import build_model
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig
from glassformer.train.config import ClassifierFitConfig
from glassformer.train.objectives import ImageClassification
from glassformer.train.optim import MixedPrecisionOptimizer

CLASSES = 10
LR = 1e-4


@dataclass(frozen=True)
class Size:
    """One of the two comparisons."""

    model: str
    batch: int
    pictures: int  # in a window, unless said otherwise
    pixels: int


SIZES = {
    "small": Size("the model of cifar10-vit", batch=128, pictures=512, pixels=32),
    "base": Size("ViT-B/16", batch=16, pictures=48, pixels=224),
}


@dataclass(frozen=True)
class Round:
    """The pictures of one window ``[n, C, H, W]``, 8 bits a value, and their classes ``[n]``."""

    pixels: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class Work:
    """What every contender is given: a folder with the first weights, the rounds (the last is the warm-up's)."""

    folder: Path
    rounds: list[Round]
    transform: ImageTransform
    tokens: int  # of one picture
    batch: int

    def stream(self, turn: int, device: torch.device) -> ImageStream:
        """The batches of a window: the same for all."""
        table, drawn = PixelTable(self.rounds[turn].pixels), (1, max(turn, 0), device)
        return ImageStream(table, self.transform, AugmentSettings(), self.tokens, self.batch, *drawn)

    def window(self, turn: int, seconds: float, loss: float) -> Window:
        n = len(self.rounds[turn].targets)
        return Window(n, n * self.tokens, seconds, loss)


def build(size: str, seed: int) -> tuple[ViT, ImageTransform]:
    """A model with random weights, and how pictures are made ready for it."""
    set_seed(seed)
    if size == "small":
        recipe = load_recipe("cifar10-vit")
        model = replace(recipe.model, patch_dropout=0.0, class_token=True, pooling="first")
        transform = build_transform(recipe.image, model)
    else:
        model = ImageModelConfig(model="vit-base", pooling="first")
        transform = build_transform(ImageConfig(image_size=SIZES[size].pixels), model)
    return build_model(model, transform, CLASSES), transform


def load_rounds(transform: ImageTransform, rounds: int, pictures: int, seed: int) -> list[Round]:
    """Real pictures, other ones for each round, in random order."""
    limit = (rounds + 1) * pictures
    split = load_image_dataset("cifar10", limit=limit, seed=seed, splits=["train"]).splits["train"]
    assert split.labels is not None
    _, targets = np.unique(split.labels, return_inverse=True)
    table = read_images(split.images, transform, split.origin, split.rows)
    order = np.random.default_rng(seed).permutation(len(split))
    return [Round(table.pixels[part], targets[part]) for part in np.array_split(order, rounds + 1)]


def plain_contender(name: str, work: Work, *, weights: torch.dtype, autocast: bool) -> Contender:
    """The loop that everybody writes, over transformers' model."""
    import transformers

    be_quiet()
    device, still = choose_device(), {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    kind: Any = transformers.ViTForImageClassification
    model = kind.from_pretrained(work.folder, dtype=weights, **still).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)

    def loss_of(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        pixels, targets = batch
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(pixel_values=pixels).logits
        return F.cross_entropy(logits.float(), targets)

    def batches(turn: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        stream, made = work.stream(turn, device), []
        for (draw,) in stream.steps(0):
            targets = torch.from_numpy(work.rounds[turn].targets[draw.index]).to(device)
            made.append((stream.pack(draw).pixels.to(weights), targets))
        return made

    def run(turn: int) -> Window:
        ready = batches(turn)
        started = time.perf_counter()
        losses = train_on(model, optimizer, ready, loss_of)
        return work.window(turn, time.perf_counter() - started, float(np.mean(losses)))

    warm_up = batches(-1)
    attention = choose_attention(model, lambda: train_on(model, optimizer, warm_up, loss_of))
    optimizer.state.clear()

    setting = {
        "precision": "bf16 autocast" if autocast else f"{weights} weights".replace("torch.", ""),
        "batch_size": work.batch,
        "attention": attention,
        "optimiser": "AdamW, fused",
    }
    return Contender(name, setting, run, noun="pictures")


def glassformer_contender(work: Work) -> Contender:
    same: dict[str, Any] = {"schedule": "constant", "warmup": 0.0, "weight_decay": 0.0, "epochs": 1}
    config = ClassifierFitConfig(lr=LR, batch_size=work.batch, **same)
    device = choose_device()
    dtype = choose_dtype("auto", device)
    network = load_pretrained(work.folder, dropout=0.0, attention_dropout=0.0).to(device)
    optimizer = MixedPrecisionOptimizer(network, config, dtype)

    def run(turn: int) -> Window:
        objective = ImageClassification(work.rounds[turn].targets)
        seconds, loss = glassformer_epoch(network, optimizer, config, work.stream(turn, device), objective)
        return work.window(turn, seconds, loss)

    setting = {"precision": precision_of(dtype), "batch_size": work.batch, "optimiser": "AdamW, fused"}
    return Contender("glassformer", setting, run, noun="pictures")


MAKERS = {
    "fp32": partial(plain_contender, "transformers, fp32", weights=torch.float32, autocast=False),
    "autocast": partial(plain_contender, "transformers, bf16 autocast", weights=torch.float32, autocast=True),
    "bf16": partial(plain_contender, "transformers, bf16 weights", weights=torch.bfloat16, autocast=False),
    "glassformer": glassformer_contender,
}


def make(key: str, work: Work) -> Contender:
    """The contender of that key, made in its own process."""
    logging.disable(logging.WARNING)
    keep_freed_memory()
    return MAKERS[key](work)


@command(
    "training on CIFAR-10 pictures",
    out=lambda options: result_file(f"train_pictures-{options.size}"),
    packages=("transformers",),
    size=dict(choices=SIZES, default="small"),
    rounds=dict(type=count, default=5, help="timed windows of each contender"),
    pictures=dict(type=count, help="in a window [default: 512 small, 48 base]"),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    size = SIZES[options.size]
    pictures = options.pictures or size.pictures
    with tempfile.TemporaryDirectory() as temporary:
        network, transform = build(options.size, options.seed)
        rounds = load_rounds(transform, options.rounds, pictures, options.seed)
        save_pretrained(network, Path(temporary))
        tokens = network.config.embedding.num_tokens
        work = Work(Path(temporary), rounds, transform, tokens, size.batch)
        keys = [key for key in MAKERS if half() or key in ("fp32", "glassformer")]
        found = compared([in_own_process(make, key, work) for key in keys], options.rounds)
    c = network.config.encoder
    return {
        "benchmark": f"training {size.model} on CIFAR-10 pictures of {size.pixels} pixels",
        "threads": options.facts["machine"]["threads"],
        "weights": "random, the same for all",
        "sizes": {"d_model": c.d_model, "num_layers": c.num_layers, "num_heads": c.num_heads, "d_ff": c.d_ff},
        "tokens_per_picture": tokens,
        "pictures_per_window": pictures,
        "seed": options.seed,
        **found,
    }
