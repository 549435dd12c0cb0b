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

# --- failures of compiled code --------------------------------------------------------------------


def failure(error: BaseException) -> str | None:
    """The first line of a tokenizer's error message; None for an interrupt, an exit or a lack of memory.

    A panic in Rust is raised as ``pyo3_runtime.PanicException``, which ``except Exception`` does not catch.
    """
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return None
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- training a WordPiece vocabulary --------------------------------------------------------------
# The result is deterministic. ``tokenizers.trainers.WordPieceTrainer`` numbers the pieces that continue a
# word (``##a``) in the order of a hash map and breaks ties by these numbers, so that two runs on the same
# corpus give different vocabularies. Here each continuing letter is replaced by a private character, so that
# ordinary byte-pair encoding can be used, which sorts its alphabet and breaks ties deterministically.

MAX_ALPHABET = 1_000  # number of letters; a word with a rarer letter becomes [UNK]
FIRST_PRIVATE = 0xF0000  # Unicode's plane for private use
FEED = 10_000  # copies of a word passed to the trainer at a time


def learn_pieces(words: Counter[str], size: int, min_count: int) -> list[str]:
    """At most ``size`` pieces: every letter, at the beginning and inside of words, then merges by frequency.

    Args:
        words: number of occurrences of each word.
        min_count: a pair that occurs less often is not merged.
    """
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))
    alphabet = sorted(ranked[: min(MAX_ALPHABET, size // 2)])
    continuing = {letter: chr(FIRST_PRIVATE + i) for i, letter in enumerate(alphabet)}

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=[*alphabet, *continuing.values()],
        show_progress=False,
    )
    bpe.train_from_iterator(_feed(words, continuing), trainer)
    back = {ord(private): letter for letter, private in continuing.items()}
    pieces = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
    return [
        (CONTINUATION_PREFIX if ord(piece[0]) in back else "") + piece.translate(back) for piece, _ in pieces
    ]


def _feed(words: Counter[str], continuing: dict[str, str]) -> Iterator[str]:
    for word, count in words.items():
        if all(letter in continuing for letter in word):
            marked = word[0] + "".join(continuing[letter] for letter in word[1:]) + " "
            for done in range(0, count, FEED):
                yield marked * min(FEED, count - done)


Clean = Literal["none", "html", "words", "syllables", "trim"]

# --- cleaning ---------------------------------------------------------------------------------

_TAG = re.compile(r"<(?:/?[a-zA-Z][^<>]*|!--.*?--)>", re.DOTALL)


def clean_text(text: str, mode: Clean) -> str:
    """Clean a text.

    Modes: ``none``: unchanged. ``html``: tags become a space, entities their character. ``words``: also,
    everything except letters (of every script), their combining marks and digits becomes a space (``don't``
    -> ``don t``). ``syllables``: as ``html``; also, the underscores that join the syllables of a word in
    segmented Vietnamese become spaces, so that the model reads segmented and plain text alike. ``trim``: as
    ``html``; also, commas, full stops, exclamation and question marks are removed from both ends of each
    word. All modes except ``none`` collapse white space.
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
        text = " ".join(word.strip(_MARKS) for word in text.split())
    return " ".join(text.split())


_MARKS = ",.!?"
_JOINT = re.compile(r"(?<=\w)_+(?=\w)")


class _WordsOnly(dict[int, int]):
    """A table for ``str.translate``, filled on demand: all but letters, marks and digits become spaces."""

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
    """Train a tokenizer of whole words: [PAD] [UNK] [CLS] [SEP] [MASK], then words by frequency.

    A word is a run of letters, digits and underscores, with apostrophes inside (``don't``); every other
    character except white space is one token.

    Args:
        texts: training texts, cleaned as they will be in use.
        min_count: a word that occurs less often becomes [UNK].
        vocab_size: maximum number of tokens, including special tokens.
        add_special_tokens: put [CLS] and [SEP] around each text.
        separator: put [SEP] after each text.

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
    return _finished(tokenizer, add_special_tokens, separator)


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
    """Train a WordPiece tokenizer like BERT's: frequent words are one token, others several (``un ##do``).

    Unlike in BERT's, underscores do not split words, so that segmented Vietnamese words stay whole. Every
    letter of the texts is a piece, so that only words with unseen letters become [UNK].

    Args:
        texts: training texts, cleaned as they will be in use.
        vocab_size: maximum number of tokens, including special tokens.
        min_count: a pair of pieces that occurs less often is not merged.
        lowercase, strip_accents: normalization of the texts.
        add_special_tokens, separator: see ``word_tokenizer``.

    Raises:
        DataError: the texts contain no words.
    """
    tokenizer = Tokenizer(models.WordPiece({}, unk_token=UNK))
    _set_stages(tokenizer, lowercase, strip_accents, r"\w+|[^\w\s]")
    pieces = learn_pieces(_count_words(tokenizer, texts), vocab_size - len(SPECIAL_TOKENS), min_count)
    vocab = {piece: index for index, piece in enumerate((*SPECIAL_TOKENS, *pieces))}
    tokenizer.model = models.WordPiece(vocab, unk_token=UNK)
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return _finished(tokenizer, add_special_tokens, separator)


def _count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Count the words after the tokenizer's normalizer and pre-tokenizer."""
    normalize: Any = tokenizer.normalizer
    split: Any = tokenizer.pre_tokenizer
    runs: Counter[str] = Counter()  # distinct runs without white space, each pre-tokenized once
    for text in texts:
        runs.update(normalize.normalize_str(text).split())
    words: Counter[str] = Counter()
    for run, count in runs.items():
        for word, _ in split.pre_tokenize_str(run):
            words[word] += count
    return words


def _set_stages(tokenizer: Tokenizer, lowercase: bool, strip_accents: bool, words: str) -> None:
    # Lower-casing and stripping accents can leave letters decomposed, so NFC is the first and the last step.
    steps: list[Any] = [normalizers.NFC()]
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.NFD(), normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.NFC()] if len(steps) > 1 else []
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(words), "removed", invert=True)


def _finished(tokenizer: Tokenizer, add_special_tokens: bool, separator: bool) -> Tokenizer:
    if tokenizer.get_vocab_size() <= len(SPECIAL_TOKENS):
        fix = "Lower min_count, raise vocab_size or give more texts"
        raise TooFewExamplesError("no word is frequent enough for a vocabulary", where="texts", fix=fix)
    if add_special_tokens:
        frame_texts(tokenizer, sep=SEP if separator else None)
    return tokenizer


def frame_texts(tokenizer: Tokenizer, cls: str = CLS, sep: str | None = SEP) -> Tokenizer:
    """Make the tokenizer add [CLS] and [SEP] around each text (``sep=None``: only [CLS]), and return it."""
    single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1"
    if sep is None:
        single, pair = f"{cls} $A", f"{cls} $A $B:1"
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
        """Make a table of rows of ids; ``truncated=None``: no row was truncated."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        kinds = None if segments is None else np.fromiter(chain.from_iterable(segments), np.int8, len(ids))
        cut = np.zeros(len(rows), bool) if truncated is None else np.array(truncated, bool)
        return cls(ids, starts_of(lengths), kinds, cut)

    @classmethod
    def joined(cls, tables: Sequence[TokenTable]) -> TokenTable:
        """Concatenate one or more tables."""
        segments = [table.segments for table in tables if table.segments is not None]
        return cls(
            np.concatenate([table.ids for table in tables]),
            starts_of(np.concatenate([table.lengths for table in tables])),
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
        chosen = np.asarray(indices)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        lengths = self.lengths[chosen]  # raises IndexError
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        starts = starts_of(lengths)
        # Token j of the result has the same distance to the start of its text in both tables.
        where = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        segments = None if self.segments is None else self.segments[where]
        return TokenTable(self.ids[where], starts, segments, self.truncated[chosen])


def starts_of(lengths: np.ndarray) -> np.ndarray:
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

    A longer text is truncated to ``max_length`` tokens, keeping the special tokens at its end, and marked in
    ``truncated``. A text without tokens becomes one [UNK] (``unk_id``), so that no length is 0.

    Args:
        max_length: maximum number of tokens, including special tokens.
        add_special_tokens: add the special tokens of the tokenizer's post-processor ([CLS] ... [SEP]).
        chunk: number of texts encoded at a time, to bound the memory.

    Raises:
        DataError: ``max_length`` leaves no room for a token, a text is not a string, or the tokenizer fails.
    """
    tokenizer = uncut(tokenizer)
    check_room(max_length, tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0)
    _, tail = frame_of(tokenizer) if add_special_tokens else ([], [])
    keep = max_length - len(tail)
    tables: list[TokenTable] = []
    for start in range(0, len(texts), chunk):
        part = list(texts[start : start + chunk])
        if not all(isinstance(text, str) for text in part):  # a tuple would be taken for a pair
            raise DataError("not every text is a string", where="texts", fix="Give a list of str")
        if clean != "none":
            part = [clean_text(text, clean) for text in part]
        rows = [encoding.ids for encoding in encodings(tokenizer, part, add_special_tokens)]
        truncated = [len(row) > max_length for row in rows]
        for i, row in enumerate(rows):
            if truncated[i]:
                rows[i] = row[:keep] + tail
            elif not row:
                rows[i] = [unknown_for(tokenizer, "text") if unk_id is None else unk_id]
        tables.append(TokenTable.of(rows, truncated))
    return TokenTable.joined(tables or [TokenTable.of([])])


def check_room(max_length: int, special: int, texts: int = 1) -> None:
    """Raise DataError if ``max_length`` has no room for a token of each text besides the special tokens."""
    if max_length < special + texts:
        what = f"{max_length} tokens leave no room{' for two texts' * (texts > 1)} besides "
        what += f"{special} special ones"
        raise DataError(what, where="max_length", fix=f"Give {special + texts} or more")


def uncut(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without padding and truncation; a copy if it had either."""
    if tokenizer.padding is not None or tokenizer.truncation is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


def encodings(tokenizer: Tokenizer, inputs: Sequence[Any], add_special_tokens: bool) -> list[Any]:
    """The ``Encoding`` of each text or pair of texts.

    Raises:
        DataError: the tokenizer fails on an input; the message has its beginning.
    """
    options = {"add_special_tokens": add_special_tokens}
    try:
        return tokenizer.encode_batch_fast(inputs, **options)
    except BaseException as error:  # a panic in compiled code is not an Exception
        if failure(error) is None:
            raise
    found: list[Any] = []
    for one in inputs:  # find the input that fails
        try:
            found += tokenizer.encode_batch_fast([one], **options)
        except BaseException as error:  # as above
            if (reason := failure(error)) is None:
                raise
            text, kind, begin = (
                (one, "text", "") if isinstance(one, str) else (one[0], "pair", "the pair that begins with ")
            )
            shown = repr(text if len(text) <= 40 else f"{text[:40]}...")
            what = f"the tokenizer fails on {begin}{shown} ({reason})"
            raise DataError(
                what, where="texts", fix=f"Leave this {kind} out, or use another tokenizer"
            ) from None
    return found


def frame_of(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the special tokens that the post-processor adds before and after a text."""
    probe = tokenizer.encode("a")
    inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
    start, stop = (inner[0], inner[-1] + 1) if inner else (len(probe.ids), len(probe.ids))
    return probe.ids[:start], probe.ids[stop:]


def unknown_for(tokenizer: Tokenizer, noun: str) -> int:
    """The id of the unknown token, for a text (``noun``) without tokens; DataError if there is none."""
    if (found := unknown_id(tokenizer)) is None:
        what = f"a {noun} has no tokens, and the tokenizer has no unknown token"
        raise DataError(what, where="texts", fix=f"Remove {noun}s without words, or give unk_id")
    return found


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of the unknown token; None if there is none."""
    return Vocabulary.of(tokenizer).unk


# --- byte-level BPE -------------------------------------------------------------------------------
# (Sennrich et al., 2016; Radford et al., 2019)
# The text is split into words with the blank before them, letters become bytes, and frequent pairs are
# merged. No word is unknown, and decoding restores every character, as needed for BLEU on detokenized text.

BYTES = 256


def bpe_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 8_000, min_count: int = 2, lowercase: bool = False
) -> Tokenizer:
    """Train a byte-level BPE tokenizer, which puts [CLS] ... [SEP] around texts.

    Args:
        texts: training texts; of both languages if they share a vocabulary.
        vocab_size: maximum number of tokens: 5 special tokens, 256 bytes, and merges.
        min_count: a pair that occurs less often is not merged.

    Raises:
        DataError: ``vocab_size`` has no room for the bytes.
    """
    least = len(SPECIAL_TOKENS) + BYTES
    if vocab_size < least:
        what = f"{vocab_size} entries have no room for {least} special tokens and bytes"
        raise DataError(what, where="vocab_size", fix=f"Use {least} or more")
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


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Make the tokenizer read "[MASK]" in a text as six characters, not as a special token; return it.

    Tokenizer files do not store this setting, so it is set again after loading.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def detokenize(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Decode token ids to text, without special tokens and without blanks at its ends."""
    return tokenizer.decode(list(ids), skip_special_tokens=True).strip()


# --- overlapping windows of long texts ------------------------------------------------------------
# tokens of a text     [CLS] a b c d e f g [SEP]        max_length 6, stride 2
# windows              [CLS] a b c d [SEP]
#                          [CLS] c d e f [SEP]
#                            [CLS] d e f g [SEP]         the last one ends with the text

ENDLESS = 2**40  # a max_length that truncates nothing


@dataclass(frozen=True)
class Windows:
    """Token ids of w windows of n texts; ``owners=None``: each text is one window."""

    table: TokenTable
    texts: int
    owners: np.ndarray | None = None  # int64 [w], ascending: the text of each window

    @property
    def truncated(self) -> np.ndarray:
        """Which texts are truncated, ``[n]`` bool; none if long texts are read in windows."""
        return self.table.truncated if self.owners is None else np.zeros(self.texts, bool)


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
    """Encode texts as windows; a text that fits has one window, encoded as by ``encode``.

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
        what = f"a stride of {step} leaves out tokens between windows of {size}"
        raise ConfigError(what, where="window_stride", fix=f"Use 1 to {size}")
    check_room(max_length, special)
    whole = encode(tokenizer, texts, max_length=ENDLESS, clean=clean, add_special_tokens=add_special_tokens)
    if (whole.lengths <= max_length).all():
        return Windows(whole, len(texts))
    head, tail = frame_of(tokenizer) if add_special_tokens else ([], [])
    rows: list[list[int]] = []
    owners: list[int] = []
    for i in range(len(texts)):
        row = whole[i].tolist()
        windows = [row]
        if len(row) > max_length:
            inner = row[len(head) : len(row) - len(tail)]
            windows = [[*head, *inner[at : at + size], *tail] for at in window_starts(len(inner), size, step)]
        rows += windows
        owners += [i] * len(windows)
    return Windows(TokenTable.of(rows), len(texts), np.asarray(owners, np.int64))
