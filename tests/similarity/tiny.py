"""Embedders that are fitted in a blink, and folders of tiny checkpoints."""

from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from glassformer.checkpoints.sentences import write_sentences
from glassformer.data.text import word_tokenizer
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.models.sentences import EmbeddingSettings, Normalize, Pool
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import save_tokenizer

PAIRS = [
    ("a dog", "the dog"),
    ("a cat", "the car"),
    ("two", "three"),
    ("a red car", "a car"),
    ("rain", "sun"),
]
SCORES = [5, 1, 0, 4, 2]
TEXTS = ["a dog", "a cat", "the dog and the cat", "two", "three", "two and three", "seven"]
LABELS = ["animal", "animal", "animal", "number", "number", "number", "number"]
SIZES = {"min_count": 1, "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3}
WIDTH, POSITIONS = 12, 19


def tiny(**settings: Any) -> gf.Embedder:
    """From random weights, words as tokens."""
    known: dict[str, Any] = {**SIZES, "epochs": 2, "precision": "fp32", "threads": 1, "seed": 3}
    return gf.Embedder("encoder-mini", **(known | settings))


def checkpoint(folder: Path, *modes: str) -> Path:
    """A folder of sentence-transformers with random weights: an encoder of the Hub's layout, pooling, length 1."""
    model = plain_model(folder)
    write_sentences(EmbeddingSettings(Pool(modes or ("mean",)), (Normalize(),), 13), folder, model.config)
    return folder


def plain(folder: Path) -> Path:
    """A folder of an encoder alone, which does not say how many tokens it reads."""
    plain_model(folder)
    return folder


def plain_model(folder: Path) -> TextEncoder:
    """That folder, and the model in it."""
    folder.mkdir()
    torch.manual_seed(3)
    words = sorted(
        {word for pair in PAIRS for text in pair for word in text.split()} | {"and", "it", "rained"}
    )
    tokenizer = word_tokenizer(words, min_count=1, lowercase=False)
    make = FAMILIES["bert"].pretraining["bert"]
    size = tokenizer.get_vocab_size()
    model = TextEncoder(make(size, WIDTH, 2, 3, 17, POSITIONS, pooling=None, init_std=0.3))
    save_pretrained(model, folder)
    save_tokenizer(tokenizer, folder, POSITIONS)
    return model
