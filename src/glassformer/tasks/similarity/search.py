"""Semantic search: an index of texts with their embeddings, and the nearest neighbors of a query.

An index is a folder without pickle:

index.json           number of texts, width of the embeddings, digest of the model
texts.jsonl          one text per line, with its row number in the file and the other columns of the row
vectors.safetensors  [m, E] fp32, vectors of length 1
manifest.json        sizes and checksums of these files; written last
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.files import read_json, verify_folder, write_folder
from glassformer.checkpoints.settings import get_size, get_text
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.checks import check_texts
from glassformer.errors import CheckpointError, DataError, IncompleteError
from glassformer.finite import json_text

INDEX_FILE, TEXTS_FILE, VECTORS_FILE = "index.json", "texts.jsonl", "vectors"
FORMAT = 1


@dataclass(frozen=True)
class TextIndex:
    """Texts and their embeddings."""

    texts: list[str]
    vectors: np.ndarray  # [m, E] fp32, of length 1
    model: str  # digest of the weights that computed the vectors
    rows: Sequence[int] | None = None  # row number of each text in its file; None: there is no file
    other_columns: Sequence[Mapping[str, Any]] | None = None  # the other columns of the row of each text

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> int:
        """The row number of text ``i`` in its file; without a file, its position from 1."""
        return i + 1 if self.rows is None else self.rows[i]

    def columns(self, i: int) -> dict[str, Any]:
        """``{"columns": ...}`` with the other columns of the row of text ``i``; empty if there are none."""
        columns = self.other_columns[i] if self.other_columns else {}
        return {"columns": dict(columns)} if columns else {}


def is_index(path: str | Path) -> bool:
    """Whether a folder is a saved index."""
    return (Path(path) / INDEX_FILE).is_file()


def save_index(index: TextIndex, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write an index to a folder."""

    def write(folder: Path) -> None:
        metadata = {
            "format": FORMAT,
            "kind": TextIndex.__name__,
            "texts": len(index),
            "width": index.vectors.shape[1],
            "model": index.model,
        }
        (folder / INDEX_FILE).write_text(json_text(metadata, indent=2, ascii=True) + "\n", encoding="utf-8")
        lines = (
            json_text({"row": index.row(i), "text": text, **index.columns(i)}) + "\n"
            for i, text in enumerate(index.texts)
        )
        (folder / TEXTS_FILE).write_text("".join(lines), encoding="utf-8")
        write_tensors(folder, {"vectors": torch.from_numpy(index.vectors)}, name=VECTORS_FILE)

    return write_folder(path, write, overwrite=overwrite)


def load_index(path: str | Path, model: str) -> TextIndex:
    """Load an index and verify the checksums of its files; ``model`` is the digest of the model."""
    folder = Path(path)
    if not is_index(folder):
        raise IncompleteError(
            f"is not an index: it has no {INDEX_FILE}", where=str(folder), fix="Save one first"
        )
    verify_folder(folder)
    metadata, where = read_json(folder / INDEX_FILE), str(folder / INDEX_FILE)
    if metadata.get("format") != FORMAT or metadata.get("kind") != TextIndex.__name__:
        raise CheckpointError("is not an index of this version", where=where, fix="Make it again")
    if get_text(metadata, "model", where, "") != model:
        what = "its vectors were computed by another model"
        raise CheckpointError(what, where=str(folder), fix="Make the index again with this model")
    texts, rows, other_columns = _read_texts(folder / TEXTS_FILE)
    vectors = read_tensors(folder, VECTORS_FILE).get("vectors")
    shape = (get_size(metadata, "texts", where), get_size(metadata, "width", where))
    if vectors is None or tuple(vectors.shape) != shape or len(texts) != shape[0]:
        what = f"texts and vectors are not {shape[0]:,} of {shape[1]:,} numbers, as {INDEX_FILE} says"
        raise CheckpointError(what, where=str(folder), fix="Make it again")
    return TextIndex(texts, vectors.float().numpy(), model, rows, other_columns)


def _read_texts(file: Path) -> tuple[list[str], list[int], list[dict[str, Any]]]:
    texts: list[Any] = []
    rows: list[int] = []
    other_columns: list[dict[str, Any]] = []
    with file.open(encoding="utf-8") as lines:
        for i, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                texts.append(record["text"])
                rows.append(int(record["row"]))
                other_columns.append(dict(record.get("columns", {})))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise CheckpointError("is not a text with a row number", where=f"{file}, line {i}") from None
    return check_texts(texts, str(file)), rows, other_columns


# --- nearest neighbors ----------------------------------------------------------------------------


ROUNDING = 1e-6  # maximum rounding error of a cosine in fp32
BLOCK = 1024  # number of vectors that are compared with all others at a time
MAX_PAIRS = 1_000_000  # maximum number of near-duplicate pairs
EXTRA_CANDIDATES = 32  # number of candidates beyond ``k`` that the search in bf16 finds
# Maximum error of a cosine in bf16: 2**-9 for each vector and for their product, and a little for sums.
BF16_COSINE_ERROR = 3 * 2.0**-9 + 2.0**-11


def are_vectors(table: Any) -> bool:
    """Whether ``table`` has vectors ``[m, E]``, not texts."""
    return isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind not in "OUST"


def near_duplicate_pairs(vectors: np.ndarray, least: float) -> list[tuple[int, int, float]]:
    """Pairs of vectors ``[n, E]`` of length 1 with a cosine of at least ``least``, highest first.

    Raises:
        DataError: there are more than ``MAX_PAIRS`` pairs.
    """
    x = torch.from_numpy(np.ascontiguousarray(vectors, np.float32))
    first, second, cosines = [], [], []
    for start in range(0, len(x), BLOCK):
        block = x[start : start + BLOCK] @ x[start:].T  # [BLOCK, n - start]
        i, j = torch.triu(block >= least - ROUNDING, diagonal=1).nonzero(as_tuple=True)
        first.append(i + start)
        second.append(j + start)
        cosines.append(block[i, j])
        if (count := sum(map(len, first))) > MAX_PAIRS:
            what = f"{count:,} pairs and more have a cosine of {least:g} or above"
            raise DataError(what, where="doubles", fix="Ask for a higher one")
    if not first:
        return []
    best = torch.sort(torch.cat(cosines), descending=True, stable=True)
    rows = torch.cat(first)[best.indices].tolist(), torch.cat(second)[best.indices].tolist()
    return list(zip(*rows, best.values.clamp(-1, 1).tolist(), strict=True))


def nearest(
    queries: np.ndarray, table: np.ndarray, k: int, dtype: torch.dtype = torch.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and cosines ``[n, k]`` of the ``k`` vectors of ``table`` nearest to each query.

    All vectors have length 1. With the ``dtype`` bf16, the search finds candidates first and then computes
    their cosines in fp32. If another vector could be nearer, the query is compared with all in fp32.
    """
    k = min(k, len(table))
    num_candidates = k if dtype == torch.float32 else min(k + EXTRA_CANDIDATES, len(table))
    q, t = torch.from_numpy(queries), torch.from_numpy(np.ascontiguousarray(table))
    rows, cosines, converted = [], [], t.to(dtype)
    for batch in q.split(256):
        candidates = (batch.to(dtype) @ converted.T).float().topk(num_candidates, 1)
        exact = torch.einsum("qe,qce->qc", batch, t[candidates.indices])  # [queries, candidates]
        best = torch.sort(exact, dim=1, descending=True, stable=True)
        indices, values = candidates.indices.gather(1, best.indices[:, :k]), best.values[:, :k]
        if dtype != torch.float32 and num_candidates < len(table):
            # The cosine of another row is at most BF16_COSINE_ERROR above that of the last candidate.
            uncertain = values[:, -1] < candidates.values[:, -1] + BF16_COSINE_ERROR
            if uncertain.any():
                values[uncertain], indices[uncertain] = (batch[uncertain] @ t.T).topk(k, 1)
        rows.append(indices)
        cosines.append(values)
    return torch.cat(rows).numpy(), torch.cat(cosines).clamp(-1, 1).numpy()


def at_least(cosine: float, least: float | None) -> bool:
    """Whether a cosine is at least ``least``, up to rounding in fp32."""
    return least is None or least <= -1 or cosine >= least - ROUNDING
