"""Recipes that stand beside another one differ from it in what their header says, and in nothing else."""

from dataclasses import asdict
from typing import Any

import pytest

from glassformer.tasks.catalog import load_recipe

from .built import built

TWINS = {
    ("imdb-mlm-alone", "imdb-mlm-given"): {"text.next_sentence": False},
    ("imdb-minilm-15k-given", "imdb-bert-15k"): {"model.model": "all-minilm-l6-v2"},
    ("imdb-own-bert-15k-given", "imdb-bert-15k"): {"model.model": "runs/imdb-mlm-given/model"},
    ("imdb-minilm-given", "imdb-bert-given"): {"model.model": "all-minilm-l6-v2", "train.precision": "auto"},
    ("imdb-own-bert-given", "imdb-bert-given"): {
        "model.model": "runs/imdb-mlm/model",
        "train.precision": "auto",
    },
    ("cifar10-dinov2-given", "cifar10-vit-base-given"): {"model.model": "dinov2"},
    ("flowers-dinov2-given", "flowers-pretrained"): {
        "image.mean": (),
        "image.std": (),
        "model.model": "dinov2",
    },
    ("countries-word2vec-best", "countries-word2vec"): {
        "data.source": "countries-given",
        "data.splits": ("train", "validation", "test"),
        "data.clean": "trim",
        "vectors.window": 2,
        "judge.tests": ("countries-given",),
    },
}


def settings(name: str) -> dict[str, Any]:
    """Every setting of a recipe as ``section.key``, without its texts."""
    sections = {k: v for k, v in asdict(load_recipe(name)).items() if isinstance(v, dict)}
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


@pytest.mark.parametrize(("name", "other"), TWINS, ids=lambda name: name)
def test_a_twin_differs_in_what_it_says(name: str, other: str):
    mine, theirs = settings(name), settings(other)
    assert {key: value for key, value in mine.items() if theirs[key] != value} == TWINS[name, other]


def test_the_ablation_has_no_second_task_in_what_is_built():
    with_pairs, alone = built("imdb-mlm-given"), built("imdb-mlm-alone")
    assert with_pairs.model.nsp.out_features == 2
    assert alone.model.nsp is None
    assert type(alone.adam) is type(with_pairs.adam)
    assert alone.model.config.encoder == with_pairs.model.config.encoder
