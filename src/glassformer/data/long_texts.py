"""Texts longer than the model reads, as overlapping windows of its full length.

tokens of a text     [CLS] a b c d e f g [SEP]        max_length 6, stride 2
windows              [CLS] a b c d [SEP]
                         [CLS] c d e f [SEP]
                           [CLS] d e f g [SEP]         the last one ends with the text
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from glassformer.data.text import Clean, TokenTable, encode
from glassformer.errors import ConfigError

ENDLESS = 2**40  # tokens: nothing is cut


@dataclass(frozen=True)
class Windows:
    """Token ids of w windows of n texts; without ``owners``, each text is its own and only window."""

    table: TokenTable
    texts: int
    owners: np.ndarray | None = None  # int64 [w], ascending: the text of each window

    @property
    def truncated(self) -> np.ndarray:
        """Which texts are cut, ``[n]`` bool; none where they have windows."""
        return self.table.truncated if self.owners is None else np.zeros(self.texts, bool)


def window_starts(length: int, size: int, stride: int) -> list[int]:
    """Where windows of ``size`` begin in ``length`` > ``size`` tokens; the last ends where the text does."""
    return [*range(0, length - size, stride), length - size]


def encode_windows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    stride: int | None = None,
    clean: Clean = "none",
    add_special_tokens: bool = True,
) -> Windows:
    """Token ids of every window; a text that fits has one, the same as ``encode`` gives.

    Args:
        max_length: tokens of a window, special ones included.
        stride: tokens from one window's begin to the next one's; None: half of what a window holds.

    Raises:
        ConfigError: the stride would leave tokens out.
        DataError: as in ``encode``.
    """
    special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
    size = max_length - special
    step = max(size // 2, 1) if stride is None else stride
    if size > 0 and not 1 <= step <= size:
        raise ConfigError(
            f"a stride of {step} leaves out tokens between windows of {size}",
            where="window_stride",
            fix=f"Use 1 to {size}",
        )
    # ``encode`` with the real limit says what is wrong with it, and how many special tokens follow a text.
    cut = encode(tokenizer, texts, max_length=max_length, clean=clean, add_special_tokens=add_special_tokens)
    if not cut.truncated.any():
        return Windows(cut, len(texts))
    whole = encode(tokenizer, texts, max_length=ENDLESS, clean=clean, add_special_tokens=add_special_tokens)
    behind = _closing(tokenizer) if add_special_tokens else 0
    before = special - behind
    rows: list[np.ndarray] = []
    owners: list[int] = []
    for i in range(len(texts)):
        row = whole[i]
        if len(row) <= max_length:
            rows.append(row)
            owners.append(i)
            continue
        head, inner, tail = row[:before], row[before : len(row) - behind], row[len(row) - behind :]
        for start in window_starts(len(inner), size, step):
            rows.append(np.concatenate([head, inner[start : start + size], tail]))
            owners.append(i)
    lengths = np.array([len(row) for row in rows], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    table = TokenTable(np.concatenate(rows), starts, None, np.zeros(len(rows), bool))
    return Windows(table, len(texts), np.asarray(owners, np.int64))


def _closing(tokenizer: Tokenizer) -> int:
    """How many special tokens stand behind a text."""
    mask = tokenizer.encode("a").special_tokens_mask
    return next((i for i, special in enumerate(reversed(mask)) if not special), 0)
