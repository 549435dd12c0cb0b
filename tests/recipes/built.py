"""A recipe built as its fit would build it, up to the first step: network, optimizer, batches, preprocessing."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import numpy as np

from glassformer import save_pretrained
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.splits import make_splits
from glassformer.data.text import wordpiece_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.families.bert import bert
from glassformer.families.vit import vit
from glassformer.inputs.images import save_transform
from glassformer.models.image import ImageEncoder
from glassformer.models.text import TextEncoder
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.train.optim import learning_rate

WORDS = ("film", "story", "good", "bad", "long", "scene", "actor", "music", "ending", "plot")
IMAGENET_CLASSES = 1_000


def texts(count: int = 53) -> list[str]:
    """Reviews with a tag, marks, a word of each one's own, and lengths all over."""
    rng = random.Random(0)
    return [
        f"The_film<br />{' '.join(rng.choices(WORDS, k=3 + 11 * i % 29))}, it's {WORDS[i % 2]}! own{i}. {LONG * (i == 7)}"
        for i in range(count)
    ]


LONG = "word " * 700


class Stop(Exception):
    """Everything is built."""


@dataclass
class Built:
    """What a fit holds before its first step."""

    recipe: Any
    estimator: Any
    fitted: dict[str, Any]  # what the estimator has learned so far: tokenizer, transform, classes
    training: Any
    stream: Any
    objective: Any
    calls: list[Any]

    @property
    def model(self) -> Any:
        return self.training.model

    @property
    def config(self) -> Any:
        return self.training.config

    @property
    def layer(self) -> Any:
        return self.model.encoder.layers[-1]

    @property
    def adam(self) -> Any:
        return self.training.optimizer.optimizers[0]

    def group(self, key: str) -> Any:
        values = {g[key] for g in self.adam.param_groups}
        return values.pop() if len(values) == 1 else values

    def batch(self, number: int = 0) -> Any:
        return self.stream.steps(0)[number][0]

    @property
    def rates(self) -> set[float]:
        return {learning_rate(step, 101, self.config) for step in range(101)}

    def tokens(self, text: str) -> list[str]:
        self.estimator.__dict__.update(self.fitted)
        table = self.estimator.encode([text])
        return [self.fitted["tokenizer_"].id_to_token(int(i)) for i in table.ids]


def _folder() -> Path:
    """A new folder, gone when the tests are."""
    return Path(mkdtemp(prefix="given-", dir=os.environ.get("GLASSFORMER_TEST_HOME")))


@cache
def checkpoint(kind: str) -> str:
    """A tiny checkpoint as the Hub lays out BERT, or a ViT with a head of 1,000 classes."""
    folder = _folder()
    if kind == "bert":
        tokenizer = wordpiece_tokenizer(texts())
        save_pretrained(
            TextEncoder(bert(tokenizer.get_vocab_size(), 12, 2, 3, 17, 512, head="pretraining")), folder
        )
        tokenizer.save(str(folder / "tokenizer.json"))
    else:
        config = vit((224, 224), (16, 16), 12, 2, 3, 17, pooling="first", head="classification")
        save_pretrained(ImageEncoder(replace(config, num_labels=IMAGENET_CLASSES)), folder)
        save_transform(ImageTransform((224, 224)), folder)
    return str(folder)


@cache
def built(name: str, *changes: str) -> Built:
    """A recipe with ``KEY=VALUE`` changes, on made-up data, and on a tiny checkpoint where it begins with one."""
    recipe = load_recipe(name, changes)
    wanted = getattr(getattr(recipe, "model", None), "model", "")
    small = ["threads=1"]
    if str(wanted).startswith(("bert-", "vit-base-patch")):
        small.append(f"model={checkpoint('bert' if wanted.startswith('bert') else 'vit')}")
    estimator = TASKS[recipe.task].estimator.from_recipe(load_recipe(name, [*changes, *small]))
    found: list[Built] = []

    def caught(calls: Any, training: Any, stream: Any, objective: Any, judge: Any) -> None:
        fitted = {key: value for key, value in vars(estimator).items() if key.endswith("_")}
        found.append(Built(recipe, estimator, fitted, training, stream, objective, list(calls)))
        raise Stop

    places = ("glassformer.tasks.estimator.run_with", "glassformer.tasks.word2vec.estimator.run_with")
    with patch(places[0], caught), patch(places[1], caught), suppress(Stop):
        estimator.fit(*data_of(recipe), checkpoints=_folder())
    return found[0]


def data_of(recipe: Any) -> tuple:
    made = texts()
    if recipe.task == "image-classification":
        rng = np.random.default_rng(0)
        return [rng.integers(0, 256, (37, 41, 3), dtype=np.uint8) for _ in range(43)], [
            i % 10 for i in range(43)
        ]
    if recipe.task == "translation":
        return made, made[::-1]
    if recipe.task == "masked-lm":
        return (made,)
    if recipe.task == "word2vec":
        return ([text.split() for text in made[:6] + made[8:]],)
    return made, [i % 2 for i in range(len(made))]


@cache
def splits(name: str, *changes: str) -> tuple[int, int | None, int]:
    """How many examples a recipe learns from, chooses by and judges, of 25,000 and 25,000."""
    recipe = load_recipe(name, changes)
    labels = [i % 2 for i in range(25_000)]
    part = {s: TextSplit([s] * 25_000, labels, s) for s in ("train", "test")}
    found = make_splits(TextDataset("made", part, ()), recipe.data, recipe.evaluate.split)
    return len(found.train), None if found.validation is None else len(found.validation), len(found.evaluated)


DataPreview = Callable[[Built], Any]
