"""Prediction methods of ``Embedder``: embeddings, cosines, nearest neighbors, classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.data.batching import pack_texts
from glassformer.data.checks import check_labels, check_texts
from glassformer.data.text import clean_text
from glassformer.errors import ConfigError, DataError, UnequalLengthsError
from glassformer.explain.similarity import SimilarityExplanation, contributions
from glassformer.inputs.texts import TextsForVectors
from glassformer.models.sentences import Dense, token_limit
from glassformer.runtime import choose_dtype, computes, computing
from glassformer.targets.multiclass import Classes
from glassformer.targets.similarity import spearman
from glassformer.tasks.estimator import digest
from glassformer.tasks.heads import Head, unit
from glassformer.tasks.similarity.build import LONGEST
from glassformer.tasks.similarity.index import TextIndex, load_index, save_index
from glassformer.tasks.similarity.pairs import Pairs, check_text_pairs

ROUNDED = 1e-6  # maximum rounding error of a cosine in fp32
BLOCK, MOST_PAIRS = 1024, 1_000_000  # rows per matrix product; maximum number of pairs returned
CANDIDATES = 32  # additional nearest rows in bf16 whose cosines are computed in fp32
# Maximum error of a cosine in bf16: 2**-9 (half a unit in the last of 8 binary places) for each vector and
# for their product, and a little for sums in fp32.
APART = 3 * 2.0**-9 + 2.0**-11


class Answers:
    """Embedding, similarity, search and classification of a fitted ``Embedder``."""

    INPUTS = TextsForVectors()
    check = staticmethod(check_texts)
    precision: Any
    model_: Any
    index_: TextIndex | None
    classes_: np.ndarray | None
    head_: Head | None
    tokenizer_: Any
    truth_ = False  # whether the training labels were booleans, so that ``predict`` returns booleans
    clean: Any
    predictor: Any
    _how: Any
    table: Any
    reader: Any
    rows_of: Any
    _check_fitted: Any

    def texts_of(self, X: Any) -> list[str]:
        """Checked texts; from a table, the column that ``fit`` used, if any."""
        return check_texts(self.rows_of(X))

    def columns_per_example(self) -> int:
        """Number of columns per example in prediction: 1, also after training on pairs."""
        return 1

    @computes
    def encode(
        self, texts: Sequence[str], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Embed each text, ``[n, E]`` fp32; the same as ``SentenceTransformer.encode``.

        Raises:
            InputError: an unusable text, or no prompt of that name.
        """
        model, texts = self.predictor(), [clean_text(text, self.clean) for text in self.texts_of(texts)]
        options = {"prompt_name": prompt_name, "prompt": prompt, "tokenizer": self.tokenizer_}
        return model.sentences.embed(model, texts, **options)

    def directions(self, texts: Sequence[str]) -> np.ndarray:
        """Normalized embeddings ``[n, E]`` fp32: the dot product of two is their cosine.

        Raises:
            ConfigError: the checkpoint uses another similarity than the cosine.
        """
        self._check_fitted()
        self._how.check_cosine("similarity")
        return unit(self.encode(texts))

    def skipped(self) -> int:
        """Number of tokens of the default prompt, which are left out in pooling."""
        how = self._how
        return how.prompt_rows(how.prompt(None, None), self.reader(), how.max_length or LONGEST)

    @computes
    def explain_similarity(self, a: str, b: str) -> SimilarityExplanation:
        """Explain the cosine of two texts: the contribution of each pair of tokens; these sum to the cosine.

        Raises:
            DataError: an unusable text.
            ConfigError: a pooling or later layer that makes embeddings no sum over tokens.
        """
        model, texts = self.predictor(), check_texts([a, b])
        self._how.check_cosine("explain_similarity")
        table = self.table(texts)
        parts = []
        with computing():
            for row in range(2):
                batch = pack_texts(table, np.array([row]), next(model.parameters()).device)
                states = model.encode(batch.ids, batch.packing, segments=batch.segments).float()
                parts.append(states.cpu())
        tokens = [[self.tokenizer_.id_to_token(int(i)) or "?" for i in table[row]] for row in range(2)]
        cut = [
            f"the {name} text is longer than {len(table[row])} tokens and was cut there"
            for row, name in enumerate(("first", "second"))
            if table.truncated[row]
        ]
        added, score = contributions(self._how, parts[0], parts[1])
        return SimilarityExplanation(texts[0], texts[1], tokens[0], tokens[1], added, score, tuple(cut))

    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that writes and checks these predictions in an export."""
        from glassformer.export.outputs import TextVectors

        return TextVectors(self)

    def embed(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        """Same as ``encode``, with the name of the method in classifiers."""
        return self.encode(texts, **options)

    def transform(self, X: Sequence[str]) -> np.ndarray:
        """Same as ``encode``, for use in scikit-learn's ``Pipeline``."""
        return self.encode(X)

    def fit_transform(self, X: Sequence[str], y: Any = None) -> np.ndarray:
        """Same as ``transform``: in a ``Pipeline`` the encoder is not trained. To train it, call ``fit``
        before."""
        return self.transform(X)

    def longest(self) -> int:
        """Maximum number of tokens of a text, special ones included."""
        self._check_fitted()
        return token_limit(self.model_.config.embedding, self._how.max_length)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool."""
        self._check_fitted()
        return np.asarray(self.table(self.texts_of(texts)).truncated)

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> Any:
        """Cosine of two texts; for lists, of each text of one with each of the other, ``[n, m]``."""
        one = isinstance(a, str) and isinstance(b, str)
        first, second = (self.directions([t] if isinstance(t, str) else t) for t in (a, b))
        cosines = first @ second.T
        return float(cosines[0, 0]) if one else cosines

    def index(
        self,
        texts: Sequence[str],
        rows: Sequence[int] | None = None,
        beside: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Embed and store texts for ``similar``.

        Args:
            rows: row number of each text in its file.
            beside: the other columns of each text's row, with values that JSON can represent.
        """
        texts = self.texts_of(texts)
        self.index_ = TextIndex(texts, self.directions(texts), self.weights_digest(), rows, beside)
        return self

    def save_index(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the index to a folder; ``load_index`` opens it.

        Raises:
            ConfigError: there is no index.
            CheckpointError: the folder exists and ``overwrite`` is False, or is not one of ours.
        """
        return save_index(self._indexed(), path, overwrite=overwrite)

    def load_index(self, path: str | Path) -> Any:
        """Load a saved index for ``similar``.

        Raises:
            CheckpointError: no such folder, a damaged one, or the vectors of another model.
        """
        self.index_ = load_index(path, self.weights_digest())
        return self

    def _indexed(self) -> TextIndex:
        index = getattr(self, "index_", None)
        if index is None:
            raise ConfigError("no texts to look among", where="similar", fix="Call index(texts) first")
        return index

    def weights_digest(self) -> str:
        """A digest of everything that affects embeddings: weights, pooling, prompt, cleaning."""
        self._check_fitted()
        tensors = self.model_.state_dict()
        own = self._how
        how = [str(own.pool), str(own.max_length), str(sorted(tensors))]
        # Only added if set, so that indexes of earlier versions keep their digest.
        optional = {"prompt": own.prompt(None, None), "lowercase": own.lowercase, "clean": self.clean}
        optional["truncate_dim"] = own.truncate_dim
        how += [f"{key}={value}" for key, value in optional.items() if value not in ("", False, "none", None)]
        dense = [step for step in own.after if isinstance(step, Dense)]
        arrays = [np.frombuffer("|".join([*how, *(step.activation for step in dense)]).encode(), np.uint8)]
        parts = [x for d in dense for x in (d.weight, d.bias, d.residual_weight) if x is not None]
        arrays += [x.detach().cpu().float().numpy() for x in parts]
        arrays += [tensors[name].detach().cpu().float().numpy() for name in sorted(tensors)]
        return digest(arrays)

    def similar(self, text: str, k: int = 5, least: float = -1.0) -> list[tuple[str, float]]:
        """The ``k`` nearest texts of the index with their cosines, nearest first, without those below
        ``least``."""
        index = self._indexed()
        rows, cosines = self.search([text], index.vectors, k)
        near = zip(rows[0], cosines[0], strict=True)
        return [(index.texts[i], float(c)) for i, c in near if at_least(c, least)]

    def doubles(self, texts: Any, least: float = 0.8) -> list[tuple[int, int, float]]:
        """Find near-duplicates in a list of texts, the most similar pairs first.

        Every text is compared with every other, in fp32.

        Args:
            texts: ``n`` texts, or their embeddings ``[n, E]``.
            least: minimum cosine of a pair, from -1 to 1.

        Returns:
            For each pair the indices of its texts, the lower first, and their cosine.

        Raises:
            DataError: an unusable text, or more than a million pairs.
        """
        return pairs_within(unit(texts) if _are_vectors(texts) else self.directions(texts), least)

    def search(self, queries: Sequence[str], table: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """For each query the indices of the ``k`` nearest rows of a table and their cosines, ``[n, k]`` each.

        The search is exact. If the CPU multiplies in bf16, candidates are found in bf16 and their cosines
        computed in fp32; if the candidates do not settle which rows are nearest, all rows are compared in
        fp32.

        Args:
            table: texts, or their embeddings ``[m, E]``.

        Raises:
            ConfigError: ``k`` below 1.
            DataError: an unusable text, or embeddings of another width.
        """
        if k < 1:
            raise ConfigError(f"k {k} asks for nothing", where="search", fix="Use 1 or more")
        query_vectors = self.directions(queries)
        if not _are_vectors(table):
            table = self.encode(table)
        vectors = table
        if vectors.shape[1] != query_vectors.shape[1]:
            what = f"vectors of {vectors.shape[1]} numbers, the model's have {query_vectors.shape[1]}"
            raise DataError(what, where="search", fix="Give texts, or vectors of this model")
        return nearest(query_vectors, unit(vectors), k, choose_dtype(self.precision, torch.device("cpu")))

    # --- classification, after a fit with labels -----------------------------------------------------

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """Probabilities ``[n, C]``, after a fit with labels."""
        self._check_fitted()
        if self.head_ is None:
            raise ConfigError("was not fitted with labels", where="predict", fix="Use fit(texts, labels)")
        return self.head_.probabilities(self.encode(X))

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable class of each text."""
        best = self.predict_proba(X).argmax(1)
        assert self.classes_ is not None
        return Classes(truth=self.truth_).as_given(self.classes_[best])

    def score(self, X: Any, y: Any) -> float:
        """Spearman correlation of cosines and scores of pairs; after a fit with labels, accuracy.

        Raises:
            DataError: unusable rows, a wrong number of labels, or labels of another type than in training.
        """
        if getattr(self, "head_", None) is not None:
            assert self.classes_ is not None
            labels, found = check_labels(y), self.predict(X).tolist()
            if len(labels) != len(found):
                what = f"{len(found)} texts, {len(labels)} labels"
                raise UnequalLengthsError(what, where="score", fix="Give one a text")
            if labels and type(labels[0]) is not type(known := self.classes_.tolist()[0]):
                what = f"the label {labels[0]!r} is of another kind than those learned, as {known!r}"
                raise DataError(what, where="labels", fix="Give them as they were given to fit")
            return float(np.mean([a == b for a, b in zip(found, labels, strict=True)]))
        pairs = check_text_pairs(self.rows_of(X, "pairs", 2), y)
        if pairs.scores is None:
            raise DataError("pairs without scores", where="score", fix="Give a number for each pair")
        return spearman(self.cosines(pairs), pairs.scores)

    def cosines(self, pairs: Pairs) -> np.ndarray:
        """The cosine of each pair, ``[n]``."""
        return (self.directions(pairs.first) * self.directions(pairs.second)).sum(1)


def _are_vectors(table: Any) -> bool:
    return isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind not in "OUST"


def pairs_within(table: np.ndarray, least: float) -> list[tuple[int, int, float]]:
    """Pairs of rows with a cosine of at least ``least``, highest first; all vectors are normalized.

    Raises:
        DataError: more than ``MOST_PAIRS``.
    """
    t = torch.from_numpy(np.ascontiguousarray(table, np.float32))
    first, second, cosines = [], [], []
    for start in range(0, len(t), BLOCK):
        block = t[start : start + BLOCK] @ t[start:].T  # [B, n - start]; earlier rows are done
        i, j = torch.triu(block >= least - ROUNDED, diagonal=1).nonzero(as_tuple=True)
        first.append(i + start)
        second.append(j + start)
        cosines.append(block[i, j])
        if (count := sum(map(len, first))) > MOST_PAIRS:
            what = f"{count:,} pairs and more have a cosine of {least:g} or above"
            raise DataError(what, where="doubles", fix="Ask for a higher one")
    if not first:
        return []
    best = torch.sort(torch.cat(cosines), descending=True, stable=True)
    places = torch.cat(first)[best.indices].tolist(), torch.cat(second)[best.indices].tolist()
    return list(zip(*places, best.values.clamp(-1, 1).tolist(), strict=True))


def nearest(
    queries: np.ndarray, table: np.ndarray, k: int, dtype: torch.dtype = torch.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``table`` nearest to each query and their cosines, ``[n, k]``; all vectors are normalized.

    Args:
        dtype: of the first pass. In bf16 it finds candidates, whose cosines are computed in fp32. If another
            row could still be nearer than these, the query is compared with all rows in fp32.
    """
    k = min(k, len(table))
    wide = k if dtype == torch.float32 else min(k + CANDIDATES, len(table))
    q, t = torch.from_numpy(queries), torch.from_numpy(np.ascontiguousarray(table))
    rows, cosines, low = [], [], t.to(dtype)
    for part in q.split(256):
        found = (part.to(dtype) @ low.T).float().topk(wide, 1)  # [Q, wide]
        exact = torch.einsum("qe,qwe->qw", part, t[found.indices])
        best = torch.sort(exact, dim=1, descending=True, stable=True)
        chosen, values = found.indices.gather(1, best.indices[:, :k]), best.values[:, :k]
        if dtype != torch.float32 and wide < len(table):
            # Another row may have a cosine of up to APART above that of the last candidate.
            unsure = values[:, -1] < found.values[:, -1] + APART
            if unsure.any():
                values[unsure], chosen[unsure] = (part[unsure] @ t.T).topk(k, 1)
        rows.append(chosen)
        cosines.append(values)
    return torch.cat(rows).numpy(), torch.cat(cosines).clamp(-1, 1).numpy()


def at_least(cosine: float, least: float | None) -> bool:
    """Whether a cosine is at least ``least``, up to rounding in fp32."""
    return least is None or least <= -1 or cosine >= least - ROUNDED
