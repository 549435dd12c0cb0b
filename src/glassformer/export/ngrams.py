"""A linear model as an ONNX folder: ``model.onnx``, ``ngrams.json``, and a ``run.py`` in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.ngrams import FILE, about_ngrams
from glassformer.data.text_pairs import TextPair
from glassformer.export.graph import Run, draw_graph
from glassformer.export.padded import Chances, softmax
from glassformer.export.plain_ngrams import features, numbered
from glassformer.finite import json_text

HERE = Path(__file__).parent
BATCH = 16
PLAIN = "# --- features ---\n"  # where the script has the text of plain_ngrams.py


class PaddedFeatures(nn.Module):
    """A linear model over ``[B, T]`` features and their values; where there is none the value is 0."""

    table: Tensor
    bias: Tensor

    def __init__(self, model: Any, temperature: Any = 1.0, chances: Chances = softmax):
        super().__init__()
        self.temperature, self.chances = temperature, chances
        self.register_buffer("table", model.head.out.weight.detach().T.contiguous())  # [W, C]
        self.register_buffer("bias", model.head.out.bias.detach())

    def forward(self, ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and probabilities, ``[B, C]`` each."""
        logits = (values[:, None] @ self.table[ids])[:, 0] + self.bias
        return logits, self.chances(logits, self.temperature)


def write_features(clf: Any, folder: Path) -> dict[str, Any]:
    """Graph, n-grams and script into a folder; what ``onnx.json`` says of the inputs."""
    module = PaddedFeatures(clf.model_, clf.temperature_, clf.kind_.chances_of).eval()
    given = {"ids": torch.zeros(2, 3, dtype=torch.long), "values": torch.ones(2, 3)}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    draw_graph(module, given, ("logits", "probabilities"), dict.fromkeys(given, axes), folder / "model.onnx")
    about = about_ngrams(clf.tokenizer_) | {"idf": clf.tokenizer_.idf.tolist()}
    text = json_text(about, indent=0) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")
    script = (HERE / "scripts" / "run_ngrams.txt").read_text(encoding="utf-8")
    plain = (HERE / "plain_ngrams.py").read_text(encoding="utf-8")
    (folder / "run.py").write_text(script.replace(PLAIN, plain.split('"""\n', 2)[-1]), encoding="utf-8")
    pairs = {"pairs": True} if clf.reads_pairs else {}
    return {"inputs": {name: ["batch", "length"] for name in given}, **pairs, "clean": clf.clean}


def feature_answers(folder: Path, run: Run, samples: Sequence[str]) -> np.ndarray:
    """Logits ``[n, C]`` of texts by the exported files and the script's own features."""
    about = numbered(read_json(folder / FILE))
    given = [text.sides if isinstance(text, TextPair) else text for text in samples]
    parts = []
    for start in range(0, len(given), BATCH):
        rows = [features(text, about) for text in given[start : start + BATCH]]
        ids = np.zeros((len(rows), max([1, *map(len, rows)])), np.int64)
        values = np.zeros(ids.shape, np.float32)
        for i, row in enumerate(rows):
            ids[i, : len(row)], values[i, : len(row)] = list(row), list(row.values())
        parts.append(run({"ids": ids, "values": values})[0])
    return np.concatenate(parts)
