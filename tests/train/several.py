"""What test_distributed.py runs in each of two processes: fits that are compared with those of one process.

torchrun --nproc-per-node 2 several.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from glassformer import ImageClassifier, TextClassifier
from glassformer.train.callbacks import Callback

STEPS = 20
WORDS = ["a", "film", "story", "plot", "good", "bad", "dull", "fine", "very", "not"]
SAME = {"epochs": 2, "lr": 3e-3, "precision": "fp32", "threads": 1, "checkpoint_every": 5, "seed": 3}


def texts(count: int = 83, seed: int = 1) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    found = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(count)]
    return found, ["pos" if "good" in text or "fine" in text else "neg" for text in found]


def pictures(count: int = 61, seed: int = 1) -> tuple[list[np.ndarray], list[int]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    return [rng.integers(0, 80 * (c + 1), (8, 8, 3), np.uint8) for c in labels], labels.tolist()


def text_classifier(**changes) -> TextClassifier:
    sizes = {"d_model": 12, "num_layers": 2, "num_heads": 2, "d_ff": 20, "dropout": 0.0, "min_count": 1}
    return TextClassifier("encoder-small", **SAME | {"batch_size": 7, "average": 0.9} | sizes | changes)


def image_classifier(**changes) -> ImageClassifier:
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 12, "num_layers": 2, "num_heads": 2, "d_ff": 20}
    options = {"batch_size": 6, "accumulate": 2, "augment": "shift", "dropout": 0.0, "epochs": 4}
    return ImageClassifier("vit-tiny", **SAME | sizes | options | changes)


CASES = {"text": (text_classifier, texts), "image": (image_classifier, pictures)}
STRATEGIES = (("text", "fsdp"), ("image", "ddp"))


class StopAt(Callback):
    """Leaves a fit in its middle, as a signal would."""

    def __init__(self, step: int):
        self.last = step

    def step(self, training, info) -> None:
        if info.step == self.last:
            raise KeyboardInterrupt


def fit(kind: str, folder: Path, *, stop: int | None = None, **changes) -> dict:
    """History and weights of a fit with ``changes``, from the newest checkpoint in ``folder``, if there is one."""
    make, data = CASES[kind]
    estimator = make(**changes)
    calls = [] if stop is None else [StopAt(stop)]
    try:
        estimator.fit(
            *data(), validation=data(23, seed=2), checkpoints=folder, resume=folder.exists(), callbacks=calls
        )
    except KeyboardInterrupt:
        return {}
    weights = {n: w.double().sum().item() for n, w in estimator.model_.state_dict().items()}
    return {"history": estimator.history_, "weights": weights}


def main(folder: Path) -> None:
    """Each case under a strategy; then a fit that one process has begun, and one that it is to end."""
    out = {
        f"{kind} {strategy}": fit(kind, folder / f"{kind}-{strategy}", strategy=strategy)
        for kind, strategy in STRATEGIES
    }
    out["one to two"] = fit("text", folder / "begun-by-one", strategy="fsdp")
    fit("text", folder / "begun-by-two", strategy="fsdp", stop=12)
    noisy = {"dropout": 0.3, "word_dropout": 0.2}
    out["whole"] = fit("text", folder / "whole", **noisy)
    fit("text", folder / "broken", stop=13, **noisy)
    out["resumed"] = fit("text", folder / "broken", **noisy)
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
