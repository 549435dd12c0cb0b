"""396 messages to an online shop, written for this project: six intents, 66 messages each."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np

from glassformer.data.dataset import TextSplit

TRAINING = 8  # messages per intent


def read_messages() -> tuple[list[str], list[str]]:
    """The messages and their intents, in the order of the file."""
    text = files("glassformer.data").joinpath("messages.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [row["text"] for row in rows], [row["intent"] for row in rows]


def messages(
    per_intent: int = TRAINING, seed: int = 0
) -> tuple[dict[str, TextSplit], tuple[str, ...], tuple[str, ...]]:
    """Splits, intents, notes; ``train`` has ``per_intent`` random messages per intent, ``test`` the rest."""
    texts, intents = read_messages()
    names = tuple(sorted(set(intents)))
    rng, of = np.random.default_rng(seed), np.array(intents)
    train = np.sort(
        np.concatenate([rng.permutation(np.flatnonzero(of == name))[:per_intent] for name in names])
    )
    test = np.setdiff1d(np.arange(len(texts)), train)
    splits = {
        split: TextSplit([texts[i] for i in rows], [intents[i] for i in rows], f"messages/{split}", [*rows])
        for split, rows in (("train", train.tolist()), ("test", test.tolist()))
    }
    return splits, names, ()
