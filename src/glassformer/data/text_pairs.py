"""Pairs of texts as one input.

A pair is, for example, a premise and a hypothesis, or two questions. A ``TextPair`` is a ``str`` of two
lines, so code that counts words, finds duplicates or prints texts also works for pairs. Its texts are called
its sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from glassformer.data.checks import check_not_numbers, check_texts, location
from glassformer.data.in_memory import read_rows
from glassformer.data.text import (
    Clean,
    TokenTable,
    check_room,
    clean_text,
    encode,
    encode_batch,
    frame_ids,
    require_unknown_id,
    without_truncation,
)
from glassformer.errors import ConfigError, DataError, UnequalLengthsError, WrongInputError, counted

SEPARATOR = "\n"  # separates the two texts in the string
SIDES = ("first", "second")
CHUNK = 2048  # number of pairs encoded at a time, to bound the memory
SECOND_COLUMN = "text_pair"  # name of the column, field and argument of the second text, as in transformers


class TextPair(str):
    """Two texts; the value as a ``str`` is both, one per line."""

    first: str
    second: str

    def __new__(cls, first: str, second: str) -> TextPair:
        pair = super().__new__(cls, f"{first}{SEPARATOR}{second}")
        pair.first, pair.second = first, second
        return pair

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # for copies and pickles
        return self.first, self.second

    @property
    def sides(self) -> tuple[str, str]:
        """Both texts."""
        return self.first, self.second


def first_text(text: str) -> str:
    """The first text of a pair; a single text is returned unchanged."""
    return text.first if isinstance(text, TextPair) else text


def second_text(text: str) -> str:
    """The second text of a pair; empty for a single text."""
    return text.second if isinstance(text, TextPair) else ""


def are_pairs(texts: Sequence[Any]) -> bool:
    """Whether checked texts are pairs; only the first is tested, since checks reject mixed lists."""
    return any(isinstance(text, TextPair) for text in texts[:1])


def check_side(texts: Iterable[Any], name: str, origin: str, rows: Sequence[int] | None) -> list[str]:
    """``check_texts`` for one side of pairs; errors call a text ``name``, such as "first text"."""
    try:
        return check_texts(texts, origin, rows)
    except DataError as error:
        raise error.replace(what=error.what.replace("the text", f"the {name}", 1)) from None


def join_sides(
    first: Iterable[Any], second: Iterable[Any], origin: str = "texts", rows: Sequence[int] | None = None
) -> list[str]:
    """Combine two columns of texts to pairs.

    Raises:
        DataError: an unusable text (see ``check_texts``), or columns of different lengths.
    """
    named_sides = zip(SIDES, (first, second), strict=True)
    checked = [check_side(side, f"{name} text", origin, rows) for name, side in named_sides]
    if len(checked[0]) != len(checked[1]):
        what = f"{len(checked[0])} first texts but {len(checked[1])} second texts"
        raise UnequalLengthsError(what, where=origin, fix="Give one second text for each first text")
    return list(map(TextPair, *checked))


def check_inputs(X: Any, origin: str = "texts", rows: Sequence[int] | None = None) -> list[str]:
    """Check texts or pairs: a list of tuples or lists of two, an ``[n, 2]`` array, a table of two columns.

    Returns:
        A list of ``str``, or of ``TextPair``.

    Raises:
        DataError: see ``check_texts``; also if only some inputs are pairs, or a tuple has another length.
    """
    check_not_numbers(X, origin)
    X = read_rows(X, origin, "texts", max_columns=2)
    has_pairs = bool(X) and _is_pair(X[0])
    if (i := next((i for i, x in enumerate(X) if _is_pair(x) != has_pairs), None)) is not None:
        actual, expected = ("one text", "a pair") if has_pairs else ("a pair of texts", "one text")
        what, fix = f"{actual} where the first input is {expected}", "Give only texts, or only pairs"
        raise WrongInputError(what, where=location(origin, i, rows), fix=fix)
    if not has_pairs:
        return check_texts(X, origin, rows)
    sides = [x.sides if isinstance(x, TextPair) else list(x) for x in X]
    if (i := next((i for i, texts in enumerate(sides) if len(texts) != 2), None)) is not None:
        what, fix = (
            f"{counted(len(sides[i]), 'text')} where a pair is expected",
            "Give two texts: (first, second)",
        )
        if not any(isinstance(text, str) for text in sides[i]):
            what = f"{counted(len(sides[i]), 'value')} where a text is expected"
            fix = "Give a text in each row; for numeric features use scikit-learn"
        raise WrongInputError(what, where=location(origin, i, rows), fix=fix)
    return join_sides([a for a, _ in sides], [b for _, b in sides], origin, rows)


def _is_pair(x: Any) -> bool:
    if isinstance(x, str | bytes):
        return isinstance(x, TextPair)
    return isinstance(x, tuple | list) or getattr(x, "ndim", 0) == 1


# --- pairs of texts as token ids ------------------------------------------------------------------
# A pair is one sequence. The tokenizer's post-processor adds the special tokens:
# BERT       [CLS] a b [SEP] c d e [SEP]          segments 0 0 0 0 1 1 1 1
# RoBERTa    <s> a b </s></s> c d e </s>          no segments
# separate   [CLS] a b [SEP] [CLS] c d e [SEP]    segments 0 0 0 0 1 1 1 1 1; see ``with_separate_sides``
# If a pair is too long, both texts are truncated at their ends, the longer text first.


def encode_inputs(tokenizer: Tokenizer, texts: Sequence[str], **options: Any) -> TokenTable:
    """Encode texts by ``encode``, or pairs by ``encode_pairs``."""
    return (encode_pairs if are_pairs(texts) else encode)(tokenizer, texts, **options)


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts after truncating them to ``room`` tokens in total.

    The longer text is truncated first, like ``truncation="longest_first"`` in transformers and tokenizers.
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
    keep_second: bool = False,
) -> TokenTable:
    """Encode ``TextPair`` objects as token ids and segments; the tokenizer is not modified.

    A pair longer than ``max_length`` tokens is truncated (see ``truncated_lengths``) and marked in
    ``truncated``. It keeps its special tokens. A pair without tokens becomes one [UNK].

    Args:
        keep_second: truncate only the first text. For other arguments see ``encode``.

    Raises:
        DataError: ``max_length`` leaves no room for a token of each text, or the tokenizer fails.
    """
    tokenizer = without_truncation(tokenizer)
    num_special = tokenizer.num_special_tokens_to_add(True) if add_special_tokens else 0
    check_room(max_length, num_special, num_texts=2)
    tables: list[TokenTable] = []
    for start in range(0, len(pairs), CHUNK):
        sides = [clean_pair(pair, clean) for pair in pairs[start : start + CHUNK]]
        encodings = encode_batch(tokenizer, sides, add_special_tokens)
        truncated = [len(encoding.ids) > max_length for encoding in encodings]
        for i in np.flatnonzero(truncated).tolist():
            first, second = (tokenizer.encode(text, add_special_tokens=False) for text in sides[i])
            room = max_length - num_special
            lengths = truncated_lengths(len(first), len(second), room)
            if keep_second and len(second) < room:
                lengths = room - len(second), len(second)
            first.truncate(lengths[0])
            second.truncate(lengths[1])
            encodings[i] = tokenizer.post_process(first, second, add_special_tokens)
        rows = [encoding.ids for encoding in encodings]
        if not all(rows):
            unknown = require_unknown_id(tokenizer, "pair") if unk_id is None else unk_id
            rows = [row or [unknown] for row in rows]
        segments = [encoding.type_ids or [0] for encoding in encodings]
        tables.append(TokenTable.of(rows, truncated, segments))
    return TokenTable.concatenate(tables or [TokenTable.of([], segments=[])])


def clean_pair(pair: Any, clean: Clean) -> tuple[str, str]:
    """Both texts of a pair, cleaned."""
    if not isinstance(pair, TextPair):
        fix = "Give (first, second) for each input"
        raise WrongInputError("not every input is a pair of texts", where="texts", fix=fix)
    return clean_text(pair.first, clean), clean_text(pair.second, clean)


def with_separate_sides(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer that adds the special tokens of a single text around each text of a pair.

    Raises:
        ConfigError: the tokenizer adds no special tokens, so a text without words would have no tokens.
    """
    before, after = frame_ids(tokenizer)
    if not before and not after:
        what = "the tokenizer puts no special tokens around a text"
        raise ConfigError(what, where="pairs", fix="Use pairs = joined")
    names = {index: str(tokenizer.id_to_token(index)) for index in (*before, *after)}

    def template(letter: str, segment: int) -> list[str]:
        pieces = [*(names[i] for i in before), f"${letter}", *(names[i] for i in after)]
        return [f"{piece}:{segment}" for piece in pieces]

    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.post_processor = TemplateProcessing(
        single=template("A", 0),
        pair=[*template("A", 0), *template("B", 1)],
        special_tokens=[(name, index) for index, name in names.items()],
    )
    return copy


def without_segments(table: TokenTable) -> TokenTable:
    """The table without segments, for a model that does not use them."""
    return replace(table, segments=None)
