"""A fit of any task that is stopped goes on to the bits of one that was not, whatever draws numbers on the way."""

from typing import Any

import pytest
from sklearn.base import clone
from tests.stopping import same, stopped_and_resumed, without_clock

from glassformer import Translator
from glassformer.errors import CheckpointError
from glassformer.tasks.catalog import TASKS

NOISY = {"dropout": 0.2, "validation_fraction": 0.3, "average": 0.9, "epochs": 3, "checkpoint_every": 1}
RECURRENT = {"num_heads": None, "d_ff": None, "embedding_dim": 7, "vectors": "word2vec"}
HEADLESS = {key: Translator.defaults()[key] for key in ("num_heads", "d_ff")}
TEXTS, IMAGES = "text-classification", "image-classification"
# Task, settings, and what becomes of the data of its example.
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    **{
        name: (name, {}, None) for name in TASKS if name != "word2vec"
    },  # whose two engines tests/vectors stops
    "lstm": (TEXTS, RECURRENT | {"model": "lstm"}, None),
    "gru": (TEXTS, RECURRENT | {"model": "gru"}, None),
    "textcnn": (TEXTS, RECURRENT | {"model": "textcnn", "num_layers": None}, None),
    "hidden words": (TEXTS, {"word_dropout": 0.2, "attention_dropout": 0.1, "precision": "bf16"}, None),
    "pairs": (TEXTS, {}, lambda X, y: ([*zip(X, [*X[1:], X[0]])], y)),
    "several labels": (
        TEXTS,
        {"pos_weight": "root"},
        lambda X, y: (X, [("dog",) * v + ("odd",) * (i % 2) for i, v in enumerate(y)]),
    ),
    "augmented": (
        IMAGES,
        {"augment": "strong", "mix": "both", "optimizer": "muon", "patch_dropout": 0.5},
        None,
    ),
    "unfrozen": (
        IMAGES,
        {"augment": "shift", "train_layers": 0, "unfreeze_every": 1, "precision": "bf16"},
        None,
    ),
    "recurrent translation": ("translation", {"model": "rnn", "attention": "dot"} | HEADLESS, None),
    "next sentence": ("masked-lm", {"next_sentence": True}, None),
    "augmented patches": ("masked-patches", {"augment": "light"}, None),
    "partners": ("similarity", {}, lambda X, y: (X,)),
    "classes of texts": (
        "similarity",
        {"pairs_per_text": 3},
        lambda X, y: ([a for a, _ in X], [str(i % 2) for i in range(len(X))]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_goes_on_to_the_same_bits_and_not_on_other_data(name, tmp_path):
    task, settings, change = CASES[name]
    estimator, data = TASKS[task].example_fixture()
    data = change(*data) if change else data
    noisy = {key: value for key, value in NOISY.items() if key in estimator.get_params()}
    estimator.set_params(**noisy | settings)
    whole = clone(estimator).fit(*data)
    found = stopped_and_resumed(estimator, *data, folder=tmp_path, at=(1, 4))
    assert same(found, whole)
    assert without_clock(found.history_) == without_clock(whole.history_)
    assert same(
        clone(estimator).fit(*data, checkpoints=tmp_path, resume=True), whole
    )  # nothing is left to do
    with pytest.raises(CheckpointError, match="was made with"):
        clone(estimator).fit(*(part[:-1] for part in data), checkpoints=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="has checkpoints"):
        clone(estimator).fit(*data, checkpoints=tmp_path)
