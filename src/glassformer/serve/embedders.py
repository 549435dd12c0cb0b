"""A loaded embedder as the server uses it: vectors of texts, how alike two are, and the nearest of a list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.data.batching import pack_texts
from glassformer.data.text import TokenTable, starts_of
from glassformer.errors import InputError
from glassformer.runtime import choose_dtype, computing
from glassformer.serve.limits import Limits
from glassformer.serve.models import CHARS_PER_TOKEN, EXAMPLES, Item, Served
from glassformer.serve.problems import Problem, of_input
from glassformer.tasks.similarity.answers import at_least, nearest
from glassformer.tasks.similarity.pairs import vectors_of

Table = tuple[Sequence[str], Sequence[int], Sequence[Mapping[str, Any]]]  # texts, their rows, other columns


class ServedEmbedder(Served):
    """An embedder under a name; its answers are vectors of length 1."""

    gives = "vectors"

    def __init__(
        self,
        name: str,
        clf: Any,
        limits: Limits,
        *,
        threads: int = 0,
        precision: str = "auto",
        examples: Sequence[str] = (),
    ):
        choose_dtype(precision, torch.device("cpu"))  # a wrong word is refused before anything is served
        clf.longest()  # a checkpoint as it is has been opened
        clf._how.check_cosine(name)
        self.name, self.clf, self.limits = name, clf, limits
        self.kind, self.labels, self.examples = "text", [], list(examples)[:EXAMPLES]
        self.pairs = False  # each text has a vector of its own
        clf.threads, clf.precision = threads, precision

    def estimate(self, inputs: Sequence[str]) -> int:
        most = self.clf.longest()
        return sum(min(len(text) // CHARS_PER_TOKEN + 2, most) for text in inputs)

    def least(self, size: int) -> int:
        return min(size // (2 * CHARS_PER_TOKEN), self.clf.longest())

    def prepare(self, inputs: Sequence[str], what: str = "inputs") -> list[Item]:
        try:
            table = self.clf.table(self.clf.check(inputs, what))
        except InputError as error:
            raise of_input(error) from None
        return [Item((table[i],), len(table[i]), bool(table.truncated[i])) for i in range(len(table))]

    def compute(self, items: Sequence[Item]) -> np.ndarray:
        """Vectors ``[n, E]`` fp32, each of length 1."""
        model = self.clf.predictor()
        rows = [item.rows[0] for item in items]
        starts = starts_of(np.array([len(row) for row in rows], np.int64))
        table = TokenTable(np.concatenate(rows), starts, None, np.zeros(len(rows), bool))
        with computing():
            batch = pack_texts(table, np.arange(len(rows)), next(model.parameters()).device)
            return vectors_of(model, batch, self.clf.skipped()).float().cpu().numpy()

    def search_in(self, given: Path | Table) -> None:
        """Search in this list from now on: a saved index, or texts with their rows and other columns.

        Raises:
            InputError: an index of other weights or a damaged one, or a text that cannot be used.
        """
        if isinstance(given, Path):
            self.clf.load_index(given)
        else:
            self.clf.index(*given)

    @property
    def searched(self) -> int | None:
        """How many texts the list has; None: there is none."""
        index = getattr(self.clf, "index_", None)
        return None if index is None else len(index)

    def look_up(self, vectors: np.ndarray, count: int, least: float | None) -> list[dict[str, Any]]:
        """As ``SearchAnswer`` has it, of texts with these vectors ``[n, E]``."""
        index, out = self.clf.index_, []
        for places, cosines in zip(*nearest(vectors, index.vectors, count), strict=True):
            found = [
                {
                    "row": index.row(int(i)),
                    "cosine": float(c),
                    "text": index.texts[i],
                    "columns": _plain(index.columns(int(i)).get("columns", {})),
                }
                for i, c in zip(places, cosines, strict=True)
                if at_least(c, least)
            ]
            out.append({"found": found, "nearest": float(cosines[0])})
        return out

    def explain_pair(self, a: str, b: str) -> dict[str, Any]:
        """As ``SimilarExplanation`` has it.

        Raises:
            Problem: texts of too many tokens, or a model whose vectors are no sums over tokens.
        """
        tokens = sum(item.tokens for item in self.prepare([a, b], "pairs[0]"))
        if tokens > self.limits.explain_tokens:
            most = f"{tokens} tokens, explanations take {self.limits.explain_tokens} at most"
            raise Problem(413, most, where="pairs[0]", fix="Explain a part of it")
        try:
            found = self.clf.explain_similarity(a, b)
        except InputError as error:
            raise of_input(error) from None
        return {
            "cosine": found.score,
            "tokens": [found.tokens_a, found.tokens_b],
            "table": found.table.tolist(),
            "notes": list(found.notes),
        }

    def warm_up(self) -> None:
        (one,) = self.prepare(["a word " * min(200, self.clf.longest())])
        most = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([one] * max(1, most // one.tokens))
        self.compute([self._small()])

    def about(self, calibrated: bool) -> dict[str, Any]:
        encoder = self.clf.model_.config.encoder
        dtype = next(self.clf.predictor().encoder.parameters()).dtype
        return {
            "name": self.name,
            "kind": self.kind,
            "gives": self.gives,
            "labels": [],
            "examples": self.examples,
            "pairs": False,
            "max_length": self.clf.longest(),
            "size": None,
            "precision": "bf16" if dtype == torch.bfloat16 else "fp32",
            "calibrated": False,
            "temperature": 1.0,
            "threshold": None,
            "layers": encoder.num_layers,
            "heads": encoder.num_heads,
            "methods": [],
            "channels": None,
            "searched": self.searched,
        }


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    """What JSON has no word for is left empty."""
    odd = [name for name, value in columns.items() if isinstance(value, float) and not math.isfinite(value)]
    return columns | dict.fromkeys(odd)
