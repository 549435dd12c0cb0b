"""Inputs on which an export is checked: those of the run, or made up from the vocabulary or from noise."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.text_pairs import TextPair
from glassformer.evaluate.predict import predict_pictures, predict_rows, read_logits
from glassformer.evaluate.predictions import read_predictions, texts_in
from glassformer.finite import finite

LONG = 300  # words of a made-up text for a model that reads any length


def samples_of(clf: Any, run: str | Path, count: int, seed: int = 0) -> tuple[list[Any], list[str] | None]:
    """``count`` inputs, and their labels where they are known.

    Texts come from the run's ``predictions.csv`` as far as it goes; the rest are random words of the
    vocabulary, from one to more than the model reads. Pictures are smooth noise of several sizes.
    """
    rng = np.random.default_rng(seed)
    if clf.NOUN == "pictures":
        return [random_picture(rng) for _ in range(count)], None
    texts, labels = [], []
    file = Path(run) / "predictions.csv"
    if file.is_file() and not clf.kind_.labels_given:
        rows = list(islice(texts_in(file), 50 * count))
        texts = [rows[i] for i in sorted(rng.permutation(len(rows))[:count].tolist())]
    elif file.is_file():
        rows = list(islice(read_predictions(file), 50 * count))
        chosen = sorted(rng.permutation(len(rows))[:count].tolist())
        texts, labels = [rows[i].text for i in chosen], [rows[i].label for i in chosen]
    known = len(texts) == count and all(labels)
    pairs = clf.reads_pairs
    while len(texts) < count:
        made = random_text(clf, rng)
        texts.append(TextPair(made, random_text(clf, rng)) if pairs else made)
    return texts, labels if known else None


def random_text(clf: Any, rng: np.random.Generator) -> str:
    """Words of the vocabulary, as many as one in a short text or more than fit."""
    if not clf.reads_tokens:
        known = [*clf.tokenizer_.words, *clf.tokenizer_.pieces]
        drawn = rng.integers(0, len(known), int(np.exp(rng.uniform(0, np.log(LONG)))) + 1)
        return " ".join(known[i] for i in drawn.tolist()).strip() or "text"
    return random_words(clf.tokenizer_, clf.max_length, rng)


def random_words(tokenizer: Any, longest: int, rng: np.random.Generator) -> str:
    """The same of a tokenizer, of texts that have room for ``longest`` tokens."""
    length = int(np.exp(rng.uniform(0, np.log(1.2 * longest)))) + 1
    text = tokenizer.decode(
        rng.integers(0, tokenizer.get_vocab_size(), length).tolist(), skip_special_tokens=True
    )
    text = text.replace("\0", "")  # a token of byte-level vocabularies, and no text's
    return text if text.strip() else "text"


def random_picture(rng: np.random.Generator) -> np.ndarray:
    """A few blurred spots of colour, ``[H, W, 3]`` uint8."""
    height, width = rng.integers(8, 200, 2)
    coarse = rng.integers(0, 256, (int(rng.integers(2, 9)), int(rng.integers(2, 9)), 3)).astype(np.uint8)
    from PIL import Image

    return np.asarray(Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC))


def judge_in_fp32(clf: Any, samples: list[Any] | Any, model: Any = None) -> np.ndarray:
    """Logits ``[n, C]`` of the fp32 model, or of ``model``; texts are cut to ``max_length``, with or without
    windows."""
    model, table = (model or clf.model_).eval(), clf.encode(clf.check(samples))
    device = next(model.parameters()).device
    if clf.NOUN == "pictures":
        rows = predict_pictures(model, table, clf.transform_, "logits", device=device)
    else:
        rows = predict_rows(model, table, read_logits, batch_tokens=clf.token_budget(), device=device)
    return finite(rows, "logits")
