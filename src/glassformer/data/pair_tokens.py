"""Pairs of texts as token ids: one sequence a pair, as the tokenizer's own post-processor joins them.

BERT       [CLS] a b [SEP] c d e [SEP]      segments 0 0 0 0 1 1 1 1
RoBERTa    <s> a b </s></s> c d e </s>      no segments

A pair that is too long loses tokens at the ends of its sides, the longer side first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from glassformer.data.compiled import failure
from glassformer.data.text import Clean, TokenTable, clean_text, encode, starts_of, unknown_id
from glassformer.data.text_pairs import TextPair, are_pairs
from glassformer.errors import DataError


def encode_inputs(tokenizer: Tokenizer, texts: Sequence[str], **options: Any) -> TokenTable:
    """Texts as ``encode`` has them, pairs as ``encode_pairs``."""
    return (encode_pairs if are_pairs(texts) else encode)(tokenizer, texts, **options)


def sides_kept(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each side stay where both together have ``room``: the longer one is cut first.

    As ``truncation="longest_first"`` of transformers and tokenizers has it.
    """
    short, long = sorted((first, second))
    if short + long <= room:
        return first, second
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short, long = room // 2, room // 2 + room % 2
    return (short, long) if first <= second else (long, short)


def encode_pairs(
    tokenizer: Tokenizer,
    pairs: Sequence[str],
    *,
    max_length: int,
    clean: Clean = "none",
    add_special_tokens: bool = True,
    unk_id: int | None = None,
    chunk: int = 2048,
    keep_second: bool = False,
) -> TokenTable:
    """Token ids and segments of ``TextPair``s; the tokenizer stays as it is. Arguments: as of ``encode``.

    A pair longer than ``max_length`` tokens is cut as ``sides_kept`` says, its special tokens kept, and
    marked in ``truncated``. A pair without tokens becomes one [UNK].

    Args:
        keep_second: only the first text is cut.

    Raises:
        DataError: ``max_length`` leaves no room for a token of each side, or the tokenizer fails.
    """
    if tokenizer.padding is not None or tokenizer.truncation is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    special = tokenizer.num_special_tokens_to_add(True) if add_special_tokens else 0
    if max_length < special + 2:
        what = f"{max_length} tokens leave no room for two texts beside {special} special ones"
        raise DataError(what, where="max_length", fix=f"Give {special + 2} or more")
    unknown = unknown_id(tokenizer) if unk_id is None else unk_id
    ids: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    lengths: list[int] = []
    truncated: list[bool] = []
    for start in range(0, len(pairs), chunk):
        sides = [cleaned_sides(pair, clean) for pair in pairs[start : start + chunk]]
        for pair, encoding in zip(sides, _encoded(tokenizer, sides, add_special_tokens), strict=True):
            cut = len(encoding.ids) > max_length
            if cut:
                encoding = cut_pair(tokenizer, pair, max_length, add_special_tokens, keep_second)
            row, kind = encoding.ids, encoding.type_ids
            if not row:
                if unknown is None:
                    what = "a pair has no tokens and the tokenizer no token for the unknown"
                    raise DataError(what, where="texts", fix="Remove pairs without words, or give unk_id")
                row, kind = [unknown], [0]
            truncated.append(cut)
            lengths.append(len(row))
            ids.append(np.asarray(row, np.int32))
            kinds.append(np.asarray(kind, np.int8))
    return TokenTable(
        np.concatenate(ids) if ids else np.zeros(0, np.int32),
        starts_of(np.asarray(lengths, np.int64)),
        np.concatenate(kinds) if kinds else np.zeros(0, np.int8),
        np.asarray(truncated, bool),
    )


def cleaned_sides(pair: Any, clean: Clean) -> tuple[str, str]:
    """Both texts of a pair, cleaned.

    Raises:
        DataError: it is none.
    """
    if not isinstance(pair, TextPair):
        raise DataError("not every input is a pair of texts", where="texts", fix="Give (first, second) each")
    first, second = pair.sides
    return clean_text(first, clean), clean_text(second, clean)


def cut_pair(
    tokenizer: Tokenizer,
    pair: tuple[str, str],
    max_length: int,
    add_special_tokens: bool,
    keep_second: bool = False,
) -> Any:
    """The ``Encoding`` of a pair in at most ``max_length`` tokens; the tokenizer has no truncation set."""
    first, second = (tokenizer.encode(text, add_special_tokens=False) for text in pair)
    room = max_length - (tokenizer.num_special_tokens_to_add(True) if add_special_tokens else 0)
    kept = sides_kept(len(first), len(second), room)
    if keep_second and len(second) < room:
        kept = room - len(second), len(second)
    for side, count in zip((first, second), kept, strict=True):
        side.truncate(count)
    return tokenizer.post_process(first, second, add_special_tokens)


def _encoded(tokenizer: Tokenizer, pairs: list[tuple[str, str]], add_special_tokens: bool) -> Iterable[Any]:
    """Raises DataError for a pair on which the tokenizer fails, which begins the message."""
    try:
        return tokenizer.encode_batch_fast(pairs, add_special_tokens=add_special_tokens)  # type: ignore[arg-type]  # tuples are pairs
    except BaseException as error:  # a panic of its compiled code is no Exception
        if failure(error) is None:
            raise
    found = []
    for pair in pairs:  # which of them it is
        try:
            found.append(tokenizer.encode(*pair, add_special_tokens=add_special_tokens))
        except BaseException as error:  # as above
            if (reason := failure(error)) is None:
                raise
            shown = pair[0] if len(pair[0]) <= 40 else f"{pair[0][:40]}..."
            what = f"the tokenizer fails on the pair that begins with {shown!r} ({reason})"
            fix = "Leave this pair out, or use another tokenizer"
            raise DataError(what, where="texts", fix=fix) from None
    return found


def without_segments(table: TokenTable) -> TokenTable:
    """The table for a model that tells no segments apart."""
    return replace(table, segments=None)
