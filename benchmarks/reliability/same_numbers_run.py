"""One side of ``same_numbers.py``: asks whichever glassformer is first on PYTHONPATH, by its public names alone.

same_numbers_run.py train RECIPE FOLDER [KEY=VALUE ...]
same_numbers_run.py begin FOLDER                  a fine-tuning, stopped after its first step
same_numbers_run.py go-on FOLDER FILE.json        the same from there to step 60
same_numbers_run.py ask MODEL FILE.json ONNX      what a saved model says, and its ONNX graph
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 60
METHODS = (
    "attention",
    "rollout",
    "gradient_x_input",
    "integrated_gradients",
    "attention_gradient",
    "occlusion",
)
TEXTS = ["A compelling story with mediocre acting, but I loved the music.", "What a complete waste of time!"]


class StopAfter:
    """A callback that ends a training after so many steps."""

    def __init__(self, steps: int):
        self.steps = steps

    def start(self, training: Any) -> None:
        """Nothing yet."""

    def step(self, training: Any, info: Any) -> None:
        if training.step >= self.steps:
            raise KeyboardInterrupt

    def end(self, training: Any) -> None:
        """Nothing more."""


def reviews(count: int) -> tuple[list[str], list[int]]:
    """Training reviews of IMDb, both classes in turn."""
    import pyarrow.parquet as pq

    table = pq.read_table(Path(os.environ["GLASSFORMER_DATA"]) / "imdb" / "train.parquet")
    half = len(table) // 2
    rows = [i // 2 + half * (i % 2) for i in range(count)]
    found = table.take(rows).to_pydict()
    return found["text"], found["label"]


def fine_tuner() -> Any:
    import glassformer as gf

    return gf.TextClassifier("all-minilm-l6-v2", epochs=1, lr=1e-4, layer_decay=0.9, batch_size=8, max_length=64,
                             threads=1, checkpoint_every=1, dropout=0.1, seed=3)  # fmt: skip


def begin(folder: Path) -> None:
    try:
        fine_tuner().fit(*reviews(8 * STEPS), checkpoints=folder, callbacks=[StopAfter(1)])
    except KeyboardInterrupt:
        return
    raise SystemExit("the training was not stopped")


def go_on(folder: Path, out: Path) -> None:
    texts, labels = reviews(8 * STEPS)
    clf = fine_tuner().fit(texts, labels, checkpoints=folder, resume=True)
    steps = [record["loss"] for record in clf.history_ if record["kind"] == "step"]
    answers = clf.predict_proba(texts[:50]).tolist()
    out.write_text(json.dumps({"losses": steps, "probabilities": answers}), encoding="utf-8")


def ask(model: Path, out: Path, onnx: Path) -> None:
    import glassformer as gf
    from glassformer.cli.app import main

    clf = gf.load(model)
    told: dict[str, Any] = {"predict_proba": clf.predict_proba(reviews(100)[0]).tolist(),
                            "embed": digest(clf.embed(TEXTS))}  # fmt: skip
    for method in METHODS:
        told[method] = [clf.explain(text, method=method).scores.tolist() for text in TEXTS]
    code = main(["export", str(model), "--to", "onnx", "--out", str(onnx), "--check", "20"])
    told["export's exit code"] = code
    told["ONNX graph"] = graph(onnx / "model.onnx")
    out.write_text(json.dumps(told), encoding="utf-8")


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def graph(path: Path) -> dict[str, Any]:
    """Nodes and weights; what only says where in the source a node was made is left out."""
    import onnx

    found = onnx.load(path).graph
    nodes = [f"{n.op_type} {list(n.input)} {list(n.output)} "
             f"{sorted(a.SerializeToString().hex() for a in n.attribute)}" for n in found.node]  # fmt: skip
    weights = {
        i.name: hashlib.sha256(onnx.numpy_helper.to_array(i).tobytes()).hexdigest() for i in found.initializer
    }
    return {"nodes": nodes, "weights": weights, "inputs": [i.name for i in found.input],
            "outputs": [o.name for o in found.output]}  # fmt: skip


def train(recipe: str, folder: Path, settings: list[str]) -> None:
    from glassformer.cli.app import main

    words = [word for setting in settings for word in ("--set", setting)]
    if code := main(["train", recipe, "--out", str(folder), *words]):
        raise SystemExit(code)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "train":
        train(rest[0], Path(rest[1]), rest[2:])
    else:
        {"begin": begin, "go-on": go_on, "ask": ask}[verb](*map(Path, rest))
