"""BERT's two pre-training tasks (Devlin et al., 2019): masked language modeling and next sentence prediction.

15 % of the tokens are predicted. Of these 80 % become [MASK], 10 % a random token, and 10 % are unchanged.
The masks differ in each epoch and depend only on seed, epoch and batch, so that a resumed run has the same
ones.
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

from glassformer.data.batching import BatchSettings, cut, divided, grouped, training_batches
from glassformer.data.text import TokenTable, clean_text
from glassformer.data.vocabulary import CLS, MASK, SEP, Vocabulary
from glassformer.errors import DataError
from glassformer.packing import Packing

MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others are unchanged
SHORTEST = 8  # tokens; a shorter remainder of a split text is dropped
SENTENCE_ENDS = (".", "!", "?")
BETWEEN = re.compile(r"[.!?][\"')\]]*\s+\S")  # the border of two sentences
STANDING_IN = [chr(0x10380 + i) for i in range(26)]  # letters of Ugaritic, which cleaning does not change
ANOTHER = "Use BERT's, or train one here"
PAIRED = 0.5  # next sentence prediction is used if more than this share of the texts has several sentences


@dataclass(frozen=True)
class MaskSettings:
    """Which tokens are masked, and how."""

    mask_id: int
    special: np.ndarray  # bool [V]: never masked, never a random token
    continues_previous: np.ndarray  # bool [V]: pieces that continue the word before them
    share: float = 0.15
    whole_words: bool = False
    continues_next: np.ndarray | None = None  # bool [V]: pieces that the next piece continues

    @staticmethod
    def of(tokenizer: Tokenizer, share: float = 0.15, whole_words: bool = False) -> MaskSettings:
        """The settings for the vocabulary of a tokenizer.

        Raises:
            DataError: the vocabulary has no [MASK].
        """
        vocabulary = Vocabulary.of(tokenizer)
        if vocabulary.mask is None:
            raise DataError(f"the vocabulary lacks {MASK}", where="tokenizer", fix=ANOTHER)
        special, continues_previous = vocabulary.special(tokenizer), vocabulary.continues_previous(tokenizer)
        continues_next = vocabulary.continues_next(tokenizer)
        return MaskSettings(vocabulary.mask, special, continues_previous, share, whole_words, continues_next)


def mask_tokens(
    ids: np.ndarray, settings: MaskSettings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mask tokens; at least one, unless all are special.

    Args:
        ids: ``[N]``, including special tokens.

    Returns:
        The masked ids ``[N]``, and the ascending positions ``[K]`` to predict; the targets are ``ids[rows]``.
    """
    eligible = ~settings.special[ids]
    if settings.whole_words:
        joined = settings.continues_previous[ids]
        if settings.continues_next is not None:
            joined = joined | np.concatenate([[False], settings.continues_next[ids[:-1]]])
        heads = eligible & ~(joined & np.concatenate([[False], eligible[:-1]]))
        word = np.cumsum(heads) - 1  # the number of the word that each eligible token is in
        drawn = rng.random(int(heads.sum())) < settings.share
        chosen = eligible & (drawn[word] if len(drawn) else False)
    else:
        chosen = eligible & (rng.random(len(ids)) < settings.share)
    if not chosen.any() and eligible.any():
        chosen[rng.choice(np.flatnonzero(eligible))] = True
    rows = np.flatnonzero(chosen)
    fate = rng.random(len(rows))
    words = np.flatnonzero(~settings.special)
    read = ids.copy()
    read[rows[fate < MASKED]] = settings.mask_id
    random = rows[(fate >= MASKED) & (fate < MASKED + RANDOM)]
    read[random] = words[rng.integers(0, len(words), len(random))]
    return read, rows


# --- texts to chunks --------------------------------------------------------------------------


def clean_around(text: str, mask: str, clean: Any) -> str:
    """Clean a text with ``[MASK]`` as if it were a word, and replace it by ``mask``."""
    letter = next((x for x in STANDING_IN if x not in text), STANDING_IN[0])
    return clean_text(text.replace(MASK, letter), clean).replace(letter, mask)


def chunk_texts(
    tokenizer: Tokenizer, texts: Sequence[str], length: int, clean: Any = "none", block: int = 2048
) -> TokenTable:
    """Encode texts without special tokens; longer texts are split into rows of at most ``length`` tokens.

    Raises:
        DataError: no text has a token.
    """
    parts: list[list[int]] = []
    for start in range(0, len(texts), block):
        cleaned = [clean_text(text, clean) for text in texts[start : start + block]]
        for encoding in tokenizer.encode_batch_fast(cleaned, add_special_tokens=False):
            ids = encoding.ids
            pieces = [ids[i : i + length] for i in range(0, len(ids), length)]
            parts += [p for i, p in enumerate(pieces) if i == 0 or len(p) >= min(SHORTEST, length)]
    if not parts:
        raise DataError("no text has a token", where="texts", fix="Give texts with words")
    return TokenTable.of(parts)


def share_of_several(texts: Sequence[str], most: int = 2_000) -> float:
    """The share of texts with several sentences, in a sample of about ``most`` texts."""
    sample = texts[:: max(1, len(texts) // most)]
    return sum(BETWEEN.search(text) is not None for text in sample) / max(len(sample), 1)


# --- batches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskedBatch:
    """A packed batch with the positions to predict."""

    ids: Tensor  # [N] masked
    segments: Tensor | None  # [N]
    packing: Packing
    rows: Tensor  # [K] positions to predict
    labels: Tensor  # [K] the original ids at these positions
    strangers: Tensor | None  # [B] 1 if the second segment does not follow the first, as in transformers
    index: np.ndarray


@dataclass(frozen=True)
class MaskedStream:
    """The batches of every epoch from a table of chunks; an example is one token to predict."""

    table: TokenTable
    masks: MaskSettings
    frame: tuple[int, int]  # [CLS], [SEP]
    ends: tuple[int, ...]  # tokens that end a sentence
    max_length: int
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device
    next_sentence: bool = False

    @property
    def examples(self) -> int:
        """Expected number of tokens to predict per epoch; the loss is their mean over all batches."""
        return max(1, round(self.masks.share * len(self.table.ids)))

    @property
    def lengths(self) -> np.ndarray:
        """Lengths of the chunks with special tokens."""
        return self.table.lengths + (3 if self.next_sentence else 2)

    @cached_property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the chunks that end their text, and of those that were cut off at ``max_length``."""
        cut_off = self.table.lengths >= self.max_length - 3
        return np.flatnonzero(~cut_off), np.flatnonzero(cut_off)

    def steps(self, epoch: int) -> list:
        """The optimizer steps of an epoch, each a list of (epoch, chunk numbers)."""
        batches = training_batches(self.lengths, self.settings, self.seed, epoch)
        pairs: Any = [(epoch, index) for index in batches]
        return list(grouped(pairs, self.accumulate))

    def in_order(self, batch_tokens: int) -> list:
        """All chunks once, longest first, with the masks of epoch -1, for evaluation."""
        order = np.argsort(-self.lengths, kind="stable")
        return [(-1, index) for index in cut(order, self.lengths, BatchSettings(0, batch_tokens))]

    def shard(self, index: tuple[int, np.ndarray], rank: int, size: int) -> tuple[int, np.ndarray] | None:
        """The chunks of a batch that process ``rank`` of ``size`` computes, with masks of its own."""
        epoch, chosen = index
        rows = divided(self.lengths[chosen], size)[rank]
        return (epoch, chosen[rows]) if len(rows) else None

    def pack(self, index: tuple[int, np.ndarray]) -> MaskedBatch:
        """One packed batch with the masks of its epoch."""
        epoch, chosen = index
        rng = np.random.default_rng([self.seed, epoch + 1, len(chosen), *map(int, chosen[:4])])
        cls, sep = self.frame
        sequences, segments, strangers = [], [], []
        for i in chosen.tolist():
            ids = self.table[i]
            if not self.next_sentence:
                sequences.append(np.concatenate([[cls], ids, [sep]]))
                continue
            first, second, strange = self._pair(ids, i, rng)
            sequences.append(np.concatenate([[cls], first, [sep], second, [sep]]))
            segments.append(np.repeat([0, 1], [len(first) + 2, len(second) + 1]))
            strangers.append(strange)
        ids = np.concatenate(sequences).astype(np.int64)
        read, rows = mask_tokens(ids, self.masks, rng)
        packing = Packing(tuple(map(len, sequences)), self.device)
        return MaskedBatch(
            torch.from_numpy(read).to(self.device),
            torch.from_numpy(np.concatenate(segments)).to(self.device) if segments else None,
            packing,
            torch.from_numpy(rows).to(self.device),
            torch.from_numpy(ids[rows]).to(self.device),
            torch.tensor(strangers, device=self.device) if strangers else None,
            chosen,
        )

    def _pair(self, ids: np.ndarray, i: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Split a chunk in two, at the end of a sentence if possible; replace half of the second segments.

        A replacement must not be recognizable by its length, beginning or end. So it comes from a chunk of
        the same kind (cut off at ``max_length``, or the end of a text), begins with a sentence if possible,
        and is exactly (if cut off) or about as long as the original.
        """
        ends = self._ends(ids)
        place = int(rng.choice(ends)) if len(ends) else max(1, len(ids) // 2)  # neither segment is empty
        first, second = ids[:place], ids[place:]
        if len(self.table) > 1 and (rng.random() < 0.5 or not len(second)):
            second = self._stranger(i, max(1, len(second)), rng)
            return first, second[: self.max_length - 3 - len(first)], 1
        return first, second, 0

    def _stranger(self, i: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """The end of a random other chunk, of about ``wanted`` tokens."""
        same = self.kinds[int(self.table.lengths[i] >= self.max_length - 3)]
        if len(same) < 2:
            same = np.arange(len(self.table))
        pick = int(rng.integers(0, len(same) - 1))
        ids = self.table[int(same[pick + (pick >= np.searchsorted(same, i))])]
        ends, rest = self._ends(ids), len(ids) - wanted
        if len(ids) >= self.max_length - 3:  # cut off within a sentence, as is the segment that it replaces
            ends = ends[ends <= rest]
            start = int(rng.choice(ends)) if len(ends) else max(0, rest)
            return ids[start : start + wanted]
        return ids[int(ends[np.abs(ends - rest).argmin()]) if len(ends) else len(ids) // 2 :]

    def _ends(self, ids: np.ndarray) -> np.ndarray:
        """Positions at which a new sentence begins within the chunk."""
        return np.flatnonzero(np.isin(ids[:-1], self.ends)) + 1


def masked_stream(
    table: TokenTable,
    tokenizer: Tokenizer,
    masks: MaskSettings,
    max_length: int,
    settings: BatchSettings,
    accumulate: int,
    seed: int,
    device: torch.device,
    next_sentence: bool,
) -> MaskedStream:
    """A stream that uses the tokenizer's [CLS], [SEP] and punctuation marks.

    Raises:
        DataError: the vocabulary lacks [CLS] or [SEP].
    """
    vocabulary = Vocabulary.of(tokenizer)
    cls, sep = vocabulary.cls, vocabulary.sep
    if cls is None or sep is None:
        raise DataError(f"the vocabulary lacks {CLS} or {SEP}", where="tokenizer", fix=ANOTHER)
    found = [tokenizer.token_to_id(mark) for mark in SENTENCE_ENDS]
    ends = tuple(i for i in found if i is not None)
    return MaskedStream(
        table, masks, (cls, sep), ends, max_length, settings, accumulate, seed, device, next_sentence
    )
