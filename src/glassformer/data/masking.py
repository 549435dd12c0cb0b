"""Masked language modeling and next sentence prediction.

These are BERT's two pre-training tasks (Devlin et al., 2019). The model predicts 15 % of the tokens. Of
these, 80 % are replaced by [MASK], 10 % by a random token, and 10 % are unchanged. The masks depend only on
seed, epoch and batch, so a resumed run has the same masks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from glassformer.data.batching import (
    BatchSettings,
    accumulation_groups,
    split_batches,
    split_evenly,
    training_batches,
)
from glassformer.data.text import TokenTable, clean_text
from glassformer.data.vocabulary import CLS, MASK, SEP, Vocabulary
from glassformer.errors import DataError
from glassformer.packing import Packing

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # shares of the tokens to predict
MIN_CHUNK = 8  # tokens; a shorter last chunk of a split text is dropped
SENTENCE_ENDS = (".", "!", "?")
SENTENCE_BORDER = re.compile(r"[.!?][\"')\]]*\s+\S")  # 'end." Next'
# Letters of Ugaritic, which cleaning does not change; one of them replaces [MASK] while a text is cleaned.
MASK_PLACEHOLDERS = [chr(0x10380 + i) for i in range(26)]
FIX_TOKENIZER = "Use BERT's, or train one here"
NEXT_SENTENCE_SHARE = 0.5  # if a larger share of texts has several sentences, next sentences are predicted


@dataclass(frozen=True)
class MaskSettings:
    """Which tokens are masked, and how."""

    mask_id: int
    special: np.ndarray  # bool [V]: ids that are never masked, and never a random token
    continues_previous: np.ndarray  # bool [V]: pieces that continue the word before them
    share: float = 0.15  # share of the tokens to predict
    whole_words: bool = False  # whether all tokens of a word are masked together
    continues_next: np.ndarray | None = None  # bool [V]: pieces that the next piece continues

    @staticmethod
    def of(tokenizer: Tokenizer, share: float = 0.15, whole_words: bool = False) -> MaskSettings:
        """The settings for the vocabulary of a tokenizer.

        Raises:
            DataError: the vocabulary has no [MASK].
        """
        vocabulary = Vocabulary.of(tokenizer)
        if vocabulary.mask is None:
            raise DataError(f"the vocabulary lacks {MASK}", where="tokenizer", fix=FIX_TOKENIZER)
        special, continues_previous = vocabulary.special(tokenizer), vocabulary.continues_previous(tokenizer)
        continues_next = vocabulary.continues_next(tokenizer)
        return MaskSettings(vocabulary.mask, special, continues_previous, share, whole_words, continues_next)


def mask_tokens(
    ids: np.ndarray, settings: MaskSettings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mask a random share of the tokens; at least one, unless all are special.

    Args:
        ids: ``[N]``, including special tokens.

    Returns:
        The masked ids ``[N]``, and the ascending positions ``[K]`` of the tokens to predict.
    """
    eligible = ~settings.special[ids]
    if settings.whole_words:
        continues = settings.continues_previous[ids]
        if settings.continues_next is not None:
            continues = continues | np.concatenate([[False], settings.continues_next[ids[:-1]]])
        begins_word = eligible & ~(continues & np.concatenate([[False], eligible[:-1]]))
        word_of_token = np.cumsum(begins_word) - 1  # only valid for eligible tokens
        is_masked_word = rng.random(int(begins_word.sum())) < settings.share
        to_predict = eligible & (is_masked_word[word_of_token] if len(is_masked_word) else False)
    else:
        to_predict = eligible & (rng.random(len(ids)) < settings.share)
    if not to_predict.any() and eligible.any():
        to_predict[rng.choice(np.flatnonzero(eligible))] = True
    positions = np.flatnonzero(to_predict)
    random_values = rng.random(len(positions))
    candidates = np.flatnonzero(~settings.special)
    masked_ids = ids.copy()
    masked_ids[positions[random_values < MASK_SHARE]] = settings.mask_id
    is_random = (random_values >= MASK_SHARE) & (random_values < MASK_SHARE + RANDOM_SHARE)
    masked_ids[positions[is_random]] = candidates[rng.integers(0, len(candidates), int(is_random.sum()))]
    return masked_ids, positions


# --- splitting texts into chunks --------------------------------------------------------------


def clean_around_mask(text: str, mask: str, clean: Any) -> str:
    """Clean a text in which ``[MASK]`` is treated as a word, and replace ``[MASK]`` by ``mask``."""
    letter = next((x for x in MASK_PLACEHOLDERS if x not in text), MASK_PLACEHOLDERS[0])
    return clean_text(text.replace(MASK, letter), clean).replace(letter, mask)


def chunk_texts(
    tokenizer: Tokenizer, texts: Sequence[str], length: int, clean: Any = "none", batch: int = 2048
) -> TokenTable:
    """Encode texts without special tokens, and split them into chunks of at most ``length`` tokens.

    Raises:
        DataError: no text has a token.
    """
    chunks: list[list[int]] = []
    for start in range(0, len(texts), batch):
        cleaned = [clean_text(text, clean) for text in texts[start : start + batch]]
        for encoding in tokenizer.encode_batch_fast(cleaned, add_special_tokens=False):
            ids = encoding.ids
            pieces = [ids[i : i + length] for i in range(0, len(ids), length)]
            chunks += [p for i, p in enumerate(pieces) if i == 0 or len(p) >= min(MIN_CHUNK, length)]
    if not chunks:
        raise DataError("no text has a token", where="texts", fix="Give texts with words")
    return TokenTable.of(chunks)


def multi_sentence_share(texts: Sequence[str], sample_size: int = 2_000) -> float:
    """The share of texts with several sentences, in a sample of about ``sample_size`` texts."""
    sample = texts[:: max(1, len(texts) // sample_size)]
    return sum(SENTENCE_BORDER.search(text) is not None for text in sample) / max(len(sample), 1)


# --- batches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskedBatch:
    """A packed batch with the positions to predict."""

    ids: Tensor  # [N] masked
    segments: Tensor | None  # [N]
    packing: Packing
    rows: Tensor  # [K] positions to predict
    labels: Tensor  # [K] the original ids at these positions
    is_random_next: Tensor | None  # [B] 1: the second segment is random, 0: it follows the first
    index: np.ndarray


@dataclass(frozen=True)
class MaskedStream:
    """The batches of every epoch from a table of chunks; an example is one token to predict."""

    table: TokenTable
    masks: MaskSettings
    frame: tuple[int, int]  # [CLS], [SEP]
    sentence_ends: tuple[int, ...]  # tokens that end a sentence
    max_length: int
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device
    next_sentence: bool = False

    @staticmethod
    def of(table: TokenTable, tokenizer: Tokenizer, **settings: Any) -> MaskedStream:
        """A stream that uses the tokenizer's [CLS], [SEP] and punctuation marks; ``settings``: other fields.

        Raises:
            DataError: the vocabulary lacks [CLS] or [SEP].
        """
        vocabulary = Vocabulary.of(tokenizer)
        cls, sep = vocabulary.cls, vocabulary.sep
        if cls is None or sep is None:
            raise DataError(f"the vocabulary lacks {CLS} or {SEP}", where="tokenizer", fix=FIX_TOKENIZER)
        sentence_ends = tuple(i for i in map(tokenizer.token_to_id, SENTENCE_ENDS) if i is not None)
        return MaskedStream(table, frame=(cls, sep), sentence_ends=sentence_ends, **settings)

    @property
    def examples(self) -> int:
        """Expected number of tokens to predict per epoch; the loss is their mean over all batches."""
        return max(1, round(self.masks.share * len(self.table.ids)))

    @property
    def lengths(self) -> np.ndarray:
        """Lengths of the chunks with special tokens."""
        return self.table.lengths + (3 if self.next_sentence else 2)

    @cached_property
    def chunks_by_end(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the chunks that end their text, and of those cut off at ``max_length``."""
        is_cut_off = self.table.lengths >= self.max_length - 3
        return np.flatnonzero(~is_cut_off), np.flatnonzero(is_cut_off)

    def steps(self, epoch: int) -> list:
        """The optimizer steps of an epoch, each a list of (epoch, chunk numbers)."""
        batches = training_batches(self.lengths, self.settings, self.seed, epoch)
        pairs: Any = [(epoch, index) for index in batches]
        return list(accumulation_groups(pairs, self.accumulate))

    def evaluation_steps(self, batch_tokens: int) -> list:
        """All chunks once, longest first, with the masks of epoch -1, for evaluation."""
        order = np.argsort(-self.lengths, kind="stable")
        return [(-1, index) for index in split_batches(order, self.lengths, BatchSettings(0, batch_tokens))]

    def shard(self, index: tuple[int, np.ndarray], rank: int, size: int) -> tuple[int, np.ndarray] | None:
        """The epoch and the chunks of a batch that process ``rank`` of ``size`` computes; None if none."""
        epoch, chunks = index
        selected = split_evenly(self.lengths[chunks], size)[rank]
        return (epoch, chunks[selected]) if len(selected) else None

    def pack(self, index: tuple[int, np.ndarray]) -> MaskedBatch:
        """One packed batch with the masks of its epoch."""
        epoch, chunks = index
        rng = np.random.default_rng([self.seed, epoch + 1, len(chunks), *map(int, chunks[:4])])
        cls, sep = self.frame
        sequences, segments, is_random_next = [], [], []
        for i in chunks.tolist():
            ids = self.table[i]
            if not self.next_sentence:
                sequences.append(np.concatenate([[cls], ids, [sep]]))
                continue
            first, second, is_random = self._pair(ids, i, rng)
            sequences.append(np.concatenate([[cls], first, [sep], second, [sep]]))
            segments.append(np.repeat([0, 1], [len(first) + 2, len(second) + 1]))
            is_random_next.append(is_random)
        ids = np.concatenate(sequences).astype(np.int64)
        masked_ids, positions = mask_tokens(ids, self.masks, rng)
        packing = Packing(tuple(map(len, sequences)), self.device)
        return MaskedBatch(
            torch.from_numpy(masked_ids).to(self.device),
            torch.from_numpy(np.concatenate(segments)).to(self.device) if segments else None,
            packing,
            torch.from_numpy(positions).to(self.device),
            torch.from_numpy(ids[positions]).to(self.device),
            torch.tensor(is_random_next, device=self.device) if is_random_next else None,
            chunks,
        )

    def _pair(self, ids: np.ndarray, i: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Two segments for next sentence prediction, and 1 if the second is random, else 0.

        The chunk is split at the end of a sentence if possible. In half of the cases, the end of a random
        chunk replaces the second segment. It must not be recognizable by its length, beginning or end. So its
        chunk ends in the same way (cut off at ``max_length``, or the end of a text), and the segment begins
        with a sentence if possible. Its length is that of the original: exactly if the chunk is cut off,
        otherwise approximately.
        """
        starts = self._sentence_starts(ids)
        border = int(rng.choice(starts)) if len(starts) else max(1, len(ids) // 2)
        first, second = ids[:border], ids[border:]
        if len(self.table) > 1 and (rng.random() < 0.5 or not len(second)):
            second = self._random_segment(i, max(1, len(second)), rng)
            return first, second[: self.max_length - 3 - len(first)], 1
        return first, second, 0

    def _random_segment(self, i: int, length: int, rng: np.random.Generator) -> np.ndarray:
        """The end of another random chunk, of about ``length`` tokens."""
        candidates = self.chunks_by_end[int(self.table.lengths[i] >= self.max_length - 3)]
        if len(candidates) < 2:
            candidates = np.arange(len(self.table))
        index = int(rng.integers(0, len(candidates) - 1))
        ids = self.table[int(candidates[index + (index >= np.searchsorted(candidates, i))])]
        starts, target_start = self._sentence_starts(ids), len(ids) - length
        if len(ids) >= self.max_length - 3:  # cut off within a sentence, like the segment that it replaces
            starts = starts[starts <= target_start]
            start = int(rng.choice(starts)) if len(starts) else max(0, target_start)
            return ids[start : start + length]
        return ids[int(starts[np.abs(starts - target_start).argmin()]) if len(starts) else len(ids) // 2 :]

    def _sentence_starts(self, ids: np.ndarray) -> np.ndarray:
        """Positions at which a new sentence begins within the chunk."""
        return np.flatnonzero(np.isin(ids[:-1], self.sentence_ends)) + 1
