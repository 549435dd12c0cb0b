"""Convert texts to token ids: cleaning, training tokenizers, encoding, windows."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.data.vocabulary import CLS, CONTINUATION_PREFIX, SEP, SPECIAL_TOKENS, UNK, Vocabulary
from glassformer.errors import ConfigError, DataError, TooFewExamplesError


def tokenizer_failure(error: BaseException) -> str | None:
    """The first line of a tokenizer's error message; None for errors of another kind, such as an interrupt.

    A panic in Rust is raised as ``pyo3_runtime.PanicException``, which ``except Exception`` does not catch.
    """
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return None
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- training a WordPiece vocabulary --------------------------------------------------------------
# ``tokenizers.trainers.WordPieceTrainer`` is not deterministic: it numbers the pieces that continue a word
# (``##a``) in the order of a hash map, and breaks ties by these numbers. Here each letter that continues a
# word is replaced by a private character. Then ordinary byte-pair encoding can be used, which is
# deterministic.

MAX_ALPHABET = 1_000  # maximum number of letters; a word with a rarer letter becomes [UNK]
FIRST_PRIVATE = 0xF0000  # first character of Unicode's plane for private use
COPIES_AT_ONCE = 10_000  # copies of a word passed to the trainer at a time


def _learn_pieces(word_counts: Counter[str], size: int, min_count: int) -> list[str]:
    """At most ``size`` WordPiece pieces: every letter (``a`` and ``##a``), then merges by frequency.

    Args:
        min_count: a pair of pieces that occurs less often is not merged.
    """
    letter_counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for letter in word:
            letter_counts[letter] += count
    ranked = sorted(letter_counts, key=lambda letter: (-letter_counts[letter], letter))
    alphabet = sorted(ranked[: min(MAX_ALPHABET, size // 2)])
    private_letters = {letter: chr(FIRST_PRIVATE + i) for i, letter in enumerate(alphabet)}

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=[*alphabet, *private_letters.values()],
        show_progress=False,
    )
    bpe.train_from_iterator(_repeat_words(word_counts, private_letters), trainer)
    letter_of = {ord(private): letter for letter, private in private_letters.items()}

    def to_wordpiece(piece: str) -> str:
        prefix = CONTINUATION_PREFIX if ord(piece[0]) in letter_of else ""
        return prefix + piece.translate(letter_of)

    vocab = bpe.get_vocab()
    return list(map(to_wordpiece, sorted(vocab, key=vocab.__getitem__)))


def _repeat_words(word_counts: Counter[str], private_letters: dict[str, str]) -> Iterator[str]:
    for word, count in word_counts.items():
        if all(letter in private_letters for letter in word):
            encoded = word[0] + "".join(private_letters[letter] for letter in word[1:]) + " "
            for start in range(0, count, COPIES_AT_ONCE):
                yield encoded * min(COPIES_AT_ONCE, count - start)


Clean = Literal["none", "html", "words", "syllables", "trim"]

# --- cleaning ---------------------------------------------------------------------------------

_TAG = re.compile(r"<(?:/?[a-zA-Z][^<>]*|!--.*?--)>", re.DOTALL)


def clean_text(text: str, mode: Clean) -> str:
    """Clean a text.

    All modes except ``none`` collapse white space, and replace HTML: tags by a space, and entities by their
    character. ``html`` does only this. The other modes also do the following:

    ``words``: everything except letters, combining marks and digits becomes a space (``don't`` -> ``don t``).
    ``syllables``: underscores inside words become spaces. In segmented Vietnamese they join the syllables of
    a word, so segmented and plain text become the same.
    ``trim``: commas, full stops, exclamation and question marks are removed from both ends of each word.
    """
    if mode == "none":
        return text
    if mode not in ("html", "words", "syllables", "trim"):
        fix = "Known: none, html, words, syllables, trim"
        raise DataError(f"unknown cleaning mode {mode!r}", where="clean", fix=fix)
    text = html.unescape(_TAG.sub(" ", text))
    if mode == "syllables":
        text = _JOINT.sub(" ", text)
    if mode == "words":
        text = unicodedata.normalize("NFC", text).translate(_WORDS_ONLY)
    if mode == "trim":
        text = " ".join(word.strip(_EDGE_PUNCTUATION) for word in text.split())
    return " ".join(text.split())


_EDGE_PUNCTUATION = ",.!?"
_JOINT = re.compile(r"(?<=\w)_+(?=\w)")


class _WordsOnly(dict[int, int]):
    """A table for ``str.translate`` that maps all except letters, marks and digits to spaces."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else ord(" ")
        return self[code]


_WORDS_ONLY = _WordsOnly()

# --- tokenizers -------------------------------------------------------------------------------


def word_tokenizer(
    texts: Iterable[str],
    *,
    min_count: int = 2,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool = False,
    add_special_tokens: bool = True,
    separator: bool = True,
) -> Tokenizer:
    """Train a tokenizer of whole words; the ids are [PAD] [UNK] [CLS] [SEP] [MASK], then words by frequency.

    A word is a run of letters, digits and underscores, with apostrophes inside (``don't``). Every other
    character except white space is one token.

    Args:
        texts: training texts, cleaned in the same way as the texts to encode.
        min_count: a word that occurs less often becomes [UNK].
        vocab_size: maximum number of tokens, including special tokens.
        add_special_tokens: whether to add [CLS] before each text, and [SEP] after it.
        separator: whether to add [SEP].

    Raises:
        DataError: no word occurs ``min_count`` times.
    """
    tokenizer = Tokenizer(models.WordLevel({}, unk_token=UNK))
    _set_stages(tokenizer, lowercase, strip_accents, r"\w+(?:['’]\w+)*|[^\w\s]")
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finish(tokenizer, add_special_tokens, separator)


def wordpiece_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_000,
    min_count: int = 2,
    lowercase: bool = True,
    strip_accents: bool = False,
    add_special_tokens: bool = True,
    separator: bool = True,
) -> Tokenizer:
    """Train a WordPiece tokenizer: frequent words are one token, other words are several (``un ##do``).

    Unlike in BERT, underscores do not split words, so segmented Vietnamese words are not split. Every letter
    of the texts is a piece, so only words with unseen letters become [UNK].

    Args:
        texts: training texts, cleaned in the same way as the texts to encode.
        vocab_size: maximum number of tokens, including special tokens.
        min_count: a pair of pieces that occurs less often is not merged.
        lowercase, strip_accents: normalization of the texts.
        add_special_tokens, separator: see ``word_tokenizer``.

    Raises:
        DataError: the texts contain no words.
    """
    tokenizer = Tokenizer(models.WordPiece({}, unk_token=UNK))
    _set_stages(tokenizer, lowercase, strip_accents, r"\w+|[^\w\s]")
    pieces = _learn_pieces(_count_words(tokenizer, texts), vocab_size - len(SPECIAL_TOKENS), min_count)
    vocab = {piece: index for index, piece in enumerate((*SPECIAL_TOKENS, *pieces))}
    tokenizer.model = models.WordPiece(vocab, unk_token=UNK)
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return _finish(tokenizer, add_special_tokens, separator)


def _count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Count the words after the tokenizer's normalizer and pre-tokenizer."""
    normalizer: Any = tokenizer.normalizer
    split: Any = tokenizer.pre_tokenizer
    chunk_counts: Counter[str] = Counter()  # parts between white space; each distinct one is split once
    for text in texts:
        chunk_counts.update(normalizer.normalize_str(text).split())
    word_counts: Counter[str] = Counter()
    for chunk, count in chunk_counts.items():
        for word, _ in split.pre_tokenize_str(chunk):
            word_counts[word] += count
    return word_counts


def _set_stages(tokenizer: Tokenizer, lowercase: bool, strip_accents: bool, pattern: str) -> None:
    # Lower-casing and stripping accents can decompose letters, so NFC is the first and the last step.
    steps: list[Any] = [normalizers.NFC()]
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.NFD(), normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.NFC()] if len(steps) > 1 else []
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def _finish(tokenizer: Tokenizer, add_special_tokens: bool, separator: bool) -> Tokenizer:
    if tokenizer.get_vocab_size() <= len(SPECIAL_TOKENS):
        fix = "Lower min_count, raise vocab_size or give more texts"
        raise TooFewExamplesError("no word is frequent enough for a vocabulary", where="texts", fix=fix)
    if add_special_tokens:
        frame_texts(tokenizer, sep=SEP if separator else None)
    return tokenizer


def frame_texts(tokenizer: Tokenizer, cls: str = CLS, sep: str | None = SEP) -> Tokenizer:
    """Make the tokenizer add [CLS] and [SEP] around each text (``sep=None``: only [CLS]), and return it."""
    if sep is None:
        single, pair = f"{cls} $A", f"{cls} $A $B:1"
    else:
        single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1"
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep) if token is not None]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return tokenizer


# --- encoding ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenTable:
    """Token ids of many texts, concatenated without padding."""

    ids: np.ndarray  # int32 [N]
    starts: np.ndarray  # int64 [n+1]; text i is ids[starts[i]:starts[i+1]]
    segments: np.ndarray | None  # int8 [N]; None: all 0
    truncated: np.ndarray  # bool [n]: whether a text was truncated to max_length

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        truncated: Sequence[bool] | None = None,
        segments: Iterable[Sequence[int]] | None = None,
    ) -> TokenTable:
        """A table of texts, each a list of ids; ``truncated=None``: no text was truncated."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        flat = None if segments is None else np.fromiter(chain.from_iterable(segments), np.int8, len(ids))
        flags = np.zeros(len(rows), bool) if truncated is None else np.array(truncated, bool)
        return cls(ids, row_starts(lengths), flat, flags)

    @classmethod
    def concatenate(cls, tables: Sequence[TokenTable]) -> TokenTable:
        """Concatenate one or more tables."""
        segments = [table.segments for table in tables if table.segments is not None]
        return cls(
            np.concatenate([table.ids for table in tables]),
            row_starts(np.concatenate([table.lengths for table in tables])),
            np.concatenate(segments) if segments else None,
            np.concatenate([table.truncated for table in tables]),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, int64 [n]."""
        return np.diff(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        """Ids of text ``index``, int32; a negative index counts from the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        index %= len(self)
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def select(self, indices: Sequence[int] | np.ndarray) -> TokenTable:
        """The texts at ``indices`` (int or bool), in that order."""
        rows = np.asarray(indices)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        lengths = self.lengths[rows]  # raises IndexError for a text that does not exist
        rows = np.where(rows < 0, rows + len(self), rows)
        starts = row_starts(lengths)
        # Both tables have the same tokens at the same distance from the start of a text.
        positions = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        segments = None if self.segments is None else self.segments[positions]
        return TokenTable(self.ids[positions], starts, segments, self.truncated[rows])


def row_starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    clean: Clean = "none",
    add_special_tokens: bool = True,
    unk_id: int | None = None,
    chunk: int = 2048,
) -> TokenTable:
    """Encode texts as token ids; the tokenizer is not modified.

    A longer text is truncated to ``max_length`` tokens and marked in ``truncated``. It keeps the special
    tokens at its end. A text without tokens becomes one [UNK] (``unk_id``), so every length is at least 1.

    Args:
        max_length: maximum number of tokens, including special tokens.
        add_special_tokens: add the special tokens of the tokenizer's post-processor ([CLS] ... [SEP]).
        chunk: number of texts encoded at a time, to bound the memory.

    Raises:
        DataError: ``max_length`` leaves no room for a token, a text is not a string, or the tokenizer fails.
    """
    tokenizer = without_truncation(tokenizer)
    check_room(max_length, tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0)
    _, tail = frame_ids(tokenizer) if add_special_tokens else ([], [])
    num_kept = max_length - len(tail)
    tables: list[TokenTable] = []
    for start in range(0, len(texts), chunk):
        batch = list(texts[start : start + chunk])
        if not all(isinstance(text, str) for text in batch):  # a tuple would be taken for a pair
            raise DataError("not every text is a string", where="texts", fix="Give a list of str")
        if clean != "none":
            batch = [clean_text(text, clean) for text in batch]
        rows = [encoding.ids for encoding in encode_batch(tokenizer, batch, add_special_tokens)]
        truncated = [len(row) > max_length for row in rows]
        for i, row in enumerate(rows):
            if truncated[i]:
                rows[i] = row[:num_kept] + tail
            elif not row:
                rows[i] = [require_unknown_id(tokenizer, "text") if unk_id is None else unk_id]
        tables.append(TokenTable.of(rows, truncated))
    return TokenTable.concatenate(tables or [TokenTable.of([])])


def check_room(max_length: int, num_special: int, num_texts: int = 1) -> None:
    """Raise DataError if ``max_length`` has no room for the special tokens and one token of each text."""
    if max_length < num_special + num_texts:
        text = "a text" if num_texts == 1 else "two texts"
        what = f"{max_length} tokens leave no room for {text} in addition to {num_special} special tokens"
        raise DataError(what, where="max_length", fix=f"Give {num_special + num_texts} or more")


def without_truncation(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without padding and truncation; the result is a copy if something had to change."""
    if tokenizer.padding is not None or tokenizer.truncation is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


def encode_batch(tokenizer: Tokenizer, inputs: Sequence[Any], add_special_tokens: bool) -> list[Any]:
    """The ``Encoding`` of each text or pair of texts.

    Raises:
        DataError: the tokenizer fails on an input; the message shows the beginning of that input.
    """
    try:
        return tokenizer.encode_batch_fast(inputs, add_special_tokens=add_special_tokens)
    except BaseException as error:  # a panic in compiled code is not an Exception
        if (reason := tokenizer_failure(error)) is None:
            raise
    if len(inputs) > 1:  # find the input that fails
        return [encode_batch(tokenizer, [item], add_special_tokens)[0] for item in inputs]
    is_text = isinstance(inputs[0], str)
    text = inputs[0] if is_text else inputs[0][0]
    shown = repr(text if len(text) <= 40 else f"{text[:40]}...")
    shown = shown if is_text else f"the pair that begins with {shown}"
    fix = f"Leave this {'text' if is_text else 'pair'} out, or use another tokenizer"
    raise DataError(f"the tokenizer fails on {shown} ({reason})", where="texts", fix=fix)


def frame_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the special tokens that the post-processor adds before and after a text."""
    probe = tokenizer.encode("a")
    ordinary = [i for i, is_special in enumerate(probe.special_tokens_mask) if not is_special]
    start, stop = (ordinary[0], ordinary[-1] + 1) if ordinary else (len(probe.ids), len(probe.ids))
    return probe.ids[:start], probe.ids[stop:]


def require_unknown_id(tokenizer: Tokenizer, noun: str) -> int:
    """The id of the unknown token.

    Args:
        noun: what has no tokens, "text" or "pair", for the error message.

    Raises:
        DataError: the tokenizer has no unknown token.
    """
    if (unk_id := unknown_id(tokenizer)) is None:
        what = f"a {noun} has no tokens, and the tokenizer has no unknown token"
        raise DataError(what, where="texts", fix=f"Remove {noun}s without words, or give unk_id")
    return unk_id


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of the unknown token; None if there is none."""
    return Vocabulary.of(tokenizer).unk


# --- byte-level BPE -------------------------------------------------------------------------------
# (Sennrich et al., 2016; Radford et al., 2019) The text is split into words with the blank before them,
# letters become bytes, and frequent pairs are merged. So no word is unknown, and decoding restores every
# character.

NUM_BYTES = 256


def bpe_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 8_000, min_count: int = 2, lowercase: bool = False
) -> Tokenizer:
    """Train a byte-level BPE tokenizer, which adds [CLS] and [SEP] around each text.

    Args:
        texts: training texts, of both languages if they share a vocabulary.
        vocab_size: maximum number of tokens: 5 special tokens, 256 bytes, and merges.
        min_count: a pair that occurs less often is not merged.

    Raises:
        DataError: ``vocab_size`` has no room for the bytes.
    """
    min_size = len(SPECIAL_TOKENS) + NUM_BYTES
    if vocab_size < min_size:
        what = f"{vocab_size} entries have no room for {min_size} special tokens and bytes"
        raise DataError(what, where="vocab_size", fix=f"Use {min_size} or more")
    tokenizer = Tokenizer(models.BPE())
    steps: list[Any] = [normalizers.NFC()] + ([normalizers.Lowercase()] if lowercase else [])
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return frame_texts(tokenizer)


def ignore_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Make the tokenizer read "[MASK]" in a text as six characters, not as a special token, and return it.

    Tokenizer files do not store this setting, so callers set it again after loading.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def detokenize(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Decode token ids to text, without special tokens, and without blanks at both ends."""
    return tokenizer.decode(list(ids), skip_special_tokens=True).strip()


# --- overlapping windows of long texts ------------------------------------------------------------
# tokens of a text     [CLS] a b c d e f g [SEP]        max_length 6, stride 2
# windows              [CLS] a b c d [SEP]
#                          [CLS] c d e f [SEP]
#                            [CLS] d e f g [SEP]         the last window ends with the text

UNLIMITED = 2**40  # a max_length that does not truncate any text


@dataclass(frozen=True)
class Windows:
    """Token ids of w windows of n texts."""

    table: TokenTable  # one row per window
    num_texts: int
    text_of_window: np.ndarray | None = None  # int64 [w], ascending; None: each text has one window

    @property
    def truncated(self) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool; all false if long texts are read in windows."""
        return self.table.truncated if self.text_of_window is None else np.zeros(self.num_texts, bool)


def window_starts(length: int, size: int, stride: int) -> list[int]:
    """Starts of windows of ``size`` in ``length`` > ``size`` tokens; the last window ends with the text."""
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
    """Encode texts as windows; a text that fits has one window, with the ids of ``encode``.

    Args:
        max_length: maximum number of tokens of a window, including special tokens.
        stride: number of tokens between the starts of two windows; None: half the text tokens of a window.

    Raises:
        ConfigError: the stride would skip tokens.
        DataError: see ``encode``.
    """
    special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
    size = max_length - special
    step = max(size // 2, 1) if stride is None else stride
    if size > 0 and not 1 <= step <= size:
        what = f"a stride of {step} skips tokens between windows of {size}"
        raise ConfigError(what, where="window_stride", fix=f"Use 1 to {size}")
    check_room(max_length, special)
    table = encode(tokenizer, texts, max_length=UNLIMITED, clean=clean, add_special_tokens=add_special_tokens)
    if (table.lengths <= max_length).all():
        return Windows(table, len(texts))
    head, tail = frame_ids(tokenizer) if add_special_tokens else ([], [])
    rows: list[list[int]] = []
    text_of_window: list[int] = []
    for i in range(len(texts)):
        row = table[i].tolist()
        windows = [row]
        if len(row) > max_length:
            tokens = row[len(head) : len(row) - len(tail)]
            starts = window_starts(len(tokens), size, step)
            windows = [[*head, *tokens[start : start + size], *tail] for start in starts]
        rows += windows
        text_of_window += [i] * len(windows)
    return Windows(TokenTable.of(rows), len(texts), np.asarray(text_of_window, np.int64))
