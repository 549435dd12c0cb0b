"""Sentence embeddings (Reimers and Gurevych, 2019).

    texts --prompt, tokenizer--> packed ids [N] --encoder--> hidden states [N, D]
    --pooling--> [B, D] --dense, normalize--> [B, E]

``checkpoints/sentences.py`` reads these settings from a sentence-transformers folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, normalizers
from torch import Tensor
from torch.nn import functional as F

from glassformer.config import suggest
from glassformer.data.batching import evaluation_batches, pack_texts
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import ConfigError, DataError
from glassformer.finite import finite
from glassformer.packing import Packing
from glassformer.runtime import isolated_torch

# Activations after a dense layer. Keys are names of torch modules.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
    "SiLU": F.silu,
}


# Similarity functions of sentence-transformers (``similarity_fn_name``).
COSINE = "cosine"
SIMILARITIES = (COSINE, "dot", "euclidean", "manhattan")


@dataclass(frozen=True)
class Pool:
    """Pooling step, which concatenates the vectors of all its modes.

    Args:
        modes: keys of ``POOLS``.
        include_prompt: whether pooling includes the tokens of the prompt (and [CLS] before it).
    """

    modes: tuple[str, ...]
    include_prompt: bool = True


@dataclass(frozen=True, eq=False)
class Dense:
    """Dense step: ``f(W x + b)``, optionally with a residual connection."""

    weight: Tensor  # [E, D]
    bias: Tensor | None  # [E]
    activation: str  # key of ``ACTIVATIONS``
    residual: bool = False
    residual_weight: Tensor | None = None  # [E, D], projects the residual; None: identity

    def __call__(self, x: Tensor) -> Tensor:  # [B, D] -> [B, E]
        weight, bias, residual_weight = (
            None if t is None else t.to(x) for t in (self.weight, self.bias, self.residual_weight)
        )
        out = ACTIVATIONS[self.activation](F.linear(x, weight, bias))  # type: ignore[arg-type]  # there is a weight
        if self.residual:
            out = out + (x if residual_weight is None else F.linear(x, residual_weight))
        return out


@dataclass(frozen=True)
class Normalize:
    """Normalization to length 1."""

    def __call__(self, x: Tensor) -> Tensor:
        return unit_rows(x)


@dataclass(frozen=True)
class EmbeddingSettings:
    """Settings of sentence embeddings: how a model computes one vector per text.

    Args:
        pool: the pooling step.
        after: the steps after pooling.
        max_length: maximum number of tokens, including special tokens; None: the number of positions.
        lowercase: lowercase texts before tokenization.
        prompts: name -> text before each input.
        default_prompt: name of the default prompt; None: no prompt.
        folder: folder of the tokenizer, which is loaded when needed.
        truncate_dim: number of leading dimensions of each embedding to keep; None: all.
        similarity: how the checkpoint compares embeddings, one of ``SIMILARITIES``.
    """

    pool: Pool
    after: tuple[Dense | Normalize, ...] = ()
    max_length: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    folder: Path | None = None
    truncate_dim: int | None = None
    similarity: str = COSINE

    def width(self, d_model: int) -> int:
        """E, the width of the embeddings, for an encoder of width ``d_model``."""
        sizes = [len(step.weight) for step in self.after if isinstance(step, Dense)]
        full_width = sizes[-1] if sizes else d_model * len(self.pool.modes)
        return min(full_width, self.truncate_dim or full_width)

    def check_cosine(self, where: str) -> None:
        """Raise ConfigError for a checkpoint whose similarity is not the cosine."""
        is_unit = bool(self.after) and isinstance(self.after[-1], Normalize) and self.truncate_dim is None
        # For vectors of length 1 the dot product is the cosine.
        if self.similarity != COSINE and not (self.similarity == "dot" and is_unit):
            what = f"similarity_fn_name is {self.similarity!r}, but glassformer compares texts by cosine"
            fix = "Compute vectors with encode (embed) and compare them yourself, or change the setting"
            raise ConfigError(what, where=where, fix=fix)

    def prompt(self, name: str | None, text: str | None) -> str:
        """``text`` if it is not None, else the prompt called ``name`` (None: the default prompt)."""
        if text is not None:
            return text
        name = self.default_prompt if name is None else name
        prompts = {"query": "", "document": "", **self.prompts}  # every model accepts the first two
        if name is not None and name not in prompts:
            fix = suggest(name, list(prompts))
            raise ConfigError(f"unknown prompt {name!r}", where="prompt_name", fix=fix)
        return "" if name is None else prompts[name]

    def embed(
        self,
        model: Any,
        texts: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_tokens: int = 8192,
        tokenizer: Tokenizer | None = None,
    ) -> np.ndarray:
        """Embed texts, one vector per text: ``[n, E]`` fp32.

        Args:
            model: a text encoder, in evaluation mode.
            batch_tokens: maximum number of tokens per batch; on a GPU raised to 32,768.
            tokenizer: the tokenizer of the model; None: the one in ``folder``.

        Raises:
            ConfigError: no prompt has the name ``prompt_name``.
            DataError: ``texts`` is not a list of strings.
            CheckpointError: the folder has no readable tokenizer.
        """
        prompt_text, text_list = self.prompt(prompt_name, prompt), _check_texts(texts)
        if not text_list:
            return np.zeros((0, self.width(model.config.encoder.d_model)), np.float32)
        if tokenizer is None and self.folder is None:
            raise ConfigError("the folder of the tokenizer is unknown", where="embed", fix="Give tokenizer=")
        tokenizer = tokenizer or load_tokenizer(self.folder)  # type: ignore[arg-type]  # there is one
        if self.lowercase:
            tokenizer = with_lowercasing(tokenizer)
        limit = token_limit(model.config.embedding, self.max_length)
        table = encode(tokenizer, [prompt_text + text for text in text_list], max_length=limit)
        skip = self.prompt_rows(prompt_text, tokenizer, limit)
        out = np.empty((len(text_list), self.width(model.config.encoder.d_model)), np.float32)
        device = next(model.parameters()).device
        with isolated_torch():
            for index in evaluation_batches(table.lengths, batch_tokens, device):
                batch = pack_texts(table, index, device)
                out[index] = self.pool_states(*self._states(model, batch, skip), skip).cpu().numpy()
        return finite(out, "vectors")

    def prompt_rows(self, prompt: str, tokenizer: Tokenizer, limit: int) -> int:
        """The number of leading tokens of each text that pooling skips: those of the prompt, or 0."""
        if not prompt or self.pool.include_prompt:
            return 0
        ids = encode(tokenizer, [prompt], max_length=limit)[0]
        special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        return len(ids) - (len(ids) > 0 and int(ids[-1]) in special)  # without [SEP] at the end

    def _states(self, model: Any, batch: Any, skip: int) -> tuple[Tensor, Packing]:
        """The hidden states that pooling reads; for "cls" only those of first tokens are computed."""
        packing = batch.packing
        if self.pool.modes == ("cls",) and not skip:
            rows = packing.first_rows
            return model.encode(batch.ids, packing, segments=batch.segments, rows=rows), packing.one_row_each
        return model.encode(batch.ids, packing, segments=batch.segments), packing

    def pool_states(self, states: Tensor, packing: Packing, skip: int = 0) -> Tensor:
        """Embeddings ``[B, E]`` in fp32 of hidden states ``[N, D]``, without the first ``skip`` of a text."""
        x = torch.cat([POOLS[mode](states.float(), packing, skip) for mode in self.pool.modes], 1)
        for step in self.after:
            x = step(x)
        return x[:, : self.truncate_dim]


def unit_rows(x: Tensor) -> Tensor:
    """Rows ``[B, E]`` normalized to length 1; zero rows stay zero, rows with infinite norm become NaN."""
    overflows = x.detach().norm(dim=-1, keepdim=True).isinf()
    return F.normalize(x, dim=-1).masked_fill(overflows, torch.nan)


# --- pooling: hidden states [N, D] in fp32, packing, number of leading tokens to skip -> [B, D] ------
#
# If all tokens of a text are skipped, its vector is 0; for "cls" it is the hidden state of the first token.


def _first(x: Tensor, packing: Packing, skip: int) -> Tensor:
    rows = packing.first_rows
    return x[rows + torch.where(packing.length_tensor > skip, skip, 0)]


def _last(x: Tensor, packing: Packing, skip: int) -> Tensor:
    last = x[packing.first_rows + packing.length_tensor - 1]
    return last * (packing.length_tensor > skip)[:, None]


def _sum(x: Tensor, packing: Packing, weights: Tensor) -> Tensor:
    out = x.new_zeros(packing.count, x.shape[1])
    return out.index_add(0, packing.sequence_ids, x * weights[:, None])


def _weighted_mean(x: Tensor, packing: Packing, weights: Tensor, power: float = 1.0) -> Tensor:
    total = x.new_zeros(packing.count).index_add(0, packing.sequence_ids, weights)
    return _sum(x, packing, weights) / total.clamp(min=1e-9)[:, None] ** power


def _keep_weights(x: Tensor, packing: Packing, skip: int) -> Tensor:  # [N], 0 at skipped tokens, else 1
    return (packing.positions >= skip).to(x.dtype)


def _mean(x: Tensor, packing: Packing, skip: int) -> Tensor:
    return _weighted_mean(x, packing, _keep_weights(x, packing, skip))


def _sum_by_root_length(x: Tensor, packing: Packing, skip: int) -> Tensor:
    return _weighted_mean(x, packing, _keep_weights(x, packing, skip), 0.5)


def _weighted(x: Tensor, packing: Packing, skip: int) -> Tensor:
    return _weighted_mean(x, packing, _keep_weights(x, packing, skip) * (packing.positions + 1))


def _max(x: Tensor, packing: Packing, skip: int) -> Tensor:
    keep = packing.positions >= skip
    rows, owners = x[keep], packing.sequence_ids[keep, None].expand(-1, x.shape[1])
    out = x.new_full((packing.count, x.shape[1]), -torch.inf).scatter_reduce(0, owners, rows, "amax")
    return torch.where(packing.length_tensor[:, None] > skip, out, 0.0)


# Keys are mode names of sentence-transformers, in the order in which vectors are concatenated.
POOLS: dict[str, Callable[[Tensor, Packing, int], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _sum_by_root_length,
    "weightedmean": _weighted,
    "lasttoken": _last,
}


# --- texts ------------------------------------------------------------------------------------------


def _check_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(
            "expected a list of texts, got a single value", where="embed", fix="Put it into a list"
        )
    text_list = list(texts)
    for number, text in enumerate(text_list):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise DataError(f"the text is not a string but {kind}", where=f"embed, text {number + 1}")
    return text_list


def token_limit(embedding: Any, max_length: int | None) -> int:
    """The smaller of ``max_length`` and the number of learned positions: the maximum number of tokens."""
    positions = embedding.max_positions if embedding.positions == "learned" else max_length or 10**6
    return min(max_length or positions, positions)


def with_lowercasing(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer that lowercases texts first; the same tokenizer if it already does this."""
    definition = tokenizer.to_str()
    if '"type":"Lowercase"' in definition or '"lowercase":true' in definition:
        return tokenizer
    existing = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
    tokenizer = Tokenizer.from_str(definition)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *existing])  # type: ignore[assignment]  # it is settable
    return tokenizer
